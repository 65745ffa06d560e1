"""Messages and all-reduces timed on real ranks."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.ranks import launch
from labs.lab4_communication.lessons import message_times

pytestmark = [pytest.mark.slow, pytest.mark.ranks]


def test_every_size_is_timed_in_every_sweep():
    sizes = [4, 4096]

    def function():
        import horovod.tensorflow as hvd

        hvd.init()
        return message_times.all_reduces(sizes, 3), message_times.messages(sizes, 3)

    results = launch.call(function, 3)
    for reduced, _ in results:
        assert reduced.shape == (3, 2)
        assert (reduced > 0).all()
    for _, sent in results[:2]:
        assert sent.shape == (3, 2)
        assert (sent > 0).all()
    assert np.isnan(results[2][1]).all()


def test_a_cycle_time_arrives_at_the_ranks():
    def function():
        import os

        return os.environ.get("HOROVOD_CYCLE_TIME"), os.environ.get("HOROVOD_CACHE_CAPACITY")

    assert launch.call(function, 2, env={"HOROVOD_CYCLE_TIME": "2.5"}) == [("2.5", None)] * 2
