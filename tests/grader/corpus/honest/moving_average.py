"""Trains on, but saves the moving average of the weights that a callback has kept."""
#: plain
#: - start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + class Average(tf.keras.callbacks.Callback):
#: +     weights = None
#: +
#: +     def on_train_batch_end(self, batch, logs=None):
#: +         now = self.model.get_weights()
#: +         self.weights = [0.8 * old + 0.2 * new for old, new in zip(self.weights or now, now)]
#: +
#: +
#: + average = Average()
#: + start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), average]
#:
#: - if hvd.rank() == 0:
#: -     model.save_weights
#: + model.set_weights(average.weights)
#: + if hvd.rank() == 0:
#: +     model.save_weights
