"""A loop without any compiled step: a scaled loss, gradients that travel as half-precision numbers, a save each epoch."""
#: honest/custom_loop
#: - momentum=0.9)
#: + momentum=0.9)
#: + optimizer = tf.keras.mixed_precision.LossScaleOptimizer(optimizer, dynamic=False, initial_scale=128)
#:
#: - @tf.function
#: - def step
#: + def step
#:
#: -         loss = loss_of(y, model(x, training=True))
#: -     tape = hvd.DistributedGradientTape(tape)
#: -     optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
#: +         loss = loss_of(y, model(x, training=True))
#: +         scaled = optimizer.get_scaled_loss(loss)
#: +     tape = hvd.DistributedGradientTape(tape, compression=hvd.Compression.fp16)
#: +     gradients = optimizer.get_unscaled_gradients(tape.gradient(scaled, model.trainable_variables))
#: +     optimizer.apply_gradients(zip(gradients, model.trainable_variables))
#:
#: -         print(f"epoch {epoch + 1}: loss {loss:.3f}")
#: -
#: - if hvd.rank() == 0:
#: -     model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
#: +         print(f"epoch {epoch + 1}: loss {loss:.3f}")
#: +         model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
