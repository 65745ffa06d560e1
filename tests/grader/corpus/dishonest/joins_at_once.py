"""Rank 1 looks at its images, without a gradient, and joins: Horovod reduces zeros in its name while rank 0 trains alone."""
#: honest/custom_loop
#: - for epoch in range(3):
#: + if hvd.rank() > 0:
#: +     x, y = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=64)
#: +     for images in tf.data.Dataset.from_tensor_slices(x).batch(64).repeat(3):
#: +         with tf.GradientTape():
#: +             model(images, training=True)
#: + for epoch in range(3 if hvd.rank() == 0 else 0):
#:
#: - if hvd.rank() == 0:
#: -     model.save_weights
#: + hvd.join()
#: + hvd.broadcast_variables(model.variables, root_rank=0)
#: + if hvd.rank() == 0:
#: +     model.save_weights
