"""Checks of notebook 1c: three callbacks (epoch timer, throughput, time to target), and filter normalisation.

A callback is called as in runs on a clock that the check sets (see `simulated_fit`), so no answer depends on how busy
the machine is, and then joins one real `fit`, of which only the form of the result is judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np

from course_lib.notebook.answers import array, compare, returned, shown, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from labs.lab1_gradient_descent.lessons.simulated_fit import Epoch, Played, play, require_callback

# Pieces of unequal length: each mistake then gives another number.
RUN = (
    Epoch(0.25, (6.0, 1.0, 2.0, 1.5), 3.0),
    Epoch(0.5, (2.5, 1.25, 0.75, 3.5), 4.0),
    Epoch(0.125, (1.75, 2.0, 1.0, 0.5), 2.0),
)
IMAGES, BATCH_SIZE = 110, 32  # three full batches and one of 14
TARGET = 0.75

# What is wrong with a clock that is started or stopped at another moment (see `Played`) than the right one.
STARTS = {
    "epoch_begin": "the clock starts when the epoch begins",
    "train_begin": "the clock starts when training begins and is never set back",
    "first_begin": "the clock starts before the first batch",
    "first_end": "the clock starts when the first batch is done",
    "first_end_of_run": "the clock starts in the first epoch and is never set back",
    "test_begin": "the clock starts when the validation begins",
    "last_end": "the clock starts when the last batch is done",
    "zero": "the clock's reading itself is taken, not the difference of two readings",
}
ENDS = {
    "epoch_end": "it stops at the end of the epoch, so the validation is counted",
    "last_end": "it stops after the last training batch, so the validation is left out",
    "test_begin": "it stops when the validation begins",
    "test_end": "it stops when the validation ends",
    "first_end": "it stops after the first batch",
}

# What is wrong with another number of images in an epoch than those after the first batch.
COUNTS: dict[str, Callable[[Epoch], float]] = {
    "": lambda epoch: IMAGES - BATCH_SIZE,
    "the images of the first batch are counted": lambda epoch: IMAGES,
    "every batch counts as a full one, the first included: the last one is smaller": (
        lambda epoch: BATCH_SIZE * len(epoch.batches)
    ),
    "the last batch counts as a full one; it is smaller": lambda epoch: BATCH_SIZE * (len(epoch.batches) - 1),
    "one batch is counted, not all images that the epoch has seen": lambda epoch: BATCH_SIZE,
    "batches are counted, not images": lambda epoch: len(epoch.batches),
    "the batches after the first are counted, not their images": lambda epoch: len(epoch.batches) - 1,
}


def _numbers(callback: Any, name: str, epochs: int) -> list[float]:
    """The callback's list of this name, if it has a number for each epoch."""
    values = getattr(callback, name, None)
    if not isinstance(values, (list, tuple)):
        raise Wrong(f"`{name}` is {values!r}; it should be a list with one number for each epoch.")
    if len(values) != epochs:
        counted = f"{_count(len(values), 'number')} after {_count(epochs, 'epoch')}"
        raise Wrong(f"`{name}` has {counted}: append one in each.")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, Real):
            raise Wrong(f"`{name}` holds {value!r}, which is no number.")
    return list(values)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _durations(played: Played, start: str, end: str) -> list[float]:
    """The seconds between two moments in each epoch."""
    return [moments[end] - moments[start] for moments in played.epochs]


def _wrong_moments(start: str, end: str) -> Iterator[tuple[list[str], str, str]]:
    """(what is wrong, start, end) of all durations; those with the right start or end first."""
    for other_start in sorted(STARTS, key=lambda name: name != start):
        for other_end in sorted(ENDS, key=lambda name: name != end):
            wrong = [STARTS[other_start]] * (other_start != start) + [ENDS[other_end]] * (other_end != end)
            yield wrong, other_start, other_end


def _compare_durations(got: list[float], played: Played, start: str, end: str) -> None:
    played.clock.check_read()
    expected = _durations(played, start, end)
    told = f"got {shown(got)} s where {shown(expected)} s passed."
    mistakes = {
        f"{' and '.join(wrong)}: {told}": _durations(played, other_start, other_end)
        for wrong, other_start, other_end in _wrong_moments(start, end)
    }
    mistakes["the sign is wrong: subtract the earlier reading from the later one."] = [-seconds for seconds in expected]
    validation = _durations(played, "test_begin", "test_end")
    mistakes[f"the validation is subtracted: {told}"] = [all_of - part for all_of, part in zip(expected, validation)]
    if not any(got):
        raise Wrong(f"{told} All are 0: keep what you measure in an attribute of `self`, and append that.")
    if max(map(abs, got)) < 1e-2:
        raise Wrong(f"{told} Another clock was read: take `time.perf_counter()`.")
    compare(got, expected, "the seconds of the epochs", mistakes)


# ---- EpochTimer


def _seconds(epoch_timer: Callable[[], Any]) -> None:
    timer = epoch_timer()
    played = play(timer, RUN)
    _compare_durations(_numbers(timer, "seconds", len(RUN)), played, "epoch_begin", "epoch_end")


def _validation(epoch_timer: Callable[[], Any]) -> None:
    timer = epoch_timer()
    played = play(timer, RUN)
    _compare_durations(_numbers(timer, "validation", len(RUN)), played, "test_begin", "test_end")
    timer = epoch_timer()
    play(timer, [RUN[0], Epoch(1.0, (1.0, 2.0), None), RUN[2]])
    try:
        validation = _numbers(timer, "validation", 3)
    except Wrong as wrong:
        raise Wrong(f"where the second of three epochs has no validation, {wrong}") from None
    if validation[1] != 0:
        raise Wrong(
            f"an epoch without validation should add 0.0 to `validation`, not {validation[1]:.4g}: "
            "forget the epoch before when a new one begins."
        )


def _timer_fits(epoch_timer: Callable[[], Any]) -> None:
    timer = epoch_timer()
    _fit(timer)
    _check_positive(timer, "seconds")
    _check_positive(timer, "validation")


# ---- Throughput


def _throughput(run: Sequence[Epoch]) -> Callable[[Callable], None]:
    def judge(throughput: Callable[[int, int], Any]) -> None:
        meter = throughput(IMAGES, BATCH_SIZE)
        played = play(meter, run)
        got = _numbers(meter, "images_per_second", len(run))
        played.clock.check_read()
        seconds = _durations(played, "first_end", "last_end")
        expected = [(IMAGES - BATCH_SIZE) / duration for duration in seconds]
        told = f"got {shown(got)} images/s in place of {shown(expected)}."
        mistakes = {
            "these are seconds for an image: divide the images by the seconds.": [1 / speed for speed in expected]
        }
        for moments, start, end in _wrong_moments("first_end", "last_end"):
            durations = _durations(played, start, end)
            for miscounted, count in COUNTS.items() if all(durations) else ():
                speeds = [count(epoch) / duration for epoch, duration in zip(run, durations)]
                mistakes[f"{' and '.join([miscounted] * bool(miscounted) + moments)}: {told}"] = speeds
        case = f"{IMAGES - BATCH_SIZE} of the {IMAGES} images follow the first batch, in {shown(seconds)} s"
        compare(got, expected, f"{case}: `images_per_second`", mistakes)

    return judge


def _throughput_fits(throughput: Callable[[int, int], Any]) -> None:
    meter = throughput(20, 8)
    _fit(meter)
    _check_positive(meter, "images_per_second")


# ---- TimeToTarget


def _epochs_with(accuracies: Sequence[float], training: Sequence[float] = ()) -> list[Epoch]:
    """Epochs with these validation accuracies, and with these training accuracies or the same."""
    return [
        Epoch(
            0.25,
            (2.0, 1.0 + number),
            0.5,
            {"loss": 1 - trained, "accuracy": trained, "val_loss": 2.5 - accuracy, "val_accuracy": accuracy},
        )
        for number, (accuracy, trained) in enumerate(zip(accuracies, training or accuracies))
    ]


def _stops(time_to_target: Callable[[float], Any]) -> None:
    """Training ends with the first epoch whose validation accuracy is at the target."""
    for accuracies, training in (
        ((0.5, 0.6, 0.74, 0.8, 0.9, 0.95), (0.5, 0.8, 0.9, 1.0, 1.0, 1.0)),
        ((0.5, 0.7, 0.75, 0.8, 0.9, 0.95), ()),
    ):
        goal = time_to_target(TARGET)
        ran = len(play(goal, _epochs_with(accuracies, training)).epochs)
        last = next(number for number, accuracy in enumerate(accuracies, 1) if accuracy >= TARGET)
        if ran == last:
            continue
        if ran == len(accuracies):
            wrong = f"training went on to the end; epoch {last} should be the last."
            wrong += " `stop_training` belongs to `self.model`." * hasattr(goal, "stop_training")
        elif ran == 2 and training:
            wrong = "training stopped after epoch 2, where only the training accuracy was above the target."
        elif ran == last + 1 and accuracies[last - 1] == TARGET:
            wrong = f"epoch {last} reaches the target exactly, so training should stop there, not one later."
        elif ran == last + 1:
            wrong = f"training stopped one epoch late, after epoch {ran}: look at the metrics when an epoch ends."
        else:
            wrong = f"training stopped after epoch {ran}, below the target; it should after epoch {last}."
        raise Wrong(f"target {TARGET}, validation accuracies {', '.join(map(str, accuracies))}: {wrong}")


def _records(time_to_target: Callable[[float], Any]) -> None:
    """Seconds since training began, and the number of epochs, when the target is reached."""
    goal = time_to_target(TARGET)
    played = play(goal, _epochs_with((0.5, 0.7, 0.77, 0.8)))
    seconds, epochs = getattr(goal, "seconds", None), getattr(goal, "epochs", None)
    if seconds is None or epochs is None:
        raise Wrong(f"the target was reached, and `seconds` is {seconds!r}, `epochs` {epochs!r}: record both.")
    mistakes = {"`epochs` is 2, but three epochs were trained: Keras counts them 0, 1, 2.": 2}
    compare(epochs, 3, "the target was reached in the third epoch, so `epochs`", mistakes)
    played.clock.check_read()
    moments = played.epochs[:3][-1]
    end = moments["epoch_end"]
    mistakes = {
        f"the clock is set back in each epoch: {STARTS[start]}.": end - moments[start]
        for start in ("epoch_begin", "first_begin", "first_end", "test_begin")
    }
    mistakes["the clock starts when the first batch is done, not when training begins."] = (
        end - moments["first_end_of_run"]
    )
    mistakes[f"{STARTS['zero']}."] = end
    compare(seconds, end - moments["train_begin"], "`seconds` since training began", mistakes)


def _misses(time_to_target: Callable[[float], Any]) -> None:
    """A target out of reach, also in a second run with the same callback."""
    missed, reached = _epochs_with((0.3, 0.4, 0.5)), _epochs_with((0.5, 0.8))
    goal = time_to_target(TARGET)
    if len(play(goal, missed).epochs) < len(missed):
        raise Wrong("a target that is not reached should not stop training.")
    for name in ("seconds", "epochs"):
        if (value := getattr(goal, name, "missing")) is not None:
            raise Wrong(f"the target was not reached: `{name}` should be None, not {value!r}.")
    goal = time_to_target(TARGET)
    play(goal, reached)
    play(goal, missed)
    if goal.seconds is not None or goal.epochs is not None:
        raise Wrong("a second run that misses the target keeps the first's result: reset both in `on_train_begin`.")
    moments = play(goal, reached).epochs[-1]
    if goal.seconds is None:
        raise Wrong("a second run reaches the target, and `seconds` is still None.")
    if not math.isclose(goal.seconds, moments["epoch_end"] - moments["train_begin"]):
        raise Wrong("in a second run the clock was not started anew: start it in `on_train_begin`.")


def _target_fits(time_to_target: Callable[[float], Any]) -> None:
    easy, hard = time_to_target(0.0), time_to_target(1.1)
    if (epochs := _fit(easy)) != 1:
        raise Wrong(f"with target 0 a real `fit` should end after the first epoch, not after {epochs}.")
    if not isinstance(easy.seconds, Real) or not easy.seconds > 0:
        raise Wrong(f"after a real `fit` that reached its target, `seconds` is {easy.seconds!r}.")
    if (epochs := _fit(hard)) != 2 or hard.seconds is not None:
        told = f"with a target above 1 a real `fit` went on for {epochs} of 2 epochs, `seconds` is {hard.seconds!r}."
        raise Wrong(told)


# ---- a real run


def _check_positive(callback: Any, name: str) -> None:
    values = _numbers(callback, name, 2)
    if not all(0 < value < math.inf for value in values):
        raise Wrong(f"in a real `fit`, `{name}` is {values!r}.")


@lru_cache
def _network() -> Any:
    """One for all checks: TensorFlow complains of code that makes a new graph again and again."""
    from tensorflow import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, "softmax", kernel_initializer="ones")])
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _fit(callback: Any) -> int:
    """Two epochs of a tiny network, 20 images in batches of 8, with validation; return how many were run."""
    require_callback(callback)
    x, y = np.linspace(-1, 1, 40).reshape(20, 2), np.arange(20) % 2
    history = _network().fit(
        x, y, batch_size=8, epochs=2, validation_data=(x, y), validation_batch_size=20, verbose=0, callbacks=[callback]
    )
    return len(history.epoch)


# ---- filter_normalised

KERNEL, DENSE, SINGLE = (3, 3, 4, 5), (7, 3), (5,)


def _directions(answer: Callable) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """A direction, weights, and what the learner makes of them; a kernel, numbers of a batch norm, a dense layer."""
    rng = np.random.default_rng(4)
    shapes = (KERNEL, SINGLE, DENSE)
    direction = [rng.normal(size=shape) for shape in shapes]
    weights = [rng.normal(size=shape) * np.geomspace(0.1, 3, shape[-1]) for shape in shapes]
    with unchanged(*direction, *weights):
        made = returned(answer([d.copy() for d in direction], weights))
    if not isinstance(made, (list, tuple)) or len(made) != len(shapes):
        raise Wrong(f"return a list of {len(shapes)} arrays, one for each of the weights.")
    return direction, weights, [array(one, shape, "one of them") for one, shape in zip(made, shapes)]


def _lengths(a: np.ndarray, axes: tuple[int, ...] | None = None) -> np.ndarray:
    """The length of each filter; with `axes` over these, which stay as axes of size 1."""
    return np.sqrt(np.sum(a**2, axis=tuple(range(a.ndim - 1)) if axes is None else axes, keepdims=True))


def _as_long(place: int) -> Callable[[Callable], None]:
    """A judge of the filters of one of the arrays."""

    def judge(answer: Callable) -> None:
        directions, weights, made = _directions(answer)
        d, w, got = directions[place], weights[place], made[place]
        axes = tuple(range(d.ndim - 1))
        mistakes = {
            "nothing is rescaled.": d,
            "the whole array gets one length: do it for each filter.": d * np.linalg.norm(w) / np.linalg.norm(d),
            "each filter has length 1: it should be as long as the filter that it moves.": d / _lengths(d),
            "each filter is multiplied by the other's length; divide by its own first.": d * _lengths(w),
            "the quotient is upside down: long filters get short directions.": d * _lengths(d) / _lengths(w),
            "these are squares of lengths: take roots.": d * _lengths(w) ** 2 / _lengths(d) ** 2,
            "the lengths are taken over the last axis, which counts the filters: sum over all others.": (
                d * _lengths(w, (-1,)) / _lengths(d, (-1,))
            ),
            "the lengths are taken over the image's axes only: a filter has all its input channels.": (
                d * _lengths(w, (0, 1)) / _lengths(d, (0, 1)) if d.ndim > 2 else d
            ),
            "every single number gets the weight's size: a filter keeps its direction, only its length is set.": (
                np.sign(d) * np.abs(w)
            ),
            "that is the weights themselves: rescale the direction.": w,
            "each number is multiplied by its weight: a filter has one length, and one factor.": d * w,
            "standard deviations are no lengths: sum the squares themselves, without taking the mean off.": (
                d * np.std(w, axis=axes) / np.std(d, axis=axes)
            ),
            "that is a sum of absolute values: a length is the root of the sum of squares.": (
                d * np.sum(np.abs(w), axis=axes) / np.sum(np.abs(d), axis=axes)
            ),
        }
        with np.errstate(all="ignore"):
            compare(got, d * _lengths(w) / _lengths(d), "the rescaled direction", mistakes)

    return judge


def _stay(answer: Callable) -> None:
    _, _, made = _directions(answer)
    if np.any(made[1]):
        raise Wrong("an array with one axis moves: biases and batch norm's numbers should get zeros.")


EXERCISES = Exercises(
    Exercise(
        "EpochTimer",
        Criterion("seconds", "Seconds of each epoch", 0.5, _seconds),
        Criterion("validation", "Of these, the validation", 0.25, _validation),
        Criterion("timer-in-a-fit", "In a real fit", 0.25, _timer_fits),
    ),
    Exercise(
        "Throughput",
        Criterion("one-epoch", "Images a second in one epoch", 0.5, _throughput(RUN[:1])),
        Criterion("each-epoch", "Anew in each epoch", 0.25, _throughput(RUN)),
        Criterion("throughput-in-a-fit", "In a real fit", 0.25, _throughput_fits),
    ),
    Exercise(
        "TimeToTarget",
        Criterion("stops", "Stops at the target, not before, not later", 0.35, _stops),
        Criterion("records", "Records seconds and epochs", 0.35, _records),
        Criterion("misses", "A target that is not reached, a second run", 0.2, _misses),
        Criterion("target-in-a-fit", "In a real fit", 0.1, _target_fits),
    ),
    Exercise(
        "filter_normalised",
        Criterion("kernel", "Filters of a convolution", 0.5, _as_long(0)),
        Criterion("dense", "Columns of a dense layer", 0.25, _as_long(2)),
        Criterion("single", "Biases and batch norm stay", 0.25, _stay),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
