"""containers/launch: what it gives to an engine, and its refusals. Engines are fakes that keep what they are asked."""

from __future__ import annotations

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
FAKE = Path(__file__).with_name("fake_engine.py")
HOSTS = {"laptop": (0, 8, 16), "dgx": (8, 128, 1024)}  # GPUs, cores, GB of memory
COURSE = "one-model-many-gpus"
ENGINES = ("docker", "podman", "apptainer")
ACTIONS = (
    *("build", "cp", "create", "exec", "rm", "start", "stop"),
    *("volume create", "volume rm", "instance start", "instance stop"),
)


class Fake:
    """An engine that keeps its labs, and what it was asked, in a file; it fails where `broken` says so."""

    def __init__(
        self, folder: Path, broken: dict[str, str] | None = None, starts_as: str = "running", command: str = "docker"
    ) -> None:
        self._file = folder / "state.json"
        content = {"labs": {}, "volumes": [], "calls": [], "broken": broken or {}, "starts_as": starts_as}
        self._file.write_text(json.dumps(content))
        program = folder / command
        program.write_text(f"#!{sys.executable} -IS\n{FAKE.read_text()}")
        program.chmod(stat.S_IRWXU)
        self.path = str(folder)

    def state(self) -> dict:
        return json.loads(self._file.read_text())

    def calls(self) -> list[list[str]]:
        """What it was asked to do, without questions."""
        calls = [call["words"] for call in self.state()["calls"]]
        return [call for call in calls if call[0] in ACTIONS or " ".join(call[:2]) in ACTIONS]

    def environment(self, call: list[str]) -> dict[str, str]:
        """What of the environment of a call is for the lab."""
        return next(one["environment"] for one in self.state()["calls"] if one["words"] == call)

    def call(self, *action: str) -> list[str]:
        """The one call that begins like this."""
        (found,) = [call for call in self.calls() if tuple(call[: len(action)]) == action]
        return found

    @property
    def empty(self) -> bool:
        return not self.state()["labs"] and not self.state()["volumes"]


def options(call: list[str]) -> dict[str, list[str]]:
    """Option → its values in a call, but for labels."""
    found: dict[str, list[str]] = {}
    for word, value in zip(call, call[1:]):
        if word.startswith("--") and word != "--label":
            found.setdefault(word, []).append(value)
    return found


def labels(call: list[str]) -> dict[str, str]:
    """The course's labels in a call."""
    pairs = (value.split("=", 1) for word, value in zip(call, call[1:]) if word == "--label")
    return {name.removeprefix(f"{COURSE}."): value for name, value in pairs}


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
    """Make this a known host on which every port is free and no engine is installed."""
    gpus, cores, memory = HOSTS[host]
    monkeypatch.setattr(launch, "gpus_of_host", lambda: list(range(gpus)))
    monkeypatch.setattr(launch, "cores_of_host", lambda: list(range(cores)))
    monkeypatch.setattr(launch, "memory_of_host", lambda: memory * 1024)
    monkeypatch.setattr(launch, "hard_limit", lambda name: {"nofile": 524288, "memlock": 8388608}.get(name, -1))
    monkeypatch.setattr(launch, "is_free", lambda port, address: True)
    monkeypatch.setenv("PATH", "/nowhere")


@pytest.fixture
def start(launch, monkeypatch, tmp_path):
    """start(host, engine, broken): a `Fake` on this host, which has all images of the course; its labs answer."""

    def make(host: str = "dgx", engine: str = "docker", broken: dict | None = None) -> Fake:
        fake = Fake(tmp_path, broken, command=engine)
        pretend(launch, monkeypatch, host)
        monkeypatch.setattr(launch, "ROOT", tmp_path / "course")
        (tmp_path / "course" / "build").mkdir(parents=True)
        for image in ("cpu-learner", "cpu-instructor", "gpu-learner", "gpu-instructor"):
            (tmp_path / "course" / "build" / f"{image}.sif").touch()
        monkeypatch.setenv("HOME", str(tmp_path / "operator"))
        monkeypatch.setattr(launch, "delegated", lambda: ("cpuset", "memory", "pids"))
        monkeypatch.setattr(launch.Podman, "gpu_problem", lambda engine: "")
        monkeypatch.setattr(launch.Lab, "answers", lambda lab: True)
        monkeypatch.setenv("PATH", fake.path)
        return fake

    return make


# --- what an engine is given --------------------------------------------------------------------------------


ALL_GPUS = "0,1,2,3,4,5,6,7"
NVIDIA = "nvcr.io/nvidia/tensorflow:25.02-tf2-py3"
LAB = {
    "--name": ["course"],
    "--publish": ["127.0.0.1:8888:8888"],
    "--volume": ["course:/workspace"],
    "--env": ["JUPYTER_TOKEN"],
    "--shm-size": ["1g"],
    "--ulimit": ["nofile=65536", "nproc=-1", "memlock=-1", "stack=67108864"],
    "--pids-limit": ["16384"],
    "--cap-drop": ["ALL"],
    "--security-opt": ["no-new-privileges"],
}
IN_PODMAN = {"--ulimit": ["nofile=65536", "nproc=-1", "memlock=8388608", "stack=67108864"]}  # the operator's own
ADA = {"--name": ["ada"], "--volume": ["ada:/workspace"]}
UNCONFINED = [*LAB["--security-opt"], "seccomp=unconfined", "apparmor=unconfined"]
IN_DOCKER_UNCONFINED = {"--security-opt": [*UNCONFINED, "systempaths=unconfined"]}
IN_PODMAN_UNCONFINED = {"--security-opt": [*UNCONFINED, "unmask=ALL"], **IN_PODMAN}
TWO_DEVICES = {"--device": ["nvidia.com/gpu=0", "nvidia.com/gpu=1"], **IN_PODMAN}


@pytest.mark.parametrize(
    ("name", "host", "words", "changed", "gpus", "image"),
    [
        ("docker", "laptop", "", {}, "", "cpu-learner"),
        ("docker", "laptop", "--instructor", IN_DOCKER_UNCONFINED, "", "cpu-instructor"),
        ("podman", "laptop", "--instructor", IN_PODMAN_UNCONFINED, "", "cpu-instructor"),
        ("docker", "laptop", "--bind 0.0.0.0", {"--publish": ["0.0.0.0:8888:8888"]}, "", "cpu-learner"),
        ("docker", "laptop", "--image mine:1", {}, "", "mine:1"),
        ("docker", "dgx", "", {"--gpus": [f'"device={ALL_GPUS}"']}, ALL_GPUS, "gpu-learner"),
        ("docker", "dgx", "--gpus 0,1 --volume ada", {"--gpus": ['"device=0,1"'], **ADA}, "0,1", "gpu-learner"),
        ("podman", "dgx", "--gpus 0,1", TWO_DEVICES, "0,1", "gpu-learner"),
        ("docker", "dgx", "--gpus none --port 9000", {"--publish": ["127.0.0.1:9000:8888"]}, "", "cpu-learner"),
        ("docker", "dgx", "--gpus none --shm-size 4g", {"--shm-size": ["4g"]}, "", "cpu-learner"),
    ],
)
def test_a_lab_gets_what_it_needs_and_no_more_rights(launch, start, name, host, words, changed, gpus, image):
    engine, wanted = start(host, name), {**LAB, **changed}
    assert launch.main(["lab", *words.split()]) == 0
    created = engine.call("create")
    assert options(created) == wanted
    assert created[-1] == (image if ":" in image else f"{COURSE}:{image}")
    address, port, _ = wanted["--publish"][0].split(":")
    (volume,) = wanted["--name"]
    assert labels(created) == {"lab": volume, "address": address, "port": port, "gpus": gpus}
    assert engine.call("volume", "create")[-1] == engine.call("start")[-1] == volume


def test_with_apptainer_a_lab_gets_folders_of_its_own(launch, start, tmp_path):
    engine = start(engine="apptainer")
    assert launch.main(["lab", "--gpus", "2,3", "--bind", "0.0.0.0", "--port", "9000"]) == 0
    home = tmp_path / "operator" / ".local" / "share" / COURSE / "course"
    started = engine.call("instance", "start")
    assert " ".join(started) == (
        f"instance start --containall --home {home}/home:/home/learner --workdir {home}/scratch "
        f"--bind {home}/workspace:/workspace --pids-limit 16384 --nv {launch.ROOT}/build/gpu-learner.sif course"
    )
    environment = engine.environment(started)
    assert len(environment.pop("APPTAINERENV_JUPYTER_TOKEN")) == 48
    assert environment == {
        "APPTAINERENV_COURSE_ADDRESS": "0.0.0.0",
        "APPTAINERENV_JUPYTER_PORT": "9000",
        "APPTAINERENV_CUDA_VISIBLE_DEVICES": "2,3",
    }


@pytest.mark.parametrize(
    ("name", "host", "words", "built"),
    [
        ("docker", "laptop", "", "--file @/cpu.Dockerfile --target learner --tag NAME:cpu-learner ROOT"),
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
def test_what_an_image_is_built_of(launch, start, name, host, words, built):
    engine = start(host, name)
    assert launch.main(["build", *words.split()]) == 0
    built = built.replace("@", "ROOT/containers").replace("ROOT", str(launch.ROOT)).replace("NAME", COURSE)
    assert " ".join(engine.call("build")) == f"build {built}"


def spread(cores: str) -> set[int]:
    """The numbers in 0-3,8."""
    ends = [part.split("-") for part in cores.split(",")]
    return {core for first, *last in ends for core in range(int(first), int((last or [first])[0]) + 1)}


@pytest.mark.parametrize("name", ENGINES)
def test_learners_of_a_class_share_nothing(launch, start, capsys, name):
    engine = start(engine=name)
    assert launch.main(["lab", "--learners", "4", "--gpus-each", "2"]) == 0
    made = [call for call in engine.calls() if call[0] == "create" or call[:2] == ["instance", "start"]]
    given = [options(call) for call in made]
    assert len(set(re.findall(r":(\d+)/lab", capsys.readouterr().out))) == len(made) == 4
    shared = [value for one in given for option in ("--home", "--bind", "--volume") for value in one.get(option, ())]
    assert len(set(shared)) == len(shared) == (8 if name == "apptainer" else 4)
    variable = "APPTAINERENV_CUDA_VISIBLE_DEVICES"
    gpus = [labels(call).get("gpus") or engine.environment(call)[variable] for call in made]
    assert ",".join(gpus) == ALL_GPUS
    assert sorted(core for one in given for core in spread(*one["--cpuset-cpus"])) == list(range(128))
    memory = sum(int(one["--memory"][0].rstrip("m")) for one in given)
    assert 0.8 * 1024**2 < memory < 1024**2  # MB; some is the host's own


@pytest.mark.parametrize("words", ["lab --learners 2", "lab --gpus 2,3 --volume ada", "build --instructor"])
@pytest.mark.parametrize("name", ENGINES)
def test_a_shell_does_with_a_dry_run_what_the_launcher_does(launch, start, monkeypatch, capsys, name, words):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    monkeypatch.setattr(launch.secrets, "token_hex", lambda number: 2 * number * "a")
    programs = os.environ["PATH"]
    engine = start(engine=name)
    env = {**os.environ, "PATH": f"{engine.path}{os.pathsep}{programs}"}
    assert launch.main([*words.split(), "--dry-run"]) == 0
    assert engine.calls() == []
    subprocess.run(["sh", "-euc", capsys.readouterr().out], env=env, check=True)
    by_shell = engine.calls(), [engine.environment(call) for call in engine.calls()]
    engine = Fake(Path(engine.path), command=name)
    assert launch.main(words.split()) == 0
    assert engine.calls() == by_shell[0] != []
    for call, given in zip(*by_shell):
        tokens = {name: value for name, value in given.items() if name.endswith("TOKEN")}
        assert all(re.fullmatch("[0-9a-f]{48}", token) for token in tokens.values())
        assert {**given, **dict.fromkeys(tokens, 48 * "a")} == engine.environment(call)


def test_podman_has_the_options_of_a_build(launch, start):
    """Those of a lab are tried with a real engine, in test_podman.py."""
    podman = shutil.which("podman")
    if not podman:
        pytest.skip("podman is not installed")
    engine = start(engine="podman")
    assert launch.main(["build"]) == 0
    known = subprocess.run([podman, "build", "--help"], capture_output=True, text=True).stdout
    for option in options(engine.call("build")):
        assert re.search(rf"{option}(?![\w-])", known), option


# --- the check of GPUs, and the image for them --------------------------------------------------------------


IN_A_CHECK = {name: LAB[name] for name in ("--shm-size", "--ulimit", "--pids-limit", "--cap-drop", "--security-opt")}


@pytest.mark.parametrize(
    ("name", "words", "given"),
    [
        ("docker", "check", {"--gpus": [f'"device={ALL_GPUS}"'], **IN_A_CHECK}),
        ("podman", "check --gpus 0 --instructor", {"--device": ["nvidia.com/gpu=0"], **IN_PODMAN_UNCONFINED}),
        ("apptainer", "check --gpus 0,1", {}),
    ],
)
def test_a_check_runs_the_doctor_with_the_gpus(launch, start, monkeypatch, tmp_path, name, words, given):
    engine = start(engine=name)
    monkeypatch.chdir(tmp_path)
    assert launch.main(words.split()) == 0
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
def test_a_check_ends_with_the_doctors_exit_code(launch, start, capfd, tmp_path, broken, code, reported):
    engine = start(broken=broken)
    (tmp_path / "here").mkdir()
    assert launch.main(["check", "--report", str(tmp_path / "here")]) == code
    assert engine.empty
    written = {file.name for file in (tmp_path / "here").iterdir()}
    assert written == ({"gpu-report.json", "gpu-report.html"} if reported else set())
    assert ("gpu-report.html" in capfd.readouterr().err) == reported


def test_a_container_that_stays_after_a_check_is_told(launch, start, capsys, tmp_path):
    start(broken={"rm": "The device is busy."})
    assert launch.main(["check", "--report", str(tmp_path)]) == 1
    assert "The device is busy" in capsys.readouterr().err


def test_the_report_of_an_earlier_check_is_not_announced(launch, start, capfd, tmp_path):
    start(broken={"start": 137})
    (tmp_path / "gpu-report.html").touch()
    assert launch.main(["check", "--report", str(tmp_path)]) == 137
    assert "gpu-report" not in capfd.readouterr().err


def test_a_check_waits_for_no_lab(launch, start, capsys):
    start()
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
@pytest.mark.parametrize("name", ENGINES)
def test_the_image_is_built_for_the_newest_gpu(launch, start, capsys, said, base, name):
    engine = start(engine=name)
    fake_driver(Path(engine.path), said)
    for chosen, words in ((base, ["build"]), ("mine:1", ["build", "--base", "mine:1"])):
        assert launch.main(words) == 0
        arguments = options(engine.calls()[-1]).get("--build-arg", [])
        assert [one for one in arguments if one.startswith("BASE=")] == [f"BASE={chosen}"] * bool(chosen)
    assert ("compute capability" in capsys.readouterr().err) == bool(base)


def test_gpus_older_than_all_images_are_refused(launch, start, capsys):
    fake_driver(Path(start().path), "5.2")
    assert launch.main(["build"]) == 1
    assert_sentence(*capsys.readouterr(), r"compute capability 5\.2, and the images begin at 6\.0")


def test_the_default_image_is_that_of_the_dockerfile(launch):
    text = (ROOT / "containers" / "gpu.Dockerfile").read_text()
    assert f"ARG BASE={launch.DEFAULT_BASE}\n" in text
    assert launch.DEFAULT_BASE in launch.BASES.values()


def test_the_guides_table_of_images_is_the_launchers(launch):
    rows = re.findall(r"^\| .+ \| (\d+\.\d+) (?:to|and later).* \| `(\S+)` \|", GUIDE.read_text(), re.MULTILINE)
    assert {tuple(map(int, first.split("."))): base for first, base in rows} == launch.BASES


def fake_driver(folder: Path, capabilities: str) -> None:
    """An `nvidia-smi` that names these compute capabilities, one a line; "": that does not know the question."""
    program = folder / "nvidia-smi"
    answer = f"printf '{capabilities}\n'" if capabilities else "echo 'Field \"compute_cap\" is not valid'; exit 2"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(stat.S_IRWXU)


# --- data sets, tokens and refusals -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENGINES)
def test_the_operators_data_sets_are_read_only_in_the_lab(launch, start, monkeypatch, tmp_path, name):
    monkeypatch.setenv("COURSE_DATA_DIR", str(tmp_path))
    engine = start("laptop", name)
    assert launch.main(["lab"]) == 0
    (made,) = (call for call in engine.calls() if "create" in call[:1] or "instance" in call)
    volumes = options(made)["--bind" if name == "apptainer" else "--volume"]
    assert f"{tmp_path}:/data:ro" in volumes
    variable = engine.environment(made).get("APPTAINERENV_COURSE_DATA_DIR")
    assert variable == "/data" or "COURSE_DATA_DIR=/data" in options(made)["--env"]


@pytest.mark.parametrize("name", ENGINES)
def test_no_token_is_on_a_command_line(launch, start, capsys, name):
    engine = start(engine=name)
    assert launch.main(["lab", "--learners", "2"]) == 0
    tokens = re.findall(r"token=(\w+)", capsys.readouterr().out)
    assert len(set(tokens)) == 2 and all(len(token) == 48 for token in tokens)
    given = [engine.environment(call) for call in engine.calls()]
    assert tokens == [value for one in given for variable, value in one.items() if variable.endswith("JUPYTER_TOKEN")]
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
    ("laptop", "check", 1, "This host shows no NVIDIA GPU"),
    ("dgx", "check --gpus none", 2, "A check needs GPUs: leave --gpus none out"),
    ("dgx", "check --gpus 9", 2, "This host has no GPU 9"),
    ("dgx", "check --report /nowhere", 2, "--report /nowhere is no folder"),
    ("dgx", "build tpu", 2, "invalid choice: 'tpu'"),
    ("dgx", "dance", 2, "invalid choice: 'dance'"),
    ("dgx", "", 2, "required"),
)


@pytest.mark.parametrize(
    ("host", "words", "code", "sentence"), REFUSALS, ids=[case[1] or "nothing" for case in REFUSALS]
)
def test_what_cannot_be_meant_is_refused_in_a_sentence(launch, monkeypatch, capsys, host, words, code, sentence):
    pretend(launch, monkeypatch, host)
    dry = ["--dry-run"] if words.startswith(("lab", "build", "check")) and not words.endswith("--volume") else []
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


NO_DAEMON = {"version": "Cannot connect to the Docker daemon at unix:///var/run/docker.sock."}
NOT_ALLOWED = {"version": "permission denied while trying to connect to the Docker daemon socket"}
BUSY = {"ps": "context deadline exceeded"}
NO_IMAGE = {"image inspect": "No such image"}
NAME_TAKEN = {"create": "Conflict. The container name is already in use"}
ENGINE_FAILS = (
    *((NO_DAEMON, command, "start it with `sudo systemctl") for command in ("lab", "list", "stop", "build")),
    *((NOT_ALLOWED, command, "let this user in: use sudo") for command in ("lab", "list", "stop", "build")),
    *((BUSY, command, r"failed at `docker ps` \(context deadline") for command in ("lab", "list", "stop")),
    (NO_IMAGE, "lab", "no image one-model-many-gpus:cpu-learner .* `containers/launch build cpu`"),
    (NO_IMAGE, "lab --instructor", "`containers/launch build cpu --instructor`"),
    (NO_IMAGE, "lab --image mine:1", "no image mine:1 on this host: check its name"),
    ({}, "lab", r"ended as it started, .*: Horovod was built without NCCL\.$"),
    (NAME_TAKEN, "lab", r"Docker failed at `docker create` \(Conflict"),
)


@pytest.mark.parametrize(("broken", "words", "sentence"), ENGINE_FAILS)
def test_where_the_engine_fails_a_sentence_says_so_and_nothing_stays(tmp_path, broken, words, sentence):
    engine = Fake(tmp_path, broken, starts_as="exited")
    refused(run(*words.split(), path=engine.path), 1, sentence)
    assert engine.empty
    if broken is NAME_TAKEN:
        assert not any(call[0] == "rm" for call in engine.calls()), "it is another one's container"


def test_a_class_of_which_one_lab_fails_leaves_nothing(tmp_path):
    driver = 'Error response: could not select device driver "" with capabilities: [[gpu]]'
    engine = Fake(tmp_path, {"start course-03": driver})
    done = run("lab", "--learners", "3", path=engine.path)
    refused(done, 1, "cannot give GPUs to containers .* install the NVIDIA Container Toolkit")
    assert ["start", "course-02"] in engine.calls()
    assert engine.empty


def test_gpus_ports_and_names_of_running_labs_are_not_given_twice(launch, start, capsys):
    engine = start()
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
