"""The GPUs that `nvidia-smi` names."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from course_lib.system import gpus
from course_lib.system.gpus import Holder, Memory


def test_gpus_are_read_from_the_driver(nvidia_smi):
    nvidia_smi("echo hello; echo 'GPU 0: Tesla P40 (UUID: GPU-1)'; echo 'GPU 1: Tesla P40 (UUID: GPU-2)'")
    assert gpus.names() == ["Tesla P40", "Tesla P40"]
    assert gpus.listing() == ["GPU 0: Tesla P40 (UUID: GPU-1)", "GPU 1: Tesla P40 (UUID: GPU-2)"]


@pytest.mark.parametrize("trouble", ["exit 9", "exec sleep 30"])
def test_a_driver_that_fails_or_does_not_end_has_none(nvidia_smi, trouble):
    nvidia_smi(f"echo 'GPU 0: Tesla P40 (UUID: GPU-1)'; {trouble}")
    assert gpus.names(timeout=1.0) == []


def test_without_a_driver_there_are_none(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gpus.names() == []


def test_kinds_of_gpus(nvidia_smi):
    nvidia_smi(
        "[ \"$*\" = '--query-gpu=name,driver_version --format=csv,noheader,nounits' ] && echo 'Tesla P40, 550.54'"
    )
    assert gpus.kinds() == ["Tesla P40, 550.54"]


def test_who_holds_memory(nvidia_smi):
    """A process that can be seen is named by what it runs, unless its id means another program here."""
    own, notebook = os.getpid(), "import time; print(flush=True); time.sleep(60)"
    command = [sys.executable, "-c", notebook, "-m", "ipykernel_launcher", "-f", "kernel.json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as kernel:
        kernel.stdout.readline()  # before that it is a copy of this process
        nvidia_smi(f"""case "$*" in
        *query-compute-apps=pid,used_memory,gpu_uuid,process_name*)
            echo '{own}, 512, GPU-a, {sys.executable}'
            echo '{kernel.pid}, 70000, GPU-b, {sys.executable}'
            echo '{own}, [N/A], GPU-b, /opt/other, program'
            echo '4000001, 3, GPU-b, [Not Found]' ;;
        *query-gpu=index,uuid,memory.used,memory.total*) echo '0, GPU-a, 513, 81559'; echo '3, GPU-b, 80000, [N/A]' ;;
        esac""")
        first, second = gpus.memory()
        kernel.kill()
    assert (first.gpu, first.used, first.total) == (0, 513.0, 81559.0)
    [holder] = first.holders
    assert (holder.pid, holder.memory) == (own, 512.0)
    assert holder.command.startswith(os.path.basename(sys.executable)) and len(holder.command) <= 60
    assert second == Memory(
        3,
        80000.0,
        0.0,
        (Holder(kernel.pid, gpus.NOTEBOOK, 70000.0), Holder(own, "/opt/other, program", 0.0), Holder(4000001, "", 3.0)),
    )


def test_a_driver_that_gives_no_table_names_nobody(nvidia_smi):
    nvidia_smi("echo 'No devices were found'")
    assert (gpus.memory(), gpus.processes(), gpus.kinds()) == ([], [], [])
