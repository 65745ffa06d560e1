"""Layers that are cut over ranks, in TensorFlow: with two functions in them, automatic differentiation does the rest.

    y = rows(tf.nn.relu(columns(x, w1, b1, ranks)), w2, b2, ranks)

`copied` and `summed` are the pair f and g of Megatron-LM (Shoeybi et al. 2019, arXiv:1909.08053): each is one
all-reduce, the first in the backward pass, the second in the forward pass. Both take what is equal on all ranks for a
single number, stored N times. So the loss, which all ranks compute, counts once. Horovod's own `hvd.allreduce` counts
it N times: its gradient is another all-reduce, and N times as large.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Ranks:
    """The ranks that layers are cut over: all of Horovod's, or a process set.

    Attributes:
        rank: of this process, 0 … size − 1 within the set. size: ranks of the set.
    """

    def __init__(self, hvd: Any, process_set: Any = None) -> None:
        self._hvd, self._set = hvd, process_set or hvd.global_process_set
        self.rank, self.size = self._set.rank(), self._set.size()

    def total(self, x: tf.Tensor) -> tf.Tensor:
        """The sum over the ranks, on each of them."""
        return self._hvd.allreduce(x, op=self._hvd.Sum, process_set=self._set)

    def part(self, x: Any, axis: int) -> Any:
        """This rank's of `size` equal parts of an array. ValueError where the axis does not divide."""
        length, rest = divmod(x.shape[axis], self.size)
        if rest:
            raise ValueError(f"{x.shape[axis]} places don't go to {self.size} ranks in equal parts")
        index = [slice(None)] * len(x.shape)
        index[axis] = slice(self.rank * length, (self.rank + 1) * length)
        return x[tuple(index)]


def copied(x: tf.Tensor, ranks: Ranks) -> tf.Tensor:
    """x, equal on all ranks, as each goes on with it in a way of its own (f). Its gradient is the sum of theirs."""

    @tf.custom_gradient
    def call(x: tf.Tensor) -> tuple:
        return tf.identity(x), ranks.total

    return call(x)


def summed(x: tf.Tensor, ranks: Ranks) -> tf.Tensor:
    """The sum of what the ranks have, equal on all of them (g). Its gradient goes to each rank as it is."""

    @tf.custom_gradient
    def call(x: tf.Tensor) -> tuple:
        return ranks.total(x), tf.identity

    return call(x)


def columns(x: tf.Tensor, w: tf.Tensor, b: tf.Tensor, ranks: Ranks) -> tf.Tensor:
    """This rank's columns [n, h / N] of a dense layer: x [n, d] whole, w [d, h / N], b [h / N]."""
    return copied(x, ranks) @ w + b


def rows(x: tf.Tensor, w: tf.Tensor, b: tf.Tensor, ranks: Ranks) -> tf.Tensor:
    """A dense layer's outputs [n, h], whole, from this rank's x [n, d / N] and rows w [d / N, h]; b [h] is whole."""
    return summed(x @ w, ranks) + b
