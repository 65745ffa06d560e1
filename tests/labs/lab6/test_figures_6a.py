"""The figures of notebook 6a."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_lib import statistics
from labs.lab6_beyond_synchronous.lessons import figures_6a


def said(axis):
    return [text.get_text() for text in axis.texts]


def test_the_timeline_has_a_bar_for_each_gradient_with_its_staleness():
    log = pd.DataFrame(
        [
            {"worker": 0, "read": 0.0, "handed_in": 0.1, "answered": 0.2, "version": 0, "update": 0},
            {"worker": 1, "read": 0.0, "handed_in": 0.2, "answered": 0.2, "version": 0, "update": 3},
            {"worker": 0, "read": 0.9, "handed_in": 1.0, "answered": 1.0, "version": 1, "update": 9},
        ]
    )
    figure = figures_6a.timeline({"one": log, "other": log}, seconds=0.5)
    assert [axis.get_title(loc="left") for axis in figure.axes] == ["one", "other"]
    assert said(figure.axes[0]) == ["0", "3"]
    assert [bar.get_width() for bar in figure.axes[0].patches] == pytest.approx([0.1, 0.1, 0.2, 0.0])
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["worker 0", "worker 1"]


def test_a_server_that_never_answers_has_an_empty_timeline():
    columns = ["worker", "read", "handed_in", "answered", "version", "update"]
    figure = figures_6a.timeline({"quorum 2": pd.DataFrame(columns=columns)})
    assert figure.axes[0].get_title(loc="left") == "quorum 2: nobody was answered"


def test_paths_show_the_mean_and_the_learner_s_own(legend):
    simulated = np.array([[1.0, 0.5, 0.0], [1.0, 0.7, 0.4]])
    figure = figures_6a.paths(simulated, np.array([1.0, 0.6, 0.2]), "eight")
    *runs, mean, yours = figure.axes[0].lines
    assert len(runs) == 2
    assert list(mean.get_ydata()) == pytest.approx(list(yours.get_ydata())) == [1.0, 0.6, 0.2]
    assert legend(figure) == ["mean of 2 runs", "one worker with your momentum and rate"]


def test_what_diverged_is_drawn_at_the_edge():
    figure = figures_6a.untuned((1, 2), {"constant": [0.1, 1e6], "yours": [0.1, 0.2]})
    assert [list(line.get_ydata()) for line in figure.axes[0].lines] == [[0.1, 10], [0.1, 0.2]]


@pytest.fixture
def stale():
    rows = []
    for way, momentum, base in (
        ("asynchronous", 0.0, 0.80), ("asynchronous", 0.9, 0.79), ("even", 0.0, 0.7), ("aware", 0.0, 0.78),
        ("synchronous", 0.9, 0.75), ("long", 0.0, 0.82),
    ):  # fmt: skip
        for workers in (1, 2, 8):
            for seed in (1, 2, 3):
                score = base - 0.01 * (workers - 1) + 0.001 * seed * workers
                about = {"way": way, "workers": workers, "momentum": momentum, "rate": 0.1 / workers}
                rows.append({**about, "seed": seed, "use": "result", "test accuracy": score})
    return pd.DataFrame([*rows, {"way": "even", "workers": 1, "momentum": 0.0, "seed": 101, "use": "tuning"}])


def test_losses_are_paired_by_seed(stale):
    found = figures_6a.lost(stale, "asynchronous").set_index("workers")
    mean, half = statistics.mean([0.01 - 0.001 * seed for seed in (1, 2, 3)])
    assert (found.loc[2, "mean"], found.loc[2, "half"]) == pytest.approx((mean, half))
    assert list(found.index) == [2, 8]


def test_staleness_shows_every_way_and_both_lengths(stale, legend):
    figure = figures_6a.staleness(stale, "here")
    assert legend(figure) == list(figures_6a.WAYS.values())
    assert said(figure.axes[1]) == list(figures_6a.LENGTHS.values())
    assert not any("by staleness" in name for name in legend(figure))  # is asked for later


def test_rates_by_staleness_stand_beside_the_same_for_all(stale, legend):
    figure = figures_6a.by_staleness(stale, "here")
    assert legend(figure) == ["the same for all", "by staleness"]
    assert [list(line.get_ydata()) for line in figure.axes[1].lines] == [[0.05, 0.0125]] * 2


def test_the_better_one_is_named_where_it_is_no_chance(stale):
    assert figures_6a.better(stale, 2, ("aware", "same")) == "same"
    noisy = stale.copy()
    noisy.loc[(noisy["way"] == "aware") & (noisy["seed"] == 1), "test accuracy"] += 0.1
    assert figures_6a.better(noisy, 2, ("aware", "same")) == "neither"
    assert figures_6a.best_rates(stale, "aware").to_dict() == {1: 0.1, 2: 0.05, 8: 0.0125}


def test_momenta_show_what_may_be_as_good(legend):
    rows = [
        {"workers": workers, "momentum": momentum, "seed": seed, "use": "result", "test loss": loss + noise * seed}
        for workers in (1, 4)
        for momentum, loss, noise in ((0.0, 0.5, 0.0), (0.5, 0.401, 0.0), (0.9, 0.4, 0.001 * workers), (-0.5, 0.6, 0.0))
        for seed in (-1, 0, 1)
    ]
    best = figures_6a.best_momenta(pd.DataFrame(rows)).set_index("workers")
    assert (best.loc[1, "best"], best.loc[1, "low"], best.loc[1, "high"]) == (0.9, 0.5, 0.9)
    figure = figures_6a.momenta(pd.DataFrame(rows), "here")
    assert said(figure.axes[0]) == ["1 worker", "4 workers"]
    assert "theory: the ages add up" in legend(figure)


def test_the_theory_keeps_the_age():
    assert figures_6a.explicit(1, 0.9) == pytest.approx(0.9)
    assert figures_6a.explicit(4, 0.8) == pytest.approx(0.5)
    assert figures_6a.explicit(5.25, 0.8) == pytest.approx(-1 / 3)
    assert np.isnan(figures_6a.explicit(6, 0.8))


def test_hogwild_shows_speeds_and_losses():
    speed = [
        {"part": "speed", "problem": problem, "way": way, "repeat": repeat, "updates per second": value * repeat}
        for problem in ("sparse", "dense")
        for way, value in (("alone", 10), ("locked", 5), ("lock-free", 20))
        for repeat in (1, 2)
    ]
    overlap = [
        {"part": "overlap", "problem": name, "repeat": 1, "common": common, "lost": common / 50}
        for name, common in (("10 values", 1.0), ("100 values", 0.1), ("100 values, uneven", 0.6))
    ]
    table = pd.DataFrame([*speed, *overlap])
    ratios = figures_6a.speeds(table).set_index(["problem", "way"])
    assert ratios["mean"].to_dict() == {
        (p, w): r for p in ("sparse", "dense") for w, r in (("locked", 0.5), ("lock-free", 2))
    }
    figure = figures_6a.hogwild(table, "here")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["sparse", "dense"]
    even, uneven = figure.axes[1].lines
    assert list(even.get_ydata()) == pytest.approx([2, 0.2]) and list(uneven.get_ydata()) == pytest.approx([1.2])
