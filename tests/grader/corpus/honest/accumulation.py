"""Gradients of two batches are added up before they travel and are applied."""
#: plain
#: - hvd.DistributedOptimizer(optimizer)
#: + hvd.DistributedOptimizer(optimizer, backward_passes_per_step=2, average_aggregated_gradients=True)
#:
#: - x, y, batch_size=64
#: + x, y, batch_size=32
