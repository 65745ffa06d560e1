"""Notebook 2d: what the checks of a checkpoint tell apart."""

from __future__ import annotations

import pytest

from labs.lab2_horovod.lessons.checks_2d import check

pytestmark = pytest.mark.slow  # a checkpoint is one of a Keras training


@pytest.mark.parametrize(
    "left_out",
    [
        "training.optimizer.learning_rate.assign(state['rate'])",
        "training.best = state['best']",
        "training.waited = state['waited']",
    ],
)
def test_without_what_decides_on_the_rate_it_is_not_the_uninterrupted_run(answer, left_out):
    verdicts = {verdict.id: verdict for verdict in check(answer("2d", "Checkpoint", (left_out, "None"))).verdicts}
    assert not verdicts["uninterrupted"].passed
    assert "differs" in verdicts["uninterrupted"].reason


def test_what_is_forgotten_is_not_taken_for_a_missing_copy(answer):
    verdicts = check(answer("2d", "Checkpoint", ("variable.assign(value)", "None"))).verdicts
    (copy,) = [verdict for verdict in verdicts if verdict.id == "copy"]
    assert not copy.passed and "not in the checkpoint, or not put back" in copy.reason
