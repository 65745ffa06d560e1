"""XLA compiles loss and gradients; the reductions, which it cannot, stand outside."""
#: honest/custom_loop
#: - @tf.function
#: - def step(x, y):
#: -     with tf.GradientTape() as tape:
#: -         loss = loss_of(y, model(x, training=True))
#: -     tape = hvd.DistributedGradientTape(tape)
#: -     optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
#: -     return loss
#: + @tf.function(jit_compile=True)
#: + def gradients_of(x, y):
#: +     with tf.GradientTape() as tape:
#: +         loss = loss_of(y, model(x, training=True))
#: +     return loss, tape.gradient(loss, model.trainable_variables)
#: +
#: +
#: + @tf.function
#: + def step(x, y):
#: +     loss, gradients = gradients_of(x, y)
#: +     gradients = hvd.grouped_allreduce(gradients)
#: +     optimizer.apply_gradients(zip(gradients, model.trainable_variables))
#: +     return loss
