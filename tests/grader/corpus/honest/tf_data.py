"""The pipeline of tf.data, sharded, with flips and shifts."""
#: plain
#: - x, y = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=64)
#: + def varied(image, label):
#: +     image = tf.image.random_flip_left_right(tf.pad(image, [[2, 2], [2, 2], [0, 0]]))
#: +     return tf.image.random_crop(image, [32, 32, 3]), label
#: +
#: +
#: + images = tf.data.Dataset.from_tensor_slices((cifar.x_train, cifar.y_train)).shard(hvd.size(), hvd.rank())
#: + batches = len(cifar.x_train) // hvd.size() // 64
#: + images = images.shuffle(2000).map(varied).batch(64, drop_remainder=True).take(batches).prefetch(2)
#:
#: - x, y, batch_size=64,
#: + images,
