"""Where a rank says that it waits."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from course_lib.ranks import idle


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
INNER = ("/env/site-packages/horovod/tensorflow/mpi_ops.py", "_allreduce", 130, {})


@pytest.mark.parametrize(
    ("frames", "call", "line"),
    [
        ((SCRIPT, FIT, EXECUTE), "a training step of fit", 17),
        ((SCRIPT, FIT, CALLBACK, ALLREDUCE, INNER, EXECUTE), "MetricAverageCallback", 17),
        ((SCRIPT, ALLREDUCE, INNER, EXECUTE), "hvd.allreduce", 17),
        ((SCRIPT, FIT, ("/home/ada/train.py", "on_epoch_end", 9, {}), ALLREDUCE), "hvd.allreduce", 9),
        ((SCRIPT,), "", 17),
        ((EXECUTE,), "", 0),
        ((), "", 0),
    ],
)
def test_the_innermost_call_and_the_script_s_line(monkeypatch, frames, call, line):
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__file__="/home/ada/train.py"))
    place = idle.place(stack(*frames))
    assert place == {"call": call, "script": "train.py" if line else "", "line": line}
