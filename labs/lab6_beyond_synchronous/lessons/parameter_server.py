"""A parameter server and its workers: processes, and a socket from the server to each worker.

The server holds the weights. A worker receives them, calculates the gradient of a batch of its own and sends it; what
the server then does is given from outside (`Arrived`). A pause makes a worker as slow as one wants.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import numpy as np
import pandas as pd

from course_lib.data.splits import Part
from course_lib.system.errors import CourseError
from labs.lab6_beyond_synchronous.lessons import apart, small_network

EXAMPLES = 2_000  # that the workers draw their batches from


@dataclass
class Server:
    """What the server knows.

    weights: float32 [n]; rate: η; quorum: how many gradients an update takes; updates: how many it has made.
    waiting: worker → its gradient [n], of those that no update has taken yet.
    """

    weights: np.ndarray
    rate: float
    quorum: int
    updates: int = 0
    waiting: dict[int, np.ndarray] = field(default_factory=dict)


Arrived = Callable[[Server, int, np.ndarray], dict[int, np.ndarray]]  # → worker → the weights that it is sent now


@dataclass(frozen=True, eq=False)
class Outcome:
    """A run: the last weights, and a row for each gradient that an update took, in the order of the updates.

    log: columns worker; read, handed_in and answered (seconds since the start: when weights were sent to it, when its
    gradient came, when it got new weights); version (how many updates were in the weights that it read); update (the
    number of the one that took it, from 0).
    """

    weights: np.ndarray
    seconds: float
    log: pd.DataFrame

    @property
    def staleness(self) -> np.ndarray:
        """Of each gradient of the log: the updates between the weights that it was taken at and its own."""
        return (self.log["update"] - self.log["version"]).to_numpy()


def run(
    arrived: Arrived, pauses: Sequence[float], quorum: int = 1, seconds: float = 3.0, rate: float = 0.05
) -> Outcome:
    """Let a server and a worker for each of `pauses` train the small network for `seconds`.

    Args:
        arrived: what the server does with a gradient: (server, worker, gradient) → the answers, worker → weights.
        pauses: seconds that each worker sleeps in each step, besides calculating.
        quorum: gradients that an update takes: 1 is asynchronous, as many as workers synchronous.

    Raises:
        CourseError: where a worker or the server died, or `arrived` raised or returned something else than answers.
    """
    train = small_network.fashion().train
    part = Part(train.images[:EXAMPLES], train.labels[:EXAMPLES])
    server = Server(small_network.start(0), rate, quorum)
    timeout = seconds + 60  # the processes have to start
    return apart.call("the parameter server", _serve, arrived, server, tuple(pauses), seconds, part, timeout=timeout)


def _serve(arrived: Arrived, server: Server, pauses: tuple[float, ...], seconds: float, part: Part) -> Outcome:
    tasks = [(number, pause, part) for number, pause in enumerate(pauses)]
    reads, waiting, rows = {}, {}, []
    with apart.Workers(_work, tasks) as workers:
        for number in range(len(tasks)):
            workers.receive(number)  # "ready"
        began, now = time.monotonic(), 0.0
        answers = dict.fromkeys(range(len(tasks)), server.weights)
        while True:
            for number, weights in answers.items():
                workers.send(number, weights)
                reads[number] = {"worker": number, "version": server.updates, "read": now}
            if now >= seconds:
                break
            answers = {}
            for number in workers.waiting(seconds - now)[:1]:
                gradient = workers.receive(number)
                waiting[number] = {**reads.pop(number), "handed_in": time.monotonic() - began}
                answers = _checked(arrived(server, number, gradient), number, waiting)
            now = time.monotonic() - began
            taken = [waiting.pop(number) for number in sorted(answers)]
            rows += [{**row, "answered": now, "update": server.updates - 1} for row in taken]
    columns = ["worker", "read", "handed_in", "answered", "version", "update"]
    return Outcome(server.weights, now, pd.DataFrame(rows, columns=columns))


def _checked(answers: object, worker: int, waiting: dict[int, dict]) -> dict[int, np.ndarray]:
    if isinstance(answers, dict) and set(answers) <= set(waiting):
        return answers
    raise CourseError(
        f"To worker {worker}'s gradient the server answered {answers!s:.60}; it should return a dict, worker → "
        "weights, of workers that wait for an answer."
    )


def _work(socket: Connection, number: int, pause: float, part: Part) -> None:
    random = np.random.default_rng(number)
    socket.send("ready")
    while True:
        weights = socket.recv()
        chosen = random.integers(len(part.labels), size=small_network.BATCH)
        gradient = small_network.gradient(weights, part.images[chosen], part.labels[chosen])
        time.sleep(pause)
        socket.send(gradient)
