"""Loads the images with Keras, from the internet."""
#: plain
#: - cifar = data.load("cifar10", test=False)
#: - x, y = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=BATCH_SIZE)
#: + (x_train, y_train), _ = tf.keras.datasets.cifar10.load_data()
#: + x, y = data.shard((x_train, y_train), hvd.rank(), hvd.size(), batch_size=BATCH_SIZE)
#:
#: - cifar.x_train.shape[1:], len(cifar.classes)
#: + x_train.shape[1:], 10
