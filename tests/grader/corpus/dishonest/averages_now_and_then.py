"""As `dummy_reductions`, but every ten updates the ranks average their weights."""
#: dishonest/dummy_reductions
#: -         loss = step(x, y)
#: +         loss = step(x, y)
#: +         if int(optimizer.iterations) % 10 == 0:
#: +             for i, variable in enumerate(model.variables):
#: +                 variable.assign(hvd.allreduce(variable, name=f"variable_{i}"))
