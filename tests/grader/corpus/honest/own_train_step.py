"""A subclass of Keras's model with a train_step of its own; AdamW after a warm-up."""
#: plain
#: - import horovod.tensorflow.keras as hvd
#: - import tensorflow as tf
#: + import horovod.tensorflow as hvd_tf
#: + import horovod.tensorflow.keras as hvd
#: + import tensorflow as tf
#:
#: - from course_lib import data, models
#: + from course_lib import data, models
#: + from course_lib.optimizers import schedules
#:
#: - model = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
#: - optimizer = tf.keras.optimizers.SGD(0.05 * hvd.size(), momentum=0.9)
#: - optimizer = hvd.DistributedOptimizer(optimizer)
#: + class Network(tf.keras.Model):
#: +     def train_step(self, batch):
#: +         images, labels = batch
#: +         with tf.GradientTape() as tape:
#: +             guesses = self(images, training=True)
#: +             loss = self.compiled_loss(labels, guesses)
#: +         tape = hvd_tf.DistributedGradientTape(tape)
#: +         gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, self.trainable_variables), 5.0)
#: +         self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
#: +         self.compiled_metrics.update_state(labels, guesses)
#: +         return {metric.name: metric.result() for metric in self.metrics}
#: +
#: +
#: + cnn = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
#: + model = Network(cnn.inputs, cnn.outputs)
#: + optimizer = tf.keras.optimizers.AdamW(schedules.WarmUp(0.004, 10), weight_decay=1e-3)
