"""A callback bounds the norm of each unit's weights after each update; the optimizer bounds that of the gradients."""
#: plain
#: - momentum=0.9)
#: + momentum=0.9, global_clipnorm=2.0)
#:
#: - start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + class MaxNorm(tf.keras.callbacks.Callback):
#: +     def on_train_batch_end(self, batch, logs=None):
#: +         for variable in self.model.trainable_variables:
#: +             if "kernel" in variable.name:
#: +                 variable.assign(tf.clip_by_norm(variable, 2.0, axes=list(range(len(variable.shape) - 1))))
#: +
#: +
#: + start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), MaxNorm()]
