"""An elastic run that loses a rank."""

from __future__ import annotations

import sys
import time

import cloudpickle
import pytest

from course_lib.ranks import launch
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT
from labs.lab2_horovod.lessons import elastic_run

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the ranks can't import a test
pytestmark = [pytest.mark.slow, pytest.mark.ranks]

SCRIPT = ROOT / "labs" / "lab2_horovod" / "elastic.py"
ONE_IS_ENOUGH = launch.Options(min_ranks=1)
QUICK = ["--steps", 30, "--pause", 0.05]


@pytest.fixture(autouse=True)
def gloo(monkeypatch):
    if "gloo" not in launch.controllers():
        pytest.skip("Horovod was built without gloo here")
    monkeypatch.setenv("COURSE_SLICE", "1279")


def keep_going(state, advance, steps, every):
    while state.step < steps:
        advance(state)
        state.step += 1
        if state.step % every == 0:
            state.commit()


def waiting(rank, at, ranks):
    """The loop, in which `rank` of `ranks` waits after step `at`, to be killed there and nowhere else."""

    def loop(state, advance, steps, every):
        import horovod.tensorflow as hvd

        def advance_or_wait(state):
            if (state.step, hvd.rank(), hvd.size()) == (at, rank, ranks):
                time.sleep(600)
            advance(state)

        keep_going(state, advance_or_wait, steps, every)

    return loop


@pytest.mark.parametrize("kill", [0, 2])
def test_a_killed_rank_is_survived(kill, marked):
    loop = waiting(kill, 17, ranks=3)
    story = elastic_run.lose_a_rank(SCRIPT, loop, QUICK, kill=kill, at=17, env=marked)
    assert (story.result.code, story.result.message, story.result.failed_rank) == (0, "", None)
    left = story.steps[story.steps["time"] > story.killed + story.noticed]
    assert set(left["rank"]) == {0, 1, 2} - {kill}
    assert set(left.groupby("rank")["step"].max()) == {30}
    assert left["step"].min() == 11  # the commit was at 10
    assert story.lost == 7
    assert story.steps.loc[story.steps["rank"] == kill, "step"].max() == 17


def test_nobody_killed_nothing_lost():
    story = elastic_run.lose_a_rank(SCRIPT, keep_going, QUICK, kill=None)
    assert story.result.code == 0
    assert (story.killed, story.noticed, story.went_on, story.lost) == (None, None, None, 0)
    assert len(story.steps) == 90
    assert set(story.commits["step"]) == {10, 20, 30}


def test_too_few_left_is_a_failure(marked):
    loop = waiting(1, 12, ranks=2)
    story = elastic_run.lose_a_rank(SCRIPT, loop, QUICK, ranks=2, min_ranks=2, kill=1, at=12, timeout=60, env=marked)
    assert story.result.code == 137
    assert story.result.message == "Rank 1 was killed by signal 9 (SIGKILL)."
    assert story.went_on is None


def test_stopped_and_late_runs_leave_nothing(tmp_path, marked):
    script = tmp_path / "script.py"
    script.write_text("import time\nimport horovod.tensorflow as hvd\nhvd.init()\nprint('up')\ntime.sleep(600)\n")
    with launch.start(script, ranks=2, env=marked, options=ONE_IS_ENOUGH) as run:
        next(event for event in run if event.kind == "output")
    assert run.wait().code == launch.STOPPED
    assert launch.start(script, ranks=2, timeout=5, env=marked, options=ONE_IS_ENOUGH).wait().code == 124


def test_ranks_that_all_fail_are_a_failure(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import horovod.tensorflow as hvd\nhvd.init()\nraise SystemExit(3)\n")
    result = launch.start(script, ranks=2, timeout=60, options=ONE_IS_ENOUGH).wait()
    assert (result.code, result.failed_rank is None) == (3, False)


@pytest.mark.parametrize(("ranks", "min_ranks"), [(2, 3), (2, 0), (1, 1)])
def test_impossible_numbers_are_one_sentence(ranks, min_ranks):
    with pytest.raises(CourseError, match="An elastic run needs"):
        launch.start(SCRIPT, ranks=ranks, options=launch.Options(min_ranks=min_ranks))


def test_elastic_runs_need_gloo(monkeypatch):
    monkeypatch.setattr(launch, "controllers", lambda: ("mpi",))
    with pytest.raises(CourseError, match="Elastic runs need Gloo"):
        launch.start(SCRIPT, ranks=2, options=ONE_IS_ENOUGH)
