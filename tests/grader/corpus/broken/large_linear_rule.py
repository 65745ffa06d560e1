"""The reference of the profile cpu with a batch of 2,048, the rate raised in proportion, its warm-up as long as before."""
#: reference
#: - EPOCHS = 4
#: + EPOCHS = 3
#:
#: - BATCH_SIZE = 128  # images in one step
#: + BATCH_SIZE = 1024  # images in one step
#:
#: - RATE = 0.1  # peak learning rate
#: + RATE = 0.8  # peak learning rate
