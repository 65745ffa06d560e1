"""Figures of notebook 8c."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from labs.lab8_honest_benchmarks.lessons import figures_8c

TIMES = pd.DataFrame(
    {"ranks": ranks, "way": way, "trained": 10_240, "judged": 2_048, "training_s": 3 / ranks + 0.01 * epoch,
     "evaluation_s": 0.2 / (ranks if way == "all ranks" else 1)}
    for ranks in (1, 2, 4) for way in ("rank 0", "all ranks") for epoch in range(3)
)  # fmt: skip


def test_half_of_the_epoch_where_the_ranks_train_as_long_as_one_evaluates():
    assert figures_8c.share(30.0, 2.0, 15) == pytest.approx(50)
    assert figures_8c.share(30.0, 2.0, 1) == pytest.approx(6.25)


def test_the_lines_go_through_the_dots_of_one_rank():
    (axes,) = figures_8c.shares(TIMES).axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    serial = lines["predicted: rank 0, training shared by all"]
    found = figures_8c.measured_shares(TIMES).loc[("rank 0", 1), "share, %"]
    assert serial.get_ydata()[0] == pytest.approx(found, rel=0.01)
    assert serial.get_ydata()[-1] > 98 and serial.get_xdata()[-1] == pytest.approx(1024)
    dashed = lines["the same in ImageNet's proportion"]
    assert np.interp(50, dashed.get_ydata(), dashed.get_xdata()) == pytest.approx(
        figures_8c.IMAGENET / 5 * np.interp(50, serial.get_ydata(), serial.get_xdata()), rel=0.02
    )


def test_nobody_evaluates_aside_of_a_single_rank():
    def epoch_seconds(training, evaluation, ranks, way):
        assert ranks > 1 or way != "aside"
        return training / ranks + evaluation

    (axes,) = figures_8c.three_ways(epoch_seconds, 2.0, 0.1).axes
    assert [len(line.get_xdata()) for line in axes.get_lines()] == [11, 10, 11]


@pytest.fixture(scope="module")
def runs():
    results = [
        {"use": "result", "size": size, "seed": seed, "epoch": epoch, "plain": 40.0 + seed + epoch,
         "averaged": 9.0 + seed + epoch, "plain_anew": 41.0 + seed, "averaged_anew": 42.0 + seed,
         "plain_test": 50.0 + place + seed if epoch == 2 else np.nan}
        for place, size in enumerate("SML") for seed in (1, 2, 3) for epoch in (1, 2)
    ]  # fmt: skip
    steps = [
        {"use": "step", "size": size, "cpu_ms": cost * spread}
        for size, cost in {"S": 1, "M": 2, "L": 4, "B0": 300}.items()
        for spread in (0.9, 1.0, 5.0)
    ]
    return pd.DataFrame(results + steps)


@pytest.mark.slow
def test_each_size_stands_at_its_cost(runs):
    panels = figures_8c.family(runs).axes
    assert [text.get_text() for text in panels[0].texts] == ["S", "M", "L"]
    assert [round(text.xy[0], 2) for text in panels[0].texts] == [0.39, 1.07, 2.04]
    assert [text.xy for text in panels[2].texts] == [(1, 52.0), (2, 53.0), (4, 54.0)]


def test_plain_and_averaged_weights_with_both_statistics(runs):
    own, anew = figures_8c.averages(runs).axes
    assert [list(line.lines[0].get_ydata()) for line in own.containers] == [[43.0, 44.0], [12.0, 13.0]]
    assert [list(line.lines[0].get_ydata()) for line in anew.containers] == [[43.0, 43.0], [44.0, 44.0]]


def test_minutes_add_up_beside_the_published_ones():
    parts = {"aside": {"training": 100.0, "evaluation": 70.0}, "all": {"training": 100.0, "evaluation": 1.0}}
    (axes,) = figures_8c.clocks(parts, 64).axes
    assert [text.get_text() for text in axes.texts] == ["170", "101"]


def test_all_images_of_a_rank_stand_in_its_row():
    table = pd.DataFrame(
        {"rank": [0, 1], "images": [60, 20], "right": [30, 5], "filled": [4, 44], "filled_right": [1, 9]}
    )
    (axes,) = figures_8c.counts(table).axes
    assert [sum(bars[row].get_width() for bars in axes.containers) for row in (0, 1)] == [64, 64]
    assert axes.containers[1][1].get_width() == 15
