"""A batch of 2,048 over all ranks: LARS, warm-up and cosine, tuned."""
#: reference large
