"""Checks of notebook 2d: position in the data, what belongs to a checkpoint, torn files, lost time, elastic loops."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from course_lib.notebook.answers import array, case, compare, function, name_mistake, number, returned, shown, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong, described
from labs.lab2_horovod.lessons import failures, fault_injection

# examples_at

SIZE, BATCH, EXAMPLES = 3, 8, 100  # four steps make an epoch; four examples are left over
STEPS = EXAMPLES // (SIZE * BATCH)


def _epoch(answer: Callable, epoch: int) -> np.ndarray:
    """The numbers of the examples in an epoch, [step, rank, batch]."""
    found = np.zeros((STEPS, SIZE, BATCH), int)
    with case(f"{EXAMPLES} examples, {SIZE} ranks, batch {BATCH}, so {STEPS} steps in an epoch"):
        for within in range(STEPS):
            for rank in range(SIZE):
                step = epoch * STEPS + within
                told = f"`examples_at` for step {step}, rank {rank}"
                numbers = array(answer(step, rank, SIZE, BATCH, EXAMPLES), (BATCH,), told)
                if numbers.dtype.kind not in "iu" or numbers.min() < 0 or numbers.max() >= EXAMPLES:
                    raise Wrong(f"{told} returns {numbers[:3]} …; expected are integers from 0 to {EXAMPLES - 1}.")
                found[within, rank] = numbers
    return found


def _each_once(answer: Callable) -> None:
    for epoch in range(3):
        found = _epoch(answer, epoch)
        for within in range(STEPS):
            example, count = _most_common(found[within])
            if count > 1:
                step = epoch * STEPS + within
                raise Wrong(f"in step {step} example {example} is read {count} times: who takes which part?")
        example, count = _most_common(found)
        if count > 1:
            raise Wrong(f"epoch {epoch} (its {STEPS} steps) reads example {example} {count} times and others never.")


def _most_common(numbers: np.ndarray) -> tuple[int, int]:
    counts = np.bincount(numbers.ravel())
    return int(counts.argmax()), int(counts.max())


def _any_number_of_ranks(answer: Callable) -> None:
    together, examples = 24, 100
    for step in (0, 2, 5):
        read = {}
        for size in (1, 2, 4):
            told = f"step {step}, {size} ranks with a batch of {together // size}"
            with case(told):
                parts = [
                    array(answer(step, rank, size, together // size, examples), (together // size,))
                    for rank in range(size)
                ]
            read[told] = set(np.concatenate(parts).tolist())
        (_, wanted), *others = read.items()
        for told, found in others:
            if found != wanted:
                raise Wrong(
                    f"{told}: together they read {len(found - wanted)} examples that one rank with a batch of "
                    f"{together} doesn't. With other ranks it would be another training: cut each step, not the epoch."
                )


def _shuffled(answer: Callable) -> None:
    epochs = [_epoch(answer, epoch) for epoch in range(3)]
    if set(np.diff(np.sort(epochs[0][0].ravel()))) == {1}:
        raise Wrong("the first step reads neighbours: shuffle the examples.")
    if np.array_equal(epochs[0], epochs[1]) or np.array_equal(epochs[1], epochs[2]):
        raise Wrong("every epoch has the same order: which epoch is it in this step?")
    if len(_neighbours(epochs[0]) & _neighbours(epochs[1])) > STEPS * SIZE * BATCH // 2:
        raise Wrong("every epoch has the same order, begun at another place: shuffle anew in each epoch.")


def _neighbours(epoch: np.ndarray) -> set[tuple[int, int]]:
    """Which example is read after which, by the same rank in the same step."""
    return {(int(a), int(b)) for part in epoch.reshape(-1, BATCH) for a, b in zip(part, part[1:])}


def _from_the_step_alone(answer: Callable) -> None:
    _epoch(answer, 0)
    kept = np.random.get_state()
    try:
        np.random.seed(1)
        first = np.array(answer(9, 1, SIZE, BATCH, EXAMPLES))
        next_draw = np.random.random()
        for step in range(9):
            answer(step, 1, SIZE, BATCH, EXAMPLES)
        np.random.seed(2)
        again = np.array(answer(9, 1, SIZE, BATCH, EXAMPLES))
    finally:
        np.random.set_state(kept)
    if not np.array_equal(first, again):
        raise Wrong("asked twice for step 9 it gives different examples: seed the shuffle with the epoch only.")
    if next_draw != np.random.RandomState(1).random():
        raise Wrong("it changes NumPy's global generator, which others draw from: use a generator of your own.")


# Checkpoint


def _training(seed: int = 1, steps: int = 0) -> Any:
    import tensorflow as tf

    from labs.lab2_horovod.lessons.checkpoint import Alone, Training

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


def _stopped() -> Any:
    """A training after nine steps, at a place where no two of its numbers are the same."""
    training = _training(steps=9)
    training.step, training.waited = 11, 2
    training.best = 0.01  # never reached: when the rate falls next depends on `best` and on `waited`
    training.optimizer.learning_rate.assign(0.004)
    return training


def _state(training: Any) -> list[tuple[str, str, Any]]:
    """All that a step changes: kind, what it is called, its value."""
    iteration, *averages = [variable.numpy() for variable in training.optimizer.variables]
    rate = float(training.optimizer.learning_rate)
    return [
        ("weights", "the weights of the network", training.model.get_weights()),
        ("weights", "the optimizer's `iteration`", iteration),
        ("weights", "the optimizer's averages (`m` and `v` of each weight)", averages),
        ("rate", "`learning_rate`, which is none of `optimizer.variables`,", rate),
        ("rate", "`best`", training.best),
        ("rate", "`waited`", training.waited),
        ("place", "`step`", training.step),
        ("place", "the state of the generator `random`", training.random.bit_generator.state["state"]),
    ]


def _equal(one: Any, other: Any) -> bool:
    """To the last bit, also lists and dicts."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(_equal(a, b) for a, b in zip(one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    return np.array_equal(one, other)


def _resumed(answer: Any, stopped: Any) -> Any:
    """A fresh training that got the checkpoint of `stopped`, by way of a file."""
    state = returned(function(answer, "take")(stopped), "`take`")
    try:
        state = pickle.loads(pickle.dumps(state))
    except Exception as error:
        raise Wrong(f"what `take` returns can't be written to a file ({type(error).__name__}: {error}).") from None
    fresh = _training(seed=5)
    function(answer, "put_back")(fresh, state)
    return fresh


@contextlib.contextmanager
def _put_back_whole() -> Iterator[None]:
    """What a training raises in here comes from what `put_back` has left it with."""
    try:
        yield
    except Exception as error:
        raise Wrong(
            f"after `put_back` a training can't go on ({described(error)}): put back what `take` was given."
        ) from error


def _put_back(kind: str) -> Callable[[Any], None]:
    def judge(answer: Any) -> None:
        stopped = _stopped()
        fresh = _resumed(answer, stopped)
        with _put_back_whole():
            resumed = _state(fresh)
        for (part, name, wanted), (_, _, found) in zip(_state(stopped), resumed):
            if part == kind and not _equal(wanted, found):
                differs = "differs from the stopped one's"
                if isinstance(wanted, (int, float)):
                    differs = f"is {shown(found)} in place of {wanted:g}"
                raise Wrong(f"in a fresh training that gets the checkpoint, {name} {differs}.")

    return judge


def _a_copy(answer: Any) -> None:
    training = _stopped()
    before = _state(training)
    resumed = _resumed(answer, training)
    with _put_back_whole():
        in_a_file = _state(resumed)
    state = returned(answer.take(training), "`take`")
    with _put_back_whole():  # `take` may have changed it, too
        for _ in range(3):
            training.advance()
    answer.put_back(training, state)
    with _put_back_whole():
        after = _state(training)
    differing = [
        (_equal(wanted, kept), name)
        for (_, name, wanted), (_, _, kept), (_, _, found) in zip(before, in_a_file, after)
        if not _equal(wanted, found)
    ]
    if differing:
        saved, name = max(differing)
        why = "was a copy taken?" if saved else "it is not in the checkpoint, or not put back."
        raise Wrong(f"taken, then three more steps, then put back: {name} isn't what it was: {why}")


def _goes_on(answer: Any) -> None:
    straight = _stopped()
    fresh = _resumed(answer, straight)
    with _put_back_whole():
        for _ in range(9):
            straight.advance()
            fresh.advance()
    weights = zip(straight.model.get_weights(), fresh.model.get_weights())
    largest = max(float(np.abs(a - b).max()) for a, b in weights)
    if largest:
        raise Wrong(f"after nine more steps a weight differs by {largest:.1e} from the uninterrupted run.")


# Store


@contextlib.contextmanager
def _path() -> Iterator[Path]:
    """Where a checkpoint can be written, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "here.ckpt"


def _example(seed: int) -> dict:
    values = np.random.default_rng(seed).normal(size=30_000).astype(np.float32)
    return {"weights": [values, values[:10]], "step": seed, "best": 0.5, "name": "run", "random": {"state": 2**100}}


def _save(answer: Any, path: Path, state: dict) -> None:
    function(answer, "save")(path, state)
    if not path.is_file():
        files = sorted(os.listdir(path.parent))
        raise Wrong(f"after `save` there is no file {path.name}, but {', '.join(files) or 'none at all'}.")


def _round_trip(answer: Any) -> None:
    with _path() as path:
        for seed in (1, 2):
            _save(answer, path, _example(seed))
            files = sorted(os.listdir(path.parent))
            state = function(answer, "load")(path)
            if not _equal(state, _example(seed)):
                which = "the first state" if seed == 2 and _equal(state, _example(1)) else type(state).__name__
                raise Wrong(f"`load` returns {which}, not what `save` was given.")
        for name in files:
            if name != path.name:
                raise Wrong(f"`save` leaves {name} behind.")
        _loads_what_another_process_saved(answer, path)


def _loads_what_another_process_saved(answer: Any, path: Path) -> None:
    try:
        fault_injection.while_writing(answer.save, path, _example(3), limit=10**9)
        same = _equal(answer.load(path), _example(3))
    except (RuntimeError, ValueError):
        same = False
    if not same:
        raise Wrong("`load` refuses a file that another process saved: `hash` differs between processes; use hashlib.")


def _atomic(answer: Any) -> None:
    for share in (0.5, 0.02):
        with _path() as path, case(f"killed when {share:.0%} of the new checkpoint was written"):
            _save(answer, path, _example(1))
            limit = int(share * path.stat().st_size)
            try:
                fault_injection.while_writing(answer.save, path, _example(2), limit)
            except RuntimeError as error:
                raise Wrong(f"`save` fails: {error}") from error
            if not path.exists():
                raise Wrong("it leaves none at all: keep the old one until the new one is whole.")
            if path.stat().st_size <= limit:
                raise Wrong("it leaves a torn file and the old one is gone: write another file, then rename it.")
            if not _equal(function(answer, "load")(path), _example(1)):
                raise Wrong("it leaves something else than the old one.")
            if len(os.listdir(path.parent)) == 1:
                raise Wrong("the draft is in another folder: a rename is atomic within one file system only.")


def _whole_at_every_moment(answer: Any) -> None:
    """Look at the file after each call within `save`, in Python or in C."""
    seen: dict[bytes | None, str] = {}  # content → the call after which it was first there

    with _path() as path:

        def look(frame: Any, event: str, called: Any) -> None:
            if event in ("return", "c_return"):
                content = path.read_bytes() if path.exists() else None
                seen.setdefault(content, called.__name__ if event == "c_return" else frame.f_code.co_name)

        _save(answer, path, _example(1))
        old = path.read_bytes()
        before = sys.getprofile()
        sys.setprofile(look)
        try:
            _save(answer, path, _example(2))
        finally:
            sys.setprofile(before)
        new = path.read_bytes()
    for content, call in seen.items():
        if content is None:
            raise Wrong(
                f"after its `{call}` there is no {path.name} at all, neither the old one nor the new one: a crash at "
                "that moment loses both. Do not delete the old file before `os.replace`."
            )
        if content not in (old, new):
            raise Wrong(
                f"after its `{call}` {path.name} is torn: write another file, the draft, and rename it; a copy can be "
                "torn too."
            )


SYNCS = tuple(getattr(os, name) for name in ("fsync", "fdatasync", "sync") if hasattr(os, name))
WRITES_THROUGH = os.O_SYNC | os.O_DSYNC  # flags of os.open


def _on_the_disk(answer: Any) -> None:
    synced: list[tuple[str, bool, float]] = []  # call, whether the file had its name already, bytes given to the system
    opened = os.open

    with _path() as path:

        def look(_frame: Any, event: str, called: Any) -> None:
            if event == "c_call" and called in SYNCS:
                lengths = [entry.stat().st_size for entry in path.parent.iterdir()]
                synced.append((f"os.{called.__name__}", path.exists(), max(lengths, default=0)))

        def open_file(name: Any, flags: int, *rest: Any, **named: Any) -> int:
            if flags & WRITES_THROUGH:
                synced.append(("os.open", path.exists(), math.inf))
            return opened(name, flags, *rest, **named)

        before = sys.getprofile()
        with mock.patch("os.open", open_file):
            sys.setprofile(look)
            try:
                _save(answer, path, {"step": 1, "weights": [0.5] * 10})  # so short that it fits into Python's buffer
            finally:
                sys.setprofile(before)
        size = path.stat().st_size
    if not synced:
        raise Wrong(
            "the system was not asked to write to the disk: after a power failure the file may be empty (`os.fsync`)."
        )
    call, renamed, length = synced[0]
    if renamed:
        raise Wrong(f"when `{call}` is called, the file has its name already: sync the draft, before it is renamed.")
    if length < size:
        raise Wrong(f"when `{call}` is called a part is still in Python's buffer: flush first.")


def _refuses(answer: Any) -> None:
    with _path() as path:
        _save(answer, path, _example(1))
        whole = path.read_bytes()
        if len(whole) < 1000:
            raise Wrong(f"the file has {len(whole):,} bytes: that can't be all of the state.")
        middle = len(whole) // 2
        damaged = {f"cut to {n:,} bytes": whole[:n] for n in (middle, len(whole) - 1, 20, 0)}
        damaged["with one bit flipped in the middle"] = (
            whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        )
        for what, content in damaged.items():
            path.write_bytes(content)
            with case(what):
                _refused(answer, path)


def _refused(answer: Any, path: Path) -> None:
    try:
        function(answer, "load")(path)
    except (NotImplementedError, Wrong):
        raise
    except ValueError as error:
        if path.name not in str(error):
            raise Wrong(f"the sentence ({error}) doesn't name the file {path.name}.") from None
        if "\n" in str(error).strip():
            raise Wrong("one sentence is enough; it has several lines.") from None
    except Exception as error:
        raise Wrong(f"{type(error).__name__}: {error}. Notice it yourself and raise ValueError.") from None
    else:
        raise Wrong("`load` returns it as if nothing had happened.")


# lost_share


def _formula(answer: Callable) -> None:
    given = {"interval": 600.0, "write": 60.0, "restart": 240.0, "mtbf": 4e6, "ranks": 100}
    t, d, r, m, n = given.values()
    writing, failures_a_second = d / (t + d), n / m
    mistakes = {
        "on average a failure comes half-way between two checkpoints, not at the end.": (
            writing + (t + r) * failures_a_second
        ),
        "with N ranks failures come N times as often: one stops all.": writing + (t / 2 + r) / m,
        "more ranks fail more often, not less: N/M failures a second.": writing + (t / 2 + r) / (n * m),
        "the restart is missing: it is paid for at each failure.": writing + t / 2 * failures_a_second,
        "work that is done again is missing: half an interval at each failure.": writing + r * failures_a_second,
        "the writing is missing: δ of each T + δ seconds.": (t / 2 + r) * failures_a_second,
        "δ/T compares writing with work. For T = 10 s, δ = 30 s it would be 300 % of the time: of what is δ a share?": (
            d / t + (t / 2 + r) * failures_a_second
        ),
        "brackets: a failure costs the work *and* the restart, so both are multiplied by the failures in a second.": (
            writing + t / 2 + r * failures_a_second
        ),
        "brackets: `a / b + c` divides by b alone; it should be `a / (b + c)`.": (
            d / t + d + (t / 2 + r) * failures_a_second
        ),
        "brackets: `a / b / c` and `a / b * c` go from left to right.": writing + (t / 2 + r) / n * m,
        "the failures are counted in an interval, and `write / (interval + write)` is a share of each second: take the "
        "failures in a second.": writing + (t / 2 + r) * (t + d) * failures_a_second,
        "that is the share that is left for work: subtract it from 1.": 1 - writing - (t / 2 + r) * failures_a_second,
    }
    told = "for " + ", ".join(f"{name} = {value:,.0f}" for name, value in given.items()) + " the share"
    got, expected = number(answer(**given)), writing + (t / 2 + r) * failures_a_second
    name_mistake(got, expected, mistakes)
    # Who counts, say, half of the writing as lost with a failure, or failures while working only, is right as well.
    compare(got, expected, told, rtol=0.03)


def _least(answer: Callable) -> None:
    intervals = np.geomspace(10, 1e5, 200)
    with unchanged(intervals):
        found = array(answer(intervals, 20.0, 90.0, 4e6, 100), intervals.shape, "for 200 intervals at once it")
    best, young = intervals[np.argmin(found)], float(failures.young(20.0, 4e6, 100))
    if abs(math.log(best / young)) > 0.1:
        raise Wrong(
            f"it is least at T = {best:,.0f} s; it should be where the derivative is 0, at √(2δM/N) = {young:,.0f} s."
        )


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


HALF_A_STEP = -1  # in `done`: weights that nobody should go on with


def _calls(answer: Callable, state: _Elastic, steps: int, every: int, failing: tuple[int, ...] = ()) -> int:
    """How often the loop calls `advance`, run as by `hvd.elastic.run`; the calls with the numbers `failing` fail."""
    calls = 0

    def advance(given: _Elastic) -> None:
        nonlocal calls
        calls += 1
        if calls > 20 * steps:
            raise Wrong("the loop doesn't end: does `state.step` grow?")
        given.done.append(HALF_A_STEP if calls in failing else given.step)
        if calls in failing:
            raise _Lost

    for _ in range(len(failing) + 1):
        try:
            answer(state, advance, steps, every)
        except _Lost:
            state.restore()
            continue
        if HALF_A_STEP in state.done:
            raise Wrong("it catches what `advance` raises: let it pass, so that Horovod can restore the last commit.")
        return calls
    raise Wrong("it gives up at a failure.")


def _to_the_end(answer: Callable) -> None:
    for steps, every in ((20, 5), (23, 5), (4, 10)):
        state = _Elastic()
        calls = _calls(answer, state, steps, every)
        if calls != steps or state.step != steps:
            raise Wrong(f"asked for {steps} steps, it takes {calls}, and `state.step` is {state.step} at the end.")
        if state.done != list(range(steps)):
            raise Wrong(f"`state.step` should be 0, 1, 2, … as the steps are taken; it was {state.done[:3]} …")


def _commits(answer: Callable) -> None:
    state = _Elastic()
    _calls(answer, state, 20, 5)
    wanted = [5, 10, 15, 20]
    if state.commits in (wanted, [0, *wanted]):
        return
    if state.commits in (wanted[:-1], [0, *wanted[:-1]]):
        raise Wrong(
            "of 20 steps the last commit has 15: what comes after the loop would start from there after a failure. "
            "Commit after the step, not before the next one."
        )
    if not state.commits:
        raise Wrong("nothing is ever committed.")
    if len(state.commits) >= 20:
        raise Wrong("it commits after every step; asked for is every fifth: a commit copies the whole state.")
    first = state.commits[0]
    if first in (4, 9):
        raise Wrong(f"it commits at step {first}: count the step first, so that weights and `step` belong together.")
    raise Wrong(f"20 steps with a commit every 5: expected at {wanted}; it commits at {state.commits[:5]}.")


def _goes_on_from_commit(answer: Callable) -> None:
    calls = _calls(answer, _Elastic(step=10), 20, 5)
    if calls != 10:
        raise Wrong(f"called with `state.step` = 10 of 20 it takes {calls} steps: go on from `state.step`, not from 0.")
    for failing in ((8,), (3, 14), (1,)):
        state = _Elastic()
        calls = _calls(answer, state, 20, 5, failing)
        if state.done != list(range(20)):
            raise Wrong(
                f"after failures in calls {failing} of `advance` the weights hold the steps {state.done[:12]} …, not "
                "each once: commit when weights and `step` belong together."
            )
        if calls > 20 + 5 * len(failing):
            raise Wrong(f"{len(failing)} failures make it take {calls} steps for 20: more than one interval is lost.")


EXERCISES = Exercises(
    Exercise(
        "examples_at",
        Criterion("each-once", "Each example once in an epoch", 0.3, _each_once),
        Criterion("shuffled", "Another shuffle in each epoch", 0.2, _shuffled),
        Criterion("step-alone", "The step alone decides", 0.2, _from_the_step_alone),
        Criterion("any-ranks", "The same examples, however many ranks share them", 0.3, _any_number_of_ranks),
    ),
    Exercise(
        "Checkpoint",
        Criterion("weights", "Weights and optimizer", 0.3, _put_back("weights")),
        Criterion("learning-rate", "The learning rate and what decides on it", 0.2, _put_back("rate")),
        Criterion("position", "Position and random state", 0.2, _put_back("place")),
        Criterion("copy", "A copy", 0.15, _a_copy),
        Criterion("uninterrupted", "Equal to the uninterrupted run", 0.15, _goes_on),
    ),
    Exercise(
        "Store",
        Criterion("round-trip", "What is saved can be loaded", 0.2, _round_trip),
        Criterion("atomic", "Killed in the middle of writing", 0.2, _atomic),
        Criterion("every-moment", "Old or new at every moment", 0.2, _whole_at_every_moment),
        Criterion("on-disk", "On the disk before it is renamed", 0.1, _on_the_disk),
        Criterion("damaged", "A damaged file is refused", 0.3, _refuses),
    ),
    Exercise(
        "lost_share",
        Criterion("formula", "The formula", 0.7, _formula),
        Criterion("minimum", "Least where Young says", 0.3, _least),
    ),
    Exercise(
        "keep_going",
        Criterion("to-the-end", "To the end", 0.3, _to_the_end),
        Criterion("commits", "Commits", 0.3, _commits),
        Criterion("from-last-commit", "Goes on from the last commit", 0.4, _goes_on_from_commit),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
