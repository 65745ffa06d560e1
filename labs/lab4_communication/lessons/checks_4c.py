"""Checks of notebook 4c: a step with overlap, a fitted parameter, the ridge, doubtful runs, a fair score."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from course_lib.notebook import answers
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong

# step_seconds


def _step(case: tuple[int, float, float, float], answer: Callable) -> None:
    images, throughput, communication, last = case
    compute = images / throughput
    third = compute / 3
    added, ends_together = compute + communication, third + max(2 * third, communication)
    whole = "you hide communication behind the whole step; while the forward pass runs there is no gradient yet."
    with answers.case(f"{images} images at {throughput:g} images/s, {1e3 * communication:g} ms of communication"):
        answers.compare(
            answers.number(answer(images, throughput, communication, last)),
            third + max(2 * third + last, communication),
            "the number of seconds (which ends later, the last message that waits for the backward pass, or the queue "
            "of all of them?)",
            {
                "that is the sum: communication runs beside the backward pass. Which of the two ends later?": added,
                "that is the sum: communication runs beside the backward pass.": added + last,
                whole: max(compute + last, communication),
                "the last message is missing: it starts when the backward pass is over.": ends_together,
                f"{whole} And the last message is missing.": max(compute, communication),
                "`last` comes after the backward pass only; it is part of `communication` already.": ends_together
                + last,
                "the backward pass is two thirds, the forward pass one: you have them the other way round.": (
                    2 * third + max(third + last, communication)
                ),
                "the forward pass is missing.": max(2 * third + last, communication),
                "communication does not count at all.": compute,
                "the forward pass is a third of the computation, not half of it.": (
                    compute / 2 + max(compute / 2 + last, communication)
                ),
                "images ÷ (images/s) gives seconds, not the inverse.": throughput / images + communication,
            },
        )


def _exposed(answer: Callable) -> None:
    _step((32, 200.0, 0.15, 0.003), answer)
    _step((32, 200.0, 0.108, 0.003), answer)  # longer than the backward pass, but not with the last message


# calibrate

MAX_PREDICTIONS = 2000
CURVES = {  # falling prediction, low, high, published
    "a straight line": (lambda x: 1 - x / 10, 0.0, 10.0, 0.37),
    "a curve": (lambda x: 1 / (1 + x * x), 0.0, 50.0, 0.02),
    "a curve with a flat start": (lambda x: min(1.0, 3.0 / (x + 1e-9)), 0.0, 40.0, 0.879),
    "a very small parameter": (lambda x: 1 / (1 + 1e5 * x), 0.0, 1e-3, 0.879),
}


def _calibrates(name: str, answer: Callable) -> None:
    predict, low, high, published = CURVES[name]
    predictions = 0

    def counted(parameter: float) -> float:
        nonlocal predictions
        predictions += 1
        if predictions > MAX_PREDICTIONS:
            raise Wrong(f"{MAX_PREDICTIONS:,} predictions and no end: does the interval shrink in every round?")
        return predict(parameter)

    with answers.case(f"{name} between {low:g} and {high:g}, published {published:g}"):
        found = answers.number(answer(counted, published, low, high))
        if not low <= found <= high:
            raise Wrong(f"{found:g} lies outside of the interval.")
        if abs(predict(found) - published) <= 1e-4:
            return
        if answers.same(found, low + (high - low) * (1 - published)):
            raise Wrong("that is right only where the prediction is a straight line.")
        if not predictions:
            raise Wrong("`predict` is never called.")
        if min(found - low, high - found) < 1e-3 * (high - low) and name != "a very small parameter":
            raise Wrong(
                f"it ends at {found:g}, an end of the interval: the prediction falls as the parameter grows. "
                "Keep the half in which the published value lies."
            )
        raise Wrong(f"it returns {found:.6g}, which predicts {predict(found):.5f}: halve more often.")


def _calibrates_curves(answer: Callable) -> None:
    _calibrates("a curve", answer)
    _calibrates("a curve with a flat start", answer)


# ridge_images


def _ridge(ranks: int, itemsize: int, gigabits: float, answer: Callable) -> None:
    for network, numbers, throughput in (("ResNet-50", 25_557_032, 218.0), ("AlexNet", 60_965_224, 1230.0)):
        share = 2 * (ranks - 1) / ranks
        images = throughput * share * numbers * itemsize * 8 / (gigabits * 1e9)
        with answers.case(f"{network}, {ranks:,} GPUs, {itemsize} bytes a number, {gigabits:g} Gbit/s"):
            answers.compare(
                answers.number(answer(ranks, numbers, itemsize, gigabits, throughput)),
                images,
                "the number of images",
                {
                    "a factor of 8: the network's speed is in bits, the gradient in bytes.": images / 8,
                    "a factor of 64: multiply by 8 bits a byte where you divide by it.": images / 64,
                    "a factor of 8: bits and bytes.": images * 8,
                    "a rank sends 2(N−1)/N of the gradient, not just all of it once.": images / share,
                    "a factor of 2: a ring goes round twice, once to add and once to hand out.": images / 2,
                    "a rank sends 2(N−1)/N of the gradient: its own part stays.": images * ranks / (ranks - 1),
                    "each rank sends 2(N−1)/N of the gradient: it does not grow with N.": images * ranks,
                    f"you count 4 bytes for a number; here it has {itemsize}.": images * 4 / itemsize,
                    f"you count 2 bytes for a number; here it has {itemsize}.": images * 2 / itemsize,
                    "the numbers are counted, but not their bytes.": images / itemsize,
                    "those are the seconds on the wire: how many images are done in them?": images / throughput,
                    "seconds × images/s gives images; you divide by images/s.": images / throughput**2,
                    "1 Gbit/s is 10⁹ bits in a second.": images * 1e9,
                    "1 Gbit/s is 10⁹ bits in a second, not 2³⁰.": images * 1e9 / 2**30,
                },
            )


# suspects

LOST = "communication can cost a large run so much: a loss is no contradiction."
PERFECT = "perfect scaling is possible: twice the devices in half the time need the same device-minutes."
RUNS = {  # name → (devices, minutes); the first has the fewest devices
    "more than possible": {"A": (8, 64), "B": (16, 24), "C": (64, 6)},
    "losses": {"A": (256, 60), "B": (512, 45), "C": (1024, 30), "D": (2048, 64)},
    "perfect": {"A": (8, 64), "B": (32, 16), "C": (1024, 0.5)},
    "with the first run's devices": {"A": (512, 40), "B": (512, 36), "C": (2048, 12), "D": (4096, 4)},
}


def _suspects(name: str, answer: Callable) -> None:
    runs = RUNS[name]
    first = next(iter(runs.values()))
    work = {run: devices * minutes for run, (devices, minutes) in runs.items()}
    whole = first[0] * first[1]

    def chosen(rule: Callable[[str], bool]) -> list[str]:
        return [run for run in runs if rule(run)]

    expected = chosen(lambda run: work[run] < whole)
    with answers.case(", ".join(f"{run}: {devices} devices, {time:g} min" for run, (devices, time) in runs.items())):
        names = answers.items(answer(dict(runs)), "a list of names is expected", most=20)
        if strange := [one for one in names if not (isinstance(one, str) and one in runs)]:
            raise Wrong(f"{answers.short(strange[0])} is no name of a run.")
        found = [run for run in runs if run in names]
        if found == expected:
            return
        inverse = chosen(lambda run: work[run] > whole)
        if found and found == inverse and expected:
            raise Wrong("that is the other way round: those runs lose, and the others do more than their devices can.")
        if found and found == chosen(lambda run: runs[run][1] < first[1]):
            raise Wrong("more devices should take fewer minutes. Compare the minutes of all devices together.")
        if set(found) & set(inverse):
            raise Wrong(LOST)
        if set(found) > set(expected):
            raise Wrong(PERFECT)
        missing = next(run for run in expected if run not in found)
        devices, time = runs[missing]
        raise Wrong(
            f"{missing} has {devices / first[0]:g} times the devices of {next(iter(runs))} and is "
            f"{first[1] / time:.3g} times as fast: is that possible for the same work?"
        )


# typical_error

LINES = "lines that repeat one system change your score: count each system once, however many lines it has."


def _score(answer: Callable, by_system: dict[str, list[float]]) -> float:
    errors = np.array([error for errors in by_system.values() for error in errors])
    systems = np.array([name for name, errors in by_system.items() for _ in errors])
    with answers.unchanged(errors):
        return answers.number(answer(errors, systems.copy()))


def _size(answer: Callable) -> None:
    with answers.case("two systems, every line 4 points off, some above and some below"):
        found = _score(answer, {"A": [4.0, -4.0, 4.0, -4.0], "B": [-4.0, -4.0]})
        if answers.same(found, 0.0, atol=1e-9) or abs(found) < 4 - 1e-6:
            raise Wrong("errors of opposite sign cancel: 4 points too high and 4 too low are both 4 points off.")
        answers.compare(found, 4.0, "the score", {"that is a square: take its root, to have points again.": 16.0})


def _by_system(answer: Callable) -> None:
    few = {"A": [1.0, -1.0, 2.0], "B": [-8.0], "C": [3.0, -5.0], "D": [6.0]}
    once = _score(answer, few)
    with answers.case("the lines of one system ten times"):
        for name, errors in few.items():
            if not answers.same(_score(answer, {**few, name: 10 * errors}), once):
                raise Wrong(LINES)
    with answers.case("the same lines in another order, under other names"):
        if not answers.same(_score(answer, {f"{name}2": few[name][::-1] for name in reversed(few)}), once):
            raise Wrong("the score changes with the order of the lines or the names of the systems.")


def _typical(answer: Callable) -> None:
    each = {"A": [1.0, -1.0], "B": [2.0], "C": [-3.0, 3.0, 3.0], "D": [4.0], "E": [-10.0]}
    with answers.case("five systems that are off by 1, 2, 3, 4 and 10 points"):
        found = _score(answer, each)
        if answers.same(found, 10.0) or answers.same(found, 1.0):
            raise Wrong("that is one system, the worst or the best. What is typical?")
        if not 2 <= found <= 6:
            raise Wrong(f"{found:.3g} points are not typical of them.")
        double = {name: [2 * error for error in errors] for name, errors in each.items()}
        if not answers.same(_score(answer, double), 2 * found):
            raise Wrong("with errors twice as large, the score should be twice as large: it is in points.")


EXERCISES = Exercises(
    Exercise(
        "step_seconds",
        Criterion("alone", "No communication: the computation", 0.2, partial(_step, (48, 160.0, 0.0, 0.0))),
        Criterion("hidden", "Communication is hidden", 0.4, partial(_step, (64, 200.0, 0.1, 0.003))),
        Criterion("exposed", "Communication is not hidden", 0.4, _exposed),
    ),
    Exercise(
        "calibrate",
        Criterion("straight-line", "A straight line", 0.3, partial(_calibrates, "a straight line")),
        Criterion("curves", "Curves", 0.4, _calibrates_curves),
        Criterion("small-parameter", "A very small parameter", 0.3, partial(_calibrates, "a very small parameter")),
    ),
    Exercise(
        "ridge_images",
        Criterion("single-precision", "Single precision on 1,024 GPUs", 0.4, partial(_ridge, 1024, 4, 100.0)),
        Criterion("half-precision", "Half precision", 0.3, partial(_ridge, 1024, 2, 100.0)),
        Criterion("few-gpus", "Few GPUs, a slow network", 0.3, partial(_ridge, 4, 4, 10.0)),
    ),
    Exercise(
        "suspects",
        Criterion("fast", "More than the devices can do", 0.4, partial(_suspects, "more than possible")),
        Criterion("losses", "Losses are possible", 0.2, partial(_suspects, "losses")),
        Criterion("perfect", "Perfect scaling is possible", 0.2, partial(_suspects, "perfect")),
        Criterion("same", "As many devices", 0.2, partial(_suspects, "with the first run's devices")),
    ),
    Exercise(
        "typical_error",
        Criterion("size", "The size of an error, in points", 0.3, _size),
        Criterion("systems", "Each system counts once", 0.4, _by_system),
        Criterion("typical", "Neither the best nor the worst", 0.3, _typical),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
