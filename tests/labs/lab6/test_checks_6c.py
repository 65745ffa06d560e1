"""Notebook 6c: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib import compression
from course_lib.cost import allreduce
from labs.lab6_beyond_synchronous.lessons import dense_training, diagnosis_6c, own_ways
from labs.lab6_beyond_synchronous.lessons.checks_6c import check, points

NOTEBOOK = "6c_send_less"
EXERCISES = ("send_largest", "send_velocity", "low_rank_mean", "dense_from")


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 6) == 6.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


def test_the_diagnosis_gets_full_points(answer):
    assert diagnosis_6c.diagnosis_points(answer(NOTEBOOK, "diagnosis"), 4) == 4.0


CHOICE, REST = "np.argsort(np.abs(waiting))[-k:]", "rest[positions] = 0"
RETURNED = "return (positions, waiting[positions], rest)"
SPEED, TOTAL, CHOSEN = "momentum * velocity + gradient", "kept + speed", "np.argsort(np.abs(total))[-k:]"
LEFT, STEP = "np.linalg.qr(me.all_reduce(matrix @ right))[0]", "me.all_reduce(matrix.T @ left) / me.size"
SPARE = "8 * sent * link.beta - link.alpha"
CROSSING = "max(2, math.floor(8 * numbers * link.beta / spare) + 1) if spare > 0 else math.inf"
WRONG = {
    "by the gradient": ("send_largest", [(CHOICE, "np.argsort(np.abs(gradient))[-k:]")], "by the gradient alone"),
    "by what was kept": ("send_largest", [(CHOICE, "np.argsort(np.abs(kept))[-k:]")], "by what was kept alone"),
    "with signs": ("send_largest", [(CHOICE, "np.argsort(waiting)[-k:]")], "only positive numbers"),
    "the smallest": ("send_largest", [(CHOICE, "np.argsort(np.abs(waiting))[:k]")], "smallest"),
    "never emptied": ("send_largest", [(REST, "rest[positions] *= 1")], "again and again"),
    "nothing kept": ("send_largest", [(REST, "rest[:] = 0")], "nothing is kept"),
    "the gradient's numbers": (
        "send_largest", [(RETURNED, "return positions, gradient[positions], rest")], "waits for ever",
    ),
    "sizes": ("send_largest", [(RETURNED, "return positions, np.abs(waiting)[positions], rest")], "signs are lost"),
    "only the last gradient": (
        "send_largest", [(RETURNED, "return positions, waiting[positions], np.where(rest == 0, 0, gradient)")],
        "nothing is left",
    ),
    "all of it": ("send_largest", [(RETURNED, "return positions, waiting, rest")], "it should be (4,)"),
    "in place": ("send_largest", [("kept + gradient", "np.add(kept, gradient, out=kept)")], "changed in place"),
    "a mask": ("send_largest", [(RETURNED, "return np.abs(waiting) > 1, waiting[positions], rest")], "as positions"),
    "momentum on what waits": (
        "send_velocity", [(SPEED, "gradient"), (TOTAL, "momentum * kept + speed")], "velocity has to live on",
    ),
    "no momentum": ("send_velocity", [(SPEED, "gradient")], "velocity has to live on"),
    "masking": (
        "send_velocity",
        [("left[chosen] = 0", "left[chosen] = 0\nspeed = np.where(left == 0, 0, speed)")],
        "velocity has to live on",
    ),
    "steps are not kept": ("send_velocity", [(TOTAL, "kept * 0 + speed")], "each of its steps"),
    "gradients are kept": (
        "send_velocity", [("left = total.copy()", "left = kept + gradient")], "each of its steps",
    ),
    "chosen by velocity": ("send_velocity", [(CHOSEN, "np.argsort(np.abs(speed))[-k:]")], "by velocity alone"),
    "velocity and memory exchanged": (
        "send_velocity",
        [("return (chosen, total[chosen], speed, left)", "return chosen, total[chosen], left, speed")],
        "what is kept exchanged",
    ),
    "no orthonormal columns": ("low_rank_mean", [(LEFT, "me.all_reduce(matrix @ right) / me.size")], "as they are"),
    "each its own columns": ("low_rank_mean", [(LEFT, "np.linalg.qr(matrix @ right)[0]")], "different approx"),
    "the sum": ("low_rank_mean", [(STEP, "me.all_reduce(matrix.T @ left)")], "the sum of the ranks"),
    "its own right": ("low_rank_mean", [("return (left @ following.T, following)",
                                         "return left @ following.T, matrix.T @ left")], "different right matrices"),
    "own factors": ("low_rank_mean", [(STEP, "matrix.T @ left")], "different"),
    "no warm start": ("low_rank_mean", [("return (left @ following.T, following)",
                                         "return left @ following.T, right")], "does not improve"),
    "everything": ("low_rank_mean", [("matrix @ right", "me.all_reduce(matrix) @ right / me.size")], "all-reduced"),
    "nothing travels": ("low_rank_mean", [(LEFT, "np.linalg.qr(matrix @ right)[0]"), (STEP, "matrix.T @ left")],
                        "nothing is all-reduced"),
    "no positions": ("dense_from", [(SPARE, "4 * sent * link.beta - link.alpha")], "positions are sent"),
    "one half of the ring": (
        "dense_from",
        [(SPARE, "8 * sent * link.beta"), (CROSSING, "max(2, math.floor(4 * numbers * link.beta / spare) + 1)")],
        "two halves",
    ),
    "without latency": ("dense_from", [(CROSSING, "math.floor(numbers / sent) + 1")], "without latency"),
    "no whole number": ("dense_from", [(CROSSING, "8 * numbers * link.beta / spare if spare > 0 else math.inf")],
                        "whole numbers"),
    "one too few": ("dense_from", [(CROSSING, "max(2, math.floor(8 * numbers * link.beta / spare))"
                                              " if spare > 0 else math.inf")], "the next number"),
    "never": ("dense_from", [(CROSSING, "math.inf")], "says never"),
    "always some number": ("dense_from", [(CROSSING, "max(2, math.floor(8 * numbers * link.beta / abs(spare)) + 1)")],
                           "never quicker"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(answer, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 6) < 6
    assert word in capsys.readouterr().out


@pytest.mark.parametrize(("exercise", "length"), [("send_largest", 3), ("send_velocity", 4), ("low_rank_mean", 2)])
def test_a_wrong_number_of_values_is_told(exercise, length, answer, capsys):
    solution = answer(NOTEBOOK, exercise)

    def short(*arguments):
        return solution(*arguments)[: length - 1]

    short.__name__ = exercise
    assert points(short, 4) < 4
    assert f"{length} values are expected" in capsys.readouterr().out


def test_a_search_for_the_number_of_ranks_is_right_too():
    def dense_from(numbers, sent, link):
        ranks = np.arange(2, 2_000_000)
        quicker = allreduce.ring(ranks, 4 * numbers, link) < (ranks - 1) * link.seconds(8 * sent)
        return int(ranks[np.argmax(quicker)]) if quicker.any() else np.inf

    assert points(dense_from, 4) == 4.0


def test_gram_schmidt_is_right_too():
    def low_rank_mean(me, matrix, right):
        left = me.all_reduce(matrix @ right)
        for column in range(left.shape[1]):
            before = left[:, :column]
            left[:, column] -= before @ (before.T @ left[:, column])
            left[:, column] /= np.linalg.norm(left[:, column])
        after = me.all_reduce(matrix.T @ left / me.size)
        return left @ after.T, after

    assert points(low_rank_mean, 4) == 4.0


@pytest.mark.parametrize("name", sorted(diagnosis_6c._PATIENTS))
def test_a_wrong_diagnosis_is_answered_with_what_speaks_against_it(name, capsys):
    for mistake in set(diagnosis_6c.MISTAKES) - {diagnosis_6c._PATIENTS[name]}:
        answer = {**diagnosis_6c._PATIENTS, name: mistake}
        assert diagnosis_6c.diagnosis_points(lambda answer=answer: answer, 4) == 3.0
        assert diagnosis_6c._AGAINST[name].get(mistake, diagnosis_6c._FOR[name]) in capsys.readouterr().out


@pytest.fixture
def sliced(monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "511")
    dense_training.fashion.cache_clear()
    yield
    dense_training.fashion.cache_clear()


@pytest.mark.parametrize("exercise", ["send_largest", "send_velocity", "low_rank_mean"])
def test_the_learner_s_version_trains_as_the_library_s_does(exercise, answer, sliced):
    here, network, solution = compression.Here(), dense_training.Network(), answer(NOTEBOOK, exercise)
    ours, theirs = {
        "send_largest": (own_ways.Largest(solution, 0.01), compression.TopK(here, 0.01)),
        "send_velocity": (own_ways.Corrected(solution, 0.01), compression.TopK(here, 0.01, momentum=0.9)),
        "low_rank_mean": (
            own_ways.LowRank(solution, network, 2), compression.PowerSGD(here, network.shapes, 2, memory=False),
        ),
    }[exercise]  # fmt: skip
    weights = [
        dense_training.Training(way.mean, 0.02, 1, momentum=0, updates=15, batch=16).run().weights
        for way in (ours, theirs)
    ]
    np.testing.assert_allclose(*weights, rtol=0, atol=1e-5)
    assert np.abs(weights[0] - network.draw(1)).max() > 1e-3


def test_the_symptoms_are_those_that_the_reasons_name(sliced):
    seen = {number: diagnosis_6c.observe(number, 60).whole for number in range(7)}

    def found(number, line):
        (value,) = [value for name, value in seen[number].items() if line in name]
        return float(value.rstrip("%"))

    assert found(1, "waits / of") == 1.0 and all(found(number, "waits / of") > 2 for number in (0, 2, 3, 4, 5, 6))
    assert found(5, "mean size") < 1.3 and min(found(number, "mean size") for number in (1, 2)) > 2
    assert found(3, "positive") == 100 and all(found(number, "positive") < 95 for number in (0, 1, 4, 5))
    assert found(2, "update before") > 80 and found(4, "update before") < 10
