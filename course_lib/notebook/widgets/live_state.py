"""The state of the live view of a run, updated by the run's events."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

import pandas as pd

from course_lib.ranks import launch

MAX_LINES = 200  # of output that are kept
METRICS = ("loss", "accuracy", "val_loss", "val_accuracy")


@dataclass
class Progress:
    """The progress of one rank. Positions are in epochs: 2.5 is the middle of the third."""

    total: int = 0  # number of epochs that the script requested
    steps: int | None = None  # per epoch, if known
    position: float = 0.0
    images: int = 0  # number of training images so far
    offset: int = 0  # epochs of earlier fits of the same script
    began: float = 0.0  # start of the current epoch
    first: tuple[float, float, int] | None = None  # time, position and images after the first measured batch
    recent: deque = field(default_factory=lambda: deque(maxlen=30))  # (time, images) of about the last six seconds

    def begin(self, event: launch.Event) -> None:
        """Process a `fit` event. A second fit continues the epochs of the first, if it does not do so itself."""
        initial = event.data["initial_epoch"]
        self.offset = max(0, round(self.position) - initial)
        self.total, self.position = self.offset + event.data["epochs"], float(self.offset + initial)
        self.steps, self.began, self.first = event.data["steps"], event.time, None
        self.recent.clear()

    def measure(self, event: launch.Event) -> None:
        """Process the number of images in an event."""
        self.images = event.data["images"]
        self.recent.append((event.time, self.images))
        self.first = self.first or (event.time, self.position, self.images)

    @property
    def fraction(self) -> float:
        """Fraction of the training that is done."""
        return min(1.0, self.position / self.total) if self.total else 0.0

    @property
    def seconds_left(self) -> float | None:
        """Estimated remaining seconds; None if unknown.

        From the speed since the first measured batch, to exclude the time for building the graph.
        """
        if not self.first or self.position <= self.first[1]:
            return None
        began, position, _ = self.first
        pace = (self.recent[-1][0] - began) / (self.position - position)
        return max(0.0, (self.total - self.position) * pace)

    def images_per_second(self, overall: bool = False) -> float | None:
        """Images per second in the last seconds, or `overall` in the last fit after its first measured batch."""
        if not self.first or not self.recent:
            return None
        began, before = (self.first[0], self.first[2]) if overall else self.recent[0]
        ended, after = self.recent[-1]
        return (after - before) / (ended - began) if ended > began else None


class LiveState:
    """The state of the live view of a run. It depends only on the events.

    Attributes:
        ranks: number of ranks.
        progress: rank -> Progress, for ranks that have started to train.
        lines: the last lines of output as (rank or None, text).
        stall: the launcher's sentence on why the run is stalled; "" while it makes progress.
        result: the launcher's Result; None before the end of the run.
        stopped: whether the user stopped the run.
    """

    def __init__(self, title: str, ranks: int, data: str = "") -> None:
        self.title, self.ranks, self.data = title, ranks, data
        self.progress: dict[int, Progress] = {}
        self.lines: deque[tuple[int | None, str]] = deque(maxlen=MAX_LINES)
        self.stall = ""
        self.result: launch.Result | None = None
        self.stopped = False
        self.seconds = 0.0
        self._batches: list[dict] = []
        self._epochs: list[dict] = []

    def update(self, event: launch.Event) -> None:
        """Process one event; ignore unknown kinds."""
        self.seconds = max(self.seconds, event.time)
        if event.kind == "output":
            self.lines.append((event.rank, plain(event.data["text"])))
        elif event.kind == "stall":
            self.stall = event.data["cause"]
        elif event.kind in ("fit", "batch", "epoch", "images"):  # images: from a loop without `fit`
            self.stall = ""
            progress = self.progress.setdefault(event.rank, Progress())
            if event.kind == "fit":
                progress.begin(event)
                return
            if event.kind == "batch" and progress.steps:
                self._batch(event, progress)
            elif event.kind == "epoch":
                self._epoch(event, progress)
            progress.measure(event)

    def _batch(self, event: launch.Event, progress: Progress) -> None:
        part = (event.data["step"] + 1) / progress.steps
        progress.position = progress.offset + event.data["epoch"] + part
        if part > 0.05:  # Keras averages since the start of the epoch: the first values are from a few images
            self._batches.append({**event.data, "rank": event.rank, "epoch": progress.position})

    def _epoch(self, event: launch.Event, progress: Progress) -> None:
        logs, images = event.data["logs"], event.data["images"]
        progress.position = float(progress.offset + event.data["epoch"] + 1)
        row = {"rank": event.rank, "epoch": int(progress.position), "images": images}
        self._epochs.append({**logs, **row, "seconds": event.time - progress.began})  # a metric may have any name
        self._batches.append({**logs, **row, "epoch": progress.position})  # the last point of this epoch's line
        progress.began = event.time

    @property
    def epochs(self) -> pd.DataFrame:
        """One row for each rank and epoch; see `Record.epochs`."""
        frame = pd.DataFrame(self._epochs)
        columns = ["rank", "epoch", "seconds", "images", *METRICS]
        return frame.reindex(columns=[*columns, *(name for name in frame if name not in columns)])

    @property
    def batches(self) -> pd.DataFrame:
        """One row for each rank and measured batch; see `Record.batches`."""
        return pd.DataFrame(self._batches, columns=["rank", "epoch", "images", *METRICS[:2]])


def plain(text: str) -> str:
    """The final text of a line on a terminal, without colours and overwritten parts."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).rstrip("\r\n\b")
    return re.split(r"[\r\b]+", text)[-1]
