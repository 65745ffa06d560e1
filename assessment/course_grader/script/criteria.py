"""The ten criteria of the assessment: each has an id, a title, a judge and a hint. The contract has their points.

The host's measurements decide (see `host_checks`, `watermarks`, `evaluator`); the script's log explains (see
`training_rules`). A log that shows a mistake costs points. A log that shows nothing costs none, unless the host's
measurements show a mistake. Each verdict states what it rests on: "host" or "script".

A judge takes a `Measured`, returns a reason and what it rests on, and raises `Wrong` if points are lost.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from course_grader.script import host_checks, watermarks
from course_grader.script.evaluator import Weights
from course_grader.script.host_checks import HostRecord
from course_lib.notebook import training_rules
from course_lib.notebook.judging import Criterion, Wrong
from course_lib.notebook.training_rules import NotSeen
from course_lib.ranks.run_record import RunRecord

HOST, SCRIPT = "host", "script"
# Images that all ranks read in an epoch, as a multiple of the training set: ranks may round their parts up to full
# batches. Two ranks that both read all images read 2.
MAX_EPOCHS = 1.25
MIN_BATCH_SHARE = 0.95  # of the required batch size, on average: the last batch of an epoch may be smaller
# Averages of all gradients for each allowed update. The reference sends 8 to 10 % more bytes than its gradients have
# (docs/assessment.md): broadcasts, metrics and Horovod's own messages.
MAX_EXCHANGES = 1.3

# Hints for causes that a criterion's own hint does not cover.
SAVE = "See 2b, Step 7: only rank 0 saves, to the path in COURSE_WEIGHTS."
READ_THE_ERROR = "Read the error: it says what failed. `course run assessment.py -np 2` shows the lines before it."
EQUAL_BATCHES = (
    "See 2b, Step 6: give all ranks the same number of batches, and let all of them call every collective: put no "
    "hvd.allreduce, hvd.broadcast or Horovod callback under `if hvd.rank() == 0`."
)
FROM_OUTSIDE = "Train one network on all ranks' images, with gradients averaged on every step. See 2b, Steps 4 and 6."
TRAIN_TOGETHER = "See 2b, Steps 1 and 4: it counts only if the ranks train together."
NOTHING_LEARNED = (
    "The network takes images of 0 to 255 and scales them itself: don't divide by 255. Otherwise check whether the "
    "learning rate is too high, or the images are shuffled without their labels."
)
FOR_LARGE_BATCHES = (
    "See 3b: warm-up, and a rate for this batch; 3d: layer-wise rates; 3e: tune on held-out images, with the best "
    "value inside the grid."
)
FEWER_UPDATES = (
    "Train fewer epochs, or with a larger batch. See 3b: with a larger batch an epoch has fewer updates, so each must "
    "be a larger step."
)
LARGER_BATCH = (
    "See 2a: the batch of all ranks together is what counts. If it does not fit into memory, see 2f, Tune: "
    "backward_passes_per_step adds up the gradients of several small batches for one update."
)
AVERAGE_ONCE = (
    "See 2f, Tune: add up the gradients of an update's small batches on each rank, then average once, as "
    "backward_passes_per_step does."
)
_TWO_WRITERS = re.compile(r"unable to lock file|Resource temporarily unavailable|\berrno\W{1,3}11\b", re.IGNORECASE)


@dataclass(frozen=True)
class Measured:
    """Everything that was measured of one script, and its targets and limits.

    Attributes:
        alone: record of the run on one rank; `saved_alone`: whether this run saved weights.
        together: record of the run on all ranks; `host`: the host's measurements; `weights`: the saved weights.
        margins: [runs on all ranks][rank] → margin of the rank's watermark, see `watermarks`; () without watermarks.
        limit: seconds for the run on all ranks; `tolerance`: share of the limit by which a run may exceed it.
        images: number of training images.
        train_target, test_target: accuracies to reach, from 0 to 1.
        batch: smallest global batch size; `updates`: largest number of updates; None: any.
    """

    alone: RunRecord
    saved_alone: bool
    together: RunRecord
    host: HostRecord
    weights: Weights
    limit: float
    tolerance: float
    images: int
    train_target: float
    test_target: float
    batch: int | None = None
    updates: int | None = None
    margins: Sequence[Sequence[float]] = field(default=())

    @property
    def watermarks_count(self) -> bool:
        """Whether the watermarks can be judged: the training ended, was long enough, and reached its targets.

        A script that misses its targets has nothing to gain, and is not accused. If the ranks start with different
        weights, they average gradients of different networks; this costs the points of `broadcast`.
        """
        train, test = self.weights.train_accuracy, self.weights.test_accuracy
        reason = watermarks.not_judged(
            self.images,
            self.together.size,
            code=self.together.result.code,
            reached=train is not None and train >= self.train_target and test >= self.test_target,
            updates=max(_logged(self.together, "updates"), self.exchanges) or None,
        )
        apart = training_rules.started_apart(self.together) and not training_rules.broadcasters(self.together)
        return bool(self.margins) and not reason and not apart

    @property
    def near_chance(self) -> bool:
        """Whether the test accuracy after a complete run is less than a third of the way from guessing to the target.

        A failed run may have failed while it saved, so its weights are not evidence of what it learned.
        """
        chance = self.weights.chance
        below = self.weights.test_accuracy < chance + (self.test_target - chance) / 3
        return below and not self.together.result.code

    @property
    def exchanges(self) -> int:
        """The number of averages of all gradients that the bytes between the ranks allow; 0 if bytes aren't counted."""
        update_bytes = host_checks.update_bytes(self.weights.values, self.together.size)
        return round(self.host.bytes / update_bytes) if self.host.bytes and update_bytes else 0

    @property
    def in_doubt(self) -> bool:
        """Whether another run is needed to decide if all ranks took part.

        This is the case if there is a rank whose watermark the weights learned in no run so far, but no other evidence
        of a mistake.
        """
        undecided = len(self.margins) < watermarks.RUNS and watermarks.unknown(self.margins)
        if not (self.watermarks_count and undecided):
            return False
        try:
            averaged(replace(self, margins=()))
        except Wrong as wrong:
            return wrong.share > 0
        return True


Judge = Callable[[Measured], "str | tuple[str, str]"]
_criteria: list[Criterion] = []


def with_points(points: Mapping[str, float]) -> list[Criterion]:
    """Return the criteria, each with its points; `points`: id → points."""
    return [replace(criterion, max_points=points[criterion.id]) for criterion in _criteria]


def _criterion(title: str, hint: str) -> Callable[[Judge], Judge]:
    """Register the decorated judge as a criterion whose id is the judge's name."""

    def add(judge: Judge) -> Judge:
        _criteria.append(Criterion(judge.__name__, title, 1.0, judge, hint))
        return judge

    return add


def _by_log(rule: Callable[[RunRecord], str], measured: Measured, silent: str) -> tuple[str, str]:
    """Apply a rule to the log; if the log shows nothing, return the reason `silent` with full points.

    A script that failed before it joined or trained is not judged: `serial` and `time` say why it failed.
    """
    record = measured.together
    if record.result.code and not (record.trained or any(rank.all("init") for rank in record.ranks)):
        raise Wrong("Not judged: the script ended before this could be seen.", hint="", rests_on=SCRIPT)
    try:
        return rule(record), SCRIPT
    except NotSeen as wrong:
        if record.result.code:
            raise Wrong("Not judged: the run ended before this could be seen.", hint="", rests_on=SCRIPT) from None
        if not (measured.saved_alone and measured.weights.test_accuracy is not None):
            raise Wrong(str(wrong), rests_on=SCRIPT) from None
        return silent, SCRIPT
    except Wrong as wrong:
        wrong.rests_on = SCRIPT
        raise


@_criterion("Runs to the end on one rank", "See 2b, Step 1: with hvd.init() a script runs on one rank as before.")
def serial(measured: Measured) -> tuple[str, str]:
    """Judge the run on one rank by its exit code and its saved file."""
    result = measured.alone.result
    if result.code:
        raise Wrong(f"On one rank: {training_rules.early_end(result)}", hint=_hint_for_failure(result), rests_on=HOST)
    if not measured.saved_alone:
        raise Wrong(
            "On one rank the script ran to its end, but saved no weights to the path in COURSE_WEIGHTS.",
            hint=SAVE,
            rests_on=HOST,
        )
    return f"On one rank the script ran to its end in {result.seconds:.0f} s and saved weights.", HOST


@_criterion("Joins on all ranks", "See 2b, Step 1: call hvd.init() before anything else of Horovod.")
def ranks(measured: Measured) -> tuple[str, str]:
    """Judge whether the ranks are connected, by `hvd.init` in the log and by the bytes between them."""
    reason, _ = _by_log(training_rules.initialised, measured, "The ranks exchanged messages.")
    if not measured.together.result.code and (problem := host_checks.silent(measured.host)):
        raise Wrong(problem, rests_on=HOST)
    return reason, SCRIPT if measured.host.bytes is None else HOST


@_criterion(
    "One device for each rank", "See 2b, Step 2: tf.config.set_visible_devices with the GPU of hvd.local_rank()."
)
def device(measured: Measured) -> tuple[str, str]:
    """Judge the choice of a GPU, by the driver's list of processes; without that, by the log."""
    if measured.host.devices is None:
        return _by_log(training_rules.one_gpu_each, measured, "")
    if problem := host_checks.shared_device(measured.host):
        raise Wrong(problem, rests_on=HOST)
    return "According to the driver, each rank uses its own GPU.", HOST


@_criterion(
    "Gradients averaged on every step",
    "See 2b, Step 4: hvd.DistributedOptimizer before compile; in your own loop, hvd.DistributedGradientTape.",
)
def averaged(measured: Measured) -> tuple[str, str]:
    """Judge whether gradients were averaged, by the log, the bytes, the watermarks and the CPU seconds."""
    reason, rests_on = _by_log(
        training_rules.averaged, measured, "All ranks computed, and the saved weights have learned from all of them."
    )
    if measured.together.result.code or measured.together.size == 1:
        return reason, rests_on
    for problem in (
        host_checks.silent(measured.host),
        _not_learned_from(measured),
        host_checks.idle(measured.host),
        host_checks.missing_bytes(measured.host, _expected_bytes(measured)),
    ):
        if problem:
            raise Wrong(problem, hint=FROM_OUTSIDE, rests_on=HOST)
    return reason, HOST if measured.host.samples else rests_on


def _expected_bytes(measured: Measured) -> int:
    """Return the bytes between the ranks if the log is right: each value that an update changed is averaged once."""
    return host_checks.update_bytes(_logged(measured.together, "values"), measured.together.size)


def _logged(record: RunRecord, count: str) -> int:
    """Return a count of the training, from the rank that logged most."""
    return max(rank.number("progress", count) for rank in record.ranks)


def _not_learned_from(measured: Measured) -> str:
    """Return a sentence about a rank whose watermark the weights have not learned; "" if none is known to be one."""
    decided = measured.watermarks_count and len(measured.margins) == watermarks.RUNS
    unknown = watermarks.unknown(measured.margins) if decided else []
    if not unknown:
        return ""
    return (
        f"The saved weights have learned nothing from rank {unknown[0]}'s images: in none of {watermarks.RUNS} runs do "
        "they recognise the watermark that only these images carry."
    )


@_criterion(
    "Starts from the same weights",
    "See 2b, Step 5: BroadcastGlobalVariablesCallback(0), or hvd.broadcast_variables in your own loop.",
)
def broadcast(measured: Measured) -> tuple[str, str]:
    """Judge whether all ranks start with the same weights, by the log."""
    return _by_log(
        training_rules.same_start, measured, "The log does not show the first weights; nothing suggests a difference."
    )


@_criterion(
    "Each rank reads its own part",
    "See 2b, Step 6: partition the images by rank, and give all ranks the same number of batches.",
)
def data(measured: Measured) -> tuple[str, str]:
    """Judge whether each rank reads its own images, by the log and the watermarks."""
    reason, rests_on = _by_log(
        lambda record: training_rules.own_images(record, measured.images, MAX_EPOCHS),
        measured,
        "The log does not show what the ranks read; the saved weights have learned from the images of all ranks.",
    )
    if measured.together.size > 1 and (problem := _not_learned_from(measured)):
        raise Wrong(problem, hint=FROM_OUTSIDE, rests_on=HOST)
    return reason, HOST if measured.watermarks_count else rests_on


@_criterion("One rank saves", SAVE)
def checkpoint(measured: Measured) -> tuple[str, str]:
    """Judge whether rank 0 alone saved, by the saved file and the log."""
    if measured.weights.missing:
        if measured.together.result.code:
            raise Wrong("Not judged: the run ended before this could be seen.", hint="", rests_on=HOST)
        raise Wrong("No rank saved weights to the path in COURSE_WEIGHTS.", rests_on=HOST)
    saved_paths, weights_paths = (
        [_texts(rank.all(kind), name) for rank in measured.together.ranks]
        for kind, name in (("save", "path"), ("start", "weights"))
    )
    savers = [rank for rank, (saved, weights) in enumerate(zip(saved_paths, weights_paths)) if saved & weights]
    if savers not in ([], [0]):
        verb = "wrote" if len(savers) > 1 else "alone wrote"
        raise Wrong(
            f"{training_rules.named(savers)} {verb} the file of the weights; only rank 0 should.", rests_on=SCRIPT
        )
    for rank, paths in enumerate(saved_paths[1:], 1):
        if shared := {path for path in saved_paths[0] & paths if not path.startswith("/dev/")}:
            name = min(shared).rpartition("/")[2]
            raise Wrong(f"Ranks 0 and {rank} both saved to {name}; only rank 0 should.", rests_on=SCRIPT)
    return "Only rank 0 saved.", SCRIPT


def _texts(records: Sequence[Mapping[str, object]], name: str) -> set[str]:
    return {text for record in records if isinstance(text := record.get(name), str)}


@_criterion("Training accuracy", "See 3b: learning rates for large batches; 2f: more images a second.")
def train_accuracy(measured: Measured) -> tuple[str, str]:
    """Judge the accuracy of the saved weights on training images."""
    return _reached(measured, "training", measured.weights.train_accuracy, measured.train_target)


@_criterion("Test accuracy", "See 3a: the generalisation gap; 3c: batch norm's averages need many updates.")
def test_accuracy(measured: Measured) -> tuple[str, str]:
    """Judge the accuracy of the saved weights on test images."""
    return _reached(measured, "test", measured.weights.test_accuracy, measured.test_target)


def _reached(measured: Measured, kind: str, accuracy: float | None, target: float) -> tuple[str, str]:
    if accuracy is None:
        raise Wrong(measured.weights.problem, hint=_hint_for_weights(measured), rests_on=HOST)
    reached = f"The saved weights reach {accuracy:.3f} on {kind} images; the target is {target:.2f}."
    if accuracy < target and measured.near_chance:
        almost_nothing = f"Guessing gets {measured.weights.chance:.2f}: the network has learned almost nothing."
        raise Wrong(f"{reached} {almost_nothing}", hint=NOTHING_LEARNED, rests_on=HOST)
    _require_together(measured, reached)
    if accuracy < target:
        result = measured.together.result
        failed = result.code and not _late(result)
        hint = _hint_for_failure(result) if failed else FOR_LARGE_BATCHES if measured.batch else None
        raise Wrong(reached, hint=hint, rests_on=HOST)
    return reached, HOST


@_criterion("In time", "See 2c and 2f: watch and tune. Train fewer epochs, or process more images a second.")
def time(measured: Measured) -> tuple[str, str]:
    """Judge the wall-clock time and, in a profile that limits them, the batch size and the number of updates."""
    result = measured.together.result
    if result.code:
        late = _late(result)
        timed_out = f"It did not finish within the time limit, {measured.limit:.0f} s."
        raise Wrong(
            timed_out if late else training_rules.early_end(result),
            hint=None if late else _hint_for_failure(result),
            rests_on=HOST,
        )
    took = f"It took {result.seconds:.1f} s; the limit is {measured.limit:.0f} s."
    _require_together(measured, took)
    if result.seconds > measured.limit * (1 + measured.tolerance):
        raise Wrong(took, rests_on=HOST)
    return f"{took} {_within_budget(measured)}".rstrip(), HOST


IDS = tuple(criterion.id for criterion in _criteria)


def _require_together(measured: Measured, what: str) -> None:
    """Raise Wrong if the ranks did not train together: then accuracy and time do not count."""
    for judge, why in ((ranks, "the ranks did not join"), (averaged, "the ranks did not train together")):
        try:
            judge(measured)
        except Wrong as wrong:
            if not wrong.share:
                raise Wrong(f"{what} It does not count: {why}.", hint=TRAIN_TOGETHER, rests_on=wrong.rests_on) from None


def _within_budget(measured: Measured) -> str:
    """Return a sentence with the number of updates and the batch size; "" if the profile allows any.

    The number of updates is from the script's log. If the host counts bytes, it checks this number by them.
    """
    if not (measured.batch and measured.updates):
        return ""
    record = measured.together
    updates = _logged(record, "updates") or _logged(record, "steps")
    read = sum(rank.number("progress", "images") for rank in record.ranks)
    batch = round(read / max(1, updates))
    updates_made = (
        f"It made {updates:,} updates of {batch:,} images on average" if updates else "The log shows no updates"
    )
    small = batch < MIN_BATCH_SHARE * measured.batch
    if updates and (small or updates > measured.updates):
        raise Wrong(
            f"{updates_made}; the contract allows at most {measured.updates:,}, each of {measured.batch:,} or more.",
            hint=LARGER_BATCH if small else FEWER_UPDATES,
            rests_on=SCRIPT,
        )
    if measured.exchanges > MAX_EXCHANGES * measured.updates:
        raise Wrong(
            f"{updates_made}, but the traffic between the ranks is enough for {measured.exchanges:,} averages of all "
            f"gradients; {measured.updates:,} are allowed.",
            hint=AVERAGE_ONCE,
            rests_on=HOST,
        )
    return f"{updates_made}."


def _late(result: object) -> bool:
    """Return whether a run was stopped at its time limit."""
    return "time limit" in result.message


def _hint_for_failure(result: object) -> str:
    if training_rules.deadlocked(result) or result.cause:
        return EQUAL_BATCHES
    two_writers = any(_TWO_WRITERS.search(line) for line in (result.reason, *result.tail))
    return SAVE if two_writers else READ_THE_ERROR


def _hint_for_weights(measured: Measured) -> str | None:
    """Return the hint for weights that cannot be evaluated; None for the criterion's own hint."""
    if "diverged" in measured.weights.problem:
        return None
    result = measured.together.result
    if not result.code or not measured.weights.missing:
        return SAVE
    return "Save earlier, or train fewer epochs." if _late(result) else _hint_for_failure(result)
