"""The figures of notebook 5d."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_lib import statistics
from labs.lab5_precision_and_memory.lessons import activations, figures_5d


def test_zeros_have_a_panel_for_each_kind_and_a_line_for_each_block(titles, legend):
    table = pd.DataFrame(
        [
            {"updates": updates, "block": block, "kind": kind, "zeros": 0.1 * block}
            for updates in (0, 10)
            for block in (1, 2)
            for kind in activations.KINDS
        ]
    )
    figure = figures_5d.zeros(table)
    assert titles(figure) == list(activations.KINDS) and legend(figure) == ["block 1", "block 2"]
    assert [line.get_ydata()[0] for line in figure.axes[1].lines] == pytest.approx([0.1, 0.2])


def test_the_race_is_drawn_in_milliseconds(legend):
    ways = {"dense": 0.003, "compressed": 0.001, "compressing": 0.01, "rows": 0.0005}
    figure = figures_5d.race(pd.DataFrame([{"density": density, **ways} for density in (0.1, 1.0)]))
    assert [line.get_ydata()[0] for line in figure.axes[0].lines] == pytest.approx([3, 1, 10, 0.5])
    assert "compressed each time" in legend(figure)


def test_schedules_show_the_share_and_the_errors():
    figure = figures_5d.schedules({"start": lambda update, updates, final: final})
    left, right = figure.axes
    assert set(left.lines[0].get_ydata()) == {0.95}
    assert len(right.lines[0].get_xdata()) == 12 and right.lines[1].get_xdata()[0] > 0.5


@pytest.fixture
def pruning_table():
    rows = [
        {"way": way, "density": density, "seed": seed, "use": "result", "test accuracy": score + 0.01 * seed}
        for way, score in (("not retrained", 0.3), ("at once", 0.7), ("gradual", 0.8), ("rows", 0.6), ("filters", 0.5))
        for density in (0.5, 0.1)
        for seed in (1, 2, 3)
    ]
    rows += [
        {"way": way, "density": density, "seed": seed, "use": "result", "test accuracy": 0.85 + 0.01 * seed}
        for way, density in (("dense", 1.0), ("random", 0.1))
        for seed in (1, 2, 3)
    ]
    return pd.DataFrame([*rows, {"way": "dense", "density": 1.0, "seed": 101, "use": "tuning"}])


def test_the_summary_has_student_s_intervals_of_the_result_seeds(pruning_table):
    found = figures_5d.summary(pruning_table, ["way", "density"]).set_index(["way", "density"])
    middle, half = statistics.mean([0.86, 0.87, 0.88])
    assert found.loc[("dense", 1.0), "mean"] == pytest.approx(middle)
    assert found.loc[("dense", 1.0), "half"] == pytest.approx(half)


def test_pruning_and_grains_show_every_way(pruning_table, legend):
    figure = figures_5d.pruned(pruning_table, "here")
    assert set(legend(figure)) == {"dense", *figures_5d.LABELS.values(), "at random, retrained"}
    figure = figures_5d.grains(pruning_table, "here")
    assert set(legend(figure)) == {"dense", *figures_5d.GRAIN_WAYS.values()}
    means = [container.lines[0].get_ydata()[0] for container in figure.axes[0].containers]
    assert means == pytest.approx([0.72, 0.62, 0.52])


def test_bytes_count_positions_where_there_are_any():
    values = figures_5d.PRUNABLE * 4
    assert figures_5d.kept_bytes("filters", 1.0) == values
    assert figures_5d.kept_bytes("filters", 0.1) == 4 * 9 * (3 * 16 + 6 * 3)  # none for what reads a removed filter
    assert figures_5d.kept_bytes("at once", 0.5) == 0.5 * values + figures_5d.PRUNABLE / 8
    assert figures_5d.kept_bytes("at once", 0.02) == pytest.approx(0.02 * values + 0.02 * figures_5d.PRUNABLE * 2)
    assert figures_5d.kept_bytes("rows", 0.5) == 0.5 * values + figures_5d.PRUNABLE / 24


def test_recurrent_networks_have_a_mean_each():
    rows = [
        {"network": name, "seed": seed, "use": "result", "test accuracy": score + 0.01 * seed}
        for name, score in (("small", 0.7), ("large", 0.8))
        for seed in (1, 2, 3)
    ]
    (axis,) = figures_5d.recurrent(pd.DataFrame(rows)).axes
    assert [text.get_text() for text in axis.get_yticklabels()] == ["small", "large"]
    assert [np.round(box.lines[0].get_xdata()[0], 3) for box in axis.containers] == [0.72, 0.82]


def test_a_difference_within_its_interval_is_called_none():
    def table(gain):
        scores = {"a": [0.80, 0.81, 0.82], "b": [0.81 + gain, 0.80 + gain, 0.82 + gain]}
        rows = [(network, seed, score) for network in scores for seed, score in enumerate(scores[network])]
        return pd.DataFrame(rows, columns=["network", "seed", "test accuracy"]).assign(use="result")

    assert figures_5d.better(table(0.01), "a", "b", ("first", "second")) == "neither"
    assert figures_5d.better(table(0.1), "a", "b", ("first", "second")) == "second"
    assert figures_5d.better(table(-0.1), "a", "b", ("first", "second")) == "first"


def test_losses_are_paired_and_bytes_are_compared_at_equal_accuracy(pruning_table):
    found = figures_5d.losses(pruning_table).set_index(["way", "density"])
    assert found.loc[("gradual", 0.1), "mean"] == pytest.approx(0.05)
    assert found.loc[("gradual", 0.1), "half"] == pytest.approx(0, abs=1e-9)
    assert figures_5d.matching_bytes(pruning_table, "rows", 0.5) == figures_5d.kept_bytes("at once", 0.1)
    best = pruning_table.assign(**{"test accuracy": 0.7})
    best.loc[best["density"] == 0.1, "test accuracy"] = 0.6
    assert figures_5d.matching_bytes(best, "filters", 0.5) == figures_5d.kept_bytes("at once", 0.5)
