"""Where a rank says that it waits."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

from course_lib.ranks.messages import idle


def stack(*frames: tuple[str, str, int, dict]) -> SimpleNamespace | None:
    """The innermost of some frames, given from the outermost on as (file, function, line, locals)."""
    frame = None
    for file, name, line, names in frames:
        code = SimpleNamespace(co_filename=file, co_name=name)
        frame = SimpleNamespace(f_code=code, f_lineno=line, f_locals=names, f_back=frame)
    return frame


class MetricAverageCallback:
    pass


SCRIPT = ("/home/ada/train.py", "<module>", 17, {})
FIT = ("/env/site-packages/keras/src/engine/training.py", "fit", 1807, {})
EXECUTE = ("/env/site-packages/tensorflow/python/eager/execute.py", "quick_execute", 53, {})
CALLBACK = ("/env/site-packages/horovod/_keras/callbacks.py", "on_epoch_end", 82, {"self": MetricAverageCallback()})
ALLREDUCE = ("/env/site-packages/horovod/tensorflow/__init__.py", "allreduce", 138, {})
TRACING = ("/env/site-packages/horovod/_keras/__init__.py", "compute_gradients", 104, {})
INNER = ("/env/site-packages/horovod/tensorflow/mpi_ops.py", "_allreduce", 130, {})


@pytest.mark.parametrize(
    ("frames", "call", "line"),
    [
        ((SCRIPT, FIT, EXECUTE), "a training step of fit", 17),
        ((SCRIPT, FIT, CALLBACK, ALLREDUCE, INNER, EXECUTE), "MetricAverageCallback", 17),
        ((SCRIPT, ALLREDUCE, INNER, EXECUTE), "Horovod's allreduce()", 17),
        ((SCRIPT, FIT, ("/home/ada/train.py", "on_epoch_end", 9, {}), ALLREDUCE), "Horovod's allreduce()", 9),
        ((SCRIPT, FIT, TRACING, INNER), "a training step of fit", 17),
        ((SCRIPT,), "", 17),
        ((EXECUTE,), "", 0),
        ((), "", 0),
    ],
)
def test_the_innermost_call_and_the_script_s_line(monkeypatch, frames, call, line):
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__="/home/ada/train.py"))
    place = idle.place(stack(*frames))
    assert place == {"call": call, "script": "train.py" if line else "", "line": line}


@pytest.mark.parametrize(
    ("seconds", "intervals"),
    [
        ([0.02] * 5, [1, 2, 3, 4, 4]),  # it waits
        ([0.02, 0.02, 0.9, 0.02], [1, 2, 0, 1]),
        ([None] * 3, [0, 0, 0]),  # it computes, on a machine so busy that it gets no core
        ([0.02, 0.02, 0.02, None, 0.02, 0.02], [1, 2, 3, 2, 3, 4]),  # it waits on such a machine
    ],
)
def test_a_rank_that_gets_no_core_does_not_wait(monkeypatch, seconds, intervals):
    idle_so_far, counted = 0, []
    for used in seconds:
        monkeypatch.setattr(idle, "_wants_a_core", lambda used=used: used is None)
        idle_so_far = idle._idle_intervals(idle_so_far, used or 0.0)
        counted.append(idle_so_far)
    assert counted == intervals


def test_a_thread_that_computes_wants_a_core():
    assert not all(idle._wants_a_core() for _ in range(2_000))  # threads of other tests may just end
    done = threading.Event()
    thread = threading.Thread(target=lambda: [sum(range(10_000)) for _ in iter(done.is_set, True)])
    thread.start()
    try:
        assert any(idle._wants_a_core() for _ in range(1_000))
    finally:
        done.set()
        thread.join()
