"""A simulated training run: Keras's calls of a callback, in their order, on a clock that the check sets.

What a callback measures can then be compared with the truth to the last digit, however busy the machine is.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from course_lib.notebook.judging import Wrong

OTHER_CLOCKS = ("time", "monotonic", "process_time")


@dataclass
class Clock:
    """Seconds that pass only when told to; `read` counts how often the callback asked, `others` by what other clock."""

    now: float = 1000.0
    read: int = 0
    others: set[str] = field(default_factory=set)

    def check_read(self) -> None:
        """Raise Wrong where the callback has not asked for the time, or has asked another clock only."""
        if self.others and not self.read:
            raise Wrong(f"it reads `time.{min(self.others)}()`; `time.perf_counter()` is the clock for durations.")
        if not self.read:
            raise Wrong("it never asked for the time: call `time.perf_counter()`, by this name.")


@dataclass(frozen=True)
class Epoch:
    """The pieces of an epoch in seconds, `validation` None where there is none, and its `logs` as Keras gives them."""

    wait: float
    batches: Sequence[float]
    validation: float | None
    logs: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Played:
    """What happened: for each epoch that was run its moments by name, in seconds, and the clock.

    The moments: train_begin, epoch_begin, first_begin and first_end (of the epoch's first batch), last_end (of its
    last), first_end_of_run (of the run's first batch), test_begin and test_end where there is a validation, epoch_end;
    and zero, where the clock begins to count.
    """

    epochs: list[dict[str, float]]
    clock: Clock


def require_callback(callback: Any) -> None:
    """Raise Wrong for what Keras can't call."""
    from tensorflow import keras

    if not isinstance(callback, keras.callbacks.Callback):
        raise Wrong("it makes no callback: `class …(keras.callbacks.Callback):`.")
    for name in dir(keras.callbacks.Callback):
        if name.startswith(("on_", "set_")) and not callable(getattr(callback, name)):
            raise Wrong(f"its `{name}` is no method.")


def play(callback: Any, script: Sequence[Epoch]) -> Played:
    """Call the callback's methods as `fit` does; end after the epoch in which it sets the model's `stop_training`.

    Raises Wrong for what is no callback.
    """
    require_callback(callback)
    model = SimpleNamespace(stop_training=False)
    moments: list[dict[str, float]] = []
    with _clock() as clock:
        callback.set_params({"epochs": len(script), "steps": len(script[0].batches), "verbose": 0})
        callback.set_model(model)
        began = clock.now
        callback.on_train_begin({})
        for number, epoch in enumerate(script):
            moments.append({"zero": 0.0, "train_begin": began, **_epoch(callback, number, epoch, clock)})
            moments[-1]["first_end_of_run"] = moments[0]["first_end"]
            if model.stop_training:
                break
        callback.on_train_end(dict(epoch.logs))
    return Played(moments, clock)


def _epoch(callback: Any, number: int, epoch: Epoch, clock: Clock) -> dict[str, float]:
    logs = {key: value for key, value in epoch.logs.items() if not key.startswith("val_")}
    at = {"epoch_begin": clock.now}
    callback.on_epoch_begin(number, {})
    clock.now += epoch.wait
    for batch, seconds in enumerate(epoch.batches):
        at.setdefault("first_begin", clock.now)
        callback.on_train_batch_begin(batch, {})
        clock.now += seconds
        callback.on_train_batch_end(batch, dict(logs))
        at.setdefault("first_end", clock.now)
    at["last_end"] = clock.now
    clock.now += epoch.wait
    if epoch.validation is not None:
        at["test_begin"] = clock.now
        callback.on_test_begin({})
        for batch in range(2):
            callback.on_test_batch_begin(batch, {})
            clock.now += epoch.validation / 2
            callback.on_test_batch_end(batch, {})
        callback.on_test_end({})
        at["test_end"] = clock.now
        clock.now += epoch.wait
    at["epoch_end"] = clock.now
    callback.on_epoch_end(number, dict(epoch.logs))
    return at


@contextmanager
def _clock() -> Iterator[Clock]:
    """`time.perf_counter` is the clock's, for this thread; the kernel's other threads keep their own."""
    clock, me, real = Clock(), threading.get_ident(), {}

    def read() -> float:
        if threading.get_ident() != me:
            return real["perf_counter"]()
        clock.read += 1
        return clock.now

    def watched(name: str) -> Any:
        def other() -> float:
            if threading.get_ident() == me:
                clock.others.add(name)
            return real[name]()

        return other

    replaced = {"perf_counter": read, **{name: watched(name) for name in OTHER_CLOCKS}}
    for name, function in replaced.items():
        real[name] = getattr(time, name)
        setattr(time, name, function)
    try:
        yield clock
    finally:
        for name, function in real.items():
            setattr(time, name, function)
