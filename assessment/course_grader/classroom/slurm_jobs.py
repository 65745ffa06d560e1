"""Grade submissions as jobs of Slurm, with submitit.

    with Jobs(blank, results, extra) as perform:
        perform(work, stopping)         # may be called from several threads

A job grades in a folder of its node, and writes its answer, complete or not at all, into a folder that all nodes share.
If a job ends without an answer, for example because its node dies, another job replaces it, and only the new job's
answer counts: the old node may still be grading.
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
from course_grader.script import contract
from course_lib.ranks import slurm
from course_lib.system import variables
from course_lib.system.errors import CourseError

ANSWER_POLL_INTERVAL_S = 1.0
STATE_POLL_INTERVAL_S = 5.0  # between two queries to Slurm
ANSWER_DELAY_LIMIT_S = 20.0  # a network file system may show an answer this long after the job's end
SETTLING_TIME_S = 5.0  # for jobs to end after their answers
MAX_JOBS = 3  # for a submission whose jobs end without an answer
TIME_MARGIN_S = 300  # in addition to a submission's time limit
NOTEBOOK_RANKS = 2
HOST_MEMORY_GB = 4.0  # for nbgrader, the kernel and the evaluator
# Another job would end in the same way, or the end is intended.
_FINAL_STATES = ("CANCELLED", "TIMEOUT", "OUT_OF_MEMORY", "DEADLINE")


@dataclass(frozen=True)
class Answer:
    """The answer of a job.

    Attributes:
        graded: the graded submission; None if `problem` says why it cannot be graded.
        weakness: why it ran without a sandbox; "" if it had one.
    """

    graded: Graded | None
    problem: str = ""
    weakness: str = ""


def perform(work: Work, blank: Path, extra: float, profile: str) -> Answer:
    """Grade a submission in a job. Raises CancelledError if Slurm ends the job: that is not the submission's fault."""
    try:
        weakness = runner.weakness()
    except CourseError as problem:
        return Answer(None, str(problem))
    stopping = threading.Event()
    # In another thread, because the main thread may hold the event's lock when the signal comes.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=stopping.set).start())
    os.environ[variables.PROFILE] = profile  # the same for the class on every node
    try:
        return Answer(runner.perform(work, stopping, blank, extra), weakness=weakness)
    except Unusable as problem:
        if stopping.wait(2 * ANSWER_POLL_INTERVAL_S):  # the grading process may have got the signal first
            raise CancelledError from None
        return Answer(None, str(problem), weakness)


class Jobs:
    """Grades submissions as jobs; a context manager that is called as `runner.perform`.

    `blank` is in a folder that the nodes share; `extra` is as for `runner.perform`. At the end all jobs are cancelled.
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
        self._printed: set[str] = set()

    def __enter__(self) -> Jobs:
        import submitit

        self._folder.mkdir()
        # `exec`, so that Slurm's signals reach Python; no srun, which would give it one core of the job only.
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
        """Grade a submission. Raises as `runner.perform` does, and CourseError if Slurm rejects the job."""
        state = slurm.State("UNKNOWN")
        for _ in range(MAX_JOBS):
            job = self._submit(work)
            answer, state = self._wait(job, stopping)
            if answer:
                if answer.weakness:
                    self._print_once(f"Learners' code runs without a sandbox on some nodes: {answer.weakness}")
                if answer.graded is None:
                    raise Unusable(answer.problem)
                return answer.graded
            if state.name in _FINAL_STATES:
                raise Unusable(slurm.ending(state, job.job_id)[1])
        raise Unusable(
            f"{MAX_JOBS} jobs for it ended without an answer ({state.name}): check the nodes, which must share "
            f"{self._blank.parent.parent}, and grade again."
        )

    def _submit(self, work: Work):
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        with self._lock:
            try:
                job = self._executor.submit(perform, work, self._blank, self._extra, self._profile.name)
            except (FailedSubmissionError, FailedJobError, OSError) as error:
                lines = [line for line in str(error).splitlines() if "error:" in line]
                reason = lines[-1].partition("error: ")[2].rstrip(".") if lines else str(error)
                raise CourseError(f"Slurm rejects the job: {reason}.") from None
            self._jobs.add(job.job_id)
            self._asked = 0.0
        return job

    def _wait(self, job, stopping: threading.Event) -> tuple[Answer | None, slurm.State]:  # noqa: ANN001
        """Return the job's answer, None if it ended without one, and its state. CancelledError if `stopping` is set."""
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
        """Query Slurm for the states of the jobs that have not ended."""
        try:
            states = slurm.states(job for job in self._jobs if job not in self._states or not self._states[job].ended)
        except CourseError as error:
            self._print_once(f"{error} Still waiting for the jobs.")
            return {}
        for state in states.values():
            if state.waits and state.reason not in ("None", "Priority", "Resources", "BeginTime"):
                self._print_once(f"Jobs wait: {state.reason}.")
        return states

    def _print_once(self, text: str) -> None:
        if text not in self._printed:
            self._printed.add(text)
            print(f"course: {text}", file=sys.stderr)


def cancel(results: Path) -> None:
    """Cancel all jobs for these results, with those of an earlier run."""
    slurm.cancel(f"--user={getpass.getuser()}", f"--name={_name(results)}")


def _name(results: Path) -> str:
    return f"course-grade-{hashlib.sha256(str(results).encode()).hexdigest()[:12]}"
