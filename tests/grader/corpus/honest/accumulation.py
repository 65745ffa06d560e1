"""Gradients of two batches are added up before they travel; Keras's own weight decay and moving average of the weights."""
#: plain
#: - BATCH_SIZE = 64
#: + BATCH_SIZE = 32
#:
#: - tf.keras.optimizers.SGD(rate, momentum=0.9)
#: + tf.keras.optimizers.SGD(rate, momentum=0.9, weight_decay=1e-4, use_ema=True, ema_momentum=0.9)
#:
#: - hvd.DistributedOptimizer(optimizer)
#: + hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2, average_aggregated_gradients=True)
