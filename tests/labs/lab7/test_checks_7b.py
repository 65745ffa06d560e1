"""Notebook 7b: other answers, wrong and right, and what the checks compare with."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from course_lib.parallel import pipeline, schedules
from labs.lab7_splitting_the_model.lessons.checks_7b import (
    counted_delay,
    fastest,
    points,
    slowest,
)

GREEDY = """
def cuts(seconds, stages):
    ends, held = [], 0
    for layer, time in enumerate(seconds):
        left = len(seconds) - layer
        if layer and len(ends) < stages - 1 and (held >= sum(seconds) / stages or left == stages - 1 - len(ends)):
            ends.append(layer)
            held = 0
        held += time
    return ends
"""


def test_filling_up_to_the_mean_is_named(capsys):
    space = {}
    exec(GREEDY, space)
    assert 0 < points(space["cuts"], 5) < 5
    assert "leaves the rest to the last" in capsys.readouterr().out


@pytest.mark.slow
def test_all_plans_are_too_many(capsys):
    """Not tried at a hundred layers, where it would never end."""
    calls = []

    def cuts(seconds, stages):
        calls.append(len(seconds))
        every = itertools.combinations(range(1, len(seconds)), stages - 1)
        return list(min(every, key=lambda plan: slowest(seconds, plan)))

    assert points(cuts, 10) == pytest.approx(7)
    assert max(calls) == 30 and "don't try them all" in capsys.readouterr().out


def test_the_best_plan_is_the_best_of_all():
    random = np.random.default_rng(0)
    for layers, stages in ((6, 3), (8, 2), (9, 5), (4, 4), (3, 1)):
        seconds = random.integers(1, 9, layers).tolist()
        every = itertools.combinations(range(1, layers), stages - 1)
        assert fastest(seconds, stages) == min(slowest(seconds, plan) for plan in every)


def test_another_way_to_the_plan_is_right():
    def cuts(seconds, stages):
        def filled(limit):
            ends, held = [], 0
            for layer, time in enumerate(seconds):
                if held + time > limit:
                    ends.append(layer)
                    held = 0
                held += time
            return ends

        sums = [0, *np.cumsum(seconds)]
        limits = sorted({b - a for a, b in itertools.combinations(sums, 2) if b - a >= max(seconds)})
        ends = next(found for found in map(filled, limits) if len(found) < stages)
        spare = [layer for layer in range(1, len(seconds)) if layer not in ends]
        return sorted(ends + spare[: stages - 1 - len(ends)])

    assert points(cuts, 5) == 5.0


def test_the_library_s_own_work_and_schedule_are_right():
    def work(*arguments):
        return pipeline.follow(*arguments)

    def schedule(stages, micro):
        return schedules.one_forward_one_backward(stages, micro)

    assert points(work, 5) == 5.0 and points(schedule, 5) == 5.0


def test_delays_are_counted():
    assert [counted_delay(4, stage, ticks=True) for stage in range(4)] == [6, 4, 2, 0]
    assert [counted_delay(4, stage, ticks=False) for stage in range(4)] == [3, 2, 1, 0]
