"""The assessment in the notebook: a button, the run as it happens, the verdict, and the attempts so far.

The cell returns at once; a thread drives the grader, so that Stop and other cells work meanwhile. All that is shown
is made by plain functions of a state and of the attempts on disk, and the widgets live in the kernel: who closes the
page and comes back finds them as they are then.
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

__all__ = ["assess", "train"]  # what the assessment's notebook shows

_STYLE = "<style>" + Path(__file__).with_name("widgets.css").read_text(encoding="utf-8") + "</style>"
MAX_DRAWING_SHARE = 0.03  # of the time, at most: the ranks are under the clock
SHUTDOWN_LIMIT_S = 4.0  # that a kernel waits for the end of a run before it ends itself; Jupyter gives it five


# What an assessment has told so far


class State:
    """What the panel knows of the present assessment: a pure function of its clock and of the events it was given.

    Attributes:
        attempt: the number of the attempt; 0 before there is one.
        running: an assessment is under way.
        stopping: the user has asked for its end.
        seconds: since it began.
        stage: what is being done; `limit`: the seconds that this may take, None where there is no limit.
        live: the run on all ranks, as in any live view.
        problem: why there is no verdict, where there is none.
    """

    def __init__(self, title: str, ranks: int) -> None:
        self.live = LiveState(title, ranks)
        self.attempt = 0
        self.running = self.stopping = False
        self.seconds = self._since = 0.0
        self.stage, self.problem = "Starting", ""
        self.limit: float | None = None

    def update(self, event: launch.Event) -> None:
        """Take in one event. What a rank tells may be anything; what makes no sense is passed over."""
        if event.kind == "stage":
            self.stage, self.limit = event.data["text"], event.data.get("limit")
            self._since = self.seconds
            if self.limit is not None:  # the run on all ranks begins, or begins anew
                self.live = LiveState(self.live.title, self.live.ranks)
        elif event.kind == "output" or _makes_sense(event, self.live.ranks):
            self.live.update(event)

    @property
    def left(self) -> float | None:
        """Seconds until the time limit; None outside the run that has one."""
        return None if self.limit is None else max(0.0, self.limit - (self.seconds - self._since))


_COUNTS = {
    "fit": ("epochs", "initial_epoch"),
    "batch": ("epoch", "step", "images"),
    "epoch": ("epoch", "images"),
    "images": ("images",),
}


def _makes_sense(event: launch.Event, ranks: int) -> bool:
    """Whether an event has the shape that the probe gives to its own."""
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


# Text and pictures made of it


def headline(state: State) -> str:
    """What is being done, and the time left, as HTML; why there is no verdict, where there is none."""
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
    """What came of an attempt as HTML."""
    return report.page(attempt.outcome, f"Attempt {attempt.number}") if attempt and attempt.outcome else ""


def history(attempts: Sequence[Attempt], best: Attempt | None) -> str:
    """The attempts, the newest first, as an HTML table in which the best is marked."""
    if not attempts:
        return ""
    rows = []
    for attempt in attempts:
        marked = best is not None and attempt.number == best.number
        cells = [f"{attempt.number}{' ★' if marked else ''}", f"{attempt.began:%d %b %H:%M}"]
        if attempt.outcome:
            out = attempt.outcome
            cells += [
                "passed" if out.passed else "needs a look" if out.needs_a_look else "not passed",
                f"{out.score:.4g} of {out.max_score:g}",
            ]
            cells += ["–" if out.seconds is None else f"{out.seconds:.1f} s"]
            cells += ["–" if value is None else f"{value:.3f}" for value in (out.train_accuracy, out.test_accuracy)]
            cells += [out.profile]
            rest = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
        else:
            rest = "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
            rest += f'<td colspan="6">{html.escape(attempt.problem)}</td>'
        rows.append(f"<tr{' class=course-assess-best' if marked else ''}>{rest}</tr>")
    names = ("attempt", "began", "", "points", "time", "training acc.", "test acc.", "profile")
    head = "".join(f"<th>{name}</th>" for name in names)
    note = ""
    if best:
        kept = f"{FOLDER}/{best.script.parent.name}/{best.script.name}"
        note = (
            f"<small>★ the best so far. Every attempt's script is kept; in a terminal, "
            f"<code>cp {html.escape(kept)} .</code> brings the best one back. {html.escape(standing(best))}</small>"
        )
    return (
        f'{_STYLE}<div class="course-assess-history"><b>Attempts</b>'
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{note}</div>"
    )


def standing(best: Attempt) -> str:
    """Where the best attempt would stand on the class's leaderboard, if that lies beside the script."""
    script = best.script.parents[2] / best.script.name
    return leaderboard.standing_beside(script, best.outcome, contract.read())


def summary(attempts: Sequence[Attempt], best: Attempt | None) -> str:
    """The last verdict and the attempts as HTML without widgets."""
    return result(_last(attempts)) + history(attempts, best) or "<p>No attempt yet.</p>"


def sentence(attempts: Sequence[Attempt], best: Attempt | None) -> str:
    """The same in one line of plain text."""
    if not attempts:
        return "No attempt yet."
    last = attempts[0]
    told = f"Attempt {last.number}: {report.headline(last.outcome) if last.outcome else last.problem}"
    return told + (f" Best so far: attempt {best.number}." if best and best.number != last.number else "")


def _last(attempts: Sequence[Attempt]) -> Attempt | None:
    return next((attempt for attempt in attempts if attempt.outcome), None)


# The panel


_panels: dict[Path, Panel] = {}


def assess(script: str | Path = "assessment.py", *, ranks: int | None = None, profile: str | None = None) -> None:
    """Show a button that assesses `script`, as `course assess` does, and what came of the attempts so far.

    Where an assessment of this script is running already, that one is shown. Kernel → Interrupt ends it.

    Args:
        script: it is taken as it is saved when the button is pressed.
        ranks: by default as many as the profile asks for.
        profile: of the contract; see `Contract.profile`.

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
        asked = contract.read().profile(profile)
        self._script, self._ranks, self._profile = script, ranks, asked.name
        self._number = ranks or asked.ranks or launch.default_ranks()
        self._attempts = Attempts(script)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._handle = None
        self.running = False  # from the press of the button until all is shown
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
        self._tell()

    def show(self) -> None:
        """Put the panel under the present cell."""
        self._handle = display(self._bundle(), raw=True, display_id=True)

    def start(self) -> None:
        """Take the script as it is now and assess it; nothing where an assessment is running."""
        with self._lock:  # a click may come in a thread of its own
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
        """Wait until the assessment has ended, at most so long."""
        if self._thread:
            self._thread.join(seconds)

    def close(self) -> None:
        """Take the panel off every page that shows it."""
        self._panes.close()
        for widget in (self._button, self._stop, self._result, self._history, self._box.children[0], self._box):
            widget.close()

    def _follow(self, attempt: Attempt) -> None:
        try:
            self._button.disabled, self._stop.disabled = True, False
            self._draw(at_once=True)
            self._tell()
            self._watch(attempt)
            self._draw(at_once=True)
            self._tell()
            self._handle.update(self._bundle(), raw=True)
        finally:
            self.running = self.state.running = False
            self._button.disabled, self._stop.disabled = False, True

    def _watch(self, attempt: Attempt) -> None:
        """Assess, and show how it goes on."""
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
            self._stopping.set()  # where the view is at fault, nothing shall go on unseen
            ended.wait()
            self.state.running = False
            self.state.live.result = launch.Result(0, self.state.live.seconds)

    def _assess(self, attempt: Attempt, put: Callable[[launch.Event], None]) -> str:
        """Assess, keep what came of it; return why there is no verdict, if there is none."""
        outcome, problem = None, ""
        try:
            outcome = grader.assess(
                attempt.script, ranks=self._ranks, profile=self._profile, on_event=put, stopping=self._stopping
            )
            self.state.live.data = outcome.data
        except Stopped:
            problem = f"Stopped after {duration(self.state.seconds)}."
        except CourseError as error:
            problem = f"This could not be graded: {error}"
        try:
            self._attempts.finish(attempt, outcome, problem)
        except OSError as error:
            problem = f"The verdict could not be kept ({error.strerror or error}): make room and press Assess again."
        return problem

    def _draw(self, at_once: bool = False) -> None:
        """Show the state."""
        begun = self.state.limit is not None or self.state.live.progress
        self._panes.body.layout.display = "flex" if begun else "none"
        self._panes.redraw(self.state.live, lambda: headline(self.state), at_once)

    def _tell(self) -> None:
        """Show what is on disk."""
        attempts, best = self._attempts.all(), self._attempts.best(self._profile)
        if self.state.running:
            attempts = [attempt for attempt in attempts if attempt.number != self.state.attempt]
        self._history.value = history(attempts, best)
        self._result.value = "" if self.state.running else result(_last(attempts))

    def _bundle(self) -> dict:
        # The page beside the widgets is for where there is no kernel: exported notebooks and feedback.
        attempts, best = self._attempts.all(), self._attempts.best(self._profile)
        pages = {"text/html": summary(attempts, best), "text/plain": sentence(attempts, best)}
        return {**self._box._repr_mimebundle_(), **pages}


def _stop_on_interrupts() -> None:
    """Make Kernel → Interrupt end the assessments; between two cells a kernel would not listen to it."""
    kernel = getattr(get_ipython(), "kernel", None)
    if hasattr(kernel, "saved_sigint_handler"):  # what it goes back to when this cell has ended
        kernel.saved_sigint_handler = lambda *_: _stop_all()


def _stop_all() -> None:
    for panel in _panels.values():
        if panel.running:
            panel.stop()


@atexit.register
def _stop_before_exit() -> None:
    """A kernel that is shut down or restarted ends its assessment first."""
    _stop_all()
    for panel in _panels.values():
        panel.join(SHUTDOWN_LIMIT_S)
