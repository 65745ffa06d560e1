"""Fixtures that several test files share."""

from __future__ import annotations

import pytest

from course_lib import launch
from course_lib.errors import CourseError


def _built() -> tuple[str, ...]:
    try:
        return launch.controllers()
    except CourseError:
        return ()


@pytest.fixture(params=("gloo", "mpi"))
def controller(request: pytest.FixtureRequest) -> str:
    """Each of Horovod's controllers that was built here."""
    if request.param not in _built():
        pytest.skip(f"Horovod was built without {request.param} here")
    return request.param
