"""Notebook 5a: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from course_lib import precision
from labs.lab5_precision_and_memory.lessons import checks_5a
from labs.lab5_precision_and_memory.lessons.checks_5a import check, points

NOTEBOOK = "5a_numbers"
EXERCISES = ("quantise", "scaled_step", "stuck_distance", "chance", "bound")


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 6) == 6.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


def test_the_library_s_rounding_is_right():
    def quantise(x, exponent, mantissa):
        return precision.quantise(x, exponent, mantissa)

    assert points(quantise, 5) == 5.0


NEAREST = "np.rint(wide / spacing) * spacing"
POWER = "np.maximum(np.frexp(wide)[1] - 1, lowest)"
LARGE = "np.where(np.abs(rounded) >= 2.0 ** (highest + 1), np.copysign(np.inf, wide), rounded)"
FINITE = "np.where(np.isfinite(wide), rounded, wide)"
LOOK = "if not np.isfinite(gradient).all():\n        return weights, velocity, scale / 2, 0"
SKIPPED, DOUBLED = "return weights, velocity, scale / 2, 0", "(weights, velocity, scale * 2, 0)"
VELOCITY = "0.9 * velocity + gradient / scale"
DISTANCE = "spacing / 2 / rate"
DRAW = "np.floor(wide / spacing + random.random(wide.shape)) * spacing"
PLAN = "2 * max(maxima[-8:])"
WRONG = {
    "the scale doubled before it is used": (
        "scaled_step",
        [(VELOCITY, "0.9 * velocity + gradient / (scale * 2 if clean + 1 == patience else scale)")],
        "without a scale the first weight would be",
    ),
    "cut off": ("quantise", [(NEAREST, "np.trunc(wide / spacing) * spacing")], "cut off towards 0"),
    "ties up": (
        "quantise", [(NEAREST, "np.copysign(np.floor(np.abs(wide) / spacing + 0.5), wide) * spacing")], "even mantissa",
    ),
    "a bit too many": ("quantise", [("power - mantissa", "power - mantissa - 1")], "a mantissa bit too many"),
    "no subnormal numbers": (
        "quantise", [(FINITE, "np.where(np.isfinite(wide), rounded * (np.abs(wide) >= 2.0**lowest), wide)")],
        "lowest exponent still holds",
    ),
    "unrounded": ("quantise", [(NEAREST, "wide")], "nothing is rounded"),
    "one exponent too low": ("quantise", [(POWER, POWER.replace("lowest", "lowest - 1"))], "here −14, not −15"),
    "numbers of float16": ("quantise", [("2.0 ** (highest + 1)", "2.0**16")], "beyond the end of this format"),
    "subnormals of float16": (
        "quantise", [(POWER, "np.maximum(np.frexp(wide)[1] - 1, -14)")], "below the lowest exponent of this format",
    ),
    "ever finer": ("quantise", [(POWER, "np.frexp(wide)[1] - 1")], "the spacing stops falling"),
    "cut to the largest": (
        "quantise", [(LARGE, "np.clip(rounded, -65504, 65504)")], "in an IEEE format it becomes infinite",
    ),
    "too large before rounding": (
        "quantise",
        [(LARGE, "np.where(np.abs(wide) > (2 - 2.0**-mantissa) * 2.0**highest, np.copysign(np.inf, wide), rounded)")],
        "round first",
    ),
    "one exponent more": ("quantise", [("(highest + 1)", "(highest + 20)")], "for infinity and NaN"),
    "the sign lost": ("quantise", [("np.copysign(np.inf, wide)", "np.inf")], "the sign stays"),
    "NaN lost": ("quantise", [(FINITE, "np.nan_to_num(np.where(np.isfinite(wide), rounded, wide))")], "NaN becomes"),
    "the scale stays in": ("scaled_step", [(VELOCITY, "0.9 * velocity + gradient")], "still multiplied by the scale"),
    "unscaled too late": (
        "scaled_step",
        [("weights - rate * velocity", "weights - rate * (velocity - gradient + gradient / scale)"),
         (VELOCITY, "0.9 * velocity + gradient")],
        "the velocity holds scaled gradients",
    ),
    "not looked at": ("scaled_step", [(LOOK, "pass")], "spoiled"),
    "NaN not looked at": ("scaled_step", [("not np.isfinite(gradient).all()", "np.isinf(gradient).any()")], "spoiled"),
    "coasting": (
        "scaled_step", [(SKIPPED, "return weights - rate * velocity, velocity, scale / 2, 0")],
        "the weights move",
    ),
    "velocity decays": (
        "scaled_step", [(SKIPPED, "return weights, 0.9 * velocity, scale / 2, 0")],
        "nothing may change",
    ),
    "the count goes on": (
        "scaled_step", [(SKIPPED, "return weights, velocity, scale / 2, clean")], "the count begins anew",
    ),
    "never up": ("scaled_step", [(DOUBLED, "(weights, velocity, scale, 0)")], "never grows"),
    "a step late": ("scaled_step", [("clean == patience", "clean > patience")], "one step too late"),
    "no new count": (
        "scaled_step",
        [("clean == patience", "clean >= patience"), (DOUBLED, "(weights, velocity, scale * 2, clean)")],
        "must begin anew",
    ),
    "a whole spacing": ("stuck_distance", [(DISTANCE, "spacing / rate")], "below half of the spacing"),
    "an update": ("stuck_distance", [(DISTANCE, "spacing / 2")], "divide by the rate"),
    "relative": (
        "stuck_distance", [("2.0 ** (np.floor(np.log2(target)) - mantissa)", "target * 2.0**-mantissa")],
        "from one power of two to the next",
    ),
    "the spacing at 1": ("stuck_distance", [("np.floor(np.log2(target))", "0")], "right for a target of 1"),
    "the next power": ("stuck_distance", [("np.floor", "np.ceil")], "right for a target of 1"),
    "something else": ("stuck_distance", [(DISTANCE, "spacing * rate")], "a weight from above stops"),
    "nearest": ("chance", [(DRAW, "np.rint(wide / spacing) * spacing")], "always rounds the same way"),
    "a coin": (
        "chance",
        [(DRAW, "(np.floor(wide / spacing) + (random.random(wide.shape) < 0.5) * (wide % spacing != 0)) * spacing")],
        "equally likely",
    ),
    "the wrong way round": (
        "chance",
        [(DRAW, "(np.floor(wide / spacing) + (random.random(wide.shape) > wide / spacing % 1) "
                "* (wide % spacing != 0)) * spacing")],
        "other way round",
    ),
    "one draw for all": ("chance", [("random.random(wide.shape)", "random.random()")], "same way"),
    "noise": ("chance", [(DRAW, "wide + spacing * (random.random(wide.shape) - 0.5)")], "do you round at all"),
    "no 0": ("chance", [("np.frexp(wide)[1] - 1", "np.floor(np.log2(np.abs(wide))).astype(int)")], "logarithm of 0"),
    "the last one": ("bound", [(PLAN, "maxima[-1]")], "overflow"),
    "all of the past": ("bound", [(PLAN, "2 * max(maxima)")], "out of date"),
    "much room": ("bound", [(PLAN, "100 * maxima[-1]")], "less room"),
    "the mean": ("bound", [(PLAN, "sum(maxima) / len(maxima)")], "overflow"),
    "no room": ("bound", [(PLAN, "max(maxima[-8:])")], "above all that have been"),
    "nothing": ("bound", [(PLAN, "0 * maxima[0]")], "above 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_named(name, answer, capsys):
    exercise, edits, word = WRONG[name]
    assert points(answer(NOTEBOOK, exercise, *edits), 6) < 6
    assert word in capsys.readouterr().out


def test_another_bound_is_right():
    def bound(maxima):
        logs = np.log2(maxima[-12:])
        return float(2 ** (logs.max() + 0.5 + logs.std()))

    assert points(bound, 4) == 4.0


@pytest.mark.parametrize("target", (1.0, *checks_5a.TARGETS))
@pytest.mark.parametrize("rate", [0.1, 0.01])
@pytest.mark.parametrize("mantissa", [7, 10])
def test_a_weight_stops_where_the_derivation_says(target, rate, mantissa):
    spacing = 2.0 ** (math.floor(math.log2(target)) - mantissa)
    right = spacing / (2 * rate)
    start = target + 1.5 * right  # as in the check's message
    assert math.frexp(start)[1] == math.frexp(target)[1]  # no power of two between
    assert right - spacing <= checks_5a.descend(target, rate, mantissa, start) <= right + spacing
