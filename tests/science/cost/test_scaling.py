"""The figures of Jia et al. 2018 that the model predicts, and what else the prediction of a run needs."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from course_lib.cost import allreduce, predict, published, scaling

TENCENT = published.tencent()


@pytest.mark.parametrize("images", [64, 32])
def test_one_set_of_parameters_predicts_both_efficiencies_within_3_points(images):
    assert abs(predict("ResNet-50", TENCENT, 1024, images).efficiency - published.EFFICIENCY[images]) < 0.03


@pytest.mark.parametrize("threshold", [0.1e6, 0.4e6, 1e6, 4e6, 8e6])
@pytest.mark.parametrize("itemsize", [2, 4])
def test_the_prediction_for_64_images_hardly_depends_on_what_was_not_published(threshold, itemsize):
    system = published.tencent(threshold, itemsize=itemsize)
    assert abs(predict("ResNet-50", system, 1024, 64).efficiency - 0.992) < (0.03 if threshold < 8e6 else 0.06)


def test_the_fitted_alpha_is_microseconds():
    assert 2e-6 < TENCENT.outer.latency < 20e-6


@pytest.mark.parametrize(
    ("network", "images", "rate", "times"),
    [("ResNet-50", 64, 218, 11.06), ("AlexNet", 128, published.ALEXNET_RATE, 2.48)],
)
def test_how_much_quicker_than_naive_rings_the_hybrid_is(network, images, rate, times):
    hybrid = replace(TENCENT, images_per_second=rate)
    naive = replace(hybrid, algorithm="ring", fusion_bytes=0)
    quick, slow = (predict(network, system, 1024, images).efficiency for system in (hybrid, naive))
    assert quick / slow == pytest.approx(times, rel=0.01)


@pytest.mark.parametrize("line", published.lines(TENCENT), ids=lambda line: f"{line.team} {line.devices}")
def test_the_lines_of_tables_4_and_5(line):
    if line.predicted is None:
        assert line.error is None and line.source.startswith("input")
    elif line.hardware == "CPU":  # its rate is one of ResNet-50, by FLOP
        assert line.error == pytest.approx(-0.14, abs=0.01)
    else:
        assert abs(line.error) < 0.10


def test_alexnet_s_rate_is_the_least_that_five_minutes_need():
    needed = 95 * published.IMAGES / (512 * 5 * 60)
    assert needed == pytest.approx(published.ALEXNET_RATE, rel=0.01)


def test_the_learners_seconds_are_used_for_the_lines():
    assert all(line.predicted in (None, 1.0) for line in published.lines(TENCENT, lambda *_: 60.0))


@pytest.mark.parametrize("ranks", [1, 2, 16, 1024, 2048, 65536])
def test_no_group_size_has_fewer_rounds(ranks):
    groups = [2**power for power in range(17) if 2**power <= ranks]
    rounds = {group: allreduce.hierarchical(ranks, 0.0, allreduce.Link(1.0, math.inf), group) for group in groups}
    assert rounds[scaling.fewest_rounds(ranks)] == min(rounds.values())


def test_fitting_finds_the_parameter():
    assert scaling.fit(lambda x: 1 / (1 + x), 0.25, 0, 100) == pytest.approx(3)
    with pytest.raises(ValueError, match="no value between"):
        scaling.fit(lambda x: 1 / (1 + x), 0.25, 0, 1)


def test_training_seconds():
    assert scaling.training_seconds(1000, 3, 4, 5, 0.5) == 75
    assert scaling.training_seconds(1000, 7, 8, 16, 2.0) == 110


def test_what_was_put_in_is_not_cut_off_in_a_notebook():
    """pandas shows 50 characters of a cell, with the dots."""
    words = [line.source for line in published.lines(TENCENT)]
    words += [word for run in published.runs() for word in (run.how, run.confirmed)]
    assert max(map(len, words)) <= 50
