"""The conversion's parts that need no ranks: the script's stages, reports, what a record shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from course_lib.authoring import conversions
from course_lib.notebook.judging import Verdict, judge
from course_lib.notebook.report import Report
from course_lib.ranks.launch import Result
from course_lib.ranks.run_record import RankRecord, RunRecord
from course_lib.system.errors import CourseError
from course_lib.system.supervise import TIMED_OUT
from labs.lab2_horovod.lessons import checks_2b


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


def wrong(verdicts):
    return {verdict.id: (verdict.points, verdict.reason) for verdict in verdicts if not verdict.passed}


# What the record of a run shows

BROADCAST = {"operation": "broadcast", "graph": True, "values": 9, "floating": 9}
REDUCED = {"operation": "allreduce", "graph": True, "values": 9, "floating": 9}
METRIC = {"operation": "allreduce", "graph": False, "values": 1, "floating": 1}
DONE = Result(0, 1.0)
FAILED = Result(1, 1.0, 0, "Rank 0 failed with exit code 1.", ("ValueError: Horovod has not been initialized",))
ORDER = [np.random.default_rng(epoch).permutation(1216).astype(np.float32).reshape(2, 19, 32) for epoch in range(2)]


def one_host(*changes, result=DONE, printed=("loss",)):
    """Two ranks that do all that they should; `changes` of the records of one rank after the other."""
    ranks = []
    for rank, change in zip(range(2), (*changes, {}, {})):
        records = {
            "init": [{"rank": rank, "size": 2, "local_rank": rank}],
            "gpus": [{"visible": [f"/physical_device:GPU:{rank}"]}],
            "collective": [BROADCAST, REDUCED, METRIC],
            "first-step": [{"digest": "first"}],
            "digest": [{"updates": n, "digest": [1.0, 0.1, 0.2, 0.3, 1.0 * n]} for n in (1, 2, 4)],
            "progress": [{"steps": 38, "updates": 38, "values": 9 * 38}],
            "epoch": [{"steps": 19, "first": 19 * e, "logs": {"loss": 0.5 - 0.1 * e}} for e in range(2)],
            "fit-end": [{"learning_rate": 0.02}],
            "save": [{"path": "network.keras"}] if rank == 0 else [],
        }
        examples = tuple(step for order in change.pop("order", ORDER) for step in order[rank])
        words = printed if rank == 0 else change.pop("printed", ())
        ranks.append(RankRecord(rank, {**records, **change}, words, examples))
    return RunRecord(result, tuple(ranks))


def both(**change):
    return one_host(dict(change), dict(change))


OWN = [
    {
        "digest": [{"updates": n, "digest": [1.0, 0.1, 0.2, 0.3, own]} for n in (1, 2, 4)],
        "first-step": [{"digest": own}],
    }
    for own in (0.5, -0.5)
]
UNBROADCAST = [{**own, "collective": [REDUCED, METRIC]} for own in OWN]
KEPT = [ORDER[0], ORDER[0][:, ::-1]]  # each rank its part, in another order
SAME = [np.stack([epoch[0], epoch[0]]) for epoch in ORDER]


@pytest.mark.parametrize(
    ("run", "lost"),
    [
        (one_host(), {}),
        (both(gpus=[]), {"gpu": (0, "Every rank sees all GPUs")}),
        (both(gpus=[{"visible": ["GPU:0"]}]), {"gpu": (0, "Rank 1 keeps GPU 0; it should keep only GPU 1")}),
        (
            one_host(*({"gpus": [{"visible": [f"GPU:{r}"], "late": True}]} for r in range(2))),
            {"gpu": (0.5, "Choose right after hvd.init()")},
        ),
        (both(**{"fit-end": [{"learning_rate": 0.01}]}), {"rate": (0, "The learning rate is still 0.01")}),
        (both(collective=[BROADCAST, METRIC]), {"optimizer": (0, "No gradients were all-reduced")}),
        (both(collective=[BROADCAST, METRIC, {**REDUCED, "floating": 3}]), {"optimizer": (0, "Only 3 of 9 gradient")}),
        (one_host(*UNBROADCAST), {"broadcast": (0, "Nothing was broadcast: the ranks start from different")}),
        (both(order=SAME), {"data": (0, "In the same step ranks 0 and 1 read the same images")}),
        (both(order=KEPT), {"data": (1, "the same images in every epoch")}),
        (one_host({}, {"save": [{}]}), {"rank0": (0, "Ranks 0 and 1 wrote the trained network")}),
        (one_host({}, {"printed": ("also",)}), {"rank0": (0.5, "rank 1 prints too: “also”")}),
        (
            one_host({}, {"epoch": [{"steps": 19, "first": 19 * e, "logs": {"loss": 0.4}} for e in range(2)]}),
            {"metrics": (0, "different values of loss after epoch 1 (0.5000 and 0.4000)")},
        ),
        (both(collective=[BROADCAST, REDUCED]), {"metrics": (0, "No metric was averaged over the ranks.")}),
    ],
)
def test_a_mistake_is_seen_in_the_record_and_nothing_else_is(run, lost):
    found = wrong(judge(run, checks_2b.STEPS))
    assert {step: points for step, (points, _) in found.items()} == {step: points for step, (points, _) in lost.items()}
    for step, (_, reason) in lost.items():
        assert reason in found[step][1]


def test_without_the_first_step_nothing_is_there():
    ranks = (RankRecord(0), RankRecord(1))
    found = wrong(judge(RunRecord(FAILED, ranks), checks_2b.STEPS))
    assert {step.id for step in checks_2b.STEPS} == {*found}
    assert "No process called hvd.init()" in found["init"][1] and "has not been initialized" in found["init"][1]


# What a later look at a script finds


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


def two_hosts(code=0, failed=None, tail=(), gpus=RIGHT, rates=(0.03,) * 3, savers=(0,), printers=(0,)):
    images = np.random.default_rng(0).permutation(1248).astype(np.float32).reshape(3, 13, 32)
    ranks = tuple(
        RankRecord(
            number,
            {
                "init": [{"rank": number, "size": 3, "local_rank": number % 2}],
                "gpus": [gpus[number]] if gpus[number] else [],
                "fit-end": [{"learning_rate": rates[number]}],
                "save": [{}] if number in savers else [],
                "epoch": [{"steps": 13, "first": 0}],
            },
            ("said",) if number in printers else (),
            tuple(images[number]),
        )
        for number in range(3)
    )
    message = f"Rank {failed} failed with exit code 1." if code else ""
    return RunRecord(Result(code, 1.0, message=message, failed_rank=failed, tail=tuple(tail)), ranks)


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
        (two_hosts(printers=(0, 2)), "rank0", 0.5, "rank 2 prints too"),
        (two_hosts(1, 2, NO_SUCH_PART), "data", 0, "index must be between 0 and 1"),
    ],
)
def test_two_hosts_tell_what_one_does_not(run, step, points, reason):
    found = wrong(judge(run, checks_2b.ON_TWO_HOSTS))
    assert [*found] == [step] * bool(step)
    assert not step or (found[step][0] == points and reason in found[step][1])
    assert all(told.startswith("with ranks 0 and 1 on one host and rank 2 on another: ") for _, told in found.values())


def test_a_run_on_two_hosts_is_made_where_one_host_shows_nothing_wrong(monkeypatch, tmp_path):
    records = {checks_2b.ONE_HOST: one_host(), checks_2b.TWO_HOSTS: two_hosts(savers=(0, 2))}
    monkeypatch.setattr(checks_2b, "gather", lambda script, how=checks_2b.ONE_HOST, **_: records[how])
    monkeypatch.setattr(checks_2b.launch, "controllers", lambda: ("gloo",))
    script = tmp_path / "fashion_mnist.py"
    found = checks_2b.verdicts(script)
    assert [*wrong(found)] == ["rank0"] and "Ranks 0 and 2 wrote" in wrong(found)["rank0"][1]
    assert [verdict.id for verdict in found] == [step.id for step in checks_2b.STEPS]
    del records[checks_2b.TWO_HOSTS]
    records[checks_2b.ONE_HOST] = both(gpus=[])
    assert [*wrong(checks_2b.verdicts(script))] == ["gpu"]


# Where a run hangs, or ends early


HUNG = Result(TIMED_OUT, 20.0, message="No rank made a step for 20 s: the ranks wait for each other.")


def hung(*entered, result=HUNG):
    """Two ranks that found each other and logged that much more."""
    ranks = (RankRecord(rank, {"init": [{"rank": rank, "size": 2}], **more}) for rank, more in enumerate(entered))
    return RunRecord(result, tuple(ranks))


ASKED = {"collective": [BROADCAST]}
EPOCH = {"epoch": [{"logs": {"loss": 1.0}}]}
ROOTS = replace(FAILED, tail=("Mismatched BROADCAST root ranks: One rank said 1.",))
NO_CALLBACKS = replace(FAILED, tail=("AttributeError: module 'h' has no attribute 'callbacks'",))


@pytest.mark.parametrize(
    ("run", "step", "reason"),
    [
        (hung(ASKED, {}), "rate", "Only rank 0 entered the broadcast, and the run hangs"),
        (hung({}, EPOCH), "rate", "Only rank 0 entered the average of a metric"),
        (hung({}, EPOCH), "metrics", "Only rank 0 entered the average of a metric"),
        (hung({}, {}), "rate", "No learning rate was seen"),
        (hung({}, {}), "broadcast", "start from different random weights"),
        (hung(ASKED, {}), "broadcast", "only rank 0 called the broadcast; all ranks must"),
        (hung(ASKED, ASKED), "broadcast", "The log does not show the weights of all ranks."),
        (hung(ASKED, ASKED, result=ROOTS), "broadcast", "the ranks gave different root ranks"),
        (hung({}, {}, result=NO_CALLBACKS), "broadcast", "It must be horovod.tensorflow.keras"),
    ],
)
def test_a_run_that_got_stuck_says_where(run, step, reason):
    assert reason in wrong(judge(run, checks_2b.STEPS))[step][1]
