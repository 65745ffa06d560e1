"""The figures of lab 2: what they say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_lib.collectives import simulated
from course_lib.notebook.plots.style import colour
from course_lib.ranks import launch
from labs.lab2_horovod.lessons import figures_2a, figures_2c, figures_2d, figures_steps
from labs.lab2_horovod.lessons.elastic_run import ElasticRun
from tests.labs import figures

MARKED = [simulated.marked(rank, 2) for rank in range(2)]
BLOCKS = pd.DataFrame(
    [(name, 0.01 * (1 + number), 1000.0 * number) for name in ("default", "fp16") for number in range(3)],
    columns=["setting", "seconds", "bytes"],
)
KNOB = BLOCKS.assign(knob="cycle", value=["5"] * 3 + ["1"] * 3)
RUNS = pd.DataFrame(
    [(kind, exchange, ranks, 100.0 * ranks, 1.0)
     for kind in ("weak", "strong") for exchange in (False, True) for ranks in (1, 2, 4)],
    columns=["scaling", "exchange", "ranks", "rate", "efficiency"],
)  # fmt: skip
LAW = {"published": (np.array([1, 100]), np.array([1.0, 56.0]), 0.0079)}
LOSSES = list(np.linspace(2, 0.1, 80))
RESUMED = {
    "nothing": {"losses": LOSSES[40:], "from_straight": 0.0, "between_ranks": 0.0},
    "broadcast": {"losses": LOSSES[40:], "from_straight": 0.3, "between_ranks": 0.4},
}
PARTS = pd.DataFrame({"moving": [1.0, 2.0], "waiting": [3.0, 1.0]}, index=[2, 3])


def ring(me, x):
    parts = [x[c : c + 1].copy() for c in range(me.size)]
    for step in range(me.size - 1):
        me.send(parts[(me.rank - step) % me.size], (me.rank + 1) % me.size)
        parts[(me.rank - step - 1) % me.size] += me.receive((me.rank - 1) % me.size)
    return np.concatenate(parts)


MESSAGES = simulated.run(ring, [simulated.marked(rank, 3) for rank in range(3)]).messages


def elastic(killed, went_on):
    steps = [(r, 5 + i / 10, i + 1, 3) for i in range(35) for r in range(3)]
    if went_on is not None:
        steps += [(r, killed + went_on + i / 10, i + 31, 2) for i in range(30) for r in (0, 2)]
    commits = pd.DataFrame(
        [(r, 5 + i / 10, i) for i in (10, 20, 30) for r in range(3)], columns=["rank", "time", "step"]
    )
    table = pd.DataFrame(steps, columns=["rank", "time", "step", "size"])
    return figures_2d.elastic(ElasticRun(table, commits, killed, 0.1, went_on, 5, launch.Result(0, 20)), caption="x")


def lost_time(ranks, write, restart):
    def lost_share(interval, write, restart, mtbf, ranks):
        return write / (interval + write) + (interval / 2 + restart) * ranks / mtbf

    return figures_2d.lost_time(lost_share, ranks, write, 5.8 * 365.25 * 86_400, restart, caption="yours")


FIGURES = {
    "2a holdings": (
        lambda: figures_2a.holdings({"reduce": (MARKED, [sum(MARKED), np.zeros(2)])}),
        ("reduce", "rank 0", "rank 1", "A", "B"),
        {},
    ),
    "2a messages": (
        lambda: figures_2a.messages(MESSAGES, 3, after=1),
        ("round 1", "chunk A", "chunk C"),
        {},
    ),
    "2a differences": (
        lambda: figures_2a.differences({"same": np.zeros(3), "apart": np.array([1e-3, 1e-2, 1e-1])}),
        ("same", "apart"),
        {0: [[1e-3, 1e-2, 1e-1]]},
    ),
    "2a sent": (
        lambda: figures_2a.sent([2, 4], {"ring": [(100, 2), (150, 6)], "all to all": [(100, 1), (300, 1)]}, length=100),
        ("ring", "all to all"),
        {0: [[1, 1.5], [1, 3]], 1: [[2, 6], [1, 1]]},
    ),
    "2c settings": (
        lambda: figures_2c.settings(BLOCKS, {"fp16": 500.0}),
        ("default", "fp16"),
        {0: [[20, 20]], 1: [[1, 1], [0.5]]},  # medians of the blocks
    ),
    "2c sweep": (lambda: figures_2c.sweep(KNOB, {"cycle": "cycle time (ms)"}, 8.0), ("5", "1", "1 kB"), {}),
    "2c speed": (
        lambda: figures_2c.speed(RUNS, cores=2, best=150.0),
        ("ideal", "weak, copies", "strong, copies", "one process, all cores", "side by side"),
        {0: [[100.0, 400.0]]},
    ),
    "2c speed of some": (
        lambda: figures_2c.speed(RUNS[RUNS["exchange"]], cores=4),
        ("weak", "strong"),
        {},
        ("copies",),
    ),
    "2c laws": (lambda: figures_2c.laws(LAW, both=True), ("published",), {0: [[1, 56]], 1: [[1, 56]]}),
    "2d elastic": (
        lambda: elastic(8.45, 1.05),
        ("rank 1 is killed", "5 steps lost", "commit", "x"),
        {0: [[10, 20, 30], [8.45], [35]]},
    ),
    "2d elastic without a kill": (lambda: elastic(None, None), ("rank 2",), {}, ("kill",)),
    "2d elastic without an end": (lambda: elastic(8.45, None), ("a kill",), {}, ("lost",)),
    "2d resumed": (
        lambda: figures_2d.resumed(LOSSES, RESUMED),
        ("exactly 0", "nothing", "broadcast"),
        {0: [LOSSES], 1: [[figures_2d.ZERO_POSITION], [0.3], [0.4]]},
    ),
    "2d lost time of one rank": (
        lambda: lost_time(1, 0.1, 0),
        ("1 ranks: a failure every 5.8 years, Young's interval 101 min, 0.0% of the time lost", "simulated", "yours"),
        {},
    ),
    "2d lost time of many": (
        lambda: lost_time(16_384, 30, 300),
        ("16,384 ranks: a failure every 3.1 h, Young's interval 13.6 min, 9.9% of the time lost",),
        {},
    ),
    "2d no time left": (
        lambda: lost_time(100_000, 1000, 3600),
        ("100,000 ranks: a failure every 30.5 min, Young's interval 31.9 min, no time is left",),
        {},
    ),
    "steps": (
        lambda: figures_steps.steps({"even": PARTS, "late": 2 * PARTS}),
        ("even", "late", "moving", "waiting"),
        {0: [[1, 2], [3, 1], [4, 3]], 1: [[8, 6]]},
    ),
    "lateness": (
        lambda: figures_steps.lateness(pd.DataFrame({0: [0.0, 1.0], 1: [20.0, 25.0]}), asleep=20),
        ("rank 0", "rank 1", "20 ms of sleep"),
        {0: [[0, 1], [20, 25], [20, 20]]},
    ),
    "uneven sizes": (
        lambda: figures_steps.uneven(range(100, 104), {2: [False, True, True, False], 4: [False] * 4}),
        ("2 ranks", "4 ranks"),
        {0: [[100.5, 101.5]]},
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_says_what_it_is_given(name):
    figures.check(*FIGURES[name])


@pytest.mark.parametrize(("after", "parts"), [(0, 9), (1, 12), (2, 18)])
def test_each_round_brings_parts_to_their_ranks(after, parts):
    _, grid = figures_2a.messages(MESSAGES, 3, after).axes
    pixels = np.asarray(grid.images[0].get_array())
    colours = [tuple(int(colour(rank)[i : i + 2], 16) / 255 for i in (1, 3, 5)) for rank in range(3)]
    assert sum(np.isclose(pixels, ink).all(axis=2).sum() for ink in colours) == parts


def test_no_line_of_speed_hides_another():
    for axis in figures_2c.speed(RUNS, cores=2).axes:
        lines = [line for line in axis.lines if line.get_linestyle() in ("-", "--") and len(line.get_xdata()) == 3]
        assert (
            len({(line.get_color(), line.get_marker(), tuple(line.get_xdata())) for line in lines}) == len(lines) == 4
        )


def test_durations_have_their_unit():
    durations = [figures_2d._duration(seconds) for seconds in (0.5, 90, 500, 11_134, 400_000, 2e8)]
    assert durations == ["0.5 s", "90 s", "8.33 min", "3.09 h", "4.63 days", "6.34 years"]
