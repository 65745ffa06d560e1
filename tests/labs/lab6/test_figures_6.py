"""The figures of lab 6: what they say, and the numbers that they are made of."""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib import statistics
from labs.lab6_beyond_synchronous.lessons import figures_6a, figures_6b, figures_6c
from tests.labs.figures import case, numbers, suite

SEEDS = (1, 2, 3)
LOG_COLUMNS = ["worker", "read", "handed_in", "answered", "version", "update"]
LOG = pd.DataFrame([(0, 0, 0.1, 0.2, 0, 0), (1, 0, 0.2, 0.2, 0, 3), (0, 0.9, 1, 1, 1, 9)], columns=LOG_COLUMNS)
SIMULATED = np.array([[1.0, 0.5, 0.0], [1.0, 0.7, 0.4]])
STALE = pd.DataFrame(
    [{"way": way, "workers": workers, "momentum": momentum, "rate": 0.1 / workers, "seed": seed, "use": "result",
      "test accuracy": base - 0.01 * (workers - 1) + 0.001 * seed * workers}
     for way, momentum, base in (("asynchronous", 0.0, 0.80), ("asynchronous", 0.9, 0.79), ("even", 0.0, 0.7),
                                 ("aware", 0.0, 0.78), ("synchronous", 0.9, 0.75), ("long", 0.0, 0.82))
     for workers in (1, 2, 8) for seed in SEEDS]
    + [{"way": "even", "workers": 1, "momentum": 0.0, "seed": 101, "use": "tuning"}]
)  # fmt: skip
MOMENTA = pd.DataFrame(
    [{"workers": workers, "momentum": momentum, "seed": seed, "use": "result", "test loss": loss + noise * seed}
     for workers in (1, 4) for seed in (-1, 0, 1)
     for momentum, loss, noise in ((0, 0.5, 0), (0.5, 0.401, 0), (0.9, 0.4, 0.001 * workers), (-0.5, 0.6, 0))]
)  # fmt: skip
HOGWILD = pd.DataFrame(
    [{"part": "speed", "problem": problem, "way": way, "repeat": repeat, "updates per second": value * repeat}
     for problem in ("sparse", "dense") for way, value in (("alone", 10), ("locked", 5), ("lock-free", 20))
     for repeat in (1, 2)]
    + [{"part": "overlap", "problem": name, "repeat": 1, "common": common, "lost": common / 50}
       for name, common in (("10 values", 1.0), ("100 values", 0.1), ("100 values, uneven", 0.6))]
)  # fmt: skip
LOCAL = pd.DataFrame(
    [{"way": "local", "period": period, "ranks": 16, "momentum": 0.0, "pull": 0.0, "own classes": own, "rate": 0.2,
      "seed": seed, "use": "result", "updates": None if own and period == 16 else 100 + 10 * seed + period,
      "validation accuracy": 0.8, "distance": 0.1} for own in (False, True) for period in (1, 16) for seed in SEEDS]
)  # fmt: skip
WIRE = pd.DataFrame(
    [{"link": link, "period": period, "seconds": base / period, "fastest tenth": base / period * 0.9,
      "slowest tenth": base / period * 1.2, "computing": 1e-4}
     for link, base in (("quick", 0.001), ("slow", 0.01)) for period in (1, 16)]
)  # fmt: skip
WAYS = [
    *((way, ratio) for way in figures_6c.LADDER for ratio in (0.1, 0.01, 0.001)), ("dense", 1.0), ("signs", 1.0),
    ("signs, momentum before, nothing kept", 1.0), ("low rank, nothing kept", 1.0), ("low rank", 1.0),
    ("low rank", 4.0),
]  # fmt: skip
LESS = pd.DataFrame(
    [{"way": way, "amount": amount, "rate": 0.1, "seed": seed, "use": "result", "bytes": 100 + number,
      "test accuracy": 0.7 + 0.001 * number + 0.01 * seed}
     for number, (way, amount) in enumerate(WAYS) for seed in SEEDS]
    + [{"way": "dense", "amount": 1.0, "rate": 0.2, "seed": 101, "use": "tuning"}]
)  # fmt: skip
UNION = pd.DataFrame([{"ranks": n, "ratio": r, "union": n * r} for r in (0.1, 0.01) for n in (1, 2, 4)])
PARTS = pd.DataFrame(
    [{"link": link, "name": name, "seconds per step": 0.1, "fastest tenth": 0.09, "slowest tenth": 0.12,
      "computing": 0.02, "compressing": 0.03} for link in ("slow", "quick") for name in ("a", "b")]
)  # fmt: skip

FIGURES = {
    "6a timeline": case(figures_6a.timeline, {"one": LOG, "other": LOG}, seconds=0.5,
        shows={0: [[0.1, 0.1, 0.2, 0.0]]}, says=("worker 0\nworker 1", "0", "3")),  # a bar for each gradient
    "6a no answer": case(figures_6a.timeline, {"quorum 2": pd.DataFrame(columns=LOG_COLUMNS)},
        says=("quorum 2: nobody was answered",)),
    "6a paths": case(figures_6a.paths, SIMULATED, np.array([1.0, 0.61, 0.2]), "eight",
        shows={0: [*SIMULATED, SIMULATED.mean(0), [1.0, 0.61, 0.2]]},
        says=("mean of 2 runs", "one worker with your momentum and rate")),
    "6a untuned": case(figures_6a.untuned, (1, 2), {"constant": [0.1, 1e6], "yours": [0.1, 0.2]},
        shows={0: [[0.1, 10], [0.1, 0.2]]}),  # what diverged is at the edge
    # is asked for later
    "6a staleness": case(figures_6a.staleness, STALE, "here",
        says=(*figures_6a.WAYS.values(), *figures_6a.LENGTHS.values(), "here"), hides=("by staleness",)),
    "6a by staleness": case(figures_6a.by_staleness, STALE, "here", shows={1: [[0.05, 0.0125]]},
        says=("the same for all", "by staleness")),
    "6a momenta": case(figures_6a.momenta, MOMENTA, "here", says=("1 worker", "4 workers", "theory: the ages add up")),
    "6a hogwild": case(figures_6a.hogwild, HOGWILD, "here", shows={1: [[2, 0.2], [1.2]]}, says=("sparse\ndense",)),
    "6b updates": case(figures_6b.updates_to_target, LOCAL, shows={1: [[1, 1, 1, 16, 16, 16]]},
        says=("every rank has all classes", "classes of its own: every run")),
    "6b seconds": case(figures_6b.seconds, WIRE, says=("computing alone", "quick", "slow")),
    "6b consensus": case(figures_6b.consensus, {"one": [1, 0.5, 0.25], "two": [1, 0.1]}, {"one": 0.5},
        shows={0: [[1, 0.5, 0.25], [1, 0.1]]}),
    "6c by bytes": case(figures_6c.by_bytes, LESS, caption="here",
        says=("dense", *(name for name, *_ in figures_6c.FAMILIES.values()))),
    "6c ladder": case(figures_6c.ladder, LESS, shows={0: [[0.72 + 0.003 * number for number in range(6)]]},
        says=("1 of 10 sent", "1 of 100 sent", "1 of 1,000 sent", "\n".join(figures_6c.LADDER.values()))),
    "6c losses": case(figures_6c.losses, {"one": np.repeat([2.0, 1.0], 10)}, shows={0: [[2, 1], [5, 15]]}),
    "6c union": case(figures_6c.union, UNION, shows={0: [[0.1, 0.2, 0.4]]},
        says=("each sends 1 of 10", "each sends 1 of 100")),
    "6c costs": case(figures_6c.costs, {"1 of 10": [1, 2, 4]}, [2, 4, 8], [3, 3, 3], says=("dense, ring",)),
    "6c seconds": case(figures_6c.seconds, PARTS, caption="here", says=("slow", "quick", "a", "b")),
}  # fmt: skip

test_a_figure_shows_what_it_is_given = suite(FIGURES)


LOCAL_SETTING = ("local", 1, 16, 0.0, 0.0, False)
NUMBERS = {
    "6a lost": (
        lambda: figures_6a.lost(STALE, "asynchronous").set_index("workers").loc[2, ["mean", "half"]],
        statistics.mean([0.01 - 0.001 * seed for seed in SEEDS]),
    ),
    "6a best rates": (lambda: figures_6a.best_rates(STALE, "aware")[[1, 2, 8]], (0.1, 0.05, 0.0125)),
    "6a best momenta": (
        lambda: figures_6a.best_momenta(MOMENTA).set_index("workers").loc[1, ["best", "low", "high"]], (0.9, 0.5, 0.9),
    ),
    "6a the age stays": (
        lambda: [figures_6a.explicit(*pair) for pair in ((1, 0.9), (4, 0.8), (5.25, 0.8), (6, 0.8))],
        (0.9, 0.5, -1 / 3, np.nan),
    ),
    "6a speeds": (lambda: figures_6a.speeds(HOGWILD).set_index("way")["mean"][["locked"]], (0.5, 0.5)),
    "6b summary": (
        lambda: figures_6b.summary(LOCAL).set_index(figures_6b.BY).loc[LOCAL_SETTING, ["mean", "half"]],
        statistics.mean([111, 121, 131]),
    ),
    "6b where a run failed": (
        lambda: figures_6b.summary(LOCAL).set_index(figures_6b.BY).loc[
            ("local", 16, 16, 0.0, 0.0, True), ["mean", "reached", "runs"]],
        (np.nan, 0, 3),
    ),
    "6b seconds to target": (
        lambda: figures_6b.seconds_to_target(LOCAL.assign(ranks=2), WIRE).set_index(["link", "period"]).loc[
            ("slow", 16), ["mean", "half"]],
        np.array(statistics.mean([126, 136, 146])) * 0.01 / 16,
    ),
    "6c summary": (
        lambda: figures_6c.summary(LESS).set_index(["way", "amount"]).loc[("nothing kept", 0.1), ["mean", "half"]],
        statistics.mean([0.71, 0.72, 0.73]),
    ),
    "6c ahead": (lambda: figures_6c.ahead(LESS, ("nothing kept", 0.01), ("nothing kept", 0.1)), (0.1, 0)),
}  # fmt: skip

test_numbers_of_figures = numbers(NUMBERS)


def test_the_better_one_is_named_where_it_is_no_chance():
    assert figures_6a.better(STALE, 2, ("aware", "same")) == "same"
    noisy = STALE.copy()
    noisy.loc[(noisy["way"] == "aware") & (noisy["seed"] == 1), "test accuracy"] += 0.1
    assert figures_6a.better(noisy, 2, ("aware", "same")) == "neither"
