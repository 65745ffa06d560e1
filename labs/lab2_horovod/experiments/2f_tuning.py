"""What four knobs of Horovod do to a training step: fusion threshold, cycle time, fp16, backward passes.

Two ranks with one thread each train a Wide ResNet of depth 16 on drawn images. Every value is measured in two
launches, in blocks of 16 steps; what is compared within a launch takes turns. The figure leaves out the blocks during
which other programs used more than 0.2 cores.
"""

from __future__ import annotations

import pandas as pd

from course_lib.notebook import experiments, plots
from labs.lab2_horovod.lessons import figures_2f, step_time

RANKS, LAUNCHES, BLOCKS, STEPS, BATCH = 2, 2, 6, 16, 8
THRESHOLDS_BYTES = {"0": 0, "64 Ki": 2**16, "256 Ki": 2**18}  # the default is 128 MiB
CYCLES_MS = (5, 20, 50)  # the default is 1
PASSES = (2, 4, 8)
DEFAULT, COPIES = "default", "no exchange"


def launches() -> dict[str, tuple[dict, dict]]:
    """Name → (environment, settings) of each launch."""
    in_turns = {
        DEFAULT: step_time.Setting(BATCH),
        COPIES: step_time.Setting(BATCH, exchange=False),
        "fp16": step_time.Setting(BATCH, fp16=True),
        **{f"{passes} passes": step_time.Setting(BATCH, passes=passes) for passes in PASSES},
    }
    plan = {"": ({}, in_turns)}
    for label, threshold in THRESHOLDS_BYTES.items():
        plan[f"threshold {label}"] = {"HOROVOD_FUSION_THRESHOLD": str(threshold)}, {label: step_time.Setting(BATCH)}
    for cycle in CYCLES_MS:
        plan[f"cycle {cycle} ms"] = {"HOROVOD_CYCLE_TIME": str(cycle)}, {str(cycle): step_time.Setting(BATCH)}
    return plan


def main() -> experiments.Recording:
    tables = []
    for number in range(LAUNCHES):
        for name, (env, settings) in launches().items():
            table = step_time.measure(settings, RANKS, blocks=BLOCKS, steps=STEPS, env=env)
            table["setting"] = name or table["setting"]
            table.insert(1, "launch", number + 1)
            tables.append(table)
            print(f"launch {number + 1}, {name or DEFAULT}: {1e3 * table['seconds'].median():.1f} ms", flush=True)
    table = pd.concat(tables).round({"seconds": 6, "bytes": 0, "others": 2, "startup": 1})
    caption = f"Wide ResNet, depth 16, {BATCH} drawn images each · {RANKS} ranks · {experiments.machine()}"
    return experiments.Recording(
        table,
        draw(table, caption),
        data="drawn images",
        seeds="none; the same network and images in all settings",
    )


def draw(table: pd.DataFrame, caption: str) -> plots.Figure:
    """Milliseconds of a step over the values of each knob."""
    quiet = step_time.quiet(table)
    knobs = {
        "threshold": {**{label: f"threshold {label}" for label in THRESHOLDS_BYTES}, "128 Mi": DEFAULT},
        "cycle": {"1": DEFAULT, **{str(cycle): f"cycle {cycle} ms" for cycle in CYCLES_MS}},
        "bits": {"32": DEFAULT, "16": "fp16"},
        "passes": {"1": DEFAULT, **{str(passes): f"{passes} passes" for passes in PASSES}},
    }
    rows = [
        quiet[quiet["setting"] == setting].assign(knob=knob, value=value)
        for knob, values in knobs.items()
        for value, setting in values.items()
    ]
    labels = {
        "threshold": "fusion threshold (bytes)", "cycle": "cycle time (ms)",
        "bits": "bits of a number", "passes": "backward passes per step",
    }  # fmt: skip
    floor = 1e3 * quiet.loc[quiet["setting"] == COPIES, "seconds"].median()
    return figures_2f.sweep(pd.concat(rows), labels, floor, caption=caption)
