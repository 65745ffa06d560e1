"""Checks of notebook 8b: which trick is in a report, and the course's own rules as code."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

from course_lib.notebook.answers import number, returned, short
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from labs.lab8_honest_benchmarks.lessons.reports_8b import TRICKS, reports

# verdicts

LOOK = {
    "none": "both sides are counted alike, every run is there, and the interval is right: suspicion is no evidence",
    "threshold": "look at the rows that lie just beyond the bound",
    "normaliser": "by what are the two sides divided before they are compared?",
    "best run": "which of the ten runs of each side stand in the claim?",
    "baseline": "how was the setting of each side chosen?",
    "start": "which columns does each side's number add up?",
}
AGAINST = {
    "none": "something is left out of the claim that stands in its table",
    "threshold": "there is no bound in it that one side just misses",
    "normaliser": "nothing is divided by cores, watts or prices in it",
    "best run": "no single best run stands in it",
    "baseline": "neither side had more settings to choose from",
    "start": "the same seconds are counted on both sides",
}


def _answers(answer: Callable) -> dict[str, tuple[str, Any]]:
    known = reports()
    found = returned(answer(reports()), "`verdicts`")
    if not isinstance(found, Mapping) or set(found) != set(known):
        raise Wrong(f"`verdicts` should return a dict with the keys {', '.join(known)}.")
    for letter, given in found.items():
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            raise Wrong(f"report {letter}: (trick, factor) is expected, not {short(given)}.")
        if not isinstance(given[0], str) or given[0] not in TRICKS:
            raise Wrong(f"report {letter}: {short(given[0])} is none of {', '.join(TRICKS)}.")
    return {letter: tuple(given) for letter, given in found.items()}


def _tricks(answer: Callable) -> None:
    found, known = _answers(answer), reports()
    wrong = [letter for letter, (trick, _) in found.items() if trick != known[letter].trick]
    if wrong:
        letter = wrong[0]
        said, is_ = found[letter][0], known[letter].trick
        raise Wrong(f"report {letter}: {AGAINST[said]}; {LOOK[is_]}.", 1 - len(wrong) / len(known))


def _factors(answer: Callable) -> None:
    found, known = _answers(answer), reports()
    wrong = []
    for letter, (_, factor) in found.items():
        report = known[letter]
        value = number(factor, f"the factor of report {letter}")
        if not report.low <= value <= report.high:
            why = f"without the trick it is another; {LOOK[report.trick]}"
            if value and report.low <= 1 / value <= report.high:
                why = "turned round, it would be right: which side does the claim put above?"
            wrong.append((letter, value, why))
    if wrong:
        letter, value, why = wrong[0]
        raise Wrong(f"report {letter}: the factor is {value:.3g}; {why}.", 1 - len(wrong) / len(known))


# broken_rule

HONEST: dict[str, Any] = {
    "data": "fashion_mnist",
    "test_images": 10_000,
    "looks_per_epoch": 1,
    "clock": "process",
    "started": 5,
    "seconds": [61.0, 59.5, 64.2, 60.1, 62.3],
    "reported": 61.0,
    "chosen_on": "validation",
    "network": "small_cnn",
    "precision": "float32",
    "settings": 7,
    "settings_of_baseline": 7,
}


def record(**changes: Any) -> dict[str, Any]:
    """The record of an honest run with these entries changed; None takes an entry out."""
    made = copy.deepcopy({**HONEST, **changes})
    return {name: value for name, value in made.items() if value is not None}


def _ask(answer: Callable, given: dict[str, Any], division: str) -> str:
    kept = copy.deepcopy(given)
    found = answer(given, division)
    if given != kept:
        raise Wrong("it changes the record: a judge must not touch the evidence.")
    if not isinstance(found, str):
        raise Wrong(f"`broken_rule` returns {found!r}; expected is the rule's name, or an empty string.")
    return found


ACCEPTED = {
    "an honest run": ({}, "closed"),
    "an honest run in the open division": ({}, "open"),
    "another network in the open division": ({"network": "resnet", "precision": "float16"}, "open"),
    "a failed run that is counted": ({"seconds": [61.0, 59.5, None, 60.1, 62.3], "reported": 61.0}, "closed"),
    "six runs": ({"started": 6, "seconds": [61.0, 59.5, 64.2, 60.1, 62.3, 60.0], "reported": 60.55}, "closed"),
    "a baseline with more settings": ({"settings_of_baseline": 20}, "closed"),
    "a median that is rounded": ({"seconds": [61.04, 59.5, 64.2, 60.1, 62.3], "reported": 61.0}, "closed"),
}
REFUSED = {
    "another data set": ("data", {"data": "mnist"}, "closed"),
    "half of the test images": ("data", {"test_images": 5000}, "open"),
    "ten looks an epoch": ("looks", {"looks_per_epoch": 10}, "closed"),
    "a clock that starts with the first step": ("clock", {"clock": "first step"}, "closed"),
    "four runs": ("runs", {"started": 4, "seconds": [61.0, 59.5, 64.2, 60.1], "reported": 60.55}, "closed"),
    "the best five of twenty": ("runs", {"started": 20}, "closed"),
    "a time that is rounded down too far": ("runs", {"reported": 60.8}, "closed"),
    "a time that is too long": ("runs", {"reported": 61.3}, "closed"),
    "the shortest of five": ("runs", {"reported": 59.5}, "closed"),
    "the mean of the runs that did not fail": (
        "runs",
        {"seconds": [61.0, None, None, 60.1, 62.3], "reported": 61.13},
        "closed",
    ),
    "three failed of five": ("runs", {"seconds": [61.0, None, None, None, 62.3], "reported": 61.65}, "closed"),
    "chosen on the test images": ("choice", {"chosen_on": "test"}, "open"),
    "another network": ("network", {"network": "resnet"}, "closed"),
    "another precision": ("network", {"precision": "float16"}, "closed"),
    "a baseline with one setting": ("baseline", {"settings_of_baseline": 1}, "open"),
    "two broken rules": ("looks", {"looks_per_epoch": 5, "chosen_on": "test"}, "closed"),
}
RULE_OF = {
    "data": "data", "test_images": "data", "looks_per_epoch": "looks", "clock": "clock", "started": "runs",
    "seconds": "runs", "reported": "runs", "chosen_on": "choice", "network": "network", "precision": "network",
    "settings": "baseline", "settings_of_baseline": "baseline",
}  # fmt: skip
REFUSED |= {f"a record without {name!r}": (rule, {name: None}, "open") for name, rule in RULE_OF.items()}


def _accepts(answer: Callable) -> None:
    for told, (changes, division) in ACCEPTED.items():
        if found := _ask(answer, record(**changes), division):
            raise Wrong(f"{told} ({division}) is refused by the rule {found!r}.")


def _refuses(answer: Callable) -> None:
    missed = []
    for told, (rule, changes, division) in REFUSED.items():
        try:
            found = _ask(answer, record(**changes), division)
        except (KeyError, TypeError, ValueError) as error:
            missed.append(f"{told}: {type(error).__name__} {error}. What a record does not say, it does not keep.")
            continue
        if found != rule:
            missed.append(f"{told} ({division}) breaks the rule {rule!r}; the answer is {found!r}.")
    if missed:
        raise Wrong(missed[0], 1 - len(missed) / len(REFUSED))


EXERCISES = Exercises(
    Exercise(
        "verdicts",
        Criterion("tricks", "The trick in each report", 0.5, _tricks),
        Criterion("factors", "The factor without the trick", 0.5, _factors),
    ),
    Exercise(
        "broken_rule",
        Criterion("accepts", "Accepts what keeps the rules", 0.4, _accepts),
        Criterion("refuses", "Names the rule that is broken", 0.6, _refuses),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
