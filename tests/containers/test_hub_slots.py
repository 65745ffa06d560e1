"""The hub's queue for cores: nobody gets what another has, none is passed over, and nothing is held for ever."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
import types

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tornado.httpserver import HTTPServer
from tornado.testing import bind_unused_port
from tornado.web import Application, HTTPError, RequestHandler

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


def test_a_queue_that_is_loaded_goes_on(new_queue):
    queue = new_queue(1)
    lease = queue.ask("ada", 0.0)
    queue.ask("ben", 0.0)
    queue.ask("cleo", 1.0)
    again = new_queue(1)
    again.load(queue.content(), 10.0)
    assert again.ask("ada", 11.0) == lease
    assert [again.ask(user, 12.0) for user in ("dora", "cleo", "ben")] == [2, 1, 0]
    assert again.ask("ben", 42.0).cores == (0, 1), "who does not ask again has lost the lease"


def test_a_lease_on_cores_that_are_no_slot_any_more_has_ended(new_queue):
    queue = new_queue(2)
    queue.ask("ada", 0.0), queue.ask("ben", 0.0)
    again = new_queue(1)
    again.load(queue.content(), 1.0)
    assert again.cores() == {"ada": (0, 1)}
    assert again.ask("ben", 2.0) == 0


class Engine:
    """The engine of two labs, and the cores to which each has been bound, in order."""

    def __init__(self) -> None:
        self.bound = {"ada": [], "ben": []}
        self.containers = types.SimpleNamespace(list=self._list)

    def _list(self, filters: dict, sparse: bool) -> list:
        key, _, user = filters["label"].partition("=")
        return [self._lab(key, name) for name in self.bound if user in ("", name)]

    def _lab(self, key: str, name: str) -> types.SimpleNamespace:
        update = lambda cpuset_cpus: self.bound[name].append(cpuset_cpus)  # noqa: E731
        return types.SimpleNamespace(attrs={"Labels": {key: name}}, update=update)


def test_a_restart_costs_nobody_a_lease_or_a_core(hub_slots, tmp_path, monkeypatch):
    for name in ("docker", "docker.errors"):  # which the hub's environment has
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(NotFound=KeyError))

    def service(engine: Engine):
        return hub_slots.Slots(hub_slots.Queue([(2, 3)]), hub_slots.Labs(engine, [0, 1]), "", tmp_path / "slots.json")

    first = service(Engine())
    lease = asyncio.run(first.ask("ada"))
    assert asyncio.run(first.ask("ben")) == {"ahead": 0}
    engine = Engine()
    again = service(engine)
    answer = asyncio.run(again.ask("ada"))
    assert answer["lease"] == lease["lease"] and 0 < answer["seconds"] <= lease["seconds"]
    assert engine.bound == {"ada": ["0,1,2,3"], "ben": ["0,1"]}, "ada's ranks never leave their cores"
    again.give_back("ada")
    assert asyncio.run(service(Engine()).ask("ben"))["cores"] == (2, 3)


def test_a_damaged_file_is_an_empty_queue(hub_slots, tmp_path):
    (tmp_path / "slots.json").write_text('{"leases": {"ada": ["1", [0, 1]]}, "waiting": []}')
    slots = hub_slots.Slots(hub_slots.Queue([(0, 1)]), None, "", tmp_path / "slots.json")
    assert asyncio.run(slots.ask("ben"))["cores"] == (0, 1)


@pytest.fixture
def asked(hub_slots, tmp_path):
    """asked(steps): run the coroutine `steps(slots, hub)` beside a hub, which fails unless `hub.works`.

    It answers questions about a token `guess …` when `hub.guesses` is set.
    """

    class User(RequestHandler):
        async def get(self) -> None:
            hub.questions += 1
            token = self.request.headers["Authorization"].removeprefix("token ")
            if token.startswith("guess"):
                await hub.guesses.wait()
            self.set_status((200 if token == "ada's" else 403) if hub.works else 503)
            self.write({"kind": "user", "name": "ada", "scopes": [hub_slots.SCOPE]})

    hub = types.SimpleNamespace(works=True, questions=0)

    async def run(steps) -> None:
        hub.guesses = asyncio.Event()  # of this loop
        socket, port = bind_unused_port()
        server = HTTPServer(Application([("/user", User)]))
        server.add_socket(socket)
        await steps(hub_slots.Slots(hub_slots.Queue([(0, 1)]), None, f"http://127.0.0.1:{port}", tmp_path / "x"), hub)
        server.stop()

    return lambda steps: asyncio.run(run(steps))


def test_a_lab_that_was_known_is_known_while_the_hub_fails(hub_slots, asked, monkeypatch):
    async def steps(slots, hub) -> None:
        assert await slots.user("ada's", "10.0.0.1") == "ada"
        hub.works = False
        monkeypatch.setattr(hub_slots, "TOKEN_S", 0.0)
        assert await slots.user("ada's", "10.0.0.1") == "ada"
        with pytest.raises(HTTPError) as refusal:
            await slots.user("ben's", "10.0.0.2")
        assert refusal.value.status_code == 503
        hub.works = True
        with pytest.raises(HTTPError) as refusal:
            await slots.user("ben's", "10.0.0.2")
        assert refusal.value.status_code == 403
        hub.works = False
        monkeypatch.setattr(hub_slots, "LATE_TOKEN_S", 0.0)
        with pytest.raises(HTTPError):
            await slots.user("ada's", "10.0.0.1")

    asked(steps)


def test_a_hub_that_hangs_is_not_waited_for(hub_slots, asked, monkeypatch):
    monkeypatch.setattr(hub_slots, "ANSWER_LIMIT_S", 0.2)

    async def steps(slots, hub) -> None:
        with pytest.raises(HTTPError) as refusal:
            await slots.user("guess", "10.0.0.1")
        assert refusal.value.status_code == 503
        hub.guesses.set()

    asked(steps)


def test_a_lab_with_random_tokens_does_not_keep_others_from_the_hub(hub_slots, asked):
    async def steps(slots, hub) -> None:
        guesses = [asyncio.ensure_future(slots.user(f"guess {i}", "10.0.0.9")) for i in range(50)]
        while hub.questions < hub_slots.QUESTIONS_EACH:
            await asyncio.sleep(0.01)
        assert await slots.user("ada's", "10.0.0.1") == "ada"
        assert await slots.user("ada's", "10.0.0.9") == "ada", "a known token needs no question"
        hub.guesses.set()
        codes = [error.status_code for error in await asyncio.gather(*guesses, return_exceptions=True)]
        assert codes.count(429) == 50 - hub_slots.QUESTIONS_EACH
        with contextlib.suppress(HTTPError):
            await slots.user("guess", "10.0.0.9")
        assert hub.questions == hub_slots.QUESTIONS_EACH + 2, "those that have an answer count no more"

    asked(steps)


def test_one_lab_cannot_fill_the_services_memory(hub_slots):
    limits = hub_slots.SERVER_LIMITS
    assert limits["max_body_size"] + limits["max_header_size"] < 10_000 and limits["idle_connection_timeout"] <= 60
