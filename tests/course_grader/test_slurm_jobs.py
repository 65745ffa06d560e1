"""Jobs of Slurm that grade submissions: what follows one that ends without an answer; a real one is in tests/slurm."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest

from course_grader.classroom import slurm_jobs
from course_grader.classroom.runner import Graded
from course_grader.classroom.submissions import Unusable
from course_lib.ranks import slurm


class Submitted:
    """A job that has a number."""

    job_id = "7"


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    """`Jobs` whose jobs end as told: an answer, or a state without one."""
    made = slurm_jobs.Jobs(tmp_path / "blank.db", tmp_path / "results", 0)
    ends, submitted = [], []

    def wait(job, stopping):
        if stopping.is_set():
            raise CancelledError
        end = ends.pop(0)
        return (None, slurm.State(end)) if isinstance(end, str) else (end, slurm.State("COMPLETED"))

    monkeypatch.setattr(made, "_submit", lambda work: submitted.append(work) or Submitted())
    monkeypatch.setattr(made, "_wait", wait)
    return made, ends, submitted


DONE = Graded({"exercises": {}}, {})


@pytest.mark.parametrize("lost", [[], ["NODE_FAIL"], ["FAILED", "PREEMPTED"]])
def test_a_job_without_an_answer_is_followed_by_another(lost, jobs):
    perform, ends, submitted = jobs
    ends += [*lost, slurm_jobs.Answer(DONE)]
    assert perform("work", threading.Event()) is DONE
    assert len(submitted) == len(lost) + 1


@pytest.mark.parametrize(
    "lost, sentence",
    [
        (["NODE_FAIL"] * 3, "3 jobs for it ended without an answer (NODE_FAIL)"),
        (["TIMEOUT"], "Job 7 reached Slurm's time limit"),
        (["NODE_FAIL", "CANCELLED"], "Job 7 was cancelled."),
        (["OUT_OF_MEMORY"], "Job 7 used more memory than it had"),
    ],
)
def test_some_ends_are_final(lost, sentence, jobs):
    perform, ends, submitted = jobs
    ends += lost
    with pytest.raises(Unusable) as problem:
        perform("work", threading.Event())
    assert str(problem.value).startswith(sentence)
    assert len(submitted) == len(lost)


def test_what_a_job_could_not_grade_is_no_reason_to_try_again(jobs):
    perform, ends, submitted = jobs
    ends += [slurm_jobs.Answer(None, "It ran for too long.")]
    with pytest.raises(Unusable, match="too long"):
        perform("work", threading.Event())
    assert len(submitted) == 1


def test_where_nothing_is_confined_is_said_once(jobs, capsys):
    perform, ends, _ = jobs
    ends += [slurm_jobs.Answer(DONE, weakness="bubblewrap is not installed.")] * 2
    for _ in range(2):
        perform("work", threading.Event())
    assert capsys.readouterr().err.count("bubblewrap is not installed.") == 1
