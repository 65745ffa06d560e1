"""With Keras's own decay of the weights, and their moving average put in at the end."""
#: plain
#: - optimizer = tf.keras.optimizers.SGD(0.05 * hvd.size(), momentum=0.9)
#: + optimizer = tf.keras.optimizers.SGD(
#: +     0.05 * hvd.size(), momentum=0.9, weight_decay=1e-4, use_ema=True, ema_momentum=0.9
#: + )
