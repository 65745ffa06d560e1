"""Twenty steps of each optimizer NAME under Horovod: `layerwise.py FILE NAME...`; each writes FILE-NAME-<rank>.npz.

A NAME may end in "x" and a number, LAMBx2: a step's batch then comes in so many passes, and the rate is constant.
"""

from __future__ import annotations

import sys

import horovod.tensorflow.keras as hvd
import numpy as np
from tensorflow import keras

from course_lib import optimizers

target, *names = sys.argv[1:]
hvd.init()
random = np.random.default_rng(0)
x = random.normal(size=(20 * 32, 12)).astype(np.float32)
y = np.tanh(x[:, :3]) + x[:, 3:6]
mine = slice(hvd.rank(), None, hvd.size())

for name in names:
    kind, _, passes = name.partition("x")
    passes = int(passes or 1)
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((12,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(3)])
    options = {"weight_decay": 0.01} if kind == "NovoGrad" else {"weight_decay": 0.01, "exclude": ["bias"]}
    rate = 0.1 if kind in ("LARS", "LARC") else 0.01
    if kind == name:
        rate = keras.optimizers.schedules.PolynomialDecay(rate, 20)
    optimizer = getattr(optimizers, kind)(rate, **options)
    options = {"backward_passes_per_step": passes, "average_aggregated_gradients": passes > 1}
    model.compile(hvd.DistributedOptimizer(optimizer, **options), "mse")
    model.fit(x[mine], y[mine], batch_size=32 // hvd.size() // passes, epochs=1, shuffle=False, verbose=0)
    np.savez(f"{target}-{name}-{hvd.rank()}.npz", *model.get_weights())
