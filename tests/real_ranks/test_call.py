"""A function on real ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid

import psutil
import pytest

from course_lib.ranks import launch, rank
from course_lib.system.errors import CourseError

pytestmark = [pytest.mark.slow, pytest.mark.ranks]


def test_results_come_back_in_the_order_of_ranks_and_prints_with_their_rank(controller, capsys):
    base = 10

    def function():
        import horovod.tensorflow as hvd
        import numpy as np

        hvd.init()
        print("here is", hvd.rank())
        return base + hvd.rank(), hvd.allreduce(np.array([1.0 + hvd.rank()]), op=hvd.Sum).numpy().tolist()

    assert launch.call(function, 2, controller=controller) == [(10, [3.0]), (11, [3.0])]
    assert sorted(capsys.readouterr().out.splitlines()) == ["[0] here is 0", "[1] here is 1"]


def test_autograph_leaves_horovods_functions_alone():
    def function():
        import horovod.tensorflow as hvd
        import tensorflow as tf
        from tensorflow.python.autograph.impl import conversion

        hvd.init()
        step = tf.function(lambda: hvd.allreduce(tf.constant(1.0 + hvd.rank()), op=hvd.Sum))
        return conversion.is_allowlisted(hvd.allreduce), conversion.is_allowlisted(function), float(step())

    assert launch.call(function, 2) == [(True, False, 3.0)] * 2


def test_two_names_of_this_machine_pass_for_two_hosts():
    def function():
        import os

        import horovod.tensorflow as hvd

        hvd.init()
        return hvd.rank(), hvd.local_rank(), hvd.local_size(), os.sched_getscheduler(0)

    answers = launch.call(function, 3, hosts="localhost:2,127.0.0.1:1", controller="gloo")
    policy = os.sched_getscheduler(0) if rank.NVIDIA_DRIVER.exists() else os.SCHED_BATCH
    assert answers == [(0, 0, 2, policy), (1, 1, 2, policy), (2, 0, 1, policy)]


def test_a_failing_rank_is_one_sentence():
    def function():
        import horovod.tensorflow as hvd
        import numpy as np

        hvd.init()
        if hvd.rank() == 1:
            raise ValueError("no such luck")
        hvd.allreduce(np.ones(1))

    with pytest.raises(CourseError, match=r"^Rank 1 failed with exit code 1\. .*no such luck"):
        launch.call(function, 2)


@pytest.mark.parametrize(
    ("ranks", "options", "told"),
    [(0, {}, "at least one rank"), (2, {"timeout": 0}, "time limit"), (3, {"hosts": "localhost:2"}, "localhost:2")],
)
def test_bad_input_starts_nothing(monkeypatch, ranks, options, told):
    monkeypatch.setattr(launch, "Run", lambda *_, **__: pytest.fail("it was started"))
    with pytest.raises(CourseError, match=told):
        launch.call(lambda: None, ranks, **options)


def test_an_interrupt_leaves_no_process():
    mark = uuid.uuid4().hex
    script = f"""
from course_lib.ranks import launch
def function():
    import time
    print("{mark}", flush=True)
    time.sleep(600)
launch.call(function, 2)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "MARK": mark}, start_new_session=True,
    )  # fmt: skip
    for _ in range(2):
        assert mark in process.stdout.readline()
    started = psutil.Process(process.pid).children(recursive=True)
    assert len(started) > 2
    process.send_signal(signal.SIGINT)
    assert process.wait(30) != 0
    deadline = time.monotonic() + 10
    while left := [child for child in started if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]:
        assert time.monotonic() < deadline, left
        time.sleep(0.1)
