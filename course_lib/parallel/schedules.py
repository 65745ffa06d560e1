"""Schedules of a pipeline as tables: who computes what in which order, for how long, and how much it has to keep.

A network is cut into k stages and a batch into m micro-batches. A table has a row for each stage, and a row is the list
of its tasks: ("F", i), the forward pass of micro-batch i, and ("B", i), its backward pass; stages and micro-batches
are counted from 0. A stage sends without waiting, and waits for what it needs: stage s can't begin ("F", i) before
stage s − 1 has done it, nor ("B", i) before stage s + 1 has.

GPipe: Huang et al., arXiv:1811.06965. One forward, one backward with a flush: Narayanan et al., arXiv:2006.09503 (there
PipeDream-Flush) and arXiv:2104.04473.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Union

import numpy as np

Task = tuple[str, int]
Table = Sequence[Sequence[Task]]
Seconds = Union[float, Sequence[float]]  # of each stage, or of all alike


class WrongSchedule(ValueError):
    """A table that no pipeline can follow, in one sentence."""


class Deadlock(WrongSchedule):
    """A table in which stages wait for each other for ever: which waits for what."""


@dataclass(frozen=True)
class Span:
    """A task of a stage, from start to end in seconds."""

    stage: int
    kind: str
    micro: int
    start: float
    end: float


@dataclass(frozen=True)
class Run:
    """What came of a table: its tasks, with the times of each."""

    stages: int
    spans: tuple[Span, ...]

    @property
    def seconds(self) -> float:
        """From the first task to the end of the last."""
        return max(span.end for span in self.spans) - min(span.start for span in self.spans)

    @property
    def idle(self) -> float:
        """The bubble: the share of all stages' time in which they compute nothing, from 0 to 1."""
        return 1 - sum(span.end - span.start for span in self.spans) / (self.stages * self.seconds)


def gpipe(stages: int, micro: int) -> list[list[Task]]:
    """All forward passes, then all backward passes, the last micro-batch first."""
    row = [("F", i) for i in range(micro)] + [("B", i) for i in reversed(range(micro))]
    return [list(row) for _ in range(stages)]


def one_forward_one_backward(stages: int, micro: int, lead: int = 1) -> list[list[Task]]:
    """As many forward passes as fill the pipeline, then by turns a forward and a backward pass, then what is left.

    Args:
        lead: how many micro-batches a stage begins ahead of the next one. With 1 stage s keeps at most k − s, with 2
            up to 2 (k − s) − 1, and messages that take time cost less.
    """
    table = []
    for stage in range(stages):
        ahead = min(micro, lead * (stages - stage - 1))
        row = [("F", i) for i in range(ahead)]
        for i in range(ahead, micro):
            row += [("F", i), ("B", i - ahead)]
        table.append(row + [("B", i) for i in range(micro - ahead, micro)])
    return table


def check(table: Table, micro: int) -> None:
    """Pass a table that can be followed.

    Raises:
        WrongSchedule: a task is missing, unknown or there twice, or a backward pass comes before its forward pass.
        Deadlock: stages wait for each other.
    """
    for stage, row in enumerate(table):
        wanted = {(kind, i) for kind in "FB" for i in range(micro)}
        seen: set[Task] = set()
        for task in map(tuple, row):
            if task not in wanted:
                raise WrongSchedule(
                    f'Stage {stage} has the task {task}: with {micro} micro-batches there are ("F", 0) to '
                    f'("F", {micro - 1}) and ("B", 0) to ("B", {micro - 1}).'
                )
            if task in seen:
                raise WrongSchedule(f"Stage {stage} does {name(task)} twice.")
            if task[0] == "B" and ("F", task[1]) not in seen:
                raise WrongSchedule(
                    f"Stage {stage} does {name(task)} before F{task[1]}: a backward pass needs what the forward pass "
                    "has kept."
                )
            seen.add(task)
        if missing := sorted(wanted - seen, key=lambda task: (task[0] == "B", task[1])):
            raise WrongSchedule(f"Stage {stage} never does {name(missing[0])}.")
    run(table)


def run(table: Table, forward: Seconds = 1.0, backward: Seconds = 2.0, message: float = 0.0) -> Run:
    """Let the stages follow a table, each beginning a task as soon as it is free and has what it needs.

    Args:
        forward, backward: seconds of a task, of each stage [k] or of all.
        message: seconds from the end of a task until the neighbour has its result; keeps no stage from computing.

    Raises:
        Deadlock: a stage waits for what is never sent.
    """
    stages = len(table)
    lasts = {"F": np.broadcast_to(forward, stages), "B": np.broadcast_to(backward, stages)}
    done: dict[tuple[int, str, int], float] = {}
    at, free = [0] * stages, [0.0] * stages
    spans: list[Span] = []
    while any(place < len(row) for place, row in zip(at, table)):
        before = len(spans)
        for stage, row in enumerate(table):
            while at[stage] < len(row):
                kind, micro = row[at[stage]]
                needed = needs(stage, (kind, micro), stages)
                if needed and needed not in done:
                    break
                start = max(free[stage], done[needed] + message if needed else 0.0)
                free[stage] = done[stage, kind, micro] = start + float(lasts[kind][stage])
                spans.append(Span(stage, kind, micro, start, free[stage]))
                at[stage] += 1
        if len(spans) == before:
            raise Deadlock(_waits(table, at))
    return Run(stages, tuple(spans))


def needs(stage: int, task: Task, stages: int) -> tuple[int, str, int] | None:
    """(stage, kind, micro) of the task of a neighbour whose result this one waits for; None at the ends."""
    kind, micro = task
    other = stage - 1 if kind == "F" else stage + 1
    return (other, kind, micro) if 0 <= other < stages else None


def kept(table: Table) -> list[int]:
    """The most micro-batches whose activations each stage holds at a time: begun forward, not yet done backward."""
    return [max(holds(row), default=0) for row in table]


def holds(row: Sequence[Task]) -> Iterator[int]:
    """How many micro-batches a stage holds during each of its tasks."""
    held = 0
    for kind, _ in row:
        held += kind == "F"
        yield held
        held -= kind == "B"


def name(task: Task) -> str:
    """F3 for ("F", 3)."""
    return f"{task[0]}{task[1]}"


def _waits(table: Table, at: Sequence[int]) -> str:
    waits = []
    for stage, (row, place) in enumerate(zip(table, at)):
        if place < len(row) and (needed := needs(stage, row[place], len(table))):
            other, kind, micro = needed
            what = "the activations" if kind == "F" else "the gradient"
            waits.append(f"stage {stage} waits for {what} of {name((kind, micro))} from stage {other}")
    more = f", and {len(waits) - 3} more wait" if len(waits) > 3 else ""
    return f"Deadlock: {', '.join(waits[:3])}{more}."
