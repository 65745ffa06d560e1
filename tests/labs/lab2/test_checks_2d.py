"""Notebook 2d: what the checks of a checkpoint tell apart."""

from __future__ import annotations

import pytest

from labs.lab2_horovod.lessons import failures
from labs.lab2_horovod.lessons.checks_2d import check
from tests.labs.notebooks import recorded, text

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


def test_what_the_text_says_of_ten_kills():
    kills, told = recorded("elastic"), text("2d")
    assert len(kills) == 10 and (kills["last step"] == 60).all() and (kills["exit code"] == 0).all()
    assert "All ten reach step 60 with exit code 0" in told
    assert f"these ten lost {kills['steps lost'].mean():.1f} steps of 10" in told
    assert kills.set_index("after step")["steps lost"][29] == 0 and "killed after step 29 cost nothing" in told
    assert (kills["noticed"] < 0.1).all() and "**within a tenth of a second**" in told
    assert (kills["went on"] > 5).sum() == 5 and (kills["went on"] < 6).all() and "In about half of the runs" in told
    assert kills["weights differ by"].between(0.8e-7, 3.1e-7).all() and "(about $10^{-7}$)" in told


def test_what_the_text_says_of_llama_3():
    minutes = failures.young(30, 5.8 * 365.25 * 86_400, 16_384) / 60
    assert 13 <= minutes <= 14 and "every 13 or 14 minutes" in text("2d")
    days, years = 419 * 3.1 / 24, 3.1 * 16_384 / 24 / 365.25
    assert days == pytest.approx(54, rel=0.01) and years == pytest.approx(5.8, rel=0.01)
