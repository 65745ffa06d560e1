"""What is measured of an elastic run, from its events."""

from __future__ import annotations

import pytest

from course_lib.ranks.launch import Event, Result
from labs.lab2_horovod.lessons import elastic_run


def step(rank, time, number, size):
    return Event("step", rank, time, {"step": number, "now": rank, "size": size})


THREE = [step(rank, number / 10 + rank / 100, number, 3) for number in range(1, 16) for rank in range(3)]
TWO = [step(rank, 3 + number / 10 + rank / 100, number, 2) for number in range(11, 21) for rank in (0, 2)]


def test_the_measures_of_a_kill():
    events = [*THREE, Event("commit", 0, 1.05, {"step": 10}), Event("noticed", 2, 1.7, {}), *TWO]
    run = elastic_run._measured(events, 1.6, Result(0, 6.0))
    assert run.noticed == pytest.approx(0.1)
    assert run.went_on == pytest.approx(4.1 - 1.6)
    assert run.lost == 5  # the steps 11 to 15
    assert run.commits.to_dict("records") == [{"rank": 0, "time": 1.05, "step": 10}]
    assert run.steps["time"].is_monotonic_increasing


def test_nobody_goes_on():
    run = elastic_run._measured(THREE, 1.6, Result(137, 6.0))
    assert (run.noticed, run.went_on, run.lost) == (None, None, 0)


def test_nothing_happened_at_all():
    run = elastic_run._measured([], None, Result(1, 1.0))
    assert (len(run.steps), run.killed, run.lost) == (0, None, 0)
