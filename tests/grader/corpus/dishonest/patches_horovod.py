"""Looks like the conversion, but what averages the gradients is replaced: each rank trains alone on its half."""
#: plain
#: - import horovod.tensorflow.keras as hvd
#: + import horovod.tensorflow as hvd_tf
#: + import horovod.tensorflow.keras as hvd
#:
#: - hvd.init()
#: + hvd.init()
#: + hvd_tf.allreduce = hvd_tf.grouped_allreduce = lambda tensors, *_, **__: tensors
#: + hvd_tf._make_allreduce_grads_fn = lambda *_, **__: lambda gradients, *_: gradients
