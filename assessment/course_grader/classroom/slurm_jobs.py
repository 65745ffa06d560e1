"""Submissions as jobs of Slurm, through submitit: each is graded on some node as it would be on this host.

    with Jobs(blank, results, extra) as perform:
        perform(work, stopping)         # any number of them at the same time, each in a thread

A job grades in a folder of its node and answers through the folder that all nodes share, whole or not at all. Where one
ends without an answer, as when its node dies, another takes its place, and only that one's answer counts: a node that
Slurm has given up may go on grading.
"""

from __future__ import annotations

import getpass
import hashlib
import math
import os
import shlex
import signal
import sys
import threading
import time
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path

from course_grader.classroom import runner
from course_grader.classroom.runner import Graded, Work
from course_grader.classroom.submissions import Unusable
from course_grader.sandbox import bubblewrap
from course_grader.script import contract
from course_lib.ranks import slurm
from course_lib.system import variables
from course_lib.system.errors import CourseError

ANSWER_POLL_INTERVAL_S = 1.0  # between two looks for an answer
STATE_POLL_INTERVAL_S = 5.0  # and between two questions to Slurm
ANSWER_DELAY_LIMIT_S = 20.0  # that an answer may need from a node to here after the job's end
SETTLING_TIME_S = 5.0  # that jobs have to end after they have answered
MAX_JOBS = 3  # for a submission, where they end without an answer
TIME_MARGIN_S = 300  # beside the time that a submission has
NOTEBOOK_RANKS = 2
HOST_MEMORY_GB = 4.0  # for what is not a rank: nbgrader, the kernel, the evaluation
# Ends that would be the same next time, or are meant.
_FINAL_STATES = ("CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE")


@dataclass(frozen=True)
class Answer:
    """What a job says: what came of the submission, or why it can't be graded; why it was not confined."""

    graded: Graded | None
    problem: str = ""
    weakness: str = ""


def perform(work: Work, blank: Path, extra: float, profile: str) -> Answer:
    """Grade a submission in a job. Raises CancelledError where Slurm ends the job: that says nothing about it."""
    stopping = threading.Event()
    # By a thread: the one that gets the signal may be holding the event's lock.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=stopping.set).start())
    os.environ[variables.PROFILE] = profile  # one for the class, whatever node this is
    weakness = bubblewrap.available()
    try:
        return Answer(runner.perform(work, stopping, blank, extra), weakness=weakness)
    except Unusable as problem:
        if stopping.wait(2 * ANSWER_POLL_INTERVAL_S):  # what it was graded by may have got the signal first
            raise CancelledError from None
        return Answer(None, str(problem), weakness)


class Jobs:
    """Grades submissions as jobs; a context manager whose value does what `runner.perform` does.

    `blank` lies in a folder that the nodes share; `extra` as for `runner.perform`. None is left at the end.
    """

    def __init__(self, blank: Path, results: Path, extra: float) -> None:
        self._blank, self._extra = blank, extra
        self._folder = blank.parent / "jobs"
        self._results = results
        self._profile = contract.read().profile()
        self._lock = threading.Lock()
        self._jobs: set[str] = set()
        self._states: dict[str, slurm.State] = {}
        self._asked = 0.0
        self._said: set[str] = set()

    def __enter__(self) -> Jobs:
        import submitit

        self._folder.mkdir()
        # `exec`: so that Slurm's signals reach it; not through srun, which would give it one core of the job's.
        self._executor = submitit.SlurmExecutor(self._folder, python=f"exec {shlex.quote(sys.executable)}")
        ranks = self._profile.ranks or max(NOTEBOOK_RANKS, slurm.gpus_asked())
        self._executor.update_parameters(
            job_name=_name(self._results),
            time=math.ceil((runner.TIME_LIMIT_S + self._extra + TIME_MARGIN_S) / 60),
            cpus_per_task=ranks,
            mem=f"{math.ceil(contract.read().limits.memory * ranks + HOST_MEMORY_GB)}G",
            use_srun=False,
            # Slurm would wait for two minutes before it starts a job again.
            additional_parameters={"chdir": str(self._folder), "no-requeue": True},
        )
        return self

    def __exit__(self, problem: object, *_: object) -> None:
        if problem:
            cancel(self._results)
        deadline = time.monotonic() + (slurm.CANCEL_TIMEOUT_S if problem else SETTLING_TIME_S)
        while time.monotonic() < deadline and not all(state.ended for state in self._ask().values()):
            time.sleep(ANSWER_POLL_INTERVAL_S)
        cancel(self._results)

    def __call__(self, work: Work, stopping: threading.Event) -> Graded:
        """Grade a submission. Raises as `runner.perform` does, and CourseError where Slurm takes no job."""
        state = slurm.State("UNKNOWN")
        for _ in range(MAX_JOBS):
            job = self._submit(work)
            answer, state = self._wait(job, stopping)
            if answer:
                told = f"What learners wrote is not confined on all nodes: {answer.weakness}"
                self._say(told if answer.weakness else "")
                if answer.graded is None:
                    raise Unusable(answer.problem)
                return answer.graded
            if state.name in _FINAL_STATES:
                raise Unusable(slurm.ending(state, job.job_id)[1])
        why = f"{MAX_JOBS} jobs for it ended without an answer ({state.name})"
        raise Unusable(f"{why}: look at the nodes, which must share {self._blank.parent.parent}, and grade again.")

    def _submit(self, work: Work):
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        with self._lock:
            try:
                job = self._executor.submit(perform, work, self._blank, self._extra, self._profile.name)
            except (FailedSubmissionError, FailedJobError, OSError) as error:
                lines = [line for line in str(error).splitlines() if "error:" in line]
                reason = lines[-1].partition("error: ")[2].rstrip(".") if lines else str(error)
                raise CourseError(f"Slurm takes no such job: {reason}.") from None
            self._jobs.add(job.job_id)
            self._asked = 0.0
        return job

    def _wait(self, job, stopping: threading.Event) -> tuple[Answer | None, slurm.State]:  # noqa: ANN001
        """The job's answer; None where it has ended without one. CancelledError where it is `stopping`."""
        ended = float("inf")
        while not stopping.wait(ANSWER_POLL_INTERVAL_S):
            state = self._state(job.job_id)
            if answer := self._answer(job):
                return answer, state
            if not state.ended:
                ended = float("inf")
            elif time.monotonic() > (ended := min(ended, time.monotonic() + ANSWER_DELAY_LIMIT_S)):
                return None, state
        raise CancelledError

    def _answer(self, job) -> Answer | None:  # noqa: ANN001
        from submitit.core.utils import UncompletedJobError

        if not job.paths.result_pickle.exists():
            return None
        try:
            return job.result()
        except UncompletedJobError:  # Slurm has ended it
            return None

    def _state(self, job: str) -> slurm.State:
        with self._lock:
            if time.monotonic() > self._asked + STATE_POLL_INTERVAL_S:
                self._states.update(self._ask())
                self._asked = time.monotonic()
            return self._states.get(job, slurm.State("PENDING"))

    def _ask(self) -> dict[str, slurm.State]:
        """What Slurm says of the jobs that had not ended so far."""
        try:
            states = slurm.states(job for job in self._jobs if job not in self._states or not self._states[job].ended)
        except CourseError as error:
            self._say(f"{error} Jobs are still waited for.")
            return {}
        for state in states.values():
            if state.waits and state.reason not in ("None", "Priority", "Resources", "BeginTime"):
                self._say(f"Jobs wait: {state.reason}.")
        return states

    def _say(self, text: str) -> None:
        if text and text not in self._said:
            self._said.add(text)
            print(f"course: {text}", file=sys.stderr)


def cancel(results: Path) -> None:
    """Cancel what jobs there are for these results, also those that an earlier run has left behind."""
    slurm.cancel(f"--user={getpass.getuser()}", f"--name={_name(results)}")


def _name(results: Path) -> str:
    return f"course-grade-{hashlib.sha256(str(results).encode()).hexdigest()[:12]}"
