"""Lab 3: the solutions agree with the library; other answers, wrong and right. (3d has tests of its own.)"""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import statistics
from course_lib.optimizers import schedules
from labs.lab3_large_batch.lessons import checks_3c, checks_3e, checks_3f, critical_batch, gradient_noise, tuning_budget


def test_the_noise_and_the_floor_are_those_of_the_library(answer):
    random = np.random.default_rng(3)
    small, large = random.normal(1, 2, (30, 4)), random.normal(1, 0.5, (20, 4))
    squares = [np.mean(np.sum(g**2, axis=1)) for g in (small, large)]
    assert answer("3a", "noise_scale")(small, large, 4, 64) == pytest.approx(
        gradient_noise.noise_scale(squares, (4, 64))
    )
    batches, updates = np.array([4.0, 16, 256]), np.array([900.0, 300, 40])
    assert answer("3a", "floor_and_bend")(batches, updates) == pytest.approx(critical_batch.fit(batches, updates))


def test_rates_and_batches_are_those_of_the_library(answer):
    scaled, linear, root = answer("3b", "scaled_rate"), ("same examples", "mean"), ("one update", "covariance")
    assert scaled(0.1, 96, 64, linear) == pytest.approx(schedules.linear_scaling(0.1, 96, 64))
    assert scaled(0.1, 96, 64, root) == pytest.approx(schedules.sqrt_scaling(0.1, 96, 64))
    assert answer("3b", "legw")(0.1, 0.5, 96, 64) == pytest.approx(schedules.legw(0.1, 0.5, 96, 64))
    warm = schedules.WarmUp(0.8, 5, start=0.1)
    assert [answer("3b", "warm_up")(t, 0.8, 5, 0.1) for t in range(8)] == pytest.approx(
        [float(warm(t)) for t in range(8)]
    )
    stages = schedules.growth(0.1, 64, (3, 6, 8), 4, 1024)
    assert answer("3b", "growth")(0.1, 64, (3, 6, 8), 4, 1024) == [pytest.approx(stage) for stage in stages]
    assert answer("3b", "updates")(stages, 9, 12_345) == 3 * 192 + 3 * 48 + 3 * 12


def test_interleaved_ghosts_and_examples_alone_are_told_apart(capsys):
    def ghost_batch_norm(x, ghost, gamma, beta, epsilon=1e-3):
        groups = x.reshape(ghost, -1, *x.shape[1:])
        axes = (0, *range(2, groups.ndim - 1))
        mean, variance = groups.mean(axes, keepdims=True), groups.var(axes, keepdims=True)
        return (gamma * (groups - mean) / np.sqrt(variance + epsilon) + beta).reshape(x.shape)

    assert checks_3c.points(ghost_batch_norm, 6) < 6
    assert "consecutive examples" in capsys.readouterr().out

    def ghost_batch_norm(x, ghost, gamma, beta, epsilon=1e-3):
        axes = tuple(range(1, x.ndim - 1))
        mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
        return gamma * (x - mean) / np.sqrt(variance + epsilon) + beta

    assert checks_3c.points(ghost_batch_norm, 6) < 6
    assert "normalised by itself" in capsys.readouterr().out


def test_other_right_answers_are_right():
    def synchronised_statistics(me, x):
        axes = tuple(range(x.ndim - 1))
        mean = me.all_reduce(x.mean(axes)) / me.size
        return mean, me.all_reduce(((x - mean) ** 2).mean(axes)) / me.size

    def noise_weights(batch, base, rng):
        return gradient_noise.multiplicative(batch, base, rng)

    assert checks_3c.points(synchronised_statistics, 3) == 3.0
    assert checks_3c.points(noise_weights, 3) == 3.0


def test_a_choice_without_replacement_is_told_apart(capsys):
    from itertools import combinations

    def expected_best(scores, budget):
        return np.mean([max(drawn) for drawn in combinations(scores, min(budget, len(scores)))])

    assert checks_3e.points(expected_best, 6) < 6
    assert "drawn twice" in capsys.readouterr().out


def test_the_library_is_right_too():
    def interval(ours, theirs, t):
        return statistics.paired(ours, theirs)

    assert checks_3e.points(interval, 6) == checks_3e.points(tuning_budget.expected_best, 6) == 6.0


def test_the_smallest_eigenvalue_is_not_the_largest(capsys):
    def power_iteration(product, v, steps):
        matrix = np.array([product(e) for e in np.eye(len(v))])
        values, vectors = np.linalg.eigh(matrix)
        return float(values[0]), vectors[:, 0]

    assert checks_3f.points(power_iteration, 3) < 3
    assert "smallest" in capsys.readouterr().out
