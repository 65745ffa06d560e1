"""What is measured of an elastic run, from its events."""

from __future__ import annotations

import pytest

from course_lib import elastic
from course_lib.launch import Event, Result


def step(rank, time, number, size):
    return Event("step", rank, time, {"step": number, "now": rank, "size": size})


THREE = [step(rank, number / 10 + rank / 100, number, 3) for number in range(1, 16) for rank in range(3)]
TWO = [step(rank, 3 + number / 10 + rank / 100, number, 2) for number in range(11, 21) for rank in (0, 2)]


def test_the_measures_of_a_kill():
    events = [*THREE, Event("commit", 0, 1.05, {"step": 10}), Event("noticed", 2, 1.7, {}), *TWO]
    story = elastic._story(events, 1.6, Result(0, 6.0))
    assert story.noticed == pytest.approx(0.1)
    assert story.went_on == pytest.approx(4.1 - 1.6)
    assert story.lost == 5  # the steps 11 to 15
    assert story.commits.to_dict("records") == [{"rank": 0, "time": 1.05, "step": 10}]
    assert story.steps["time"].is_monotonic_increasing


def test_nobody_goes_on():
    story = elastic._story(THREE, 1.6, Result(137, 6.0))
    assert (story.noticed, story.went_on, story.lost) == (None, None, 0)


def test_nothing_happened_at_all():
    story = elastic._story([], None, Result(1, 1.0))
    assert (len(story.steps), story.killed, story.lost) == (0, None, 0)
