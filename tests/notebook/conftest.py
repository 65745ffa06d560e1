"""What tests of judging share."""

from __future__ import annotations

import pytest


@pytest.fixture
def of_the_course():
    """of_the_course(source): the function `judge` that the source defines, as code of the course."""

    def make(source):
        names = {"__name__": "course_lib.notebook.example"}
        exec(source, names)
        return names["judge"]

    return make
