"""The environment of ranks."""

from __future__ import annotations

import os

from course_lib.ranks import environment, launch, remote


def test_threads_are_shared_among_the_ranks_of_this_host(monkeypatch):
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert environment.of_ranks(2)["OMP_NUM_THREADS"] == "4"
    assert environment.of_ranks(launch._local_ranks(4, remote.parse("here:1,there:3")))["TF_NUM_INTRAOP_THREADS"] == "8"
    assert environment.of_ranks(16)["TF_NUM_INTEROP_THREADS"] == "1"
    assert environment.of_ranks(2, extra={"OMP_NUM_THREADS": "3"})["OMP_NUM_THREADS"] == "3"


def test_a_waiting_mpi_rank_yields_its_core_unless_the_user_decides_otherwise(monkeypatch):
    name = "OMPI_MCA_mpi_yield_when_idle"
    monkeypatch.delenv(name, raising=False)
    assert environment.of_ranks(2)[name] == "1"
    monkeypatch.setenv(name, "0")
    assert environment.of_ranks(2)[name] == "0"


def test_ranks_leave_memory_of_a_gpu_to_others_unless_the_user_decides_otherwise(monkeypatch):
    name = "TF_FORCE_GPU_ALLOW_GROWTH"
    monkeypatch.delenv(name, raising=False)
    assert environment.of_ranks(2)[name] == "true"
    monkeypatch.setenv(name, "false")
    assert environment.of_ranks(2)[name] == "false"
