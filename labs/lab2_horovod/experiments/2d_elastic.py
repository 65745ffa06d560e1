"""Ten kills: elastic.py on three ranks, one of which is killed at a random moment; the others go on.

Rank, step and the moment within the step are drawn. `noticed` and `went on` are seconds from the kill, `steps lost`
those that were done twice. `weights differ by` compares with a run that lost nobody: the two that are left take the
same batches as three, so only rounding may differ.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from course_lib import data
from course_lib.notebook import experiments, plots
from labs.lab2_horovod.lessons import elastic_run

SCRIPT = Path(__file__).resolve().parent.parent / "elastic.py"
RANKS, KILLS, STEPS, COMMIT_INTERVAL, PAUSE_S = 3, 10, 60, 10, 0.05


def loop(state, advance, steps, every):
    """What notebook 2d has the learner write."""
    while state.step < steps:
        advance(state)
        state.step += 1
        if state.step % every == 0:
            state.commit()


def run(folder: Path, **kill: object) -> tuple[elastic_run.ElasticRun, list[np.ndarray]]:
    """One run, and its trained weights."""
    weights = folder / "weights.npz"
    args = ["--steps", STEPS, "--commit-every", COMMIT_INTERVAL, "--pause", PAUSE_S, "--save", weights]
    measured = elastic_run.lose_a_rank(SCRIPT, loop, args, ranks=RANKS, min_ranks=RANKS - 1, **kill)
    return measured, list(np.load(weights).values()) if weights.exists() else []


def main() -> experiments.Recording:
    random = np.random.default_rng(4)
    rows = []
    with tempfile.TemporaryDirectory() as work:
        _, whole = run(Path(work), kill=None)
    for number, rank in enumerate(random.permutation(np.arange(KILLS) % RANKS).tolist()):
        step, delay = int(random.integers(15, 55)), float(random.uniform(0, PAUSE_S))
        with tempfile.TemporaryDirectory() as work:
            measured, weights = run(Path(work), kill=rank, at=step, delay=delay)
        differ = max((float(np.abs(a - b).max()) for a, b in zip(whole, weights)), default=float("nan"))
        rows.append(
            {
                "run": number + 1,
                "killed rank": rank,
                "after step": step,
                "exit code": measured.result.code,
                "last step": int(measured.steps["step"].max()),
                "noticed": round(measured.noticed, 3) if measured.noticed else None,
                "went on": round(measured.went_on, 2) if measured.went_on else None,
                "steps lost": measured.lost,
                "weights differ by": float(f"{differ:.2g}"),
                "seconds": round(measured.result.seconds, 1),
            }
        )
        print(f"run {number + 1}: {rows[-1]}", flush=True)
    table = pd.DataFrame(rows)
    source = data.load("fashion_mnist").name
    setup = f"{RANKS} ranks, {KILLS} kills · a commit every {COMMIT_INTERVAL} steps"
    caption = f"{source} · {setup} · {experiments.machine()}"
    return experiments.Recording(
        table,
        draw(table, caption),
        data=source,
        seeds="first weights 1, batches by step, kills 4",
    )


def draw(table: pd.DataFrame, caption: str) -> plots.Figure:
    """For each kill: steps lost by the step of the kill; seconds until it was noticed and until the others went on."""
    with plots.style():
        figure, axes = plots.subplots(height=360, columns=2, caption=caption)
        for rank, group in table.groupby("killed rank"):
            look = {"color": plots.colour(rank), "marker": plots.MARKERS[rank], "linestyle": ""}
            axes[0].plot(group["after step"], group["steps lost"], label=f"rank {rank} killed", **look)
            axes[1].plot(group["run"], group["went on"], **look)
            axes[1].plot(group["run"], group["noticed"], **{**look, "markerfacecolor": "none"})
        # After step k the others finish step k + 1, to which the killed rank had given its part; then they notice.
        finished = np.arange(10, STEPS + 1)
        lost = finished % COMMIT_INTERVAL
        breaks = np.flatnonzero(lost == 0)[1:]
        line = np.insert(finished - 1.0, breaks, np.nan), np.insert(lost.astype(float), breaks, np.nan)
        axes[0].plot(*line, color=plots.FAINT, linewidth=1, zorder=0, label="done since the last commit")
        axes[0].set(title="What is lost", xlabel="killed after step", ylabel="steps done twice")
        axes[0].set_ylim(-0.5, COMMIT_INTERVAL + 1)
        axes[1].set_yscale("log")
        axes[1].set(title="How long it takes: noticed (open), went on (full)", xlabel="run", ylabel="s after the kill")
        axes[1].set_xticks(range(1, KILLS + 1))
        axes[1].set_yticks([0.05, 0.1, 0.5, 1, 5], ["0.05", "0.1", "0.5", "1", "5"])
        axes[1].minorticks_off()
        figure.legend(loc="upper left", ncols=4)
        figure.subplots_adjust(wspace=0.2)
    return figure
