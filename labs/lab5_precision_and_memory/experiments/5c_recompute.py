"""Recomputing each residual block: the peak memory of a training step, and its computing, by depth.

A Wide ResNet on 16 images of 32 × 32, in two ways: everything kept that the backward pass needs, or of each block only
its input (`tf.recompute_grad`). Each run is a process of its own: a step with one image, then steps with all. The peak
is the largest resident memory of the first step with all images, less what was resident after the step with one.
Processor seconds are those of all threads of the process: other programs on the machine hardly change them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from course_lib.cost import memory
from course_lib.notebook import experiments
from course_lib.system.paths import ROOT
from labs.lab5_precision_and_memory.lessons import figures_5c

WIDTH, BATCH, SIDE, CLASSES = 4, 16, 32, 10
RUNS = {16: 3, 28: 3, 40: 5}  # depth → runs of each way
STEPS = 6  # that are timed


def main() -> experiments.Recording:
    table = pd.DataFrame([row for depth in RUNS for row in of_depth(depth)])
    caption = f"Wide ResNet, width {WIDTH}, batch {BATCH} · {experiments.machine()}"
    return experiments.Recording(
        table,
        figures_5c.recompute(table, counted(), caption=caption),
        data=f"drawn images {SIDE} × {SIDE}, batch {BATCH}; the time and memory of a step don't depend on them",
        seeds="0 for weights and images of every run",
        settings=f"Wide ResNet of width {WIDTH}, SGD, tf.function, float32; megabytes: peak beyond a step with one "
        f"image; processor seconds: median of {STEPS} steps",
    )


def of_depth(depth: int) -> list[dict[str, Any]]:
    """A row for each run of a depth: depth, recompute, run, and what `measure` found."""
    rows = []
    for run in range(1, RUNS[depth] + 1):
        for recompute in (False, True) if run % 2 else (True, False):
            rows.append({"depth": depth, "recompute": recompute, "run": run, **measure(depth, recompute)})
            print(rows[-1], flush=True)
    return rows


def counted() -> pd.DataFrame:
    """A row for each depth and way: the megabytes of activations that the count says."""
    rows = []
    for depth in RUNS:
        network = memory.wide_resnet(depth, WIDTH)
        for recompute in (False, True):
            numbers = memory.recomputed(network) if recompute else network.activations
            megabytes = memory.NUMBER * numbers * (BATCH - 1) / 1e6
            rows.append({"depth": depth, "recompute": recompute, "megabytes": round(megabytes, 1)})
    return pd.DataFrame(rows)


def measure(depth: int, recompute: bool) -> dict[str, float]:
    """Train in a process of its own: {"megabytes", "processor seconds"}."""
    # Large pieces then go back to the system as soon as they are freed.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "131072", "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, __file__, str(depth), str(int(recompute))]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=300)
    return json.loads(done.stdout.splitlines()[-1])


def _train(depth: int, recompute: bool) -> dict[str, float]:
    import tensorflow as tf

    random = np.random.default_rng(0)

    def kernel(size: int, before: int, after: int) -> tf.Variable:
        values = random.normal(0, (2 / size**2 / before) ** 0.5, (size, size, before, after))
        return tf.Variable(values, dtype=tf.float32)

    class Block:
        """Twice batch norm, ReLU, convolution; beside it the input, or a 1 × 1 convolution of it."""

        def __init__(self, before: int, channels: int, stride: int, shortcut: bool) -> None:
            self.stride = stride
            self.kernels = [kernel(3, before, channels), kernel(3, channels, channels)]
            self.norms = [[tf.Variable(tf.ones(c)), tf.Variable(tf.zeros(c))] for c in (before, channels)]
            self.shortcut = [kernel(1, before, channels)] if shortcut else []
            self.variables = [*self.kernels, *self.norms[0], *self.norms[1], *self.shortcut]

        def __call__(self, x: tf.Tensor) -> tf.Tensor:
            first = activation(x, self.norms[0])
            inside = tf.nn.conv2d(first, self.kernels[0], self.stride, "SAME")
            inside = tf.nn.conv2d(activation(inside, self.norms[1]), self.kernels[1], 1, "SAME")
            return inside + (tf.nn.conv2d(first, self.shortcut[0], self.stride, "SAME") if self.shortcut else x)

    def activation(x: tf.Tensor, norm: list[tf.Variable]) -> tf.Tensor:
        # No moving averages: recomputing would move them twice.
        made = tf.raw_ops.FusedBatchNormV3(x=x, scale=norm[0], offset=norm[1], mean=[], variance=[], is_training=True)
        return tf.nn.relu(made.y)

    stem, blocks, before = kernel(3, 3, 16), [], 16
    for group, channels in enumerate((16 * WIDTH, 32 * WIDTH, 64 * WIDTH)):
        for number in range((depth - 4) // 6):
            blocks.append(Block(before, channels, 2 if group and number == 0 else 1, number == 0))
            before = channels
    last, dense = [tf.Variable(tf.ones(before)), tf.Variable(tf.zeros(before))], kernel(1, before, CLASSES)
    variables = [stem, *(variable for block in blocks for variable in block.variables), *last, dense]
    pieces = [tf.recompute_grad(block) if recompute else block for block in blocks]

    @tf.function(input_signature=[tf.TensorSpec((None, SIDE, SIDE, 3)), tf.TensorSpec((None,), tf.int64)])
    def step(images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            x = tf.nn.conv2d(images, stem, 1, "SAME")
            for piece in pieces:
                x = piece(x)
            logits = tf.reduce_mean(activation(x, last), (1, 2)) @ dense[0, 0]
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        for variable, gradient in zip(variables, tape.gradient(loss, variables)):
            variable.assign_sub(0.01 * gradient)
        return loss

    x = tf.constant(random.normal(size=(BATCH, SIDE, SIDE, 3)), tf.float32)
    y = tf.constant(random.integers(0, CLASSES, BATCH))
    step(x[:1], y[:1])
    _forget_peak()
    resident = _status("VmRSS")
    step(x, y)
    megabytes = (_status("VmHWM") - resident) / 1e6
    seconds = []
    for _ in range(STEPS):
        start = time.process_time()
        float(step(x, y))
        seconds.append(time.process_time() - start)
    return {"megabytes": round(megabytes, 1), "processor seconds": round(float(np.median(seconds)), 3)}


def _forget_peak() -> None:
    """Linux then counts the largest resident memory anew."""
    Path("/proc/self/clear_refs").write_text("5")


def _status(what: str) -> int:
    """Bytes, from what Linux says of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(what))


if __name__ == "__main__":
    print(json.dumps(_train(int(sys.argv[1]), bool(int(sys.argv[2])))))
