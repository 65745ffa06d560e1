"""Notebook 3c: other answers, wrong and right."""

from __future__ import annotations

import numpy as np

from course_lib.optimizers import noise
from labs.lab3_large_batch.lessons.checks_3c import points


def test_interleaved_ghosts_and_examples_alone_are_told_apart(capsys):
    def ghost_batch_norm(x, ghost, gamma, beta, epsilon=1e-3):
        groups = x.reshape(ghost, -1, *x.shape[1:])
        axes = (0, *range(2, groups.ndim - 1))
        mean, variance = groups.mean(axes, keepdims=True), groups.var(axes, keepdims=True)
        return (gamma * (groups - mean) / np.sqrt(variance + epsilon) + beta).reshape(x.shape)

    assert points(ghost_batch_norm, 6) < 6
    assert "consecutive examples" in capsys.readouterr().out

    def ghost_batch_norm(x, ghost, gamma, beta, epsilon=1e-3):
        axes = tuple(range(1, x.ndim - 1))
        mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
        return gamma * (x - mean) / np.sqrt(variance + epsilon) + beta

    assert points(ghost_batch_norm, 6) < 6
    assert "normalised by itself" in capsys.readouterr().out


def test_other_right_answers_are_right():
    def synchronised_statistics(me, x):
        axes = tuple(range(x.ndim - 1))
        mean = me.all_reduce(x.mean(axes)) / me.size
        return mean, me.all_reduce(((x - mean) ** 2).mean(axes)) / me.size

    def noise_weights(batch, base, rng):
        return noise.multiplicative(batch, base, rng)

    assert points(synchronised_statistics, 3) == 3.0
    assert points(noise_weights, 3) == 3.0
