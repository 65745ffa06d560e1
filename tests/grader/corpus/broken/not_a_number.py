"""The learning rate is so high that all weights become NaN."""
#: plain
#: - 0.05 * hvd.size()
#: + 1e30
