"""Steps of the conversion, left out or done wrong in a plausible way, get their marks and their reasons from real runs.

Mistakes that do not touch each other share a run, and the same script is run once. What a made-up record shows as well
is in tests/labs/lab2/test_checks_2b.py.
"""

from __future__ import annotations

import hashlib

import pytest

from course_lib.authoring import conversions
from course_lib.notebook.judging import judge
from course_lib.ranks import launch
from labs.lab2_horovod.lessons import checks_2b, diagnosis_2b

pytestmark = [pytest.mark.slow, pytest.mark.ranks]
FULL = {criterion.id: criterion.max_points for criterion in checks_2b.STEPS}
CONVERTED = conversions.converted()


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    """script(text): a script of this text, at the same place each time, so that it is run once."""
    folder = tmp_path_factory.mktemp("scripts")

    def write(text):
        path = folder / hashlib.sha256(text.encode()).hexdigest()[:9] / "fashion_mnist.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


def wrong(verdicts) -> dict[str, tuple[float, str]]:
    """Steps that lose points → the points that are left, and the reason."""
    assert all(verdict.hint for verdict in verdicts if not verdict.passed)
    return {verdict.id: (verdict.points, verdict.reason) for verdict in verdicts if not verdict.passed}


def test_the_reference_gets_full_marks(script, controller):
    chosen = None if controller == launch.controllers()[0] else controller  # as the patients' checks have it
    got = checks_2b.verdicts(script(CONVERTED), controller=chosen)
    assert wrong(got) == {}
    assert sum(verdict.points for verdict in got) == sum(FULL.values()) == 10


def test_a_serial_script_gets_nothing_whatever_it_prints(script):
    boast = "print('Horovod initialised, gradients averaged, accuracy 1.000, passed: True')\n"
    got = wrong(checks_2b.verdicts(script(boast + conversions.converted([]))))
    assert {step: points for step, (points, _) in got.items()} == dict.fromkeys(FULL, 0)
    assert "the 2 processes do not know of each other" in got["init"][1]


def test_option_2_and_a_model_that_its_first_batch_builds_are_as_good(script):
    text = CONVERTED
    for old, new in (
        ("seed=1)", "seed=1 + hvd.rank())"),
        (".shard(hvd.size(), hvd.rank())", ".take(len(images) // hvd.size())"),
        (", input_shape=x.shape[1:])", ")"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    assert wrong(judge(checks_2b.gather(script(text)), checks_2b.STEPS)) == {}


def test_each_omission_is_noticed_and_nothing_else(script):
    left_out = ("gpu", "rate", "data", "rank0")  # the others: see the patients below, and the made-up records
    got = wrong(checks_2b.verdicts(script(conversions.converted(conversions.steps().keys() - {*left_out}))))
    assert {step: points for step, (points, _) in got.items()} == dict.fromkeys(left_out, 0)
    for step, reason in {
        "gpu": "Every rank sees all GPUs",
        "rate": "The learning rate is still 0.01",
        "data": "In the same step ranks 0 and 1 read the same images",
        "rank0": "Ranks 0 and 1 wrote the trained network",
    }.items():
        assert reason in got[step][1]


def test_each_patient_shows_what_its_omission_does(script, monkeypatch, capsys):
    records, gather = {}, checks_2b.gather

    def kept(path, *args, **settings):
        record = records[path.name] = gather(path, *args, **settings)
        return record

    path = script(CONVERTED)
    monkeypatch.setattr(checks_2b, "gather", kept)
    seen = {patient: diagnosis_2b.examine(patient, path) for patient in "ABC"}
    first, end, loss = "weights after the first step", "weights at the end", "loss reported at the end"

    def equal(row):
        return [seen[patient].loc[row].nunique() == 1 for patient in "ABC"]

    assert (equal(first), equal(end)) == ([False, True, True], [False, True, False])
    assert (equal(loss), equal("brightness of the first three")) == ([True, False, True], [False] * 3)
    assert "validation accuracy" in capsys.readouterr().out
    for patient, step, reason in (
        ("A", "broadcast", "Nothing was broadcast"),
        ("B", "metrics", "different values of"),
        ("C", "optimizer", "No gradients were all-reduced"),
    ):
        got = wrong(judge(records[f"patient_{patient}.py"], checks_2b.STEPS))
        assert [*got] == [step] and got[step][0] == 0 and reason in got[step][1]


LATE = """
gpus = tf.config.list_physical_devices("GPU")
tf.config.set_visible_devices(gpus[hvd.local_rank()], "GPU")
"""
SHARD = "    dataset = dataset.shard(hvd.size(), hvd.rank()).batch(batch_size, drop_remainder=True)\n"
TAKE = "    dataset = dataset.take(len(images) // (batch_size * hvd.size()))\n"
MISTAKES = {  # edit, step, points that are left, reason
    "the rate scaled by the root": (
        ("args.lr * hvd.size()", "args.lr * hvd.size() ** 0.5"), "rate", 0, "linear scaling makes it",
    ),
    "all ranks on the first GPU": (
        ('gpus[hvd.local_rank()], "GPU"', 'gpus[0], "GPU"'), "gpu", 0, "Rank 1 keeps GPU 0; it should keep only GPU 1",
    ),
    "every rank prints": (
        ("verbose = 2 if hvd.rank() == 0 else 0", "verbose = 2"), "rank0", 0.5, "rank 1 prints too",
    ),
    "sharded before the shuffle": (
        (
            f"    dataset = dataset.shuffle(len(images), seed=1)\n{SHARD}",
            "    dataset = dataset.shard(hvd.size(), hvd.rank()).shuffle(len(images), seed=1)\n"
            "    dataset = dataset.batch(batch_size, drop_remainder=True)\n",
        ),
        "data", 1, "the same images in every epoch",
    ),
    "the rate scaled by the rank": (
        ("args.lr * hvd.size()", "args.lr * (1 + hvd.rank())"), "rate", 0, "different learning rates: 0.01, 0.02",
    ),
    "the GPUs hidden too late": (
        ("validation = batches(x_val, y_val, args.batch_size)\n", f"validation = batches(x_val, y_val, 32)\n{LATE}"),
        "gpu", 0.5, "after TensorFlow has begun to use its devices",
    ),
    "each rank reads all, in its own order": (
        (
            f"seed=1)\n{SHARD}{TAKE}",
            "seed=hvd.rank())\n    dataset = dataset.batch(batch_size, drop_remainder=True)\n",
        ),
        "data", 0, "no rank reads fewer images",
    ),
    "unequal numbers of batches": (
        (TAKE, ""), "data", 0, "Unequal numbers of batches in an epoch (rank 0: 20, rank 1: 19)",
    ),
    "a root on each rank": (
        ("BroadcastGlobalVariablesCallback(0)", "BroadcastGlobalVariablesCallback(hvd.rank())"),
        "broadcast", 0, "the ranks gave different root ranks",
    ),
    "metrics averaged on one rank": (
        (
            "callbacks.append(hvd.callbacks.MetricAverageCallback())",
            "callbacks += [hvd.callbacks.MetricAverageCallback()] if hvd.rank() == 0 else []",
        ),
        "metrics", 0, "Only rank 0 entered the average of",
    ),
    "a syntax error": (("hvd.init()", "hvd.init("), "init", 0, "failed with exit code 1: SyntaxError"),
    # These show on two hosts only.
    "gradients added up": (
        ("hvd.DistributedOptimizer(optimizer)", "hvd.DistributedOptimizer(optimizer, op=hvd.Sum)"),
        "optimizer", 0, "op=hvd.Sum does not average",
    ),
    "the rate times two": (("args.lr * hvd.size()", "args.lr * 2"), "rate", 0, "makes it 0.01 × 3 = 0.03"),
    "saved by the first of each host": (
        ("if hvd.rank() == 0:\n    callbacks.append", "if hvd.local_rank() == 0:\n    callbacks.append"),
        "rank0", 0, "Ranks 0 and 2 wrote the trained network",
    ),
}  # fmt: skip
TOGETHER = (
    ("the rate scaled by the root", "all ranks on the first GPU", "every rank prints", "sharded before the shuffle"),
    ("the rate scaled by the rank", "the GPUs hidden too late", "each rank reads all, in its own order"),
    ("unequal numbers of batches",),
    ("a root on each rank",),
    ("metrics averaged on one rank",),
    ("a syntax error",),
    ("gradients added up", "the rate times two", "saved by the first of each host"),
)
HANGS = (("unequal numbers of batches",), ("metrics averaged on one rank",))


def with_mistakes(*mistakes: str) -> str:
    """The converted script with these made in it."""
    text = CONVERTED
    for mistake in mistakes:
        old, new = MISTAKES[mistake][0]
        assert text.count(old) == 1
        text = text.replace(old, new)
    return text


def test_all_mistakes_are_made():
    assert sorted(sum(TOGETHER, ())) == sorted(MISTAKES)


@pytest.mark.parametrize("mistakes", TOGETHER, ids=", ".join)
def test_plausible_mistakes_get_their_reason(mistakes, script, monkeypatch):
    if mistakes in HANGS:
        monkeypatch.setattr(checks_2b, "STALL_TIMEOUT_S", 10.0)
    got = wrong(checks_2b.verdicts(script(with_mistakes(*mistakes))))
    for mistake in mistakes:
        _, step, points, reason = MISTAKES[mistake]
        assert got[step][0] == points and reason in got[step][1]


def test_an_unfinished_script_is_not_examined(script, capsys):
    assert diagnosis_2b.examine("A", script(with_mistakes("a syntax error"))) is None
    assert "has to be converted first. It lacks: 1 Initialise Horovod" in capsys.readouterr().out
