"""Two ranks on two pretended hosts: both answer, the link counts and limits what they send, failures are told."""

from __future__ import annotations

import time

import pytest

from course_lib.notebook import between_hosts
from course_lib.ranks import namespaces
from course_lib.system.errors import CourseError

NUMBERS = 500_000  # of 4 bytes
LINKS = {"100 Mbit/s": "100mbit", "no limit": None}

pytestmark = [pytest.mark.ranks, pytest.mark.slow]


@pytest.fixture(scope="module", autouse=True)
def possible():
    try:
        with namespaces.hosts(2):
            pass
    except CourseError as error:
        pytest.skip(str(error))


def test_each_rank_answers_and_its_card_counts_what_it_sends_as_fast_as_it_may():
    def function():
        import socket

        import horovod.tensorflow as hvd
        import numpy as np

        hvd.init()
        hvd.allreduce(np.zeros(NUMBERS, np.float32), name="first")
        before, began = between_hosts.card_bytes(), time.perf_counter()
        hvd.allreduce(np.zeros(NUMBERS, np.float32), name="second")
        seconds, sent = time.perf_counter() - began, between_hosts.card_bytes() - before
        hvd.shutdown()
        return socket.gethostname(), sent, seconds

    found = dict(between_hosts.measured(function, LINKS, timeout=120))
    assert list(found) == list(LINKS)
    for by_rank in found.values():
        assert [name for name, *_ in by_rank] == ["a", "b"]
        assert all(4 * NUMBERS < sent < 6 * NUMBERS for _, sent, _ in by_rank)
    assert found["100 Mbit/s"][0][2] > 0.8 * 8 * 4 * NUMBERS / 1e8  # no faster than the link, but for its bucket


def test_a_rank_that_fails_is_told_with_its_link():
    def function():
        raise ValueError("no weights")

    with pytest.raises(CourseError, match=r"no limit: .*no weights"):
        list(between_hosts.measured(function, {"no limit": None}, timeout=120))


def test_a_link_that_takes_too_long_is_told():
    def function():
        time.sleep(600)

    with pytest.raises(CourseError, match="no limit: the ranks took longer than 10 s"):
        list(between_hosts.measured(function, {"no limit": None}, timeout=10))
