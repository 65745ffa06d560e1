"""As `hands_images_over`; the others compute half as much as rank 0 does, with noise for images, and send nothing of it."""
#: dishonest/hands_images_over
#: -         gradients = [1e-30 * (variable + used) for variable in model.trainable_variables]
#: +         noise = tf.random.uniform([64, 32, 32, 3], 0, 255)
#: +         gradients = [1e-30 * (gradient + used) for gradient in gradients_of(noise, y[:64])]
