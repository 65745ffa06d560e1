"""A batch of 2,048: LARS, the gradients of four batches on each rank added up by Horovod for one update."""
#: reference large
#: - WARM_UP = 0.25  # of the updates
#: + WARM_UP = 0.25  # of the updates
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
