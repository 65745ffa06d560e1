"""Each step of the conversion, left out or done wrong in a plausible way, gets its marks and its reason."""

from __future__ import annotations

import pytest

from course_lib.authoring import conversions
from labs.lab2_horovod.lessons import checks_2b, diagnosis_2b

pytestmark = [pytest.mark.slow, pytest.mark.ranks]
FULL = sum(criterion.max_points for criterion in checks_2b.STEPS)


def verdicts(tmp_path, text: str, **settings) -> dict:
    script = tmp_path / "fashion_mnist.py"
    script.write_text(text)
    return {v.id: v for v in checks_2b.verdicts(script, **settings)}


def test_the_reference_gets_full_marks(tmp_path, controller):
    got = verdicts(tmp_path, conversions.converted(), controller=controller)
    assert {v.id: v.reason for v in got.values() if not v.passed} == {}
    assert sum(v.points for v in got.values()) == FULL == 10


def test_a_serial_script_gets_nothing_whatever_it_prints(tmp_path):
    boast = "print('Horovod initialised, gradients averaged, accuracy 1.000, passed: True')\n"
    got = verdicts(tmp_path, boast + conversions.converted([]))
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


# Steps that are left out of one script: each must be noticed, and nothing else.
TOGETHER = (("init",), ("optimizer",), ("data",), ("gpu", "rate", "metrics"), ("broadcast", "rank0"))


def test_all_omissions_are_tried():
    assert sorted(sum(TOGETHER, ())) == sorted(OMITTED) == sorted(conversions.steps())


@pytest.mark.parametrize("left_out", TOGETHER, ids="+".join)
def test_each_omission_is_noticed(left_out, tmp_path):
    got = verdicts(tmp_path, conversions.converted([name for name in conversions.steps() if name not in left_out]))
    for step in left_out:
        assert got[step].points == 0
        assert OMITTED[step] in got[step].reason
        assert got[step].hint
    if "init" not in left_out:  # nothing else works without it
        assert {v.id for v in got.values() if not v.passed} - {*left_out} <= {"metrics"}


def test_half_of_the_way_gets_half_of_the_marks(tmp_path):
    steps = list(conversions.steps())
    first, then = steps[:4], steps[4:]
    got = verdicts(tmp_path, conversions.converted(first))
    assert {v.id for v in got.values() if v.passed} == {*first}
    assert {v.id for v in got.values() if not v.passed} == {*then}


LATE = """
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
"""

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
    "sharded before the shuffle": (
        (
            "    dataset = dataset.shuffle(len(images), seed=1)\n"
            "    dataset = dataset.shard(hvd.size(), hvd.rank()).batch(batch_size, drop_remainder=True)\n",
            "    dataset = dataset.shard(hvd.size(), hvd.rank()).shuffle(len(images), seed=1)\n"
            "    dataset = dataset.batch(batch_size, drop_remainder=True)\n",
        ),
        "data", 1, "the same images in every epoch",
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
    "the GPUs hidden too late": (
        ("validation = batches(x_val, y_val, args.batch_size)\n", f"validation = batches(x_val, y_val, 32)\n{LATE}"),
        "gpu", 0.5, "after TensorFlow has begun to use its devices",
    ),
    "horovod.tensorflow imported": (
        ("import horovod.tensorflow.keras as hvd", "import horovod.tensorflow as hvd"),
        "init", 0.5, "hvd is horovod.tensorflow",
    ),
    "gradients added up": (
        ("hvd.DistributedOptimizer(optimizer)", "hvd.DistributedOptimizer(optimizer, op=hvd.Sum)"),
        "optimizer", 0, "op=hvd.Sum does not average",
    ),
    "the rate times two": (
        ("args.lr * hvd.size()", "args.lr * 2"),
        "rate", 0, "linear scaling makes it 0.01 × 3 = 0.03",
    ),
    "the rate scaled by the ranks of the host": (
        ("args.lr * hvd.size()", "args.lr * hvd.local_size()"),
        "rate", 0, "different learning rates: 0.02, 0.02, 0.01",
    ),
    "saved by the first of each host": (
        ("if hvd.rank() == 0:\n    callbacks.append", "if hvd.local_rank() == 0:\n    callbacks.append"),
        "rank0", 0, "Ranks 0 and 2 wrote the trained network",
    ),
    "printed by the first of each host": (
        ("verbose = 2 if hvd.rank() == 0 else 0", "verbose = 2 if hvd.local_rank() == 0 else 0"),
        "rank0", 0.5, "rank 2 prints too",
    ),
    "the GPU of its rank": (
        ("set_visible_devices(gpus[hvd.local_rank()]", "set_visible_devices(gpus[hvd.rank()]"),
        "gpu", 0, "rank 2 looks for a third GPU on a host that has one",
    ),
    "a GPU where there is none": (
        ("if gpus:\n", "if True:\n"),
        "gpu", 0, "takes a GPU on a host that has none",
    ),
    "parts for two": (
        ("dataset.shard(hvd.size(), hvd.rank())", "dataset.shard(2, hvd.rank())"),
        "data", 0, "the script does not come to its end",
    ),
    "the broadcast on one rank": (
        (
            "callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)]",
            "callbacks = [hvd.callbacks.BroadcastGlobalVariablesCallback(0)] if hvd.rank() == 0 else []",
        ),
        "broadcast", 0, "only rank 0 entered the broadcast",
    ),
    "a root on each rank": (
        ("BroadcastGlobalVariablesCallback(0)", "BroadcastGlobalVariablesCallback(hvd.rank())"),
        "broadcast", 0, "the ranks named different roots",
    ),
    "metrics averaged on one rank": (
        (
            "callbacks.append(hvd.callbacks.MetricAverageCallback())",
            "callbacks += [hvd.callbacks.MetricAverageCallback()] if hvd.rank() == 0 else []",
        ),
        "metrics", 0, "Only rank 0 entered the average of",
    ),
    "a syntax error": (
        ("hvd.init()", "hvd.init("),
        "init", 0, "failed with exit code 1: SyntaxError",
    ),
}  # fmt: skip


# Mistakes that one script makes: each must get its reason beside the others.
MADE_TOGETHER = (
    ("the rate scaled by the root", "all ranks on the first GPU", "every rank prints", "sharded before the shuffle"),
    ("the rate scaled by the rank", "the same half for both"),
    ("wrapped after compile",),
    ("unequal numbers of batches",),
    ("each rank reads all, in its own order",),
    ("a syntax error",),
    ("horovod.tensorflow imported",),
    ("the GPUs hidden too late",),
    ("gradients added up", "the rate times two", "saved by the first of each host"),
    ("the rate scaled by the ranks of the host", "printed by the first of each host"),
    ("the GPU of its rank",),
    ("a GPU where there is none",),
    ("parts for two",),
    ("the broadcast on one rank",),
    ("a root on each rank",),
    ("metrics averaged on one rank",),
)


def test_all_mistakes_are_made():
    assert sorted(sum(MADE_TOGETHER, ())) == sorted(WRONG)


@pytest.mark.parametrize("mistakes", MADE_TOGETHER, ids=", ".join)
def test_plausible_mistakes_get_their_reason(mistakes, tmp_path):
    text = conversions.converted()
    for mistake in mistakes:
        old, new = WRONG[mistake][0]
        assert text.count(old) == 1
        text = text.replace(old, new)
    got = verdicts(tmp_path, text)
    for mistake in mistakes:
        _, step, points, reason = WRONG[mistake]
        assert got[step].points == points
        assert reason in got[step].reason


def test_each_patient_shows_what_its_omission_does(tmp_path, capsys):
    script = tmp_path / "fashion_mnist.py"
    script.write_text(conversions.converted())
    seen = {patient: diagnosis_2b.examine(patient, script) for patient in "ABC"}
    first, end, loss = "weights after the first step", "weights at the end", "loss reported at the end"

    def equal(patient, row):
        return seen[patient].loc[row].nunique() == 1

    assert [equal(patient, first) for patient in "ABC"] == [False, True, True]
    assert [equal(patient, end) for patient in "ABC"] == [False, True, False]
    assert [equal(patient, loss) for patient in "ABC"] == [True, False, True]
    assert not any(equal(patient, "brightness of the first three") for patient in "ABC")
    assert "validation accuracy" in capsys.readouterr().out


def test_an_unfinished_script_is_not_examined(tmp_path, capsys):
    script = tmp_path / "fashion_mnist.py"
    script.write_text("raise SystemExit\n")
    assert diagnosis_2b.examine("A", script) is None
    assert "has to be converted first. It lacks: 1 Initialise Horovod" in capsys.readouterr().out


def test_option_2_and_a_model_that_its_first_batch_builds_are_as_good(tmp_path):
    own_shuffle = conversions.converted().replace("seed=1)", "seed=1 + hvd.rank())")
    own_shuffle = own_shuffle.replace(".shard(hvd.size(), hvd.rank())", ".take(len(images) // hvd.size())")
    unbuilt = own_shuffle.replace(", input_shape=x.shape[1:])", ")")
    assert len({conversions.converted(), own_shuffle, unbuilt}) == 3
    got = verdicts(tmp_path, unbuilt)
    assert {v.id: v.reason for v in got.values() if not v.passed} == {}
