"""The networks of notebook 5d, the small regression, and what they show."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from course_lib import models
from labs.lab5_precision_and_memory.lessons import activations, diagnosis_5d, pruning, sparse_regression


@pytest.fixture(autouse=True)
def sliced(monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "511")
    for kept in (pruning.fashion, pruning._first_half):
        kept.cache_clear()
    yield
    for kept in (pruning.fashion, pruning._first_half):
        kept.cache_clear()


@pytest.mark.parametrize(("grain", "axes"), pruning.GRAINS.items())
def test_the_mask_keeps_the_strongest_groups_whole(grain, axes):
    kernel = np.random.default_rng(1).normal(size=(3, 3, 4, 8))
    stay = pruning.mask(kernel, 0.25, grain)
    assert np.array_equal(stay.any(axes, keepdims=True) & np.ones_like(stay), stay)
    assert stay.mean() == 0.25
    strength = np.abs(kernel).mean(axes, keepdims=True) + np.zeros(kernel.shape)
    assert strength[stay].min() > strength[~stay].max()
    drawn = pruning.mask(kernel, 0.25, grain, np.random.default_rng(1))
    assert drawn.mean() == 0.25 and (drawn != stay).any()


def test_what_is_pruned_stays_0_while_the_network_trains():
    problem, network = pruning.fashion(), pruning.trained(1)
    before = [kernel.numpy() for kernel in network.kernels]
    assert network.density == 1 and network.nonzeros == 23_040
    network.prune(0.1)
    zeros = [kernel.numpy() == 0 for kernel in network.kernels]
    network.train(problem.train, 0.05, 1, epochs=1)
    for kernel, old, zero in zip(network.kernels, before, zeros):
        assert np.all(kernel.numpy()[zero] == 0) and np.any(kernel.numpy()[~zero] != old[~zero])
    again = pruning.trained(1)
    assert all(np.array_equal(kernel.numpy(), old) for kernel, old in zip(again.kernels, before))


def test_a_schedule_prunes_while_the_network_trains():
    seen = []
    network = pruning.convolutional(1)
    network.train(
        pruning.fashion().train, 0.05, 1, pruning.cubic(0.9), look=lambda done, net: seen.append((done, net.density))
    )
    updates = len(pruning.fashion().train.labels) // pruning.BATCH * pruning.EPOCHS
    assert [done for done, _ in seen] == [*range(0, updates, pruning.UPDATES_AT_ONCE), updates]
    densities = [density for _, density in seen]
    assert densities[0] == 1 and densities[-1] == pytest.approx(0.1, abs=1e-3)
    assert densities == sorted(densities, reverse=True)


def test_a_training_is_repeated():
    first = pruning.convolutional(3).train(pruning.fashion().train, 0.05, 1, epochs=1).model.get_weights()
    second = pruning.convolutional(3).train(pruning.fashion().train, 0.05, 1, epochs=1).model.get_weights()
    assert all(np.allclose(a, b, atol=1e-6) for a, b in zip(first, second))


@pytest.mark.parametrize(("units", "weights"), [(32, 5_888), (128, 72_704)])
def test_a_recurrent_network_has_the_weights_that_the_experiment_counts(units, weights):
    network = pruning.recurrent(1, units)
    assert network.nonzeros == weights
    assert network.prune(5_888 / weights).nonzeros == pytest.approx(5_888, abs=2)


def test_the_zeros_of_a_block_are_those_of_its_layers():
    images, labels = (part[:32] for part in pruning.fashion().train)
    model = models.quick_cnn((28, 28, 1), 10)
    kept = model.get_weights()
    table = activations.zeros(model, images, labels).set_index(["kind", "block"])["zeros"]
    assert all(np.array_equal(a, b) for a, b in zip(kept, model.get_weights()))
    relu, pool, gradient = (table[kind] for kind in activations.KINDS)
    assert len(table) == 9 and np.all(relu > pool) and np.all(relu > 0.3)
    assert np.all(gradient >= 0.74)  # of four inputs one gets a gradient; an odd edge is not pooled


def test_the_race_has_all_ways_and_says_where_they_cross():
    table = activations.race((0.01, 0.5), rows=64, tries=1)
    assert list(table) == ["density", "dense", "compressed", "compressing", "rows"] and (table > 0).all(axis=None)
    table = pd.DataFrame({"density": [0.1, 0.2, 0.5, 1.0], "dense": 1.0, "compressed": [0.2, 0.9, 1.1, 0.9]})
    assert activations.crossing(table, "compressed") == 0.2
    assert np.isnan(activations.crossing(table.assign(compressed=2.0), "compressed"))


def test_without_pruning_the_regression_is_solved():
    assert sparse_regression.errors(lambda update, updates, final: 0.0).max() < 0.2
    five = np.count_nonzero([sparse_regression.regression(seed).rate > 0 for seed in range(3)])
    assert five == 3


def test_the_patients_differ_from_the_healthy_one_where_the_reasons_say():
    seen = diagnosis_5d.patients(epochs=1)
    assert list(seen) == ["healthy", *diagnosis_5d._PATIENTS]
    share = seen.map(lambda text: float(text.strip("%"))) if hasattr(seen, "map") else seen.applymap(
        lambda text: float(text.strip("%"))
    )  # fmt: skip
    third = share.loc[[row for row in share.index if row.startswith("3rd")]]
    first, last, positive, size, _ = (third.iloc[number] for number in range(5))
    assert positive["A"] == 100 and positive["healthy"] < 90
    assert last["B"] > 99 and first["B"] == first["healthy"] == last["healthy"]
    assert 0.8 < size["C"] < 1.25 and min(size["healthy"], size["B"]) > 2
    assert abs(first["D"] - 10) > 0.5 and first["healthy"] == pytest.approx(10, abs=0.1)
