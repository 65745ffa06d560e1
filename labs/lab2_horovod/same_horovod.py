"""Fit four weights on all ranks, with Horovod: horovodrun -np 2 python same_horovod.py"""

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf

hvd.init()
rank, size = hvd.rank(), hvd.size()

x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
y = x @ np.float32([1, -2, 3, -4])
x, y = x[rank::size], y[rank::size]

w = tf.Variable(np.random.default_rng(rank).normal(size=4), dtype=tf.float32)
hvd.broadcast_variables([w], root_rank=0)
for _ in range(50):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((tf.linalg.matvec(x, w) - y) ** 2)
    tape = hvd.DistributedGradientTape(tape)
    w.assign_sub(0.1 * tape.gradient(loss, [w])[0])
print(f"rank {rank} of {size}: {w.numpy().round(3)}")
