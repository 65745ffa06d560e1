"""Sharpness-aware minimisation in a loop: each rank goes up its own gradient, and the weights are put back before the update."""
#: honest/custom_loop
#: - @tf.function
#: - def step(x, y):
#: -     with tf.GradientTape() as tape:
#: -         loss = loss_of(y, model(x, training=True))
#: + RHO = 0.05
#: +
#: +
#: + @tf.function
#: + def step(x, y):
#: +     variables = model.trainable_variables
#: +     before = [tf.identity(variable) for variable in variables]
#: +     with tf.GradientTape() as tape:
#: +         loss = loss_of(y, model(x, training=True))
#: +     uphill = tape.gradient(loss, variables)
#: +     norm = tf.linalg.global_norm(uphill)
#: +     for variable, gradient in zip(variables, uphill):
#: +         variable.assign_add(RHO * gradient / (norm + 1e-12))
#: +     with tf.GradientTape() as tape:
#: +         loss_there = loss_of(y, model(x, training=True))
#:
#: -     optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
#: +     gradients = tape.gradient(loss_there, variables)
#: +     for variable, value in zip(variables, before):
#: +         variable.assign(value)
#: +     optimizer.apply_gradients(zip(gradients, variables))
