"""Each image is standardised by itself, then scaled to what the network expects: all have the same mean, on each rank."""
#: plain
#: - model.fit(x, y, batch_size=64, epochs=3, callbacks=start, verbose=2 if hvd.rank() == 0 else 0)
#: + images = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x))
#: + images = images.map(lambda image, label: (tf.image.per_image_standardization(image) * 64 + 128, label)).batch(64)
#: + model.fit(images, epochs=3, callbacks=start, verbose=2 if hvd.rank() == 0 else 0)
