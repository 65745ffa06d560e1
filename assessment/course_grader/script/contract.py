"""The assessment's contract: targets, limits and points, read from assessment/contract.toml."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from course_grader.script import criteria
from course_lib.ranks import launch
from course_lib.system import variables
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONTRACT = ROOT / "assessment" / "contract.toml"


@dataclass(frozen=True)
class Profile:
    """The targets and limits on one kind of host.

    Attributes:
        seconds: time limit of the run on all ranks, before calibration.
        train_accuracy, test_accuracy: targets, from 0 to 1.
        patience: seconds without a training step after which the ranks count as deadlocked.
        ranks: number of ranks; None: one for each GPU of the host.
        images: number of training images; None: all.
        batch: smallest global batch size, on average over the updates; None: any.
        updates: largest number of updates; None: any.
    """

    name: str
    seconds: float
    train_accuracy: float
    test_accuracy: float
    patience: float
    ranks: int | None = None
    images: int | None = None
    batch: int | None = None
    updates: int | None = None

    def __post_init__(self) -> None:
        if (self.batch is None) != (self.updates is None):
            raise ValueError(f"profiles.{self.name} must have both batch and updates, or neither")


@dataclass(frozen=True)
class Limits:
    """Limits of the sandbox: GB of memory and number of processes for each rank, MB of files, MB of output.

    If the ranks train on GPUs, `gpu_memory` replaces `memory`.
    """

    memory: float
    processes: int
    disk: int
    output: int
    gpu_memory: float = 24.0


@dataclass(frozen=True)
class Contract:
    """The contents of contract.toml.

    Attributes:
        max_script_kb: largest size of a script, in KB.
        required: ids of the criteria that a script must meet to pass.
        tolerance: share of the time limit by which a run may exceed it.
        images_per_second: speed of the reference network on the machine on which the limits were set.
        points: id of each criterion → points.
    """

    data: str
    pass_points: float
    required: tuple[str, ...]
    tolerance: float
    max_script_kb: int
    limits: Limits
    images_per_second: float
    profiles: Mapping[str, Profile]
    points: Mapping[str, float]

    def profile(self, name: str | None = None) -> Profile:
        """The named profile; without a name that of COURSE_PROFILE, else `gpu` on a host with GPUs, else `cpu`.

        Raises CourseError (code 2) for an unknown name.
        """
        name = name or os.environ.get(variables.PROFILE) or ("gpu" if launch.visible_gpus() else "cpu")
        if name not in self.profiles:
            raise CourseError(f"There is no profile {name!r}: the contract has {', '.join(self.profiles)}.", code=2)
        return self.profiles[name]


def read(path: Path = CONTRACT) -> Contract:
    """Read and check a contract. Raises CourseError (code 2) with the file and the error in it."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CourseError(f"The contract {path} cannot be read: {error}.", code=2) from None
    try:
        profiles = {name: _build(Profile, f"profiles.{name}", {"name": name, **entry})
                    for name, entry in table.pop("profiles").items()}  # fmt: skip
        limits = _build(Limits, "limits", table.pop("limits"))
        table.update(max_script_kb=table.pop("script")["largest"], **table.pop("calibration"))
        contract = _build(Contract, "the top", {**table, "profiles": profiles, "limits": limits})
    except KeyError as missing:
        raise CourseError(f"The contract {path} lacks {missing.args[0]!r}: add it.", code=2) from None
    except (TypeError, ValueError, AttributeError) as problem:
        raise CourseError(f"The contract {path} is wrong: {problem}.", code=2) from None
    if tuple(contract.points) != criteria.IDS:
        raise CourseError(f"The contract {path} must give points to {', '.join(criteria.IDS)}, in this order.", code=2)
    if unknown := set(contract.required) - set(criteria.IDS):
        raise CourseError(f"The contract {path} requires {min(unknown)!r}, which is not a criterion.", code=2)
    if not 0 < contract.pass_points <= sum(contract.points.values()):
        raise CourseError(
            f"The contract {path} has pass_points = {contract.pass_points:g}, but all criteria together give "
            f"{sum(contract.points.values()):g} points.",
            code=2,
        )
    return contract


def _build(kind: type, where: str, entries: Mapping[str, Any]) -> Any:
    known = [field.name for field in fields(kind)]
    for name in entries:
        if name not in known:
            raise ValueError(f"{name!r} in {where} is unknown")
    for name, value in entries.items():
        if isinstance(value, (int, float)) and not value > 0:
            raise ValueError(f"{name} in {where} is {value}; it must be above 0")
        if isinstance(value, Mapping) and name == "points" and any(not points > 0 for points in value.values()):
            raise ValueError("every criterion needs points above 0")
    missing = [field.name for field in fields(kind) if field.name not in entries and field.default is not None]
    if missing:
        raise KeyError(missing[0])
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in entries.items()})
