"""What the tests of the labs share."""

from __future__ import annotations

import pytest

from tests.labs import notebooks


@pytest.fixture(scope="session")
def answer():
    """answer(notebook, exercise, (old, new), …): see `notebooks.answer`."""
    return notebooks.answer
