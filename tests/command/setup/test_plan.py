"""What the set-up does for which machine, and what is done again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from course_lib.command.setup import plan
from course_lib.command.setup.plan import Machine

LAPTOP = Machine(python="3.11.2", platform="linux_x86_64-glibc2.36")
CLUSTER = LAPTOP._replace(mpi="/opt/openmpi/bin/opal_wrapper")
GPU_HOST = CLUSTER._replace(nvidia=True, nvcc="/usr/local/cuda-12.2/bin/nvcc")


@pytest.mark.parametrize(
    ("machine", "lock", "horovod"),
    [
        (LAPTOP, "requirements.lock", "Horovod 0.28.1 with Gloo"),
        (CLUSTER, "requirements.lock", "Horovod 0.28.1 with Gloo and MPI"),
        (GPU_HOST, "requirements-gpu.lock", "Horovod 0.28.1 with Gloo, MPI and NCCL"),
        (GPU_HOST._replace(nvcc=""), "requirements-gpu.lock", "Horovod 0.28.1 with Gloo and MPI"),
        (LAPTOP._replace(nvcc="/usr/bin/nvcc"), "requirements.lock", "Horovod 0.28.1 with Gloo"),
    ],
)
def test_what_a_machine_gets(machine, lock, horovod):
    assert plan.lock_file(machine).name == lock
    assert plan.describe_horovod(machine) == horovod


def test_a_wheel_is_shared_exactly_by_machines_that_can_share_it():
    keys = [
        plan.wheel_key(machine, tensorflow)
        for machine, tensorflow in [
            (LAPTOP, "2.15.1"),
            (LAPTOP, "2.15.0"),
            (LAPTOP._replace(python="3.10.13"), "2.15.1"),
            (LAPTOP._replace(platform="linux_x86_64-glibc2.31"), "2.15.1"),
            (CLUSTER, "2.15.1"),
            (CLUSTER._replace(mpi="/opt/mpich/bin/mpicxx"), "2.15.1"),
            (GPU_HOST, "2.15.1"),
            (GPU_HOST._replace(nvcc=""), "2.15.1"),
        ]
    ]
    assert len(set(keys)) == len(keys)
    assert plan.wheel_key(LAPTOP._replace(python="3.11.9"), "2.15.1") == keys[0]


def test_horovod_is_compiled_for_what_the_machine_has(monkeypatch):
    old = {"PATH": "/usr/bin", "HOROVOD_WITH_PYTORCH": "1", "HOME": "/home/learner01"}
    env = plan.build_environment(LAPTOP, old, nccl=Path("/nccl"))
    assert "HOROVOD_WITH_PYTORCH" not in env
    assert env["HOME"] == "/home/learner01"
    assert env["PATH"].split(":") == [str(plan.VENV / "bin"), "/usr/bin"]
    assert (env["HOROVOD_WITH_GLOO"], env["HOROVOD_WITHOUT_MPI"]) == ("1", "1")
    env = plan.build_environment(GPU_HOST, old, nccl=Path("/nccl"))
    assert "HOROVOD_WITHOUT_MPI" not in env
    assert env["HOROVOD_WITH_MPI"] == "1"
    assert (env["HOROVOD_GPU_OPERATIONS"], env["HOROVOD_CUDA_HOME"]) == ("NCCL", "/usr/local/cuda-12.2")
    assert env["LDFLAGS"].endswith("-Wl,-rpath,\\$ORIGIN/../../nvidia/nccl/lib"), "no path of one environment"
    assert (env["HOROVOD_NCCL_INCLUDE"], env["HOROVOD_NCCL_LIB"]) == ("/nccl/include", "/nccl/lib")


@pytest.mark.parametrize(("cores", "gibibytes", "jobs"), [(2, 24, 2), (8, 4, 2), (1, 1, 1), (64, 512, 64), (4, 7, 3)])
def test_compilers_fit_into_memory(cores, gibibytes, jobs, monkeypatch):
    monkeypatch.setattr(plan.os, "sched_getaffinity", lambda process: set(range(cores)))
    monkeypatch.setattr(plan.os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": gibibytes * 2**18}.get)
    assert plan.parallel_jobs() == jobs


def test_mpi_is_sought_through_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert plan.detect().mpi == ""
    wrapper = tmp_path / "mpicxx.openmpi"
    wrapper.write_text("#!/bin/sh\n")
    (tmp_path / "mpicxx").symlink_to(wrapper)
    assert plan.detect().mpi == "", "not executable"
    wrapper.chmod(0o755)
    assert plan.detect().mpi == str(wrapper)


def test_pips_index_and_certificate_hold_for_uv_too():
    config = "global.cert='/etc/ours.pem'\nglobal.index-url='https://packages.example/simple'\n:env:.timeout='9'\n"
    assert plan.package_index(config, {}) == {
        "SSL_CERT_FILE": "/etc/ours.pem",
        "UV_DEFAULT_INDEX": "https://packages.example/simple",
    }
    assert plan.package_index(config, {"SSL_CERT_FILE": "/mine.pem", "UV_DEFAULT_INDEX": "x"}) == {}
    assert plan.package_index("", {}) == {}


ALL = list(plan.STEPS)
DONE = plan.wanted(LAPTOP)


@pytest.mark.parametrize(
    ("done", "machine", "steps"),
    [
        (DONE, LAPTOP, []),
        ({}, LAPTOP, ALL),
        (DONE, CLUSTER, ["horovod"]),  # MPI was installed later
        (DONE, LAPTOP._replace(python="3.11.3"), ALL),
        (DONE, LAPTOP._replace(nvidia=True), ALL),
        ({step: what for step, what in DONE.items() if step != "packages"}, LAPTOP, ALL),  # they were cut short
        ({step: DONE[step] for step in ("environment", "packages")}, LAPTOP, ["horovod", "course"]),
    ],
)
def test_what_is_done_again(done, machine, steps):
    assert plan.outdated(done, plan.wanted(machine)) == steps


def test_notes_that_are_not_whole_count_as_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "NOTES", tmp_path / "notes.json")
    assert plan.read_notes() == {}
    (tmp_path / "notes.json").write_text(json.dumps({"environment": "x"})[:-3])
    assert plan.read_notes() == {}
