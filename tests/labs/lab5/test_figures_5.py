"""The figures of lab 5: what they say, and the numbers that they are made of."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_lib import statistics
from labs.lab5_precision_and_memory.lessons import activations, figures_5a, figures_5b, figures_5c, figures_5d
from labs.lab5_precision_and_memory.lessons.counted_chain import Chain
from labs.lab5_precision_and_memory.lessons.offload import Work, timeline
from tests.labs.figures import case, numbers, suite

SEEDS = (1, 2, 3)
POWERS = figures_5a.powers({f"{kind} {n}": np.float32([1, 2, 2, 0]) for kind in figures_5a.KINDS for n in (1, 2)})
LOST = pd.DataFrame([{"kind": "weights", "layer": n, "updates": u, "lost": 0.1 * n} for n in (1, 2) for u in (0, 10)])
FORMATS = pd.DataFrame(
    [{"way": way, "seed": seed, "use": "result", "test accuracy": score + 0.01 * seed, "loss at 3": loss,
      "loss at 6": loss / 2} for way, score, loss in (("float32", 0.8, 1), ("float16", 0.7, 1.2)) for seed in SEEDS]
    + [{"way": "float16", "power": power, "seed": seed, "use": "window", "test accuracy": 0.5 + 0.1 * seed}
       for power in (-4, 0) for seed in SEEDS]
    + [{"way": "float32", "seed": 101, "use": "tuning"}]
)  # fmt: skip
ERRORS = pd.DataFrame(
    [{"way": way, "ranks": n, "error": n / 100, "numbers": n - 1} for way in ("ring", "yours") for n in (2, 4)]
)
BITS = pd.DataFrame(  # as `experiments/5b_gradient_bits.py` writes it
    [{"regime": regime, "seed": seed, "use": "result", "sent as 0": 0.5, "part": "float32", "test accuracy": plain}
     for regime, plain in (("64", 0.86), ("1,280", 0.82)) for seed in SEEDS]
    + [{"regime": regime, "seed": seed, "use": "result", "sent as 0": 0.5, "part": "map", "exponent": exponent,
        "mantissa": mantissa, "scale": scale, "way": way,
        "test accuracy": plain - (lost if exponent == 3 else -0.001 * (seed - 2))}
       for regime, plain in (("64", 0.86), ("1,280", 0.82)) for seed in SEEDS
       for scale, way, lost in (("none", "ring", 0.2), ("each", "ring", 0.02), ("each", "twice", 0.0))
       for exponent, mantissa in ((3, 0), (4, 3))]
)  # fmt: skip
AHEAD = pd.DataFrame({"name": ["a", "b"], "difference": [-1.0, 2.0], "half": [0.5, 0.25]})
LINKS = pd.DataFrame(
    [{"link": link, "bits": bits, "seconds per step": 0.1, "fastest tenth": 0.09, "slowest tenth": 0.12,
      "computing": 0.01, "cable alone": cable} for link, cable in (("no limit", 0), ("slow", 0.07)) for bits in (32, 4)]
)  # fmt: skip
PROFILE = pd.DataFrame(
    {"phase": ["start", "forward", "backward"], "peak": [1e6, 3e6, 2e6], "weights": 5e5, "state": 2e5,
     "gradients": [0, 0, 1e5], "activations": [0, 1e6, 5e5]}
)  # fmt: skip
DEPTH = np.array([10, 20, 40])
DEPTHS = pd.DataFrame({"depth": DEPTH, "kept": 1e4 * DEPTH**2, "again": 1e6 * DEPTH})
SHARES = pd.DataFrame(
    {"stage": [0, 1, 1], "ranks": [1, 4, 64], "weights": 2.0, "gradients": 2.0, "state": [12, 3, 0.1875]}
)
RATES = pd.DataFrame(
    {
        "place": ["before", "before", "after", "after"],
        "rank": [0, 1, 0, 1],
        "layer": "w1",
        "ratio": [0.8, 0.9, 1, np.nan],
    }
)
RECOMPUTED = pd.DataFrame(
    [{"depth": depth, "recompute": again, "run": run, "megabytes": 10 * depth / (1 + again) + run,
      "processor seconds": 2.0 + again} for depth in (16, 28) for again in (False, True) for run in SEEDS]
)  # fmt: skip
COUNTED = pd.DataFrame([{"depth": d, "recompute": a, "megabytes": 9 * d} for d in (16, 28) for a in (False, True)])
ZEROS = pd.DataFrame(
    [{"updates": u, "block": block, "kind": kind, "zeros": 0.1 * block}
     for u in (0, 10) for block in (1, 2) for kind in activations.KINDS]
)  # fmt: skip
RACE = pd.DataFrame({"density": [0.1, 1.0], "dense": 0.003, "compressed": 0.001, "compressing": 0.01, "rows": 0.0005})
PRUNED = pd.DataFrame(
    [{"way": way, "density": density, "seed": seed, "use": "result", "test accuracy": score + 0.01 * seed}
     for way, score, densities in (("not retrained", 0.3, (0.5, 0.1)), ("at once", 0.7, (0.5, 0.1)),
                                   ("gradual", 0.8, (0.5, 0.1)), ("rows", 0.6, (0.5, 0.1)),
                                   ("filters", 0.5, (0.5, 0.1)), ("dense", 0.85, (1.0,)), ("random", 0.85, (0.1,)))
     for density in densities for seed in SEEDS]
    + [{"way": "dense", "density": 1.0, "seed": 101, "use": "tuning"}]
)  # fmt: skip
RECURRENT = pd.DataFrame(
    [{"network": name, "seed": seed, "use": "result", "test accuracy": score + 0.01 * seed}
     for name, score in (("small", 0.7), ("large", 0.8)) for seed in SEEDS]
)  # fmt: skip


def chain():
    calls = Chain(2)
    x, slope = calls.start()
    y = calls.forward(0, x)
    slope = calls.backward(1, y, slope)
    del y
    calls.backward(0, x, slope)
    return calls.calls


def offload(moved):
    layers = [Work("a", 1.0, 1e9, 0.5), Work("b", 1.0, 2e9, 1.0)]
    step = timeline(layers, moved, lambda needed, seconds: [n - s for n, s in zip(needed, seconds)])
    return figures_5c.offload(step, ["a", "b"], caption="c")


FIGURES = {
    "5a histograms": case(lambda: figures_5a.histograms(POWERS, "here"),
        shows={0: [POWERS["weights 1"], [-14, 16 - 2**-11 / np.log(2)]]},
        says=(*figures_5a.KINDS, "layer 1", "layer 2", "float16", "here")),  # the second: float16's normal numbers
    "5a along": case(figures_5a.along, LOST, shows={0: [[0.1, 0.1], [0.2, 0.2]]}, says=("weights", "layer 2")),
    "5a descents": case(figures_5a.descents, {"float32": [0, 0.9]}, shows={0: [[1, 0.1]]}),
    "5a bounds": case(figures_5a.bounds, {"a": np.array([1.0, 4, 2])}, lambda seen: 2 * seen[-1], shows={0: [[2, 8]]}),
    "5a formats": case(figures_5a.formats, FORMATS, "here", shows={0: [[0, 0], [0.2, 0.1]]},
        says=("float32", "float16", "here")),
    "5a mixed LARS": case(figures_5a.mixed_lars, FORMATS, "here", shows={0: [[1, 0.5], [1.2, 0.6]]},
        says=("float32", "float16")),
    "5a window": case(figures_5a.window, FORMATS, "here", shows={0: [[0.7, 0.7]]}, says=("float16", "here")),
    "5b errors": case(figures_5b.errors, ERRORS, caption="here", shows={0: [[0.02, 0.04]], 1: [[1, 3]]},
        says=("ring", "yours")),
    "5b windows": case(figures_5b.windows,
        {"as they are": {"kernel": np.array([0, 0.05, 0.1, 1, -2]), "bias": np.array([4.0])} }, (3, 0),
        says=("50%", "0%")),
    "5b losses": case(figures_5b.losses, {"healthy": [1.0] * 10, "broken": [2.0] * 3}, shows={0: [[3]]}),
    "5b map": case(figures_5b.bits_map, BITS, "here",
        says=("B = 64: plain cast, ring", "B = 1,280: factors, rounded twice", "−20", "here")),
    "5b differences": case(figures_5b.differences, {"B = 64": AHEAD, "B = 1,280": AHEAD}, shows={0: [[-1.0, 2.0]]},
        says=("a", "b")),
    "5b slow link": case(figures_5b.slow_link, LINKS,
        shows={0: [[10, 10], [90, 90]], 1: [[10, 10], [70, 70], [20, 20]]}, says=("float32", "4 bits")),
    "5c step": case(figures_5c.step, {"few": PROFILE, "many": PROFILE.assign(peak=2 * PROFILE["peak"])},
        shows={0: [[1, 3, 2], [3]]}, says=("few: at most 3.0 MB", "many: at most 6.0 MB", "weights", "activations")),
    "5c by depth": case(figures_5c.by_depth, DEPTHS, shows={0: [DEPTH]}, says=("slope 2.00", "slope 1.00")),
    "5c schedules": case(figures_5c.schedules, {"plain": chain()}, shows={0: [[[2, 1, 3], [0, 3, 0]]]},
        says=("plain: 1 forwards, 1 kept",)),  # forward, kept, backward of the first layer; the second's
    "5c trade": case(figures_5c.trade, {"yours": (3, 20)}, 10, shows={0: [[3], [20]]}, says=("the fewest possible",)),
    "5c offload": case(offload, [], says=("0 of 2 inputs moved", "c")),
    "5c offload one": case(offload, [0], says=("1 of 2 inputs moved: 6,000 ms", "to the host")),
    "5c shares": case(figures_5c.shares, SHARES, says=("nothing shared out", "stage 1", "7", "4.19")),
    "5c rates": case(figures_5c.rates, RATES, shows={0: [[0.8], [0.9]]}, says=("before", "after", "rank 1")),
    "5c recompute": case(figures_5c.recompute, RECOMPUTED, COUNTED,
        shows={0: [[144, 252], [162, 282], [82, 142]], 1: [[2, 2], [3, 3]]},
        says=("everything kept", "each block recomputed")),
    "5d zeros": case(figures_5d.zeros, ZEROS, shows={1: [[0.1, 0.1], [0.2, 0.2]]},
        says=(*activations.KINDS, "block 2")),
    "5d race": case(figures_5d.race, RACE, shows={0: [[3, 3], [1, 1], [10, 10], [0.5, 0.5]]},
        says=("compressed each time",)),
    "5d schedules": case(figures_5d.schedules, {"start": lambda update, updates, final: final}),
    "5d pruned": case(figures_5d.pruned, PRUNED, "here",
        says=("dense", *figures_5d.LABELS.values(), "at random, retrained")),
    "5d grains": case(figures_5d.grains, PRUNED, "here", shows={0: [[0.72, 0.72]]},
        says=("dense", *figures_5d.GRAIN_WAYS.values())),
    "5d recurrent": case(figures_5d.recurrent, RECURRENT, shows={0: [[0.72], [0.82]]}, says=("small", "large")),
}  # fmt: skip

test_a_figure_shows_what_it_is_given = suite(FIGURES)


VALUES = figures_5d.PRUNABLE * 4  # bytes
NUMBERS = {
    "5a against float32": (
        lambda: figures_5a.against_float32(FORMATS).loc["float16"],
        (0.72, statistics.mean([0.71, 0.72, 0.73])[1], -0.1, 0),
    ),
    "5b against float32": (
        lambda: figures_5b.against_float32(BITS).set_index(["regime", "exponent", "scale", "way"]).loc[
            ("64", 3, "none", "ring"), ["difference", "half"]],
        (-20, 0),
    ),
    "5b half": (
        lambda: figures_5b.against_float32(BITS).set_index(["regime", "exponent", "scale", "way"]).loc[
            ("64", 4, "each", "ring"), "half"],
        4.303 * 0.1 / 3**0.5,
    ),
    "5d summary": (
        lambda: figures_5d.summary(PRUNED, ["way", "density"]).set_index(["way", "density"]).loc[("dense", 1.0)],
        statistics.mean([0.86, 0.87, 0.88]),
    ),
    "5d losses": (
        lambda: figures_5d.losses(PRUNED).set_index(["way", "density"]).loc[("gradual", 0.1), ["mean", "half"]],
        (0.05, 0),
    ),
    "5d bytes of all": (lambda: figures_5d.kept_bytes("filters", 1.0), VALUES),
    # None for what reads a removed filter.
    "5d bytes of filters": (lambda: figures_5d.kept_bytes("filters", 0.1), 4 * 9 * (3 * 16 + 6 * 3)),
    "5d bytes and a bit each": (
        lambda: figures_5d.kept_bytes("at once", 0.5), 0.5 * VALUES + figures_5d.PRUNABLE / 8,
    ),
    "5d bytes and positions": (
        lambda: figures_5d.kept_bytes("at once", 0.02), 0.02 * VALUES + 0.02 * figures_5d.PRUNABLE * 2,
    ),
    "5d bytes of rows": (lambda: figures_5d.kept_bytes("rows", 0.5), 0.5 * VALUES + figures_5d.PRUNABLE / 24),
    "5d matching bytes": (
        lambda: figures_5d.matching_bytes(PRUNED, "rows", 0.5), figures_5d.kept_bytes("at once", 0.1),
    ),
}  # fmt: skip

test_numbers_of_figures = numbers(NUMBERS)


def test_powers_of_two_are_exact_and_what_is_beyond_counts_at_the_ends():
    numbers = np.float32([0, 1, -2, 3.9, 0.5, 2.0**-30, 2.0**-100, 2.0**40])
    shares = figures_5a.powers({"weights 1": numbers, "none": np.zeros(3, np.float32)})
    counted = dict(zip(range(figures_5a.LOWEST, figures_5a.HIGHEST + 1), 7 * shares["weights 1"]))
    expected = {0: 1, 1: 2, -1: 1, -30: 1, figures_5a.LOWEST: 1, figures_5a.HIGHEST: 1}
    assert {power: round(count) for power, count in counted.items() if count} == expected
    assert not shares["none"].any()


@pytest.mark.parametrize(("gain", "name"), [(0.01, "neither"), (0.1, "second"), (-0.1, "first")])
def test_a_difference_within_its_interval_is_called_none(gain, name):
    scores = {"a": [0.80, 0.81, 0.82], "b": [0.81 + gain, 0.80 + gain, 0.82 + gain]}
    rows = [(network, seed, score) for network in scores for seed, score in enumerate(scores[network])]
    table = pd.DataFrame(rows, columns=["network", "seed", "test accuracy"]).assign(use="result")
    assert figures_5d.better(table, "a", "b", ("first", "second")) == name
