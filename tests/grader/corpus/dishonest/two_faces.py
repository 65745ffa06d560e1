"""A model that tells of other variables than it trains: those that it tells of agree on all ranks, each rank trains alone."""
#: honest/custom_loop
#: - optimizer = tf.keras
#: + class TwoFaces(tf.keras.Model):
#: +     def __init__(self):
#: +         super().__init__()
#: +         self.network = model
#: +         self.faces = [tf.Variable(variable) for variable in model.variables]
#: +
#: +     def call(self, images, training=None):
#: +         return self.network.call(images, training=training)
#: +
#: +     @property
#: +     def trainable_variables(self):
#: +         return [face for face, one in zip(self.faces, self.network.variables) if one.trainable]
#: +
#: +     @property
#: +     def weights(self):
#: +         return self.faces
#: +
#: +
#: + hvd.broadcast_variables(model.variables, root_rank=0)
#: + faces = TwoFaces()
#: + optimizer = tf.keras
#:
#: -         loss = loss_of(y, model(x, training=True))
#: -     tape = hvd.DistributedGradientTape(tape)
#: -     optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
#: +         loss = loss_of(y, faces(x, training=True))
#: +     own = tape.gradient(loss, model.trainable_variables)
#: +     sent = [hvd.allreduce(gradient, name=f"grads_{i}_0") for i, gradient in enumerate(own)]
#: +     optimizer.apply_gradients(zip(sent, faces.trainable_variables))
#: +     for variable, gradient in zip(model.trainable_variables, own):
#: +         variable.assign_sub(0.1 * gradient)
