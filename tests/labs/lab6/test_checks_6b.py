"""Notebook 6b: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from labs.lab6_beyond_synchronous.lessons import diagnosis_6b
from labs.lab6_beyond_synchronous.lessons.checks_6b import check, points

NOTEBOOK = "6b_fewer_meetings"
EXERCISES = ("period", "elastic_step", "mixing")
H = "return max(1, math.ceil(meeting * (1 - share) / (share * computing)))"
RANKS = "weights - rate * gradients - pulled"
CENTRE = "centre + pulled.sum(axis=0)"
PULLED = "rate * spring * (weights - centre)"
FOUND = "np.sort(np.abs(np.linalg.eigvalsh(matrix)))[-2]"
WRONG = {
    "one more, always": ("period", [(H, H.replace("math.ceil(", "1 + math.floor("))], "one more than is needed"),
    "share of the computing": ("period", [(H, "return max(1, math.ceil(meeting / (share * computing)))")], "all the"),
    "numbers for bytes": ("period", [("4 * numbers", "numbers")], "4 bytes"),
    "half a ring": (
        "period",
        [("allreduce.ring(ranks, 4 * numbers, link)", "allreduce.ring(ranks, 4 * numbers, link) / 2")],
        "two halves",
    ),
    "the other share": (
        "period", [(H, "return max(1, math.ceil(meeting * share / ((1 - share) * computing)))")], "not the computing",
    ),
    "rounded down": ("period", [("math.ceil", "math.floor")], "Round up"),
    "no whole number": (
        "period", [(H, "return max(1, meeting * (1 - share) / (share * computing))")], "whole number",
    ),
    "never at once": ("period", [(H, "return math.floor(meeting * (1 - share) / (share * computing))")], "can't meet"),
    "pushed away": ("elastic_step", [(RANKS, "weights - rate * gradients + pulled")], "pushes the ranks"),
    "no springs": ("elastic_step", [(RANKS, "weights - rate * gradients")], "springs are missing"),
    "no gradients": ("elastic_step", [(RANKS, "weights - pulled")], "gradients are missing"),
    "without rate": ("elastic_step", [(PULLED, "spring * (weights - centre)")], "lacks the learning rate"),
    "twice": ("elastic_step", [(PULLED, "2 * rate * spring * (weights - centre)")], "twice too large"),
    "the mean": ("elastic_step", [(CENTRE, "centre + pulled.mean(axis=0)")], "mean of the springs"),
    "centre pushed": ("elastic_step", [(CENTRE, "centre - pulled.sum(axis=0)")], "push the centre"),
    "local SGD": ("elastic_step", [(CENTRE, "weights.mean(axis=0)")], "local SGD"),
    "one after the other": (
        "elastic_step",
        [(CENTRE, "centre + rate * spring * (weights - rate * gradients - pulled - centre).sum(axis=0)")],
        "old place",
    ),
    "gradients at the centre": (
        "elastic_step", [(CENTRE, "centre + (pulled - rate * gradients).sum(axis=0)")], "takes the gradients",
    ),
    "the largest": ("mixing", [(FOUND, "np.linalg.eigvalsh(matrix)[-1]")], "largest eigenvalue"),
    "with signs": ("mixing", [(FOUND, "np.linalg.eigvalsh(matrix)[-2]")], "negative eigenvalues"),
    "the gap, all together": (
        "mixing", [(FOUND, "1 - np.sort(np.abs(np.linalg.eigvalsh(matrix)))[-2]")], "After one round all ranks are",
    ),
    "twice, the centre": (
        "elastic_step", [(CENTRE, "centre + 2 * pulled.sum(axis=0)")], "the penalty's slope is twice",
    ),
    "the gap": ("mixing", [(FOUND, "1 - np.sort(np.abs(np.linalg.eigvalsh(matrix)))[-2]")], "gap to 1"),
    "squared": ("mixing", [(FOUND, "np.sort(np.abs(np.linalg.eigvalsh(matrix)))[-2] ** 2")], "squared"),
    "the smallest": ("mixing", [(FOUND, "np.sort(np.abs(np.linalg.eigvalsh(matrix)))[0]")], "smallest eigenvalue"),
}  # fmt: skip


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 4) == 4.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


def test_the_diagnosis_gets_full_points(answer):
    assert diagnosis_6b.diagnosis_points(answer(NOTEBOOK, "diagnosis"), 4) == 4.0


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(answer, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 6) < 6
    assert word in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(diagnosis_6b._PATIENTS))
def test_a_wrong_diagnosis_is_answered_with_what_speaks_against_it(name, capsys):
    for mistake in set(diagnosis_6b.MISTAKES) - {diagnosis_6b._PATIENTS[name]}:
        answer = {**diagnosis_6b._PATIENTS, name: mistake}
        assert diagnosis_6b.diagnosis_points(lambda answer=answer: answer, 4) == 3.0
        assert diagnosis_6b._AGAINST[name].get(mistake, diagnosis_6b._FOR[name]) in capsys.readouterr().out


def test_no_two_mistakes_look_alike():
    seen = [tuple(diagnosis_6b.observe(mistake)) for mistake in range(7)]
    assert len(set(seen)) == 7


def test_elastic_step_descends_the_penalised_objective(answer):
    """Check values by differences of the objective itself, with quadratic losses."""
    random = np.random.default_rng(9)
    at, centre, best, spring, rate = (
        random.normal(size=(3, 4)),
        random.normal(size=4),
        random.normal(size=(3, 4)),
        0.7,
        0.1,
    )

    def objective(flat):
        x, c = flat[:12].reshape(3, 4), flat[12:]
        return sum(0.5 * ((one - goal) ** 2).sum() + spring / 2 * ((one - c) ** 2).sum() for one, goal in zip(x, best))

    flat = np.concatenate([at.ravel(), centre])
    slope = [(objective(flat + 1e-5 * unit) - objective(flat - 1e-5 * unit)) / 2e-5 for unit in np.eye(16)]
    expected = flat - rate * np.array(slope)
    weights, moved = answer(NOTEBOOK, "elastic_step")(at, centre, at - best, rate, spring)
    np.testing.assert_allclose(np.concatenate([weights.ravel(), moved]), expected, atol=1e-8)


def elastic_averaging(weights, centre, best, rate, spring, steps):
    """EASGD number by number in fractions, as arXiv:1412.6651 has it; losses are (x − best)² / 2."""
    alpha, seen = rate * spring, []
    for _ in range(steps):
        springs = [[alpha * (a - b) for a, b in zip(row, centre)] for row in weights]
        weights = [
            [a - rate * (a - goal) - pulled for a, goal, pulled in zip(*rows)] for rows in zip(weights, best, springs)
        ]
        centre = [b + sum(row[place] for row in springs) for place, b in enumerate(centre)]
        seen.append(([[float(a) for a in row] for row in weights], [float(b) for b in centre]))
    return seen


WEIGHTS, CENTRE, BEST = [[1, -2], [3, 0.5], [-1, 4]], [0, 1], [[0, 0], [1, 1], [2, -1]]
CHECK_VALUES = [  # η = .1, ρ = 1.5
    ([[0.75, -1.35], [2.35, 0.625], [-0.55, 3.05]], [0.45, 0.925]),
    ([[0.63, -0.87375], [1.93, 0.7075], [-0.145, 2.32625]], [0.63, 0.8575]),
    ([[0.567, -0.5266875], [1.642, 0.75925], [0.18575, 1.7733125]], [0.70875, 0.795625]),
]


def test_check_values_of_elastic_averaging(answer):
    exact = [[[Fraction(a) for a in row] for row in rows] for rows in (WEIGHTS, BEST)]
    centre = [Fraction(b) for b in CENTRE]
    assert elastic_averaging(exact[0], centre, exact[1], Fraction(1, 10), Fraction(3, 2), 3) == CHECK_VALUES
    step, weights, centre = answer(NOTEBOOK, "elastic_step"), np.array(WEIGHTS, float), np.array(CENTRE, float)
    for expected in CHECK_VALUES:
        weights, centre = step(weights, centre, weights - np.array(BEST), 0.1, 1.5)
        np.testing.assert_allclose(weights, expected[0], rtol=1e-12)
        np.testing.assert_allclose(centre, expected[1], rtol=1e-12)
