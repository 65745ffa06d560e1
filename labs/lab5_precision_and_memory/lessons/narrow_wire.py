"""Numbers of few bits on their way between ranks: packed to the bit, round a ring, and over TCP from rank to rank.

A format is a pair (exponent, mantissa) as in `course_lib.precision`: a number takes 1 + exponent + mantissa bits.
"""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Callable
from typing import Protocol

import numpy as np

from course_lib import collectives

Format = tuple  # (exponent bits, mantissa bits)
Cast = Callable[[np.ndarray], np.ndarray]  # to the nearest numbers of a format
FLOAT32 = (8, 23)


class Rank(Protocol):
    """One of the ranks, as a program sees it: simulated, or over TCP."""

    rank: int
    size: int

    def send(self, array: np.ndarray, to: int) -> None:
        """Send `array` to rank `to`; returns at once."""

    def receive(self, source: int) -> np.ndarray:
        """Wait for the next message of rank `source`."""


def bits(form: Format) -> int:
    """Of one number, with its sign."""
    return 1 + form[0] + form[1]


def name(form: Format) -> str:
    """As (3, 0) is written."""
    return f"({form[0]}, {form[1]})"


def top(form: Format) -> float:
    """The largest power of two in the format."""
    return 2.0 ** (2 ** (form[0] - 1) - 1)


def pack(values: np.ndarray, form: Format) -> bytes:
    """The patterns of `values` [n], one after the other with no gap: n · bits / 8 bytes, rounded up.

    Raises:
        ValueError: for a number that is not in the format, and for NaN where there is no mantissa: it has no pattern.
    """
    values = np.ascontiguousarray(values, np.float32)
    if tuple(form) == FLOAT32:
        return values.tobytes()
    each = bits(form)
    codes = _codes(values, form)
    per_byte, left = divmod(8, each)
    if not left:  # a whole number of patterns in a byte
        codes = np.append(codes, np.zeros(-len(codes) % per_byte, codes.dtype)).reshape(-1, per_byte)
        return np.bitwise_or.reduce(codes << (each * np.arange(per_byte)[::-1]), axis=1).astype(np.uint8).tobytes()
    if each == 16:
        return codes.astype(">u2").tobytes()
    return np.packbits((codes[:, None] >> np.arange(each)[::-1] & 1).astype(np.uint8)).tobytes()


def unpack(content: bytes, count: int, form: Format) -> np.ndarray:
    """The `count` numbers that were packed into `content`: float32 [count]."""
    if tuple(form) == FLOAT32:
        return np.frombuffer(content, np.float32, count).copy()
    each = bits(form)
    per_byte, left = divmod(8, each)
    if not left:
        packed = np.frombuffer(content, np.uint8)
        codes = (packed[:, None] >> (each * np.arange(per_byte)[::-1]) & (2**each - 1)).ravel()[:count]
    elif each == 16:
        codes = np.frombuffer(content, ">u2", count)
    else:
        single = np.unpackbits(np.frombuffer(content, np.uint8), count=count * each).reshape(count, each)
        codes = single.astype(np.int64) @ (1 << np.arange(each)[::-1])
    return _values(np.arange(2**each), form)[codes]


def _codes(values: np.ndarray, form: Format) -> np.ndarray:
    """The patterns as whole numbers: of a positive number, codes rise with it."""
    exponent, mantissa = form
    least = 2 - 2 ** (exponent - 1)  # exponent of the smallest normal number, and of all subnormal ones
    infinite = 2**exponent - 1 << mantissa
    size = np.abs(values)
    finite = np.where(np.isfinite(size), size, np.float32(0))
    power = np.where(finite > 0, np.maximum(np.frexp(finite)[1] - 1, least), least)
    steps = np.ldexp(finite, mantissa - power)  # in units of the last place
    codes = (power - least << mantissa) + steps.astype(np.int64)
    if np.any(steps != np.rint(steps)) or np.any(codes >= infinite):
        raise ValueError(f"Not all of these numbers are in the format {name(form)}: round them first.")
    codes = np.where(np.isinf(size), infinite, codes)
    if np.isnan(size).any():
        if not mantissa:
            raise ValueError(f"NaN has no pattern in the format {name(form)}: it has no mantissa.")
        codes = np.where(np.isnan(size), infinite + 1, codes)
    return codes | (np.signbit(values).astype(np.int64) << exponent + mantissa)


def _values(codes: np.ndarray, form: Format) -> np.ndarray:
    exponent, mantissa = form
    field, fraction = codes >> mantissa & 2**exponent - 1, codes & 2**mantissa - 1
    least = 2 - 2 ** (exponent - 1)
    steps = fraction + np.where(field > 0, 2**mantissa, 0)
    with np.errstate(over="ignore"):  # where the pattern is that of an infinity
        size = np.ldexp(steps.astype(np.float32), np.maximum(field, 1) - 1 + least - mantissa)
    size = np.where(field == 2**exponent - 1, np.where(fraction > 0, np.float32(np.nan), np.float32(np.inf)), size)
    return np.where(codes >> exponent + mantissa, -size, size).astype(np.float32)


def ring_mean(me: Rank, x: np.ndarray, cast: Cast) -> np.ndarray:
    """The mean of all ranks' x [L], round the library's ring: all that travels is `cast`, and so are all sums.

    The same on all ranks. A number is rounded once as it is. Then a chunk goes through N − 1 partial sums; a number
    takes part in 1 to N − 1 of them, and each is rounded.
    """
    held = cast(x)
    for messages in collectives.ring(me.size, len(held)):
        (out,), (into,) = np.flatnonzero(messages.source == me.rank), np.flatnonzero(messages.target == me.rank)
        me.send(held[messages.first[out] : messages.last[out]], int(messages.target[out]))
        came = me.receive(int(messages.source[into]))
        here = slice(messages.first[into], messages.last[into])
        held[here] = cast(held[here] + came) if messages.add else came
    return held / np.float32(me.size)


def largest_of_all(me: Rank) -> Callable[[float], float]:
    """A function that all ranks call together: it returns the largest of the numbers that they give it."""
    if isinstance(me, TcpRank):
        return lambda value: float(me.largest([value])[0])
    others = [rank for rank in range(me.size) if rank != me.rank]

    def ask(value: float) -> float:
        for rank in others:
            me.send(np.float32(value).reshape(1), rank)
        return float(max([np.float32(value), *(me.receive(rank)[0] for rank in others)]))

    return ask


class TcpRank:
    """A rank whose messages are bytes between processes. What it sends has to be in its `form`, a Format.

    `sent` is the number of bytes that it has sent, of which 4 a message say how long it is.
    """

    def __init__(self, rank: int, wires: dict[int, socket.socket], form: Format = FLOAT32) -> None:
        self.rank, self.size, self.form, self.sent = rank, len(wires) + 1, form, 0
        self._wires = wires
        self._waiting = {peer: queue.SimpleQueue() for peer in wires}
        for peer in wires:
            threading.Thread(target=self._carry, args=(peer,), daemon=True).start()

    def send(self, array: np.ndarray, to: int) -> None:
        """Send `array` [n] to rank `to`; returns at once.

        Raises:
            ValueError: where it is not in the format.
        """
        content = len(array).to_bytes(4, "big") + pack(array, self.form)
        self.sent += len(content)
        self._waiting[to].put(content)

    def receive(self, source: int) -> np.ndarray:
        """Wait for the next message of rank `source`; float32 [n]. Raises ConnectionError where none can come."""
        count = int.from_bytes(self._read(source, 4), "big")
        return unpack(self._read(source, -(-count * bits(self.form) // 8)), count, self.form)

    def largest(self, values: np.ndarray) -> np.ndarray:
        """For each of a few numbers the largest of all ranks, in float32: everybody sends to everybody."""
        form, self.form = self.form, FLOAT32
        values = np.asarray(values, np.float32)
        for peer in self._wires:
            self.send(values, peer)
        found = np.max([values, *(self.receive(peer) for peer in self._wires)], axis=0)
        self.form = form
        return found

    def close(self) -> None:
        """Send what is still waiting, and end."""
        for waiting in self._waiting.values():
            waiting.put(None)

    def _carry(self, peer: int) -> None:
        while (content := self._waiting[peer].get()) is not None:
            self._wires[peer].sendall(content)
        self._wires[peer].shutdown(socket.SHUT_WR)

    def _read(self, source: int, count: int) -> bytes:
        content = bytearray()
        while len(content) < count:
            came = self._wires[source].recv(count - len(content))
            if not came:
                raise ConnectionError(f"Rank {source} has ended, and rank {self.rank} waits for its message.")
            content += came
        return bytes(content)


def connect() -> TcpRank:
    """This process as a TCP rank, joined to all others. Each rank calls it, after `hvd.init()`."""
    import horovod.tensorflow as hvd

    rank, one_host = hvd.rank(), hvd.local_size() == hvd.size()
    address = "127.0.0.1" if one_host else socket.gethostbyname(socket.gethostname())
    wires = {}
    with socket.socket() as listener:
        listener.bind((address, 0))
        listener.listen(hvd.size())
        addresses = hvd.allgather_object(listener.getsockname(), name="addresses")
        for peer in range(rank):
            wires[peer] = socket.create_connection(tuple(addresses[peer]))
            wires[peer].sendall(rank.to_bytes(4, "big"))
        for _ in range(rank + 1, hvd.size()):
            wire = listener.accept()[0]
            wires[int.from_bytes(wire.recv(4, socket.MSG_WAITALL), "big")] = wire
    for wire in wires.values():
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return TcpRank(rank, dict(sorted(wires.items())))
