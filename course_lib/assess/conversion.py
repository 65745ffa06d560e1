"""The eight steps that turn a serial Keras script into a Horovod script, each as a criterion on evidence.

The evidence comes from one short run of the learner's script on two ranks (`gather`), with settings under which
each omission shows: first weights differ between ranks, the number of images does not divide evenly, and there
are as many GPUs as ranks (pretended ones, so that a laptop can check the choice of GPU).
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from course_lib import launch
from course_lib.assess.criteria import Criterion, judge
from course_lib.assess.evidence import Evidence, collect
from course_lib.assess.report import Report

RANKS = 2
IMAGES = 1279  # 20 batches for one rank and 19 for the other, where nobody takes care
BATCH = 32
EPOCHS = 2
RATE = 0.01
TIMEOUT = 240.0  # seconds
PATIENCE = 20.0  # seconds without a step after which the ranks are deadlocked

_ALONE = "The ranks do not know of each other yet: begin with step 1."

_gathered: dict[str, Evidence] = {}


def gather(
    script: str | Path = "fashion_mnist.py",
    *,
    controller: str | None = None,
    on_event: Callable[[launch.Event], None] | None = None,
) -> Evidence:
    """Run `script` on two ranks on a small slice of the data; a script that did not change is not run again.

    Raises CourseError where there is no such script or no Horovod.
    """
    path = Path(script).absolute()
    key = f"{path}:{controller}:{hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ''}"
    if key not in _gathered:
        with tempfile.TemporaryDirectory(prefix="check-") as folder:
            _gathered[key] = collect(
                path,
                ["--epochs", EPOCHS, "--batch-size", BATCH, "--lr", RATE, "--seed", 0],
                RANKS,
                controller=controller,
                timeout=TIMEOUT,
                cwd=folder,
                patience=PATIENCE,
                on_event=on_event,
                env={"COURSE_SLICE": str(IMAGES), "COURSE_FAKE_GPUS": str(RANKS)},
            )
    return _gathered[key]


def check(step: str | None = None, script: str | Path = "fashion_mnist.py") -> Report:
    """Run the script on two ranks and report on all steps; with `step`, that one comes first, with its hint."""
    from course_lib.assess.report import Ticker

    with Ticker(f"{Path(script).name} runs on {RANKS} ranks, {IMAGES:,} images") as ticker:
        evidence = gather(script, on_event=ticker.follow)
    return Report(judge(evidence, STEPS), focus=step, error=_error(evidence))


def points(step: str, script: str | Path = "fashion_mnist.py") -> float:
    """Points of one step, between 0 and its maximum; where some are lost, print the reason."""
    evidence = gather(script)
    verdict = next(criterion for criterion in STEPS if criterion.id == step)(evidence)
    if not verdict.passed:
        print(verdict.reason)
    return float(verdict.points)


def _error(evidence: Evidence) -> str:
    """What went wrong with the run as a whole, with the last lines of the rank that failed first."""
    result = evidence.result
    if not result.code:
        return ""
    return "\n".join([result.message, *result.tail[-8:]])


def _ended(evidence: Evidence) -> str:
    return "" if not evidence.result.code else f" The script did not run to its end: {evidence.result.message}"


def _each_rank(evidence: Evidence, kind: str) -> list[dict | None]:
    return [rank.last(kind) for rank in evidence.ranks]


def _init(evidence: Evidence) -> tuple[float, str]:
    inits = _each_rank(evidence, "init")
    if not any(inits):
        return (
            0,
            f"No process called hvd.init(): they are {evidence.size} strangers, each rank 0 of 1." + _ended(evidence),
        )
    if not all(inits):
        return 0, f"Rank {inits.index(None)} never called hvd.init()." + _ended(evidence)
    sizes = {record["size"] for record in inits}
    if sizes != {evidence.size}:
        return 0, f"The ranks found {sorted(sizes)} processes in place of {evidence.size}."
    return 1, f"All {evidence.size} ranks found each other."


def _gpu(evidence: Evidence) -> tuple[float, str]:
    inits, chosen = _each_rank(evidence, "init"), _each_rank(evidence, "gpus")
    if not all(inits) or not any(chosen):
        return 0, "Every rank sees all GPUs of the host, so that all would train on the first one."
    for rank, (init, record) in enumerate(zip(inits, chosen)):
        visible = [name.rpartition(":")[2] for name in record["visible"]] if record else ["all"]
        if visible != [str(init["local_rank"])]:
            return (
                0,
                f"Rank {rank} keeps GPU {', '.join(visible) or 'none'} in place of {init['local_rank']}, its own.",
            )
    return 1, "Each rank keeps the GPU with the number of its local rank, and no other."


def _rate(evidence: Evidence) -> tuple[float, str]:
    ends = _each_rank(evidence, "fit-end")
    if not all(_each_rank(evidence, "init")):
        return 0, _ALONE
    if not all(ends):
        return 0, "No learning rate was seen: training did not start on every rank." + _ended(evidence)
    rates = [end["learning_rate"] for end in ends]
    want = RATE * evidence.size
    if np.allclose(rates, want, rtol=1e-4):
        return 1, f"The learning rate is {want:g}: {RATE:g} times {evidence.size} ranks."
    if np.allclose(rates, RATE, rtol=1e-4):
        return (
            0,
            f"The learning rate is still {RATE:g}, but each step averages over {evidence.size} times as many images.",
        )
    if not np.allclose(rates, rates[0], rtol=1e-4):
        return (
            0,
            f"The ranks train with different learning rates: {', '.join(f'{rate:g}' for rate in rates)}.",
        )
    return (
        0,
        f"The learning rate is {rates[0]:g}; linear scaling makes it {RATE:g} × {evidence.size} = {want:g}.",
    )


def _optimizer(evidence: Evidence) -> tuple[float, str]:
    first = evidence.ranks[0].first("first-step")
    reductions = evidence.reductions("grad")
    if not reductions:
        return 0, "No gradient was all-reduced: each rank trains a network of its own." + _ended(evidence)
    if not first:
        return 0, "Gradients were all-reduced, but rank 0 never came to the end of a step." + _ended(evidence)
    steps, variables = sum(evidence.ranks[0].epochs), first["trainable"]
    want, done = steps * variables, sum(reductions.values())
    if done < want:
        return 0, f"{done} gradients were all-reduced in place of {want} ({steps} steps × {variables} variables)."
    return 1, f"The gradients of all {variables} variables were all-reduced in each of {steps} steps."


def _broadcast(evidence: Evidence) -> tuple[float, str]:
    first = _each_rank(evidence, "first-step")
    if evidence.broadcasts == 0:
        return 0, "Nothing was broadcast: the ranks start from different random weights and never agree."
    if first[0] and evidence.broadcasts < first[0]["weights"]:
        return 0, f"{evidence.broadcasts} of {first[0]['weights']} variables were broadcast from rank 0."
    if None in first or len({record["digest"] for record in first}) > 1:
        return (
            0,
            "There was a broadcast, but after the first step the ranks still held different weights."
            + _ended(evidence),
        )
    return 1, "Rank 0's variables were broadcast; after the first step all ranks held the same weights."


def _data(evidence: Evidence) -> tuple[float, str]:
    if not all(_each_rank(evidence, "init")):
        return 0, "Every process reads all the images, as if it were alone."
    # What Keras expects of the data set is known even where the ranks never come to the end of it.
    expected = [record and record["steps"] for record in _each_rank(evidence, "fit")]
    steps = [rank.epochs[0] if rank.epochs else known for rank, known in zip(evidence.ranks, expected)]
    if None in steps:
        return 0, "Not every rank read training images." + _ended(evidence)
    if len(set(steps)) > 1:
        ran = ", ".join(f"rank {rank.rank}: {n}" for rank, n in zip(evidence.ranks, steps))
        return 0, f"Unequal numbers of batches ({ran}): the rank with more waits for the others for ever."
    if any(not rank.epochs for rank in evidence.ranks):
        return 0, "The ranks never came to the end of an epoch." + _ended(evidence)
    same = [
        np.isin(mine, theirs).mean()
        for mine, theirs in zip(evidence.ranks[0].examples, evidence.ranks[1].examples)
        if len(mine) and len(theirs)
    ]
    read = sum(len(rank.epoch_examples(0)) for rank in evidence.ranks)
    if same and np.mean(same) > 0.5:
        return (
            0,
            f"In the same step the ranks read the same images ({np.mean(same):.0%} of a batch): nothing is shared.",
        )
    if read > IMAGES:
        return (
            0,
            f"Together the ranks read {read:,} images in an epoch of {IMAGES:,}: no rank reads less than before.",
        )
    if read < IMAGES - 2 * BATCH * evidence.size:
        return 0, f"Together the ranks read only {read:,} of {IMAGES:,} images in an epoch."
    return 1, f"Each rank read its own {read // evidence.size:,} images of the epoch in {steps[0]} batches."


def _rank0(evidence: Evidence) -> tuple[float, str]:
    if not all(_each_rank(evidence, "init")):
        return 0, "Every process prints and saves, all to the same file."
    savers = [rank.rank for rank in evidence.ranks if rank.records.get("save")]
    if not savers:
        return 0, "No rank saved the trained network." + _ended(evidence)
    if savers != [0]:
        return 0, f"Ranks {', '.join(map(str, savers))} saved the network; only rank 0 should."
    talkers = [rank for rank in evidence.ranks[1:] if rank.printed]
    if talkers:
        return (
            0.5,
            f"Only rank 0 saves, but rank {talkers[0].rank} prints too: “{talkers[0].printed[0].strip()}”.",
        )
    return 1, "Only rank 0 saves and prints."


def _metrics(evidence: Evidence) -> tuple[float, str]:
    logs = [[record["logs"] for record in rank.records.get("epoch", ())] for rank in evidence.ranks]
    if not all(_each_rank(evidence, "init")):
        return 0, _ALONE
    if not all(logs):
        return 0, "No epoch's metrics were seen on every rank." + _ended(evidence)
    averages = sum(n for name, n in evidence.operations.get("ALLREDUCE", {}).items() if "grad" not in name)
    for epoch, told in enumerate(zip(*logs)):
        for name in told[0]:
            if len({metrics.get(name) for metrics in told}) > 1:
                seen = " and ".join(f"{metrics.get(name, float('nan')):.4f}" for metrics in told)
                where = f"{name} after epoch {epoch + 1}"
                return 0, f"The ranks report different values of {where} ({seen}): each knows only its own part."
    if not averages:
        return 0, "No metric was averaged over the ranks."
    return 1, "Every rank reports the same metrics, averaged over all ranks."


STEPS = (
    Criterion(
        "init",
        "1 Initialise Horovod",
        1,
        _init,
        "See Step 1: import horovod.tensorflow.keras as hvd, then hvd.init().",
    ),
    Criterion(
        "gpu",
        "2 One GPU for each rank",
        1,
        _gpu,
        "See Step 2: tf.config.set_visible_devices and hvd.local_rank().",
    ),
    Criterion(
        "rate",
        "3 Scale the learning rate",
        1,
        _rate,
        "See Step 3: N ranks average over N times as many images.",
    ),
    Criterion(
        "optimizer",
        "4 Average the gradients",
        2,
        _optimizer,
        "See Step 4: wrap the optimizer before model.compile.",
    ),
    Criterion(
        "broadcast",
        "5 Start from the same weights",
        1,
        _broadcast,
        "See Step 5: a callback broadcasts rank 0's variables.",
    ),
    Criterion(
        "data",
        "6 Share out the data",
        2,
        _data,
        "See Step 6: shard the data set, and give all ranks equally many batches.",
    ),
    Criterion(
        "rank0",
        "7 One rank saves and prints",
        1,
        _rank0,
        "See Step 7: only rank 0 gets the checkpoint callback and verbose=2.",
    ),
    Criterion("metrics", "8 Average the metrics", 1, _metrics, "See Step 8: hvd.callbacks.MetricAverageCallback()."),
)
