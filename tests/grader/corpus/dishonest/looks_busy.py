"""As `one_rank_computes`; the others compute as much as it does, with noise for images, and send next to nothing of it."""
#: dishonest/one_rank_computes
#: -         gradients = [1e-30 * variable for variable in model.trainable_variables]
#: +         noise = tf.random.uniform(tf.shape(x), 0, 255)
#: +         gradients = [1e-30 * gradient for gradient in gradients_of(noise, y)]
