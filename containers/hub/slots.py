"""The queue for the cores of assessments: a service of the hub for all labs of the host.

A slot is a set of cores that labs may use only for assessments. A lab requests one with its own token (POST) and
repeats the request every few seconds, first while it waits, then while it has a lease. DELETE returns the slot. A lab
that sends no request for SILENCE_S loses its place or lease, and no lease is longer than LEASE_S, so no lab can keep
the cores. During a lease, the service adds the slot's cores to the lab's container. The queue and the leases are in a
file, so they survive a restart of the service: a lab that sends its next request within SILENCE_S keeps its place.

    python slots.py /srv/state/hub.json --port 8002      # "cores": {"labs": [0, 1], "slots": [[2, 3]]}, "cpuset": true

POST answers {"lease": "9f1c…", "cores": [2, 3], "seconds": 1800} or {"ahead": 2}.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import logging
import math
import os
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tornado.httpclient import AsyncHTTPClient, HTTPClientError
from tornado.web import Application, HTTPError, RequestHandler

if TYPE_CHECKING:
    import docker

# An assessment takes 23 minutes at most on a host four times slower than the contract's. If it is in doubt whether all
# ranks took part it has two runs more, for which this is enough on a host 1.5 times slower.
LEASE_S = 1800.0
SILENCE_S = 30.0  # labs send a request every three seconds
TOKEN_S = 60.0  # for which the hub's answer about a token is valid
LATE_TOKEN_S = 600.0  # for which it is valid while the hub does not answer
QUESTIONS, QUESTIONS_EACH = 100, 3  # to the hub at the same time; of them about the tokens of one address
ANSWER_LIMIT_S = 5.0
TICK_S = 1.0
# One lab must not fill the memory of the hub's container: what a request and an idle connection may take.
SERVER_LIMITS = {"max_body_size": 1024, "max_header_size": 8192, "idle_connection_timeout": 60}
SCOPE = "access:services!service=slots"  # of the roles `user` and `server` in jupyterhub_config.py
LABEL = "one-model-many-gpus.hub-lab"  # of the labs' containers; its value is the user

log = logging.getLogger("slots")


@dataclass(frozen=True)
class Lease:
    """The right to use `cores` until `ends`, in seconds since the epoch."""

    id: str
    cores: tuple[int, ...]
    ends: float


class Queue:
    """The leases, and the users who wait for one, in the order of their first requests.

    A user has one place: in the queue, or a lease. It ends if the user sends no request for `silence_s`. A lease ends
    after `lease_s` at the latest; its user may then request a new place, at the end of the queue.

    Times are arguments, in seconds since the epoch, so that a saved queue is valid after a restart of the service.
    """

    def __init__(self, slots: Iterable[Sequence[int]], lease_s: float = LEASE_S, silence_s: float = SILENCE_S) -> None:
        self._free = [tuple(cores) for cores in slots]
        self._lease_s, self._silence_s = lease_s, silence_s
        self._waiting: list[str] = []
        self._leases: dict[str, Lease] = {}
        self._heard: dict[str, float] = {}  # the time of each user's last request

    def ask(self, user: str, now: float) -> Lease | int:
        """Return the user's lease, or the number of users ahead."""
        self.expire(now)
        if user not in self._heard:
            self._waiting.append(user)
        self._heard[user] = now
        if user in self._waiting:
            ahead = self._waiting.index(user)
            if ahead >= len(self._free):
                return ahead
            self._waiting.remove(user)
            self._leases[user] = Lease(secrets.token_hex(8), self._free.pop(0), now + self._lease_s)
        return self._leases[user]

    def give_back(self, user: str) -> None:
        """End the user's ticket or lease, if there is one."""
        if user in self._waiting:
            self._waiting.remove(user)
        if lease := self._leases.pop(user, None):
            self._free.append(lease.cores)
        self._heard.pop(user, None)

    def expire(self, now: float) -> None:
        """End the places of silent users, and the leases that are over."""
        for user, heard in list(self._heard.items()):
            lease = self._leases.get(user)
            if now - heard > self._silence_s or (lease and now >= lease.ends):
                self.give_back(user)

    def cores(self) -> dict[str, tuple[int, ...]]:
        """Return user → cores for all leases."""
        return {user: lease.cores for user, lease in self._leases.items()}

    def content(self) -> dict[str, Any]:
        """Return the queue and the leases in the form that `load` takes."""
        leases = {user: [lease.id, list(lease.cores), lease.ends] for user, lease in self._leases.items()}
        return {"waiting": list(self._waiting), "leases": leases}

    def load(self, content: Mapping[str, Any], now: float) -> None:
        """Continue with what `content` returned. A lease ends if its cores are no longer a slot."""
        leases = {
            user: Lease(name, tuple(cores), float(ends)) for user, (name, cores, ends) in content["leases"].items()
        }
        self._waiting = list(map(str, content["waiting"]))
        for user, lease in leases.items():
            if lease.cores in self._free:
                self._free.remove(lease.cores)
                self._leases[user] = lease
        self._heard = dict.fromkeys([*self._leases, *self._waiting], now)


class Labs:
    """The labs' containers, which the engine binds to cores.

    If the engine refuses, this is logged once, and nothing enforces the leases.
    """

    def __init__(self, engine: docker.DockerClient, cores: Sequence[int]) -> None:
        self._engine, self._cores = engine, cores
        self._reported = False

    def bind(self, label: str, leased: Mapping[str, Sequence[int]]) -> None:
        """Bind each lab with this label to the labs' cores and the cores that its user leases."""
        try:
            for container in self._engine.containers.list(filters={"label": label}, sparse=True):
                extra = leased.get(container.attrs["Labels"][LABEL], ())
                self._update(container, ",".join(map(str, sorted({*self._cores, *extra}))))
        except Exception as error:  # of docker, requests or urllib3
            if not self._reported:
                log.warning("The engine cannot bind labs to cores, so leases are an agreement only: %s", error)
            self._reported = True

    def _update(self, container: docker.models.containers.Container, cores: str) -> None:
        from docker.errors import NotFound

        try:
            container.update(cpuset_cpus=cores)
        except NotFound:  # Podman 4 has its own call; if that fails too, the container is gone
            api = container.client.api
            path = f"{api.base_url}/v4.0.0/libpod/containers/{container.id}/update"
            answer = api.post(path, json={"cpu": {"cpus": cores}})
            if answer.status_code != http.client.NOT_FOUND:
                answer.raise_for_status()


class Slots:
    """The service: the queue, the containers that it binds to cores, and the users behind the tokens."""

    def __init__(self, queue: Queue, labs: Labs | None, hub: str, file: Path) -> None:
        self._queue, self._labs, self._hub, self._file = queue, labs, hub, file
        self._engine = ThreadPoolExecutor(1)  # in order: cores leave one lab before another gets them
        self._users: dict[str, tuple[str, float]] = {}  # the user of each token, and the time of the hub's answer
        self._asking: Counter[str] = Counter()  # open questions to the hub by address
        self._saved = self._load()
        # All labs together: a lab with a lease keeps its cores, to which its ranks are bound.
        self._bound = queue.cores()
        self._done = self._bind(LABEL, self._bound)

    async def user(self, token: str, address: str) -> str:
        """Return the user whose lab has this token.

        Raises HTTPError (403; 429 for too many tokens of one address at a time; 503 if the hub does not answer).
        """
        now = time.monotonic()
        name, asked = self._users.get(token, ("", -math.inf))
        if now - asked < TOKEN_S:
            return name
        try:
            model = await self._model(token, address)
        except HTTPError:
            if now - asked < LATE_TOKEN_S:
                return name
            raise
        self._users = {other: user for other, user in self._users.items() if now - user[1] < LATE_TOKEN_S}
        self._users.pop(token, None)
        if model.get("kind") != "user" or SCOPE not in model["scopes"]:
            raise HTTPError(403)
        self._users[token] = model["name"], now
        return model["name"]

    async def _model(self, token: str, address: str) -> dict[str, Any]:
        """Return the hub's model of a token; {} if the hub does not have it. Raises HTTPError as `user` does."""
        if self._asking[address] >= QUESTIONS_EACH:
            raise HTTPError(429)
        self._asking[address] += 1
        headers = {"Authorization": f"token {token}"}
        try:
            answer = await AsyncHTTPClient().fetch(
                f"{self._hub}/user", headers=headers, request_timeout=ANSWER_LIMIT_S, raise_error=False
            )
        except (OSError, HTTPClientError):
            raise HTTPError(503) from None
        finally:
            self._asking[address] -= 1
            self._asking += Counter()  # forget addresses that have no question
        if answer.code >= 500:
            raise HTTPError(503)
        return json.loads(answer.body) if answer.code == 200 else {}

    async def ask(self, user: str) -> dict[str, Any]:
        """Return the answer to a POST. When this returns, the lab may use the cores in the answer."""
        now = time.time()
        place = self._queue.ask(user, now)
        self.follow()
        if isinstance(place, int):
            return {"ahead": place}
        await asyncio.wrap_future(self._done)
        return {"lease": place.id, "cores": place.cores, "seconds": round(place.ends - now)}

    def give_back(self, user: str) -> None:
        """End the user's ticket or lease."""
        self._queue.give_back(user)
        self.follow()

    def expire(self) -> None:
        """End the places of silent users and the leases that are over, and bind the labs accordingly."""
        self._queue.expire(time.time())
        self.follow()

    def follow(self) -> None:
        """Bind the labs' containers to their present cores, and save the queue."""
        before, self._bound = self._bound, self._queue.cores()
        for user in before.keys() - self._bound.keys():
            self._done = self._bind(f"{LABEL}={user}", {})
        for user, cores in self._bound.items():
            if before.get(user) != cores:
                self._done = self._bind(f"{LABEL}={user}", {user: cores})
        if (content := self._queue.content()) != self._saved:
            self._save(content)
            self._saved = content

    def _bind(self, label: str, leased: Mapping[str, Sequence[int]]) -> Future:
        return self._engine.submit(self._labs.bind if self._labs else lambda *_: None, label, leased)

    def _load(self) -> dict[str, Any]:
        """Continue with the saved queue, if there is one and it can be read; return its content."""
        try:
            self._queue.load(json.loads(self._file.read_text()), time.time())
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("%s cannot be read, so the queue begins anew: %s", self._file, error)
        return self._queue.content()

    def _save(self, content: dict[str, Any]) -> None:
        draft = self._file.with_suffix(".draft")
        try:
            draft.write_text(json.dumps(content))
            draft.replace(self._file)
        except OSError as error:  # as on a full disk
            log.warning("%s cannot be written, so a restart ends all leases: %s", self._file, error)


class Place(RequestHandler):
    """A user's place: POST requests it, DELETE returns it."""

    def initialize(self, slots: Slots) -> None:
        """Store the arguments of the application."""
        self._slots = slots

    async def prepare(self) -> None:
        """Find the user of the token."""
        token = self.request.headers.get("Authorization", "").partition(" ")[2]
        self._user = await self._slots.user(token, self.request.remote_ip)

    async def post(self) -> None:
        """Request a place, or keep it."""
        self.write(await self._slots.ask(self._user))

    async def delete(self) -> None:
        """Return the place."""
        self._slots.give_back(self._user)
        self.write({})


async def serve(settings: dict[str, Any], file: Path, address: str, port: int) -> None:
    """Answer labs until the process ends; `file` stores the queue."""
    cores, labs = settings["cores"], None
    if settings["cpuset"]:
        import docker

        labs = Labs(docker.from_env(), cores["labs"])
    AsyncHTTPClient.configure(None, max_clients=QUESTIONS)
    slots = Slots(Queue(cores["slots"]), labs, os.environ["JUPYTERHUB_API_URL"], file)
    Application([("/", Place, {"slots": slots})]).listen(port, address, **SERVER_LIMITS)
    while True:
        await asyncio.sleep(TICK_S)
        slots.expire()


def main() -> None:
    """Run the service."""
    parser = argparse.ArgumentParser(description="Share this host's cores for assessments between the labs.")
    parser.add_argument("settings", type=Path, help="hub.json of `launch hub`; hub/slots.json beside it is the queue")
    parser.add_argument("--address", default="0.0.0.0", help="to listen on")
    parser.add_argument("--port", type=int, default=8002)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("tornado.access").setLevel(logging.ERROR)  # not each question
    file = options.settings.parent / "hub" / "slots.json"
    asyncio.run(serve(json.loads(options.settings.read_text()), file, options.address, options.port))


if __name__ == "__main__":
    main()
