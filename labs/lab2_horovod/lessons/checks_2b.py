"""Checks of notebook 2b: the eight steps that turn a serial Keras script into a Horovod script, and its two partitions.

The steps are judged by the record of one short run of the learner's script on two ranks (`gather`), with settings
under which each omission shows: first weights differ between ranks, the number of images does not divide evenly, and
there are as many GPUs as ranks (pretended ones, so that a laptop can check the choice of GPU). Where all is well, the
text of the script is read for what no run on two ranks shows, and it runs once more, on three ranks of two pretended
hosts, of which one has no GPU: there the rank, the local rank, the size and the number 2 differ.
"""

from __future__ import annotations

import ast
import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from course_lib.notebook import answers, training_rules
from course_lib.notebook.exercises import Exercise
from course_lib.notebook.judging import Criterion, Verdict, Wrong, judge
from course_lib.notebook.report import Report, Ticker
from course_lib.notebook.training_rules import with_end
from course_lib.ranks import launch
from course_lib.ranks.run_record import RunRecord, collect

RANKS = 2
SLICE = 1598  # images, of which the script holds back a fifth for validation
IMAGES = SLICE - SLICE // 5  # 1,279: 20 batches for one rank and 19 for the other, where nobody takes care
BATCH_SIZE = 32
LEARNING_RATE = 0.01  # on one rank
TIME_LIMIT_S = 240.0
STALL_TIMEOUT_S = 20.0  # without a step; after that the ranks are deadlocked

GIVEN = Path(__file__).parent.parent  # the scripts as they are handed out
UNTOUCHED = "`{}` is as you got it. Make the change of this step in it, save it, and check again."

MAX_KEPT = 0.8  # of the images that a rank reads in an epoch, those that it has read in the last; shuffled anew: a half


@dataclass(frozen=True)
class Run:
    """How the script is run: on how many ranks, for how many epochs, with how many pretended GPUs, on which hosts."""

    ranks: int
    epochs: int
    fake_gpus: tuple[int, ...]  # as `launch.Options` has it
    hosts: str | None = None


ONE_HOST = Run(RANKS, 2, (RANKS,))
TWO_HOSTS = Run(3, 1, (0, 0, 1), "localhost:2,127.0.0.1:1")
TOLD_OF_TWO_HOSTS = "with ranks 0 and 1 on one host and rank 2 on another"

_gathered: dict[tuple, RunRecord] = {}


def gather(
    script: str | Path = "fashion_mnist.py",
    how: Run = ONE_HOST,
    *,
    controller: str | None = None,
    on_event: Callable[[launch.Event], None] | None = None,
) -> RunRecord:
    """Run `script` on a small slice of the data; a script that did not change is not run again.

    Raises CourseError where there is no such script or no Horovod.
    """
    path = Path(script).absolute()
    key = (path, how, controller, hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "")
    if key not in _gathered:
        with tempfile.TemporaryDirectory(prefix="check-") as folder:
            _gathered[key] = collect(
                path,
                ["--epochs", how.epochs, "--batch-size", BATCH_SIZE, "--lr", LEARNING_RATE, "--seed", 0],
                how.ranks,
                controller=controller,
                timeout=TIME_LIMIT_S,
                on_event=on_event,
                env={
                    "COURSE_SLICE": str(SLICE),
                    **({"CUDA_VISIBLE_DEVICES": ""} if how.hosts else {}),  # no real ones beside them
                },
                options=launch.Options(
                    hosts=how.hosts, cwd=folder, stall_timeout=STALL_TIMEOUT_S, fake_gpus=how.fake_gpus
                ),
            )
    return _gathered[key]


def verdicts(script: str | Path = "fashion_mnist.py", *, controller: str | None = None) -> list[Verdict]:
    """What there is to say of each step. Raises CourseError as `gather` does."""
    first = judge(gather(script, controller=controller), STEPS)
    found = _replaced(first, judge(_parsed(script), AS_WRITTEN))
    if _needs_two_hosts(first):
        found = _replaced(found, judge(gather(script, TWO_HOSTS, controller="gloo"), ON_TWO_HOSTS))
    return found


def _replaced(found: list[Verdict], later: list[Verdict]) -> list[Verdict]:
    """What a later look finds wrong, in the place of what an earlier one found right."""
    wrong = {verdict.id: verdict for verdict in later if not verdict.passed}
    return [wrong.get(verdict.id, verdict) if verdict.passed else verdict for verdict in found]


def _needs_two_hosts(found: list[Verdict]) -> bool:
    # A rank that MPI starts has the local rank of the host that it is on, whatever the host's names.
    return all(verdict.passed for verdict in found) and "gloo" in launch.controllers()


def _parsed(script: str | Path) -> ast.Module:
    """The script as it is written; an empty one where it is no Python, as its run has told."""
    try:
        return ast.parse(Path(script).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return ast.Module([], [])


def check(step: str | None = None, script: str | Path = "fashion_mnist.py") -> Report:
    """Run the script on two ranks and report on all steps; with `step`, that one comes first, with its hint.

    A script that is as it was handed out is not run.
    """
    if _untouched(Path(script)):
        return Report([Verdict("script", "Not changed yet", 0.0, 1.0, UNTOUCHED.format(Path(script).name))])
    with Ticker(f"{Path(script).name} runs on {RANKS} ranks, {IMAGES:,} images") as ticker:
        record = gather(script, on_event=ticker.follow)
    if _needs_two_hosts(judge(record, STEPS)):
        with Ticker(f"all eight are there; {Path(script).name} runs on three ranks of two hosts") as ticker:
            record = gather(script, TWO_HOSTS, controller="gloo", on_event=ticker.follow)
    return Report(verdicts(script), focus=step, error=_error(record))


def _untouched(script: Path) -> bool:
    """Whether a copy of the course's script has no change yet."""
    given = GIVEN / script.name
    if not (script.is_file() and given.is_file()) or script.samefile(given):
        return False
    return script.read_bytes() == given.read_bytes()


def points(step: str, script: str | Path = "fashion_mnist.py") -> float:
    """Points of one step, between 0 and its maximum; where some are lost, print the reason."""
    verdict = next(verdict for verdict in verdicts(script) if verdict.id == step)
    if not verdict.passed:
        print(verdict.reason)
    return float(verdict.points)


def _error(record: RunRecord) -> str:
    """What went wrong with the run as a whole, with the last lines of the rank that failed first."""
    result = record.result
    if not result.code:
        return ""
    return "\n".join([result.message, *result.tail[-8:]])


# The steps that are this notebook's own; the others are the rules of `conduct`


def _one_gpu(record: RunRecord) -> str:
    told = training_rules.one_gpu_each(record)
    for rank in record.ranks:
        if (rank.last("gpus") or {}).get("late"):
            raise Wrong(
                f"Rank {rank.rank} hides GPUs after TensorFlow has begun to use its devices: real ones can't be hidden "
                "any more then. Choose right after hvd.init(), and initialise before anything is built.",
                0.5,
            )
    return told


def _same_start(record: RunRecord) -> str:
    if "has no attribute 'callbacks'" in training_rules.early_end(record.result):
        raise Wrong("Nothing was broadcast: hvd has no callbacks. It must be horovod.tensorflow.keras (step 1).")
    return training_rules.broadcast(record)


def _stuck(record: RunRecord) -> str:
    """Which ranks wait for the others in what only they entered at the end of a step or of an epoch; "" if none do."""
    if not training_rules.deadlocked(record.result):
        return ""
    for entered, what in (
        (training_rules.broadcasters(record), "the broadcast"),
        ([rank.rank for rank in record.ranks if not rank.records.get("epoch")], "the average of a metric"),
    ):
        if 0 < len(entered) < record.size:
            who = training_rules.named(entered).lower()
            return f"Only {who} entered {what}, and the run hangs: the callback must be on every rank."
    return ""


def _unless_stuck(judge: Callable[[RunRecord], str]) -> Callable[[RunRecord], str]:
    """What is wrong with the run, unless it got stuck in another step: then that."""

    def told(record: RunRecord) -> str:
        try:
            return judge(record)
        except Wrong:
            if stuck := _stuck(record):
                raise Wrong(stuck) from None
            raise

    return told


def _scaled_rate(record: RunRecord) -> str:
    _require_joined(record)
    ends = [rank.last("fit-end") for rank in record.ranks]
    if not all(ends):
        raise Wrong(with_end("No learning rate was seen: training did not start on every rank.", record))
    rates = [end["learning_rate"] for end in ends]
    scaled = LEARNING_RATE * record.size
    if np.allclose(rates, scaled, rtol=1e-4):
        return f"The learning rate is {scaled:g}: {LEARNING_RATE:g} times {record.size} ranks."
    if np.allclose(rates, LEARNING_RATE, rtol=1e-4):
        larger = f"each step averages over {record.size} times as many images."
        raise Wrong(f"The learning rate is still {LEARNING_RATE:g} (the check passes it with --lr), but {larger}")
    if not np.allclose(rates, rates[0], rtol=1e-4):
        told = ", ".join(f"{rate:g}" for rate in rates)
        raise Wrong(f"The ranks train with different learning rates: {told}.")
    rule = f"linear scaling makes it {LEARNING_RATE:g} × {record.size} = {scaled:g}."
    raise Wrong(f"The learning rate is {rates[0]:g}; {rule}")


def _averaged(record: RunRecord) -> str:
    reduced = training_rules.reductions(record)
    if not reduced.complete:
        raise Wrong(f"Only {reduced}.")
    return f"{reduced}: every step averages every gradient."


def _shared_out(record: RunRecord) -> str:
    told = training_rules.own_images(record, IMAGES, max_epochs=1.0)
    read = sum(len(rank.epoch_examples(0)) for rank in record.ranks)
    if read < IMAGES - 2 * BATCH_SIZE * RANKS:
        raise Wrong(with_end(f"Together the ranks read only {read:,} of {IMAGES:,} images in an epoch.", record))
    again = [np.isin(rank.epoch_examples(1), rank.epoch_examples(0)) for rank in record.ranks]
    if all(len(known) and known.mean() > MAX_KEPT for known in again):
        kept = "Each rank reads the same images in every epoch, in another order."
        raise Wrong(f"{kept} Cut what has been shuffled: shard after the shuffle.", 0.5)
    return told


def _one_voice(record: RunRecord) -> str:
    savers = [rank.rank for rank in record.ranks if rank.records.get("save")]
    training_rules.one_saves(record, savers, "the trained network", "No rank saved the trained network.")
    talkers = [rank for rank in record.ranks[1:] if rank.printed]
    if talkers:
        line = talkers[0].printed[0].strip()
        raise Wrong(f"Only rank 0 saves, but rank {talkers[0].rank} prints too: “{line}”.", 0.5)
    return "Only rank 0 saves and prints."


def _averaged_metrics(record: RunRecord) -> str:
    _require_joined(record)
    logs = [[record["logs"] for record in rank.records.get("epoch", ())] for rank in record.ranks]
    if not all(logs):
        raise Wrong(with_end("No epoch's metrics were seen on every rank.", record))
    for epoch, told in enumerate(zip(*logs)):
        for name in told[0]:
            if len({metrics.get(name) for metrics in told}) > 1:
                values = " and ".join(f"{metrics.get(name, float('nan')):.4f}" for metrics in told)
                where = f"{name} after epoch {epoch + 1}"
                raise Wrong(f"The ranks report different values of {where} ({values}): each knows only its own part.")
    if not any(rank.total("collective", "values", operation="allreduce", values=1) for rank in record.ranks):
        raise Wrong("No metric was averaged over the ranks.")
    return "Every rank reports the same metrics, averaged over all ranks."


def _require_joined(record: RunRecord) -> None:
    if not record.joined:
        raise Wrong("The ranks do not know of each other yet: begin with step 1.")


STEPS = (
    Criterion(
        "init",
        "1 Initialise Horovod",
        1,
        training_rules.initialised,
        "See Step 1: an import and a call, which comes before all else of Horovod.",
    ),
    Criterion(
        "gpu",
        "2 One GPU for each rank",
        1,
        _one_gpu,
        "See Step 2: which of a rank's numbers counts the ranks of one host?",
    ),
    Criterion(
        "rate",
        "3 Scale the learning rate",
        1,
        _unless_stuck(_scaled_rate),
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
        _same_start,
        "See Step 5: a callback broadcasts rank 0's variables; every rank has it.",
    ),
    Criterion(
        "data",
        "6 Share out the data",
        2,
        _unless_stuck(_shared_out),
        "See Step 6: shard the data set, and give all ranks equally many batches.",
    ),
    Criterion(
        "rank0",
        "7 One rank saves and prints",
        1,
        _unless_stuck(_one_voice),
        "See Step 7: only rank 0 gets the checkpoint callback and verbose=2.",
    ),
    Criterion(
        "metrics",
        "8 Average the metrics",
        1,
        _unless_stuck(_averaged_metrics),
        "See Step 8: another of Horovod's callbacks; every rank has it.",
    ),
)


# What is judged by the text of the script: a run on two ranks does not show it


def _imports_keras(script: ast.Module) -> None:
    imported = set()
    for node in ast.walk(script):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    if "horovod.tensorflow" in imported and not any(name.startswith("horovod.tensorflow.keras") for name in imported):
        raise Wrong("The ranks found each other, but hvd is horovod.tensorflow: it has no callbacks for Keras.", 0.5)


def _initialises_first(script: ast.Module) -> None:
    def calls(node: ast.stmt) -> list[str]:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            return []
        return [ast.unparse(part.func) for part in ast.walk(node) if isinstance(part, ast.Call)]

    by_statement = [calls(node) for node in script.body]
    joins = [any(name.rpartition(".")[2] == "init" for name in names) for names in by_statement]
    for names in by_statement[: joins.index(True)] if any(joins) else ():
        if built := [name for name in names if name.startswith(BUILDS)]:
            raise Wrong(
                f"hvd.init() comes after {built[0]}(…): by then TensorFlow uses its devices, and no rank can choose "
                "its GPU any more.",
                0.5,
            )


BUILDS = ("batches", "tf.data", "tf.keras.Sequential", "tf.keras.optimizers", "model.")
OP = 7  # the place of `op` among the arguments of Horovod's DistributedOptimizer for Keras


def _takes_averages(script: ast.Module) -> None:
    for node in ast.walk(script):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("DistributedOptimizer"):
            named = [keyword.value for keyword in node.keywords if keyword.arg == "op"]
            for operation in map(ast.unparse, [*named, *node.args[OP : OP + 1]]):
                if operation.rpartition(".")[2] != "Average":
                    raise Wrong(
                        f"All gradients are all-reduced, but op={operation} does not average them. The default does."
                    )


AS_WRITTEN = (
    Criterion(
        "init", "1 Initialise Horovod", 1, _initialises_first, "See Step 1: right after the arguments are parsed."
    ),
    Criterion("init", "1 Initialise Horovod", 1, _imports_keras, "See Step 1: which module is imported as hvd?"),
    Criterion(
        "optimizer", "4 Average the gradients", 2, _takes_averages, "See Step 4: the rate is scaled for averages."
    ),
)


# What is judged by a run on two hosts, of a script to which a run on one is no trial


def _without_gpu(record: RunRecord) -> bool:
    return bool(record.result.code) and "IndexError" in training_rules.failure(record.result)


def _gpu_of_its_host(record: RunRecord) -> None:
    rank = record.result.failed_rank
    if _without_gpu(record) and rank == 2:
        raise Wrong("rank 2 looks for a third GPU on a host that has one: its number there is its local rank.")
    if _without_gpu(record):
        raise Wrong(f"rank {rank} takes a GPU on a host that has none, and ends with an IndexError: see `if gpus:`.")
    kept = [[str(name) for name in (rank.last("gpus") or {}).get("visible", ())] for rank in record.ranks]
    if not record.result.code and [len(names) for names in kept] != [0, 0, 1]:
        raise Wrong("only rank 2 has a GPU, and should keep it; the others should set nothing.")


def _other_parts(record: RunRecord) -> None:
    if record.result.code and not _without_gpu(record):
        raise Wrong(f"the script does not come to its end. {training_rules.early_end(record.result)}")
    if not record.result.code:
        training_rules.own_images(record, IMAGES, max_epochs=1.0)


def _after_its_end(judge: Callable[[RunRecord], str]) -> Callable[[RunRecord], str | None]:
    """What it says of a run that came to its end. What ended another is told of by step 2 or 6."""
    return lambda record: None if record.result.code else judge(record)


def _on_two_hosts(judge: Callable[[RunRecord], str | None]) -> Callable[[RunRecord], str | None]:
    def told(record: RunRecord) -> str | None:
        with answers.case(TOLD_OF_TWO_HOSTS):
            return judge(record)

    return told


_AGAIN = {  # step → its judge, and a hint
    "gpu": (_gpu_of_its_host, "See Step 2: the local rank, and only where there are GPUs."),
    "rate": (
        _after_its_end(_scaled_rate),
        "See Step 3: hvd.size() counts all ranks, hvd.local_size() those of a host.",
    ),
    "data": (_other_parts, "See Step 6: parts by hvd.size() and hvd.rank(), the numbers among all ranks."),
    "rank0": (_after_its_end(_one_voice), "See Step 7: each host has a rank with the local rank 0."),
}
ON_TWO_HOSTS = tuple(
    Criterion(step.id, step.title, step.max_points, _on_two_hosts(_AGAIN[step.id][0]), _AGAIN[step.id][1])
    for step in STEPS
    if step.id in _AGAIN
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
                    ranks = "1 rank" if size == 1 else f"{size} ranks"
                    raise Wrong(f"{images:,} images, {ranks}: {wrong}", share) from None
        return f"Equal parts, shuffled anew in each epoch, {right}"

    return judge


def _parts(function: Partition, images: int, size: int, epoch: int) -> list[np.ndarray]:
    parts = []
    for rank in range(size):
        value = answers.returned(function(images, rank, size, epoch))
        parts.append(answers.plain(value))
        if parts[-1] is None:
            raise Wrong(f"rank {rank} gets {answers.short(value)}; it should be a list of whole numbers.")
    return parts


def _require_equal_parts(function: Partition, images: int, size: int) -> None:
    for epoch in range(PARTITION_EPOCHS):
        parts = _parts(function, images, size, epoch)
        for rank, part in enumerate(parts):
            if part.ndim != 1 or not np.issubdtype(part.dtype, np.integer):
                got = f"{part.dtype} of shape {part.shape}"
                raise Wrong(f"rank {rank} gets {got}; it should be a list of whole numbers.")
            outside = part[(part < 0) | (part >= images)]
            if len(outside):
                raise Wrong(
                    f"rank {rank} reads image {outside[0]}; the first one is 0, but the last one is {images - 1}."
                )
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
