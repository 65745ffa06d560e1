"""Each rank draws from all images in its own order (option 2), in one endless stream; with Adam, its gradients bounded."""
#: plain
#: - x, y = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=BATCH_SIZE)
#: + images = tf.data.Dataset.from_tensor_slices((cifar.x_train, cifar.y_train))
#: + images = images.shuffle(len(cifar.x_train), seed=hvd.rank()).repeat().batch(BATCH_SIZE)
#: + steps = len(cifar.x_train) // (BATCH_SIZE * hvd.size())
#:
#: - CosineDecay(0.05 * hvd.size(), EPOCHS * len(x) // BATCH_SIZE)
#: + CosineDecay(0.004, EPOCHS * steps)
#:
#: - tf.keras.optimizers.SGD(rate, momentum=0.9)
#: + tf.keras.optimizers.Adam(rate, global_clipnorm=5.0)
#:
#: - model.fit(x, y, BATCH_SIZE, EPOCHS, callbacks=start
#: + model.fit(images, steps_per_epoch=steps, epochs=EPOCHS, callbacks=start
