"""Notebook 1c's callbacks: what each plausible mistake costs, and whether its reason points to it."""

from __future__ import annotations

import time

import pytest

from course_lib.assess.exercises.callbacks import check, points
from course_lib.assess.exercises.rehearsal import Epoch, play

pytestmark = pytest.mark.slow  # the answers are Keras callbacks

CELLS = {"EpochTimer": "epoch_timer", "Throughput": "throughput", "TimeToTarget": "time_to_target"}
NOW = "time.perf_counter()"

# exercise: what was done wrong → (edits of the solution, points of 8, a word of the reason)
MISTAKES = {
    "EpochTimer": {
        "the clock starts at train begin": (
            [
                (f"        self.epoch_began = {NOW}\n", ""),
                ("self.validation = [], []", f"self.validation = [], []\n        self.epoch_began = {NOW}"),
            ],
            4,
            "when training begins and is never set back",
        ),
        "the validation is left out": (
            [(f"append({NOW} - self.epoch_began", "append(self.test_began - self.epoch_began")],
            4,
            "stops when the validation begins",
        ),
        "seconds is a number": (
            [("self.seconds.append(", "self.seconds = (")],
            2,
            "it should be a list with one number for each epoch",
        ),
        "the reading itself": ([(f"append({NOW} - self.epoch_began", f"append({NOW}")], 4, "difference of two"),
        "later minus earlier, reversed": (
            [(f"{NOW} - self.epoch_began", f"self.epoch_began - {NOW}")],
            2,
            "subtract the earlier reading from the later",
        ),
        "wall clock": ([("time.perf_counter", "time.time")], 2, "`time.perf_counter()` is the clock for durations"),
        "validation appended when it ends": (
            [("self.validated = time", "self.validation.append(time"), ("- self.test_began", "- self.test_began)"),
             ("        self.validation.append(self.validated)\n", "")],
            6,
            "where the second of three epochs has no validation",
        ),
        "validation of the epoch before": (
            [("        self.validated = 0.0\n", "")],
            6,
            "forget the epoch before",
        ),
    },
    "Throughput": {
        "the first batch counted": (
            [("images = self.images - self.batch_size", "images = self.images"),
             ("def on_train_batch_end", f"def on_epoch_begin(self, epoch, logs=None):\n        self.first_ended = {NOW}"
              "\n\n    def on_train_batch_end"),
             ("        if batch == 0:\n            self.first_ended = self.last_ended\n", "")],
            2,
            "images of the first batch are counted and the clock starts when the epoch begins",
        ),
        "its images counted, its seconds not": (
            [(" - self.batch_size\n", "\n")], 2, "images of the first batch are counted",
        ),
        "one batch in place of all": (
            [("self.images - self.batch_size", "self.batch_size")], 2, "one batch is counted, not all images",
        ),
        "the last batch taken for a full one": (
            [("self.images - self.batch_size", "self.batch_size * 3")], 2, "the last batch counts as a full one",
        ),
        "the validation counted": (
            [("(self.last_ended", f"({NOW}")], 2, "so the validation is counted",
        ),
        "the clock is never set back": (
            [("if batch == 0:", 'if not hasattr(self, "first_ended"):')], 6, "in the first epoch and is never set back",
        ),
        "seconds for an image": (
            [("images / (self.last_ended - self.first_ended)", "(self.last_ended - self.first_ended) / images")],
            2,
            "divide the images by the seconds",
        ),
        "one number for all epochs": (
            [("self.images_per_second.append(images / (self.last_ended - self.first_ended))",
              "self.images_per_second = [images / (self.last_ended - self.first_ended)]")],
            4,
            "has 1 number after 3 epochs",
        ),
    },
    "TimeToTarget": {
        "accuracy for val_accuracy": ([('"val_accuracy"', '"accuracy"')], 5.2, "only the training accuracy"),
        "val_loss for val_accuracy": ([('"val_accuracy"', '"val_loss"')], 0.8, "after epoch 1, below the target"),
        "above, not at": ([(">=", ">")], 5.2, "reaches the target exactly"),
        "one epoch late": (
            [('if logs["val_accuracy"] >= self.target:',
              'late, self.late = getattr(self, "late", False), logs["val_accuracy"] >= self.target\n        if late:')],
            0,
            "one epoch late, after epoch 5",
        ),
        "stop_training of the callback": (
            [("self.model.stop_training", "self.stop_training")], 1.6, "`stop_training` belongs to `self.model`",
        ),
        "seconds of the last epoch": (
            [("    def on_epoch_end", f"    def on_epoch_begin(self, epoch, logs=None):\n        self.began = {NOW}"
              "\n\n    def on_epoch_end")],
            3.6,
            "set back in each epoch",
        ),
        "epochs from 0": ([("epoch + 1", "epoch")], 5.2, "Keras counts them 0, 1, 2"),
        "not anew in a second run": (
            [("        self.seconds = self.epochs = None\n", ""),
             ("self.target = target", "self.target = target\n        self.seconds = self.epochs = None")],
            6.4,
            "a second run that misses the target keeps the result of the first",
        ),
        "seconds always recorded": (
            [('        if logs["val', f'        self.seconds = {NOW} - self.began\n        if logs["val')],
            5.6,
            "should be None",
        ),
    },
}  # fmt: skip


@pytest.fixture
def wrong(answer):
    """The solution's class after edits. (Cells have lower-case names, classes don't.)"""

    def make(name, *edits):
        made = answer("1c_a_realistic_network", CELLS[name], (f"class {name}", f"class {CELLS[name]}"), *edits)
        made.__name__ = name
        return made

    return make


@pytest.mark.parametrize("name", CELLS)
def test_the_solution_is_right_and_quiet(wrong, name, capfd):
    solution = wrong(name)
    check(solution)
    capfd.readouterr()  # TensorFlow has introduced itself
    assert points(solution, 8) == 8.0
    assert all(verdict.passed for verdict in check(solution).verdicts)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("name", "mistake"), [(name, mistake) for name in MISTAKES for mistake in MISTAKES[name]])
def test_a_mistake_loses_points_and_is_named(wrong, name, mistake, capsys):
    edits, score, said = MISTAKES[name][mistake]
    got = points(wrong(name, *edits), 8)
    reasons = capsys.readouterr().out
    assert said in reasons
    assert got == pytest.approx(score), reasons


@pytest.mark.parametrize("name", CELLS)
def test_a_stub_gets_nothing(wrong, name, capsys):
    stub = wrong(name)
    stub.on_epoch_end = lambda self, epoch, logs=None: (_ for _ in ()).throw(NotImplementedError())
    assert points(stub, 8) == 0.0
    assert "not written yet" in capsys.readouterr().out
    with pytest.raises(NotImplementedError):
        check(stub)


def test_a_played_run_leaves_the_clock_as_it_was(wrong):
    before = time.perf_counter
    play(wrong("EpochTimer")(), [Epoch(1, (1, 1), 1)])
    assert time.perf_counter is before
    broken = wrong("EpochTimer", ("self.validated = 0.0", "raise KeyError"))
    with pytest.raises(KeyError):
        play(broken(), [Epoch(1, (1, 1), 1)])
    assert time.perf_counter is before


def test_the_solutions_do_not_need_the_check_to_be_alone(wrong):
    """Keras's own order of calls is the one that is played: names of all methods that a real fit calls."""
    from tensorflow import keras

    from course_lib.assess.exercises import callbacks

    def recorder():
        calls = []
        methods = ("train_begin", "epoch_begin", "train_batch_begin", "train_batch_end", "test_begin",
                   "test_batch_begin", "test_batch_end", "test_end", "epoch_end", "train_end")  # fmt: skip
        made = {f"on_{m}": lambda self, *_, m=m: calls.append(m) for m in methods}
        return type("Recorder", (keras.callbacks.Callback,), made)(), calls

    real, real_calls = recorder()
    callbacks._fit(real)
    played, played_calls = recorder()
    play(played, [Epoch(1, (1, 1, 1), 1)] * 2)

    def order(calls):
        return [m for m, before in zip(calls, [None, *calls]) if m != before or "batch" not in m]

    def squeezed(calls):
        return [m for m in calls if not m.startswith("test_batch")]

    assert squeezed(order(real_calls)) == squeezed(order(played_calls))
