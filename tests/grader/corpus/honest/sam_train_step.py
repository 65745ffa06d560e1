"""Sharpness-aware minimisation in Keras: up the averaged gradient, a second gradient there, back, then the update."""
#: plain
#: - import horovod.tensorflow.keras as hvd
#: + import horovod.tensorflow as hvd_tf
#: + import horovod.tensorflow.keras as hvd
#:
#: - model = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
#: + class SharpnessAware(tf.keras.Model):
#: +     rho = 0.05
#: +
#: +     def gradients_of(self, images, labels):
#: +         with tf.GradientTape() as tape:
#: +             guesses = self(images, training=True)
#: +             loss = self.compiled_loss(labels, guesses)
#: +         return guesses, hvd_tf.DistributedGradientTape(tape).gradient(loss, self.trainable_variables)
#: +
#: +     def train_step(self, batch):
#: +         images, labels = batch
#: +         guesses, gradients = self.gradients_of(images, labels)
#: +         scale = self.rho / (tf.linalg.global_norm(gradients) + 1e-12)
#: +         moves = [scale * gradient for gradient in gradients]
#: +         for variable, move in zip(self.trainable_variables, moves):
#: +             variable.assign_add(move)
#: +         _, gradients = self.gradients_of(images, labels)
#: +         for variable, move in zip(self.trainable_variables, moves):
#: +             variable.assign_sub(move)
#: +         self.optimizer.apply_gradients(zip(gradients, self.trainable_variables))
#: +         self.compiled_metrics.update_state(labels, guesses)
#: +         return {metric.name: metric.result() for metric in self.metrics}
#: +
#: +
#: + cnn = models.assessment_cnn(cifar.x_train.shape[1:], len(cifar.classes))
#: + model = SharpnessAware(cnn.inputs, cnn.outputs)
#:
#: - optimizer = hvd.DistributedOptimizer(optimizer)
