"""Mistakes in the exercises of notebook 4c, and other right answers."""

import numpy as np


def in_numpy(examples, epochs, ranks, images, step):
    return np.ceil(np.float64(examples) * epochs / (ranks * images)) * step


MISTAKES = {
    "step_seconds": {
        "the last message only behind a short queue":
            ({"max(backward + last, communication)":
               "(backward + last if communication <= backward else communication)"},
             "the last message is missing"),
        "overlap counted as a sum":
            ({"max(backward + last, communication)": "backward + communication"}, "that is the sum"),
        "hidden behind the whole step":
            ({"forward + max(backward + last, communication)": "max(forward + backward + last, communication)"},
             "while the forward pass runs there is no gradient"),
        "the last message forgotten": ({"backward + last": "backward"}, "it starts when the backward"),
        "the last message twice":
            ({"max(backward + last, communication)": "max(backward, communication) + last"},
             "part of `communication` already"),
        "forward and backward exchanged":
            ({"return forward + max(backward + last, communication)":
               "return backward + max(forward + last, communication)"},
             "the other way round"),
        "two halves":
            ({"images / throughput / 3": "images / throughput / 2", "2 * forward": "forward"},
             "a third of the computation, not half"),
        "the inverse throughput": ({"images / throughput": "throughput / images"}, "should be"),
    },
    "calibrate": {
        "a guess": (lambda predict, published, low, high: (low + high) / 3, "`predict` is never called"),
        "beyond the interval": (lambda predict, published, low, high: high + 1, "outside of the interval"),
        "the wrong half": ({"predict(middle) > published": "predict(middle) < published"}, "Keep the half"),
        "too few halvings": ({"range(60)": "range(4)"}, "halve more often"),
        "a straight line":
            ({"range(60)": "()", "return middle": "return low + (high - low) * (1 - published)"},
             "only where the prediction is a straight line"),
        "an interval that never shrinks": (
            {"range(60)": "iter(int, 1)", "low = middle": "pass", "high = middle": "pass"}, "does the interval shrink",
        ),
    },
    "ridge_images": {
        "bits taken for bytes": ({"gigabits * 1e9 / 8": "gigabits * 1e9"}, "in bits, the gradient in bytes"),
        "multiplied by 8": ({"gigabits * 1e9 / 8": "gigabits * 1e9 * 8"}, "factor of 64"),
        "2(N−1)/N forgotten": ({"2 * (ranks - 1) / ranks * numbers": "numbers"}, "not just all of it once"),
        "once round the ring": ({"2 * (ranks - 1)": "(ranks - 1)"}, "goes round twice"),
        "always 4 bytes": ({"itemsize": "4"}, "you count 4 bytes"),
        "seconds": ({"throughput * sent": "sent"}, "seconds on the wire"),
    },
    "training_seconds": {
        "the batch of one GPU": ({"(ranks * images)": "images"}, "global batch is ranks · images"),
        "each epoch rounded up":
            ({"math.ceil(examples * epochs / (ranks * images))": "epochs * math.ceil(examples / (ranks * images))"},
             "round up once"),
        "rounded down":
            ({"math.ceil(examples * epochs / (ranks * images))": "examples * epochs // (ranks * images)"},
             "round up, not down"),
        "not rounded": ({"math.ceil": "float"}, "no part of a step"),
        "the steps": ({"steps * step": "steps"}, "those are the steps"),
        "nothing returned": ({"return steps * step": "steps * step"}, "is a `return` missing"),
        "the batch of one GPU, not rounded":
            ({"math.ceil(examples * epochs / (ranks * images))": "examples * epochs / images"},
             "global batch is ranks · images"),
        "an image on each GPU": ({"(ranks * images)": "ranks"}, "on each GPU, not one"),
        "minutes": ({"return steps * step": "return steps * step / 60"}, "those are minutes"),
        "one epoch": ({"examples * epochs": "examples"}, "that is one epoch"),
        "each epoch rounded down":
            ({"math.ceil(examples * epochs / (ranks * images))": "examples // (ranks * images) * epochs"},
             "drops the rest of every epoch"),
        "a number": ({"return steps * step": "return 1.0"}, "how many steps of ranks · images"),
    },
}  # fmt: skip

RIGHT = {
    "training_seconds": {"a number of NumPy's": in_numpy},
}
