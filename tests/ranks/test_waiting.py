"""Who waits for whom, as one sentence."""

from __future__ import annotations

import pytest

from course_lib.ranks.messages.waiting import SAME_CALLS, SAME_STEPS, Waiting, collective

STEP = {"call": "a training step of fit", "script": "train.py", "line": 17}
METRIC = {"call": "MetricAverageCallback", "script": "train.py", "line": 17}
SLEEP = {"call": "", "script": "train.py", "line": 30}
WARNING = (
    "[2026-11-26 20:47:27.308261: W stall_inspector.cc:107] One or more tensors were submitted to be reduced, gathered",
    "Missing ranks:",
    "0: [DistributedSGD_Allreduce/cond/HorovodAllreduce_grads_0_0, loss]",
    "1!: [HorovodBroadcast_dense_kernel_0]",
)
SHUT_DOWN = (
    "Detected at node DistributedSGD_Allreduce/cond_1/HorovodAllreduce_grads_1_0 defined at",
    "Horovod has been shut down. This was caused by an exception on one of the ranks or an attempt to allreduce",
)


def waiting(ranks: int, places: dict, ended: dict | None = None) -> Waiting:
    known = Waiting(ranks)
    for rank, place in places.items():
        known.note_place(rank, place)
    for rank, code in (ended or {}).items():
        known.note_end(rank, code)
    return known


@pytest.mark.parametrize(
    ("ranks", "places", "ended", "sentence"),
    [
        (
            2,
            {0: METRIC, 1: STEP},
            {},
            "Rank 0 waits in MetricAverageCallback (train.py, line 17), rank 1 in a training step of fit "
            f"(train.py, line 17): {SAME_CALLS}",
        ),
        (
            4,
            {0: SLEEP, 1: STEP, 2: STEP, 3: STEP},
            {},
            "Rank 0 waits at train.py, line 30, ranks 1, 2 and 3 in a training step of fit (train.py, line 17): "
            f"{SAME_CALLS}",
        ),
        (
            2,
            {1: {"call": "hvd.join", "script": "", "line": 0}},
            {0: 0},
            f"Rank 0 has ended, rank 1 waits in hvd.join: {SAME_CALLS}",
        ),
        (2, {1: STEP}, {}, ""),  # rank 0 goes on
        (2, {0: STEP, 1: STEP}, {}, ""),
        (2, {0: METRIC, 1: SLEEP}, {1: 1}, f"Rank 0 waits in MetricAverageCallback (train.py, line 17), rank 1 at "
         f"train.py, line 30: {SAME_CALLS}"),  # an exit code other than 0 is what the end of the others has made
        (2, {0: SLEEP, 1: {**SLEEP, "line": 31}}, {}, ""),  # in no collective
        (2, {0: SLEEP}, {1: 0}, ""),
        (2, {0: {"call": ["odd"], "line": {}}, 1: {}}, {}, ""),
    ],
)  # fmt: skip
def test_a_stall_has_its_places(ranks, places, ended, sentence):
    assert waiting(ranks, places, ended).stall() == sentence


def test_a_rank_that_goes_on_stalls_nobody():
    known = waiting(2, {0: METRIC, 1: STEP})
    known.note_place(1, {})
    assert known.stall() == ""


def test_horovod_s_own_warning_is_understood():
    known = Waiting(2)
    assert all(map(known.note_line, WARNING))
    assert known.stall() == (
        "Rank 0 has not called the all-reduce of gradients, rank 1 has not called the broadcast of "
        f"dense_kernel_0, others wait for it: {SAME_CALLS}"
    )
    assert not known.note_line("loss: 0.1") and not known.note_line("0: [no longer a list]")
    known.goes_on()
    assert known.stall() == ""


def test_a_line_that_looks_like_one_of_the_warning_is_none_without_it():
    assert not Waiting(2).note_line("1: [loss]")


@pytest.mark.parametrize(
    ("ended", "sentence"),
    [
        ({0: 0}, f"Rank 0 had ended while rank 1 still waited in the all-reduce of gradients: {SAME_STEPS}"),
        (
            {0: 0, 2: 0},
            f"Ranks 0 and 2 had ended while rank 1 still waited in the all-reduce of gradients: {SAME_STEPS}",
        ),
        ({}, f"Rank 1 waited in the all-reduce of gradients when another rank had left Horovod: {SAME_STEPS}"),
        ({0: 1}, f"Rank 1 waited in the all-reduce of gradients when another rank had left Horovod: {SAME_STEPS}"),
    ],
)
def test_a_rank_fails_because_another_had_ended(ended, sentence):
    assert waiting(3, {}, ended).failure(1, SHUT_DOWN) == sentence


def test_a_rank_that_fails_by_itself_waited_for_nobody():
    assert waiting(2, {}, {0: 0}).failure(1, ["ValueError: no such luck"]) == ""


@pytest.mark.parametrize(
    ("tensor", "words"),
    [
        ("DistributedAdam_Allreduce/cond_14/HorovodAllreduce_grads_14_0", "the all-reduce of gradients"),
        ("HorovodAllreduce", "an all-reduce"),
        ("HorovodBroadcast", "a broadcast"),
        ("HorovodAllgather_words", "the all-gather of words"),
        ("mine/" + "x" * 100, "the collective " + "x" * 60),
    ],
)
def test_collectives_have_words(tensor, words):
    assert collective(tensor) == words
