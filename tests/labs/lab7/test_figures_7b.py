"""The figures of notebook 7b."""

from __future__ import annotations

import pandas as pd
import pytest

from course_lib import statistics
from course_lib.parallel import schedules
from labs.lab7_splitting_the_model.lessons import figures_7b


def labels(axis):
    return [text.get_text() for text in axis.get_yticklabels()]


def test_a_timeline_has_a_box_for_each_task(titles):
    runs = {"one": schedules.run(schedules.gpipe(2, 3)), "two": schedules.run(schedules.gpipe(3, 2))}
    figure = figures_7b.timelines(runs, caption="here")
    assert titles(figure) == ["one", "two"]
    assert [len(axis.patches) for axis in figure.axes] == [12, 12]
    assert labels(figure.axes[1]) == ["stage 0", "stage 1", "stage 2"]
    first = figure.axes[0].patches[0]
    assert (first.get_x(), first.get_width()) == (0, 1)
    assert sorted(text.get_text() for text in figure.axes[0].texts) == sorted("012" * 4)


def test_ticks_show_one_batch_there_and_back():
    (axis,) = figures_7b.ticks(4, [6, 4, 2, 0]).axes
    assert labels(axis)[0] == "stage 0: delay 6" and labels(axis)[3] == "stage 3: delay 0"
    strong = [patch for patch in axis.patches if patch.get_alpha() is None]
    assert len(strong) == 8
    batches = [int(text.get_text()) for text in axis.texts]
    assert min(batches) == 0 and batches.count(6) == 8
    ticks = sorted(round(patch.get_x() + 0.46) for patch in strong)
    assert ticks == [6, 7, 8, 9, 9, 10, 11, 12]


def test_a_plan_has_a_stack_for_each_stage(titles):
    figure = figures_7b.plan([4, 1, 1, 2], {"halves": [2], "yours": [1]})
    assert titles(figure) == ["halves: the slowest takes 5", "yours: the slowest takes 4"]
    assert [len(axis.patches) for axis in figure.axes] == [4, 4]


def test_bubbles_have_the_measured_and_the_predicted_share(legend):
    rows = [{"what": "serial", "micro": 1, "seconds": 2.0}, {"what": "message by socket", "micro": 9, "seconds": 0.1}]
    rows += [
        {"what": "GPipe", "micro": m, "seconds": 1.0 + m, "idle": 0.6 / m, "predicted": 1 / (m + 1)} for m in (1, 2)
    ]
    figure = figures_7b.bubbles(pd.DataFrame(rows), "here")
    left, right = figure.axes
    assert [list(line.get_ydata()) for line in left.lines] == [pytest.approx([1 / 2, 1 / 3]), pytest.approx([0.6, 0.3])]
    assert list(right.lines[1].get_ydata()) == pytest.approx([1, 2 / 3])
    assert "measured, GPipe" in legend(figure)


@pytest.fixture
def table():
    ways = {("flush", 1): 0.82, ("current", 2): 0.81, ("current", 4): 0.8, ("current", 8): 0.7, ("stashed", 2): 0.8,
            ("stashed", 4): 0.8, ("stashed", 8): 0.75, ("longer", 8): 0.8}  # fmt: skip
    rows = [
        {"way": way, "stages": stages, "rate": rate, "seed": 101, "use": "tuning", "validation accuracy": score - rate}
        for (way, stages), score in ways.items()
        for rate in (0.1, 0.2)
    ]
    rows += [
        {"way": way, "stages": stages, "rate": 0.1, "seed": seed, "use": "result", "test accuracy": score + 0.01 * seed}
        for (way, stages), score in ways.items()
        for seed in (3, 2, 1)
    ]
    half = [{**row, "use": "half rate", "rate": 0.05} for row in rows if row["way"] == "longer"]
    return pd.DataFrame([*rows, *[row for row in half if "test accuracy" in row]])


def test_stale_pipelines_are_drawn_by_rate_and_by_stages(table, legend):
    figure = figures_7b.stale(table, "here")
    left, right = figure.axes
    assert list(left.lines[0].get_ydata()) == pytest.approx([0.72, 0.62])
    assert len(left.lines) == 4 and len(right.containers) == 3
    assert right.containers[0].lines[0].get_ydata()[2] == pytest.approx(0.72)
    assert {"flush", "8 stages", *figures_7b.WAYS.values()} == set(legend(figure)) - {"2 stages", "4 stages"}


def test_losses_are_paired_and_summaries_student_s(table):
    found = figures_7b.losses(table).set_index(["way", "stages"])
    assert found.loc[("current", 8), "mean"] == pytest.approx(0.12)
    assert found.loc[("current", 8), "half"] == pytest.approx(0, abs=1e-9)
    row = figures_7b.summary(table).set_index(["way", "stages"]).loc[("flush", 1)]
    assert (row["mean"], row["half"]) == pytest.approx(statistics.mean([0.83, 0.84, 0.85]))
