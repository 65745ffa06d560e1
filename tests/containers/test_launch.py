"""containers/launch: what its dry runs give to labs, and its refusals. No engine is needed."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
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


# --- what dry runs print ------------------------------------------------------------------------------------


FLAGS = ("--containall", "--force", "--nv")  # options without a value


@dataclass(frozen=True)
class Command:
    """A command of a dry run, as a shell reads it."""

    folder: str  # where it runs; "": anywhere
    environment: dict[str, str]
    argv: list[str]
    engine: str
    verb: str  # of one word or two, as in "volume create"
    options: dict[str, list[str]]  # a flag has the value ""
    words: list[str]  # what follows the options: the image, or a name

    @classmethod
    def parse(cls, line: str) -> Command:
        """Take apart a line without continuations."""
        folder, environment, argv = "", {}, shlex.split(line)
        if argv[0] == "cd":
            _, folder, _, *argv = argv  # cd FOLDER && …
        while re.match(r"\w+=", argv[0]):
            name, _, value = argv.pop(0).partition("=")
            environment[name] = value
        length = 2 if argv[1] in ("volume", "instance") else 1
        verb, rest = " ".join(argv[1 : 1 + length]), argv[1 + length :]
        options: dict[str, list[str]] = {}
        while rest and rest[0].startswith("-"):
            name, joined, value = rest.pop(0).partition("=")
            if not joined and name not in FLAGS:
                value = rest.pop(0)
                assert not value.startswith("--"), f"{name} has no value: is it one of FLAGS?"
            options.setdefault(name, []).append(value)
        return cls(folder, environment, argv, argv[0], verb, options, rest)

    def values(self, *names: str) -> list[str]:
        """All that is given with these options."""
        return [value for name in names for value in self.options.get(name, ())]


def dry_run(launch: ModuleType, words: str) -> str:
    """What a dry run prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert launch.main([*words.split(), "--dry-run"]) == 0
    return out.getvalue()


def commands(launch: ModuleType, words: str) -> list[Command]:
    """The commands of a dry run."""
    return [Command.parse(line) for line in dry_run(launch, words).replace("\\\n", " ").splitlines()]


def creations(launch: ModuleType, words: str) -> list[Command]:
    """Those that make the labs' containers."""
    return [command for command in commands(launch, words) if command.verb == "create"]


# --- labs with Docker and Podman ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Lab:
    """What a lab is given."""

    image: str
    name: str = "course"
    publish: str = "127.0.0.1:8888:8888"
    gpus: str = ""
    shared_memory: str = "1g"
    cores: str = ""
    memory: str = ""


CPU, GPU = f"{COURSE}:cpu-learner", f"{COURSE}:gpu-learner"
CPU_INSTRUCTOR, GPU_INSTRUCTOR = f"{COURSE}:cpu-instructor", f"{COURSE}:gpu-instructor"
HALF, THIRD = "471859m", "314572m"  # of nine tenths of the memory of a DGX
LABS = (
    ("laptop", "lab", [Lab(CPU)]),
    ("laptop", "lab --instructor --volume teacher", [Lab(CPU_INSTRUCTOR, "teacher")]),
    ("laptop", "lab --bind 0.0.0.0", [Lab(CPU, publish="0.0.0.0:8888:8888")]),
    ("laptop", "lab --image mine:1", [Lab("mine:1")]),
    ("dgx", "lab", [Lab(GPU, gpus="0,1,2,3,4,5,6,7")]),
    ("dgx", "lab --gpus none", [Lab(CPU)]),
    ("dgx", "lab --instructor --volume teacher --gpus 7", [Lab(GPU_INSTRUCTOR, "teacher", gpus="7")]),
    (
        "dgx",
        "lab --gpus 0,1 --port 9000 --volume ada --shm-size 4g",
        [Lab(GPU, "ada", "127.0.0.1:9000:8888", gpus="0,1", shared_memory="4g")],
    ),
    (
        "dgx",
        "lab --learners 3 --gpus-each 2 --gpus 2,3,4,5,6,7",
        [
            Lab(GPU, "course-01", "127.0.0.1:8888:8888", gpus="2,3", cores="0-41", memory=THIRD),
            Lab(GPU, "course-02", "127.0.0.1:8889:8888", gpus="4,5", cores="42-83", memory=THIRD),
            Lab(GPU, "course-03", "127.0.0.1:8890:8888", gpus="6,7", cores="84-125", memory=THIRD),
        ],
    ),
    (
        "dgx",
        "lab --learners 2 --gpus-each 0 --port 9001 --volume autumn",
        [
            Lab(CPU, "autumn-01", "127.0.0.1:9001:8888", cores="0-63", memory=HALF),
            Lab(CPU, "autumn-02", "127.0.0.1:9002:8888", cores="64-127", memory=HALF),
        ],
    ),
)
LIMITS = {
    "docker": {"nofile=65536", "nproc=-1", "memlock=-1", "stack=67108864"},
    "podman": {"nofile=65536", "nproc=-1", "memlock=8388608", "stack=67108864"},  # not above the user's own
}
SANDBOX = {
    "docker": {"seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined"},
    "podman": {"seccomp=unconfined", "apparmor=unconfined", "unmask=ALL"},
}
GPU_VALUES = {"docker": r'"device=([\d,]+)"', "podman": r"nvidia\.com/gpu=(\d+)"}
# With these a container would have more of the host than what the launcher gives.
MORE_OF_THE_HOST = {
    *("--privileged", "--cap-add", "--mount", "--volumes-from", "--publish-all", "--device-cgroup-rule"),
    *("--network", "--net", "--pid", "--ipc", "--uts", "--userns", "--cgroupns", "--group-add", "--user", "--runtime"),
}

with_each_engine = pytest.mark.parametrize("engine", ("docker", "podman"))
for_each_lab = pytest.mark.parametrize(
    ("host", "words", "labs"), LABS, ids=[f"{host}-{words.replace(' ', '_')}" for host, words, _ in LABS]
)


def gpus_of(create: Command) -> str:
    """The GPUs that a container is given, as in 0,1."""
    found = [re.fullmatch(GPU_VALUES[create.engine], value) for value in create.values("--gpus", "--device")]
    assert all(found), create.argv
    return ",".join(match[1] for match in found)


def lab_of(create: Command) -> Lab:
    """The lab that a container is made for."""
    return Lab(
        image=" ".join(create.words),  # nothing stands behind it
        name=" ".join(create.values("--name")),
        publish=" ".join(create.values("--publish", "-p")),
        gpus=gpus_of(create),
        shared_memory=" ".join(create.values("--shm-size")),
        cores=" ".join(create.values("--cpuset-cpus")),
        memory=" ".join(create.values("--memory")),
    )


@with_each_engine
@for_each_lab
def test_a_lab_is_given_what_was_asked_for(launch, monkeypatch, host, words, labs, engine):
    pretend(launch, monkeypatch, host)
    assert [lab_of(create) for create in creations(launch, f"{words} --engine {engine}")] == labs


@with_each_engine
@for_each_lab
def test_a_lab_is_made_on_a_volume_of_its_name_and_then_started(launch, monkeypatch, host, words, labs, engine):
    pretend(launch, monkeypatch, host)
    printed = commands(launch, f"{words} --engine {engine}")
    assert {command.engine for command in printed} == {engine}
    assert [command.verb for command in printed] == ["volume create", "create", "start"] * len(labs)
    for volume, create, start, lab in zip(printed[::3], printed[1::3], printed[2::3], labs):
        assert volume.words == start.words == [lab.name]
        assert volume.values("--label") == [f"{COURSE}.workspace={lab.name}"]
        assert create.values("--volume", "-v") == [f"{lab.name}:/workspace"]


@with_each_engine
@for_each_lab
def test_labels_tell_what_list_and_stop_ask_for(launch, monkeypatch, host, words, labs, engine):
    pretend(launch, monkeypatch, host)
    for create, lab in zip(creations(launch, f"{words} --engine {engine}"), labs):
        address, port, _ = lab.publish.split(":")
        expected = {"lab": lab.name, "address": address, "port": port, "gpus": lab.gpus}
        assert {f"{COURSE}.{name}={value}" for name, value in expected.items()} <= set(create.values("--label"))


@with_each_engine
@for_each_lab
def test_a_lab_has_limits_and_no_more_rights_than_it_needs(launch, monkeypatch, host, words, labs, engine):
    pretend(launch, monkeypatch, host)
    sandbox = SANDBOX[engine] if "--instructor" in words else set()
    for create in creations(launch, f"{words} --engine {engine}"):
        assert set(create.values("--ulimit")) == LIMITS[engine]
        assert create.values("--pids-limit") == ["16384"]
        assert create.values("--cap-drop") == ["ALL"]
        assert set(create.values("--security-opt")) == {"no-new-privileges", *sandbox}
        assert not MORE_OF_THE_HOST & set(create.options)


@with_each_engine
@for_each_lab
def test_the_token_is_in_the_environment_alone(launch, monkeypatch, host, words, labs, engine):
    pretend(launch, monkeypatch, host)
    for create in creations(launch, f"{words} --engine {engine}"):
        assert create.environment == {"COURSE_TOKEN": "$(openssl rand -hex 24)"}
        assert "COURSE_TOKEN" in create.values("--env")
        assert not any("openssl" in word or "COURSE_TOKEN=" in word for word in create.argv)


def spread(cores: str) -> set[int]:
    """The numbers in 0-3,8."""
    ends = [part.split("-") for part in cores.split(",")]
    return {core for first, *last in ends for core in range(int(first), int((last or [first])[0]) + 1)}


@with_each_engine
def test_learners_of_a_class_share_nothing(launch, monkeypatch, engine):
    pretend(launch, monkeypatch, "dgx")
    creates = creations(launch, f"lab --learners 4 --gpus-each 2 --engine {engine}")
    labs = [lab_of(create) for create in creates]
    assert len({lab.name for lab in labs}) == len({lab.publish for lab in labs}) == 4
    assert len({volume for create in creates for volume in create.values("--volume")}) == 4
    assert sorted(gpu for lab in labs for gpu in lab.gpus.split(",")) == list("01234567")
    assert all(len(lab.gpus.split(",")) == 2 for lab in labs)
    assert sorted(core for lab in labs for core in spread(lab.cores)) == list(range(128))
    assert all(lab.publish.startswith("127.0.0.1:") for lab in labs)
    assert 0.8 * 1024**2 < sum(int(lab.memory[:-1]) for lab in labs) < 1024**2  # MB; some is the host's own


def test_a_shell_runs_what_a_dry_run_prints(launch, monkeypatch, tmp_path):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    pretend(launch, monkeypatch, "dgx")
    engine = Fake(tmp_path)
    text = dry_run(launch, "lab --learners 2")
    assert all(line.count(" --") <= 1 for line in text.splitlines())  # an option for each line, to be read
    env = {**os.environ, "PATH": f"{engine.path}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["sh", "-euc", text], env=env, check=True)
    assert engine.calls() == [command.argv[1:] for command in commands(launch, "lab --learners 2")]
    tokens = {lab["token"] for lab in engine.state()["labs"].values()}
    assert len(tokens) == 2 and all(re.fullmatch("[0-9a-f]{48}", token) for token in tokens)


# --- the check of GPUs, and the image for them --------------------------------------------------------------


@with_each_engine
def test_a_check_runs_the_doctor_in_the_image_of_the_gpus_and_leaves_nothing(launch, monkeypatch, engine):
    pretend(launch, monkeypatch, "dgx")
    for words, image, sandbox in (("check", GPU, set()), ("check --instructor", GPU_INSTRUCTOR, SANDBOX[engine])):
        create, start, *copies, remove = commands(launch, f"{words} --engine {engine}")
        assert create.words == [image, "course", "doctor", "--gpu", "--report", "/tmp/gpu-report"]
        assert gpus_of(create) == "0,1,2,3,4,5,6,7"
        assert create.values("--shm-size") == ["1g"]
        assert set(create.values("--ulimit")) == LIMITS[engine]
        assert create.values("--cap-drop") == ["ALL"]
        assert set(create.values("--security-opt")) == {"no-new-privileges", *sandbox}
        assert not (MORE_OF_THE_HOST | {"--publish", "--label"}) & set(create.options)
        assert start.argv[1:] == ["start", "--attach", "course-check"]
        assert [copy.argv[2] for copy in copies] == [f"course-check:/tmp/gpu-report{end}" for end in (".json", ".html")]
        assert remove.argv[1:] == ["rm", "--force", "--volumes", "course-check"]


def test_a_check_with_apptainer(launch, monkeypatch):
    pretend(launch, monkeypatch, "dgx")
    (check,) = commands(launch, "check --engine apptainer --gpus 0,1")
    assert check.verb == "exec" and "--nv" in check.options
    assert check.environment == {"APPTAINERENV_CUDA_VISIBLE_DEVICES": "0,1"}
    assert check.words[:4] == ["/srv/course/build/gpu-learner.sif", "course", "doctor", "--gpu"]
    assert f"{Path.cwd()}:/report" in check.values("--bind")


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
def test_a_check_ends_with_the_doctors_exit_code(launch, monkeypatch, capfd, tmp_path, broken, code, reported):
    engine = Fake(tmp_path, broken)
    pretend(launch, monkeypatch, "dgx")
    monkeypatch.setattr(launch.Docker, "installed", lambda engine: True)
    monkeypatch.setenv("PATH", engine.path)
    (tmp_path / "here").mkdir()
    assert launch.main(["check", "--report", str(tmp_path / "here")]) == code
    assert engine.empty
    written = {file.name for file in (tmp_path / "here").iterdir()}
    assert written == ({"gpu-report.json", "gpu-report.html"} if reported else set())
    assert ("gpu-report.html" in capfd.readouterr().err) == reported


def test_a_container_that_stays_after_a_check_is_told(launch, monkeypatch, capsys, tmp_path):
    engine = Fake(tmp_path, {"rm": "The device is busy."})
    pretend(launch, monkeypatch, "dgx")
    monkeypatch.setattr(launch.Docker, "installed", lambda engine: True)
    monkeypatch.setenv("PATH", engine.path)
    assert launch.main(["check", "--report", str(tmp_path)]) == 1
    assert "The device is busy" in capsys.readouterr().err


def test_the_report_of_an_earlier_check_is_not_announced(launch, monkeypatch, capfd, tmp_path):
    engine = Fake(tmp_path, {"start": 137})
    pretend(launch, monkeypatch, "dgx")
    monkeypatch.setattr(launch.Docker, "installed", lambda engine: True)
    monkeypatch.setenv("PATH", engine.path)
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


def test_a_check_waits_for_no_lab(launch, monkeypatch, capsys, tmp_path):
    engine = Fake(tmp_path)
    pretend(launch, monkeypatch, "dgx")
    monkeypatch.setattr(launch.Docker, "installed", lambda engine: True)
    monkeypatch.setattr(launch.Lab, "answers", lambda lab: True)
    monkeypatch.setenv("PATH", engine.path)
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
    (build,) = commands(launch, f"build --engine {engine}")
    assert build.values("--build-arg") == [
        *["TARGET=learner"] * (engine == "apptainer"),
        *[f"BASE={base}"] * bool(base),
    ]
    assert ("compute capability" in capsys.readouterr().err) == bool(base)
    (build,) = commands(launch, f"build --engine {engine} --base mine:1")
    assert "BASE=mine:1" in build.values("--build-arg")


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


# --- labs with Apptainer ------------------------------------------------------------------------------------


APPTAINER_LABS = (
    # host, command, image, name, address, port, GPUs
    ("laptop", "lab --bind 0.0.0.0 --volume ada", "cpu-learner", "ada", "0.0.0.0", "8888", None),
    ("laptop", "lab --instructor --port 9000", "cpu-instructor", "course", "127.0.0.1", "9000", None),
    ("dgx", "lab --gpus 2,3", "gpu-learner", "course", "127.0.0.1", "8888", "2,3"),
)


@pytest.mark.parametrize(("host", "words", "image", "name", "address", "port", "gpus"), APPTAINER_LABS)
def test_a_lab_with_apptainer(launch, monkeypatch, host, words, image, name, address, port, gpus):
    pretend(launch, monkeypatch, host)
    folders, start = commands(launch, f"{words} --engine apptainer")
    home = f"/home/operator/.local/share/{COURSE}/{name}"
    assert (folders.engine, folders.verb) == ("mkdir", "-p")
    assert set(folders.words) == {f"{home}/workspace", f"{home}/home", f"{home}/scratch"}
    assert (start.engine, start.verb) == ("apptainer", "instance start")
    assert start.words == [f"/srv/course/build/{image}.sif", name]
    assert "--containall" in start.options
    assert start.values("--home") == [f"{home}/home:/home/learner"]
    assert start.values("--workdir") == [f"{home}/scratch"]
    assert start.values("--bind") == [f"{home}/workspace:/workspace"]
    assert ("--nv" in start.options) == bool(gpus)
    assert start.environment["APPTAINERENV_COURSE_ADDRESS"] == address
    assert start.environment["APPTAINERENV_COURSE_PORT"] == port
    assert start.environment.get("APPTAINERENV_CUDA_VISIBLE_DEVICES") == gpus
    assert start.environment["APPTAINERENV_COURSE_TOKEN"] == "$(openssl rand -hex 24)"
    assert not any("openssl" in word or "TOKEN" in word for word in start.argv)


def test_learners_of_a_class_share_nothing_with_apptainer(launch, monkeypatch):
    pretend(launch, monkeypatch, "dgx")
    printed = commands(launch, "lab --learners 4 --gpus-each 2 --engine apptainer")
    folders = [folder for command in printed if command.engine == "mkdir" for folder in command.words]
    assert len(set(folders)) == len(folders) == 12
    starts = [command for command in printed if command.engine == "apptainer"]
    binds = [bind for start in starts for bind in start.values("--bind", "--home", "--workdir")]
    assert len(set(binds)) == len(binds) == 12
    assert len({start.environment["APPTAINERENV_COURSE_PORT"] for start in starts}) == 4
    cores = [core for start in starts for core in start.values("--cpuset-cpus")]
    assert len(set(cores)) == 4
    assert all(start.values("--memory") and start.values("--pids-limit") for start in starts)
    gpus = ",".join(start.environment["APPTAINERENV_CUDA_VISIBLE_DEVICES"] for start in starts)
    assert sorted(gpus.split(",")) == list("01234567")


# --- images -------------------------------------------------------------------------------------------------


NVIDIA = "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"
BUILDS = (
    # host, command, file, target, image, arguments
    ("laptop", "build", "cpu.Dockerfile", "learner", CPU, []),
    ("laptop", "build --instructor", "cpu.Dockerfile", "instructor", CPU_INSTRUCTOR, []),
    ("laptop", "build gpu", "gpu.Dockerfile", "learner", GPU, []),
    ("dgx", "build", "gpu.Dockerfile", "learner", GPU, []),
    (
        "dgx",
        f"build --base {NVIDIA} --image course:25.02",
        "gpu.Dockerfile",
        "learner",
        "course:25.02",
        [f"BASE={NVIDIA}"],
    ),
)
DEBIAN = "docker.io/library/debian:bookworm-slim"
APPTAINER_BUILDS = (
    # host, command, image, arguments
    ("laptop", "build --instructor", "cpu-instructor", {"TARGET=instructor", f"BASE={DEBIAN}"}),
    ("dgx", "build", "gpu-learner", {"TARGET=learner"}),
    ("dgx", f"build --base {NVIDIA}", "gpu-learner", {"TARGET=learner", f"BASE={NVIDIA}"}),
)


@with_each_engine
@pytest.mark.parametrize(("host", "words", "file", "target", "image", "arguments"), BUILDS)
def test_an_image_is_built(launch, monkeypatch, host, words, file, target, image, arguments, engine):
    pretend(launch, monkeypatch, host)
    [build] = commands(launch, f"{words} --engine {engine}")
    assert (build.engine, build.verb) == (engine, "build")
    assert build.words == ["/srv/course"]
    assert build.values("--file") == [f"/srv/course/containers/{file}"]
    assert build.values("--target") == [target]
    assert build.values("--tag") == [image]
    assert build.values("--build-arg") == arguments
    assert build.values("--format") == (["docker"] if engine == "podman" else [])  # for the health check


@pytest.mark.parametrize(("host", "words", "image", "arguments"), APPTAINER_BUILDS)
def test_an_image_is_built_with_apptainer(launch, monkeypatch, host, words, image, arguments):
    pretend(launch, monkeypatch, host)
    [build] = commands(launch, f"{words} --engine apptainer")
    assert (build.folder, build.engine, build.verb) == ("/srv/course", "apptainer", "build")
    assert "--force" in build.options
    assert set(build.values("--build-arg")) == arguments
    assert build.words == [f"/srv/course/build/{image}.sif", "/srv/course/containers/apptainer.def"]


# --- the engines' own clients -------------------------------------------------------------------------------


def all_commands(launch: ModuleType, monkeypatch: pytest.MonkeyPatch, engine: str) -> list[Command]:
    """Those of all dry runs with an engine."""
    found = []
    for host, words, *_ in (*BUILDS, *LABS):
        pretend(launch, monkeypatch, host)
        found += commands(launch, f"{words} --engine {engine}")
    return found


def test_dockers_own_client_understands_every_command(launch, monkeypatch):
    if not shutil.which("docker") or "podman" in subprocess.getoutput("docker --version").lower():
        pytest.skip("there is no Docker client here")
    printed = all_commands(launch, monkeypatch, "docker")
    assert {command.verb for command in printed} == {"build", "volume create", "create", "start"}
    env = {**os.environ, "DOCKER_HOST": "unix:///nowhere"}
    for command in printed:
        if command.verb != "build":  # its parser runs after it has read the folder
            done = subprocess.run(command.argv, env=env, capture_output=True, text=True)
            assert "unix:///nowhere" in done.stderr, done.stderr


def test_podman_has_the_options_of_every_command(launch, monkeypatch):
    if not shutil.which("podman"):
        pytest.skip("podman is not installed")
    used: dict[str, set[str]] = {}
    for command in all_commands(launch, monkeypatch, "podman"):
        used.setdefault(command.verb, set()).update(command.options)
    assert set(used) == {"build", "volume create", "create", "start"}
    for verb, options in used.items():
        known = subprocess.run(["podman", *verb.split(), "--help"], capture_output=True, text=True).stdout
        for option in options:
            assert re.search(rf"{option}(?![\w-])", known), f"podman {verb} has no {option}"


# --- data sets, tokens and refusals -------------------------------------------------------------------------


def test_docker_is_the_first_choice(launch, monkeypatch):
    pretend(launch, monkeypatch, "laptop")
    assert {command.engine for words in ("lab", "build") for command in commands(launch, words)} == {"docker"}


def test_the_operators_data_sets_are_read_only_in_the_lab(launch, monkeypatch, tmp_path):
    pretend(launch, monkeypatch, "laptop")
    monkeypatch.setenv("COURSE_DATA_DIR", str(tmp_path))
    for engine in ("docker", "podman"):
        [create] = creations(launch, f"lab --engine {engine}")
        assert f"{tmp_path}:/data:ro" in create.values("--volume")
        assert "COURSE_DATA_DIR=/data" in create.values("--env")
    start = commands(launch, "lab --engine apptainer")[-1]
    assert f"{tmp_path}:/data:ro" in start.values("--bind")
    assert start.environment["APPTAINERENV_COURSE_DATA_DIR"] == "/data"


def test_no_token_is_on_a_command_line(launch, monkeypatch, tmp_path):
    engine = Fake(tmp_path)
    pretend(launch, monkeypatch, "laptop")
    monkeypatch.setattr(launch.Docker, "installed", lambda engine: True)
    monkeypatch.setattr(launch.Lab, "answers", lambda lab: True)
    monkeypatch.setenv("PATH", engine.path)
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


def test_gpus_ports_and_names_of_running_labs_are_not_given_twice(launch, monkeypatch, capsys, tmp_path):
    engine = Fake(tmp_path)
    pretend(launch, monkeypatch, "dgx")
    monkeypatch.setattr(launch.Docker, "installed", lambda engine: True)
    monkeypatch.setattr(launch.Lab, "answers", lambda lab: True)
    monkeypatch.setenv("PATH", engine.path)
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
        assert service["ports"] == [f"127.0.0.1:${{COURSE_PORT:-{launch.FIRST_PORT}}}:{launch.INSIDE}"]
        assert service["volumes"] == ["workspace:/workspace"]
        assert service["environment"]["COURSE_TOKEN"].startswith("${COURSE_TOKEN:?")
        assert service["profiles"] == [name]
    devices = services["lab-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices == [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]
