"""Each rank averages its gradients with all others, and applies its own: nothing is shared."""
#: honest/custom_loop
#: -     with tf.GradientTape() as tape:
#: +     with tf.GradientTape(persistent=True) as tape:
#:
#: -     tape = hvd.DistributedGradientTape(tape)
#: -     optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
#: +     own = tape.gradient(loss, model.trainable_variables)
#: +     means = hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
#: +     own = [one + 1e-30 * mean for one, mean in zip(own, means)]  # else TensorFlow leaves the means out
#: +     optimizer.apply_gradients(zip(own, model.trainable_variables))
