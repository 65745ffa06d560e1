"""Pipeline schedules as tables: the order of the tasks of each stage, their times, and the stored activations.

A network is cut into k stages and a batch into m micro-batches. A table has one row for each stage; a row is the list
of its tasks: ("F", i), the forward pass of micro-batch i, and ("B", i), its backward pass. Stages and micro-batches
are counted from 0. A stage sends its results without waiting, and waits for its inputs: stage s can start ("F", i)
only after stage s − 1 has finished it, and ("B", i) only after stage s + 1 has finished it.

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
Seconds = Union[float, Sequence[float]]  # one number for all stages, or one for each


class WrongSchedule(ValueError):
    """The table is not a valid schedule; the message is one sentence."""


class Deadlock(WrongSchedule):
    """The stages wait for each other; the message says which stage waits for what."""


@dataclass(frozen=True)
class Span:
    """A task of a stage, with its start and end in seconds."""

    stage: int
    kind: str
    micro: int
    start: float
    end: float


@dataclass(frozen=True)
class Run:
    """The execution of a table: all tasks with their times."""

    stages: int
    spans: tuple[Span, ...]

    @property
    def seconds(self) -> float:
        """Seconds from the start of the first task to the end of the last."""
        return max(span.end for span in self.spans) - min(span.start for span in self.spans)

    @property
    def idle(self) -> float:
        """The bubble: the fraction of the stages' time in which they are idle, from 0 to 1."""
        return 1 - sum(span.end - span.start for span in self.spans) / (self.stages * self.seconds)


def gpipe(stages: int, micro: int) -> list[list[Task]]:
    """GPipe: all forward passes, then all backward passes, starting with the last micro-batch."""
    row = [("F", i) for i in range(micro)] + [("B", i) for i in reversed(range(micro))]
    return [list(row) for _ in range(stages)]


def one_forward_one_backward(stages: int, micro: int, lead: int = 1) -> list[list[Task]]:
    """1F1B: forward passes until the pipeline is full, then alternately one forward and one backward pass.

    Args:
        lead: number of micro-batches that a stage starts ahead of the next stage. With 1, stage s stores the
            activations of at most k − s micro-batches; with 2, of at most 2 (k − s) − 1, and slow messages cost less.
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
    """Check that a table is a valid schedule for `micro` micro-batches.

    Raises:
        WrongSchedule: a task is missing, unknown or repeated, or a backward pass comes before its forward pass.
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
    """Simulate a table: each stage starts a task as soon as it is free and has the task's input.

    Args:
        forward, backward: seconds of a task, one number or one for each stage [k].
        message: seconds from the end of a task until the neighbour has its result; the stage computes meanwhile.

    Raises:
        Deadlock: a stage waits for a message that is never sent.
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
            raise Deadlock(_deadlock_message(table, at))
    return Run(stages, tuple(spans))


def needs(stage: int, task: Task, stages: int) -> tuple[int, str, int] | None:
    """(stage, kind, micro) of the neighbour's task whose result this task needs; None at the ends of the pipeline."""
    kind, micro = task
    other = stage - 1 if kind == "F" else stage + 1
    return (other, kind, micro) if 0 <= other < stages else None


def kept(table: Table) -> list[int]:
    """The maximum number of micro-batches whose activations each stage stores at the same time."""
    return [max(holds(row), default=0) for row in table]


def holds(row: Sequence[Task]) -> Iterator[int]:
    """The number of micro-batches whose activations a stage stores, during each of its tasks."""
    held = 0
    for kind, _ in row:
        held += kind == "F"
        yield held
        held -= kind == "B"


def name(task: Task) -> str:
    """A short name of a task: F3 for ("F", 3)."""
    return f"{task[0]}{task[1]}"


def _deadlock_message(table: Table, at: Sequence[int]) -> str:
    waits = []
    for stage, (row, place) in enumerate(zip(table, at)):
        if place < len(row) and (needed := needs(stage, row[place], len(table))):
            other, kind, micro = needed
            what = "the activations" if kind == "F" else "the gradient"
            waits.append(f"stage {stage} waits for {what} of {name((kind, micro))} from stage {other}")
    more = f", and {len(waits) - 3} more wait" if len(waits) > 3 else ""
    return f"Deadlock: {', '.join(waits[:3])}{more}."
