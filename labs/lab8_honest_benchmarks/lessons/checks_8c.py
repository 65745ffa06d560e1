"""Checks of notebook 8c: what all ranks got right, an epoch in three ways, mistakes, a budget, an average's memory."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from course_lib.notebook.answers import case, compare, number, returned, several, short, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from course_lib.parallel.group import CollectiveError, Group, rehearse
from labs.lab8_honest_benchmarks.lessons.evaluation import Part
from labs.lab8_honest_benchmarks.lessons.reports_8c import MISTAKES, reports

CLASSES = 10

# evaluated


def _part(images: int, filling: int, classes: int, share: float, seed: int) -> Part:
    """Drawn labels of the first `classes` classes, of which about `share` is predicted, in no order."""
    random = np.random.default_rng(seed)
    labels = random.integers(classes, size=images + filling)
    predicted = np.where(random.random(len(labels)) < share, labels, (labels + 1) % classes)
    real = random.permutation(np.arange(len(labels)) < images)
    return Part(labels, predicted, real)


def equal() -> list[Part]:
    """Two ranks with equal shares, nothing filled up, all classes."""
    return [_part(60, 0, CLASSES, 0.7, 1), _part(60, 0, CLASSES, 0.4, 2)]


def uneven() -> list[Part]:
    """Three ranks with shares of 50, 20 and 7 images, of which the rarer classes are on the first only."""
    return [_part(50, 0, CLASSES, 0.8, 3), _part(20, 0, 6, 0.5, 4), _part(7, 0, 3, 0.2, 5)]


def filled() -> list[Part]:
    """As `uneven`, filled up to 64 with images that are not to count, and one rank that has nothing else."""
    first = [_part(50, 14, CLASSES, 0.8, 6), _part(20, 44, 6, 0.5, 7), _part(7, 57, 3, 0.2, 8)]
    return [*first, _part(0, 64, CLASSES, 0.9, 9)]


def empty() -> list[Part]:
    """Three ranks of which one has no images at all, and a class that nobody has."""
    return [_part(30, 2, 9, 0.8, 10), _part(0, 0, 9, 0.5, 11), _part(11, 5, 4, 0.3, 12)]


def _accuracies(parts: list[Part], fill: bool = False, divide: bool = False) -> tuple[float, float]:
    """Accuracy and balanced accuracy of all; `fill`: with what fills up; `divide`: that is in the count only."""
    labels, predicted, real = (np.concatenate(some) for some in zip(*parts))
    kept = real | fill
    right = np.bincount(labels[kept & (labels == predicted)], minlength=CLASSES)
    count = np.bincount(labels[kept | divide], minlength=CLASSES)
    with np.errstate(all="ignore"):
        return float(right.sum() / count.sum()), float(np.nanmean(right / count))


def _classes(parts: list[Part]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each rank and class [ranks, classes]: right ones, images, and how often the class was named."""
    counted = [
        [
            np.bincount(labels[real & (labels == predicted)], minlength=CLASSES),
            np.bincount(labels[real], minlength=CLASSES),
            np.bincount(predicted[real], minlength=CLASSES),
        ]
        for labels, predicted, real in parts
    ]
    right, count, named = np.array(counted).transpose(1, 0, 2)
    return right, count, named


def _unbalanced(parts: list[Part]) -> tuple[float, float]:
    """Not the balanced accuracy: each class's share averaged over the ranks; divided by how often it was named."""
    right, count, named = _classes(parts)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of classes that nobody has
        by_rank = np.nanmean(np.nanmean(right / count, axis=0))
        return float(by_rank), float(np.nanmean(right.sum(axis=0) / named.sum(axis=0)))


def _alone(parts: list[Part], which: int) -> list[float]:
    """Of each rank by itself: the accuracy (which = 0), or the balanced one; nan where it has no image."""
    return [_accuracies([part])[which] if part.real.any() else math.nan for part in parts]


def _evaluate(answer: Callable, parts: list[Part], which: int) -> list[float]:
    """What each rank returns as accuracy (which = 0) or as balanced accuracy (1), as numbers that may be nan."""

    def program(me: Group) -> Any:
        given = [value.copy() for value in parts[me.rank]]
        with unchanged(*given):
            return answer(me, *given)

    try:
        with warnings.catch_warnings():  # of means of nothing: what comes of them is told below
            warnings.simplefilter("ignore")
            results = rehearse(program, len(parts))
    except CollectiveError as error:
        raise Wrong(
            "not all ranks call `me.all_reduce` alike: real ranks would wait for ever, or end with an error. One that "
            f"has no image must call it, too, with an array of the same shape and type. ({error})"
        ) from error
    found = []
    for rank, result in enumerate(results):
        value = several(result, "accuracy", "balanced accuracy", what=f"rank {rank}")[which]
        what = f"rank {rank}, as {('accuracy', 'balanced accuracy')[which]},"
        got = number(value, what, finite=False)
        if not np.isfinite(got):
            raise Wrong(
                f"{what} returns {got}: something is divided by 0, a rank's own number of images or the number of a "
                "class that it doesn't have. Divide after the all-reduce, and leave out classes that nobody has."
            )
        found.append(got)
    return found


def _judged(answer: Callable, parts: list[Part], told: str, which: int) -> None:
    with case(told):
        found = _evaluate(answer, parts, which)
        right, alone = _accuracies(parts)[which], np.array(_alone(parts, which))
        with_filling, divided = _accuracies(parts, fill=True)[which], _accuracies(parts, divide=True)[which]
        other, ranks = _accuracies(parts)[1 - which], len(parts)
        for rank, got in enumerate(found):
            mistakes = {
                "that is this rank's own share: the other ranks' images are missing.": alone[rank],
                "that is a mean of the ranks' means: a rank with few images, of a class or of all, counts as much as "
                "one with many. Which numbers can be added up over the ranks?": np.nanmean(alone),
                "that is a mean of the ranks' means, in which a rank without images counts as 0 % right.": (
                    np.nansum(alone) / ranks
                ),
                "that is the sum of the ranks' accuracies: `all_reduce` adds up.": np.nansum(alone),
                "the images that fill up a batch count as well: `real` says which don't.": with_filling,
                "the images that fill up a batch are not among the right ones, but are still divided by.": divided,
                "a number from 0 to 1 is asked for, not percent.": 100 * right,
            }
            if which:
                by_rank, by_named = _unbalanced(parts)
                mistakes["that averages each class's share over the ranks: one that has a single image of the class "
                         "counts as much as one that has ten. Add up counts, then divide."] = by_rank  # fmt: skip
                mistakes["that divides by how often a class was named: the share of its own images is asked for."] = (
                    by_named
                )
                mistakes["classes that nobody has count as 0 % right: leave them out of the mean."] = (
                    right * len(np.unique(np.concatenate([part.labels[part.real] for part in parts]))) / CLASSES
                )
                mistakes["that is the plain accuracy: in the balanced one each class counts alike."] = other
            else:
                mistakes["that is the balanced accuracy: return the plain one first."] = other
            compare(got, right, f"on rank {rank} of {ranks} it", mistakes)


def _equal(answer: Callable) -> None:
    for which in (0, 1):
        _judged(answer, equal(), "two equal shares", which)


def _uneven(answer: Callable) -> None:
    _judged(answer, uneven(), "shares of 50, 20 and 7 images", 0)


def _filled(answer: Callable) -> None:
    _judged(answer, filled(), "shares filled up to 64, one rank with nothing else", 0)
    _judged(answer, empty(), "a rank without any image", 0)


def _balanced(answer: Callable) -> None:
    _judged(answer, uneven(), "shares of 50, 20 and 7 images, the balanced accuracy", 1)
    _judged(answer, filled(), "shares filled up to 64, the balanced accuracy", 1)
    _judged(answer, empty(), "a class that nobody has, the balanced accuracy", 1)


# epoch_seconds

CASES = ((100.0, 7.0), (60.0, 30.0), (1.0, 0.4))
SIZES = (1, 2, 3, 16, 1024)  # the first not for "aside"


def _epoch(way: str, training: float, evaluation: float, ranks: int) -> float:
    """What is right."""
    each, others = training / ranks, training / max(ranks - 1, 1)
    return {"rank 0": each + evaluation, "aside": max(others, evaluation), "all ranks": each + evaluation / ranks}[way]


def _epochs(answer: Callable, way: str) -> None:
    for (training, evaluation), ranks in itertools.product(CASES, SIZES[way == "aside" :]):
        try:
            got = number(answer(training, evaluation, ranks, way), "`epoch_seconds`")
        except ZeroDivisionError as error:
            raise Wrong(
                f'{way!r} with {ranks} rank{"s" * (ranks > 1)} divides by 0: only "aside" has N − 1 ranks that train.'
            ) from error
        own, others = training / ranks, training / max(ranks - 1, 1)
        mistakes = {
            "rank 0": {
                "only rank 0 evaluates, and it has all images to judge: evaluation takes as long as on one rank.": (
                    training + evaluation
                )
                / ranks,
                "training is shared out among all ranks.": training + evaluation,
                "the other way round: training is shared out, and rank 0 evaluates.": training + evaluation / ranks,
                "all wait for the evaluation: nothing runs beside it.": max(own, evaluation),
            },
            "aside": {
                "the two go on at the same time: the longer of them decides, not their sum.": others + evaluation,
                "one of the ranks does not train: N − 1 are left.": max(own, evaluation),
                "the evaluation runs beside the training, but if it takes longer, the next one has to wait for it.": (
                    others
                ),
                "the evaluator has to wait until the next epoch is trained: the longer of the two decides.": (
                    evaluation
                ),
                "one of the ranks does not train, and evaluation runs beside the training.": own + evaluation,
                "a single rank evaluates: its work is not shared out.": max(others, evaluation / max(ranks - 1, 1)),
            },
            "all ranks": {
                "the evaluation is shared out as well.": own + evaluation,
                "both are shared out.": training + evaluation,
                "first all train, then all evaluate: the two add up.": max(training, evaluation) / ranks,
                "the longer of the two does not hide the other: all ranks do both.": max(own, evaluation),
            },
        }[way]
        told = f"{way!r} with {training:g} s, {evaluation:g} s and {ranks} ranks"
        compare(got, _epoch(way, training, evaluation, ranks), told, mistakes)


def _serial(answer: Callable) -> None:
    _epochs(answer, "rank 0")


def _aside(answer: Callable) -> None:
    _epochs(answer, "aside")


def _shared(answer: Callable) -> None:
    _epochs(answer, "all ranks")


# diagnoses

LOOK = {
    "none": "all right ones of all images are what was reported: a large spread between ranks is no fault.",
    "mean of means": "compare with each rank's accuracy, and with how many images stand behind each.",
    "filling": "for this number, which images have to be among the right ones, and which among those divided by?",
    "divisor": "for this number, which images have to be among the right ones, and which among those divided by?",
    "one rank": "compare with the accuracy of each rank by itself.",
    "same share": "compare the rows, and add up the images: the test set has 5,000.",
}


def _found(answer: Callable) -> dict[str, tuple[str, Any]]:
    known = reports()
    found = returned(answer(reports()), "`diagnoses`")
    if not isinstance(found, Mapping) or set(found) != set(known):
        raise Wrong(f"`diagnoses` should return a dict with the keys {', '.join(known)}.")
    for letter, given in found.items():
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            raise Wrong(f"report {letter}: (mistake, accuracy) is expected, not {short(given)}.")
        if not isinstance(given[0], str) or given[0] not in MISTAKES:
            raise Wrong(f"report {letter}: {short(given[0])} is none of {', '.join(MISTAKES)}.")
    return {letter: tuple(given) for letter, given in found.items()}


def _mistakes(answer: Callable) -> None:
    found, known = _found(answer), reports()
    wrong = [letter for letter, (mistake, _) in found.items() if mistake != known[letter].mistake]
    if wrong:
        letter = wrong[0]
        raise Wrong(
            f"report {letter}: it is not {found[letter][0]!r}; {LOOK[known[letter].mistake]}",
            1 - len(wrong) / len(known),
        )


def _accuracy(answer: Callable) -> None:
    found, known = _found(answer), reports()
    wrong = []
    for letter, (_, accuracy) in found.items():
        right = known[letter].accuracy
        if right is None:
            if accuracy is not None:
                wrong.append(f"report {letter}: nobody judged two of the shares: the table can't tell; return None.")
        elif accuracy is None:
            wrong.append(f"report {letter}: the table tells the accuracy: every image of the test set is in it.")
        else:
            value = number(accuracy, f"the accuracy of report {letter}")
            if math.isclose(100 * value, right, abs_tol=0.05):
                wrong.append(f"report {letter}: in percent, please: {100 * value:.1f}, not {value:.3f}.")
            elif not math.isclose(value, right, abs_tol=0.05):
                wrong.append(
                    f"report {letter}: {value:.1f} % is not what the ranks' counts give for the images of the test set."
                )
    if wrong:
        raise Wrong(wrong[0], 1 - len(wrong) / len(known))


# same_memory


def _memory(answer: Callable, decay: float, batch: int, base: int) -> None:
    got = number(answer(decay, batch, base), "`same_memory`")
    times = batch / base
    mistakes = {
        "the decay is that of the small batch: the same number of updates are many more images.": decay,
        "1 − decay grows in proportion only as long as it is small: an update with the large batch has to forget what "
        "so many small ones forget, one after the other.": 1 - times * (1 - decay),
        "turned round: an update with the large batch has to forget more, not less.": decay ** (1 / times),
        "turned round, and a matter of powers, not of proportion: ask what is left after k small updates.": (
            1 - (1 - decay) / times
        ),
        "the power binds before the division: put the ratio of the batches in brackets.": decay**batch / base,
        "1 − decay is what an update forgets; ask what is kept.": (1 - decay) ** times,
        "the ratio of the batches need not be a whole number: don't round it.": decay ** (batch // base),
        "divided by the ratio, it forgets nearly everything in each update.": decay / times,
        "the root of the ratio? Ask how much of an old weight is left after as many images.": decay ** math.sqrt(times),
    }
    compare(got, decay**times, f"for {decay:g}, tuned at {base:,}, at {batch:,}", mistakes)


def _published(answer: Callable) -> None:
    _memory(answer, 0.9999, 65_536, 2_048)
    _memory(answer, 0.99, 256, 256)


def _any(answer: Callable) -> None:
    for decay, batch, base in ((0.99, 8_192, 256), (0.9, 64, 32), (0.9, 32, 64)):
        _memory(answer, decay, batch, base)


# within_budget


def _budget(answer: Callable, which: int) -> None:
    for work, weights in ((5.0, 2.0), (3.0, 2.0), (8.0, 1.0), (3.0, 4.0)):
        found = several(answer(work, weights), "width", "resolution", what="`within_budget`")
        got = number(found[which], ("the width", "the resolution")[which])
        width, side = math.sqrt(weights), math.sqrt(work / weights)
        mistakes = (
            {
                "a 1 × 1 convolution from C to C channels has C² weights: twice the width is four times the weights.": (
                    weights
                ),
                "the resolution changes no weight: the weights' budget alone sets the width.": math.sqrt(work),
                "that is the resolution: return the width first.": side,
            },
            {
                "twice the side is four times the pixels.": work / weights,
                "the width has used part of the multiply-adds already.": math.sqrt(work),
                "of the multiply-adds the width uses as many times as of the weights, not the square of that.": (
                    math.sqrt(work) / weights
                ),
                "the multiply-adds grow with the square of the width, as the weights do.": math.sqrt(work / width),
                "that is the width: return the width first.": width,
            },
        )[which]
        told = f"for {work:g} times the multiply-adds and {weights:g} times the weights the "
        compare(got, (width, side)[which], told + ("width", "resolution")[which], mistakes)


def _width(answer: Callable) -> None:
    _budget(answer, 0)


def _resolution(answer: Callable) -> None:
    _budget(answer, 1)


EXERCISES = Exercises(
    Exercise(
        "evaluated",
        Criterion("equal", "Equal shares", 0.2, _equal),
        Criterion("uneven", "Uneven shares", 0.25, _uneven),
        Criterion("filled", "Batches that are filled up, ranks without images", 0.3, _filled),
        Criterion("balanced", "The balanced accuracy", 0.25, _balanced),
    ),
    Exercise(
        "epoch_seconds",
        Criterion("serial", "Rank 0 evaluates", 0.25, _serial),
        Criterion("aside", "One rank evaluates beside the training", 0.5, _aside),
        Criterion("shared", "All ranks evaluate", 0.25, _shared),
    ),
    Exercise(
        "diagnoses",
        Criterion("mistakes", "The mistake in each report", 0.6, _mistakes),
        Criterion("accuracy", "The accuracy", 0.4, _accuracy),
    ),
    Exercise(
        "within_budget",
        Criterion("width", "The width", 0.5, _width),
        Criterion("resolution", "The resolution", 0.5, _resolution),
    ),
    Exercise(
        "same_memory",
        Criterion("published", "EfficientNet's average", 0.5, _published),
        Criterion("any", "Any decay", 0.5, _any),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
