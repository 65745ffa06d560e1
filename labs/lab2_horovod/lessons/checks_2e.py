"""Checks of notebook 2e: a PyTorch script, converted to DistributedDataParallel.

The script is judged by what `torch_witness` sees in a short run of two processes over Gloo, with settings under which
omissions show: first weights differ unless they are broadcast, and the number of images is odd. Which GPU it would use
is seen by `pretended_gpus`, in two processes more that stand for a second host.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from course_lib import data
from course_lib.notebook.judging import Criterion, Verdict, Wrong, report
from course_lib.notebook.report import Report, Ticker
from course_lib.system import paths, supervise
from course_lib.system.errors import last_line

PROCESSES, EPOCHS, BATCH_SIZE = 2, 2, 32
LEARNING_RATE = 0.02  # of one process
SLICE = 323  # images, of which the script holds back a fifth for validation
IMAGES = SLICE - SLICE // 5  # 259: four full batches for each process, eight where nobody shares
TIME_LIMIT_S = 240.0
PATIENCE_S = 3.0  # for the other process when one has failed
WITNESS, PRETENCE = (Path(__file__).with_name(name) for name in ("torch_witness.py", "pretended_gpus.py"))
GPUS = 2  # of each pretended host
SECOND_HOST = (2, 3)  # ranks
INSTALL = (
    'PyTorch is not installed here: type `pip install "torch>=2.4"` in a terminal of the course, then check again.'
)


@dataclass(frozen=True)
class Run:
    """What two processes did: the files of `torch_witness`, exit codes, output; and what `pretended_gpus` saw."""

    seen: Sequence[Mapping[str, np.ndarray]]
    codes: Sequence[int]
    output: Sequence[str]
    on_gpus: Sequence[Mapping[str, Any]]  # of each rank of SECOND_HOST

    def arrays(self, name: str) -> list[list[np.ndarray]]:
        """Of each process, the arrays `name_0`, `name_1`, …"""
        return [
            [seen[f"{name}_{i}"] for i in range(sum(key.startswith(f"{name}_") for key in seen))] for seen in self.seen
        ]

    def require_steps(self) -> None:
        """Raise `Wrong` where a process took no step."""
        if not all(len(seen) and seen["steps"] for seen in self.seen):
            raise Wrong(self.end() or "no optimizer took a step in both processes.")

    def end(self) -> str:
        """Why the run ended early, in a sentence; empty where it did not."""
        words = [last_line(text) for code, text in zip(self.codes, self.output) if code not in (0, 128 + 15)]
        if supervise.TIMED_OUT in self.codes:
            return f"After {TIME_LIMIT_S:.0f} s the script had not ended: does one process wait for the other?"
        if not words:
            return ""
        for word, advice in ADVICE.items():
            if word.lower() in words[0].lower():
                return f"The script failed: {words[0]} {advice}"
        return f"The script failed: {words[0]}"


ADVICE = {
    "nccl": "NCCL needs GPUs: choose Gloo where there are none.",
    "cuda": "There is no GPU in this check: choose one only where `torch.cuda.is_available()`.",
    "process group has not been initialized": "Call `init_process_group` first.",
    "mutually exclusive": "Shuffling is the sampler's business now.",
    "has no attribute 'set_epoch'": "Only a `DistributedSampler` has it.",
}
_runs: dict[str, Run] = {}


def check(script: str | Path = "fashion_mnist_torch.py") -> Report | None:
    """Run the script as two processes and report on it; in one line where there is no PyTorch."""
    if find_spec("torch") is None:
        print(INSTALL)
        return None
    if not isinstance(script, (str, Path)):
        return Report([Verdict("script", "No script", 0.0, 1.0, 'Hand over a name, as in `check("my_script.py")`.')])
    path = Path(script).absolute()
    if not path.is_file():
        return Report([Verdict("script", "No script", 0.0, 1.0, f"There is no `{path.name}` beside this notebook.")])
    with Ticker(f"{path.name} runs as {PROCESSES} processes, {IMAGES} images"):
        run = gather(path)
    return Report(report(run, CRITERIA), error=run.output[_first_failed(run)][-1500:] if any(run.codes) else "")


def gather(script: Path) -> Run:
    """The run of a script; one that did not change is not run again."""
    key = hashlib.sha256(script.read_bytes()).hexdigest()
    if key not in _runs:
        with tempfile.TemporaryDirectory(prefix="check-") as folder:
            _runs[key] = _all_runs(script, Path(folder))
    return _runs[key]


def _all_runs(script: Path, folder: Path) -> Run:
    arguments = [script, "--epochs", EPOCHS, "--batch-size", BATCH_SIZE, "--lr", LEARNING_RATE]
    arguments += ["--seed", 0, "--checkpoint", "trained.pt"]
    port, places = _free_port(), [folder / str(rank) for rank in range(PROCESSES + len(SECOND_HOST))]
    here, second_host = places[:PROCESSES], places[PROCESSES:]
    codes = _run(
        [
            (place, [WITNESS, place / "seen.npz", IMAGES, *arguments], _environment(rank, port))
            for rank, place in enumerate(here)
        ]
    )
    _run(
        [
            (place, [PRETENCE, place / "gpus.json", *arguments], _environment(rank, port) | _of_a_second_host(rank))
            for rank, place in zip(SECOND_HOST, second_host)
        ]
    )
    return Run(
        [dict(np.load(file)) if file.exists() else {} for file in (place / "seen.npz" for place in here)],
        codes,
        [(place / "output.txt").read_text(errors="replace") for place in here],
        [
            json.loads(file.read_text()) if file.exists() else {}
            for file in (place / "gpus.json" for place in second_host)
        ],
    )


def _run(started: Sequence[tuple[Path, Sequence, Mapping[str, str]]]) -> list[int]:
    """Exit codes of Python processes that run at the same time: (folder, arguments, environment) of each."""
    processes = []
    for place, words, environment in started:
        place.mkdir()
        with open(place / "output.txt", "wb") as output:
            processes.append(
                subprocess.Popen(
                    supervise.command_line([sys.executable, *map(str, words)], timeout=TIME_LIMIT_S),
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=place,
                    env=environment,
                )
            )
    try:
        _wait(processes)
    finally:
        for process in processes:
            process.stdin.close()  # the lease: what still runs is ended, with all that it started
        codes = [process.wait() for process in processes]
    return codes


def _wait(processes: Sequence[subprocess.Popen]) -> None:
    """Until all have ended, or one has failed and the other has had time to end by itself."""
    deadline = float("inf")
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        if deadline == float("inf") and any(process.poll() for process in processes):
            deadline = time.monotonic() + PATIENCE_S
        time.sleep(0.05)


def _environment(rank: int, port: int) -> dict[str, str]:
    """What torchrun sets for a process on the only host; one thread, no GPU, a slice of the data."""
    found = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": PROCESSES,
        "LOCAL_WORLD_SIZE": PROCESSES,
        "OMP_NUM_THREADS": 1,
        "CUDA_VISIBLE_DEVICES": "",
        "COURSE_SLICE": SLICE,
        "PYTHONPATH": os.pathsep.join([str(paths.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }
    if sys.platform == "linux":
        found["GLOO_SOCKET_IFNAME"] = "lo"  # else Gloo looks up the host's name, which not every network knows
    return {**os.environ, **{name: str(value) for name, value in found.items()}}


def _of_a_second_host(rank: int) -> dict[str, str]:
    """What torchrun sets there otherwise, and the pretended GPUs."""
    local = rank - SECOND_HOST[0]
    found = {"RANK": rank, "LOCAL_RANK": local, "GROUP_RANK": 1, "WORLD_SIZE": SECOND_HOST[-1] + 1}
    found["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, range(GPUS)))
    return {name: str(value) for name, value in found.items()}


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _first_failed(run: Run) -> int:
    return next((rank for rank, code in enumerate(run.codes) if code not in (0, 128 + 15)), 0)


# Criteria


def _met(run: Run) -> str:
    run.require_steps()
    if any(seen["met"] != PROCESSES for seen in run.seen):
        raise Wrong("The two processes never met: each trains for itself. Call `torch.distributed.init_process_group`.")
    return "Two processes, one group."


def _device(run: Run) -> str:
    run.require_steps()
    for local, (rank, found) in enumerate(zip(SECOND_HOST, run.on_gpus)):
        used = found.get("gpus", [])
        if used == [local]:
            continue
        case = f"On a second host with {GPUS} pretended GPUs, rank {rank} (local rank {local})"
        if not used:
            failed = found.get("failed")
            raise Wrong(f"{case} fails: {failed}" if failed else f"{case} uses no GPU: it stays on the CPU.")
        if len(used) > 1:
            raise Wrong(f"{case} uses GPUs {' and '.join(map(str, used))}: weights and images go to one, its own.")
        if used[0] >= GPUS:
            raise Wrong(
                f"{case} asks for GPU {used[0]}; they are numbered from 0. `RANK` counts the processes of all hosts, "
                "`LOCAL_RANK` those of this one."
            )
        raise Wrong(f"{case} uses GPU {used[0]}, as another process does: choose GPU {local}, by `LOCAL_RANK`.")
    if any("nccl" not in found["backend"] for found in run.on_gpus if found["backend"]):
        raise Wrong("On GPUs the script uses Gloo, which sends by way of the host's memory: choose NCCL there.", 0.5)
    return f"On a second host with {GPUS} pretended GPUs, ranks 2 and 3 use GPUs 0 and 1. (A real GPU was not tried.)"


def _own_part(run: Run) -> str:
    run.require_steps()
    one, other = (set(_epochs(seen)[0]) for seen in run.seen)
    both = len(one & other)
    if both > 2:  # a sampler may fill up the last part with a repeated image
        raise Wrong(
            f"In the first epoch {both} images are read by both processes: give the loader a `DistributedSampler`."
        )
    steps, full = {int(seen["steps"]) for seen in run.seen}, IMAGES // PROCESSES // BATCH_SIZE
    if steps == {EPOCHS * (full + 1)}:
        raise Wrong("The last, smaller batch of each epoch is trained on too: keep `drop_last=True`.", 0.5)
    if steps != {EPOCHS * full}:
        raise Wrong(
            f"The processes take {sorted(steps)} steps in {EPOCHS} epochs: do they read all of their part?", 0.5
        )
    return "Each process reads its own half of the images."


def _reshuffled(run: Run) -> str:
    run.require_steps()
    for seen in run.seen:
        first, second = _epochs(seen)
        if first == second:
            raise Wrong("Every epoch has the same order: a sampler doesn't know the epoch until you call `set_epoch`.")
        if first == sorted(first):
            raise Wrong("The images come in their stored order: let the sampler shuffle.")
    return "Another order in each epoch."


def _same_start(run: Run) -> str:
    run.require_steps()
    if _apart(run, "start"):
        raise Wrong(
            f"A first weight differs by {_apart(run, 'start'):.2g} between the processes. "
            "`DistributedDataParallel` broadcasts them when it wraps the model."
        )
    return "Both start from the same weights."


def _averaged(run: Run) -> str:
    run.require_steps()
    difference = _apart(run, "gradient")
    if difference:
        raise Wrong(
            f"In the first step a gradient differs by {difference:.2g} between the processes: nobody averages. "
            "Wrap the model in `DistributedDataParallel`, and call the wrapped one."
        )
    gradients, expected = run.arrays("gradient")[0], joint_gradient(run)
    for got, wanted in zip(gradients, expected):
        scale = float(np.abs(wanted).max())
        if not np.allclose(got, wanted, rtol=1e-3, atol=1e-4 * scale):
            factor = float((got * wanted).sum() / (wanted**2).sum())
            raise Wrong(
                f"The gradient is not that of the {PROCESSES * BATCH_SIZE} images of both processes: "
                f"it is about {factor:.2g} times as long along it. Sum or average?"
            )
    if difference := _apart(run, "end"):
        raise Wrong(f"After the last step a weight differs by {difference:.2g} between the processes.", 0.5)
    return f"The gradient is that of one process with {PROCESSES * BATCH_SIZE} images, and the weights stay equal."


def _scaled_rate(run: Run) -> str:
    run.require_steps()
    rates, wanted = {f"{float(seen['rate']):g}" for seen in run.seen}, LEARNING_RATE * PROCESSES
    if rates != {f"{wanted:g}"}:
        raise Wrong(
            f"The learning rate is {' and '.join(sorted(rates))}; the check passes {LEARNING_RATE:g} with `--lr`, and "
            f"{PROCESSES} processes make it {wanted:g}."
        )
    return f"The learning rate is {wanted:g}: {LEARNING_RATE:g} times {PROCESSES} processes."


def _one_saves(run: Run) -> str:
    run.require_steps()
    saves = [list(seen["saves"]) for seen in run.seen]
    savers = [rank for rank, found in enumerate(saves) if found]
    if not savers:
        raise Wrong(run.end() or "Nobody saved the trained network with `torch.save`.")
    if len(savers) > 1:
        raise Wrong("Both processes write the one file: let rank 0 do it.")
    if any(saves[savers[0]]):
        raise Wrong(
            "Only one process saves, but each name begins with `module.`, the wrapper's: the serial network can't load "
            "that. Save what is inside.",
            0.5,
        )
    return f"Only rank {savers[0]} saves, under the names of the serial network."


def joint_gradient(run: Run) -> list[np.ndarray]:
    """The gradient of the serial network for the first batches of both processes together."""
    import torch
    from torch import nn

    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10)),
    )
    start = run.arrays("start")[0]
    if [tuple(weight.shape) for weight in model.parameters()] != [weight.shape for weight in start]:
        raise Wrong("This is another network: leave its layers as they were.")
    with torch.no_grad():
        for weight, value in zip(model.parameters(), start):
            weight.copy_(torch.from_numpy(value))
    fashion = data.load("fashion_mnist")
    rows = np.concatenate([seen["images"][:BATCH_SIZE] for seen in run.seen])
    images = torch.from_numpy(fashion.x_train[rows]).permute(0, 3, 1, 2) / 255
    nn.functional.cross_entropy(model(images), torch.from_numpy(fashion.y_train[rows])).backward()
    return [weight.grad.numpy() for weight in model.parameters()]


def _apart(run: Run, name: str) -> float:
    """The largest difference between the two processes' arrays."""
    one, other = run.arrays(name)
    if len(one) != len(other):
        raise Wrong("The processes train networks of different sizes.")
    return max((float(np.abs(a - b).max()) for a, b in zip(one, other)), default=0.0)


def _epochs(seen: Mapping[str, Any]) -> list[list[int]]:
    """The images read in each epoch, in their order."""
    images = seen["images"].tolist()
    if not images:
        raise Wrong("No images were seen: keep the `TensorDataset`, and load from it without worker processes.")
    part = len(images) // EPOCHS
    return [images[:part], images[part : 2 * part]]


CRITERIA = (
    Criterion("init", "The processes meet", 1, _met),
    Criterion("device", "One GPU for each process", 1, _device),
    Criterion("data", "Each reads its own part", 1, _own_part),
    Criterion("epoch", "Reshuffled in each epoch", 1, _reshuffled),
    Criterion("start", "The same first weights", 1, _same_start),
    Criterion("average", "The gradients are averaged", 1, _averaged),
    Criterion("rate", "The learning rate is scaled", 1, _scaled_rate),
    Criterion("save", "One process saves", 1, _one_saves),
)
