"""How a run ends, by what its launcher and its ranks say."""

from __future__ import annotations

import os
import sys

import pytest

from course_lib.ranks.run import Failures, RankCommand, Result, Run
from course_lib.system.errors import CourseError
from course_lib.system.supervise import LEFT


def test_the_first_failure_is_told_from_those_that_follow_it():
    failures = Failures({0: (2.5, 1), 1: (2.0, 3)}, {0: 1, 1: 3})
    assert failures.first() == (1, 3)
    killed = Failures(reported_by_rank={0: (2.0, 1)}, reported_by_launcher={1: 137, 0: 1})
    assert killed.first() == (1, 137)
    deaf = Failures(
        reported_by_rank={0: (2.0, 3)}, reported_by_launcher={0: 3, 1: 137}
    )  # killed by the launcher, in the end
    assert deaf.first() == (0, 3)
    ended = Failures(reported_by_rank={1: (2.0, 1)}, reported_by_launcher={0: -15, 2: 143})
    assert ended.first() == (1, 1)
    assert Failures().first() is None
    assert [each.count() for each in (failures, killed, ended, Failures())] == [2, 2, 3, 0]


def ended(*printed: str, code: int = 0, ranks: int = 2) -> Run:
    """A run that has ended, whose launcher has printed these lines."""
    program = "import sys; sys.stdout.write(sys.argv[1]); sys.stdout.flush(); sys.exit(int(sys.argv[2]))"
    command = (sys.executable, "-c", program, "\n".join(printed), str(code))
    run = Run(RankCommand(command, os.environ), ranks)
    run.wait()
    return run


def test_a_launcher_that_starts_nothing_is_quoted():
    result = ended("Traceback:", "RuntimeError: no hosts", code=1).wait()
    assert (result.code, result.failed_rank) == (1, None)
    assert result.message == "Horovod could not start the ranks: no hosts"


def test_what_could_not_be_ended_is_part_of_the_message():
    assert ended(f"{LEFT}process 7.").wait().message == f"{LEFT}process 7."
    said = ended("[1]<stdout>:38/58Process 1 exit with status code 137.", f"{LEFT}process 7.", code=1).wait()
    assert said.message == f"Rank 1 was killed by signal 9 (SIGKILL). {LEFT}process 7."
    assert (said.code, said.failed_rank, said.tail) == (137, 1, ("38/58",))


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (
            Result(3, 9.0, 1, "Rank 1 failed.", ("Error: no", " "), cause="Rank 0 waits."),
            "Rank 0 waits. Rank 1 failed. Error: no",
        ),
        (Result(3, 9.0, 1, "Rank 1 failed.", ("Error: no",), "Error: 7"), "Rank 1 failed. Error: 7"),
        (Result(3, 9.0, 1, "Rank 1 failed.", ("Connection reset by peer", "bye")), "Another rank ended during"),
        (Result(130, 9.0, message="Stopped."), "Stopped."),
    ],
)
def test_checking_a_run_that_failed_says_why(result, sentence):
    with pytest.raises(CourseError) as error:
        result.check()
    assert sentence in str(error.value)
    assert error.value.code == result.code


def test_checking_a_run_that_ended_well_says_nothing():
    assert Result(0, 9.0).check() is None
