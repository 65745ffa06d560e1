"""`launch build` and `check`: what an image is built of, and how GPUs are tested in it."""

from __future__ import annotations

import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from containers.launcher import images
from containers.launcher.cli import main
from course_lib.system import paths
from course_lib.system.paths import ROOT
from tests.containers.launching import COURSE, ENGINES, assert_sentence, options

ALL_GPUS = "0,1,2,3,4,5,6,7"
GUIDE = ROOT / "containers" / "README.md"
NVIDIA = "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"


@pytest.mark.parametrize(
    ("name", "on", "words", "built"),
    [
        ("docker", "laptop", "", "--file @/cpu.Dockerfile --target learner --tag NAME:cpu-learner ROOT"),
        ("docker", "dgx", "hub", "--file @/hub/Dockerfile --tag NAME:hub ROOT"),
        ("podman", "dgx", "hub --image mine:1", "--format docker --file @/hub/Dockerfile --tag mine:1 ROOT"),
        ("docker", "laptop", "gpu", "--file @/gpu.Dockerfile --target learner --tag NAME:gpu-learner ROOT"),
        (
            *("podman", "dgx", "--instructor"),  # Podman's own format has no health checks
            "--format docker --file @/gpu.Dockerfile --target instructor --tag NAME:gpu-instructor ROOT",
        ),
        (
            *("docker", "dgx", f"--base {NVIDIA} --image mine:1"),
            f"--file @/gpu.Dockerfile --target learner --tag mine:1 --build-arg BASE={NVIDIA} ROOT",
        ),
        (
            *("apptainer", "laptop", ""),
            "--force --build-arg TARGET=learner --build-arg BASE=docker.io/library/debian:bookworm-slim "
            "ROOT/build/cpu-learner.sif @/apptainer.def",
        ),
        (
            *("apptainer", "dgx", f"--base {NVIDIA}"),
            f"--force --build-arg TARGET=learner --build-arg BASE={NVIDIA} ROOT/build/gpu-learner.sif @/apptainer.def",
        ),
    ],
)
def test_what_an_image_is_built_of(start, name, on, words, built):
    engine = start(on, name)
    assert main(["build", *words.split()]) == 0
    built = built.replace("@", "ROOT/containers").replace("ROOT", str(paths.ROOT)).replace("NAME", COURSE)
    assert " ".join(engine.call("build")) == f"build {built}"


def test_podman_has_the_options_of_a_build(start):
    """Those of a lab are tried with a real engine, in test_podman.py."""
    podman = shutil.which("podman")
    if not podman:
        pytest.skip("podman is not installed")
    engine = start(engine="podman")
    assert main(["build"]) == 0
    known = subprocess.run([podman, "build", "--help"], capture_output=True, text=True).stdout
    for option in options(engine.call("build")):
        assert re.search(rf"{option}(?![\w-])", known), option


IN_A_CHECK = {
    "--shm-size": ["1g"],
    "--ulimit": ["nofile=65536", "nproc=-1", "memlock=-1", "stack=67108864"],
    "--pids-limit": ["16384"],
    "--cap-drop": ["ALL"],
    "--security-opt": ["no-new-privileges"],
}
UNCONFINED = ["no-new-privileges", "seccomp=unconfined", "apparmor=unconfined", "unmask=ALL"]
ONE_DEVICE = {"--device": ["nvidia.com/gpu=0"], "--security-opt": UNCONFINED}


@pytest.mark.parametrize(
    ("name", "words", "given"),
    [
        ("docker", "check", {"--gpus": [f'"device={ALL_GPUS}"'], **IN_A_CHECK}),
        ("podman", "check --gpus 0 --instructor", ONE_DEVICE),
        ("apptainer", "check --gpus 0,1", {}),
    ],
)
def test_a_check_runs_the_doctor_with_the_gpus(start, monkeypatch, tmp_path, name, words, given):
    engine = start(engine=name)
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 0
    call = engine.call("exec" if name == "apptainer" else "create")
    assert given.items() <= options(call).items()
    place = call.index("course")
    assert call[place:-1] == ["course", "doctor", "--gpu", "--report"]
    kind = "gpu-instructor" if "--instructor" in words else "gpu-learner"
    assert call[place - 1].endswith(f"{kind}.sif" if name == "apptainer" else f":{kind}")
    if name == "apptainer":
        assert {"--containall", "--nv"} <= set(call)
        assert engine.environment(call) == {"APPTAINERENV_CUDA_VISIBLE_DEVICES": "0,1"}


@pytest.mark.parametrize(
    ("broken", "code", "reported"),
    [
        ({}, 0, True),
        ({"start": 1}, 1, True),
        ({"start": 2}, 2, True),
        ({"start": 125}, 125, False),
        ({"create": "no"}, 1, False),
    ],
)
def test_a_check_ends_with_the_doctors_exit_code(start, capfd, tmp_path, broken, code, reported):
    engine = start(broken=broken)
    (tmp_path / "here").mkdir()
    assert main(["check", "--report", str(tmp_path / "here")]) == code
    assert engine.empty
    written = {file.name for file in (tmp_path / "here").iterdir()}
    assert written == ({"gpu-report.json", "gpu-report.html"} if reported else set())
    assert ("gpu-report.html" in capfd.readouterr().err) == reported


def test_a_container_that_cannot_be_removed_after_a_check_is_reported(start, capsys, tmp_path):
    start(broken={"rm": "The device is busy."})
    assert main(["check", "--report", str(tmp_path)]) == 1
    assert "The device is busy" in capsys.readouterr().err


def test_the_report_of_an_earlier_check_is_not_announced(start, capfd, tmp_path):
    start(broken={"start": 137})
    (tmp_path / "gpu-report.html").touch()
    assert main(["check", "--report", str(tmp_path)]) == 137
    assert "gpu-report" not in capfd.readouterr().err


def test_a_check_is_refused_while_a_lab_holds_a_gpu(start, capsys):
    start()
    assert main(["lab", "--gpus", "0", "--volume", "ada"]) == 0
    capsys.readouterr()
    assert main(["check"]) == 1
    assert_sentence(*capsys.readouterr(), "Running labs hold 1 of the 8 GPUs")


BASES = (
    # compute capabilities, the base image that the build is told; None: that of gpu.Dockerfile
    ("", None),
    ("7.0\n7.0", None),
    ("9.0", None),
    ("10.0", "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"),
    ("12.0\n8.9", "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"),
)


@pytest.mark.parametrize(("driver", "base"), BASES)
@pytest.mark.parametrize("name", ENGINES)
def test_the_image_is_built_for_the_newest_gpu(start, capsys, driver, base, name):
    engine = start(engine=name)
    fake_driver(Path(engine.path), driver)
    for chosen, words in ((base, ["build"]), ("mine:1", ["build", "--base", "mine:1"])):
        assert main(words) == 0
        arguments = options(engine.calls()[-1]).get("--build-arg", [])
        assert [one for one in arguments if one.startswith("BASE=")] == [f"BASE={chosen}"] * bool(chosen)
    assert ("compute capability" in capsys.readouterr().err) == bool(base)


def test_gpus_older_than_all_images_are_refused(start, capsys):
    fake_driver(Path(start().path), "5.2")
    assert main(["build"]) == 1
    assert_sentence(*capsys.readouterr(), r"compute capability 5\.2, and the images begin at 6\.0")


def test_the_default_image_is_that_of_the_dockerfile():
    text = (ROOT / "containers" / "gpu.Dockerfile").read_text()
    assert f"ARG BASE={images.DEFAULT_BASE}\n" in text
    assert images.DEFAULT_BASE in images.BASES.values()


def test_the_guides_table_of_images_is_the_launchers():
    rows = re.findall(r"^\| .+ \| (\d+\.\d+) (?:to|and later).* \| `(\S+)` \|", GUIDE.read_text(), re.MULTILINE)
    assert {tuple(map(int, first.split("."))): base for first, base in rows} == images.BASES


def fake_driver(folder: Path, capabilities: str) -> None:
    """An `nvidia-smi` that names these compute capabilities, one a line; "": that does not know the question."""
    program = folder / "nvidia-smi"
    answer = f"printf '{capabilities}\n'" if capabilities else "echo 'Field \"compute_cap\" is not valid'; exit 2"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(stat.S_IRWXU)
