"""Notebook 6a: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from labs.lab6_beyond_synchronous.lessons.checks_6a import check, points

NOTEBOOK = "6a_asynchronous"
EXERCISES = ("arrived", "staleness", "disguise", "rate_for", "common")


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 6) == 6.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


ENOUGH = "len(server.waiting) < server.quorum"
MEAN = "np.mean(list(server.waiting.values()), axis=0)"
UPDATE = "server.weights - server.rate * mean"
ANSWERS = "dict.fromkeys(server.waiting, server.weights)"
FOUND = "update - read.get(number, 0)"
BOTH = "1 - 1 / workers, rate / workers"
STALE = "rate / (1 + staleness)"
SHARE = "np.bincount(features.ravel()) / len(features)"
WRONG = {
    "no quorum": ("arrived", [(ENOUGH, "False")], "though only 1 of 3 gradients have come"),
    "one too many": ("arrived", [(ENOUGH, "len(server.waiting) <= server.quorum")], "stay as they are"),
    "a sum": ("arrived", [(MEAN, "np.sum(list(server.waiting.values()), axis=0)")], "take their mean"),
    "the last gradient": ("arrived", [(MEAN, "gradient")], "only the last gradient"),
    "a sum, of two": (
        "arrived", [(MEAN, "np.sum(list(server.waiting.values()), axis=0)")],
        "quorum 2, gradient 2, of worker 2: the gradients are added up",
    ),
    "nothing instead of an empty dict": ("arrived", [("return {}", "return None")], "nobody is answered. Return {}"),
    "uphill": ("arrived", [(UPDATE, "server.weights + server.rate * mean")], "up the slope"),
    "no rate": ("arrived", [(UPDATE, "server.weights - mean")], "η is not applied"),
    "only the last one is answered": ("arrived", [(ANSWERS, "{worker: server.weights}")], "would wait for ever"),
    "all are answered": (
        "arrived", [(ANSWERS, "dict.fromkeys(range(3), server.weights)")], "which is still calculating",
    ),
    "old weights": (
        "arrived",
        [(UPDATE, "server.weights"), ("server.waiting = {}", "server.waiting = {}; server.weights = server.weights "
                                      "- server.rate * mean")],
        "from before the update",
    ),
    "kept gradients": ("arrived", [("server.waiting = {}", "pass")], "take them again"),
    "not counted": ("arrived", [("server.updates += 1", "pass")], "it counts the updates"),
    "nothing returned": ("arrived", [("return answers", "pass")], "returns nothing"),
    "one too old": ("staleness", [(FOUND, "update - read.get(number, -1)"), ("update + 1", "update")], "too many. A"),
    "own update counted": ("staleness", [("update + 1", "update")], "one too many, but for the first"),
    "first ones are fresh": ("staleness", [(FOUND, "update - read.get(number, update)")], "gradient is stale, too"),
    "all updates": ("staleness", [(FOUND, "update")], "how many updates there were in all"),
    "a list too short": ("staleness", [("np.array(between)", "np.array(between[1:])")], "returns shape"),
    "the chance to be next": ("disguise", [(BOTH, "1 / workers, rate / workers")], "what stays"),
    "rate not shared": ("disguise", [(BOTH, "1 - 1 / workers, rate")], "a late one moves it by η"),
    "rate times N": ("disguise", [(BOTH, "1 - 1 / workers, rate * workers")], "spread over"),
    "mean staleness": ("disguise", [(BOTH, "workers - 1, rate / workers")], "would never fade"),
    "exchanged": ("disguise", [(BOTH, "rate / workers, 1 - 1 / workers")], "are exchanged"),
    "one worker with momentum": ("disguise", [(BOTH, "1 - 1 / (workers + 1), rate / workers")], "one worker alone"),
    "one number": ("disguise", [(BOTH, "1 - 1 / workers")], "2 values are expected"),
    "constant": ("rate_for", [(STALE, "rate")], "the same for all"),
    "fresh ones only": ("rate_for", [(STALE, "rate * (staleness == 0)")], "most work in vain"),
    "half for the fresh": ("rate_for", [(STALE, "rate / (2 + staleness)")], "it gets"),
    "ever more": ("rate_for", [(STALE, "rate * (1 + staleness)")], "an older gradient is never the better one"),
    "a difference": ("rate_for", [(STALE, "rate - staleness / 10")], "is negative"),
    "a fixed limit": ("rate_for", [(STALE, "min(rate, 1 / (1 + staleness))")], "proportional to η"),
    "hardly less": ("rate_for", [(STALE, "rate / (1 + staleness) ** 0.1")], "it diverges"),
    "as if even": ("common", [("np.sum(share**2)", "features.shape[1] ** 2 / len(share)")], "equally frequent"),
    "share of entries": ("common", [(SHARE, "np.bincount(features.ravel()) / features.size")], "those of all entries"),
    "not squared": ("common", [("np.sum(share**2)", "np.sum(share)")], "of one example"),
    "a mean": ("common", [("np.sum(share**2)", "np.mean(share**2)")], "add up"),
    "pairs": ("common", [("np.sum(share**2)", "np.sum(np.bincount(features.ravel()) ** 2)")], "counts pairs"),
    "a share": ("common", [("np.sum(share**2)", "np.sum(share**2) / features.shape[1]")], "not their number"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(answer, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 6) < 6
    assert word in capsys.readouterr().out


def test_other_right_answers():
    def arrived(server, worker, gradient):
        server.waiting[worker] = gradient
        answers = {}
        if len(server.waiting) == server.quorum:
            server.weights -= server.rate * sum(server.waiting.values()) / server.quorum
            server.updates += 1
            while server.waiting:
                answers[server.waiting.popitem()[0]] = server.weights.copy()
        return answers

    def staleness(worker):
        last = [-1] * (max(worker) + 1)
        found = []
        for update, number in enumerate(worker):
            found.append(update - last[number] - 1)
            last[number] = update
        return found

    def rate_for(staleness, rate):
        return rate / max(1, staleness)

    def common(features):
        random = np.random.default_rng(0)
        pairs = random.integers(len(features), size=(2, 100_000))
        return float((features[pairs[0]] == features[pairs[1]]).sum(1).mean())

    for right in (arrived, staleness, rate_for, common):
        assert points(right, 4) == 4.0


def test_a_fair_rate_gets_a_part():
    def rate_for(staleness, rate):
        return rate * np.exp(-staleness / 4)

    assert 1.0 < points(rate_for, 3) < 3.0
