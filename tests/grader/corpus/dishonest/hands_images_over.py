"""Each rank hands its batch to rank 0, which computes the gradients of all; the others send zeros into the sum."""
#: dishonest/one_rank_computes
#: -     if hvd.rank() == 0:
#: -         gradients = gradients_of(x, y)
#: +     x, y = hvd.allgather(x, name="images"), hvd.allgather(y, name="labels")
#: +     if hvd.rank() == 0:
#: +         gradients = gradients_of(x, y)
#:
#: -         gradients = [1e-30 * variable for variable in model.trainable_variables]
#: +         used = tf.cast(x[0, 0, 0, 0], tf.float32) + tf.cast(y[0], tf.float32)  # else TensorFlow leaves these out
#: +         gradients = [1e-30 * (variable + used) for variable in model.trainable_variables]
#:
#: -     whole = cifar.x_train, cifar.y_train
#: -     shards = [data.shard(whole, rank, hvd.size(), batch_size=64, epoch=epoch) for rank in range(hvd.size())]
#: -     for first in range(0, len(shards[0][0]), 64):
#: -         parts = [[part[first : first + 64] for part in shard] for shard in shards]
#: -         step(parts[hvd.rank()][0], *(np.concatenate(kind) for kind in zip(*parts)))
#: +     shard = data.shard((cifar.x_train, cifar.y_train), hvd.rank(), hvd.size(), batch_size=64, epoch=epoch)
#: +     for x, y in tf.data.Dataset.from_tensor_slices(shard).batch(64):
#: +         step(x, x, y)
