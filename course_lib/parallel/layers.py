"""Tensor-parallel dense layers in TensorFlow, from two functions with custom gradients.

    y = rows(tf.nn.relu(columns(x, w1, b1, ranks)), w2, b2, ranks)

`copied` and `summed` are the functions f and g of Megatron-LM (Shoeybi et al. 2019, arXiv:1909.08053). Each makes one
all-reduce: `copied` in the backward pass, `summed` in the forward pass. A value that is equal on all ranks counts as
one value with N copies, so the loss, which all ranks compute, counts once. With `hvd.allreduce` it would count N times:
the gradient of `hvd.allreduce` is another all-reduce, and thus N times as large.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Ranks:
    """The ranks that share a layer: all ranks of Horovod, or a process set.

    Attributes:
        rank: of this process, 0 … size − 1 within the set.
        size: number of ranks in the set.
    """

    def __init__(self, hvd: Any, process_set: Any = None) -> None:
        self._hvd, self._set = hvd, process_set or hvd.global_process_set
        self.rank, self.size = self._set.rank(), self._set.size()

    def total(self, x: tf.Tensor) -> tf.Tensor:
        """The sum of x over the ranks, on each rank."""
        return self._hvd.allreduce(x, op=self._hvd.Sum, process_set=self._set)

    def part(self, x: Any, axis: int) -> Any:
        """This rank's part of an array that is split into `size` equal parts along an axis.

        Raises ValueError if the length of the axis is not a multiple of `size`.
        """
        length, rest = divmod(x.shape[axis], self.size)
        if rest:
            raise ValueError(f"{x.shape[axis]} places don't go to {self.size} ranks in equal parts")
        index = [slice(None)] * len(x.shape)
        index[axis] = slice(self.rank * length, (self.rank + 1) * length)
        return x[tuple(index)]


def copied(x: tf.Tensor, ranks: Ranks) -> tf.Tensor:
    """Identity in the forward pass, all-reduce in the backward pass (f). x is equal on all ranks."""

    @tf.custom_gradient
    def call(x: tf.Tensor) -> tuple:
        return tf.identity(x), ranks.total

    return call(x)


def summed(x: tf.Tensor, ranks: Ranks) -> tf.Tensor:
    """All-reduce in the forward pass, identity in the backward pass (g). The result is equal on all ranks."""

    @tf.custom_gradient
    def call(x: tf.Tensor) -> tuple:
        return ranks.total(x), tf.identity

    return call(x)


def columns(x: tf.Tensor, w: tf.Tensor, b: tf.Tensor, ranks: Ranks) -> tf.Tensor:
    """A column-parallel dense layer: whole x [n, d] → this rank's outputs [n, h / N]; w [d, h / N], b [h / N]."""
    return copied(x, ranks) @ w + b


def rows(x: tf.Tensor, w: tf.Tensor, b: tf.Tensor, ranks: Ranks) -> tf.Tensor:
    """A row-parallel dense layer: this rank's x [n, d / N] → whole outputs [n, h]; w [d / N, h], whole b [h]."""
    return summed(x @ w, ranks) + b
