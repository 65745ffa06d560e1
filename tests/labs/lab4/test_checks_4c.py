"""Notebook 4c: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from labs.lab4_communication.lessons.checks_4c import check, points

NOTEBOOK = "4c_predict_the_supercomputer"


@pytest.mark.parametrize("exercise", ["step_seconds", "calibrate", "ridge_images", "training_seconds"])
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 3) == 3.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


def test_a_number_of_numpys_is_a_number():
    def training_seconds(examples, epochs, ranks, images, step):
        return np.ceil(np.float64(examples) * epochs / (ranks * images)) * step

    assert points(training_seconds, 3) == 3.0


WRONG = {
    "the last message only behind a short queue": (
        "step_seconds",
        [("max(backward + last, communication)", "(backward + last if communication <= backward else communication)")],
        "the last message is missing",
    ),
    "overlap counted as a sum": (
        "step_seconds",
        [("max(backward + last, communication)", "backward + communication")],
        "that is the sum",
    ),
    "hidden behind the whole step": (
        "step_seconds",
        [("forward + max(backward + last, communication)", "max(forward + backward + last, communication)")],
        "while the forward pass runs there is no gradient",
    ),
    "the last message forgotten": ("step_seconds", [("backward + last", "backward")], "it starts when the backward"),
    "the last message twice": (
        "step_seconds",
        [("max(backward + last, communication)", "max(backward, communication) + last")],
        "part of `communication` already",
    ),
    "forward and backward exchanged": (
        "step_seconds",
        [
            (
                "return forward + max(backward + last, communication)",
                "return backward + max(forward + last, communication)",
            )
        ],
        "the other way round",
    ),
    "two halves": (
        "step_seconds",
        [("images / throughput / 3", "images / throughput / 2"), ("2 * forward", "forward")],
        "a third of the computation, not half",
    ),
    "the inverse throughput": ("step_seconds", [("images / throughput", "throughput / images")], "should be"),
    "the wrong half": ("calibrate", [("predict(middle) > published", "predict(middle) < published")], "Keep the half"),
    "too few halvings": ("calibrate", [("range(60)", "range(4)")], "halve more often"),
    "a straight line": (
        "calibrate",
        [("range(60)", "()"), ("return middle", "return low + (high - low) * (1 - published)")],
        "only where the prediction is a straight line",
    ),
    "an interval that never shrinks": (
        "calibrate",
        [("range(60)", "iter(int, 1)"), ("low = middle", "pass"), ("high = middle", "pass")],
        "does the interval shrink",
    ),
    "bits taken for bytes": (
        "ridge_images",
        [("gigabits * 1e9 / 8", "gigabits * 1e9")],
        "in bits, the gradient in bytes",
    ),
    "multiplied by 8": ("ridge_images", [("gigabits * 1e9 / 8", "gigabits * 1e9 * 8")], "factor of 64"),
    "2(N−1)/N forgotten": (
        "ridge_images",
        [("2 * (ranks - 1) / ranks * numbers", "numbers")],
        "not just all of it once",
    ),
    "once round the ring": ("ridge_images", [("2 * (ranks - 1)", "(ranks - 1)")], "goes round twice"),
    "always 4 bytes": ("ridge_images", [("itemsize", "4")], "you count 4 bytes"),
    "seconds": ("ridge_images", [("throughput * sent", "sent")], "seconds on the wire"),
    "the batch of one GPU": ("training_seconds", [("(ranks * images)", "images")], "global batch is ranks · images"),
    "each epoch rounded up": (
        "training_seconds",
        [("math.ceil(examples * epochs / (ranks * images))", "epochs * math.ceil(examples / (ranks * images))")],
        "round up once",
    ),
    "rounded down": (
        "training_seconds",
        [("math.ceil(examples * epochs / (ranks * images))", "examples * epochs // (ranks * images)")],
        "round up, not down",
    ),
    "not rounded": ("training_seconds", [("math.ceil", "float")], "no part of a step"),
    "the steps": ("training_seconds", [("steps * step", "steps")], "those are the steps"),
    "nothing returned": ("training_seconds", [("return steps * step", "steps * step")], "is a `return` missing"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(answer, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 3) < 3
    assert word in capsys.readouterr().out


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda n, epochs, gpus, images, step: n * epochs / images * step, "global batch is ranks · images"),
        (lambda n, epochs, gpus, images, step: -(-n * epochs // gpus) * step, "on each GPU, not one"),
        (lambda n, epochs, gpus, images, step: -(-n * epochs // (gpus * images)) * step / 60, "those are minutes"),
        (lambda n, epochs, gpus, images, step: -(-n // (gpus * images)) * step, "that is one epoch"),
        (lambda n, epochs, gpus, images, step: n // (gpus * images) * epochs * step, "drops the rest of every epoch"),
        (lambda n, epochs, gpus, images, step: 1.0, "how many steps of ranks · images"),
    ],
)
def test_mistakes_in_the_seconds_of_a_run_are_named(wrong, said):
    def training_seconds(*case):
        return wrong(*case)

    reasons = [verdict.reason for verdict in check(training_seconds).verdicts]
    assert any(said in reason for reason in reasons), reasons


def test_a_guess_without_a_prediction_is_named():
    def calibrate(predict, published, low, high):
        return (low + high) / 3

    def outside(predict, published, low, high):
        return high + 1

    outside.__name__ = "calibrate"
    assert "`predict` is never called" in check(calibrate).verdicts[0].reason
    assert "outside of the interval" in check(outside).verdicts[0].reason
