"""The numbers that notebook 4c tells of systems that the model has not seen stand in the recorded table."""

from __future__ import annotations

import re

import pytest

from course_lib.cost import published, stragglers
from course_lib.notebook import experiments
from labs.lab4_communication.lessons import published_systems as systems
from tests.labs.notebooks import recorded, text

TEXT = text("4c")


@pytest.fixture(scope="module")
def tests():
    """left out, and added later."""
    table = recorded("leave_one_out")
    return tuple(table[table["test"] == test].reset_index() for test in ("left out", "added later"))


def test_errors_of_systems_that_were_left_out(tests):
    unseen, _ = tests
    errors, of_the_mean = unseen["error"].abs(), unseen["error of the mean"].abs()
    assert f"Here are {len(unseen)} published efficiencies of seven systems" in TEXT and unseen["system"].nunique() == 7
    assert f"half of the errors are below {errors.median():.1f} points and the largest is {errors.max():.0f}:" in TEXT
    assert f"That one is off by {of_the_mean.median():.1f} points in the median" in TEXT


def test_errors_of_some(tests):
    unseen, _ = tests
    one = unseen[unseen["system"] == "DLPerf"]
    assert f"published {one['published'].min():.0f} to {one['published'].max():.0f} %" in TEXT
    assert {f"{value:.0f}" for value in one["predicted"]} == {"91"} and "it says 91 for all" in TEXT
    dgx = unseen[unseen["system"] == "TensorFlow on a DGX-1"]["error"]
    assert f"is up to {dgx.max():.0f} points too good" in TEXT
    assert f"are up to {-dgx.min():.0f} points better than predicted" in TEXT
    ec2 = unseen[unseen["system"] == "TensorFlow on EC2"].groupby("network")["error"]
    assert ec2.agg(lambda error: error.abs().max())["Inception V3"] < 5 and "Inception V3 is within 5 points" in TEXT
    assert f"are up to {ec2.max().max():.0f} points worse than predicted" in TEXT
    jia = unseen[unseen["system"] == "Jia et al. 2018"].set_index("images")
    more = -jia["error"]
    assert f"reached {more[64]:.0f} points more than the model expects with 64 images, {more[32]:.0f} more with" in TEXT
    assert f"spread fitted on the other systems, {100 * jia['spread'][64]:.0f} %" in TEXT
    straggling = 100 - 100 / stragglers.expected_maximum(stragglers.normal(jia["spread"][64]), 1024)
    assert 100 - jia["predicted"][64] - straggling < 1  # "nearly all"
    vgg = unseen[(unseen["system"] == "Horovod's benchmark") & (unseen["network"] == "VGG-16")]
    for column, words in (("published", "is at {:.0f} and {:.0f} %"), ("predicted", "says {:.0f} and {:.0f}.")):
        assert words.format(*vgg[column]) in TEXT
    rest = unseen[unseen["network"].isin(["VGG-16", "AlexNet"])].drop(vgg.index)
    low, high = rest["error"].min(), rest["error"].max()
    model = f"its {rest['predicted'].min():.0f} to {rest['predicted'].max():.0f} %"
    assert f"On eight GPUs it does not: the seven other lines of VGG-16 and AlexNet are {low:.0f} to" in TEXT
    assert f"{high:.0f} points below {model}" in TEXT and len(rest) == 7 and set(rest["ranks"]) == {8}
    assert (rest["error of the mean"].abs() < rest["error"]).all() and "one number for all is nearer to each" in TEXT


def test_errors_of_systems_that_were_added_later(tests):
    _, later = tests
    errors = later["error"].abs()
    assert f"Its {len(later)} lines" in TEXT and f"{(errors < 10).sum()} of {len(later)} are below 10" in TEXT
    # Halves are rounded up.
    assert errors.median() == pytest.approx(1.45) and "Half of the errors are below 1.5 points" in TEXT
    assert later["error of the mean"].abs().median() == pytest.approx(5.15)
    assert "one number for all is off by more than 5;" in TEXT
    worst = later.loc[errors.idxmax()]
    assert (worst["system"], worst["ranks"]) == ("Piz Daint", 128)
    assert f"parameter servers, {worst['published']:.0f} %. The model says {worst['predicted']:.0f} %" in TEXT
    (at_64,) = later[(later["system"] == "Piz Daint") & (later["ranks"] == 64)]["error"]
    assert f"With 64 GPUs it is off by {at_64:.0f} already" in TEXT


def test_the_spread_is_the_default_of_a_system():
    fitted = experiments.provenance(experiments.find()["leave_one_out"])["fitted_on_all"]
    (spread,) = re.findall(r"a spread of ([\d.]+)", fitted)
    link = systems.PCIE
    assert systems.System(1, 1, link, link, 1.0).straggler_spread == float(spread)
    assert f"the spread of {100 * float(spread):.1f} %" in TEXT


def test_the_table_is_that_of_the_lines(tests):
    for table, lines in zip(tests, (systems.LINES, systems.LATER)):
        assert list(table["published"]) == [round(100 * line.efficiency, 1) for line in lines]
        assert list(table["network"]) == [line.network for line in lines]
        again = [round(100 * systems.predicted(line, spread), 1) for line, spread in zip(lines, table["spread"])]
        assert list(table["predicted"]) == again


def test_runs_that_compare_with_nothing():
    runs = {run.team: run for run in published.runs()}
    assert f"{runs['You et al.'].predicted:.1f} min from their own 48 min" in TEXT
    assert f"{runs['SurfSara (Codreanu et al.)'].predicted:.0f} min from their own 28 min" in TEXT
    assert f"90 epochs take {runs['Ying et al.'].predicted:.1f} min" in TEXT
    amazon = runs["Amazon (MXNet)"]
    assert f"the model says {amazon.predicted / 60:.1f} h" in TEXT
    assert f"6.57 h are {90 * amazon.minutes / amazon.predicted:.0f} epochs" in TEXT
    assert len({run.network for run in runs.values()}) == 5
    assert [run.team for run in runs.values() if run.network == "ResNet-50" and run.accuracy] == ["Ying et al."]
