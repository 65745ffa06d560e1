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
    """What is asked on one kind of host.

    Attributes:
        seconds: the time limit of the run on all ranks, before calibration.
        train_accuracy, test_accuracy: the targets, from 0 to 1.
        patience: seconds without a training step after which the ranks count as deadlocked.
        ranks: how many; None: one for each GPU of the host.
        images: trains on the first so many only; None: on all.
        batch: images that an update must have at least, over all ranks and on average; None: any.
        updates: that the training may make at most; None: any number.
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
    """What the sandbox allows: GB of memory and number of processes for each rank, MB of files, MB of output.

    `gpu_memory` takes the place of `memory` where the ranks train on GPUs.
    """

    memory: float
    processes: int
    disk: int
    output: int
    gpu_memory: float = 24.0


@dataclass(frozen=True)
class Contract:
    """The whole of contract.toml.

    Attributes:
        largest: KB that a script may have.
        required: ids of the criteria without which nobody passes.
        tolerance: the part of the time limit by which it may be exceeded.
        images_per_second: of the reference network on the machine on which the limits were set.
        points: id of each criterion → points.
    """

    data: str
    pass_points: float
    required: tuple[str, ...]
    tolerance: float
    largest: int
    limits: Limits
    images_per_second: float
    profiles: Mapping[str, Profile]
    points: Mapping[str, float]

    def profile(self, name: str | None = None) -> Profile:
        """The named profile; without a name that of COURSE_PROFILE, else `gpu` where there are GPUs, else `cpu`.

        Raises CourseError (code 2) for an unknown name.
        """
        name = name or os.environ.get(variables.PROFILE) or ("gpu" if launch.visible_gpus() else "cpu")
        if name not in self.profiles:
            raise CourseError(f"There is no profile {name!r}: the contract has {', '.join(self.profiles)}.", code=2)
        return self.profiles[name]


def read(path: Path = CONTRACT) -> Contract:
    """Read and check a contract. CourseError (code 2) names the file and what is wrong in it."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CourseError(f"The contract {path} cannot be read: {error}.", code=2) from None
    try:
        profiles = {name: _made(Profile, f"profiles.{name}", {"name": name, **entry})
                    for name, entry in table.pop("profiles").items()}  # fmt: skip
        limits = _made(Limits, "limits", table.pop("limits"))
        table.update(largest=table.pop("script")["largest"], **table.pop("calibration"))
        contract = _made(Contract, "the top", {**table, "profiles": profiles, "limits": limits})
    except KeyError as missing:
        raise CourseError(f"The contract {path} lacks {missing.args[0]!r}: add it.", code=2) from None
    except (TypeError, ValueError, AttributeError) as problem:
        raise CourseError(f"The contract {path} is not right: {problem}.", code=2) from None
    if tuple(contract.points) != criteria.IDS:
        raise CourseError(f"The contract {path} must give points to {', '.join(criteria.IDS)}, in this order.", code=2)
    if unknown := set(contract.required) - set(criteria.IDS):
        raise CourseError(f"The contract {path} requires {min(unknown)!r}, which is no criterion.", code=2)
    if not 0 < contract.pass_points <= sum(contract.points.values()):
        raise CourseError(f"The contract {path} passes at {contract.pass_points:g} points, of which there are "
                          f"{sum(contract.points.values()):g}.", code=2)  # fmt: skip
    return contract


def _made(kind: type, where: str, entries: Mapping[str, Any]) -> Any:
    known = [field.name for field in fields(kind)]
    for name in entries:
        if name not in known:
            raise ValueError(f"{name!r} in {where} is not known")
    for name, value in entries.items():
        if isinstance(value, (int, float)) and not value > 0:
            raise ValueError(f"{name} in {where} is {value}; it must be above 0")
        if isinstance(value, Mapping) and name == "points" and any(not points > 0 for points in value.values()):
            raise ValueError("every criterion needs points above 0")
    lacking = [field.name for field in fields(kind) if field.name not in entries and field.default is not None]
    if lacking:
        raise KeyError(lacking[0])
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in entries.items()})
