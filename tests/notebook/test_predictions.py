from __future__ import annotations

import numpy as np
import pytest

from course_lib.notebook import predictions
from course_lib.notebook.predictions import measured, predict


@pytest.fixture(autouse=True)
def no_predictions(monkeypatch):
    monkeypatch.setattr(predictions._notebook, "_by_question", {})


def test_a_guess_is_echoed_beside_the_measurement(capsys):
    predict("steps", 20)
    measured("steps", np.int64(40), "Half? Count both rounds.")
    assert capsys.readouterr().out.splitlines() == [
        "steps: your guess is 20.",
        "steps: guessed 20, measured 40: 2 times too small.",
        "    Half? Count both rounds.",
    ]
    predict("first", " Adam")
    measured("first", "adam", "The others wait.", too_small="Too small.")
    measured("never asked", 0.25)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "first: guessed  Adam, measured adam: right.",
        "    The others wait.",
        "never asked: measured 0.25.",
    ]


@pytest.mark.parametrize("guess", [None, ..., "", []])
def test_an_untouched_slot_is_no_mistake(guess, capsys):
    predict("steps", guess)
    measured("steps", 1234.5, "It tells all the same.")
    assert "no guess yet" in capsys.readouterr().out
    assert predictions.table().loc["steps"].tolist() == ["–", "1,234", ""]


HOLDS_ITSELF = []
HOLDS_ITSELF.append(HOLDS_ITSELF)


@pytest.mark.parametrize(
    "guess",
    [np.ones(2), 10**400, HOLDS_ITSELF, len, {"a": 1}, np.array(["a", "b"]), 1j, float("inf"), object()],
    ids=["array", "huge", "holds itself", "function", "dict", "texts", "complex", "infinite", "object"],
)
def test_an_odd_guess_is_another_answer(guess, capsys):
    predict("steps", guess)
    measured("steps", 40, "It tells all the same.")
    predict("steps", guess)
    assert capsys.readouterr().out.splitlines()[-1].startswith("steps: your guess is ")
    assert predictions.table().loc["steps", "off by"] == "a different answer"


def test_a_guess_stays_as_it_was_before_the_measurement(capsys):
    predict("steps", 20)
    predict("steps", 30)
    measured("steps", 40)
    predict("steps", 40)
    predict("steps", 30)
    measured("steps", 41)
    assert "your guess stays 30" in capsys.readouterr().out
    assert predictions.table().loc["steps"].tolist() == ["30", "41", "27% too small"]


@pytest.mark.parametrize(
    ("guess", "value", "off"),
    [
        (40, 40.0, "right"),
        (39, 40, "right, within 10%"),
        (np.float32(50), 40, "25% too large"),
        (400, 40, "10 times too large"),
        (-1, 3, "-4"),
        (0, 0.5, "-0.5"),
        (True, "yes", "right"),
        ("No", np.bool_(False), "right"),
        (True, "no", "a different answer"),
        ("Reduce-scatter, all gather", ["reduce-scatter", "all-gather"], "right"),
        ("6, 1", [1, 6], "right"),
        ("broadcast", ["broadcast"], "right"),
        ("1.5", "15", "a different answer"),
        (["b", "A"], ("a", "b"), "right"),
        (["b"], ["a", "b"], "a different answer"),
        ("many", 3, "a different answer"),
        (float("nan"), 3, "a different answer"),
    ],
)
def test_off_by(guess, value, off):
    assert predictions.off_by(guess, value) == off


@pytest.mark.parametrize(
    ("guess", "value", "off"),
    [
        (-16, -16, "right"),
        (-15, -16, "1 power of ten too large"),
        (-7, -16.0, "9 powers of ten too large"),
        (-3, -2, "1 power of ten too small"),
        (0, 2, "2 powers of ten too small"),
    ],
)
def test_exponents_are_off_by_a_difference(guess, value, off, capsys):
    assert predictions.off_by(guess, value, exponent=True) == off
    predict("power", guess)
    measured("power", value, exponent=True)
    assert capsys.readouterr().out.endswith(f": {off}.\n")
    assert predictions.table().loc["power", "off by"] == off


@pytest.mark.parametrize(
    ("guess", "sentence"),
    [
        (9, "    Count the rounds once. Each has two.\n"),
        (1, "    Count both. Each has two.\n"),
        (None, "rounds: measured 4.\n    Each has two.\n"),  # without a guess no side is taken
    ],
)
def test_each_side_may_have_its_sentence(guess, sentence, capsys):
    predict("rounds", guess)
    measured("rounds", 4, "Each has two.", too_large="Count the rounds once.", too_small="Count both.")
    assert capsys.readouterr().out.endswith(sentence)


def test_the_table_has_what_is_not_measured_yet():
    predict("one", 1)
    assert predictions.table().to_dict("list") == {"guessed": ["1"], "measured": ["not yet"], "off by": [""]}


def test_a_guess_that_comes_after_the_measurement_does_not_count(capsys):
    predict("steps", None)
    measured("steps", 40)
    predict("steps", None)
    predict("steps", 40)
    assert "a guess made now does not count" in capsys.readouterr().out
    assert predictions.table().loc["steps"].tolist() == ["–", "40", ""]
