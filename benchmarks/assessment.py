"""Measure the cost of the grader, and the variation of the reference's time, idle and with one loaded core.

    COURSE_DATA_DIR=... python benchmarks/assessment.py [--runs 20] [--pairs 5] [--images N]

First it runs the reference solution in the grader's sandbox `runs` times on the idle machine, and as often with a busy
program on one core, on the first `images` training images (default: all). The `tolerance` in contract.toml is set from
these times (results/assessment.csv). Then it runs the reference `pairs` times without the grader (with `course run`)
and as often with it, in alternating order, on all images (results/overhead.csv).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from course_grader.sandbox import Sandbox
from course_grader.script import contract, grader
from course_grader.script.evaluator import Evaluator
from course_lib import data, statistics
from course_lib.notebook import experiments
from course_lib.ranks import launch
from course_lib.system.paths import ROOT

REFERENCE = ROOT / "assessment" / "reference" / "assessment.py"
RESULTS = Path(__file__).parent / "results"
RANKS = 2


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--runs", type=int, default=20)
    arguments.add_argument("--pairs", type=int, default=5)
    arguments.add_argument("--images", type=int)
    chosen = arguments.parse_args()

    began, pairs, runs = time.perf_counter(), [], []
    with Evaluator("cifar10") as evaluator:
        evaluator.wait()
        for pair in range(chosen.pairs):
            for kind, way in [("bare", bare), ("assessed", assessed)][:: 1 if pair % 2 else -1]:
                pairs.append(keep(kind, "idle", pair, **way()))
        for load, busy in (("idle", contextlib.nullcontext), ("one core loaded", loaded)):
            with busy():
                for run in range(chosen.runs):
                    runs.append(keep("measured", load, run, **measured(evaluator, chosen.images)))
        name = evaluator.data
    seconds = round(time.perf_counter() - began)
    if pairs:
        table = write("overhead", pairs, name, seconds).set_index(["kind", "run"])
        bare_s, assessed_s = table.loc["bare"]["seconds"], table.loc["assessed"]["run_seconds"]
        more, half = statistics.paired(np.log(assessed_s), np.log(bare_s))
        print(f"assessed / bare: {np.exp(more):.3f}, {np.exp(more - half):.3f} to {np.exp(more + half):.3f}")
    if runs:
        write("assessment", runs, f"{name}, {f'the first {chosen.images:,}' if chosen.images else 'all'}", seconds)


def write(table: str, rows: list[dict], images: str, seconds: int) -> pd.DataFrame:
    found = pd.DataFrame(rows)
    RESULTS.mkdir(exist_ok=True)
    experiments.write_table(
        RESULTS / f"{table}.csv",
        found,
        command=f"python benchmarks/assessment.py {' '.join(sys.argv[1:])}".strip(),
        data=f"{images} training images",
        seeds="another one in each run",
        seconds=seconds,
        columns="bare: `course run`; assessed: `course assess` whole, of which run_seconds is the run on all ranks; "
        "measured: a run in its sandbox",
    )
    columns = [column for column in ("seconds", "run_seconds", "test_accuracy") if column in found]
    told = found.groupby(["kind", "load"])[columns].agg(["count", "min", "median", "max", "std"])
    print(told.round(3).to_string())
    return found


def keep(kind: str, load: str, run: int, **figures: float) -> dict:
    row = {"kind": kind, "load": load, "run": run, **figures}
    print(row, flush=True)
    return row


def bare() -> dict[str, float]:
    """Run the reference as `course run` does, with one core for each rank."""
    with tempfile.TemporaryDirectory() as folder, launch.start(
        REFERENCE, ranks=RANKS, env={**launch.ONE_THREAD, "COURSE_WEIGHTS": f"{folder}/weights.h5"},
        options=launch.Options(cwd=folder, cores=(0, 1)),
    ) as run:  # fmt: skip
        result = run.wait()
    assert result.code == 0, result
    return {"seconds": round(result.seconds, 2)}


def assessed() -> dict[str, float]:
    began = time.perf_counter()
    outcome = grader.assess(REFERENCE, profile="cpu", ranks=RANKS)
    seconds = round(time.perf_counter() - began, 2)
    return {"seconds": seconds, "run_seconds": outcome.seconds, "test_accuracy": outcome.test_accuracy,
            "score": outcome.score}  # fmt: skip


def measured(evaluator: Evaluator, images: int | None) -> dict[str, float]:
    limits = contract.read().limits
    with tempfile.TemporaryDirectory() as folder:
        bundle = data.bundle("cifar10", Path(folder), test=False, limit=images)
        env = {**bundle.env, **({"COURSE_SLICE": str(images)} if images else {})}
        box = Sandbox(REFERENCE, limits, RANKS, files=bundle.files, env=env, seconds=960)
        with box, box.start(RANKS, stall_timeout=60, fake_gpus=(RANKS,)) as run:
            result = run.wait()
            weights = evaluator.evaluate(box.folder / "weights.h5")
    assert result.code == 0, result
    accuracies = {"train_accuracy": weights.train_accuracy, "test_accuracy": weights.test_accuracy}
    return {"seconds": round(result.seconds, 2), **accuracies}


@contextlib.contextmanager
def loaded() -> Iterator[None]:
    """Keep one core busy with another process."""
    core = max(os.sched_getaffinity(0))
    spin = f"import os\nos.sched_setaffinity(0, [{core}])\nwhile True: pass"
    program = subprocess.Popen([sys.executable, "-c", spin])
    try:
        yield
    finally:
        program.kill()
        program.wait()


if __name__ == "__main__":
    main()
