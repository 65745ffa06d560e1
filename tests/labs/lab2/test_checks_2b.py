"""The conversion's parts that need no ranks: the script's stages, partitions, reports."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.command.classroom import conversions
from course_lib.notebook.judging import Verdict
from course_lib.notebook.report import Report
from course_lib.ranks.evidence import Evidence, RankEvidence, read_timeline
from course_lib.ranks.launch import Result
from course_lib.system.errors import CourseError
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
