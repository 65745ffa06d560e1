"""What is 0 in a training step of the quick network, and how fast SciPy multiplies by a matrix that is mostly 0."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
import scipy.sparse
import tensorflow as tf
from tensorflow import keras

KINDS = ("after ReLU", "after max-pooling", "gradient into the pooling")
ROWS, INPUTS, OUTPUTS = 2_048, 512, 128  # of the products that are timed


def zeros(model: keras.Model, images: np.ndarray, labels: np.ndarray) -> pd.DataFrame:
    """The share of zeros in each block of a chain of layers, in one training step: columns block, kind, zeros.

    Args:
        model: blocks of convolution, batch norm, ReLU and max-pooling, as `models.quick_cnn`. Its moving averages stay.
        images, labels: the batch.
    """
    kept = model.get_weights()
    x, outputs = tf.cast(images, tf.float32), []
    with tf.GradientTape() as tape:
        tape.watch(x)
        for layer in model.layers[1:]:
            x = layer(x, training=True)
            outputs.append((layer, x))
        loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(labels, x))
    relus = [value for layer, value in outputs if isinstance(layer, keras.layers.ReLU)]
    pools = [value for layer, value in outputs if isinstance(layer, keras.layers.MaxPooling2D)]
    into = tape.gradient(loss, relus)
    model.set_weights(kept)
    return pd.DataFrame(
        {"block": block, "kind": kind, "zeros": float(np.mean(value.numpy() == 0))}
        for block, values in enumerate(zip(relus, pools, into), 1)
        for kind, value in zip(KINDS, values)
    )


def race(densities: Sequence[float], rows: int = ROWS, tries: int = 5, seed: int = 0) -> pd.DataFrame:
    """Seconds of a product [rows, INPUTS] × [INPUTS, OUTPUTS] whose left factor is sparse: the best of `tries`.

    Returns a row for each density with the columns density, dense, compressed (SciPy's compressed rows, compressed
    beforehand), compressing (the same with the compression), rows (as many zeros, but in whole rows, left out).
    """
    random = np.random.default_rng(seed)
    full = random.normal(size=(rows, INPUTS)).astype(np.float32)
    right = random.normal(size=(INPUTS, OUTPUTS)).astype(np.float32)
    draw = random.random(full.shape)
    found = []
    for density in densities:
        sparse = np.where(draw < density, full, np.float32(0))
        compressed = scipy.sparse.csr_matrix(sparse)
        stay = np.flatnonzero(draw[:, 0] < density)
        ways: dict[str, Callable[[], object]] = {
            "dense": lambda sparse=sparse: sparse @ right,
            "compressed": lambda compressed=compressed: compressed @ right,
            "compressing": lambda sparse=sparse: scipy.sparse.csr_matrix(sparse) @ right,
            "rows": lambda sparse=sparse, stay=stay: sparse[stay] @ right,
        }
        found.append({"density": density, **{way: _best(product, tries) for way, product in ways.items()}})
    return pd.DataFrame(found)


def crossing(table: pd.DataFrame, way: str) -> float:
    """The density up to which `way` is faster than the dense product, at all densities below; nan for none."""
    ordered = table.sort_values("density")
    wins = (ordered[way] < ordered["dense"]).cummin()
    return float(ordered["density"][wins].max()) if wins.any() else float("nan")


def _best(product: Callable[[], object], tries: int) -> float:
    product()
    seconds = []
    for _ in range(tries):
        began = time.perf_counter()
        product()
        seconds.append(time.perf_counter() - began)
    return min(seconds)
