"""A batch of 2,048: LARS in a loop of one's own, which adds up the gradients of small batches and averages the sum."""
#: reference large
#: - import horovod.tensorflow.keras as hvd
#: + import horovod.tensorflow as hvd
#:
#: - WARM_UP = 0.25  # share of the updates
#: + WARM_UP = 0.25  # share of the updates
#: + SMALL = 256  # images that a rank computes gradients of at once
#:
#: - optimizer = hvd.DistributedOptimizer(optimizer)
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
#: +     variables = model.trainable_variables
#: +     total = [tf.zeros_like(variable) for variable in variables]
#: +     parts = BATCH_SIZE // hvd.size() // SMALL
#: +     for x, y in zip(tf.split(images, parts), tf.split(labels, parts)):
#: +         with tf.GradientTape() as tape:
#: +             loss = loss_of(y, model(x, training=True)) / parts
#: +         total = [a + b for a, b in zip(total, tape.gradient(loss, variables))]
#: +     optimizer.apply_gradients(zip(hvd.grouped_allreduce(total), variables))
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
