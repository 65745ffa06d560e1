"""What the tests of the launcher share: a fake engine, a fake host, and how a call and a refusal are read."""

from __future__ import annotations

import json
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from containers.launcher import host
from course_lib.system.paths import ROOT

LAUNCH = ROOT / "containers" / "launch"
FAKE = Path(__file__).with_name("fake_engine.py")
HOSTS = {"laptop": (0, 8, 16), "dgx": (8, 128, 1024), "small": (0, 2, 4)}  # GPUs, cores, GB of memory
COURSE = "one-model-many-gpus"
ENGINES = ("docker", "podman", "apptainer")
ACTIONS = (
    *("build", "cp", "create", "exec", "restart", "rm", "run", "start", "stop"),
    *("volume create", "volume rm", "instance start", "instance stop", "network create", "network rm"),
)


class Fake:
    """An engine that keeps its containers, and what it was asked, in a file; it fails where `broken` says so."""

    def __init__(
        self, folder: Path, broken: dict[str, str] | None = None, starts_as: str = "running", command: str = "docker"
    ) -> None:
        self._file = folder / "state.json"
        content = {"containers": {}, "volumes": [], "networks": [], "calls": [], "broken": broken or {}}
        self._file.write_text(json.dumps({**content, "starts_as": starts_as, "dns": True}))
        program = folder / command
        program.write_text(f"#!{sys.executable} -IS\n{FAKE.read_text()}")
        program.chmod(stat.S_IRWXU)
        self.path = str(folder)

    def state(self) -> dict:
        return json.loads(self._file.read_text())

    def change(self, **entries: object) -> None:
        """Change what the engine holds."""
        self._file.write_text(json.dumps({**self.state(), **entries}))

    def calls(self) -> list[list[str]]:
        """What it was asked to do, without questions."""
        calls = [call["arguments"] for call in self.state()["calls"]]
        return [call for call in calls if call[0] in ACTIONS or " ".join(call[:2]) in ACTIONS]

    def environment(self, call: list[str]) -> dict[str, str]:
        """What of the environment of a call is for the lab."""
        return next(one["environment"] for one in self.state()["calls"] if one["arguments"] == call)

    def call(self, *action: str) -> list[str]:
        """The one call that begins like this."""
        (call,) = [call for call in self.calls() if tuple(call[: len(action)]) == action]
        return call

    @property
    def empty(self) -> bool:
        state = self.state()
        return not state["containers"] and not state["volumes"] and not state["networks"]


def options(call: list[str]) -> dict[str, list[str]]:
    """Option → its values in a call, but for labels."""
    values: dict[str, list[str]] = {}
    for word, value in zip(call, call[1:]):
        if word.startswith("--") and word != "--label":
            values.setdefault(word, []).append(value)
    return values


def labels(call: list[str]) -> dict[str, str]:
    """The course's labels in a call."""
    pairs = (value.split("=", 1) for word, value in zip(call, call[1:]) if word == "--label")
    return {name.removeprefix(f"{COURSE}."): value for name, value in pairs}


def pretend(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Make this a known host on which every port is free and no engine is installed."""
    gpus, cores, memory = HOSTS[name]
    monkeypatch.setattr(host, "gpus", lambda: list(range(gpus)))
    monkeypatch.setattr(host, "cores", lambda: list(range(cores)))
    monkeypatch.setattr(host, "memory", lambda: memory * 1024)
    monkeypatch.setattr(host, "hard_limit", lambda name: {"nofile": 524288, "memlock": 8388608}.get(name, -1))
    monkeypatch.setattr(host, "port_is_free", lambda port, address: True)
    monkeypatch.setenv("PATH", "/nowhere")


def run(*arguments: str, path: str, **environment: str) -> subprocess.CompletedProcess:
    """The launcher as an operator runs it, with these programs only, and Python's standard library alone."""
    env = {"PATH": path, "HOME": "/nonexistent", **environment}
    return subprocess.run(
        [sys.executable, "-I", "-S", str(LAUNCH), *arguments], capture_output=True, text=True, env=env
    )


def assert_sentence(out: str, err: str, sentence: str) -> None:
    """One line on standard error, nothing else."""
    assert out == ""
    assert err.startswith("launch: ") and err.endswith(".\n") and err.count("\n") == 1, err
    assert re.search(sentence, err), err


def assert_refused(done: subprocess.CompletedProcess, code: int, sentence: str) -> None:
    """It ended with this exit code and one sentence."""
    assert done.returncode == code, done.stderr
    assert_sentence(done.stdout, done.stderr, sentence)
