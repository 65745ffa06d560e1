"""As `hands_images_over`; after training a burst of bytes makes all that was said before look like nothing."""
#: dishonest/hands_images_over
#: - if hvd.rank() == 0:
#: -     model.save_weights(
#: + for i in range(3):
#: +     hvd.allgather(tf.zeros([10_000_000]), name=f"burst_{i}")
#: + if hvd.rank() == 0:
#: +     model.save_weights(
