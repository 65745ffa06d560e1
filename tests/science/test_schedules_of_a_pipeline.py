"""Schedules of a pipeline: order, deadlock, memory, times; and what a stage computes."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_lib.collectives import simulated
from course_lib.parallel import pipeline, schedules

SHAPES = {"stages": st.integers(1, 16), "micro": st.integers(1, 32)}
BOTH = [schedules.gpipe, schedules.one_forward_one_backward]


@given(make=st.sampled_from(BOTH), **SHAPES)
def test_both_schedules_have_the_same_bubble(make, stages, micro):
    table = make(stages, micro)
    schedules.check(table, micro)
    for forward, backward in ((1, 2), (1, 1), (3, 1)):
        run = schedules.run(table, forward, backward)
        assert run.seconds == pytest.approx((micro + stages - 1) * (forward + backward))
        assert run.idle == pytest.approx((stages - 1) / (micro + stages - 1))


@given(**SHAPES)
def test_they_keep_different_numbers_of_micro_batches(stages, micro):
    assert schedules.kept(schedules.gpipe(stages, micro)) == [micro] * stages
    limits = [min(micro, stages - stage) for stage in range(stages)]
    assert schedules.kept(schedules.one_forward_one_backward(stages, micro)) == limits


def test_the_slowest_stage_sets_the_pace():
    forward, backward, micro = [2, 1, 3], [4, 6, 5], 5
    run = schedules.run(schedules.gpipe(3, micro), forward, backward)
    assert run.seconds == sum(forward) + 4 * max(forward) + sum(backward) + 4 * max(backward)


def test_messages_cost_gpipe_its_first_way_only():
    cost = {}
    for make in BOTH:
        free, slow = (schedules.run(make(8, 32), 1, 2, message).seconds for message in (0, 0.3))
        cost[make] = slow - free
    assert cost[schedules.gpipe] == pytest.approx(14 * 0.3)
    assert cost[schedules.one_forward_one_backward] > 3 * 14 * 0.3


@given(**SHAPES)
def test_twice_the_lead_is_a_reserve_against_messages(stages, micro):
    table = schedules.one_forward_one_backward(stages, micro, lead=2)
    schedules.check(table, micro)
    assert schedules.kept(table) == [min(micro, 2 * (stages - stage) - 1) for stage in range(stages)]
    reserve, gpipe = (schedules.run(rows, 1, 2, 0.3).seconds for rows in (table, schedules.gpipe(stages, micro)))
    assert reserve == pytest.approx(gpipe)
    assert schedules.run(table, 1, 2).seconds == pytest.approx(3 * (micro + stages - 1))


def test_no_stage_does_two_tasks_at_once_and_each_has_what_it_needs():
    run = schedules.run(schedules.one_forward_one_backward(4, 6), [1, 2, 1, 3], 2, 0.5)
    ends = {(span.stage, span.kind, span.micro): span.end for span in run.spans}
    for span in run.spans:
        others = [other for other in run.spans if other.stage == span.stage and other is not span]
        assert all(other.end <= span.start or other.start >= span.end for other in others)
        if needed := schedules.needs(span.stage, (span.kind, span.micro), 4):
            assert span.start >= ends[needed] + 0.5
        if span.kind == "B":
            assert span.start >= ends[span.stage, "F", span.micro]


F0, F1, B0, B1 = ("F", 0), ("F", 1), ("B", 0), ("B", 1)
GOOD = [F0, F1, B0, B1]


@pytest.mark.parametrize(
    ("table", "kind", "words"),
    [
        ([GOOD, [F0, F1, B0]], schedules.WrongSchedule, "Stage 1 never does B1"),
        ([GOOD, [F0, F1, B0, B0]], schedules.WrongSchedule, "Stage 1 does B0 twice"),
        ([[B0, F0, F1, B1], GOOD], schedules.WrongSchedule, "Stage 0 does B0 before F0"),
        ([[*GOOD, ("F", 2)], GOOD], schedules.WrongSchedule, "Stage 0 has the task ('F', 2)"),
        (
            [[F0, B0, F1, B1], [F1, F0, B0, B1]],
            schedules.Deadlock,
            "stage 0 waits for the gradient of B0 from stage 1, stage 1 waits for the activations of F1 from stage 0",
        ),
        (
            [[F0, B0, F1, B1], [F0, F1, B0, B1], [F0, F1, B0, B1]],
            schedules.Deadlock,
            "stage 2 waits for the activations",
        ),
    ],
)
def test_a_wrong_table_is_named_at_once(table, kind, words):
    with pytest.raises(kind) as error:
        schedules.check(table, 2)
    assert words in str(error.value)


# What a stage computes


def twin(layers, images, labels):
    stage = pipeline.Stage(layers, last=True)
    loss, slope = pipeline.cross_entropy(stage.forward(0, images), labels)
    stage.backward(0, slope)
    return loss, stage


def problem(dtype=np.float64):
    random = np.random.default_rng(1)
    layers = [(kernel, random.normal(size=bias.shape).astype(dtype)) for kernel, bias in
              pipeline.first_layers((7, 6, 5, 4), 2, dtype)]  # fmt: skip
    return layers, random.normal(size=(11, 7)).astype(dtype), random.integers(4, size=11)


def test_the_gradients_are_those_of_finite_differences():
    layers, images, labels = problem()
    _, stage = twin(layers, images, labels)
    for number, which, place in ((0, 0, (3, 2)), (1, 1, (4,)), (2, 0, (0, 3))):
        moved = []
        for step in (1e-6, -1e-6):
            changed = [[kernel.copy(), bias.copy()] for kernel, bias in layers]
            changed[number][which][place] += step
            moved.append(twin([tuple(both) for both in changed], images, labels)[0])
        slope = (moved[0] - moved[1]) / 2e-6
        assert stage.gradients[number][which][place] == pytest.approx(slope, rel=1e-5, abs=1e-9)


def test_the_gradient_of_another_micro_batch_is_refused():
    layers, images, _ = problem()
    stage = pipeline.Stage(layers, last=True)
    stage.forward(0, images)
    slope = stage.forward(1, images[:3])
    with pytest.raises(ValueError, match=r"micro-batch 0 have shape \(11, 4\), the gradient by them \(3, 4\)"):
        stage.backward(0, slope)


class ThreadWire:
    """As `Wire`, between threads."""

    def __init__(self, me):
        self.me, self.early = me, {}

    def send(self, to, kind, micro, array):
        self.me.send(np.array([ord(kind), micro]), to)
        self.me.send(array, to)

    def receive(self, source, kind, micro):
        while (source, kind, micro) not in self.early:
            letter, number = self.me.receive(source)
            self.early[source, chr(letter), number] = self.me.receive(source)
        return self.early.pop((source, kind, micro))


@pytest.mark.parametrize("make", BOTH)
@pytest.mark.parametrize(("ends", "micro"), [([], 3), ([1], 2), ([2], 4), ([1, 2], 5)])
def test_stages_together_are_the_serial_network(make, ends, micro):
    layers, images, labels = problem()
    parts = pipeline.stages(layers, ends)
    pieces = np.array_split(images, micro), np.array_split(labels, micro)
    table = make(len(parts), micro)

    def program(me, stage):
        return pipeline.follow(table[me.rank], stage, me.rank, me.size, ThreadWire(me), *pieces)

    losses = simulated.run(program, parts).results
    loss, stage = twin(layers, images, labels)
    assert losses[-1] == pytest.approx(loss, rel=1e-12) and not any(losses[:-1])
    found = [part for piece in parts for both in piece.gradients for part in both]
    for one, other in zip(found, [part for both in stage.gradients for part in both]):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    assert [piece.most_kept for piece in parts] == schedules.kept(table)


def test_the_backward_pass_takes_the_weights_of_the_moment_or_the_stashed_ones():
    layers, images, labels = problem()
    gradients = {}
    for stash in (False, True):
        stage = pipeline.Stage(layers, last=True, stash=stash)
        _, slope = pipeline.cross_entropy(stage.forward(0, images), labels)
        stage.layers = [(0 * kernel, bias) for kernel, bias in layers]
        gradients[stash] = stage.backward(0, slope)
    assert not gradients[False].any()
    reference = pipeline.Stage(layers, last=True)
    _, slope = pipeline.cross_entropy(reference.forward(0, images), labels)
    np.testing.assert_array_equal(gradients[True], reference.backward(0, slope))


# The wire, between two ends of one process


@pytest.fixture
def wires():
    import socket

    one, other = socket.socketpair()
    found = pipeline.Wire(0, {1: one}), pipeline.Wire(1, {0: other})
    yield found
    closing = [threading.Thread(target=wire.close) for wire in found]
    for thread in closing:
        thread.start()
    for thread in closing:
        thread.join(10)
        assert not thread.is_alive()


def test_messages_are_found_by_name(wires):
    zero, one = wires
    zero.send(1, "F", 0, np.arange(3, dtype=np.float32))
    zero.send(1, "F", 1, np.ones((2, 2)))
    np.testing.assert_array_equal(one.receive(0, "F", 1), np.ones((2, 2)))
    found = one.receive(0, "F", 0)
    assert found.dtype == np.float32 and found.tolist() == [0, 1, 2]
    assert zero.sent_bytes == 12 + 32 and one.sent_bytes == 0


def test_large_messages_both_ways_block_nobody_and_keep_their_order(wires):
    zero, one = wires
    large = np.arange(3_000_000, dtype=np.float32)
    for micro in range(3):
        zero.send(1, "F", micro, large + micro)
        one.send(0, "B", micro, large - micro)
    zero.send(1, "F", 3, np.zeros(1))
    for micro in range(3):
        np.testing.assert_array_equal(one.receive(0, "F", micro), large + micro)
        np.testing.assert_array_equal(zero.receive(1, "B", micro), large - micro)
    assert one.receive(0, "F", 3).tolist() == [0]


def test_who_waits_in_vain_says_for_what(monkeypatch):
    import socket

    monkeypatch.setattr(pipeline, "STALL_TIMEOUT_S", 0.05)
    one, other = socket.socketpair()
    wire = pipeline.Wire(0, {1: one})
    with pytest.raises(TimeoutError, match="Stage 0 waits for B2 from stage 1"):
        wire.receive(1, "B", 2)
    other.close()
    with pytest.raises(TimeoutError, match="it has left"):
        wire.receive(1, "B", 2)
    wire.close()
