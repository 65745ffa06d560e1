"""What notebook 3c says of its recorded runs is what the tables say."""

from __future__ import annotations

from course_lib import statistics
from tests.labs.notebooks import plus_minus, recorded, text

TEXT = text("3c")


def ahead(ours, theirs, digits=1):
    """Mean and half width of ours − theirs in points, as the text has them."""
    return plus_minus(statistics.paired(100 * ours, 100 * theirs), digits)


NORMALISATION = recorded("normalisation")


def test_small_batches_and_ghosts():
    ghosts = NORMALISATION.query("part == 'ghost' and use == 'result'")
    found = {}
    for regime, large in (("few updates", 1280), ("overfitting", 640)):
        runs = ghosts[ghosts["regime"] == regime].pivot(
            index="seed", columns=["batch", "ghost"], values="test accuracy"
        )
        found[regime, 64] = ahead(runs[64, 0], runs[large, 0])
        found |= {(regime, f"ghosts of {g:g}"): ahead(runs[b, g], runs[b, 0]) for b, g in runs if b == large and g}
    few = [found["few updates", f"ghosts of {g}"] for g in (16, 64, 256)]
    assert f"by {found['few updates', 64]} and by {found['overfitting', 64]} points." in TEXT
    assert f"16, 64 and 256 are {few[0]}, {few[1]} and {few[2]} points" in TEXT
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


def test_decay():
    rows = NORMALISATION.query("use == 'result' and batch != 64 and part != 'ranks'")
    rows = rows[(rows["part"] == "decay") | (rows["ghost"] == 0)].fillna({"decay": 0, "decayed": "none"})
    runs = rows.pivot(index=["regime", "seed"], columns=["decayed", "decay"], values="test accuracy")
    few, many = runs.loc["few updates"], runs.loc["overfitting"]
    first, second = (ahead(few["kernels", decay], few["all", decay]) for decay in (0.01, 0.03))
    assert f"{first} points with λ = .01, {second} with .03." in TEXT
    strong, weak = (statistics.paired(many["kernels", decay], many["all", decay]) for decay in (0.03, 0.01))
    assert strong[0] < -strong[1] and abs(weak[0]) < weak[1] and "it is behind with λ = .03" in TEXT
    assert f"costs {ahead(few['none', 0], few['all', 0.03])} points, over all variables" in TEXT
    for kind, other, sentence in (
        ("all", ("none", 0), "**Where the network overfits, decay of *all* variables helps:** {} and {} points"),
        ("kernels", ("none", 0), "Decay of the kernels only does not: {} and {}."),
    ):
        assert sentence.format(*(ahead(many[kind, decay], many[other]) for decay in (0.01, 0.03))) in TEXT
    behind = (ahead(many["all", decay], many["kernels", decay]) for decay in (0.01, 0.03))
    assert "it is behind by {} and by {}.".format(*behind) in TEXT


def test_decay_at_the_rate_that_is_best_without():
    rows = NORMALISATION[NORMALISATION["use"] == "same rate"]
    runs = 100 * rows.pivot(index=["regime", "decay", "seed"], columns="decayed", values="test accuracy")
    apart = runs["all"] - runs["kernels"]
    means = apart.groupby(level=[0, 1]).mean()
    assert (rows["rate"] == 0.2).all() and (apart > 0).all()
    assert f"all {len(apart)} pairs of runs, on average by {means.min():.1f} to {means.max():.1f} points" in TEXT


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
