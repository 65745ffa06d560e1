from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from course_lib import collectives
from course_lib.cost import allreduce
from course_lib.cost.allreduce import Link
from course_lib.plots import Card, communication

LINK = Link(1e-5, 1e-10)


def shown(figure):
    assert isinstance(figure, Card)
    assert figure.png().startswith(b"\x89PNG")


def words(monkeypatch, draw):
    """All words that are put on a canvas."""
    said = []
    put = communication.Canvas.text

    def text(page, x, y, what, **look):
        said.append(what)
        put(page, x, y, what, **look)

    with monkeypatch.context() as patch:
        patch.setattr(communication.Canvas, "text", text)
        shown(draw())
    return said


def test_importing_loads_neither_tensorflow_nor_pyplot():
    code = "import sys, course_lib.plots.communication; print({'tensorflow', 'matplotlib.pyplot'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


PLANS = {"ring": collectives.ring(8, 8), "tree": collectives.tree(6, 6), "groups": collectives.hierarchical(7, 7, 3)}


@pytest.mark.parametrize("name", PLANS)
def test_before_the_first_round_nothing_is_summed_and_after_the_last_all_is(monkeypatch, name):
    plan = list(PLANS[name])
    ranks = {"ring": 8, "tree": 6, "groups": 7}[name]
    before = words(monkeypatch, lambda: communication.rounds(plan, ranks, 0, group=3))
    after = words(monkeypatch, lambda: communication.rounds(plan, ranks, len(plan)))
    assert "Σ" not in before
    assert after.count("Σ") == ranks * ranks


def test_the_bill_adds_up(monkeypatch):
    plan = list(collectives.tree(8, 8))
    said = words(monkeypatch, lambda: communication.rounds(plan, 8, 3, title="tree"))
    assert "tree: round 3 of 6" in said
    assert "so far 3 α + 7n/8 · β" in said
    assert {"A", "B", "H"} <= set(said)
    assert "so far 6 α + 7n/4 · β" in words(monkeypatch, lambda: communication.rounds(plan, 8, 6))


@pytest.mark.parametrize("ranks", [communication.POWERS, communication.BETWEEN])
def test_maps_are_drawn_at_all_ends(ranks):
    for alpha, beta, group in ((1e-7, 1e-12, 2), (1e-3, 1e-8, 32)):
        for at in (2, 65_536):
            shown(communication.winners(Link(alpha, beta), group, ranks=ranks, at=at))
            shown(communication.winners(Link(alpha, beta), group, Link(alpha / 100, beta / 100), at=at, hosts=True))


def test_the_line_between_two_colours_is_where_the_formulas_are_equal(monkeypatch):
    lines = []
    draw = communication.Panel.line

    def line(panel, xs, ys, style="-", **look):
        lines.append((np.asarray(xs), np.asarray(ys), look.get("color")))
        draw(panel, xs, ys, style, **look)

    monkeypatch.setattr(communication.Panel, "line", line)
    communication.winners(LINK, 8, among=("ring", "hierarchical"))
    (ranks, sizes), *_ = [(xs, ys) for xs, ys, colour in lines if len(xs) == 16]
    seen = np.isfinite(sizes)
    assert seen.any()
    first = allreduce.ring(ranks[seen], sizes[seen], LINK)
    assert first == pytest.approx(allreduce.hierarchical(ranks[seen], sizes[seen], LINK, 8))


def test_measured_shows_lines_and_residuals():
    sizes = 4 ** np.arange(1, 8)
    seconds = np.tile(LINK.seconds(sizes), (5, 1)) * 1.1
    figure = communication.measured({"all-reduce": (seconds, LINK.seconds(sizes))}, sizes)
    shown(figure)
    points = figure.axes[1].lines[0].get_ydata()
    assert points == pytest.approx(10)
