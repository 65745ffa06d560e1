"""The conversion's parts that need no ranks: the script's stages, partitions, reports."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from course_lib.authoring import conversions
from course_lib.notebook.judging import Verdict, judge
from course_lib.notebook.report import Report
from course_lib.ranks.launch import Result
from course_lib.ranks.run_record import Evidence, RankEvidence, read_timeline
from course_lib.system.errors import CourseError
from course_lib.system.supervise import TIMED_OUT
from labs.lab2_horovod.lessons import checks_2b
from labs.lab2_horovod.lessons.checks_2b import check_partition, partition_points
from labs.lab2_horovod.lessons.diagnosis_2b import check_diagnosis, diagnosis_points


def option_1(images, rank, size, epoch):
    order = np.random.default_rng(epoch).permutation(images)
    return order[rank * (images // size) : (rank + 1) * (images // size)]


def option_2(images, rank, size, epoch):
    return np.random.default_rng([epoch, rank]).permutation(images)[: images // size]


def unequal(images, rank, size, epoch):
    return np.random.default_rng(epoch).permutation(images)[rank::size]


def own_shuffles(images, rank, size, epoch):
    order = np.random.default_rng([epoch, rank]).permutation(images)
    return order[rank * (images // size) : (rank + 1) * (images // size)]


def never_reshuffled(images, rank, size, epoch):
    return option_1(images, rank, size, 0)


def kept_parts(images, rank, size, epoch):
    return np.random.default_rng(epoch).permutation(images // size) + rank * (images // size)


def with_replacement(images, rank, size, epoch):
    return np.random.default_rng([epoch, rank]).integers(0, images, images // size)


def unseeded(images, rank, size, epoch):
    return np.random.permutation(images)[: images // size]


def nothing(images, rank, size, epoch):
    option_1(images, rank, size, epoch)


def beyond(images, rank, size, epoch):
    return option_1(images + size, rank, size, epoch)


def too_few(images, rank, size, epoch):
    return option_1(images, rank, size, epoch)[1:]


def shuffled_later(images, rank, size, epoch):
    part = option_1(images, rank, size, epoch)
    return part if epoch else np.arange(rank * len(part), (rank + 1) * len(part))


def broken(images, rank, size, epoch):
    return images[rank]


def seeded_by_the_sum(images, rank, size, epoch):
    return np.random.default_rng(rank + epoch).permutation(images)[: images // size]


def one_shuffle_for_all(images, rank, size, epoch):
    return option_2(images, 0, size, epoch)


@pytest.mark.parametrize("function, option", [(option_1, 1), (option_2, 2)])
def test_right_partitions_get_all_points(function, option):
    assert partition_points(function, option, 2) == 2.0
    assert "✓" in str(check_partition(function, option))


@pytest.mark.parametrize(
    "function, option, points, reason",
    [
        (unequal, 1, 0, "unequal parts end in a deadlock"),
        (own_shuffles, 1, 1, "read by two ranks"),
        (never_reshuffled, 1, 1, "shuffle anew in each epoch"),
        (kept_parts, 1, 1, "shuffle before you cut"),
        (with_replacement, 2, 0, "without replacement"),
        (unseeded, 2, 0, "answers differently"),
        (nothing, 1, 0, "is a `return` missing?"),
        (beyond, 1, 0, "but the last one is 95"),
        (too_few, 1, 0, "each rank reads 95 images in place of 96"),
        (shuffled_later, 1, 1, "stored order"),
        (broken, 1, 0, "raised TypeError"),
        (one_shuffle_for_all, 2, 1, "same images in the same order"),
        (option_1, 2, 1, "that is option 1"),
        (seeded_by_the_sum, 2, 1, "not their sum"),
    ],
)
def test_wrong_partitions_get_their_reason(function, option, points, reason, capsys):
    assert partition_points(function, option, 2) == points
    assert reason in capsys.readouterr().out
    assert reason in str(check_partition(function, option))


def test_a_stub_gets_nothing_and_says_so_itself():
    def stub(images, rank, size, epoch):
        raise NotImplementedError

    assert partition_points(stub, 1, 2) == 0.0
    assert "still a stub" in str(check_partition(stub, 1))


@pytest.mark.parametrize(
    "answer, points, reason",
    [
        ({"A": 5, "B": 8, "C": 4}, 3, ""),
        ({"A": 4, "B": 8, "C": 5}, 1, "A's ranks differ after the first step already"),
        ({"A": 4, "B": 8, "C": 5}, 1, "C's ranks are equal after the first step"),
        ({"A": 5, "B": 3}, 1, "C has no diagnosis"),
        ({"A": 5, "B": 6, "C": 4}, 2, "each its own part"),
        ({"A": 5, "B": 3, "C": 4}, 2, "one and the same network"),
        ({"A": "5", "B": 8, "C": 4}, 2, "A has '5'; write a number from 3 to 8"),
        ({"A": 12, "B": 8, "C": 4}, 2, "A has 12; write a number from 3 to 8"),
        (["broadcast"], 0, "the number of a step for each"),
        (None, 0, "is a `return` missing"),
    ],
)
def test_a_diagnosis_gets_its_reason(answer, points, reason, capsys):
    def diagnosis():
        return answer

    assert diagnosis_points(diagnosis, 3) == points
    assert reason in capsys.readouterr().out
    assert reason in str(check_diagnosis(diagnosis))


def test_all_stages_of_the_script_are_python_and_differ():
    names = list(conversions.steps())
    stages = [conversions.converted(names[:k]) for k in range(len(names) + 1)]
    without = [conversions.converted([n for n in names if n != left_out]) for left_out in names]
    for text in stages + without:
        compile(text, "fashion_mnist.py", "exec")
    assert len(set(stages + without)) == 2 * len(names)  # without the last step = the last stage but one
    assert "hvd" not in stages[0]


def test_unknown_step_is_named():
    with pytest.raises(CourseError, match="no step 'warp'"):
        conversions.converted(["warp"])


def test_a_script_that_is_as_it_was_handed_out_is_not_run(tmp_path, monkeypatch):
    monkeypatch.setattr(checks_2b, "gather", lambda *_, **__: pytest.fail("it was run"))
    script = tmp_path / "fashion_mnist.py"
    script.write_bytes((conversions.LAB2 / script.name).read_bytes())
    report = checks_2b.check("init", script)
    assert report.score == 0 and "`fashion_mnist.py` is as you got it" in str(report)


def test_report_escapes_and_focuses():
    report = Report([Verdict("a", "A", 0, 1, "<b>wrong</b>", "look"), Verdict("b", "B", 1, 1, "fine")], focus="a")
    assert "&lt;b&gt;wrong" in report._repr_html_() and "look" in report._repr_html_()
    assert str(report).splitlines() == ["· A: <b>wrong</b>", "  Hint: look", "✓ B"]
    assert report.score == 1


def test_weights_are_compared_bit_for_bit():
    def evidence(*weights):
        return Evidence(Result(0, 1.0), tuple(RankEvidence(i, weights=w) for i, w in enumerate(weights)))

    one, other = np.array([1.0, 2.0]), np.array([1.0, np.nextafter(2.0, 3.0)])
    assert evidence((one,), (one.copy(),)).weights_differ() == 0.0
    assert evidence((one,), (other,)).weights_differ() > 0.0
    assert evidence((one,), ()).weights_differ() is None
    assert evidence((one,), (one[:1],)).weights_differ() == float("inf")
    assert evidence((one,), (np.array([np.nan, 2.0]),)).weights_differ() > 1


def test_a_timeline_cut_short_is_read_as_far_as_it_goes(tmp_path):
    path = tmp_path / "timeline.json"
    path.write_text(
        '[\n{"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "grads_0"}},\n'
        '{"ph": "B", "name": "NEGOTIATE_ALLREDUCE", "pid": 1},{"ph": "B", "name": "ALLREDUCE", "pid": 1},\n'
        '{"ph": "B", "name": "ALLREDUCE", "pid": 1},{"ph": "B", "name": "ALLRED'
    )
    assert read_timeline(path).times == {"ALLREDUCE": {"grads_0": 2}}
    assert read_timeline(tmp_path / "none").times == {}


# What a later look at a script finds


def wrong(verdicts):
    return {verdict.id: (verdict.points, verdict.reason) for verdict in verdicts if not verdict.passed}


@pytest.mark.parametrize(
    ("text", "step", "points", "reason"),
    [
        ("import horovod.tensorflow as hvd", "init", 0.5, "has no callbacks"),
        ("hvd.DistributedOptimizer(tf.keras.optimizers.SGD(0.1), op=hvd.Sum)", "optimizer", 0, "op=hvd.Sum"),
        ("model = tf.keras.Sequential([])\nhvd.init()", "init", 0.5, "comes after tf.keras.Sequential(…)"),
        ("def network():\n    return tf.keras.Sequential([])\nhvd.init()\nmodel = network()", None, 0, ""),
        ("def main():\n    hvd.init()\nmodel = tf.keras.Sequential([])\nmain()", None, 0, ""),
        ("DistributedOptimizer(sgd, None, '', '', fp16, False, 1.0, hvd.Sum)", "optimizer", 0, "op=hvd.Sum"),
        ("import horovod.tensorflow.keras as hvd\nhvd.DistributedOptimizer(sgd, op=hvd.Average)", None, 0, ""),
        ("import horovod.tensorflow\nfrom horovod.tensorflow import keras as hvd", None, 0, ""),
        ("import horovod.tensorflow.keras as hvd\nDistributedOptimizer(sgd, name='sgd')", None, 0, ""),
        ("no Python", None, 0, ""),
    ],
)
def test_the_text_tells_what_a_run_does_not(text, step, points, reason, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(text)
    found = wrong(judge(checks_2b._parsed(script), checks_2b.AS_WRITTEN))
    assert [*found] == [step] * bool(step)
    assert not step or (found[step][0] == points and reason in found[step][1])


RIGHT = [{}, {}, {"visible": ["/physical_device:GPU:0"]}]  # the GPUs that three ranks of two hosts keep


def two_hosts(code=0, failed=None, tail=(), gpus=RIGHT, rates=(0.03,) * 3, savers=(0,)):
    images = np.random.default_rng(0).permutation(1248).astype(np.float32).reshape(3, 13, 32)
    ranks = tuple(
        RankEvidence(
            number,
            {
                "init": [{"rank": number, "size": 3, "local_rank": number % 2}],
                "gpus": [gpus[number]] if gpus[number] else [],
                "fit-end": [{"learning_rate": rates[number]}],
                "save": [{}] if number in savers else [],
                "epoch": [{"steps": 13, "first": 0}],
            },
            examples=tuple(images[number]),
        )
        for number in range(3)
    )
    message = f"Rank {failed} failed with exit code 1." if code else ""
    return Evidence(Result(code, 1.0, message=message, failed_rank=failed, tail=tuple(tail)), ranks)


NO_SUCH_GPU = ["IndexError: list index out of range"]
NO_SUCH_PART = ["InvalidArgumentError: index must be between 0 and 1"]


@pytest.mark.parametrize(
    ("run", "step", "points", "reason"),
    [
        (two_hosts(), None, 0, ""),
        (two_hosts(1, 0, NO_SUCH_GPU), "gpu", 0, "rank 0 takes a GPU on a host that has none"),
        (two_hosts(1, 2, NO_SUCH_GPU), "gpu", 0, "rank 2 looks for a third GPU"),
        (two_hosts(gpus=[{}, {}, {}]), "gpu", 0, "only rank 2 has a GPU, and should keep it"),
        (two_hosts(rates=(0.02, 0.02, 0.01)), "rate", 0, "different learning rates: 0.02, 0.02, 0.01"),
        (two_hosts(rates=(0.02,) * 3), "rate", 0, "0.01 × 3 = 0.03"),
        (two_hosts(savers=(0, 2)), "rank0", 0, "Ranks 0 and 2 wrote the trained network"),
        (two_hosts(1, 2, NO_SUCH_PART), "data", 0, "index must be between 0 and 1"),
    ],
)
def test_two_hosts_tell_what_one_does_not(run, step, points, reason):
    found = wrong(judge(run, checks_2b.ON_TWO_HOSTS))
    assert [*found] == [step] * bool(step)
    assert not step or (found[step][0] == points and reason in found[step][1])
    assert all(told.startswith("with ranks 0 and 1 on one host and rank 2 on another: ") for _, told in found.values())


def hung(*records):
    result = Result(TIMED_OUT, 20.0, message="No rank made a step for 20 s: the ranks wait for each other.")
    return Evidence(result, tuple(RankEvidence(rank, {"init": [{"rank": rank, "size": 2}], **r})
                                  for rank, r in enumerate(records)))  # fmt: skip


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (hung({"broadcast": [{"bytes": 4}]}, {}), "Only rank 0 entered the broadcast, and the run hangs"),
        (hung({}, {"epoch": [{"logs": {"loss": 1.0}}]}), "Only rank 0 entered the average of a metric"),
        (hung({}, {}), "No learning rate was seen"),
    ],
)
def test_a_run_that_got_stuck_says_where(run, reason):
    assert reason in wrong(judge(run, checks_2b.STEPS))["rate"][1]


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (hung({}, {}), "start from different random weights"),
        (hung({"broadcast": [{"bytes": 4}]}, {}), "only rank 0 entered the broadcast; all ranks must"),
        (hung({"broadcast": [{"bytes": 4}]}, {"broadcast": [{"bytes": 4}]}), "it was never done"),
        (
            replace(
                hung({"broadcast": [{"bytes": 4}]}, {"broadcast": [{"bytes": 4}]}),
                result=Result(1, 1.0, failed_rank=0, tail=("Mismatched BROADCAST root ranks: One rank said 1.",)),
            ),
            "the ranks named different roots",
        ),
        (
            replace(
                hung({}, {}),
                result=Result(1, 1.0, failed_rank=0, tail=("AttributeError: module 'h' has no attribute 'callbacks'",)),
            ),
            "It must be horovod.tensorflow.keras",
        ),
    ],
)
def test_a_missing_broadcast_says_who_entered(run, reason):
    assert reason in wrong(judge(run, checks_2b.STEPS))["broadcast"][1]


def test_gpus_hidden_too_late_are_noticed():
    run = Evidence(
        Result(0, 1.0),
        tuple(
            RankEvidence(r, {"init": [{"local_rank": r}], "gpus": [{"visible": [f"GPU:{r}"], "late": True}]})
            for r in range(2)
        ),
    )
    points, reason = wrong(judge(run, checks_2b.STEPS))["gpu"]
    assert points == 0.5 and "Choose right after hvd.init()" in reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"genuine": False}, "Something else than the probe has written into the records of rank 1"),
        ({"records": {"tampered": [{"name": "Model.fit"}]}}, "The script replaced Model.fit"),
    ],
)
def test_no_step_counts_where_the_script_had_a_hand_in_the_evidence(monkeypatch, tmp_path, change, reason, capsys):
    ranks = two_hosts().ranks
    run = Evidence(Result(0, 1.0), (ranks[0], replace(ranks[1], **change)))
    monkeypatch.setattr(checks_2b, "gather", lambda *_, **__: run)
    script = tmp_path / "fashion_mnist.py"
    assert [*wrong(checks_2b.verdicts(script))] == [step.id for step in checks_2b.STEPS]
    assert checks_2b.points("rank0", script) == 0.0
    assert reason in capsys.readouterr().out
