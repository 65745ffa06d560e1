"""The steps of the set-up, with everything slow replaced: what is taken, completed, repaired and compiled."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from course_lib.command.setup import install, plan
from course_lib.command.setup.commands import Failed
from course_lib.command.setup.plan import Machine
from course_lib.system import paths
from course_lib.system.errors import CourseError

LAPTOP = Machine(python="3.11.2", platform="linux_x86_64-glibc2.36")
CLUSTER = LAPTOP._replace(mpi="/opt/openmpi/bin/opal_wrapper")


@pytest.mark.parametrize(
    ("commands", "modules", "compile_horovod", "words"),
    [
        (["gcc", "g++"], ["venv", "ensurepip"], True, []),
        ([], ["venv", "ensurepip"], False, []),
        (["gcc"], ["venv", "ensurepip"], True, ["C++ compiler", "`sudo apt install g++`"]),
        (["gcc", "g++"], ["venv"], True, ["venv module", "`sudo apt install python3.11-venv`"]),
        ([], [], True, ["`sudo apt install python3.11-venv g++`"]),
    ],
)
def test_what_is_missing_is_named_with_the_command(commands, modules, compile_horovod, words, monkeypatch):
    monkeypatch.setattr(install, "find_spec", lambda name: name if name in modules else None)
    monkeypatch.setattr(plan, "which", lambda name: name if name in commands else "")
    with pytest.raises(CourseError) if words else contextlib.nullcontext() as refused:
        install.require(LAPTOP, compile_horovod)
    assert all(word in str(refused.value) for word in words)


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """The names of the steps taken in a set-up of `tmp_path`. A test may replace any of them."""
    venv = tmp_path / ".venv"
    monkeypatch.setattr(plan, "VENV", venv)
    monkeypatch.setattr(plan, "NOTES", venv / "course-setup.json")
    monkeypatch.setattr(install, "VENV", venv)
    monkeypatch.setattr(install, "require", lambda *_, **__: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    taken = []

    def take(step: str) -> object:
        def taking(*_):
            venv.mkdir(exist_ok=True)
            taken.append(step)

        return taking

    monkeypatch.setattr(install, "_STEP_FUNCTIONS", {step: take(step) for step in plan.STEPS})
    return taken


def interrupted(monkeypatch, step: str, machine: Machine, error: BaseException) -> None:
    """Start a set-up that is interrupted in this step."""

    def stop(*_):
        raise error

    with monkeypatch.context() as patch, pytest.raises(type(error)):
        patch.setitem(install._STEP_FUNCTIONS, step, stop)
        install.set_up(machine, plan.wanted(machine))


def test_a_set_up_is_taken_once(steps):
    install.set_up(LAPTOP, plan.wanted(LAPTOP))
    install.set_up(LAPTOP, plan.wanted(LAPTOP))
    assert steps == list(plan.STEPS)
    assert plan.read_notes() == plan.wanted(LAPTOP)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), CourseError("No network.")])
@pytest.mark.parametrize(
    ("at", "then"),
    [("packages", list(plan.STEPS)), ("horovod", ["horovod", "course"]), ("course", ["course"])],
)
def test_an_interrupted_set_up_is_completed_by_the_next(steps, monkeypatch, at, then, error):
    interrupted(monkeypatch, at, LAPTOP, error)
    steps.clear()
    install.set_up(LAPTOP, plan.wanted(LAPTOP))
    assert steps == then
    assert plan.read_notes() == plan.wanted(LAPTOP)


def test_a_step_that_is_done_again_and_interrupted_counts_as_not_done(steps, monkeypatch):
    install.set_up(LAPTOP, plan.wanted(LAPTOP))
    interrupted(monkeypatch, "horovod", CLUSTER, KeyboardInterrupt())
    assert "horovod" not in plan.read_notes()


@pytest.mark.parametrize(("works", "then"), [(True, []), (False, list(plan.STEPS))])
def test_what_no_longer_works_is_made_anew(steps, monkeypatch, works, then):
    install.set_up(LAPTOP, plan.wanted(LAPTOP))
    steps.clear()
    monkeypatch.setattr(install, "_works", lambda machine: works)
    install.set_up(LAPTOP, plan.wanted(LAPTOP), check=True)
    assert steps == then


def test_a_broken_environment_does_not_work_and_is_no_traceback(steps, tmp_path, monkeypatch):
    monkeypatch.setattr(install, "PYTHON", str(tmp_path / "not there"))
    assert not install._works(LAPTOP)


class FakeSteps:
    """Runs nothing; `fails` says of a list of commands whether the last fails; a compiler's command makes a wheel."""

    log = Path("setup.log")

    def __init__(self, fails: object = lambda commands: False) -> None:
        self.commands: list[str] = []
        self.fails = fails

    def run(self, command: list[str], env: object = None) -> str:
        self.commands.append(" ".join(map(str, command)))
        if "--wheel-dir" in command:
            folder = Path(command[command.index("--wheel-dir") + 1])
            folder.mkdir()
            (folder / "horovod-0.28.1-cp311-cp311-linux_x86_64.whl").write_text("compiled")
        if self.fails(self.commands):
            raise Failed("It failed.")
        return ""

    def say(self, text: str) -> None:
        pass

    def step(self, title: str) -> object:
        return contextlib.nullcontext()

    @property
    def compiled(self) -> int:
        return sum("--wheel-dir" in command for command in self.commands)


@pytest.fixture
def wheels(steps, tmp_path, monkeypatch):
    """The folder in the cache for this machine's wheel."""
    monkeypatch.setattr(install, "_nccl", lambda: tmp_path)
    (tmp_path / "cache" / "one-model-many-gpus").mkdir(parents=True)
    return tmp_path / "cache" / "one-model-many-gpus" / "wheels" / "key"


def test_horovod_is_compiled_once(wheels):
    first, second = FakeSteps(), FakeSteps()
    install._install_horovod(LAPTOP, wheels, first)
    install._install_horovod(LAPTOP, wheels, second)
    assert (first.compiled, second.compiled) == (1, 0)
    assert any("horovod-0.28.1" in command for command in second.commands)


def test_a_failed_compilation_leaves_nothing_in_the_cache(wheels):
    with pytest.raises(CourseError):
        install._install_horovod(LAPTOP, wheels, FakeSteps(lambda commands: "--wheel-dir" in commands[-1]))
    assert not wheels.exists()
    assert not list(paths.cache().glob("build-*"))


def test_a_cached_wheel_that_no_longer_loads_is_compiled_again(wheels):
    wheels.mkdir(parents=True)
    (wheels / "horovod-0.28.1-cp311-cp311-linux_x86_64.whl").write_text("old")
    steps = FakeSteps(lambda commands: "horovod.tensorflow" in commands[-1] and len(commands) < 4)
    install._install_horovod(LAPTOP, wheels, steps)
    assert steps.compiled == 1
    assert [wheel.read_text() for wheel in wheels.iterdir()] == ["compiled"]


def test_a_wheel_that_never_loads_is_an_error_and_is_not_kept(wheels):
    with pytest.raises(CourseError, match="does not load"):
        install._install_horovod(LAPTOP, wheels, FakeSteps(lambda commands: "horovod.tensorflow" in commands[-1]))
    assert not wheels.exists()
