"""Figures of notebook 2a."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch, Rectangle

from course_lib.collectives import simulated
from course_lib.notebook.plots.style import colour
from labs.lab2_horovod.lessons import figures_2a


def texts(axis):
    return [text.get_text() for text in axis.texts]


def test_holdings_show_elements_as_letters_and_ranks_as_stripes():
    before = [simulated.marked(rank, 2) for rank in range(2)]
    total = sum(before)
    (axis,) = figures_2a.holdings({"reduce": (before, [total, np.zeros(2)])}).axes
    squares = [patch for patch in axis.patches if isinstance(patch, Rectangle)]
    assert len(squares) == 4 + 4 + 2  # one rank's, those with two stripes, empty ones
    assert [text for text in texts(axis) if text in ("A", "B")] == ["A", "B"] * 3
    assert {"reduce", "rank 0", "rank 1"} <= set(texts(axis))


@pytest.fixture
def outcome():
    def ring(me, x):
        parts = [x[c : c + 1].copy() for c in range(me.size)]
        for step in range(me.size - 1):
            me.send(parts[(me.rank - step) % me.size], (me.rank + 1) % me.size)
            parts[(me.rank - step - 1) % me.size] += me.receive((me.rank - 1) % me.size)
        return np.concatenate(parts)

    return simulated.run(ring, [simulated.marked(rank, 3) for rank in range(3)])


def test_messages_of_a_round_are_arrows_with_their_chunks(outcome):
    circle, grid = figures_2a.messages(outcome.messages, 3, after=1).axes
    assert circle.get_title("left") == "round 1"
    assert len([patch for patch in circle.patches if isinstance(patch, FancyArrowPatch)]) == 3
    assert sorted(texts(circle)) == ["0", "1", "2", "A", "B", "C"]
    assert [label.get_text() for label in grid.get_xticklabels()] == ["chunk A", "chunk B", "chunk C"]


@pytest.mark.parametrize(("after", "parts"), [(0, 9), (1, 12), (2, 18)])
def test_each_round_brings_parts_to_their_ranks(outcome, after, parts):
    circle, grid = figures_2a.messages(outcome.messages, 3, after).axes
    (image,) = grid.images
    pixels = np.asarray(image.get_array())
    colours = [tuple(int(colour(rank)[i : i + 2], 16) / 255 for i in (1, 3, 5)) for rank in range(3)]
    assert sum(np.isclose(pixels, ink).all(axis=2).sum() for ink in colours) == parts
    assert len(circle.patches) == (3 if after else 0)


def test_a_difference_of_zero_is_drawn_at_its_floor():
    (axis,) = figures_2a.differences({"same": np.zeros(3), "apart": np.array([1e-3, 1e-2, 1e-1])}).axes
    same, apart, _ = axis.lines
    assert list(same.get_ydata()) == [1e-17] * 3
    assert list(apart.get_xdata()) == [1, 2, 3]
    assert axis.get_yscale() == "log"


def test_sent_is_in_multiples_of_the_length():
    figure = figures_2a.sent([2, 4], {"ring": [(100, 2), (150, 6)], "all to all": [(100, 1), (300, 1)]}, length=100)
    volume, rounds = figure.axes
    assert [list(line.get_ydata()) for line in volume.lines[:2]] == [[1, 1.5], [1, 3]]
    assert [list(line.get_ydata()) for line in rounds.lines] == [[2, 6], [1, 1]]
    assert volume.lines[2].get_ydata()[[0, -1]] == pytest.approx([1, 1.5])  # 2(N−1)/N
