"""Run a piece of `work` on ranks, and say in a sentence how it ended where it did not end well."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from course_lib.command.doctor.gpu.host import Host
from course_lib.command.doctor.gpu.lines import RESULT
from course_lib.ranks import launch
from course_lib.system.errors import CourseError

WORK = Path(__file__).with_name("work.py")
# What NCCL can do without, and what it tells where the ranks hang with it and end without it.
DETOURS = {
    "NCCL_P2P_DISABLE": "the GPUs cannot reach each other directly; in a virtual machine turn off ACS, else the IOMMU",
    "NCCL_SHM_DISABLE": "the shared memory does not work; start the container with --shm-size 1g",
    "NCCL_IB_DISABLE": "the InfiniBand devices do not work; look at `ibstat`, or leave this set",
}


class Hung(CourseError):
    """Ranks that did not end in their time, and were ended."""


def run(
    name: str,
    host: Host,
    seconds: float,
    *,
    ranks: int | None = None,
    env: Mapping[str, str] | None = None,
    min_ranks: int | None = None,
    script: Path = WORK,
    **arguments: Any,
) -> dict[str, Any]:
    """What `work.NAME(**arguments)` returns on rank 0 of `ranks` (default: all).

    Raises Hung where the ranks were not done in `seconds`, CourseError where they failed.
    """
    ranks = ranks or host.ranks
    told = {"NCCL_DEBUG": "WARN", **(env or {})}
    options = {"min_ranks": min_ranks, "timeout": seconds, "env": told}
    with launch.start(script, [name, json.dumps(arguments)], ranks, **options) as started:
        lines = [event.data["text"] for event in started if event.kind == "output"]
    result = started.wait()
    found = [json.loads(line[len(RESULT) :]) for line in lines if line.startswith(RESULT)]
    who = f"{name.replace('_', '-')} with {ranks} ranks on {host.devices}"
    words = next((line.strip() for line in reversed(lines) if "NCCL" in line), "")
    said = f"; NCCL said: {words}" if words else ""
    if result.code == launch.TIMED_OUT:
        raise Hung(f"{who} hung over {host.route} and was ended after {seconds:.0f} s, with all its processes{said}.")
    if result.code:
        last = words or result.reason or next((line.strip() for line in reversed(result.tail) if line.strip()), "")
        raise CourseError(f"{who} failed: {result.message} {last}".rstrip(". ") + ".")
    if len(found) != 1:
        raise CourseError(f"{who}: {len(found)} of the ranks take themselves for rank 0; they do not find each other.")
    return found[0]


def with_detours(
    name: str, host: Host, seconds: float, env: Mapping[str, str], **arguments: Any
) -> tuple[dict[str, Any], str]:
    """As `run`; where NCCL hangs, once more without each of what it can do without.

    Return what came out and "", or the sentence on what NCCL had to be told. Raises as `run`.
    """
    try:
        return run(name, host, seconds, env=env, **arguments), ""
    except Hung as hung:
        if host.shared:
            raise
        for variable, reason in DETOURS.items():
            try:
                found = run(name, host, seconds, env={**env, variable: "1"}, **arguments)
            except CourseError:
                continue
            return found, f"NCCL hung, and with {variable}=1 it does not: {reason}."
        raise Hung(f"{str(hung).rstrip('.')}; nor did it end with any of {', '.join(DETOURS)} set.") from None
