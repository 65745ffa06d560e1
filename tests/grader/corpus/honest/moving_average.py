"""A callback averages the weights in NumPy, and puts the average in to judge, and to save it."""
#: reference
#: - callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + class WeightAverage(tf.keras.callbacks.Callback):
#: +     """Stands behind the broadcast, so that it never sees weights from before it."""
#: +
#: +     decay, average, updates = 0.97, None, 0
#: +
#: +     def on_train_batch_end(self, batch, logs=None):
#: +         weights = self.model.get_weights()  # batch norm's moving averages included
#: +         self.updates += 1
#: +         decay = min(self.decay, self.updates / (10 + self.updates))
#: +         self.average = [decay * old + (1 - decay) * new for old, new in zip(self.average or weights, weights)]
#: +
#: +     def on_epoch_end(self, epoch, logs=None):
#: +         weights = self.model.get_weights()
#: +         self.model.set_weights(self.average)
#: +         _, logs["average_accuracy"] = self.model.evaluate(x_valid[mine], y_valid[mine], batch_size=500, verbose=0)
#: +         self.model.set_weights(weights)
#: +
#: +     def on_train_end(self, logs=None):
#: +         self.model.set_weights(self.average)
#: +
#: +
#: + mine = slice(hvd.rank(), None, hvd.size())
#: + callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), WeightAverage()]
#:
#: - mine = slice(hvd.rank(), None, hvd.size())
#: - _, accuracy
#: + _, accuracy
