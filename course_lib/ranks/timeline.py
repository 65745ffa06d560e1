"""Horovod's timeline: what rank 0 writes where `HOROVOD_TIMELINE` names a file, as a table.

The file is a Chrome trace (Horovod's docs/timeline.rst): a row for each tensor, and in it nested activities. Of an
all-reduce comes first NEGOTIATE_ALLREDUCE, from the first rank that has the tensor to the last one; then ALLREDUCE
and in it MEMCPY_IN_FUSION_BUFFER, the exchange (GLOO_ALLREDUCE, MPI_ALLREDUCE, NCCL_ALLREDUCE) and
MEMCPY_OUT_FUSION_BUFFER, the copies only where several tensors travel together. A mark of no length, named by a
rank's number, tells when that rank had the tensor; for what is in the response cache there are no such marks.
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
    """The events of a trace file, as they stand in it. A file cut short is read as far as it goes."""
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
    """The activities of a trace file in the order in which they began: tensor, activity, start, seconds.

    `start` counts from the first one; `seconds` is NaN where the file ends before the activity does.
    Raises CourseError where the file is missing or has none: the run that writes it failed before.
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
    """What became of each tensor in each of its all-reduces: tensor, step, activity, start, seconds.

    Args:
        table: as `read` gives it.

    The activities are PHASES. "queue" is from the end of the negotiation to the first copy or exchange: the tensor
    waits until those before it are through. Sorted by activity, then by start; `step` counts from 0 for each tensor.
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
    """When each rank had each tensor: tensor, step, rank, start. Only of what was not in the response cache.

    Args:
        table: as `read` gives it.
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
    """`rows` with the number of the negotiation of their tensor that they follow, less those that follow none."""
    starts = {tensor: np.sort(times) for tensor, times in begun.groupby("tensor")["start"]}
    step = [np.searchsorted(starts.get(t, ()), s, side="right") - 1 for t, s in zip(rows["tensor"], rows["start"])]
    rows = rows.assign(step=np.array(step, int))
    return rows.loc[rows["step"] >= 0]
