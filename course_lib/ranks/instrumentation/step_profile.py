"""Profile some training steps of this rank: what its threads do, when its all-reduces begin and end.

`rank` installs this before the script starts, where the launcher asks for it (`RankTask.profile`). TensorFlow's
profiler records the operations; /proc has the seconds of each thread on a core and in the queue for one. Nothing is
read before the script has ended. `course_lib.ranks.step_shares` makes shares of a step of it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from course_lib.ranks.instrumentation.patches import Patches
from course_lib.ranks.instrumentation.training_steps import STEP_OPERATION, TrainingSteps
from course_lib.system.errors import CourseError
from course_lib.system.rank import rank

FIRST_STEP = 20  # the steps before it trace, compile and fill caches
STEPS = 50
THREADS = Path("/proc/self/task")
KINDS = ("operation", "metric", "callback", "input", "watching", "kernel")  # of spans
_CALLBACKS, _METRICS = "course_callbacks", "course_metrics"
_EAGERLY = "EagerLocalExecute: "  # before the type of an operation that Python calls

Times = dict[int, np.ndarray]  # thread → seconds on a core and in the queue for one


class StepProfile:
    """The profile of one rank. TensorFlow calls `step` from threads of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._trace = folder / f"trace-{rank()}"  # what TensorFlow's profiler writes
        self._steps = 0
        self._horovod: set[int] = set()  # its threads
        self._computing: set[int] = set()  # threads of TensorFlow that training steps were seen on
        self._before: Times = {}
        self._after: Times = {}
        self._start = self._seconds = 0.0

    def step(self) -> None:
        """A training step begins."""
        if threading.get_native_id() != os.getpid():
            self._computing.add(threading.get_native_id())
        if self._steps == FIRST_STEP:
            tf.profiler.experimental.start(str(self._trace))
            self._start, self._before = time.perf_counter(), thread_times()
        elif self._steps == FIRST_STEP + STEPS:
            self._seconds, self._after = time.perf_counter() - self._start, thread_times()
            tf.profiler.experimental.stop()
        self._steps += 1

    def starting_horovod(self, original: Callable) -> Callable:
        """`hvd.init`, whose threads are noted."""

        @functools.wraps(original)
        def init(*args: object, **kwargs: object) -> object:
            before = set(thread_times())
            returned = original(*args, **kwargs)
            self._horovod |= set(thread_times()) - before
            return returned

        return init

    def write(self) -> None:
        """Write what was recorded to `rank-R.npz`; nothing where the script made too few steps."""
        if not self._after:
            return
        trace = Trace(next(self._trace.rglob("*.xplane.pb")).read_bytes())
        spans = {kind: np.array(trace.spans[kind], np.int64).reshape(-1, 2) for kind in KINDS}
        part = self._folder / f"rank-{rank()}.part"
        with part.open("wb") as to:
            np.savez(to, seconds=self._seconds, steps=STEPS, **spans, **trace.reductions(), **self._thread_seconds())
        part.replace(part.with_suffix(".npz"))

    def _thread_seconds(self) -> dict[str, float]:
        """What the threads did meanwhile: seconds on a core of Horovod's and of those that neither compute nor run
        Python, and seconds in the queue for a core of those that compute."""
        used = {thread: times - self._before.get(thread, 0) for thread, times in self._after.items()}
        others = set(used) - self._horovod - self._computing - {os.getpid()}
        return {
            "horovod": sum(used[thread][0] for thread in self._horovod & set(used)),
            "others": sum(used[thread][0] for thread in others),
            "queued": sum(used[thread][1] for thread in self._computing & set(used)),
        }


class Trace:
    """What a file of TensorFlow's profiler says, in nanoseconds since its start.

    Attributes:
        spans: of each of KINDS, when it began and ended: operations, those of metrics, callbacks, waits for images,
            this profile's own work, kernels of a GPU.

    Raises CourseError where this TensorFlow has no reader of its own files.
    """

    def __init__(self, content: bytes) -> None:
        try:
            from tensorflow.tsl.profiler.protobuf import xplane_pb2
        except ImportError:
            raise CourseError(f"TensorFlow {tf.__version__} can't read its own profiles: use 2.15.", code=2) from None
        self.spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._begun: dict[tuple[str, str], list[int]] = defaultdict(list)  # kind and name of what runs beside others
        self._ended: dict[tuple[str, str], list[int]] = defaultdict(list)
        space = xplane_pb2.XSpace()
        space.ParseFromString(content)
        for plane in space.planes:
            names = {number: data.name for number, data in plane.event_metadata.items()}
            if plane.name.startswith("/device:GPU"):
                self._read_gpu(plane)
            elif plane.name == "/host:CPU":
                self._stats = {number: data.name for number, data in plane.stat_metadata.items()}
                for line in plane.lines:
                    for event in line.events:
                        self._read(line, event, names[event.metadata_id])
        for key, starts in self._begun.items():
            if key[0] == "IteratorGetNext":
                self.spans["input"] += _matched(starts, self._ended[key])

    def reductions(self) -> dict[str, np.ndarray]:
        """Of each all-reduce its name, when this rank was ready for it and when it was done."""
        rows = [
            (f"{name} {number}", *span)
            for (kind, name), starts in sorted(self._begun.items())
            if kind.startswith("Horovod")
            for number, span in enumerate(_matched(starts, self._ended[kind, name]))
        ]
        names, ready, done = zip(*rows) if rows else ((), (), ())
        return {"names": np.array(names, str), "ready": np.array(ready, int), "done": np.array(done, int)}

    def _read(self, line: Any, event: Any, name: str) -> None:
        """One event of a thread."""
        begin = line.timestamp_ns + event.offset_ps // 1000
        span = begin, begin + event.duration_ps // 1000
        if name.startswith("ExecutorState::ProcessAsync::"):
            values = {self._stats[stat.metadata_id]: self._text(stat) for stat in event.stats}
            times = self._begun if name.endswith("Start") else self._ended
            times[values.get("kernel_type", ""), values.get("name", "")].append(begin)
        elif name.startswith(_EAGERLY):
            self._read_eager(name[len(_EAGERLY) :], span)
        elif name == _CALLBACKS:
            self.spans["callback"].append(span)
        elif STEP_OPERATION in name:
            self.spans["watching"].append(span)
        elif _is_operation(name) and not line.name.startswith("tf_data"):
            self.spans["metric" if _METRICS in name else "operation"].append(span)

    def _read_eager(self, kind: str, span: tuple[int, int]) -> None:
        """An operation that Python calls, which waits for its end."""
        if kind.startswith("Horovod"):
            self._begun[kind, ""].append(span[0])
            self._ended[kind, ""].append(span[1])
        elif not kind.startswith("__"):  # else it is a graph
            self.spans["input" if kind == "IteratorGetNext" else "operation"].append(span)

    def _text(self, stat: Any) -> str:
        return stat.str_value or self._stats.get(stat.ref_value, "")

    def _read_gpu(self, plane: Any) -> None:
        for line in plane.lines:
            if line.name.startswith("Stream"):
                for event in line.events:
                    begin = line.timestamp_ns + event.offset_ps // 1000
                    self.spans["kernel"].append((begin, begin + event.duration_ps // 1000))


def _is_operation(name: str) -> bool:
    """Whether an event is an operation: "scope/name:Type"."""
    return ":" in name and "::" not in name and ": " not in name


def _matched(starts: list[int], ends: list[int]) -> list[tuple[int, int]]:
    """Each start with its end: those that ended before the first start began before the trace did."""
    starts = sorted(starts)
    return list(zip(starts, sorted(end for end in ends if end >= starts[0])))


def thread_times() -> Times:
    """Of each thread of this process the seconds on a core and in the queue for one, since it began."""
    times: Times = {}
    for thread in THREADS.iterdir():
        with contextlib.suppress(OSError):  # it has ended
            times[int(thread.name)] = np.array((thread / "schedstat").read_text().split()[:2], float) / 1e9
    return times


def install(folder: Path) -> None:
    """Patch TensorFlow, Keras and Horovod in this process so that STEPS of its training steps are profiled."""
    import horovod.tensorflow as hvd
    import horovod.tensorflow.keras as hvd_keras

    profile, patches = StepProfile(folder), Patches()
    TrainingSteps(lambda examples: [tf.shape(examples)[0]], lambda *_: profile.step()).install(patches)
    for module in (hvd, hvd_keras):
        patches.replace(module, "init", profile.starting_horovod)
    patches.replace(tf.keras.Model, "compute_metrics", _within(lambda: tf.name_scope(_METRICS)))
    for name in ("on_train_batch_begin", "on_train_batch_end"):
        patches.replace(
            tf.keras.callbacks.CallbackList, name, _within(lambda: tf.profiler.experimental.Trace(_CALLBACKS))
        )
    atexit.register(profile.write)


def _within(context: Callable[[], contextlib.AbstractContextManager]) -> Callable[[Callable], Callable]:
    """Makes of a function one that runs within a context."""

    def wrap(original: Callable) -> Callable:
        @functools.wraps(original)
        def wrapped(*args: object, **kwargs: object) -> object:
            with context():
                return original(*args, **kwargs)

        return wrapped

    return wrap
