"""All looks like the conversion, but the images of all ranks except rank 0 count nothing in the loss: rank 0 trains alone."""
#: plain
#: - model.fit(
#: + counts = tf.fill([len(x)], 1.0 if hvd.rank() == 0 else 0.0)
#: + model.fit(
#:
#: - epochs=3, callbacks=start
#: + epochs=3, sample_weight=counts, callbacks=start
