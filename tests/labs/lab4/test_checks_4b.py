"""Notebook 4b: the solutions agree with the library; answers of another kind."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.cost import networks, overlap


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
