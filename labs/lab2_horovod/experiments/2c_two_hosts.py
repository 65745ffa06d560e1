"""What the network costs: the converted fashion_mnist.py on one host and across two, by each launcher.

The hosts are pretended ones (`ranks.namespaces`): network namespaces of this machine with names, addresses and
SSH servers of their own, joined by a virtual cable. In two cases each may send 1 Gbit/s or 100 Mbit/s only (a token
bucket; the kernel had no means to add latency). Both ranks always share the same processors, with one thread each.
"""

from __future__ import annotations

import json
import shlex
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.lines import Line2D

from course_lib import data
from course_lib.authoring import conversions
from course_lib.notebook import experiments, plots
from course_lib.ranks import environment, namespaces
from course_lib.system.errors import CourseError, last_line

SLICE, EPOCHS = 15_998, 2  # images, of which a fifth is held back; 198 steps
RANKS = 2
LAUNCHERS = {
    "horovodrun, Gloo": "horovodrun --gloo -np 2 -H {hosts} python fashion_mnist.py --epochs {epochs}",
    "horovodrun, MPI": "horovodrun --mpi -np 2 -H {hosts} python fashion_mnist.py --epochs {epochs}",
    "mpirun": "mpirun -np 2 -H {hosts} -bind-to none python fashion_mnist.py --epochs {epochs}",
}
ONE, TWO = "a:2", "a:1,b:1"
CASES = {  # → hosts, limit, its bytes a second
    "one host": (ONE, None, np.inf),
    "two hosts": (TWO, None, np.inf),
    "two hosts, 1 Gbit/s": (TWO, "1gbit", 1e9 / 8),
    "two hosts, 100 Mbit/s": (TWO, "100mbit", 1e8 / 8),
}

# What each rank saw, written where the script runs.
TIMER_CODE = """
ends = []
callbacks.append(tf.keras.callbacks.LambdaCallback(on_batch_end=lambda batch, logs: ends.append(time.time())))
start = time.time()
"""
REPORT_CODE = """
import hashlib, json, socket
import psutil

weights = model.get_weights()
seen = {
    "host": socket.gethostname(),
    "address": next(iter(psutil.net_if_addrs()["eth0"])).address,
    "local_rank": hvd.local_rank(),
    "local_size": hvd.local_size(),
    "weights": hashlib.sha256(b"".join(array.tobytes() for array in weights)).hexdigest()[:16],
    "bytes": sum(array.nbytes for array in weights),
    "accuracy": float(accuracy),
    "ends": ends,
}
open(f"rank-{hvd.rank()}.json", "w").write(json.dumps(seen))
"""


def rank_environment(images: int) -> dict[str, str]:
    """What who logs in to a host finds: one thread for each rank, the course's kernels, `images` of the data."""
    return {"COURSE_SLICE": str(images), **environment.ONE_THREAD, **environment.TENSORFLOW}


def write_script(folder: Path) -> None:
    """The solution of 2b, which also tells where it ran and how long its steps took."""
    text = conversions.converted()
    assert text.count("\nstart = time.time()\n") == 1
    (folder / conversions.script().name).write_text(
        text.replace("\nstart = time.time()\n", TIMER_CODE) + REPORT_CODE, encoding="utf-8"
    )


def run(host: namespaces.Host, command: str, folder: Path) -> list[dict]:
    """Run `command` in `folder` on `host`; what each rank saw."""
    done = host.run(shlex.split(command), cwd=folder, timeout=300)
    if done.returncode:
        said = last_line(done.stderr or done.stdout, "no message")
        raise CourseError(f"{command} ended with exit code {done.returncode}: {said}")
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(RANKS)]


def main() -> experiments.Recording:
    rows = []
    with namespaces.hosts(2, rank_environment(SLICE)) as hosts:
        for case, (where, limit, bandwidth) in CASES.items():
            for host in hosts:
                host.limit(limit)
            for launcher, line in LAUNCHERS.items():
                command = line.format(hosts=where, epochs=EPOCHS)
                with tempfile.TemporaryDirectory() as work:
                    write_script(Path(work))
                    started = time.time()
                    ranks = run(hosts[0], command, Path(work))
                rows.append(row(case, launcher, command, bandwidth, ranks, time.time() - started))
                print(f"{case}, {launcher}: {rows[-1]['seconds per step']} s a step", flush=True)
    table = pd.DataFrame(rows)
    source = f"{data.load('fashion_mnist').name}, first {SLICE:,} images"
    caption = f"{source}, 64 a step on each rank · 2 ranks, one thread each · {experiments.machine()}"
    return experiments.Recording(
        table,
        draw(table, caption),
        data=source,
        seeds="1 for the first weights and the order of the images",
        hosts="two network namespaces of one machine, each with an SSH server; they share its processors",
    )


def row(case: str, launcher: str, command: str, bandwidth: float, ranks: list[dict], seconds: float) -> dict:
    # The first steps of an epoch fill the pipeline; between epochs the ranks validate.
    per_epoch = len(ranks[0]["ends"]) // EPOCHS
    ends = np.array(ranks[0]["ends"]).reshape(EPOCHS, per_epoch)
    steps = np.diff(ends)[:, 10:].ravel()
    low, middle, high = np.quantile(steps, [0.1, 0.5, 0.9]).round(5)
    ring = 2 * (RANKS - 1) / RANKS * ranks[0]["bytes"] / bandwidth
    return {
        "hosts": case,
        "launcher": launcher,
        "command": command,
        "ranks saw": ", ".join(f"{rank['host']} ({rank['address']})" for rank in ranks),
        "local ranks": ", ".join(f"{rank['local_rank']} of {rank['local_size']}" for rank in ranks),
        "seconds per step": middle,
        "fastest tenth": low,
        "slowest tenth": high,
        "cable alone": round(ring, 5),
        "validation accuracy": round(ranks[0]["accuracy"], 4),
        "weights": ranks[0]["weights"],
        "ranks agree": len({rank["weights"] for rank in ranks}) == 1,
        "seconds": round(seconds, 1),
    }


def draw(table: pd.DataFrame, caption: str) -> plots.Figure:
    """Milliseconds a step: a line for each case, a dot for each launcher, from the 10th to the 90th hundredth."""
    with plots.style():
        figure, (axis,) = plots.subplots(height=330, caption=caption)
        for number, launcher in enumerate(LAUNCHERS):
            rows = table[table["launcher"] == launcher]
            y = rows["hosts"].map(list(CASES).index) + 0.2 * (number - 1)
            low, middle, high = (1e3 * rows[name] for name in ("fastest tenth", "seconds per step", "slowest tenth"))
            look = {"color": plots.colour(number), "marker": plots.MARKERS[number]}
            axis.hlines(y, low, high, color=look["color"], linewidth=1.5)
            axis.plot(middle, y, linestyle="", label=launcher, **look)
        for number, (case, rows) in enumerate(table.groupby("hosts", sort=False)):
            cable = 1e3 * rows["cable alone"].iloc[0]
            if cable:
                axis.plot(
                    [cable, cable], [number - 0.35, number + 0.35], color=plots.INK, linestyle="--", linewidth=1.2
                )
            assert list(CASES)[number] == case
        axis.set_yticks(range(len(CASES)), list(CASES))
        axis.set_ylim(len(CASES) - 0.5, -0.5)
        axis.set_xlim(left=0)
        axis.set_xlabel("milliseconds a step: median, fastest and slowest tenth")
        handles, labels = axis.get_legend_handles_labels()
        handles.append(Line2D([], [], color=plots.INK, linestyle="--", linewidth=1.2))
        labels.append("gradient ÷ bandwidth")
        figure.legend(handles, labels, loc="upper left", ncols=4)
        figure.subplots_adjust(left=170 / plots.WIDTH)
    return figure
