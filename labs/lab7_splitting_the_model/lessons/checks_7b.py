"""Checks of notebook 7b: the work of a stage, the time of a step, a schedule, a plan, and how old weights are."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from course_lib.collectives import simulated
from course_lib.notebook.answers import (
    array,
    case,
    compare,
    items,
    name_mistake,
    number,
    returned,
    several,
    shown,
    whole,
)
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from course_lib.parallel import pipeline, schedules

# --- work

SIZES = (6, 5, 4, 5, 3)  # four dense layers
# stages, after which layers it is cut, images of each micro-batch, the table
CASES = (
    (1, (), (4, 4), schedules.gpipe),
    (2, (2,), (4, 3, 3), schedules.one_forward_one_backward),
    (2, (1,), (5, 1), schedules.gpipe),
    (3, (1, 3), (3, 3, 2, 2), schedules.one_forward_one_backward),
)


class _Wire:
    """As `pipeline.Wire`, between threads, and without waiting for what is never sent."""

    def __init__(self, me: simulated.Rank) -> None:
        self._me, self.early, self.waits = me, {}, ""

    def send(self, to: int, kind: str, micro: int, array: np.ndarray) -> None:
        self._neighbour("sends to", to)
        if kind not in ("F", "B"):
            raise Wrong(f'stage {self._me.rank} sends a message of the kind {kind!r}: there are "F" and "B".')
        self._me.send(np.array([kind == "B", micro], float), to)
        self._me.send(np.asarray(array), to)

    def receive(self, source: int, kind: str, micro: int) -> np.ndarray:
        self._neighbour("waits for", source)
        while (source, kind, micro) not in self.early:
            try:
                back, number = self._me.receive(source)
                self.early[source, "FB"[int(back)], int(number)] = self._me.receive(source)
            except simulated.DeadlockError:
                what = "the activations" if kind == "F" else "the gradient"
                self.waits = f"stage {self._me.rank} waits for {what} {kind}{micro} from stage {source}"
                raise
        return self.early.pop((source, kind, micro))

    def _neighbour(self, does: str, other: int) -> None:
        if other not in (self._me.rank - 1, self._me.rank + 1) or not 0 <= other < self._me.size:
            raise Wrong(
                f"stage {self._me.rank} of {self._me.size} {does} stage {other}: only neighbours are joined, and the "
                "ends have one."
            )


def _worked(work: Callable, chosen: tuple) -> tuple[list[pipeline.Stage], list[Any], int]:
    """The stages after the work of each, what each returned, and how many messages nobody asked for."""
    count, ends, sizes, make = chosen
    inputs, labels = _data(sizes)
    parts, table = pipeline.stages(_layers(), ends), make(count, len(sizes))
    wires: dict[int, _Wire] = {}

    def program(me: simulated.Rank, stage: pipeline.Stage) -> Any:
        wires[me.rank] = _Wire(me)
        with np.errstate(all="ignore"):
            return work(table[me.rank], stage, me.rank, count, wires[me.rank], list(inputs), list(labels))

    try:
        outcome = simulated.run(program, parts)
    except simulated.DeadlockError:
        waits = [wires[rank].waits for rank in sorted(wires) if wires[rank].waits]
        raise Wrong(f"{', and '.join(waits)}; nobody sends that.") from None
    return parts, outcome.results, outcome.unread + sum(len(wire.early) for wire in wires.values())


def _layers() -> pipeline.Layers:
    random = np.random.default_rng(3)
    return [(kernel, random.normal(0, 0.1, bias.shape)) for kernel, bias in pipeline.first_layers(SIZES, 3, np.float64)]


def _data(sizes: Sequence[int]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    random = np.random.default_rng(4)
    return [random.normal(size=(n, SIZES[0])) for n in sizes], [random.integers(SIZES[-1], size=n) for n in sizes]


def _serial(sizes: Sequence[int], weights: Sequence[float]) -> tuple[float, np.ndarray]:
    """Loss and gradients (in one vector) of the sum of the micro-batches' mean losses with these weights."""
    stage, loss = pipeline.Stage(_layers(), last=True), 0.0
    for weight, inputs, labels in zip(weights, *_data(sizes)):
        mean, slope = pipeline.cross_entropy(stage.forward(0, inputs), labels)
        stage.backward(0, weight * slope)
        loss += weight * mean
    return loss, _flat([stage])


def _flat(stages: Sequence[pipeline.Stage]) -> np.ndarray:
    parts = [part.ravel() for stage in stages for both in stage.gradients for part in both]
    return np.concatenate([np.zeros(0), *parts])


def _weighted_everywhere(chosen: tuple) -> np.ndarray:
    """The gradients if every stage multiplies by the share of the micro-batch, not only the last one."""
    count, ends, sizes, _ = chosen
    borders = np.cumsum([len(_flat([stage])) for stage in pipeline.stages(_layers(), ends)])[:-1]
    powers = [_serial(sizes, [(n / sum(sizes)) ** (count - stage) for n in sizes])[1] for stage in range(count)]
    return np.concatenate([np.split(slopes, borders)[stage] for stage, slopes in enumerate(powers)])


def _told(chosen: tuple) -> str:
    return f"{chosen[0]} stage{'s' * (chosen[0] > 1)}, micro-batches of {', '.join(map(str, chosen[2]))} images"


def _order(work: Callable) -> None:
    for chosen in CASES:
        with case(_told(chosen)):
            parts, _, unread = _worked(work, chosen)
            for number_, (stage, row) in enumerate(zip(parts, chosen[3](chosen[0], len(chosen[2])))):
                done = [(kind, micro) for kind, micro, *_ in stage.spans]
                if done != [tuple(task) for task in row]:
                    shows = [", ".join(map(schedules.name, tasks)) or "nothing" for tasks in (row, done)]
                    raise Wrong(f"stage {number_} has the row {shows[0]}; it does {shows[1]}.")
            if unread:
                raise Wrong(
                    "messages are sent that nobody receives: what does a stage send that its neighbour does not need?"
                )


def _gradients(work: Callable) -> None:
    for chosen in CASES:
        sizes = chosen[2]
        with case(_told(chosen)):
            parts, _, _ = _worked(work, chosen)
            found, total = _flat(parts), sum(sizes)
            wrong = {
                "the gradients are those of the sum of the micro-batches' mean losses; asked for are those of the mean "
                "loss of the whole batch. What does each mean count for?": _serial(sizes, [1.0] * len(sizes))[1],
                "every micro-batch counts the same; one with more images has to count for more.": _serial(
                    sizes, [1 / len(sizes)] * len(sizes)
                )[1],
                "the gradients are those of the sum over the images: asked for is the mean.": _serial(sizes, sizes)[1],
                "each mean loss is divided by the number of all images: multiply by those of the micro-batch.": _serial(
                    sizes, [1 / total] * len(sizes)
                )[1],
                "every stage multiplies by the share of the micro-batch. The gradient that comes from the next stage "
                "has that factor already.": _weighted_everywhere(chosen),
            }
            right = _serial(sizes, [n / total for n in sizes])[1]
            if found.shape != right.shape:
                raise Wrong("a stage has lost its `gradients`: only its `backward` is to change them.")
            name_mistake(found, right, wrong)
            if not np.allclose(found, right, rtol=1e-6, atol=1e-9):
                apart = float(np.abs(found - right).max())
                raise Wrong(
                    f"a gradient is off by {apart:.2g} from the serial one: which gradient starts the backward pass of "
                    "which micro-batch?"
                )


def _loss(work: Callable) -> None:
    for chosen in CASES:
        with case(_told(chosen)):
            sizes = chosen[2]
            _, results, _ = _worked(work, chosen)
            for stage, result in enumerate(results[:-1]):
                if number(result, f"stage {stage}") != 0:
                    raise Wrong(
                        f"stage {stage} returns {shown(result)}: only the last stage knows a loss; others return 0."
                    )
            right = _serial(sizes, [n / sum(sizes) for n in sizes])[0]
            compare(
                number(results[-1], "the last stage"),
                right,
                "the mean loss",
                {
                    "the loss is the sum of the micro-batches' means: asked for is the mean of all images.": _serial(
                        sizes, [1.0] * len(sizes)
                    )[0],
                    "the loss is the mean of the micro-batches' means, which counts small ones too much.": _serial(
                        sizes, [1 / len(sizes)] * len(sizes)
                    )[0],
                },
            )


# --- step_seconds

TIMES = (
    ([1.0, 1.0], [2.0, 2.0], 4),
    ([1.0, 1.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0], 1),
    ([2.0, 1.0, 3.0, 1.0], [4.0, 7.0, 5.0, 2.0], 5),
    ([0.5], [1.5], 3),
    ([1.0, 4.0, 2.0, 1.0, 1.0], [2.0, 2.0, 2.0, 2.0, 9.0], 8),
)


def _step(chosen: Sequence[tuple]) -> Callable[[Callable], None]:
    def judge(step_seconds: Callable) -> None:
        for forward, backward, micro in chosen:
            got = number(step_seconds(list(forward), list(backward), micro))
            stages, both = len(forward), np.add(forward, backward)
            run = schedules.run(schedules.gpipe(stages, micro), forward, backward)
            told = f"forward {forward}, backward {backward}, {micro} micro-batches: the step"
            mistakes = {
                "that is as if a micro-batch entered only when the one before has come back: they follow each other at "
                "the pace of the slowest stage.": micro * both.sum(),
                "that is as if every stage were as slow as the slowest: a micro-batch passes the fast stages fast.": (
                    micro + stages - 1
                )
                * (max(forward) + max(backward)),
                "with stages of different times the mean does not tell: the slowest sets the pace.": (
                    micro + stages - 1
                )
                * both.mean(),
                "the stage that is slowest forward need not be the one that is slowest backward: the two passes follow "
                "each other, each at its own pace.": both.sum() + (micro - 1) * both.max(),
                "the others queue at the slowest stage, which need not be the last one.": both.sum()
                + (micro - 1) * both[-1],
                "one micro-batch too many: while the first goes its whole way, it is the first of the m.": both.sum()
                + micro * (max(forward) + max(backward)),
                "the backward passes are missing.": sum(forward) + (micro - 1) * max(forward),
                "that is the time in which the slowest stage computes: it also waits, for the first micro-batch to "
                "arrive and for the last to leave.": micro * both.max(),
            }
            compare(got, run.seconds, told, {f"{told}: {why}": wrong for why, wrong in mistakes.items()})

    return judge


# --- schedule

SHAPES = ((4, 8), (2, 4), (3, 3), (5, 2), (1, 3), (8, 16), (4, 1))


def _tables(schedule: Callable) -> Any:
    for stages, micro in SHAPES:
        table = returned(schedule(stages, micro))
        with case(f"{stages} stages, {micro} micro-batches"):
            if not isinstance(table, (list, tuple)) or len(table) != stages:
                raise Wrong(f"it should return a list of {stages} rows, one for each stage.")
            yield stages, micro, [_row(row) for row in table]


def _row(row: Any) -> list[tuple[str, int]]:
    try:
        tasks = [several(task, "F or B", "a number") for task in items(row, "tasks are expected")]
        if all(isinstance(kind, str) for kind, _ in tasks):
            return [(kind, whole(micro)) for kind, micro in tasks]
    except Wrong:  # of what holds no tasks, or no pairs
        pass
    raise Wrong('a row is a list of tasks such as ("F", 0).')


def _follows(schedule: Callable) -> None:
    for stages, micro, rows in _tables(schedule):
        with case(f"{stages} stages, {micro} micro-batches"):
            try:
                schedules.check(rows, micro)
            except schedules.WrongSchedule as wrong:
                raise Wrong(str(wrong)) from None


def _fast(schedule: Callable) -> None:
    for stages, micro, rows in _tables(schedule):
        with case(f"{stages} stages, {micro} micro-batches"):
            for forward, backward in ((1.0, 2.0), (1.0, 1.0), (2.0, 3.0)):
                found = _run(rows, forward, backward).seconds
                best = (micro + stages - 1) * (forward + backward)
                if found > best * (1 + 1e-9):
                    alone = stages * micro * (forward + backward)
                    reason = (
                        "each micro-batch goes there and back alone: nobody works at the same time."
                        if stages > 1 and found >= alone - 1e-9
                        else "somewhere a stage waits that could begin another micro-batch."
                    )
                    raise Wrong(
                        f"a forward pass of {forward:g} and a backward pass of {backward:g}: the step takes {found:g}, "
                        f"GPipe's takes {best:g}: {reason}"
                    )


def _frugal(schedule: Callable) -> None:
    for stages, micro, rows in _tables(schedule):
        with case(f"{stages} stages, {micro} micro-batches"):
            _run(rows, 1.0, 2.0)
            for stage, held in enumerate(schedules.kept(rows)):
                if held > stages - stage:
                    every = " Those are all: which backward pass could come earlier?" if held == micro else ""
                    raise Wrong(
                        f"stage {stage} keeps {held} micro-batches at a time, and may keep {stages - stage}.{every}"
                    )


def _run(rows: schedules.Table, forward: float, backward: float) -> schedules.Run:
    try:
        return schedules.run(rows, forward, backward)
    except schedules.Deadlock as wrong:
        raise Wrong(str(wrong)) from None


# --- cuts

PLANS = (
    ([4, 1, 1, 1, 1, 4], 3),
    ([1, 2, 3, 4, 5, 6, 7, 8, 9], 3),
    ([5, 1, 1, 1, 1, 1, 1, 1], 2),
    ([2, 9, 2, 2, 2, 2, 2], 4),
    ([7, 3], 2),
    ([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4], 5),
    ([6, 1, 1], 3),
    ([5], 1),
)
PATIENCE_S = 1.0  # for a list of so many layers that trying all plans takes longer, and yet ends


def fastest(seconds: Sequence[float], stages: int) -> float:
    """The time of the slowest stage with the best cuts, by dynamic programming over the layers and the stages."""
    sums, layers = np.concatenate([[0.0], np.cumsum(seconds)]), len(seconds)
    best = sums  # of the first layers, with one stage; then with one more and one more
    for _ in range(stages - 1):
        best = np.array([min((max(best[c], sums[end] - sums[c]) for c in range(end)), default=np.inf)
                         for end in range(layers + 1)])  # fmt: skip
    return float(best[layers])


def slowest(seconds: Sequence[float], cuts: Sequence[int]) -> float:
    """The time of the slowest stage."""
    ends = [0, *cuts, len(seconds)]
    return float(max(sum(seconds[a:b]) for a, b in zip(ends, ends[1:])))


def _planned(cuts: Callable, seconds: Sequence[float], stages: int) -> list[int]:
    given = list(seconds)
    found = array(cuts(given, stages), (stages - 1,))
    if given != list(seconds):
        raise Wrong("the list of times is changed: work on a copy.")
    found = [whole(cut, "as a cut it") for cut in found]
    ends = [0, *found, len(seconds)]
    if sorted(set(ends)) != ends:
        raise Wrong(
            f"{found} are no cuts of {len(seconds)} layers into {stages} stages: they must rise from 1 to "
            f"{len(seconds) - 1}, each larger than the one before, so that every stage has a layer."
        )
    return found


def _greedy(seconds: Sequence[float], stages: int, over: bool) -> list[int]:
    """Fill each stage up to the mean; `over`: with the layer that exceeds it."""
    mean, cuts, held = sum(seconds) / stages, [], 0.0
    for layer, time_ in enumerate(seconds):
        room = len(cuts) < stages - 1 and layer > (cuts[-1] if cuts else 0)
        if room and (held >= mean if over else held + time_ > mean + 1e-9):
            cuts.append(layer)
            held = 0.0
        held += time_
    return cuts


def _valid(cuts: Callable) -> None:
    for seconds, stages in PLANS:
        with case(f"{seconds}, {stages} stage{'s' * (stages > 1)}"):
            _planned(cuts, seconds, stages)


def _optimal(cuts: Callable) -> None:
    for seconds, stages in PLANS:
        with case(f"{seconds}, {stages} stage{'s' * (stages > 1)}"):
            _compare_plans(seconds, stages, _planned(cuts, seconds, stages))


def _compare_plans(seconds: Sequence[float], stages: int, found: list[int]) -> None:
    best = fastest(seconds, stages)
    if slowest(seconds, found) <= best * (1 + 1e-9):
        return
    told = f"{found} make the slowest stage take {slowest(seconds, found):g}; {best:g} is possible"
    even = [round(len(seconds) * stage / stages) for stage in range(1, stages)]
    if found in (even, [len(seconds) * stage // stages for stage in range(1, stages)]):
        raise Wrong(f"{told}. Equally many layers are not equally much time.")
    if found in (_greedy(seconds, stages, True), _greedy(seconds, stages, False)):
        raise Wrong(f"{told}. Who fills one stage after the other up to the mean leaves the rest to the last.")
    raise Wrong(f"{told}.")


def _many_layers(cuts: Callable) -> None:
    random = np.random.default_rng(1)
    trial = random.integers(1, 20, 30).tolist()
    began = time.monotonic()
    found = _planned(cuts, trial, 8)
    if time.monotonic() - began > PATIENCE_S:
        raise Wrong(
            "30 layers in 8 stages took longer than a second. There are 1,560,780 plans, and 10¹⁶ of 100 layers in 15 "
            "stages: don't try them all, and answer no question twice."
        )
    _compare_plans(trial, 8, found)
    seconds = random.integers(1, 50, 100).tolist()
    with case("100 layers, 15 stages"):
        _compare_plans(seconds, 15, _planned(cuts, seconds, 15))


# --- delays


def counted_delay(stages: int, stage: int, *, ticks: bool) -> int:
    """Updates of a stage between a forward pass and the backward pass of the same batch, far from the start."""
    if ticks:
        row = [
            (kind, batch)
            for tick in range(6 * stages)
            for kind, batch in (("F", tick - stage), ("B", tick - 2 * (stages - 1) + stage))
            if batch >= 0
        ]
    else:
        row = schedules.one_forward_one_backward(stages, 5 * stages)[stage]
    batch = 3 * stages
    return sum(kind == "B" for kind, _ in row[row.index(("F", batch)) : row.index(("B", batch))])


def _delayed(place: int) -> Callable[[Callable], None]:
    told = ("in ticks", "one forward, one backward")

    def judge(delays: Callable) -> None:
        for stages in (1, 2, 3, 5, 8):
            found = array(several(delays(stages), *told)[place], (stages,), f"{told[place]}, {stages} stages: it")
            right = np.array([counted_delay(stages, stage, ticks=place == 0) for stage in range(stages)])
            s = np.arange(stages)
            mistakes = {
                "the first stage waits longest for the gradient to come back, and the last not at all: count from the "
                "other end.": right[::-1],
                "on the last stage the backward pass follows its forward pass with no update between them.": (
                    right + 2 - place
                ),
                "between its two passes a batch goes to the last stage and comes back, with an update in each tick."
                if place == 0 else
                "how many batches has a stage begun and not finished? Each task takes its time here, and there are no "
                "ticks to wait for.": (stages - 1 - s) * (1 if place == 0 else 2),
                "the stages are not equally far from the end.": np.full(stages, right[0]),
            }  # fmt: skip
            compare(
                found.astype(float),
                right.astype(float),
                f"{told[place]}, {stages} stages: the delays",
                {f"{told[place]}, {stages} stages: {why}": wrong.astype(float) for why, wrong in mistakes.items()},
            )

    return judge


EXERCISES = Exercises(
    Exercise(
        "work",
        Criterion("order", "Each task of the row, and no message too many", 0.3, _order),
        Criterion("gradients", "The gradients of the whole batch", 0.5, _gradients),
        Criterion("loss", "The loss of the whole batch", 0.2, _loss),
    ),
    Exercise(
        "step_seconds",
        Criterion("equal", "Equal stages", 0.4, _step(TIMES[:2])),
        Criterion("unequal", "Stages that differ", 0.6, _step(TIMES[2:])),
    ),
    Exercise(
        "schedule",
        Criterion("follows", "Every task once, in an order that works", 0.3, _follows),
        Criterion("fast", "As fast as GPipe", 0.3, _fast),
        Criterion("frugal", "Few micro-batches kept", 0.4, _frugal),
    ),
    Exercise(
        "cuts",
        Criterion("valid", "A plan", 0.2, _valid),
        Criterion("optimal", "The best plan", 0.5, _optimal),
        Criterion("many", "Also of many layers", 0.3, _many_layers),
    ),
    Exercise(
        "delays",
        Criterion("ticks", "In ticks", 0.5, _delayed(0)),
        Criterion("alternating", "One forward, one backward", 0.5, _delayed(1)),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
