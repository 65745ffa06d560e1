"""The criteria on made-up records: a mistake costs its points; silence, a crash or mere chance accuse nobody."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course_grader.sandbox.resource_monitor import ResourceSample
from course_grader.script import contract, criteria, watermarks, weights_file
from course_grader.script.criteria import HOST, SCRIPT, Measured
from course_grader.script.evaluator import Weights
from course_grader.script.host_checks import HostRecord
from course_lib.notebook.judging import CheckFailed, judge
from course_lib.ranks import run_record
from course_lib.ranks.launch import Result
from course_lib.ranks.run_record import RankRecord, RunRecord

CONTRACT = contract.read()
PROFILE = CONTRACT.profile("short")
FULL = dict(CONTRACT.points)
IMAGES, BATCH, EPOCHS, VALUES = PROFILE.images, 16, 2, 10_000
WHERE = "/box/weights.h5"
GOOD = Weights(0.9, 0.8, values=VALUES)
DONE = Result(0, 30.0)
CRASH = Result(1, 20.0, 1, "Rank 1 failed with exit code 1.", ("Traceback …", "ValueError: boom"))
OTHERS = ("averaged", "train_accuracy", "test_accuracy", "time")  # what ranks lose that did not train together
APART = {name: FULL[name] for name in OTHERS}


def brightness(seed: int = 0) -> np.ndarray:
    """Of all images, float32 [IMAGES], as one rank after the other reads them."""
    return np.random.default_rng(seed).normal(120, 30, IMAGES).astype(np.float32)


def batches(examples: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(examples[start : start + BATCH] for start in range(0, len(examples), BATCH))


def numbers(name: str) -> list[float]:
    """A digest of its own for each name."""
    return [1.0, *np.random.default_rng(list(name.encode())).normal(size=4)]


def digests(own: str = "", since: int = 99) -> list[dict]:
    """Of a rank's weights, which are its `own` from an update on."""
    return [{"updates": n, "digest": numbers(own if n >= since else f"after {n}")} for n in (1, 2, 4, 8, 16, 32, 64)]


def rank(number: int, size: int = 2, order: np.ndarray | None = None, epochs: int = EPOCHS, **records) -> RankRecord:
    """One of `size` ranks, which reads its part of `order`; `records` take the place of its own."""
    order = brightness() if order is None else order
    mine = order[number * IMAGES // size : (number + 1) * IMAGES // size]
    steps = len(mine) // BATCH  # of an epoch
    updates = steps * epochs
    found = {
        "start": [{"weights": WHERE}],
        "init": [{"rank": number, "size": size, "local_rank": number, "local_size": size}],
        "gpus": [{"visible": [f"/physical_device:GPU:{number}"]}],
        "fit": [{"epochs": epochs, "steps": steps}],
        "collective": [
            {"operation": "broadcast", "graph": True, "values": VALUES, "floating": VALUES},
            {"operation": "allreduce", "graph": True, "values": VALUES, "floating": VALUES},
        ],
        "first-step": [{"digest": "first"}],
        "digest": digests(),
        "epoch": [{"epoch": e, "first": e * steps, "steps": steps, "logs": {}} for e in range(epochs)],
        "progress": [{"steps": updates, "images": updates * BATCH, "updates": updates, "values": updates * VALUES}],
        "save": [{"path": WHERE}] if number == 0 else [],
        "end": [{}],
    }
    weights = (np.ones(VALUES, np.float32),)
    return RankRecord(number, {**found, **records}, (), batches(np.tile(mine, epochs)), weights, (True,))


def run(*ranks: RankRecord, result: Result = DONE) -> RunRecord:
    return RunRecord(result, ranks or (rank(0), rank(1)))


def both(result: Result = DONE, **records) -> RunRecord:
    """Two ranks that log the same of these kinds."""
    return run(rank(0, **records), rank(1, **records), result=result)


def in_a_loop(record: RunRecord) -> RunRecord:
    """The same ranks, had they trained in a loop of their own."""
    ranks = (replace(one, records={**one.records, "fit": [], "epoch": [], "first-step": []}) for one in record.ranks)
    return replace(record, ranks=tuple(ranks))


UPDATES = rank(0).number("progress", "updates")
GRADIENTS = 2 * UPDATES * VALUES * 4  # bytes that two ranks send for them


def seen(traffic: float = GRADIENTS, cpu: tuple[float, ...] = (20.0, 19.0), **more) -> HostRecord:
    """A host that sees the ranks use so many CPU seconds and exchange so many bytes, evenly."""
    samples = [ResourceSample(n, int(traffic * n / 20), tuple(one * n / 20 for one in cpu)) for n in range(21)]
    return HostRecord(samples, counts_bytes=True, **more)


ALONE = RunRecord(Result(0, 9.0), (rank(0, 1),))
HONEST = Measured(ALONE, True, run(), seen(), GOOD, 60.0, 0.1, IMAGES, PROFILE.train_accuracy, PROFILE.test_accuracy)


def verdicts(together: RunRecord | None = None, **changes) -> dict:
    measured = replace(HONEST, **changes, **({} if together is None else {"together": together}))
    return {verdict.id: verdict for verdict in judge(measured, criteria.with_points(FULL))}


def lost(together: RunRecord | None = None, **changes) -> dict[str, float]:
    """Points lost, by criterion."""
    found = verdicts(together, **changes)
    return {name: FULL[name] - verdict.points for name, verdict in found.items() if not verdict.passed}


# What is right


ORDERS = [np.random.default_rng(seed).permutation(brightness()) for seed in range(4)]  # each rank shuffles for itself
AUGMENTED = [brightness(10 + number) for number in range(2)]
PARTLY = {
    "progress": [{"steps": UPDATES, "images": UPDATES * BATCH, "updates": 2 * UPDATES, "values": UPDATES * VALUES}]
}
ADDED_UP = {"progress": [{"steps": UPDATES, "images": UPDATES * BATCH, "updates": 40, "values": 40 * VALUES}]}
EAGER = [{"operation": "broadcast", "graph": False, "values": VALUES, "floating": VALUES}]
EAGER += [{"operation": "allreduce", "graph": False, "values": VALUES, "floating": VALUES}] * UPDATES
SOME = [{**one, "floating": VALUES // 2} for one in rank(0).all("collective")]
FROZEN = {**rank(0).last("progress"), "values": UPDATES * VALUES // 2}
SILENT = {"progress": [], "digest": [], "save": [], "fit": [], "epoch": [], "first-step": [], "collective": []}
JOINING = run(
    *(
        replace(one, records={**one.records, "join": [{}]}, examples=one.examples[: UPDATES - 20 * one.rank])
        for one in in_a_loop(run()).ranks
    )
)
RIGHT = {
    "fit": run(),
    "a loop": in_a_loop(run()),
    "four ranks": run(*(rank(number, 4) for number in range(4))),
    "one rank": run(rank(0, 1)),
    "option 2": run(*(rank(number, 4, ORDERS[number]) for number in range(4))),
    "option 2 in a loop": in_a_loop(run(*(rank(number, 4, ORDERS[number]) for number in range(4)))),
    "augmented": run(rank(0, order=AUGMENTED[0]), rank(1, order=AUGMENTED[1])),
    "parts that go from rank to rank": run(
        *(
            replace(rank(n), examples=rank(n).examples[: UPDATES // 2] + rank(1 - n).examples[UPDATES // 2 :])
            for n in (0, 1)
        )
    ),
    "accumulation": both(**ADDED_UP),
    "two optimizers by halves": both(**PARTLY),
    "frozen layers": both(collective=SOME, progress=[FROZEN]),
    "eager collectives": both(collective=EAGER),
    "no optimizer": both(
        progress=[{"steps": UPDATES, "images": UPDATES * BATCH, "updates": 0, "values": 0}], digest=[]
    ),
    "join": JOINING,
}


@pytest.mark.parametrize("kind", RIGHT)
def test_an_honest_record_loses_nothing(kind):
    host = seen(cpu=(20.0,) * RIGHT[kind].size, traffic=GRADIENTS * 3)
    found = verdicts(RIGHT[kind], host=host)
    assert {one.id: one.reason for one in found.values() if not one.passed or one.hint} == {}
    assert {one.rests_on for one in found.values()} <= {HOST, SCRIPT}


def test_a_silent_log_costs_nothing_where_the_host_sees_nothing_wrong():
    silent = run(*(replace(rank(n, **SILENT), examples=(), weights=(), trainable=()) for n in (0, 1)))
    assert lost(silent, margins=((0.9, 0.9),)) == {}
    assert lost(silent, host=HostRecord()) == {}
    found = lost(silent, host=seen(cpu=(20.0, 1.0)))
    assert found == APART
    assert lost(silent, host=seen(traffic=100)).keys() == {"ranks", *OTHERS}


def test_what_a_verdict_rests_on():
    by_host = {"serial", "ranks", "averaged", "data", "train_accuracy", "test_accuracy", "time"}
    found = verdicts(margins=((0.9, 0.9),))
    assert {name for name, verdict in found.items() if verdict.rests_on == HOST} == by_host
    found = verdicts(host=HostRecord(devices={0: frozenset("a"), 1: frozenset("b")}))
    assert {name for name, verdict in found.items() if verdict.rests_on == HOST} == by_host - {
        "ranks", "averaged", "data"
    } | {"device"}  # fmt: skip


# What is wrong by the log

HALF = np.tile(brightness()[: IMAGES // 2], 2)
SHUFFLED = np.concatenate([HALF[: IMAGES // 2], np.random.default_rng(2).permutation(HALF[IMAGES // 2 :])])
DARKER = HALF + np.random.default_rng(1).normal(0, 12, IMAGES).astype(np.float32)
QUARTER = np.tile(brightness()[: IMAGES // 4], 4)
BROADCAST, REDUCED = ([one] for one in rank(0).all("collective"))
MISTAKES = {
    "no GPU chosen": (both(gpus=[]), {"device": 5}, "device", "Every rank sees all GPUs"),
    "the first GPU for all": (
        both(gpus=[{"visible": ["GPU:0"]}]), {"device": 5}, "device", "Rank 1 keeps GPU 0; it should keep only GPU 1",
    ),
    "no averaging": (
        run(*(rank(n, collective=BROADCAST, digest=digests("ab"[n], 2)) for n in (0, 1))),
        APART, "averaged", "No gradients were all-reduced",
    ),
    "a part of the gradients": (
        both(collective=SOME), {"averaged": 10}, "averaged", "Only 5,000 of 10,000 gradient values were averaged",
    ),
    "weights changed on one rank later": (
        run(rank(0), rank(1, digest=digests("b", 16))), {"averaged": 10}, "averaged", "but after update 16 the ranks",
    ),
    "no broadcast": (
        run(*(rank(n, collective=REDUCED, digest=digests("ab"[n], 1), **{"first-step": []})
              for n in (0, 1))),
        {"broadcast": 10}, "broadcast", "Nothing was broadcast",
    ),
    "a broadcast too late": (
        run(*(rank(n, digest=digests("ab"[n], 1), **{"first-step": [{"digest": "ab"[n]}]}) for n in (0, 1))),
        {"broadcast": 10}, "broadcast", "There was a broadcast, but",
    ),
    "the same images": (
        run(rank(0), rank(1, order=HALF)), {"data": 15}, "data", "(100% of a batch): the work is not divided",
    ),
    "the same images, each changed by chance": (
        run(rank(0), rank(1, order=DARKER)), {"data": 15}, "data", "the correlation of their brightness is 0.9",
    ),
    "the same half in another order": (
        run(rank(0), rank(1, order=SHUFFLED)), {"data": 15}, "data", "Ranks 0 and 1 read the same part of the images",
    ),
    "two of four with the same images": (
        run(*(rank(n, 4, QUARTER if n == 2 else None) for n in range(4))),
        {"data": 15}, "data", "ranks 0 and 2 read the same images",
    ),
    "all images on every rank": (
        run(*(replace(rank(n, epoch=[{"first": 0, "steps": UPDATES}]), examples=batches(ORDERS[n])) for n in (0, 1))),
        {"data": 15}, "data", "Together the ranks read 5,120 images in epoch 1, 2.0 times the training set of 2,560",
    ),
    "unequal batches, and yet an end": (
        run(rank(0), replace(rank(1), examples=rank(1).examples[:-5])),
        {"data": 15}, "data", f"Unequal numbers of batches (rank 0: {UPDATES}, rank 1: {UPDATES - 5})",
    ),
    "all ranks save": (
        both(save=[{"path": WHERE}]), {"checkpoint": 5}, "checkpoint", "Ranks 0 and 1 wrote the file of the weights",
    ),
    "all ranks save another file": (
        run(rank(0, save=[{"path": WHERE}, {"path": "/box/best.h5"}]), rank(1, save=[{"path": "/box/best.h5"}])),
        {"checkpoint": 5}, "checkpoint", "Ranks 0 and 1 both saved to best.h5",
    ),
    "only rank 1 saves": (
        run(rank(0, save=[]), rank(1, save=[{"path": WHERE}])), {"checkpoint": 5}, "checkpoint", "Rank 1 alone wrote",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_the_log_costs_its_points(mistake):
    together, points, criterion, reason = MISTAKES[mistake]
    host = seen(cpu=(20.0,) * together.size, traffic=3 * GRADIENTS)
    assert lost(together, host=host) == points
    found = verdicts(together, host=host)[criterion]
    assert reason in found.reason and found.hint and found.rests_on == SCRIPT


def test_processes_that_do_not_know_of_each_other_get_what_they_did_alone():
    found = verdicts(both(init=[], gpus=[], collective=[], save=[]))
    assert {name for name, verdict in found.items() if verdict.points} == {"serial", "checkpoint"}
    assert "No process called hvd.init()" in found["ranks"].reason
    assert "reach 0.800" in found["test_accuracy"].reason and "the ranks did not join" in found["test_accuracy"].reason
    sizes = [{"rank": 0, "size": 1, "local_rank": 0}]
    assert "The ranks found 1 processes, but there are 2" in verdicts(both(init=sizes))["ranks"].reason
    assert "Rank 1 never called" in verdicts(run(rank(0), rank(1, init=[])))["ranks"].reason


# What the host sees


UNKNOWN = ((0.9, 0.1),) * watermarks.RUNS
FROM_OUTSIDE = {
    "an idle rank": ({"host": seen(cpu=(20.0, 1.0))}, APART, "averaged", "rank 1 used 0.8 s of its core"),
    "missing bytes": ({"host": seen(GRADIENTS / 10)}, APART, "averaged", "the ranks sent each other only 1 MB"),
    "an unknown watermark": ({"margins": UNKNOWN}, {**APART, "data": 15}, "averaged", "nothing from rank 1's images"),
    "silent ranks": ({"host": seen(100)}, {**APART, "ranks": 10}, "ranks", "The ranks sent each other only 100 bytes"),
    "a shared device": (
        {"host": seen(devices={0: frozenset("a"), 1: frozenset("a")})}, {"device": 5}, "device", "0 and 1 use one GPU",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", FROM_OUTSIDE)
def test_what_the_host_sees_decides(what):
    changes, points, criterion, reason = FROM_OUTSIDE[what]
    assert lost(**changes) == points
    for name in points:
        found = verdicts(**changes)[name]
        assert found.rests_on == HOST and found.hint
    assert reason in verdicts(**changes)[criterion].reason


def test_watermarks_are_judged_after_three_runs_of_a_training_that_could_learn_them():
    doubt = replace(HONEST, margins=UNKNOWN[:1])
    assert doubt.in_doubt and replace(doubt, margins=UNKNOWN[:2]).in_doubt
    for margins in (UNKNOWN[:1], UNKNOWN[:2], (*UNKNOWN[:2], (0.1, 0.9)), ()):
        assert lost(margins=margins) == {}
    assert not replace(HONEST, margins=UNKNOWN).in_doubt  # it is decided
    few = [{**rank(0).last("progress"), "updates": watermarks.MIN_UPDATES - 1, "values": VALUES}]
    too_short = {"together": both(progress=few), "host": HostRecord()}
    poor = {"weights": Weights(PROFILE.train_accuracy - 0.01, 0.9, values=VALUES)}
    for changes in ({"margins": ((0.9, 0.9),)}, {"margins": ()}, {"together": both(CRASH)}, too_short, poor):
        assert not replace(doubt, **changes).in_doubt
    assert lost(margins=UNKNOWN, **too_short) == {}
    assert lost(margins=UNKNOWN, **poor) == {"train_accuracy": 10}
    # What the log and the host say against a script needs no further run, unless it costs a part only.
    assert not replace(doubt, together=MISTAKES["no averaging"][0]).in_doubt
    assert not replace(doubt, host=seen(cpu=(20.0, 1.0))).in_doubt
    assert replace(doubt, together=MISTAKES["weights changed on one rank later"][0]).in_doubt


# A run that did not come to its end

NOTHING = Weights(None, None, weights_file.missing([]))
LATE = Result(124, 60.0, message="Stopped at the time limit of 60 s.")
HUNG = Result(124, 40.0, message="No rank made a step for 8 s: the ranks wait for each other.")
GONE = {"checkpoint": 5, "train_accuracy": 10, "test_accuracy": 10, "time": 10}  # what a run without an end loses
ACCUSING = {"host": seen(100, cpu=(20.0, 1.0)), "margins": UNKNOWN, "weights": NOTHING}


@pytest.mark.parametrize("result", [CRASH, LATE])
def test_after_a_crash_nobody_is_accused_and_what_was_seen_keeps_its_points(result):
    ahead = replace(rank(1), examples=rank(1).examples[:-9])
    assert lost(run(rank(0, epoch=[], save=[]), ahead, result=result), **ACCUSING) == GONE
    nothing = both(result, **{**SILENT, "gpus": rank(0).all("gpus")})
    nothing = run(*(replace(one, examples=()) for one in nothing.ranks), result=result)
    found = verdicts(nothing, **ACCUSING)
    for name in ("averaged", "broadcast", "data"):
        assert (found[name].reason, found[name].hint) == ("Not judged: the run ended before this could be seen.", "")
    assert found["ranks"].passed
    assert found["checkpoint"].reason.startswith("Not judged") and found["checkpoint"].hint == ""


def test_a_script_that_never_began_has_one_cause():
    broken = Result(1, 2.0, 0, "Rank 0 failed with exit code 1.", ("  File …", "SyntaxError: '(' was never closed"))
    empty = RunRecord(broken, (RankRecord(0), RankRecord(1)))
    found = verdicts(empty, alone=replace(empty, ranks=(RankRecord(0),)), saved_alone=False, weights=NOTHING)
    assert sum(verdict.points for verdict in found.values()) == 0
    told = {name for name, verdict in found.items() if "SyntaxError: '(' was never closed" in verdict.reason}
    assert told == {"serial", "time"}
    assert {verdict.hint for name, verdict in found.items() if name not in (*told, *GONE)} == {""}
    assert all(found[name].reason.startswith("Not judged") for name in found.keys() - {*told, *GONE})
    assert found["time"].hint == found["serial"].hint == criteria.READ_THE_ERROR


def test_a_script_that_trained_apart_hears_so_though_it_crashed():
    """Two processes that do not know of each other may fail where both write the file of the weights."""
    locked = replace(CRASH, tail=("BlockingIOError: unable to lock file, errno = 11",))
    found = verdicts(both(locked, init=[]))
    assert found["ranks"].reason.startswith("No process called hvd.init()") and not found["averaged"].passed
    assert found["time"].hint == criteria.SAVE


@pytest.mark.parametrize(
    ("together", "points", "reason"),
    [
        # MetricAverageCallback on rank 0 only: it waits at the end of its first epoch, rank 1 in the second.
        (run(rank(0, epoch=[], save=[]), replace(rank(1), examples=rank(1).examples[:-9]), result=HUNG), {}, ""),
        (run(rank(0, fit=[{"steps": 81}], epoch=[]), rank(1, epoch=[]), result=HUNG), {"data": 15}, "(rank 0: 81, "),
    ],
)  # fmt: skip
def test_a_deadlock_costs_data_only_where_batches_are_unequal(together, points, reason):
    assert lost(together, weights=NOTHING) == {**GONE, **points}
    found = verdicts(together, weights=NOTHING)
    assert reason in found["data"].reason and "wait for each other" in found["time"].reason
    assert found["time"].hint == criteria.EQUAL_BATCHES


LOCKED = replace(CRASH, tail=("BlockingIOError: [Errno 11] Unable to open file (unable to lock file, errno = 11)",))
WAITED = replace(CRASH, cause="Rank 1 ended while rank 0 waited in hvd.allreduce.")


@pytest.mark.parametrize(
    ("result", "weights", "time_hint", "accuracy_hint"),
    [
        (CRASH, NOTHING, criteria.READ_THE_ERROR, criteria.READ_THE_ERROR),
        (LOCKED, NOTHING, criteria.SAVE, criteria.SAVE),
        (WAITED, NOTHING, criteria.EQUAL_BATCHES, criteria.EQUAL_BATCHES),
        (LATE, NOTHING, "Train fewer epochs", "Save earlier, or train fewer epochs."),
        (DONE, NOTHING, "", criteria.SAVE),
        (DONE, Weights(None, None, "3 of the saved weights are not numbers: the training diverged."), "", "See 3a"),
        (Result(0, 66.1), GOOD, "Train fewer epochs", ""),
    ],
)
def test_a_hint_follows_the_cause(result, weights, time_hint, accuracy_hint):
    found = verdicts(both(result, save=[]), weights=weights)
    assert time_hint in found["time"].hint and bool(found["time"].hint) == bool(time_hint)
    assert accuracy_hint in found["test_accuracy"].hint and bool(found["test_accuracy"].hint) == bool(accuracy_hint)


def test_the_run_on_one_rank_must_end_and_save():
    found = verdicts(alone=replace(ALONE, result=replace(CRASH, failed_rank=0)))["serial"]
    assert "ValueError: boom" in found.reason and found.hint == criteria.READ_THE_ERROR
    found = verdicts(saved_alone=False)["serial"]
    assert "saved no weights" in found.reason and found.hint == criteria.SAVE


# Accuracy, time, and a budget of updates


def test_accuracy_and_time_count_from_their_limits_on():
    assert lost(weights=Weights(PROFILE.train_accuracy, PROFILE.test_accuracy)) == {}
    assert lost(weights=Weights(0.19, 0.19)) == {"train_accuracy": 10, "test_accuracy": 10}
    assert lost(both(Result(0, 65.9))) == {}
    assert lost(both(Result(0, 66.1))) == {"time": 10}


def test_a_network_that_guesses_has_learned_almost_nothing_and_accuses_nobody():
    found = verdicts(weights=Weights(0.12, 0.12, values=VALUES, chance=0.1), margins=UNKNOWN)
    assert {name for name, verdict in found.items() if not verdict.passed} == {"train_accuracy", "test_accuracy"}
    assert found["test_accuracy"].reason.endswith("Guessing gets 0.10: the network has learned almost nothing.")
    assert found["test_accuracy"].hint == criteria.NOTHING_LEARNED


def test_training_images_known_by_heart_keep_their_points():
    found = verdicts(weights=Weights(0.9, 0.12, values=VALUES, chance=0.1))
    assert found["train_accuracy"].passed and not found["test_accuracy"].passed


def test_weights_that_a_crash_cut_off_are_not_said_to_have_learned_nothing():
    locked = replace(CRASH, tail=("BlockingIOError: unable to lock file, errno = 11",))
    found = verdicts(both(locked), weights=Weights(0.1, 0.1, values=VALUES, chance=0.1))
    assert found["test_accuracy"].reason == "The saved weights reach 0.100 on test images; the target is 0.20."
    assert found["test_accuracy"].hint == criteria.SAVE


def test_a_late_script_that_saved_is_not_sent_to_an_error_that_there_is_not():
    found = verdicts(both(LATE), weights=Weights(0.1, 0.1, values=VALUES, chance=0.1))
    assert found["test_accuracy"].hint not in (criteria.READ_THE_ERROR, criteria.NOTHING_LEARNED)


def test_a_budget_is_counted_by_the_log_and_by_bytes():
    whole = 2 * BATCH

    def told(batch, updates, **changes):
        verdict = verdicts(batch=batch, updates=updates, **changes)["time"]
        return verdict.passed, verdict.reason, verdict.hint, verdict.rests_on

    assert told(whole, UPDATES)[:2] == (
        True, f"It took 30.0 s; the limit is 60 s. It made {UPDATES} updates of {whole} images on average.",
    )  # fmt: skip
    assert told(whole + 1, 2 * UPDATES)[0]  # the last batch of an epoch need not be full
    for batch, updates, hint in (
        (2 * whole, UPDATES, criteria.LARGER_BATCH),
        (whole, UPDATES - 1, criteria.FEWER_UPDATES),
    ):
        passed, reason, given, rests_on = told(batch, updates)
        assert (passed, given, rests_on) == (False, hint, SCRIPT)
        assert f"the contract allows at most {updates}, each of {batch} or more." in reason
    once = {"together": both(**ADDED_UP), "host": seen(GRADIENTS / 4)}
    assert told(4 * whole, 40, **once)[0] and not told(4 * whole, 39, **once)[0]
    passed, reason, hint, rests_on = told(4 * whole, 40, **{**once, "host": seen()})
    assert (passed, hint, rests_on) == (False, criteria.AVERAGE_ONCE, HOST)
    assert f"the traffic between the ranks is enough for {UPDATES} averages of all gradients" in reason
    assert told(4 * whole, 40, **{**once, "host": HostRecord()})[0]
    assert "did not train together" in told(10_000, 1, together=MISTAKES["no averaging"][0])[1]
    poor = Weights(0.1, 0.1, values=VALUES)
    assert verdicts(weights=poor, batch=whole, updates=UPDATES)["test_accuracy"].hint == criteria.FOR_LARGE_BATCHES


# Records that make no sense

JUNK = st.recursive(
    st.sampled_from([None, True, 0, 1, -1, 10**30, 10**400, "", "GPU:0", float("nan"), float("inf")]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=3,
)
SPOILT = st.sampled_from([(kind, name) for kind, found in rank(0).records.items() for name in (found or [{}])[0]])


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    spoilt=st.lists(st.tuples(st.integers(0, 1), SPOILT, JUNK), min_size=1, max_size=4), code=st.sampled_from([0, 1])
)
def test_records_that_make_no_sense_are_judged_or_a_check_fails(tmp_path, spoilt, code):
    records = [rank(0).records, rank(1).records]
    for number, (kind, name), junk in spoilt:
        records[number] = {**records[number], kind: [{**one, name: junk} for one in records[number][kind]]}
    for number, found in enumerate(records):
        lines = [json.dumps({"kind": kind, **one}) for kind, several in found.items() for one in several]
        (tmp_path / f"rank-{number}.jsonl").write_text("\n".join(lines))
        np.array([BATCH] * UPDATES, "<i4").tofile(tmp_path / f"rank-{number}.steps")
        np.concatenate(rank(number).examples).tofile(tmp_path / f"rank-{number}.examples")
    together = run_record.read(tmp_path, 2, Result(code, 30.0))
    for changes in ({}, {"batch": BATCH, "updates": UPDATES}, {"host": HostRecord()}):
        try:
            found = verdicts(together, **changes)
        except CheckFailed:
            continue
        assert found.keys() == FULL.keys() and all(0 <= one.points <= one.max_points for one in found.values())


def test_ranks_that_started_apart_lose_the_broadcast_only():
    """Their gradients are those of other networks, so that the weights know the watermark of one rank."""
    record, expected, *_ = MISTAKES["no broadcast"]
    assert lost(record, margins=((0.9, -0.1),) * watermarks.RUNS) == expected
