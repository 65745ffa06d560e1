"""What each forgotten step of the conversion costs: fashion_mnist.py on two ranks, less one step at a time.

Every variant that trains does so ten times, on 12,799 images (an odd number: the parts differ by one image), with
first weights that the ranks draw for themselves. Nothing is tuned. The accuracies are those that each rank reports of
itself, on 3,199 validation images; the largest difference between the ranks' weights is measured after training.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pandas as pd
from matplotlib.lines import Line2D

from course_lib import data, statistics
from course_lib.authoring import conversions
from course_lib.notebook import experiments, plots
from course_lib.ranks import launch
from course_lib.ranks.run_record import RunRecord, collect
from course_lib.system.supervise import TIMED_OUT

REPEATS = {"init": 3, "equal": 3}  # these don't train
MOST_REPEATS = 10
SLICE = 15_998  # images, of which the script holds back a fifth for validation
ARGUMENTS = ["--epochs", 3, "--batch-size", 64, "--lr", 0.02, "--seed", 0]
EQUAL_BATCHES = "    dataset = dataset.take(len(images) // (batch_size * hvd.size()))\n"
UNHARMED = ("", "gpu", "rank0", "metrics")  # on a CPU these omissions don't change the training
LABELS = {
    "": "nothing left out",
    "init": "1 initialise",
    "gpu": "2 one GPU each",
    "rate": "3 scale the rate",
    "optimizer": "4 average gradients",
    "broadcast": "5 same first weights",
    "data": "6 share out the data",
    "equal": "6 equal batches",
    "rank0": "7 one rank saves",
    "metrics": "8 average metrics",
}


def variant(name: str) -> str:
    """The converted script without step `name` ("": whole; "equal": only the cut to equal batches is missing)."""
    if name == "equal":
        return conversions.converted().replace(EQUAL_BATCHES, "")
    return conversions.converted([step for step in conversions.steps() if step != name])


def run(name: str, folder: Path) -> RunRecord:
    script = folder / conversions.script().name
    script.write_text(variant(name), encoding="utf-8")
    options = launch.Options(cwd=folder, stall_timeout=20)
    return collect(script, ARGUMENTS, 2, env={"COURSE_SLICE": str(SLICE)}, options=options)


def row(name: str, repeat: int, record: RunRecord) -> dict:
    logs = [rank.last("epoch") for rank in record.ranks]
    done = record.result.code == 0
    differ = record.weights_differ() if done else None
    error = next((line for line in reversed(record.result.tail) if line.strip()), "")
    outcome = "runs" if done else "hangs" if record.result.code == TIMED_OUT else "stops"
    return {
        "left out": LABELS[name],
        "run": repeat + 1,
        "outcome": outcome,
        **{
            f"accuracy of rank {i}": log and round(log["logs"]["val_accuracy"], 4) for i, log in enumerate(logs) if done
        },
        "images read by each rank": logs[0]["images"] if done else None,
        "weights differ by": differ if differ is None else float(f"{differ:.3g}"),
        "ranks that save": ", ".join(str(r.rank) for r in record.ranks if r.records.get("save")) if done else "",
        "last words": "" if done else (error or record.result.message)[:120],
    }


def main() -> experiments.Recording:
    rows = []
    for name in LABELS:
        for repeat in range(REPEATS.get(name, MOST_REPEATS)):
            with tempfile.TemporaryDirectory() as work:
                rows.append(row(name, repeat, run(name, Path(work))))
            print(f"{LABELS[name]}, run {repeat + 1}: {rows[-1]['outcome']}", flush=True)
    table = pd.DataFrame(rows)
    source = f"{data.load('fashion_mnist').name}, first {SLICE:,} images"
    settings = f"--lr 0.02 · 2 ranks · {MOST_REPEATS} runs each · grey: 95 % of runs whose training is the same"
    return experiments.Recording(
        table,
        draw(table, f"{source} · {settings} · {experiments.machine()}"),
        data=source,
        seeds="none: every run draws its own first weights",
    )


def draw(table: pd.DataFrame, caption: str) -> plots.Figure:
    """Accuracy of both ranks and difference of their weights, a line for each omission; behind them, where 95 % of the
    runs fall whose training is the same."""
    names = list(LABELS.values())
    same = table[table["left out"].isin([LABELS[name] for name in UNHARMED])]
    low, high = statistics.band(same[["accuracy of rank 0", "accuracy of rank 1"]].mean(axis=1))
    with plots.style():
        figure, axes = plots.subplots(height=470, columns=2, caption=caption)
        axes[0].axvspan(low, high, color=plots.FAINT, alpha=0.18, lw=0)
        for name, group in table.groupby("left out"):
            y = names.index(name)
            failed = group["outcome"] != "runs"
            for rank in (0, 1):
                axes[0].plot(
                    group[f"accuracy of rank {rank}"], [y + 0.16 * (2 * rank - 1)] * len(group),
                    plots.MARKERS[rank], color=plots.colour(rank), markersize=5,
                )  # fmt: skip
            axes[1].plot(
                group["weights differ by"].clip(lower=1e-9),
                [y] * len(group),
                "D",
                color=plots.INK,
                markersize=5,
            )
            if failed.all():
                word = group["outcome"].iloc[0]
                axes[0].text(
                    0.5,
                    y,
                    word,
                    transform=axes[0].get_yaxis_transform(),
                    ha="center",
                    va="center",
                    style="italic",
                )
        axes[1].set_xscale("log")
        axes[1].set_xlim(3e-10, 30)
        axes[1].set_xticks([1e-9, 1e-6, 1e-3, 1], ["0", "10⁻⁶", "10⁻³", "1"])
        for axis, title, label in zip(
            axes,
            ("What each rank reports", "Do the ranks agree?"),
            ("validation accuracy", "largest difference of a weight"),
        ):
            axis.set_yticks(range(len(names)), names if axis is axes[0] else [])
            axis.set_ylim(len(names) - 0.5, -0.5)
            axis.set_title(title)
            axis.set_xlabel(label)
        handles = [
            Line2D([], [], color=plots.colour(r), marker=plots.MARKERS[r], linestyle="", label=f"rank {r}")
            for r in (0, 1)
        ]
        figure.legend(handles=handles, loc="upper left", ncols=2)
        figure.subplots_adjust(left=150 / plots.WIDTH, wspace=0.08)
    return figure
