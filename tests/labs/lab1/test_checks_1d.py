from __future__ import annotations

import pytest

from labs.lab1_gradient_descent.lessons import checks_1d

NOTEBOOK = "1d_data_and_model_parallelism"
MEMORY = """return {"weights": learned, "gradients": learned, "state": state_per_weight * learned,
                 "activations": 4 * activations * batch}"""
NAMES = ("place", "data_parallel", "backward", "memory", "crossover", "bytes_model_parallel")


@pytest.mark.parametrize("name", NAMES)
def test_the_solution_gets_full_points(answer, name, capsys):
    assert checks_1d.points(answer(NOTEBOOK, name), 2) == 2.0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("name", "edits", "points", "reason"),
    [
        # The loss on the host; the transport to the device forgotten; the first step counted as a transport.
        ("place", [("[1, 3, 4, 15]", "[1, 3, 4, 9, 15]"), ("list(range(6, 15))", "[6, 7, 8, *range(10, 15)]")], 1.0,
         "Step 9 does not happen on the host: the output is already there"),
        ("place", [("[2, 5]", "[2]")], 1.5, "Step 5 stands nowhere"),
        ("place", [("[1, 3, 4, 15]", "[3, 4, 15]"), ("[2, 5]", "[1, 2, 5]")], 1.5, "Step 1 does not happen"),
        ("place", [("[2, 5]", "[2, 5, 14]")], 1.0, "Step 14 does not happen on the wire"),
        ("place", [("[2, 5]", "[2, 16]")], 0.0, "step numbers from 1 to 15"),
        ("place", [('"wire"', '"cable"')], 0.0, "keys"),
        ("place", [("[2, 5]", "[2, 5, 5, 15]"), ("[1, 3, 4, 15]", "[15, 1, 3, 4]")], 1.5, "more than one place"),
        # Every device reads all images; the update differs; averaged too early or too late.
        ("data_parallel", [("range(1, 13)", "range(6, 13)")], 1.0, "images of its own"),
        ("data_parallel", [("range(1, 13)", "range(1, 15)")], 1.0, "drift apart"),
        ("data_parallel", [("range(1, 13)", "range(1, 10)")], 1.0, "own gradients"),
        ("data_parallel", [("differs, 12", "differs, 14")], 1.0, "the optimizer must see the average"),
        ("data_parallel", [("differs, 12", "differs, 10")], 1.0, "earlier layers are still missing"),
        ("data_parallel", [("differs, 12", "differs, 9")], 1.0, "no gradient yet"),
        ("data_parallel", [("differs, 12", "differs")], 0.0, "two things"),
        ("data_parallel", [("differs, 12", "differs, {12}")], 0.0, "number of one step"),
        # Optimizer state forgotten, fixed, or kept for activations; batch forgotten, or counted for gradients.
        ("memory", [("state_per_weight * learned", "0")], 1.3, "was forgotten"),
        ("memory", [("state_per_weight * learned", "learned")], 1.3, "says how many numbers"),
        ("memory", [("state_per_weight * learned", "4 * state_per_weight * activations * batch")], 1.3,
         "not to the activations"),
        ("memory", [("4 * activations * batch", "4 * activations")], 1.2, "multiply by the batch"),
        ("memory", [("4 * activations * batch", "activations * batch")], 1.2, "each takes 4 bytes"),
        ("memory", [(MEMORY, MEMORY.replace('"gradients": learned', '"gradients": learned * batch'))], 1.5,
         "summed over the batch"),
        ("memory", [("learned = 4 * weights", "learned = 32 * weights")], 0.8, "bits"),
        ("memory", [("learned = 4 * weights", "learned = weights")], 0.8, "each takes 4 bytes"),
        ("memory", [("state_per_weight * learned", "None")], 1.3, "should be 0; it is None"),
        # The ReLU forgotten, inverted, taken from the gradient; order, shape, sign, mean.
        ("backward", [("(slope @ w.T) * (h > 0)", "slope @ w.T")], 0.6, "the ReLU is left out"),
        ("backward", [("h > 0", "h <= 0")], 0.6, "wrong way round"),
        ("backward", [("(slope @ w.T) * (h > 0)", "(slope @ w.T) * h")], 0.6, "its slope is 0 or 1"),
        ("backward", [("(slope @ w.T) * (h > 0)", "np.maximum(slope @ w.T, 0)")], 0.6, "not by the sign of the"),
        ("backward", [("gradients = []", "gradients = []\nslope = slope * (inputs[-1] @ weights[-1] > 0)")], 0.0,
         "no ReLU after the last"),
        ("backward", [("gradients[::-1]", "gradients")], 0.0, "turn it round"),
        ("backward", [("h.T @ slope", "slope.T @ h")], 0.0, "transposed"),
        ("backward", [("h.T @ slope", "-h.T @ slope")], 0.0, "nobody steps yet"),
        ("backward", [("h.T @ slope", "h.T @ slope / len(h)")], 0.0, "a mean over the images"),
        ("backward", [("gradients[::-1]", "gradients[:1]")], 0.0, "a list of 3 arrays"),
        ("backward", [("h.T @ slope", "2 * h.T @ slope")], 0.0, "changes the loss by"),
        ("crossover", [("weights * (devices - 1) / sum(crossing)", "sum(crossing) / weights / (devices - 1)")], 0.0,
         "that is the inverse"),
        ("crossover", [("devices - 1", "devices")], 0.0, "that is twice as much: the 2 of both ways cancels, and"),
        ("crossover", [("(devices - 1)", "(devices - 1) / devices")], 0.0, "gradients of all devices count"),
        ("crossover", [("(devices - 1)", "2 * (devices - 1) / devices")], 0.8, "what one device sends"),
        ("crossover", [("weights * (devices - 1) / sum(crossing)", "weights * (devices - 1) // sum(crossing)")], 0.8,
         "should not be rounded"),
        ("crossover", [("weights * (devices - 1)", "weights")], 0.8, "leaves out the number of devices"),
        ("crossover", [("weights", "4 * weights")], 0.0, "that cancels"),
        ("crossover", [("sum(crossing)", "crossing[0]")], 0.8, "not one of them"),
        # Forward only, one image only, one cut only, numbers for bytes.
        ("bytes_model_parallel", [("2 * one_way", "one_way")], 0.0, "forward only"),
        ("bytes_model_parallel", [("4 * batch", "4")], 0.0, "multiply by the batch"),
        ("bytes_model_parallel", [("sum(crossing)", "crossing[0]")], 1.0, "not the first alone"),
        ("bytes_model_parallel", [("sum(crossing)", "max(crossing)")], 1.0, "not the largest alone"),
        ("bytes_model_parallel", [("sum(crossing)", "len(crossing)")], 0.0, "counts the cuts"),
        ("bytes_model_parallel", [("4 * batch", "batch")], 0.0, "each takes 4 bytes"),
        ("bytes_model_parallel", [("sum(crossing)", "crossing.pop()")], 0.0, "changed the list"),
    ],
)  # fmt: skip
def test_a_mistake_costs_points_and_is_named(answer, capsys, name, edits, points, reason):
    assert checks_1d.points(answer(NOTEBOOK, name, *edits), 2) == points
    assert reason in capsys.readouterr().out


def test_a_step_too_many_is_told_where_it_stands(answer):
    edits = ("[1, 3, 4, 15]", "[1, 3, 4, 13, 15]"), ("list(range(6, 15))", "[*range(6, 13), 14]")
    report = str(checks_1d.check(answer(NOTEBOOK, "place", *edits)))
    assert "The host's steps: These are right, but step 13 does not belong to them" in report


def test_the_steps_that_the_pictures_mark():
    places = {"host": [1, 3, 4, 9, 15], "wire": [2, 5], "device": [5, 6, 7, 8, 10, 11, 12, 13, 14]}
    assert checks_1d.misplaced(places) == {5, 9}
    assert checks_1d.misjudged(range(1, 13), 12) == set()
    assert checks_1d.misjudged([*range(2, 13), 13, 15], 9) == {0, 1, 13}
