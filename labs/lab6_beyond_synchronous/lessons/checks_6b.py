"""Checks of notebook 6b: elastic averaging's updates, the period that a wire asks for, and gossip's mixing rate."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from course_lib.cost import allreduce
from course_lib.cost.allreduce import Link
from course_lib.notebook.answers import array, case, compare, name_mistake, number, same, several, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from labs.lab6_beyond_synchronous.lessons import gossip

# --- elastic_step


def _drawn(ranks: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng([ranks, seed])
    return random.normal(size=(ranks, 5)), random.normal(size=5), random.normal(size=(ranks, 5))


def _stepped(answer: Callable, ranks: int, seed: int, rate: float, spring: float) -> tuple[np.ndarray, np.ndarray]:
    weights, centre, gradients = _drawn(ranks, seed)
    with unchanged(weights, centre, gradients):
        found = several(answer(weights, centre, gradients, rate, spring), "the ranks' weights", "the centre")
    return array(found[0], weights.shape, "as the ranks' weights it"), array(found[1], (5,), "as the centre it")


STEPS = ((3, 0, 0.1, 0.5), (1, 1, 0.2, 1.5), (4, 2, 0.05, 0.0))  # ranks, seed, rate, spring


def _the_ranks(step: Callable) -> None:
    for ranks, seed, rate, spring in STEPS:
        weights, centre, gradients = _drawn(ranks, seed)
        with case(f"{ranks} ranks, η = {rate:g}, ρ = {spring:g}"):
            found, _ = _stepped(step, ranks, seed, rate, spring)
            away = weights - centre
            mistakes = {
                "the spring pushes the ranks away from the centre.": weights - rate * (gradients - spring * away),
                "the springs are missing.": weights - rate * gradients,
                "the gradients are missing.": weights - rate * spring * away,
                "the spring's part of the slope lacks the learning rate.": weights - rate * gradients - spring * away,
                "the ½ of the penalty has gone with the square.": weights - rate * (gradients + spring * away / 2),
                "the penalty's slope is twice too large: mind its ½.": weights - rate * (gradients + 2 * spring * away),
            }
            compare(found, weights - rate * (gradients + spring * away), "the ranks' weights", mistakes)


def _the_centre(step: Callable) -> None:
    for ranks, seed, rate, spring in STEPS:
        weights, centre, gradients = _drawn(ranks, seed)
        moved = weights - rate * (gradients + spring * (weights - centre))
        with case(f"{ranks} ranks, η = {rate:g}, ρ = {spring:g}"):
            _, found = _stepped(step, ranks, seed, rate, spring)
            mistakes = {
                "the springs push the centre away from the ranks.": centre - rate * spring * (weights - centre).sum(0),
                "the centre takes the mean of the springs; every rank has one, and they add up.": centre
                + rate * spring * (weights - centre).mean(0),
                "the centre sees the ranks after their step; one step moves all by the slope at the old place.": centre
                + rate * spring * (moved - centre).sum(0),
                "the centre does not move.": centre,
                "the centre becomes the mean of the ranks: that is local SGD.": weights.mean(0),
                "the centre also takes the gradients; no loss in the objective is taken at the centre.": centre
                + rate * (spring * (weights - centre) - gradients).sum(0),
                "the spring's part of the slope lacks the learning rate.": centre + spring * (weights - centre).sum(0),
                "the penalty's slope is twice too large: mind its ½.": centre
                + 2 * rate * spring * (weights - centre).sum(0),
                "the ½ of the penalty has gone with the square.": centre
                + rate * spring * (weights - centre).sum(0) / 2,
            }
            compare(found, centre + rate * spring * (weights - centre).sum(0), "the centre", mistakes)


# --- period

WIRES = {  # numbers, ranks, link, seconds of an update's own computing, share
    "a slow wire": (1_000_000, 16, Link(50e-6, 12.5e6), 0.05, 0.1),
    "latency": (1_000, 64, Link(1e-3, 1e9), 0.004, 0.2),
    "a quick wire": (10_000, 4, Link(1e-6, 1e10), 0.1, 0.5),
    "a whole number of updates": (1_000, 2, Link(0.0, 4_000.0), 0.25, 0.5),
}


def _wire(name: str) -> Callable:
    def judge(period: Callable) -> None:
        numbers, ranks, link, computing, share = WIRES[name]
        meeting = float(allreduce.ring(ranks, 4 * numbers, link))

        def asked(seconds: float, ratio: float) -> int:
            return max(1, math.ceil(seconds * ratio / computing - 1e-9))

        expected = asked(meeting, 1 / share - 1)
        with case(f"{numbers:,} numbers, {ranks} ranks"):
            got = number(period(numbers, ranks, link, computing, share), "H")
            if got < 1:
                raise Wrong(f"H is {got:g}: more often than after every update the ranks can't meet.")
            mistakes = {
                "the share is one of all the time, not of the computing alone.": asked(meeting, 1 / share),
                "float32 numbers have 4 bytes.": asked(float(allreduce.ring(ranks, numbers, link)), 1 / share - 1),
                "a ring all-reduce has two halves.": asked(meeting / 2, 1 / share - 1),
                "the meeting is to take the share, not the computing.": asked(meeting, share / (1 - share)),
                "one less: with this H the meetings take more than their share. Round up.": expected - 1,
                "one more than is needed: round up, but only what is no whole number.": expected + 1,
            }
            name_mistake(got, expected, mistakes)
            if got != round(got):
                raise Wrong(f"H is {got:g}, but the ranks meet after a whole number of updates.")
            compare(got, expected, "H")

    return judge


# --- mixing


def _matrices() -> dict[str, np.ndarray]:
    even = (np.roll(np.eye(8), 1, 0) + np.roll(np.eye(8), -1, 0)) / 2
    lazy = 0.1 * np.eye(6) + 0.9 * np.roll(np.eye(6), 3, 0)
    return {
        "a ring of 16": gossip.ring(16),
        "a ring of 5": gossip.ring(5),
        "all together": np.full((4, 4), 0.25),
        "fixed pairs": gossip.fixed_pairs(6),
        "both neighbours without oneself": even,
        "pairs that nearly swap": (lazy + np.full((6, 6), 1 / 6)) / 2,
    }


EXTREMES = {
    "all together": "After one round all ranks are equal.",
    "fixed pairs": "Pairs that never hear of each other never agree.",
}


def _mixes(*names: str) -> Callable:
    def judge(mixing: Callable) -> None:
        for name in names:
            matrix = _matrices()[name]
            values = np.sort(np.linalg.eigvalsh(matrix))
            sizes = np.sort(np.abs(values))
            with case(name), unchanged(matrix):
                got = number(mixing(matrix), "the factor")
                mistakes = {
                    "that is the largest eigenvalue: it belongs to the ranks' mean, which never moves.": values[-1],
                    "negative eigenvalues count by their size: what swaps its sign in each round does not shrink, "
                    "either.": values[-2],
                    "that is the gap to 1, not the factor.": 1 - sizes[-2],
                    "it is squared: the squared distance shrinks so, not the distance.": sizes[-2] ** 2,
                    "that is the smallest eigenvalue; the slowest part of the distance is left at the end.": sizes[0],
                    "that is the smallest eigenvalue, with its sign.": values[0],
                }
                if same(got, sizes[-2], atol=1e-6):
                    continue
                fitting = [sentence for sentence, wrong in mistakes.items() if same(got, wrong, atol=1e-6)]
                if len(fitting) == 1:
                    raise Wrong(fitting[0])
                raise Wrong(f"the factor should be {sizes[-2]:.4g}; it is {got:.4g}. {EXTREMES.get(name, '')}".strip())

    return judge


EXERCISES = Exercises(
    Exercise(
        "elastic_step",
        Criterion("ranks", "The ranks", 0.5, _the_ranks),
        Criterion("centre", "The centre", 0.5, _the_centre),
    ),
    Exercise(
        "period",
        *(Criterion(name.replace(" ", "-"), name[0].upper() + name[1:], 1 / len(WIRES), _wire(name)) for name in WIRES),
    ),
    Exercise(
        "mixing",
        Criterion("ring", "Rings", 0.4, _mixes("a ring of 16", "a ring of 5")),
        Criterion("ends", "At once, and never", 0.3, _mixes("all together", "fixed pairs")),
        Criterion(
            "signs", "Negative eigenvalues", 0.3, _mixes("both neighbours without oneself", "pairs that nearly swap")
        ),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
