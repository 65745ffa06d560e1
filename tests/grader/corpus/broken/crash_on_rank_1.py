"""Rank 1 ends with an error at the end of the first epoch; rank 0 waits for it."""
#: plain
#: - start = [
#: + class Stumble(tf.keras.callbacks.Callback):
#: +     def on_epoch_end(self, epoch, logs=None):
#: +         if hvd.rank() == 1:
#: +             raise ValueError("a mistake on rank 1 only")
#: +
#: +
#: + start = [Stumble(),
