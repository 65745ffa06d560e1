"""Each step of the conversion, left out or done wrong in a plausible way, gets its marks and its reason."""

from __future__ import annotations

import pytest

from course_lib.command.classroom import conversions
from course_lib.notebook.judging import judge
from labs.lab2_horovod.lessons import checks_2b

pytestmark = [pytest.mark.slow, pytest.mark.ranks]
FULL = sum(criterion.max_points for criterion in checks_2b.STEPS)


def verdicts(tmp_path, text: str, **settings) -> dict:
    script = tmp_path / "fashion_mnist.py"
    script.write_text(text)
    return {v.id: v for v in judge(checks_2b.gather(script, **settings), checks_2b.STEPS)}


def test_the_reference_gets_full_marks(tmp_path, controller):
    got = verdicts(tmp_path, conversions.converted(), controller=controller)
    assert {v.id: v.reason for v in got.values() if not v.passed} == {}
    assert sum(v.points for v in got.values()) == FULL == 10


def test_the_serial_script_gets_nothing(tmp_path):
    got = verdicts(tmp_path, conversions.converted([]))
    assert {v.id: v.points for v in got.values() if v.points} == {}
    assert "strangers" in got["init"].reason


OMITTED = {
    "init": "No process called hvd.init()",
    "gpu": "Every rank sees all GPUs",
    "rate": "The learning rate is still 0.01",
    "optimizer": "No gradients were all-reduced",
    "broadcast": "Nothing was broadcast",
    "data": "In the same step ranks 0 and 1 read the same images",
    "rank0": "Ranks 0 and 1 wrote the trained network",
    "metrics": "different values of",
}


@pytest.mark.parametrize("step", OMITTED)
def test_each_omission_is_noticed(step, tmp_path):
    got = verdicts(tmp_path, conversions.converted([name for name in conversions.steps() if name != step]))
    assert got[step].points == 0
    assert OMITTED[step] in got[step].reason
    assert got[step].hint
    if step != "init":  # nothing else works without it
        assert {v.id for v in got.values() if not v.passed} - {step} <= {"metrics"} | {"broadcast"} & {step}


WRONG = {
    "the rate scaled by the root": (
        ("args.lr * hvd.size()", "args.lr * hvd.size() ** 0.5"),
        "rate", 0, "linear scaling makes it",
    ),
    "the rate scaled by the rank": (
        ("args.lr * hvd.size()", "args.lr * (1 + hvd.rank())"),
        "rate", 0, "different learning rates: 0.01, 0.02",
    ),
    "all ranks on the first GPU": (
        ("gpus[hvd.local_rank()], \"GPU\"", "gpus[0], \"GPU\""),
        "gpu", 0, "Rank 1 keeps GPU 0 in place of 1",
    ),
    "wrapped after compile": (
        ("optimizer = hvd.DistributedOptimizer(optimizer)\nmodel.compile(", "model.compile("),
        "optimizer", 0, "No gradients were all-reduced",
    ),
    "unequal numbers of batches": (
        ("    dataset = dataset.take(len(images) // (batch_size * hvd.size()))\n", ""),
        "data", 0, "Unequal numbers of batches in an epoch (rank 0: 20, rank 1: 19)",
    ),
    "the same half for both": (
        ("dataset.shard(hvd.size(), hvd.rank())", "dataset.take(len(images) // hvd.size())"),
        "data", 0, "ranks 0 and 1 read the same images",
    ),
    "each rank reads all, in its own order": (
        (
            "seed=1)\n    dataset = dataset.shard(hvd.size(), hvd.rank()).batch(batch_size, drop_remainder=True)\n"
            "    dataset = dataset.take(len(images) // (batch_size * hvd.size()))\n",
            "seed=hvd.rank())\n    dataset = dataset.batch(batch_size, drop_remainder=True)\n",
        ),
        "data", 0, "no rank reads less than before",
    ),
    "every rank prints": (
        ("verbose = 2 if hvd.rank() == 0 else 0", "verbose = 2"),
        "rank0", 0.5, "rank 1 prints too",
    ),
    "a syntax error": (
        ("hvd.init()", "hvd.init("),
        "init", 0, "failed with exit code 1: SyntaxError",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_plausible_mistakes_get_their_reason(mistake, tmp_path):
    (old, new), step, points, reason = WRONG[mistake]
    assert conversions.converted().count(old) == 1
    verdict = verdicts(tmp_path, conversions.converted().replace(old, new))[step]
    assert verdict.points == points
    assert reason in verdict.reason


def test_option_2_is_as_good_as_option_1(tmp_path):
    own_shuffle = conversions.converted().replace("seed=1)", "seed=1 + hvd.rank())")
    own_shuffle = own_shuffle.replace(".shard(hvd.size(), hvd.rank())", ".take(len(images) // hvd.size())")
    got = verdicts(tmp_path, own_shuffle)
    assert {v.id: v.reason for v in got.values() if not v.passed} == {}


def test_a_model_that_its_first_batch_builds_is_as_good(tmp_path):
    unbuilt = conversions.converted().replace(", input_shape=fashion.x_train.shape[1:])", ")")
    assert unbuilt != conversions.converted()
    got = verdicts(tmp_path, unbuilt)
    assert {v.id: v.reason for v in got.values() if not v.passed} == {}


def test_what_the_script_prints_is_no_evidence(tmp_path):
    boast = "print('Horovod initialised, gradients averaged, accuracy 1.000, passed: True')\n"
    got = verdicts(tmp_path, boast + conversions.converted([]))
    assert sum(v.points for v in got.values()) == 0
