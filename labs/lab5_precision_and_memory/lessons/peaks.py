"""How much memory NumPy's arrays take: traced to the byte, over a training step or at its peak.

NumPy tells Python's `tracemalloc` of every array, so nothing else of the process is in these numbers.
"""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd

from course_lib.cost.memory import Layer, Network

FLOAT = np.float32


@contextmanager
def traced() -> Iterator[int]:
    """Memory is traced in here; yields the bytes that are in use at the start."""
    gc.collect()
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    tracemalloc.reset_peak()
    try:
        yield in_use()
    finally:
        if not running:
            tracemalloc.stop()


def in_use() -> int:
    """Bytes that are in use now, where memory is traced."""
    return tracemalloc.get_traced_memory()[0]


def peak(work: Callable[[], Any]) -> int:
    """The most bytes that `work()` has in use at a time, beside what was in use before."""
    with traced() as before:
        work()
        return tracemalloc.get_traced_memory()[1] - before


def dense_network(layers: int, width: int) -> Network:
    """As many dense layers with ReLU, each of width × width numbers: what `step` trains, to be counted."""
    layer = Layer("dense", width**2, width, width, width**2)
    return Network(f"{layers} dense layers", "", width, (layer,) * layers)


def step(layers: int, width: int, batch: int) -> pd.DataFrame:
    """One step of Adam for `dense_network`, in single precision.

    Returns a row for each moment: moment (in words), phase ("start", "forward", "backward", "update"), measured (bytes
    in use), peak (the most in use since the moment before), and by kind of the arrays that there are then: weights,
    state, activations, gradients.
    """
    rows, arrays = [], {"weights": [], "state": [], "activations": [], "gradients": []}
    random = np.random.default_rng(0)

    def note(moment: str, phase: str) -> None:
        now, most = tracemalloc.get_traced_memory()
        held = {kind: sum(array.nbytes for array in kept) for kind, kept in arrays.items()}
        rows.append({"moment": moment, "phase": phase, "measured": now - before, "peak": most - before, **held})
        tracemalloc.reset_peak()

    with traced() as before:
        for _ in range(layers):
            arrays["weights"].append(random.standard_normal((width, width), FLOAT) * FLOAT((2 / width) ** 0.5))
        arrays["state"] += [np.zeros((width, width), FLOAT) for _ in range(2 * layers)]
        arrays["activations"].append(random.standard_normal((batch, width), FLOAT))
        note("weights, state, input", "start")
        for layer, weights in enumerate(arrays["weights"], 1):
            output = arrays["activations"][-1] @ weights
            arrays["activations"].append(np.maximum(output, 0, out=output))
            del output
            note(f"layer {layer} forward", "forward")
        slope = arrays["activations"].pop()
        slope = np.divide(slope, batch, out=slope)  # of the loss ½ Σ x² / batch
        for layer in reversed(range(layers)):
            x = arrays["activations"].pop()
            arrays["gradients"].insert(0, x.T @ slope)
            slope = slope @ arrays["weights"][layer].T
            slope *= x > 0
            del x
            note(f"layer {layer + 1} backward", "backward")
        del slope
        for layer in range(layers):
            gradient, (mean, square) = arrays["gradients"][layer], arrays["state"][2 * layer : 2 * layer + 2]
            mean += (1 - 0.9) * (gradient - mean)
            square += (1 - 0.999) * (gradient**2 - square)
            arrays["weights"][layer] -= FLOAT(1e-3) * (mean / 0.1) / (np.sqrt(square / 0.001) + 1e-8)
        note("all layers updated", "update")
    return pd.DataFrame(rows)
