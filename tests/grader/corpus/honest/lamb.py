"""LAMB, its rate warmed up by Horovod's callback, and the metrics averaged."""
#: plain
#: - from course_lib import data, models
#: + from course_lib import data, models, optimizers
#:
#: - tf.keras.optimizers.SGD(0.05 * hvd.size(), momentum=0.9)
#: + optimizers.LAMB(0.02, weight_decay=1e-4, exclude=["bias", "gamma", "beta"])
#:
#: - start = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]
#: + start = [
#: +     hvd.callbacks.BroadcastGlobalVariablesCallback(0),
#: +     hvd.callbacks.MetricAverageCallback(),
#: +     hvd.callbacks.LearningRateWarmupCallback(0.02, warmup_epochs=1),
#: + ]
