"""Checks of notebook 4b: tensor fusion, the messages' times, and the slowest of N ranks."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from course_lib.cost import overlap
from course_lib.notebook import answers
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong

# fuse: all times are whole multiples of 1/8, so that no rounding decides which cycle catches a gradient.

CYCLE_S = 0.5
READY_S = np.array([3.25, 2.75, 2.75, 2.0, 1.125, 0.875, 0.75, 0.625])
NBYTES = np.array([400.0, 40.0, 40.0, 800.0, 16.0, 112.0, 480.0, 400.0])
THRESHOLD_BYTES = 1000.0


def _messages(
    answer: Callable,
    ready: np.ndarray = READY_S,
    nbytes: np.ndarray = NBYTES,
    threshold: float = THRESHOLD_BYTES,
    cycle: float = CYCLE_S,
) -> list[tuple[float, list[int]]]:
    ready, nbytes = ready.copy(), nbytes.copy()
    with answers.unchanged(ready, nbytes):
        result = answers.returned(answer(ready, nbytes, threshold, cycle))
    try:
        pairs = [answers.several(pair, "moment", "tensors") for pair in answers.items(result, "pairs are expected")]
        pairs = [(answers.number(moment), answers.items(tensors, "indices are expected")) for moment, tensors in pairs]
        messages = [(moment, [answers.whole(tensor) for tensor in tensors]) for moment, tensors in pairs]
    except Wrong:
        told = answers.shown(result)
        raise Wrong(f"it should return pairs (moment, list of indices); it returns {told}.") from None
    for tensor in (tensor for _, tensors in messages for tensor in tensors):
        if not 0 <= tensor < len(ready):
            raise Wrong(f"there is no tensor {tensor}: they are numbered from 0 to {len(ready) - 1}.")
    return messages


def _packed(ready: np.ndarray, nbytes: np.ndarray, threshold: float, cycle: float) -> list[list[int]]:
    """Which gradients travel together."""
    return [list(message.tensors) for message in overlap.step(ready, nbytes, np.zeros_like, threshold, cycle).messages]


def _with_gaps_filled(ready: np.ndarray, nbytes: np.ndarray, threshold: float, cycle: float) -> list[list[int]]:
    """Which would travel together if each went into the first message of its cycle with room for it."""
    messages: list[tuple[int, list[int]]] = []
    for tensor in np.argsort(ready, kind="stable").tolist():
        number = math.ceil(ready[tensor] / cycle)
        room = (
            held for other, held in messages if other == number and nbytes[held].sum() + nbytes[tensor] <= threshold
        )
        if (first := next(room, None)) is not None:
            first.append(tensor)
        else:
            messages.append((number, [tensor]))
    return [tensors for _, tensors in messages]


def _each_in_one_message(answer: Callable) -> None:
    messages, every = _messages(answer), range(len(READY_S))
    sent = sorted(tensor for _, tensors in messages for tensor in tensors)
    if missing := sorted(set(every) - set(sent)):
        raise Wrong(f"tensor {missing[0]} is in no message: {len(sent)} of {len(every)} are sent.")
    if sent != list(every):
        raise Wrong(f"the messages hold the tensors {sent}; each of 0 … {every[-1]} is to be in one.")
    if not all(tensors for _, tensors in messages):
        raise Wrong("one message holds no tensor: leave it out.")


def _in_order(answer: Callable) -> None:
    sent = [tensor for _, tensors in _messages(answer) for tensor in tensors]
    if sent == sorted(sent) and len(sent) > 1:
        raise Wrong("the tensors go in forward order, 0 first; the backward pass ends with it. Go by `ready`.")
    for before, after in zip(sent, sent[1:]):
        if READY_S[before] > READY_S[after]:
            raise Wrong(
                f"tensor {before}, ready at {READY_S[before]} s, goes before tensor {after}, ready at "
                f"{READY_S[after]} s."
            )
    packed = _packed(READY_S, NBYTES, THRESHOLD_BYTES, CYCLE_S)
    expected = [tensor for tensors in packed for tensor in tensors]
    if sent != expected and len(sent) == len(expected):
        raise Wrong(f"tensors that are ready at the same time keep the order of their indices: {expected}, not {sent}.")


def _with_the_next_cycle(answer: Callable) -> None:
    for cycle in (CYCLE_S, 2.0):
        messages = _messages(answer, cycle=cycle)
        for moment, tensors in messages:
            for tensor in tensors:
                ready = READY_S[tensor]
                due = math.ceil(ready / cycle) * cycle
                told = f"with a cycle of {cycle:g} s, tensor {tensor}, ready at {ready} s, leaves at {moment:g} s"
                if moment < ready:
                    raise Wrong(f"{told}: it is sent before it is ready.")
                if moment % cycle:
                    raise Wrong(f"{told}: messages leave when a cycle begins, at 0, {cycle:g}, {2 * cycle:g} … s.")
                if moment > due:
                    raise Wrong(f"{told}: the cycle at {due:g} s takes it; messages don't wait for later gradients.")
        moments = [moment for moment, _ in messages]
        if moments != sorted(moments):
            raise Wrong(f"the messages leave at {moments} s: list them in the order of time.")
    messages = _messages(answer, np.array([1.0, 0.5]), np.array([8.0, 8.0]), 100.0, 0.5)
    if sorted(moment for moment, _ in messages) != [0.5, 1.0]:
        raise Wrong(
            "a gradient that is ready just when a cycle begins goes with it: ready at 0.5 and 1 s, cycle 0.5 s."
        )


def _up_to_the_threshold(answer: Callable) -> None:
    together = np.array([0.25, 0.25, 0.25])
    for what, ready, nbytes, threshold, cycle in (
        ("", READY_S, NBYTES, THRESHOLD_BYTES, CYCLE_S),
        ("", READY_S, NBYTES, 300.0, 4.0),
        ("as many bytes as the threshold: ", together, np.array([600.0, 400.0, 8.0]), 1000.0, 0.5),
        ("one larger than the threshold: ", together, np.array([100.0, 5000.0, 100.0]), 1000.0, 0.5),
        ("threshold 0 switches fusion off: ", READY_S, NBYTES, 0.0, 4.0),
    ):
        with answers.case(
            f"{what}gradients of {', '.join(f'{size:g}' for size in nbytes)} bytes, threshold {threshold:g}"
        ):
            packed = [tensors for _, tensors in _messages(answer, ready, nbytes, threshold, cycle)]
            too_long = [nbytes[tensors].sum() for tensors in packed if len(tensors) > 1]
            too_long = [size for size in too_long if size > threshold]
            largest, fits = max(too_long, default=0), "Look whether a tensor still fits *before* it is added."
            mistakes = {
                f"a message has {largest:g}. The threshold counts bytes, not numbers.": _packed(
                    ready, nbytes / 4, threshold, cycle
                ),
                "all that a cycle finds is in one message; a message that is full must be closed.": _packed(
                    ready, nbytes, math.inf, cycle
                ),
                "as many bytes as the threshold are allowed: only what is *more* has to wait.": _packed(
                    ready, nbytes, threshold * (1 - 1e-9), cycle
                ),
                "a gradient goes into an earlier message that has room left. When one does not fit, its message is "
                "closed: the order stays that of `ready`.": _with_gaps_filled(ready, nbytes, threshold, cycle),
                "each travels alone. What a cycle finds goes together as long as it fits.": [
                    [tensor] for tensors in packed for tensor in tensors
                ],
                **({f"a message has {too_long[0]:g}. {fits}": packed} if too_long else {}),
            }
            answers.compare(packed, _packed(ready, nbytes, threshold, cycle), "the messages", mistakes)


# send

MESSAGES = [(1.0, [3, 2]), (1.0, [1]), (8.0, [0])]  # gradients of 16, 32, 8 and 8 bytes
STARTS_S, SECONDS = np.array([1.0, 3.0, 8.0]), np.array([2.0, 3.0, 2.0])


def _all_reduce(nbytes: float | np.ndarray) -> float | np.ndarray:
    """1 s and 1/16 s for each byte."""
    return 1 + np.asarray(nbytes) / 16


def _starts_and_ends(answer: Callable) -> tuple[np.ndarray, np.ndarray]:
    messages = [(moment, list(tensors)) for moment, tensors in MESSAGES]
    with answers.unchanged():
        try:
            result = answers.returned(answer(messages, np.array([16.0, 32.0, 8.0, 8.0]), _all_reduce))
        except ValueError as error:
            if "truth value" not in str(error):
                raise
            raise Wrong(
                "`all_reduce` is given a size for each gradient: a message is one all-reduce, of the sum of its bytes."
            ) from None
    try:
        pairs = [answers.several(pair, "start", "end") for pair in answers.items(result, "pairs are expected")]
        times = [(answers.number(start), answers.number(end)) for start, end in pairs]
    except Wrong:
        told = answers.shown(result)
        raise Wrong(f"it should return a pair (start, end) for each message; it returns {told}.") from None
    if len(times) != len(MESSAGES):
        raise Wrong(f"for {len(MESSAGES)} messages it returns {len(times)} pairs.")
    return tuple(np.transpose(times))


def _durations(answer: Callable) -> None:
    starts, ends = _starts_and_ends(answer)
    answers.compare(
        ends - starts,
        SECONDS,
        f"the durations of messages of {[16, 32, 16]} bytes",
        {
            "the second number is the message's duration; it should be its end.": SECONDS - starts,
            "each tensor pays its own latency: a message is one all-reduce, of the sum of its bytes.": [3.0, 3.0, 2.0],
            "the bytes of a message are those of its tensors, `nbytes[i]`; you count tensors.": [
                float(_all_reduce(len(tensors))) for _, tensors in MESSAGES
            ],
        },
    )


def _starts(answer: Callable) -> None:
    starts, _ = _starts_and_ends(answer)
    moments = [moment for moment, _ in MESSAGES]
    with answers.case(f"messages that may leave at 1, 1 and 8 s and take 2, 3 and 2 s start at {starts}"):
        if answers.same(starts, STARTS_S):
            return
        if answers.same(starts, np.array(moments)):
            raise Wrong("the second starts while the first is still on its way. One at a time.")
        if answers.same(starts, np.array([1.0, 4.0, 15.0])):
            raise Wrong("that adds the moment and the time at which the network is free: the later of the two counts.")
        for number, (start, moment) in enumerate(zip(starts, moments)):
            if start < moment:
                raise Wrong(f"number {number} starts before its moment, {moment:g} s: its gradients are not ready.")
            if number and start < STARTS_S[number - 1] + SECONDS[number - 1]:
                raise Wrong(f"number {number} starts before the one in front of it has ended.")
        raise Wrong(f"they could start at {STARTS_S}.")


# slowest

GRID_S = np.linspace(0, 40, 40_001)


def _exponential(t: np.ndarray) -> np.ndarray:
    return 1 - np.exp(-t)


def _uniform(t: np.ndarray) -> np.ndarray:
    return np.clip(t, 0, 2) / 2


def _expected_maximum(answer: Callable, distribution: Callable, times: np.ndarray, ranks: int) -> float:
    with answers.unchanged():
        result = answer(distribution(times), times.copy(), ranks)
    found = answers.plain(answers.returned(result))
    return answers.number(result if found is None else np.squeeze(found))


def _one_rank(answer: Callable) -> None:
    mean = _expected_maximum(answer, _uniform, GRID_S, 1)
    answers.compare(
        mean,
        1,
        "with a single rank and times between 0 and 2 s the mean",
        {
            "that is the integral of F. Who is still running at t? The mean is the integral of that probability.": 39,
            "that is twice the mean: between two times stands the mean of the two heights, not their sum.": 2,
        },
        rtol=2e-3,
    )


def _many_ranks(answer: Callable) -> None:
    for ranks in (2, 10, 500):
        harmonic = (1 / np.arange(1, ranks + 1)).sum()
        with answers.case(f"exponential times with mean 1, {ranks} ranks"):
            answers.compare(
                _expected_maximum(answer, _exponential, GRID_S, ranks),
                harmonic,
                f"the integral of 1 − Fᴺ, 1 + 1/2 + … + 1/{ranks},",
                {
                    "that is the mean of one rank: how likely is it that *all* are done by t?": 1,
                    "that is the mean of the quickest rank. All are done by t with probability Fᴺ.": 1 / ranks,
                    "that is N times the mean: the ranks work at the same time.": ranks,
                    "the width of the steps in `times` is missing.": harmonic / (GRID_S[1] - GRID_S[0]),
                },
                rtol=2e-3,
            )


def _any_grid(answer: Callable) -> None:
    """For uniform times the trapezoidal rule is exact on any grid, so this one may be coarse."""
    grid = np.concatenate([np.linspace(0, 1, 11), np.linspace(1, 2, 6)[1:], [3.0]])
    widths, running = np.diff(grid), 1 - _uniform(grid)
    with answers.case("one rank, uniform between 0 and 2 s, times that are not evenly spaced"):
        answers.compare(
            _expected_maximum(answer, _uniform, grid, 1),
            1,
            "the mean",
            {
                "a step is counted with the height at its left end; take the mean of both ends.": widths @ running[:-1],
                "a step is counted with the height at its right end; take the mean of both ends.": widths @ running[1:],
                "each step has its own width.": widths[0] * (running[1:] + running[:-1]).sum() / 2,
                "each step has its own width: the mean of all heights counts narrow steps too often.": (
                    grid[-1] * running.mean()
                ),
                "each step has its own width, not the mean one.": grid[-1] / len(widths) * running[1:].sum(),
            },
            rtol=2e-3,
        )
    grid = np.concatenate([np.linspace(0, 4, 2001), np.geomspace(4, 60, 500)[1:]])
    with answers.case("10 ranks, exponential times with mean 1, times that are not evenly spaced"):
        got, harmonic = _expected_maximum(answer, _exponential, grid, 10), (1 / np.arange(1, 11)).sum()
        answers.compare(got, harmonic, "the mean of the slowest", rtol=4e-3)


EXERCISES = Exercises(
    Exercise(
        "fuse",
        Criterion("each-in-one-message", "Every gradient in one message", 0.15, _each_in_one_message),
        Criterion("in-order", "In the order in which they become ready", 0.2, _in_order),
        Criterion("with-the-next-cycle", "With the next cycle, and no earlier", 0.3, _with_the_next_cycle),
        Criterion("up-to-the-threshold", "Up to the threshold", 0.35, _up_to_the_threshold),
    ),
    Exercise(
        "send",
        Criterion("durations", "How long a message takes", 0.4, _durations),
        Criterion("starts", "When it starts", 0.6, _starts),
    ),
    Exercise(
        "slowest",
        Criterion("one-rank", "One rank", 0.2, _one_rank),
        Criterion("many-ranks", "Many ranks", 0.6, _many_ranks),
        Criterion("any-grid", "Any grid of times", 0.2, _any_grid),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
