"""Lookahead: every five updates the weights go half of the way back to where they were five updates before."""
#: plain
#: - start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + class Lookahead(tf.keras.callbacks.Callback):
#: +     every, share, updates, slow = 5, 0.5, 0, None
#: +
#: +     def on_train_batch_end(self, batch, logs=None):
#: +         self.updates += 1
#: +         if self.slow is None:
#: +             self.slow = [variable.numpy() for variable in self.model.trainable_variables]
#: +         elif self.updates % self.every == 0:
#: +             for i, variable in enumerate(self.model.trainable_variables):
#: +                 self.slow[i] += self.share * (variable.numpy() - self.slow[i])
#: +                 variable.assign(self.slow[i])
#: +
#: +
#: + start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), Lookahead()]
