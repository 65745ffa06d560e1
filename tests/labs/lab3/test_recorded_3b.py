"""What notebook 3b says of its recorded runs is what the tables say."""

from __future__ import annotations

from course_lib import statistics
from labs.lab3_large_batch.lessons import figures_3b
from tests.labs.notebooks import plus_minus, recorded, text

TEXT = text("3b")
SCALING = recorded("rate_scaling")


def test_the_rules_beside_the_best_rate():
    results = SCALING[(SCALING["use"] == "result") & (SCALING["epochs"] == 8)]
    apart = figures_3b.differences(results).groupby(["rule", "batch"])["points"]

    def of(rule, batch):
        return plus_minus(statistics.mean(apart.get_group((rule, batch))))

    unscaled, linear = (of(rule, 256).lstrip("−") for rule in ("the same rate", "linear"))
    assert f"At 256 not scaling loses {unscaled} points, linear scaling {linear}." in TEXT
    for rule in ("the same rate", "linear"):  # no rule can be told from another
        mean, half = statistics.mean(apart.get_group((rule, 64)))
        assert abs(mean) < half
    assert f"the linear rule with warm-up is {of('linear, warm-up', 256)} points ahead" in TEXT
    assert f"*without*, √ with warm-up {of('√, warm-up', 256)} points." in TEXT
    assert f"LEGW is ahead by {of('LEGW', 1024)}, √ with warm-up by {of('√, warm-up', 1024)}." in TEXT
    assert f"rates *with* warm-up is {of('tuned, warm-up', 4096)} points ahead of it:" in TEXT
    ahead = apart.agg(lambda points: statistics.mean(points)[0] - statistics.mean(points)[1])
    rules = [rule for rule, batch in ahead.index if batch == 4096 and not rule.startswith("tuned")]
    assert all(ahead[rule, 4096] <= 0 for rule in rules)


def test_legw_and_the_longer_warm_up():
    results = SCALING[(SCALING["use"] == "result") & (SCALING["epochs"] == 8)]
    runs = 100 * results.pivot_table(index=["batch", "seed"], columns="rule", values="test")
    found = {
        batch: statistics.paired(rows["LEGW"], rows["√, warm-up"]) for batch, rows in runs.loc[256:].groupby("batch")
    }
    assert f"rate: {plus_minus(found[256])} points at 256, {plus_minus(found[1024])} at 1,024" in TEXT
    assert "and {:.0f} ± {:.0f} at 4,096.".format(*found[4096]) in TEXT


def test_the_base_cannot_tell_its_warm_up():
    table = recorded("base_warm_up")
    accuracy = 100 * table.pivot(index="seed", columns="warm_up", values="validation")
    assert list(accuracy) == [0, 12, 96, 768] and len(accuracy) == 3
    assert "{:.1f}, {:.1f}, {:.1f} and {:.1f} %".format(*accuracy.mean()) in TEXT
    apart = [statistics.paired(accuracy[length], accuracy[0]) for length in (12, 96, 768)]
    assert all(abs(mean) < half for mean, half in apart)
    assert "that is {}, {} and {} points".format(*map(plus_minus, apart)) in TEXT


def test_the_best_rates():
    tuned = SCALING[(SCALING["use"] == "result") & (SCALING["rule"] == "tuned") & (SCALING["epochs"] == 8)]
    best = tuned.groupby("batch")["eta"].first()
    assert best.round(3).to_dict() == {16: 0.031, 64: 0.062, 256: 0.125, 1024: 0.062, 4096: 0.031}
    runs = SCALING[(SCALING["use"] == "result") & (SCALING["epochs"] == 8)]
    for batch in (64, 256):  # what √ gives and what was chosen are the same runs
        rule, chosen = (runs[(runs["batch"] == batch) & (runs["rule"] == name)]["test"] for name in ("√", "tuned"))
        assert rule.tolist() == chosen.tolist()
    large = SCALING[(SCALING["use"] == "tuning") & (SCALING["rule"] == "tuned") & (SCALING["batch"] == 4096)]
    assert large.nlargest(2, "validation")["eta"].tolist() == [0.03125, 0.0625]
    base = SCALING[(SCALING["use"] == "tuning") & (SCALING["batch"] == 16) & (SCALING["eta"] <= 0.125)]["validation"]
    assert len(base) == 6 and 100 * (base.max() - base.min()) < 1


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
    assert f"{plus_minus(found['growth from 256']).lstrip('−')} points are lost. Growth costs nothing" in TEXT


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
    assert words in TEXT and "after 60 at {:.0f}, {:.0f} and {:.0f}".format(*by_batch[60]) in TEXT
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
    assert f"After 24 it is {calm[24]:.0f} at the small rate and {sharp['√', 24, 24]:.0f} with" in TEXT
    eta = table.groupby(["rule", "warm_up", "after"])["eta"].median()
    assert f"the edge $2(1+m)/\\eta$ is {3.8 / eta['√', 12, 12]:.0f}. λ_max is {calm[0]:.0f} at the start." in TEXT
    assert f"with 12 it goes up to {ratio['√', 12].max():.1f} times the edge" in TEXT
    assert all(ratio["linear", steps].max() > 1 for steps in (0, 12, 24))
    assert f"3.8/{calm[0]:.0f} = {3.8 / calm[0]:.2f}" in TEXT
