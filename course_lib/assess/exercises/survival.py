"""Checks of notebook 2d: position in the data, what belongs to a checkpoint, torn files, lost time, elastic loops."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from course_lib import crash
from course_lib.assess.exercises import Exercise, Exercises, Part

# examples_at

SIZE, BATCH, EXAMPLES = 3, 8, 100  # four steps make an epoch; four examples are left over
STEPS = EXAMPLES // (SIZE * BATCH)


def _epoch(answer: Callable, epoch: int) -> tuple[np.ndarray | None, str]:
    """The numbers [step, rank, batch] of an epoch, or what is wrong with their form."""
    found = np.zeros((STEPS, SIZE, BATCH), int)
    for within in range(STEPS):
        for rank in range(SIZE):
            step = epoch * STEPS + within
            numbers = answer(step, rank, SIZE, BATCH, EXAMPLES)
            told = f"{EXAMPLES} examples, {SIZE} ranks, batch {BATCH}: in step {step} rank {rank} "
            if numbers is None or np.shape(numbers) != (BATCH,):
                got = "None" if numbers is None else f"shape {np.shape(numbers)}"
                return None, told + f"gets {got} where {BATCH} numbers are expected ({STEPS} steps make an epoch)."
            numbers = np.asarray(numbers)
            if numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= EXAMPLES:
                return None, told + f"gets {numbers[:3]} …; expected are whole numbers from 0 to {EXAMPLES - 1}."
            found[within, rank] = numbers
    return found, ""


def _each_once(answer: Callable) -> str:
    for epoch in range(3):
        found, reason = _epoch(answer, epoch)
        if found is None:
            return reason
        for step in range(STEPS):
            number, count = _most_common(found[step])
            if count > 1:
                return f"in step {epoch * STEPS + step} example {number} is read {count} times: who takes which part?"
        number, count = _most_common(found)
        if count > 1:
            return f"epoch {epoch} (its {STEPS} steps) reads example {number} {count} times and others never."
    return ""


def _most_common(numbers: np.ndarray) -> tuple[int, int]:
    counts = np.bincount(numbers.ravel())
    return int(counts.argmax()), int(counts.max())


def _shuffled(answer: Callable) -> str:
    epochs = []
    for epoch in range(3):
        found, reason = _epoch(answer, epoch)
        if found is None:
            return reason
        epochs.append(found)
    if set(np.diff(np.sort(epochs[0][0].ravel()))) == {1}:
        return "the first step reads neighbours: shuffle the examples."
    if np.array_equal(epochs[0], epochs[1]) or np.array_equal(epochs[1], epochs[2]):
        return "every epoch has the same order: its number must go into the shuffle."
    return ""


def _from_the_step_alone(answer: Callable) -> str:
    _, reason = _epoch(answer, 0)
    if reason:
        return reason
    before = np.random.get_state()
    np.random.seed(1)
    first = np.array(answer(9, 1, SIZE, BATCH, EXAMPLES))
    state = np.random.get_state()[1].copy()
    for step in range(9):
        answer(step, 1, SIZE, BATCH, EXAMPLES)
    np.random.seed(2)
    again = np.array(answer(9, 1, SIZE, BATCH, EXAMPLES))
    np.random.seed(1)
    touched = not np.array_equal(np.random.get_state()[1], state)
    np.random.set_state(before)
    if not np.array_equal(first, again):
        return "asked twice for step 9 it gives different examples: seed the shuffle with the epoch, nothing else."
    if touched:
        return "it changes NumPy's global generator, which others draw from: use a generator of your own."
    return ""


# Checkpoint


def _training(seed: int = 1, steps: int = 0) -> Any:
    import tensorflow as tf

    from course_lib.checkpoint import Alone, Training

    with contextlib.suppress(RuntimeError):  # the ranks need the GPUs, and all of their memory
        tf.config.set_visible_devices([], "GPU")
    random = np.random.default_rng(3)
    x = random.normal(size=(64, 6)).astype(np.float32)
    y = (x[:, 0] > 0) + (x[:, 1] > 0).astype(np.int64)

    def examples_at(step: int, rank: int, size: int, batch: int, examples: int) -> np.ndarray:
        return np.random.default_rng(step).choice(examples, batch, replace=False)

    training = Training(Alone(), examples_at, x, y, seed=seed, batch=8, hidden=4)
    for _ in range(steps):
        training.advance()
    return training


def _state(training: Any) -> Iterator[tuple[str, str, Any]]:
    """All that a step changes: kind, what it is called, its value."""
    yield "weights", "the weights of the network", training.model.get_weights()
    variables = [variable.numpy() for variable in training.optimizer.variables]
    yield "weights", "the optimizer's `iteration`", variables[0]
    yield "weights", "the optimizer's averages (`m` and `v` of each weight)", variables[1:]
    yield "rate", "`learning_rate`, which is none of `optimizer.variables`,", float(training.optimizer.learning_rate)
    yield "rate", "`best`", training.best
    yield "rate", "`waited`", training.waited
    yield "place", "`step`", training.step
    yield "place", "the state of the generator `random`", training.random.bit_generator.state["state"]


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return np.array_equal(one, other)


def _stopped() -> Any:
    """A training after nine steps, at a place where no two of its numbers are the same."""
    training = _training(steps=9)
    training.step, training.waited = 11, 2
    training.optimizer.learning_rate.assign(0.004)
    return training


def _take(answer: Any, training: Any) -> tuple[Any, str]:
    state = answer.take(training)
    if state is None:
        return None, "`take` returns None: return what `put_back` will need."
    try:
        return pickle.loads(pickle.dumps(state)), ""
    except Exception as error:
        return None, f"what `take` returns can't be written to a file ({type(error).__name__}: {error})."


def _put_back(kind: str) -> Callable[[Any], str]:
    def trial(answer: Any) -> str:
        stopped, fresh = _stopped(), _training(seed=5)
        state, reason = _take(answer, stopped)
        if reason:
            return reason
        answer.put_back(fresh, state)
        for (part, name, wanted), (_, _, found) in zip(_state(stopped), _state(fresh)):
            if part == kind and not _same(wanted, found):
                return f"in a fresh training that gets the checkpoint, {name} {_as_before(wanted, found)}."
        return ""

    return trial


def _as_before(wanted: Any, found: Any) -> str:
    if isinstance(wanted, (int, float)):
        return f"is {found:g} in place of {wanted:g}"
    return "differs from the stopped one's"


def _a_copy(answer: Any) -> str:
    training = _stopped()
    wanted = list(_state(training))
    state = answer.take(training)
    for _ in range(3):
        training.advance()
    answer.put_back(training, state)
    for (_, name, before), (_, _, found) in zip(wanted, _state(training)):
        if not _same(before, found):
            return f"taken, then three more steps, then put back: {name} isn't what it was. Was a copy taken?"
    return ""


def _goes_on(answer: Any) -> str:
    straight, fresh = _training(steps=9), _training(seed=5)
    state, reason = _take(answer, straight)
    if reason:
        return reason
    answer.put_back(fresh, state)
    for _ in range(9):
        straight.advance()
        fresh.advance()
    weights = zip(straight.model.get_weights(), fresh.model.get_weights())
    largest = max(float(np.abs(a - b).max()) for a, b in weights)
    return f"after nine more steps a weight differs by {largest:.1e} from the uninterrupted run." if largest else ""


# Store


def _example(number: int) -> dict:
    values = np.random.default_rng(number).normal(size=30_000).astype(np.float32)
    return {"weights": [values, values[:10]], "step": number, "best": 0.5, "name": "run", "random": {"state": 2**100}}


def _round_trip(answer: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "here.ckpt"
        for number in (1, 2):
            answer.save(path, _example(number))
            if not path.exists():
                return f"after `save` there is no file {path.name}, but {_names(folder) or 'none at all'}."
            state = answer.load(path)
            if not _same(state, _example(number)):
                which = "the first state" if number == 2 and _same(state, _example(1)) else type(state).__name__
                return f"`load` returns {which}, not what `save` was given."
        if left := [name for name in os.listdir(folder) if name != path.name]:
            return f"`save` leaves {left[0]} behind."
    return ""


def _names(folder: str) -> str:
    return ", ".join(sorted(os.listdir(folder)))


def _atomic(answer: Any) -> str:
    for share in (0.5, 0.02):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "here.ckpt"
            answer.save(path, _example(1))
            limit = int(share * path.stat().st_size)
            crash.while_writing(answer.save, path, _example(2), limit)
            told = f"killed when {share:.0%} of the new checkpoint was written, "
            if not path.exists():
                return told + "it leaves none at all: the old one goes only when the new one is whole."
            if path.stat().st_size <= limit:
                return told + "it leaves a torn file and the old one is gone: write another file, then rename it."
            if not _same(answer.load(path), _example(1)):
                return told + "it leaves something else than the old one."
            if len(os.listdir(folder)) == 1:
                return "the draft is in another folder: a rename is atomic within one file system only."
    return ""


def _on_the_disk(answer: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "here.ckpt"
        synced = []

        def fsync(file: int) -> None:
            synced.append((path.exists(), os.fstat(file.fileno() if hasattr(file, "fileno") else file).st_size))

        with mock.patch("os.fsync", fsync):
            answer.save(path, {"step": 1, "weights": [0.5] * 10})  # so short that it fits into Python's buffer
        if not synced:
            return "nobody asked the system to write: after a power failure the renamed file may be empty (`os.fsync`)."
        if synced[0][0]:
            return "`os.fsync` comes after the renaming; it must come before."
        if synced[0][1] < path.stat().st_size:
            return "when `os.fsync` is called a part is still in Python's buffer: flush first."
    return ""


def _refuses(answer: Any) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "here.ckpt"
        answer.save(path, _example(1))
        whole = path.read_bytes()
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        cases = {f"cut to {n:,} bytes": whole[:n] for n in (middle, len(whole) - 1, 20, 0)}
        for what, content in {**cases, "with one bit flipped in the middle": flipped}.items():
            path.write_bytes(content)
            try:
                answer.load(path)
            except ValueError as error:
                if path.name not in str(error):
                    return f"{what}: the sentence ({error}) doesn't name the file {path.name}."
                if "\n" in str(error).strip():
                    return f"{what}: one sentence is enough; it has several lines."
            except NotImplementedError:
                raise
            except Exception as error:
                return f"{what}: {type(error).__name__}: {error}. Notice it yourself and raise ValueError."
            else:
                return f"{what}: `load` returns it as if nothing had happened."
    return ""


# lost_share


def _lost(interval: float, write: float, restart: float, mtbf: float, ranks: int) -> float:
    return write / interval + (interval / 2 + restart) * ranks / mtbf


def _formula(answer: Callable) -> str:
    given = {"interval": 600.0, "write": 20.0, "restart": 90.0, "mtbf": 4e6, "ranks": 100}
    found, wanted = answer(**given), _lost(**given)
    if found is None or np.shape(found) != ():
        return f"it returns {found!r}; expected is one number."
    if math.isclose(found, wanted, rel_tol=1e-6):
        return ""
    t, d, r, m, n = given.values()
    for value, why in (
        (d / t + (t + r) * n / m, "on average a failure comes half-way between two checkpoints, not at the end."),
        (d / t + (t / 2 + r) / m, "with N ranks failures come N times as often: one stops all."),
        (d / t + (t / 2 + r) / (n * m), "more ranks fail more often, not less: N/M failures a second."),
        (d / t + t / 2 * n / m, "the restart is missing: it is paid for at each failure."),
        ((t / 2 + r) * n / m, "the writing is missing: δ in each interval."),
        (d * t + (t / 2 + r) * n / m, "in an interval T the writing takes δ: that is δ/T of the time."),
        (d / t + (t / 2 + r + d) * n / m, "δ is counted at each failure too."),
    ):
        if math.isclose(found, value, rel_tol=1e-6):
            return why
    return f"for {given} it returns {found:.4g}; expected is {wanted:.4g}."


def _least(answer: Callable) -> str:
    intervals = np.geomspace(10, 1e5, 200)
    found = answer(intervals, 20.0, 90.0, 4e6, 100)
    if np.shape(found) != intervals.shape:
        return f"for 200 intervals at once it returns {np.shape(found)} numbers: let NumPy do the arithmetic."
    best, young = intervals[np.argmin(found)], math.sqrt(2 * 20 * 4e6 / 100)
    if abs(math.log(best / young)) > 0.1:
        return f"it is least at T = {best:,.0f} s; it should be at Young's √(2δM/N) = {young:,.0f} s."
    return ""


# keep_going


class _Lost(Exception):
    """In place of Horovod's HorovodInternalError."""


class _Elastic:
    """A state whose `done` stands for the weights: which steps went into them."""

    def __init__(self, step: int = 0) -> None:
        self.step, self.done, self.commits = step, list(range(step)), []
        self.save()

    def save(self) -> None:
        self._kept = (self.step, list(self.done))

    def commit(self) -> None:
        self.commits.append(self.step)
        self.save()

    def restore(self) -> None:
        self.step, self.done = self._kept[0], list(self._kept[1])


def _loop(answer: Callable, state: _Elastic, steps: int, every: int, fails: tuple[int, ...] = ()) -> tuple[int, str]:
    """Run the loop as `hvd.elastic.run` would; `fails`: calls of `advance` that fail. Number of calls, or a reason."""
    calls = 0

    def advance(given: _Elastic) -> None:
        nonlocal calls
        calls += 1
        if calls > 20 * steps:
            raise RuntimeError("the loop doesn't end: does `state.step` grow?")
        if calls in fails:
            given.done.append(-1)  # half of a step: weights that nobody should go on with
            raise _Lost
        given.done.append(given.step)

    for _ in range(len(fails) + 1):
        try:
            answer(state, advance, steps, every)
        except _Lost:
            state.restore()
            continue
        if -1 in state.done:
            return calls, "it catches what `advance` raises: let it pass, so that Horovod can restore the last commit."
        return calls, ""
    return calls, "it gives up at a failure."


def _to_the_end(answer: Callable) -> str:
    for steps, every in ((20, 5), (23, 5), (4, 10)):
        state = _Elastic()
        calls, reason = _loop(answer, state, steps, every)
        if reason:
            return reason
        if calls != steps or state.step != steps:
            return f"asked for {steps} steps, it takes {calls}, and `state.step` is {state.step} at the end."
        if state.done != list(range(steps)):
            return f"`state.step` should be 0, 1, 2, … as the steps are taken; it was {state.done[:3]} …"
    return ""


def _commits(answer: Callable) -> str:
    state = _Elastic()
    _, reason = _loop(answer, state, 20, 5)
    if reason:
        return reason
    wanted = [5, 10, 15, 20]
    if state.commits in (wanted, wanted[:-1], [0, *wanted[:-1]], [0, *wanted]):
        return ""
    if not state.commits:
        return "nothing is ever committed."
    if len(state.commits) >= 20:
        return "it commits after every step; asked for is every fifth: a commit copies the whole state."
    if state.commits[0] in (4, 9):
        return (
            f"it commits at step {state.commits[0]}: count the step first, so that weights and `step` belong together."
        )
    return f"20 steps with a commit every 5: expected at {wanted}; it commits at {state.commits[:5]}."


def _again(answer: Callable) -> str:
    state = _Elastic(step=10)
    calls, reason = _loop(answer, state, 20, 5)
    if reason:
        return reason
    if calls != 10:
        return f"called with `state.step` = 10 of 20 it takes {calls} steps: go on from `state.step`, not from 0."
    for fails in ((8,), (3, 14), (1,)):
        state = _Elastic()
        calls, reason = _loop(answer, state, 20, 5, fails)
        if reason:
            return reason
        if state.done != list(range(20)):
            return (
                f"after failures in calls {fails} of `advance` the weights hold the steps {state.done[:12]} …, not "
                "each once: commit when weights and `step` belong together."
            )
        if calls > 20 + 5 * len(fails):
            return f"{len(fails)} failures make it take {calls} steps for 20: more than one interval is lost."
    return ""


EXERCISES = Exercises(
    Exercise(
        "examples_at",
        (
            Part("Each example once in an epoch", 0.4, _each_once),
            Part("Another shuffle in each epoch", 0.3, _shuffled),
            Part("The step alone decides", 0.3, _from_the_step_alone),
        ),
    ),
    Exercise(
        "Checkpoint",
        (
            Part("Weights and optimizer", 0.3, _put_back("weights")),
            Part("The learning rate and what decides on it", 0.2, _put_back("rate")),
            Part("Position and random state", 0.2, _put_back("place")),
            Part("A copy", 0.15, _a_copy),
            Part("Equal to the uninterrupted run", 0.15, _goes_on),
        ),
    ),
    Exercise(
        "Store",
        (
            Part("What is saved can be loaded", 0.2, _round_trip),
            Part("Killed in the middle of writing", 0.35, _atomic),
            Part("On the disk before it is renamed", 0.1, _on_the_disk),
            Part("A damaged file is refused", 0.35, _refuses),
        ),
    ),
    Exercise("lost_share", (Part("The formula", 0.7, _formula), Part("Least where Young says", 0.3, _least))),
    Exercise(
        "keep_going",
        (
            Part("To the end", 0.3, _to_the_end),
            Part("Commits", 0.3, _commits),
            Part("Goes on from the last commit", 0.4, _again),
        ),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
