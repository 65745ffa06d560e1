"""Pipelines that never stop: as old as derived, and SGD where they have one stage."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.data.splits import Part
from course_lib.parallel import pipeline
from labs.lab7_splitting_the_model.lessons import stale_pipeline
from labs.lab7_splitting_the_model.lessons.checks_7b import counted_delay

SIZES, RATE = (6, 5, 5, 5, 3), 0.3


@pytest.fixture(scope="module")
def problem():
    random = np.random.default_rng(1)
    layers = pipeline.first_layers(SIZES, 2, np.float64)
    data = [Part(random.normal(size=(4, 6)), random.integers(3, size=4)) for _ in range(12)]
    return layers, data


def by_hand(layers, data, delays, stash):
    """The same training written with histories: layer l of batch i goes forward with version i − delay."""
    versions = [[layer] for layer in layers]
    for i, (images, labels) in enumerate(data):
        old = [versions[number][max(0, i - delay)] for number, delay in enumerate(delays)]
        values = [images]
        for number, (kernel, bias) in enumerate(old):
            value = values[-1] @ kernel + bias
            values.append(value if number == len(old) - 1 else np.maximum(value, 0))
        _, slope = pipeline.cross_entropy(values[-1], labels)
        rate = RATE * (1 - i / len(data))
        for number in reversed(range(len(old))):
            if number < len(old) - 1:
                slope = slope * (values[number + 1] > 0)
            kernel, bias = versions[number][i]
            used = old[number] if stash else versions[number][i]
            step = kernel - rate * values[number].T @ slope, bias - rate * slope.sum(0)
            slope = slope @ used[0].T
            versions[number].append(step)
    return [history[-1] for history in versions]


@pytest.mark.parametrize("stash", [False, True])
@pytest.mark.parametrize("stages", [1, 2, 4])
def test_the_ticks_are_the_delays(problem, stages, stash):
    layers, data = problem
    found = stale_pipeline.train(layers, data, stages, RATE, stash=stash)
    delays = np.repeat([counted_delay(stages, stage, ticks=True) for stage in range(stages)], 4 // stages)
    for one, other in zip(found, by_hand(layers, data, delays, stash)):
        np.testing.assert_allclose(one[0], other[0], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(one[1], other[1], rtol=1e-9, atol=1e-12)


def test_one_stage_is_sgd_and_stashing_changes_only_what_is_old(problem):
    layers, data = problem
    one = [stale_pipeline.train(layers, data, 1, RATE, stash=stash) for stash in (False, True)]
    np.testing.assert_array_equal(one[0][0][0], one[1][0][0])
    four = [stale_pipeline.train(layers, data, 4, RATE, stash=stash) for stash in (False, True)]
    assert np.abs(four[0][0][0] - four[1][0][0]).max() > 1e-6
    assert np.abs(four[0][0][0] - one[0][0][0]).max() > 1e-6


def test_no_stage_keeps_more_batches_than_are_under_way(problem, monkeypatch):
    layers, data = problem
    made, cut = [], pipeline.stages
    monkeypatch.setattr(pipeline, "stages", lambda *a, **k: made.extend(cut(*a, **k)) or made)
    stale_pipeline.train(layers, data, 4, RATE)
    assert [stage.most_kept for stage in made] == [7, 5, 3, 1]


def test_weights_that_are_not_finite_count_as_guessing():
    layers = pipeline.first_layers(SIZES, 1)
    part = Part(np.ones((10, 6), np.float32), np.zeros(10, int))
    assert stale_pipeline.accuracy([*layers[:-1], (layers[-1][0] * np.nan, layers[-1][1])], part) == 0.1
    assert 0 <= stale_pipeline.accuracy(layers, part) <= 1
