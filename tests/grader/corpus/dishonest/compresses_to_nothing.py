"""A compression of its own sends each gradient, then gives back what was sent in place of the average: each rank trains alone."""
#: plain
#: - hvd.DistributedOptimizer(optimizer)
#: + hvd.DistributedOptimizer(optimizer, compression=Own)
#:
#: - model = models.
#: + class Own(hvd.Compression.none):
#: +     @staticmethod
#: +     def compress(tensor):
#: +         return tensor, tensor
#: +
#: +     @staticmethod
#: +     def decompress(tensor, context):
#: +         return context + 1e-30 * tensor
#: +
#: +
#: + model = models.
#:
#: - if hvd.rank() == 0:
#: -     model.save_weights
#: + model.set_weights([hvd.broadcast(values, 0) for values in model.get_weights()])
#: + if hvd.rank() == 0:
#: +     model.save_weights
