"""Notebook 7a: what a step of the pair sends, counted at the sockets of real ranks."""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from course_lib.parallel.group import Group

PLANS = {"data": (4, 1), "tensor": (1, 4), "both": (2, 2)}  # ranks that share the tokens, ranks that share a layer
SIZES = (64, 256, 64)
TOKENS = (32, 128, 256, 512, 2048)
_ACKNOWLEDGED = 120  # where Linux's tcp_info has the bytes that arrived at the other end
SETTLE_S = 0.02


def socket_bytes() -> dict[str, int]:
    """Bytes that each TCP connection of this process has sent so far, by the connection's name in /proc.

    Raises OSError where the system does not count them (anything but Linux).
    """
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            name = os.readlink(f"/proc/self/fd/{number}")
            if not name.startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(number))) as copy:
                if copy.type != socket.SOCK_STREAM or copy.family not in (socket.AF_INET, socket.AF_INET6):
                    continue
                told = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
        except FileNotFoundError:  # the folder's own
            continue
        found[name] = struct.unpack_from("Q", told, _ACKNOWLEDGED)[0]
    return found


def sent_between(before: dict[str, int], after: dict[str, int]) -> int:
    """Bytes that were sent between two looks, by connections that were there at both."""
    return sum(after[name] - before[name] for name in after if name in before)


def pair_step(data: Group, tensor: Group, cut: Any, tokens: int, sizes: Sequence[int] = SIZES) -> tuple:
    """A step of the pair on this rank: its part of the tokens, its part of both layers.

    Returns this rank's gradients by w1, b1, w2, b2, summed over all tokens.
    """
    into, middle, out = sizes
    random = np.random.default_rng(4)
    x, slope = (np.split(random.normal(size=(tokens, k)), data.size)[data.rank] for k in (into, out))
    w1, w2 = random.normal(size=(into, middle)), random.normal(size=(middle, out))
    w1, w2 = np.split(w1, tensor.size, axis=1)[tensor.rank], np.split(w2, tensor.size)[tensor.rank]
    inner = cut.columns(tensor, x, w1, np.zeros(w1.shape[1]))
    bent = np.maximum(inner, 0)
    cut.rows(tensor, bent, w2, np.zeros(out))
    by_bent, g2, h2 = cut.rows_back(tensor, bent, w2, slope)
    _, g1, h1 = cut.columns_back(tensor, x, w1, by_bent * (inner > 0))
    gradients = (g1, h1, g2, h2)
    if data.size == 1:
        return gradients
    flat = data.all_reduce(np.concatenate([g.ravel() for g in gradients]))  # in one message
    ends = np.cumsum([g.size for g in gradients])[:-1]
    return tuple(part.reshape(g.shape) for part, g in zip(np.split(flat, ends), gradients))


def groups_of(plan: str, groups: dict[str, Any]) -> tuple[Group, Group]:
    """The groups for the tokens and for the layer."""
    return {"data": (groups["all"], Group()), "tensor": (Group(), groups["all"]),
            "both": (groups["across"], groups["pairs"])}[plan]  # fmt: skip


def count(groups: dict[str, Any], cut: Any, tokens: Sequence[int] = TOKENS) -> list[dict[str, Any]]:
    """On a real rank: rows with plan, tokens, and the float64 numbers that left its sockets in a step ("counted")."""
    rows = []
    for plan in PLANS:
        data, tensor = groups_of(plan, groups)
        pair_step(data, tensor, cut, tokens[0])  # the first call opens connections
        for number in tokens:
            groups["all"].all_reduce(np.zeros(1))
            time.sleep(SETTLE_S)
            before = socket_bytes()
            pair_step(data, tensor, cut, number)
            time.sleep(SETTLE_S)
            rows.append({"plan": plan, "tokens": number, "counted": sent_between(before, socket_bytes()) / 8})
    return rows
