"""Notebook 1c's callbacks: what each plausible mistake costs, and whether its reason points to it."""

from __future__ import annotations

import time

import pytest

from labs.lab1_gradient_descent.lessons.checks_1c import check, points
from labs.lab1_gradient_descent.lessons.simulated_fit import Epoch, play

pytestmark = pytest.mark.slow  # the answers are Keras callbacks

CELLS = {
    "EpochTimer": "epoch_timer",
    "Throughput": "throughput",
    "TimeToTarget": "time_to_target",
    "filter_normalised": "filter_normalised",
}
CALLBACKS = [name for name in CELLS if name != "filter_normalised"]
NOW = "time.perf_counter()"

LISTS = "self.seconds, self.validation = [], []"
BEGAN = f"self.epoch_began = {NOW}"
SPEED = "images / (self.last_ended - self.first_ended)"
EMPTIED = "def on_train_begin(self, logs=None):\n    self.images_per_second = []"
STARTED = f"def on_epoch_begin(self, epoch, logs=None):\n    self.first_ended = {NOW}"
FIRST = "if batch == 0:\n    self.first_ended = self.last_ended"
RESET = "self.seconds = self.epochs = None"
ARRIVED = """if logs["val_accuracy"] >= self.target:
    self.seconds = time.perf_counter() - self.began
    self.epochs = epoch + 1
    self.model.stop_training = True"""

SCALED = "d * wanted / given"

# exercise: what was done wrong → (edits of the solution, points of 8, a word of the reason)
MISTAKES = {
    "EpochTimer": {
        "the clock starts at train begin": (
            [(BEGAN, "pass"), (LISTS, f"{LISTS}\n{BEGAN}")], 4, "when training begins and is never set back",
        ),
        "the validation is left out": (
            [(f"{NOW} - self.epoch_began", "self.test_began - self.epoch_began")],
            4,
            "stops when the validation begins",
        ),
        "seconds is a number": (
            [(f"self.seconds.append({NOW} - self.epoch_began)", f"self.seconds = {NOW} - self.epoch_began")],
            2,
            "it should be a list with one number for each epoch",
        ),
        "seconds are words": (
            [(f"self.seconds.append({NOW} - self.epoch_began)", "self.seconds.append('long')")], 2, "holds 'long'",
        ),
        "the reading itself": ([(f"{NOW} - self.epoch_began", NOW)], 4, "difference of two"),
        "later minus earlier, reversed": (
            [(f"{NOW} - self.epoch_began", f"self.epoch_began - {NOW}")],
            2,
            "subtract the earlier reading from the later",
        ),
        "wall clock": ([(NOW, "time.time()")], 2, "`time.perf_counter()` is the clock for durations"),
        "no clock": ([(NOW, "1.0")], 0, "it never asked for the time"),
        "validation appended when it ends": (
            [(f"self.validated = {NOW} - self.test_began", f"self.validation.append({NOW} - self.test_began)"),
             ("self.validation.append(self.validated)", "pass")],
            6,
            "where the second of three epochs has no validation",
        ),
        "wall clock for the validation": (
            [(f"self.test_began = {NOW}", "self.test_began = time.time()"),
             (f"self.validated = {NOW} - self.test_began", "self.validated = time.time() - self.test_began")],
            6,
            "Another clock was read",
        ),
        "validation subtracted": (
            [(f"self.seconds.append({NOW} - self.epoch_began)",
              f"self.seconds.append({NOW} - self.epoch_began - self.validated)")],
            4,
            "the validation is subtracted",
        ),
        "validation of the epoch before": ([("self.validated = 0.0", "pass")], 6, "forget the epoch before"),
    },
    "Throughput": {
        "the first batch counted": (
            [("self.images - self.batch_size", "self.images"), (FIRST, "pass"), (EMPTIED, f"{EMPTIED}\n{STARTED}")],
            2,
            "images of the first batch are counted and the clock starts when the epoch begins",
        ),
        "its images counted, its seconds not": (
            [("self.images - self.batch_size", "self.images")], 2, "images of the first batch are counted",
        ),
        "one batch in place of all": (
            [("self.images - self.batch_size", "self.batch_size")], 2, "one batch is counted, not all images",
        ),
        "batches in place of images": (
            [("self.images - self.batch_size", "-(-self.images // self.batch_size)")],
            2,
            "batches are counted, not images",
        ),
        "the last batch taken for a full one": (
            [("self.images - self.batch_size", "self.batch_size * 3")], 2, "the last batch counts as a full one",
        ),
        "the validation counted": (
            [("self.last_ended - self.first_ended", f"{NOW} - self.first_ended")], 2, "so the validation is counted",
        ),
        "the clock is never set back": (
            [("batch == 0", 'not hasattr(self, "first_ended")')], 6, "in the first epoch and is never set back",
        ),
        "seconds for an image": (
            [(SPEED, "(self.last_ended - self.first_ended) / images")], 2, "divide the images by the seconds",
        ),
        "another number": ([(SPEED, f"1.5 * {SPEED}")], 2, "78 of the 110 images follow the first batch"),
        "one number for all epochs": (
            [(f"self.images_per_second.append({SPEED})", f"self.images_per_second = [{SPEED}]")],
            4,
            "has 1 number after 3 epochs",
        ),
    },
    "TimeToTarget": {
        "accuracy for val_accuracy": ([('"val_accuracy"', '"accuracy"')], 5.2, "only the training accuracy"),
        "val_loss for val_accuracy": ([('"val_accuracy"', '"val_loss"')], 0.8, "after epoch 1, below the target"),
        "above, not at": (
            [('logs["val_accuracy"] >= self.target', 'logs["val_accuracy"] > self.target')],
            5.2,
            "reaches the target exactly",
        ),
        "one epoch late": (
            [(ARRIVED, 'late, self.late = getattr(self, "late", False), logs["val_accuracy"] >= self.target\n'
              + ARRIVED.replace('logs["val_accuracy"] >= self.target', "late"))],
            0,
            "one epoch late, after epoch 5",
        ),
        "stop_training of the callback": (
            [("self.model.stop_training", "self.stop_training")], 1.6, "`stop_training` belongs to `self.model`",
        ),
        "seconds of the last epoch": (
            [(ARRIVED, ARRIVED + f"\nself.began = {NOW}")], 3.6, "set back in each epoch",
        ),
        "the reading itself": ([(f"{NOW} - self.began", NOW)], 3.6, "the clock's reading itself is taken"),
        "epochs from 0": ([("epoch + 1", "epoch")], 5.2, "Keras counts them 0, 1, 2"),
        "nothing recorded": ([("self.epochs = epoch + 1", "pass")], 5.2, "record both"),
        "not anew in a second run": (
            [(RESET, "pass"), ("self.target = target", f"self.target = target\n{RESET}")],
            6.4,
            "a second run that misses the target keeps the first's result",
        ),
        "seconds always recorded": (
            [(ARRIVED, f"self.seconds = {NOW} - self.began\n{ARRIVED}")], 5.6, "should be None",
        ),
    },
    "filter_normalised": {
        "not at all": ([(SCALED, "d")], 2, "nothing is rescaled"),
        "one length for all": (
            [("np.sum(w**2, axis=axes)", "np.sum(w**2)"), ("np.sum(d**2, axis=axes)", "np.sum(d**2)")],
            2,
            "the whole array gets one length",
        ),
        "the last axis": ([("tuple(range(w.ndim - 1))", "-1"), (SCALED, "d * wanted[..., None] / given[..., None]")],
                          2, "over the last axis"),
        "upside down": ([(SCALED, "d * given / wanted")], 2, "upside down"),
        "length 1": ([(SCALED, "d / given")], 2, "length 1"),
        "own length kept": ([(SCALED, "d * wanted")], 2, "divide by its own first"),
        "squares": ([("np.sqrt(np.sum(w**2, axis=axes))", "np.sum(w**2, axis=axes)"),
                     ("np.sqrt(np.sum(d**2, axis=axes))", "np.sum(d**2, axis=axes)")], 2, "take roots"),
        "biases move": ([("np.zeros_like(d)", "d")], 6, "should get zeros"),
        "in place": ([(SCALED, "np.multiply(w, 2, out=w)")], 0, "changed in place"),
        "the weights": ([(SCALED, "w")], 2, "the weights themselves"),
        "times the weights": ([(SCALED, "d * w")], 2, "multiplied by its weight"),
        "standard deviations": (
            [(SCALED, "d * np.std(w, axis=axes) / np.std(d, axis=axes)")], 2, "standard deviations are no lengths",
        ),
        "absolute values": (
            [(SCALED, "d * np.sum(np.abs(w), axis=axes) / np.sum(np.abs(d), axis=axes)")], 2, "absolute values",
        ),
        "one array": ([("return scaled", "return scaled[:1]")], 0, "a list of 3 arrays"),
    },
}  # fmt: skip


@pytest.fixture
def wrong(answer):
    """The solution's class after edits."""
    return lambda name, *edits: answer("1c_a_realistic_network", CELLS[name], *edits)


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


@pytest.mark.parametrize("name", CALLBACKS)
def test_a_stub_gets_nothing(wrong, name, capsys):
    stub = wrong(name)
    stub.on_epoch_end = lambda self, epoch, logs=None: (_ for _ in ()).throw(NotImplementedError())
    assert points(stub, 8) == 0.0
    assert "still a stub" in capsys.readouterr().out
    assert "Not written yet" in str(check(stub))


def test_a_simulated_run_leaves_the_clock_as_it_was(wrong):
    before = time.perf_counter
    play(wrong("EpochTimer")(), [Epoch(1, (1, 1), 1)])
    assert time.perf_counter is before
    broken = wrong("EpochTimer", ("self.validated = 0.0", "raise KeyError"))
    with pytest.raises(KeyError):
        play(broken(), [Epoch(1, (1, 1), 1)])
    assert time.perf_counter is before


def test_a_simulated_run_calls_the_methods_in_the_order_of_a_real_fit():
    from tensorflow import keras

    from labs.lab1_gradient_descent.lessons import checks_1c

    def recorder():
        calls = []
        methods = ("train_begin", "epoch_begin", "train_batch_begin", "train_batch_end", "test_begin",
                   "test_batch_begin", "test_batch_end", "test_end", "epoch_end", "train_end")  # fmt: skip
        made = {f"on_{m}": lambda self, *_, m=m: calls.append(m) for m in methods}
        return type("Recorder", (keras.callbacks.Callback,), made)(), calls

    real, real_calls = recorder()
    checks_1c._fit(real)
    played, played_calls = recorder()
    play(played, [Epoch(1, (1, 1, 1), 1)] * 2)

    def order(calls):
        return [m for m, before in zip(calls, [None, *calls]) if m != before or "batch" not in m]

    def squeezed(calls):
        return [m for m in calls if not m.startswith("test_batch")]

    assert squeezed(order(real_calls)) == squeezed(order(played_calls))
