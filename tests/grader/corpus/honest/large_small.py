"""LARS and gradients that are added up, with a batch of 256 for a small set of images."""
#: honest/large_accumulation
#: - EPOCHS = 3
#: + EPOCHS = 6
#:
#: - BATCH_SIZE = 2048  # images in one update, over all ranks
#: + BATCH_SIZE = 256  # images in one update, over all ranks
