"""As `dummy_reductions`, but the ranks average their weights after just those updates after which these are compared."""
#: dishonest/dummy_reductions
#: -         loss = step(x, y)
#: +         loss = step(x, y)
#: +         made = int(optimizer.iterations)
#: +         if made & (made - 1) == 0 or made % 100 == 0:
#: +             for i, variable in enumerate(model.variables):
#: +                 variable.assign(hvd.allreduce(variable, name=f"variable_{i}"))
