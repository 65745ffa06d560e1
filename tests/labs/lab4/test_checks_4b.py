"""Notebook 4b: the solutions agree with the library; answers of another kind."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.cost import networks, overlap
from labs.lab4_communication.lessons.checks_4b import check, points


@pytest.mark.parametrize("cycle", [1e-3, 0.05])
@pytest.mark.parametrize("threshold", [0, 1e6, 64e6])
def test_the_solutions_simulate_what_the_library_does(answer, cycle, threshold):
    network = networks.resnet50()
    nbytes = np.array([4.0 * tensor.elements for tensor in network])
    ready = overlap.ready_times([tensor.flops for tensor in network], 0.25)

    def all_reduce(nbytes):
        return 1e-3 + 1e-10 * nbytes

    messages = answer("4b", "fuse")(ready, nbytes, threshold, cycle)
    times = answer("4b", "send")(messages, nbytes, all_reduce)
    expected = overlap.step(ready, nbytes, all_reduce, threshold, cycle).messages
    assert [tuple(tensors) for _, tensors in messages] == [message.tensors for message in expected]
    assert np.array(times) == pytest.approx(np.array([(message.start, message.end) for message in expected]))


def test_another_rule_that_is_right_on_lines_will_do():
    def slowest(cumulative, times, ranks):
        middles = (times[1:] + times[:-1]) / 2
        return np.diff(times) @ np.interp(middles, times, 1 - cumulative**ranks)

    assert points(slowest, 5) == 5.0


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (3, "pairs (moment, list of indices)"),
        ([(4.0, [0])], "tensor 1 is in no message"),
        ([(4.0, [*range(8), 7])], "each of 0 … 7 is to be in one"),
        ([(4.0, list(range(8))), (5.0, [])], "holds no tensor"),
    ],
)
def test_messages_with_too_little_or_too_much_in_them_are_named(messages, said):
    def fuse(ready, nbytes, threshold, cycle):
        return messages

    assert said in check(fuse).verdicts[0].reason


def test_times_that_are_no_pairs_are_named():
    def send(messages, nbytes, all_reduce):
        return [1.0, 2.0, 3.0]

    assert "a pair (start, end) for each message" in check(send).verdicts[0].reason
