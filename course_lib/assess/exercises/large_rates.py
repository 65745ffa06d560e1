"""Checks of notebook 3b: scaling rules, warm-up, LEGW, and the batch that grows in place of the rate's decay."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from course_lib.assess.exercises import Exercise, Exercises, Part

Wrong = Iterable[tuple[Any, str]]  # a wrong result, and the mistake that it comes from


def _differs(got: Any, right: Any, call: str, wrong: Wrong) -> str:
    """ "" where `got` is `right`; else a sentence, with the mistake among `wrong` that gives what was got."""
    if got is None:
        return f"{call} returns None: is there a `return`?"
    if _same(got, right):
        return ""
    for value, why in wrong:
        if _same(got, value):
            return f"{call} gives {_text(got)}: {why}"
    return f"{call} should be {_text(right)}; it gives {_text(got)}."


def _same(got: Any, right: Any) -> bool:
    if isinstance(right, (list, tuple)):
        try:
            return len(got) == len(right) and all(map(_same, got, right))
        except TypeError:
            return False
    try:
        return math.isclose(got, right, rel_tol=1e-6, abs_tol=1e-9)
    except TypeError:
        return False


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        ends = "[]" if isinstance(value, list) else "()"
        return ends[0] + ", ".join(map(_text, value)) + ends[1]
    try:
        return f"{float(value):.6g}"
    except (TypeError, ValueError):
        return repr(value)


# scaled_rate


def _scaled(answer: Callable, rule: str) -> str:
    power = {"linear": 1.0, "square root": 0.5}[rule]
    for eta, batch, base in ((0.1, 8192, 512), (0.25, 80, 32), (0.2, 16, 64), (0.3, 64, 64)):
        k = batch / base
        other = "square root" if rule == "linear" else "linear"
        wrong = [
            (eta * k ** (1.5 - power), f"that is the {other} rule."),
            (eta * k**-power, "it falls as the batch grows: B over the base, not the other way round."),
            (eta, "the batch size has no effect."),
            (eta * (batch // base) ** power, "B / base is no whole number here: divide with / in place of //."),
            (math.sqrt(eta * k), "the root is taken of η too."),
            (eta * batch**power, "what counts is how many times B is as large as the base, not B itself."),
        ]
        call = f'scaled_rate({eta}, batch={batch}, base={base}, rule="{rule}")'
        if reason := _differs(answer(eta, batch, base, rule), eta * k**power, call, wrong):
            return reason
    return ""


# warm_up


def _rate(step: int, eta: float, steps: int, start: float) -> float:
    done = min(1.0, step / steps) if steps else 1.0
    return (1 - done) * start + done * eta


def _ramp(answer: Callable, steps: Sequence[int]) -> str:
    """The rates of a warm-up over 4 updates from 0.2 to 1.0, at some updates."""
    eta, length, start = 1.0, 4, 0.2
    right = [_rate(step, eta, length, start) for step in steps]
    got = [answer(step, eta, length, start) for step in steps]
    if any(rate is None for rate in got):
        return "it returns None: is there a `return` for the updates after the warm-up, too?"
    if _same(got, right):
        return ""
    told = f"over {length} updates from {start} to {eta}, the updates {steps[0]} … {steps[-1]} get {_text(got)}: "
    rise = eta - start
    for wrong, why in (
        (lambda t: min(eta, start + rise * (t + 1) / length), "off by one: update 0 has `start`, update 4 has η."),
        (lambda t: min(eta, start + rise * t / (length - 1)), "off by one: η is reached by update 4, not by update 3."),
        (lambda t: min(eta, start + rise * t / (length + 1)), "off by one: η is reached by update 4, not later."),
        (lambda t: start + rise * t / length, "the rate goes on rising after the warm-up."),
        (lambda t: min(eta, eta * t / length), "it rises from 0; it should rise from `start`."),
        (lambda t: start + eta * min(t, length) / length, "it ends above η: only η − start is to be climbed."),
        (lambda t: start + eta * t / length if t < length else eta, "it climbs by η; only η − start is to be climbed."),
        (lambda t: start * (eta / start) ** min(1, t / length), "equal factors; the increments should be equal."),
        (lambda t: start if t < length else eta, "one jump; the increments should be equal."),
        (lambda t: eta, "there is no warm-up."),
        (lambda t: eta - rise * min(t, length) / length, "it falls."),
    ):
        if _same(got, [wrong(t) for t in steps]):
            return told + why
    return told + f"it should be {_text(right)}."


def _none_at_all(answer: Callable) -> str:
    return _differs(answer(0, 0.5, 0, 0.1), 0.5, "without any warm-up, warm_up(0, 0.5, steps=0, start=0.1)", ())


# legw


def _legw(answer: Callable) -> str:
    for eta, epochs, batch, base in ((0.1, 0.3125, 8192, 512), (0.2, 0.5, 96, 64)):
        k, root = batch / base, math.sqrt(batch / base)
        wrong = [
            ((eta * k, epochs * k), "the rate follows the square root, not the linear rule."),
            ((eta * root, epochs), "the warm-up grows with the batch, too."),
            ((eta * root, epochs * root), "the warm-up grows in proportion to the batch, not to its root."),
            ((eta * root, epochs / k), "the warm-up gets longer, not shorter: with fewer updates in an epoch it takes "
             "more epochs for as many updates."),
            ((eta * k, epochs * root), "the root belongs to the rate, the proportion to the warm-up."),
            ((epochs * k, eta * root), "the learning rate comes first."),
            ((eta, epochs * k), "the rate has to be scaled as well."),
        ]  # fmt: skip
        call = f"legw({eta}, {epochs}, batch={batch}, base={base})"
        if reason := _differs(answer(eta, epochs, batch, base), (eta * root, epochs * k), call, wrong):
            return reason
    return ""


# growth


def _stages(eta: float, batch: int, milestones: Sequence[int], factor: int, largest: int) -> list[tuple]:
    """Each milestone divides η / B by the factor; B takes of it what it can."""
    ratio, stages = eta / batch, [(0, batch, eta)]
    for epoch in milestones:
        ratio, batch = ratio / factor, min(largest, batch * factor)
        stages.append((epoch, batch, ratio * batch))
    return stages


def _grown(answer: Callable, eta: float, batch: int, milestones: Sequence[int], factor: int, largest: int) -> str:
    right = _stages(eta, batch, milestones, factor, largest)
    given = list(milestones)
    got = answer(eta, batch, milestones, factor, largest)
    call = f"growth({eta}, batch={batch}, milestones={given}, factor={factor}, largest={largest})"
    if list(milestones) != given:
        return "it changes the list of milestones that it was given."
    sizes = [min(largest, batch * factor**n) for n in range(len(right))]
    epochs = [epoch for epoch, _, _ in right]
    unbounded = [batch * factor**n for n in range(len(right))]
    kept = [eta] * len(right)
    full = [eta / factor ** sum(size > largest for size in unbounded[: n + 1]) for n in range(len(right))]
    wrong = [
        (right[1:], "the first stage, from epoch 0 on, is missing."),
        (right[:-1], "the stage after the last milestone is missing."),
        (list(zip(epochs, unbounded, kept)), f"the batch grows beyond `largest`, {largest}."),
        (list(zip(epochs, sizes, kept)), "where the batch cannot grow by the whole factor, the rest has to be taken "
         "from the learning rate: η / B falls by the factor at each milestone."),
        (list(zip(epochs, sizes, full)), "the learning rate falls by the whole factor, although the batch has grown "
         "by a part of it."),
        (list(zip(epochs, [batch] * 9, [eta / factor**n for n in range(9)])), "that is the decay: the rate falls, the "
         "batch stays."),
        (list(zip(epochs, sizes, [eta / factor**n for n in range(9)])), "the batch grows *and* the rate falls: the "
         "noise goes with η / B, and falls twice."),
        (list(zip(epochs, sizes, [eta * factor**n for n in range(9)])), "the rate grows with the batch: η / B, and the "
         "noise, stays what it was."),
        (list(zip(epochs, [min(largest, batch + batch * factor * n) for n in range(9)], kept)), "the batch is "
         "multiplied by the factor, not increased by it."),
    ]  # fmt: skip
    return _differs(got, right, call, wrong)


def _whole(answer: Callable) -> str:
    stages = answer(0.3, 48, [1, 4], 3, 200)
    if all(int(batch) == batch and not isinstance(batch, float) for _, batch, _ in stages):
        return ""
    return f"the batch sizes are {', '.join(str(batch) for _, batch, _ in stages)}; they should be whole numbers."


# updates


def _count(answer: Callable, stages: list[tuple], epochs: int, examples: int) -> str:
    spans = [end - stage[0] for stage, end in zip(stages, [stage[0] for stage in stages[1:]] + [epochs])]
    sizes = [batch for _, batch, _ in stages]
    each = [span * (examples // batch) for span, batch in zip(spans, sizes)]
    wrong = [
        (sum(each[:-1]), "the last stage, up to the end of training, is missing."),
        (sum(each[1:]), "the first stage is missing."),
        (sum(span * math.ceil(examples / batch) for span, batch in zip(spans, sizes)), "the batch at the end of an "
         "epoch that is not full is left out."),
        (sum(span * examples // batch for span, batch in zip(spans, sizes)), "each *epoch* drops what does not fill a "
         "batch, not each stage."),
        (sum(span * examples / batch for span, batch in zip(spans, sizes)), "an epoch makes whole updates only: what "
         "does not fill a batch is dropped."),
        (sum(examples // batch for batch in sizes), "that is one epoch of each stage."),
        (epochs * (examples // sizes[0]), "that is the first batch size all the way."),
        (sum(spans[n] * (examples // sizes[n + 1]) for n in range(len(sizes) - 1)), "each stage is counted with the "
         "batch of the next one."),
    ]  # fmt: skip
    told = f"updates({stages}, epochs={epochs}, examples={examples})"
    return _differs(answer(stages, epochs, examples), sum(each), told, wrong)


EXERCISES = Exercises(
    Exercise(
        "scaled_rate",
        (
            Part("The linear rule", 0.5, lambda answer: _scaled(answer, "linear")),
            Part("The square root rule", 0.5, lambda answer: _scaled(answer, "square root")),
        ),
    ),
    Exercise(
        "warm_up",
        (
            Part("During the warm-up", 0.6, lambda answer: _ramp(answer, [0, 1, 2, 3])),
            Part("From its end on", 0.3, lambda answer: _ramp(answer, [3, 4, 5, 50])),
            Part("No warm-up", 0.1, _none_at_all),
        ),
    ),
    Exercise("legw", (Part("Rate and epochs of warm-up", 1.0, _legw),)),
    Exercise(
        "growth",
        (
            Part("The batch grows, the rate stays", 0.5, lambda answer: _grown(answer, 0.1, 128, [60, 120], 5, 5000)),
            Part("A largest batch", 0.4, lambda answer: _grown(answer, 0.1, 128, [60, 120, 160, 180], 5, 10_000)),
            Part("Whole batches", 0.1, _whole),
        ),
    ),
    Exercise(
        "updates",
        (
            Part("Batches that fit", 0.5, lambda answer: _count(answer, [(0, 10, 0.1), (3, 50, 0.1)], 5, 1000)),
            Part("Batches that do not", 0.5, lambda answer: _count(answer, [(0, 64, 0.1), (2, 320, 0.1)], 5, 1000)),
        ),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
