"""What goes between ranks, one for each GPU. With fewer than two GPUs two ranks share the device, over Gloo.

Each step is a function of the host that yields lines; `runner.STEPS` lists them. What each rank does is in `work`.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from course_lib.command.doctor import diagnosis
from course_lib.command.doctor.gpu.devices import Host, memory_used, missing
from course_lib.command.doctor.gpu.report import Line, failed, passed, tested, untested
from course_lib.cost import allreduce
from course_lib.ranks import launch
from course_lib.ranks import timeline as timelines
from course_lib.ranks.messages.known_errors import hint
from course_lib.system.errors import CourseError

WORK = Path(__file__).with_name("work.py")
RESULT = "result "  # before the JSON that rank 0 prints
TAKEN_MIB = 512  # that each rank takes, to see on which GPU
SMALL_S, LONG_S = 60.0, 90.0
SIZES = tuple(4**power for power in range(2, 15))  # bytes: 16 B to 256 MB
BATCH = 128  # of a rank
STEPS = {True: 40, False: 6}  # of a block that is timed, with GPUs and without
BARE = {"HOROVOD_CYCLE_TIME": "0.1", "HOROVOD_FUSION_THRESHOLD": "0"}  # as 4a measures
SYNC_TOLERANCE = 1e-4


# What NCCL can do without, and what it tells where the ranks hang with it and end without it.
WORKAROUNDS = {
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
    arguments: Mapping[str, Any],
    *,
    env: Mapping[str, str] | None = None,
    ranks: int | None = None,
    min_ranks: int | None = None,
) -> dict[str, Any]:
    """What `work.NAME(**arguments)` returns on rank 0 of `ranks` (default: all).

    Raises Hung where the ranks were not done in `seconds`, CourseError where they failed.
    """
    ranks = ranks or host.ranks
    options = {"timeout": seconds, "env": {"NCCL_DEBUG": "WARN", **(env or {})}}
    options["options"] = launch.Options(min_ranks=min_ranks)
    with launch.start(WORK, [name, json.dumps(arguments)], ranks, **options) as started:
        lines = [event.data["text"] for event in started if event.kind == "output"]
    end = started.wait()
    results = [json.loads(line[len(RESULT) :]) for line in lines if line.startswith(RESULT)]
    who = f"{name.replace('_', '-')} with {ranks} ranks on {host.devices}"
    warning = next((line.strip() for line in reversed(lines) if "NCCL" in line), "")
    if end.code == launch.TIMED_OUT:
        ended = f"{who} hung over {host.route} and was ended after {seconds:.0f} s, with all its processes"
        raise Hung(f"{ended}; NCCL printed: {warning}." if warning else f"{ended}.")
    if end.code:
        last = next((line.strip() for line in reversed(end.tail) if line.strip()), "")
        why = hint((*end.tail, end.reason)) or warning or end.reason or last
        raise CourseError(f"{who} failed: {end.message} {why}".rstrip(". ") + ".")
    if len(results) != 1:
        raise CourseError(f"{who}: {len(results)} ranks take themselves for rank 0; they do not find each other.")
    return results[0]


def run_with_workarounds(
    name: str, host: Host, seconds: float, arguments: Mapping[str, Any], env: Mapping[str, str]
) -> tuple[dict[str, Any], str]:
    """As `run`; where NCCL hangs, once more without each of what it can do without.

    Return the result and "", or the sentence on what NCCL had to do without. Raises as `run`.
    """
    try:
        return run(name, host, seconds, arguments, env=env), ""
    except Hung as hung:
        if host.shared:
            raise
        for variable, reason in WORKAROUNDS.items():
            try:
                result = run(name, host, seconds, arguments, env={**env, variable: "1"})
            except CourseError:
                continue
            return result, f"NCCL hung, and with {variable}=1 it does not: {reason}."
        raise Hung(f"{str(hung).rstrip('.')}; nor did it end with any of {', '.join(WORKAROUNDS)} set.") from None


def pinned(host: Host) -> Iterator[Line]:
    """Each rank keeps the GPU of its local rank: the driver sees memory taken on each."""
    title = "One GPU for each rank"
    if host.shared:
        yield untested(title, _why_shared(host))
        return
    before = memory_used()
    used = run("pinned", host, SMALL_S, {"megabytes": TAKEN_MIB})["used"]
    taken = [after - mib for mib, after in zip(before, used)]
    if not taken:
        yield untested(title, "The driver does not say how much of its GPUs' memory is in use.")
        return
    gpus = sum(mib >= TAKEN_MIB for mib in taken)
    yield tested(
        title,
        gpus >= host.visible,
        f"{host.visible} ranks take memory on {gpus} GPUs.",
        f"{host.visible} ranks take memory on {gpus} of {host.visible} GPUs: several share one; please report it.",
        **{f"GPU {number} MiB": mib for number, mib in enumerate(taken)},
    )


def all_reduce(host: Host) -> Iterator[Line]:
    """All-reduces from bytes to hundreds of megabytes: right, their latency, their bus bandwidth."""
    sizes = np.array(SIZES if host.visible > 1 else SIZES[:-3])
    arguments = {"sizes": sizes.tolist(), "repeats": 10}
    result, workaround = run_with_workarounds("all_reduce", host, SMALL_S, arguments, BARE)
    title, ranks, seconds = f"All-reduce over {host.route}", result["size"], np.array(result["seconds"])
    if workaround:
        yield failed(title, workaround)
    link = allreduce.fit(ranks, sizes, seconds)  # α and β of the ring's formula
    bus = 2 * (ranks - 1) / ranks * sizes / seconds  # as NVIDIA's nccl-tests define it
    yield tested(
        title,
        result["right"],
        f"{ranks} ranks on {host.devices}: {1e6 * seconds[0]:.0f} µs for {sizes[0]} bytes, at most "
        f"{bus.max() / 1e9:.2f} GB/s bus bandwidth; as a ring α = {1e6 * link.alpha:.0f} µs.",
        f"{ranks} ranks on {host.devices} get wrong sums: please report it, with `nvidia-smi topo -m`.",
        **{"alpha s": link.alpha, "beta s/B": link.beta, "bus bandwidth B/s": float(bus.max())},
        **{f"{size} B s": float(second) for size, second in zip(sizes, seconds)},
    )
    if host.shared:
        yield untested("All-reduce over NCCL", _why_shared(host))


def controllers(host: Host) -> Iterator[Line]:
    """The doctor's own probe under each controller: ranks hold the same weights after training, bit by bit."""
    where = "the CPU" if host.shared else host.devices
    for name, controller in diagnosis.CONTROLLERS.items():
        title = f"Equal ranks under {controller}"
        if name not in launch.controllers():
            yield untested(title, f"Horovod was built without {controller}.")
            continue
        problem = diagnosis.disagreement(name, ranks=host.ranks)
        yield tested(title, not problem, f"{host.ranks} ranks on {where} agree, bit by bit.", problem)
        if host.visible == 1:
            yield untested(f"{title} on GPUs", _why_shared(host))


def batch_norm(host: Host) -> Iterator[Line]:
    """SyncBatchNormalization on all ranks is batch norm on all their images."""
    result = run("batch_norm", host, SMALL_S, {})
    across, own = result["across"], result["own"]
    yield tested(
        "Batch norm across ranks",
        across < SYNC_TOLERANCE < own,
        f"It differs from batch norm on the whole batch by {across:.1g}; a rank's own by {own:.2g}.",
        f"It differs from batch norm on the whole batch by {across:.2g}: please report it.",
        **{"difference": across, "a rank's own": own},
    )


def timeline(host: Host) -> Iterator[Line]:
    """Horovod's timeline has each step's all-reduces, and says over what they went."""
    with tempfile.TemporaryDirectory(prefix="course-") as folder:
        path = Path(folder) / "timeline.json"
        run("train", host, SMALL_S, {"steps": 5, "batches": [BATCH]}, env={"HOROVOD_TIMELINE": str(path)})
        table = timelines.read(path)
    kinds = sorted({name for name in table["activity"] if name.endswith("_ALLREDUCE") and not name.startswith("NEG")})
    phases = timelines.phases(table)
    by_mpi = host.shared and launch.controllers()[0] == "mpi"
    expected = f"{'MPI' if by_mpi else host.route.upper()}_ALLREDUCE"
    medians = phases.groupby("activity")["seconds"].median()
    yield tested(
        "Timeline",
        expected in kinds and "reduce" in medians,
        f"It has {len(phases)} phases of {phases['tensor'].nunique()} tensors, over {', '.join(kinds)}.",
        f"It has {', '.join(kinds) or 'no all-reduces'}, and no {expected}: gradients do not go the way they should.",
        **{f"{name} s": float(medians[name]) for name in timelines.PHASES if name in medians},
    )


def scaling(host: Host) -> Iterator[Line]:
    """Images/s of 1, 2, 4 … all ranks, weak and strong; their weights are equal afterwards, bit by bit."""
    whole = BATCH * host.ranks
    rates: dict[int, list[float]] = {}  # by number of ranks: with BATCH images a rank, with `whole` in all
    equal = ""
    for ranks in sorted({1, *(2**k for k in range(1, 8) if 2**k < host.ranks), host.ranks}):
        arguments = {"steps": STEPS[bool(host.visible)], "batches": [BATCH, whole // ranks]}
        result = run("train", host, LONG_S, arguments, ranks=ranks)
        rates[ranks] = result["images/s"]
        if result["difference"] != 0.0:
            difference = f"Afterwards their weights differ by up to {result['difference']:.2g}"
            yield failed(f"Training on {ranks} ranks", f"{difference}: gradients are not averaged.")
        elif ranks == host.ranks:
            equal = " Equal weights, bit by bit."
    for place, title in enumerate((f"{BATCH} images a rank", f"{whole} images in all")):
        by_ranks = ", ".join(f"{ranks}: {rate[place]:,.0f}" for ranks, rate in rates.items())
        efficiency = rates[host.ranks][place] / rates[1][place] / host.ranks
        yield passed(
            f"Scaling, {title}",
            f"Images/s by ranks on {host.devices}: {by_ranks}; efficiency {efficiency:.0%}.{equal}",
            **{f"{ranks} ranks images/s": rate[place] for ranks, rate in rates.items()},
            efficiency=efficiency,
        )
    if host.shared:
        yield untested("Scaling over GPUs", _why_shared(host))


def elastic(host: Host) -> Iterator[Line]:
    """A rank is killed; the others go on from the last commit."""
    if "gloo" not in launch.controllers():
        yield untested("Losing a rank", "Elastic runs need Gloo, and Horovod was built without it.")
        return
    result = run("elastic", host, LONG_S, {"steps": 30, "lose_at": 12}, min_ranks=host.ranks - 1)
    began, ended, steps, w = (result[name] for name in ("began", "ended", "steps", "w"))
    yield tested(
        "Losing a rank",
        (ended, steps, w) == (host.ranks - 1, 30, 30.0),
        f"{began} ranks began, one was killed at step 12, {ended} went on to step {steps}.",
        f"After a rank was killed {ended} ranks ended at step {steps} with {w:g} updates.",
        **{"ranks at the end": ended, "updates": w},
    )


def _why_shared(host: Host) -> str:
    """Why nothing goes between GPUs here."""
    if host.visible == 1:
        return "This host has one GPU: nothing goes between GPUs, and NCCL refuses two ranks on one; tested over Gloo."
    return missing(host)
