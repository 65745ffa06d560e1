"""Twenty steps of each optimizer NAME under Horovod: `layerwise.py FILE NAME...`; each writes FILE-NAME-<rank>.npz."""

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
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((12,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(3)])
    options = {"weight_decay": 0.01} if name == "NovoGrad" else {"weight_decay": 0.01, "exclude": ["bias"]}
    rate = keras.optimizers.schedules.PolynomialDecay(0.1 if name in ("LARS", "LARC") else 0.01, 20)
    optimizer = getattr(optimizers, name)(rate, **options)
    model.compile(hvd.DistributedOptimizer(optimizer), "mse")
    model.fit(x[mine], y[mine], batch_size=32 // hvd.size(), epochs=1, shuffle=False, verbose=0)
    np.savez(f"{target}-{name}-{hvd.rank()}.npz", *model.get_weights())
