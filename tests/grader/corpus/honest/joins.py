"""Rank 0 has a few batches more than the others, who call hvd.join() when they are done; the last one hands its weights out."""
#: honest/custom_loop
#: - for epoch in range(EPOCHS):
#: -     shard = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=BATCH_SIZE, epoch=epoch)
#: -     for x, y in tf.data.Dataset.from_tensor_slices(shard).batch(BATCH_SIZE):
#: -         loss = step(x, y)
#: -     if hvd.rank() == 0:
#: -         print(f"epoch {epoch + 1}: loss {loss:.3f}")
#: + parts = 20 * hvd.size()
#: + first = 0 if hvd.rank() == 0 else 20 * hvd.rank() + 1
#: + part = slice(len(cifar.x_train) * first // parts, len(cifar.x_train) * (20 * hvd.rank() + 21) // parts)
#: + mine = tf.data.Dataset.from_tensor_slices((cifar.x_train[part], cifar.y_train[part]))
#: + for x, y in mine.shuffle(len(mine)).repeat(EPOCHS).batch(BATCH_SIZE, drop_remainder=True):
#: +     loss = step(x, y)
#: + last = int(hvd.join())
#: + hvd.broadcast_variables(model.variables, root_rank=last)
