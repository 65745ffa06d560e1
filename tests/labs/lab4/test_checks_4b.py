"""Notebook 4b: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.cost import networks, overlap
from labs.lab4_communication.lessons.checks_4b import check, points

NOTEBOOK = "4b_fusion_and_overlap"


@pytest.mark.parametrize("exercise", ["fuse", "send", "slowest"])
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 5) == 5.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


@pytest.mark.parametrize("cycle", [1e-3, 0.05])
@pytest.mark.parametrize("threshold", [0, 1e6, 64e6])
def test_the_solutions_simulate_what_the_library_does(answer, cycle, threshold):
    network = networks.resnet50()
    nbytes = np.array([4.0 * tensor.elements for tensor in network])
    ready = overlap.ready_times([tensor.flops for tensor in network], 0.25)

    def all_reduce(nbytes):
        return 1e-3 + 1e-10 * nbytes

    messages = answer(NOTEBOOK, "fuse")(ready, nbytes, threshold, cycle)
    times = answer(NOTEBOOK, "send")(messages, nbytes, all_reduce)
    expected = overlap.step(ready, nbytes, all_reduce, threshold, cycle).messages
    assert [tuple(tensors) for _, tensors in messages] == [message.tensors for message in expected]
    assert np.array(times) == pytest.approx(np.array([(message.start, message.end) for message in expected]))


FORWARD = ('np.argsort(ready, kind="stable")', "range(len(ready))")
WRONG = {
    "forward order": ("fuse", [FORWARD], "forward order"),
    "the threshold counts numbers": (
        "fuse",
        [("held + nbytes[tensor] > threshold", "held + nbytes[tensor] > 4 * threshold")],
        "bytes, not numbers",
    ),
    "sent before it is ready": ("fuse", [("np.ceil", "np.floor")], "before it is ready"),
    "the cycle forgotten": (
        "fuse",
        [("np.ceil(ready[tensor] / cycle) * cycle", "ready[tensor]")],
        "messages leave when a cycle begins",
    ),
    "the next cycle but one": (
        "fuse",
        [("np.ceil(ready[tensor] / cycle)", "(ready[tensor] // cycle + 1)")],
        "takes it",
    ),
    "waits until a message is full": ("fuse", [("messages[-1][0] != moment", "False")], "before it is ready"),
    "full only once it is too full": (
        "fuse",
        [("held + nbytes[tensor] > threshold", "held > threshold")],
        "still fits",
    ),
    "no fusion": ("fuse", [("held + nbytes[tensor] > threshold", "True")], "each travels alone"),
    "the threshold forgotten": ("fuse", [("held + nbytes[tensor] > threshold", "False")], "must be closed"),
    "just full is too full": (
        "fuse",
        [("held + nbytes[tensor] > threshold", "held + nbytes[tensor] >= threshold")],
        "as many bytes as the threshold are allowed",
    ),
    "nothing returned": ("fuse", [("return messages", "return None")], "returns nothing"),
    "two messages at once": ("send", [("max(moment, free)", "moment")], "still on its way"),
    "gradients not waited for": ("send", [("max(moment, free)", "free")], "before its moment"),
    "a latency for each tensor": (
        "send",
        [("all_reduce(sum(nbytes[tensor] for tensor in tensors))", "sum(all_reduce(nbytes[t]) for t in tensors)")],
        "each tensor pays its own latency",
    ),
    "a duration for the end": ("send", [("(start, free)", "(start, free - start)")], "should be its end"),
    "the mean for the maximum": ("slowest", [("cumulative**ranks", "cumulative")], "the mean of one rank"),
    "the quickest rank": ("slowest", [("1 - cumulative**ranks", "(1 - cumulative) ** ranks")], "quickest rank"),
    "N times the mean": ("slowest", [("1 - cumulative**ranks", "ranks * (1 - cumulative)")], "at the same time"),
    "the width forgotten": ("slowest", [("np.diff(times)", "1")], "width"),
    "the left end of each step": (
        "slowest",
        [("np.diff(times) * (running[1:] + running[:-1]) / 2", "np.diff(times) * running[:-1]")],
        "at its left end; take the mean",
    ),
    "the right end of each step": (
        "slowest",
        [("np.diff(times) * (running[1:] + running[:-1]) / 2", "np.diff(times) * running[1:]")],
        "at its right end; take the mean",
    ),
    "the sum of both ends": (
        "slowest",
        [
            (
                "np.diff(times) * (running[1:] + running[:-1]) / 2",
                "np.diff(times) * (running[1:] + running[:-1])",
            )
        ],
        "twice",
    ),
    "the wrong probability": ("slowest", [("1 - cumulative**ranks", "cumulative**ranks")], "still running at t"),
    "later and free added": ("send", [("max(moment, free)", "moment + free")], "the later of the two"),
    "one width for all": ("slowest", [("np.diff(times)", "(times[1] - times[0])")], "its own width"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(answer, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 5) < 5
    assert word in capsys.readouterr().out


def test_another_rule_that_is_right_on_lines_will_do():
    def slowest(cumulative, times, ranks):
        middles = (times[1:] + times[:-1]) / 2
        return np.diff(times) @ np.interp(middles, times, 1 - cumulative**ranks)

    assert points(slowest, 5) == 5.0


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (3, "pairs (moment, list of indices)"),
        ([(4.0, [0])], "tensor 1 is in no message"),
        ([(4.0, [*range(8), 7])], "each of 0 … 7 is to be in one"),
        ([(4.0, list(range(8))), (5.0, [])], "holds no tensor"),
    ],
)
def test_messages_with_too_little_or_too_much_in_them_are_named(messages, said):
    def fuse(ready, nbytes, threshold, cycle):
        return messages

    assert said in check(fuse).verdicts[0].reason


def test_gradients_that_are_ready_together_keep_their_order(answer):
    fuse = answer(NOTEBOOK, "fuse", ('np.argsort(ready, kind="stable")', "np.lexsort((-np.arange(len(ready)), ready))"))
    assert "at the same time keep the order" in check(fuse).verdicts[1].reason


def test_arrays_that_are_sorted_in_place_are_noticed(answer):
    fuse = answer(NOTEBOOK, "fuse", ("messages, held = [], 0", "messages, held = [], 0\nnbytes.sort()"))
    assert "changed in place" in check(fuse).verdicts[0].reason


def test_times_that_are_no_pairs_are_named():
    def send(messages, nbytes, all_reduce):
        return [1.0, 2.0, 3.0]

    assert "a pair (start, end) for each message" in check(send).verdicts[0].reason
