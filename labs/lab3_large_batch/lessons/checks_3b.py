"""Checks of notebook 3b: scaling rules, warm-up, LEGW, and the batch that grows in place of the rate's decay."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from course_lib.notebook.answers import case, compare, items, number, plain, returned, several
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong

# --- scaled_rate

POWERS = {  # what is kept → the power of k
    ("one update", "mean"): 0.0,
    ("one update", "covariance"): 0.5,
    ("same examples", "mean"): 1.0,
    ("same examples", "covariance"): 1.0,
}


def _keeps(compared: str, moment: str) -> Callable[[Callable], None]:
    power = POWERS[compared, moment]
    several_updates = compared == "same examples"
    of_power = {
        0.0: "that is the same rate for every batch. "
        + (
            "k small updates add up, and one large update has to go as far as all of them."
            if several_updates
            else "A mean over more examples is less noisy: with the same η the covariance η² C / B falls as k grows."
        ),
        0.5: "that grows as √k. "
        + (
            f"Over k small updates the {moment}s add up: k times that of one of them is what η′ has to reach."
            if several_updates
            else "The mean of a batch's gradient is G, whatever the batch: the mean of one update is −η G."
        ),
        1.0: "that grows as k. "
        + (
            "The mean of a batch's gradient is G, whatever the batch: the mean of one update is −η G."
            if moment == "mean"
            else "The covariance of one update is η² C / B: η enters it squared, B does not."
        ),
        2.0: "that grows as k². "
        + (
            "The mean of a batch's gradient does not grow with the batch."
            if moment == "mean"
            else "η enters the covariance squared: a root is still to be taken."
        ),
        0.25: "the root is taken twice: η² / B is to stay what it was.",
    }

    def judge(scaled_rate: Callable) -> None:
        for eta, batch, base in ((0.1, 8192, 512), (0.25, 80, 32), (0.2, 16, 64)):
            k = batch / base
            mistakes = {why: eta * k**other for other, why in of_power.items() if other != power}
            if power:
                mistakes |= {
                    "it falls as the batch grows: B over the base, not the other way round.": eta * k**-power,
                    "B / base is no whole number here: divide with / in place of //.": eta * (batch // base) ** power,
                    "the root is taken of η too.": math.sqrt(eta * k),
                    "what counts is how many times B is as large as the base, not B itself.": eta * batch**power,
                }
            with case(f"{compared}, {moment}, η = {eta}, B = {batch}, base {base}"):
                got = number(scaled_rate(eta, batch, base, (compared, moment)))
                compare(got, eta * k**power, "the rate", mistakes)

    return judge


# --- warm_up: over 4 updates from 0.2 to 1

ETA, STEPS, START = 1.0, 4, 0.2
RISE = ETA - START
MISTAKEN_RAMPS = {  # sentence → the rate of update t
    "off by one: update 0 has `start`, update 4 has η.": lambda t: min(ETA, START + RISE * (t + 1) / STEPS),
    "off by one: η is reached by update 4, not by update 3.": lambda t: min(ETA, START + RISE * t / (STEPS - 1)),
    "off by one: η is reached by update 4, not later.": lambda t: min(ETA, START + RISE * t / (STEPS + 1)),
    "the rate goes on rising after the warm-up.": lambda t: START + RISE * t / STEPS,
    "it rises from 0; it should rise from `start`.": lambda t: min(ETA, ETA * t / STEPS),
    "it rises from 0, and one update early: update 0 has `start`.": lambda t: min(ETA, ETA * (t + 1) / STEPS),
    "it ends above η: only η − start is to be climbed.": lambda t: START + ETA * min(t, STEPS) / STEPS,
    "it climbs by η; only η − start is to be climbed.": lambda t: START + ETA * t / STEPS if t < STEPS else ETA,
    "equal factors; the increments should be equal.": lambda t: START * (ETA / START) ** min(1, t / STEPS),
    "one jump; the increments should be equal.": lambda t: START if t < STEPS else ETA,
    "there is no warm-up.": lambda t: ETA,
    "it falls.": lambda t: ETA - RISE * min(t, STEPS) / STEPS,
}


def _ramp(warm_up: Callable, expected: dict[int, float]) -> None:
    """`expected`: number of the update → its rate."""
    got = [number(warm_up(t, ETA, STEPS, START), f"for update {t} it") for t in expected]
    mistakes = {why: [rate(t) for t in expected] for why, rate in MISTAKEN_RAMPS.items()}
    told = f"the list of rates for updates {', '.join(map(str, expected))}"
    with case(f"over {STEPS} updates from {START} to {ETA}"):
        compare(got, list(expected.values()), told, mistakes)


def _rises(warm_up: Callable) -> None:
    _ramp(warm_up, {0: 0.2, 1: 0.4, 2: 0.6, 3: 0.8})


def _stays(warm_up: Callable) -> None:
    _ramp(warm_up, {3: 0.8, 4: 1.0, 5: 1.0, 50: 1.0})


def _no_warm_up(warm_up: Callable) -> None:
    told = "without any warm-up, warm_up(0, 0.5, steps=0, start=0.1)"
    compare(number(warm_up(0, 0.5, 0, 0.1)), 0.5, told)


# --- legw


def _legw(legw: Callable) -> None:
    for eta, epochs, batch, base in ((0.1, 0.3125, 8192, 512), (0.2, 0.5, 96, 64)):
        k, root = batch / base, math.sqrt(batch / base)
        mistakes = {
            "the rate follows the square root, not the linear rule.": (eta * k, epochs * k),
            "the warm-up grows with the batch, too.": (eta * root, epochs),
            "the warm-up grows in proportion to the batch, not to its root.": (eta * root, epochs * root),
            "the warm-up gets longer, not shorter: with fewer updates in an epoch it takes more epochs for as many "
            "updates.": (eta * root, epochs / k),
            "the warm-up gets longer, in proportion to the batch: with fewer updates in an epoch it takes more epochs "
            "for as many updates.": (eta * root, epochs / root),
            "the root belongs to the rate, the proportion to the warm-up.": (eta * k, epochs * root),
            "the learning rate comes first.": (epochs * k, eta * root),
            "the rate has to be scaled as well.": (eta, epochs * k),
            "the epochs of warm-up may be a fraction; you round them.": (eta * root, round(epochs * k)),
        }
        with case(f"legw({eta}, {epochs}, batch={batch}, base={base})"):
            got = several(legw(eta, epochs, batch, base), "the learning rate", "the epochs of warm-up")
            compare(got, (eta * root, epochs * k), "the pair of rate and epochs", mistakes)


# --- growth


def _grows(growth: Callable, milestones: Sequence[int], largest: int) -> None:
    eta, batch, factor = 0.1, 128, 5
    given = list(milestones)
    got = returned(growth(eta, batch, given, factor, largest))
    if given != list(milestones):
        raise Wrong("it changes the list of milestones that it was given.")

    epochs, n = [0, *milestones], np.arange(len(milestones) + 1)
    unlimited = batch * factor**n
    sizes = np.minimum(unlimited, largest)
    waiting = np.maximum.accumulate(np.where(unlimited <= largest, unlimited, 0))
    constant, decayed = np.full(len(n), eta), eta / float(factor) ** n
    full = np.concatenate([[False], sizes[:-1] >= largest])  # where the batch cannot grow at all

    def stages(sizes: Sequence[int], rates: Sequence[float]) -> list[tuple[int, int, float]]:
        return list(zip(epochs, sizes, rates))

    expected = stages(sizes, eta * sizes / unlimited)
    mistakes = {
        "the first stage, from epoch 0 on, is missing.": expected[1:],
        "the stage after the last milestone is missing.": expected[:-1],
        f"the batch grows beyond `largest`, {largest}.": stages(unlimited, constant),
        "where the batch cannot grow by the whole factor, the rest has to be taken from the learning rate: η / B falls "
        "by the factor at each milestone.": stages(sizes, constant),
        "the learning rate falls by the whole factor, although the batch has grown by a part of it.": stages(
            sizes, eta / float(factor) ** np.cumsum(unlimited > largest)
        ),
        "at the milestone at which the batch grows by a part of the factor, the rest has to be taken from the rate.": (
            stages(sizes, eta / float(factor) ** np.cumsum(full))
        ),
        "that is the decay: the rate falls, the batch stays.": stages(np.full(len(n), batch), decayed),
        "the batch grows *and* the rate falls: the noise goes with η / B, and falls twice.": stages(sizes, decayed),
        "the batch waits until there is room for the whole factor: let it grow as far as `largest`, and take the rest "
        "from the rate.": stages(waiting, eta * waiting / unlimited),
        "the rate grows with the batch: η / B, and the noise, stays what it was.": stages(sizes, eta * factor**n),
        "where the batch cannot grow by the whole factor, the rate has to fall, not rise: η / B falls by the factor at "
        "each milestone.": stages(sizes, eta * unlimited / sizes),
        "the batch is multiplied by the factor, not increased by it.": stages(
            np.minimum(batch + batch * factor * n, largest), constant
        ),
    }
    with case(f"growth({eta}, batch={batch}, milestones={list(milestones)}, factor={factor}, largest={largest})"):
        compare(got, expected, "the list of stages", mistakes)


def _unlimited(growth: Callable) -> None:
    _grows(growth, (60, 120), largest=5000)


def _limited(growth: Callable) -> None:
    _grows(growth, (60, 120, 160, 180), largest=10_000)


def _whole_batches(growth: Callable) -> None:
    stages = items(growth(0.3, 48, [1, 4], 3, 200), "a list of stages is expected")
    parts = "an epoch", "a batch size", "a learning rate"
    sizes = [several(stage, *parts, what="as a stage it")[1] for stage in stages]
    for size in sizes:
        number(size, "as a batch size it")
    if any(plain(size).dtype.kind == "f" for size in sizes):
        raise Wrong(f"the batch sizes are {', '.join(map(str, sizes))}; they should be whole numbers.")


# --- updates


def _counts(updates: Callable, stages: list[tuple[int, int, float]]) -> None:
    epochs, examples = 5, 1000
    starts, sizes = [epoch for epoch, _, _ in stages], [batch for _, batch, _ in stages]
    spans = np.diff([*starts, epochs])
    each = [span * (examples // batch) for span, batch in zip(spans, sizes)]
    mistakes = {
        "the last stage, up to the end of training, is missing.": sum(each[:-1]),
        "the first stage is missing.": sum(each[1:]),
        "the batch at the end of an epoch that is not full is left out.": sum(
            span * math.ceil(examples / batch) for span, batch in zip(spans, sizes)
        ),
        "each *epoch* drops what does not fill a batch, not each stage.": sum(
            span * examples // batch for span, batch in zip(spans, sizes)
        ),
        "an epoch makes whole updates only: what does not fill a batch is dropped.": sum(
            span * examples / batch for span, batch in zip(spans, sizes)
        ),
        "that is one epoch of each stage.": sum(examples // batch for batch in sizes),
        "each stage is counted from the start of training: count from its own first epoch.": sum(
            end * (examples // batch) for end, batch in zip([*starts[1:], epochs], sizes)
        ),
        "that is the first batch size all the way.": epochs * (examples // sizes[0]),
        "each stage is counted with the batch of the next one.": sum(
            span * (examples // batch) for span, batch in zip(spans, sizes[1:])
        ),
    }
    with case(f"updates({stages}, epochs={epochs}, examples={examples})"):
        compare(number(updates(list(stages), epochs, examples)), sum(each), "the number", mistakes)


def _fitting(updates: Callable) -> None:
    _counts(updates, [(0, 10, 0.1), (3, 50, 0.1)])


def _not_fitting(updates: Callable) -> None:
    _counts(updates, [(0, 64, 0.1), (2, 320, 0.1)])


EXERCISES = Exercises(
    Exercise(
        "scaled_rate",
        *(
            Criterion(
                f"{compared} {moment}".replace(" ", "-"),
                f"{compared.capitalize()}: {moment}",
                0.25,
                _keeps(compared, moment),
            )
            for compared, moment in POWERS
        ),
    ),
    Exercise(
        "warm_up",
        Criterion("rises", "During the warm-up", 0.6, _rises),
        Criterion("stays", "From its end on", 0.3, _stays),
        Criterion("none", "No warm-up", 0.1, _no_warm_up),
    ),
    Exercise("legw", Criterion("legw", "Rate and epochs of warm-up", 1.0, _legw)),
    Exercise(
        "growth",
        Criterion("grows", "The batch grows, the rate stays", 0.5, _unlimited),
        Criterion("largest", "A largest batch", 0.4, _limited),
        Criterion("whole", "Whole batches", 0.1, _whole_batches),
    ),
    Exercise(
        "updates",
        Criterion("fitting", "Batches that fit", 0.5, _fitting),
        Criterion("not-fitting", "Batches that do not", 0.5, _not_fitting),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
