"""Mistakes in the exercises of notebook 4c, and other right answers."""

import statistics

import numpy as np
import pandas as pd


def queue_and_wait(images, throughput, communication, last):
    """What sticks out of the backward pass, added to the computation."""
    computing = images / throughput
    return np.maximum(computing + last, computing / 3 + communication)


def secant(predict, published, low, high):
    """The interval shrinks to where the line through its ends meets the published value, or by half."""
    while high - low > 1e-13 * high:
        top, bottom = predict(low), predict(high)
        guess = low + (high - low) * (top - published) / (top - bottom) if top > bottom else high
        for middle in (min(max(guess, low), high), (low + high) / 2):
            if predict(middle) > published:
                low = max(low, middle)
            else:
                high = min(high, middle)
        if abs(predict(low) - published) < 1e-9:
            return low
    return high


def by_seconds_of_a_byte(ranks, numbers, itemsize, gigabits, throughput):
    second_per_byte = 8e-9 / gigabits
    return 2 * numbers * itemsize * (1 - 1 / ranks) * second_per_byte / (1 / throughput)


def by_speed_up(runs):
    """More than so many times the devices can't be so many times as fast."""
    devices, minutes = next(iter(runs.values()))
    return {name for name, (more, time) in runs.items() if minutes / time > more / devices}


def beyond_rounding(runs):
    """Only what is beyond the rounding of published minutes: 5 %."""
    devices, minutes = next(iter(runs.values()))
    return [name for name, (more, time) in runs.items() if more * time < 0.95 * devices * minutes]


def root_mean_square(errors, systems):
    place = np.unique(systems, return_inverse=True)[1]
    squares = np.bincount(place, errors**2) / np.bincount(place)
    return np.sqrt(squares.mean())


def median_of_medians(errors, systems):
    by_name = {}
    for error, name in zip(errors, systems):
        by_name.setdefault(name, []).append(abs(error))
    return statistics.median(statistics.median(sizes) for sizes in by_name.values())


def in_pandas(errors, systems):
    return pd.Series(errors).abs().groupby(systems).mean().mean()


def of_opposite_sign(errors, systems):
    return np.mean([abs(np.mean(errors[systems == name])) for name in set(systems)])


def weighted_by_lines(errors, systems):
    return sum(np.median(abs(errors[systems == name])) for name in systems) / len(systems)


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
        "all of the communication after the backward pass":
            ({"max(backward + last, communication)": "max(backward, last) + communication"}, "that is the sum"),
        "the inverse throughput": ({"images / throughput": "throughput / images"}, "should be"),
    },
    "calibrate": {
        "a guess": (lambda predict, published, low, high: (low + high) / 3, "`predict` is never called"),
        "beyond the interval": (lambda predict, published, low, high: high + 1, "outside of the interval"),
        "the wrong half": ({"predict(middle) > published": "predict(middle) < published"}, "Keep the half"),
        "too few halvings": ({"range(60)": "range(4)"}, "halve more often"),
        "the middle of the start": ({"range(60)": "range(1)"}, "halve more often"),
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
        "beside the backward pass only": ({"throughput * sent": "1.5 * throughput * sent"}, "the number of images"),
    },
    "suspects": {
        "the other way round": ({"more * time < devices * minutes": "more * time > devices * minutes"},
                                "the other way round"),
        "minutes alone": ({"more * time < devices * minutes": "time < minutes"}, "should take fewer minutes"),
        "half of the devices take at least twice as long":
            (lambda runs: [name for name, (more, time) in runs.items()
                           if time * more / next(iter(runs.values()))[0] > next(iter(runs.values()))[1]],
             "a loss is no contradiction"),
        "whatever is not perfect": ({"more * time < devices * minutes": "more * time != devices * minutes"},
                                    "a loss is no contradiction"),
        "perfect scaling": ({"more * time < devices * minutes": "more * time <= devices * minutes"},
                            "perfect scaling is possible"),
        "none": (lambda runs: [], "is that possible for the same work"),
        "against the run before":
            (lambda runs: [name for (name, (more, time)), (devices, minutes) in
                           zip(list(runs.items())[1:], list(runs.values())) if more * time < devices * minutes],
             "is that possible for the same work"),
        "devices for names": (lambda runs: [more for more, time in runs.values()], "is no name of a run"),
        "nothing returned": (lambda runs: None, "is a `return` missing"),
    },
    "typical_error": {
        "by line": (lambda errors, systems: np.median(abs(errors)), "count each system once"),
        "the mean of the lines": (lambda errors, systems: np.mean(abs(errors)), "count each system once"),
        "by line, with the systems' medians": (weighted_by_lines, "count each system once"),
        "signs cancel": (lambda errors, systems: np.mean(errors), "errors of opposite sign cancel"),
        "signs cancel within a system": (of_opposite_sign, "errors of opposite sign cancel"),
        "a square": ({"np.median(sizes[systems == system])": "np.mean(sizes[systems == system] ** 2)"},
                     "that is a square"),
        "the worst": ({"np.mean": "np.max"}, "the worst or the best"),
        "a number": (lambda errors, systems: 4.0, "should be twice as large"),
    },
}  # fmt: skip

RIGHT = {
    "step_seconds": {"the later end": queue_and_wait},
    "calibrate": {"by a secant": secant},
    "ridge_images": {"by the seconds of a byte": by_seconds_of_a_byte},
    "suspects": {"by the speed-up, as a set": by_speed_up, "beyond the rounding of minutes": beyond_rounding},
    "typical_error": {
        "root mean square": root_mean_square, "median of medians": median_of_medians, "pandas": in_pandas,
    },
}  # fmt: skip
