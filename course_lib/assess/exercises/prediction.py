"""Checks of notebook 4c: a step with overlap, a fitted parameter, the network's ridge, the time of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from course_lib.assess.exercises import Exercise, Exercises, Part, one_number


def _near(value: float, expected: float) -> bool:
    return math.isclose(value, expected, rel_tol=1e-6)


def _which(value: float, guesses: Iterable[tuple[float, str]], otherwise: str) -> str:
    """The first explanation whose value it is."""
    return next((why for guess, why in guesses if _near(value, guess)), otherwise)


# step_seconds

# images, images/s, seconds of communication, of its last message: once hidden, once not, once nothing to send
STEPS = {"hidden": (64, 200.0, 0.1, 0.003), "exposed": (32, 200.0, 0.15, 0.003), "alone": (48, 160.0, 0.0, 0.0)}


def _step(kind: str) -> Callable[[Callable], str]:
    images, throughput, communication, last = STEPS[kind]

    def trial(answer: Callable) -> str:
        value = answer(images, throughput, communication, last)
        if wrong := one_number(value):
            return wrong
        all_in = images / throughput
        third = all_in / 3
        expected = third + max(2 * third + last, communication)
        if _near(value, expected):
            return ""
        case = f"{images} images at {throughput:g} images/s, {1e3 * communication:g} ms of communication: "
        return case + _which(
            value,
            (
                (all_in + communication, "that is the sum: communication runs beside the backward pass. Which of the "
                 "two ends later?"),
                (all_in + communication + last, "that is the sum: communication runs beside the backward pass."),
                (max(all_in + last, communication), "you hide communication behind the whole step; while the forward "
                 "pass runs there is no gradient yet."),
                (third + max(2 * third, communication), "the last message is missing: it starts when the backward "
                 "pass is over."),
                (max(all_in, communication), "you hide communication behind the whole step; while the forward pass "
                 "runs there is no gradient yet."),
                (third + max(2 * third, communication) + last, "`last` comes after the backward pass only; it is part "
                 "of `communication` already."),
                (2 * third + max(third + last, communication), "the backward pass is two thirds, the forward pass one: "
                 "you have them the other way round."),
                (max(2 * third + last, communication), "the forward pass is missing."),
                (all_in, "communication does not count at all."),
                (throughput / images + communication, "images ÷ (images/s) gives seconds, not the inverse."),
            ),
            f"{1e3 * value:.4g} ms; it should be {1e3 * expected:.4g} ms. Which ends later, the last message that "
            "waits for the backward pass or the queue of all of them?",
        )  # fmt: skip

    return trial


# calibrate

FALLING = {
    "a straight line": (lambda x: 1 - x / 10, 0.0, 10.0, 0.37),
    "a curve": (lambda x: 1 / (1 + x * x), 0.0, 50.0, 0.02),
    "a curve with a flat start": (lambda x: min(1.0, 3.0 / (x + 1e-9)), 0.0, 40.0, 0.879),
    "a very small parameter": (lambda x: 1 / (1 + 1e5 * x), 0.0, 1e-3, 0.879),
}


def _calibrates(*names: str) -> Callable[[Callable], str]:
    def trial(answer: Callable) -> str:
        for name in names:
            predict, low, high, published = FALLING[name]
            asked: list[float] = []

            def counted(value: float, predict: Callable = predict, asked: list[float] = asked) -> float:
                asked.append(float(value))
                if len(asked) > 2000:
                    raise RuntimeError("2,000 predictions and no end: does the interval shrink in every round?")
                return predict(value)

            value = answer(counted, published, low, high)
            if wrong := one_number(value):
                return wrong
            at = f"{name} between {low:g} and {high:g}, published {published:g}: "
            if not low <= value <= high:
                return at + f"{value:g} lies outside of the interval."
            if abs(predict(value) - published) <= 1e-4:
                continue
            if _near(value, low + (high - low) * (1 - published)):
                return at + "that is right only where the prediction is a straight line."
            if not asked:
                return at + "`predict` is never called."
            if min(value - low, high - value) < 1e-3 * (high - low) and name != "a very small parameter":
                return at + (
                    f"it ends at {value:g}, an end of the interval: the prediction falls as the parameter grows. "
                    "Keep the half in which the published value lies."
                )
            return at + f"it returns {value:.6g}, which predicts {predict(value):.5f}: halve more often."
        return ""

    return trial


# ridge_images

NETWORKS = {"ResNet-50": 25_557_032, "AlexNet": 60_965_224}


def _ridge(ranks: int, itemsize: int, gigabits: float) -> Callable[[Callable], str]:
    def trial(answer: Callable) -> str:
        for name, numbers in NETWORKS.items():
            throughput = 218.0 if name == "ResNet-50" else 1230.0
            value = answer(ranks, numbers, itemsize, gigabits, throughput)
            if wrong := one_number(value):
                return wrong
            share = 2 * (ranks - 1) / ranks
            per_byte = 8 / (gigabits * 1e9)
            expected = throughput * share * numbers * itemsize * per_byte
            if _near(value, expected):
                continue
            case = f"{name}, {ranks:,} GPUs, {itemsize} bytes a number, {gigabits:g} Gbit/s: "
            return case + _which(
                value,
                (
                    (expected / 8, "a factor of 8: the network's speed is in bits, the gradient in bytes."),
                    (expected / 64, "a factor of 64: multiply by 8 bits a byte where you divide by it."),
                    (expected * 8, "a factor of 8: bits and bytes."),
                    (expected / share, "a rank sends 2(N−1)/N of the gradient, not just all of it once."),
                    (expected / 2, "a factor of 2: a ring goes round twice, once to add and once to hand out."),
                    (expected * ranks / (ranks - 1), "a rank sends 2(N−1)/N of the gradient: its own part stays."),
                    (expected * ranks, "each rank sends 2(N−1)/N of the gradient: it does not grow with N."),
                    (expected * 4 / itemsize, f"you count 4 bytes for a number; here it has {itemsize}."),
                    (expected * 2 / itemsize, f"you count 2 bytes for a number; here it has {itemsize}."),
                    (expected / itemsize, "the numbers are counted, but not their bytes."),
                    (expected / throughput, "those are the seconds on the wire: how many images are done in them?"),
                    (expected / throughput**2, "seconds × images/s gives images; you divide by images/s."),
                    (expected * 1e9, "1 Gbit/s is 10⁹ bits in a second."),
                    (expected * 1e9 / 2**30, "1 Gbit/s is 10⁹ bits in a second, not 2³⁰."),
                ),
                f"{value:.4g} images; it should be {expected:.4g}.",
            )  # fmt: skip
        return ""

    return trial


# training_seconds

RUNS = {"tiny": (1000, 3, 4, 5, 0.5), "ImageNet": (1_281_167, 90, 1024, 64, 0.3), "uneven": (1000, 7, 8, 16, 2.0)}


def _seconds(kind: str) -> Callable[[Callable], str]:
    examples, epochs, ranks, images, step = RUNS[kind]

    def trial(answer: Callable) -> str:
        value = answer(examples, epochs, ranks, images, step)
        if wrong := one_number(value):
            return wrong
        batch = ranks * images
        expected = step * math.ceil(examples * epochs / batch)
        if _near(value, expected):
            return ""
        case = (
            f"{examples:,} examples, {epochs} epochs, {ranks:,} GPUs with {images} images, {step:g} s a step: "
            f"{value:.6g} s in place of {expected:.6g} s; "
        )
        return case + _which(
            value,
            (
                (step * math.ceil(examples * epochs / images), "a step takes `images` on *each* GPU: the global batch "
                 "is ranks · images."),
                (step * examples * epochs / images, "a step takes `images` on *each* GPU: the global batch is "
                 "ranks · images."),
                (step * math.ceil(examples * epochs / ranks), "a step takes `images` on each GPU, not one."),
                (expected / step, "those are the steps; a step takes `step` seconds."),
                (expected / 60, "those are minutes."),
                (expected / epochs, "that is one epoch."),
                (step * math.ceil(examples / batch), "that is one epoch."),
                (step * epochs * math.ceil(examples / batch), "epochs follow one another without a gap: round up once, "
                 "at the end of the run."),
                (step * epochs * (examples // batch), "that drops the rest of every epoch; round up once, at the end."),
                (step * (examples * epochs // batch), "the last step is missing: round up, not down."),
                (step * examples * epochs / batch, "there is no part of a step: round up."),
            ),
            "how many steps of ranks · images do all epochs together need?",
        )  # fmt: skip

    return trial


EXERCISES = Exercises(
    Exercise(
        "step_seconds",
        (
            Part("No communication: the computation", 0.2, _step("alone")),
            Part("Communication is hidden", 0.4, _step("hidden")),
            Part("Communication is not hidden", 0.4, _step("exposed")),
        ),
    ),
    Exercise(
        "calibrate",
        (
            Part("A straight line", 0.3, _calibrates("a straight line")),
            Part("Curves", 0.4, _calibrates("a curve", "a curve with a flat start")),
            Part("A very small parameter", 0.3, _calibrates("a very small parameter")),
        ),
    ),
    Exercise(
        "ridge_images",
        (
            Part("Single precision on 1,024 GPUs", 0.4, _ridge(1024, 4, 100.0)),
            Part("Half precision", 0.3, _ridge(1024, 2, 100.0)),
            Part("Few GPUs, a slow network", 0.3, _ridge(4, 4, 10.0)),
        ),
    ),
    Exercise(
        "training_seconds",
        (
            Part("A small run", 0.4, _seconds("tiny")),
            Part("ImageNet", 0.3, _seconds("ImageNet")),
            Part("A batch that does not divide the examples", 0.3, _seconds("uneven")),
        ),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
