"""The figures of lab 7: what they say, and the numbers that they are made of."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from course_lib import statistics
from course_lib.parallel import schedules
from labs.lab7_splitting_the_model.lessons import figures_7a, figures_7b, figures_7c, systolic, wire_words
from labs.lab7_splitting_the_model.lessons.checks_7a import loads
from tests.labs import figures

SEEDS = (1, 2, 3)
EXPERTS = pd.DataFrame(
    [{"setting": setting, "seed": seed, "use": "result", "dropped": 0.1 * place, "fullest": 0.25 + 0.1 * place,
      "test accuracy": 0.8 + 0.01 * seed * (1 + place)}
     for place, setting in enumerate(("one expert", "alpha 1", "alpha 0", "alpha 0.01")) for seed in SEEDS]
    + [{"setting": "alpha 0", "seed": 101, "use": "tuning"}]
)  # fmt: skip
WORDS = pd.DataFrame(
    [
        {"rank": rank, "plan": plan, "tokens": 256, "counted": 100.0 + rank}
        for plan in wire_words.PLANS
        for rank in (0, 1)
    ]
)
RUNS = {"one": schedules.run(schedules.gpipe(2, 3)), "two": schedules.run(schedules.gpipe(3, 2))}
BUBBLES = pd.DataFrame(
    [{"what": "serial", "micro": 1, "seconds": 2.0}, {"what": "message by socket", "micro": 9, "seconds": 0.1}]
    + [{"what": "GPipe", "micro": m, "seconds": 1.0 + m, "idle": 0.6 / m, "predicted": 1 / (m + 1)} for m in (1, 2)]
)
SCORES = {("flush", 1): 0.82, ("current", 2): 0.81, ("current", 4): 0.8, ("current", 8): 0.7, ("stashed", 2): 0.8,
          ("stashed", 4): 0.8, ("stashed", 8): 0.75, ("longer", 8): 0.8}  # fmt: skip
STALE = pd.DataFrame(
    [{"way": way, "stages": stages, "rate": rate, "seed": 101, "use": "tuning", "validation accuracy": score - rate}
     for (way, stages), score in SCORES.items() for rate in (0.1, 0.2)]
    + [{"way": way, "stages": stages, "rate": rate, "seed": seed, "use": use, "test accuracy": score + 0.01 * seed}
       for (way, stages), score in SCORES.items() for seed in (3, 2, 1)
       for use, rate in (("result", 0.1), ("half rate", 0.05)) if use == "result" or way == "longer"]
)  # fmt: skip
ENERGY = pd.DataFrame(
    [{"order": order, "batch": batch, "arithmetic": 25, "registers": 2, "SRAM": 20, "DRAM": 2_000 / batch}
     for order in ("row by row", "blocked") for batch in (1, 2, 4)]
)  # fmt: skip
CACHES = pd.DataFrame({"bytes": [8_192] * 3 + [2**20] * 3, "nanoseconds": [1, 2, 9, 10, 11, 90], "gigabytes": 50.0})
BLOCKS = pd.DataFrame(
    [(0, 64, 2.0), (1, 64, 10.0), (1, 64, 14.0), (8, 64, 50.0), (1, 32, 9.0), (8, 32, 40.0)],
    columns=["rows", "depth", "gigaflops"],
).assign(what="C++", number="float32")
ALONE = pd.DataFrame({"rows": [-1], "depth": [64], "gigaflops": [60.0], "what": ["registers alone"]})
LANES = pd.DataFrame(
    [("float32", 4, 20.0), ("float32", 8, 40.0), ("float64", 2, 10.0), ("float64", 4, 21.0)],
    columns=["number", "lanes", "gigaflops"],
).assign(what="NumPy")
LOOPS = pd.DataFrame({"batch": [1, 8], "iterations": [100, 800], "yours": [100, 400], "bound": [90, 200]})
BUSY = systolic.layer(batch=3, tiles=1, side=4).busy

FIGURES = {
    "7a balance": (
        lambda: figures_7a.balance(EXPERTS, "here"),
        ("0\n.01\n1", "one expert", "here"),
        {0: [[20, 30, 10]]},
    ),
    "7a plans": (
        lambda: figures_7a.plans(lambda *step: sum(loads(*step)), WORDS, "here"),
        (*figures_7a.NAMES.values(), "here"),
        {0: [[100.5]]},
    ),
    "7b timelines": (
        lambda: figures_7b.timelines(RUNS, caption="here"), ("one", "two", "stage 0\nstage 1\nstage 2", "here"), {},
    ),
    "7b ticks": (lambda: figures_7b.ticks(4, [6, 4, 2, 0]), ("stage 0: delay 6", "stage 3: delay 0"), {}),
    "7b plan": (
        lambda: figures_7b.plan([4, 1, 1, 2], {"halves": [2], "yours": [1]}),
        ("halves: the slowest takes 5", "yours: the slowest takes 4"),
        {},
    ),
    "7b bubbles": (
        lambda: figures_7b.bubbles(BUBBLES, "here"),
        ("measured, GPipe",),
        {0: [[1 / 2, 1 / 3], [0.6, 0.3]], 1: [[1, 2 / 3]]},
    ),
    "7b stale": (
        lambda: figures_7b.stale(STALE, "here"),
        ("flush", "8 stages", *figures_7b.WAYS.values()),
        {0: [[0.72, 0.62]]},
    ),
    "7c energy": (
        lambda: figures_7c.energy(ENERGY),
        ("row by row", "blocked", *figures_7c.SOURCES),
        {1: [[2_000, 1_000, 500]]},
    ),
    "7c hierarchy": (
        lambda: figures_7c.hierarchy(CACHES, {"L1": 32_768, "L2": 2**19}),
        ("L1", "L2", "nanoseconds", "gigabytes"),
        {0: [[2, 11], [32_768] * 2, [2**19] * 2]},
    ),
    "7c products": (
        lambda: figures_7c.products(pd.concat([BLOCKS, ALONE, LANES])),
        ("row times column", "multiply-adds in registers alone", "32 products at a time", "float64"),
        {0: [[12, 50], [60, 60], [2, 2]], 1: [[2, 4]]},
    ),
    "7c products without NumPy's": (lambda: figures_7c.products(BLOCKS), ("64 products at a time",), {}, ("float64",)),
    "7c orders": (
        lambda: figures_7c.orders({"plain": 9_000, "yours": 3_000}, 2_000),
        ("plain", "yours", "fewer than 2,000"),
        {0: [[9_000, 3_000]]},
    ),
    "7c short loops": (
        lambda: figures_7c.short_loops(LOOPS, 64), ("yours", "lower bound", "2 / √M"), {0: [[1, 0.5]]},
    ),
    "7c wave": (
        lambda: figures_7c.wave(BUSY), [str(cycle) for cycle in range(13)], {n: [BUSY[n]] for n in range(13)},
    ),
    "7c roof": (
        lambda: figures_7c.roof(180, 600, 2), ("TPU2", "this chip", "batch 300"), {0: [[300, 300]]},
    ),
    "7c utilisation": (
        lambda: figures_7c.utilisation(pd.DataFrame({"batch": [1, 2], "one tile": [0.1, 0.2], "more": [0.3, 0.5]})),
        ("one tile", "more"),
        {0: [[0.3, 0.5]]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_says_what_it_is_given(name):
    figures.check(*FIGURES[name])


NUMBERS = {
    "7a summary": (
        lambda: figures_7a.summary(EXPERTS).loc["one expert", "test accuracy"][["mean", "half"]],
        [100 * value for value in statistics.mean([0.81, 0.82, 0.83])],
    ),
    "7a gains": (
        lambda: figures_7a.gains(EXPERTS).loc["alpha 1", ["mean", "half"]],
        (2, 100 * statistics.mean([0.01, 0.02, 0.03])[1]),
    ),
    "7b losses": (
        lambda: figures_7b.losses(STALE).set_index(["way", "stages"]).loc[("current", 8), ["mean", "half"]], (0.12, 0),
    ),
    "7b summary": (
        lambda: figures_7b.summary(STALE).set_index(["way", "stages"]).loc[("flush", 1), ["mean", "half"]],
        statistics.mean([0.83, 0.84, 0.85]),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_of_figures(name):
    compute, expected = NUMBERS[name]
    np.testing.assert_allclose(np.asarray(compute(), float), expected, rtol=1e-3, atol=1e-9)


def test_a_batch_is_on_its_way_there_and_back():
    (axis,) = figures_7b.ticks(4, [6, 4, 2, 0]).axes
    strong = [patch for patch in axis.patches if patch.get_alpha() is None]
    assert sorted(round(patch.get_x() + 0.46) for patch in strong) == [6, 7, 8, 9, 9, 10, 11, 12]


@pytest.mark.parametrize("chip", [*itertools.product((15, 600), (100, 6_000), (1, 4))])
def test_the_roof_shows_its_bend_for_every_chip_that_can_be_chosen(chip):
    figure = figures_7c.roof(*chip)
    (axis,) = figure.axes
    label = axis.texts[0].get_window_extent()
    assert figure.bbox.x0 <= label.x0 and label.x1 <= figure.bbox.x1
    bend = axis.lines[2].get_xdata()[0]
    assert axis.get_xlim()[0] <= bend <= axis.get_xlim()[1]
