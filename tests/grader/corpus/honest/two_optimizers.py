"""Kernels have one optimizer, all other weights a slower one; the parts of the images go round after each epoch."""
#: honest/custom_loop
#: - import horovod.tensorflow as hvd
#: + import horovod.tensorflow as hvd
#: + import numpy as np
#:
#: - optimizer = tf.keras.optimizers.SGD(rate, momentum=0.9)
#: + kernels = [variable for variable in model.trainable_variables if "kernel" in variable.name]
#: + others = [variable for variable in model.trainable_variables if "kernel" not in variable.name]
#: + of_kernels = tf.keras.optimizers.SGD(rate, momentum=0.9, nesterov=True, weight_decay=1e-4)
#: + of_others = tf.keras.optimizers.SGD(0.02 * hvd.size(), momentum=0.9)
#: + of_kernels.build(kernels)
#: + of_others.build(others)
#: + parts = np.array_split(np.random.default_rng(0).permutation(len(cifar.x_train)), hvd.size())
#:
#: -     optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
#: +     gradients = tape.gradient(loss, kernels + others)
#: +     of_kernels.apply_gradients(zip(gradients[: len(kernels)], kernels))
#: +     of_others.apply_gradients(zip(gradients[len(kernels) :], others))
#:
#: -     shard = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=BATCH_SIZE, epoch=epoch)
#: -     for x, y in tf.data.Dataset.from_tensor_slices(shard).batch(BATCH_SIZE):
#: -         loss = step(x, y)
#: +     part = parts[(hvd.rank() + epoch) % hvd.size()]
#: +     part = np.random.default_rng([epoch, hvd.rank()]).permutation(part)[: steps * BATCH_SIZE]
#: +     for chosen in np.split(part, steps):
#: +         loss = step(tf.constant(cifar.x_train[chosen]), tf.constant(cifar.y_train[chosen]))
