"""The figures of lab 3: what they say, and the numbers that they are made of."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from course_lib import statistics
from course_lib.notebook.plots import descent_paths
from labs.lab3_large_batch.lessons import critical_batch, figures_3a, figures_3b, figures_3c, figures_3d, figures_3e
from labs.lab3_large_batch.lessons import figures_3f as minima
from tests.labs import figures
from tests.labs.figures import case, numbers, suite

# 3a: two seeds for each batch size, of which the largest arrived once; |G|² = 2 and tr(C) = 600 but for one row
ARRIVALS = pd.DataFrame(
    [
        {"batch": b, "updates": critical_batch.updates(b, 30, 400) + seed}
        for b in (16, 64, 256, 1024)
        for seed in (-1, 1)
    ]
)
ARRIVALS.loc[7, "updates"] = None
SQUARES = pd.DataFrame({"batch": 64, "part": [0.0, 1, 1], "|g|² of 10": 62.0, "|g|² of 100": [8.0, 8, 1]})
GAP = pd.DataFrame(
    [(f"B = {batch}, {epochs} epochs", batch, epochs, 6400 // batch * epochs, 1 / epochs, 0.8 + 0.01 * seed)
     for batch in (64, 1280) for epochs in (5, 25, 100) for seed in range(3)]
    + [("naive", 1280, 5, 25, 0.7, 0.75)],
    columns=["method", "batch", "epochs", "updates", "training loss", "test accuracy"],
)  # fmt: skip
GAP_WITH_A_DIVERGED_RUN = GAP[GAP["method"] != "naive"].copy()
GAP_WITH_A_DIVERGED_RUN.loc[0, "test accuracy"] = np.nan


def equal_loss(batch, epochs):
    rows = {"seed": 1, "training loss": [0.4, 0.1], "test loss": [0.5, 0.3], "test accuracy": [0.8, 0.9]}
    return pd.DataFrame({**rows, "batch": batch, "use": "result", "method": "tuned", "epochs": epochs})


# 3b
RULES = ("the same rate", "linear", "linear, warm-up", "√", "√, warm-up", "LEGW")
SCALING = pd.DataFrame(
    [{"use": use, "rule": "tuned", "batch": batch, "eta": eta, "epochs": 8, "validation": 0.8 - eta, "test": test,
      "seed": seed}
     for batch in (16, 64)
     for use, test, etas in (("tuning", np.nan, (0.005, 0.01, 0.1)), ("result", 0.8, (0.005, 0.005)))
     for seed, eta in enumerate(etas, 1)]
    + [{"use": "result", "rule": rule, "batch": 64, "eta": 0.1, "epochs": 8, "seed": seed,
        "test": np.nan if rule == "linear" else 0.7} for rule in RULES for seed in (1, 2)]
)  # fmt: skip
BY_SEED = pd.DataFrame(
    [("tuned", 1, 0.8), ("tuned", 2, 0.9), ("√", 2, 0.91), ("√", 1, 0.79)], columns=["rule", "seed", "test"]
).assign(batch=64)
BENDS = pd.DataFrame(
    [(rule, 0, 1, after, eta, sharpness, batch)
     for rule, eta, sharpness, batch in (("√", 0.38, 10, 1024), ("small", 0.01, 10, 1024), ("small", 0.01, 20, 64))
     for after in (0, 4)]
    + [("√", 12, 1, after, 0.1, 5, batch) for after in (0, 4) for batch in (64, 1024)],
    columns=["rule", "warm_up", "seed", "after", "eta", "sharpness", "batch"],
)  # fmt: skip
LONGER = pd.DataFrame(
    [("tuning", 64, 8, eta, 0, 0.5, np.nan) for eta in (0.1, 0.2)]
    + [("result", 64, 8, 0.1, seed, 0.5, 0.6) for seed in (1, 2, 3)],
    columns=["use", "batch", "epochs", "eta", "seed", "validation", "test"],
)
WARM_UPS = pd.DataFrame({"warm_up": [0, 0, 12, 12], "seed": [1, 2, 1, 2], "validation": [0.8, 0.9, 0.7, 0.7]})
ONE_STEP = pd.DataFrame({"rule": "√", "batch": [16, 64], "measured": 1e-3, "predicted": 1e-3})
MANY_STEPS = pd.DataFrame({"rule": "√", "k": [1, 4], "mean": [1, 0.5], "covariance": [1, 0.25]})
STAGES = pd.DataFrame(
    [{"method": method, "updates": 30, "after 1": 0.5, "after 2": 0.7, "updates after 1": 20, "updates after 2": 30}
     for method in ("decay", "growth") for _ in range(3)]
)  # fmt: skip
DIVERGED = {"linear": [2.3, 50.0, float("nan")], "√, warm-up": [2.3, 1.0, 0.5]}


# 3c
def normalised():
    """As `experiments/3c_normalisation.py` writes it: accuracies that tell which run is which."""
    rows = []
    for (regime, large), seed in itertools.product((("few updates", 1280), ("overfitting", 640)), (1, 2)):
        for batch, ghost in ((64, 0), (large, 0), (large, 16)):
            score = 0.8 + 0.01 * seed + 0.05 * (batch == 64)
            rows.append(("ghost", "result", regime, batch, ghost, 0, "none", 0.2, seed, score))
        for decayed, rate, gain in (("all", 0.1, 0.0), ("kernels", 0.2, 0.03)):
            for at in (0.1, 0.2):
                use = "result" if at == rate else "same rate"
                score = 0.7 + 0.1 * seed + gain + 0.01 * (at == 0.2)
                rows.append(("decay", use, regime, large, 0, 0.01, decayed, at, seed, score))
        rows.append(("ghost", "same rate", regime, large, 0, 0, "none", 0.1, seed, 0.75 + 0.01 * seed))
    columns = ["part", "use", "regime", "batch", "ghost", "decay", "decayed", "rate", "seed", "test accuracy"]
    ranks = [
        {"part": "ranks", "use": "result", "batch": 8, "statistics": kind, "rank": rank, "seed": seed,
         "test accuracy": 0.6}
        for kind in ("per rank", "synchronised") for rank in (0, 1) for seed in (1, 2)
    ]  # fmt: skip
    return pd.concat([pd.DataFrame(rows, columns=columns), pd.DataFrame(ranks)], ignore_index=True)


NORMALISED = normalised()
CURVE = pd.DataFrame({"updates": [2, 4], "accuracy": [0.1, 0.2]})
NOISE = pd.DataFrame(
    [{"batch": m, "noise": noise, "variance": 1.0 if noise else 16 / m} for m in (16, 64) for noise in (False, True)]
).assign(statistics="moving averages")
NOISY = pd.DataFrame(
    [{"regime": "few updates", "batch": batch, "base": base, "seed": seed, "part": "training", "use": "result"}
     for batch, base in ((1280, 64), (64, 64), (1280, 1280), (1280, 256)) for seed in (1, 2)]
).assign(**{"test accuracy": 0.8})  # fmt: skip

# 3d, 3e, 3f
NAMES = ["conv 1", "conv 2", "dense"]
TRUST = np.arange(1.0, 31).reshape(10, 3)
DRAWN = {32: np.array([[1.0, 2, 3], [2, 4, 6], [9, 9, 9]]), 256: np.ones((3, 3))}
COST = pd.DataFrame(
    [(*row, decay) for decay in (0, 1e-4)
     for row in (("SGD", None, None), ("LARS", "SGD", 0.9), ("Adam", None, None), ("LAMB", "Adam", 1.2))],
    columns=["optimizer", "against", "ratio", "decay"],
)  # fmt: skip
VALLEY = pd.Series({0.1: 0.80, 0.3: 0.85, 1.0: float("nan")})
METHODS = pd.DataFrame(
    [{"use": "result", "rule": rule, "method": method, "batch": batch, "test": 0.8 + 0.01 * seed}
     for rule in ("", "√") for batch in (64, 1280) for method in figures_3e.METHODS for seed in range(3)]
)  # fmt: skip
SWITCHES = ("warm-up", "exempt", "LARS")
TRICKS = pd.DataFrame(
    [{"use": "result", "batch": 1280, "ghost": ghost, "longer": 0, "test": 0.7 + 0.01 * sum(on) + 0.001 * seed,
      **dict(zip(SWITCHES, on))}
     for on in itertools.product((0, 1), repeat=3) for seed in range(3) for ghost in (0, 1)]
)  # fmt: skip
SHARPNESS = pd.DataFrame(
    [(batch, 5, rate, batch / rate, 10.0, 0.8 if batch == 64 else 0.5)
     for batch in (64, 1280) for rate in (0.1, 0.2) for _ in range(2)],
    columns=["batch", "epochs", "rate", "sharpness", "length of w", "test accuracy"],
)  # fmt: skip
BETWEEN = pd.DataFrame(
    [(start, kind, alpha, start * 1.0, start + 1.0, 0.5)
     for start in (1, 2, 6) for kind in ("large", "small") for alpha in (-0.5, 0.0, 1.0, 1.5)],
    columns=["start", "to", "alpha", "training loss", "test loss", "test accuracy"],
)  # fmt: skip
T = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
DISTANCES = pd.DataFrame(
    [(network, rule, batch, 0.1, seed, t, seed * np.log(1 + t))
     for network, rule, batch in (("quick", "same", 32), ("quick", "same", 512), ("quick", "sqrt", 32),
                                  ("convex", "same", 512))
     for seed in (1, 3) for t in T],
    columns=["network", "rule", "batch", "rate", "seed", "updates", "distance"],
)  # fmt: skip
# A large batch that under ε = 4 is 2 points behind small-batch runs of its accuracy, and under ε = 1 level.
ATTACKS = pd.DataFrame(
    [(batch, 0.1, epochs, seed, loss, clean, clean - 0.05, attacked) for seed in (1, 2, 3)
     for batch, epochs, loss, clean, attacked in ((64, 2, 1 / 2, 0.8, 0.6), (64, 8, 1 / 8, 0.88, 0.68),
                                                  (1280, 80, 0.25, 0.84, 0.62))],
    columns=["batch", "rate", "epochs", "seed", "training loss", "test accuracy", "attacked, ε = 1", "attacked, ε = 4"],
)  # fmt: skip
IMAGES = np.zeros((2, 4, 4, 1))

FIGURES = {
    "3a to target": case(figures_3a.to_target, ARRIVALS, target=0.84, caption="Fashion-MNIST",
        says=("updates to 84 % validation accuracy",), hides=("your run",)),
    "3a to target, the reader's own": case(figures_3a.to_target, ARRIVALS,
        pd.DataFrame({"batch": [64, 256], "updates": [200, None]}), target=0.84, says=("your run",)),
    "3a bend": case(figures_3a.bend, ARRIVALS, SQUARES, target=0.84, fit=lambda b, s: (31.4, 159.2),
        says=("floor 31", "bend 159")),
    "3a bend by itself": case(figures_3a.bend, ARRIVALS, SQUARES, target=0.84, says=("bend 4",)),
    "3a scales": case(figures_3a.scales, SQUARES, hides=("yours",)),
    "3a scales, the reader's own": case(figures_3a.scales, SQUARES,
        pd.DataFrame({"part": [0, 1], "noise scale": [200.0, 400.0]}), says=("yours",)),
    "3a gap": case(figures_3a.gap, GAP, shows={0: [[81, 81, 81]]},
        says=("2,500 updates", "25 updates", "B = 1,280 with the small batch's η")),
    "3a gap with a diverged run": case(figures_3a.gap, GAP_WITH_A_DIVERGED_RUN, shows={0: [[81.5, 81, 81]]},
        says=("B = 1,280",), hides=("with the small",)),
    "3a equal loss": case(figures_3a.equal_loss, equal_loss(64, [2, 4]), equal_loss(640, [4, 80]),
        caption="a caption", says=("B = 64, 2 to 4 epochs", "B = 640, 80 epochs")),  # without the shortest run
    "3b rules": case(figures_3b.rules, SCALING, caption="a caption", shows={0: [[-10], [np.nan]], 1: [[0.005, 0.01]]},
        says=("minus that of the best rate, points", "LEGW", "linear, warm-up")),  # the rates that are nearly as good
    "3b curvature": case(figures_3b.curvature, BENDS, momentum=0.9, caption="a caption",
        shows={0: [[10, 10]], 1: [[20, 20], [5, 5], [10, 10]]},
        says=("0.38", "η = 0.01", "B = 64", "B = 1,024")),  # the edge: 2 · 1.9 / 0.38
    "3b longer": case(figures_3b.longer, LONGER, caption="a caption", shows={0: [[50, 50]], 1: [[60, 60, 60]]}),
    "3b base warm-up": case(figures_3b.base_warm_up, WARM_UPS, caption="x", shows={0: [[80, 90]]}, says=("0\n12",)),
    "3b optimum": case(figures_3b.optimum, {1: 0.001, 4: 0.004, 16: 0.01}, edge=0.1, caption="a model",
        shows={0: [[0.001, 0.004, 0.016], [0.001, 0.002, 0.004]]}, says=("best learning rate", "linear", "√")),
    "3b steps": case(figures_3b.steps, ONE_STEP, MANY_STEPS, caption="a caption",
        shows={0: [[1e-3, 1e-3]], 1: [[1, 0.5]], 2: [[1, 0.25]]}, says=("cov(Δw)",)),
    "3b shapes": case(figures_3b.shapes, {"√": (np.arange(24) / 3, np.ones(24))}, title="a title",
        shows={0: [np.arange(24) / 3]}),
    "3b losses": case(figures_3b.losses, DIVERGED, title="a title", shows={0: list(DIVERGED.values())}),
    "3b stages": case(figures_3b.stages, STAGES, caption="x", shows={1: [[20, 30]]}, says=("decay",),
        hides=("test accuracy",)),
    "3b tested stages": case(figures_3b.stages, STAGES.assign(test=0.8), caption="x", says=("test accuracy",)),
    "3c moving averages": case(figures_3c.moving_averages, {0.9: CURVE, 0.5: CURVE}, {0.9: 0.8, 0.5: 0.7},
        shows={0: [[10, 20]], 1: [0.9 ** np.arange(5)]}),
    "3c spread": case(figures_3c.spread, [4, 16, 64], [1.0, 0.5, 0.25], shows={0: [[1.0, 0.5, 0.25]]}),
    "3c variances of ranks": case(figures_3c.variances_of_ranks,
        pd.DataFrame({"b": [2, 8], "yours": [1.0, 1.0], "own": [0.5, 0.875]}),
        pd.DataFrame({"ratio": [1, 100], "yours": [1e-7, 1e-6], "E[x²] − μ²": [1e-7, 1e-2]}),
        shows={0: [[1, 1], [0.5, 0.875]], 1: [[1e-7, 1e-6], [1e-7, 1e-2]]}, says=("E[x²] − μ²",)),
    "3c ghosts": case(figures_3c.ghosts, NORMALISED, "here", shows={0: [[86.5], [81.5]]},
        says=("few updates: B = 1,280", "overfitting: B = 640", "B = 64", "ghosts\nof 16", "here")),  # in %
    "3c decays": case(figures_3c.decays, NORMALISED, shows={0: [[81.5, 81.5]], 1: [[85], [89]]}),
    "3c across ranks": case(figures_3c.across_ranks, NORMALISED,
        says=("rank 0's network", "rank 1's network", "4 on each")),
    "3c one run": case(figures_3c.by_setting,
        {"live": pd.DataFrame({"variant": ["a", "b"], "accuracy": [0.5, np.nan]})}, x="variant", y="accuracy",
        shows={0: [[50]]}),  # b diverged
    "3c variances": case(figures_3c.variances, NOISE, 16, shows={0: [[1, 0.25], [1, 1]]}),
    "3c main directions": case(figures_3c.kept, NOISE, 16,
        {"exact": np.array([2.0, 1.0]), "drawn": np.array([2.1, 0.9])}, shows={1: [[2.0, 1.0], [2.1, 0.9]]}),
    "3c noisy training": case(figures_3c.noisy_training, NOISY,
        says=("B = 64\nB = 1,280\nas noisy\nas 256\nas noisy\nas 64",)),
    "3d ratios": case(figures_3d.ratios, {"first": DRAWN, "later": DRAWN}, NAMES, spread=0.1, caption="x",
        shows={0: [[2, 4, 6]]}, says=("B = 32", "conv 1\nconv 2\ndense")),  # medians
    "3d over time": case(figures_3d.over_time, NAMES, TRUST, TRUST / 100, 5, title="λ", caption="x",
        shows={0: [TRUST[:6, 0], TRUST[5:, 0]]}, says=(f"conv 1: {TRUST[5, 0]:.3g}",)),
    "3d nothing changes": case(figures_3d.over_time, NAMES, np.zeros((5, 3)), np.zeros((5, 3)), 4, title="",
        says=("dense: nan",)),
    "3d cost": case(figures_3d.cost, COST, caption="x", shows={0: [[0.9, 1.2]]},
        says=("LARS ÷ SGD", "LAMB ÷ Adam", "0.90", "1.20", "no weight decay", "weight decay 0.0001")),
    "3e winners": case(figures_3e.winners, {"lucky": np.array([1.0, 2.0, -1.0, 3.0]), "fresh": np.array([-1.0, 1.0])},
        says=("lucky: B wins 75%", "fresh: B wins 50%")),
    "3e valleys": case(figures_3e.valleys,
        {"batch 64": {"SGD": VALLEY, "LARS": VALLEY - 0.5}, "batch 1,280": {"SGD": VALLEY}},
        shows={0: [VALLEY.to_numpy(), [0.3], [0.85]]}),  # the best one is marked
    "3e methods": case(figures_3e.methods, METHODS, shows={0: [[0.80, 0.81, 0.82]]}, says=("batch 64", "batch 1,280")),
    "3e gains": case(figures_3e.gains, {"batch 64": {"LARS": ([0.85, 0.86, 0.88], [0.84, 0.84, 0.85])}},
        statistics.paired, against="SGD", shows={0: [[1, 2, 3], [2]]}, says=("SGD", "LARS")),  # points
    "3e budgets": case(figures_3e.budgets, {"SGD": [0.7, 0.8], "LARS": [0.75, 0.78]}, shows={0: [[1, 2]]}),
    "3e positions": case(figures_3e.positions, TRICKS, SWITCHES, ("ghost", "longer"), 1280,
        shows={0: [[73, 73.1, 73.2]]}, says=("nothing", "warm-up\nexempt\nLARS")),  # without the further tricks
    "3f sharpness": case(minima.sharpness, SHARPNESS, floor=0.75, shows={0: [[640, 320]], 1: [[64_000, 32_000]]}),
    "3f between": case(minima.between, BETWEEN, shows={0: [[2, 2, 2, 2]]}, says=("to a large", "to another small")),
    # means over seeds
    "3f distance": case(minima.distance, DISTANCES, shows={0: [2 * np.log(1 + T)]},
        says=("‖w − w₀‖, the same η for all", "η ∝ √B", "no barriers: softmax regression",
              "B = 512: all images, no noise")),
    "3f adversarial": case(minima.adversarial, ATTACKS, epsilon=4, caption="a caption", shows={0: [[60, 68]]},
        says=("B = 64, 2 to 8 epochs", "B = 1,280, η = 0.1, 80 epochs", "ε = 4", "equal accuracy")),
    "3f attacked": case(minima.attacked, IMAGES, IMAGES + 8, ["a shoe", "a bag"], ["a bag", "a shoe"],
        shows={0: [IMAGES[0, ..., 0]]}, says=("a shoe", "a bag")),
}  # fmt: skip

test_a_figure_shows_what_it_is_given = suite(FIGURES)


NUMBERS = {
    "3a noise scales": (lambda: figures_3a.noise_scales(SQUARES)["noise scale"], (300, 300, np.nan)),
    "3b differences": (lambda: figures_3b.differences(BY_SEED).set_index("seed")["points"][[1, 2]], (-1, 1)),
    "3f a logarithm": (lambda: [minima.fits(T, 3 + 2 * np.log(T))[key] for key in ("slope", "log")], (2, 1)),
    "3f a power": (lambda: [minima.fits(T, 0.7 * T**0.5)[key] for key in ("power", "by power")], (0.5, 1)),
    "3f attacked": (lambda: minima.against_small(ATTACKS, "test accuracy").set_index("epsilon")["points"], (0, -2)),
}

test_numbers_of_figures = numbers(NUMBERS, rtol=0.01, atol=0.1)


def test_a_kind_has_its_colour_in_every_panel():
    table = pd.DataFrame({"x": ["1", "1"], "kind": ["a", "b"], "accuracy": [0.5, 0.7]})
    figure = figures_3c.by_setting({"one": table, "other": table[::-1]}, x="x", y="accuracy", hue="kind")
    colours = [{line.get_ydata()[0]: line.get_color() for line in axis.get_lines()} for axis in figure.axes]
    assert colours[0] == colours[1] and len(set(colours[0].values())) == 2


def test_two_settings_are_compared_at_equal_tuning_and_at_each_others_rate():
    table = figures_3c.both_sides(NORMALISED, "decay")
    row = table.loc[("overfitting", "λ = 0.01: kernels only, less all")]
    assert list(row) == ["0.2, 0.1", "+4.0 ± 0.0", "+3.0 ± 0.0", "+3.0 ± 0.0"]
    row = table.loc[("few updates", "λ = 0.01: all, less none")]
    assert [cell.split(" ±")[0] for cell in row] == ["0.1, 0.2", "+3.5", "+8.5", "+4.5"]
    ghosts = figures_3c.both_sides(NORMALISED, "ghost")
    assert ghosts.loc[("few updates", "ghosts of 16, less batch norm"), "each at its best η"] == "+0.0 ± 0.0"


@pytest.mark.parametrize(("eta", "steps"), [(0.01, 300), (0.5, 4)])
def test_a_walk_over_the_edge_is_drawn_as_far_as_it_stays_near(eta, steps):
    ground = descent_paths.ground(lambda w: w[0] ** 2 + w[1] ** 2, (-2, 2), (-2, 2), points=30)
    walked = np.array([[1.0, 1.0]]) * (1 - 20 * eta) ** np.arange(300)[:, None]
    etas = np.geomspace(1e-4, 1, 50)
    losses = {4: 1 + etas, 16: np.where(etas > 0.1, 1e30, 1)}
    figure = figures_3b.quadratic(ground, walked, etas, losses, eta=eta, batch=16, edge=0.1, title="here", caption="x")
    left, right = figure.axes
    assert "here" in figures.said(figure) and figures.shows(left, walked[:steps, 0])
    assert right.get_ylim()[1] == pytest.approx(30, rel=0.01)  # a diverged loss does not set the scale
