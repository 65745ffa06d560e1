"""The figures of lab 2: what they say."""

from __future__ import annotations

import numpy as np
import pandas as pd

from course_lib.collectives import simulated
from course_lib.ranks import launch
from labs.lab2_horovod.lessons import checks_2c, figures_2a, figures_2b, figures_2c, figures_2d, figures_2f
from labs.lab2_horovod.lessons.elastic_run import ElasticRun
from tests.labs.figures import case, suite

MARKED = [simulated.marked(rank, 2) for rank in range(2)]
BLOCKS = pd.DataFrame(
    [(name, 0.01 * (1 + number), 1000.0 * number) for name in ("default", "fp16") for number in range(3)],
    columns=["setting", "seconds", "bytes"],
)
READERS = {
    "every other": lambda images, rank, size, epoch: np.arange(rank, images, size),
    "all": lambda images, rank, size, epoch: np.arange(images),
    "nothing": lambda images, rank, size, epoch: np.arange(0),
}
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
PROFILE = checks_2c.run_profile([(12, 0, 1, 0, 0, 0, 3), (12, 0, 40, 0, 0, 0, 3)], 2)
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
    "2a holdings": case(figures_2a.holdings, {"reduce": (MARKED, [sum(MARKED), np.zeros(2)])},
        says=("rank 0", "rank 1", "A", "B")),
    "2a messages": case(figures_2a.messages, MESSAGES, 3, after=1, says=("round 1", "chunk A", "chunk C")),
    "2a differences": case(figures_2a.differences, {"same": np.zeros(3), "apart": np.array([1e-3, 1e-2, 1e-1])},
        shows={0: [[1e-3, 1e-2, 1e-1]]}),
    "2a sent": case(figures_2a.sent, [2, 4], {"ring": [(100, 2), (150, 6)], "all to all": [(100, 1), (300, 1)]},
        length=100, shows={0: [[1, 1.5], [1, 3]], 1: [[2, 6], [1, 1]]}),
    "2b partition": case(figures_2b.partition, READERS, images=6, ranks=2, epochs=2,
        shows={0: [[[1, 2]] * 3 + [[0, 0]] + [[1, 2]] * 3], 1: [[[3, 3]] * 3 + [[0, 0]] + [[3, 3]] * 3],
               2: [np.zeros((7, 2))]},
        says=(*READERS, "epoch 0\nepoch 1", "rank 1", "several ranks")),
    "2f settings": case(figures_2f.settings, BLOCKS, {"fp16": 500.0}, shows={0: [[20, 20]], 1: [[1, 1], [0.5]]},
        says=("default",)),  # medians of the blocks
    "2f sweep": case(figures_2f.sweep, KNOB, {"cycle": "cycle time (ms)"}, 8.0, says=("5", "1", "1 kB")),
    "2f speed": case(figures_2f.speed, RUNS, cores=2, best=150.0, shows={0: [[100.0, 400.0]]},
        says=("ideal", "weak, copies", "strong, copies", "one process, all cores", "side by side")),
    "2f speed of some": case(figures_2f.speed, RUNS[RUNS["exchange"]], cores=4, says=("weak", "strong"),
        hides=("copies",)),
    "2f laws": case(figures_2f.laws, LAW, both=True, shows={0: [[1, 56]], 1: [[1, 56]]}),
    "2d elastic": case(elastic, 8.45, 1.05, shows={0: [[10, 20, 30], [8.45], [35]]},
        says=("rank 1 is killed", "5 steps lost", "commit", "x")),
    "2d elastic without a kill": case(elastic, None, None, says=("rank 2",), hides=("kill",)),
    "2d elastic without an end": case(elastic, 8.45, None, says=("a kill",), hides=("lost",)),
    "2d resumed": case(figures_2d.resumed, LOSSES, RESUMED,
        shows={0: [LOSSES], 1: [[figures_2d.ZERO_POSITION], [0.3], [0.4]]}, says=("exactly 0",)),
    "2d lost time of one rank": case(lost_time, 1, 0.1, 0,
        says=("1 ranks: a failure every 5.8 years, Young's interval 101 min, 0.0% of the time lost", "simulated",
              "yours")),
    "2d lost time of many": case(lost_time, 16_384, 30, 300,
        says=("16,384 ranks: a failure every 3.1 h, Young's interval 13.6 min, 9.9% of the time lost",)),
    "2d no time left": case(lost_time, 100_000, 1000, 3600,
        says=("100,000 ranks: a failure every 30.5 min, Young's interval 31.9 min, no time is left",)),
    "2c steps": case(figures_2c.steps, {"even": PARTS, "late": 2 * PARTS},
        shows={0: [[1, 2], [3, 1], [4, 3]], 1: [[8, 6]]}, says=("moving", "waiting")),
    "2c lateness": case(figures_2c.lateness, pd.DataFrame({0: [0.0, 1.0], 1: [20.0, 25.0]}), asleep=20,
        shows={0: [[0, 1], [20, 25], [20, 20]]}, says=("rank 0", "rank 1", "20 ms of sleep")),
    "2c parts": case(figures_2c.parts, {"before": PROFILE, "prefetch": PROFILE / 2},
        says=("before, rank 0", "prefetch, rank 1", "waiting", "input", "the rest"), hides=("metrics",)),
    "2c uneven sizes": case(figures_2c.uneven, range(100, 104), {2: [False, True, True, False], 4: [False] * 4},
        shows={0: [[100.5, 101.5]]}, says=("2 ranks", "4 ranks")),
}  # fmt: skip

test_a_figure_shows_what_it_is_given = suite(FIGURES)


def test_durations_have_their_unit():
    durations = [figures_2d._duration(seconds) for seconds in (0.5, 90, 500, 11_134, 400_000, 2e8)]
    assert durations == ["0.5 s", "90 s", "8.33 min", "3.09 h", "4.63 days", "6.34 years"]
