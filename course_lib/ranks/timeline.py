"""Read Horovod's timeline, which rank 0 writes if `HOROVOD_TIMELINE` names a file.

The file is a Chrome trace (Horovod's docs/timeline.rst): one row for each tensor, with nested activities. An all-reduce
starts with NEGOTIATE_ALLREDUCE, from the first rank that has the tensor to the last one. Then follows ALLREDUCE, which
includes MEMCPY_IN_FUSION_BUFFER, the exchange (GLOO_ALLREDUCE, MPI_ALLREDUCE, NCCL_ALLREDUCE) and
MEMCPY_OUT_FUSION_BUFFER; the copies only if several tensors are fused. An event of zero length, named by a rank's
number, is the time when that rank had the tensor; for tensors in the response cache there are no such events.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from course_lib.system.errors import CourseError

PHASES = ("negotiate", "queue", "copy in", "reduce", "copy out")


def events(path: str | Path) -> Iterator[dict]:
    """The events of a trace file, in the file's order. A truncated file is read up to its end."""
    decoder = json.JSONDecoder()
    for line in Path(path).read_text(errors="replace").splitlines():
        position = 0
        while (position := line.find("{", position)) >= 0:
            try:
                event, position = decoder.raw_decode(line, position)
            except ValueError:
                break
            yield event


def read(path: str | Path) -> pd.DataFrame:
    """Read the activities of a trace file, sorted by start.

    Returns:
        A table with the columns tensor, activity, start (seconds from the first activity) and seconds (NaN if the file
        ends before the activity).

    Raises CourseError if the file is missing or has no activities, because the run failed before.
    """
    names: dict[int | None, str] = {}
    rows: list[list] = []
    unfinished: dict[int | None, list[list]] = {}
    for event in events(path) if Path(path).is_file() else ():
        kind, row = event.get("ph"), event.get("pid")
        if kind == "M" and "name" in event.get("args", {}):
            names[row] = event["args"]["name"]
        elif kind in ("B", "X"):
            rows.append([names.get(row, "?"), str(event.get("name", "?")), _seconds(event), 0.0])
            if kind == "B":
                rows[-1][3] = np.nan
                unfinished.setdefault(row, []).append(rows[-1])
        elif kind == "E" and unfinished.get(row):
            begun = unfinished[row].pop()
            begun[3] = _seconds(event) - begun[2]
    if not rows:
        raise CourseError(
            f"There is no timeline in {Path(path).name}: the run that writes it failed, or has not begun."
        )
    table = pd.DataFrame(rows, columns=["tensor", "activity", "start", "seconds"])
    table = table.astype({"start": float, "seconds": float}).sort_values("start", kind="stable", ignore_index=True)
    table["start"] -= table["start"].min()
    return table


def phases(table: pd.DataFrame) -> pd.DataFrame:
    """The phases of each all-reduce of each tensor.

    Args:
        table: from `read`.

    Returns:
        A table with the columns tensor, step (counted from 0 for each tensor), activity (one of PHASES), start and
        seconds, sorted by activity, then start. "queue" is from the end of the negotiation to the first copy or
        exchange, in which the tensor waits for earlier ones.
    """
    begun = table[table["activity"] == "NEGOTIATE_ALLREDUCE"].dropna()
    parts = [_part(begun, "negotiate")]
    kinds = {
        "copy in": table["activity"] == "MEMCPY_IN_FUSION_BUFFER",
        "reduce": table["activity"].str.fullmatch(r"[A-Z]+_ALLREDUCE") & ~table["activity"].str.startswith("NEG"),
        "copy out": table["activity"] == "MEMCPY_OUT_FUSION_BUFFER",
    }
    for name, chosen in kinds.items():
        parts.append(_part(table[chosen].dropna(), name))
    parts = [_steps(part, begun) for part in parts]
    reduced = parts[2].groupby(["tensor", "step"])["start"].min()
    moved = pd.concat(parts[1:3]).groupby(["tensor", "step"])["start"].min()
    waited = parts[0].set_index(["tensor", "step"])
    ready = (waited["start"] + waited["seconds"]).reindex(reduced.index)
    queue = pd.DataFrame({"activity": "queue", "start": ready, "seconds": (moved - ready).clip(lower=0)}).dropna()
    everything = pd.concat([parts[0], queue.reset_index(), *parts[1:]], ignore_index=True)
    rank = everything["activity"].map(PHASES.index)
    return everything.iloc[np.lexsort((everything["start"], rank))].reset_index(drop=True)


def arrivals(table: pd.DataFrame) -> pd.DataFrame:
    """The time at which each rank had each tensor, for tensors that were not in the response cache.

    Args:
        table: from `read`.

    Returns:
        A table with the columns tensor, step, rank and start (seconds).
    """
    begun = table[table["activity"] == "NEGOTIATE_ALLREDUCE"]
    marks = table[table["activity"].str.isdigit() & table["tensor"].isin(begun["tensor"])]
    marks = _steps(_part(marks, "ready").assign(rank=marks["activity"].astype(int)), begun)
    return marks[["tensor", "step", "rank", "start"]].reset_index(drop=True)


def _seconds(event: dict) -> float:
    return event["ts"] / 1e6 if isinstance(event.get("ts"), (int, float)) else np.nan


def _part(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    return rows[["tensor", "start", "seconds"]].assign(activity=name)


def _steps(rows: pd.DataFrame, begun: pd.DataFrame) -> pd.DataFrame:
    """Add to `rows` the number of the last negotiation of their tensor; drop rows before the first negotiation."""
    starts = {tensor: np.sort(times) for tensor, times in begun.groupby("tensor")["start"]}
    step = [np.searchsorted(starts.get(t, ()), s, side="right") - 1 for t, s in zip(rows["tensor"], rows["start"])]
    rows = rows.assign(step=np.array(step, int))
    return rows.loc[rows["step"] >= 0]
