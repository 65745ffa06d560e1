from __future__ import annotations

import re
import threading

import nbformat
import pandas as pd
import pytest
from nbclient import NotebookClient

from course_lib.notebook.widgets import live
from course_lib.notebook.widgets.live_state import MAX_LINES, METRICS, LiveState
from course_lib.ranks.launch import Event, Result
from course_lib.system.errors import CourseError


def fit(rank, time=0.0, epochs=2, steps=10, initial_epoch=0):
    return Event("fit", rank, time, {"epochs": epochs, "steps": steps, "initial_epoch": initial_epoch})


def batch(rank, time, epoch, step, images, **metrics):
    return Event("batch", rank, time, {"epoch": epoch, "step": step, "images": images, **metrics})


def epoch(rank, time, number, images, **logs):
    return Event("epoch", rank, time, {"epoch": number, "images": images, "logs": logs})


def line(rank, text):
    return Event("output", rank, 0.0, {"stream": "stdout", "text": text})


def after(*events, ranks=2):
    state = LiveState("train.py", ranks)
    for event in events:
        state.update(event)
    return state


# The state


def test_progress_pace_and_time_left_follow_the_batches():
    state = after(fit(0), batch(0, 10, 0, 0, 64), batch(0, 14, 0, 4, 320))
    first = after(fit(0), batch(0, 10, 0, 0, 64)).progress[0]
    assert first.seconds_left is None and first.images_per_second() is None  # before there is a pace
    progress = state.progress[0]
    assert progress.fraction == pytest.approx(5 / 20)
    assert progress.images_per_second() == pytest.approx(64)
    # Four steps took 4 s; the ten seconds before the first batch are start-up and come once.
    assert progress.seconds_left == pytest.approx(15)


def test_pace_of_the_last_seconds_and_of_the_whole_run():
    slow = [batch(0, second, 0, second, second) for second in range(10)]
    fast = [batch(0, 10 + second, 0, 10 + second, 10 + 100 * second) for second in range(40)]
    progress = after(fit(0, steps=100), *slow, *fast).progress[0]
    assert progress.images_per_second() == pytest.approx(100)
    assert progress.images_per_second(overall=True) == pytest.approx(3910 / 49)


def test_epochs_have_a_row_for_each_rank_and_epoch():
    state = after(
        fit(0, 1.0),
        fit(1, 2.0),
        epoch(0, 4.0, 0, 640, loss=0.9, accuracy=0.5, val_loss=0.8, val_accuracy=0.6),
        epoch(1, 4.5, 0, 640, loss=0.7, accuracy=0.5, val_loss=0.8, val_accuracy=0.6, top5=0.9),
        epoch(0, 6.0, 1, 1280, loss=0.4, accuracy=0.7, val_loss=0.5, val_accuracy=0.7),
    )
    table = state.epochs
    assert list(table.columns)[:8] == ["rank", "epoch", "seconds", "images", *METRICS]
    assert table[["rank", "epoch", "images"]].values.tolist() == [[0, 1, 640], [1, 1, 640], [0, 2, 1280]]
    assert table["seconds"].tolist() == [3.0, 2.5, 2.0]
    assert table["val_accuracy"].tolist() == [0.6, 0.6, 0.7]
    assert table["top5"].dropna().tolist() == [0.9]


def test_tables_have_their_columns_before_anything_happened():
    state = after(Event("weather", 0, 1.0, {}))  # unknown, and passed over
    assert list(state.epochs.columns) == ["rank", "epoch", "seconds", "images", *METRICS]
    assert list(state.batches.columns) == ["rank", "epoch", "images", "loss", "accuracy"]
    assert state.epochs.empty and state.batches.empty


def test_batches_lie_between_the_epochs():
    state = after(
        fit(0),
        batch(0, 1, 0, 4, 5, loss=2.0, accuracy=0.1),
        epoch(0, 2, 0, 10, loss=1.0),
        batch(0, 3, 1, 1, 12, loss=0.5),
    )
    assert state.batches["epoch"].tolist() == [0.5, 1.0, 1.2]
    assert state.batches["loss"].tolist() == [2.0, 1.0, 0.5]
    assert state.batches["images"].tolist() == [5, 10, 12]


def test_the_first_batches_of_an_epoch_move_the_bar_but_are_no_points():
    state = after(fit(0, steps=100), batch(0, 1, 0, 0, 1, loss=9.0), batch(0, 2, 0, 9, 10, loss=2.0))
    assert state.batches["loss"].tolist() == [2.0]
    assert state.progress[0].first[0] == 1


def test_unknown_number_of_steps_moves_on_with_the_epochs():
    state = after(fit(0, steps=None), batch(0, 1, 0, 3, 4, loss=1.0))
    assert state.progress[0].fraction == 0
    assert state.batches.empty
    state.update(epoch(0, 2, 0, 8, loss=1.0))
    assert state.progress[0].fraction == 0.5


@pytest.mark.parametrize(
    ("second", "first_epoch", "total"), [({"epochs": 3}, 0, 5), ({"epochs": 4, "initial_epoch": 2}, 2, 4)]
)
def test_a_second_fit_goes_on_where_the_first_ended(second, first_epoch, total):
    state = after(fit(0), epoch(0, 1, 0, 10), epoch(0, 2, 1, 20), fit(0, 3.0, **second), epoch(0, 4, first_epoch, 10))
    assert state.epochs["epoch"].tolist() == [1, 2, 3]
    assert state.progress[0].fraction == pytest.approx(3 / total)


def test_output_is_what_a_terminal_would_show_at_last():
    state = after(line(0, "1/2 \b\b\b\b2/2 done\r"), line(1, "\x1b[31mred\x1b[0m"), line(None, "a\rb"))
    assert list(state.lines) == [(0, "2/2 done"), (1, "red"), (None, "b")]
    state = after(*(line(0, str(number)) for number in range(MAX_LINES + 5)))
    assert len(state.lines) == MAX_LINES and state.lines[-1] == (0, str(MAX_LINES + 4))


def test_a_loop_that_is_not_keras_has_a_pace_too():
    state = after(*(Event("images", 0, time, {"images": 100 * time}) for time in (1.0, 2.0, 4.0)))
    assert state.progress[0].images_per_second() == pytest.approx(100)
    assert live.verdict(state) == ("running", "Training") and "100 images/s" in live.bars(state)
    assert live.figure(state) is None


# What is made of it


def ended(state, code=0, **how):
    state.result = Result(code, 75.2, **how)
    return state


def test_verdicts():
    assert live.verdict(after()) == ("running", "Starting 2 ranks …")
    training = after(fit(0), batch(0, 10, 0, 0, 64), batch(0, 14, 0, 4, 320))
    assert live.verdict(training) == ("running", "Training, 15 s left")
    for event in (fit(1), batch(1, 10, 0, 0, 64), batch(1, 14, 0, 1, 128)):
        training.update(event)
    assert live.verdict(training) == ("running", "Training, 1 min 12 s left")  # the slowest counts
    assert live.verdict(ended(after())) == ("finished", "Finished in 1 min 15 s.")
    failed = ended(after(), 3, failed_rank=1, message="Rank 1 failed with exit code 3.")
    assert live.verdict(failed) == ("failed", "Rank 1 failed with exit code 3.")


def test_a_stopped_run_has_stopped_whatever_its_ranks_said():
    state = ended(after(), 143, failed_rank=0, message="Rank 0 failed with exit code 143.")
    state.stopped = True
    assert live.verdict(state) == ("stopped", "Stopped after 1 min 15 s.")
    assert "Rank 0" not in live.summary(state)
    ended(state)  # well, and stop was pressed too late
    assert live.verdict(state)[0] == "finished"


CAUSE = "Rank 0 waits in an allreduce for rank 1, which has ended."


def test_a_run_that_stands_still_says_who_waits_for_whom_until_it_goes_on():
    state = after(fit(0), batch(0, 10, 0, 0, 64), Event("stall", None, 30.0, {"cause": CAUSE}))
    assert f"Nothing has happened for 20 s. {CAUSE} Stop ends the run." in live.headline(state)
    state.update(batch(0, 40, 0, 1, 128))
    assert live.causes(state) == []


def test_a_failed_run_says_its_cause_and_what_to_do_about_a_known_error():
    tail = ("MismatchError: Mismatched allreduce tensor shapes",)
    state = ended(after(), 1, failed_rank=1, message="Rank 1 failed with exit code 1.", tail=tail, cause=CAUSE)
    cause, advice = live.causes(state)
    assert cause == CAUSE and advice.startswith("The ranks called different collectives")
    shown = live.summary(state)
    assert "Rank 1 failed" in shown and CAUSE in shown and advice in shown
    state.stopped = True
    assert live.causes(state) == [CAUSE]


def test_bars_show_each_rank_and_both_together():
    state = after(
        fit(0),
        fit(1),
        batch(0, 1, 0, 0, 100),
        batch(0, 2, 0, 4, 1600),
        batch(1, 1, 0, 0, 0),
        batch(1, 2, 0, 9, 1000),
    )
    shown = live.bars(state)
    assert re.findall(r'aria-valuenow="(\d+)"', shown) == ["25", "50"]
    assert re.findall(r"[\d,]+ images/s", shown) == ["1,500 images/s", "1,000 images/s", "2,500 images/s"]
    assert "epoch 1 of 2" in shown and "epoch 2 of 2" in shown
    assert "4 s left" in shown


def test_bars_of_an_ended_run_show_the_pace_of_all_of_it():
    state = after(fit(0, steps=100), batch(0, 0, 0, 0, 0), ranks=1)
    for second in range(1, 41):
        state.update(batch(0, second, 0, second, max(0, second - 10) * 100))
    assert "100 images/s" in live.bars(state)
    assert "75 images/s" in live.bars(ended(state))
    assert "left" not in live.bars(state)
    assert live.bars(state).count("images/s") == 1  # one rank needs no total


def test_text_of_the_run_cannot_become_markup():
    state = ended(
        LiveState("<b>.py", 1),
        1,
        failed_rank=0,
        message="<i>no</i>",
        tail=("ValueError: <script>alert(1)</script>",),
    )
    state.update(line(0, "<script>alert(2)</script> & more"))
    shown = live.summary(state) + live.details(state) + live.stop_button(state) + live.output(state.lines)
    assert "<script>" not in shown and "<i>no" not in shown and "<b>.py" not in shown
    assert "ValueError: &lt;script&gt;" in shown
    assert "&amp; more" in shown


def test_figure_grows_into_the_whole_run_and_fits_the_curves_at_the_end():
    state = after(fit(0, epochs=8))
    assert live.figure(state) is None
    state.update(batch(0, 1, 0, 4, 5, loss=2.0, accuracy=0.1))
    assert [axis.get_xlim() for axis in live.figure(state).axes] == [(0, 8), (0, 8)]
    assert live.figure(ended(state)).axes[0].get_xlim()[1] < 1


# The view


class FakeRun:
    """A run that replays events; `at` says when to interrupt whoever watches."""

    def __init__(self, *events, code=0, hang=False):
        self.events, self.code, self.hang = events, code, hang
        self.ended = threading.Event()

    def __iter__(self):
        yield from self.events
        if self.hang:
            self.ended.wait()
        yield Event("exit", None, 9.0, {"code": self.code, "message": ""})

    def stop(self):
        self.ended.set()

    def wait(self):
        assert self.ended.is_set()
        return Result(self.code, 9.0)


def test_watching_returns_the_record_and_leaves_plain_html(shown):
    run = FakeRun(fit(0), batch(0, 1, 0, 4, 5, loss=2.0), epoch(0, 2, 0, 10, loss=1.0), line(0, "hello"))
    record = live.watch(run, LiveState("train.py", 1, "shapes"))
    assert record.result.code == 0
    assert record.epochs["loss"].tolist() == [1.0]
    assert repr(record) == "<train.py: exit code 0 after 9 s>"
    top, bottom = (output["text/html"] for output in shown)
    assert "Finished in 9 s." in top and "commandlinker" not in top
    assert "data:image/png;base64," in bottom and "hello" in bottom
    live.watch(FakeRun(line(0, "alone")), LiveState("hello.py", 1))  # without fit: no curves
    assert "alone" in shown[3]["text/html"] and "<img" not in shown[3]["text/html"]


def test_interrupting_ends_the_run_and_keeps_what_there_was(shown, monkeypatch):
    run = FakeRun(fit(0), epoch(0, 2, 0, 10, loss=1.0), hang=True, code=143)
    real = LiveState.update

    def update(self, event):
        real(self, event)
        if event.kind == "epoch":
            raise KeyboardInterrupt

    monkeypatch.setattr(LiveState, "update", update)
    record = live.watch(run, LiveState("train.py", 1))
    assert run.ended.is_set()
    assert "Stopped after 9 s." in shown[0]["text/html"]
    assert record.epochs["loss"].tolist() == [1.0]


@pytest.mark.parametrize(
    ("result", "losses", "sentence"),
    [
        (Result(1, 9.0, 0, "Rank 0 failed.", ("ValueError: no",)), [], "train.py: Rank 0 failed. ValueError: no"),
        (Result(1, 9.0, 0, "Rank 0 failed."), [1.0], "train.py: Rank 0 failed."),  # half a training is none
        (Result(130, 9.0, message="Stopped."), [], "train.py: Stopped."),
        (Result(0, 9.0), [], "train.py: no rank has trained with `fit`, so there is nothing to read."),
    ],
)
def test_the_record_of_a_run_that_left_nothing_says_why(result, losses, sentence):
    table = pd.DataFrame({"loss": losses})
    record = live.Record("train.py", result, table, table)
    for read in (lambda: record.epochs, lambda: record.batches):
        with pytest.raises(CourseError) as error:
            read()
        assert str(error.value) == sentence


def test_impatient_interrupts_do_not_leave_the_run(shown):
    class Slow(FakeRun):
        waits = 0

        def wait(self):
            self.waits += 1
            if self.waits < 3:
                raise KeyboardInterrupt
            return super().wait()

    assert live.watch(Slow(fit(0)), LiveState("train.py", 1)).result.code == 0


def test_a_fault_of_the_view_ends_the_run_too(shown, monkeypatch):
    def broken(state):
        raise RuntimeError("no picture")

    run = FakeRun(fit(0), hang=True)
    monkeypatch.setattr(live, "bars", broken)
    with pytest.raises(RuntimeError, match="no picture"):
        live.watch(run, LiveState("train.py", 1))
    assert run.ended.is_set()


def test_the_clock_goes_on_while_nothing_happens(shown, monkeypatch):
    monkeypatch.setattr(live, "REDRAW_INTERVAL_S", 0.02)
    seen = []
    run = FakeRun(hang=True)
    headline = live.headline

    def watched(state):
        seen.append(state.seconds)
        if len(seen) == 4:
            run.stop()
        return headline(state)

    monkeypatch.setattr(live, "headline", watched)
    live.watch(run, LiveState("train.py", 1))
    assert seen[0] < seen[1] < seen[2]


@pytest.mark.slow
@pytest.mark.ranks
def test_train_runs_a_script_with_its_arguments_and_environment(shown, tmp_path):
    script = tmp_path / "hello.py"
    script.write_text("import os, sys\nprint(sys.argv[1:], os.environ['COURSE_SLICE'])\nsys.exit(int(sys.argv[1]))\n")
    record = live.train(script, 5, "x y", ranks=1, env={"COURSE_SLICE": "64"})
    assert record.result.code == 5
    assert "['5', 'x y'] 64" in shown[0]["text/html"].replace("&#x27;", "'")
    assert "hello.py 5 x y on 1 rank" in shown[0]["text/html"]


KERAS = """
import numpy as np, tensorflow as tf
images, labels = np.random.rand(64, 8).astype("float32"), np.arange(64) % 4
model = tf.keras.Sequential([tf.keras.layers.Dense(4, input_shape=(8,))])
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("sgd", loss, metrics=["accuracy"])
model.fit(images, labels, epochs=3, batch_size=16, validation_data=(images, labels), verbose=2)
"""


@pytest.mark.slow
@pytest.mark.ranks
@pytest.mark.notebook
def test_a_notebook_without_a_front_end_shows_the_same_at_the_end(tmp_path):
    (tmp_path / "tiny.py").write_text(KERAS)
    cells = [
        "from course_lib.notebook import widgets\nrecord = widgets.train('tiny.py', ranks=2, data='noise')",
        "rows = record.epochs.dropna()\n(sorted(rows['epoch']), sorted(rows['rank']), rows['images'].max())",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    live, table = (cell.outputs for cell in notebook.cells)
    assert [output.output_type for output in live] == ["display_data", "display_data"]  # nothing on stderr
    assert "Finished in" in live[0].data["text/plain"]
    assert "tiny.py on 2 ranks" in live[0].data["text/html"]
    assert "data:image/png;base64," in live[1].data["text/html"]
    assert "Epoch 3/3" in live[1].data["text/html"]
    assert table[0].data["text/plain"] == "([1, 1, 2, 2, 3, 3], [0, 0, 0, 1, 1, 1], 192)"
