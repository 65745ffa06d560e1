"""The hub's queue for cores: nobody gets what another has, none is passed over, and nothing is held for ever."""

from __future__ import annotations

import importlib.util
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course_grader.script import calibration, contract, grader, watermarks
from course_lib.system.paths import ROOT

LEASE_S, SILENCE_S = 100.0, 30.0
USERS = ("ada", "ben", "cleo", "dora")
STEPS = st.tuples(st.sampled_from(["ask", "give back", "expire"]), st.sampled_from(USERS), st.floats(0, 50))


@pytest.fixture(scope="module")
def hub_slots():
    """The module, which is not part of a package."""
    spec = importlib.util.spec_from_file_location("hub_slots", ROOT / "containers" / "hub" / "slots.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def new_queue(hub_slots):
    return lambda number: hub_slots.Queue([(2 * i, 2 * i + 1) for i in range(number)], LEASE_S, SILENCE_S)


@given(st.lists(STEPS, max_size=60), st.integers(1, 3))
def test_no_core_is_given_twice_and_none_is_lost(new_queue, steps, number):
    queue, now = new_queue(number), 0.0
    for step, user, pause in steps:
        now += pause
        if step == "ask":
            place = queue.ask(user, now)
            waits = isinstance(place, int)
            assert (user not in queue.cores()) if waits else queue.cores()[user] == place.cores
            assert not waits or place >= number - len(queue.cores()), "free cores are for those who are ahead"
        elif step == "give back":
            queue.give_back(user)
            assert user not in queue.cores()
        else:
            queue.expire(now)
        given_out = [core for cores in queue.cores().values() for core in cores]
        assert len(given_out) == len(set(given_out)) and set(given_out) <= set(range(2 * number))
    now += SILENCE_S + 1
    places = [queue.ask(f"learner {i}", now) for i in range(number + 2)]
    assert sorted(core for place in places[:number] for core in place.cores) == list(range(2 * number))
    assert places[number:] == [0, 1]


@given(st.permutations(USERS), st.lists(st.permutations(USERS), min_size=4, max_size=4))
def test_first_come_first_served_in_whatever_order_they_ask_again(new_queue, arrivals, rounds):
    queue, now, holder, served = new_queue(1), 0.0, "first", []
    queue.ask(holder, now)
    assert [queue.ask(user, now) for user in arrivals] == [0, 1, 2, 3]
    for users in rounds:
        now += 3.0
        queue.ask(holder, now)
        waiting = [user for user in users if user not in served]
        ahead = {user: queue.ask(user, now) for user in waiting}
        assert sorted(waiting, key=ahead.get) == [user for user in arrivals if user in waiting]
        queue.give_back(holder)
        (holder,) = [user for user in waiting if not isinstance(queue.ask(user, now), int)]
        served.append(holder)
    assert served == list(arrivals)


def test_who_asks_twice_has_one_place(new_queue):
    queue = new_queue(1)
    assert queue.ask("ada", 0.0) == queue.ask("ada", 1.0)
    assert [queue.ask(user, 1.0) for user in ("ben", "cleo", "ben", "ben", "cleo")] == [0, 1, 0, 0, 1]


def test_who_falls_silent_loses_place_and_cores(new_queue):
    queue = new_queue(1)
    for user in ("ada", "ben", "cleo"):
        queue.ask(user, 0.0)
    assert queue.ask("cleo", 29.0) == 1
    assert queue.ask("cleo", 31.0).cores == (0, 1)
    assert [queue.ask("ben", 31.0), queue.ask("ada", 31.0)] == [0, 1]


def test_a_lease_ends_however_often_its_holder_asks(new_queue):
    queue = new_queue(1)
    first = queue.ask("ada", 0.0)
    for second in range(1, 100):
        assert queue.ask("ada", float(second)) == first
        assert queue.ask("ben", float(second)) == 0
    queue.expire(100.0)
    assert queue.cores() == {}
    assert queue.ask("ada", 100.0) == 1
    assert queue.ask("ben", 100.0).cores == (0, 1)
    queue.give_back("ben")
    assert queue.ask("ada", 100.0).id != first.id


def test_an_assessment_fits_into_a_lease(hub_slots):
    """On the slowest host that is judged; with all runs that watermarks may need, on a host 1.5 times slower."""
    asked, others = contract.read(), 300  # seconds for calibrating, starting, and evaluating the weights
    for profile in (asked.profiles[name] for name in ("cpu", "large", "short")):
        alone, together = min(grader.SERIAL_LIMIT_S, profile.seconds), profile.seconds * (1 + asked.tolerance)
        assert calibration.MAX_FACTOR * (alone + together) + others <= hub_slots.LEASE_S
        assert 1.5 * (alone + watermarks.RUNS * together) + others <= hub_slots.LEASE_S
