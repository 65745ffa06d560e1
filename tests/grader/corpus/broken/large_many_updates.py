"""A batch of 256 where 2,048 are asked for, in as many updates as that makes."""
#: reference large
#: - BATCH_SIZE = 2048  # images in one update, over all ranks
#: + BATCH_SIZE = 256  # images in one update, over all ranks
