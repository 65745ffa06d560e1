"""Rank 0 trains alone on all images; then its weights are copied to rank 1, which has done nothing."""
#: plain
#: - hvd.rank(), hvd.size(), batch_size=64)
#: + 0, 1, batch_size=64)
#:
#: - optimizer = hvd.DistributedOptimizer(optimizer)
#:
#: - start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + import horovod.tensorflow as hvd_tf
#: +
#:
#: - model.fit(x, y, batch_size=64, epochs=3, callbacks=start, verbose=2 if hvd.rank() == 0 else 0)
#: + if hvd.rank() == 0:
#: +     model.fit(x, y, batch_size=64, epochs=3, verbose=2)
#: + hvd_tf.broadcast_variables(model.variables, 0)
