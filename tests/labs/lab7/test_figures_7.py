"""The figures of lab 7: what they say, and the numbers that they are made of."""

from __future__ import annotations

import pandas as pd

from course_lib import statistics
from course_lib.parallel import schedules
from labs.lab7_splitting_the_model.lessons import figures_7a, figures_7b, figures_7c, systolic, wire_words
from labs.lab7_splitting_the_model.lessons.checks_7a import loads
from tests.labs.figures import case, numbers, suite

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
    "7a balance": case(figures_7a.balance, EXPERTS, "here", shows={0: [[20, 30, 10]]},
        says=("0\n.01\n1", "one expert", "here")),
    "7a plans": case(figures_7a.plans, lambda *step: sum(loads(*step)), WORDS, "here", shows={0: [[100.5]]},
        says=(*figures_7a.NAMES.values(), "here")),
    "7b timelines": case(figures_7b.timelines, RUNS, caption="here", says=("stage 0\nstage 1\nstage 2",)),
    "7b ticks": case(figures_7b.ticks, 4, [6, 4, 2, 0], says=("stage 0: delay 6", "stage 3: delay 0")),
    "7b plan": case(figures_7b.plan, [4, 1, 1, 2], {"halves": [2], "yours": [1]},
        says=("halves: the slowest takes 5", "yours: the slowest takes 4")),
    "7b bubbles": case(figures_7b.bubbles, BUBBLES, "here", shows={0: [[1 / 2, 1 / 3], [0.6, 0.3]], 1: [[1, 2 / 3]]},
        says=("measured, GPipe",)),
    "7b stale": case(figures_7b.stale, STALE, "here", shows={0: [[0.72, 0.62]]},
        says=("flush", "8 stages", *figures_7b.WAYS.values())),
    "7c energy": case(figures_7c.energy, ENERGY, shows={1: [[2_000, 1_000, 500]]},
        says=("row by row", "blocked", *figures_7c.SOURCES)),
    "7c hierarchy": case(figures_7c.hierarchy, CACHES, {"L1": 32_768, "L2": 2**19},
        shows={0: [[2, 11], [32_768] * 2, [2**19] * 2]}, says=("nanoseconds", "gigabytes")),
    "7c products": case(figures_7c.products, pd.concat([BLOCKS, ALONE, LANES]),
        shows={0: [[12, 50], [60, 60], [2, 2]], 1: [[2, 4]]},
        says=("row times column", "multiply-adds in registers alone", "32 products at a time", "float64")),
    "7c products without NumPy's": case(figures_7c.products, BLOCKS, says=("64 products at a time",),
        hides=("float64",)),
    "7c orders": case(figures_7c.orders, {"plain": 9_000, "yours": 3_000}, 2_000, shows={0: [[9_000, 3_000]]},
        says=("fewer than 2,000",)),
    "7c short loops": case(figures_7c.short_loops, LOOPS, 64, shows={0: [[1, 0.5]]},
        says=("yours", "lower bound", "2 / √M")),
    "7c wave": case(figures_7c.wave, BUSY, shows={n: [BUSY[n]] for n in range(13)},
        says=[str(cycle) for cycle in range(13)]),
    "7c roof": case(figures_7c.roof, 180, 600, 2, shows={0: [[300, 300]]}, says=("TPU2", "this chip", "batch 300")),
    "7c utilisation": case(figures_7c.utilisation,
        pd.DataFrame({"batch": [1, 2], "one tile": [0.1, 0.2], "more": [0.3, 0.5]}), shows={0: [[0.3, 0.5]]},
        says=("one tile", "more")),
}  # fmt: skip

test_a_figure_shows_what_it_is_given = suite(FIGURES)


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

test_numbers_of_figures = numbers(NUMBERS)
