"""Notebook 7a: the pair of layers with automatic differentiation, with Megatron's g and with Horovod's own gradient."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np

from course_lib.parallel.group import HorovodGroup
from course_lib.system.paths import ROOT

EXAMPLES, WIDTH, HIDDEN = 6, 4, 8


def source() -> str:
    """The functions f and g of `course_lib.parallel.layers`, read without loading TensorFlow."""
    text = (ROOT / "course_lib" / "parallel" / "layers.py").read_text(encoding="utf-8")
    found = [node for node in ast.parse(text).body if getattr(node, "name", "") in ("copied", "summed")]
    return "\n\n\n".join(ast.get_source_segment(text, node) for node in found)


def arrays() -> dict[str, np.ndarray]:
    """x, the whole weights and the slope of the loss by the outputs."""
    random = np.random.default_rng(8)
    shapes = {"x": (EXAMPLES, WIDTH), "w1": (WIDTH, HIDDEN), "b1": (HIDDEN,), "w2": (HIDDEN, WIDTH), "b2": (WIDTH,)}
    return {name: random.normal(size=shape) for name, shape in {**shapes, "slope": (EXAMPLES, WIDTH)}.items()}


def gradients(group: HorovodGroup) -> dict[str, dict[str, Any]]:
    """On a real rank: gradients of the pair by way of summing, "summed" and "hvd.allreduce".

    Under "…, off by" stand the largest differences from this rank's part of the serial gradients.
    """
    import horovod.tensorflow as hvd
    import tensorflow as tf

    from course_lib.parallel import layers

    ranks, whole = layers.Ranks(hvd, group.process_set), arrays()
    cut = {"w1": 1, "b1": 0, "w2": 0}
    part = {name: ranks.part(value, cut[name]) if name in cut else value for name, value in whole.items()}
    names = ("x", "w1", "b1", "w2", "b2")

    def slopes(values: dict[str, np.ndarray], forward: Any) -> dict[str, np.ndarray]:
        tensors = [tf.constant(values[name]) for name in names]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            loss = tf.reduce_sum(forward(*tensors) * values["slope"])
        return {name: slope.numpy() for name, slope in zip(names, tape.gradient(loss, tensors))}

    def with_g(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        return layers.rows(tf.nn.relu(layers.columns(x, w1, b1, ranks)), w2, b2, ranks)

    def with_horovods(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        return ranks.total(tf.nn.relu(layers.columns(x, w1, b1, ranks)) @ w2) + b2

    serial = slopes(whole, lambda x, w1, b1, w2, b2: tf.nn.relu(x @ w1 + b1) @ w2 + b2)
    serial = {name: ranks.part(value, cut[name]) if name in cut else value for name, value in serial.items()}
    found: dict[str, dict[str, Any]] = {}
    for way, forward in (("summed", with_g), ("hvd.allreduce", with_horovods)):
        found[way] = slopes(part, forward)
        found[f"{way}, off by"] = {name: float(np.abs(found[way][name] - serial[name]).max()) for name in names}
    return found
