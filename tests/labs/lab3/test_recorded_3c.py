"""What notebook 3c says of its recorded runs is what the tables say."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from course_lib import models, statistics
from tests.labs.notebooks import plus_minus, recorded, text

TEXT = text("3c")


def ahead(ours, theirs, digits=1):
    """Mean and half width of ours − theirs in points, as the text has them."""
    return plus_minus(statistics.paired(100 * ours, 100 * theirs), digits)


NORMALISATION = recorded("normalisation")


def accuracies(rows):
    """Test accuracy by seed, a column for each setting and rate; runs that stand twice are the same."""
    setting = ["regime", "batch", "ghost", "decayed", "decay", "rate"]
    rows = rows.query("use != 'tuning' and part != 'ranks'").drop_duplicates([*setting, "seed"])
    return rows.pivot(index="seed", columns=setting, values="test accuracy").sort_index(axis=1)


RUNS = accuracies(NORMALISATION)
CHOSEN = accuracies(NORMALISATION[NORMALISATION["use"] == "result"]).droplevel("rate", axis=1)


def test_small_batches_and_ghosts():
    found = {}
    for regime, large in (("few updates", 1280), ("overfitting", 640)):
        runs = CHOSEN[regime].xs("none", axis=1, level="decayed").droplevel("decay", axis=1)
        found[regime, 64] = ahead(runs[64, 0], runs[large, 0])
        found |= {(regime, f"ghosts of {g:g}"): ahead(runs[b, g], runs[b, 0]) for b, g in runs if b == large and g}
    few = [found["few updates", f"ghosts of {g}"] for g in (16, 64)]
    assert f"by {found['few updates', 64]} and by {found['overfitting', 64]} points." in TEXT
    assert f"16 and 64 are {few[0]} and {few[1]} points" in TEXT
    assert f"ghosts of 16 are {found['overfitting', 'ghosts of 16']} where" in TEXT


def test_ranks():
    ranks = NORMALISATION[NORMALISATION["part"] == "ranks"]
    own = ranks[ranks["statistics"] == "per rank"].pivot(
        index=["batch", "seed"], columns="rank", values="test accuracy"
    )
    assert f"by up to {100 * (own[0] - own[1]).abs().max():.1f} points here" in TEXT
    runs = ranks.groupby(["batch", "statistics", "seed"])["test accuracy"].mean().unstack("statistics")
    four, many = (ahead(runs.loc[batch]["synchronised"], runs.loc[batch]["per rank"]) for batch in (8, 640))
    assert f"synchronising is {four} points ahead, with 320 on each {many}." in TEXT


def test_decay_where_the_network_overfits():
    runs = CHOSEN["overfitting", 640, 0]
    for kind, sentence in (
        ("all", "**Where the network overfits, decay of *all* variables helps:** {} and {} points"),
        ("kernels", "Decay of the kernels only does not: {} and {}."),
    ):
        assert sentence.format(*(ahead(runs[kind, decay], runs["none", 0]) for decay in (0.01, 0.03))) in TEXT
    behind = (ahead(runs["all", decay], runs["kernels", decay]) for decay in (0.01, 0.03))
    assert "kernels only is behind by {} and {}.".format(*behind) in TEXT


def test_decay_with_few_updates():
    runs = RUNS["few updates", 1280, 0]
    none, kept, full = runs["none", 0, 0.2], runs["kernels", 0.03, 0.2], runs["all", 0.03, 0.2]
    assert f"With λ = .03 kernels only is {ahead(full, kept)} behind all, and {ahead(none, kept)} behind no" in TEXT
    assert f"Decay of all costs nothing that five seeds see, {ahead(none, full)}." in TEXT
    chosen = NORMALISATION.query("use == 'result' and regime == 'few updates' and batch == 1280 and ghost == 0")
    assert set(chosen["rate"]) == {0.2} and "all variants have the same best rate, 0.2." in TEXT


def test_conclusions_that_would_hang_on_one_seeds_choice():
    runs = RUNS["few updates", 1280, 0]
    assert f"between the two, {ahead(runs['kernels', 0.03, 0.2], runs['all', 0.03, 0.1])}, and decay of all" in TEXT
    assert f"decay of all costs {ahead(runs['none', 0, 0.2], runs['all', 0.03, 0.1])} points." in TEXT


def test_every_best_rate_is_inside_the_grid():
    tuning = NORMALISATION[NORMALISATION["use"] == "tuning"]
    setting = ["regime", "batch", "ghost", "decayed", "decay"]
    for _, tries in tuning.groupby(setting):
        means = tries.groupby("rate")["validation accuracy"].agg(["mean", "count"])
        assert len(means) == 6 and (means["count"] == 3).all()
        assert means["mean"].idxmax() not in (means.index.min(), means.index.max())


def test_how_that_seed_chose():
    tuning = NORMALISATION.query("use == 'tuning' and regime == 'few updates' and decayed == 'all' and decay == 0.03")
    seed = tuning[tuning["seed"] == 0].set_index("rate")["validation accuracy"]
    assert f"{100 * seed[0.1]:.2f} % at η = 0.1 and {100 * seed[0.2]:.2f} % at 0.2" in TEXT
    assert seed.idxmax() == 0.1 and round(5000 * (seed[0.1] - seed[0.2])) == 4 and "4 images" in TEXT


def test_gradient_noise():
    table = recorded("gradient_noise")
    rows = table.query("part == 'training' and use == 'result'")
    runs = {
        regime: part[part["batch"] == part["batch"].max()].pivot(index="seed", columns="base", values="test accuracy")
        for regime, part in rows.groupby("regime")
    }
    few, many = runs["few updates"], runs["overfitting"]
    half = f"{ahead(few[640], few[1280])} points with few updates, {ahead(many[320], many[640])} where the network"
    assert half in TEXT
    assert f"a batch of 256 costs {ahead(few[1280], few[256])} points, that of 64 costs" in TEXT
    assert (
        f"costs {ahead(few[1280], few[64])}, and that of 128 in the other regime {ahead(many[640], many[128])}." in TEXT
    )
    tuning = table.query("part == 'training' and use == 'tuning' and batch > 64")
    best = 100 * tuning.groupby(["regime", "base"])["validation accuracy"].max()
    few, many = (best[regime].max() - best[regime] for regime in ("few updates", "overfitting"))
    assert f"was still {few[256]:.1f}, {few[64]:.1f} and {many[128]:.1f} points behind the best without" in TEXT


def test_horovod_subtracts_the_square_of_the_mean():
    from horovod.tensorflow import sync_batch_norm

    source = inspect.getsource(sync_batch_norm)
    assert "group_mean_of_square - tf.math.square(group_mean)" in source and "in one message" in TEXT


def test_what_the_difference_of_squares_gives():
    x = np.float32(100 + 0.01 * np.random.default_rng(0).normal(size=1000))
    assert np.spacing(np.float32(10_000)) == pytest.approx(0.001, rel=0.03)  # ".001 apart"
    assert abs((x**2).mean() - x.mean() ** 2 - 1e-4) > 2e-4  # "only rounding error"


def test_how_many_numbers_a_gradient_has():
    model = models.quick_cnn((28, 28, 1), 10)
    count = f"{sum(v.shape.num_elements() for v in model.trainable_variables):,}"
    assert f"Ours has {count} weights" in TEXT and f"own gradient, {count} numbers" in TEXT
