"""What goes between ranks, one for each GPU. With fewer than two GPUs two ranks share the device, over Gloo."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from course_lib.command import doctor
from course_lib.command.doctor.gpu import ranked
from course_lib.command.doctor.gpu.host import Host, memory_used, missing
from course_lib.command.doctor.gpu.lines import Line, failed, judged, passed, untested
from course_lib.cost import allreduce
from course_lib.ranks import launch
from course_lib.ranks import timeline as timelines
from course_lib.system.errors import CourseError

TAKEN_MIB = 512  # that each rank takes, to see on which GPU
SMALL_S, LONG_S = 60.0, 90.0
SIZES = tuple(4**power for power in range(2, 15))  # bytes: 16 B to 256 MB
SIZES_OF_CPU = SIZES[:-3]
BATCH = 128  # of a rank
STEPS = {True: 40, False: 6}  # of a block that is timed, with GPUs and without
BARE = {"HOROVOD_CYCLE_TIME": "0.1", "HOROVOD_FUSION_THRESHOLD": "0"}  # as 4a measures
SYNC_TOLERANCE = 1e-4


def pinned(host: Host) -> Iterator[Line]:
    """Each rank keeps the GPU of its local rank: the driver sees memory taken on each."""
    if host.shared:
        yield untested("One GPU for each rank", _between(host))
        return
    before = memory_used()
    found = ranked.run("pinned", host, SMALL_S, megabytes=TAKEN_MIB)
    taken = [after - mib for mib, after in zip(before, found["used"])]
    if not taken:
        yield untested("One GPU for each rank", "The driver does not say how much of its GPUs' memory is in use.")
        return
    used = sum(mib >= TAKEN_MIB for mib in taken)
    yield judged(
        "One GPU for each rank",
        used >= host.visible,
        f"{host.visible} ranks take memory on {used} GPUs.",
        f"{host.visible} ranks take memory on {used} of {host.visible} GPUs: several share one; please report it.",
        **{f"GPU {number} MiB": mib for number, mib in enumerate(taken)},
    )


def all_reduce(host: Host) -> Iterator[Line]:
    """All-reduces from bytes to hundreds of megabytes: right, their latency, their bus bandwidth."""
    sizes = SIZES if host.visible > 1 else SIZES_OF_CPU
    title = f"All-reduce over {host.route}"
    try:
        found, detour = ranked.with_detours("all_reduce", host, SMALL_S, BARE, sizes=sizes, repeats=10)
    except CourseError as error:
        yield failed(title, str(error))
        return
    if detour:
        yield failed(title, detour)
    yield measured(title, host, sizes, found)
    if host.shared:
        yield untested("All-reduce over NCCL", _between(host))


def measured(title: str, host: Host, sizes: tuple[int, ...], found: dict) -> Line:
    """The line on all-reduces: α and β of the ring's formula, and the bandwidth that the links see."""
    ranks, seconds = found["size"], np.array(found["seconds"])
    link = allreduce.fit(ranks, np.array(sizes), seconds)
    bus = 2 * (ranks - 1) / ranks * np.array(sizes) / seconds  # as NVIDIA's nccl-tests define it
    values = {"alpha s": link.alpha, "beta s/B": link.beta, "bus bandwidth B/s": float(bus.max())}
    values |= {f"{size} B s": float(second) for size, second in zip(sizes, seconds)}
    return judged(
        title,
        found["right"],
        f"{ranks} ranks on {host.devices}: {1e6 * seconds[0]:.0f} µs for {sizes[0]} bytes, at most "
        f"{bus.max() / 1e9:.2f} GB/s bus bandwidth; as a ring α = {1e6 * link.alpha:.0f} µs.",
        f"{ranks} ranks on {host.devices} get wrong sums: please report it, with `nvidia-smi topo -m`.",
        **values,
    )


def controllers(host: Host) -> Iterator[Line]:
    """The doctor's own probe under each controller: ranks hold the same weights after training, bit by bit."""
    built = launch.controllers()
    for name, title in doctor.CONTROLLERS.items():
        title = f"Equal ranks under {title}"
        if name not in built:
            yield untested(title, f"Horovod was built without {doctor.CONTROLLERS[name]}.")
            continue
        where = "the CPU" if host.shared else host.devices
        problem = doctor.disagreement(name, ranks=host.ranks)
        yield judged(title, not problem, f"{host.ranks} ranks on {where} agree, bit by bit.", problem)
        if host.visible == 1:
            yield untested(f"{title} on GPUs", _between(host))


def batch_norm(host: Host) -> Iterator[Line]:
    """SyncBatchNormalization on all ranks is batch norm on all their images."""
    found = ranked.run("batch_norm", host, SMALL_S)
    yield judged(
        "Batch norm across ranks",
        found["across"] < SYNC_TOLERANCE < found["own"],
        f"It differs from batch norm on the whole batch by {found['across']:.1g}; a rank's own by {found['own']:.2g}.",
        f"It differs from batch norm on the whole batch by {found['across']:.2g}: please report it.",
        **{"difference": found["across"], "a rank's own": found["own"]},
    )


def timeline(host: Host) -> Iterator[Line]:
    """Horovod's timeline has each step's all-reduces, and says over what they went."""
    with tempfile.TemporaryDirectory(prefix="course-") as folder:
        path = Path(folder) / "timeline.json"
        ranked.run("train", host, SMALL_S, env={"HOROVOD_TIMELINE": str(path)}, steps=5, batches=[BATCH])
        table = timelines.read(path)
    kinds = sorted({name for name in table["activity"] if name.endswith("_ALLREDUCE") and not name.startswith("NEG")})
    phases = timelines.phases(table)
    expected = (
        "MPI_ALLREDUCE" if host.shared and launch.controllers()[0] == "mpi" else f"{host.route.upper()}_ALLREDUCE"
    )
    medians = phases.groupby("activity")["seconds"].median()
    values = {f"{name} s": float(medians[name]) for name in timelines.PHASES if name in medians}
    yield judged(
        "Timeline",
        expected in kinds and "reduce" in medians,
        f"It has {len(phases)} phases of {phases['tensor'].nunique()} tensors, over {', '.join(kinds)}.",
        f"It has {', '.join(kinds) or 'no all-reduces'}, and no {expected}: gradients do not go the way they should.",
        **values,
    )


def scaling(host: Host) -> Iterator[Line]:
    """Images/s of 1, 2, 4 … all ranks, weak and strong; their weights are equal afterwards, bit by bit."""
    whole = BATCH * host.ranks
    rates: dict[int, list[float]] = {}
    equal = True
    for ranks in sorted({1, *(2**k for k in range(1, 8) if 2**k < host.ranks), host.ranks}):
        batches = [BATCH, whole // ranks]
        found = ranked.run("train", host, LONG_S, ranks=ranks, steps=STEPS[bool(host.visible)], batches=batches)
        rates[ranks] = found["images/s"]
        if found["difference"] != 0.0:
            equal = False
            yield failed(
                f"Training on {ranks} ranks",
                f"Afterwards their weights differ by up to {found['difference']:.2g}: gradients are not averaged.",
            )
    for place, title in enumerate((f"{BATCH} images a rank", f"{whole} images in all")):
        told = ", ".join(f"{ranks}: {rate[place]:,.0f}" for ranks, rate in rates.items())
        efficiency = rates[host.ranks][place] / rates[1][place] / host.ranks
        yield passed(
            f"Scaling, {title}",
            f"Images/s by ranks on {host.devices}: {told}; efficiency {efficiency:.0%}."
            + " Equal weights, bit by bit." * equal,
            **{f"{ranks} ranks images/s": rate[place] for ranks, rate in rates.items()},
            efficiency=efficiency,
        )
    if host.shared:
        yield untested("Scaling over GPUs", _between(host))


def elastic(host: Host) -> Iterator[Line]:
    """A rank is killed; the others go on from the last commit."""
    if "gloo" not in launch.controllers():
        yield untested("Losing a rank", "Elastic runs need Gloo, and Horovod was built without it.")
        return
    found = ranked.run("elastic", host, LONG_S, min_ranks=host.ranks - 1, steps=30, lose_at=12)
    yield judged(
        "Losing a rank",
        found["ended"] == host.ranks - 1 and found["steps"] == 30 and found["w"] == 30.0,
        f"{found['began']} ranks began, one was killed at step 12, {found['ended']} went on to step {found['steps']}.",
        f"After a rank was killed {found['ended']} ranks ended at step {found['steps']} with {found['w']:g} updates.",
        **{"ranks at the end": found["ended"], "updates": found["w"]},
    )


def _between(host: Host) -> str:
    """Why nothing goes between GPUs here."""
    if host.visible == 1:
        return "This host has one GPU: nothing goes between GPUs, and NCCL refuses two ranks on one; tested over Gloo."
    return missing(host)
