"""The same with the rate raised in proportion to the batch, its warm-up as long as before."""
#: broken/large_naive
#: - RATE = 0.1  # learning rate at its highest
#: + RATE = 0.8  # learning rate at its highest
