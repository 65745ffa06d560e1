"""Pipeline parallelism with one stage per rank: the layers of a stage, and point-to-point messages to its neighbours.

Horovod has only collectives: all ranks take part in `alltoall` and return together. A stage of a pipeline must send
without waiting. The ranks therefore exchange their addresses with Horovod, and each pair of neighbours opens a TCP
connection, as a library for point-to-point messages does.
"""

from __future__ import annotations

import contextlib
import json
import queue
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np

from course_lib.parallel.schedules import Span, Task

Layers = list[tuple[np.ndarray, np.ndarray]]  # kernel [inputs, outputs] and bias [outputs] of each layer

STALL_TIMEOUT_S = 60.0  # for a message; a schedule that passed `schedules.check` has no deadlock


class Stage:
    """Consecutive dense layers of a network, each followed by ReLU except the network's last layer.

    Args:
        layers: layers of this stage; never changed in place.
        last: whether this stage has the network's last layer.
        stash: True: a backward pass uses the weights of its forward pass (weight stashing); False: the current weights.
    """

    def __init__(self, layers: Layers, last: bool, *, stash: bool = False) -> None:
        self.layers, self.last = list(layers), last
        self._stash = stash
        self._kept: dict[int, tuple[list[np.ndarray], Layers]] = {}
        self.spans: list[tuple[str, int, float, float]] = []  # kind, micro-batch, start and end in seconds
        self.most_kept = 0  # maximum number of micro-batches with stored activations
        self.clear()

    def clear(self) -> None:
        """Set the accumulated gradients to 0, and delete the recorded times."""
        self.gradients = [(np.zeros_like(kernel), np.zeros_like(bias)) for kernel, bias in self.layers]
        self.spans.clear()

    def forward(self, micro: int, inputs: np.ndarray) -> np.ndarray:
        """Forward pass of micro-batch `micro`: inputs [n, inputs] → outputs [n, outputs]; stores the activations."""
        with self._timed("F", micro):
            values = [inputs]
            for number, (kernel, bias) in enumerate(self.layers):
                value = values[-1] @ kernel + bias
                linear = self.last and number == len(self.layers) - 1
                values.append(value if linear else np.maximum(value, 0))
            self._kept[micro] = values, self.layers
            self.most_kept = max(self.most_kept, len(self._kept))
        return values[-1]

    def backward(self, micro: int, gradient: np.ndarray) -> np.ndarray:
        """Backward pass of micro-batch `micro`: gradient by the outputs → gradient by the inputs.

        Adds the gradients by the weights to `gradients`. Raises ValueError if the gradient does not have the shape of
        the outputs.
        """
        with self._timed("B", micro):
            values, then = self._kept.pop(micro)
            if np.shape(gradient) != values[-1].shape:
                raise ValueError(
                    f"the outputs of micro-batch {micro} have shape {values[-1].shape}, the gradient by them "
                    f"{np.shape(gradient)}: is it that of another micro-batch?"
                )
            layers = then if self._stash else self.layers
            for number in reversed(range(len(layers))):
                if not (self.last and number == len(layers) - 1):
                    gradient = gradient * (values[number + 1] > 0)
                kernel, bias = self.gradients[number]
                self.gradients[number] = kernel + values[number].T @ gradient, bias + gradient.sum(0)
                gradient = gradient @ layers[number][0].T
        return gradient

    def update(self, rate: float) -> None:
        """Make one step of SGD with learning rate `rate` and the accumulated gradients; set the gradients to 0."""
        self.layers = [
            (kernel - rate * slope, bias - rate * shift)
            for (kernel, bias), (slope, shift) in zip(self.layers, self.gradients)
        ]
        self.clear()

    @contextlib.contextmanager
    def _timed(self, kind: str, micro: int) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.spans.append((kind, micro, start, time.monotonic()))


def first_layers(sizes: Sequence[int], seed: int, dtype: type = np.float32) -> Layers:
    """Random layers of a dense network, with weights of variance 2 / inputs; `sizes`: inputs, then units per layer."""
    random = np.random.default_rng(seed)
    return [
        (random.normal(0, np.sqrt(2 / inputs), (inputs, outputs)).astype(dtype), np.zeros(outputs, dtype))
        for inputs, outputs in zip(sizes, sizes[1:])
    ]


def stages(layers: Layers, ends: Sequence[int], *, stash: bool = False) -> list[Stage]:
    """Cut a network into stages after layers `ends`, counted from the first: 8 layers, ends [3, 5] → 3, 2 and 3."""
    ends = [0, *ends, len(layers)]
    return [Stage(layers[a:b], b == len(layers), stash=stash) for a, b in zip(ends, ends[1:])]


def cross_entropy(outputs: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """The mean cross-entropy of logits [n, classes] and labels int [n], and its gradient by the logits."""
    shifted = outputs - outputs.max(1, keepdims=True)
    exponentials = np.exp(shifted)
    sums = exponentials.sum(1)
    places = np.arange(len(labels)), labels
    gradient = exponentials / sums[:, None]
    gradient[places] -= 1
    return float(np.mean(np.log(sums) - shifted[places])), gradient / np.asarray(len(labels), outputs.dtype)


def follow(
    row: Sequence[Task], stage: Stage, me: int, size: int, wire: Wire, inputs: Sequence[np.ndarray],
    labels: Sequence[np.ndarray],
) -> float:  # fmt: skip
    """Execute one row of a schedule; `stage.gradients` are then those of the mean loss over the whole batch.

    Args:
        row: the tasks of this stage.
        me, size: number of this stage, number of stages.
        inputs, labels: one array for each micro-batch, whose sizes may differ. The first stage uses the inputs, the
            last one the labels.

    Returns:
        The mean loss on the last stage, 0 on the others.
    """
    total, loss, slopes = sum(map(len, labels)), 0.0, {}
    for kind, micro in row:
        if kind == "F":
            received = inputs[micro] if me == 0 else wire.receive(me - 1, "F", micro)
            outputs = stage.forward(micro, received)
            if me < size - 1:
                wire.send(me + 1, "F", micro, outputs)
            else:
                share = len(labels[micro]) / total
                mean, slope = cross_entropy(outputs, labels[micro])
                loss += share * mean
                slopes[micro] = slope * np.asarray(share, slope.dtype)
        else:
            back = stage.backward(micro, slopes.pop(micro) if me == size - 1 else wire.receive(me + 1, "B", micro))
            if me > 0:
                wire.send(me - 1, "B", micro, back)
    return loss


class Wire:
    """Point-to-point messages between this stage and its neighbours: `send` returns at once, `receive` waits.

    Each message has a name, (kind, micro-batch), so messages can be received in any order. `send` writes as much as
    the socket's buffer takes; a thread sends the rest, so that two stages that send to each other do not block. (A
    thread for all of it would have to wait for the core on which the stage computes.)
    """

    def __init__(self, me: int, connections: dict[int, socket.socket]) -> None:
        self.me, self._connections = me, connections
        self.sent_bytes = 0
        self._early: dict[tuple[int, str, int], np.ndarray] = {}
        self._left: dict[int, queue.Queue] = {}  # bytes for the threads to send
        for other, connection in connections.items():
            connection.settimeout(STALL_TIMEOUT_S)
            self._left[other] = queue.Queue()
            threading.Thread(target=self._post, args=(connection, self._left[other]), daemon=True).start()

    def send(self, to: int, kind: str, micro: int, array: np.ndarray) -> None:
        """Send a copy of `array` to stage `to`."""
        array = np.ascontiguousarray(array)
        head = json.dumps([kind, micro, array.dtype.str, array.shape]).encode()
        post = memoryview(struct.pack("!II", len(head), array.nbytes) + head + array.tobytes())
        self.sent_bytes += array.nbytes
        connection, left = self._connections[to], self._left[to]
        while post and not left.unfinished_tasks and select.select([], [connection], [], 0)[1]:
            post = post[connection.send(post) :]
        if post:
            left.put(post)

    def receive(self, source: int, kind: str, micro: int) -> np.ndarray:
        """The message (kind, micro) from stage `source`.

        Raises TimeoutError if the stage sends nothing for STALL_TIMEOUT_S, or has closed the connection.
        """
        wanted = source, kind, micro
        while wanted not in self._early:
            try:
                head, size = struct.unpack("!II", self._read(source, 8))
                its_kind, its_micro, dtype, shape = json.loads(self._read(source, head))
                content = self._read(source, size)
            except OSError as error:
                raise TimeoutError(f"Stage {self.me} waits for {kind}{micro} from stage {source}: {error}.") from None
            self._early[source, its_kind, its_micro] = np.frombuffer(content, np.dtype(dtype)).reshape(shape)
        return self._early.pop(wanted)

    def close(self) -> None:
        """Send the remaining messages, then close the connections."""
        for left in self._left.values():
            left.put(None)
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                while connection.recv(1 << 16):  # until the neighbour closes the connection
                    pass
            connection.close()

    @staticmethod
    def _post(connection: socket.socket, left: queue.Queue) -> None:
        with contextlib.suppress(OSError):
            while (post := left.get()) is not None:
                connection.sendall(post)
                left.task_done()
            connection.shutdown(socket.SHUT_WR)

    def _read(self, source: int, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            part = self._connections[source].recv(min(size - len(received), 1 << 20))
            if not part:
                raise ConnectionError("it has left")
            received += part
        return bytes(received)


def connect() -> Wire:
    """Connect each Horovod rank to the previous and the next rank. Call it on all ranks, after `hvd.init()`.

    The last rank is not connected to the first. Connections are authenticated by a secret that Horovod distributes.
    """
    import horovod.tensorflow as hvd

    me, size = hvd.rank(), hvd.size()
    host = socket.gethostname()
    alone = len(set(hvd.allgather_object(host))) == 1
    with socket.create_server(("127.0.0.1" if alone else "", 0)) as server:
        server.settimeout(STALL_TIMEOUT_S)
        secret = secrets.token_hex(16)
        address = "127.0.0.1" if alone else socket.gethostbyname(host)
        known = hvd.allgather_object((address, server.getsockname()[1], secret))
        connections = {}
        if me < size - 1:
            *place, token = known[me + 1]
            connections[me + 1] = socket.create_connection(tuple(place), STALL_TIMEOUT_S)
            connections[me + 1].sendall(token.encode())
        while me > 0 and me - 1 not in connections:
            caller, _ = server.accept()
            caller.settimeout(STALL_TIMEOUT_S)
            if caller.recv(len(secret), socket.MSG_WAITALL) == secret.encode():
                connections[me - 1] = caller
            else:
                caller.close()
    for connection in connections.values():
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Wire(me, connections)


def gathered(spans: Sequence[Sequence[tuple[str, int, float, float]]]) -> list[Span]:
    """Merge the times of all stages; all stages must run on the same host.

    Args:
        spans: `Stage.spans` of each stage.

    Returns:
        The tasks of all stages, with times in seconds from the start of the first task.
    """
    first = min(start for row in spans for _, _, start, _ in row)
    return [
        Span(stage, kind, micro, start - first, end - first)
        for stage, row in enumerate(spans)
        for kind, micro, start, end in row
    ]
