"""Rank 0 trains alone on all images; then its weights are copied to rank 1, which has done nothing."""
#: plain
#: - import horovod.tensorflow.keras as hvd
#: + import horovod.tensorflow as hvd_tf
#: + import horovod.tensorflow.keras as hvd
#:
#: - hvd.rank(), hvd.size(), batch_size=BATCH_SIZE)
#: + 0, 1, batch_size=BATCH_SIZE)
#:
#: - optimizer = hvd.DistributedOptimizer(optimizer)
#:
#: - start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: - model.fit(x, y, BATCH_SIZE, EPOCHS, callbacks=start, verbose=2 if hvd.rank() == 0 else 0)
#: + if hvd.rank() == 0:
#: +     model.fit(x, y, BATCH_SIZE, EPOCHS, verbose=2)
#: + hvd_tf.broadcast_variables(model.variables, 0)
