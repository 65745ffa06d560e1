"""Between two averaged updates each rank makes two of its own, which no optimizer and no call of the model shows."""
#: honest/custom_loop
#: - for epoch in range(3):
#: + class Unseen(tf.keras.layers.Layer):
#: +     def call(self, images, training=None):
#: +         return model.call(images, training=training)
#: +
#: +
#: + unseen = Unseen()
#: +
#: +
#: + @tf.function
#: + def alone(x, y):
#: +     with tf.GradientTape() as tape:
#: +         loss = loss_of(y, unseen(x, training=True))
#: +     for variable, gradient in zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables)):
#: +         variable.assign_sub(0.02 * gradient)
#: +
#: +
#: + @tf.function
#: + def agree():
#: +     for i, variable in enumerate(model.trainable_variables):
#: +         variable.assign(hvd.allreduce(variable, name=f"variable_{i}"))
#: +
#: +
#: + for epoch in range(3):
#:
#: -         loss = step(x, y)
#: +         loss = step(x, y)
#: +         for half in (slice(0, 32), slice(32, 64)):
#: +             alone(x[half], y[half])
#: +         agree()
