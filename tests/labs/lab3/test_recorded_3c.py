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
    rows = NORMALISATION.query("part == 'ghost' and use == 'result' and regime == 'few updates' and ghost == 0")
    train = 100 * rows.groupby("batch")["train accuracy"].mean()
    told = f"reaches only {train[1280]:.1f} % on its *training* images, the small one {train[64]:.1f} %."
    assert told in TEXT
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
    helps = [ahead(runs["all", decay], runs["none", 0]) for decay in (0.01, 0.03)]
    sentence = "**Where the network overfits, decay of *all* variables helps:** {} and {} points against no decay, both"
    assert sentence.format(*helps) in TEXT
    behind = (ahead(runs["all", decay], runs["kernels", decay]) for decay in (0.01, 0.03))
    assert "each at its best rate, is behind all by {} and {}.".format(*behind) in TEXT
    runs = RUNS["overfitting", 640, 0]
    at_equal_rate = ahead(runs["all", 0.01, 0.2], runs["kernels", 0.01, 0.2])
    assert f"With λ = .01 and both at 0.2 it is behind by {at_equal_rate};" in TEXT
    assert runs["kernels", 0.03, 0.05].mean() > runs["all", 0.03, 0.05].mean()
    assert "with λ = .03 and both at 0.05 it is not behind." in TEXT


def test_three_seeds_are_still_few():
    tuning = NORMALISATION.query(
        "use == 'tuning' and regime == 'overfitting' and decayed == 'kernels' and decay == 0.01"
    )
    by_rate = 100 * tuning.groupby("rate")["validation accuracy"].mean()
    runs = RUNS["overfitting", 640, 0]["kernels", 0.01]
    assert by_rate.idxmax() == 0.1
    told = f"they preferred η = 0.1 to 0.2 by {by_rate[0.1] - by_rate[0.2]:.1f} points, and five others see 0.2"
    assert f"{told} ahead by {ahead(runs[0.2], runs[0.1])}." in TEXT


def test_decay_with_few_updates():
    runs = RUNS["few updates", 1280, 0]
    none, kept, full = runs["none", 0, 0.2], runs["kernels", 0.03, 0.2], runs["all", 0.03, 0.2]
    assert f"With λ = .03 kernels only is {ahead(full, kept)} behind all, and {ahead(none, kept)} behind no" in TEXT
    assert f"Decay of all costs nothing that five seeds see, {ahead(none, full)}." in TEXT
    means = 100 * runs.xs(0.2, axis=1, level="rate")[[("none", 0), ("all", 0.01), ("kernels", 0.01)]].mean()
    assert round(np.ptp(means), 1) == 0.2 and "their means differ by at most 0.2 points" in TEXT
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
    assert (
        f"of seven rates was {few[256]:.1f}, {few[64]:.1f} and {many[128]:.1f} points behind the best without" in TEXT
    )


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


def test_the_variance_in_training():
    table = recorded("gradient_noise").query("part == 'variance' and statistics != 'moving averages'")
    total = table.set_index(["batch", "noise"])["variance"]
    noisy, small, large = total[1280, True], total[64, False], total[1280, False]
    assert f"{noisy:.2f} with 1,280 examples and noise, {small:.2f} with 64 and none." in TEXT
    assert f"Without noise it is {large:.3f}.".replace("0.", ".", 1) in TEXT
