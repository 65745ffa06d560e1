"""Profile some training steps of this rank: the operations of its threads, the start and end of its all-reduces.

If the launcher asks for it (`RankTask.profile`), `rank` installs this before the script starts. TensorFlow's profiler
records the operations; /proc has each thread's seconds on a core and in the run queue. The records are processed after
the script has ended. `course_lib.ranks.step_shares` computes the shares of a step from them.
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

FIRST_STEP = 20  # earlier steps trace graphs, compile and fill caches
STEPS = 50
THREADS = Path("/proc/self/task")
KINDS = ("operation", "metric", "callback", "input", "watching", "kernel")  # kinds of spans
_CALLBACKS, _METRICS = "course_callbacks", "course_metrics"
_EAGERLY = "EagerLocalExecute: "  # prefix of the type of an eager operation

Times = dict[int, np.ndarray]  # thread → seconds on a core and in the run queue


class StepProfile:
    """The profile of one rank. TensorFlow calls `step` from its own threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._trace = folder / f"trace-{rank()}"  # folder for TensorFlow's profiler
        self._steps = 0
        self._horovod: set[int] = set()  # Horovod's threads
        self._computing: set[int] = set()  # TensorFlow's threads that start training steps
        self._before: Times = {}
        self._after: Times = {}
        self._start = self._seconds = 0.0

    def step(self) -> None:
        """Called when a training step begins."""
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
        """Wrap `hvd.init`, and record the threads that it starts."""

        @functools.wraps(original)
        def init(*args: object, **kwargs: object) -> object:
            before = set(thread_times())
            returned = original(*args, **kwargs)
            self._horovod |= set(thread_times()) - before
            return returned

        return init

    def write(self) -> None:
        """Write the profile to `rank-R.npz`; write nothing if the script made too few steps."""
        if not self._after:
            return
        trace = Trace(next(self._trace.rglob("*.xplane.pb")).read_bytes())
        spans = {kind: np.array(trace.spans[kind], np.int64).reshape(-1, 2) for kind in KINDS}
        part = self._folder / f"rank-{rank()}.part"
        with part.open("wb") as to:
            np.savez(to, seconds=self._seconds, steps=STEPS, **spans, **trace.reductions(), **self._thread_seconds())
        part.replace(part.with_suffix(".npz"))

    def _thread_seconds(self) -> dict[str, float]:
        """Seconds of the threads during the profile.

        On a core: of Horovod's threads, and of others (which neither compute nor run Python). In the run queue: of the
        threads that compute.
        """
        used = {thread: times - self._before.get(thread, 0) for thread, times in self._after.items()}
        others = set(used) - self._horovod - self._computing - {os.getpid()}
        return {
            "horovod": sum(used[thread][0] for thread in self._horovod & set(used)),
            "others": sum(used[thread][0] for thread in others),
            "queued": sum(used[thread][1] for thread in self._computing & set(used)),
        }


class Trace:
    """The events in a file of TensorFlow's profiler, in nanoseconds since its start.

    Attributes:
        spans: for each of KINDS, the start and end of its events: operations, operations of metrics, callbacks, waits
            for images, the work of this profile, GPU kernels.

    Raises CourseError if this version of TensorFlow can't read the file.
    """

    def __init__(self, content: bytes) -> None:
        try:
            from tensorflow.tsl.profiler.protobuf import xplane_pb2
        except ImportError:
            raise CourseError(f"TensorFlow {tf.__version__} can't read its own profiles: use 2.15.", code=2) from None
        self.spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
        # Starts and ends of asynchronous operations, by kind and name.
        self._begun: dict[tuple[str, str], list[int]] = defaultdict(list)
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
                self.spans["input"] += _start_end_pairs(starts, self._ended[key])

    def reductions(self) -> dict[str, np.ndarray]:
        """For each all-reduce: its name, when this rank was ready for it, and when it was done."""
        rows = [
            (f"{name} {number}", *span)
            for (kind, name), starts in sorted(self._begun.items())
            if kind.startswith("Horovod")
            for number, span in enumerate(_start_end_pairs(starts, self._ended[kind, name]))
        ]
        names, ready, done = zip(*rows) if rows else ((), (), ())
        return {"names": np.array(names, str), "ready": np.array(ready, int), "done": np.array(done, int)}

    def _read(self, line: Any, event: Any, name: str) -> None:
        """Read one event of a thread."""
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
        """Read an eager operation, for which Python waits."""
        if kind.startswith("Horovod"):
            self._begun[kind, ""].append(span[0])
            self._ended[kind, ""].append(span[1])
        elif not kind.startswith("__"):  # "__…" is a graph
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
    """Whether the name of an event is that of an operation: "scope/name:Type"."""
    return ":" in name and "::" not in name and ": " not in name


def _start_end_pairs(starts: list[int], ends: list[int]) -> list[tuple[int, int]]:
    """Pairs of start and end. Ends before the first start are dropped: their operations started before the trace."""
    starts = sorted(starts)
    return list(zip(starts, sorted(end for end in ends if end >= starts[0])))


def thread_times() -> Times:
    """For each thread of this process, the seconds on a core and in the run queue since the thread started."""
    times: Times = {}
    for thread in THREADS.iterdir():
        with contextlib.suppress(OSError):  # the thread has ended
            times[int(thread.name)] = np.array((thread / "schedstat").read_text().split()[:2], float) / 1e9
    return times


def install(folder: Path) -> None:
    """Patch TensorFlow, Keras and Horovod in this process to profile STEPS training steps into `folder`."""
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
    """A decorator that runs a function within a context."""

    def wrap(original: Callable) -> Callable:
        @functools.wraps(original)
        def wrapped(*args: object, **kwargs: object) -> object:
            with context():
                return original(*args, **kwargs)

        return wrapped

    return wrap
