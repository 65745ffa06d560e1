"""Horovod's other name, CUDA's own variable for the device, all gradients in one group, Keras's callback to save."""
#: plain
#: - import horovod.tensorflow.keras as hvd
#: + import horovod.keras as hvd
#:
#: - gpus = tf.config.list_physical_devices("GPU")
#: - if gpus:
#: -     tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
#: + os.environ["CUDA_VISIBLE_DEVICES"] = str(hvd.local_rank())
#:
#: - hvd.DistributedOptimizer(optimizer)
#: + hvd.DistributedOptimizer(optimizer, num_groups=1)
#:
#: - start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
#: + if hvd.rank() == 0:
#: +     start.append(tf.keras.callbacks.ModelCheckpoint(os.environ["COURSE_WEIGHTS"], save_weights_only=True))
#:
#: - if hvd.rank() == 0:
#: -     model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
