"""Three fits, each with a batch twice as large as the one before and at a rate of its own."""
#: plain
#: - optimizer = tf.keras.optimizers.SGD(0.05 * hvd.size(), momentum=0.9)
#: - optimizer = hvd.DistributedOptimizer(optimizer)
#: + def optimizer(rate):
#: +     return hvd.DistributedOptimizer(tf.keras.optimizers.SGD(rate * hvd.size(), momentum=0.9))
#: +
#: +
#:
#: - model.compile(optimizer, loss, metrics=["accuracy"])
#:
#: - model.fit(x, y, batch_size=64, epochs=3, callbacks=start, verbose=2 if hvd.rank() == 0 else 0)
#: + for stage, batch_size in enumerate((32, 64, 128)):
#: +     model.compile(optimizer(0.04 * 0.7**stage), loss, metrics=["accuracy"])
#: +     model.fit(x, y, batch_size, callbacks=start, verbose=2 if hvd.rank() == 0 else 0)
