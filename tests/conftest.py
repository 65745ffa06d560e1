"""Fixtures that several test files share, and what `course test` adds to pytest: order of groups, durations."""

from __future__ import annotations

import csv
import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from course_lib.ranks import launch
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

DURATIONS = ROOT / "docs" / "ci.csv"
ONE_AT_A_TIME = ("tests/browser/", "tests/containers/", "tests/slurm/")
BY_NOTEBOOK = ("tests/notebooks/test_pipeline.py", "tests/labs/test_mistakes.py", "tests/labs/test_odd_answers.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--durations-table", type=Path, help="add the seconds that each group of tests took to this CSV")
    parser.addoption("--long-part", metavar="K/N", help="of the tests marked long, the K-th of N parts; default: all")


def pytest_configure() -> None:
    """Give what tests start the default of each signal, also where this process ignores some, as under `nohup … &`.

    A handler that does nothing ignores a signal as well, and no child inherits it.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Let tests that share fixtures share a worker, and start with the groups that took longest."""
    from xdist.scheduler import LoadScopeScheduling

    class LoadGroupScheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    config.option.loadscopereorder = False  # the order is that of the workers' items
    return LoadGroupScheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the other parts of the long tests; give workers the longest groups first."""
    if part := config.getoption("--long-part"):
        number, parts = map(int, part.split("/"))
        long = [item for item in items if item.get_closest_marker("long")]
        units = sorted({_long_unit(item.nodeid) for item in long})[number - 1 :: parts]
        left_out = [item for item in long if _long_unit(item.nodeid) not in units]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    if hasattr(config, "workerinput"):  # in a worker of xdist
        seconds = _recorded(DURATIONS)
        items.sort(key=lambda item: -seconds.get(_group(item.nodeid), 0))


def _long_unit(nodeid: str) -> str:
    """Long tests that are run together: a file's; of the corpus, one script's."""
    return nodeid if nodeid.startswith("tests/grader/test_corpus.py") else nodeid.partition("::")[0]


def _group(nodeid: str) -> str:
    """Tests that run one after the other: a file's; a notebook's; all that drive a browser, all that run containers."""
    file, _, test = nodeid.partition("::")
    if file.startswith(ONE_AT_A_TIME):
        return file.rpartition("/")[0]
    notebook = re.search(r"\[\w+", test) if file in BY_NOTEBOOK else None
    return f"{file}{notebook[0]}]" if notebook else file


def _recorded(path: Path) -> dict[str, float]:
    if not path.exists():
        return {}
    with path.open(encoding="utf-8") as file:
        return {row["tests"]: float(row["seconds"]) for row in csv.DictReader(line for line in file if line[0] != "#")}


def pytest_terminal_summary(terminalreporter: object, config: pytest.Config) -> None:
    """Where asked for, write down how long each group took."""
    table = config.getoption("--durations-table")
    if table is None or hasattr(config, "workerinput"):  # xdist's controller has the reports of all workers
        return
    seconds = Counter(_recorded(table))
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[_group(report.nodeid)] += report.duration
    with table.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["tests", "seconds"])
        rows.writerows([name, round(took, 1)] for name, took in seconds.most_common() if took >= 1)


def _built() -> tuple[str, ...]:
    try:
        return launch.controllers()
    except CourseError:
        return ()


@pytest.fixture(params=("gloo", "mpi"))
def controller(request: pytest.FixtureRequest) -> str:
    """Each of Horovod's controllers that was built here."""
    if request.param not in _built():
        pytest.skip(f"Horovod was built without {request.param} here")
    return request.param


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """nvidia_smi(script) puts a shell script in the place of `nvidia-smi`; `$*` has its arguments."""
    path = tmp_path / "driver" / "nvidia-smi"
    path.parent.mkdir()
    monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)

    def write(script: str) -> None:
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    return write


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list:
    """What a notebook would show: one bundle for each display, as it was updated last."""
    from course_grader.display import widgets
    from course_lib.notebook.widgets import live

    outputs: list = []

    class Handle:
        def __init__(self, item: object, raw: bool = False, display_id: object = None) -> None:
            self.place = len(outputs)
            outputs.append(item)

        def update(self, item: object, raw: bool = False) -> None:
            outputs[self.place] = item

    for module in (widgets, live):
        monkeypatch.setattr(module, "display", Handle)
    return outputs
