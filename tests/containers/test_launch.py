"""containers/launch: what its dry runs print, and its refusals. No engine is needed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from course_lib.system.paths import ROOT

LAUNCH = ROOT / "containers" / "launch"
GUIDE = ROOT / "containers" / "README.md"
COMPOSE = ROOT / "containers" / "compose.yaml"
FAKE = Path(__file__).with_name("fake_docker.py")
HOSTS = {"laptop": (0, 8, 16), "dgx": (8, 128, 1024)}  # GPUs, cores, GB of memory
COURSE = "one-model-many-gpus"


@pytest.fixture(scope="module")
def module() -> Iterator[ModuleType]:
    """The launcher as a module."""
    spec = spec_from_loader("launch", SourceFileLoader("launch", str(LAUNCH)))
    loaded = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.setitem(sys.modules, "launch", loaded)  # dataclasses look their module up
        spec.loader.exec_module(loaded)
        yield loaded


@pytest.fixture
def launch(module, monkeypatch) -> ModuleType:
    """The launcher, for an operator who has set nothing."""
    for name in ("COURSE_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/operator")
    return module


def pretend(launch: ModuleType, monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    """Make this a known host, with the course in /srv/course, every port free and no engine."""
    gpus, cores, memory = HOSTS[host]
    monkeypatch.setattr(launch, "ROOT", Path("/srv/course"))
    monkeypatch.setattr(launch, "gpus_of_host", lambda: list(range(gpus)))
    monkeypatch.setattr(launch, "cores_of_host", lambda: list(range(cores)))
    monkeypatch.setattr(launch, "memory_of_host", lambda: memory * 1024)
    monkeypatch.setattr(launch, "hard_limit", lambda name: {"nofile": 524288, "memlock": 8388608}.get(name, -1))
    monkeypatch.setattr(launch, "is_free", lambda port, address: True)
    monkeypatch.setattr(launch.Engine, "installed", lambda engine: False)
    monkeypatch.setattr(launch.Docker, "installed", lambda engine: False)


@pytest.fixture
def docker(launch, monkeypatch, tmp_path):
    """docker(broken): a `Fake` on a host with eight GPUs, whose labs answer at once."""

    def make(broken: dict | None = None) -> Fake:
        engine = Fake(tmp_path, broken)
        pretend(launch, monkeypatch, "dgx")
        monkeypatch.setattr(launch.Docker, "installed", lambda engine: True)
        monkeypatch.setattr(launch.Lab, "answers", lambda lab: True)
        monkeypatch.setenv("PATH", engine.path)
        return engine

    return make


# --- what dry runs print ------------------------------------------------------------------------------------


CPU, GPU = f"{COURSE}:cpu-learner", f"{COURSE}:gpu-learner"
DOCKER_LAB = """\
docker volume create --label one-model-many-gpus.workspace=ada ada
JUPYTER_TOKEN="$(openssl rand -hex 24)" docker create --name ada --label one-model-many-gpus.lab=ada \\
    --label one-model-many-gpus.address=127.0.0.1 --label one-model-many-gpus.port=8888 \\
    --label one-model-many-gpus.gpus=0,1 --publish 127.0.0.1:8888:8888 --volume ada:/workspace --env JUPYTER_TOKEN \\
    --shm-size 1g --ulimit nofile=65536 --ulimit nproc=-1 --ulimit memlock=-1 --ulimit stack=67108864 \\
    --pids-limit 16384 --cap-drop ALL --security-opt no-new-privileges --gpus '"device=0,1"' \\
    one-model-many-gpus:gpu-learner
docker start ada
"""
PODMAN_LAB = """\
podman volume create --label one-model-many-gpus.workspace=course-01 course-01
JUPYTER_TOKEN="$(openssl rand -hex 24)" podman create --name course-01 --label one-model-many-gpus.lab=course-01 \\
    --label one-model-many-gpus.address=127.0.0.1 --label one-model-many-gpus.port=8888 \\
    --label one-model-many-gpus.gpus=0,1 --publish 127.0.0.1:8888:8888 --volume course-01:/workspace \\
    --env JUPYTER_TOKEN --shm-size 1g --ulimit nofile=65536 --ulimit nproc=-1 --ulimit memlock=8388608 \\
    --ulimit stack=67108864 --pids-limit 16384 --cpuset-cpus 0-127 --memory 943718m --cap-drop ALL \\
    --security-opt no-new-privileges --device nvidia.com/gpu=0 --device nvidia.com/gpu=1 \\
    one-model-many-gpus:gpu-learner
podman start course-01
"""
HOME = f"/home/operator/.local/share/{COURSE}/course"
APPTAINER_LAB = f"""\
mkdir -p {HOME}/workspace {HOME}/home {HOME}/scratch
APPTAINERENV_JUPYTER_TOKEN="$(openssl rand -hex 24)" APPTAINERENV_COURSE_ADDRESS=127.0.0.1 \\
    APPTAINERENV_JUPYTER_PORT=8888 APPTAINERENV_CUDA_VISIBLE_DEVICES=2,3 apptainer instance start --containall \\
    --home {HOME}/home:/home/learner --workdir {HOME}/scratch --bind {HOME}/workspace:/workspace --pids-limit 16384 \\
    --nv /srv/course/build/gpu-learner.sif course
"""
DOCKER_CHECK = """\
docker create --name course-check --shm-size 1g --ulimit nofile=65536 --ulimit nproc=-1 --ulimit memlock=-1 \\
    --ulimit stack=67108864 --pids-limit 16384 --cap-drop ALL --security-opt no-new-privileges \\
    --gpus '"device=0,1,2,3,4,5,6,7"' one-model-many-gpus:gpu-learner course doctor --gpu --report /tmp/gpu-report
docker start --attach course-check
docker cp course-check:/tmp/gpu-report.json /tmp/gpu-report.json
docker cp course-check:/tmp/gpu-report.html /tmp/gpu-report.html
docker rm --force --volumes course-check
"""
PODMAN_BUILD = """\
podman build --format docker --file /srv/course/containers/gpu.Dockerfile --target instructor --tag \\
    one-model-many-gpus:gpu-instructor /srv/course
"""
APPTAINER_BUILD = """\
cd /srv/course && apptainer build --force --build-arg TARGET=learner \\
    --build-arg BASE=docker.io/library/debian:bookworm-slim /srv/course/build/cpu-learner.sif \\
    /srv/course/containers/apptainer.def
"""


@pytest.mark.parametrize(
    ("host", "words", "text"),
    [
        ("dgx", "lab --gpus 0,1 --volume ada --engine docker", DOCKER_LAB),
        ("dgx", "lab --learners 1 --gpus-each 2 --engine podman", PODMAN_LAB),
        ("dgx", "lab --gpus 2,3 --engine apptainer", APPTAINER_LAB),
        ("dgx", "check --report /tmp --engine docker", DOCKER_CHECK),
        ("dgx", "build --instructor --engine podman", PODMAN_BUILD),
        ("laptop", "build --engine apptainer", APPTAINER_BUILD),
    ],
)
def test_all_that_is_given_is_meant(launch, monkeypatch, host, words, text):
    """Limits, no more rights than a lab needs, the token in the environment alone."""
    pretend(launch, monkeypatch, host)
    assert one_line_each(dry_run(launch, words)) == one_line_each(text)


NVIDIA = "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"
UNCONFINED = "--security-opt no-new-privileges --security-opt seccomp=unconfined --security-opt apparmor=unconfined"


@pytest.mark.parametrize(
    ("host", "words", "expected"),
    [
        ("laptop", "lab", [f"no-new-privileges {CPU}", "docker start course"]),  # Docker is the first choice
        ("laptop", "lab --instructor", [f"{UNCONFINED} --security-opt systempaths=unconfined {COURSE}:cpu-instructor"]),
        ("laptop", "lab --instructor --engine podman", [f"{UNCONFINED} --security-opt unmask=ALL"]),
        ("laptop", "lab --bind 0.0.0.0", ["--publish 0.0.0.0:8888:8888", ".address=0.0.0.0"]),
        ("laptop", "lab --image mine:1", ["no-new-privileges mine:1"]),
        (
            "laptop",
            "lab --engine apptainer --bind 0.0.0.0 --port 9000",
            ["COURSE_ADDRESS=0.0.0.0", "JUPYTER_PORT=9000"],
        ),
        ("laptop", "lab --engine apptainer --volume ada --instructor", ["/course/build/cpu-instructor.sif ada"]),
        ("dgx", "lab", [f"'\"device=0,1,2,3,4,5,6,7\"' {GPU}", ".gpus=0,1,2,3,4,5,6,7"]),
        ("dgx", "lab --gpus none", [f"no-new-privileges {CPU}", ".gpus= "]),
        ("dgx", "lab --port 9000 --shm-size 4g", ["--publish 127.0.0.1:9000:8888", "--shm-size 4g"]),
        (
            "dgx",
            "check --instructor --engine podman",
            ["unmask=ALL --device nvidia.com/gpu=0", ":gpu-instructor course"],
        ),
        (
            "dgx",
            "check --engine apptainer --gpus 0,1",
            ["APPTAINERENV_CUDA_VISIBLE_DEVICES=0,1", "exec --containall --nv"],
        ),
        ("laptop", "build", ["--file /srv/course/containers/cpu.Dockerfile --target learner", f"--tag {CPU}"]),
        ("laptop", "build gpu", ["gpu.Dockerfile --target learner", f"--tag {GPU} /srv/course"]),
        ("dgx", f"build --base {NVIDIA} --image course:25.02", [f"BASE={NVIDIA}", "--tag course:25.02"]),
        ("dgx", f"build --base {NVIDIA} --engine apptainer", ["TARGET=learner", f"BASE={NVIDIA}", "gpu-learner.sif"]),
    ],
)
def test_what_options_change(launch, monkeypatch, host, words, expected):
    pretend(launch, monkeypatch, host)
    printed = one_line_each(dry_run(launch, words))
    for part in expected:
        assert part in printed, part


def spread(cores: str) -> set[int]:
    """The numbers in 0-3,8."""
    ends = [part.split("-") for part in cores.split(",")]
    return {core for first, *last in ends for core in range(int(first), int((last or [first])[0]) + 1)}


@pytest.mark.parametrize("engine", ["docker", "podman", "apptainer"])
def test_learners_of_a_class_share_nothing(launch, monkeypatch, engine):
    pretend(launch, monkeypatch, "dgx")
    printed = dry_run(launch, f"lab --learners 4 --gpus-each 2 --engine {engine}")
    gpus = {"docker": r"device=([\d,]+)", "podman": r"gpu=(\d)", "apptainer": r"DEVICES=([\d,]+)"}[engine]
    folders = r"(\S+):/(?:workspace|home/learner)" if engine == "apptainer" else r"(\S+):/workspace"
    ports = re.findall(r"JUPYTER_PORT=(\d+)|--publish 127\.0\.0\.1:(\d+):8888", printed)
    shared = re.findall(folders, printed)
    assert len(set(ports)) == len(ports) == 4
    assert len(set(shared)) == len(shared) == (8 if engine == "apptainer" else 4)
    assert sorted(",".join(re.findall(gpus, printed)).split(",")) == list("01234567")
    cores = [core for part in re.findall(r"--cpuset-cpus (\S+)", printed) for core in spread(part)]
    assert sorted(cores) == list(range(128))
    memory = [int(mebibytes) for mebibytes in re.findall(r"--memory (\d+)m", printed)]
    assert len(memory) == 4 and 0.8 * 1024**2 < sum(memory) < 1024**2  # MB; some is the host's own


def dry_run(launch: ModuleType, words: str) -> str:
    """What a dry run prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert launch.main([*words.split(), "--dry-run"]) == 0
    return out.getvalue()


def one_line_each(commands: str) -> str:
    """Commands without continuations."""
    return re.sub(r"\s*\\\n\s*", " ", commands)


def test_a_shell_runs_what_a_dry_run_prints(launch, monkeypatch, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    pretend(launch, monkeypatch, "dgx")
    engine = Fake(tmp_path)
    env = {**os.environ, "PATH": f"{engine.path}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["sh", "-euc", dry_run(launch, "lab --learners 2")], env=env, check=True)
    assert [call[0] for call in engine.calls()] == ["volume", "create", "start"] * 2
    tokens = {lab["token"] for lab in engine.state()["labs"].values()}
    assert len(tokens) == 2 and all(re.fullmatch("[0-9a-f]{48}", token) for token in tokens)


def test_podman_has_the_options_of_a_build(launch, monkeypatch):
    """Those of a lab are tried with a real engine, in test_podman.py."""
    if not shutil.which("podman"):
        pytest.skip("podman is not installed")
    known = subprocess.run(["podman", "build", "--help"], capture_output=True, text=True).stdout
    for option in re.findall(r"--[a-z-]+", PODMAN_BUILD):
        assert re.search(rf"{option}(?![\w-])", known), option


# --- the check of GPUs, and the image for them --------------------------------------------------------------


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
def test_a_check_ends_with_the_doctors_exit_code(launch, docker, capfd, tmp_path, broken, code, reported):
    engine = docker(broken)
    (tmp_path / "here").mkdir()
    assert launch.main(["check", "--report", str(tmp_path / "here")]) == code
    assert engine.empty
    written = {file.name for file in (tmp_path / "here").iterdir()}
    assert written == ({"gpu-report.json", "gpu-report.html"} if reported else set())
    assert ("gpu-report.html" in capfd.readouterr().err) == reported


def test_a_container_that_stays_after_a_check_is_told(launch, docker, capsys, tmp_path):
    docker({"rm": "The device is busy."})
    assert launch.main(["check", "--report", str(tmp_path)]) == 1
    assert "The device is busy" in capsys.readouterr().err


def test_the_report_of_an_earlier_check_is_not_announced(launch, docker, capfd, tmp_path):
    docker({"start": 137})
    (tmp_path / "gpu-report.html").touch()
    assert launch.main(["check", "--report", str(tmp_path)]) == 137
    assert "gpu-report" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("host", "words", "code", "sentence"),
    [
        ("laptop", "check", 1, "This host shows no NVIDIA GPU"),
        ("dgx", "check --gpus none", 2, "A check needs GPUs: leave --gpus none out"),
        ("dgx", "check --gpus 9", 2, "This host has no GPU 9"),
        ("dgx", "check --report /nowhere", 2, "--report /nowhere is no folder"),
    ],
)
def test_a_check_that_cannot_be_is_refused(launch, monkeypatch, capsys, host, words, code, sentence):
    pretend(launch, monkeypatch, host)
    assert launch.main([*words.split(), "--dry-run"]) == code
    assert_sentence(*capsys.readouterr(), sentence)


def test_a_check_waits_for_no_lab(launch, docker, capsys):
    docker()
    assert launch.main(["lab", "--gpus", "0", "--volume", "ada"]) == 0
    capsys.readouterr()
    assert launch.main(["check"]) == 1
    assert_sentence(*capsys.readouterr(), "Running labs hold 1 of the 8 GPUs")


BASES = (
    # compute capabilities, the base image that the build is told; None: that of gpu.Dockerfile
    ("", None),
    ("7.0\n7.0", None),
    ("9.0", None),
    ("10.0", "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"),
    ("12.0\n8.9", "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"),
)


@pytest.mark.parametrize(("said", "base"), BASES)
@pytest.mark.parametrize("engine", ("docker", "podman", "apptainer"))
def test_the_image_is_built_for_the_newest_gpu(launch, monkeypatch, capsys, tmp_path, said, base, engine):
    pretend(launch, monkeypatch, "dgx")
    fake_driver(tmp_path, monkeypatch, said)
    assert re.findall(r"--build-arg BASE=(\S+)", dry_run(launch, f"build --engine {engine}")) == [base] * bool(base)
    assert ("compute capability" in capsys.readouterr().err) == bool(base)
    assert "--build-arg BASE=mine:1" in dry_run(launch, f"build --engine {engine} --base mine:1")


def test_gpus_older_than_all_images_are_refused(launch, monkeypatch, capsys, tmp_path):
    pretend(launch, monkeypatch, "dgx")
    fake_driver(tmp_path, monkeypatch, "5.2")
    assert launch.main(["build", "--dry-run"]) == 1
    assert_sentence(*capsys.readouterr(), r"compute capability 5\.2, and the images begin at 6\.0")


def test_the_default_image_is_that_of_the_dockerfile(launch):
    text = (ROOT / "containers" / "gpu.Dockerfile").read_text()
    assert f"ARG BASE={launch.DEFAULT_BASE}\n" in text
    assert launch.DEFAULT_BASE in launch.BASES.values()


def test_the_guides_table_of_images_is_the_launchers(launch):
    rows = re.findall(r"^\| .+ \| (\d+\.\d+) (?:to|and later).* \| `(\S+)` \|", GUIDE.read_text(), re.MULTILINE)
    assert {tuple(map(int, first.split("."))): base for first, base in rows} == launch.BASES


def fake_driver(folder: Path, monkeypatch: pytest.MonkeyPatch, capabilities: str) -> None:
    """An `nvidia-smi` that names these compute capabilities, one a line; "": that does not know the question."""
    program = folder / "nvidia-smi"
    answer = f"printf '{capabilities}\n'" if capabilities else "echo 'Field \"compute_cap\" is not valid'; exit 2"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


# --- data sets, tokens and refusals -------------------------------------------------------------------------


def test_the_operators_data_sets_are_read_only_in_the_lab(launch, monkeypatch, tmp_path):
    pretend(launch, monkeypatch, "laptop")
    monkeypatch.setenv("COURSE_DATA_DIR", str(tmp_path))
    for engine in ("docker", "podman"):
        printed = dry_run(launch, f"lab --engine {engine}")
        assert f"--volume {tmp_path}:/data:ro" in printed and "--env COURSE_DATA_DIR=/data" in printed
    printed = dry_run(launch, "lab --engine apptainer")
    assert f"--bind {tmp_path}:/data:ro" in printed and "APPTAINERENV_COURSE_DATA_DIR=/data" in printed


def test_no_token_is_on_a_command_line(launch, docker):
    engine = docker()
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert launch.main(["lab", "--learners", "2"]) == 0
    tokens = re.findall(r"token=(\w+)", out.getvalue())
    assert len(set(tokens)) == 2 and all(len(token) == 48 for token in tokens)
    assert tokens == [lab["token"] for lab in engine.state()["labs"].values()]
    assert not any(token in json.dumps(engine.calls()) for token in tokens)


REFUSALS = (
    ("laptop", "lab --gpus 0", 1, "shows no NVIDIA GPU .* leave --gpus out"),
    ("laptop", "lab --learners 2 --gpus-each 1", 2, "no free GPU for 2 learners: --gpus-each 0"),
    ("laptop", "lab --learners 5", 2, r"5 learners would have 2\.9 GB .* needs 3 GB: this host holds 4 learners"),
    ("laptop", "lab --gpus-each 1", 2, "--gpus-each goes with --learners"),
    ("dgx", "lab --learners 30 --gpus-each 1", 2, "need 30 GPUs, and 8 are free: ask for at most 8 learners"),
    ("dgx", "lab --learners 5 --gpus-each 2", 2, "need 10 GPUs, and 8 are free: ask for at most 4 learners"),
    ("dgx", "lab --learners 1 --gpus-each 9", 2, "need 9 GPUs, and 8 are free: ask for at most 0 learners"),
    ("dgx", "lab --learners 3 --gpus 0,1", 2, "need 3 GPUs, and 2 are free"),
    ("dgx", "lab --gpus 7,8", 2, "no GPU 8: its GPUs are 0,1,2,3,4,5,6,7"),
    ("dgx", "lab --gpus 1,1", 2, "names a GPU twice"),
    ("dgx", "lab --gpus one", 2, "GPUs are named by numbers"),
    ("dgx", "lab --gpus 0,", 2, "GPUs are named by numbers"),
    ("dgx", "lab --learners 0", 2, "--learners 0 cannot be meant"),
    ("dgx", "lab --learners -3", 2, "--learners"),
    ("dgx", "lab --learners many", 2, "--learners many cannot be meant"),
    ("dgx", "lab --gpus-each 1.5", 2, "--gpus-each 1.5 cannot be meant"),
    ("dgx", "lab --port 70000", 2, "--port 70000 cannot be meant: a port is"),
    ("dgx", "lab --port http", 2, "--port http cannot be meant"),
    ("dgx", "lab --learners 8 --port 65530", 2, "8 ports from 65530 on end above 65535"),
    ("dgx", "lab --shm-size big", 2, "--shm-size big cannot be meant: give a size as 512m or 2g"),
    ("dgx", "lab --volume ../etc", 2, "no name for a volume"),
    ("dgx", "lab --volume", 2, "--volume"),
    ("dgx", "lab --engine lxc", 2, "invalid choice: 'lxc'"),
    ("dgx", "lab --engine apptainer --bind 10.0.0.1", 2, "With Apptainer --bind can be"),
    ("dgx", "build tpu", 2, "invalid choice: 'tpu'"),
    ("dgx", "dance", 2, "invalid choice: 'dance'"),
    ("dgx", "", 2, "required"),
)


@pytest.mark.parametrize(
    ("host", "words", "code", "sentence"), REFUSALS, ids=[case[1] or "nothing" for case in REFUSALS]
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(launch, monkeypatch, capsys, host, words, code, sentence):
    pretend(launch, monkeypatch, host)
    dry = ["--dry-run"] if words.startswith(("lab", "build")) and not words.endswith("--volume") else []
    assert launch.main([*words.split(), *dry]) == code
    assert_sentence(*capsys.readouterr(), sentence)


def assert_sentence(out: str, err: str, sentence: str) -> None:
    """One line on standard error, nothing else."""
    assert out == ""
    assert err.startswith("launch: ") and err.endswith(".\n") and err.count("\n") == 1, err
    assert re.search(sentence, err), err


def test_a_taken_port_and_a_strange_address_are_refused(launch, capsys):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        arguments = ["lab", "--dry-run", "--engine", "docker", "--gpus", "none"]
        assert launch.main([*arguments, "--port", str(port)]) == 2
        assert_sentence(*capsys.readouterr(), f"Port {port} cannot be used.* choose another --port")
        assert port not in launch.choose_ports(None, 3, "127.0.0.1", ())
        assert launch.main([*arguments, "--bind", "192.0.2.1"]) == 2
        assert_sentence(*capsys.readouterr(), "--bind 192.0.2.1 is no address of this host")


def test_a_missing_data_folder_is_refused(launch, monkeypatch, capsys):
    monkeypatch.setenv("COURSE_DATA_DIR", "/nowhere")
    assert launch.main(["lab", "--dry-run", "--gpus", "none"]) == 2
    assert_sentence(*capsys.readouterr(), "COURSE_DATA_DIR names /nowhere")


def run(*arguments: str, path: str, **environment: str) -> subprocess.CompletedProcess:
    """The launcher as an operator runs it, with these programs only."""
    env = {"PATH": path, "HOME": "/nonexistent", **environment}
    return subprocess.run([sys.executable, "-I", str(LAUNCH), *arguments], capture_output=True, text=True, env=env)


def refused(done: subprocess.CompletedProcess, code: int, sentence: str) -> None:
    assert done.returncode == code, done.stderr
    assert_sentence(done.stdout, done.stderr, sentence)


@pytest.mark.parametrize("command", ["build", "lab", "list", "stop"])
def test_without_an_engine_every_command_says_what_to_install(command, tmp_path):
    refused(run(command, path=str(tmp_path)), 1, "no container engine here: install Docker, Podman .* or Apptainer")
    refused(run(command, "--engine", "podman", path=str(tmp_path)), 1, "Podman is not installed here: install")


# --- with an engine that fails as real ones do --------------------------------------------------------------


class Fake:
    """A `docker` that keeps its labs in a file, and fails where `broken` says so."""

    def __init__(self, folder: Path, broken: dict[str, str] | None = None, starts_as: str = "running") -> None:
        self._file = folder / "state.json"
        content = {"labs": {}, "volumes": [], "calls": [], "broken": broken or {}, "starts_as": starts_as}
        self._file.write_text(json.dumps(content))
        program = folder / "docker"
        program.write_text(f"#!{sys.executable} -IS\n{FAKE.read_text()}")
        program.chmod(stat.S_IRWXU)
        self.path = str(folder)

    def state(self) -> dict:
        return json.loads(self._file.read_text())

    def calls(self) -> list[list[str]]:
        return self.state()["calls"]

    @property
    def empty(self) -> bool:
        return not self.state()["labs"] and not self.state()["volumes"]


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("Cannot connect to the Docker daemon at unix:///var/run/docker.sock.", "start it with `sudo systemctl"),
        ("permission denied while trying to connect to the Docker daemon socket", "let this user in: use sudo"),
    ],
)
@pytest.mark.parametrize("command", ["lab", "list", "stop", "build"])
def test_an_engine_that_does_not_answer(tmp_path, command, said, sentence):
    engine = Fake(tmp_path, {"version": said})
    refused(run(command, path=engine.path), 1, sentence)


@pytest.mark.parametrize("command", ["lab", "list", "stop"])
def test_an_engine_that_does_not_say_which_labs_there_are(tmp_path, command):
    engine = Fake(tmp_path, {"ps": "context deadline exceeded"})
    refused(run(command, path=engine.path), 1, r"failed at `docker ps` \(context deadline exceeded\)")
    assert engine.empty


def test_a_missing_image(tmp_path):
    engine = Fake(tmp_path, {"image inspect": "No such image"}, starts_as="exited")
    refused(
        run("lab", path=engine.path), 1, "no image one-model-many-gpus:cpu-learner .* `containers/launch build cpu`"
    )
    refused(run("lab", "--instructor", path=engine.path), 1, "`containers/launch build cpu --instructor`")
    refused(run("lab", "--image", "mine:1", path=engine.path), 1, "no image mine:1 on this host: check its name")
    assert engine.empty


def test_a_class_of_which_one_lab_fails_leaves_nothing(tmp_path):
    driver = 'Error response: could not select device driver "" with capabilities: [[gpu]]'
    engine = Fake(tmp_path, {"start course-03": driver})
    done = run("lab", "--learners", "3", path=engine.path)
    refused(done, 1, "cannot give GPUs to containers .* install the NVIDIA Container Toolkit")
    assert ["start", "course-02"] in engine.calls()
    assert engine.empty


def test_a_lab_that_refuses_to_start_has_the_last_word(tmp_path):
    engine = Fake(tmp_path, starts_as="exited")
    refused(run("lab", path=engine.path), 1, r"ended as it started, .*: Horovod was built without NCCL\.$")
    assert engine.empty


def test_another_ones_container_and_an_older_volume_stay(tmp_path):
    engine = Fake(tmp_path, {"create": "Conflict. The container name is already in use"})
    refused(run("lab", path=engine.path), 1, r"Docker failed at `docker create` \(Conflict")
    assert engine.empty and not any(call[0] == "rm" for call in engine.calls())


def test_gpus_ports_and_names_of_running_labs_are_not_given_twice(launch, docker, capsys):
    engine = docker()
    assert launch.main(["lab", "--gpus", "0,1,2,3,4", "--volume", "ada"]) == 0
    capsys.readouterr()
    for words, sentence in (
        ("--gpus 4,5", "GPU 4 belongs to a running lab; free are 5,6,7"),
        ("--gpus all", "Running labs hold 5 of the 8 GPUs"),
        ("--volume ada", "runs on the volume ada already"),
        ("--port 8888", "Port 8888 cannot be used"),
        ("--learners 4", "need 4 GPUs, and 3 are free: ask for at most 3 learners"),
    ):
        assert launch.main(["lab", *words.split()]) in (1, 2)
        assert_sentence(*capsys.readouterr(), sentence)
    assert launch.main(["lab", "--volume", "ben"]) == 0
    assert re.search(r"ben +running +5,6,7 +http://127\.0\.0\.1:8889/", capsys.readouterr().out)
    assert launch.main(["lab", "--volume", "eva"]) == 1
    assert_sentence(*capsys.readouterr(), "Running labs hold 8 of the 8 GPUs")
    assert launch.main(["lab", "--learners", "1", "--gpus-each", "0", "--volume", "cpu"]) == 0
    assert re.search(r"cpu-01 .*http://127\.0\.0\.1:8890/", capsys.readouterr().out)
    assert launch.main(["stop", "ada", "ben", "cpu-01", "dan"]) == 2
    assert "There is no lab dan" in capsys.readouterr().err
    assert engine.state()["labs"] == {} and engine.state()["volumes"] == ["ada", "ben", "cpu-01"]
    assert launch.main(["stop", "--remove-volumes"]) == 2
    assert "name the labs, or say --all" in capsys.readouterr().err
    assert engine.state()["volumes"] == ["ada", "ben", "cpu-01"]
    assert launch.main(["stop", "--remove-volumes", "--all"]) == 0
    assert engine.empty


# --- the guide ----------------------------------------------------------------------------------------------


def test_the_guides_commands_are_understood(launch):
    commands = re.findall(r"^ {4,}containers/launch ([^#$\n]+?) *(?:#.*)?$", GUIDE.read_text(), re.MULTILINE)
    assert len(commands) > 12
    for command in commands:
        launch.parser().parse_args(command.split())


def test_the_guides_refusal_is_the_launchers(launch, monkeypatch, capsys):
    pretend(launch, monkeypatch, "dgx")
    [(words, said)] = re.findall(r"^ +\$ containers/launch (.+)\n((?: {4}.+\n)+)", GUIDE.read_text(), re.MULTILINE)
    assert launch.main([*words.split(), "--dry-run"]) == 2
    assert capsys.readouterr().err == " ".join(said.split()) + "\n"


# --- compose.yaml -------------------------------------------------------------------------------------------


def test_compose_gives_a_lab_what_the_launcher_gives(launch):
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    assert set(services) == {"lab", "lab-gpu"}
    for name, service in services.items():
        kind = "gpu" if name == "lab-gpu" else "cpu"
        assert service["image"] == f"{launch.NAME}:{kind}-learner"
        assert service["build"]["dockerfile"] == f"containers/{kind}.Dockerfile"
        assert service["build"]["target"] == "learner"
        assert service["ulimits"] == launch.LIMITS
        assert service["shm_size"] == launch.SHARED_MEMORY
        assert service["pids_limit"] == launch.PROCESSES
        assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]
        assert service["ports"] == [f"127.0.0.1:${{JUPYTER_PORT:-{launch.FIRST_PORT}}}:{launch.INSIDE}"]
        assert service["volumes"] == ["workspace:/workspace"]
        assert service["environment"]["JUPYTER_TOKEN"].startswith("${JUPYTER_TOKEN:?")
        assert service["profiles"] == [name]
    devices = services["lab-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices == [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]
