from __future__ import annotations

import itertools
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from course_lib.notebook import answers
from course_lib.notebook.judging import Wrong


def sentence(function, *arguments, **named):
    """What is found wrong."""
    with pytest.raises(Wrong) as error:
        function(*arguments, **named)
    return str(error.value)


MISSING = "it returns nothing: is a `return` missing?"


@pytest.mark.parametrize(
    ("function", "arguments", "reason"),
    [
        (answers.returned, (None,), MISSING),
        (answers.returned, (None, "rank 1"), "rank 1 returns nothing: is a `return` missing?"),
        (answers.number, (None,), MISSING),
        (answers.number, ([1.0],), "it returns [1.0] where one number is expected."),
        (answers.number, (np.ones(1),), "it returns array([1.]) where one number is expected."),
        (answers.number, ("2",), "it returns '2' where one number is expected."),
        (answers.number, (True,), "it returns True where one number is expected."),
        (answers.number, (1j,), "it returns 1j where one number is expected."),
        (answers.number, (float("nan"),), "it returns nan."),
        (answers.number, (np.inf,), "it returns inf."),
        (answers.whole, (2.5,), "it returns 2.5 where a whole number is expected."),
        (answers.whole, ("3",), "it returns '3' where one number is expected."),
        (answers.array, (None, (1, 3)), MISSING),
        (answers.array, (3.0, (1, 3)), "it returns shape (); it should be (1, 3)."),
        (answers.array, ([[1, 2]], (1, 3)), "it returns shape (1, 2); it should be (1, 3)."),
        (
            answers.array,
            ([[1], [3, 4]], (1, 3)),
            "it returns [[1], [3, 4]] where numbers of shape (1, 3) are expected.",
        ),
        (answers.array, ([[1], [3, 4]], (2,)), "it returns [[1], [3, 4]] where numbers of shape (2,) are expected."),
        (answers.array, ("abc", (1, 3)), "it returns 'abc' where numbers of shape (1, 3) are expected."),
        (answers.several, (3.0, "w", "b"), "it returns 3.0 where 2 values are expected: w, b."),
        (answers.several, ((1, 2, 3), "w", "b"), "it returns (1, 2, 3) where 2 values are expected: w, b."),
        (answers.several, (None, "w", "b"), MISSING),
        (answers.items, ("odd", "rows are expected", "rank 1"), "rank 1 returns 'odd' where rows are expected."),
        (answers.items, (3.0, "rows are expected"), "it returns 3.0 where rows are expected."),
        (answers.items, (np.array(1.0), "rows are expected"), "it returns array(1.) where rows are expected."),
    ],
)
def test_an_answer_of_another_kind_is_named(function, arguments, reason):
    assert sentence(function, *arguments) == reason


@pytest.mark.parametrize(
    "value", [1, 2.5, np.float32(3), np.array(4), np.int64(5), Fraction(1, 4), Decimal("0.5"), np.array(2, object)]
)
def test_a_number_is_a_number(value):
    assert answers.number(value) == value
    assert type(answers.number(value)) is float


def test_a_number_may_be_infinite_where_that_is_an_answer():
    assert answers.number(-np.inf, finite=False) == -np.inf
    assert np.isnan(answers.number(np.float16("nan"), finite=False))
    assert "where one number is expected" in sentence(answers.number, 10**400, finite=False)


def test_what_is_right_is_passed_on():
    assert answers.returned(0) == 0
    assert answers.whole(3.0) == 3 and type(answers.whole(np.float32(3))) is int
    assert answers.several([1, 2], "w", "b") == (1, 2)
    assert answers.items((number for number in (1, 2)), "numbers are expected") == [1, 2]
    assert answers.items(np.eye(2), "rows are expected")[1].tolist() == [0, 1]
    for value in ([[1, 2, 3]], np.ones((1, 3)), ((True, False, True),)):
        np.testing.assert_array_equal(answers.array(value, (1, 3)), value)
    assert (answers.array([True, False], (2,)) - np.array([True, True])).tolist() == [0, -1]  # truth values count


def test_a_function_is_asked_for_by_its_name():
    class Store:
        size = 3
        kind = dict

        def save(self):
            return 1

    assert answers.function(Store(), "save")() == 1
    for name in ("size", "kind", "load"):
        assert sentence(answers.function, Store, name) == f"there is no function `{name}`."


def test_a_long_value_is_cut():
    reason = sentence(answers.number, list(range(100)))
    assert reason.startswith("it returns [0, 1, 2,") and " … where one number" in reason and len(reason) < 110


def test_what_has_no_end_is_not_waited_for():
    assert "where 2 values are expected: w, b." in sentence(answers.several, itertools.count(), "w", "b")
    assert len(answers.items(itertools.count(), "numbers are expected")) == answers.MOST_ITEMS + 1


def test_a_change_in_place_is_wrong_and_no_change_is_not():
    first, second = np.array([1.0, np.nan]), np.ones(2)
    with answers.unchanged(first, second):
        second = second + 1

    def change():
        with answers.unchanged(first):
            first[0] = 3

    assert "changed in place" in sentence(change)


def test_numpys_warnings_are_silenced_around_an_answer():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with answers.unchanged():
            assert np.isinf(np.ones(1) / 0)


def test_what_is_wrong_is_told_of_its_case():
    def ask(share):
        with answers.case("2 ranks"):
            raise Wrong("one is missing.", share)

    with pytest.raises(Wrong, match=r"^2 ranks: one is missing\.$") as error:
        ask(0.5)
    assert error.value.share == 0.5
    with pytest.raises(Wrong) as error, answers.case("2 ranks"):
        raise Wrong("one is missing.", hint="count them.", rests_on="host")
    assert (error.value.hint, error.value.rests_on) == ("count them.", "host")
    with pytest.raises(ZeroDivisionError), answers.case("2 ranks"):
        1 / 0  # noqa: B018


@pytest.mark.parametrize(
    ("got", "expected", "equal"),
    [
        (1 + 1e-9, 1, True),
        (1.001, 1, False),
        (0, 0, True),
        (np.ones(3), np.ones(3), True),
        (np.ones(2), np.ones(3), False),
        (1.0, np.ones(3), False),
        (np.float64(2), 2, True),
        ([1, 2], (1, 2), True),
        ([1, 2], [1, 2, 3], False),
        (3, [3], False),
        ([[0, 1], [2]], [[0, 1], [2]], True),
        ([[0], [1, 2]], [[0, 1], [2]], False),
        ("one", 1, False),
        (None, 1, False),
        (1e-9, 0, False),
    ],
)
def test_same_means_equal_up_to_rounding(got, expected, equal):
    assert answers.same(got, expected) is equal
    assert answers.same(1.01, 1, rtol=0.02) and answers.same(1e-9, 0, atol=1e-6)


def test_what_calls_itself_equal_is_not(monkeypatch):
    class Yes:
        def __array_function__(self, function, types, args, kwargs):
            return {"shape": (), "ndim": 0}.get(function.__name__, True)

    assert not answers.same(Yes(), 3.0)
    assert "where one number is expected" in sentence(answers.number, Yes())
    assert "should be 3; it is" in sentence(answers.compare, Yes(), 3.0, "the loss")
    monkeypatch.setattr(np, "allclose", lambda *args, **kwargs: True)
    assert not answers.same(2.0, 3.0)


MISTAKES = {"the sign is wrong.": -6, "that is the half.": 3, "never named.": 6}


@pytest.mark.parametrize(
    ("got", "said"),
    [
        (-6, "the sign is wrong."),
        (3.0, "that is the half."),
        (4, "for w = 2 the loss should be 6; it is 4."),
    ],
)
def test_a_mistake_is_named_where_it_is_known(got, said):
    assert sentence(answers.compare, got, 6, "for w = 2 the loss", MISTAKES) == said


def test_what_is_right_passes_though_a_mistake_gives_the_same():
    assert answers.compare(6, 6, "the loss", MISTAKES) is None
    # Where a mistake makes no difference, nobody is told of it.
    assert sentence(answers.compare, 6.1, 6, "the loss", {"not this.": 6.05}, rtol=0.01) == (
        "the loss should be 6; it is 6.1."
    )


def test_the_first_of_two_mistakes_with_one_result_is_named():
    assert sentence(answers.compare, 3, 6, "the loss", {"one.": 3, "another.": 3}) == "one."


def test_a_mistake_can_be_named_without_a_sentence_for_the_rest():
    assert sentence(answers.name_mistake, 3, 6, MISTAKES) == "that is the half."
    assert answers.name_mistake(4, 6, MISTAKES) is None


class Broken:
    def __repr__(self):
        raise RuntimeError

    def __len__(self):
        raise RuntimeError

    def __array__(self, *args, **kwargs):
        raise RuntimeError


HOLDS_ITSELF = [1]
HOLDS_ITSELF.append(HOLDS_ITSELF)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Broken(), "<Broken>"),
        (HOLDS_ITSELF, "[1, [1, [1, [1, [...]]]]]"),
        (10**400, "1" + "0" * 57 + " …"),
        (np.eye(2), "array([[1., 0.], [0., 1.]])"),
        (Fraction(1, 4), "0.25"),
    ],
    ids=["broken", "holds itself", "huge", "array", "fraction"],
)
def test_an_odd_value_is_shown_and_is_not_the_same_as_a_right_one(value, text):
    assert answers.shown(value) == text
    assert not answers.same(value, 3.0)
    assert not answers.same(value, [3.0, 4.0])
    assert sentence(answers.compare, value, [3.0, 4.0], "the pair") == f"the pair should be [3, 4]; it is {text}."


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1 + 0.2, "0.3"),
        (1234567.0, "1.23457e+06"),
        (np.float32(0.5), "0.5"),
        (float("nan"), "nan"),
        (-np.inf, "-inf"),
        ([1, 2.5], "[1, 2.5]"),
        ((1, (2, 3)), "(1, (2, 3))"),
        (np.array([1, 2]), "array([1, 2])"),
        ("sgd", "'sgd'"),
        (None, "None"),
    ],
)
def test_values_are_shown_in_short(value, text):
    assert answers.shown(value) == text
