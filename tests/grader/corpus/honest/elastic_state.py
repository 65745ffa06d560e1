"""Horovod's elastic state, as notebook 2d has it: however many ranks there are, together they take the same batch."""
#: honest/custom_loop
#: - import horovod.tensorflow as hvd
#: + import horovod.tensorflow as hvd
#: + import numpy as np
#:
#: - hvd.broadcast_variables(model.variables, root_rank=0)
#: + optimizer.build(model.trainable_variables)
#:
#: - for epoch in range(EPOCHS):
#: -     shard = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=BATCH_SIZE, epoch=epoch)
#: -     for x, y in tf.data.Dataset.from_tensor_slices(shard).batch(BATCH_SIZE):
#: -         loss = step(x, y)
#: -     if hvd.rank() == 0:
#: -         print(f"epoch {epoch + 1}: loss {loss:.3f}")
#: + @hvd.elastic.run
#: + def train(state):
#: +     while state.epoch < EPOCHS:
#: +         order = np.random.default_rng(state.epoch).permutation(len(cifar.x_train))
#: +         while state.batch < steps:
#: +             together = order[state.batch * BATCH_SIZE * hvd.size() :][: BATCH_SIZE * hvd.size()]
#: +             mine = together[hvd.rank() :: hvd.size()]
#: +             loss = step(tf.constant(cifar.x_train[mine]), tf.constant(cifar.y_train[mine]))
#: +             state.batch += 1
#: +             if state.batch % 20 == 0:
#: +                 state.commit()
#: +         if hvd.rank() == 0:
#: +             print(f"epoch {state.epoch + 1}: loss {loss:.3f}")
#: +         state.epoch, state.batch = state.epoch + 1, 0
#: +         state.commit()
#: +
#: +
#: + train(hvd.elastic.TensorFlowKerasState(model, optimizer, epoch=0, batch=0))
