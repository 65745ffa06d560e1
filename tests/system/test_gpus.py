"""The GPUs that `nvidia-smi` names."""

from __future__ import annotations

import os

import pytest

from course_lib.system import gpus


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Put a script in the place of `nvidia-smi`."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def write(script: str) -> None:
        path = tmp_path / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return write


def test_gpus_are_read_from_the_driver(driver):
    driver("echo hello; echo 'GPU 0: Tesla P40 (UUID: GPU-1)'; echo 'GPU 1: Tesla P40 (UUID: GPU-2)'")
    assert gpus.names() == ["Tesla P40", "Tesla P40"]
    assert gpus.listing() == ["GPU 0: Tesla P40 (UUID: GPU-1)", "GPU 1: Tesla P40 (UUID: GPU-2)"]


@pytest.mark.parametrize("trouble", ["exit 9", "exec sleep 30"])
def test_a_driver_that_fails_or_does_not_end_has_none(driver, trouble):
    driver(f"echo 'GPU 0: Tesla P40 (UUID: GPU-1)'; {trouble}")
    assert gpus.names(timeout=1.0) == []


def test_without_a_driver_there_are_none(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.names() == []
