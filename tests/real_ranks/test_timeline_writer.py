"""Horovod's thread that writes the timeline never sleeps: in a rank that is judged, others need not wait for it."""

from __future__ import annotations

import json
import multiprocessing
import os
import time

import pytest

from course_grader.sandbox.resource_monitor import ProcessTree
from course_lib.ranks import launch

pytestmark = [pytest.mark.slow, pytest.mark.ranks]

SCRIPT = """
import os
import horovod.tensorflow as hvd
import tensorflow as tf

hvd.init()
niceness = [os.getpriority(os.PRIO_PROCESS, int(thread)) for thread in os.listdir("/proc/self/task")]
print("patient threads:", sum(one > os.getpriority(os.PRIO_PROCESS, 0) for one in niceness))
hvd.grouped_allreduce([tf.ones(3)] * 4000)  # at once: the writer has more to write than it can before the end
"""
ENDS = {"at its end": "", "when it leaves": "hvd.shutdown()\n"}


def spin() -> None:
    while True:
        pass


@pytest.fixture
def busy():
    """Others that keep the one core that there is."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [min(cores)])
    others = [multiprocessing.Process(target=spin, daemon=True) for _ in range(2)]
    for other in others:
        other.start()
    yield
    os.sched_setaffinity(0, cores)
    for other in others:
        other.kill()
        other.join()


@pytest.mark.parametrize("end", ENDS)
def test_it_alone_waits_for_the_others_and_writes_all(end, busy, tmp_path):
    script, timeline = tmp_path / "script.py", tmp_path / "timeline.json"
    script.write_text(SCRIPT + ENDS[end])
    asked = {"record": tmp_path / "evidence", "env": {"HOROVOD_TIMELINE": str(timeline)}}
    with launch.start(script, ranks=2, timeout=120, **asked) as run:
        said = {event.rank: event.data["text"] for event in run if "patient" in event.data.get("text", "")}
    assert run.wait().code == 0
    assert said == {0: "patient threads: 1", 1: "patient threads: 0"}
    written = [event.get("name") for event in json.loads(timeline.read_text()) if event.get("ph") == "B"]
    assert written.count("ALLREDUCE") == 4000


def test_what_it_spends_of_the_core_is_not_what_the_rank_computes(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import time\nimport horovod.tensorflow as hvd\n\nhvd.init()\nprint('ready')\ntime.sleep(60)\n")
    with launch.start(script, ranks=1, timeout=60, env={"HOROVOD_TIMELINE": str(tmp_path / "timeline.json")}) as run:
        assert any(event.data.get("text") == "ready" for event in run)
        tree = ProcessTree(run.pid, namespace=False)
        before = now = tree.usage(100)
        while run.running and now.cpu_seconds < before.cpu_seconds + 1:
            time.sleep(0.1)
            now = tree.usage(100)
        assert now.cpu_seconds >= before.cpu_seconds + 1
        assert now.user_seconds - before.user_seconds < 0.5
        run.stop()
