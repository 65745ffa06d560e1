"""Run a script on several ranks and watch it in the notebook.

`train` blocks its cell until the run has ended, so the cells below can use what it returns. All that it shows
is made by plain functions: events go into a `LiveState`; `verdict`, `bars`, `figure` and `output` turn the
state into HTML, a picture and a sentence. A notebook that runs without a front end shows the same at the end.
"""

from __future__ import annotations

import base64
import html
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from IPython.display import display
from ipywidgets import HTML, Accordion, Image, VBox

from course_lib.notebook import plots
from course_lib.ranks import environment, launch

REDRAW_INTERVAL_S = 1.0  # between two pictures, at least
MAX_LINES = 200  # of output that are kept
_STYLE = "<style>" + Path(__file__).with_name("live.css").read_text(encoding="utf-8") + "</style>"
METRICS = ("loss", "accuracy", "val_loss", "val_accuracy")


# What the events have told so far


@dataclass
class Progress:
    """How far one rank has come. Positions are in epochs: 2.5 is the middle of the third."""

    total: int = 0  # epochs that the script has asked for
    steps: int | None = None  # of an epoch, where known
    position: float = 0.0
    images: int = 0  # trained on
    offset: int = 0  # epochs of earlier fits of the same script
    began: float = 0.0  # time at which the present epoch began
    first: tuple[float, float, int] | None = None  # time, position and images after the first measured batch
    recent: deque = field(default_factory=lambda: deque(maxlen=30))  # (time, images): some six seconds

    @property
    def fraction(self) -> float:
        """Of the training that is done."""
        return min(1.0, self.position / self.total) if self.total else 0.0

    @property
    def seconds_left(self) -> float | None:
        """From the pace since the first measured batch, so that building the graph does not count."""
        if not self.first or self.position <= self.first[1]:
            return None
        began, position, _ = self.first
        pace = (self.recent[-1][0] - began) / (self.position - position)
        return max(0.0, (self.total - self.position) * pace)

    def images_per_second(self, overall: bool = False) -> float | None:
        """The pace of the last seconds, or of the whole last fit without its first measured batch."""
        if not self.first or not self.recent:
            return None
        began, before = (self.first[0], self.first[2]) if overall else self.recent[0]
        ended, after = self.recent[-1]
        return (after - before) / (ended - began) if ended > began else None


class LiveState:
    """What the live view knows of a run: a pure function of the events it was given.

    Attributes:
        ranks: number of ranks.
        progress: rank -> Progress, for ranks that have begun to train.
        lines: the last lines of output as (rank or None, text).
        result: the launcher's Result, once the run has ended.
        stopped: the user has asked for the end.
    """

    def __init__(self, title: str, ranks: int, data: str = "") -> None:
        self.title, self.ranks, self.data = title, ranks, data
        self.progress: dict[int, Progress] = {}
        self.lines: deque[tuple[int | None, str]] = deque(maxlen=MAX_LINES)
        self.result: launch.Result | None = None
        self.stopped = False
        self.seconds = 0.0
        self._batches: dict[str, list] = {name: [] for name in ("rank", "epoch", "images", *METRICS[:2])}
        self._epochs: list[dict] = []

    def update(self, event: launch.Event) -> None:
        """Take in one event. Kinds that this view does not know are passed over."""
        self.seconds = max(self.seconds, event.time)
        if event.kind == "output":
            self.lines.append((event.rank, _plain(event.data["text"])))
        elif event.kind in ("fit", "batch", "epoch"):
            progress = self.progress.setdefault(event.rank, Progress())
            getattr(self, f"_{event.kind}")(event, progress)
        elif event.kind == "images":  # from a loop that is not Keras's: no epochs, no metrics
            self._measure(event, self.progress.setdefault(event.rank, Progress()))

    def _fit(self, event: launch.Event, progress: Progress) -> None:
        # A second fit goes on where the first has ended, unless it counts on from there itself.
        progress.offset = max(0, round(progress.position) - event.data["initial_epoch"])
        progress.total = progress.offset + event.data["epochs"]
        progress.steps = event.data["steps"]
        progress.position = float(progress.offset + event.data["initial_epoch"])
        progress.began = event.time
        progress.first = None
        progress.recent.clear()

    def _batch(self, event: launch.Event, progress: Progress) -> None:
        if progress.steps:
            part = (event.data["step"] + 1) / progress.steps
            progress.position = progress.offset + event.data["epoch"] + part
            if part > 0.05:  # Keras averages since the epoch began: its first values are of a few images
                self._point(event, progress, event.data)
        self._measure(event, progress)

    def _point(self, event: launch.Event, progress: Progress, metrics: Mapping[str, float]) -> None:
        row = {**metrics, "rank": event.rank, "epoch": progress.position, "images": event.data["images"]}
        for name, column in self._batches.items():
            column.append(row.get(name))

    def _epoch(self, event: launch.Event, progress: Progress) -> None:
        progress.position = float(progress.offset + event.data["epoch"] + 1)
        self._epochs.append(
            {
                **event.data["logs"],  # first: a metric may have any name
                "rank": event.rank,
                "epoch": int(progress.position),
                "seconds": event.time - progress.began,
                "images": event.data["images"],
            }
        )
        self._point(event, progress, event.data["logs"])  # where the line of this epoch's batches ends
        progress.began = event.time
        self._measure(event, progress)

    def _measure(self, event: launch.Event, progress: Progress) -> None:
        progress.images = event.data["images"]
        progress.recent.append((event.time, progress.images))
        progress.first = progress.first or (event.time, progress.position, progress.images)

    @property
    def epochs(self) -> pd.DataFrame:
        """One row for each rank and epoch; see `Record.epochs`."""
        frame = pd.DataFrame(self._epochs)
        columns = ["rank", "epoch", "seconds", "images", *METRICS]
        return frame.reindex(columns=[*columns, *(name for name in frame if name not in columns)])

    @property
    def batches(self) -> pd.DataFrame:
        """One row for each rank and measured batch; see `Record.batches`."""
        return pd.DataFrame(self._batches)


def _plain(text: str) -> str:
    """A line as it would stand on a terminal at last: without colours and without what was overwritten."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).rstrip("\r\n\b")
    return re.split(r"[\r\b]+", text)[-1]


# Text and pictures made of a state


def verdict(state: LiveState) -> tuple[str, str]:
    """(kind, sentence); kind is "running", "finished", "stopped" or "failed"."""
    if state.result is None:
        if not state.progress:
            return "running", f"Starting {state.ranks} {'rank' if state.ranks == 1 else 'ranks'} …"
        left = [progress.seconds_left for progress in state.progress.values()]
        known = [seconds for seconds in left if seconds is not None]
        return "running", f"Training, {duration(max(known))} left" if known else "Training"
    if state.result.code == 0:
        return "finished", f"Finished in {duration(state.result.seconds)}."
    if state.stopped:
        return "stopped", f"Stopped after {duration(state.result.seconds)}."
    return "failed", state.result.message or f"Failed with exit code {state.result.code}."


def figure(state: LiveState) -> plots.Figure | None:
    """Loss and accuracy of every rank so far; None before there is anything to draw."""
    if state.epochs.empty and state.batches.empty:
        return None
    card = plots.curves(state.epochs, state.batches, caption=plots.provenance(state.data, state.ranks))
    if state.result is None:
        for axis in card.axes:  # the whole way, so that the curves grow into it
            axis.set_xlim(0, max(progress.total for progress in state.progress.values()))
    return card


def headline(state: LiveState) -> str:
    """The verdict as HTML, beside it the seconds so far or what has run."""
    kind, sentence = verdict(state)
    return first_line(kind, sentence, f"{duration(state.seconds)} so far" if kind == "running" else state.title)


def first_line(kind: str, sentence: str, beside: str) -> str:
    """A sentence in the look of its kind (see `verdict`) as HTML, and what stands beside it."""
    return (
        f'{_STYLE}<div class="course-live-headline course-live-{kind}"><b>{html.escape(sentence)}</b> '
        f"<span>{html.escape(beside)}</span></div>"
    )


def bars(state: LiveState) -> str:
    """Progress, images per second and time left of every rank as HTML."""
    ended = state.result is not None
    rows, paces = [], []
    for rank in range(state.ranks):
        progress = state.progress.get(rank, Progress())
        percent = 100 * progress.fraction
        pace = progress.images_per_second(overall=ended)
        paces += [] if pace is None else [pace]
        left = None if ended else progress.seconds_left
        rows.append(
            f"<em>rank {rank}</em>"
            f'<div role="progressbar" aria-label="rank {rank}" aria-valuenow="{percent:.0f}">'
            f'<div style="width:{percent:.1f}%;background:{plots.colour(rank)}"></div></div>'
            f"<span>{_epoch_of(progress)}</span><span>{'' if pace is None else _pace(pace)}</span>"
            f"<span>{'' if left is None else duration(left) + ' left'}</span>"
        )
    if len(paces) > 1:
        rows.append(f"<em>together</em><span></span><span></span><span>{_pace(sum(paces))}</span><span></span>")
    return f'<div class="course-live-bars">{"".join(rows)}</div>'


def output(lines: Iterable[tuple[int | None, str]]) -> str:
    """Lines of output as HTML, each with its rank in the rank's colour."""
    rows = []
    for rank, text in lines:
        tag = "" if rank is None else f'<b style="color:{plots.colour(rank)}">{rank}</b> '
        rows.append(tag + html.escape(text))
    return '<div class="course-live-output">' + "\n".join(rows) + "</div>"


def summary(state: LiveState) -> str:
    """How a run ended as HTML without widgets: verdict, bars and the last lines of a rank that failed."""
    parts = [headline(state), bars(state)]
    if verdict(state)[0] == "failed" and state.result.tail:
        parts.append(output((state.result.failed_rank, _plain(line)) for line in state.result.tail))
    return "".join(parts)


def details(state: LiveState) -> str:
    """What a run has shown as HTML without widgets: curves, and the output behind a fold."""
    parts = []
    drawn = figure(state)
    if drawn:
        picture = base64.b64encode(drawn.png()).decode()
        parts.append(f'<img class="course-live-figure" alt="curves" src="data:image/png;base64,{picture}">')
    if state.lines:
        parts.append(f"<details><summary>Output</summary>{output(state.lines)}</details>")
    return f'{_STYLE}<div class="course-live">{"".join(parts)}</div>'


def stop_button(state: LiveState) -> str:
    """The head of a run in progress as HTML: what runs, and a button that presses Kernel → Interrupt.

    JupyterLab runs the button's command itself. A widget's click would wait in most kernels until the cell
    has ended, which is too late here.
    """
    return (
        f'{_STYLE}<div class="course-live-head"><span>{html.escape(state.title)}</span>'
        '<button data-commandlinker-command="notebook:interrupt-kernel" '
        'title="End all ranks, as Kernel → Interrupt does">■ Stop</button></div>'
    )


def _html(markup: str, text: str = "") -> dict[str, str]:
    return {"text/html": markup, "text/plain": text}


def duration(seconds: float) -> str:
    """Seconds as people say them."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _epoch_of(progress: Progress) -> str:
    return f"epoch {min(int(progress.position) + 1, progress.total)} of {progress.total}" if progress.total else ""


def _pace(images_per_second: float) -> str:
    return f"{images_per_second:,.0f} images/s"


# The run and its view


@dataclass(frozen=True, repr=False)
class Record:
    """A finished run.

    Attributes:
        result: how it ended; `result.code` is 0 when every rank succeeded.
        epochs: one row for each rank and epoch: rank, epoch (from 1), seconds (with validation), images (that
            the rank has trained on by then), loss, accuracy, val_loss, val_accuracy and other metrics.
        batches: one row for each measured batch: rank, epoch (2.5 is the middle of the third), images, loss,
            accuracy.
    """

    title: str
    result: launch.Result
    epochs: pd.DataFrame
    batches: pd.DataFrame

    def __repr__(self) -> str:
        return f"<{self.title}: exit code {self.result.code} after {duration(self.result.seconds)}>"


def train(
    script: str | Path,
    *args: object,
    ranks: int | None = None,
    data: str = "",
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
) -> Record:
    """Run a script on several ranks and show it live: progress, curves, images per second, a Stop button.

    Stop and Kernel → Interrupt end the run; the record holds what there was by then.

    Args:
        script: a Python script.
        args: its arguments.
        ranks: how many copies of it run, under Horovod; by default one for each GPU, else two.
        data: what it trains on, for the caption.
        timeout: seconds after which the run is ended.
        env: variables to add to the environment of the ranks.

    Raises:
        CourseError: for bad input, before anything has started.
    """
    ranks = launch.default_ranks() if ranks is None else ranks
    command = " ".join([Path(script).name, *map(str, args)])
    title = f"{command} on {ranks} {'rank' if ranks == 1 else 'ranks'}"
    env = {environment.TRAINING_EVENTS: "1", **(env or {})}
    with launch.start(script, [str(arg) for arg in args], ranks=ranks, timeout=timeout, env=env) as run:
        return watch(run, LiveState(title, ranks, data))


def watch(run: launch.Run, state: LiveState) -> Record:
    """Show a run until it ends. The Stop button and Kernel → Interrupt end it."""

    def events(put: Callable[[launch.Event], None]) -> None:
        for event in run:
            put(event)

    try:
        view = View(state)
        try:
            for event in ticking(events):
                if event is not None:
                    state.update(event)
                view.redraw()
        except KeyboardInterrupt:
            state.stopped = True
    finally:
        state.result = _end(run)
    state.seconds = state.result.seconds
    view.close()
    return Record(state.title, state.result, state.epochs, state.batches)


def _end(run: launch.Run) -> launch.Result:
    while True:
        try:
            run.stop()
            return run.wait()
        except KeyboardInterrupt:  # pressed again: the end is near
            pass


def ticking(produce: Callable[[Callable[[launch.Event], None]], None]) -> Iterator[launch.Event | None]:
    """The events that `produce`, in a thread, hands to its argument; and None whenever a while has passed without
    one, so that the clock goes on."""
    arrived: queue.Queue = queue.Queue()
    end = object()

    def pump() -> None:
        try:
            produce(arrived.put)
        finally:
            arrived.put(end)

    threading.Thread(target=pump, daemon=True).start()
    while True:
        try:
            event = arrived.get(timeout=REDRAW_INTERVAL_S)
        except queue.Empty:
            yield None
            continue
        if event is end:
            return
        yield event


class Panes:
    """Widgets that show a state as it changes: `headline`, and in `body` bars, curves, and output behind a fold."""

    def __init__(self, share: float = 0.1) -> None:
        """`share`: the part of the time that drawing may take at most: the ranks need the rest."""
        self._share, self._next = share, 0.0
        self.headline, self._bars, self._output = HTML(), HTML(), HTML()
        self._picture = Image(format="png", layout={"display": "none"})
        self._picture.add_class("course-live-figure")
        self._log = Accordion([self._output], titles=["Output"], selected_index=None)
        self.body = VBox([self._bars, self._picture, self._log], layout={"max_width": f"{plots.WIDTH}px"})

    def redraw(self, state: LiveState, say: Callable[[], str], at_once: bool = False) -> None:
        """Show a state under the headline that `say` makes, not too often, or `at_once`."""
        began = time.monotonic()
        if began < self._next and not at_once:
            return
        top, middle, drawn = say(), bars(state), figure(state)
        picture = drawn.png() if drawn else b""  # drawn before anything is sent: text and picture agree
        self.headline.value, self._bars.value = top, _STYLE + middle
        self._output.value = output(state.lines)
        self._picture.value = picture
        self._picture.layout.display = "block" if picture else "none"
        self._next = began + max(REDRAW_INTERVAL_S, (time.monotonic() - began) / self._share)

    def close(self) -> None:
        """Take the widgets off the page and out of the kernel."""
        for widget in (self.headline, self._output, *self.body.children, self.body):
            widget.close()


class View:
    """A run in progress: a Stop button over widgets; plain HTML takes their place when the run has ended."""

    def __init__(self, state: LiveState) -> None:
        self._state = state
        self._began = time.monotonic()
        self._panes = Panes()
        self._top = display(_html(stop_button(state), f"{state.title} is running."), raw=True, display_id=True)
        self.redraw()
        self._box = VBox([self._panes.headline, self._panes.body])
        self._bottom = display(self._box, display_id=True)

    def redraw(self) -> None:
        """Show the state, not too often."""
        self._state.seconds = time.monotonic() - self._began
        self._panes.redraw(self._state, lambda: headline(self._state))

    def close(self) -> None:
        """Put plain HTML in the place of button and widgets: it is saved with the notebook."""
        self._top.update(_html(summary(self._state), verdict(self._state)[1]), raw=True)
        self._bottom.update(_html(details(self._state)), raw=True)
        self._panes.close()
        self._box.close()
