"""Start an elastic run, kill one of its ranks, and measure what follows. The script that trains is `../elastic.py`.

run = lose_a_rank("elastic.py", loop, kill=1, at=35)
run.steps, run.lost, run.noticed, run.went_on
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
import pandas as pd

from course_lib.ranks import launch
from course_lib.ranks.launch import Event, Result


@dataclass(frozen=True, eq=False)
class ElasticRun:
    """An elastic run by its events. Ranks are named by the number that they started with; seconds since the start.

    steps: one row for each step of each rank: rank, step (the first is 1), time, size (how many ranks there were).
    commits: one row for each commit of each rank: rank, step, time.
    killed: when the rank was killed; None where none was.
    noticed: seconds from the kill until the first of the others noticed; None where nobody did.
    went_on: seconds from the kill until the first step of those that were left; None where there was none.
    lost: steps that were done and had to be done again.
    result: how the run ended.
    """

    steps: pd.DataFrame
    commits: pd.DataFrame
    killed: float | None
    noticed: float | None
    went_on: float | None
    lost: int
    result: Result


def lose_a_rank(
    script: str | Path,
    loop: Callable,
    args: Sequence[object] = (),
    *,
    ranks: int = 3,
    min_ranks: int = 2,
    kill: int | None = 1,
    at: int = 35,
    delay: float = 0.0,
    timeout: float = 120,
    env: Mapping[str, str] | None = None,
    follow: Callable[[Event], None] = lambda event: None,
) -> ElasticRun:
    """Run `script` with the pickled `loop` and `args`, and SIGKILL rank `kill` (None: nobody) after its step `at`.

    Args:
        script: tells its `start` (with its process), `step`, `commit` and `noticed`, as labs/lab2_horovod/elastic.py.
        delay: seconds between the end of step `at` and the kill.
        follow: is called with each event.

    Raises CourseError where Horovod has no Gloo.
    """
    events, processes, killed = [], {}, None
    with tempfile.TemporaryDirectory(prefix="course-") as folder:
        path = Path(folder) / "loop.pkl"
        path.write_bytes(cloudpickle.dumps(loop))
        options = launch.Options(min_ranks=min_ranks, cwd=folder)
        with launch.start(script, [path, *args], ranks, timeout=timeout, env=env, options=options) as run:
            for event in run:
                events.append(event)
                follow(event)
                if event.kind == "start":
                    processes[event.rank] = event.data["process"]
                if killed is None and event.kind == "step" and (event.rank, event.data["step"]) == (kill, at):
                    time.sleep(delay)
                    killed = time.time()
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(processes[kill], signal.SIGKILL)
            result = run.wait()
    return _measured(events, None if killed is None else killed - run.started, result)


def _measured(events: Sequence[Event], killed: float | None, result: Result) -> ElasticRun:
    def rows(kind: str, *columns: str) -> pd.DataFrame:
        found = [{"rank": e.rank, "time": e.time, **{c: e.data[c] for c in columns}} for e in events if e.kind == kind]
        return pd.DataFrame(found, columns=["rank", "time", *columns]).sort_values("time", ignore_index=True)

    steps = rows("step", "step", "size")
    noticed = went_on = None
    lost = 0
    if killed is not None:
        noticed = _since(killed, [e.time for e in events if e.kind == "noticed"])
        fewer = steps[steps["size"] < steps["size"].max()]
        went_on = _since(killed, fewer["time"])
        if len(fewer):
            before = steps[steps["size"] == steps["size"].max()]
            lost = int(before["step"].max() - fewer["step"].min() + 1)
    return ElasticRun(steps, rows("commit", "step"), killed, noticed, went_on, lost, result)


def _since(moment: float, times: Sequence[float]) -> float | None:
    later = [when for when in times if when > moment]
    return min(later) - moment if later else None
