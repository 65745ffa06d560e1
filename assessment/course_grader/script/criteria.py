"""The ten criteria of the assessment: of each its id, title, judge and hint. The contract gives them their points.

What they judge was measured in two runs: `alone` on one rank with a slice of the data, and `together` on all ranks
under the clock. What the probes and the timeline say was written beside the script, so it is a claim: what the script
replaced, what the weights of the ranks or the kernel's count of bytes contradict, is not believed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from course_grader.script import host_checks
from course_lib.notebook import training_rules
from course_lib.notebook.judging import Criterion, Wrong
from course_lib.notebook.training_rules import with_end
from course_lib.ranks.run_record import Evidence, RankEvidence

MAX_EPOCHS = 1.25  # training sets that the ranks may read together in an epoch
MIN_EPOCHS = 0.3  # and that they must read in the whole training
MIN_DIFFERENT = 0.5  # of the images, that ranks must read which read as many as there are
MIN_TOLD_APART = 0.95  # of a rank's first epoch, images of different brightness, where it is to tell images apart
MIN_TRAFFIC_SHARE = 0.8  # of the bytes that reductions make, which the kernel must have counted

MIN_BATCH_SHARE = 0.95  # of the batch that is asked, on average: the last one of an epoch need not be full
MAX_EXCHANGES = 1.1  # of gradients, for each update that is allowed: some metrics and weights may be averaged too

MIN_TRAINED = 0.5  # of the saved weights' accuracy, that those must reach which were seen in training
MIN_OFTEN = 0.99  # of the network's values, that are updated at least half as often as those that are most
MIN_LEARNED = 0.4  # of the images that a rank gives its network, that have a gradient
MIN_INPUT_CORRELATION = 0.1  # of brightness: images given to a network, and what comes to its first layer with weights
MIN_CHANGED_VALUES = 0.45  # of the network's, that an update changes on average; with two optimizers it is half of them

MAX_CHANGED_SHARE = 0.08  # of the updates, before which something else than an update may change the weights

# Share of images with a rank's mark that get its label, above that of others: tests/benchmarks/results/marks.csv. One
# run in which it is so high for all ranks is enough; else it must be so high in the mean of two runs.
SURE_MARKED, MIN_MARKED = 0.7, 0.3

# Hints where the cause that was seen is not the usual one.
SAVE = "See 2b, Step 7: only rank 0 saves, to the path in COURSE_WEIGHTS."
READ_THE_ERROR = "Read the error: it says what failed. `course run assessment.py -np 2` shows the lines before it."
ALL_ENTER = "Let all ranks call every collective: no hvd.allreduce or hvd.broadcast below `if hvd.rank() == 0`."
EQUAL_BATCHES = f"See 2b, Step 6: give all ranks equally many batches. {ALL_ENTER}"
FROM_OUTSIDE = (
    "Train one network on the images that data.load gives to each rank, with gradients averaged on every step."
)
TRAIN_TOGETHER = "See 2b, Steps 1 and 4: it counts as soon as the ranks train together."
FOR_LARGE_BATCHES = (
    "See 3b: warm-up, and a rate for this batch; 3d: layer-wise rates; 3e: tune on held-out images, the best value "
    "inside the grid."
)
FEWER_UPDATES = (
    "Train fewer epochs, or with a larger batch. See 3b: with a larger batch an epoch has fewer updates, and each must "
    "go further."
)
LARGER_BATCH = (
    "See 2a: the batch of all ranks together is what counts. Where it does not fit into memory, see 2c, Tune: "
    "backward_passes_per_step adds up the gradients of several small batches for one update."
)
AVERAGE_ONCE = (
    "See 2c, Tune: add up the gradients of an update's small batches on each rank, then average once, as "
    "backward_passes_per_step does."
)
_TWO_WRITERS = re.compile(r"unable to lock file|Resource temporarily unavailable|\berrno\W{1,3}11\b", re.IGNORECASE)


@dataclass(frozen=True)
class Weights:
    """What the evaluator found of the saved weights.

    Attributes:
        train_accuracy, test_accuracy: None where `problem` says why there are none.
        marks: for each mark of each rank the shares of images, with it and without, that get its label (see
            `data.marks.shares`).
        values: how many numbers of the network are trained; 0 where that is not known.
        trained: test accuracy of the weights that the probe saw at the end; None where they are not this network's.
    """

    train_accuracy: float | None
    test_accuracy: float | None
    problem: str = ""
    marks: tuple[tuple[float, float], ...] = ()
    values: int = 0
    trained: float | None = None


@dataclass(frozen=True)
class Measured:
    """Everything that was measured of one script, and what is asked of it.

    Attributes:
        alone, together: the runs on one rank and on all; None where one did not take place.
        limit: seconds for the run on all ranks; `tolerance`: the part of it by which it may be exceeded.
        images: to train on.
        train_target, test_target: the accuracies to reach, from 0 to 1.
        batch, updates: images that an update must have at least, updates that there may be at most; None: any.
    """

    alone: Evidence | None
    together: Evidence | None
    weights: Weights | None
    limit: float
    tolerance: float
    images: int
    train_target: float
    test_target: float
    batch: int | None = None
    updates: int | None = None

    def marks_leave_doubt(self) -> bool:
        """Whether a second run, with other marks, has to tell: nothing else speaks against the script, and of some rank
        the mark is not known well. By chance a network may miss a mark, or seem to know one."""
        if self.weights is None or not self.weights.marks:
            return False
        try:
            unmarked = replace(self, weights=replace(self.weights, marks=()))
            return bool(_contradicted(self, SURE_MARKED)) and not _contradicted(unmarked)
        except _NO_SENSE:
            return False

    def with_marks_of(self, other: Measured) -> Measured:
        """The same with the mean of both runs' marks; of a run that saved nothing there are none."""
        if self.weights is None or other.weights is None or len(self.weights.marks) != len(other.weights.marks):
            return self
        both = np.mean([self.weights.marks, other.weights.marks], axis=0)
        return replace(self, weights=replace(self.weights, marks=tuple(map(tuple, both.tolist()))))


Judge = Callable[[Measured], str]
# What judges raise on records that no probe has written.
_NO_SENSE = (TypeError, ValueError, KeyError, AttributeError, OverflowError, IndexError, MemoryError)
_criteria: list[Criterion] = []


def with_points(points: Mapping[str, float]) -> list[Criterion]:
    """The criteria, each with its points."""
    return [replace(criterion, max_points=points[criterion.id]) for criterion in _criteria]


def _criterion(title: str, hint: str) -> Callable[[Judge], Judge]:
    """Make a judge a criterion, whose id is the judge's name."""

    def add(judge: Judge) -> Judge:
        def sceptical(measured: Measured) -> str:
            try:
                return judge(measured)
            except _NO_SENSE:
                raise Wrong("The records of this run make no sense: something wrote into them.") from None

        _criteria.append(Criterion(judge.__name__, title, 1.0, sceptical, hint))
        return judge

    return add


@_criterion("Runs to the end on one rank", "See 2b, Step 1: with hvd.init() a script runs on one rank as before.")
def serial(measured: Measured) -> str:
    alone = measured.alone
    if alone is None:
        raise Wrong("The script did not run on one rank.")
    if alone.result.code:
        raise Wrong(f"On one rank: {training_rules.failure(alone.result)}")
    if not _savers(alone):
        raise Wrong(
            "On one rank the script came to its end, but saved no weights to the path in COURSE_WEIGHTS.", hint=SAVE
        )
    if not alone.ranks[0].number("progress", "steps"):
        raise Wrong("On one rank the script came to its end without a step of training.")
    return f"On one rank the script ran to its end in {alone.result.seconds:.0f} s and saved weights."


@_criterion("Joins on all ranks", "See 2b, Step 1: call hvd.init() before anything else of Horovod.")
def ranks(measured: Measured) -> str:
    return training_rules.initialised(_believed(measured))


@_criterion(
    "One device for each rank", "See 2b, Step 2: tf.config.set_visible_devices with the GPU of hvd.local_rank()."
)
def device(measured: Measured) -> str:
    return training_rules.one_gpu_each(_believed(measured))


@_criterion(
    "Gradients averaged on every step",
    "See 2b, Step 4: hvd.DistributedOptimizer before compile; in a loop of your own hvd.DistributedGradientTape.",
)
def averaged(measured: Measured) -> str:
    if contradiction := _contradicted(measured):
        raise Wrong(contradiction, hint=FROM_OUTSIDE)
    return _averaged(measured)


def _averaged(measured: Measured) -> str:
    """What the ranks themselves tell of it."""
    evidence = _believed(measured)
    reduced = training_rules.reductions(evidence)
    _require_training_together(evidence)
    difference = _difference_at_the_end(evidence)
    if reduced.complete and difference and not evidence.broadcasts and _started_apart(evidence):
        return f"{reduced}. The ranks end with different weights only because they started apart (see broadcast)."
    if not reduced.complete:
        raise Wrong(reduced.lack, 0.0 if difference else 0.5)
    if difference:
        raise Wrong(f"{reduced}, but {difference}", 0.5)
    if evidence.size > 1 and (apart := evidence.applied_apart()):
        raise Wrong(f"{reduced}, but at update {apart:,} the ranks applied different gradients, or changed apart.", 0.5)
    moved = max(rank.number("progress", "moved") / max(1, rank.number("progress", "steps")) for rank in evidence.ranks)
    if moved > MAX_CHANGED_SHARE:
        raise Wrong(
            f"{reduced}, but between {moved:.0%} of the steps something else than updates changed weights.", 0.5
        )
    if (share := evidence.changed_between()) > MAX_CHANGED_SHARE:
        raise Wrong(f"{reduced}, but before {share:.0%} of the updates something else changed the weights.", 0.5)
    return f"{reduced}, and all ranks hold the same weights."


@_criterion(
    "Starts from the same weights",
    "See 2b, Step 5: BroadcastGlobalVariablesCallback(0), or hvd.broadcast_variables in a loop of your own.",
)
def broadcast(measured: Measured) -> str:
    return training_rules.same_start(_believed(measured))


@_criterion(
    "Each rank reads its own part",
    "See 2b, Step 6: partition the images by rank, and give all ranks equally many batches.",
)
def data(measured: Measured) -> str:
    evidence = _believed(measured)
    if contradiction := _contradicted(measured):
        raise Wrong(contradiction, hint=FROM_OUTSIDE)
    told = training_rules.own_images(evidence, measured.images, MAX_EPOCHS)
    read = sum(len(step) for rank in evidence.ranks for step in rank.examples)
    if not evidence.result.code and read < MIN_EPOCHS * measured.images:
        raise Wrong(f"Together the ranks read only {read:,} of {measured.images:,} images.")
    different = _different(evidence)
    if different is not None and read >= measured.images and different < MIN_DIFFERENT * measured.images:
        raise Wrong(
            f"Together the ranks read only {different:,} different images of {measured.images:,}, over and over."
        )
    return told


@_criterion("One rank saves", SAVE)
def checkpoint(measured: Measured) -> str:
    evidence = _believed(measured)
    nobody = "No rank saved weights to the path in COURSE_WEIGHTS."
    training_rules.one_saves(evidence, _savers(evidence), "the file of the weights", nobody)
    paths = [{record.get("path") for record in rank.records.get("save", ())} for rank in evidence.ranks]
    for rank, mine in zip(evidence.ranks[1:], paths[1:]):
        if both := {path for path in paths[0] & mine if isinstance(path, str) and not path.startswith("/dev/")}:
            name = min(both).rpartition("/")[2]
            raise Wrong(f"Ranks 0 and {rank.rank} both saved to {name}; only rank 0 should.")
    return "Only rank 0 saved."


@_criterion("Training accuracy", "See 3b: learning rates for large batches; 2c: more images a second.")
def train_accuracy(measured: Measured) -> str:
    accuracy = measured.weights and measured.weights.train_accuracy
    return _reached(measured, "training", accuracy, measured.train_target)


@_criterion("Test accuracy", "See 3a: the generalisation gap; 3c: batch norm's averages need many updates.")
def test_accuracy(measured: Measured) -> str:
    accuracy = measured.weights and measured.weights.test_accuracy
    return _reached(measured, "test", accuracy, measured.test_target)


@_criterion("In time", "See 2c: run, watch, tune. Train fewer epochs, or more images a second.")
def time(measured: Measured) -> str:
    if measured.together is None:
        raise Wrong("The script did not run on all ranks.", hint="")
    if end := training_rules.early_end(measured.together):
        if "time limit" in end:
            raise Wrong(f"It was not done after {measured.limit:.0f} s, the time limit.")
        raise Wrong(end, hint=_hint_at_the_end(measured.together))
    seconds = measured.together.result.seconds
    took = f"It took {seconds:.1f} s; the limit is {measured.limit:.0f} s."
    if why := _not_together(measured):
        raise Wrong(f"{took} {why}", hint=TRAIN_TOGETHER)
    if seconds > measured.limit * (1 + measured.tolerance):
        raise Wrong(took)
    return f"{took} {_within_budget(measured)}".rstrip()


IDS = tuple(criterion.id for criterion in _criteria)


# What several criteria ask


def _believed(measured: Measured) -> Evidence:
    """The run on all ranks. Raises `Wrong` where there is none, or where what it says of itself can't be believed."""
    evidence = measured.together
    if evidence is None:
        raise Wrong("The script did not run on all ranks.")
    if why := training_rules.tampered(evidence):
        raise Wrong(why)
    if evidence.traffic is not None and evidence.size > 1:
        # Reductions of S bytes on N ranks make 2 (N - 1) S bytes of traffic in all, whatever the ring is cut into.
        expected = 2 * (evidence.size - 1) * evidence.collectives.bytes.get("ALLREDUCE", 0)
        if evidence.traffic < MIN_TRAFFIC_SHARE * expected:
            raise Wrong(
                f"The timeline tells of all-reduces that make {expected / 1e6:,.0f} MB of traffic, but only "
                f"{evidence.traffic / 1e6:,.0f} MB went between the ranks: the timeline is not Horovod's."
            )
    return evidence


def _contradicted(measured: Measured, least: float = MIN_MARKED) -> str:
    """What contradicts, from outside, that all ranks trained, where they say that they did; "" if nothing does. So well
    must the weights know each mark at `least`."""
    try:
        _averaged(measured)
    except Wrong as wrong:
        if not wrong.share:
            return ""
    return _from_outside(measured, least)


def _from_outside(measured: Measured, least: float = MIN_MARKED) -> str:
    """What contradicts that all ranks have trained these weights, measured where no script can write; "" if nothing."""
    evidence = measured.together
    marks = measured.weights.marks if measured.weights else ()
    if evidence and not evidence.broadcasts and _started_apart(evidence):
        marks = marks[:1]  # the others' gradients are those of other networks; `broadcast` is what it costs
    for rank, (own, others) in enumerate(marks):
        if own - others < least:
            return (
                f"The saved weights have not learned from rank {rank}'s images: of images with a mark that only this "
                f"rank's copies carry, {own:.0%} get the label that goes with it, of others up to {others:.0%}."
            )
    # Where nothing was saved nobody has gained anything, and a rank that crashed has used less of its core than others.
    if evidence is None or evidence.traffic is None or not measured.weights or measured.weights.train_accuracy is None:
        return ""
    update = 2 * (evidence.size - 1) * measured.weights.values * np.dtype(np.float32).itemsize
    return host_checks.idle(evidence.use, update) or host_checks.silent(evidence.use, update)


def other_weights(measured: Measured) -> tuple[str, ...]:
    """What to look at where the saved weights can't be those that the probe saw in training."""
    first, weights = measured.together and measured.together.ranks[0], measured.weights
    if not first or not first.weights or weights is None or weights.test_accuracy is None:
        return ()
    updates, values, often = (first.number("progress", name) for name in ("updates", "values", "values_updated_often"))
    if updates > 0 and values < MIN_CHANGED_VALUES * updates * weights.values:
        share = values / updates / weights.values
        return (f"the updates that were seen change {share:.0%} of the network's {weights.values:,} values",)
    if updates > 0 and often < MIN_OFTEN * weights.values:
        return (
            f"{1 - often / weights.values:.0%} of the network's values are changed by few of the updates, or by none",
        )
    if weights.trained is None:
        return ("what was seen in training is another network than the one that was saved",)
    if weights.trained < MIN_TRAINED * weights.test_accuracy:
        return (
            f"the weights that were seen in training reach {weights.trained:.3f} on test images, those that were saved "
            f"{weights.test_accuracy:.3f}",
        )
    return ()


def without_gradients(measured: Measured) -> tuple[str, ...]:
    """What to look at where ranks made updates, or read images, without gradients that went through their network."""
    found = []
    for rank in measured.together.ranks if measured.together else ():
        images, updates = rank.number("progress", "images"), rank.number("progress", "updates")
        without, learned = (
            rank.number("progress", name) for name in ("updates_without_gradient", "examples_with_gradient")
        )
        if without > MAX_CHANGED_SHARE * updates:
            found.append(
                f"rank {rank.rank} made {without:,} of its {updates:,} updates without a gradient of its own since the "
                "last"
            )
        if learned < MIN_LEARNED * images:
            found.append(f"of the {images:,} images that rank {rank.rank} gave its network {learned:,} have a gradient")
        alike = (rank.last("progress") or {}).get("input_correlation")
        if isinstance(alike, (int, float)) and not abs(alike) >= MIN_INPUT_CORRELATION:
            found.append(
                f"the images that rank {rank.rank} gives its network are not those that come to its first layer with "
                f"weights: their brightness correlates by {alike:.2f}"
            )
    return tuple(found)


def _different(evidence: Evidence) -> int | None:
    """How many different images the ranks read, as far as brightness tells; None where it does not."""
    firsts = [rank.epoch_examples(0) for rank in evidence.ranks]
    if any(not len(one) or len(np.unique(one)) < MIN_TOLD_APART * len(one) for one in firsts):
        return None
    return training_rules.different_images(evidence)


def _savers(evidence: Evidence) -> list[int]:
    """The ranks that wrote the file of the weights."""

    def saved(rank: RankEvidence) -> bool:
        weights = (rank.first("start") or {}).get("weights")
        return any(record.get("path") == weights for record in rank.records.get("save", ()))

    return [rank.rank for rank in evidence.ranks if saved(rank)]


def _require_training_together(evidence: Evidence) -> None:
    """Ranks that end with the same weights, but went different ways before, did not train together.

    Weights that are broadcast late make ranks equal from then on. That is another fault.
    """
    moments = evidence.agreement()
    apart = [updates for (_, before), (updates, equal) in zip(moments, moments[1:]) if before and not equal]
    apart += [updates for updates, equal in moments[-1:] if not equal]
    if apart and evidence.size > 1 and _end_equal(evidence):
        raise Wrong(
            f"After update {apart[-1]:,} the ranks held different weights, at the end the same: each trained on its "
            "own, and the weights were copied."
        )


def _end_equal(evidence: Evidence) -> bool:
    return evidence.weights_differ(trainable=True) == 0.0


def _difference_at_the_end(evidence: Evidence) -> str:
    """How, and why, the trainable weights of the ranks differ after training; "" where they are equal bit for bit."""
    moments = evidence.agreement()
    if evidence.size == 1 or _end_equal(evidence):
        return ""
    if not moments and evidence.weights_differ() is None:
        return with_end("the ranks left no weights that could be compared.", evidence)
    if moments and all(equal for _, equal in moments):
        # Ended in the middle of a step, or a rank has changed its weights after training: they do not count.
        return ""
    gap = evidence.weights_differ(trainable=True)
    by = "" if gap is None or math.isinf(gap) else f": they differ by up to {gap:.2g}"
    why = ""
    if _started_apart(evidence):
        why = ", because the ranks started apart and averaged gradients keep the distance"
    elif moments:
        update = next(updates for updates, equal in moments if not equal)
        why = f"; by update {update:,} something else than averaged gradients had changed them"
    return f"the ranks end with different weights{by}{why}."


def _started_apart(evidence: Evidence) -> bool:
    """Whether the ranks held different weights when all of them told of these for the first time."""
    moments = evidence.agreement()
    return bool(moments) and not moments[0][1]


def _hint_at_the_end(evidence: Evidence) -> str:
    """What to read where a run did not come to its end, and it was not for lack of time."""
    if evidence.ended_by:
        return ""  # a limit of the sandbox, which the sentence names
    if training_rules.deadlocked(evidence):
        return EQUAL_BATCHES
    if training_rules.never_entered(evidence):
        return ALL_ENTER
    two_writers = any(_TWO_WRITERS.search(line) for line in (evidence.result.reason, *evidence.result.tail))
    return SAVE if two_writers else READ_THE_ERROR


def _reached(measured: Measured, kind: str, accuracy: float | None, target: float) -> str:
    if accuracy is None:
        problem = (measured.weights and measured.weights.problem) or "There are no weights to measure."
        raise Wrong(problem, hint=_hint_for_weights(measured, problem))
    reached = f"The saved weights reach {accuracy:.3f} on {kind} images; the target is {target:.2f}."
    if why := _not_together(measured):
        raise Wrong(f"{reached} {why}", hint=TRAIN_TOGETHER)
    if accuracy < target:
        raise Wrong(reached, hint=FOR_LARGE_BATCHES if measured.batch else None)
    return reached


def _within_budget(measured: Measured) -> str:
    """How many updates of how many images were made, as a sentence; "" where all numbers are allowed.

    An average of all gradients counts as an update, too: so updates that the probe does not see are seen.
    """
    if not (measured.batch and measured.updates):
        return ""
    evidence = measured.together
    reduced = training_rules.reductions(evidence)
    exchanges = round(reduced.updates * reduced.values / reduced.needed)
    batch = round(sum(len(step) for rank in evidence.ranks for step in rank.examples) / reduced.updates)
    made = f"It made {reduced.updates:,} updates of {batch:,} images on average"
    small = batch < MIN_BATCH_SHARE * measured.batch
    if small or reduced.updates > measured.updates:
        raise Wrong(
            f"{made}; asked for are at most {measured.updates:,} of at least {measured.batch:,}.",
            hint=LARGER_BATCH if small else FEWER_UPDATES,
        )
    if exchanges > MAX_EXCHANGES * measured.updates:
        raise Wrong(
            f"{made}, but averaged the gradients {exchanges:,} times; once for each of {measured.updates:,} updates is "
            "allowed.",
            hint=AVERAGE_ONCE,
        )
    return f"{made}."


def _hint_for_weights(measured: Measured, problem: str) -> str | None:
    """What to read where there are no weights to measure; None for the criterion's own hint."""
    if "diverged" in problem:
        return None
    end = measured.together and training_rules.early_end(measured.together)
    if not end:
        return SAVE
    return "Save earlier, or train fewer epochs." if "time limit" in end else _hint_at_the_end(measured.together)


def _not_together(measured: Measured) -> str:
    """Why accuracy and time do not count: they are asked of a training of all ranks together."""
    try:
        ranks(measured)
    except Wrong:
        return "It does not count: the ranks did not join."
    try:
        averaged(measured)
    except Wrong as wrong:
        return "" if wrong.share else "It does not count: the ranks did not train together."
    return ""
