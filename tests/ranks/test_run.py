"""How a run is judged."""

from __future__ import annotations

from course_lib.ranks.run import Failures


def test_the_first_failure_is_told_from_those_that_follow_it():
    failures = Failures(told={0: (2.5, 1), 1: (2.0, 3)}, seen={0: 1, 1: 3})
    assert failures.first() == (1, 3)
    killed = Failures(told={0: (2.0, 1)}, seen={1: 137, 0: 1})
    assert killed.first() == (1, 137)
    deaf = Failures(told={0: (2.0, 3)}, seen={0: 3, 1: 137})  # killed by the launcher, in the end
    assert deaf.first() == (0, 3)
    ended = Failures(told={1: (2.0, 1)}, seen={0: -15, 2: 143})
    assert ended.first() == (1, 1)
    assert Failures().first() is None
    assert [each.count() for each in (failures, killed, ended, Failures())] == [2, 2, 3, 0]
