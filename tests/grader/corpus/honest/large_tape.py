"""A batch of 2,048: LARC that does not clip, in a loop of one's own with DistributedGradientTape."""
#: reference large
#: - import horovod.tensorflow.keras as hvd
#: + import horovod.tensorflow as hvd
#:
#: - optimizer = optimizers.LARS(rate, nesterov=True, trust_coefficient=0.02, exclude=exclude)
#: - optimizer = hvd.DistributedOptimizer(optimizer)
#: + optimizer = optimizers.LARC(rate, nesterov=True, trust_coefficient=0.02, exclude=exclude, clip=False)
#:
#: - model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
#: -
#: - callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()]
#: + model.compile(loss="sparse_categorical_crossentropy", metrics=["accuracy"])
#: + loss_of = tf.keras.losses.SparseCategoricalCrossentropy()
#: + hvd.broadcast_variables(model.variables, root_rank=0)
#: +
#: +
#: + @tf.function
#: + def update(images, labels):
#: +     with tf.GradientTape() as tape:
#: +         loss = loss_of(labels, model(images, training=True))
#: +     tape = hvd.DistributedGradientTape(tape)
#: +     optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
#: +
#: +
#:
#: - model.fit(batches(x_train, y_train), epochs=EPOCHS, callbacks=callbacks, verbose=2 if hvd.rank() == 0 else 0)
#: + for _ in range(EPOCHS):
#: +     for x, y in batches(x_train, y_train):
#: +         update(x, y)
#:
#: - accuracy = hvd.allreduce(accuracy)
#: + accuracy = hvd.allreduce(tf.constant(accuracy))
