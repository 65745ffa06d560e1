"""Notebook 3b: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import pytest

from course_lib.optimizers import schedules
from labs.lab3_large_batch.lessons.checks_3b import check, points

NOTEBOOK = "3b_learning_rates"
EXERCISES = ["scaled_rate", "warm_up", "legw", "growth", "updates"]


@pytest.fixture
def solution(answer):
    """The solution of an exercise, after edits of its code; LEGW uses the learner's own scaling rule."""

    def make(exercise, *edits):
        found = answer(NOTEBOOK, exercise, *edits)
        if exercise == "legw":
            found.__globals__["scaled_rate"] = answer(NOTEBOOK, "scaled_rate")
        return found

    return make


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_solution_gets_full_points(solution, exercise):
    assert points(solution(exercise), 6) == 6.0
    assert all(verdict.passed for verdict in check(solution(exercise)).verdicts)


POWER = "powers.get((compared, moment), 1)"
RATE = f"eta * (batch / base) ** {POWER}"
RAMP = "start + (eta - start) * step / steps"
GROWN = "min(batch * factor, largest)"
ETA = "eta * grown / (batch * factor)"
COUNT = "(end - epoch) * (examples // batch)"
WRONG = {
    "linear for one update": ("scaled_rate", [("0.5", "1")], "η enters it squared"),
    "the root for the same examples": ("scaled_rate", [(POWER, POWER.replace("1)", "0.5)"))], "add up"),
    "the same rate for all": ("scaled_rate", [(RATE, "eta")], "the same rate for every batch"),
    "more examples, longer mean": ("scaled_rate", [(POWER, "1")], "whatever the batch"),
    "upside down": ("scaled_rate", [("batch / base", "base / batch")], "the other way round"),
    "whole multiples only": ("scaled_rate", [("batch / base", "batch // base")], "divide with /"),
    "the base forgotten": ("scaled_rate", [("batch / base", "batch")], "not B itself"),
    "no return": ("scaled_rate", [(f"return {RATE}", RATE)], "is a `return` missing"),
    "off by one": ("warm_up", [(RAMP, "start + (eta - start) * (step + 1) / steps")], "off by one: update 0"),
    "there an update early": ("warm_up", [(RAMP, "start + (eta - start) * step / (steps - 1)")], "not by update 3"),
    "there an update late": (
        "warm_up",
        [("step >= steps", "step > steps"), (RAMP, "start + (eta - start) * step / (steps + 1)")],
        "not later",
    ),
    "from zero": ("warm_up", [(RAMP, "eta * step / steps")], "it should rise from `start`"),
    "from zero, and early": ("warm_up", [(RAMP, "min(eta, eta * (step + 1) / steps)")], "and one update early"),
    "start added on top": ("warm_up", [("eta - start", "eta")], "only η − start"),
    "no end": ("warm_up", [("step >= steps", "steps == 0")], "goes on rising"),
    "no return at the end": ("warm_up", [("return eta", "return")], "it returns nothing"),
    "no warm-up at all": ("warm_up", [("step >= steps", "True")], "no warm-up"),
    "equal factors": ("warm_up", [(RAMP, "start * (eta / start) ** (step / steps)")], "equal factors"),
    "division by no updates": ("warm_up", [("step >= steps", "steps and step >= steps")], "ZeroDivisionError"),
    "a linear rate": ("legw", [('("one update", "covariance")', '("same examples", "mean")')], "the square root"),
    "the same epochs": ("legw", [("epochs * batch / base", "epochs")], "grows with the batch, too"),
    "fewer epochs": ("legw", [("epochs * batch / base", "epochs * base / batch")], "longer, not shorter"),
    "the root of the epochs": ("legw", [("epochs * batch / base", "epochs * (batch / base) ** 0.5")],
                               "not to its root"),
    "the root of fewer epochs": ("legw", [("epochs * batch / base", "epochs * (base / batch) ** 0.5")],
                                 "longer, in proportion"),
    "a rate that falls, too": ("growth", [(ETA, "eta / factor")], "falls twice"),
    "nothing left for the rate": ("growth", [(ETA, "eta")], "the rest has to be taken"),
    "all or nothing": (
        "growth", [(GROWN, "batch * factor if batch * factor <= largest else batch")], "room for the whole factor",
    ),
    "a part that is forgotten": (
        "growth", [(ETA, "eta if batch < largest else eta / factor")], "by a part of the factor",
    ),
    "no largest batch": ("growth", [(GROWN, "batch * factor")], "beyond `largest`"),
    "no first stage": ("growth", [("[(0, batch, eta)]", "[]")], "first stage"),
    "the decay": ("growth", [(GROWN, "batch"), (ETA, "eta / factor")], "that is the decay"),
    "a scaled rate": ("growth", [(ETA, "eta * factor")], "stays what it was"),
    "half a batch": ("growth", [("batch = grown", "batch = float(grown)")], "whole numbers"),
    "milestones used up": ("growth", [("return stages", "milestones.clear(); return stages")], "changes the list"),
    "the last stage forgotten": ("updates", [("[epoch for epoch, _, _ in stages[1:]] + [epochs]",
                                              "[epoch for epoch, _, _ in stages[1:]]")], "the last stage"),
    "rounded up": ("updates", [("examples // batch", "-(-examples // batch)")], "is left out"),
    "rounded by stage": ("updates", [(COUNT, "(end - epoch) * examples // batch")], "each *epoch*"),
    "not rounded": ("updates", [("examples // batch", "examples / batch")], "whole updates only"),
    "one epoch of each": ("updates", [(COUNT, "examples // batch")], "one epoch of each"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(solution, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(solution(exercise, *edits), 6) < 6
    assert word in capsys.readouterr().out


def test_the_solutions_agree_with_the_library(solution):
    scaled, linear, root = solution("scaled_rate"), ("same examples", "mean"), ("one update", "covariance")
    assert scaled(0.1, 96, 64, linear) == pytest.approx(schedules.linear_scaling(0.1, 96, 64))
    assert scaled(0.1, 96, 64, root) == pytest.approx(schedules.sqrt_scaling(0.1, 96, 64))
    assert solution("legw")(0.1, 0.5, 96, 64) == pytest.approx(schedules.legw(0.1, 0.5, 96, 64))
    warm = schedules.WarmUp(0.8, 5, start=0.1)
    assert [solution("warm_up")(t, 0.8, 5, 0.1) for t in range(8)] == pytest.approx([float(warm(t)) for t in range(8)])
    stages = schedules.growth(0.1, 64, (3, 6, 8), 4, 1024)
    assert solution("growth")(0.1, 64, (3, 6, 8), 4, 1024) == [pytest.approx(stage) for stage in stages]
    assert solution("updates")(stages, 9, 12_345) == 3 * 192 + 3 * 48 + 3 * 12
