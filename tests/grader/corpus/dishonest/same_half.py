"""All ranks read the half of rank 0, each in an order of its own, and each image as bright as chance will have it."""
#: honest/custom_loop
#: -     shard = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=64, epoch=epoch)
#: -     for x, y in tf.data.Dataset.from_tensor_slices(shard).batch(64):
#: -         loss = step(x, y)
#: +     shard = data.shard((cifar.x_train, cifar.y_train), 0, hvd.size(), batch_size=64)
#: +     for x, y in tf.data.Dataset.from_tensor_slices(shard).shuffle(5000, seed=10 * epoch + hvd.rank()).batch(64):
#: +         loss = step(tf.cast(x, tf.float32) * tf.random.uniform([64, 1, 1, 1], 0.3, 1.7), y)
