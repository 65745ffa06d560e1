"""What the ranks of one training must do, each rule once: judges of the evidence that a run left.

Notebook 2b asks them about a short run, the assessment about a whole training. As `Criterion` wants it, a judge returns
what is right in a sentence, or raises `Wrong`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from course_lib.notebook.judging import Wrong
from course_lib.ranks.launch import Result
from course_lib.ranks.run_record import Evidence
from course_lib.system.supervise import TIMED_OUT

COMPLETE_SHARE = 0.95  # of the values that must be reduced or broadcast; the trace of a killed run lacks its last ones
UNREDUCED_SHARE = 0.02  # of the gradient values: averages of metrics at most
# Correlation of the examples' brightness on two ranks above which both read the same images in the same step. Measured
# on CIFAR-10, the same images on both, changed on each by chance: mirrored 1.00, moved by up to 4 pixels 0.95, with a
# quarter cut out 0.93, times 0.8 to 1.2 0.82, plus up to a fifth of white, or minus, 0.51; standardised one by one and
# mirrored 1.00, moved 0.63, cut out 0.62. Of other images on each rank, standardised or not, in 300 drawings: at most
# 0.11 with 640 of them, 0.20 with 256.
SAME_IMAGES_CORRELATION = 0.4
MIN_EXAMPLES = 256  # for a correlation or an overlap
MAX_OVERLAP = 0.75  # of the images of a rank's first epoch that another one reads too; with option 2 it is 1 / ranks
DRAWN_TWICE = 0.1  # of the images of an epoch; of two ranks that draw a half each, a quarter
MIN_JOINED = 0.75  # of the steps of the rank that makes most, before another one joins
MAX_NAME = 60  # characters of a name in a sentence


# How a run ended, and whether its records can be believed


def failure(result: Result) -> str:
    """How a failed run ended, with the reason that the failed rank gave: the line that names its exception."""
    lines = [line.strip() for line in result.tail if line.strip()]
    # TensorFlow's place in its graph, and the word of a shell whose program is ended.
    lines = [line for line in lines if not line.startswith("[[") and line != "Terminated"] or lines
    exceptions = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Interrupt)\b", line)]
    words = result.reason or next(reversed(exceptions or lines), "")
    return f"{result.message.rstrip('.')}: {words}" if words else result.message


def tampered(evidence: Evidence) -> str:
    """Why nothing can be told from the ranks' records: a sentence where the script had a hand in them, "" else."""
    replaced = [str(record.get("name")) for rank in evidence.ranks for record in rank.records.get("tampered", ())]
    if replaced:
        names = ", ".join(name[:MAX_NAME] for name in dict.fromkeys(replaced[:3]))
        return f"The script replaced {names}: what it does on the ranks can't be seen any more."
    if forged := [rank.rank for rank in evidence.ranks if not rank.genuine]:
        return f"Something else than the probe has written into the records of rank {forged[0]}."
    return ""


def early_end(evidence: Evidence) -> str:
    """A sentence for a run that did not come to its end, "" for one that did."""
    result = evidence.result
    if evidence.ended_by:
        return evidence.ended_by
    if not result.code:
        return ""
    end = failure(result) if result.failed_rank is not None else result.message
    return f"{never_entered(evidence)} {end}".lstrip()


def with_end(sentence: str, evidence: Evidence) -> str:
    """A sentence, and how the run ended, where it did not come to its end."""
    return f"{sentence} {early_end(evidence)}".rstrip()


def deadlocked(evidence: Evidence) -> bool:
    """Whether the run was ended because its ranks waited for each other."""
    return evidence.result.code == TIMED_OUT and "wait for each other" in evidence.result.message


def never_entered(evidence: Evidence) -> str:
    """A sentence about the collective that some ranks entered and others never did; "" where none is known."""
    result = evidence.result
    left = result.failed_rank is not None and any("Horovod has been shut down" in line for line in result.tail)
    if not (left or deadlocked(evidence)):
        return ""
    if stalled := re.search(r"Missing ranks:\s+(\d{1,9})!?: \[([^],\n]+)", _said(evidence)):  # Horovod's own warning
        return _absent([int(stalled[1])], stalled[2])
    for name, entered in evidence.collectives.waiting.items():
        if left and (absent := sorted(set(range(evidence.size)) - entered)):
            return _absent(absent, name)
        # Which ranks waited is not known: the last event is lost.
        return f"Only some of the ranks entered the collective {name[-MAX_NAME:]}; they wait for the others."
    return f"{named([result.failed_rank])} entered a collective when another rank had ended." if left else ""


def _said(evidence: Evidence) -> str:
    """What the failed rank said last, and what all ranks printed."""
    return "\n".join([*evidence.result.tail, *(line for rank in evidence.ranks for line in rank.printed)])


def _absent(ranks: Sequence[int], name: str) -> str:
    return f"{named(ranks)} never entered the collective {name[-MAX_NAME:]}, for which the others wait."


def named(numbers: Sequence[int]) -> str:
    """Ranks by their numbers, at the beginning of a sentence."""
    *most, last = map(str, numbers)
    return f"Ranks {', '.join(most)} and {last}" if most else f"Rank {last}"


# The rules


def initialised(evidence: Evidence) -> str:
    """All ranks have called `hvd.init()` and found each other."""
    inits = [rank.last("init") for rank in evidence.ranks]
    if not any(inits):
        nobody = f"No process called hvd.init(): they are {evidence.size} strangers, each rank 0 of 1."
        raise Wrong(with_end(nobody, evidence))
    if not all(inits):
        raise Wrong(with_end(f"Rank {inits.index(None)} never called hvd.init().", evidence))
    if not evidence.joined:
        sizes = sorted({str(init.get("size")) for init in inits})
        raise Wrong(f"The ranks found {' and '.join(sizes)} processes in place of {evidence.size}.")
    return f"All {evidence.size} ranks found each other." if evidence.size > 1 else "The one rank called hvd.init()."


def one_gpu_each(evidence: Evidence) -> str:
    """Each rank keeps the GPU of its local rank only."""
    choices = [rank.last("gpus") for rank in evidence.ranks]
    if not any(choices):
        raise Wrong("Every rank sees all GPUs of the host, so that all would train on the first one.")
    kept = [[str(name).rpartition(":")[2] for name in choice["visible"]] if choice else ["all"] for choice in choices]
    by_rank = kept == [[str(rank.rank)] for rank in evidence.ranks]
    for rank, visible in zip(evidence.ranks, kept):
        own = (rank.last("init") or {}).get("local_rank")
        if by_rank and own not in (None, rank.rank):
            raise Wrong(
                f"Rank {rank.rank} keeps GPU {rank.rank}, the number of its rank; its number on its host, the local "
                f"rank, is {own}."
            )
        if own is None or visible != [str(own)]:
            place = "its own" if own is None else f"{own}, its own"
            raise Wrong(f"Rank {rank.rank} keeps GPU {', '.join(visible) or 'none'} in place of {place}.")
    return "Each rank keeps the GPU with the number of its local rank, and no other."


@dataclass(frozen=True)
class Reductions:
    """How many gradient `values` were all-reduced, how many the `updates` need, and whether that is all of them."""

    values: int
    needed: int
    updates: int
    complete: bool

    def __str__(self) -> str:
        return f"{self.values:,} gradient values were all-reduced for {self.updates:,} updates"

    @property
    def lack(self) -> str:
        """The sentence for reductions that are not complete."""
        return f"Only {self}, which need {self.needed:,}: not every step averages every gradient."


def reductions(evidence: Evidence) -> Reductions:
    """What was all-reduced. Raises `Wrong` where that is less than half of the gradients."""
    if not evidence.joined:
        raise Wrong("The ranks do not know of each other, so that nothing can be averaged.")
    if not any(rank.number("progress", "steps") for rank in evidence.ranks):
        raise Wrong(with_end("No training step was seen on any rank.", evidence))
    updates, needed = _needed(evidence)
    numbers = evidence.collectives.elements
    gathered = numbers.get("ALLGATHER", 0) // evidence.size  # they are those of all ranks
    done = numbers.get("ALLREDUCE", 0) + gathered if evidence.size > 1 else needed
    if done < needed * UNREDUCED_SHARE:
        raise Wrong(with_end("No gradients were all-reduced: each rank trains a network of its own.", evidence))
    if done < needed * 0.5:
        share = f"{done / needed:.0%} of what {updates:,} updates need"
        raise Wrong(with_end(f"Only {done:,} gradient values were all-reduced, {share}.", evidence))
    # Ended by force, a rank may have begun an update that the others never came to.
    unfinished = needed / max(1, updates) if evidence.result.code else 0
    return Reductions(done, needed, updates, done >= needed * COMPLETE_SHARE - unfinished)


def _needed(evidence: Evidence) -> tuple[int, int]:
    """Updates of the rank that made most, and how many gradient values they take."""
    counts = []
    for rank in evidence.ranks:
        updates, values = (rank.number("progress", name) for name in ("updates", "values"))
        if not updates:  # no optimizer: the script changes the weights itself, once for each step
            updates = rank.number("progress", "steps")
            values = updates * rank.values
        counts.append((values, updates))
    values, updates = max(counts)
    return updates, max(1, values)


def same_start(evidence: Evidence) -> str:
    """Rank 0's weights were broadcast, so that all ranks held the same ones from the first step on."""
    if not evidence.joined:
        raise Wrong("The ranks do not know of each other, so that nothing can be broadcast.")
    if evidence.size > 1 and not evidence.broadcasts:
        raise Wrong(with_end(_why_no_broadcast(evidence), evidence))
    values = max((rank.values for rank in evidence.ranks), default=0)
    sent = min(
        sum(int(record.get("bytes", 0)) for record in rank.records.get("broadcast", ())) for rank in evidence.ranks
    )
    if evidence.size > 1 and sent < COMPLETE_SHARE * 4 * values:
        raise Wrong(f"Only {sent:,} bytes were broadcast; the network's {values:,} values have {4 * values:,}.")
    if evidence.size == 1:
        return "The one rank has nobody to differ from."
    firsts = [rank.first("first-step") for rank in evidence.ranks]
    after_first = all(firsts) and len({str(record.get("digest")) for record in firsts}) == 1
    moments = evidence.agreement()
    if after_first or (moments and moments[0][1]) or (not moments and evidence.weights_differ(trainable=True) == 0.0):
        return "Rank 0's weights were broadcast; after the first step all ranks held the same ones."
    if not moments:
        raise Wrong(with_end("There was a broadcast, but no training after it was seen on all ranks.", evidence))
    raise Wrong(f"There was a broadcast, but after update {moments[0][0]} the ranks held different weights.")


def _why_no_broadcast(evidence: Evidence) -> str:
    asked = [rank.rank for rank in evidence.ranks if rank.records.get("broadcast")]
    if not asked:
        return "Nothing was broadcast: the ranks start from different random weights and never agree."
    if len(asked) < evidence.size:
        return f"Nothing was broadcast: only {named(asked).lower()} entered the broadcast; all ranks must."
    if "root rank" in _said(evidence).lower():
        return "Nothing was broadcast: the ranks named different roots. It must be one and the same on all ranks."
    return "Nothing was broadcast: all ranks entered a broadcast, but it was never done."


def own_images(evidence: Evidence, images: int, max_epochs: float) -> str:
    """Each rank reads its own part of the images, in as many batches as the others.

    Args:
        images: how many there are to train on.
        max_epochs: how many times so many images the ranks may read together in what one of them takes for an epoch.
    """
    if not evidence.joined:
        raise Wrong("Every process reads all the images, as if it were alone.")
    if unread := [rank.rank for rank in evidence.ranks if not rank.examples]:
        raise Wrong(with_end(f"{named(unread)} read no training images.", evidence))
    _require_equal_batches(evidence)
    _require_other_images(evidence)
    _require_no_more_than(evidence, images, max_epochs)
    _require_other_parts(evidence, images)
    if not _epochs_tell(evidence, images):
        _require_parts_again(evidence, images)
    read = sum(len(step) for rank in evidence.ranks for step in rank.examples)
    steps = len(evidence.ranks[0].examples)
    together = f"together {read:,} in {steps:,} steps"
    parts = _first_parts(evidence, images)
    if len(np.unique(np.concatenate(parts))) < (1 - DRAWN_TWICE) * sum(map(len, parts)):
        drawn = "drawn on its own, so that some are read twice in an epoch and some not at all"
        return f"Each rank read as many images as its share, {drawn}; {together}."
    return f"Each rank read images of its own, {together}."


def _require_equal_batches(evidence: Evidence) -> None:
    expected = [(rank.last("fit") or {}).get("steps") for rank in evidence.ranks]
    for epoch in range(max(len(rank.epochs) for rank in evidence.ranks) or 1):
        steps = [rank.epochs[epoch] if epoch < len(rank.epochs) else n for rank, n in zip(evidence.ranks, expected)]
        if None not in steps and len(set(steps)) > 1:
            raise Wrong(f"Unequal numbers of batches in an epoch {_unequal(steps)}")
    steps = [len(rank.examples) for rank in evidence.ranks]
    if not evidence.result.code and all(rank.records.get("join") for rank in evidence.ranks):
        # hvd.join: who is done takes part in the others' reductions with zeros.
        if min(steps) < MIN_JOINED * max(steps):
            raise Wrong(f"Unequal numbers of batches {_unequal(steps, 'the others reduce zeros after theirs')}")
        return
    # Ended by force, one rank may be a step ahead; waiting for ever, that one step is the fault.
    if deadlocked(evidence):
        spare = 0
    elif all(rank.records.get("end") for rank in evidence.ranks):
        spare = 1 if evidence.result.code else 0
    else:
        spare = 10 + max(steps) // 20  # of a rank that was ended, the last moments are not written down
    if max(steps) - min(steps) > spare:
        raise Wrong(f"Unequal numbers of batches {_unequal(steps)}")


def _unequal(steps: Sequence[int], effect: str = "the rank with more waits for the others for ever") -> str:
    ran = ", ".join(f"rank {rank}: {n}" for rank, n in enumerate(steps))
    return f"({ran}): {effect}."


def _require_other_images(evidence: Evidence) -> None:
    """In no step do two ranks read the same."""
    for one, other in combinations(evidence.ranks, 2):
        pairs = [(a, b) for a, b in zip(one.examples, other.examples) if len(a) and len(b)]
        if not pairs:
            continue
        same = np.mean([np.isin(*sorted(pair, key=len)).mean() for pair in pairs])
        who = f"ranks {one.rank} and {other.rank}"
        if same > 0.5:
            raise Wrong(f"In the same step {who} read the same images ({same:.0%} of a batch): nothing is shared.")
        alike = [(a, b) for a, b in pairs if len(a) == len(b)]
        if sum(len(a) for a, _ in alike) < MIN_EXAMPLES:
            continue
        mine, theirs = (np.concatenate(side).astype(float) for side in zip(*alike))
        with np.errstate(all="ignore"):
            correlation = np.corrcoef(mine, theirs)[0, 1]
        if correlation > SAME_IMAGES_CORRELATION:
            raise Wrong(
                f"In the same step {who} read the same images, changed or not (their brightness correlates by "
                f"{correlation:.2f}): nothing is shared."
            )


def _require_no_more_than(evidence: Evidence, images: int, max_epochs: float) -> None:
    if not _epochs_tell(evidence, images):
        return
    for epoch in range(min(len(rank.epochs) for rank in evidence.ranks)):
        read = sum(len(rank.epoch_examples(epoch)) for rank in evidence.ranks)
        if read > images * max_epochs:
            raise Wrong(
                f"Together the ranks read {read:,} images in epoch {epoch + 1}, {read / images:.1f} times the "
                f"{images:,} that there are: no rank reads less than before."
            )


def _require_other_parts(evidence: Evidence, images: int) -> None:
    """No two ranks read, in different orders, the same part."""
    parts = _first_parts(evidence, images)
    for (one, own), (other, foreign) in combinations(enumerate(parts), 2):
        overlap = np.isin(foreign, own).mean() if len(foreign) >= MIN_EXAMPLES else 0.0
        if overlap > MAX_OVERLAP:
            who = f"Ranks {one} and {other}"
            raise Wrong(f"{who} read the same part of the images ({overlap:.0%} of it), though in another order.")


def _epochs_tell(evidence: Evidence, images: int) -> bool:
    """Whether what `fit` took for epochs tells when a rank begins anew."""
    return any(rank.epochs for rank in evidence.ranks) and not _one_long_epoch(evidence, images)


def _one_long_epoch(evidence: Evidence, images: int) -> bool:
    """Whether `fit` took for one epoch what went through a rank's images several times."""
    if any(len(rank.epochs) != 1 for rank in evidence.ranks):
        return False
    part = images // evidence.size
    read = [np.concatenate(rank.examples) for rank in evidence.ranks]
    return all(
        len(one) >= part + MIN_EXAMPLES and np.isin(one[part:], one[:part]).mean() >= 0.5 / evidence.size
        for one in read
    )


def _require_parts_again(evidence: Evidence, images: int) -> None:
    """Where no epochs tell: a rank that has read its part reads some of it again before it has read all images.

    Ranks with parts of their own read theirs again, ranks that shuffle all of it anew 1 / ranks of it. Where parts go
    from rank to rank, all ranks together have read all images by then. Whether images can be known again, though the
    script may change them, their last readings tell.
    """
    if evidence.size == 1:
        return
    part = min(images, different_images(evidence)) // evidence.size  # some may be held back
    firsts = [np.concatenate(rank.examples)[:part] for rank in evidence.ranks]
    if len(np.unique(np.concatenate(firsts))) > (1 - DRAWN_TWICE) * evidence.size * part:
        return
    for rank in evidence.ranks:
        read = np.concatenate(rank.examples)
        whole = evidence.size * part
        first, rest, later = read[:part], read[part:whole], read[whole:]
        if min(len(rest), len(later)) < MIN_EXAMPLES or np.isin(later, read[:whole]).mean() < 0.5:
            continue
        if np.isin(rest, first).mean() < 0.5 / evidence.size:
            raise Wrong(
                f"Rank {rank.rank} read {whole:,} images, none of them twice, before it began anew: it goes through "
                "the whole set alone."
            )


def different_images(evidence: Evidence) -> int:
    """How many different images the ranks read, by their brightness."""
    return len(np.unique(np.concatenate([step for rank in evidence.ranks for step in rank.examples])))


def _first_parts(evidence: Evidence, images: int) -> list[np.ndarray]:
    """What each rank reads in its first epoch. In a loop without `fit` that is as many steps as cover all images."""
    if _epochs_tell(evidence, images):
        return [rank.epoch_examples(0) for rank in evidence.ranks]
    read = np.cumsum([sum(map(len, step)) for step in zip(*(rank.examples for rank in evidence.ranks))])
    steps = int(np.searchsorted(read, images, side="right"))
    return [np.concatenate([np.zeros(0, np.float32), *rank.examples[:steps]]) for rank in evidence.ranks]


def one_saves(evidence: Evidence, savers: Sequence[int], what: str, nobody: str) -> None:
    """Of the ranks that saved `what`, there is rank 0 only; `nobody` is the sentence for none."""
    if not savers:
        raise Wrong(with_end(nobody, evidence))
    if list(savers) != [0]:
        verb = "wrote" if len(savers) > 1 else "alone wrote"
        raise Wrong(f"{named(savers)} {verb} {what}; only rank 0 should.")
