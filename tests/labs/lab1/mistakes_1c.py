"""Mistakes in the exercises of notebook 1c, and right answers of another kind."""

import numpy as np

NOW = "time.perf_counter()"
LISTS = "self.seconds, self.validation = [], []"
BEGAN = f"self.epoch_began = {NOW}"
SPEED = "images / (self.last_ended - self.first_ended)"
EMPTIED = "def on_train_begin(self, logs=None):\n    self.images_per_second = []"
STARTED = f"def on_epoch_begin(self, epoch, logs=None):\n    self.first_ended = {NOW}"
FIRST = "if batch == 0:\n    self.first_ended = self.last_ended"
RESET = "self.seconds = self.epochs = None"
TRAINING_BEGINS = f"def on_train_begin(self, logs=None):\n    {RESET}\n    self.began = {NOW}"
WITH_THE_EPOCH = (
    f"def on_train_begin(self, logs=None):\n    {RESET}\n"
    f"def on_epoch_begin(self, epoch, logs=None):\n    if epoch == 0:\n        self.began = {NOW}"
)
ARRIVED = """if logs["val_accuracy"] >= self.target:
    self.seconds = time.perf_counter() - self.began
    self.epochs = epoch + 1
    self.model.stop_training = True"""
SCALED = "d * wanted / given"

MISTAKES = {
    "EpochTimer": {
        "the clock starts at train begin":
            ({BEGAN: "pass", LISTS: f"{LISTS}\n{BEGAN}"}, "when training begins and is never set back", 5),
        "the validation is left out": (
            {f"{NOW} - self.epoch_began": "self.test_began - self.epoch_began"}, "stops when the validation begins", 5,
        ),
        "seconds is a number":
            ({f"self.seconds.append({NOW} - self.epoch_began)": f"self.seconds = {NOW} - self.epoch_began"},
             "it should be a list with one number for each epoch", 2.5),
        "seconds are words":
            ({f"self.seconds.append({NOW} - self.epoch_began)": "self.seconds.append('long')"}, "holds 'long'", 2.5),
        "the reading itself": ({f"{NOW} - self.epoch_began": NOW}, "difference of two", 5),
        "later minus earlier, reversed":
            ({f"{NOW} - self.epoch_began": f"self.epoch_began - {NOW}"},
             "subtract the earlier reading from the later", 2.5),
        "the validation lasts to the end of the epoch":
            ({f"self.validated = {NOW} - self.test_began": "self.validated = 1",
              "self.validation.append(self.validated)":
               f"self.validation.append({NOW} - self.test_began if self.validated else 0.0)"},
             "it stops at the end of the epoch", 7.5),
        "wall clock": ({NOW: "time.time()"}, "`time.perf_counter()` is the clock for durations", 2.5),
        "no clock": ({NOW: "1.0"}, "it never asked for the time", 0),
        "validation appended when it ends":
            ({f"self.validated = {NOW} - self.test_began": f"self.validation.append({NOW} - self.test_began)",
              "self.validation.append(self.validated)": "pass"},
             "where the second of three epochs has no validation", 7.5),
        "wall clock for the validation":
            ({f"self.test_began = {NOW}": "self.test_began = time.time()",
              f"self.validated = {NOW} - self.test_began": "self.validated = time.time() - self.test_began"},
             "Another clock was read", 7.5),
        "validation subtracted":
            ({f"self.seconds.append({NOW} - self.epoch_began)":
               f"self.seconds.append({NOW} - self.epoch_began - self.validated)"},
             "the validation is subtracted", 5),
        "validation of the epoch before": ({"self.validated = 0.0": "pass"}, "forget the epoch before", 7.5),
    },
    "Throughput": {
        "the first batch counted":
            ({"self.images - self.batch_size": "self.images", FIRST: "pass", EMPTIED: f"{EMPTIED}\n{STARTED}"},
             "images of the first batch are counted and the clock starts when the epoch begins", 2.5),
        "from the second batch's begin, all images":
            ({"self.images - self.batch_size": "self.images", FIRST: "pass",
              EMPTIED: f"{EMPTIED}\ndef on_train_batch_begin(self, batch, logs=None):\n"
                       f"    if batch == 1:\n        self.first_ended = {NOW}"},
             "images of the first batch are counted", 2.5),
        "its images counted, its seconds not":
            ({"self.images - self.batch_size": "self.images"}, "images of the first batch are counted", 2.5),
        "one batch in place of all":
            ({"self.images - self.batch_size": "self.batch_size"}, "one batch is counted, not all images", 2.5),
        "batches in place of images":
            ({"self.images - self.batch_size": "-(-self.images // self.batch_size)"},
             "batches are counted, not images", 2.5),
        "the last batch taken for a full one":
            ({"self.images - self.batch_size": "self.batch_size * 3"}, "the last batch counts as a full one", 2.5),
        "the validation counted":
            ({"self.last_ended - self.first_ended": f"{NOW} - self.first_ended"}, "so the validation is counted", 2.5),
        "the clock is never set back":
            ({"batch == 0": 'not hasattr(self, "first_ended")'}, "in the first epoch and is never set back", 7.5),
        "seconds for an image":
            ({SPEED: "(self.last_ended - self.first_ended) / images"}, "divide the images by the seconds", 2.5),
        "another number": ({SPEED: f"1.5 * {SPEED}"}, "78 of the 110 images follow the first batch", 2.5),
        "one number for all epochs":
            ({f"self.images_per_second.append({SPEED})": f"self.images_per_second = [{SPEED}]"},
             "has 1 number after 3 epochs", 5),
    },
    "TimeToTarget": {
        "accuracy for val_accuracy": ({'"val_accuracy"': '"accuracy"'}, "only the training accuracy", 6.5),
        "val_loss for val_accuracy": ({'"val_accuracy"': '"val_loss"'}, "after epoch 1, below the target", 1),
        "above, not at":
            ({'logs["val_accuracy"] >= self.target': 'logs["val_accuracy"] > self.target'},
             "reaches the target exactly", 6.5),
        "epochs always recorded": ({ARRIVED: f"self.epochs = epoch + 1\n{ARRIVED}"}, "`epochs` should be None", 8),
        "one epoch late":
            ({ARRIVED:
               'late, self.late = getattr(self, "late", False), logs["val_accuracy"] >= self.target\n'
               + ARRIVED.replace('logs["val_accuracy"] >= self.target', "late")},
             "one epoch late, after epoch 5", 0),
        "stop_training of the callback":
            ({"self.model.stop_training": "self.stop_training"}, "`stop_training` belongs to `self.model`", 2),
        "seconds of the last epoch": ({ARRIVED: ARRIVED + f"\nself.began = {NOW}"}, "set back in each epoch", 4.5),
        "the reading itself": ({f"{NOW} - self.began": NOW}, "the clock's reading itself is taken", 4.5),
        "epochs from 0": ({"epoch + 1": "epoch"}, "Keras counts them 0, 1, 2", 6.5),
        "nothing recorded": ({"self.epochs = epoch + 1": "pass"}, "record both", 6.5),
        "not anew in a second run":
            ({RESET: "pass", "self.target = target": f"self.target = target\n{RESET}"},
             "a second run that misses the target keeps the first's result", 8),
        "seconds always recorded": ({ARRIVED: f"self.seconds = {NOW} - self.began\n{ARRIVED}"}, "should be None", 7),
    },
    "filter_normalised": {
        "not at all": ({SCALED: "d"}, "nothing is rescaled", 2.5),
        "one length for all":
            ({"np.sum(w**2, axis=axes)": "np.sum(w**2)", "np.sum(d**2, axis=axes)": "np.sum(d**2)"},
             "the whole array gets one length", 2.5),
        "the last axis":
            ({"tuple(range(w.ndim - 1))": "-1", SCALED: "d * wanted[..., None] / given[..., None]"},
             "over the last axis", 2.5),
        "upside down": ({SCALED: "d * given / wanted"}, "upside down", 2.5),
        "length 1": ({SCALED: "d / given"}, "length 1", 2.5),
        "own length kept": ({SCALED: "d * wanted"}, "divide by its own first", 2.5),
        "squares":
            ({"np.sqrt(np.sum(w**2, axis=axes))": "np.sum(w**2, axis=axes)",
              "np.sqrt(np.sum(d**2, axis=axes))": "np.sum(d**2, axis=axes)"},
             "take roots", 2.5),
        "biases move": ({"np.zeros_like(d)": "d"}, "should get zeros", 7.5),
        "the image's axes only":
            ({"tuple(range(w.ndim - 1))": "(0, 1) if w.ndim > 2 else 0"}, "a filter has all its input channels", 5),
        "in place": ({SCALED: "np.multiply(w, 2, out=w)"}, "changed in place", 0),
        "the weights": ({SCALED: "w"}, "the weights themselves", 2.5),
        "times the weights": ({SCALED: "d * w"}, "multiplied by its weight", 2.5),
        "standard deviations":
            ({SCALED: "d * np.std(w, axis=axes) / np.std(d, axis=axes)"}, "standard deviations are no lengths", 2.5),
        "absolute values":
            ({SCALED: "d * np.sum(np.abs(w), axis=axes) / np.sum(np.abs(d), axis=axes)"}, "absolute values", 2.5),
        "one array": ({"return scaled": "return scaled[:1]"}, "a list of 3 arrays", 0),
    },
}  # fmt: skip


def by_columns(direction, weights):
    """Each array as a matrix with a column for each filter."""
    made = []
    for d, w in zip(direction, weights):
        columns, own = d.reshape(-1, d.shape[-1]), w.reshape(-1, w.shape[-1])
        factors = np.linalg.norm(own, axis=0) / np.linalg.norm(columns, axis=0)
        made.append((columns @ np.diag(factors)).reshape(d.shape) if d.ndim > 1 else 0 * d)
    return tuple(made)


RIGHT = {
    "EpochTimer": {
        "readings by name": {
            BEGAN: f"self.at = {{'begin': {NOW}}}",
            "self.validated = 0.0": "pass",
            f"self.test_began = {NOW}": f"self.at['from'] = {NOW}",
            f"self.validated = {NOW} - self.test_began": f"self.at['to'] = {NOW}",
            f"self.seconds.append({NOW} - self.epoch_began)": f"self.seconds += [{NOW} - self.at['begin']]",
            "self.validation.append(self.validated)":
                "self.validation += [self.at.get('to', 0.0) - self.at.get('from', 0.0)]",
        },
    },
    "Throughput": {
        "all readings": {
            f"self.last_ended = {NOW}": f"self.ends = [*(self.ends if batch else []), {NOW}]",
            FIRST: "pass",
            SPEED: "images / np.ptp(self.ends)",
        },
    },
    "TimeToTarget": {
        "the flag set in every epoch": {
            ARRIVED:
                'arrived = not (logs or {}).get("val_accuracy", 0.0) < self.target\n'
                f"if arrived:\n    self.seconds, self.epochs = {NOW} - self.began, epoch + 1\n"
                "self.model.stop_training = arrived",
        },
        "the clock starts with the first epoch": {TRAINING_BEGINS: WITH_THE_EPOCH},
    },
    "filter_normalised": {"matrices": by_columns},
}  # fmt: skip
