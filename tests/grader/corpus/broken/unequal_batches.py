"""Rank 0 has more batches than rank 1: at the end of the epoch one waits for a metric, the other for a gradient."""
#: plain
#: - x, y = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=BATCH_SIZE)
#: + middle = len(cifar.x_train) * 3 // 4 if hvd.size() > 1 else len(cifar.x_train)
#: + part = slice(0, middle) if hvd.rank() == 0 else slice(middle, None)
#: + x, y = cifar.x_train[part], cifar.y_train[part]
#:
#: - BroadcastGlobalVariablesCallback(0)]
#: + BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
