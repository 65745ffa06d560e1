"""A model that only mirrors images is called under the tape, before the network."""
#: honest/custom_loop
#: - @tf.function
#: + mirrored = tf.keras.Sequential([tf.keras.layers.RandomFlip("horizontal")])
#: +
#: +
#: + @tf.function
#:
#: -         loss = loss_of(y, model(x, training=True))
#: +         loss = loss_of(y, model(mirrored(x, training=True), training=True))
