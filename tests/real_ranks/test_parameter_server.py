"""A parameter server and real workers over sockets: who waits, how stale gradients are, what a wrong server is told."""

from __future__ import annotations

import sys

import cloudpickle
import numpy as np
import pytest

from course_lib.system.errors import CourseError
from labs.lab6_beyond_synchronous.lessons import parameter_server, small_network
from labs.lab6_beyond_synchronous.lessons.asynchronous import Arrivals

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the server can't import a test
pytestmark = [pytest.mark.slow, pytest.mark.ranks, pytest.mark.alone]  # who comes first depends on free cores

PAUSES = (0.02, 0.15)


@pytest.fixture(autouse=True, scope="module")
def small_data():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_SLICE", "1279")
        small_network.fashion.cache_clear()
        yield
    small_network.fashion.cache_clear()


def arrived(server, worker, gradient):
    server.waiting[worker] = gradient
    if len(server.waiting) < server.quorum:
        return {}
    server.weights = server.weights - server.rate * np.mean(list(server.waiting.values()), 0)
    server.updates += 1
    answers = dict.fromkeys(server.waiting, server.weights)
    server.waiting = {}
    return answers


def test_asynchronous_workers_do_not_wait_for_the_slow_one():
    run = parameter_server.run(arrived, PAUSES, quorum=1, seconds=3)
    counts = run.log.groupby("worker").size()
    assert counts[0] > 2 * counts[1] > 2
    assert list(run.log["update"]) == list(range(len(run.log)))
    worker = run.log["worker"].to_numpy()
    assert np.array_equal(run.staleness, Arrivals(2, worker, run.log["answered"].to_numpy()).staleness)
    assert run.staleness[worker == 1].mean() > 2 > 1 > run.staleness[worker == 0].mean()
    assert run.staleness.mean() == pytest.approx(1, abs=0.3)
    assert (run.log["handed_in"] - run.log["read"] >= np.array(PAUSES)[worker] * 0.99).all()
    assert (run.log["answered"] - run.log["handed_in"]).median() < 0.01
    loss = [
        small_network.loss(weights, small_network.fashion().train) for weights in (small_network.start(0), run.weights)
    ]
    assert loss[1] < loss[0]


def test_synchronous_workers_wait_and_nothing_is_stale():
    run = parameter_server.run(arrived, PAUSES, quorum=2, seconds=2)
    assert run.log.groupby("worker").size().nunique() == 1
    assert not run.staleness.any()
    fast = run.log[run.log["worker"] == 0]
    assert (fast["answered"] - fast["handed_in"]).median() > 0.1
    assert len(run.log) / run.seconds < 2 / PAUSES[1]


def nothing(server, worker, gradient):
    return None


def somebody_else(server, worker, gradient):
    return {1 - worker: server.weights, worker: server.weights}


def broken(server, worker, gradient):
    return server.wieghts


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        (nothing, "should return a dict"),
        (somebody_else, "that wait for an answer"),
        (broken, "`broken` raised AttributeError: .*wieghts"),
    ],
)
def test_a_wrong_server_is_told_in_a_sentence(wrong, word):
    with pytest.raises(CourseError, match=word):
        parameter_server.run(wrong, (0.01, 1.0), seconds=5)


def never(server, worker, gradient):
    return {}


def test_a_server_that_never_answers_ends_in_time():
    run = parameter_server.run(never, (0.01, 0.01), seconds=1)
    assert len(run.log) == 0 and run.seconds < 3
