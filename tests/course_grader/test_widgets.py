from __future__ import annotations

import html
import re
import threading
import time

import pytest
from rich.console import Console

from course_grader.display import contract_view, leaderboard, report, widgets
from course_grader.display.attempts import Attempts
from course_grader.display.widgets import State
from course_grader.script import contract, grader
from course_grader.script.grader import Outcome
from course_lib.notebook.judging import Verdict
from course_lib.ranks.launch import Event
from course_lib.system.errors import CourseError


def outcome(score=60.0, **other):
    verdicts = (
        Verdict("ranks", "Joins on all ranks", 10, 10, "All 2 ranks found each other.", rests_on="host"),
        Verdict("data", "Each rank reads its own part", 7.5, 15, "They share <half>.", "See 2b, Step 6 & 7.", "script"),
        Verdict("time", "In time", 0, 10, "It took 300 s; the limit is 276 s.", "See 2c."),
    )
    made = {
        "passed": score >= 80,
        "score": score,
        "max_score": 100.0,
        "profile": "cpu",
        "ranks": 2,
        "data": "cifar10",
        "seconds": 101.25,
        "train_accuracy": 0.8124,
        "test_accuracy": 0.7621,
        "verdicts": verdicts,
        "limit": 276.0,
        "factor": 1.15,
        "sandbox": "bubblewrap",
        "claimed": 0.99,
    }
    return Outcome(**{**made, **other})


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "assessment.py"
    path.write_text("print('first')\n")
    return path


# The contract and the report


def test_the_terms_are_those_of_the_contract():
    asked = contract_view.read("cpu")
    profile = asked.contract.profiles["cpu"]
    text, page = str(asked), asked._repr_html_()
    for said in (f"{profile.seconds:g} s", f"at least {profile.test_accuracy:g}", f"{asked.contract.pass_points:g} of"):
        assert said in text and said in page
    assert [points for _, points, _ in asked.criteria] == list(asked.contract.points.values())
    assert page.count("required</b>") == len(asked.contract.required)


def test_the_page_tells_points_reasons_hints_and_what_was_measured():
    shown = report.page(outcome(weaknesses=("Nothing is <safe>.",), error="Rank 1 failed.\nValueError: <x>"))
    text = re.sub(r"<style>.*?</style>|<[^>]+>", " ", shown, flags=re.DOTALL)
    for said in (
        *("Not passed: 60 of 100 points", "profile cpu · 2 ranks · cifar10"),
        *("10 of 10", "7.5 of 15", "0 of 10", "They share &lt;half&gt;.", "See 2b, Step 6 &amp; 7."),
        *("101.2 s of 276 s (240 s × 1.15", "0.812", "0.762", "0.990", "not counted"),
        *("Nothing is &lt;safe&gt;.", "ValueError: &lt;x&gt;", "measured by the host", "from the script's own log"),
    ):
        assert said in text
    assert re.findall(r"course-report-(full|part|none)\"", shown) == ["full", "part", "none"]


def test_who_has_the_points_and_no_pass_reads_why():
    missed = Verdict("broadcast", "Starts from the same weights", 0, 10, "Nothing was broadcast.")
    shown = report.page(outcome(90.0, passed=False, verdicts=(missed,)))
    assert "To pass, a script needs 80 points, and all points of: Starts from the same weights." in shown
    assert "To pass, a script needs 80 points." in report.page(outcome(60.0, verdicts=()))
    assert report.missing_for_a_pass(outcome(100.0, verdicts=())) == ""


@pytest.mark.parametrize(
    ("changes", "facts"),
    [
        ({"limit": 240.0, "factor": 1.0}, ["101.2 s of 240 s", "0.812", "0.762", "0.990"]),  # of a fast host
        ({"seconds": None, "train_accuracy": None, "test_accuracy": None, "claimed": None}, ["not measured"] * 2),
        ({"seconds": None, "first_step_seconds": 16.42, "claimed": None}, ["0.812", "0.762", "16.4 s in the calib"]),
    ],
)
def test_only_what_was_measured_is_told(changes, facts):
    told = report.facts_of(outcome(**changes))
    assert len(told) == len(facts) and all(said.startswith(fact) for (_, said), fact in zip(told, facts)), told


def test_the_terminal_shows_the_same():
    console = Console(record=True, width=100)
    report.show(outcome(90.0, weaknesses=("No sandbox.",), error="[red]ValueError"), console)
    text = " ".join(console.export_text().split())
    for said in (
        *("Passed: 90 of 100 points", "7.5 of 15", "They share <half>.", "→ See 2b, Step 6 & 7."),
        *("101.2 s of 276 s", "No sandbox.", "[red]ValueError", "host", "script"),
    ):
        assert said in text


# The attempts on disk


def test_an_attempt_keeps_the_script_as_it_was_and_its_outcome(script):
    attempts = Attempts(script)
    first = attempts.begin()
    script.write_text("print('second')\n")
    attempts.finish(first, outcome())
    attempts.finish(attempts.begin(), problem="Could not be graded: no room.")
    newest, oldest = attempts.all()
    assert (newest.number, newest.outcome, newest.problem) == (2, None, "Could not be graded: no room.")
    assert (oldest.number, oldest.outcome, oldest.problem) == (1, outcome(), "")
    assert [attempt.script.read_text() for attempt in (oldest, newest)] == ["print('first')\n", "print('second')\n"]
    assert {path.name for path in script.parent.rglob("*") if path.is_file()} == {"assessment.py", "outcome.json"}


def test_the_best_has_most_points_then_the_shortest_time(script):
    attempts = Attempts(script)
    assert attempts.best() is None
    for score, seconds in ((60.0, 1.0), (90.0, 50.0), (90.0, 40.0), (90.0, None), (85.0, 10.0), (90.0, 40.0)):
        attempts.finish(attempts.begin(), outcome(score, seconds=seconds))
    attempts.finish(attempts.begin(), problem="Stopped.")
    assert attempts.best().number == 3
    attempts.finish(attempts.begin(), outcome(100.0, profile="short"))
    assert (attempts.best().number, attempts.best("cpu").number, attempts.best("large")) == (8, 3, None)


def test_what_was_cut_off_or_is_damaged_does_not_hide_the_rest(script):
    attempts = Attempts(script)
    attempts.finish(attempts.begin(), outcome())
    attempts.begin()
    damaged = attempts.begin()
    damaged.script.with_name("outcome.json").write_text('{"outcome": {"sco')
    (script.parent / ".attempts" / "0009").mkdir()
    assert [(attempt.number, attempt.problem) for attempt in attempts.all()] == [
        (3, "Not finished."),
        (2, "Not finished."),
        (1, ""),
    ]
    assert attempts.begin().number == 10


def test_two_notebooks_never_share_a_number(script):
    numbers = []
    threads = [
        threading.Thread(target=lambda: numbers.extend(Attempts(script).begin().number for _ in range(20)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 81))


def test_a_missing_script_and_a_folder_that_cannot_be_written_are_said(script):
    with pytest.raises(CourseError, match=r"no script other\.py here"):
        Attempts(script.with_name("other.py")).begin()
    (script.parent / ".attempts").write_text("in the way")
    with pytest.raises(CourseError, match="cannot be saved"):
        Attempts(script).begin()


# The state and what is made of it


def stage(text, limit=None):
    return Event("stage", None, 0.0, {"text": text, "limit": limit})


def fit(rank):
    return Event("fit", rank, 0.0, {"epochs": 2, "steps": 10, "initial_epoch": 0})


def batch(rank, time, step, images, **metrics):
    return Event("batch", rank, time, {"epoch": 0, "step": step, "images": images, **metrics})


def test_the_headline_follows_the_stages_and_counts_down():
    state = State("assessment.py", 2)
    assert widgets.headline(state) == ""
    state.running, state.seconds = True, 3.0
    assert "Starting" in widgets.headline(state) and "3 s so far" in widgets.headline(state)
    state.seconds = 20.0
    state.update(stage("Running on 2 ranks", 100.0))
    state.seconds = 45.0
    for event in (fit(0), batch(0, 10.0, 0, 64), batch(0, 14.0, 4, 320)):
        state.update(event)
    shown = widgets.headline(state)
    assert "Running on 2 ranks" in shown and "Training, 15 s left · time limit in 1 min 15 s" in shown
    assert 'aria-valuenow="25"' in shown
    state.seconds = 500.0
    assert "time limit in 0 s" in widgets.headline(state)
    state.update(stage("Measuring"))
    assert "time limit" not in widgets.headline(state)
    state.stopping = True
    assert "Stopping" in widgets.headline(state)


@pytest.mark.parametrize(
    "event",
    [
        Event("fit", 0, 0.0, {"epochs": "9", "steps": 1, "initial_epoch": 0}),
        Event("fit", 7, 0.0, {"epochs": 1, "steps": 1, "initial_epoch": 0}),
        Event("fit", None, 0.0, {"epochs": 1, "steps": 1, "initial_epoch": 0}),
        Event("fit", 0, 0.0, {"epochs": 1, "steps": [], "initial_epoch": 0}),
        Event("batch", 0, 0.0, {}),
        Event("batch", 0, 0.0, {"epoch": 0, "step": 1, "images": True, "loss": 1.0}),
        Event("batch", 0, 0.0, {"epoch": 0, "step": 1, "images": 1, "loss": "<b>"}),
        Event("epoch", 0, 0.0, {"epoch": -1, "images": 1, "logs": {}}),
        Event("epoch", 0, 0.0, {"epoch": 1, "images": 1, "logs": [1]}),
        Event("epoch", 0, 0.0, {"epoch": 1, "images": 1, "logs": {"loss": 1e300}}),
        Event("weather", 0, 0.0, {}),
    ],
)
def test_a_rank_that_tells_nonsense_is_not_listened_to(event):
    state = State("assessment.py", 2)
    state.update(event)
    assert not state.live.progress and state.live.epochs.empty


def test_a_training_that_diverged_is_shown():
    state = State("assessment.py", 1)
    state.update(Event("epoch", 0, 1.0, {"epoch": 0, "images": 5, "logs": {"loss": float("nan"), "accuracy": 0.1}}))
    assert len(state.live.epochs) == 1


def test_the_history_marks_the_best_and_tells_how_to_get_it_back(script):
    attempts = Attempts(script)
    attempts.finish(attempts.begin(), outcome(90.0))
    attempts.finish(attempts.begin(), outcome(60.0))
    attempts.finish(attempts.begin(), problem="Stopped <early>.")
    shown = widgets.history(attempts.all(), attempts.best())
    assert re.findall(r"<td>(\d[ ★]*)</td>", shown) == ["3", "2", "1 ★"]
    assert "Stopped &lt;early&gt;." in shown and "cp .attempts/0001/assessment.py ." in shown
    assert "90 of 100" in shown and "101.2 s" in shown and "0.762" in shown
    assert widgets.history([], None) == ""
    assert widgets.sentence(attempts.all(), attempts.best()) == ("Attempt 3: Stopped <early>. Best so far: attempt 1.")


def test_the_history_tells_where_the_best_would_stand_in_the_class(script):
    attempts = Attempts(script)
    attempts.finish(attempts.begin(), outcome(90.0))
    board = script.with_name(leaderboard.FILE)
    assert "leaderboard" not in widgets.history(attempts.all(), attempts.best())
    board.write_text(leaderboard.to_csv([]))
    told = html.escape(leaderboard.standing(attempts.best().outcome, [], contract.read()))
    assert "class" in told and told in widgets.history(attempts.all(), attempts.best())
    board.write_text("something else")
    assert "is not a leaderboard" in widgets.history(attempts.all(), attempts.best())


# The panel


class FakeGrader:
    """Stands in for `grader.assess`: tells a run, then waits to be released or stopped."""

    def __init__(self):
        self.scripts, self.release, self.end = [], threading.Event(), outcome()

    def __call__(self, script, *, ranks, profile, on_event, stopping):
        self.scripts.append(script)
        for event in (stage("Running on 2 ranks", 60.0), fit(0), fit(1), batch(0, 1.0, 4, 320, loss=2.0, accuracy=0.1)):
            on_event(event)
        while not self.release.wait(0.01):
            if stopping.is_set():
                raise grader.Stopped
        if isinstance(self.end, Exception):
            raise self.end
        return self.end


@pytest.fixture
def fake(monkeypatch):
    made = FakeGrader()
    monkeypatch.setattr(grader, "assess", made)
    monkeypatch.setattr(widgets.live, "REDRAW_INTERVAL_S", 0.02)
    return made


@pytest.fixture
def panel(fake, shown, script):
    widgets.assess(script)
    panel = widgets._panels[script]
    yield panel
    panel.stop()
    panel.join(10)
    assert not panel.running
    del widgets._panels[script]


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def text(panel):
    return panel._panes.headline.value + panel._result.value + panel._history.value


def test_showing_the_panel_starts_nothing_and_says_so_without_a_front_end(panel, fake, shown):
    assert fake.scripts == [] and not panel.running
    assert "application/vnd.jupyter.widget-view+json" in shown[0]
    assert shown[0]["text/plain"] == "No attempt yet." and "No attempt yet." in shown[0]["text/html"]


def test_pressing_assess_shows_the_run_then_the_verdict_and_keeps_it(panel, fake, shown, script):
    panel._button.click()
    until(lambda: "time limit in" in text(panel) and panel._panes._picture.value)
    assert (panel._button.disabled, panel._stop.disabled) == (True, False)
    assert panel._panes.body.layout.display == "flex"
    fake.release.set()
    panel.join(30)
    assert "Not passed: 60 of 100 points" in panel._result.value and "time limit in" not in text(panel)
    assert "<td>1 ★</td>" in panel._history.value
    assert (panel._button.disabled, panel._stop.disabled) == (False, True)
    assert shown[0]["text/plain"] == "Attempt 1: Not passed: 60 of 100 points"
    assert Attempts(script).best().outcome == outcome()


def test_pressing_twice_starts_one(panel, fake):
    presses = [threading.Thread(target=panel.start) for _ in range(8)]
    for press in presses:
        press.start()
    for press in presses:
        press.join()
    fake.release.set()
    panel.join(30)
    assert len(fake.scripts) == 1


def test_the_script_is_taken_when_the_button_is_pressed(panel, fake, script):
    panel.start()
    until(lambda: fake.scripts)
    script.write_text("print('second')\n")
    fake.release.set()
    panel.join(30)
    panel.start()
    panel.join(30)
    assert [path.read_text() for path in fake.scripts] == ["print('first')\n", "print('second')\n"]


def test_stop_ends_the_run_and_leaves_the_button_ready(panel, fake):
    panel.start()
    until(lambda: fake.scripts)
    panel._stop.click()
    panel.join(30)
    assert "Stopped after" in panel._panes.headline.value and "Stopped after" in panel._history.value
    fake.release.set()
    panel.start()
    panel.join(30)
    assert "60 of 100" in text(panel) and "Stopped after" not in panel._panes.headline.value


def test_an_attempt_that_could_not_be_graded_is_kept_with_its_sentence(panel, fake, script):
    fake.end = grader.CannotGrade("There is no <room> on the disk.")
    fake.release.set()
    panel.start()
    panel.join(30)
    said = "Could not be graded: There is no &lt;room&gt; on the disk."
    assert said in panel._panes.headline.value and said in panel._history.value
    assert Attempts(script).all()[0].outcome is None and Attempts(script).best() is None


def test_a_verdict_that_cannot_be_kept_is_said(panel, fake, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Attempts, "finish", full)
    fake.release.set()
    panel.start()
    panel.join(30)
    assert "could not be saved (No space left on device)" in panel._panes.headline.value


def test_a_missing_script_is_said_and_starts_nothing(panel, fake, script):
    script.unlink()
    panel.start()
    assert "There is no script assessment.py here" in panel._panes.headline.value
    assert fake.scripts == [] and not panel.running


def test_a_fault_of_the_view_ends_the_run_and_leaves_the_button_ready(panel, fake, monkeypatch, script):
    def broken(state):
        if state.progress:
            raise RuntimeError("no picture")
        return ""

    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(widgets.live, "bars", broken)
    panel.start()
    panel.join(30)
    assert (panel.running, panel._button.disabled) == (False, False)
    assert Attempts(script).all()[0].problem.startswith("Stopped")


def test_the_cell_run_again_shows_the_running_assessment_and_later_the_last_verdict(panel, fake, shown, script):
    panel.start()
    until(lambda: fake.scripts)
    widgets.assess(script)
    assert widgets._panels[script] is panel and len(shown) == 2
    fake.release.set()
    panel.join(30)
    assert shown[1]["text/plain"] == "Attempt 1: Not passed: 60 of 100 points"
    widgets.assess(script)  # also what a new kernel shows
    assert widgets._panels[script] is not panel
    assert "60 of 100" in text(widgets._panels[script])


def test_an_unknown_profile_is_said(script):
    with pytest.raises(CourseError, match="no profile 'big'"):
        widgets.assess(script, profile="big")
