"""Each rank averages its gradients with all others, and applies its own: nothing is shared."""
#: honest/custom_loop
#: -     with tf.GradientTape() as tape:
#: +     with tf.GradientTape(persistent=True) as tape:
#:
#: -     tape = hvd.DistributedGradientTape(tape)
#: -     optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
#: +     own = tape.gradient(loss, model.trainable_variables)
#: +     hvd.DistributedGradientTape(tape).gradient(loss, model.trainable_variables)
#: +     optimizer.apply_gradients(zip(own, model.trainable_variables))
