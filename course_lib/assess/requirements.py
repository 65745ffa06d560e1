"""What the assessment asks of a script, each as a criterion on what was measured.

The measurements come from two runs: `alone` on one rank with a slice of the data, and `together` on all ranks under
the clock. What the probes and the timeline say was written beside the script, so it is a claim: what the script
replaced, what the weights of the ranks or the kernel's count of bytes contradict, is not believed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from course_lib.assess.contract import Contract, Profile
from course_lib.assess.criteria import Criterion
from course_lib.assess.evidence import Evidence, RankEvidence
from course_lib.data.published import PUBLISHED
from course_lib.launch import Result
from course_lib.supervise import TIMED_OUT

ENOUGH = 0.95  # of the reductions, broadcasts that there must be; the trace of a killed run lacks its last ones
# Correlation of the examples' brightness on two ranks above which both read the same images in the same step. Measured
# on CIFAR-10, the same images on both: mirrored 1.00, moved by up to 4 pixels 0.93, with a quarter cut out 0.86, made
# darker and lighter by a fifth 0.63. Of other images on each rank, in 300 drawings: at most 0.15 with 640 of them.
ALIKE = 0.5
SURE = 256  # examples that a correlation needs
SAME_PART = 0.75  # of the images of a rank's first epoch that another one reads too; with option 2 it is 1 / ranks
WHOLE_EPOCH = 1.25  # images that the ranks may read together in an epoch, as a part of the training set
LEAST = 0.3  # and that they must read in the whole training
TRAFFIC = 0.8  # of the bytes that reductions make, which the kernel must have counted


@dataclass(frozen=True)
class Weights:
    """What the evaluator found: accuracies of the saved weights, None where `problem` says why there are none."""

    train_accuracy: float | None
    test_accuracy: float | None
    problem: str = ""


@dataclass(frozen=True)
class Measured:
    """Everything that was measured of one script.

    Attributes:
        alone, together: the runs on one rank and on all; None where one did not take place.
        limit: seconds for the run on all ranks; `tolerance`: the part of it by which it may be exceeded.
        ended_by: the sentence that says which limit of the sandbox ended the run, if one did.
    """

    alone: Evidence | None
    together: Evidence | None
    weights: Weights | None
    limit: float
    profile: Profile
    tolerance: float = 0.0
    ended_by: str = ""


def criteria(contract: Contract) -> list[Criterion]:
    """The ten criteria, with the contract's points."""
    images = PUBLISHED[contract.data].images[0]
    judges = (_serial, _ranks, _device, _averaged, _broadcast, _data(images), _checkpoint)
    judges += (_accuracy("train"), _accuracy("test"), _time)
    return [
        Criterion(name, title, contract.points[name], _careful(judge), hint)
        for (name, (title, hint)), judge in zip(_TEXTS.items(), judges)
    ]


_TEXTS = {
    "serial": ("Runs to the end on one rank", "See 2b, Step 1: with hvd.init() a script runs on one rank as before."),
    "ranks": ("Joins on all ranks", "See 2b, Step 1: call hvd.init() before anything else of Horovod."),
    "device": (
        "One device for each rank",
        "See 2b, Step 2: tf.config.set_visible_devices with the GPU of hvd.local_rank().",
    ),
    "averaged": (
        "Gradients averaged on every step",
        "See 2b, Step 4: hvd.DistributedOptimizer before compile; in a loop of your own hvd.DistributedGradientTape.",
    ),
    "broadcast": (
        "Starts from the same weights",
        "See 2b, Step 5: BroadcastGlobalVariablesCallback(0), or hvd.broadcast_variables in a loop of your own.",
    ),
    "data": (
        "Each rank reads its own part",
        "See 2b, Step 6: partition the images by rank, and give all ranks equally many batches.",
    ),
    "checkpoint": ("One rank saves", "See 2b, Step 7: only rank 0 saves, to the path in COURSE_WEIGHTS."),
    "train_accuracy": ("Training accuracy", "See 3b: learning rates for large batches; 2c: more images a second."),
    "test_accuracy": ("Test accuracy", "See 3a: the generalisation gap; 3c: batch norm's averages need many updates."),
    "time": ("In time", "See 2c: run, watch, tune. Train fewer epochs, or more images a second."),
}  # fmt: skip


def _careful(judge: Callable) -> Callable:
    """Records that no probe writes must not keep a script from its verdict."""

    def judged(measured: Measured) -> tuple[float, str]:
        try:
            return judge(measured)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError, IndexError, MemoryError):
            return 0, "The records of this run make no sense: something wrote into them."

    return judged


# What several criteria ask


def _tampered(evidence: Evidence) -> str:
    names = [str(record.get("name"))[:60] for rank in evidence.ranks for record in rank.records.get("tampered", ())]
    if not names:
        return ""
    shown = ", ".join(dict.fromkeys(names[:3]))
    return f"The script replaced {shown}: what it did on the ranks cannot be measured any more."


def _how_it_ended(measured: Measured) -> str:
    """A sentence for a run that did not come to its end, "" for one that did."""
    result = measured.together.result
    if measured.ended_by:
        return measured.ended_by
    if not result.code:
        return ""
    return _in_its_words(result) if result.failed_rank is not None else result.message


def _in_its_words(result: Result) -> str:
    """How a failed run ended, with the reason that the failed rank gave: the line that names its exception."""
    lines = [line.strip() for line in result.tail if line.strip()]
    named = [line for line in lines if re.match(r"[\w.]+(Error|Exception|Interrupt)\b", line)]
    words = result.reason or next(reversed(named or lines), "")
    return f"{result.message.rstrip('.')}: {words}" if words else result.message


def _stalled(evidence: Evidence) -> bool:
    return evidence.result.code == TIMED_OUT and "wait for each other" in evidence.result.message


def _with_end(reason: str, measured: Measured) -> str:
    end = _how_it_ended(measured)
    return f"{reason} {end}" if end else reason


def _claims(judge: Callable[[Evidence, Measured], tuple[float, str]]) -> Callable[[Measured], tuple[float, str]]:
    """For criteria on what ranks say of themselves: there must be a run, and its probes must be whole."""

    def judged(measured: Measured) -> tuple[float, str]:
        if measured.together is None:
            return 0, "The script did not run on all ranks."
        if sentence := _tampered(measured.together) or _contradicted(measured.together):
            return 0, sentence
        return judge(measured.together, measured)

    return judged


def _joined(evidence: Evidence) -> bool:
    inits = [rank.last("init") for rank in evidence.ranks]
    return all(init and init.get("size") == evidence.size for init in inits) and {
        init.get("rank") for init in inits
    } == set(range(evidence.size))


def _weights_path(rank: RankEvidence) -> str | None:
    return (rank.first("start") or {}).get("weights")


def _savers(evidence: Evidence) -> list[int]:
    """The ranks that wrote the file of the weights."""
    return [
        rank.rank
        for rank in evidence.ranks
        if any(record.get("path") == _weights_path(rank) for record in rank.records.get("save", ()))
    ]


def _named(ranks: list[int]) -> str:
    *most, last = map(str, ranks)
    return f"Ranks {', '.join(most)} and {last}" if most else f"Rank {last}"


# The criteria


def _serial(measured: Measured) -> tuple[float, str]:
    alone = measured.alone
    if alone is None:
        return 0, "The script did not run on one rank."
    result = alone.result
    if result.code:
        return 0, f"On one rank: {_in_its_words(result)}"
    if not _savers(alone):
        return 0, "On one rank the script came to its end, but saved no weights to the path in COURSE_WEIGHTS."
    return 1, f"On one rank the script ran to its end in {result.seconds:.0f} s and saved weights."


@_claims
def _ranks(evidence: Evidence, measured: Measured) -> tuple[float, str]:
    inits = [rank.last("init") for rank in evidence.ranks]
    if not any(inits):
        nobody = f"No process called hvd.init(): they are {evidence.size} strangers, each rank 0 of 1."
        return 0, _with_end(nobody, measured)
    if not all(inits):
        return 0, _with_end(f"Rank {inits.index(None)} never called hvd.init().", measured)
    if not _joined(evidence):
        sizes = sorted({str(init.get("size")) for init in inits})
        return 0, f"The ranks found {' and '.join(sizes)} processes in place of {evidence.size}."
    return 1, f"All {evidence.size} ranks found each other." if evidence.size > 1 else "The one rank called hvd.init()."


@_claims
def _device(evidence: Evidence, measured: Measured) -> tuple[float, str]:
    chosen = [rank.last("gpus") for rank in evidence.ranks]
    if not any(chosen):
        return 0, "Every rank sees all GPUs of the host, so that all would train on the first one."
    for rank, record in zip(evidence.ranks, chosen):
        own = (rank.last("init") or {}).get("local_rank")
        visible = [str(name).rpartition(":")[2] for name in record["visible"]] if record else ["all"]
        if own is None or visible != [str(own)]:
            place = "its own" if own is None else f"{own}, its own"
            return 0, f"Rank {rank.rank} keeps GPU {', '.join(visible) or 'none'} in place of {place}."
    return 1, "Each rank keeps the GPU with the number of its local rank, and no other."


@_claims
def _averaged(evidence: Evidence, measured: Measured) -> tuple[float, str]:
    if not _joined(evidence):
        return 0, "The ranks do not know of each other, so that nothing can be averaged."
    if not any(rank.number("progress", "steps") for rank in evidence.ranks):
        return 0, _with_end("No training step was seen on any rank.", measured)
    updates, needed = _needed(evidence)
    done = evidence.collectives.elements.get("ALLREDUCE", 0) if evidence.size > 1 else needed
    if done < needed * 0.5:
        if done < needed * 0.02:  # averages of metrics at most
            return 0, _with_end("No gradients were all-reduced: each rank trains a network of its own.", measured)
        share = f"{done / needed:.0%} of what {updates:,} updates need"
        return 0, _with_end(f"Only {done:,} gradient values were all-reduced, {share}.", measured)
    if sentence := _apart_between(evidence):
        return 0, sentence
    # Ended by force, a rank may have begun an update that the others never came to.
    complete = done >= needed * ENOUGH - (needed / max(1, updates) if evidence.result.code else 0)
    equal, differ = _equal_at_the_end(evidence)
    reduced = f"{done:,} gradient values were all-reduced for {updates:,} updates"
    if complete and equal:
        return 1, f"{reduced}, and all ranks hold the same weights."
    if not complete:
        return 0.5 * equal, f"Only {reduced}, which need {needed:,}: not every step averages every gradient."
    if differ is None:
        return 0.5, _with_end(f"{reduced}, but the ranks left no weights that could be compared.", measured)
    return 0.5, f"{reduced}, but the ranks end with different weights: {differ}."


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


def _contradicted(evidence: Evidence) -> str:
    """Reductions of S bytes on N ranks make 2 (N - 1) S bytes of traffic in all, whatever the ring is cut into."""
    if evidence.traffic is None or evidence.size < 2:
        return ""
    expected = 2 * (evidence.size - 1) * evidence.collectives.bytes.get("ALLREDUCE", 0)
    if evidence.traffic >= TRAFFIC * expected:
        return ""
    return (
        f"The timeline tells of all-reduces that make {expected / 1e6:,.0f} MB of traffic, but only "
        f"{evidence.traffic / 1e6:,.0f} MB went between the ranks: the timeline is not Horovod's."
    )


def _digests(rank: RankEvidence) -> dict[tuple[int, int], str]:
    """What the weights were after some of the updates."""
    found = {}
    for record in rank.records.get("digest", ()):
        updates = record.get("updates")
        found[updates, 0 if updates else record.get("steps")] = record.get("digest")
    return found


def _compared(evidence: Evidence) -> list[tuple[int, bool]]:
    """(updates, equal on all ranks) for the moments at which all ranks have told their weights."""
    first, *others = map(_digests, evidence.ranks)
    common = [moment for moment in first if all(moment in other for other in others)]
    return [(max(moment), all(other[moment] == first[moment] for other in others)) for moment in sorted(common)]


def _apart_between(evidence: Evidence) -> str:
    """Ranks that end with the same weights, but went different ways before, did not train together.

    Weights that are broadcast late make ranks equal from then on. That is another fault.
    """
    moments = _compared(evidence)
    went = [updates for (_, before), (updates, equal) in zip(moments, moments[1:]) if before and not equal]
    went += [updates for updates, equal in moments[-1:] if not equal]
    if not went or evidence.size == 1 or not _equal_arrays(evidence):
        return ""
    return (
        f"After update {went[-1]:,} the ranks held different weights, at the end the same: each trained on its own, "
        "and the weights were copied."
    )


def _equal_arrays(evidence: Evidence) -> bool:
    return evidence.weights_differ(trainable=True) == 0.0


def _equal_at_the_end(evidence: Evidence) -> tuple[bool, str | None]:
    """Whether the ranks hold the same trainable weights bit for bit, and if not how they differ and why."""
    moments = _compared(evidence)
    if evidence.size == 1 or _equal_arrays(evidence):
        return True, ""
    if not moments and evidence.weights_differ() is None:
        return False, None
    if moments and all(equal for _, equal in moments):
        # Ended in the middle of a step, or a rank has changed its weights after training: they do not count.
        return True, ""
    gap = evidence.weights_differ(trainable=True)
    by = "" if gap is None else f"by up to {gap:.2g}"
    if moments and not moments[0][1]:
        return False, f"they differ {by}, because the ranks started apart and averaged gradients keep the distance"
    if moments:
        apart = next(updates for updates, equal in moments if not equal)
        return (
            False,
            f"they differ {by}; by update {apart:,} something else than averaged gradients had changed them",
        )
    return False, f"they differ {by}"


@_claims
def _broadcast(evidence: Evidence, measured: Measured) -> tuple[float, str]:
    if not _joined(evidence):
        return 0, "The ranks do not know of each other, so that nothing can be broadcast."
    if evidence.size > 1 and not evidence.broadcasts:
        return 0, "Nothing was broadcast: the ranks start from different random weights and never agree."
    values = max((rank.values for rank in evidence.ranks), default=0)
    sent = min(
        sum(int(record.get("bytes", 0)) for record in rank.records.get("broadcast", ())) for rank in evidence.ranks
    )
    if evidence.size > 1 and sent < ENOUGH * 4 * values:
        return 0, f"Only {sent:,} bytes were broadcast; the network's {values:,} values have {4 * values:,}."
    if evidence.size == 1:
        return 1, "The one rank has nobody to differ from."
    firsts = [rank.first("first-step") for rank in evidence.ranks]
    after_first = all(firsts) and len({str(record.get("digest")) for record in firsts}) == 1
    moments = _compared(evidence)
    if after_first or (moments and moments[0][1]) or (not moments and _equal_arrays(evidence)):
        return 1, "Rank 0's weights were broadcast; after the first step all ranks held the same ones."
    if not moments:
        return 0, _with_end("There was a broadcast, but no training after it was seen on all ranks.", measured)
    return 0, f"There was a broadcast, but after update {moments[0][0]} the ranks held different weights."


def _data(published: int) -> Callable[[Measured], tuple[float, str]]:
    """The criterion for a data set with so many training images."""

    @_claims
    def judged(evidence: Evidence, measured: Measured) -> tuple[float, str]:
        if not _joined(evidence):
            return 0, "Every process reads all the images, as if it were alone."
        if unread := [rank.rank for rank in evidence.ranks if not rank.examples]:
            return 0, _with_end(f"{_named(unread)} read no training images.", measured)
        if sentence := _unequal(evidence):
            return 0, sentence
        images = measured.profile.images or published
        if sentence := _shared(evidence) or _too_many(evidence, images) or _same_part(evidence):
            return 0, sentence
        read = sum(len(step) for rank in evidence.ranks for step in rank.examples)
        if not evidence.result.code and read < LEAST * images:
            return 0, f"Together the ranks read only {read:,} of {images:,} images."
        steps = len(evidence.ranks[0].examples)
        return 1, f"Each rank read images of its own, together {read:,} in {steps:,} steps."

    return judged


def _unequal(evidence: Evidence) -> str:
    """Ranks with unequal numbers of batches, in a sentence."""
    waits = "the rank with more waits for the others for ever."
    told = [rank.last("fit") for rank in evidence.ranks]
    for epoch in range(max(len(rank.epochs) for rank in evidence.ranks) or 1):
        expected = [record and record.get("steps") for record in told]
        steps = [rank.epochs[epoch] if epoch < len(rank.epochs) else n for rank, n in zip(evidence.ranks, expected)]
        if None not in steps and len(set(steps)) > 1:
            ran = ", ".join(f"rank {rank.rank}: {n}" for rank, n in zip(evidence.ranks, steps))
            return f"Unequal numbers of batches in an epoch ({ran}): {waits}"
    steps = [len(rank.examples) for rank in evidence.ranks]
    # Ended by force, one rank may be a step ahead; waiting for ever, that one step is the fault.
    if _stalled(evidence):
        spare = 0
    elif all(rank.records.get("end") for rank in evidence.ranks):
        spare = 1 if evidence.result.code else 0
    else:
        spare = 10 + max(steps) // 20  # of a rank that was ended, the last moments are not written down
    if max(steps) - min(steps) > spare:
        ran = ", ".join(f"rank {rank.rank}: {n}" for rank, n in zip(evidence.ranks, steps))
        return f"Unequal numbers of batches ({ran}): {waits}"
    return ""


def _shared(evidence: Evidence) -> str:
    """Two ranks that read the same images, in a sentence."""
    first, *others = evidence.ranks
    for other in others:
        pairs = [(a, b) for a, b in zip(first.examples, other.examples) if len(a) == len(b) > 0]
        if not pairs:
            continue
        mine, theirs = (np.concatenate(side).astype(float) for side in zip(*pairs))
        same = np.mean([np.isin(a, b).mean() for a, b in pairs])
        if same > 0.5:
            who = f"ranks 0 and {other.rank}"
            return f"In the same step {who} read the same images ({same:.0%} of a batch): nothing is shared."
        with np.errstate(all="ignore"):
            alike = np.corrcoef(mine, theirs)[0, 1]
        if len(mine) >= SURE and alike > ALIKE:
            return (
                f"In the same step ranks 0 and {other.rank} read the same images, changed or not (their brightness "
                f"correlates by {alike:.2f}): nothing is shared."
            )
    return ""


def _same_part(evidence: Evidence) -> str:
    """Two ranks that read the same part in another order, in a sentence."""
    first, *others = evidence.ranks
    for other in others:
        own, foreign = first.epoch_examples(0), other.epoch_examples(0)
        overlap = np.isin(foreign, own).mean() if len(foreign) >= SURE else 0.0
        if overlap > SAME_PART:
            who = f"Ranks 0 and {other.rank}"
            return f"{who} read the same part of the images ({overlap:.0%} of it), though in another order."
    return ""


def _too_many(evidence: Evidence, images: int) -> str:
    """Epochs in which the ranks read more images than there are, in a sentence."""
    for epoch in range(min(len(rank.epochs) for rank in evidence.ranks)):
        read = sum(len(rank.epoch_examples(epoch)) for rank in evidence.ranks)
        if read > images * WHOLE_EPOCH:
            return (
                f"Together the ranks read {read:,} images in epoch {epoch + 1}, {read / images:.1f} times the "
                f"{images:,} that there are: no rank reads less than before."
            )
    return ""


@_claims
def _checkpoint(evidence: Evidence, measured: Measured) -> tuple[float, str]:
    savers = _savers(evidence)
    if not savers:
        return 0, _with_end("No rank saved weights to the path in COURSE_WEIGHTS.", measured)
    if savers != [0]:
        verb = "wrote" if len(savers) > 1 else "alone wrote"
        return 0, f"{_named(savers)} {verb} the file of the weights; only rank 0 should."
    paths = [{record.get("path") for record in rank.records.get("save", ())} for rank in evidence.ranks]
    for rank, mine in zip(evidence.ranks[1:], paths[1:]):
        if both := {path for path in paths[0] & mine if isinstance(path, str) and not path.startswith("/dev/")}:
            name = min(both).rpartition("/")[2]
            return 0, f"Ranks 0 and {rank.rank} both saved to {name}; only rank 0 should."
    return 1, "Only rank 0 saved."


def _accuracy(kind: str) -> Callable[[Measured], tuple[float, str]]:
    name = {"train": "training", "test": "test"}[kind]

    def judged(measured: Measured) -> tuple[float, str]:
        weights = measured.weights
        if weights is None:
            return 0, "There are no weights to measure."
        accuracy = getattr(weights, f"{kind}_accuracy")
        if accuracy is None:
            return 0, weights.problem or "There are no weights to measure."
        target = getattr(measured.profile, f"{kind}_accuracy")
        reached = f"The saved weights reach {accuracy:.3f} on {name} images; the target is {target:.2f}."
        if why := _not_together(measured):
            return 0, f"{reached} {why}"
        return float(accuracy >= target), reached

    return judged


def _not_together(measured: Measured) -> str:
    """Why accuracy and time do not count: they are asked of a training of all ranks together."""
    if _ranks(measured)[0] < 1:
        return "It does not count: the ranks did not join."
    if _averaged(measured)[0] <= 0:
        return "It does not count: the ranks did not train together."
    return ""


def _time(measured: Measured) -> tuple[float, str]:
    if measured.together is None:
        return 0, "The script did not run on all ranks."
    result = measured.together.result
    if end := _how_it_ended(measured):
        return 0, end if "time limit" not in end else f"It was not done after {measured.limit:.0f} s, the time limit."
    took = f"It took {result.seconds:.1f} s; the limit is {measured.limit:.0f} s."
    if why := _not_together(measured):
        return 0, f"{took} {why}"
    if result.seconds > measured.limit * (1 + measured.tolerance):
        return 0, took
    return 1, took
