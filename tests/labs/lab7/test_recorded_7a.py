"""The numbers that notebook 7a tells stand in the recorded table, or follow from its exercises."""

from __future__ import annotations

from functools import partial

from course_lib import statistics
from labs.lab7_splitting_the_model.lessons import figures_7a
from tests.labs.notebooks import by_seed, plus_minus, recorded, text

TEXT = text("7a")
size = partial(plus_minus, signed=False)
TABLE = recorded("experts")


def test_what_is_said_of_busy_experts():
    found = figures_7a.summary(TABLE)
    for setting, digits in (("alpha 0", 1), ("alpha 0.1", 2)):
        row = found.loc[setting]
        assert f"{size(row['fullest'])} %" in TEXT
        assert f"{size(row['dropped'], digits)} %" in TEXT


def test_what_is_said_of_accuracy():
    gains = figures_7a.gains(TABLE)
    assert (gains["mean"].abs() < gains["half"]).all()
    assert "no α is ahead of the single expert by more than chance" in TEXT
    assert f"ahead of the single expert by {size(gains.loc['alpha 0.1'], 2)} points" in TEXT
    assert f"short of it by {size(gains.loc['alpha 1'], 2)}" in TEXT and gains.loc["alpha 1", "mean"] < 0
    scores = by_seed(TABLE.query("use == 'result'"), "setting", scale=100)
    much = statistics.paired(scores["alpha 0.1"], scores["alpha 1"])
    assert f"$\\alpha = 1$ is {size(much, 2)} points behind $\\alpha = .1$" in TEXT and much[0] > much[1]
    none = statistics.paired(scores["alpha 0.1"], scores["alpha 0"])
    assert f"gain anything on $\\alpha = 0$, {size(none, 2)}" in TEXT and abs(none[0]) < none[1]
