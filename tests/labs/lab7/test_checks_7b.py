"""Notebook 7b: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from course_lib.parallel import pipeline, schedules
from labs.lab7_splitting_the_model.lessons.checks_7b import (
    check,
    counted_delay,
    fastest,
    points,
    slowest,
)

NOTEBOOK = "7b_cut_the_depth"
EXERCISES = ("work", "step_seconds", "schedule", "cuts", "delays")


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 6) == 6.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


SCALED = "slope * (len(labels[i]) / images)"
IMAGES = "images, loss, slopes = sum(len(some) for some in labels), 0.0, {}"
SEND_BACK = 'if me > 0: wire.send(me - 1, "B", i, back)'
SEND_ON = 'wire.send(me + 1, "F", i, y)'
OTHERWISE = 'if me + 1 == size else wire.receive(me + 1, "B", i)'
SENT = 'wire.send(me - 1, "B", i, back)'
LOSS = "mean * len(labels[i]) / images"
STEP = "sum((micro - 1) * max(way) + sum(way) for way in (forward, backward))"
ROW = 'row += [("F", early + i)] * (early + i < micro) + [("B", i)]'
EARLY = "min(stages - 1 - stage, micro)"
LARGER = "max(best[c][0], sums[end] - sums[c])"
BEST = "best[layers][1]"
DELAYS = "[2 * count for count in after], after"
WRONG = {
    "means added": ("work", [(SCALED, "slope")], "What does each mean count for"),
    "all count the same": ("work", [(SCALED, "slope / len(labels)")], "with more images has to count for more"),
    "sums": ("work", [(SCALED, "slope * len(labels[i])")], "asked for is the mean"),
    "divided by all images": ("work", [(SCALED, "slope / images")], "multiply by those of the micro-batch"),
    "weighted on every stage": (
        "work", [(SCALED, "slope"), ("stage.backward(i, slope)", "stage.backward(i, slope * len(labels[i]) / images)")],
        "has that factor already",
    ),
    "the last slope": (
        "work", [(f"slopes[i] {OTHERWISE}", f"slope {OTHERWISE}")], "is it that of another micro-batch",
    ),
    "nothing sent back": ("work", [(SEND_BACK, "pass")], "stage 0 waits for the gradient B0 from stage 1"),
    "nothing sent on": ("work", [(SEND_ON, "None")], "stage 1 waits for the activations F0 from stage 0"),
    "sent back by the first": ("work", [("me > 0", "me > -1")], "only neighbours are joined"),
    "sent to all": (
        "work", [(SEND_BACK, 'wire.send(0, "B", i, back) if me > 0 else None')], "only neighbours are joined",
    ),
    "the outputs come back": ("work", [(SENT, 'wire.send(me - 1, "B", i, x)')], "is off by"),
    "sent twice": (
        "work",
        [(SENT, '[wire.send(me - 1, kind, i, back) for kind in ("F", "B")]')],
        "nobody receives",
    ),
    "another order": ("work", [(IMAGES, f"row = sorted(row)[::-1]; {IMAGES}")], "it does F1, F0, B1, B0"),
    "back first": ("work", [(IMAGES, f"row = sorted(row); {IMAGES}")], "raised KeyError"),
    "loss on all stages": ("work", [("return loss", "return loss or 1.0")], "only the last stage knows a loss"),
    "losses added": ("work", [(LOSS, "mean")], "the sum of the micro-batches' means"),
    "losses averaged": ("work", [(LOSS, "mean / len(labels)")], "counts small ones too much"),
    "no return": ("work", [("return loss", "pass")], "a `return` missing"),
    "one after the other": (
        "step_seconds", [(STEP, "micro * (sum(forward) + sum(backward))")], "at the pace of the slowest",
    ),
    "all as slow as the slowest": (
        "step_seconds",
        [(STEP, "(micro + len(forward) - 1) * (max(forward) + max(backward))")],
        "passes the fast stages fast",
    ),
    "the mean stage": (
        "step_seconds",
        [(STEP, "(micro + len(forward) - 1) * (np.mean(forward) + np.mean(backward))")],
        "the slowest sets the pace",
    ),
    "both passes together": (
        "step_seconds",
        [(STEP, "sum(forward) + sum(backward) + (micro - 1) * max(f + b for f, b in zip(forward, backward))")],
        "need not be the one that is slowest backward",
    ),
    "the last stage queues": (
        "step_seconds",
        [(STEP, "sum(forward) + sum(backward) + (micro - 1) * (forward[-1] + backward[-1])")],
        "need not be the last",
    ),
    "one too many": ("step_seconds", [("micro - 1", "micro")], "one micro-batch too many"),
    "forward only": ("step_seconds", [("(forward, backward)", "(forward,)")], "the backward passes are missing"),
    "the slowest computes": (
        "step_seconds", [(STEP, "micro * max(f + b for f, b in zip(forward, backward))")], "it also waits",
    ),
    "GPipe": ("schedule", [("return in_order", "return gpipe(stages, micro)")], "Those are all"),
    "one at a time": ("schedule", [(EARLY, "0")], "goes there and back alone"),
    "one too few": ("schedule", [(EARLY, "min(max(stages - 2 - stage, 0), micro)")], "a stage waits that could"),
    "one too many early": ("schedule", [(EARLY, "min(stages - stage, micro)")], "and may keep"),
    "counted from the front": ("schedule", [(EARLY, "min(stage, micro)")], "Deadlock: stage 0 waits for the gradient"),
    "no end": ("schedule", [("(early + i < micro)", "True")], "with 8 micro-batches there are"),
    "backward first": (
        "schedule", [(ROW, 'row += [("B", i)] + [("F", early + i)] * (early + i < micro)')], "before F0",
    ),
    "a micro-batch forgotten": ("schedule", [("range(micro)", "range(micro - 1)")], "never does"),
    "a row too few": ("schedule", [("range(stages)", "range(stages - 1)")], "one for each stage"),
    "no numbers": ("schedule", [("return in_order", 'return ["FB" for _ in range(stages)]')], "list of tasks"),
    "equally many layers": (
        "cuts", [(BEST, "[round(layers * s / stages) for s in range(1, stages)]")], "not equally much time",
    ),
    "only the first": ("cuts", [(BEST, "best[layers][1][:-1]")], "it returns shape"),
    "with the ends": ("cuts", [(BEST, "[0, *best[layers][1]]")], "it returns shape"),
    "empty stages": ("cuts", [(BEST, "[layers] * (stages - 1)")], "so that every stage has a layer"),
    "sums of all": ("cuts", [(LARGER, "best[c][0] + sums[end] - sums[c]")], "is possible"),
    "delays from the front": (
        "delays", [("stages - 1 - stage", "stage")], "count from the other end",
    ),
    "stages counted from 1": ("delays", [("stages - 1 - stage", "stages - stage")], "with no update between them"),
    "one way": ("delays", [(DELAYS, "after, after")], "and comes back"),
    "ticks for both": ("delays", [(DELAYS, "[2 * c for c in after], [2 * c for c in after]")], "there are no ticks"),
    "all alike": ("delays", [(DELAYS, "[2 * stages - 2] * stages, after")], "not equally far"),
    "one list": ("delays", [(DELAYS, "[2 * count for count in after]")], "2 values are expected"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(answer, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 6) < 6
    assert word in capsys.readouterr().out


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
