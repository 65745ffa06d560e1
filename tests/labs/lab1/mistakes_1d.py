"""Mistakes in the exercises of notebook 1d, and right answers of another kind."""

import numpy as np

MEMORY = """return {"weights": learned, "gradients": learned, "state": state_per_weight * learned,
                 "activations": 4 * activations * batch}"""

MISTAKES = {
    "place": {
        "the loss on the host":
            ({"[1, 3, 4, 15]": "[1, 3, 4, 9, 15]", "list(range(6, 15))": "[6, 7, 8, *range(10, 15)]"},
             "Step 9 does not happen on the host: the output is already there", 5),
        "transport of the labels": ({"[2, 5]": "[2]"}, "Step 5 is missing", 7.5),
        "images loaded on the wire":
            ({"[1, 3, 4, 15]": "[3, 4, 15]", "[2, 5]": "[1, 2, 5]"}, "Step 1 does not happen", 7.5),
        "the loss on the wire": ({"[2, 5]": "[2, 5, 14]"}, "Step 14 does not happen on the wire", 5),
        "the files are read by the host":
            ({"[1, 3, 4, 15]": "[1, 2, 3, 4, 15]", "[2, 5]": "[5]"}, "Step 2 does not happen on the host", 7.5),
        "a step 16": ({"[2, 5]": "[2, 16]"}, "step numbers from 1 to 15", 0),
        "another key": ({'"wire"': '"cable"'}, "keys", 0),
        "a step in two places":
            ({"[2, 5]": "[2, 5, 5, 15]", "[1, 3, 4, 15]": "[15, 1, 3, 4]"}, "more than one place", 7.5),
    },
    "data_parallel": {
        "every device reads all": ({"range(1, 13)": "range(6, 13)"}, "images of its own", 5),
        "the update differs": ({"range(1, 13)": "range(1, 15)"}, "drift apart", 5),
        "own gradients alike": ({"range(1, 13)": "range(1, 10)"}, "own gradients", 5),
        "averaged after the update": ({"differs, 12": "differs, 14"}, "the optimizer must see the average", 5),
        "averaged between optimizer and weights": ({"differs, 12": "differs, 13"}, "must see the average", 5),
        "the batch is shared": ({"range(1, 13)": "range(5, 13)"}, "images of its own", 5),
        "averaged too early": ({"differs, 12": "differs, 10"}, "earlier layers are still missing", 5),
        "averaged without gradients": ({"differs, 12": "differs, 9"}, "no gradient yet", 5),
        "one value": ({"differs, 12": "differs"}, "two things", 0),
        "a set": ({"differs, 12": "differs, {12}"}, "number of one step", 0),
    },
    "memory": {
        "state forgotten": ({"state_per_weight * learned": "0"}, "was forgotten", 6.5),
        "numbers, not bytes, of state":
            ({"state_per_weight * learned": "state_per_weight * weights"}, "each takes 4 bytes", 6.5),
        "state fixed": ({"state_per_weight * learned": "learned"}, "says how many numbers", 6.5),
        "state of activations": (
            {"state_per_weight * learned": "4 * state_per_weight * activations * batch"}, "not to the activations", 6.5,
        ),
        "batch forgotten": ({"4 * activations * batch": "4 * activations"}, "multiply by the batch", 6),
        "numbers, not bytes, of activations":
            ({"4 * activations * batch": "activations * batch"}, "each takes 4 bytes", 6),
        "gradients for each image":
            ({MEMORY: MEMORY.replace('"gradients": learned', '"gradients": learned * batch')},
             "summed over the batch", 7.5),
        "bits": ({"learned = 4 * weights": "learned = 32 * weights"}, "bits", 4),
        "numbers, not bytes, of weights": ({"learned = 4 * weights": "learned = weights"}, "each takes 4 bytes", 4),
        "no state is None": ({"state_per_weight * learned": "None"}, "should be 0; it is None", 6.5),
    },
    "backward": {
        "the ReLU forgotten": ({"(slope @ w.T) * (h > 0)": "slope @ w.T"}, "the ReLU is left out", 3),
        "the ReLU lets zeros through": ({"h > 0": "h >= 0"}, "the ReLU is left out", 3),
        "the ReLU inverted": ({"h > 0": "h <= 0"}, "wrong way round", 3),
        "times the values": ({"(slope @ w.T) * (h > 0)": "(slope @ w.T) * h"}, "which is 0 or 1", 3),
        "the gradient's sign": ({"(slope @ w.T) * (h > 0)": "np.maximum(slope @ w.T, 0)"}, "not the sign of the", 3),
        "a ReLU at the end":
            ({"gradients = []": "gradients = []\nslope = slope * (inputs[-1] @ weights[-1] > 0)"},
             "no ReLU after the last", 0),
        "the wrong order": ({"gradients[::-1]": "gradients"}, "reverse it", 0),
        "transposed": ({"h.T @ slope": "slope.T @ h"}, "transposed", 0),
        "the wrong sign": ({"h.T @ slope": "-h.T @ slope"}, "not the step", 0),
        "averaged again": ({"h.T @ slope": "h.T @ slope / len(h)"}, "a mean over the images", 0),
        "the first only": ({"gradients[::-1]": "gradients[:1]"}, "a list of 3 arrays", 0),
        "twice": ({"h.T @ slope": "2 * h.T @ slope"}, "changes the loss by", 0),
    },
    "crossover": {
        "the inverse":
            ({"weights * (devices - 1) / sum(crossing)": "sum(crossing) / weights / (devices - 1)"},
             "that is the inverse", 0),
        "N for N − 1": ({"devices - 1": "devices"}, "that is twice as much: the 2 of both ways cancels, and", 0),
        "what all devices hold": ({"(devices - 1)": "(devices - 1) / devices"}, "gradients of all devices count", 0),
        "what one device sends": ({"(devices - 1)": "2 * (devices - 1) / devices"}, "what one device sends", 4),
        "rounded":
            ({"weights * (devices - 1) / sum(crossing)": "weights * (devices - 1) // sum(crossing)"},
             "should not be rounded", 4),
        "no devices": ({"weights * (devices - 1)": "weights"}, "leaves out the number of devices", 4),
        "bytes": ({"weights": "4 * weights"}, "that cancels", 0),
        "one way through the cuts": ({"sum(crossing)": "(sum(crossing) / 2)"}, "the 2 of both ways cancels", 0),
        "the first cut only": ({"sum(crossing)": "crossing[0]"}, "not one of them", 4),
    },
    "bytes_model_parallel": {
        "forward only": ({"2 * one_way": "one_way"}, "forward only", 0),
        "one image only": ({"4 * batch": "4"}, "multiply by the batch", 0),
        "the first cut only": ({"sum(crossing)": "crossing[0]"}, "not the first alone", 5),
        "the mean of the cuts": ({"sum(crossing)": "(sum(crossing) / len(crossing))"}, "their sum was asked for", 5),
        "the largest cut only": ({"sum(crossing)": "max(crossing)"}, "not the largest alone", 5),
        "the number of cuts": ({"sum(crossing)": "len(crossing)"}, "counts the cuts", 0),
        "numbers, not bytes": ({"4 * batch": "batch"}, "each takes 4 bytes", 0),
        "the list emptied": ({"sum(crossing)": "crossing.pop()"}, "changed the list", 0),
    },
}  # fmt: skip


def arrays():
    return {"device": np.arange(6, 15), "wire": {5, 2}, "host": (15, *range(3, 5), 1)}


def by_what_is_left():
    return {step for step in range(1, 15) if step not in (13, 14)}, np.int64(12)


def kilobytes(weights, activations, batch, state_per_weight):
    numbers = {"weights": 1, "gradients": 1, "state": state_per_weight}
    parts = {name: count * weights * 32 / 8 for name, count in numbers.items()}
    return {**parts, "activations": sum(4 * activations for _ in range(batch))}


def recursive(weights, inputs, slope):
    if not weights:
        return []
    below = np.einsum("mo,io->mi", slope, weights[-1]) * np.sign(inputs[-1])
    return [*recursive(weights[:-1], inputs[:-1], below), np.tensordot(inputs[-1], slope, (0, 0))]


def by_loads(weights, crossing, devices):
    """One load of data parallelism over that of model parallelism with one image."""
    piece = 4 * weights / devices
    return devices * 2 * (devices - 1) * piece / (2 * 4 * np.sum(crossing))


def image_by_image(crossing, batch):
    return sum(np.zeros(2 * cut, np.float32).nbytes for cut in crossing for _ in range(batch))


RIGHT = {
    "place": {"arrays and sets, in another order": arrays},
    "data_parallel": {"what is left": by_what_is_left},
    "memory": {"floats": kilobytes},
    "backward": {"by recursion": recursive},
    "crossover": {"both loads": by_loads},
    "bytes_model_parallel": {"image by image": image_by_image},
}
