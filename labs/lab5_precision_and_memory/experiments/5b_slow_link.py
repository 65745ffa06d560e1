"""Seconds a step with gradients of 32, 16, 8 and 4 bits, between two hosts at 100 Mbit/s, 1 Gbit/s and without limit.

The hosts are pretended ones (`ranks.namespaces`): network namespaces of this machine, joined by a virtual cable, on
which each may send so much (a token bucket). On each stands one rank with one thread; they share the processors. A
step: the gradient of a dense network on drawn images in NumPy, then the all-reduce round the library's ring over TCP,
with factors, casts and packing in NumPy. The formats take turns. Bytes are counted twice: what the rank hands to TCP,
and what the host's network card has sent, headers and Horovod's own messages included.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from course_lib.notebook import experiments, plots
from course_lib.ranks import environment, namespaces
from course_lib.system.paths import ROOT
from labs.lab5_precision_and_memory.lessons import figures_5b, narrow_wire

FORMS = (narrow_wire.FLOAT32, (5, 10), (4, 3), (3, 0))
LIMITS = {"no limit": None, "1 Gbit/s": "1gbit", "100 Mbit/s": "100mbit"}
WIDTHS, BATCH, STEPS = (784, 400, 100, 10), 64, 30
SCRIPT = f"""
import json
from course_lib.ranks import launch
def function():
    import horovod.tensorflow as hvd
    from labs.lab5_precision_and_memory.lessons import narrow_training, narrow_wire
    hvd.init()
    me, seen = narrow_wire.connect(), []
    def card():
        (line,) = [line for line in open("/proc/self/net/dev") if line.strip().startswith("eth0:")]
        return int(line.partition(":")[2].split()[8])
    for form in {FORMS!r}:
        before = card()
        narrow_training.time_steps(me, [form], 4, {BATCH}, {WIDTHS!r})
        seen.append((card() - before) / 5)
    rows = narrow_training.time_steps(me, {FORMS!r}, {STEPS}, {BATCH}, {WIDTHS!r})
    me.close()
    hvd.shutdown()
    return rows, seen
print(json.dumps(launch.call(function, hosts="a:1,b:1")))
"""


def measure(host: namespaces.Host) -> list:
    """On both ranks, started from `host`: the rows of `time_steps`, and the card's bytes a step by format."""
    done = host.run([sys.executable, "-c", SCRIPT], cwd=ROOT, timeout=300)
    if done.returncode:
        raise RuntimeError(f"The ranks failed:\n{done.stdout}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def rows_of(link: str, limit: str | None, by_rank: list) -> list[dict]:
    """A row for each format: medians and tenths of the slowest rank's seconds, bytes by rank 0's count and its card."""
    rows = []
    for number, form in enumerate(FORMS):
        steps = [[row for row in steps if tuple(row["form"]) == form] for steps, _ in by_rank]
        seconds = np.max([[row["step"] for row in rank] for rank in steps], axis=0)
        low, middle, high = np.quantile(seconds, [0.1, 0.5, 0.9])
        sent = steps[0][0]["bytes"]
        rows.append(
            {
                "link": link,
                "exponent": form[0],
                "mantissa": form[1],
                "bits": narrow_wire.bits(form),
                "seconds per step": round(middle, 5),
                "fastest tenth": round(low, 5),
                "slowest tenth": round(high, 5),
                "computing": round(float(np.median([row["computing"] for row in steps[0]])), 5),
                "bytes": sent,
                "bytes of the card": round(by_rank[0][1][number]),
                "cable alone": round(8 * sent / {"1gbit": 1e9, "100mbit": 1e8}[limit], 5) if limit else 0.0,
            }
        )
    return rows


def main(folder: Path) -> None:
    began, rows = time.time(), []
    with namespaces.hosts(2, {**environment.ONE_THREAD, **environment.TENSORFLOW}) as hosts:
        for link, limit in LIMITS.items():
            for host in hosts:
                host.limit(limit)
            rows += rows_of(link, limit, measure(hosts[0]))
            print(pd.DataFrame(rows[-len(FORMS) :]).to_string(index=False), flush=True)
    table = pd.DataFrame(rows)
    numbers = sum((inputs + 1) * outputs for inputs, outputs in zip(WIDTHS, WIDTHS[1:]))
    experiments.write_table(
        folder / "slow_link.csv",
        table,
        command="course reproduce slow_link",
        data=f"drawn images, {BATCH} on each rank; a network with {numbers:,} weights",
        seeds="0 for the weights, the rank's number for the images",
        hosts="two network namespaces of one machine; they share its processors",
        seconds=round(time.time() - began),
    )
    caption = f"{numbers:,} weights, {BATCH} drawn images a rank · 2 ranks, one thread each · {experiments.machine()}"
    draw(table, caption).savefig(folder / "slow_link.png", dpi=150)


def draw(table: pd.DataFrame, caption: str) -> plots.Card:
    """Milliseconds a step by bits, a panel for each link."""
    return figures_5b.slow_link(table, caption)
