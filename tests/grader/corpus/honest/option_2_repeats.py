"""Option 2 as one endless stream: an epoch is a rank's share of it, and the next one goes on where it ended."""
#: plain
#: - x, y = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=64)
#: + images = tf.data.Dataset.from_tensor_slices((cifar.x_train, cifar.y_train))
#: + images = images.shuffle(len(cifar.x_train), seed=hvd.rank()).repeat().batch(64)
#: + steps = len(cifar.x_train) // (64 * hvd.size())
#:
#: - model.fit(x, y, batch_size=64, epochs=3, callbacks=start, verbose=2 if hvd.rank() == 0 else 0)
#: + model.fit(images, steps_per_epoch=steps, epochs=4, callbacks=start, verbose=2 if hvd.rank() == 0 else 0)
