"""Grade a class: a folder of submissions → gradebook, grades.csv, feedback pages.

nbgrader grades each submission in a process, a course folder and a database of its own, on this host or as a job of
a cluster (see `jobs`). This process alone writes the gradebook and the tables. An interrupted run leaves only whole
results, the next continues.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import logging
import shutil
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, SpinnerColumn, Task, TextColumn
from rich.table import Table
from rich.text import Text

from course_lib import slurm as cluster
from course_lib import supervise
from course_lib.assess import contract, marks, sandbox
from course_lib.classroom import ROOT, jupyter, masters, submissions, workspace
from course_lib.classroom.parsing import Master
from course_lib.classroom.submissions import Submission, Unusable
from course_lib.errors import CourseError
from course_lib.files import write

SLICE = "1280"  # images on which graded notebooks train, unless the instructor sets COURSE_SLICE
HARD_LIMIT = 1500  # seconds for a whole submission; its cells have less (see one_submission)
TEMPORARY = "course-grade-"
LEARNER = "learner"  # the name of the only one in a submission's own course folder
GRADEBOOK = "gradebook.db"
AT_ONCE = 64  # submissions that are jobs of a cluster at the same time, unless the instructor says otherwise
WAITS = 2  # times the longest assessment that a job may wait for others on its node
COLUMNS = ["learner", "assignment", "notebook", "exercise", "score", "max_score", "reason"]


@dataclass(frozen=True)
class Summary:
    """What `grade` did: where the results are, the rows of grades.csv, what could not be graded and why."""

    results: Path
    rows: list[dict[str, Any]]
    problems: list[dict[str, str]]

    @property
    def code(self) -> int:
        """The exit code of `course grade`."""
        return 1 if self.problems else 0


def grade(directory: Path, jobs: int | None = None, root: Path = ROOT, slurm: bool = False) -> Summary:
    """Grade every submission in `directory`, `jobs` at a time; results go to the folder DIRECTORY-graded.

    With `slurm` each submission is a job of its own, and AT_ONCE are submitted unless `jobs` says otherwise.
    What was graded before and has not changed (submission, master, course library) is not run again.
    CourseError where nothing can be graded; what is wrong with a single submission is in the summary.
    """
    if jobs is not None and jobs < 1:
        raise CourseError("--jobs must be 1 or more.")
    if slurm:
        cluster.check()
    directory, root = directory.resolve(), root.resolve()
    known = {path.stem: masters.read(path) for path in masters.find(root)}
    found = submissions.find(directory, known)
    released = workspace.course_files(root)
    results = results_of(directory)
    assignments = {one.assignment for one in found if one.master}
    with _locked(results, shared=slurm) as temporary:
        blank = temporary / GRADEBOOK
        _enter([master for master in known.values() if master.assignment in assignments], blank)
        _update([master for master in known.values() if master.assignment in assignments], blank, results)
        graded = _grade_all(found, released, blank, results, jobs, slurm)
        rows, problems = _record(graded, results)
        _write_tables(results, rows, problems)
    summary = Summary(results, rows, problems)
    _show(summary)
    return summary


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
        raise CourseError(f"{results} cannot be written ({error.strerror}); mend its permissions.") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CourseError(f"Another `course grade` writes to {results}; wait until it has ended.") from None
        lock.seek(0)
        if (left := Path(lock.read())).name.startswith(TEMPORARY):  # by a run that was killed
            if shared:
                from course_lib.classroom import jobs

                jobs.cancel(results)
            shutil.rmtree(left, ignore_errors=True)
        temporary = tempfile.mkdtemp(prefix=TEMPORARY, dir=results if shared else None)
        try:
            lock.truncate(0)
            lock.write(temporary)
            lock.flush()
            yield Path(temporary)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)  # on a file server, another host may still hold a file
        lock.truncate(0)


def _enter(notebooks: list[Master], gradebook: Path) -> None:
    """Enter notebooks into a gradebook. NbGraderException where it holds grades for other cells."""
    from nbgrader.converters import GenerateAssignment
    from nbgrader.coursedir import CourseDirectory

    config = masters.nbgrader_config()
    with tempfile.TemporaryDirectory(prefix="course-grade-") as root, _quiet(), jupyter.programs():
        for master in notebooks:
            path = Path(root, "source", master.assignment, master.notebook.name)
            write(path, masters.to_text(masters.source(master)).encode())
        for assignment in sorted({master.assignment for master in notebooks}):
            url = f"sqlite:///{gradebook}"
            coursedir = CourseDirectory(root=root, assignment_id=assignment, db_url=url, config=config)
            GenerateAssignment(coursedir=coursedir, config=config).start()


def _update(notebooks: list[Master], blank: Path, results: Path) -> None:
    """Bring the class's gradebook up to date, wholly or not at all."""
    from nbgrader.converters.base import NbGraderException

    gradebook, new = results / GRADEBOOK, results / f".{GRADEBOOK}.part"
    if gradebook.exists():
        shutil.copyfile(gradebook, new)
        try:
            _enter(notebooks, new)
        except NbGraderException:
            new.unlink()
            problem = f"{gradebook} is damaged or holds grades of older notebooks"
            raise CourseError(f"{problem}; move {results} away and grade again.") from None
    else:
        shutil.copyfile(blank, new)
    new.replace(gradebook)


@dataclass(frozen=True)
class Work:
    """A submission that can be graded: the notebook and the files that are run."""

    one: Submission
    notebook: Any
    files: dict[str, bytes]

    @functools.cached_property
    def digest(self) -> str:
        """Of everything that the grade depends on, but the data and the machine."""
        digest = hashlib.sha256(masters.to_text(self.notebook).encode() + self.one.master.path.read_bytes())
        for name in sorted(self.files):
            digest.update(name.encode() + self.files[name])
        if self.one.master.script:
            digest.update(contract.CONTRACT.read_bytes() + contract.read().profile().name.encode())
        digest.update(_library())
        return digest.hexdigest()


@functools.cache
def _library() -> bytes:
    """Digest of the course library, on which the tests stand."""
    paths = sorted((ROOT / "course_lib").rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).digest()


@dataclass(frozen=True)
class Graded:
    """What comes of grading a submission: the result of one_submission, and the pages by their place in the results."""

    result: dict[str, Any]
    pages: dict[Path, bytes]


def _grade_all(
    found: list[Submission], released: dict[str, bytes], blank: Path, results: Path, jobs: int | None, slurm: bool
) -> list[tuple[Submission, dict[str, Any]]]:
    """(submission, result) for each; a result is that of one_submission, or {"problem": sentence}."""
    told: dict[int, dict[str, Any]] = {}
    todo: dict[int, Work] = {}
    for number, one in enumerate(found):
        try:
            work = _taken(one, released)
        except Unusable as problem:
            told[number] = _refuse(one, results, problem)
            continue
        before = _remembered(_memory(one, results))
        if before and before["digest"] == work.digest:
            told[number] = before
        else:
            todo[number] = work
    scripts = any(work.one.master.script for work in todo.values())
    if slurm:
        from course_lib.classroom.jobs import Jobs

        jobs = jobs or max(1, min(len(todo), AT_ONCE))
        performing = Jobs(blank, results, WAITS * marks.longest() if scripts else 0)
    else:
        if scripts and (weakness := sandbox.available()):
            print(f"Scripts are not confined here: {weakness}", file=sys.stderr)
        jobs = jobs or 1
        # Whoever waits for cores or GPUs waits for as many others as there are jobs.
        extra = jobs * marks.longest() if scripts else 0
        performing = contextlib.nullcontext(functools.partial(perform, blank=blank, extra=extra, below=blank.parent))
    with performing as perform_one:
        run = functools.partial(_grade_one, perform_one=perform_one, results=results)
        told.update(_in_parallel(run, todo, jobs))
    return [(one, told[number]) for number, one in enumerate(found)]


def _taken(one: Submission, released: dict[str, bytes]) -> Work:
    """What of a submission is run. Unusable: it cannot be graded."""
    if one.master is None:
        raise Unusable(one.problem)
    notebook = submissions.sanitise(one.path, one.master)
    files = {
        name.partition("/")[2]: content
        for name, content in released.items()
        if name.startswith(f"{one.assignment}/") and not name.endswith(".ipynb")
    }
    starters = [name for name in files if name.endswith(".py")]
    return Work(one, notebook, {**files, **submissions.scripts(one, notebook, starters)})


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
    for page, content in graded.pages.items():
        write(results / page, content)
    result = {**graded.result, "digest": work.digest}
    write(memory, json.dumps(result, indent=1).encode())
    return result


def perform(work: Work, stopping: threading.Event, blank: Path, extra: float, below: Path | None = None) -> Graded:
    """Grade one submission on this host, in a folder of its own in the folder `below`, which is gone afterwards.

    `blank` is a gradebook that knows the assignment. `extra` are the seconds that a script may take beyond what a
    notebook has. Raises Unusable where it cannot be graded, CancelledError where it is `stopping`.
    """
    try:
        return _attempt(work, stopping, blank, extra, below)
    except _Failed:  # a kernel that does not start, mostly: a port that it was to have was taken meanwhile
        return _attempt(work, stopping, blank, extra, below)


def _attempt(work: Work, stopping: threading.Event, blank: Path, extra: float, below: Path | None) -> Graded:
    one = work.one
    with tempfile.TemporaryDirectory(prefix=TEMPORARY, dir=below) as temporary:
        folder = Path(temporary)
        prepare(folder, one.master, work.notebook, work.files, blank)
        result = _run(folder, one.master, stopping, extra if one.master.script else 0)
        made = {page: folder / page.parts[0] / LEARNER / Path(*page.parts[2:]) for page in _pages(one)}
        return Graded(result, {page: path.read_bytes() for page, path in made.items()})


class _Failed(Unusable):
    """nbgrader failed, for no reason that lies in the submission."""


def _refuse(one: Submission, results: Path, problem: Unusable) -> dict[str, Any]:
    """Remove what there is of an earlier submission; return a result that says what is wrong with this one."""
    for path in (_memory(one, results), *(results / page for page in _pages(one))) if one.master else ():
        path.unlink(missing_ok=True)
    return {"problem": str(problem)}


def _memory(one: Submission, results: Path) -> Path:
    """The file that keeps the result of an earlier run."""
    return results / ".results" / one.learner / one.assignment / f"{one.notebook}.json"


def _pages(one: Submission) -> list[Path]:
    """Feedback page and graded notebook, within the results."""
    place = Path(one.learner, one.assignment)
    return [Path("feedback", place, f"{one.notebook}.html"), Path("autograded", place, f"{one.notebook}.ipynb")]


def _remembered(memory: Path) -> dict[str, Any] | None:
    try:
        return json.loads(memory.read_text())
    except (OSError, ValueError):
        return None


def prepare(folder: Path, master: Master, notebook: Any, files: dict[str, bytes], blank: Path) -> None:
    """Lay out an nbgrader course with one submission.

    Its gradebook knows the assignment but no other learner. There is no source folder: nbgrader would put its
    files over the learner's.
    """
    place = folder / "submitted" / LEARNER / master.assignment
    write(place / master.notebook.name, masters.to_text(notebook).encode())
    for name, content in files.items():
        write(place / name, content)
    shutil.copyfile(blank, folder / GRADEBOOK)


def _run(folder: Path, master: Master, stopping: threading.Event, extra: float) -> dict[str, Any]:
    """Run one_submission in `folder`; nothing that it started is left afterwards. Unusable: it failed.

    `extra` are the seconds that it may take beyond what a notebook has.
    """
    log, neutral, limit = folder / "log", folder / "empty", HARD_LIMIT + extra
    neutral.mkdir()  # `python -m` imports from where it stands
    (folder / "tmp").mkdir()  # what is killed in the middle leaves nothing elsewhere
    env = {**jupyter.environment(folder / "jupyter"), "TMPDIR": str(folder / "tmp")}
    for name in [name for name in env if name.startswith("SLURM_")]:
        del env[name]  # in a job, mpirun would count Slurm's tasks, not the ranks that it is asked for
    if master.script:
        env.pop("COURSE_SLICE", None)  # the contract says how much it trains on
    else:
        env.setdefault("COURSE_SLICE", SLICE)  # what a notebook trains for show is not graded
    worker = [sys.executable, "-m", "course_lib.classroom.one_submission", folder, master.path, extra]
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, supervise.__file__, str(limit), *map(str, worker)],
            stdin=subprocess.PIPE,  # closed when we end, however we end
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=neutral,
            start_new_session=True,
        )
        while process.poll() is None and not stopping.wait(0.1):
            pass
        process.stdin.close()
        code = process.wait()
    if stopping.is_set():
        raise CancelledError
    if code:
        raise _why(code, log.read_text(errors="replace"), limit)
    result = json.loads((folder / "result.json").read_text())
    if "problem" in result:
        raise Unusable(result["problem"])
    return result


def _why(code: int, log: str, limit: float) -> Unusable:
    if code == supervise.TIMED_OUT:
        return Unusable(f"It ran for more than {limit // 60:.0f} minutes and could not be interrupted.")
    if "DeadKernelError" in log:
        return Unusable("Its process died while a cell ran: out of memory, or a cell ended it.")
    errors = [line.strip() for line in log.splitlines() if "Error" in line or "Exception" in line]
    lines = [line for line in errors if "NbGraderException" not in line] or errors  # that only refers to the others
    return _Failed(f"nbgrader failed: {lines[-1] if lines else f'exit code {code}'}")


def _record(
    graded: list[tuple[Submission, dict[str, Any]]], results: Path
) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    """Put every result into the gradebook; return the rows of grades.csv and of not_graded.csv.

    A score or comment that the instructor set by hand in the gradebook stands.
    """
    from nbgrader.api import Gradebook

    rows, problems = [], []
    with _quiet(), Gradebook(f"sqlite:///{results / GRADEBOOK}") as book:
        for one, result in graded:
            who = {"learner": one.learner, "assignment": one.assignment, "notebook": one.notebook}
            if "problem" in result:
                rows.append({**who, "reason": result["problem"]})
                problems.append({**who, "reason": result["problem"]})
                continue
            place = (one.notebook, one.assignment, one.learner)
            book.update_or_create_student(one.learner)
            book.update_or_create_submission(one.assignment, one.learner)
            names = {cell.id: cell.name for cell in one.master.cells}
            for name, told in result["exercises"].items():
                kept = book.find_grade(name, *place)
                kept.auto_score = told["score"]
                kept.needs_manual_grade = kept.manual_score is not None
                book.db.commit()
                about = {"max_score": told["max_score"], "reason": told["reason"]}
                rows.append({**who, "exercise": names[name], "score": kept.score, **about})
                if not told["sound"]:
                    problems.append({**who, "reason": f"Exercise {names[name]}: {told['reason']}"})
            for name, text in result["comments"].items():
                book.find_comment(name, *place).auto_comment = text
            book.db.commit()
    return rows, problems


def _write_tables(results: Path, rows: list[dict[str, Any]], problems: list[dict[str, str]]) -> None:
    import pandas

    for name, table, columns in (
        ("grades.csv", rows, COLUMNS),
        ("not_graded.csv", problems, [*COLUMNS[:3], "reason"]),
    ):
        text = pandas.DataFrame(table, columns=columns).to_csv(index=False)
        write(results / name, text.encode())


def _show(summary: Summary) -> None:
    console = Console()
    table = Table("learner", "notebook", "score")
    totals: dict[tuple[str, str], list[float]] = {}
    for row in summary.rows:
        if "score" in row:
            total = totals.setdefault((row["learner"], row["notebook"]), [0.0, 0.0])
            total[0] += row["score"]
            total[1] += row["max_score"]
    for (learner, notebook), (score, most) in totals.items():
        table.add_row(escape(learner), notebook, f"{score:g} of {most:g}")
    console.print(table)
    for problem in summary.problems:
        what = f"{problem['learner']}, {problem['notebook']}"
        console.print(f"Could not be graded: {what}: {problem['reason']}", markup=False, highlight=False)
    console.print(f"Results: {summary.results}", markup=False)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """nbgrader logs, with tracebacks, what we say in one sentence; SQLAlchemy warns of nbgrader's ways."""
    logger = logging.getLogger("traitlets")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
