"""What the host's samples of the ranks say, on samples that are made up."""

from __future__ import annotations

import numpy as np
import pytest

from course_grader.sandbox.resource_monitor import ResourceSample
from course_grader.script import host_checks
from course_grader.script.host_checks import HostRecord

SAMPLES = 50


def host(sent, *cpu, counts_bytes=True, devices=None) -> HostRecord:
    """A sample every 0.2 s: bytes sent, and CPU seconds of each rank, since the one before."""
    sent = np.broadcast_to(sent, SAMPLES) if np.ndim(sent) == 0 else np.array(sent)
    traffic = np.cumsum([0, *sent])
    used = [np.cumsum([0, *np.broadcast_to(one, len(sent))]) for one in cpu]
    samples = [ResourceSample(0.2 * i, int(t), tuple(float(u[i]) for u in used)) for i, t in enumerate(traffic)]
    return HostRecord(samples, counts_bytes, devices)


@pytest.mark.parametrize("share", [1.0, host_checks.MIN_CPU_SHARE + 0.01])
def test_ranks_that_compute_while_gradients_go_between_them(share):
    assert host_checks.idle(host(1e6, 0.2, 0.2 * share)) == ""
    assert host_checks.idle(host(0, 0.2, 0.2 * share)) == ""  # GPUs, MPI: no bytes on the loopback device
    assert host_checks.idle(host(1e6, 0.2, 0.2 * share, 0.2)) == ""


@pytest.mark.parametrize("sent", [1e6, 0])
def test_a_rank_that_waits_for_the_others_is_named(sent):
    told = host_checks.idle(host(sent, 0.2, 0.19, 0.2 * (host_checks.MIN_CPU_SHARE - 0.01), 0.2))
    assert "rank 2 used" in told and told.endswith("rank 2 did not compute its own gradients.")


def test_what_is_computed_before_and_after_the_exchange_does_not_count():
    sent = [0] * 40 + [1e6] * SAMPLES + [0] * 40
    working = [0.2] * SAMPLES
    assert host_checks.idle(host(sent, [0] * 40 + working + [0.2] * 40, [0.2] * 40 + working + [0] * 40)) == ""
    idle = [0.2] * 40 + [0.01] * SAMPLES + [0.2] * 40
    assert "rank 1 used 0.4 s of its core and rank 0 7.8 s" in host_checks.idle(host(sent, 0.2, idle))


@pytest.mark.parametrize(
    "record", [HostRecord(), host([], 0.0, 0.0), host(1e6, 0.2), host(1e6, 0.01, 0.0), host(1e6, 0.0, 0.0)]
)
def test_too_little_is_no_reason(record):
    """No samples, one sample, one rank, or ranks that hardly computed at all."""
    assert host_checks.idle(record) == ""


def test_bytes():
    assert host_checks.update_bytes(100, 1) == 0
    assert [host_checks.update_bytes(100, ranks) for ranks in (2, 3, 4)] == [800, 1600, 2400]
    sent = 1000 * host_checks.update_bytes(1000, 2)  # 8 MB
    record, uncounted = host(sent / SAMPLES, 0.2, 0.2), host(sent / SAMPLES, 0.2, 0.2, counts_bytes=False)
    assert (record.bytes, uncounted.bytes, HostRecord(counts_bytes=True).bytes) == (sent, None, None)
    assert host_checks.missing_bytes(record, sent) == host_checks.missing_bytes(record, 2 * sent) == ""  # in 16 bits
    told = host_checks.missing_bytes(record, 3 * sent)
    assert "24 MB of traffic, but the ranks sent each other only 8 MB" in told
    assert host_checks.missing_bytes(uncounted, 3 * sent) == host_checks.missing_bytes(record, 0) == ""


def test_ranks_that_exchange_nothing_are_silent():
    assert host_checks.silent(host(1e6, 0.2, 0.2)) == host_checks.silent(host(0, 0.2, 0.2, counts_bytes=False)) == ""
    assert host_checks.silent(host(100, 0.2, 0.2)).startswith("The ranks sent each other only 5,000 bytes")


@pytest.mark.parametrize(
    ("devices", "told"),
    [
        (None, ""),
        ({}, ""),
        ({0: frozenset("a"), 1: frozenset("b"), 2: frozenset()}, ""),
        ({0: frozenset("b"), 1: frozenset("a"), 2: frozenset("a")}, "ranks 1 and 2 use one GPU"),
        ({0: frozenset("a"), 1: frozenset("bc")}, "rank 1 uses 2 GPUs"),
    ],
)
def test_each_rank_should_have_a_gpu_of_its_own(devices, told):
    found = host_checks.shared_device(HostRecord(devices=devices))
    assert told in found and bool(found) == bool(told)
