from __future__ import annotations

import numpy as np
import pytest

from course_lib.cost import networks, overlap


def free(nbytes):
    return np.zeros_like(nbytes)


def second_each(nbytes):
    return np.ones_like(nbytes)


def test_gradients_become_ready_from_the_last_layer_to_the_first():
    ready = overlap.ready_times([10, 0, 30, 60], 2.0)
    assert ready == pytest.approx([2.0, 1.8, 1.8, 1.2])


def test_a_cycle_takes_what_is_ready_and_the_threshold_closes_a_message():
    done = overlap.step([2.2, 0.9, 0.5, 0.2], [4, 4, 4, 4], free, threshold=8, cycle=1.0)
    assert [(m.start, m.tensors, m.nbytes) for m in done.messages] == [(1, (3, 2), 8), (1, (1,), 4), (3, (0,), 4)]


def test_a_gradient_above_the_threshold_travels_alone_and_zero_means_no_fusion():
    done = overlap.step([0, 0, 0], [1, 100, 1], free, threshold=10, cycle=1.0)
    assert [m.tensors for m in done.messages] == [(0,), (1,), (2,)]
    assert len(overlap.step([0] * 5, [1] * 5, free, threshold=0, cycle=1.0).messages) == 5
    assert len(overlap.step([0] * 5, [1] * 5, free, threshold=np.inf, cycle=1.0).messages) == 1


def test_hidden_and_exposed_communication():
    done = overlap.step([3.0, 1.0], [1, 1], second_each, threshold=10, cycle=0.5)
    assert [(m.start, m.end) for m in done.messages] == [(1, 2), (3, 4)]
    assert (done.seconds, done.communication, done.hidden, done.exposed) == (4, 2, 1, 1)


def test_messages_go_one_after_the_other():
    done = overlap.step([0.3, 0.2, 0.1], [1, 1, 1], second_each, threshold=0, cycle=0.1)
    assert [m.start for m in done.messages] == pytest.approx([0.1, 1.1, 2.1])


def test_where_the_thread_itself_communicates_the_next_cycle_waits_and_fuses_more():
    ready, nbytes = np.arange(10) * 0.1, np.ones(10)
    cycles_go_on = overlap.step(ready, nbytes, second_each, threshold=100, cycle=0.1)
    waits = overlap.step(ready, nbytes, second_each, threshold=100, cycle=0.1, blocking=True)
    assert len(cycles_go_on.messages) == 10
    assert [m.tensors for m in waits.messages] == [(0,), tuple(range(1, 10))]


def test_copying_and_negotiation_cost():
    done = overlap.step([0, 0], [3, 5], free, threshold=100, cycle=1.0, copy=0.5, negotiation=0.25)
    assert (done.messages[0].start, done.messages[0].seconds) == (0.25, 4.0)
    alone = overlap.step([0], [8], free, threshold=100, cycle=1.0, copy=0.5)
    assert alone.messages[0].seconds == 0


def test_cycle_zero_looks_at_all_times():
    done = overlap.step([0.3, 0.3, 0.1], [1, 1, 1], free, threshold=100, cycle=0)
    assert [(m.start, m.tensors) for m in done.messages] == [(0.1, (2,)), (0.3, (0, 1))]


@pytest.mark.parametrize("threshold", [0, 1e6, 1e9])
@pytest.mark.parametrize("cycle", [0, 1e-3, 0.1])
@pytest.mark.parametrize("blocking", [False, True])
def test_nothing_is_lost_doubled_or_too_early(threshold, cycle, blocking):
    network = networks.resnet50()
    nbytes = np.array([4.0 * tensor.elements for tensor in network])
    ready = overlap.ready_times([tensor.flops for tensor in network], 0.25)
    link = {"threshold": threshold, "cycle": cycle, "blocking": blocking}
    done = overlap.step(ready, nbytes, lambda n: 1e-4 + 1e-9 * n, **link)
    assert sorted(tensor for message in done.messages for tensor in message.tensors) == list(range(len(network)))
    assert sum(message.nbytes for message in done.messages) == nbytes.sum()
    for before, after in zip(done.messages, done.messages[1:]):
        assert after.start >= before.end - 1e-12
    for message in done.messages:
        assert message.start >= ready[list(message.tensors)].max() - 2 * overlap.TOLERANCE
        assert message.nbytes <= threshold or len(message.tensors) == 1
    assert done.exposed >= 0
    assert done.hidden <= done.communication + 1e-12
