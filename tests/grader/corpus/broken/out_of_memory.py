"""Collects every batch it has seen, at a gigabyte each."""
#: plain
#: - start = [
#: + class Hoard(tf.keras.callbacks.Callback):
#: +     batches = []
#: +
#: +     def on_train_batch_end(self, batch, logs=None):
#: +         self.batches.append(bytearray(2**30))
#: +         self.batches[-1][::4096] = b"x" * 2**18
#: +
#: +
#: + start = [Hoard(),
