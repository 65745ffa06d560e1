"""The rules of distributed training, as judges of the record of a run.

Notebook 2b applies them to a short run, the assessment to a whole training. As `Criterion` requires, a judge returns a
sentence that says what is right, or raises `Wrong`. It raises `NotSeen` if the record does not show whether the script
follows the rule.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from course_lib.notebook.judging import Wrong
from course_lib.ranks.launch import Result
from course_lib.ranks.messages import waiting
from course_lib.ranks.run_record import RankRecord, RunRecord
from course_lib.system.supervise import TIMED_OUT

COMPLETE_SHARE = 0.95  # gradients count as fully reduced from this fraction of an update's values on
UNREDUCED_SHARE = 0.02  # a smaller fraction of an update's values can only be averages of metrics
# If the brightness of the examples on two ranks correlates more than this, both read the same images in the same step.
# Measured on CIFAR-10. Same images, augmented at random on each rank: reflected 1.00, shifted by up to 4 pixels 0.95,
# a quarter cut out 0.93, contrast times 0.8 to 1.2 0.82, brightness ± a fifth of white 0.51; with each image
# standardised: reflected 1.00, shifted 0.63, cut out 0.62. Different images, standardised or not, maximum of 300 random
# samples: 0.11 with 640 images, 0.20 with 256.
SAME_IMAGES_CORRELATION = 0.4
MIN_EXAMPLES = 256  # minimum number of examples for a correlation or an overlap
MAX_OVERLAP = 0.75  # of the images in a rank's first epoch that another rank also reads; with option 2 it is 1 / ranks
DRAWN_TWICE = 0.1  # of an epoch's images read twice; if two ranks draw a half each at random, it is a quarter
MIN_JOINED = 0.75  # of the most steps of any rank: a rank that joins earlier has too few batches
SPARE_STEPS = 0.01  # of a rank's steps: allowed difference between ranks at the end of a run


class NotSeen(Wrong):
    """The record does not show whether the script follows a rule."""


# How a run ended


def failure(result: Result) -> str:
    """The message of a failed run, with the reason of the failed rank: the line that names its exception."""
    lines = [line.strip() for line in result.tail if line.strip()]
    # "[[" starts TensorFlow's position in its graph; a shell prints "Terminated" when its program is ended.
    lines = [line for line in lines if not line.startswith("[[") and line != "Terminated"] or lines
    exceptions = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Interrupt)\b", line)]
    reason = result.reason or next(reversed(exceptions or lines), "")
    return f"{result.message.rstrip('.')}: {reason}" if reason else result.message


def early_end(result: Result) -> str:
    """A sentence on why a run ended early; "" for a complete run."""
    if not result.code:
        return ""
    end = failure(result) if result.failed_rank is not None else result.message
    return f"{result.cause} {end}".lstrip()


def with_end(sentence: str, record: RunRecord) -> str:
    """A sentence, followed by `early_end` if the run ended early."""
    return f"{sentence} {early_end(record.result)}".rstrip()


def deadlocked(result: Result) -> bool:
    """Whether the run was stopped because its ranks waited for each other."""
    return result.code == TIMED_OUT and "wait for each other" in result.message


def named(numbers: Sequence[int]) -> str:
    """The text for some ranks at the start of a sentence: "Ranks 0 and 1"."""
    return waiting.named(numbers).capitalize()


# The rules


def initialised(record: RunRecord) -> str:
    """Rule: all ranks call `hvd.init()` and are connected."""
    inits = [rank.last("init") for rank in record.ranks]
    if not any(inits):
        nobody = f"No process called hvd.init(): the {record.size} processes do not know of each other."
        raise Wrong(with_end(nobody if record.size > 1 else "The script never called hvd.init().", record))
    if not all(inits):
        raise Wrong(with_end(f"Rank {inits.index(None)} never called hvd.init().", record))
    if not record.joined:
        sizes = sorted({str(init.get("size")) for init in inits})
        raise Wrong(f"The ranks found {' and '.join(sizes)} processes, but there are {record.size}.")
    return f"All {record.size} ranks found each other." if record.size > 1 else "The one rank called hvd.init()."


def one_gpu_each(record: RunRecord) -> str:
    """Rule: for each rank only the GPU with the number of its local rank is visible."""
    choices = [rank.last("gpus") for rank in record.ranks]
    if not any(choices) and record.result.code and not record.trained:
        raise NotSeen(with_end("The run ended before any rank chose a GPU.", record))
    if not any(choices):
        raise Wrong("Every rank sees all GPUs of the host, so all ranks would train on the first one.")
    visible = [[str(name).rpartition(":")[2] for name in _list(choice)] if choice else ["all"] for choice in choices]
    by_rank = visible == [[str(rank.rank)] for rank in record.ranks]
    for rank, own_choice in zip(record.ranks, visible):
        own = (rank.last("init") or {}).get("local_rank")
        if by_rank and own not in (None, rank.rank):
            raise Wrong(
                f"Rank {rank.rank} keeps GPU {rank.rank}, the number of its rank; it should keep GPU {own}, the number "
                "of its local rank (its place on its host)."
            )
        if own is None or own_choice != [str(own)]:
            kept = "all GPUs" if own_choice == ["all"] else f"GPU {', '.join(own_choice)}" if own_choice else "no GPU"
            place = "a GPU of its own" if own is None else f"GPU {own}"
            raise Wrong(f"Rank {rank.rank} keeps {kept}; it should keep only {place}.")
    return "Each rank keeps the GPU with the number of its local rank, and no other."


def _list(choice: dict) -> list:
    names = choice.get("visible")
    return names if isinstance(names, list) else []


@dataclass(frozen=True)
class Reductions:
    """Gradient values per update and reduced values per update, and the number of updates."""

    needed: int
    reduced: int
    updates: int

    @property
    def complete(self) -> bool:
        """Whether all gradients were reduced."""
        return self.reduced >= COMPLETE_SHARE * self.needed

    def __str__(self) -> str:
        reduced = min(self.reduced, self.needed)
        return f"{reduced:,} of {self.needed:,} gradient values were averaged in each of {self.updates:,} updates"


def reductions(record: RunRecord) -> Reductions:
    """The gradient values that the ranks reduced per update. Raises `Wrong` if they are nearly none."""
    if not record.joined:
        raise Wrong("The ranks do not know of each other, so nothing can be averaged.")
    if not record.trained:
        raise NotSeen(with_end("No training step was seen on any rank.", record))
    needed, updates = max(map(_needed, record.ranks))
    if record.size == 1:
        return Reductions(needed, needed, updates)
    reduced = min(_reduced(rank, updates) for rank in record.ranks)
    if reduced < UNREDUCED_SHARE * needed:
        raise Wrong(with_end("No gradients were all-reduced: each rank trains a network of its own.", record))
    return Reductions(needed, reduced, updates)


def _needed(rank: RankRecord) -> tuple[int, int]:
    """The average number of values that an update of this rank changes, and its number of updates."""
    updates = rank.number("progress", "updates")
    if updates:
        return max(1, rank.number("progress", "values") // updates), updates
    return max(1, rank.values), max(1, rank.number("progress", "steps"))  # without a Keras optimizer


def _reduced(rank: RankRecord, updates: int) -> int:
    """The number of values that this rank reduced per update, in graphs or eagerly."""
    reducing = [record for record in rank.all("collective") if record.get("operation") != "broadcast"]
    in_graphs, eager = (
        sum(n for one in reducing if one.get("graph") is graph and isinstance(n := one.get("floating"), int))
        for graph in (True, False)
    )
    return in_graphs + eager // max(1, updates)


def averaged(record: RunRecord) -> str:
    """Rule: every update uses the average of all gradients, so that equal weights stay equal."""
    reduced = reductions(record)
    moments = record.agreement()
    apart = next((updates for updates, equal in moments if not equal), None)
    if not reduced.complete:
        raise Wrong(f"Only {reduced}.", 0.0 if apart else 0.5)
    if apart and started_apart(record):
        return f"{reduced}. The ranks hold different weights only because they started with different weights."
    if apart:
        raise Wrong(f"{reduced}, but after update {apart:,} the ranks held different weights.", 0.5)
    return f"{reduced}" + ("; all ranks held the same weights." if moments else ".")


def started_apart(record: RunRecord) -> bool:
    """Whether the weights of the ranks differ in the first digest of all ranks."""
    moments = record.agreement()
    return bool(moments) and not moments[0][1]


def same_start(record: RunRecord) -> str:
    """Rule: all ranks have the same weights from the first step on."""
    if not record.joined:
        raise Wrong("The ranks do not know of each other, so nothing can be broadcast.")
    if record.size == 1:
        return "There is only one rank."
    moments = record.agreement()
    firsts = [rank.first("first-step") for rank in record.ranks]
    digests = {str(first.get("digest")) for first in firsts if first}
    if (moments and moments[0][1]) or (all(firsts) and len(digests) == 1):
        return "All ranks held the same weights after the first steps."
    if moments or (all(firsts) and len(digests) > 1):
        if why := _why_no_broadcast(record):
            raise Wrong(with_end(why, record))
        raise Wrong("There was a broadcast, but after the first steps the ranks held different weights.")
    raise NotSeen(with_end("The log does not show the weights of all ranks.", record))


def broadcast(record: RunRecord) -> str:
    """Rule: rank 0's weights are broadcast, so that all ranks have the same weights from the first step on."""
    if record.joined and record.size > 1 and (why := _why_no_broadcast(record)):
        raise Wrong(with_end(why, record))
    return same_start(record)


def broadcasters(record: RunRecord) -> list[int]:
    """The ranks that entered a broadcast."""
    return [rank.rank for rank in record.ranks if rank.total("collective", "values", operation="broadcast")]


def _why_no_broadcast(record: RunRecord) -> str:
    asked = broadcasters(record)
    if not asked:
        return "Nothing was broadcast: the ranks start from different random weights and never agree."
    if len(asked) < record.size:
        return f"Nothing was broadcast: only {named(asked).lower()} called the broadcast; all ranks must call it."
    if "root rank" in "\n".join(record.result.tail).lower():
        return "Nothing was broadcast: the ranks gave different root ranks. All ranks must give the same root rank."
    return ""


def own_images(record: RunRecord, images: int, max_epochs: float) -> str:
    """Rule: each rank reads its own part of the images, and all ranks read the same number of batches.

    Args:
        images: number of training images.
        max_epochs: the ranks together may read at most max_epochs · images in one epoch of `fit`.
    """
    if not record.joined:
        raise Wrong("Every process reads all the images, as if it were alone.")
    if unread := [rank.rank for rank in record.ranks if not rank.examples]:
        raise NotSeen(with_end(f"{named(unread)} read no training images.", record))
    _require_equal_batches(record)
    _require_other_images(record)
    _require_no_more_than(record, images, max_epochs)
    _require_other_parts(record, images)
    read = sum(len(step) for rank in record.ranks for step in rank.examples)
    together = f"together {read:,} in {len(record.ranks[0].examples):,} steps"
    parts = _first_parts(record, images)
    if len(np.unique(np.concatenate(parts))) < (1 - DRAWN_TWICE) * sum(map(len, parts)):
        repeated = "some images are read twice in an epoch and some not at all"
        return f"Independently of the others, each rank drew as many images as its share, so {repeated}; {together}."
    return f"Each rank read its own images, {together}."


def _require_equal_batches(record: RunRecord) -> None:
    expected = [(rank.last("fit") or {}).get("steps") for rank in record.ranks]
    for epoch in range(max(len(rank.epochs) for rank in record.ranks) or 1):
        steps = [rank.epochs[epoch] if epoch < len(rank.epochs) else n for rank, n in zip(record.ranks, expected)]
        if None not in steps and len(set(steps)) > 1:
            raise Wrong(f"Unequal numbers of batches in an epoch {_unequal(steps)}")
    if record.result.code:  # in a run that was stopped, some ranks may be some steps ahead
        return
    steps = [len(rank.examples) for rank in record.ranks]
    if all(rank.all("join") for rank in record.ranks):
        # After hvd.join, a finished rank contributes zeros to the reductions of the others.
        if min(steps) < MIN_JOINED * max(steps):
            raise Wrong(f"Unequal numbers of batches {_unequal(steps, 'a rank that is done contributes only zeros')}")
    elif max(steps) - min(steps) > SPARE_STEPS * max(steps):
        raise Wrong(f"Unequal numbers of batches {_unequal(steps)}")


def _unequal(steps: Sequence[int], effect: str = "the rank with more batches waits forever for the others") -> str:
    ran = ", ".join(f"rank {rank}: {n}" for rank, n in enumerate(steps))
    return f"({ran}): {effect}."


def _require_other_images(record: RunRecord) -> None:
    """Raise `Wrong` if two ranks read the same images in the same step."""
    for one, other in combinations(record.ranks, 2):
        pairs = [(a, b) for a, b in zip(one.examples, other.examples) if len(a) and len(b)]
        if not pairs:
            continue
        same = np.mean([np.isin(*sorted(pair, key=len)).mean() for pair in pairs])
        who = f"ranks {one.rank} and {other.rank}"
        if same > 0.5:
            raise Wrong(
                f"In the same step {who} read the same images ({same:.0%} of a batch): the work is not divided."
            )
        alike = [(a, b) for a, b in pairs if len(a) == len(b)]
        if sum(len(a) for a, _ in alike) < MIN_EXAMPLES:
            continue
        mine, theirs = (np.concatenate(side).astype(float) for side in zip(*alike))
        with np.errstate(all="ignore"):
            correlation = np.corrcoef(mine, theirs)[0, 1]
        if correlation > SAME_IMAGES_CORRELATION:
            raise Wrong(
                f"In the same step {who} read the same images, augmented or not (the correlation of their brightness "
                f"is {correlation:.2f}): the work is not divided."
            )


def _require_no_more_than(record: RunRecord, images: int, max_epochs: float) -> None:
    """Raise `Wrong` if the ranks together read too many images in an epoch of `fit`. Other loops have no epochs."""
    if _one_long_epoch(record, images):
        return
    for epoch in range(min(len(rank.epochs) for rank in record.ranks)):
        read = sum(_epoch_images(rank, epoch) for rank in record.ranks)
        if read > images * max_epochs:
            raise Wrong(
                f"Together the ranks read {read:,} images in epoch {epoch + 1}, {read / images:.1f} times the "
                f"training set of {images:,}: no rank reads fewer images than a serial script."
            )


def _epoch_images(rank: RankRecord, epoch: int) -> int:
    """Number of images in the batches of an epoch. A step can read a batch more than once."""
    largest = max(map(len, rank.examples), default=0)
    return min(len(rank.epoch_examples(epoch)), rank.epochs[epoch] * largest)


def _one_long_epoch(record: RunRecord, images: int) -> bool:
    """Whether each rank ran a single epoch of `fit` in which its images occur several times."""
    part = images // record.size
    return all(
        len(rank.epochs) == 1
        and len(read := np.concatenate(rank.examples)) >= part + MIN_EXAMPLES
        and np.isin(read[part:], read[:part]).mean() >= 0.5 / record.size
        for rank in record.ranks
    )


def _require_other_parts(record: RunRecord, images: int) -> None:
    """Raise `Wrong` if two ranks read the same part of the images in different orders."""
    for (one, own), (other, foreign) in combinations(enumerate(_first_parts(record, images)), 2):
        overlap = np.isin(foreign, own).mean() if len(foreign) >= MIN_EXAMPLES else 0.0
        if overlap > MAX_OVERLAP:
            who = f"Ranks {one} and {other}"
            raise Wrong(f"{who} read the same part of the images ({overlap:.0%} of it) in different orders.")


def _first_parts(record: RunRecord, images: int) -> list[np.ndarray]:
    """The examples that each rank reads in its first epoch; without `fit`, in the steps that cover all images."""
    if any(rank.epochs for rank in record.ranks) and not _one_long_epoch(record, images):
        return [rank.epoch_examples(0) for rank in record.ranks]
    read = np.cumsum([sum(map(len, step)) for step in zip(*(rank.examples for rank in record.ranks))])
    steps = int(np.searchsorted(read, images, side="right"))
    return [np.concatenate([np.zeros(0, np.float32), *rank.examples[:steps]]) for rank in record.ranks]


def one_saves(record: RunRecord, savers: Sequence[int], what: str, nobody: str) -> None:
    """Rule: only rank 0 saves.

    Args:
        savers: the ranks that saved.
        what: what they saved, for the sentence.
        nobody: the sentence if no rank saved.
    """
    if not savers:
        raise NotSeen(with_end(nobody, record))
    if list(savers) != [0]:
        verb = "wrote" if len(savers) > 1 else "alone wrote"
        raise Wrong(f"{named(savers)} {verb} {what}; only rank 0 should.")
