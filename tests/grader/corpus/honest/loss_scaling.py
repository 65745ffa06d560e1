"""A scaled loss, gradients that travel as half-precision numbers, and the scale taken out again where they are applied."""
#: honest/custom_loop
#: - momentum=0.9)
#: + momentum=0.9)
#: + optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer, dynamic=False, initial_scale=128)
#:
#: -         loss = loss_of(y, model(x, training=True))
#: -     tape = hvd.DistributedGradientTape(tape)
#: -     optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
#: +         loss = loss_of(y, model(x, training=True))
#: +         scaled = optimizer.get_scaled_loss(loss)
#: +     tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16)
#: +     gradients = optimizer.get_unscaled_gradients(tape.gradient(scaled, model.trainable_variables))
#: +     optimizer.apply_gradients(zip(gradients, model.trainable_variables))
