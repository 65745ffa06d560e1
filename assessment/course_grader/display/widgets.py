"""The assessment in the notebook: a button, the live view of the run, the verdict, and the attempts so far.

The cell returns at once, and a thread runs the grader, so that Stop and other cells work during the assessment. Plain
functions make all HTML from a state and from the attempts on disk. The kernel keeps the widgets, so they are up to date
when a learner closes the page and opens it again.
"""

from __future__ import annotations

import atexit
import html
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from IPython import get_ipython
from IPython.display import display
from ipywidgets import HTML, Button, HBox, VBox

from course_grader.display import leaderboard, report
from course_grader.display.attempts import FOLDER, Attempt, Attempts
from course_grader.script import contract, grader
from course_grader.script.outcome import Stopped
from course_lib.notebook.widgets import live, train
from course_lib.notebook.widgets.live import duration
from course_lib.notebook.widgets.live_state import METRICS, LiveState
from course_lib.ranks import launch
from course_lib.system.errors import CourseError

__all__ = ["assess", "train"]  # for the assessment's notebook

_STYLE = "<style>" + Path(__file__).with_name("widgets.css").read_text(encoding="utf-8") + "</style>"
MAX_DRAWING_SHARE = 0.03  # of the time, so that drawing hardly slows the ranks
SHUTDOWN_LIMIT_S = 4.0  # for the end of a run when the kernel ends; Jupyter kills the kernel after 5 s


# The state of an assessment


class State:
    """The state of the current assessment, from its clock and its events.

    Attributes:
        attempt: the number of the attempt; 0 before there is one.
        running: whether an assessment is running.
        stopping: whether the user has stopped it.
        seconds: since its start.
        stage: description of the stage; `limit`: its time limit in seconds, or None.
        live: the state of the run on all ranks, as in any live view.
        problem: why there is no verdict; "" if there is one.
    """

    def __init__(self, title: str, ranks: int) -> None:
        self.live = LiveState(title, ranks)
        self.attempt = 0
        self.running = self.stopping = False
        self.seconds = self._since = 0.0
        self.stage, self.problem = "Starting", ""
        self.limit: float | None = None

    def update(self, event: launch.Event) -> None:
        """Update the state with one event. Invalid events are ignored, because a rank can send anything."""
        if event.kind == "stage":
            self.stage, self.limit = event.data["text"], event.data.get("limit")
            self._since = self.seconds
            if self.limit is not None:  # a run on all ranks begins
                self.live = LiveState(self.live.title, self.live.ranks)
        elif event.kind == "output" or _is_valid(event, self.live.ranks):
            self.live.update(event)

    @property
    def left(self) -> float | None:
        """Seconds until the time limit; None if the stage has none."""
        return None if self.limit is None else max(0.0, self.limit - (self.seconds - self._since))


_COUNTS = {
    "fit": ("epochs", "initial_epoch"),
    "batch": ("epoch", "step", "images"),
    "epoch": ("epoch", "images"),
    "images": ("images",),
}


def _is_valid(event: launch.Event, ranks: int) -> bool:
    """Return whether an event has the fields and types of the events that the instrumentation sends."""
    data = event.data
    counts = [data.get(name) for name in _COUNTS.get(event.kind, ())]
    if event.kind == "fit" and data.get("steps") is not None:
        counts.append(data.get("steps"))
    logs = data.get("logs") if event.kind == "epoch" else {name: data[name] for name in METRICS if name in data}
    return (
        event.rank in range(ranks)
        and bool(counts)
        and all(type(count) is int and 0 <= count < 10**12 for count in counts)
        and isinstance(logs, dict)
        and all(type(value) in (int, float) and not abs(value) > 1e30 for value in logs.values())
    )


# The HTML


def headline(state: State) -> str:
    """Return the stage and the remaining time as HTML; after the end, the reason if there is no verdict."""
    if not state.running:
        return live.first_line("stopped", state.problem, "") if state.problem else ""
    if state.stopping:
        return live.first_line("running", "Stopping …", "")
    beside = [f"{duration(state.seconds)} so far"]
    bar = ""
    if state.left is not None:
        beside = [live.verdict(state.live)[1], f"time limit in {duration(state.left)}"]
        used = 100 * (1 - state.left / state.limit)
        bar = (
            f'{_STYLE}<div class="course-assess-clock" role="progressbar" aria-label="time used" '
            f'aria-valuenow="{used:.0f}"><div style="width:{used:.1f}%"></div></div>'
        )
    return live.first_line("running", state.stage, " · ".join(beside)) + bar


def result(attempt: Attempt | None) -> str:
    """Return an attempt's outcome as HTML."""
    return report.page(attempt.outcome, f"Attempt {attempt.number}") if attempt and attempt.outcome else ""


def history(attempts: Sequence[Attempt], best: Attempt | None) -> str:
    """Return the attempts, the newest first, as an HTML table in which the best is marked."""
    if not attempts:
        return ""
    rows = []
    for attempt in attempts:
        marked = best is not None and attempt.number == best.number
        cells = [f"{attempt.number}{' ★' if marked else ''}", f"{attempt.began:%d %b %H:%M}"]
        if attempt.outcome:
            outcome = attempt.outcome
            cells += [
                "passed" if outcome.passed else "needs review" if outcome.needs_a_look else "not passed",
                f"{outcome.score:.4g} of {outcome.max_score:g}",
                "–" if outcome.seconds is None else f"{outcome.seconds:.1f} s",
            ]
            accuracies = (outcome.train_accuracy, outcome.test_accuracy)
            cells += ["–" if value is None else f"{value:.3f}" for value in accuracies]
            cells += [outcome.profile]
            rest = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        else:
            rest = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
            rest += f'<td colspan="6">{html.escape(attempt.problem)}</td>'
        rows.append(f"<tr{' class=course-assess-best' if marked else ''}>{rest}</tr>")
    names = ("attempt", "began", "", "points", "time", "training acc.", "test acc.", "profile")
    head = "".join(f"<th>{name}</th>" for name in names)
    note = ""
    if best:
        path = f"{FOLDER}/{best.script.parent.name}/{best.script.name}"
        note = (
            f"<small>★ best attempt so far. The script of each attempt is kept. To restore the best one, run "
            f"<code>cp {html.escape(path)} .</code> in a terminal. {html.escape(standing(best))}</small>"
        )
    return (
        f'{_STYLE}<div class="course-assess-history"><b>Attempts</b>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{note}</div>"
    )


def standing(best: Attempt) -> str:
    """Return a sentence about the best attempt's place on the class's leaderboard; "" without a leaderboard."""
    script = best.script.parents[2] / best.script.name
    return leaderboard.standing_beside(script, best.outcome, contract.read())


def summary(attempts: Sequence[Attempt], best: Attempt | None) -> str:
    """Return the last verdict and the attempts as HTML without widgets."""
    return result(_last(attempts)) + history(attempts, best) or "<p>No attempt yet.</p>"


def sentence(attempts: Sequence[Attempt], best: Attempt | None) -> str:
    """Return the last verdict and the best attempt in one line of plain text."""
    if not attempts:
        return "No attempt yet."
    last = attempts[0]
    verdict = f"Attempt {last.number}: {report.headline(last.outcome) if last.outcome else last.problem}"
    return verdict + (f" Best so far: attempt {best.number}." if best and best.number != last.number else "")


def _last(attempts: Sequence[Attempt]) -> Attempt | None:
    return next((attempt for attempt in attempts if attempt.outcome), None)


# The panel


_panels: dict[Path, Panel] = {}


def assess(script: str | Path = "assessment.py", *, ranks: int | None = None, profile: str | None = None) -> None:
    """Show a button that assesses `script`, as `course assess` does, and the attempts so far.

    If an assessment of this script is running, show that one. Kernel → Interrupt ends it.

    Args:
        script: path of the script; it is copied when the button is pressed.
        ranks: number of ranks; default: the profile's.
        profile: name of a profile, see `Contract.profile`.

    Raises:
        CourseError: for a profile that is not in the contract.
    """
    path = Path(script).absolute()
    panel = _panels.get(path)
    if panel is None or not panel.running:
        if panel:
            panel.close()
        panel = _panels[path] = Panel(path, ranks, profile)
    _stop_on_interrupts()
    panel.show()


class Panel:
    """Button, view and history of the assessments of one script."""

    def __init__(self, script: Path, ranks: int | None = None, profile: str | None = None) -> None:
        chosen = contract.read().profile(profile)
        self._script, self._ranks, self._profile = script, ranks, chosen.name
        self._number = ranks or chosen.ranks or launch.default_ranks()
        self._attempts = Attempts(script)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._handle = None
        self.running = False  # True from the click on the button until the result is shown
        self.state = State(script.name, self._number)
        self._button = Button(description="Assess", icon="play", button_style="primary")
        self._stop = Button(description="Stop", icon="stop", disabled=True)
        self._button.on_click(lambda _: self.start())
        self._stop.on_click(lambda _: self.stop())
        self._panes = live.Panes(MAX_DRAWING_SHARE)
        self._result, self._history = HTML(), HTML()
        row = HBox([self._button, self._stop])
        self._box = VBox([row, self._panes.headline, self._result, self._panes.body, self._history])
        self._draw(at_once=True)
        self._show_attempts()

    def show(self) -> None:
        """Show the panel below the current cell."""
        self._handle = display(self._bundle(), raw=True, display_id=True)

    def start(self) -> None:
        """Copy the current script and assess it; do nothing if an assessment is running."""
        with self._lock:  # two clicks may be handled by different threads
            if self.running:
                return
            self.state = State(self._script.name, self._number)
            try:
                attempt = self._attempts.begin()
            except CourseError as error:
                self.state.problem = str(error)
                self._draw(at_once=True)
                return
            self.state.attempt = attempt.number
            self.running = self.state.running = True
            self._stopping = threading.Event()
            self._thread = threading.Thread(target=self._follow, args=(attempt,), daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End the assessment; return at once."""
        self.state.stopping = True
        self._stopping.set()

    def join(self, seconds: float | None = None) -> None:
        """Wait until the assessment has ended, at most `seconds`."""
        if self._thread:
            self._thread.join(seconds)

    def close(self) -> None:
        """Remove the panel from every page that shows it."""
        self._panes.close()
        for widget in (self._button, self._stop, self._result, self._history, self._box.children[0], self._box):
            widget.close()

    def _follow(self, attempt: Attempt) -> None:
        try:
            self._button.disabled, self._stop.disabled = True, False
            self._draw(at_once=True)
            self._show_attempts()
            self._watch(attempt)
            self._draw(at_once=True)
            self._show_attempts()
            self._handle.update(self._bundle(), raw=True)
        finally:
            self.running = self.state.running = False
            self._button.disabled, self._stop.disabled = False, True

    def _watch(self, attempt: Attempt) -> None:
        """Assess the script, and show its progress."""
        began, ended = time.monotonic(), threading.Event()

        def work(put: Callable[[launch.Event], None]) -> None:
            try:
                self.state.problem = self._assess(attempt, put)
            finally:
                ended.set()

        try:
            for event in live.ticking(work):
                self.state.seconds = time.monotonic() - began
                if event is not None:
                    self.state.update(event)
                self._draw()
        finally:
            self._stopping.set()  # an error of the view also ends the assessment
            ended.wait()
            self.state.running = False
            self.state.live.result = launch.Result(0, self.state.live.seconds)

    def _assess(self, attempt: Attempt, put: Callable[[launch.Event], None]) -> str:
        """Assess the script and store the outcome; return "", or a sentence on why there is no verdict."""
        outcome, problem = None, ""
        try:
            outcome = grader.assess(
                attempt.script, ranks=self._ranks, profile=self._profile, on_event=put, stopping=self._stopping
            )
            self.state.live.data = outcome.data
        except Stopped:
            problem = f"Stopped after {duration(self.state.seconds)}."
        except CourseError as error:
            problem = f"Could not be graded: {error}"
        try:
            self._attempts.finish(attempt, outcome, problem)
        except OSError as error:
            problem = f"The result could not be saved ({error.strerror or error}): free space and press Assess again."
        return problem

    def _draw(self, at_once: bool = False) -> None:
        """Show the state."""
        begun = self.state.limit is not None or self.state.live.progress
        self._panes.body.layout.display = "flex" if begun else "none"
        self._panes.redraw(self.state.live, lambda: headline(self.state), at_once)

    def _show_attempts(self) -> None:
        """Show the attempts on disk."""
        attempts, best = self._attempts.all(), self._attempts.best(self._profile)
        if self.state.running:
            attempts = [attempt for attempt in attempts if attempt.number != self.state.attempt]
        self._history.value = history(attempts, best)
        self._result.value = "" if self.state.running else result(_last(attempts))

    def _bundle(self) -> dict:
        # The HTML in addition to the widgets is for pages without a kernel: exported notebooks and feedback.
        attempts, best = self._attempts.all(), self._attempts.best(self._profile)
        pages = {"text/html": summary(attempts, best), "text/plain": sentence(attempts, best)}
        return {**self._box._repr_mimebundle_(), **pages}


def _stop_on_interrupts() -> None:
    """Make Kernel → Interrupt end the assessments, because a kernel ignores interrupts between two cells."""
    kernel = getattr(get_ipython(), "kernel", None)
    if hasattr(kernel, "saved_sigint_handler"):  # the kernel restores this handler when the cell has ended
        kernel.saved_sigint_handler = lambda *_: _stop_all()


def _stop_all() -> None:
    for panel in _panels.values():
        if panel.running:
            panel.stop()


@atexit.register
def _stop_before_exit() -> None:
    """End the assessments of a kernel that shuts down or restarts."""
    _stop_all()
    for panel in _panels.values():
        panel.join(SHUTDOWN_LIMIT_S)
