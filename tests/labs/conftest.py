"""What the tests of the labs share."""

from __future__ import annotations

import pytest
from matplotlib.legend import Legend

from tests.labs import notebooks


@pytest.fixture(scope="session")
def answer():
    """answer(notebook, exercise, (old, new), …): see `notebooks.answer`."""
    return notebooks.answer


@pytest.fixture(scope="session")
def titles():
    """titles(figure): what stands over its panels, on their left."""
    return lambda figure: [axis.get_title(loc="left") for axis in figure.axes]


@pytest.fixture(scope="session")
def legend():
    """legend(drawn): the texts of all legends of a figure, or of one panel."""
    return lambda drawn: [text.get_text() for box in drawn.findobj(Legend) for text in box.get_texts()]
