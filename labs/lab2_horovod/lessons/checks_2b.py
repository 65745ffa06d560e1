"""Checks of notebook 2b: the eight steps that turn a serial Keras script into a Horovod script, and its two partitions.

The steps are judged by the evidence of one short run of the learner's script on two ranks (`gather`), with settings
under which each omission shows: first weights differ between ranks, the number of images does not divide evenly, and
there are as many GPUs as ranks (pretended ones, so that a laptop can check the choice of GPU).
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from course_lib.notebook import answers, conduct
from course_lib.notebook.conduct import with_end
from course_lib.notebook.exercises import Exercise
from course_lib.notebook.judging import Criterion, Wrong, judge
from course_lib.notebook.report import Report, Ticker
from course_lib.ranks import launch
from course_lib.ranks.evidence import Evidence, collect

RANKS = 2
SLICE = 1598  # images, of which the script holds back a fifth for validation
IMAGES = 1279  # the others: 20 batches for one rank and 19 for the other, where nobody takes care
BATCH_SIZE = 32
EPOCHS = 2
LEARNING_RATE = 0.01  # on one rank
TIME_LIMIT_S = 240.0
PATIENCE_S = 20.0  # without a step; after that the ranks are deadlocked

MAX_KEPT = 0.8  # of the images that a rank reads in an epoch, those that it has read in the last; shuffled anew: a half

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
                ["--epochs", EPOCHS, "--batch-size", BATCH_SIZE, "--lr", LEARNING_RATE, "--seed", 0],
                RANKS,
                controller=controller,
                timeout=TIME_LIMIT_S,
                cwd=folder,
                patience=PATIENCE_S,
                on_event=on_event,
                env={"COURSE_SLICE": str(SLICE), "COURSE_FAKE_GPUS": str(RANKS)},
            )
    return _gathered[key]


def check(step: str | None = None, script: str | Path = "fashion_mnist.py") -> Report:
    """Run the script on two ranks and report on all steps; with `step`, that one comes first, with its hint."""
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


# The steps that are this notebook's own; the others are the rules of `conduct`


def _scaled_rate(evidence: Evidence) -> str:
    _require_joined(evidence)
    ends = [rank.last("fit-end") for rank in evidence.ranks]
    if not all(ends):
        raise Wrong(with_end("No learning rate was seen: training did not start on every rank.", evidence))
    rates = [end["learning_rate"] for end in ends]
    scaled = LEARNING_RATE * evidence.size
    if np.allclose(rates, scaled, rtol=1e-4):
        return f"The learning rate is {scaled:g}: {LEARNING_RATE:g} times {evidence.size} ranks."
    if np.allclose(rates, LEARNING_RATE, rtol=1e-4):
        larger = f"each step averages over {evidence.size} times as many images."
        raise Wrong(f"The learning rate is still {LEARNING_RATE:g}, but {larger}")
    if not np.allclose(rates, rates[0], rtol=1e-4):
        told = ", ".join(f"{rate:g}" for rate in rates)
        raise Wrong(f"The ranks train with different learning rates: {told}.")
    rule = f"linear scaling makes it {LEARNING_RATE:g} × {evidence.size} = {scaled:g}."
    raise Wrong(f"The learning rate is {rates[0]:g}; {rule}")


def _averaged(evidence: Evidence) -> str:
    reduced = conduct.reductions(evidence)
    if not reduced.complete:
        raise Wrong(reduced.lack)
    return f"{reduced}: every step averages every gradient."


def _shared_out(evidence: Evidence) -> str:
    told = conduct.own_images(evidence, IMAGES, max_epochs=1.0)
    read = sum(len(rank.epoch_examples(0)) for rank in evidence.ranks)
    if read < IMAGES - 2 * BATCH_SIZE * RANKS:
        raise Wrong(with_end(f"Together the ranks read only {read:,} of {IMAGES:,} images in an epoch.", evidence))
    again = [np.isin(rank.epoch_examples(1), rank.epoch_examples(0)) for rank in evidence.ranks]
    if all(len(known) and known.mean() > MAX_KEPT for known in again):
        kept = "Each rank reads the same images in every epoch, in another order."
        raise Wrong(f"{kept} Cut what has been shuffled: shard after the shuffle.", 0.5)
    return told


def _one_voice(evidence: Evidence) -> str:
    savers = [rank.rank for rank in evidence.ranks if rank.records.get("save")]
    conduct.one_saves(evidence, savers, "the trained network", "No rank saved the trained network.")
    talkers = [rank for rank in evidence.ranks[1:] if rank.printed]
    if talkers:
        line = talkers[0].printed[0].strip()
        raise Wrong(f"Only rank 0 saves, but rank {talkers[0].rank} prints too: “{line}”.", 0.5)
    return "Only rank 0 saves and prints."


def _averaged_metrics(evidence: Evidence) -> str:
    _require_joined(evidence)
    logs = [[record["logs"] for record in rank.records.get("epoch", ())] for rank in evidence.ranks]
    if not all(logs):
        raise Wrong(with_end("No epoch's metrics were seen on every rank.", evidence))
    for epoch, told in enumerate(zip(*logs)):
        for name in told[0]:
            if len({metrics.get(name) for metrics in told}) > 1:
                values = " and ".join(f"{metrics.get(name, float('nan')):.4f}" for metrics in told)
                where = f"{name} after epoch {epoch + 1}"
                raise Wrong(f"The ranks report different values of {where} ({values}): each knows only its own part.")
    if not any("grad" not in tensor for tensor in evidence.operations.get("ALLREDUCE", ())):
        raise Wrong("No metric was averaged over the ranks.")
    return "Every rank reports the same metrics, averaged over all ranks."


def _require_joined(evidence: Evidence) -> None:
    if not evidence.joined:
        raise Wrong("The ranks do not know of each other yet: begin with step 1.")


STEPS = (
    Criterion(
        "init",
        "1 Initialise Horovod",
        1,
        conduct.initialised,
        "See Step 1: import horovod.tensorflow.keras as hvd, then hvd.init().",
    ),
    Criterion(
        "gpu",
        "2 One GPU for each rank",
        1,
        conduct.one_gpu_each,
        "See Step 2: tf.config.set_visible_devices and hvd.local_rank().",
    ),
    Criterion(
        "rate",
        "3 Scale the learning rate",
        1,
        _scaled_rate,
        "See Step 3: N ranks average over N times as many images.",
    ),
    Criterion(
        "optimizer",
        "4 Average the gradients",
        2,
        _averaged,
        "See Step 4: wrap the optimizer before model.compile.",
    ),
    Criterion(
        "broadcast",
        "5 Start from the same weights",
        1,
        conduct.same_start,
        "See Step 5: a callback broadcasts rank 0's variables.",
    ),
    Criterion(
        "data",
        "6 Share out the data",
        2,
        _shared_out,
        "See Step 6: shard the data set, and give all ranks equally many batches.",
    ),
    Criterion(
        "rank0",
        "7 One rank saves and prints",
        1,
        _one_voice,
        "See Step 7: only rank 0 gets the checkpoint callback and verbose=2.",
    ),
    Criterion(
        "metrics",
        "8 Average the metrics",
        1,
        _averaged_metrics,
        "See Step 8: hvd.callbacks.MetricAverageCallback().",
    ),
)


# Step 6: the two ways to share out the images, as functions


Partition = Callable[[int, int, int, int], np.ndarray]  # (images, rank, size, epoch) → indices of images

PARTITION_CASES = ((96, 1), (96, 2), (1279, 2), (1000, 3), (50, 7))  # images, ranks; some do not divide evenly
PARTITION_EPOCHS = 3


def check_partition(function: Partition, option: int) -> Report:
    """Report on a learner's function for `option` (1 or 2)."""
    return PARTITIONS[option].report(function)


def partition_points(function: Partition, option: int, maximum: float) -> float:
    """Points between 0 and `maximum`; where some are lost, print the reason. A function that raises gets none."""
    return PARTITIONS[option].points(function, maximum)


def _partition(require_shuffle: Callable[[Partition, int, int], None], right: str) -> Callable[[Partition], str]:
    """A judge: half of the points go to equal, valid parts, half to the right shuffle."""

    def judge(function: Partition) -> str:
        for require, share in ((_require_equal_parts, 0.0), (require_shuffle, 0.5)):
            for images, size in PARTITION_CASES:
                try:
                    require(function, images, size)
                except Wrong as wrong:
                    raise Wrong(f"{images:,} images, {size} ranks: {wrong}", share) from None
        return f"Equal parts, shuffled anew in each epoch, {right}"

    return judge


def _parts(function: Partition, images: int, size: int, epoch: int) -> list[np.ndarray]:
    return [np.asarray(answers.returned(function(images, rank, size, epoch))) for rank in range(size)]


def _require_equal_parts(function: Partition, images: int, size: int) -> None:
    for epoch in range(PARTITION_EPOCHS):
        parts = _parts(function, images, size, epoch)
        for rank, part in enumerate(parts):
            if part.ndim != 1 or not np.issubdtype(part.dtype, np.integer):
                got = f"{part.dtype} of shape {part.shape}"
                raise Wrong(f"rank {rank} gets {got}; it should be a list of whole numbers.")
            if len(part) and (part.min() < 0 or part.max() >= images):
                raise Wrong(f"rank {rank} reads image {part.max()}, but the last one is {images - 1}.")
            if len(np.unique(part)) < len(part):
                raise Wrong(f"rank {rank} reads some images twice in an epoch: draw without replacement.")
        lengths = [len(part) for part in parts]
        if len(set(lengths)) > 1:
            raise Wrong(f"the ranks read {lengths} images: unequal parts end in a deadlock.")
        if lengths[0] != images // size:
            raise Wrong(f"each rank reads {lengths[0]} images in place of {images // size}.")
        if any(not np.array_equal(a, b) for a, b in zip(parts, _parts(function, images, size, epoch))):
            raise Wrong(
                "asked twice, the function answers differently: the ranks could not agree on a shuffle; seed it."
            )


def _require_one_shuffle(function: Partition, images: int, size: int) -> None:
    epochs = [_parts(function, images, size, epoch) for epoch in range(PARTITION_EPOCHS)]
    for parts in epochs:
        if len(np.unique(np.concatenate(parts))) < sum(map(len, parts)):
            raise Wrong("some images are read by two ranks: all ranks must cut the same shuffle.")
    _require_reshuffled(epochs, size)


def _require_own_shuffles(function: Partition, images: int, size: int) -> None:
    epochs = [_parts(function, images, size, epoch) for epoch in range(PARTITION_EPOCHS)]
    for parts in epochs:
        if any(np.array_equal(parts[0], other) for other in parts[1:]):
            raise Wrong("ranks read the same images in the same order: seed each rank's shuffle differently.")
        together = len(np.unique(np.concatenate(parts)))
        if size > 1 and together == sum(map(len, parts)) and images > 100:
            raise Wrong(
                "no image is read by two ranks: that is option 1; here each rank shuffles the whole set by itself."
            )
    if size > 1 and any(
        np.array_equal(one, other) for now, then in zip(epochs, epochs[1:]) for one in now for other in then
    ):
        raise Wrong("a rank reads in the next epoch what another has just read: seed with both numbers, not their sum.")
    _require_reshuffled(epochs, size)


def _require_reshuffled(epochs: list[list[np.ndarray]], size: int) -> None:
    first, second = epochs[0], epochs[1]
    if np.array_equal(first[0], second[0]):
        raise Wrong("epoch 1 has the same order as epoch 0: shuffle anew in each epoch.")
    if size > 1 and all(set(a) == set(b) for a, b in zip(first, second)):
        raise Wrong("each rank keeps the same images in every epoch: shuffle before you cut.")
    if np.array_equal(first[0], np.sort(first[0])):
        raise Wrong("the images come in their stored order: shuffle them.")


PARTITIONS = {
    1: Exercise(
        "option_1",
        Criterion(
            "option1",
            "Option 1: one shuffle for all, cut into parts",
            1,
            _partition(_require_one_shuffle, "and no image read twice."),
        ),
    ),
    2: Exercise(
        "option_2",
        Criterion(
            "option2",
            "Option 2: every rank shuffles for itself",
            1,
            _partition(_require_own_shuffles, "by every rank in its own way."),
        ),
    ),
}
