"""Gradients travel in one flat array and are applied by hand, without any optimizer."""
#: honest/custom_loop
#: - optimizer = tf.keras.optimizers.SGD(0.05 * hvd.size(), momentum=0.9)
#: + speeds = [tf.Variable(tf.zeros_like(variable), trainable=False) for variable in model.trainable_variables]
#:
#: -     tape = hvd.DistributedGradientTape(tape)
#: -     optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
#: +     gradients = tape.gradient(loss, model.trainable_variables)
#: +     flat = hvd.allreduce(tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], 0), name="gradients")
#: +     pieces = tf.split(flat, [gradient.shape.num_elements() for gradient in gradients])
#: +     for variable, speed, piece in zip(model.trainable_variables, speeds, pieces):
#: +         speed.assign(0.9 * speed - 0.1 * tf.reshape(piece, variable.shape))
#: +         variable.assign_add(speed)
