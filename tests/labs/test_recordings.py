"""What holds for the recorded tables of several notebooks: how they were tuned, and how long they took."""

from __future__ import annotations

import re

import pytest

from course_lib.notebook import experiments, sweep
from labs.lab6_beyond_synchronous.lessons import figures_6b
from tests.labs.notebooks import recorded, text

ACCURACY = "validation accuracy"
TUNED = [  # table, what was tuned by itself, rates, what was to be highest, or lowest, runs of a result
    ("normalisation", ["regime", "batch", "ghost", "decay", "decayed"], 6, ACCURACY, 1, 5),
    ("number_formats", ["way"], 6, ACCURACY, 1, 5),
    ("mixed_lars", ["way"], 5, ACCURACY, 1, 5),
    ("gradient_bits", ["regime"], 7, ACCURACY, 1, 5),
    ("pruning", ["way"], 5, ACCURACY, 1, 3),
    ("recurrent", ["network"], 5, ACCURACY, 1, 3),
    ("staleness", ["way", "workers", "momentum"], 7, ACCURACY, 1, 5),
    ("implicit_momentum", ["workers", "momentum"], 8, "validation loss", -1, 8),
    ("fewer_meetings", figures_6b.BY, 7, "score", 1, 5),
    ("send_less", ["way", "amount"], 9, ACCURACY, 1, 5),
    ("experts", ["setting"], 6, ACCURACY, 1, 5),
    ("stale_pipeline", ["way", "stages"], 8, ACCURACY, 1, 5),
    ("family", ["size"], 4, "plain", 1, 3),
]


@pytest.mark.parametrize(("name", "by", "rates", "score", "sign", "seeds"), TUNED, ids=[row[0] for row in TUNED])
def test_all_tried_the_same_rates_and_ran_with_the_best_one_inside_their_range(name, by, rates, score, sign, seeds):
    table = recorded(name, dtype={"regime": str}).fillna({"decay": 0, "decayed": ""})
    tuning = table[table["use"] == "tuning"].copy()
    results = table[(table["use"] == "result") & (table["rate"] > 0)]  # at 0 it is not trained
    assert set(tuning.groupby(by)["rate"].nunique()) == {rates}
    tuning["score"] = sign * tuning[score]
    chosen = sweep.best(tuning, by, "rate", "score").set_index(by)["rate"].sort_index()
    ends = tuning.groupby(by)["rate"].agg(["min", "max"])
    assert ((ends["min"] < chosen) & (chosen < ends["max"])).all()
    used = results.groupby(by)["rate"].agg(["min", "max"])
    assert used.eq(chosen.reindex(used.index), axis=0).all(axis=None)
    assert set(results.groupby(by)["seed"].nunique()) == {seeds}
    assert not set(results["seed"]) & set(tuning["seed"])
    if "test accuracy" in table:
        assert tuning["test accuracy"].isna().all()


@pytest.mark.parametrize(
    ("notebook", "name"),
    [("5d", "pruning"), ("5d", "recurrent"), ("6a", "staleness"), ("6a", "implicit_momentum"), ("6a", "hogwild"),
     ("6b", "fewer_meetings"), ("6c", "send_less"), ("7a", "experts")],
)  # fmt: skip
def test_the_stated_minutes_are_those_of_the_recording(notebook, name):
    seconds = int(experiments.provenance(experiments.find()[name])["seconds"])
    minutes = int(re.search(rf"course reproduce {name}`.*?about (\d+) minutes", text(notebook))[1])
    assert abs(minutes - seconds / 60) < 1.1


@pytest.mark.parametrize(
    ("notebook", "name", "seeds", "says"),
    [("5a", "number_formats", 1, "one seed, and then runs with five others"),
     ("5a", "mixed_lars", 1, "tried the same five learning rates, and ran at its best one with five other seeds"),
     ("5d", "pruning", 1, "on validation data: at a tenth, with one seed; the other densities use the same rate"),
     ("6a", "implicit_momentum", 2, "from −.8 to .95 were tried"),
     ("6b", "fewer_meetings", 2, "out of the same seven"),
     ("6c", "send_less", 1, "from the same nine for every way and amount"),
     ("7a", "experts", 1, "the same six learning rates"),
     ("7b", "stale_pipeline", 2, "same eight rates with two seeds"),
     ("8c", "family", 1, "the same four rates")],
)  # fmt: skip
def test_the_plan_is_told_as_it_was(notebook, name, seeds, says):
    tuning = recorded(name).query("use == 'tuning'")
    assert set(tuning.groupby("rate")["seed"].nunique()) == {seeds} and says in text(notebook)
