"""Notebook 5d: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from labs.lab5_precision_and_memory.lessons import diagnosis_5d, pruning, sparse_regression
from labs.lab5_precision_and_memory.lessons.checks_5d import check, points, reference_sizes

NOTEBOOK = "5d_sparsity"
EXERCISES = ("stays", "pruned_share", "sizes", "break_even")


@pytest.mark.parametrize("exercise", EXERCISES)
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 6) == 6.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


def test_the_diagnosis_gets_full_points(answer):
    assert diagnosis_5d.diagnosis_points(answer(NOTEBOOK, "diagnosis"), 4) == 4.0


SIZE = "np.abs(kernel).mean(axes, keepdims=True)"
KEEP = "max(1, round(density * strength.size))"
AXES = '{"weights": (), "rows": (1,), "filters": (0, 1, 2)}'
MASK = "np.broadcast_to(mask.reshape(strength.shape), kernel.shape)"
SHARE = "final * (1 - (1 - done) ** 3)"
BITMAP = "nonzeros * value + -(-rows * columns // 8)"
COMPRESSED = "nonzeros * (value + column) + (rows + 1) * beginning"
COORDINATES = "nonzeros * (value + row + column)"
EVEN = "1 - 1 / (8 * value), value / (value + index), value / (value + 2 * index)"
WRONG = {
    "signed": ("stays", [(SIZE, "kernel.mean(axes, keepdims=True)")], "signs must not matter"),
    "the size of the mean": ("stays", [(SIZE, "np.abs(kernel.mean(axes, keepdims=True))")], "cancel each other"),
    "the weakest stay": ("stays", [(SIZE, "-np.abs(kernel).mean(axes, keepdims=True)")], "other way round"),
    "the share that goes": (
        "stays", [(KEEP, "max(1, round((1 - density) * strength.size))")], "not the share that goes",
    ),
    "rows along the height": ("stays", [(AXES, AXES.replace("(1,)", "(0,)"))], "along the width, axis 1"),
    "always single weights": ("stays", [(AXES, '{"weights": (), "rows": (), "filters": ()}')],
                              "as a whole"),
    "a threshold": (
        "stays",
        [(MASK, "np.broadcast_to(strength >= np.quantile(strength, 1 - density), kernel.shape)")],
        "can't tell equals apart",
    ),
    "the kernel itself": ("stays", [(MASK, f"kernel * {MASK}")], "not what they are"),
    "groups, not weights": ("stays", [(MASK, "mask.reshape(strength.shape)")], "it returns shape"),
    "all at the start": ("pruned_share", [(SHARE, "final")], "no weight has shown yet"),
    "half-way": ("pruned_share", [(SHARE, "final * (update >= updates / 2)")], "most weights go in one update"),
    "the last update": ("pruned_share", [(SHARE, "final * (update == updates - 1)")], "some time to take over"),
    "steadily to the end": ("pruned_share", [(SHARE, "final * update / (updates - 1)")], "some time to take over"),
    "ever faster": ("pruned_share", [(SHARE, "final * done ** 3")], "in the last third"),
    "never there": (
        "pruned_share", [(SHARE, "0.9 * final * (1 - (1 - done) ** 3)")], "at the last update the share is",
    ),
    "to everything": ("pruned_share", [(SHARE, "1 - (1 - done) ** 3")], "stay in 0 … final"),
    "back again": ("pruned_share", [(SHARE, "final * np.sin(3 * done)")], "stays pruned"),
    "a byte for a bit": ("sizes", [(BITMAP, "nonzeros * value + rows * columns")], "an eighth of a byte"),
    "bits of the non-zeros": ("sizes", [(BITMAP, "nonzeros * value + -(-nonzeros // 8)")], "for every weight"),
    "rounded down": ("sizes", [(BITMAP, "nonzeros * value + rows * columns // 8")], "round up"),
    "no values": ("sizes", [(BITMAP, "-(-rows * columns // 8)")], "values themselves are missing"),
    "no last end": ("sizes", [(COMPRESSED, "nonzeros * (value + column) + rows * beginning")], "rows + 1 numbers"),
    "beginnings as columns": (
        "sizes", [(COMPRESSED, "nonzeros * (value + column) + (rows + 1) * column")], "as large as their number",
    ),
    "no beginnings": ("sizes", [(COMPRESSED, "nonzeros * (value + column)")], "where a row begins"),
    "columns from 1": ("sizes", [("index(columns - 1)", "index(columns)")], "counted from 0"),
    "rows and columns from 1": (
        "sizes",
        [("index(columns - 1)", "index(columns)"), ("index(rows - 1)", "index(rows)")],
        "counted from 0",
    ),
    "the last end forgotten": ("sizes", [("index(nonzeros)", "index(nonzeros - 1)")], "non-zeros itself"),
    "one coordinate": ("sizes", [(COORDINATES, "nonzeros * (value + column)")], "two coordinates"),
    "always 4 bytes": ("sizes", [("1 if largest < 256 else 2 if largest < 65_536 else 4", "4")], "only where 1 or 2"),
    "shares of zeros": (
        "break_even",
        [(EVEN, "1 / (8 * value), 1 - value / (value + index), 1 - value / (value + 2 * index)")],
        "the share of zeros",
    ),
    "a bit for each value": ("break_even", [("1 - 1 / (8 * value)", "value / (value + 1 / 8)")], "paid for the zeros"),
    "a byte for each place": ("break_even", [("1 - 1 / (8 * value)", "1 - 1 / value")], "not a byte"),
    "rows with two indices": (
        "break_even", [(EVEN, EVEN.replace("(value + index)", "(value + 2 * index)"))], "one index in compressed rows",
    ),
    "coordinates with one": (
        "break_even", [(EVEN, EVEN.replace("(value + 2 * index)", "(value + index)"))], "two in coordinates",
    ),
    "index against value": (
        "break_even", [(EVEN, EVEN.replace("value / (value + index)", "value / index"))], "must not exceed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(answer, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 6) < 6
    assert word in capsys.readouterr().out


def test_other_measures_of_strength_and_other_schedules_are_right():
    def stays(kernel, density, grain):
        axes = {"weights": (), "rows": 1, "filters": (0, 1, 2)}[grain]
        strength = (kernel**2).sum(axes, keepdims=True)
        order = np.argsort(np.argsort(-strength, axis=None)).reshape(strength.shape)
        return np.zeros(kernel.shape) + (order < max(1, round(density * strength.size)))

    def pruned_share(update, updates, final):
        return final * (1 - (1 - min(1, update / (0.8 * updates))) ** 4)

    assert points(stays, 4) == 4.0
    assert points(pruned_share, 4) == 4.0


def test_a_fair_schedule_gets_a_part():
    def pruned_share(update, updates, final):
        return final * min(1.0, update / (0.75 * updates))

    assert 2.0 < points(pruned_share, 4) < 4.0


def test_the_simple_schedules_stand_in_the_order_that_the_text_tells():
    start, middle, steadily, cubic = (
        sparse_regression.errors(share).mean()
        for share in (
            lambda update, updates, final: final,
            lambda update, updates, final: final * (update >= updates / 2),
            lambda update, updates, final: final * update / (updates - 1),
            lambda update, updates, final: pruning.cubic(final)(update, updates),
        )
    )
    assert cubic < 0.01 < steadily < middle < start


@pytest.mark.parametrize("name", sorted(diagnosis_5d._PATIENTS))
def test_a_wrong_diagnosis_is_answered_with_what_speaks_against_it(name, capsys):
    for mistake in set(diagnosis_5d.MISTAKES) - {diagnosis_5d._PATIENTS[name]}:
        answer = {**diagnosis_5d._PATIENTS, name: mistake}
        assert diagnosis_5d.diagnosis_points(lambda answer=answer: answer, 4) == 3.0
        assert diagnosis_5d._AGAINST[name][mistake] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "word"),
    [(None, "returns nothing"), ([1, 2], "as in"), ({"A": 2}, "has no diagnosis"), ({"A": "2"}, "write a number")],
)
def test_what_is_no_diagnosis_is_said(answer, word, capsys):
    assert diagnosis_5d.diagnosis_points(lambda: answer, 4) < 4
    assert word in capsys.readouterr().out


def test_sizes_agree_with_scipy_where_it_takes_the_same_indices():
    import scipy.sparse

    dense = np.zeros((300, 70_000), np.float32)
    dense[np.random.default_rng(0).integers(300, size=99_000), np.arange(99_000) % 70_000] = 1
    made = scipy.sparse.csr_matrix(dense)
    found = reference_sizes(300, 70_000, made.nnz, 4)["compressed rows"]
    assert found == made.data.nbytes + made.indices.nbytes + made.indptr.nbytes
