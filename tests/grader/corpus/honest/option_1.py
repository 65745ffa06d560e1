"""Each epoch all ranks shuffle alike and take every size-th image (option 1); LARS; gradients travel as fp16."""
#: plain
#: - from course_lib import data, models
#: + from course_lib import data, models, optimizers
#:
#: - tf.keras.optimizers.SGD(0.05 * hvd.size(), momentum=0.9)
#: + optimizers.LARS(2.0, exclude=["bias", "gamma", "beta"], trust_coefficient=0.01)
#:
#: - hvd.DistributedOptimizer(optimizer)
#: + hvd.DistributedOptimizer(optimizer, compression=hvd.Compression.fp16)
#:
#: - model.fit(x, y, batch_size=64, epochs=3, callbacks=start, verbose=2 if hvd.rank() == 0 else 0)
#: + for epoch in range(3):
#: +     x, y = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), 1, batch_size=64, epoch=epoch)
#: +     model.fit(x, y, 64, initial_epoch=epoch, epochs=epoch + 1, callbacks=start, verbose=0, shuffle=False)
