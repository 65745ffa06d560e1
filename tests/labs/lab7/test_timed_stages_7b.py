"""Stages with a timer for an accelerator follow a table as the simulation does."""

from __future__ import annotations

import pytest

from course_lib.parallel import pipeline, schedules
from labs.lab7_splitting_the_model.lessons import timed_stages


@pytest.mark.parametrize("make", [schedules.gpipe, schedules.one_forward_one_backward])
def test_the_stages_do_the_tasks_of_their_rows_and_keep_what_the_table_keeps(make):
    table = make(5, 6)
    found, kept = timed_stages.follow(pipeline.follow, table, 0.004, 0.008)
    rows = [[(span.kind, span.micro) for span in found.spans if span.stage == stage] for stage in range(5)]
    assert rows == table and kept == schedules.kept(table)
    assert found.seconds > 0.999 * schedules.run(table, 0.004, 0.008).seconds  # no task before its message
    by_task = {(span.stage, span.kind, span.micro): span for span in found.spans}
    for (stage, *task), span in by_task.items():
        needed = schedules.needs(stage, tuple(task), 5)
        assert needed is None or by_task[needed].end <= span.start


def test_a_table_that_can_not_be_followed_is_named_at_once():
    table = schedules.one_forward_one_backward(3, 4)
    table[1] = schedules.gpipe(3, 4)[1]
    with pytest.raises(schedules.Deadlock, match="stage 0 waits for the gradient"):
        timed_stages.follow(pipeline.follow, table, 0.001, 0.001)


def test_what_one_stage_raises_is_told_and_nobody_waits_for_it():
    def work(row, stage, me, *others):
        if me == 1:
            raise ZeroDivisionError("seven")
        return pipeline.follow(row, stage, me, *others)

    with pytest.raises(ZeroDivisionError, match="seven"):
        timed_stages.follow(work, schedules.gpipe(3, 2), 0.001, 0.001)
