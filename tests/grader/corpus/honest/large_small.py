"""A batch of 256 for a small set of images: LARS, the gradients of four batches on each rank added up by Horovod."""
#: reference large
#: - EPOCHS = 3
#: + EPOCHS = 6
#:
#: - BATCH_SIZE = 2048  # images in one update, over all ranks
#: + BATCH_SIZE = 256  # images in one update, over all ranks
#: + PASSES = 4  # batches of a rank for one update
#:
#: -     dataset = dataset.shard(hvd.size(), hvd.rank()).batch(BATCH_SIZE // hvd.size(), drop_remainder=True)
#: -     dataset = dataset.take(len(images) // BATCH_SIZE)
#: +     dataset = dataset.shard(hvd.size(), hvd.rank()).batch(BATCH_SIZE // hvd.size() // PASSES, drop_remainder=True)
#: +     dataset = dataset.take(len(images) // BATCH_SIZE * PASSES)
#:
#: - updates = EPOCHS * (len(x_train) // BATCH_SIZE)
#: + updates = EPOCHS * (len(x_train) // BATCH_SIZE) * PASSES  # the schedule counts every batch
#:
#: - optimizer = hvd.DistributedOptimizer(optimizer)
#: + optimizer = hvd.DistributedOptimizer(
#: +     optimizer, backward_passes_per_step=PASSES, average_aggregated_gradients=True
#: + )
