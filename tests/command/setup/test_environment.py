"""The conda environment, the lock and pyproject.toml name the same versions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from course_lib.command.setup import plan

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA_PYTHON = {
    "python_version": "3.11",
    "python_full_version": "3.11.9",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "implementation_name": "cpython",
}


def locked(name: str = "requirements.lock", environment: dict = CONDA_PYTHON) -> dict[str, str]:
    """Package → version, for one Python."""
    lines = [line.split("#")[0].strip() for line in (ROOT / name).read_text().splitlines()]
    requirements = [Requirement(line) for line in lines if line and not line.startswith("-")]
    wanted = [r for r in requirements if r.marker is None or r.marker.evaluate(environment)]
    return {r.name: next(iter(r.specifier)).version for r in wanted}


def conda() -> tuple[dict[str, str], list[str]]:
    """Conda packages → version, and the pip requirements."""
    entries = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    packages = dict((*entry.split("=", 1), "")[:2] for entry in entries if isinstance(entry, str))
    return packages, next(entry["pip"] for entry in entries if isinstance(entry, dict))


def direct() -> list[Requirement]:
    requirements = [Requirement(text) for text in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"]]
    return [r for r in requirements if r.marker is None or r.marker.evaluate(CONDA_PYTHON)]


@pytest.mark.parametrize("requirement", direct(), ids=lambda r: r.name)
def test_conda_users_get_the_locked_versions(requirement):
    packages, pip = conda()
    version = locked()[requirement.name]
    if requirement.name in packages:
        assert version.startswith(packages[requirement.name] + ".") or version == packages[requirement.name]
    else:
        assert f"{requirement.name}=={version}" in pip


def test_tensorflow_and_horovod_are_the_same_everywhere():
    packages, _ = conda()
    extras = PROJECT["optional-dependencies"]
    assert extras["cpu"] == ["tensorflow-cpu==2.15.1"]
    assert extras["gpu"] == ["tensorflow[and-cuda]==2.15.1"]
    assert locked()["tensorflow-cpu"] == locked("requirements-gpu.lock")["tensorflow"] == "2.15.1"
    assert packages["tensorflow"] == "2.15"
    assert packages["horovod"].split("=")[0] == Requirement(extras["horovod"][0]).specifier.__str__().strip("=")
    assert "openmpi" in packages


def test_both_locks_and_the_set_up_agree():
    cpu, gpu = locked(), locked("requirements-gpu.lock")
    assert {name: gpu[name] for name in cpu if name != "tensorflow-cpu"}.items() <= cpu.items()
    assert all(name == "tensorflow" or name.startswith("nvidia-") for name in gpu.keys() - cpu.keys())
    assert PROJECT["optional-dependencies"]["horovod"] == [f"horovod=={plan.HOROVOD_VERSION}"]


def on(python: str) -> dict[str, str]:
    """The environment of markers on this Python."""
    return {**CONDA_PYTHON, "python_version": python, "python_full_version": f"{python}.9"}


@pytest.mark.parametrize(
    ("lock", "python"),
    [("requirements.lock", python) for python in ("3.9", "3.10", "3.11")]
    + [("requirements-given.lock", python) for python in ("3.10", "3.11", "3.12")],
)
def test_a_lock_satisfies_the_bounds_on_every_python(lock, python):
    versions, extras = locked(lock, on(python)), PROJECT["optional-dependencies"]
    for text in PROJECT["dependencies"] + extras["test"] + extras["build"]:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate(on(python)):
            assert requirement.specifier.contains(versions[requirement.name]), text


@pytest.mark.parametrize("python", ["3.10", "3.11", "3.12"])
def test_the_lock_for_a_given_tensorflow_is_the_same_without_it(python):
    versions = locked("requirements-given.lock", on(python))
    assert not {"tensorflow", "tensorflow-cpu", "horovod", "keras", "tf-keras"} & versions.keys()
    if python != "3.12":
        assert versions.items() <= locked(environment=on(python)).items()


def test_direct_dependencies_are_bounded_above():
    for requirement in direct():
        assert any(part.operator in ("<", "==", "<=") for part in requirement.specifier), requirement


def test_no_lock_names_a_host():
    for name in ("requirements.lock", "requirements-gpu.lock", "requirements-given.lock"):
        assert "://" not in (ROOT / name).read_text()
