"""A callback keeps the weights of the epoch with the least averaged loss in memory; all ranks put them back, then save."""
#: plain
#: - start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + class KeepBest(tf.keras.callbacks.Callback):
#: +     least, weights = float("inf"), None
#: +
#: +     def on_epoch_end(self, epoch, logs=None):
#: +         if logs["loss"] < self.least:
#: +             self.least, self.weights = logs["loss"], self.model.get_weights()
#: +
#: +     def on_train_end(self, logs=None):
#: +         self.model.set_weights(self.weights)
#: +
#: +
#: + start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback(), KeepBest()]
#:
#: - epochs=3
#: + epochs=4
