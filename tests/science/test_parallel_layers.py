"""Groups of ranks, rehearsed, and the pair of layers that is cut over them."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from course_lib.parallel import layers
from course_lib.parallel.group import Call, CollectiveError, Group, rehearse


def one_of_each(group):
    x = np.arange(8.0).reshape(2, 4) + 10 * group.rank
    return {
        "sum": group.all_reduce(x),
        "max": group.all_reduce(x, "max"),
        "gathered": group.all_gather(x),
        "scattered": group.reduce_scatter(x),
        "root's": group.broadcast(x, group.size - 1),
        "sent": group.all_to_all([np.full((rank + 1, 2), 10 * group.rank + rank) for rank in range(group.size)]),
    }


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_collectives_do_what_they_say(ranks):
    given = [np.arange(8.0).reshape(2, 4) + 10 * rank for rank in range(ranks)]
    for rank, found in enumerate(rehearse(one_of_each, ranks)):
        np.testing.assert_array_equal(found["sum"], np.sum(given, axis=0))
        np.testing.assert_array_equal(found["max"], given[-1])
        np.testing.assert_array_equal(found["gathered"], np.concatenate(given, axis=1))
        np.testing.assert_array_equal(found["scattered"], np.split(np.sum(given, axis=0), ranks, axis=1)[rank])
        np.testing.assert_array_equal(found["root's"], given[-1])
        for other, part in enumerate(found["sent"]):
            np.testing.assert_array_equal(part, np.full((rank + 1, 2), 10 * other + rank))


def test_a_group_of_one_needs_no_ranks():
    for found, alone in zip(rehearse(one_of_each, 1)[0].values(), one_of_each(Group()).values()):
        np.testing.assert_array_equal(found, alone)


def test_what_is_sent_is_counted_as_rings_send_it():
    def program(group):
        one_of_each(group)
        return group.calls, group.sent

    calls, sent = rehearse(program, 4)[1]
    assert calls[0] == Call("all_reduce", 8, 12.0) and calls[2] == Call("all_gather", 8, 24)
    assert calls[3].sent == 6.0 and calls[5] == Call("all_to_all", 20, 16)
    assert sent == sum(call.sent for call in calls)


def mixed(rank):
    return np.float32 if rank else np.float64


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (lambda g: g.rank and g.all_reduce(np.ones(3)), ("waits in its collective number 1, all_reduce", "for rank 0")),
        (
            lambda g: (g.all_reduce if g.rank else g.all_gather)(np.ones(3)),
            ("In collective number 1", "calls all_gather", "calls all_reduce"),
        ),
        (
            lambda g: (g.all_reduce(np.ones(3)), g.all_reduce(np.ones(2 + g.rank))),
            ("In collective number 2", "(2,)", "(3,)"),
        ),
        (
            lambda g: g.all_reduce(np.ones(3, mixed(g.rank))),
            ("calls all_reduce (sum) of float64", "calls all_reduce (sum) of float32"),
        ),
        (
            lambda g: g.all_to_all([np.ones(1, mixed(g.rank))] * 2),
            ("calls all_to_all of float64", "calls all_to_all of float32"),
        ),
        (lambda g: g.all_reduce(np.ones(3), "max" if g.rank else "sum"), ("(sum)", "(max)")),
        (lambda g: g.broadcast(np.ones(3), g.rank), ("from rank 0", "from rank 1")),
    ],
    ids=["fewer calls", "kind", "shape", "type", "type of parts", "operation", "root"],
)
def test_ranks_that_do_not_agree_are_named(program, words):
    with pytest.raises(CollectiveError) as error:
        rehearse(program, 2)
    assert all(word in str(error.value) for word in words)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="3 columns don't go to 2 ranks"):
        rehearse(lambda group: group.reduce_scatter(np.ones((2, 3))), 2)
    with pytest.raises(ValueError, match="1 parts for 2 ranks"):
        rehearse(lambda group: group.all_to_all([np.ones(1)]), 2)
    with pytest.raises(ValueError, match="'mean'"):
        Group().all_reduce(np.ones(1), "mean")


def test_groups_within_the_ranks():
    def program(pair, across):
        return pair.all_reduce(np.array(pair.rank + 1.0)), across.rank, across.all_gather(np.ones(1)).size

    def members(rank):
        return [[rank // 2 * 2, rank // 2 * 2 + 1], [rank % 2, rank % 2 + 2]]

    found = rehearse(program, 4, members)
    assert [(float(total), place, size) for total, place, size in found] == [
        (3.0, 0, 2), (3.0, 0, 2), (3.0, 1, 2), (3.0, 1, 2),
    ]  # fmt: skip


class Rehearsed(layers.Ranks):
    """As `layers.Ranks`, on simulated ranks."""

    def __init__(self, group):
        self.group, self.rank, self.size = group, group.rank, group.size

    def total(self, x):
        return tf.constant(self.group.all_reduce(x.numpy()))


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_pair_equals_the_serial_layers_with_one_all_reduce_each_way(ranks):
    random = np.random.default_rng(0)
    shapes = {"x": (5, 4), "w1": (4, 8), "b1": (8,), "w2": (8, 3), "b2": (3,)}
    whole = {name: random.normal(size=shape) for name, shape in shapes.items()}
    cut = {"w1": 1, "b1": 0, "w2": 0}

    def gradients(values, forward):
        tensors = [tf.constant(value) for value in values]
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            loss = tf.reduce_sum(forward(*tensors) ** 2)
        return float(loss), [slope.numpy() for slope in tape.gradient(loss, tensors)]

    def program(group):
        me = Rehearsed(group)
        part = [me.part(value, cut[name]) if name in cut else value for name, value in whole.items()]
        forward = lambda x, w1, b1, w2, b2: layers.rows(tf.nn.relu(layers.columns(x, w1, b1, me)), w2, b2, me)  # noqa: E731
        return *gradients(part, forward), group.calls

    loss, slopes = gradients(whole.values(), lambda x, w1, b1, w2, b2: tf.nn.relu(x @ w1 + b1) @ w2 + b2)
    for rank, (mine, found, calls) in enumerate(rehearse(program, ranks)):
        assert mine == pytest.approx(loss, rel=1e-12)
        assert [call.kind for call in calls] == ["all_reduce"] * 2
        for name, one, right in zip(whole, found, slopes):
            right = np.split(right, ranks, axis=cut[name])[rank] if name in cut else right
            np.testing.assert_allclose(one, right, rtol=1e-10, atol=1e-12)


def test_a_layer_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match="5 places don't go to 2 ranks"):
        Rehearsed(Group(0, 2)).part(np.ones((5, 2)), 0)
