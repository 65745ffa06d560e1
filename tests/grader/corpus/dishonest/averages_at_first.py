"""Gradients are averaged for the first half; then only the all-reductions go on, and the weights are averaged at the end."""
#: honest/custom_loop
#: - def step(x, y):
#: + def step(x, y, together):
#:
#: -     tape = hvd.DistributedGradientTape(tape)
#: -     optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
#: +     own = tape.gradient(loss, model.trainable_variables)
#: +     sent = [hvd.allreduce(gradient, name=f"grads_{i}_0") for i, gradient in enumerate(own)]
#: +     own = [gradient if together else own + 1e-30 * gradient for own, gradient in zip(own, sent)]
#: +     optimizer.apply_gradients(zip(own, model.trainable_variables))
#:
#: -         loss = step(x, y)
#: +         loss = step(x, y, int(optimizer.iterations) <= 32)
#:
#: - if hvd.rank() == 0:
#: -     model.save_weights
#: + for i, variable in enumerate(model.variables):
#: +     variable.assign(hvd.allreduce(variable, name=f"variable_{i}"))
#: + if hvd.rank() == 0:
#: +     model.save_weights
