"""Grade a class: a folder of submissions → gradebook, grades.csv, feedback pages.

nbgrader grades each submission in its own process, course folder and database, on this host (see `runner`) or as a job
of a cluster (see `slurm_jobs`). Only this process writes the gradebook and the tables. An interrupted run leaves
complete results only, and the next run continues.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.text import Text

from course_grader import notebook_points
from course_grader.classroom import (
    class_leaderboard,
    copies,
    feedback,
    gradebook,
    learners_notebook,
    runner,
    slurm_jobs,
    submissions,
)
from course_grader.classroom.exercise_process import MODULES
from course_grader.classroom.gradebook import TEMPORARY_PREFIX
from course_grader.classroom.learners_notebook import Unusable
from course_grader.classroom.preprocessors import LOOK
from course_grader.classroom.runner import Graded, Work
from course_grader.classroom.submissions import Submission
from course_grader.classroom.summary import Summary, show, write_tables
from course_grader.display import stages
from course_grader.script import contract, leases
from course_lib import data
from course_lib.authoring import masters, released
from course_lib.ranks import slurm as cluster
from course_lib.ranks.launch import Event
from course_lib.system import variables
from course_lib.system.errors import CourseError
from course_lib.system.files import write
from course_lib.system.paths import ROOT

MAX_JOBS = 64  # of a cluster at the same time, unless the instructor gives --jobs
MAX_AHEAD = 100  # labs of a hub, each of which has one place in its queue
MAX_WAITS = 2  # a job may wait for this many of the longest assessments on its node
ACCEPTED = "accepted.json"  # among the results: digests of the submissions that an instructor has accepted
REMOVAL_LIMIT_S = 5.0  # for removing a folder to which other processes still write, or which they have open


def grade(
    directory: Path,
    jobs: int | None = None,
    root: Path = ROOT,
    slurm: bool = False,
    accept: Sequence[str] = (),
    ranking: class_leaderboard.Options | None = None,
    against: Path | None = None,
) -> Summary:
    """Grade every submission in `directory`; the results go to the folder DIRECTORY-graded.

    Submissions that were graded before and have not changed (submission, master, course library) are not run again.

    Args:
        directory: a folder with one folder, or zip archive, for each learner.
        jobs: submissions that are graded at the same time; default: 1, with `slurm` up to MAX_JOBS.
        root: the folder of the course.
        slurm: grade each submission as a job of Slurm.
        accept: learners whose current submissions an instructor has reviewed: their flags no longer prevent a mark.
        ranking: options for the leaderboard of scripts that passed.
        against: folder of an earlier class, whose scripts are compared with this class's.

    Raises CourseError if nothing can be graded; the problems of single submissions are in the summary.
    """
    if jobs is not None and jobs < 1:
        raise CourseError("--jobs must be 1 or more.", code=2)
    ranking = ranking or class_leaderboard.Options()
    if ranking.rerun_top and slurm:
        raise CourseError("--rerun-top compares runs on one host: remove --slurm.", code=2)
    data.images_limit()  # raises for a wrong COURSE_SLICE, which is not the learners' fault
    if slurm:
        cluster.check()
    earlier = copies.collect(against) if against else {}
    directory, root = directory.resolve(), root.resolve()
    known = {path.stem: masters.read(path) for path in masters.find(root)}
    starters = released.course_files(root)
    submitted = submissions.find(directory, known, starters)
    results = results_of(directory)
    assignments = {submission.assignment for submission in submitted if submission.master}
    with _locked(results, shared=slurm) as temporary:
        blank = temporary / gradebook.GRADEBOOK
        notebooks = [master for master in known.values() if master.assignment in assignments]
        gradebook.enter(notebooks, blank)
        gradebook.update(notebooks, blank, results)
        graded = _grade_all(submitted, starters, blank, results, jobs, slurm, accept)
        rows, problems = gradebook.record(graded, results)
        write_tables(results, rows, problems)
        feedback.note_scores_by_hand(graded, rows, results)
        summary = Summary(results, rows, problems)
        show(summary)
        scripts = {submission.learner: result["script"] for submission, result in graded if "script" in result}
        if scripts and (pairs := copies.write(results, scripts, earlier)):
            print(f"Pairs of similar scripts: {len(pairs)}, listed in {results / copies.PAGE}", file=sys.stderr)
        _rank(graded, results, ranking)
    return summary


def _rank(graded: list[tuple[Submission, dict[str, Any]]], results: Path, ranking: class_leaderboard.Options) -> None:
    """Run the best scripts again, then write the leaderboard, if a script was graded."""
    if not any("outcome" in result for _, result in graded):
        return

    passed = class_leaderboard.passed_submissions(graded, functools.partial(_result_path, results=results))

    def follow(text: str) -> Callable[[Event], None]:
        print(text, file=sys.stderr)
        return show_stage

    with stages.stages() as show_stage:
        try:
            class_leaderboard.run_again(passed, ranking.rerun_top, ranking.runs, follow)
        finally:
            class_leaderboard.write_pages(results, (each.entry() for each in passed), ranking.pseudonyms)


def results_of(directory: Path) -> Path:
    """Return the folder for the results of the submissions in `directory`."""
    return directory.with_name(f"{directory.name}-graded")


@contextlib.contextmanager
def _locked(results: Path, shared: bool = False) -> Iterator[Path]:
    """Lock the results against a second `course grade`; yield a folder for temporary files.

    With `shared`, this folder is among the results, where other hosts can read it.
    """
    try:
        results.mkdir(exist_ok=True)
        lock = (results / ".lock").open("a+")
    except OSError as error:
        raise CourseError(f"{results} cannot be written ({error.strerror}): correct its permissions.") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CourseError(f"Another `course grade` is writing to {results}: wait until it has ended.") from None
        lock.seek(0)
        if (left := Path(lock.read())).name.startswith(TEMPORARY_PREFIX):  # an earlier run was killed
            if shared:
                slurm_jobs.cancel(results)
            _remove(left)
        temporary = tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=results if shared else None)
        try:
            lock.truncate(0)
            lock.write(temporary)
            lock.flush()
            yield Path(temporary)
        finally:
            _remove(Path(temporary))
        lock.truncate(0)


def _remove(folder: Path) -> None:
    """Remove a folder to which cancelled jobs may still be writing."""
    deadline = time.monotonic() + REMOVAL_LIMIT_S
    shutil.rmtree(folder, ignore_errors=True)
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
        shutil.rmtree(folder, ignore_errors=True)


def _grade_all(
    submitted: list[Submission],
    starters: dict[str, bytes],
    blank: Path,
    results: Path,
    jobs: int | None,
    slurm: bool,
    accept: Sequence[str],
) -> list[tuple[Submission, dict[str, Any]]]:
    """Return (submission, result) for each: the result of one_submission with its script, or {"problem": sentence}."""
    if unknown := set(accept) - {submission.learner for submission in submitted}:
        raise CourseError(f"{min(unknown)!r} handed in nothing: give --accept the name of a learner's folder.", code=2)
    accepted = _accepted(results)
    result_of: dict[int, dict[str, Any]] = {}
    todo: dict[int, Work] = {}
    scripts: dict[int, bytes] = {}
    for number, submission in enumerate(submitted):
        try:
            work = _prepared(submission, starters)
            if submission.learner in accept:
                accepted.add(work.handed_in)
            work = replace(work, accepted=work.handed_in in accepted)
        except Unusable as problem:
            result_of[number] = _refuse(submission, results, problem)
            continue
        if submission.master.script:
            scripts[number] = work.files[submission.master.script]
        earlier = _read_result(_result_path(submission, results))
        if earlier and earlier["digest"] == work.digest:
            result_of[number] = earlier
            continue
        if earlier and work.accepted and earlier["digest"] == replace(work, accepted=False).digest:
            work = replace(work, outcome=earlier.get("outcome"))
        todo[number] = work
    if scripts and contract.read().profile().images:
        name = contract.read().profile().name
        print(f"The profile {name} trains on a slice of the data: it is for trials, not for marks.", file=sys.stderr)
    write(results / ACCEPTED, json.dumps(sorted(accepted), indent=1).encode())
    jobs = jobs or (max(1, min(len(todo), MAX_JOBS)) if slurm else 1)
    wait = jobs if scripts.keys() & todo.keys() else 0
    with _performing(blank, results, wait, slurm) as perform_one:
        run = functools.partial(_grade_one, perform_one=perform_one, results=results)
        result_of.update(_in_parallel(run, todo, jobs))
    for number, script in scripts.items():
        result_of[number]["script"] = script
    return [(submission, result_of[number]) for number, submission in enumerate(submitted)]


def _performing(
    blank: Path, results: Path, wait: int, slurm: bool
) -> contextlib.AbstractContextManager[Callable[[Work, threading.Event], Graded]]:
    """Return a context manager that yields the function that grades a submission, here or as a job of Slurm.

    `wait`: number of assessments that may use the cores or GPUs before this one; 0: no script is graded.
    """
    if slurm:
        return slurm_jobs.Jobs(blank, results, MAX_WAITS * notebook_points.longest() if wait else 0)
    if weakness := runner.weakness():
        print(f"Learners' code runs without a sandbox here: {weakness}", file=sys.stderr)
    longest = notebook_points.longest() if wait else 0
    if os.environ.get(variables.SLOTS):  # other labs may be ahead of each assessment in the hub's queue
        longest += MAX_AHEAD * leases.LEASE_S
    extra = wait * longest
    return contextlib.nullcontext(functools.partial(runner.perform, blank=blank, extra=extra, below=blank.parent))


def _accepted(results: Path) -> set[str]:
    """Return the digests of the submissions that an instructor has accepted."""
    try:
        return set(json.loads((results / ACCEPTED).read_text()))
    except (OSError, ValueError):
        return set()


def _prepared(submission: Submission, starters: dict[str, bytes]) -> Work:
    """Return the parts of a submission that are run. Raises Unusable if it cannot be graded."""
    master = submission.master
    if master is None:
        raise Unusable(submission.problem)
    files = _files_beside(submission, starters)
    if master.script:
        if submission.file is None:
            raise Unusable(f"{master.script} was not handed in with the notebook.")
        return Work(submission, None, {**files, master.script: submission.file.read()})
    notebook = learners_notebook.read(submission.file.read(), submission.file.shown)
    text = "\n".join(cell.source for cell in masters.source(master).cells)
    names = [name for name in files if name.endswith(".py")]
    modules = {f"{MODULES}/{name}": content for name, content in submissions.modules(submission).items()}
    scripts = submissions.scripts(submission, text, names, starters)
    return Work(submission, notebook, {**files, **modules, **scripts})


def _files_beside(submission: Submission, starters: dict[str, bytes]) -> dict[str, bytes]:
    """Return the course's files in the folder of the notebook: name → content."""
    return {
        name.partition("/")[2]: content
        for name, content in starters.items()
        if name.startswith(f"{submission.assignment}/") and not name.endswith(".ipynb")
    }


class _TimeLeft(ProgressColumn):
    """The time left, estimated from the time of the submissions that are done."""

    def render(self, task: Task) -> Text:
        """Return the text. rich calls this method for each refresh."""
        seconds = task.fields["seconds"]  # from the start to the end of the last submission
        if not seconds or task.finished:
            return Text("")
        left = max(0.0, seconds * task.total / task.completed - (task.elapsed or 0.0))
        return Text(f"about {left / 60:.0f} min left" if left >= 90 else f"about {left:.0f} s left")


def _in_parallel(
    run: Callable[[Work, threading.Event], dict[str, Any]], todo: dict[int, Work], jobs: int
) -> dict[int, dict[str, Any]]:
    """Call `run` for each, `jobs` at a time, with a progress bar; return the results. An interrupt ends all runs."""
    if not todo:
        return {}
    stopping = threading.Event()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _TimeLeft())
    pool = ThreadPoolExecutor(jobs)
    try:
        with Progress(*columns, console=Console(stderr=True)) as progress:
            task = progress.add_task("Grading", total=len(todo), seconds=0.0)
            futures = {pool.submit(run, work, stopping): number for number, work in todo.items()}
            for future in as_completed(futures):
                learner = escape(todo[futures[future]].submission.learner)
                seconds = progress.tasks[task].elapsed
                progress.update(task, advance=1, description=f"Graded {learner}", seconds=seconds)
            return {number: future.result() for future, number in futures.items()}
    except KeyboardInterrupt:
        print("Stopped; the results so far are kept. Run the same command again to continue.", file=sys.stderr)
        raise
    finally:
        stopping.set()
        pool.shutdown(cancel_futures=True)


def _grade_one(
    work: Work, stopping: threading.Event, perform_one: Callable[[Work, threading.Event], Graded], results: Path
) -> dict[str, Any]:
    """Grade a submission, write its pages and its result; return the result."""
    path = _result_path(work.submission, results)
    path.unlink(missing_ok=True)
    try:
        graded = perform_one(work, stopping)
    except Unusable as problem:
        return _refuse(work.submission, results, problem)
    needs_a_look = any(exercise["reason"].startswith(LOOK) for exercise in graded.result["exercises"].values())
    for page, content in graded.pages.items():
        if needs_a_look:  # learners get no page before an instructor has accepted the submission
            (results / page).unlink(missing_ok=True)
        else:
            write(results / page, content)
    class_leaderboard.record_attempt(path, work.handed_in)
    result = {**graded.result, "digest": work.digest, "accepted": work.accepted}
    write(path, json.dumps(result, indent=1).encode())
    return result


def _refuse(submission: Submission, results: Path, problem: Unusable) -> dict[str, Any]:
    """Remove the results of an earlier submission; return a result with the problem of this one."""
    if submission.master:
        for path in (_result_path(submission, results), *(results / page for page in runner.pages(submission))):
            path.unlink(missing_ok=True)
    return {"problem": str(problem), "fault": problem.fault}


def _result_path(submission: Submission, results: Path) -> Path:
    """Return the file for the result of a submission."""
    return results / ".results" / submission.learner / submission.assignment / f"{submission.notebook}.json"


def _read_result(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None
