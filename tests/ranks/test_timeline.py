"""Horovod's trace file as a table."""

from __future__ import annotations

import json

import numpy as np
import pytest

from course_lib.ranks import timeline
from course_lib.system.errors import CourseError

LINES = """[
{"name": "process_name", "ph": "M", "pid": 0, "args": {"start_time_since_epoch_in_micros": 1}},
{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "kernel"}},
{"name": "process_name", "ph": "M", "pid": 2, "args": {"name": "bias"}},
"""


def event(kind, pid, ts, name=None):
    return json.dumps({"ph": kind, "pid": pid, "ts": ts, **({"name": name} if name else {})})


def reduction(pid, ts, *, fused=True):
    """An all-reduce that begins at `ts`: 10 ms negotiation, 2 queue, (1 copy in), 5 reduce, (1 copy out)."""
    ms = 1000
    inner = [("GLOO_ALLREDUCE", 12 + fused, 5)]
    if fused:
        inner = [("MEMCPY_IN_FUSION_BUFFER", 12, 1), *inner, ("MEMCPY_OUT_FUSION_BUFFER", 18, 1)]
    events = [event("B", pid, ts, "NEGOTIATE_ALLREDUCE"), event("X", pid, ts, "1")]
    events += [event("X", pid, ts + 9 * ms, "0"), event("E", pid, ts + 10 * ms)]
    events += [event("B", pid, ts + 11 * ms, "ALLREDUCE")]
    for name, start, length in inner:
        events += [event("B", pid, ts + start * ms, name), event("E", pid, ts + (start + length) * ms)]
    return ",".join([*events, event("E", pid, ts + 20 * ms)])


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "timeline.json"
    steps = [reduction(1, 5_000_000), reduction(2, 5_001_000, fused=False), reduction(1, 5_100_000)]
    path.write_text(LINES + ",\n".join(steps))
    return path


def test_activities_are_nested_and_end_where_they_end(trace):
    table = timeline.read(trace)
    assert list(table.columns) == ["tensor", "activity", "start", "seconds"]
    assert table["start"].is_monotonic_increasing and table["start"][0] == 0
    whole = table[table["activity"] == "ALLREDUCE"]
    assert list(whole["tensor"]) == ["kernel", "bias", "kernel"]
    assert np.allclose(whole["start"], [0.011, 0.012, 0.111]) and np.allclose(whole["seconds"], 0.009)


def test_phases_follow_each_other(trace):
    table = timeline.phases(timeline.read(trace))
    assert list(table["activity"].unique()) == list(timeline.PHASES)
    first = table[(table["tensor"] == "kernel") & (table["step"] == 0)]
    assert np.allclose(first["seconds"], [0.010, 0.002, 0.001, 0.005, 0.001])
    assert np.allclose(first["start"], [0, 0.010, 0.012, 0.013, 0.018])
    alone = table[table["tensor"] == "bias"].set_index("activity")["seconds"]
    assert dict(alone.round(6)) == {"negotiate": 0.010, "queue": 0.002, "reduce": 0.005}
    assert sorted(table[table["tensor"] == "kernel"]["step"].unique()) == [0, 1]


def test_arrivals_tell_who_was_ready_when(trace):
    table = timeline.arrivals(timeline.read(trace))
    assert len(table) == 6
    second = table[(table["tensor"] == "kernel") & (table["step"] == 1)].set_index("rank")["start"]
    assert second[0] - second[1] == pytest.approx(0.009)


def test_a_file_cut_short_is_read_as_far_as_it_goes(trace):
    text = trace.read_text()
    whole = len(timeline.read(trace))
    for cut in range(len(LINES) + 100, len(text), 37):
        trace.write_text(text[:cut])
        table = timeline.read(trace)
        assert len(table) <= whole
        assert timeline.phases(table)["seconds"].notna().all()
        timeline.arrivals(table)


def test_a_timeline_that_is_missing_or_empty_is_said_in_a_sentence(tmp_path):
    (tmp_path / "empty.json").write_text("[\n")
    for name in ("none.json", "empty.json"):
        with pytest.raises(CourseError, match=f"no timeline in {name}: the run that writes it failed"):
            timeline.read(tmp_path / name)
