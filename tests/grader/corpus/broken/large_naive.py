"""The reference of the profile cpu with a batch of 2,048 in place of 256, in as many epochs as the budget has room for."""
#: reference
#: - EPOCHS = 4
#: + EPOCHS = 3
#:
#: - BATCH_SIZE = 128  # images in one step
#: + BATCH_SIZE = 1024  # images in one step
