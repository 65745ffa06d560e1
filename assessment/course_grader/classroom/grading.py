"""Grade a class: a folder of submissions → gradebook, grades.csv, feedback pages.

nbgrader grades each submission in a process, a course folder and a database of its own, on this host (see `runner`)
or as a job of a cluster (see `slurm_jobs`). This process alone writes the gradebook and the tables. An interrupted run
leaves only whole results, the next continues.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
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
from course_grader.sandbox import bubblewrap
from course_grader.script import contract
from course_lib import data
from course_lib.authoring import masters, released
from course_lib.ranks import slurm as cluster
from course_lib.ranks.launch import Event
from course_lib.system.errors import CourseError
from course_lib.system.files import write
from course_lib.system.paths import ROOT

MAX_JOBS = 64  # of a cluster at the same time, one for each submission, unless the instructor says otherwise
MAX_WAITS = 2  # times the longest assessment that a job may wait for others on its node
ACCEPTED = "accepted.json"  # among the results: digests of what an instructor has looked at
REMOVAL_PATIENCE_S = 5.0  # with a folder that others still write to, or hold open on a file server


def grade(
    directory: Path,
    jobs: int | None = None,
    root: Path = ROOT,
    slurm: bool = False,
    accept: Sequence[str] = (),
    rerun_top: int = 0,
    runs: int = class_leaderboard.RUNS,
    pseudonyms: bool = False,
    against: Path | None = None,
) -> Summary:
    """Grade every submission in `directory`, `jobs` at a time; results go to the folder DIRECTORY-graded.

    With `slurm` each submission is a job of its own, and MAX_JOBS are submitted unless `jobs` says otherwise. What the
    learners in `accept` have handed in by now has been looked at: it counts, whatever was found in it.
    What was graded before and has not changed (submission, master, course library) is not run again.
    Those who pass by a script stand on the leaderboard, under `pseudonyms` if so wished; the best `rerun_top` of them
    are run again, `runs` times in all, on this host.
    Scripts that resemble each other, or those of an earlier class in the folder `against`, are listed too.
    CourseError where nothing can be graded; what is wrong with a single submission is in the summary.
    """
    if jobs is not None and jobs < 1:
        raise CourseError("--jobs must be 1 or more.", code=2)
    if rerun_top < 0:
        raise CourseError("--rerun-top must be 0 or more.", code=2)
    if rerun_top and runs < class_leaderboard.RUNS:
        raise CourseError(f"--runs must be {class_leaderboard.RUNS} or more: fewer have no interval of 95 %.", code=2)
    if rerun_top and slurm:
        raise CourseError("Runs that are compared are made on one host: give --rerun-top without --slurm.", code=2)
    data.images_limit()  # a bad setting is no learner's fault
    if slurm:
        cluster.check()
    earlier = copies.collect(against) if against else {}
    directory, root = directory.resolve(), root.resolve()
    known = {path.stem: masters.read(path) for path in masters.find(root)}
    starters = released.course_files(root)
    found = submissions.find(directory, known, starters)
    results = results_of(directory)
    assignments = {one.assignment for one in found if one.master}
    with _locked(results, shared=slurm) as temporary:
        blank = temporary / gradebook.GRADEBOOK
        notebooks = [master for master in known.values() if master.assignment in assignments]
        gradebook.enter(notebooks, blank)
        gradebook.update(notebooks, blank, results)
        graded = _grade_all(found, starters, blank, results, jobs, slurm, accept)
        rows, problems = gradebook.record(graded, results)
        write_tables(results, rows, problems)
        feedback.note_scores_by_hand(graded, rows, results)
        summary = Summary(results, rows, problems)
        show(summary)
        scripts = {one.learner: result["script"] for one, result in graded if "script" in result}
        if scripts and (pairs := copies.write(results, scripts, earlier)):
            print(f"{len(pairs)} pairs of scripts resemble each other: {results / copies.PAGE}", file=sys.stderr)
        _rank(graded, results, rerun_top, runs, pseudonyms)
    return summary


def _rank(
    graded: list[tuple[Submission, dict[str, Any]]], results: Path, rerun_top: int, runs: int, pseudonyms: bool
) -> None:
    """Write the leaderboard, where a script was graded; run the best again first."""
    if not any("outcome" in result for _, result in graded):
        return

    passed = class_leaderboard.found(graded, functools.partial(_memory, results=results))

    def follow(text: str) -> Callable[[Event], None]:
        print(text, file=sys.stderr)
        return show_stage

    with stages.stages() as show_stage:
        try:
            class_leaderboard.run_again(passed, rerun_top, runs, follow)
        finally:
            class_leaderboard.write_pages(results, (one.entry() for one in passed), pseudonyms)


def results_of(directory: Path) -> Path:
    """The folder that the results for the submissions in `directory` go to."""
    return directory.with_name(f"{directory.name}-graded")


@contextlib.contextmanager
def _locked(results: Path, shared: bool = False) -> Iterator[Path]:
    """Keep a second `course grade` from writing to the same results; yield a folder for temporary files.

    It lies among the results where it is `shared` with other hosts.
    """
    try:
        results.mkdir(exist_ok=True)
        lock = (results / ".lock").open("a+")
    except OSError as error:
        raise CourseError(f"{results} cannot be written ({error.strerror}); make it writable.") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CourseError(f"Another `course grade` writes to {results}; wait until it has ended.") from None
        lock.seek(0)
        if (left := Path(lock.read())).name.startswith(TEMPORARY_PREFIX):  # by a run that was killed
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
    """Remove a folder in which jobs that have just been cancelled may still be writing."""
    deadline = time.monotonic() + REMOVAL_PATIENCE_S
    shutil.rmtree(folder, ignore_errors=True)
    while folder.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
        shutil.rmtree(folder, ignore_errors=True)


def _grade_all(
    found: list[Submission],
    released: dict[str, bytes],
    blank: Path,
    results: Path,
    jobs: int | None,
    slurm: bool,
    accept: Sequence[str],
) -> list[tuple[Submission, dict[str, Any]]]:
    """(submission, result) for each; a result is that of one_submission, with the script that it is of, or
    {"problem": sentence}."""
    if strangers := set(accept) - {one.learner for one in found}:
        raise CourseError(
            f"Nothing was handed in by {min(strangers)!r}: --accept takes a learner's folder name.", code=2
        )
    accepted = _accepted(results)
    told: dict[int, dict[str, Any]] = {}
    todo: dict[int, Work] = {}
    scripts: dict[int, bytes] = {}
    for number, one in enumerate(found):
        try:
            work = _taken(one, released)
            if one.learner in accept:
                accepted.add(work.handed_in)
            work = replace(work, accepted=work.handed_in in accepted)
        except Unusable as problem:
            told[number] = _refuse(one, results, problem)
            continue
        if one.master.script:
            scripts[number] = work.files[one.master.script]
        before = _remembered(_memory(one, results))
        if before and before["digest"] == work.digest:
            told[number] = before
            continue
        if before and work.accepted and before["digest"] == replace(work, accepted=False).digest:
            work = replace(work, outcome=before.get("outcome"))
        todo[number] = work
    if scripts and contract.read().profile().images:
        name = contract.read().profile().name
        print(f"The profile {name} trains on a slice of the data: it is for trials, not for marks.", file=sys.stderr)
    write(results / ACCEPTED, json.dumps(sorted(accepted), indent=1).encode())
    waits = MAX_WAITS if scripts.keys() & todo.keys() else 0
    if slurm:
        jobs = jobs or max(1, min(len(todo), MAX_JOBS))
        performing = slurm_jobs.Jobs(blank, results, waits * notebook_points.longest() if waits else 0)
    else:
        if todo and (weakness := bubblewrap.available()):
            print(f"What learners wrote is not confined here: {weakness}", file=sys.stderr)
        jobs = jobs or 1
        # Whoever waits for cores or GPUs waits for as many others as there are jobs.
        extra = jobs * notebook_points.longest() if waits else 0
        perform = functools.partial(runner.perform, blank=blank, extra=extra, below=blank.parent)
        performing = contextlib.nullcontext(perform)
    with performing as perform_one:
        run = functools.partial(_grade_one, perform_one=perform_one, results=results)
        told.update(_in_parallel(run, todo, jobs))
    for number, script in scripts.items():
        told[number]["script"] = script
    return [(one, told[number]) for number, one in enumerate(found)]


def _accepted(results: Path) -> set[str]:
    """Digests of the submissions that an instructor has looked at."""
    try:
        return set(json.loads((results / ACCEPTED).read_text()))
    except (OSError, ValueError):
        return set()


def _taken(one: Submission, released: dict[str, bytes]) -> Work:
    """What of a submission is run. Unusable: it cannot be graded."""
    if one.master is None:
        raise Unusable(one.problem)
    if one.master.script:
        if one.file is None:
            raise Unusable(f"{one.master.script} was not handed in with the notebook.")
        return Work(one, None, {**_starters(one, released), one.master.script: one.file.read()})
    notebook = learners_notebook.read(one.file.read(), one.file.shown)
    files = _starters(one, released)
    text = "\n".join(cell.source for cell in masters.source(one.master).cells)
    names = [name for name in files if name.endswith(".py")]
    own = {f"{MODULES}/{name}": content for name, content in submissions.modules(one).items()}
    return Work(one, notebook, {**files, **own, **submissions.scripts(one, text, names, released)})


def _starters(one: Submission, released: dict[str, bytes]) -> dict[str, bytes]:
    """What the course hands out beside the notebook, by name."""
    return {
        name.partition("/")[2]: content
        for name, content in released.items()
        if name.startswith(f"{one.assignment}/") and not name.endswith(".ipynb")
    }


class _TimeLeft(ProgressColumn):
    """The time left, from the time that those who are done have taken."""

    def render(self, task: Task) -> Text:
        """Called by rich for each refresh."""
        done = task.fields["seconds"]  # when the last one was done
        if not done or task.finished:
            return Text("")
        left = max(0.0, done * task.total / task.completed - (task.elapsed or 0.0))
        return Text(f"about {left / 60:.0f} min left" if left >= 90 else f"about {left:.0f} s left")


def _in_parallel(
    run: Callable[[Work, threading.Event], dict[str, Any]], todo: dict[int, Work], jobs: int
) -> dict[int, dict[str, Any]]:
    """What `run` gives for each, `jobs` at a time, with a progress bar. An interrupt ends what is running."""
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
                learner = escape(todo[futures[future]].one.learner)
                seconds = progress.tasks[task].elapsed
                progress.update(task, advance=1, description=f"Graded {learner}", seconds=seconds)
            return {number: future.result() for future, number in futures.items()}
    except KeyboardInterrupt:
        print("Stopped; what is graded is kept. Run the same command again to go on.", file=sys.stderr)
        raise
    finally:
        stopping.set()
        pool.shutdown(cancel_futures=True)


def _grade_one(
    work: Work, stopping: threading.Event, perform_one: Callable[[Work, threading.Event], Graded], results: Path
) -> dict[str, Any]:
    one = work.one
    memory = _memory(one, results)
    memory.unlink(missing_ok=True)
    try:
        graded = perform_one(work, stopping)
    except Unusable as problem:
        return _refuse(one, results, problem)
    needs_a_look = any(came["reason"].startswith(LOOK) for came in graded.result["exercises"].values())
    for page, content in graded.pages.items():
        if needs_a_look:  # learners get a page as soon as their score counts
            (results / page).unlink(missing_ok=True)
        else:
            write(results / page, content)
    class_leaderboard.handed_in(memory, work.handed_in)
    result = {**graded.result, "digest": work.digest, "accepted": work.accepted}
    write(memory, json.dumps(result, indent=1).encode())
    return result


def _refuse(one: Submission, results: Path, problem: Unusable) -> dict[str, Any]:
    """Remove what there is of an earlier submission; return a result that says what is wrong with this one."""
    for path in (_memory(one, results), *(results / page for page in runner.pages(one))) if one.master else ():
        path.unlink(missing_ok=True)
    return {"problem": str(problem), "fault": problem.fault}


def _memory(one: Submission, results: Path) -> Path:
    """The file that keeps the result of an earlier run."""
    return results / ".results" / one.learner / one.assignment / f"{one.notebook}.json"


def _remembered(memory: Path) -> dict[str, Any] | None:
    try:
        return json.loads(memory.read_text())
    except (OSError, ValueError):
        return None
