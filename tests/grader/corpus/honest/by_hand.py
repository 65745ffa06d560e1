"""Each rank gathers the gradients of all in one flat array, takes their mean, and applies it without any optimizer."""
#: honest/custom_loop
#: - optimizer = tf.keras.optimizers.SGD(rate, momentum=0.9)
#: + sizes = [variable.shape.num_elements() for variable in model.trainable_variables]
#: + speeds = [tf.Variable(tf.zeros_like(variable), trainable=False) for variable in model.trainable_variables]
#: + number = tf.Variable(0)
#:
#: -     tape = hvd.DistributedGradientTape(tape)
#: -     optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
#: +     gradients = tape.gradient(loss, model.trainable_variables)
#: +     flat = tf.concat([tf.reshape(gradient, [-1]) for gradient in gradients], 0)
#: +     rows = hvd.allgather(flat[tf.newaxis], name="gradients_of_all")  # one row for each rank
#: +     mean = tf.ensure_shape(tf.reduce_mean(rows, axis=0), [sum(sizes)])
#: +     for variable, speed, piece in zip(model.trainable_variables, speeds, tf.split(mean, sizes)):
#: +         speed.assign(0.9 * speed - rate(number) * tf.reshape(piece, variable.shape))
#: +         variable.assign_add(speed)
#: +     number.assign_add(1)
