from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from course_lib import collectives
from course_lib.cost import allreduce
from course_lib.cost.allreduce import Link
from labs.lab4_communication.lessons import figures_4a

LINK = Link(1e-5, 1e10)


def test_importing_loads_neither_tensorflow_nor_pyplot():
    module = "labs.lab4_communication.lessons.figures_4a"
    code = f"import sys, {module}; print({{'tensorflow', 'matplotlib.pyplot'}} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"


PLANS = {
    "ring": collectives.ring(8, 8),
    "halving": collectives.halving(6, 6),
    "groups": collectives.hierarchical(7, 7, 3),
}


@pytest.mark.parametrize("name", PLANS)
def test_before_the_first_round_nothing_is_summed_and_after_the_last_all_is(canvas_words, name):
    plan = list(PLANS[name])
    ranks = {"ring": 8, "halving": 6, "groups": 7}[name]
    before = canvas_words(lambda: figures_4a.rounds(plan, ranks, 0, group=3))
    after = canvas_words(lambda: figures_4a.rounds(plan, ranks, len(plan)))
    assert "Σ" not in before
    assert after.count("Σ") == ranks * ranks


def test_the_bill_adds_up(canvas_words):
    plan = list(collectives.halving(8, 8))
    words = canvas_words(lambda: figures_4a.rounds(plan, 8, 3, title="halving"))
    assert "halving: round 3 of 6" in words
    assert "so far 3 α + 7n/8 · β" in words
    assert {"A", "B", "H"} <= set(words)
    assert "so far 6 α + 7n/4 · β" in canvas_words(lambda: figures_4a.rounds(plan, 8, 6))


@pytest.mark.parametrize("ranks", [figures_4a.POWERS, figures_4a.BETWEEN])
@pytest.mark.parametrize(("alpha", "beta", "group"), [(1e-7, 1e-12, 2), (1e-3, 1e-8, 32)])
@pytest.mark.parametrize("at", [2, 65_536])
def test_maps_are_drawn_at_all_ends(canvas_words, ranks, alpha, beta, group, at):
    link, inner = Link(alpha, 1 / beta), Link(alpha / 100, 100 / beta)
    words = canvas_words(lambda: figures_4a.winners(link, group, ranks=ranks, at=at))
    assert {"ring", "hierarchical", "halving", "the cheapest", f"time with {at:,} ranks"} <= set(words)
    assert f"time with {at:,} ranks" in canvas_words(lambda: figures_4a.winners(link, group, inner, at=at, hosts=True))


def test_the_line_between_two_colours_is_where_the_formulas_are_equal(panel_lines):
    lines = panel_lines(lambda: figures_4a.winners(LINK, 8, among=("ring", "hierarchical")))
    (ranks, sizes), *_ = [np.array(line) for line in lines if len(line[0]) == 16]
    seen = np.isfinite(sizes)
    assert seen.any()
    first = allreduce.ring(ranks[seen], sizes[seen], LINK)
    assert first == pytest.approx(allreduce.hierarchical(ranks[seen], sizes[seen], LINK, 8))


def test_measured_shows_lines_and_residuals():
    sizes = 4 ** np.arange(1, 8)
    seconds = np.tile(LINK.seconds(sizes), (5, 1)) * 1.1
    figure = figures_4a.measured({"all-reduce": (seconds, LINK.seconds(sizes))}, sizes)
    times, residuals = figure.axes
    fitted = next(line for line in times.lines if line.get_linestyle() == "-")
    assert fitted.get_ydata() == pytest.approx(1e3 * LINK.seconds(sizes))
    assert residuals.lines[0].get_ydata() == pytest.approx(10)


def test_a_residual_that_is_far_off_stands_at_the_edge_with_its_number():
    sizes = 4 ** np.arange(1, 8)
    seconds = np.tile(LINK.seconds(sizes), (5, 1))
    seconds[:, 3] *= 3.8
    residuals = figures_4a.measured({"message": (seconds, LINK.seconds(sizes))}, sizes).axes[1]
    assert residuals.lines[0].get_ydata()[3] == figures_4a.RESIDUALS
    assert [text.get_text() for text in residuals.texts] == ["+280 %"]


@pytest.mark.parametrize("far_first", [False, True])
def test_with_the_near_partner_first_the_map_has_halving_where_it_had_all_three(monkeypatch, far_first):
    seen = []
    monkeypatch.setattr(figures_4a, "_map", lambda page, seconds, ranks: seen.append(seconds))
    near = Link(LINK.latency / 10, 10 * LINK.bandwidth)
    figures_4a.winners(LINK, 8, near, hosts=True, far_first=far_first)
    (seconds,) = seen
    sizes = np.array([1e3, 1e7, 1e9])
    best = np.argmin([seconds[name](1024, sizes) for name in seconds], 0)
    assert [list(seconds)[i] for i in best] == (["halving", "hierarchical", "ring"] if far_first else ["halving"] * 3)
