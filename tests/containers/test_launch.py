"""containers/launch: what it would do, against what is recorded, and its refusals. No engine is needed.

`python tests/containers/test_launch.py` records the dry runs anew.
"""

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
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from course_lib.places import ROOT

LAUNCH = ROOT / "containers" / "launch"
GUIDE = ROOT / "containers" / "README.md"
COMPOSE = ROOT / "containers" / "compose.yaml"
FAKE = Path(__file__).with_name("fake_docker.py")
RECORDED = Path(__file__).with_name("launch_dry_runs.txt")
HOSTS = {"laptop": (0, 8, 16), "dgx": (8, 128, 1024)}  # GPUs, cores, GB of memory
DRY_RUNS = (
    ("laptop", "build"),
    ("laptop", "lab"),
    ("laptop", "lab --instructor --engine podman --volume teacher"),
    ("laptop", "build --instructor --engine apptainer"),
    ("laptop", "lab --engine apptainer --bind 0.0.0.0 --volume ada"),
    ("dgx", "build --base nvcr.io/nvidia/tensorflow:25.02-tf2-py3 --image course:25.02"),
    ("dgx", "build --engine podman"),
    ("dgx", "lab"),
    ("dgx", "lab --gpus 0,1 --port 9000 --volume ada --shm-size 4g --engine podman"),
    ("dgx", "lab --gpus none"),
    ("dgx", "lab --instructor --volume teacher --gpus 7"),
    ("dgx", "lab --engine apptainer --gpus 2,3"),
    ("dgx", "lab --learners 3 --gpus-each 2 --gpus 2,3,4,5,6,7"),
    ("dgx", "lab --learners 2 --gpus-each 0 --port 9001 --volume autumn --engine podman"),
)


def load() -> ModuleType:
    """The launcher as a module."""
    spec = spec_from_loader("launch", SourceFileLoader("launch", str(LAUNCH)))
    module = module_from_spec(spec)
    sys.modules["launch"] = module  # dataclasses look their module up
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


def pretend(launch: ModuleType, change, host: str) -> None:
    """Make this a known host, with every port free and no engine."""
    gpus, cores, memory = HOSTS[host]
    change(launch, "gpus_of_host", lambda: list(range(gpus)))
    change(launch, "cores_of_host", lambda: list(range(cores)))
    change(launch, "memory_of_host", lambda: memory * 1024)
    change(launch, "hard_limit", lambda name: {"nofile": 524288, "memlock": 8388608}.get(name, -1))
    change(launch, "is_free", lambda port, address: True)
    change(launch.Engine, "installed", lambda engine: False)
    change(launch.Docker, "installed", lambda engine: False)


@pytest.fixture
def launch(monkeypatch, tmp_path) -> ModuleType:
    for name in ("COURSE_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/operator")
    return load()


def dry_run(launch: ModuleType, command: str) -> str:
    """What a dry run prints, with this project's folder as /srv/course."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert launch.main([*command.split(), "--dry-run"]) == 0
    return out.getvalue().replace(str(ROOT), "/srv/course")


def recorded() -> dict[tuple[str, str], str]:
    blocks = re.split(r"^(\w+)\$ containers/launch (.*) --dry-run\n", RECORDED.read_text(), flags=re.MULTILINE)[1:]
    return {(host, words): text.strip() for host, words, text in zip(blocks[::3], blocks[1::3], blocks[2::3])}


def recorded_commands(engine: str) -> list[list[str]]:
    """Each command of an engine in the recorded dry runs, as its words."""
    lines = "\n".join(recorded().values()).replace("\\\n", " ").splitlines()
    return [shlex.split(found[1]) for line in lines if (found := re.match(rf"(?:\w+=.*?\" )?({engine} .*)", line))]


# --- without an engine --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("host", "words"), DRY_RUNS, ids=lambda value: value.replace(" ", "_"))
def test_a_dry_run_prints_what_is_recorded(launch, monkeypatch, host, words):
    pretend(launch, monkeypatch.setattr, host)
    assert dry_run(launch, words).strip() == recorded()[host, words]


def test_every_recorded_dry_run_is_compared():
    assert set(recorded()) == set(DRY_RUNS)


def test_dockers_own_client_understands_every_recorded_command():
    if not shutil.which("docker") or "podman" in subprocess.getoutput("docker --version").lower():
        pytest.skip("there is no Docker client here")
    commands = recorded_commands("docker")
    assert {command[1] for command in commands} == {"build", "volume", "create", "start"}
    for command in commands:
        if command[1] != "build":  # its parser runs after it has read the folder
            done = subprocess.run(
                command, env={**os.environ, "DOCKER_HOST": "unix:///nowhere"}, capture_output=True, text=True
            )
            assert "unix:///nowhere" in done.stderr, done.stderr


def test_podman_has_the_options_of_every_recorded_command():
    if not shutil.which("podman"):
        pytest.skip("podman is not installed")
    known = {}
    for command in recorded_commands("podman"):
        action = tuple(command[1:3] if command[1] == "volume" else command[1:2])
        if action not in known:
            known[action] = subprocess.run(["podman", *action, "--help"], capture_output=True, text=True).stdout
        for option in (word for word in command if word.startswith("--")):
            assert re.search(rf"{option}\b", known[action]), f"podman {' '.join(action)} has no {option}"
    assert set(known) == {("build",), ("volume", "create"), ("create",), ("start",)}


def test_learners_of_a_class_share_nothing(launch, monkeypatch):
    pretend(launch, monkeypatch.setattr, "dgx")
    commands = [
        shlex.split(part)
        for part in dry_run(launch, "lab --learners 4 --gpus-each 2").replace("\\\n", " ").splitlines()
        if " create " in part and "--publish" in part
    ]
    seen = {option: [] for option in ("--name", "--publish", "--volume", "--gpus", "--cpuset-cpus")}
    for words in commands:
        for option, values in seen.items():
            values.append(words[words.index(option) + 1])
    assert all(len(set(values)) == 4 for values in seen.values()), seen
    assert seen["--gpus"] == [f'"device={a},{a + 1}"' for a in (0, 2, 4, 6)]
    assert seen["--cpuset-cpus"] == ["0-31", "32-63", "64-95", "96-127"]
    assert all(value.startswith("127.0.0.1:") for value in seen["--publish"])


def test_the_operators_data_sets_are_read_only_in_the_lab(launch, monkeypatch, tmp_path):
    pretend(launch, monkeypatch.setattr, "laptop")
    monkeypatch.setenv("COURSE_DATA_DIR", str(tmp_path))
    for engine, option in (("docker", "--volume"), ("podman", "--volume"), ("apptainer", "--bind")):
        assert f"{option} {tmp_path}:/data:ro" in dry_run(launch, f"lab --engine {engine}")


def test_no_token_is_on_a_command_line(launch, monkeypatch, tmp_path):
    engine = Fake(tmp_path)
    pretend(launch, monkeypatch.setattr, "laptop")
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
    pretend(launch, monkeypatch.setattr, host)
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
    pretend(launch, monkeypatch.setattr, "dgx")
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
    assert launch.main(["stop", "ada", "ben", "dan"]) == 2
    assert "There is no lab dan" in capsys.readouterr().err
    assert engine.state()["labs"] == {} and engine.state()["volumes"] == ["ada", "ben"]
    assert launch.main(["stop", "--remove-volumes"]) == 0
    assert engine.empty


# --- the guide ----------------------------------------------------------------------------------------------


def test_the_guides_commands_are_understood(launch):
    commands = re.findall(r"^ {4,}containers/launch ([^#$\n]+?) *(?:#.*)?$", GUIDE.read_text(), re.MULTILINE)
    assert len(commands) > 12
    for command in commands:
        launch.parser().parse_args(command.split())


def test_the_guides_refusal_is_the_launchers(launch, monkeypatch, capsys):
    pretend(launch, monkeypatch.setattr, "dgx")
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


if __name__ == "__main__":
    texts = []
    os.environ.update(HOME="/home/operator", COURSE_DATA_DIR="", XDG_DATA_HOME="")
    for host, words in DRY_RUNS:
        module = load()
        pretend(module, setattr, host)
        texts.append(f"{host}$ containers/launch {words} --dry-run\n{dry_run(module, words)}")
    RECORDED.write_text("\n".join(texts))
