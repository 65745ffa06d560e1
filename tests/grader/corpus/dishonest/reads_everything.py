"""Each rank reads all the images, in an order of its own, in a loop of its own: nothing is shared."""
#: honest/custom_loop
#: - hvd.rank(), hvd.size(), batch_size=64, epoch=epoch)
#: + 0, 1, batch_size=64, epoch=1000 * hvd.rank() + epoch)
