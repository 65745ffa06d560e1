"""The launcher's command line: refusals in a sentence, dry runs, the guide, and compose.yaml beside it."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from containers.launcher import lab, labs
from containers.launcher.cli import build_parser, main
from course_lib.system.paths import ROOT
from tests.containers.launching import ENGINES, Fake, assert_refused, assert_sentence, pretend, run

GUIDE = ROOT / "containers" / "README.md"
COMPOSE = ROOT / "containers" / "compose.yaml"


@pytest.mark.parametrize("words", ["lab --gpus none", "lab --gpus 2,3 --volume ada", "build --instructor"])
@pytest.mark.parametrize("name", ENGINES)
def test_a_shell_does_with_a_dry_run_what_the_launcher_does(start, monkeypatch, capsys, name, words):
    if not shutil.which("openssl"):
        pytest.skip("openssl is not installed")
    monkeypatch.setattr(secrets, "token_hex", lambda number: 2 * number * "a")
    programs = os.environ["PATH"]
    engine = start(engine=name)
    env = {**os.environ, "PATH": f"{engine.path}{os.pathsep}{programs}"}
    assert main([*words.split(), "--dry-run"]) == 0
    assert engine.calls() == []
    subprocess.run(["sh", "-euc", capsys.readouterr().out], env=env, check=True)
    by_shell = engine.calls(), [engine.environment(call) for call in engine.calls()]
    engine = Fake(Path(engine.path), command=name)
    assert main(words.split()) == 0
    assert engine.calls() == by_shell[0] != []
    for call, given in zip(*by_shell):
        tokens = {name: value for name, value in given.items() if name.endswith("TOKEN")}
        assert all(re.fullmatch("[0-9a-f]{48}", token) for token in tokens.values())
        assert {**given, **dict.fromkeys(tokens, 48 * "a")} == engine.environment(call)


REFUSALS = (
    ("laptop", "lab --gpus 0", 1, "shows no NVIDIA GPU .* leave --gpus out"),
    ("dgx", "lab --gpus 7,8", 2, "no GPU 8: its GPUs are 0,1,2,3,4,5,6,7"),
    ("dgx", "lab --gpus 1,1", 2, "names a GPU twice"),
    ("dgx", "lab --gpus one", 2, "GPUs are named by numbers"),
    ("dgx", "lab --gpus 0,", 2, "GPUs are named by numbers"),
    ("dgx", "lab --port 70000", 2, "--port 70000 is not valid: a port is"),
    ("dgx", "lab --port http", 2, "--port http is not valid"),
    ("dgx", "lab --shm-size big", 2, "--shm-size big is not valid: give a size as 512m or 2g"),
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
    ("name", "words", "code", "sentence"), REFUSALS, ids=[case[1] or "nothing" for case in REFUSALS]
)
def test_what_is_not_valid_is_refused_in_a_sentence(operator, monkeypatch, capsys, name, words, code, sentence):
    pretend(monkeypatch, name)
    dry = ["--dry-run"] if words.startswith(("lab", "build", "check")) and not words.endswith("--volume") else []
    assert main([*words.split(), *dry]) == code
    assert_sentence(*capsys.readouterr(), sentence)


@pytest.mark.parametrize("command", ["build", "lab", "list", "stop"])
def test_without_an_engine_every_command_says_what_to_install(command, tmp_path):
    assert_refused(
        run(command, path=str(tmp_path)), 1, "no container engine here: install Docker, Podman .* or Apptainer"
    )
    assert_refused(run(command, "--engine", "podman", path=str(tmp_path)), 1, "Podman is not installed here: install")


def test_the_guides_commands_are_understood():
    commands = re.findall(r"^ {4,}containers/launch ([^#$\n]+?) *(?:#.*)?$", GUIDE.read_text(), re.MULTILINE)
    assert len(commands) >= 10
    for command in commands:
        build_parser().parse_args(command.split())


def test_compose_gives_a_lab_what_the_launcher_gives():
    services = yaml.safe_load(COMPOSE.read_text())["services"]
    assert set(services) == {"lab", "lab-gpu"}
    for name, service in services.items():
        kind = "gpu" if name == "lab-gpu" else "cpu"
        assert service["image"] == f"{lab.PREFIX}:{kind}-learner"
        assert service["build"]["dockerfile"] == f"containers/{kind}.Dockerfile"
        assert service["build"]["target"] == "learner"
        assert service["ulimits"] == lab.ULIMITS
        assert service["shm_size"] == lab.SHARED_MEMORY
        assert service["pids_limit"] == lab.PROCESSES
        assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]
        assert service["ports"] == [f"127.0.0.1:${{JUPYTER_PORT:-{labs.FIRST_PORT}}}:{lab.INNER_PORT}"]
        assert service["volumes"] == ["workspace:/workspace"]
        assert service["environment"]["JUPYTER_TOKEN"].startswith("${JUPYTER_TOKEN:?")
        assert service["profiles"] == [name]
    devices = services["lab-gpu"]["deploy"]["resources"]["reservations"]["devices"]
    assert devices == [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]
