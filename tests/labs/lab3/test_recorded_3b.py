"""What notebook 3b says of its recorded runs is what the tables say."""

from __future__ import annotations

from course_lib import statistics
from labs.lab3_large_batch.lessons import figures_3b
from tests.labs.notebooks import plus_minus, recorded, text

TEXT = text("3b")
SCALING = recorded("rate_scaling")


def points(results, rule, batch, best="tuned"):
    """By how many points the rule is ahead of the best rate: mean, and half the width of its 95 % interval."""
    apart = figures_3b.differences(results, best).groupby(["rule", "batch"])["points"]
    return statistics.mean(apart.get_group((rule, batch)))


RESULTS = SCALING[(SCALING["use"] == "result") & (SCALING["epochs"] == 8)]


def test_the_rules_beside_the_best_rate_without_warm_up():
    lost = [plus_minus(points(RESULTS, *of)).lstrip("−") for of in (("linear", 256), ("√", 1024))]
    assert "At 256 linear scaling loses {} points, at 1,024 √ loses {}.".format(*lost) in TEXT
    guessing = RESULTS[(RESULTS["rule"] == "linear") & (RESULTS["batch"] == 4096)]["test"]
    assert 0.05 < guessing.mean() < 0.15
    ahead = [plus_minus(points(RESULTS, "tuned, warm-up", batch)) for batch in (256, 1024, 4096)]
    assert "They are {}, {} and {} points ahead of the best without.".format(*ahead) in TEXT
    assert all(mean > half for mean, half in (points(RESULTS, "tuned, warm-up", b) for b in (256, 1024, 4096)))


def test_the_rules_beside_the_best_rate_with_warm_up():
    def of(rule, batch):
        return plus_minus(points(RESULTS, rule, batch, "tuned, warm-up"))

    root, legw, linear = ([of(rule, b) for b in (256, 1024)] for rule in ("√, warm-up", "LEGW", "linear, warm-up"))
    assert "√ has {} points at 256 and {} at 1,024, LEGW".format(*root) in TEXT
    assert "LEGW {} and {}. The linear rule".format(*legw) in TEXT
    assert "The linear rule has {} at 256, but {} at 1,024.".format(*linear) in TEXT
    behind = [points(RESULTS, rule, 4096, "tuned, warm-up") for rule in ("√, warm-up", "LEGW")]
    found = [f"{-mean:.0f} ± {half:.0f}" for mean, half in behind]
    assert "is {} points behind the best rate with warm-up, LEGW with four epochs {}.".format(*found) in TEXT
    for rule in ("√", "√, warm-up", "linear", "linear, warm-up", "LEGW"):  # none is ahead of not scaling
        assert points(RESULTS, rule, 4096)[0] < 0
    assert (RESULTS.query("rule == 'tuned' and batch == 4096")["eta"] == 0.03125).all()  # which is not scaling


def test_the_base_cannot_tell_its_warm_up():
    table = recorded("base_warm_up")
    accuracy = 100 * table.pivot(index="seed", columns="warm_up", values="validation")
    assert list(accuracy) == [0, 12, 96, 768] and len(accuracy) == 3
    apart = [statistics.paired(accuracy[length], accuracy[0]) for length in (12, 96, 768)]
    assert all(abs(mean) < half for mean, half in apart)
    assert "that is {}, {} and {} points".format(*map(plus_minus, apart)) in TEXT


def test_the_best_rates():
    best = RESULTS[RESULTS["rule"].str.startswith("tuned")].groupby(["rule", "batch"])["eta"].first()
    cold = {16: 0.031, 64: 0.062, 256: 0.062, 1024: 0.062, 4096: 0.031}
    assert best["tuned"].round(3).to_dict() == cold
    assert best["tuned, warm-up"].to_dict() == {256: 1, 1024: 0.125, 4096: 0.125}
    tuning = SCALING[SCALING["use"] == "tuning"]
    for (_, batch), rows in tuning.groupby(["rule", "batch"]):
        assert rows["seed"].nunique() == (1 if batch == 16 else 3)
        assert rows["eta"].nunique() == 10
        means = rows.groupby("eta")["validation"].mean()
        assert means.index[0] < means.idxmax() < means.index[-1]  # inside the grid
    warm = tuning.query("rule == 'tuned, warm-up' and batch == 256").groupby("eta")["validation"].mean()
    assert 100 * (warm.max() - warm[0.25]) < 0.2  # nearly as good
    base = tuning[(tuning["batch"] == 16) & (tuning["eta"] <= 0.125)]["validation"]
    assert len(base) == 6 and 100 * (base.max() - base.min()) < 1


def test_four_times_the_epochs():
    tuned = SCALING[(SCALING["use"] == "result") & (SCALING["rule"] == "tuned")]
    test = 100 * tuned.pivot_table(index="seed", columns=["batch", "epochs"], values="test")
    short, long, other = test[4096, 8], test[4096, 32], test[1024, 8]
    assert f"improves from {short.median():.1f} to {long.median():.1f} %. B = 1,024 has {other.median():.1f} %" in TEXT
    assert f"seed by seed {plus_minus(statistics.paired(other, long))} points more." in TEXT


def test_longer_training():
    table = recorded("longer")
    tried = table[table["use"] == "tuning"].groupby("batch")["eta"]
    assert (tried.nunique() == 4).all()
    test = 100 * table[table["use"] == "result"].pivot(index="seed", columns="batch", values="test")
    assert (table.loc[table["use"] == "result", "eta"] == 0.0625).all()
    assert f"has {test[4096].mean():.1f} %: {plus_minus(statistics.paired(test[4096], test[1024]), 2)} points" in TEXT


def test_growth():
    table = recorded("batch_growth").query("use == 'result'")
    test = 100 * table.pivot(index="seed", columns="method", values="test")
    found = {method: statistics.paired(test[method], test["decay"]) for method in test}
    assert f"differ by {plus_minus(found['growth'], 2)} points" in TEXT
    assert f"no change at all {plus_minus(found['no change']).lstrip('−')} points are lost" in TEXT
    assert f"differs by {plus_minus(found['growth to 256, then decay'], 2)} points" in TEXT
    made = table.loc[table["method"] == "growth from 256", "updates"].mean()
    lost = plus_minus(found["growth from 256"]).lstrip("−")
    assert f"Growing from 256 to 4,096 takes {made:.0f} updates and loses {lost} points." in TEXT


def test_legw_against_its_base():
    results = SCALING[(SCALING["use"] == "result") & (SCALING["epochs"] == 8)]
    mean = 100 * results.groupby(["rule", "batch"])["test"].mean()
    legw, base = mean["LEGW", 1024], mean["tuned", 16]
    assert f"at 64 times the base has {legw:.1f} %, the base {base:.1f}, with 96 updates instead of 6,144" in TEXT


def test_curvature():
    table = recorded("curvature")
    table["ratio"] = table["sharpness"] * table["eta"] / 3.8
    by_batch = table[table["rule"] == "small"].groupby(["after", "batch"])["sharpness"].median()
    words = "at {:.0f}, {:.0f} and {:.0f} with 64, 1,024 and 4,096 examples each".format(*by_batch[24])
    assert words in TEXT and by_batch[60].between(0.9 * by_batch[60].max(), by_batch[60].max()).all()
    table = table[table["batch"] == 1_024]
    middle = table.groupby(["rule", "warm_up", "after"])[["sharpness", "ratio"]].median()
    calm = middle["sharpness"]["small", 0]
    assert f"from {calm[0]:.0f} to {calm[60]:.0f} with a rate" in TEXT
    ratio = middle["ratio"]
    assert f"√ begins at {ratio['√', 0, 0]:.1f} times the edge" in TEXT
    assert f"the linear rule at {ratio['linear', 0, 0]:.0f} times" in TEXT
    assert ratio["√", 0, 3] < 1 and ratio["linear", 0, 3] < 1
    assert f"at {ratio['√', 24].max():.1f} of it at most" in TEXT
    sharp = middle["sharpness"]
    assert f"After three updates λ_max is {calm[3]:.0f} at the small rate and {sharp['√', 0, 3]:.0f} at" in TEXT
    assert 1.5 * sharp["√", 24, 24] < calm[24]  # the rate decides, too, after as many updates
    eta = table.groupby(["rule", "warm_up", "after"])["eta"].median()
    assert f"the edge $2(1+m)/\\eta$ is {3.8 / eta['√', 12, 12]:.0f}. λ_max is {calm[0]:.0f} at the start." in TEXT
    assert f"with 12 it goes up to {ratio['√', 12].max():.1f} times the edge" in TEXT
    assert all(ratio["linear", steps].max() > 1 for steps in (0, 12, 24))
    assert f"3.8/{calm[0]:.0f} = {3.8 / calm[0]:.2f}" in TEXT
