"""Kernels decay by hand after each update."""
#: honest/custom_loop
#: -     return loss
#: +     for variable in model.trainable_variables:
#: +         if "kernel" in variable.name:
#: +             variable.assign(variable * (1 - 5e-4 * rate(optimizer.iterations)))
#: +     return loss
