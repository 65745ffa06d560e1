"""What notebook 5c is built on: the chain that counts, traced memory, the timeline, ranks that share."""

from __future__ import annotations

import math

import numpy as np
import pytest

from course_lib.cost import memory
from labs.lab5_precision_and_memory.lessons import offload, peaks, shards
from labs.lab5_precision_and_memory.lessons.counted_chain import Chain, fewest, halved

# The chain


def test_an_array_counts_as_long_as_something_refers_to_it():
    chain = Chain(4)
    x, _ = chain.start()
    y = chain.forward(0, x)
    z = chain.forward(1, y)
    assert chain.kept == 1  # x, while y is at work
    chain.forward(2, z)
    assert chain.kept == 2
    del x, y
    chain.forward(2, z)
    assert [call.kept for call in chain.calls] == [(), (0,), (0, 1), ()]


def test_the_chain_has_the_gradient_of_its_layers():
    chain = Chain(3)
    x, slope = chain.start()

    def loss(x):
        for weights in chain._weights:
            x = np.tanh(x @ weights)
        return np.sum(slope * x)

    gradient, _ = chain.reference()
    for place in ((0, 0), (1, 3)):
        step = np.zeros_like(x)
        step[place] = 1e-6
        assert gradient[place] == pytest.approx((loss(x + step) - loss(x - step)) / 2e-6, rel=1e-6)


@pytest.mark.parametrize(
    ("layer", "word"), [(1, "input of layer 0"), (7, "no layer 7")], ids=["another layer's", "none such"]
)
def test_the_chain_refuses_what_does_not_fit(layer, word):
    chain = Chain(3)
    x, _ = chain.start()
    with pytest.raises(ValueError, match=word):
        chain.forward(layer, x)


@pytest.mark.parametrize("arrays", range(1, 8))
def test_the_fewest_forwards_are_those_of_the_binomial_law(arrays):
    """Griewank and Walther 2000: with r the least for which (s + r choose s) layers are enough for n, r n − (s + r
    choose s + 1) forwards; they prove that no schedule has fewer."""
    for layers in range(1, 60):
        times = next(r for r in range(layers + 1) if math.comb(arrays + r, arrays) >= layers)
        assert fewest(layers, arrays) == times * layers - math.comb(arrays + times, arrays + 1)


def test_halves_are_worse_and_few_arrays_possible():
    assert fewest(1, 0) == 0 and fewest(2, 0) == math.inf
    assert fewest(10, 1) == 45 == halved(10, 1)
    assert all(fewest(n, k) <= halved(n, k) for n in range(2, 40) for k in range(1, 6))
    assert fewest(40, 3) < halved(40, 3)


# Traced memory


def test_a_peak_is_the_most_at_a_time():
    def work():
        first = np.ones(50_000)
        del first
        second = np.ones(30_000)
        return second.sum()

    assert peaks.peak(work) == pytest.approx(8 * 50_000, rel=0.02)


@pytest.mark.parametrize("batch", [32, 256])
def test_a_step_holds_what_is_counted(batch):
    rows = peaks.step(3, 64, batch)
    kinds = ["weights", "state", "activations", "gradients"]
    forward = rows[rows["phase"] == "forward"].iloc[-1]
    counted = memory.training(peaks.dense_network(3, 64), batch)
    assert [forward[kind] for kind in kinds[:3]] == [counted[kind] for kind in kinds[:3]]
    assert rows["gradients"].max() == counted["gradients"]
    assert (rows["measured"] - rows[kinds].sum(axis=1)).between(0, 4 * batch * 64 + 20_000).all()
    assert rows["peak"].ge(rows["measured"]).all()


# The timeline

LAYERS = [offload.Work("a", 1.0, 10.0, 0.5), offload.Work("b", 1.0, 20.0, 3.0), offload.Work("c", 1.0, 30.0, 1.0)]


def just_in_time(needed, seconds):
    return [moment - took for moment, took in zip(needed, seconds)]


def test_without_transfers_a_step_is_three_forwards_long_and_holds_everything():
    step = offload.timeline(LAYERS, [], just_in_time)
    assert (step.seconds, step.forward, step.peak) == (9, 3, 60)
    assert step.memory[-1, 1] == 0


def test_what_hides_costs_nothing_and_what_does_not_is_waited_for():
    assert offload.hidden(LAYERS) == [0, 2]
    hidden = offload.timeline(LAYERS, [0], just_in_time)
    assert (hidden.seconds, hidden.peak) == (9, 50)
    longer = offload.timeline(LAYERS, [1], just_in_time)
    assert longer.forward == 5  # b's transfer takes three seconds
    assert longer.seconds == 5 + 3 + 4  # and b waits for it one second


def test_the_cable_carries_one_transfer_at_a_time():
    step = offload.timeline(LAYERS, [0, 1], lambda needed, seconds: [0.0] * len(needed))
    back = sorted((span.start, span.end) for span in step.spans if span.kind == "back")
    assert back[0][1] == back[1][0]


def test_a_layer_computes_at_its_speed_and_its_input_travels_at_the_cables():
    network = memory.vgg16()
    first, second, *_ = offload.works(network, 2, 1e12, 1e9)
    assert second.seconds == 2 * 2 * network.layers[1].multiply_adds / 1e12
    assert second.size == 2 * 4 * network.layers[0].activations == 1e9 * second.transfer
    assert first.size == 2 * 4 * 224 * 224 * 3


def test_most_of_vggs_inputs_hide_and_none_of_resnets():
    """What the text says of a device of 5 TFLOP/s on a cable of 12 GB/s."""
    vgg = offload.works(memory.vgg16(), 64, 5e12, 12e9)
    moved = [layer for layer in offload.hidden(vgg) if layer < len(vgg) - 1]
    assert len(moved) > len(vgg) / 2
    stays, hides, goes = (offload.timeline(vgg, some, latest) for some in ([], moved, range(len(vgg) - 1)))
    assert hides.seconds == pytest.approx(stays.seconds) and hides.peak < stays.peak
    assert goes.seconds > hides.seconds and goes.peak < hides.peak
    assert offload.timeline(vgg, moved, lambda needed, seconds: [0] * len(needed)).peak > hides.peak
    resnet = offload.works(memory.NETWORKS["ResNet-50"], 64, 5e12, 12e9)
    assert not offload.hidden(resnet)


def latest(needed, seconds):
    starts, free = [], math.inf
    for moment, took in zip(needed[::-1], seconds[::-1]):
        free = min(moment, free) - took
        starts.append(free)
    return starts[::-1]


# Ranks that share


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_the_parts_of_a_sum_make_the_sum(ranks):
    arrays = np.arange(10.0 * ranks).reshape(ranks, 10)

    def program(me, array):
        part = me.reduce_scatter(array)
        return part, me.all_gather(part), me.all_reduce(array)

    results, sent = shards.simulate(program, list(arrays))
    for (part, gathered, whole), want in zip(results, np.array_split(arrays.sum(0), ranks)):
        np.testing.assert_array_equal(part, want)
        np.testing.assert_array_equal(gathered, arrays.sum(0))
        np.testing.assert_array_equal(whole, arrays.sum(0))
    assert sent.sum() == 4 * (ranks - 1) * 10  # half of it the all-reduce's


def test_the_network_has_the_gradient_of_its_loss():
    network, random = shards.Network((5, 4, 3)), np.random.default_rng(0)
    weights, x, y = network.start(), random.normal(size=(6, 5)), random.integers(0, 3, 6)

    def loss(weights):
        w, b, v, c = (weights[i:j].reshape(s) for i, j, s in zip(network.bounds, network.bounds[1:], network.shapes))
        z = np.maximum(x @ w + b, 0) @ v + c
        return np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(6), y])

    numerical = [(loss(weights + step) - loss(weights - step)) / 2e-6 for step in 1e-6 * np.eye(len(weights))]
    np.testing.assert_allclose(network.gradient(weights, x, y), numerical, atol=1e-8)


def test_the_backward_pass_hands_over_a_layer_at_a_time_and_keeps_none():
    network = shards.Network((200, 100, 100, 100, 10))
    weights, x, y = network.start(), np.ones((4, 200)), np.zeros(4, int)
    assert [layer for layer, _ in network.backward(weights, x, y)] == [3, 2, 1, 0]

    def layer_by_layer():
        for _ in network.backward(weights, x, y):
            pass

    whole = 8 * network.bounds[-1]
    assert peaks.peak(lambda: network.gradient(weights, x, y)) > whole
    assert peaks.peak(layer_by_layer) < whole


def test_adam_says_what_does_not_fit():
    with pytest.raises(ValueError, match="made for 3 numbers"):
        shards.Adam(3).update(np.zeros(4), np.zeros(4))
