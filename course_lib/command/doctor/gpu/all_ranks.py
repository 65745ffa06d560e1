"""Tests of communication between ranks, one for each GPU. With fewer than two GPUs, two ranks share it, over Gloo.

Each step is a function of the host that yields lines; `runner.STEPS` lists them. `work` has the program of the ranks.
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
RESULT = "result "  # prefix of the JSON that rank 0 prints
TAKEN_MIB = 512  # memory that each rank allocates, to detect its GPU
SMALL_S, LONG_S = 60.0, 90.0  # time limits of a run
SIZES = tuple(4**power for power in range(2, 15))  # bytes: 16 B to 256 MB
BATCH = 128  # per rank
STEPS = {True: 40, False: 6}  # steps of a timed block, with and without GPUs
BARE = {"HOROVOD_CYCLE_TIME": "0.1", "HOROVOD_FUSION_THRESHOLD": "0"}  # as in notebook 4a
SYNC_TOLERANCE = 1e-4


# Variables that disable a transport of NCCL → the cause, if the ranks hang only without the variable.
WORKAROUNDS = {
    "NCCL_P2P_DISABLE": "direct access between GPUs fails; in a virtual machine disable ACS, otherwise the IOMMU",
    "NCCL_SHM_DISABLE": "shared memory fails; start the container with --shm-size 1g",
    "NCCL_IB_DISABLE": "InfiniBand fails; check the devices with `ibstat`, or keep this variable set",
}


class Hung(CourseError):
    """The ranks did not end within the time limit, and were stopped."""


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
    """Run `work.NAME(**arguments)` on ranks; return the result of rank 0.

    Args:
        seconds: time limit.
        env: further environment variables.
        ranks: number of ranks; default: `host.ranks`.
        min_ranks: for an elastic run.

    Raises Hung after the time limit, CourseError if the ranks fail.
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
        ended = f"{who} hung over {host.route}; all its processes were stopped after {seconds:.0f} s"
        raise Hung(f"{ended}; NCCL printed: {warning}." if warning else f"{ended}.")
    if end.code:
        last = next((line.strip() for line in reversed(end.tail) if line.strip()), "")
        why = hint((*end.tail, end.reason)) or warning or end.reason or last
        raise CourseError(f"{who} failed: {end.message} {why}".rstrip(". ") + ".")
    if len(results) != 1:
        raise CourseError(f"{who}: {len(results)} ranks call themselves rank 0; the ranks do not find each other.")
    return results[0]


def run_with_workarounds(
    name: str, host: Host, seconds: float, arguments: Mapping[str, Any], env: Mapping[str, str]
) -> tuple[dict[str, Any], str]:
    """Like `run`; if NCCL hangs, run again with each of WORKAROUNDS.

    Return the result, and "" or a sentence on the workaround that helped. Raises the same exceptions as `run`.
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
            return result, f"NCCL hangs, but not with {variable}=1: {reason}."
        raise Hung(f"{str(hung).rstrip('.')}; it also hung with each of {', '.join(WORKAROUNDS)} set to 1.") from None


def pinned(host: Host) -> Iterator[Line]:
    """Each rank uses the GPU of its local rank: the driver reports allocated memory on each GPU."""
    title = "One GPU for each rank"
    if host.shared:
        yield untested(title, _why_shared(host))
        return
    before = memory_used()
    used = run("pinned", host, SMALL_S, {"megabytes": TAKEN_MIB})["used"]
    taken = [after - mib for mib, after in zip(before, used)]
    if not taken:
        yield untested(title, "The driver does not report how much GPU memory is in use.")
        return
    gpus = sum(mib >= TAKEN_MIB for mib in taken)
    yield tested(
        title,
        gpus >= host.visible,
        f"{host.visible} ranks take memory on {gpus} GPUs.",
        f"{host.visible} ranks take memory on {gpus} of {host.visible} GPUs, so some share a GPU: please report it.",
        **{f"GPU {number} MiB": mib for number, mib in enumerate(taken)},
    )


def all_reduce(host: Host) -> Iterator[Line]:
    """All-reduces from bytes to hundreds of megabytes: right sums, latency, bus bandwidth."""
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
        f"{ranks} ranks on {host.devices} get wrong sums: please report it with the output of `nvidia-smi topo -m`.",
        **{"alpha s": link.alpha, "beta s/B": link.beta, "bus bandwidth B/s": float(bus.max())},
        **{f"{size} B s": float(second) for size, second in zip(sizes, seconds)},
    )
    if host.shared:
        yield untested("All-reduce over NCCL", _why_shared(host))


def controllers(host: Host) -> Iterator[Line]:
    """`agreement.py` under each controller: after training, the ranks have equal weights, bit for bit."""
    where = "the CPU" if host.shared else host.devices
    for name, controller in diagnosis.CONTROLLERS.items():
        title = f"Equal ranks under {controller}"
        if name not in launch.controllers():
            yield untested(title, f"Horovod was built without {controller}.")
            continue
        problem = diagnosis.disagreement(name, ranks=host.ranks)
        yield tested(title, not problem, f"{host.ranks} ranks on {where} agree bit for bit.", problem)
        if host.visible == 1:
            yield untested(f"{title} on GPUs", _why_shared(host))


def batch_norm(host: Host) -> Iterator[Line]:
    """SyncBatchNormalization on all ranks equals batch norm on all of their images."""
    result = run("batch_norm", host, SMALL_S, {})
    across, own = result["across"], result["own"]
    yield tested(
        "Batch norm across ranks",
        across < SYNC_TOLERANCE < own,
        f"It differs from batch norm on the whole batch by {across:.1g}; batch norm on one rank differs by {own:.2g}.",
        f"It differs from batch norm on the whole batch by {across:.2g}: please report it.",
        **{"difference": across, "a rank's own": own},
    )


def timeline(host: Host) -> Iterator[Line]:
    """Horovod's timeline has the all-reduces of each step, and names their library."""
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
        f"It has {', '.join(kinds) or 'no all-reduces'}, but no {expected}: gradients take the wrong path.",
        **{f"{name} s": float(medians[name]) for name in timelines.PHASES if name in medians},
    )


def scaling(host: Host) -> Iterator[Line]:
    """Images/s of 1, 2, 4 … all ranks, weak and strong scaling; afterwards the weights are equal, bit for bit."""
    whole = BATCH * host.ranks
    rates: dict[int, list[float]] = {}  # number of ranks → with BATCH images per rank, with `whole` images in total
    equal = ""
    for ranks in sorted({1, *(2**k for k in range(1, 8) if 2**k < host.ranks), host.ranks}):
        arguments = {"steps": STEPS[bool(host.visible)], "batches": [BATCH, whole // ranks]}
        result = run("train", host, LONG_S, arguments, ranks=ranks)
        rates[ranks] = result["images/s"]
        if result["difference"] != 0.0:
            difference = f"Afterwards their weights differ by up to {result['difference']:.2g}"
            yield failed(f"Training on {ranks} ranks", f"{difference}: gradients are not averaged.")
        elif ranks == host.ranks:
            equal = " The weights are equal bit for bit."
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
    """After a rank is killed, the others continue from the last commit."""
    if "gloo" not in launch.controllers():
        yield untested("Losing a rank", "Elastic runs need Gloo, and Horovod was built without it.")
        return
    result = run("elastic", host, LONG_S, {"steps": 30, "lose_at": 12}, min_ranks=host.ranks - 1)
    began, ended, steps, w = (result[name] for name in ("began", "ended", "steps", "w"))
    yield tested(
        "Losing a rank",
        (ended, steps, w) == (host.ranks - 1, 30, 30.0),
        f"{began} ranks started, one was killed at step 12, {ended} continued to step {steps}.",
        f"After a rank was killed, {ended} ranks ended at step {steps} with {w:g} updates.",
        **{"ranks at the end": ended, "updates": w},
    )


def _why_shared(host: Host) -> str:
    """A sentence on why communication between GPUs can't be tested here."""
    if host.visible == 1:
        return "This host has one GPU, and NCCL does not accept two ranks on one GPU: tested over Gloo instead."
    return missing(host)
