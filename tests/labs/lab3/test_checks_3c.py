"""Notebook 3c: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.optimizers import noise
from labs.lab3_large_batch.lessons.checks_3c import check, points

NOTEBOOK = "3c_normalisation_and_noise"
EXERCISES = ("ghost_batch_norm", "synchronised_statistics", "decayed_gradients", "noise_weights")


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 6) == 6.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


GHOSTS = "x.reshape(-1, ghost, *x.shape[1:])"
NORMALISED = "gamma * (groups - mean) / np.sqrt(variance + epsilon) + beta"
RETURN = f"return ({NORMALISED}).reshape(x.shape)"
MEAN = "me.all_reduce(x.mean(axes)) / me.size"
RESULT = "mean, square - mean**2"
IS_KERNEL = 'name.endswith("kernel:0")'
SIGMA = "np.sqrt(batch / base - 1)"
DRAW = "rng.normal(1.0, sigma, batch)"
WRONG = {
    "a layer called kernel": (
        "decayed_gradients", [('name.endswith("kernel:0")', '"kernel" in name')], "kernel_head/bias:0",
    ),
    "the whole batch": ("ghost_batch_norm", [(GHOSTS, "x.reshape(-1, len(x), *x.shape[1:])")], "whole batch"),
    "a number of ghosts": ("ghost_batch_norm", [(GHOSTS, "x.reshape(ghost, -1, *x.shape[1:])")],
                           "not the number of ghost batches"),
    "over the first axis only": ("ghost_batch_norm", [("range(1, groups.ndim - 1)", "(1,)")], "height and width"),
    "channels mixed": ("ghost_batch_norm", [("groups.ndim - 1", "groups.ndim")], "channels are mixed"),
    "ε outside the root": (
        "ghost_batch_norm",
        [("np.sqrt(variance + epsilon)", "np.sqrt(variance) + epsilon")],
        "ε belongs under the root",
    ),
    "ε forgotten": ("ghost_batch_norm", [("variance + epsilon", "variance")], "ε is missing"),
    "no root": ("ghost_batch_norm", [("np.sqrt(variance + epsilon)", "variance + epsilon")], "divide by the root"),
    "n − 1": ("ghost_batch_norm", [("groups.var(axes, keepdims=True)", "groups.var(axes, ddof=1, keepdims=True)")],
              "not /(n − 1)"),
    "γ forgotten": ("ghost_batch_norm", [("gamma * (groups - mean)", "groups - mean")], "γ is not applied"),
    "β forgotten": ("ghost_batch_norm", [(NORMALISED, NORMALISED.replace(" + beta", ""))], "β is not added"),
    "neither γ nor β": (
        "ghost_batch_norm", [(NORMALISED, "(groups - mean) / np.sqrt(variance + epsilon)")], "γ and β are not applied",
    ),
    "β scaled": (
        "ghost_batch_norm",
        [(NORMALISED, "gamma * ((groups - mean) / np.sqrt(variance + epsilon) + beta)")],
        "β is not scaled",
    ),
    "in the wrong shape": ("ghost_batch_norm", [(RETURN, f"return {NORMALISED}")], "it returns shape"),
    "works in place": ("ghost_batch_norm", [(f"groups = {GHOSTS}", f"x -= 0.5; groups = {GHOSTS}")], "in place"),
    "returns nothing": ("ghost_batch_norm", [(RETURN, NORMALISED)], "returns nothing"),
    "own mean": ("synchronised_statistics", [(MEAN, "x.mean(axes)")], "own share"),
    "a sum of means": ("synchronised_statistics", [(MEAN, "me.all_reduce(x.mean(axes))")], "the number of ranks"),
    "the mean of the variances": (
        "synchronised_statistics",
        [("(x**2).mean(axes)", "x.var(axes)"), ("square - mean**2", "square")],
        "how far apart their means are",
    ),
    "own variance": ("synchronised_statistics", [("square - mean**2", "x.var(axes)")], "own share: all-reduce."),
    "the mean square": ("synchronised_statistics", [("square - mean**2", "square")], "still to be subtracted"),
    "a standard deviation": (
        "synchronised_statistics",
        [("square - mean**2", "np.sqrt(square - mean**2)")],
        "standard deviation",
    ),
    "the square not divided": (
        "synchronised_statistics",
        [("me.all_reduce((x**2).mean(axes)) / me.size", "me.all_reduce((x**2).mean(axes))")],
        "N times too large",
    ),
    "one array": ("synchronised_statistics", [(RESULT, "mean")], "2 values are expected: the mean, the variance"),
    "all decay": ("decayed_gradients", [(IS_KERNEL, "True")], "only kernels should"),
    "none decays": ("decayed_gradients", [(IS_KERNEL, "False")], "nothing gets decay"),
    "bias decays": ("decayed_gradients", [(IS_KERNEL, 'name.endswith(("kernel:0", "bias:0"))')], "bias:0 gets"),
    "γ decays": ("decayed_gradients", [(IS_KERNEL, 'name.endswith(("kernel:0", "gamma:0"))')], "gamma:0 gets"),
    "the layer's name": (
        "decayed_gradients",
        [(IS_KERNEL, 'not any(word in name for word in ("bias", "gamma", "beta"))')],
        "whatever its layer is called",
    ),
    "2 λ w": ("decayed_gradients", [("g + decay * w", "g + 2 * decay * w")], "2 λ w"),
    "½ λ w": ("decayed_gradients", [("g + decay * w", "g + 0.5 * decay * w")], "½ λ w:"),
    "the wrong sign": ("decayed_gradients", [("g + decay * w", "g - decay * w")], "added to the gradient"),
    "λ forgotten": ("decayed_gradients", [("g + decay * w", "g + w")], "λ is missing"),
    "λ alone": ("decayed_gradients", [("g + decay * w", "g + decay")], "something else"),
    "mean 0": ("noise_weights", [(DRAW, "rng.normal(0.0, sigma, batch)")], "mean 0"),
    "σ² for σ": ("noise_weights", [(SIGMA, "batch / base - 1")], "standard deviation"),
    "the 1 forgotten": ("noise_weights", [("batch / base - 1", "batch / base")], "what is the 1 for"),
    "the variance of a mean": ("noise_weights", [("batch / base - 1", "1 / base - 1 / batch")], "an M-th of theirs"),
    "m / M": ("noise_weights", [("batch / base - 1", "1 - base / batch")], "M / m, or m / M"),
    "σ = 1": ("noise_weights", [(SIGMA, "float(batch > base)")], "grow with M"),
    "noise where none belongs": ("noise_weights", [(SIGMA, f"max({SIGMA}, 0.1)")], "all weights are exactly 1"),
    "one for all": ("noise_weights", [(DRAW, "rng.normal(1.0, sigma) * np.ones(batch)")], "draw one for each"),
    "a generator of its own": ("noise_weights", [("rng.normal", "np.random.default_rng(0).normal")], "draw anew"),
    "another generator": ("noise_weights", [("rng.normal", "np.random.default_rng().normal")], "to repeat a run"),
    "one number": ("noise_weights", [(DRAW, "rng.normal(1.0, sigma)")], "it should be (32,)"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(answer, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 6) < 6
    assert word in capsys.readouterr().out


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
