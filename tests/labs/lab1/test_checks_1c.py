"""The simulated training with which notebook 1c's callbacks are checked."""

from __future__ import annotations

import time

import pytest

from labs.lab1_gradient_descent.lessons.simulated_fit import Epoch, play

pytestmark = pytest.mark.slow  # the answers are Keras callbacks


def test_a_simulated_run_leaves_the_clock_as_it_was(answer):
    before = time.perf_counter
    play(answer("1c", "EpochTimer")(), [Epoch(1, (1, 1), 1)])
    assert time.perf_counter is before
    broken = answer("1c", "EpochTimer", ("self.validated = 0.0", "raise KeyError"))
    with pytest.raises(KeyError):
        play(broken(), [Epoch(1, (1, 1), 1)])
    assert time.perf_counter is before


def test_a_simulated_run_calls_the_methods_in_the_order_of_a_real_fit():
    from tensorflow import keras

    from labs.lab1_gradient_descent.lessons import checks_1c

    def recorder():
        calls = []
        methods = ("train_begin", "epoch_begin", "train_batch_begin", "train_batch_end", "test_begin",
                   "test_batch_begin", "test_batch_end", "test_end", "epoch_end", "train_end")  # fmt: skip
        made = {f"on_{m}": lambda self, *_, m=m: calls.append(m) for m in methods}
        return type("Recorder", (keras.callbacks.Callback,), made)(), calls

    real, real_calls = recorder()
    checks_1c._fit(real)
    played, played_calls = recorder()
    play(played, [Epoch(1, (1, 1, 1), 1)] * 2)

    def order(calls):
        return [m for m, before in zip(calls, [None, *calls]) if m != before or "batch" not in m]

    def squeezed(calls):
        return [m for m in calls if not m.startswith("test_batch")]

    assert squeezed(order(real_calls)) == squeezed(order(played_calls))
