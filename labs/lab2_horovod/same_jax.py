"""Fit four weights on all devices, with JAX: srun -n 2 python same_jax.py"""

import os

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

if "SLURM_NTASKS" in os.environ:  # one process on one host sees all of its devices and needs to meet nobody
    jax.distributed.initialize()
rank, size = jax.process_index(), jax.process_count()

mesh = Mesh(np.array(jax.devices()), ("data",))
split, copied = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())

x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
y = x @ np.float32([1, -2, 3, -4])
x, y = (jax.make_array_from_process_local_data(split, part[rank::size]) for part in (x, y))

weights = copied
w = jax.device_put(np.random.default_rng(0).normal(size=4).astype(np.float32), weights)
gradient = jax.jit(jax.grad(lambda w, x, y: ((x @ w - y) ** 2).mean()), out_shardings=weights)
for _ in range(50):
    w = w - 0.1 * gradient(w, x, y)
print(f"process {rank} of {size}, {jax.device_count()} devices: {np.asarray(w).round(3)}")
