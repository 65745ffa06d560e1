"""The figures of lab 4: what they say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_lib import collectives
from course_lib.cost import allreduce
from course_lib.cost.allreduce import Link
from labs.lab4_communication.lessons import figures_4a, figures_4b, figures_4c
from tests.labs import figures
from tests.labs.figures import case, suite

LINK = Link(1e-5, 1e10)
PLANS = {
    "ring": (collectives.ring(8, 8), 8),
    "halving": (collectives.halving(6, 6), 6),
    "groups": (collectives.hierarchical(7, 7, 3), 7),
}
HALVING = list(collectives.halving(8, 8))
BYTES = 4 ** np.arange(1, 8)
SECONDS = np.tile(LINK.seconds(BYTES), (5, 1))
WAITING = {"A": {"x": [0.0, 0.1, 0.2], "y": [1.0, 2.0, 3.0]}, "B": {"x": [0.0, 0.0, 0.1], "y": [0.5, 0.6, 0.7]}}
PREDICTED = pd.DataFrame(
    {"setting": ["a", "a", "b"], "used": ["fit", "fit", "test"], "measured": [0.1, 0.2, 0.3], "low": [0.09, 0.19, 0.3],
     "high": [0.12, 0.22, 0.3], "predicted": [0.1, 0.22, 0.9]}
)  # fmt: skip
LAYERS = pd.DataFrame({"forward": [0.1, 0.2], "backward": [0.2, 0.4], "all-reduce": [0.0, 0.3]}, index=["a", "b"])
STEPS = pd.DataFrame({"forward": [0.3, 0.1], "backward": [0.6, 0.2], "waiting": [0.0, 0.5]}, index=[8, 64])
COMMUNICATION = np.linspace(0.01, 0.3, 30)
LINES = {"ring": [1, 0.5], "hybrid": [1, 0.9]}
GRID = np.linspace(0, 3, 12).reshape(3, 4)
GPUS = np.array([64, 1024, 65536])
SYSTEMS = [("A, 8", "ResNet-50", 1740, 75.3), ("B, 256", "ResNet-50", 60, 76.3), ("C, 512", "AlexNet", 5, 58.8)]


def step(*messages):
    return figures_4b.step(0.1, 0.2, np.array(messages), "simulated")


def stragglers(formula):
    return figures_4b.stragglers([1, 2048], {"normal": ([1, formula], [1, 1.01 * formula])}, "drawn")


FIGURES = {
    "4a rounds": case(figures_4a.rounds, HALVING, 8, 3, title="halving",
        says=("halving: round 3 of 6", "so far 3 α + 7n/8 · β", "A", "H")),
    "4a last round": case(figures_4a.rounds, HALVING, 8, 6, says=("so far 6 α + 7n/4 · β",)),
    "4a measured": case(figures_4a.measured, {"all-reduce": (1.1 * SECONDS, LINK.seconds(BYTES))}, BYTES,
        shows={0: [1e3 * LINK.seconds(BYTES)], 1: [np.full(7, 10)]}, says=("residuals",)),
    "4a measured far off": case(figures_4a.measured, {"message": (3.8 * SECONDS[:, :1], LINK.seconds(BYTES[:1]))},
        BYTES[:1], shows={1: [[figures_4a.RESIDUALS]]}, says=("+280 %",)),  # at the edge
    "4b gradients": case(figures_4b.gradients, {"A": ([4e6, 400, 4e4], [1.0, 0.5, 0.5]), "B": ([4e8], [1.0])},
        "sizes", shows={0: [[4e6, 4e4, 400], [4e8]], 1: [[0, 0.5, 0.5, 1], [0, 0.0099, 1, 100]]},
        says=("sizes", "1 MB")),
    "4b step": case(step, [0.05, 0.1], [0.2, 0.25],
        says=("2 messages: 100 ms of communication, 50% of it hidden; the step takes 350 ms, 50.0 of them waiting",
              "simulated")),
    "4b step of one message": case(step, [0.2, 0.5],
        says=("1 message: 300 ms of communication, 0% of it hidden; the step takes 600 ms, 300.0 of them waiting",)),
    "4b step of none": case(step, says=(
        "0 messages: 0 ms of communication, nothing of it hidden; the step takes 300 ms, 0.0 of them waiting",)),
    "4b waiting": case(figures_4b.waiting, [1, 10, 100], WAITING, "ranks", ticks=[1, 10, 100],
        compute={"A": 1.0, "B": 2.0}, shows={0: [[0.1, 100, 200], [1000, 2000, 3000]], 1: [[2000, 2000]]},
        says=("ranks", "computation")),  # never below a tenth of a millisecond
    "4b waiting alone": case(figures_4b.waiting, [1, 10, 100], WAITING, "ranks", ticks=[1, 10, 100],
        hides=("computation",)),
    "4b predictions": case(figures_4b.predictions, PREDICTED, "measured", shows={1: [[0, 10], [200]]},
        says=("± 25 %", "fitted on", "predicted", "a", "b")),
    "4b stragglers": case(stragglers, 1.25, shows={0: [[1, 1.25], [1, 1.2625]], 1: [[100, 80]]},
        says=("normal: 80 % left on 2,048 ranks",)),
    "4b slow stragglers": case(stragglers, 30.0, says=("normal: 3 % left on 2,048 ranks",)),
    "4b no stragglers": case(stragglers, 1.0, says=("normal: 100 % left on 2,048 ranks",)),
    "4b breakdown": case(figures_4b.breakdown, LAYERS, STEPS, "on 64 ranks", shows={0: [[300, 900]], 1: [[900, 800]]},
        says=("on 64 ranks", "a", "b", "900", "800")),
    "4c hidden": case(figures_4c.hidden, COMMUNICATION, {64: 1 - COMMUNICATION, 32: 1 - 2 * COMMUNICATION},
        {64: 0.9, 32: 0.8}, 0.03, shows={0: [100 - 100 * COMMUNICATION]},
        says=("published: 90.0 %", "both within 3 points")),
    "4c efficiencies": case(figures_4c.efficiencies, [1, 1024], {64: LINES, 32: LINES}, {64: 0.9, 32: 0.8},
        shows={0: [[100, 50], [90]], 1: [[80]]}, says=("64 images per GPU", "hybrid", "1,024")),
    "4c agreement": case(figures_4c.agreement, np.geomspace(1e-6, 1e-5, 4), np.geomspace(1e5, 1e6, 3), {"one": GRID},
        (2e-6, 3e5), shows={0: [[2], [0.3]]}, says=("the pair used here",)),
    "4c tornado": case(figures_4c.tornado, [("wide", {64: (0.5, 1.0)}), ("narrow", {64: (0.8, 0.9)})], {64: 0.85},
        {64: 0.9}, shows={0: [[90, 90]]}, says=("narrow\nwide", "published")),  # the widest on top
    "4c roofline": case(figures_4c.roofline, [("net", 1000.0, {"mixed": 4e12, "single": 3e12})],
        {"mixed": 5e12, "single": 4e12}, 12e12, 1e10, shows={0: [[4], [3]]},
        says=("ridge: 500 FLOP/byte", "net", "mixed: 5.0 TFLOP/s")),
    "4c thresholds": case(figures_4c.thresholds, np.array([1e5, 1e6, 1e7]), {"ring": np.array([0.1, 0.5, 0.4])}, 0.879,
        4e5, shows={0: [[10, 50, 40]]}, says=("published: 87.9 %", "used above")),
    "4c accuracy and time": case(figures_4c.accuracy_and_time, SYSTEMS, shows={0: [[75.3], [76.3]], 1: [[58.8]]},
        says=("ResNet-50", "AlexNet", "A, 8", "B, 256")),
    "4c minute": case(figures_4c.minute, GPUS, GPUS * 0 + 1e9, 1e6 / GPUS, (1024, 3.0), ["now", "more"], "caption",
        shows={0: [[60, 60], [15625, 976.5625, 15.26], [36_000] * 3, [6]]},
        says=("now", "more", "caption", "1 min", "1,024")),  # times beyond the axis are drawn at its ends
}  # fmt: skip

test_a_figure_shows_what_it_is_given = suite(FIGURES)


@pytest.mark.parametrize("name", PLANS)
def test_before_the_first_round_nothing_is_summed_and_after_the_last_all_is(name):
    plan, ranks = list(PLANS[name][0]), PLANS[name][1]
    assert "Σ" not in figures.said(figures_4a.rounds(plan, ranks, 0, group=3))
    assert figures.said(figures_4a.rounds(plan, ranks, len(plan))).count("Σ") == ranks * ranks


@pytest.mark.parametrize("ranks", [figures_4a.POWERS, figures_4a.BETWEEN])
@pytest.mark.parametrize(("alpha", "beta", "group"), [(1e-7, 1e-12, 2), (1e-3, 1e-8, 32)])
@pytest.mark.parametrize("at", [2, 65_536])
def test_maps_are_drawn_at_all_ends(ranks, alpha, beta, group, at):
    link, inner = Link(alpha, 1 / beta), Link(alpha / 100, 100 / beta)
    texts = ("ring", "hierarchical", "halving", "the cheapest", f"time with {at:,} ranks")
    figures.check(lambda: figures_4a.winners(link, group, ranks=ranks, at=at), texts, {})
    figures.check(lambda: figures_4a.winners(link, group, inner, at=at, hosts=True), texts, {})


def test_the_line_between_two_colours_is_where_the_formulas_are_equal():
    chart, _ = figures_4a.winners(LINK, 8, among=("ring", "hierarchical")).axes
    ((ranks, sizes),) = [line.get_data() for line in chart.lines]
    seen = np.isfinite(sizes)
    assert seen.any()
    ring = allreduce.ring(ranks[seen], sizes[seen], LINK)
    assert ring == pytest.approx(allreduce.hierarchical(ranks[seen], sizes[seen], LINK, 8))


@pytest.mark.parametrize(
    ("far_first", "cheapest"), [(True, ["halving", "hierarchical", "ring"]), (False, ["halving"] * 3)]
)
def test_with_the_near_partner_first_the_map_has_halving_where_it_had_all_three(far_first, cheapest):
    near = Link(LINK.latency / 10, 10 * LINK.bandwidth)
    _, times = figures_4a.winners(LINK, 8, near, hosts=True, far_first=far_first).axes
    lines = {line.get_label(): line for line in times.lines if line.get_label() in figures_4a.COLOURS}
    seconds = {name: np.interp([1e3, 1e7, 1e9], *line.get_data()) for name, line in lines.items()}
    assert [min(seconds, key=lambda name: seconds[name][size]) for size in range(3)] == cheapest
