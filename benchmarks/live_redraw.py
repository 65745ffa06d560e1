"""Measure how long one redraw of the live view takes, for short and long runs on few and many ranks.

    python benchmarks/live_redraw.py

A redraw should take less than 100 ms: it happens once a second, while the ranks need the processors.
"""

from __future__ import annotations

import statistics
import time

from course_lib.notebook.widgets import live as view
from course_lib.notebook.widgets.live_state import MAX_LINES, LiveState
from course_lib.ranks.launch import Event

STEPS = 900


def state(ranks: int, epochs: int, points: int) -> LiveState:
    """Return the state of a run before its last batch, with `points` measured batches per rank and epoch."""
    live = LiveState("train.py", ranks)
    for rank in range(ranks):
        live.update(Event("fit", rank, 0, {"epochs": epochs, "steps": STEPS, "initial_epoch": 0}))
        for epoch in range(epochs):
            for point in range(points):
                step = point * STEPS // points
                metrics = {"loss": 1 / (1 + epoch + step / STEPS), "accuracy": 0.8}
                moment = epoch * points / 5 + point / 5
                live.update(Event("batch", rank, moment, {"epoch": epoch, "step": step, "images": step, **metrics}))
            logs = {**metrics, "val_loss": 0.5, "val_accuracy": 0.7}
            live.update(Event("epoch", rank, moment, {"epoch": epoch, "images": STEPS, "logs": logs}))
    for line in range(MAX_LINES):
        live.update(Event("output", line % ranks, 1, {"stream": "stdout", "text": f"line {line}"}))
    return live


def measure(live: LiveState, repetitions: int = 15) -> tuple[float, float]:
    """Return the median milliseconds for the text and for the picture."""
    text, picture = [], []
    for _ in range(repetitions):
        began = time.perf_counter()
        view.headline(live), view.bars(live), view.output(live.lines)
        between = time.perf_counter()
        view.figure(live).png()
        text.append(between - began)
        picture.append(time.perf_counter() - between)
    return 1000 * statistics.median(text), 1000 * statistics.median(picture)


if __name__ == "__main__":
    print(f"{'ranks':>6}{'epochs':>8}{'points':>8}{'text ms':>9}{'picture ms':>12}")
    for ranks, epochs, points in ((1, 3, 50), (2, 3, 50), (2, 30, 150), (8, 30, 150)):
        text, picture = measure(state(ranks, epochs, points))
        print(f"{ranks:>6}{epochs:>8}{ranks * epochs * points:>8}{text:>9.1f}{picture:>12.1f}")
