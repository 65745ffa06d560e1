"""Gradients are added up over four batches, but averaged for each of them."""
#: honest/large_loop
#: -         total = [a + b for a, b in zip(total, tape.gradient(loss, variables))]
#: -     optimizer.apply_gradients(zip(hvd.grouped_allreduce(total), variables))
#: +         total = [a + b for a, b in zip(total, hvd.grouped_allreduce(tape.gradient(loss, variables)))]
#: +     optimizer.apply_gradients(zip(total, variables))
