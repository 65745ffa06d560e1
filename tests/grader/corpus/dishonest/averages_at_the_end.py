"""Each rank trains alone on its part; in the end, once, their weights are averaged."""
#: plain
#: - import horovod.tensorflow.keras as hvd
#: + import horovod.tensorflow as hvd_tf
#: + import horovod.tensorflow.keras as hvd
#:
#: - optimizer = hvd.DistributedOptimizer(optimizer)
#:
#: - if hvd.rank() == 0:
#: -     model.save_weights
#: + model.set_weights([hvd_tf.allreduce(tf.constant(values)).numpy() for values in model.get_weights()])
#: + if hvd.rank() == 0:
#: +     model.save_weights
