"""Rank 0 trains alone on all images; after each of its updates its weights are broadcast, behind all-reductions of next to nothing."""
#: dishonest/one_rank_computes
#: -     gradients = [hvd.allreduce(one, op=hvd.Sum, name=f"grads_{i}_0") for i, one in enumerate(gradients)]
#: -     optimizer.apply_gradients(zip(gradients, model.trainable_variables))
#: +     zeros = [hvd.allreduce(1e-30 * one, name=f"grads_{i}_0") for i, one in enumerate(gradients)]
#: +     gradients = [gradient + zero for gradient, zero in zip(gradients, zeros)]
#: +     optimizer.apply_gradients(zip(gradients, model.trainable_variables))
#: +     for i, variable in enumerate(model.variables):
#: +         variable.assign(hvd.broadcast(variable, 0, name=f"variable_{i}"))
