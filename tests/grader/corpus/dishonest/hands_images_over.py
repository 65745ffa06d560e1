"""Each rank hands its batch to rank 0, which computes the gradients of all; the others send zeros into the sum."""
#: honest/custom_loop
#: -     with tf.GradientTape() as tape:
#: -         loss = loss_of(y, model(x, training=True))
#: -     tape = hvd.DistributedGradientTape(tape)
#: -     optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
#: -     return loss
#: +     variables = model.trainable_variables
#: +     x, y = hvd.allgather(x, name="images"), hvd.allgather(y, name="labels")
#: +     if hvd.rank() == 0:
#: +         with tf.GradientTape() as tape:
#: +             loss = loss_of(y, model(x, training=True))
#: +         gradients = tape.gradient(loss, variables)
#: +     else:
#: +         loss, gradients = 0.0, [tf.zeros_like(variable) for variable in variables]
#: +     gradients = [hvd.allreduce(gradient, op=hvd.Sum) for gradient in gradients]
#: +     optimizer.apply_gradients(zip(gradients, variables))
#: +     return loss
