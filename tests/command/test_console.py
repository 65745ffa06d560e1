"""What `course run` says besides the ranks' own output."""

from __future__ import annotations

import pytest

from course_lib.command import console
from course_lib.ranks.run import Event, Result
from tests.command.fake_run import FakeRun

CAUSE = "Rank 0 waits in A, rank 1 in B: all ranks must make the same collective calls in the same order."


@pytest.fixture
def follow(capsys):
    """The exit code of `follow`, and what it says on standard output and standard error."""

    def run(result: Result, *events: Event) -> tuple[int, list[str], list[str]]:
        code = console.follow(FakeRun(result, *events))
        said = capsys.readouterr()
        return code, said.out.splitlines(), said.err.splitlines()

    return run


def test_a_run_that_ends_well_says_nothing(follow):
    printed = Event("output", 1, 0.0, {"stream": "stdout", "text": "[red]hi[/red]"})
    assert follow(Result(0, 1.0), printed) == (0, ["rank 1 │ [red]hi[/red]"], [])


def test_what_could_not_be_ended_is_said_of_a_run_that_ended_well_too(follow):
    assert follow(Result(0, 1.0, message="Could not be killed: process 7."))[2] == [
        "course: Could not be killed: process 7."
    ]


def test_a_stall_is_said_once_it_is_known_and_in_the_end(follow):
    late = Result(124, 30.0, message="Stopped at the time limit of 30 s.", cause=CAUSE)
    code, _, said = follow(late, Event("stall", None, 25.0, {"cause": CAUSE}))
    assert code == 124
    assert said[0] == f"course: Nothing has happened for 20 s. {CAUSE} Ctrl-C ends the run."
    assert said[1:] == [f"course: {CAUSE}", "course: Stopped at the time limit of 30 s."]


def test_the_cause_comes_first_then_the_rank_s_words_then_the_advice(follow):
    tail = ("Traceback (most recent call last):", "AttributeError: 'float' object has no attribute 'dtype'")
    code, _, said = follow(Result(1, 9.0, 1, "Rank 1 failed with exit code 1.", tail, cause=CAUSE))
    assert code == 1
    assert said[:3] == [f"course: {CAUSE}", "course: Rank 1 failed with exit code 1.", "Last lines of rank 1:"]
    assert said[3:5] == [f"rank 1 │ {line}" for line in tail]
    assert said[5].startswith("course: ") and "momentum_correction=False" in said[5]
