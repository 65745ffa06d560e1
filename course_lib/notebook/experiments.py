"""Run the experiments of the labs by name, and write their results into the lab's folder `recorded`.

An experiment is a file `labs/<lab>/experiments/<lesson>_<name>.py`, such as `3e_shoot_out.py`. The first line of its
docstring is its title. Its `main()` returns a `Recording`, which is written as `<name>.csv` and `<name>.png`.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import runpy
import subprocess
import tempfile
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Union

from course_lib.ranks import environment
from course_lib.system import files
from course_lib.system.cores import available_cores
from course_lib.system.errors import CourseError, last_line
from course_lib.system.paths import ROOT

if TYPE_CHECKING:
    import pandas as pd

    from course_lib.notebook import plots

    Tables = Union[pd.DataFrame, Mapping[str, pd.DataFrame]]
    Figures = Union[plots.Figure, Mapping[str, plots.Figure]]


class Recording:
    """The result of an experiment.

    Attributes:
        tables: one table, or file name without `.csv` → table.
        figures: one figure, or file name without `.png` → figure.
        facts: for the comment lines at the start of a table: data, seeds, and others (settings, hosts, …).
    """

    def __init__(self, tables: Tables, figures: Figures, *, data: str, seeds: str, **facts: object) -> None:
        self.tables, self.figures, self.facts = tables, figures, {"data": data, "seeds": seeds, **facts}

    def write(self, folder: Path, name: str, seconds: float) -> None:
        """Write the tables and figures of experiment `name`, which took `seconds`, into `folder`."""
        facts = {"command": f"course reproduce {name}", **self.facts, "seconds": round(seconds)}
        for stem, table in _by_name(self.tables, name).items():
            write_table(folder / f"{stem}.csv", table, **facts)
        for stem, figure in _by_name(self.figures, name).items():
            figure.savefig(folder / f"{stem}.png", dpi=150)


def _by_name(parts: object, name: str) -> Mapping:
    return parts if isinstance(parts, Mapping) else {name: parts}


def find(root: Path = ROOT) -> dict[str, Path]:
    """All experiments: name → file."""
    return {path.stem.partition("_")[2]: path for path in sorted(root.glob("labs/*/experiments/[0-9]*_*.py"))}


def title(path: Path) -> str:
    """The first line of an experiment's docstring."""
    return path.read_text(encoding="utf-8").split('"""', 2)[1].strip().splitlines()[0]


def provenance(path: Path) -> dict[str, str]:
    """The facts in the comment lines of an experiment's recorded table: command, date, machine, seeds, …

    Empty if there is no such table.
    """
    for table in sorted((path.parent.parent / "recorded").glob("*.csv")):
        facts = dict(re.findall(r"^# (\w+): (.*)$", table.read_text(encoding="utf-8"), re.MULTILINE))
        if facts.get("command", "").split()[-1:] == [path.stem.partition("_")[2]]:
            return facts
    return {}


def listing(root: Path = ROOT) -> str:
    """A text for users: name and title of each experiment, and when and where its tables were recorded."""
    known = find(root)
    width = max(map(len, known), default=0)
    lines = []
    for name, path in known.items():
        facts = provenance(path)
        record = f"recorded {facts['date']} on {facts['machine']}; seeds {facts['seeds']}" if facts else "not recorded"
        lines += [f"{name:<{width}} {title(path)}", f"{'':<{width}} {record}"]
    return "\n".join(lines)


def reproduce(name: str, root: Path = ROOT) -> Path:
    """Run experiment `name`; return the folder with its tables and figures.

    The old files are replaced only when the experiment has ended.

    Raises:
        CourseError: for an unknown name, or if a process of the experiment fails or hangs.
    """
    known = find(root)
    if name not in known:
        raise CourseError(f"There is no experiment '{name}'; there are: {', '.join(known) or 'none'}.")
    folder = known[name].parent.parent / "recorded"
    files.require_place(folder / f"{name}.csv")  # before the experiment, which may take hours
    for variable, value in environment.TENSORFLOW.items():
        os.environ.setdefault(variable, value)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="course-") as draft:
        try:
            recording = runpy.run_path(str(known[name]))["main"]()
        except subprocess.CalledProcessError as error:
            raise CourseError(f"A process of the experiment failed: {last_line(error.stderr, 'no message')}") from None
        except subprocess.TimeoutExpired as error:
            raise CourseError(
                f"A process of the experiment did not finish within {error.timeout:.0f} seconds: stop other programs "
                "on this machine."
            ) from None
        recording.write(Path(draft), name, time.monotonic() - began)
        for made in Path(draft).iterdir():
            files.write(folder / made.name, made.read_bytes())
    return folder


def machine() -> str:
    """A short description of this machine: number of cores and processor."""
    try:
        model = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        model = None
    cores = available_cores()
    return f"{cores} core{'s' * (cores > 1)}, {model.group(1) if model else platform.machine()}"


def write_table(path: Path, table: pd.DataFrame, **provenance: object) -> None:
    """Write `table` as CSV, after comment lines with its provenance.

    Args:
        provenance: at least command, data, seeds and seconds. Date, machine and versions are added.
    """
    facts = {
        **provenance,
        "date": datetime.date.today().isoformat(),
        "machine": machine(),
        "versions": ", ".join(f"{p} {_version(p)}" for p in ("tensorflow-cpu", "tensorflow", "horovod") if _version(p)),
    }
    head = "".join(f"# {name}: {value}\n" for name, value in facts.items())
    files.write(path, (head + table.to_csv(index=False)).encode())


def _version(package: str) -> str:
    try:
        return version(package)
    except ImportError:
        return ""
