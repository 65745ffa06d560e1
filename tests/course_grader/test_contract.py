"""The contract is read whole, or refused with a sentence."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_grader.script import contract
from course_lib import statistics
from course_lib.ranks import launch
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

TEXT = contract.CONTRACT.read_text()
RESULTS = ROOT / "benchmarks" / "results"


def test_the_courses_contract_asks_what_the_course_promises():
    read = contract.read()
    cpu = read.profiles["cpu"]
    assert (cpu.ranks, cpu.images, cpu.seconds, cpu.train_accuracy, cpu.test_accuracy) == (2, None, 240, 0.75, 0.70)
    assert read.profiles["gpu"].ranks is None
    assert read.profiles["gpu"].test_accuracy > cpu.test_accuracy
    assert sum(read.points.values()) == 100
    large = read.profiles["large"]
    assert large.batch >= 2048 and large.updates and large.images is None
    assert all(one.batch is None and one.updates is None for one in read.profiles.values() if one is not large)


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("pass_points = 80", "", "lacks 'pass_points'"),
        ("pass_points = 80", "pass_points = 101", "all criteria together give 100 points"),
        ("serial = 5", "", "must give points to serial, ranks"),
        ("serial = 5", "serial = 0", "every criterion needs points above 0"),
        ("seconds = 240", "seconds = -1", "seconds in profiles.cpu is -1"),
        ("seconds = 240", "second = 240", "'second' in profiles.cpu is unknown"),
        ("batch = 2048", "", "profiles.large must have both batch and updates, or neither"),
        ("[limits]", "[limit]", "lacks 'limits'"),
        ('required = ["ranks"', 'required = ["rank"', "requires 'rank', which is not a criterion"),
        ("[profiles.cpu]", "[profiles.cpu", "cannot be read"),
    ],
)
def test_a_mistake_is_named(tmp_path, old, new, word):
    assert old in TEXT
    path = tmp_path / "contract.toml"
    path.write_text(TEXT.replace(old, new, 1))
    with pytest.raises(CourseError, match=word) as caught:
        contract.read(path)
    assert caught.value.code == 2
    assert str(path) in str(caught.value)


def test_the_profile_is_that_of_the_host_unless_one_is_named(monkeypatch):
    read = contract.read()
    monkeypatch.delenv("COURSE_PROFILE", raising=False)
    monkeypatch.setattr(launch, "gpus", list)
    assert read.profile().name == "cpu"
    monkeypatch.setattr(launch, "gpus", lambda: ["GPU 0"])
    assert read.profile().name == "gpu"
    monkeypatch.setenv("COURSE_PROFILE", "short")
    assert read.profile().name == "short"
    assert read.profile("cpu").name == "cpu"
    with pytest.raises(CourseError, match="There is no profile 'fast': the contract has cpu, large, gpu, short"):
        read.profile("fast")


class TestLarge:
    """The profile `large` stands on recorded runs."""

    ASKED = contract.read().profiles["large"]
    RUNS = pd.read_csv(RESULTS / "large.csv", comment="#")
    TUNING = pd.read_csv(RESULTS / "large_tuning.csv", comment="#")

    def test_honest_scripts_pass_each_time_and_naive_ones_never(self):
        never = self.RUNS["script"].isin(["naive", "linear rule"])
        assert self.RUNS[~never]["passed"].all() and not self.RUNS[never]["passed"].any()
        runs = self.RUNS["script"].value_counts()
        assert runs["reference"] >= 20 and runs["naive"] >= 5

    def test_the_test_target_lies_between_the_two(self):
        """That of training does not: a naive script may reach it, and falls short on the test images."""
        passed = self.RUNS["passed"]
        test, train = self.RUNS["test_accuracy"], self.RUNS["train_accuracy"]
        assert test[~passed].max() < self.ASKED.test_accuracy < test[passed].min()
        assert self.ASKED.train_accuracy < train[passed].min()

    def test_the_limit_is_one_and_a_half_times_what_the_reference_takes(self):
        """Calibrated, by the median of the runs on an idle machine."""
        runs = self.RUNS[(self.RUNS["script"] == "reference") & ~self.RUNS["busy"]]
        assert self.ASKED.seconds == pytest.approx(1.5 * (runs["seconds"] / runs["factor"]).median(), rel=0.05)

    def test_the_reference_has_the_best_rate_of_its_grid(self):
        tried = self.TUNING[self.TUNING["use"] == "tuning"]
        for way, of_one in tried.groupby("way"):
            best = of_one.loc[of_one["validation"].idxmax(), "rate"]
            assert of_one["rate"].min() < best < of_one["rate"].max(), way
        assert tried.groupby("way").size().nunique() == 1
        best = tried.loc[tried["validation"].idxmax()]
        text = (ROOT / "assessment" / "reference" / "large.py").read_text()
        assert f"RATE = {best['rate']}" in text and f"optimizers.{best['way']}(" in text

    def test_what_the_notebook_says_of_momentum_sgd(self):
        text = (ROOT / "assessment" / "master" / "assessment.py").read_text(encoding="utf-8")
        sgd = self.TUNING[self.TUNING["way"] == "SGD"]
        naive = self.RUNS[self.RUNS["script"] == "naive"]["test_accuracy"]
        reached = pd.concat([sgd["test"].dropna(), naive])
        least, most = (round(100 * (self.ASKED.test_accuracy - one)) for one in (reached.max(), reached.min()))
        assert f"256 and twice that rate end {least} to {most} percentage points below the target" in text
        tried = sgd[sgd["use"] == "tuning"].set_index("rate")["validation"]
        assert tried.max() - tried[1.6] > 0.05 and "in proportion to the batch ends far below" in text


def test_being_watched_costs_less_than_a_tenth():
    """Of the seconds of a run, by the recorded pairs of runs."""
    runs = pd.read_csv(RESULTS / "overhead.csv", comment="#").set_index(["kind", "run"])
    bare, watched = runs.loc["bare"]["seconds"], runs.loc["assessed"]["run_seconds"]
    more, _ = statistics.paired(np.log(watched), np.log(bare))
    assert np.exp(more) < 1.1
