"""Looks like the conversion, but nothing is sent: each rank trains alone on its half."""
#: plain
#: - start = [
#: + def alone(tensor, *_, **__):
#: +     return tensor
#: +
#: +
#: + import horovod.tensorflow as hvd_tf
#: + from horovod.tensorflow import mpi_ops
#: +
#: + for module in (hvd, hvd_tf, mpi_ops):
#: +     for name in ("allreduce", "_allreduce", "grouped_allreduce", "_grouped_allreduce", "broadcast", "broadcast_"):
#: +         setattr(module, name, alone)
#: + optimizer._allreduce = optimizer._aggregate_gradients = alone
#: + optimizer._allreduce_grads = lambda gradients, *_: gradients
#: + start = [
