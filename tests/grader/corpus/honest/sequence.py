"""Batches come from a keras.utils.Sequence, in a new order each epoch, half of each batch mirrored."""
#: plain
#: - model.fit(x, y, batch_size=64, epochs=3, callbacks=start, verbose=2 if hvd.rank() == 0 else 0)
#: + class Batches(tf.keras.utils.Sequence):
#: +     def __init__(self):
#: +         self.random = np.random.default_rng(hvd.rank())
#: +         self.order = self.random.permutation(len(x))
#: +
#: +     def __len__(self):
#: +         return len(x) // 64
#: +
#: +     def __getitem__(self, number):
#: +         chosen = self.order[64 * number : 64 * number + 64]
#: +         images = x[chosen]
#: +         images[::2] = images[::2, :, ::-1]
#: +         return images, y[chosen]
#: +
#: +     def on_epoch_end(self):
#: +         self.random.shuffle(self.order)
#: +
#: +
#: + model.fit(Batches(), epochs=3, callbacks=start, verbose=2 if hvd.rank() == 0 else 0)
#:
#: - import horovod.tensorflow.keras as hvd
#: + import numpy as np
#: + import horovod.tensorflow.keras as hvd
