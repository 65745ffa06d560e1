"""The assessment's criteria on evidence that is made up: each mistake costs what it should, and says why."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from course_grader.script import contract, criteria
from course_grader.script.criteria import Measured, Weights
from course_lib.notebook.judging import judge
from course_lib.ranks import events, run_record
from course_lib.ranks.instrumentation import training
from course_lib.ranks.launch import Result
from course_lib.ranks.run_record import Collectives, Evidence, RankEvidence

CONTRACT = contract.read()
PROFILE = CONTRACT.profile("short")
IMAGES, BATCH, STEPS, UPDATES = PROFILE.images, 64, 20, 40
WEIGHTS = (np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(4, np.float32), np.zeros(2, np.float32))
TRAINABLE = (True, True, False)
VALUES = 10
WHERE = "/box/weights.h5"
FULL = dict(CONTRACT.points)


def brightness(seed: int) -> np.ndarray:
    """Of all images of the set, as one rank after another reads them."""
    return np.random.default_rng(seed).normal(120, 30, IMAGES).astype(np.float32)


def steps(examples: np.ndarray, size: int = BATCH) -> tuple[np.ndarray, ...]:
    return tuple(examples[i : i + size] for i in range(0, len(examples), size))


def digests() -> list[dict]:
    """What a rank tells of its weights while it trains with the others."""
    return [{"updates": n, "steps": n, "digest": f"after {n}"} for n in (1, 2, 4, 8, 16, 32)]


def apart(rank: int, since: int, until: int = 99) -> list[dict]:
    """Digests that are another rank's own from one update on, until another."""
    return [{**d, "digest": f"rank {rank}"} if since <= d["updates"] < until else d for d in digests()]


def rank(number: int, *, order: np.ndarray | None = None, size: int = 2, **records) -> RankEvidence:
    """One of `size` ranks that does all that it should; `records` take the place of its own."""
    order = brightness(0) if order is None else order
    mine = order[number * IMAGES // size : (number + 1) * IMAGES // size]
    n = len(mine) // BATCH  # steps of an epoch
    updates = UPDATES // STEPS * n
    found = {
        "start": [{"weights": WHERE}],
        "init": [{"rank": number, "size": size, "local_rank": number, "local_size": size}],
        "gpus": [{"visible": [f"/physical_device:GPU:{number}"]}],
        "fit": [{"epochs": 2, "steps": n}],
        "broadcast": [{"bytes": 4 * w.size} for w in WEIGHTS],
        "first-step": [{"digest": "first", "trainable": 2, "weights": 3}],
        "digest": digests(),
        "epoch": [{"epoch": e, "first": e * n, "steps": n, "logs": {}} for e in (0, 1)],
        "progress": [
            {
                "steps": updates,
                "images": updates * BATCH,
                "updates": updates,
                "values": updates * VALUES,
                "examples_with_gradient": updates * BATCH,
                "values_updated_often": VALUES,
            }
        ],
        "save": [{"path": WHERE}] if number == 0 else [],
        "end": [{}],
    }
    return RankEvidence(number, {**found, **records}, (), steps(np.tile(mine, 2)), WEIGHTS, TRAINABLE)


def collectives(reduced: int = UPDATES * VALUES, broadcasts: int = 3, size: int = 4) -> Collectives:
    return Collectives(
        {"ALLREDUCE": Counter({"grads_0": UPDATES}), "BROADCAST": Counter({f"w{i}": 1 for i in range(broadcasts)})},
        {"ALLREDUCE": reduced},
        {"ALLREDUCE": reduced * size},
    )


DONE = Result(0, 30.0)


def run(*ranks: RankEvidence, result: Result = DONE, traffic: int | None = None, **settings) -> Evidence:
    return Evidence(result, ranks or (rank(0), rank(1)), collectives(**settings), traffic)


ALONE = Evidence(Result(0, 9.0), (rank(0, init=[{"rank": 0, "size": 1, "local_rank": 0, "local_size": 1}]),))


def verdicts(together: Evidence | None, **settings) -> dict:
    targets = PROFILE.train_accuracy, PROFILE.test_accuracy
    measured = Measured(ALONE, together, Weights(0.9, 0.8), 60.0, 0.1, IMAGES, *targets)
    return {v.id: v for v in judge(replace(measured, **settings), criteria.with_points(CONTRACT.points))}


def lost(together: Evidence | None, **settings) -> dict[str, float]:
    """Points lost, by criterion."""
    found = verdicts(together, **settings)
    assert list(found) == list(FULL)
    return {name: FULL[name] - v.points for name, v in found.items() if v.points < FULL[name]}


def test_a_script_without_fault_gets_everything():
    assert lost(run()) == {}
    assert verdicts(run())["averaged"].hint == ""


def four(**changed: RankEvidence) -> Evidence:
    """A run on four ranks, in which `rank2=…` takes the place of that rank."""
    ranks = [changed.get(f"rank{number}", rank(number, size=4)) for number in range(4)]
    return run(*ranks, reduced=UPDATES * VALUES // 2)


def test_four_ranks_without_fault_get_everything():
    assert lost(four()) == {}
    assert verdicts(four())["ranks"].reason == "All 4 ranks found each other."


def looped(one: RankEvidence) -> RankEvidence:
    """The same rank, had it trained in a loop of its own."""
    return replace(one, records={**one.records, **{kind: [] for kind in FIT_ONLY}})


FIT_ONLY = ("fit", "epoch", "first-step")
QUARTER = brightness(0)[: IMAGES // 4]
LAST = replace(rank(3, size=4), rank=0, records=rank(0, size=4).records)  # rank 0 with the last quarter
SHUFFLED_FIRST = rank(3, size=4, order=np.tile(np.random.default_rng(1).permutation(QUARTER), 4))
OF_FOUR = {
    "a rank with another's GPU": (
        four(rank2=rank(2, size=4, gpus=[{"visible": ["/physical_device:GPU:1"]}])),
        "device", "Rank 2 keeps GPU 1 in place of 2, its own.",
    ),
    "a rank that never initialised": (
        four(rank3=rank(3, size=4, init=[])), "ranks", "Rank 3 never called hvd.init().",
    ),
    "a rank that found two": (
        four(rank1=rank(1, size=4, init=[{"rank": 1, "size": 2, "local_rank": 1, "local_size": 2}])),
        "ranks", "The ranks found 2 and 4 processes in place of 4.",
    ),
    "a rank with rank 0's images": (
        four(rank2=rank(2, size=4, order=np.tile(QUARTER, 4))),
        "data", "In the same step ranks 0 and 2 read the same images (100% of a batch)",
    ),
    "a rank with rank 0's images in another order": (
        four(rank3=rank(3, size=4, order=np.tile(np.random.default_rng(1).permutation(QUARTER), 4))),
        "data", "Ranks 0 and 3 read the same part of the images (100% of it)",
    ),
    "three ranks with the same images": (
        four(**{f"rank{number}": rank(number, size=4, order=np.tile(QUARTER, 4)) for number in (1, 2, 3)}, rank0=LAST),
        "data", "In the same step ranks 1 and 2 read the same images (100% of a batch)",
    ),
    "two ranks with the same images in another order": (
        four(rank0=LAST, rank1=rank(1, size=4, order=np.tile(QUARTER, 4)), rank3=SHUFFLED_FIRST),
        "data", "Ranks 1 and 3 read the same part of the images (100% of it)",
    ),
    "two ranks with the same images in another order, in a loop of their own": (
        four(**{f"rank{r}": looped(one) for r, one in enumerate(
            (LAST, rank(1, size=4, order=np.tile(QUARTER, 4)), rank(2, size=4), SHUFFLED_FIRST)
        )}),
        "data", "Ranks 1 and 3 read the same part of the images (100% of it)",
    ),
    "a rank with fewer batches": (
        four(rank2=replace(rank(2, size=4), examples=rank(2, size=4).examples[:17])),
        "data", "Unequal numbers of batches (rank 0: 20, rank 1: 20, rank 2: 17, rank 3: 20)",
    ),
    "two ranks that save beside rank 0": (
        four(rank1=rank(1, size=4, save=[{"path": WHERE}]), rank3=rank(3, size=4, save=[{"path": WHERE}])),
        "checkpoint", "Ranks 0, 1 and 3 wrote the file of the weights",
    ),
    "a rank that trains apart": (
        four(rank3=replace(rank(3, size=4, digest=apart(3, 4)), weights=tuple(w + 1 for w in WEIGHTS))),
        "averaged", "they differ by up to 1; by update 4 something else",
    ),
    "a rank without the broadcast": (
        four(rank2=rank(2, size=4, digest=apart(2, 1), **{"first-step": [{"digest": "own"}]})),
        "broadcast", "after update 1 the ranks held different weights",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", OF_FOUR)
def test_the_rank_at_fault_is_named_among_four(mistake):
    together, criterion, reason = OF_FOUR[mistake]
    found = verdicts(together)[criterion]
    assert not found.passed
    assert reason in found.reason


def test_a_loop_of_its_own_is_as_good():
    """No epochs, no fit: the digests between the updates say what the callback says of fit."""
    assert lost(run(looped(rank(0)), looped(rank(1)))) == {}


def test_option_2_is_as_good_for_four_ranks_and_in_a_loop_of_their_own():
    orders = [np.random.default_rng(seed).permutation(brightness(0)) for seed in range(4)]
    ranks = [rank(number, size=4, order=order) for number, order in enumerate(orders)]
    assert lost(run(*ranks, reduced=UPDATES * VALUES // 2)) == {}
    assert lost(run(*map(looped, ranks), reduced=UPDATES * VALUES // 2)) == {}


def test_ranks_may_change_parts_in_the_next_epoch_of_a_loop_of_their_own():
    ranks = [rank(0), rank(1)]
    later = [one.examples[STEPS:] for one in reversed(ranks)]
    changing = [replace(looped(one), examples=one.examples[:STEPS] + other) for one, other in zip(ranks, later)]
    assert lost(run(*changing)) == {}


def test_updates_without_an_optimizer_are_counted_by_their_steps():
    own = {"progress": [{"steps": UPDATES, "images": 1, "updates": 0, "values": 0}]}
    assert lost(run(rank(0, **own), rank(1, **own))) == {}
    assert lost(run(rank(0, **own), rank(1, **own), reduced=UPDATES * VALUES // 3))["averaged"] == 20


def test_half_precision_is_as_good():
    assert lost(run(size=2, traffic=2 * UPDATES * VALUES * 2)) == {}


def test_option_2_and_mirrored_images_are_as_good():
    other = np.random.default_rng(5).permutation(brightness(0))
    mirrored = np.nextafter(other, np.float32(0))  # the same image, summed up in another order
    assert lost(run(rank(0), rank(1, order=mirrored))) == {}


def test_micro_batches_need_a_reduction_for_each_update_only():
    slower = {"progress": [{"steps": UPDATES, "images": 1, "updates": 20, "values": 20 * VALUES}]}
    assert lost(run(rank(0, **slower), rank(1, **slower), reduced=20 * VALUES)) == {}


SAME = {"order": np.tile(brightness(0)[: IMAGES // 2], 2)}
NOBODY = {kind: [] for kind in ("init", "gpus", "broadcast")}
DARKER = np.tile(brightness(0)[: IMAGES // 2], 2) + np.random.default_rng(1).normal(0, 12, IMAGES).astype(np.float32)
HALF = np.tile(brightness(0)[: IMAGES // 2], 2)
SHUFFLED = np.concatenate([HALF[: IMAGES // 2], np.random.default_rng(2).permutation(HALF[IMAGES // 2 :])])
OTHERS = tuple(w + 1 for w in WEIGHTS)

MISTAKES = {
    "gpu": (
        run(rank(0, gpus=[]), rank(1, gpus=[])),
        {"device": 5}, "device", "Every rank sees all GPUs",
    ),
    "the first gpu for all": (
        run(rank(0), rank(1, gpus=[{"visible": ["/physical_device:GPU:0"]}])),
        {"device": 5}, "device", "Rank 1 keeps GPU 0 in place of 1",
    ),
    "no averaging": (
        run(rank(0, digest=apart(0, 2)), replace(rank(1, digest=apart(1, 2)), weights=OTHERS), reduced=4),
        {"averaged": 20, "train_accuracy": 10, "test_accuracy": 10, "time": 10}, "averaged", "No gradients were",
    ),
    "a step in two": (
        run(reduced=UPDATES * VALUES * 6 // 10),
        {"averaged": 10}, "averaged", "not every step averages every gradient",
    ),
    "no broadcast": (
        run(
            rank(0, broadcast=[], digest=apart(0, 1), **{"first-step": [{"digest": "a"}]}),
            replace(rank(1, broadcast=[], digest=apart(1, 1), **{"first-step": [{"digest": "b"}]}), weights=OTHERS),
            broadcasts=0,
        ),
        {"broadcast": 10}, "broadcast", "Nothing was broadcast",
    ),
    "apart in spite of a broadcast": (
        run(
            rank(0, digest=apart(0, 1), **{"first-step": [{"digest": "a"}]}),
            replace(rank(1, digest=apart(1, 1), **{"first-step": [{"digest": "b"}]}), weights=OTHERS),
        ),
        {"averaged": 10, "broadcast": 10}, "averaged", "by up to 1, because the ranks started apart",
    ),
    "weights changed on one rank later": (
        run(rank(0), replace(rank(1, digest=apart(1, 16)), weights=OTHERS)),
        {"averaged": 10}, "averaged", "by update 16 something else than averaged gradients had changed them",
    ),
    "trained apart, copied at the end": (
        run(rank(0, digest=apart(0, 1), **{"first-step": []}), rank(1, digest=apart(1, 1), **{"first-step": []})),
        {"averaged": 20, "broadcast": 10, "train_accuracy": 10, "test_accuracy": 10, "time": 10},
        "averaged", "the weights were copied",
    ),
    "copied again and again": (
        run(rank(0, digest=apart(0, 8, 32)), rank(1, digest=apart(1, 8, 32))),
        {"averaged": 20, "train_accuracy": 10, "test_accuracy": 10, "time": 10}, "averaged", "After update 8 the ranks",
    ),
    "a late broadcast": (
        run(rank(0, digest=apart(0, 1, 8), **{"first-step": []}), rank(1, digest=apart(1, 1, 8), **{"first-step": []})),
        {"broadcast": 10}, "broadcast", "after update 1 the ranks held different weights",
    ),
    "half a broadcast": (
        run(rank(0, broadcast=[{"bytes": 8}]), rank(1, broadcast=[{"bytes": 8}])),
        {"broadcast": 10}, "broadcast", "Only 8 bytes were broadcast; the network's 10 values have 40",
    ),
    "the same images": (
        run(rank(0), rank(1, **SAME)),
        {"data": 15}, "data", "the same images (100% of a batch): nothing is shared",
    ),
    "the same images, each changed by chance": (
        run(rank(0), rank(1, order=DARKER)),
        {"data": 15}, "data", "changed or not (their brightness correlates by 0.9",
    ),
    "the same half, shuffled": (
        run(rank(0), rank(1, order=SHUFFLED)),
        {"data": 15}, "data", "read the same part of the images (100% of it)",
    ),
    "all images on every rank": (
        run(*(
            replace(
                rank(r, epoch=[{"epoch": 0, "first": 0, "steps": UPDATES}]),
                examples=steps(np.random.default_rng(r).permutation(brightness(0))),
            )
            for r in (0, 1)
        )),
        {"data": 15}, "data", "Together the ranks read 5,120 images in epoch 1, 2.0 times the 2,560",
    ),
    "unequal batches": (
        run(
            replace(rank(0), examples=rank(0).examples[:20]), replace(rank(1), examples=rank(1).examples[:19]),
            result=Result(124, 40.0, message="No rank made a step for 8 s: the ranks wait for each other."),
        ),
        {"data": 15, "time": 10}, "data", "Unequal numbers of batches (rank 0: 20, rank 1: 19)",
    ),
    "unequal batches, told by fit": (
        run(
            rank(0, fit=[{"epochs": 2, "steps": 21}], epoch=[]), rank(1, epoch=[]),
            result=Result(124, 40.0, message="No rank made a step for 8 s: the ranks wait for each other."),
        ),
        {"data": 15, "time": 10}, "data", "in an epoch (rank 0: 21, rank 1: 20)",
    ),
    "all ranks save": (
        run(rank(0), rank(1, save=[{"path": WHERE}])),
        {"checkpoint": 5}, "checkpoint", "Ranks 0 and 1 wrote the file of the weights",
    ),
    "all ranks save another file": (
        run(rank(0, save=[{"path": WHERE}, {"path": "/box/best.keras"}]), rank(1, save=[{"path": "/box/best.keras"}])),
        {"checkpoint": 5}, "checkpoint", "both saved to best.keras",
    ),
    "only rank 1 saves": (
        run(rank(0, save=[]), rank(1, save=[{"path": WHERE}])),
        {"checkpoint": 5}, "checkpoint", "Rank 1 alone wrote",
    ),
    "a replaced function": (
        run(rank(0), rank(1, tampered=[{"name": "time.time"}])),
        {"ranks": 10, "device": 5, "averaged": 20, "broadcast": 10, "data": 15, "checkpoint": 5,
         "train_accuracy": 10, "test_accuracy": 10, "time": 10}, "ranks", "The script replaced time.time",
    ),
    "a forged timeline": (
        run(traffic=1000),
        {"ranks": 10, "device": 5, "averaged": 20, "broadcast": 10, "data": 15, "checkpoint": 5,
         "train_accuracy": 10, "test_accuracy": 10, "time": 10}, "averaged", "the timeline is not Horovod's",
    ),
    "too slow": (
        run(result=Result(0, 66.1)), {"time": 10}, "time", "It took 66.1 s; the limit is 60 s.",
    ),
    "unequal batches, and yet an end": (
        run(replace(rank(0), examples=rank(0).examples[:38]), rank(1)),
        {"data": 15}, "data", "Unequal numbers of batches (rank 0: 38, rank 1: 40)",
    ),
    "an exception of many lines": (
        run(result=Result(1, 9.0, 0, "Rank 0 failed with exit code 1.", ("OSError: no space ('w'", ", errno = 28)"))),
        {"time": 10}, "time", "Rank 0 failed with exit code 1: OSError: no space",
    ),
    "a crash on rank 1": (
        run(result=Result(1, 20.0, 1, "Rank 1 failed with exit code 1.", ("Traceback …", "ValueError: boom"))),
        {"time": 10}, "time", "Rank 1 failed with exit code 1: ValueError: boom",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_costs_what_it_should(mistake):
    together, points, criterion, reason = MISTAKES[mistake]
    assert lost(together) == points
    found = verdicts(together)[criterion]
    assert reason in found.reason
    assert found.hint


def test_ranks_that_do_not_know_of_each_other_get_nothing_but_their_savings():
    alone = [rank(r, **NOBODY, save=[]) for r in (0, 1)]
    found = verdicts(Evidence(Result(0, 9.0), tuple(alone)))
    assert {name: v.points for name, v in found.items() if v.points} == {"serial": 5}
    assert "strangers" in found["ranks"].reason
    assert "the ranks did not join" in found["test_accuracy"].reason
    assert "reach 0.800" in found["test_accuracy"].reason  # measured all the same


def test_a_run_ended_by_the_time_limit_is_judged_by_what_is_there():
    half = [replace(rank(r, epoch=[], end=[]), examples=rank(r).examples[: 17 + 3 * r]) for r in (0, 1)]
    done = [{"steps": 18, "images": 9, "updates": 18, "values": 18 * VALUES}]  # the last reduction never came
    half = [replace(r, records={**r.records, "progress": done}, weights=(), trainable=()) for r in half]
    ended = Result(124, 60.0, message="Stopped at the time limit of 60 s.")
    cut = run(*half, result=ended, reduced=17 * VALUES)
    assert lost(cut) == {"time": 10}
    assert "not done after 60 s" in verdicts(cut)["time"].reason


NO_BROADCAST, _, _, _ = MISTAKES["no broadcast"]


def test_a_missing_broadcast_is_charged_once_but_nobody_passes_without_it():
    found = verdicts(NO_BROADCAST)["averaged"]
    assert found.passed
    assert "400 gradient values were all-reduced" in found.reason
    assert "only because they started apart (see broadcast)" in found.reason
    assert "broadcast" in CONTRACT.required


def test_a_difference_of_unknown_size_leaves_no_gap_in_the_sentence():
    apart_later = run(rank(0), replace(rank(1, digest=apart(1, 32)), weights=(), trainable=()))
    assert "end with different weights; by update 32 something else" in verdicts(apart_later)["averaged"].reason


WAITED = Result(124, 40.0, message="No rank made a step for 8 s: the ranks wait for each other.")
LEFT = Result(1, 9.0, 0, "Rank 0 failed with exit code 1.", ("UnknownError: Horovod has been shut down.",))
STALLED = ("One or more tensors were submitted", "Missing ranks:", "1: [accuracy, loss]")
LOCKED = "BlockingIOError: [Errno 11] Unable to open file (unable to lock file, errno = 11)"


def waiting(result: Result, *entered: int, printed: tuple[str, ...] = ()) -> Evidence:
    """A run in which some ranks have entered a collective that the others never came to."""
    one = run(replace(rank(0), printed=printed), rank(1), result=result)
    return replace(one, collectives=replace(one.collectives, waiting={"mean_accuracy": frozenset(entered)}))


@pytest.mark.parametrize(
    ("together", "named"),
    [
        (waiting(LEFT, 0), "Rank 1 never entered the collective mean_accuracy, for which the others wait."),
        (run(result=LEFT), "Rank 0 entered a collective when another rank had ended."),
        (waiting(LEFT, 1), "Rank 0 never entered the collective mean_accuracy, for which the others wait."),
        (waiting(WAITED), "Only some of the ranks entered the collective mean_accuracy; they wait for the others."),
        (
            waiting(WAITED, printed=STALLED),
            "Rank 1 never entered the collective accuracy, for which the others wait.",
        ),
    ],
)
def test_a_collective_that_some_ranks_never_enter_is_named(together, named):
    found = verdicts(together)["time"]
    assert found.reason.startswith(named)
    assert criteria.ALL_ENTER in found.hint


def test_a_collective_that_a_crash_cut_short_is_not_to_blame():
    crashed = waiting(Result(1, 9.0, 1, "Rank 1 failed with exit code 1.", ("ValueError: boom",)), 0)
    assert verdicts(crashed)["time"].reason == "Rank 1 failed with exit code 1: ValueError: boom"


def crash(*tail: str) -> Evidence:
    return run(result=Result(1, 9.0, 1, "Rank 1 failed with exit code 1.", tail))


HINTS = {
    "an error": (crash("ValueError: boom"), "time", "Read the error"),
    "two writers": (crash("Traceback", LOCKED), "time", "2b, Step 7"),
    "unequal batches": (run(result=WAITED), "time", "2b, Step 6"),
    "too slow": (run(result=Result(0, 70.0)), "time", "Train fewer epochs"),
    "not done": (run(result=Result(124, 60.0, message="Stopped at the time limit of 60 s.")), "time", "fewer epochs"),
    "apart, in time": (MISTAKES["no averaging"][0], "time", "2b, Steps 1 and 4"),
    "apart, accurate": (MISTAKES["no averaging"][0], "train_accuracy", "2b, Steps 1 and 4"),
}


@pytest.mark.parametrize("cause", HINTS)
def test_a_hint_follows_the_cause(cause):
    together, criterion, hint = HINTS[cause]
    assert hint in verdicts(together)[criterion].hint


@pytest.mark.parametrize(
    ("together", "problem", "hint"),
    [
        (run(), "No weights were saved.", "only rank 0 saves"),
        (crash("ValueError: boom"), "No weights were saved.", "Read the error"),
        (HINTS["not done"][0], "No weights were saved.", "Save earlier"),
        (run(), "3 of the saved weights are not numbers: the training diverged.", "learning rates"),
    ],
)
def test_without_weights_no_hint_is_about_accuracy_unless_training_diverged(together, problem, hint):
    assert hint in verdicts(together, weights=Weights(None, None, problem))["train_accuracy"].hint


def fingerprints(images: np.ndarray) -> np.ndarray:
    """What the probe notes of each image."""
    seen = []
    stub = SimpleNamespace(step=lambda model, brightness, weights: seen.append(brightness))
    stub.look = stub.came = stub.used = lambda *_: None
    with pytest.MonkeyPatch.context() as patch:
        training._watch_steps(
            tf, stub, SimpleNamespace(put=lambda owner, name, wrap: patch.setattr(owner, name, wrap(vars(owner)[name])))
        )
        model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(1)])
        with tf.GradientTape():
            model(tf.constant(images))
    (found,) = seen
    return found


def test_standardised_images_are_told_apart_and_mirrored_ones_are_not():
    images = np.random.default_rng(0).normal(0, 1, (512, 8, 6, 3)).astype(np.float32)
    images = (images - images.mean((1, 2, 3), keepdims=True)) / images.std((1, 2, 3), keepdims=True)
    found = fingerprints(images)
    assert found.std() > 0.01
    assert len(np.unique(found)) == len(images)
    np.testing.assert_allclose(fingerprints(images[:, :, ::-1]), found, atol=1e-6)
    np.testing.assert_allclose(fingerprints(np.full((2, 8, 6, 3), 7, np.uint8)), 7, rtol=1e-5)
    np.testing.assert_allclose(fingerprints(images[:, 0, 0]), images[:, 0, 0].mean(axis=1), atol=1e-6)


def test_of_several_inputs_the_largest_is_looked_at():
    seen = []
    number, image = tf.keras.Input(1), tf.keras.Input((4, 4, 3))
    both = tf.keras.layers.Concatenate()([number, tf.keras.layers.Flatten()(image)])
    model = tf.keras.Model([number, image], tf.keras.layers.Dense(1)(both))
    with pytest.MonkeyPatch.context() as patch:
        events.on_training_steps(
            tf,
            lambda owner, name, wrap: patch.setattr(owner, name, wrap(vars(owner)[name])),
            lambda _, examples: [tf.shape(examples)],
            lambda _, shape: seen.append(list(shape)),
        )
        with tf.GradientTape():
            model([tf.zeros((2, 1)), tf.zeros((2, 4, 4, 3))])
    assert seen == [[2, 4, 4, 3]]


def test_accuracy_counts_from_its_target_on():
    assert lost(run(), weights=Weights(PROFILE.train_accuracy, PROFILE.test_accuracy)) == {}
    assert lost(run(), weights=Weights(0.19, 0.19)) == {"train_accuracy": 10, "test_accuracy": 10}
    nothing = verdicts(run(), weights=Weights(None, None, "No weights were saved."))
    assert nothing["test_accuracy"].reason == "No weights were saved."


def test_the_time_limit_forgives_its_tolerance():
    assert lost(run(result=Result(0, 65.9))) == {}


def test_the_run_on_one_rank_must_end_and_save():
    crashed = replace(ALONE, result=Result(1, 3.0, 0, "Rank 0 failed with exit code 1.", ("NameError: hvd",)))
    assert "NameError: hvd" in verdicts(run(), alone=crashed)["serial"].reason
    unsaved = replace(ALONE, ranks=(rank(0, save=[]),))
    found = verdicts(run(), alone=unsaved)["serial"]
    assert "saved no weights" in found.reason
    assert found.hint == criteria.SAVE


def test_without_runs_there_are_reasons():
    assert sum(v.points for v in verdicts(None, alone=None, weights=None).values()) == 0


HOSTILE = [
    {},
    {"size": "2"},
    {"visible": 7},
    {"steps": 10**30, "first": -1},
    {"updates": [1], "digest": {}},
    {"path": 3},
]


@pytest.mark.parametrize("kind", sorted(rank(0).records))
def test_records_that_make_no_sense_raise_nothing(kind):
    for record in HOSTILE:
        assert sum(v.points for v in verdicts(run(rank(0, **{kind: [record]}), rank(1))).values()) <= 100


def test_files_that_make_no_sense_are_left_out(tmp_path):
    (tmp_path / "rank-0.jsonl").write_bytes(
        b'{"kind": "init", "size": 2}\n' + b"[" * 50_000 + b'\n"x"\n{"kind": 3}\n' + b'{"kind": "init", "si'
    )
    (tmp_path / "rank-0.steps").write_bytes(np.array([2, -5, 2**31 - 1], "<i4").tobytes() + b"x")
    (tmp_path / "rank-0.examples").write_bytes(np.arange(3, dtype="<f4").tobytes())
    (tmp_path / "rank-1.jsonl").write_text(
        '{"kind": "weights", "shapes": [[1000000, 1000000]], "types": ["<f4"], "trainable": [true]}\n'
    )
    (tmp_path / "rank-1.weights").write_bytes(b"1234")
    (tmp_path / "timeline.json").mkdir()
    found = run_record.read(tmp_path, 2, Result(0, 1.0))
    assert found.ranks[0].records == {"init": [{"size": 2}]}
    assert [list(step) for step in found.ranks[0].examples] == [[0, 1], []]
    assert found.ranks[1].weights == ()
    assert found.operations == {}


def test_the_timeline_tells_what_was_reduced(tmp_path):
    (tmp_path / "timeline.json").write_text(
        '[\n{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grads_0"}},\n'
        '{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 1, "pid": 1},{"ph": "E", "ts": 2, "pid": 1},'
        '{"ph": "B", "name": "ALLREDUCE", "ts": 3, "pid": 1},{"ph": "B", "name": "GLOO_ALLREDUCE", "ts": 4, "pid": 1},'
        '{"ph": "E", "ts": 5, "pid": 1},'
        '{"ph": "E", "ts": 6, "pid": 1, "args": {"dtype": "float16", "shape": "[3, 4]"}},'
        '{"ph": "B", "name": "ALLREDUCE", "ts": 7, "pid": 1},{"ph": "E", "ts": 8, "pid": 1, "args": {"dtype": "flo'
    )
    found = run_record.read(tmp_path, 0, Result(0, 1.0)).collectives
    assert found.times == {"ALLREDUCE": {"grads_0": 2}}
    assert (found.elements["ALLREDUCE"], found.bytes["ALLREDUCE"]) == (12, 24)


def test_the_timeline_tells_what_was_waited_for(tmp_path):
    (tmp_path / "timeline.json").write_text(
        '[\n{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grads_0"}},\n'
        '{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 1, "pid": 1},'
        '{"ph": "X", "name": "0", "ts": 2, "pid": 1, "dur": 0},{"ph": "X", "name": "1", "ts": 3, "pid": 1, "dur": 0},'
        '{"ph": "E", "ts": 3, "pid": 1},{"ph": "B", "name": "ALLREDUCE", "ts": 4, "pid": 1},'
        '{"name": "process_name", "ph": "M", "pid": 2, "args": {"name": "accuracy"}},\n'
        '{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "ts": 5, "pid": 2},'
        '{"ph": "X", "name": "1", "ts": 6, "pid": 2, "dur": 0}]'
    )
    assert run_record.read(tmp_path, 2, Result(0, 1.0)).collectives.waiting == {"accuracy": {1}}


class TestDifferentImages:
    """Images are known again by their brightness, unless that is too coarse."""

    @staticmethod
    def over_and_over(images: np.ndarray, number: int) -> RankEvidence:
        """A rank that goes through so few images in each epoch; a quarter of its steps in one of eight."""
        mine = images[number * IMAGES // 8 :][: IMAGES // 8]
        n = len(mine) // BATCH
        epochs = [{"epoch": e, "first": e * n, "steps": n, "logs": {}} for e in range(8)]
        return replace(rank(number, epoch=epochs), examples=steps(np.tile(mine, 8)))

    def test_a_quarter_over_and_over_is_noticed(self):
        together = run(*(self.over_and_over(brightness(0), number) for number in (0, 1)))
        reason = verdicts(together)["data"].reason
        assert f"only {IMAGES // 4:,} different images of {IMAGES:,}" in reason

    def test_brightness_that_is_too_coarse_says_nothing(self):
        coarse = np.round(brightness(0) / 4) * 4
        together = run(*(self.over_and_over(coarse, number) for number in (0, 1)))
        assert "different images" not in verdicts(together)["data"].reason


FIVE = {name: FULL[name] for name in ("averaged", "data", "train_accuracy", "test_accuracy", "time")}


class TestFromOutside:
    """What the script cannot write decides, where the ranks say themselves that they trained together."""

    def test_weights_that_know_all_ranks_images(self):
        assert lost(run(), weights=Weights(0.9, 0.8, marks=((0.98, 0.05), (0.9, 0.3)))) == {}

    def test_weights_that_do_not_know_a_rank_s_images(self):
        weights = Weights(0.9, 0.8, marks=((0.98, 0.05), (0.2, 0.1)))
        assert lost(run(), weights=weights) == FIVE
        reason = verdicts(run(), weights=weights)["averaged"].reason
        assert reason.startswith("The saved weights have not learned from rank 1's images")

    def test_a_second_run_has_to_tell_where_nothing_but_the_marks_speaks(self):
        def doubt(together, *marks):
            targets = PROFILE.train_accuracy, PROFILE.test_accuracy
            measured = Measured(ALONE, together, Weights(0.9, 0.8, marks=marks), 60.0, 0.1, IMAGES, *targets)
            return measured.marks_leave_doubt()

        known, half, unknown = (0.98, 0.05), (0.7, 0.1), (0.2, 0.1)
        looks = tuple(evidence.Moment(0.2 * i, 10**6 * i, (0.2 * i, 0.01 * i)) for i in range(40))
        assert doubt(run(), known, unknown) and doubt(run(), unknown, unknown) and doubt(run(), half, known)
        assert not doubt(run(), known, known) and not doubt(run())
        assert not doubt(run(reduced=0), known, unknown)
        assert not doubt(replace(run(traffic=10**9), use=looks), known, unknown)
        assert not doubt(run(rank(0, start=[7]), rank(1, progress=["?"])), known, unknown)

    @pytest.mark.parametrize(
        ("first", "second", "passes"),
        [((0.1, 0.1), (0.98, 0.05), True), ((0.1, 0.1), (0.1, 0.1), False), ((0.65, 0.1), (0.1, 0.1), False)],
    )
    def test_two_runs_are_judged_by_the_mean_of_their_marks(self, first, second, passes):
        known, targets = (0.98, 0.05), (PROFILE.train_accuracy, PROFILE.test_accuracy)
        one, other = (
            Measured(ALONE, run(), Weights(0.9, 0.8, marks=(known, mark)), 60.0, 0.1, IMAGES, *targets)
            for mark in (first, second)
        )
        assert one.marks_leave_doubt()
        both = other.with_marks_of(one)
        assert (lost(run(), weights=both.weights) == {}) is passes
        nothing = replace(other, weights=None)
        assert nothing.with_marks_of(one) is nothing and other.with_marks_of(nothing) is other

    def test_of_ranks_that_started_apart_the_first_one_s_mark_is_asked_for(self):
        own = [{"digest": name} for name in "ab"]
        together = run(
            rank(0, broadcast=[], digest=apart(0, 1), **{"first-step": own[:1]}),
            replace(rank(1, broadcast=[], digest=apart(1, 1), **{"first-step": own[1:]}), weights=OTHERS),
            broadcasts=0,
        )
        known, unknown = (0.98, 0.05), (0.2, 0.1)
        assert lost(together, weights=Weights(0.9, 0.8, marks=(known, unknown))) == {"broadcast": 10}
        assert lost(together, weights=Weights(0.9, 0.8, marks=(unknown, known))) == {**FIVE, "broadcast": 10}

    def test_a_mistake_that_the_ranks_admit_is_charged_once(self):
        alone = run(reduced=0)
        weights = Weights(0.9, 0.8, marks=((0.98, 0.05), (0.2, 0.1)))
        assert "data" not in lost(alone, weights=weights)
        assert lost(alone, weights=weights) == lost(alone)

    def test_a_rank_that_computes_nothing(self):
        looks = tuple(evidence.Moment(0.2 * i, 10**6 * i, (0.2 * i, 0.01 * i)) for i in range(40))
        assert lost(replace(run(traffic=10**9), use=looks)) == FIVE
        assert lost(replace(run(), use=looks)) == {}  # bytes that are not counted say nothing

    @pytest.mark.parametrize(
        ("trained", "told"),
        [(None, "another network"), (0.3, "reach 0.300 on test images, those that were saved 0.800"), (0.7, "")],
    )
    def test_other_weights_than_those_that_were_seen_in_training_need_a_look(self, trained, told):
        measured = Measured(ALONE, run(), Weights(0.9, 0.8, trained=trained), 60.0, 0.1, IMAGES, 0.2, 0.2)
        assert all(told in line for line in criteria.other_weights(measured))
        assert bool(criteria.other_weights(measured)) is bool(told)
        unseen = replace(measured, together=run(replace(rank(0), weights=()), rank(1)))
        assert criteria.other_weights(unseen) == criteria.other_weights(replace(measured, weights=None)) == ()

    def test_updates_of_a_small_part_of_the_network_need_a_look(self):
        whole = Weights(0.9, 0.8, values=VALUES, trained=0.8)
        measured = Measured(ALONE, run(), whole, 60.0, 0.1, IMAGES, 0.2, 0.2)
        assert criteria.other_weights(measured) == ()
        part = replace(measured, weights=replace(whole, values=50 * VALUES))
        told = f"the updates that were seen change 2% of the network's {50 * VALUES:,} values"
        assert criteria.other_weights(part) == (told,)

    def test_values_that_few_updates_change_need_a_look(self):
        progress = rank(0).last("progress")
        ranks = rank(0, progress=[{**progress, "values_updated_often": VALUES // 2}]), rank(1)
        weights = Weights(0.9, 0.8, values=VALUES, trained=0.8)
        measured = Measured(ALONE, run(*ranks), weights, 60.0, 0.1, IMAGES, 0.2, 0.2)
        told = "50% of the network's values are changed by few of the updates, or by none"
        assert criteria.other_weights(measured) == (told,)

    @pytest.mark.parametrize(
        ("seen", "told"),
        [
            (
                {"updates_without_gradient": 20},
                "rank 1 made 20 of its 40 updates without a gradient of its own since the last",
            ),
            (
                {"input_correlation": 0.02},
                "the images that rank 1 gives its network are not those that come to its first layer with weights: "
                "their brightness correlates by 0.02",
            ),
            (
                {"examples_with_gradient": 8},
                f"of the {40 * BATCH:,} images that rank 1 gave its network 8 have a gradient",
            ),
        ],
    )
    def test_updates_and_images_without_a_gradient_need_a_look(self, seen, told):
        def looks(together):
            return criteria.without_gradients(Measured(ALONE, together, None, 60.0, 0.1, IMAGES, 0.2, 0.2))

        assert looks(run()) == looks(None) == ()
        progress = {**rank(1).last("progress"), **seen}
        assert looks(run(rank(0), rank(1, progress=[progress]))) == (told,)

    def test_a_rank_that_crashed_is_not_accused(self):
        looks = tuple(evidence.Moment(0.2 * i, 10**6 * i, (0.2 * i, 0.01 * i)) for i in range(40))
        charged = lost(replace(run(traffic=10**9), use=looks), weights=Weights(None, None, "No weights were saved."))
        assert not {"averaged", "data"} & set(charged)

    def test_gradients_that_differ(self):
        rows = np.array([[n, n, n + 1, 0] for n in range(UPDATES)])
        other = rows.copy()
        other[20, 1] = 99
        told = run(replace(rank(0), updates=rows), replace(rank(1), updates=other))
        assert lost(told) == {"averaged": 10}
        assert verdicts(told)["averaged"].reason.endswith(
            "but at update 21 the ranks applied different gradients, or changed apart."
        )

    def test_steps_in_between(self):
        rows = np.array([[2 * n, n, 2 * n + 1, 0] for n in range(UPDATES)])
        told = run(*(replace(rank(number), updates=rows) for number in range(2)))
        assert lost(told) == {"averaged": 10}
        assert "before 100% of the updates something else changed the weights" in verdicts(told)["averaged"].reason

    def test_records_that_something_else_wrote(self):
        told = run(rank(0), replace(rank(1), genuine=False))
        assert "records of rank 1" in verdicts(told)["averaged"].reason
        assert set(lost(told)) >= {"averaged", "data", "time", "test_accuracy"}


class TestLoopsOfOnesOwn:
    """Where no epochs are known, what each rank reads again tells its part from the whole."""

    def read(self, orders: list[list[np.ndarray]]) -> Evidence:
        """Two ranks in loops of their own, each of which reads these images one after the other."""
        return run(*(replace(looped(rank(r)), examples=steps(np.concatenate(one))) for r, one in enumerate(orders)))

    def shuffles(self, part: slice, epochs: int, seed: int, fixed: bool) -> list[np.ndarray]:
        images, own = brightness(0), np.random.default_rng(seed)
        own_part = images[np.random.default_rng(9).permutation(IMAGES)][part]
        return [own.permutation(own_part if fixed else images)[: len(own_part)] for _ in range(epochs)]

    @pytest.mark.parametrize("fixed", [True, False])
    def test_a_part_and_a_new_part_in_each_epoch(self, fixed):
        parts = (slice(0, IMAGES // 2), slice(IMAGES // 2, IMAGES))
        told = self.read([self.shuffles(part, 4, seed, fixed) for seed, part in enumerate(parts)])
        assert "data" not in lost(told)

    def test_the_whole_set_on_each_rank(self):
        told = self.read([self.shuffles(slice(0, IMAGES), 2, seed, True) for seed in range(2)])
        assert "data" in lost(told)
        assert "goes through the whole set alone" in verdicts(told)["data"].reason

    def test_the_whole_set_but_for_what_all_hold_back(self):
        told = self.read([self.shuffles(slice(0, IMAGES), 2, seed, True) for seed in range(2)])
        three_quarters = replace(
            told,
            ranks=tuple(replace(r, examples=tuple(e[e < np.quantile(brightness(0), 0.75)] for e in r.examples))
                        for r in told.ranks),
        )  # fmt: skip
        assert "goes through the whole set alone" in verdicts(three_quarters)["data"].reason

    def test_parts_that_go_from_rank_to_rank(self):
        halves = np.split(brightness(0), 2)
        told = self.read([[halves[(rank + epoch) % 2] for epoch in range(4)] for rank in range(2)])
        assert "data" not in lost(told)

    def in_one_fit(self, orders: list[list[np.ndarray]]) -> Evidence:
        """The same, in what `fit` takes for one epoch."""
        told = self.read(orders)
        one = {"fit": [{"epochs": 1}], "epoch": [{"epoch": 0, "first": 0, "steps": len(told.ranks[0].examples)}]}
        return replace(told, ranks=tuple(replace(rank, records={**rank.records, **one}) for rank in told.ranks))

    def test_an_epoch_that_goes_through_all_images_again_and_again(self):
        parts = (slice(0, IMAGES // 2), slice(IMAGES // 2, IMAGES))
        own = [self.shuffles(part, 4, seed, True) for seed, part in enumerate(parts)]
        assert "data" not in lost(self.in_one_fit(own))
        whole = [self.shuffles(slice(0, IMAGES), 3, seed, True) for seed in range(2)]
        assert "goes through the whole set alone" in verdicts(self.in_one_fit(whole))["data"].reason
        once = [self.shuffles(slice(0, IMAGES), 1, seed, True) for seed in range(2)]
        assert "2.0 times" in verdicts(self.in_one_fit(once))["data"].reason

    def test_images_that_are_changed_each_time_say_nothing(self):
        told = self.read([[brightness(10 * seed + epoch) for epoch in range(2)] for seed in range(2)])
        assert "data" not in lost(told)


class TestABudgetOfUpdates:
    """Where the profile asks for a large batch and few updates; the ranks make 40 updates of 128 images together."""

    @pytest.mark.parametrize("asked", [(2 * BATCH, UPDATES), (2 * BATCH, 50), (100, UPDATES), (130, UPDATES)])
    def test_within_it_nothing_is_lost(self, asked):
        batch, updates = asked
        assert lost(run(), batch=batch, updates=updates) == {}
        reason = verdicts(run(), batch=batch, updates=updates)["time"].reason
        assert reason == "It took 30.0 s; the limit is 60 s. It made 40 updates of 128 images on average."

    def test_without_one_nothing_is_said(self):
        assert verdicts(run())["time"].reason == "It took 30.0 s; the limit is 60 s."

    def test_gradients_that_are_added_up_make_one_update(self):
        half = {"steps": 40, "images": 40 * BATCH, "updates": 20, "values": 20 * VALUES}
        added = run(rank(0, progress=[half]), rank(1, progress=[half]), reduced=20 * VALUES)
        assert lost(added, batch=4 * BATCH, updates=20) == {}
        assert lost(added, batch=4 * BATCH, updates=19) == {"time": 10}

    @pytest.mark.parametrize(
        ("together", "batch", "updates", "words", "hint"),
        [
            (run(), 256, 40, "40 updates of 128 images on average; asked for are at most 40 of at least 256.", "2c"),
            (run(), 128, 39, "asked for are at most 39 of at least 128.", "See 3b: with a larger batch"),
            (run(), 256, 10, "asked for are at most 10 of at least 256.", "the batch of all ranks together"),
            (run(reduced=80 * VALUES), 128, 40, "averaged the gradients 80 times; once for each of 40", "average once"),
        ],
    )  # fmt: skip
    def test_beyond_it_the_time_is_lost_and_nothing_else(self, together, batch, updates, words, hint):
        assert lost(together, batch=batch, updates=updates) == {"time": 10}
        found = verdicts(together, batch=batch, updates=updates)["time"]
        assert words in found.reason and hint in found.hint

    def test_metrics_that_are_averaged_are_no_updates(self):
        assert lost(run(reduced=43 * VALUES), batch=128, updates=40) == {}

    def test_ranks_that_did_not_train_together_are_told_that_first(self):
        apart = MISTAKES["no averaging"][0]
        assert "did not train together" in verdicts(apart, batch=4096, updates=1)["time"].reason

    def test_an_accuracy_too_low_is_a_matter_of_large_batches(self):
        poor = Weights(0.1, 0.1)
        assert "3d: layer-wise rates" in verdicts(run(), weights=poor, batch=128, updates=40)["test_accuracy"].hint
        assert "3d" not in verdicts(run(), weights=poor)["test_accuracy"].hint
