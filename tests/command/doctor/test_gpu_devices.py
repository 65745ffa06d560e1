"""The GPUs of a host, as drivers of all kinds describe them; what is published of them, and what runs on them."""

from __future__ import annotations

import stat

import pytest

from course_lib.command.doctor.gpu import devices
from course_lib.command.doctor.gpu.devices import Gpu, Host, detect, kernels, missing, published

HEADER = "| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4     |"
H100 = "NVIDIA H100 80GB HBM3, 550.54.15, 81559, 9.0"


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """driver(body): an `nvidia-smi` with this shell script; `$*` has its words."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "DRIVER", ())

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
    host = detect()
    assert host == Host((Gpu("NVIDIA H100 80GB HBM3", 81559.0, "9.0"),) * 2, 2, "550.54.15", "12.4")
    assert (host.ranks, host.shared, host.route, host.devices) == (2, False, "NCCL", "2 GPUs")
    assert missing(host) == ""
    assert devices.memory_used() == [100.0, 100.0]
    assert Host.from_json(host.as_json()) == host
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    one = detect()
    assert (one.visible, one.ranks, one.shared, one.route, one.devices) == (1, 2, True, "Gloo", "one GPU")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert missing(detect()) == "CUDA_VISIBLE_DEVICES hides all 2 GPUs of this host: unset it."


def test_an_old_driver_knows_no_compute_capability(driver):
    refusal = 'case "$*" in *compute_cap*) echo \'Field "compute_cap" is not a valid field to query.\'; exit 2;; esac\n'
    driver(refusal + listed("Tesla T4, 450.80.02, 15109", header="CUDA Version: 11.0"))
    assert detect() == Host((Gpu("Tesla T4", 15109.0),), 1, "450.80.02", "11.0")


def test_memory_that_the_driver_does_not_know(driver):
    driver(listed("NVIDIA GB10, 580.95, [N/A], 12.1"))
    assert detect().gpus == (Gpu("NVIDIA GB10", 0.0, "12.1"),)


def test_without_nvidia_smi(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(devices, "DRIVER", ())
    assert detect() == Host()
    assert "no NVIDIA GPU, or no driver" in missing(Host())
    assert (Host().ranks, Host().route, Host().devices) == (2, "Gloo", "the CPU")
    monkeypatch.setattr(devices, "DRIVER", (tmp_path,))  # a driver without its tool
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in detect().problem


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "version mismatch"),
        ("echo 'NVIDIA-SMI has failed' >&2; exit 9", "NVIDIA-SMI has failed"),
        ("exit 1", "no reason given"),
        ("exec sleep 600", "did not answer within 0.5 s: the driver hangs"),
        ("echo 'No devices were found'; exit 6", ""),
    ],
)
def test_a_broken_driver_is_a_problem(driver, body, words):
    driver(body)
    host = detect(timeout=0.5)
    assert words in host.problem and host.problem[-1:] == ("." if words else "")
    assert host.problem in missing(host)


@pytest.mark.parametrize(
    ("capability", "kind", "target"),
    [
        ("7.0", "cubin", "sm_70"),
        ("7.5", "cubin", "sm_75"),
        ("6.1", "cubin", "sm_60"),
        ("8.6", "cubin", "compute_80"),  # with a cubin for 8.0, which 8.6 runs
        ("9.0", "ptx", "compute_80"),
        ("12.0", "ptx", "compute_80"),
        ("5.2", "none", ""),
    ],
)
def test_which_kernels_a_gpu_gets(capability, kind, target):
    assert kernels(capability, ["sm_60", "sm_70", "sm_75", "compute_80"]) == (kind, target)


def test_two_digits_of_a_capability():
    assert kernels("10.3", ["sm_90", "compute_100"]) == ("cubin", "compute_100")
    assert kernels("10.0", ["sm_90"]) == ("none", "")
    assert devices.at_least("12.10", "12.8") and not devices.at_least("11.8", "12.0")


@pytest.mark.parametrize(
    ("name", "float16", "bandwidth"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12, 3350e9),
        ("NVIDIA H100 PCIe", 756e12, 2000e9),
        ("NVIDIA H200", 989e12, 4800e9),
        ("NVIDIA A100-SXM4-40GB", 312e12, 1555e9),
        ("NVIDIA A100-SXM4-80GB", 312e12, 2039e9),
        ("NVIDIA A100 80GB PCIe", 312e12, 1935e9),
        ("NVIDIA A10", 125e12, 600e9),
        ("NVIDIA L4", 121e12, 300e9),
        ("NVIDIA L40S", 362e12, 864e9),
        ("Tesla V100-SXM2-16GB", 125e12, 900e9),
        ("Tesla T4", 65e12, 320e9),
        ("NVIDIA B200", 2250e12, 7700e9),
    ],
)
def test_published_peaks_by_the_drivers_name(name, float16, bandwidth):
    assert (published(name).float16, published(name).bandwidth) == (float16, bandwidth)


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 3060", "NVIDIA T400", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", "GB10"])
def test_no_peak_is_made_up(name):
    assert published(name) is None
