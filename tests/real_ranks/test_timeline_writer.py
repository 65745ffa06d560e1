"""Horovod's thread that writes the timeline never sleeps: in a rank that is judged, others need not wait for it."""

from __future__ import annotations

import json
import multiprocessing
import os

import pytest

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
    asked = {"probe": tmp_path / "evidence", "env": {"HOROVOD_TIMELINE": str(timeline)}}
    with launch.start(script, ranks=2, timeout=120, **asked) as run:
        said = {event.rank: event.data["text"] for event in run if "patient" in event.data.get("text", "")}
    assert run.wait().code == 0
    assert said == {0: "patient threads: 1", 1: "patient threads: 0"}
    written = [event.get("name") for event in json.loads(timeline.read_text()) if event.get("ph") == "B"]
    assert written.count("ALLREDUCE") == 4000
