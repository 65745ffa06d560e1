"""Checks of notebook 4c: a step with overlap, a fitted parameter, the network's ridge, the time of a run."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

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


# training_seconds


def _run(case: tuple[int, int, int, int, float], answer: Callable) -> None:
    examples, epochs, ranks, images, step = case
    used, batch = examples * epochs, ranks * images
    seconds, epoch = step * math.ceil(used / batch), step * math.ceil(examples / batch)
    per_gpu = "a step takes `images` on *each* GPU: the global batch is ranks · images."
    with answers.case(
        f"{examples:,} examples, {epochs} epochs, {ranks:,} GPUs with {images} images, {step:g} s a step"
    ):
        answers.compare(
            answers.number(answer(*case)),
            seconds,
            "the number of seconds (how many steps of ranks · images do all epochs together need?)",
            {
                per_gpu: step * math.ceil(used / images),
                f"{per_gpu} And round up.": step * used / images,
                "a step takes `images` on each GPU, not one.": step * math.ceil(used / ranks),
                "those are the steps; a step takes `step` seconds.": seconds / step,
                "those are minutes.": seconds / 60,
                "that is one epoch.": seconds / epochs,
                "that is one epoch: multiply the examples by the epochs.": epoch,
                "epochs follow one another without a gap: round up once, at the end of the run.": epochs * epoch,
                "that drops the rest of every epoch; round up once, at the end.": step * epochs * (examples // batch),
                "the last step is missing: round up, not down.": step * (used // batch),
                "there is no part of a step: round up.": step * used / batch,
            },
        )


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
        "training_seconds",
        Criterion("small", "A small run", 0.4, partial(_run, (1000, 3, 4, 5, 0.5))),
        Criterion("imagenet", "ImageNet", 0.3, partial(_run, (1_281_167, 90, 1024, 64, 0.3))),
        Criterion("uneven", "A batch that does not divide the examples", 0.3, partial(_run, (1000, 7, 8, 16, 2.0))),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
