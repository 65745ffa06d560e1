"""Local SGD and elastic averaging on real ranks against the emulation of notebook 6b."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.ranks import launch
from labs.lab6_beyond_synchronous.lessons import local_sgd, small_network

pytestmark = [pytest.mark.slow, pytest.mark.ranks]
UPDATES, RATE, SEED = 12, 0.05, 3
WAYS = (("local", 1), ("local", 4), ("elastic", 4))


@pytest.fixture(scope="module", autouse=True)
def sliced():
    """Of this process, and of the ranks, which inherit its environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_SLICE", "511")
        for variable, value in launch.ONE_THREAD.items():
            patch.setenv(variable, value)
        small_network.fashion.cache_clear()
        yield
    small_network.fashion.cache_clear()


@pytest.fixture(scope="module")
def real():
    def elastic_step(weights, centre, gradients, rate, spring):
        pulled = rate * spring * (weights - centre)
        return weights - rate * gradients - pulled, centre + pulled.sum(0)

    def function():
        import horovod.tensorflow as hvd

        from labs.lab6_beyond_synchronous.lessons import horovod_meetings

        hvd.init()
        found = {way: horovod_meetings.train(*way, RATE, SEED, UPDATES) for way in WAYS}
        return {**found, "learner": horovod_meetings.train_with(elastic_step, 4, RATE, SEED, UPDATES)}

    return launch.call(function, 2, env=launch.ONE_THREAD)


@pytest.mark.parametrize("way", WAYS)
def test_two_ranks_compute_what_their_emulation_does(way, real):
    name, period = way
    twin = local_sgd.Training(local_sgd.meeting(name, period, SEED, 2), RATE, SEED, ranks=2, updates=UPDATES)
    twin.run()
    for rank, found in enumerate(real):
        weights, judged = found[way]
        np.testing.assert_allclose(weights, twin.weights[rank], rtol=0, atol=1e-6)
        np.testing.assert_allclose(judged, twin.meet.network(twin.weights), rtol=0, atol=1e-6)
    assert np.abs(twin.weights[0] - small_network.start(SEED)).max() > 1e-3


def test_the_learner_s_step_makes_the_same_training(real):
    for found in real:
        for learner, library in zip(found["learner"], found["elastic", 4]):
            np.testing.assert_allclose(learner, library, rtol=0, atol=1e-6)
