"""The GPUs of a host, as drivers of all kinds describe them, and what can't be."""

from __future__ import annotations

import stat
import time
from pathlib import Path

import pytest

from course_lib.command.doctor.gpu import host as hosts
from course_lib.command.doctor.gpu.host import Gpu, Host

HEADER = "| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4     |"
H100 = "NVIDIA H100 80GB HBM3, 550.54.15, 81559, 9.0"


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """driver(body): an `nvidia-smi` with this shell script; `$*` has its words."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(hosts, "DRIVER", ())

    def make(body: str) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(stat.S_IRWXU)

    return make


def listed(*rows: str, header: str = HEADER) -> str:
    """A driver with these GPUs."""
    names = "\n".join(f"GPU {n}: {row.split(',')[0]} (UUID: GPU-{n})" for n, row in enumerate(rows))
    return f"""case "$*" in
*memory.used*) printf '%s\\n' {" ".join("100" for _ in rows)} ;;
*query-gpu*) cat <<'GPUS'
{chr(10).join(rows)}
GPUS
;;
*-L*) cat <<'NAMES'
{names}
NAMES
;;
*) echo '{header}' ;;
esac"""


def test_the_gpus_of_a_host(driver, monkeypatch):
    driver(listed(H100, H100))
    found = hosts.look()
    assert found == Host((Gpu("NVIDIA H100 80GB HBM3", 81559.0, "9.0"),) * 2, 2, "550.54.15", "12.4")
    assert (found.ranks, found.shared, found.route, found.devices) == (2, False, "NCCL", "2 GPUs")
    assert hosts.missing(found) == ""
    assert hosts.memory_used() == [100.0, 100.0]
    assert Host.from_json(found.as_json()) == found
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    one = hosts.look()
    assert (one.visible, one.ranks, one.shared, one.route, one.devices) == (1, 2, True, "Gloo", "one GPU")


def test_hidden_gpus_are_told(driver, monkeypatch):
    driver(listed(H100, H100))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = hosts.look()
    assert found.visible == 0
    assert hosts.missing(found) == "CUDA_VISIBLE_DEVICES hides all 2 GPUs of this host: unset it."


def test_an_old_driver_knows_no_compute_capability(driver):
    refusal = 'case "$*" in *compute_cap*) echo \'Field "compute_cap" is not a valid field to query.\'; exit 2;; esac\n'
    driver(refusal + listed("Tesla T4, 450.80.02, 15109", header="CUDA Version: 11.0"))
    found = hosts.look()
    assert found.gpus == (Gpu("Tesla T4", 15109.0),)
    assert found.cuda == "11.0"


def test_memory_that_the_driver_does_not_know(driver):
    driver(listed("NVIDIA GB10, 580.95, [N/A], 12.1"))
    assert hosts.look().gpus == (Gpu("NVIDIA GB10", 0.0, "12.1"),)


def test_a_host_without_gpu_and_driver(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(hosts, "DRIVER", ())
    assert hosts.look() == Host()
    assert "no NVIDIA GPU, or no driver" in hosts.missing(Host())
    assert Host().ranks == 2 and Host().route == "Gloo" and Host().devices == "the CPU"


def test_a_driver_without_its_tool(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(hosts, "DRIVER", (tmp_path,))
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in hosts.look().problem


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "version mismatch"),
        ("echo 'NVIDIA-SMI has failed' >&2; exit 9", "NVIDIA-SMI has failed"),
        ("exit 1", "no reason given"),
    ],
)
def test_a_broken_driver_is_a_problem(driver, body, words):
    driver(body)
    found = hosts.look()
    assert words in found.problem and found.problem.endswith(".")
    assert hosts.missing(found) == found.problem
    assert hosts.memory_used() == []


def test_no_devices_is_no_problem(driver):
    driver("echo 'No devices were found'; exit 6")
    assert hosts.look() == Host()


def test_a_driver_that_hangs_is_a_problem(driver):
    driver("exec sleep 600")
    began = time.monotonic()
    assert "did not answer within 0.5 s: the driver hangs" in hosts.look(timeout=0.5).problem
    assert time.monotonic() - began < 10


def test_the_real_driver_files_are_absolute():
    assert all(isinstance(path, Path) and path.is_absolute() for path in hosts.DRIVER)
