"""Run a script on several ranks and watch it in the notebook.

`train` returns when the run has ended, so the cells below can use its result. Plain functions produce all of the
output: events update a `LiveState`; `verdict`, `causes`, `bars`, `figure` and `output` turn the state into sentences,
HTML and a figure. A notebook without a front end shows the same at the end.
"""

from __future__ import annotations

import base64
import html
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from IPython.display import display
from ipywidgets import HTML, Accordion, Image, VBox

from course_lib.notebook import plots
from course_lib.notebook.widgets.live_state import LiveState, Progress, plain
from course_lib.ranks import launch
from course_lib.ranks.messages.known_errors import hint
from course_lib.ranks.run import SILENCE_S
from course_lib.system.errors import CourseError

REDRAW_INTERVAL_S = 1.0  # minimum time between two figures
_STYLE = "<style>" + Path(__file__).with_name("live.css").read_text(encoding="utf-8") + "</style>"


# Text and pictures made of a state


def verdict(state: LiveState) -> tuple[str, str]:
    """The state of the run as (kind, sentence); kind is "running", "finished", "stopped" or "failed"."""
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


def causes(state: LiveState) -> list[str]:
    """Sentences on why a run is stalled or has failed: which rank waits for which, and advice for a known error."""
    if state.result is None:
        silent = f"Nothing has happened for {SILENCE_S:g} s. {state.stall} Stop ends the run."
        return [silent] if state.stall else []
    if state.result.code == 0:
        return []
    advice = "" if state.stopped else hint((*state.result.tail, state.result.reason))
    return [sentence for sentence in (state.result.cause, advice) if sentence]


def figure(state: LiveState) -> plots.Figure | None:
    """A figure of loss and accuracy of every rank so far; None if there is no data yet."""
    epochs, batches = state.epochs, state.batches
    if epochs.empty and batches.empty:
        return None
    curves = plots.curves(epochs, batches, caption=plots.provenance(state.data, state.ranks))
    if state.result is None:
        for axis in curves.axes:  # the range of the whole training from the start
            axis.set_xlim(0, max(progress.total for progress in state.progress.values()))
    return curves


def headline(state: LiveState) -> str:
    """The verdict as HTML, next to the elapsed time or the title of the run, above the causes of a problem."""
    kind, sentence = verdict(state)
    beside = f"{duration(state.seconds)} so far" if kind == "running" else state.title
    below = "".join(f'<div class="course-live-cause">{html.escape(cause)}</div>' for cause in causes(state))
    return first_line(kind, sentence, beside) + below


def first_line(kind: str, sentence: str, beside: str) -> str:
    """A sentence as HTML in the style of its kind (see `verdict`), with the text `beside` next to it."""
    return (
        f'{_STYLE}<div class="course-live-headline course-live-{kind}"><b>{html.escape(sentence)}</b> '
        f"<span>{html.escape(beside)}</span></div>"
    )


def bars(state: LiveState) -> str:
    """Progress, images per second and remaining time of every rank as HTML."""
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
    """The end of a run as HTML without widgets: verdict, bars, and the last lines of a failed rank."""
    parts = [headline(state), bars(state)]
    if verdict(state)[0] == "failed" and state.result.tail:
        parts.append(output((state.result.failed_rank, plain(line)) for line in state.result.tail))
    return "".join(parts)


def details(state: LiveState) -> str:
    """The curves of a run and its folded output, as HTML without widgets."""
    parts = []
    drawn = figure(state)
    if drawn:
        picture = base64.b64encode(drawn.png()).decode()
        parts.append(f'<img class="course-live-figure" alt="curves" src="data:image/png;base64,{picture}">')
    if state.lines:
        parts.append(f"<details><summary>Output</summary>{output(state.lines)}</details>")
    return f'{_STYLE}<div class="course-live">{"".join(parts)}</div>'


def stop_button(state: LiveState) -> str:
    """The head of a running run as HTML: its title, and a button for Kernel → Interrupt.

    JupyterLab itself executes the button's command. Most kernels process a widget's click only after the end of the
    cell, which would be too late.
    """
    return (
        f'{_STYLE}<div class="course-live-head"><span>{html.escape(state.title)}</span>'
        '<button data-commandlinker-command="notebook:interrupt-kernel" '
        'title="End all ranks, as Kernel → Interrupt does">■ Stop</button></div>'
    )


def _html(markup: str, text: str = "") -> dict[str, str]:
    return {"text/html": markup, "text/plain": text}


def duration(seconds: float) -> str:
    """The text of a duration: "12 s", "3 min 5 s"."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _epoch_of(progress: Progress) -> str:
    return f"epoch {min(int(progress.position) + 1, progress.total)} of {progress.total}" if progress.total else ""


def _pace(images_per_second: float) -> str:
    return f"{images_per_second:,.0f} images/s"


# The run and its view


@dataclass(frozen=True, repr=False)
class Record:
    """The record of a finished run: its title and its result; `result.code` is 0 if all ranks succeeded."""

    title: str
    result: launch.Result
    _epochs: pd.DataFrame
    _batches: pd.DataFrame

    @property
    def epochs(self) -> pd.DataFrame:
        """One row for each rank and epoch; for a stopped run, the epochs until then.

        Columns: rank, epoch (from 1), seconds (including validation), images (on which the rank has trained so far),
        loss, accuracy, val_loss, val_accuracy and other metrics. Raises CourseError if a rank failed or none trained.
        """
        return self._read(self._epochs)

    @property
    def batches(self) -> pd.DataFrame:
        """One row for each measured batch: rank, epoch (2.5 is the middle of the third), images, loss, accuracy.

        Raises CourseError as `epochs` does.
        """
        return self._read(self._batches)

    def _read(self, table: pd.DataFrame) -> pd.DataFrame:
        if table.empty or self.result.failed_rank is not None:
            self.result.check(self.title)
        if table.empty:
            raise CourseError(f"{self.title}: no rank has trained with `fit`, so there is nothing to read.")
        return table

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

    Stop and Kernel → Interrupt end the run; the record then has the data until the end.

    Args:
        script: a Python script.
        args: its arguments.
        ranks: number of Horovod ranks; default: one for each GPU, or two without GPUs.
        data: name of the data set, for the caption.
        timeout: seconds after which the run is ended.
        env: variables to add to the environment of the ranks.

    Raises:
        CourseError: for invalid arguments, before the start of the run.
    """
    ranks = launch.default_ranks() if ranks is None else ranks
    command = " ".join([Path(script).name, *map(str, args)])
    title = f"{command} on {ranks} {'rank' if ranks == 1 else 'ranks'}"
    options = launch.Options(training_events=True)
    with launch.start(script, args, ranks, timeout=timeout, env=env, options=options) as run:
        return watch(run, LiveState(title, ranks, data))


def watch(run: launch.Run, state: LiveState) -> Record:
    """Show a run until it ends, with a Stop button above the widgets; the button and Kernel → Interrupt end it."""

    def events(put: Callable[[launch.Event], None]) -> None:
        for event in run:
            put(event)

    began = time.monotonic()
    panes = Panes()
    try:
        top = display(_html(stop_button(state), f"{state.title} is running."), raw=True, display_id=True)
        panes.redraw(state, lambda: headline(state))
        box = VBox([panes.headline, panes.body])
        bottom = display(box, display_id=True)
        try:
            for event in ticking(events):
                if event is not None:
                    state.update(event)
                state.seconds = time.monotonic() - began
                panes.redraw(state, lambda: headline(state))
        except KeyboardInterrupt:
            state.stopped = True
    finally:
        state.result = _end(run)
    state.seconds = state.result.seconds
    # Replace the button and widgets by plain HTML, which is saved with the notebook.
    top.update(_html(summary(state), " ".join([verdict(state)[1], *causes(state)])), raw=True)
    bottom.update(_html(details(state)), raw=True)
    panes.close()
    box.close()
    return Record(state.title, state.result, state.epochs, state.batches)


def _end(run: launch.Run) -> launch.Result:
    while True:
        try:
            run.stop()
            return run.wait()
        except KeyboardInterrupt:  # a second interrupt: the run is being stopped already
            pass


def ticking(produce: Callable[[Callable[[launch.Event], None]], None]) -> Iterator[launch.Event | None]:
    """Yield the events that `produce`, in a thread, passes to its argument.

    Yields None after each REDRAW_INTERVAL_S without an event, so that the elapsed time can be updated.
    """
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
    """Widgets that show a changing state: `headline`, and `body` with bars, curves and folded output."""

    def __init__(self, share: float = 0.1) -> None:
        """`share`: maximum fraction of the time for drawing, because the ranks need the processors."""
        self._share, self._next = share, 0.0
        self.headline, self._bars, self._output = HTML(), HTML(), HTML()
        self._picture = Image(format="png", layout={"display": "none"})
        self._picture.add_class("course-live-figure")
        self._log = Accordion([self._output], titles=["Output"], selected_index=None)
        self.body = VBox([self._bars, self._picture, self._log], layout={"max_width": f"{plots.WIDTH}px"})

    def redraw(self, state: LiveState, say: Callable[[], str], at_once: bool = False) -> None:
        """Show a state under the headline that `say` returns, unless the last redraw was too recent; or `at_once`."""
        began = time.monotonic()
        if began < self._next and not at_once:
            return
        top, middle, drawn = say(), bars(state), figure(state)
        picture = drawn.png() if drawn else b""  # drawn before the text is updated, so that both change together
        self.headline.value, self._bars.value = top, _STYLE + middle
        self._output.value = output(state.lines)
        self._picture.value = picture
        self._picture.layout.display = "block" if picture else "none"
        self._next = began + max(REDRAW_INTERVAL_S, (time.monotonic() - began) / self._share)

    def close(self) -> None:
        """Remove the widgets from the page and from the kernel."""
        for widget in (self.headline, self._output, *self.body.children, self.body):
            widget.close()
