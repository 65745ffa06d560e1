"""The comparison of batch sizes in 1f, on runs whose losses are known."""

from __future__ import annotations

from itertools import count, islice

import numpy as np
import pytest

from labs.lab1_gradient_descent.lessons import first_to_target


def falling(batch_size, eta, seed):
    """The loss is the weight: it falls by η in a step, and by less beyond η = 1."""
    w = 100.0 + seed
    for _ in count():
        w -= eta if eta <= 1 else eta / 8
        yield w


def run(steps, most=10**9, **how):
    return first_to_target.run(steps, float, how.get("target", 0.5), how.get("batch_size", 1), 1.0, 0, most)


def test_a_run_ends_at_the_first_look_at_which_the_target_is_reached():
    steps, seconds = run(lambda *_: iter(np.linspace(4, 0, 41)), target=1)
    assert 31 <= steps <= 33  # looks are 5 % apart
    assert seconds > 0


@pytest.mark.parametrize("losses", [[5.0] * 99, [float("nan")] * 99, [1e9] * 99])
def test_a_run_that_does_not_arrive_is_given_up(losses):
    assert run(lambda *_: iter(losses), most=60, batch_size=2) is None


def test_each_batch_size_gets_its_best_rate_and_runs_with_all_seeds(monkeypatch):
    monkeypatch.setattr(first_to_target, "LOST", np.inf)
    told = []
    table = first_to_target.compare(falling, float, 0.5, (1, 8), 1_000, lambda done, what: told.append(what))
    assert told == ["batch size 1", "batch size 8"]
    assert set(table["eta"]) == {1.0}
    assert table.groupby("batch_size")["seed"].apply(list).tolist() == [list(first_to_target.SEEDS)] * 2
    assert (table["examples"] == table["steps"] * table["batch_size"]).all()


def test_the_model_takes_the_steps_of_gradient_descent():
    rng = np.random.default_rng(0)
    model = first_to_target.Softmax(rng.integers(0, 255, (5_000, 4, 4)), rng.integers(0, 10, 5_000))
    w = np.zeros((17, 10))
    whole = next(model.steps(len(model.x), 0.5, seed=1))
    nudge = 1e-4 * rng.standard_normal(w.shape)

    def loss(w):
        return -np.log(model.probabilities(w, slice(None))[np.arange(len(model.y)), model.y]).mean()

    slope = (loss(w + nudge) - loss(w - nudge)) / 2
    assert slope == pytest.approx(-np.sum(whole * nudge) / 0.5, rel=1e-3)
    batches = list(islice(model.steps(1_000, 0.1, seed=1), 6))  # five in an epoch, the last one smaller
    assert all(not np.array_equal(a, b) for a, b in zip(batches, batches[1:]))
