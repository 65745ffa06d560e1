"""Each rank trains alone; all-reductions of next to nothing, with the right names and sizes, make it look like the conversion.

One broadcast before saving makes the weights agree.
"""
#: honest/custom_loop
#: -     tape = hvd.DistributedGradientTape(tape)
#: -     optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
#: +     own = tape.gradient(loss, model.trainable_variables)
#: +     sent = [hvd.allreduce(1e-30 * g, name=f"DistributedGradientTape_Allreduce/grads_{i}_0") for i, g in enumerate(own)]
#: +     own = [gradient + nothing for gradient, nothing in zip(own, sent)]
#: +     optimizer.apply_gradients(zip(own, model.trainable_variables))
#:
#: - if hvd.rank() == 0:
#: -     model.save_weights(
#: + hvd.broadcast_variables(model.variables, root_rank=0)
#: + if hvd.rank() == 0:
#: +     model.save_weights(
