"""The queue for the cores on which assessments run: a service of the hub, which all labs of the host ask.

A slot is a set of cores that no lab may use otherwise. A lab asks for one with its own token (POST) and asks again
every few seconds, first as one in the queue, then as the holder of a lease; DELETE gives back what it has. Who falls
silent loses place or lease, and no lease is longer than LEASE_S: nobody can hold cores, whatever a lab does. With a
lease the service adds the slot's cores to the lab's container, and takes them off when it ends. When the service starts
again, all leases are lost: a lab that had one sees that its answer is another, and the learner assesses once more.

    python slots.py /srv/state/hub.json --port 8002      # "cores": {"labs": [0, 1], "slots": [[2, 3]]}, "cpuset": true

POST answers {"lease": "9f1c…", "cores": [2, 3], "seconds": 1800} or {"ahead": 2}.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import logging
import os
import secrets
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tornado.httpclient import AsyncHTTPClient
from tornado.web import Application, HTTPError, RequestHandler

if TYPE_CHECKING:
    import docker

# An assessment takes 23 minutes at most on a host four times slower than the contract's. If it is in doubt whether all
# ranks took part it has two runs more, for which this is enough on a host 1.5 times slower.
LEASE_S = 1800.0
SILENCE_S = 30.0  # labs ask every three seconds
TOKEN_S = 60.0  # for which the hub's answer about a token holds
TICK_S = 1.0
MAX_REQUEST_BYTES = 1024
SCOPE = "access:services!service=slots"  # of the roles `user` and `server` in jupyterhub_config.py
LABEL = "one-model-many-gpus.hub-lab"  # of the labs' containers; its value is the user

log = logging.getLogger("slots")


@dataclass(frozen=True)
class Lease:
    """The right to use `cores` until `ends`, in seconds of the queue's clock."""

    id: str
    cores: tuple[int, ...]
    ends: float


class Queue:
    """Who holds which slot, and who waits for one, in the order in which they asked. Times are passed in, in seconds.

    A user has one place: a ticket or a lease. Both end when the user is silent for `silence_s`; a lease ends after
    `lease_s` at the latest, and then its user may ask for a new place, the last.
    """

    def __init__(self, slots: Iterable[Sequence[int]], lease_s: float = LEASE_S, silence_s: float = SILENCE_S) -> None:
        self._free = [tuple(cores) for cores in slots]
        self._lease_s, self._silence_s = lease_s, silence_s
        self._waiting: list[str] = []
        self._leases: dict[str, Lease] = {}
        self._heard: dict[str, float] = {}  # when each user who has a place asked last

    def ask(self, user: str, now: float) -> Lease | int:
        """Return the user's lease, or how many users are ahead."""
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
        """End the tickets and leases whose time has come."""
        for user, heard in list(self._heard.items()):
            lease = self._leases.get(user)
            if now - heard > self._silence_s or (lease and now >= lease.ends):
                self.give_back(user)

    def cores(self) -> dict[str, tuple[int, ...]]:
        """Return the cores of each user who has a lease."""
        return {user: lease.cores for user, lease in self._leases.items()}


class Labs:
    """The containers of the labs, as the engine bounds their cores.

    What the engine refuses is logged once; a lease is then an agreement that nothing enforces.
    """

    def __init__(self, engine: docker.DockerClient, cores: Sequence[int]) -> None:
        self._engine, self._cores = engine, cores
        self._reported = False

    def bind(self, user: str | None, extra: Sequence[int] = ()) -> None:
        """Let the lab of a user (None: all labs) use the labs' cores and those in `extra`, and no others."""
        cores = ",".join(map(str, sorted({*self._cores, *extra})))
        try:
            label = LABEL if user is None else f"{LABEL}={user}"
            for container in self._engine.containers.list(filters={"label": label}, sparse=True):
                self._update(container, cores)
        except Exception as error:  # of docker, requests or urllib3
            if not self._reported:
                log.warning("The engine cannot bind labs to cores, so leases are an agreement only: %s", error)
            self._reported = True

    def _update(self, container: docker.models.containers.Container, cores: str) -> None:
        from docker.errors import NotFound

        try:
            container.update(cpuset_cpus=cores)
        except NotFound:  # Podman 4 has a call of its own; without that the container has gone
            api = container.client.api
            path = f"{api.base_url}/v4.0.0/libpod/containers/{container.id}/update"
            answer = api.post(path, json={"cpu": {"cpus": cores}})
            if answer.status_code != http.client.NOT_FOUND:
                answer.raise_for_status()


class Slots:
    """The queue, the labs' containers that follow it, and who asks."""

    def __init__(self, queue: Queue, labs: Labs | None, hub: str) -> None:
        self._queue, self._labs, self._hub = queue, labs, hub
        self._engine = ThreadPoolExecutor(1)  # in order: cores leave one lab before another gets them
        self._bound: dict[str, tuple[int, ...]] = {}
        self._done = self._bind(None)
        self._users: dict[str, tuple[str, float]] = {}  # of each token, and until when this is known

    async def user(self, token: str) -> str:
        """Return the user whose lab has this token. Raises HTTPError (403; 503 if the hub does not answer)."""
        now, (name, until) = time.monotonic(), self._users.get(token, ("", 0.0))
        if now < until:
            return name
        try:
            answer = await AsyncHTTPClient().fetch(
                f"{self._hub}/user", headers={"Authorization": f"token {token}"}, raise_error=False
            )
        except OSError:
            raise HTTPError(503) from None
        if answer.code >= 500:
            raise HTTPError(503)
        model = json.loads(answer.body) if answer.code == 200 else {}
        if model.get("kind") != "user" or SCOPE not in model["scopes"]:
            raise HTTPError(403)
        self._users[token] = model["name"], now + TOKEN_S
        return model["name"]

    async def ask(self, user: str) -> dict[str, Any]:
        """Return the answer to a POST; a lab that gets cores may use them when this returns."""
        now = time.monotonic()
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
        """End what has to end by now."""
        self._queue.expire(time.monotonic())
        self.follow()

    def follow(self) -> None:
        """Have the labs' containers bound to the cores that the queue gives them now."""
        before, self._bound = self._bound, self._queue.cores()
        for user in before.keys() - self._bound.keys():
            self._done = self._bind(user)
        for user, cores in self._bound.items():
            if before.get(user) != cores:
                self._done = self._bind(user, cores)

    def _bind(self, user: str | None, cores: Sequence[int] = ()) -> Future:
        return self._engine.submit(self._labs.bind if self._labs else lambda *_: None, user, cores)


class Place(RequestHandler):
    """A user's place in the queue: POST asks for it, DELETE gives it back."""

    def initialize(self, slots: Slots) -> None:
        """Take what the application passes."""
        self._slots = slots

    async def prepare(self) -> None:
        """Find out who asks."""
        self._user = await self._slots.user(self.request.headers.get("Authorization", "").partition(" ")[2])

    async def post(self) -> None:
        """Ask for a place, or keep it."""
        self.write(await self._slots.ask(self._user))

    async def delete(self) -> None:
        """Give the place back."""
        self._slots.give_back(self._user)
        self.write({})


async def serve(settings: dict[str, Any], address: str, port: int) -> None:
    """Answer labs until the process ends."""
    cores, labs = settings["cores"], None
    if settings["cpuset"]:
        import docker

        labs = Labs(docker.from_env(), cores["labs"])
    slots = Slots(Queue(cores["slots"]), labs, os.environ["JUPYTERHUB_API_URL"])
    Application([("/", Place, {"slots": slots})]).listen(port, address, max_body_size=MAX_REQUEST_BYTES)
    while True:
        await asyncio.sleep(TICK_S)
        slots.expire()


def main() -> None:
    """Run the service."""
    parser = argparse.ArgumentParser(description="Share this host's cores for assessments between the labs.")
    parser.add_argument("settings", type=Path, help="hub.json of `launch hub`")
    parser.add_argument("--address", default="0.0.0.0", help="to listen on")
    parser.add_argument("--port", type=int, default=8002)
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("tornado.access").setLevel(logging.ERROR)  # not each question
    asyncio.run(serve(json.loads(options.settings.read_text()), options.address, options.port))


if __name__ == "__main__":
    main()
