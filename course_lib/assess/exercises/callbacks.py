"""Checks of the callbacks that a learner writes in lab 1c: epoch timer, throughput, time to target.

Each is played through runs on a clock of our own (see `rehearsal`), so no answer depends on how busy the machine is,
and then joins one real `fit`, of which only the form of the result is judged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from numbers import Real
from typing import Any

import numpy as np

from course_lib.assess.exercises import Exercise, Exercises, Part
from course_lib.assess.exercises.rehearsal import Epoch, Played, play

# Pieces of unequal length: each mistake then gives another number.
RUN = (
    Epoch(0.25, (6.0, 1.0, 2.0, 1.5), 3.0),
    Epoch(0.5, (2.5, 1.25, 0.75, 3.5), 4.0),
    Epoch(0.125, (1.75, 2.0, 1.0, 0.5), 2.0),
)
IMAGES, BATCH = 110, 32  # three full batches and one of 14

_STARTS = {
    "epoch_begin": "the clock starts when the epoch begins",
    "train_begin": "the clock starts when training begins and is never set back",
    "first_begin": "the clock starts before the first batch",
    "first_end": "the clock starts when the first batch is done",
    "first_epoch": "the clock starts in the first epoch and is never set back",
    "test_begin": "the clock starts when the validation begins",
    "last_end": "the clock starts when the last batch is done",
    "zero": "the clock's reading itself is taken, not the difference of two readings",
}
_ENDS = {
    "epoch_end": "it stops at the end of the epoch, so the validation is counted",
    "last_end": "it stops after the last training batch, so the validation is left out",
    "test_begin": "it stops when the validation begins",
    "test_end": "it stops when the validation ends",
    "first_end": "it stops after the first batch",
}


def _moments(played: Played, epoch: int) -> dict[str, float]:
    first = played.epochs[0]
    return {**played.epochs[epoch], "train_begin": played.train_begin, "first_epoch": first["first_end"], "zero": 0.0}


def _numbers(callback: Any, name: str, epochs: int) -> str:
    """What is wrong with the form of a list that should have a number for each epoch."""
    values = getattr(callback, name, None)
    if not isinstance(values, (list, tuple)):
        return f"`{name}` is {values!r}; it should be a list with one number for each epoch."
    if len(values) != epochs:
        return f"`{name}` has {_count(len(values), 'number')} after {_count(epochs, 'epoch')}: append one in each."
    wrong = [value for value in values if isinstance(value, bool) or not isinstance(value, Real)]
    return f"`{name}` holds {wrong[0]!r}, which is no number." if wrong else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _close(values: Sequence[float], expected: Sequence[float]) -> bool:
    return all(math.isclose(value, other, rel_tol=1e-6) for value, other in zip(values, expected))


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _between(values: Sequence[float], played: Played, start: str, end: str) -> str:
    """Why `values` are not the seconds from `start` to `end` in each epoch; "" if they are."""
    moments = [_moments(played, epoch) for epoch in range(len(played.epochs))]
    expected = [at[end] - at[start] for at in moments]
    if _close(values, expected):
        return ""
    if complaint := played.clock.complaint():
        return complaint
    for other_start in sorted(_STARTS, key=lambda name: name != start):
        for other_end in sorted(_ENDS, key=lambda name: name != end):
            if _close(values, [at[other_end] - at[other_start] for at in moments]):
                wrong = [_STARTS[other_start]] * (other_start != start) + [_ENDS[other_end]] * (other_end != end)
                return " and ".join(wrong) + f": got {_list(values)} s where {_list(expected)} s passed."
    if _close(values, [-seconds for seconds in expected]):
        return "the sign is wrong: subtract the earlier reading from the later one."
    return f"got {_list(values)} s where {_list(expected)} s passed."


# ---- EpochTimer


def _epoch_seconds(answer: Callable[[], Any]) -> str:
    callback = answer()
    played = play(callback, RUN)
    return _numbers(callback, "seconds", len(RUN)) or _between(callback.seconds, played, "epoch_begin", "epoch_end")


def _validation_seconds(answer: Callable[[], Any]) -> str:
    callback = answer()
    played = play(callback, RUN)
    reason = _numbers(callback, "validation", len(RUN))
    reason = reason or _between(callback.validation, played, "test_begin", "test_end")
    if reason:
        return reason
    callback = answer()
    play(callback, [RUN[0], Epoch(1.0, (1.0, 2.0), None), RUN[2]])
    reason = _numbers(callback, "validation", 3)
    if reason:
        return f"where the second of three epochs has no validation, {reason}"
    if callback.validation[1] != 0:
        return (
            f"an epoch without validation should add 0.0 to `validation`, not {callback.validation[1]:.4g}: "
            "forget the epoch before when a new one begins."
        )
    return ""


def _timer_fits(answer: Callable[[], Any]) -> str:
    callback = answer()
    _fit(callback)
    for name in ("seconds", "validation"):
        if reason := _numbers(callback, name, 2) or _positive(callback, name):
            return reason
    return ""


# ---- Throughput

_COUNTS: Mapping[str, tuple[Callable[[Epoch], float], str]] = {
    "right": (lambda epoch: IMAGES - BATCH, ""),
    "all": (lambda epoch: IMAGES, "the images of the first batch are counted"),
    "full": (
        lambda epoch: BATCH * len(epoch.batches),
        "every batch counts as a full one, the first included: the last one is smaller",
    ),
    "full but first": (
        lambda epoch: BATCH * (len(epoch.batches) - 1),
        "the last batch counts as a full one; it is smaller",
    ),
    "batch": (lambda epoch: BATCH, "one batch is counted, not all images that the epoch has seen"),
    "batches": (lambda epoch: len(epoch.batches), "batches are counted, not images"),
    "batches but first": (lambda epoch: len(epoch.batches) - 1, "batches are counted, not images"),
}


def _speeds(answer: Callable[[int, int], Any], run: Sequence[Epoch] = RUN) -> tuple[str, list[float], Played | None]:
    callback = answer(IMAGES, BATCH)
    played = play(callback, run)
    reason = _numbers(callback, "images_per_second", len(run))
    return reason, [] if reason else list(callback.images_per_second), played


def _throughput_measured(answer: Callable[[int, int], Any]) -> str:
    """The first epoch alone: what is counted, and between which moments."""
    reason, values, played = _speeds(answer, RUN[:1])
    return reason or _why_speed(values, played, RUN[:1])


def _throughput_anew(answer: Callable[[int, int], Any]) -> str:
    reason, values, played = _speeds(answer)
    return reason or _why_speed(values, played, RUN)


def _why_speed(values: Sequence[float], played: Played, run: Sequence[Epoch]) -> str:
    moments = [_moments(played, epoch) for epoch in range(len(run))]
    expected = [(IMAGES - BATCH) / (at["last_end"] - at["first_end"]) for at in moments]
    if _close(values, expected):
        return ""
    if complaint := played.clock.complaint():
        return complaint
    if any(value == 0 for value in values):
        return "no images a second?"
    if _close([1 / value for value in values], expected):
        return "these are seconds for an image: divide the images by the seconds."
    for start in sorted(_STARTS, key=lambda name: name != "first_end"):
        for end in sorted(_ENDS, key=lambda name: name != "last_end"):
            seconds = [at[end] - at[start] for at in moments]
            if 0 in seconds:
                continue
            for name, (count, counted) in _COUNTS.items():
                if _close(values, [count(epoch) / taken for epoch, taken in zip(run, seconds)]):
                    wrong = [counted] * (name != "right")
                    wrong += [_STARTS[start]] * (start != "first_end") + [_ENDS[end]] * (end != "last_end")
                    return " and ".join(wrong) + f": got {_list(values)} images/s in place of {_list(expected)}."
    return (
        f"{IMAGES} images in batches of {BATCH}; the batches end after {_ends(played)} s: that makes "
        f"{IMAGES - BATCH} images in {moments[0]['last_end'] - moments[0]['first_end']:.4g} s, "
        f"{_list(expected)} images/s, not {_list(values)}."
    )


def _ends(played: Played) -> str:
    begin, ends = played.epochs[0]["first_begin"] - played.train_begin, []
    for seconds in RUN[0].batches:
        begin += seconds
        ends.append(begin)
    return _list(ends)


def _throughput_fits(answer: Callable[[int, int], Any]) -> str:
    callback = answer(20, 8)
    _fit(callback)
    return _numbers(callback, "images_per_second", 2) or _positive(callback, "images_per_second")


# ---- TimeToTarget


def _climb(*accuracies: float, of: Sequence[float] = ()) -> list[Epoch]:
    """Epochs with these validation accuracies; training accuracies `of`, by default the same."""
    return [
        Epoch(0.25, (2.0, 1.0 + number), 0.5, _logs(accuracy, of[number] if of else accuracy))
        for number, accuracy in enumerate(accuracies)
    ]


def _logs(accuracy: float, training: float) -> dict[str, float]:
    return {"loss": 1 - training, "accuracy": training, "val_loss": 2.5 - accuracy, "val_accuracy": accuracy}


def _played_to(answer: Callable[[float], Any], target: float, script: Sequence[Epoch]) -> tuple[Any, Played]:
    callback = answer(target)
    return callback, play(callback, script)


def _stops(answer: Callable[[float], Any]) -> str:
    """Training ends with the first epoch whose validation accuracy is at the target."""
    for accuracies, training in (
        ((0.5, 0.6, 0.74, 0.8, 0.9, 0.95), (0.5, 0.8, 0.9, 1, 1, 1)),
        ((0.5, 0.7, 0.75, 0.8, 0.9, 0.95), ()),
    ):
        callback, played = _played_to(answer, 0.75, _climb(*accuracies, of=training))
        should = next(n for n, accuracy in enumerate(accuracies, 1) if accuracy >= 0.75)
        ran = len(played.epochs)
        if ran == should:
            continue
        told = f"target 0.75, validation accuracies {', '.join(map(str, accuracies))}: "
        if ran == len(accuracies):
            where = " `stop_training` belongs to `self.model`." if hasattr(callback, "stop_training") else ""
            return told + f"training went on to the end; epoch {should} should be the last.{where}"
        if ran == 2 and training:
            return told + "training stopped after epoch 2, where only the training accuracy was above the target."
        if ran == should + 1 and accuracies[should - 1] == 0.75:
            return told + f"epoch {should} reaches the target exactly, so training should stop there, not one later."
        if ran == should + 1:
            return told + f"training stopped one epoch late, after epoch {ran}: look at the metrics when an epoch ends."
        return told + f"training stopped after epoch {ran}, below the target; it should after epoch {should}."
    return ""


def _records(answer: Callable[[float], Any]) -> str:
    """Seconds since training began, and the number of epochs, at that moment."""
    callback, played = _played_to(answer, 0.75, _climb(0.5, 0.7, 0.77, 0.8))
    reached = played.epochs[:3]
    seconds, epochs = getattr(callback, "seconds", None), getattr(callback, "epochs", None)
    if seconds is None or epochs is None:
        return f"the target was reached in epoch 3, and `seconds` is {seconds!r}, `epochs` {epochs!r}: record both."
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or not isinstance(epochs, Real):
        return f"`seconds` and `epochs` should be numbers, not {seconds!r} and {epochs!r}."
    if epochs != 3:
        if epochs == 2:
            return "`epochs` is 2, but three epochs were trained: Keras counts them 0, 1, 2."
        return f"`epochs` is {epochs}, but the target was reached in the third epoch."
    last = reached[-1]
    expected = last["epoch_end"] - played.train_begin
    if math.isclose(seconds, expected, rel_tol=1e-6):
        return ""
    if complaint := played.clock.complaint():
        return complaint
    told = f": got {seconds:.4g} s where {expected:.4g} s passed since training began."
    for start in ("epoch_begin", "first_begin", "first_end", "test_begin"):
        if math.isclose(seconds, last["epoch_end"] - last[start], rel_tol=1e-6):
            return "the clock is set back in each epoch" + told
    if math.isclose(seconds, last["epoch_end"] - reached[0]["first_end"], rel_tol=1e-6):
        return "the clock starts when the first batch is done" + told
    if math.isclose(seconds, last["epoch_end"], rel_tol=1e-6):
        return "the clock's reading itself is recorded, not the difference of two" + told
    return "the seconds are wrong" + told


def _misses(answer: Callable[[float], Any]) -> str:
    """A target out of reach, also in a second run with the same callback."""
    low = _climb(0.3, 0.4, 0.5)
    callback, played = _played_to(answer, 0.75, low)
    if len(played.epochs) < 3:
        return "a target that is not reached should not stop training."
    for name in ("seconds", "epochs"):
        if getattr(callback, name, "missing") is not None:
            return f"the target was not reached: `{name}` should be None, not {getattr(callback, name, 'missing')!r}."
    callback, _ = _played_to(answer, 0.75, _climb(0.5, 0.8))
    play(callback, low)
    if callback.seconds is not None or callback.epochs is not None:
        return "a second run that misses the target keeps the result of the first: reset both in `on_train_begin`."
    again = play(callback, _climb(0.5, 0.8))
    if callback.seconds is None:
        return "a second run reaches the target, and `seconds` is still None."
    if not math.isclose(callback.seconds, again.epochs[-1]["epoch_end"] - again.train_begin):
        return "in a second run the clock was not started anew: start it in `on_train_begin`."
    return ""


def _target_fits(answer: Callable[[float], Any]) -> str:
    easy, hard = answer(0.0), answer(1.1)
    if (epochs := _fit(easy)) != 1:
        return f"with target 0 a real `fit` should end after the first epoch, not after {epochs}."
    if not isinstance(easy.seconds, Real) or not easy.seconds > 0:
        return f"after a real `fit` that reached its target, `seconds` is {easy.seconds!r}."
    if (epochs := _fit(hard)) != 2 or hard.seconds is not None:
        return f"with a target above 1 a real `fit` went on for {epochs} of 2 epochs, `seconds` is {hard.seconds!r}."
    return ""


# ---- a real run


def _positive(callback: Any, name: str) -> str:
    values = getattr(callback, name)
    return "" if all(0 < value < math.inf for value in values) else f"in a real `fit`, `{name}` is {values!r}."


@lru_cache
def _network() -> Any:
    """One for all checks: TensorFlow complains of code that makes a new graph again and again."""
    from tensorflow import keras

    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(2, "softmax", kernel_initializer="ones")])
    model.compile("sgd", "sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def _fit(callback: Any) -> int:
    """Two epochs of a tiny network, 20 images in batches of 8, with validation; return how many were run."""
    x, y = np.linspace(-1, 1, 40).reshape(20, 2), np.arange(20) % 2
    history = _network().fit(
        x, y, batch_size=8, epochs=2, validation_data=(x, y), validation_batch_size=20, verbose=0, callbacks=[callback]
    )
    return len(history.epoch)


EXERCISES = Exercises(
    Exercise(
        "EpochTimer",
        (
            Part("Seconds of each epoch", 0.5, _epoch_seconds),
            Part("Of these, the validation", 0.25, _validation_seconds),
            Part("In a real fit", 0.25, _timer_fits),
        ),
    ),
    Exercise(
        "Throughput",
        (
            Part("Images a second in one epoch", 0.5, _throughput_measured),
            Part("Anew in each epoch", 0.25, _throughput_anew),
            Part("In a real fit", 0.25, _throughput_fits),
        ),
    ),
    Exercise(
        "TimeToTarget",
        (
            Part("Stops at the target, not before, not later", 0.35, _stops),
            Part("Records seconds and epochs", 0.35, _records),
            Part("A target that is not reached, a second run", 0.2, _misses),
            Part("In a real fit", 0.1, _target_fits),
        ),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
