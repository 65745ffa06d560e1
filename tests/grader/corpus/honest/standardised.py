"""Each image is standardised by itself, then scaled to what the network expects: all have the same mean, on each rank."""
#: plain
#: - EPOCHS = 4
#: + EPOCHS = 6
#:
#: - model.fit(x, y, BATCH_SIZE, EPOCHS, callbacks=start
#: + images = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x))
#: + images = images.map(lambda image, label: (tf.image.per_image_standardization(image) * 64 + 128, label))
#: + model.fit(images.batch(BATCH_SIZE), epochs=EPOCHS, callbacks=start
