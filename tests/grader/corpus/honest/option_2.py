"""Each epoch each rank shuffles all images in its own way and reads the first part (option 2); with Adam."""
#: plain
#: - tf.keras.optimizers.SGD(0.05 * hvd.size(), momentum=0.9)
#: + tf.keras.optimizers.Adam(0.002)
#:
#: - model.fit(x, y, batch_size=64, epochs=3, callbacks=start, verbose=2 if hvd.rank() == 0 else 0)
#: + for epoch in range(3):
#: +     x, y = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), 2, batch_size=64, epoch=epoch)
#: +     model.fit(x, y, 64, initial_epoch=epoch, epochs=epoch + 1, callbacks=start, verbose=0, shuffle=False)
