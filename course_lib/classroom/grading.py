"""Grade a class: a folder of submissions → gradebook, grades.csv, feedback pages.

nbgrader grades each submission in a process, a course folder and a database of its own. This process alone
writes the gradebook and the tables. An interrupted run leaves only whole results, the next continues.
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
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from course_lib import supervise
from course_lib.classroom import ROOT, jupyter, masters, submissions, workspace
from course_lib.classroom.files import write
from course_lib.classroom.parsing import Master
from course_lib.classroom.submissions import Submission, Unusable
from course_lib.errors import CourseError

SLICE = "1280"  # images on which graded notebooks train, unless the instructor sets COURSE_SLICE
HARD_LIMIT = 1500  # seconds for a whole submission; its cells have less (see one_submission)
LEARNER = "learner"  # the name of the only one in a submission's own course folder
GRADEBOOK = "gradebook.db"
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


def grade(directory: Path, jobs: int = 1, root: Path = ROOT) -> Summary:
    """Grade every submission in `directory`, `jobs` at a time; results go to the folder DIRECTORY-graded.

    What was graded before and has not changed (submission, master, course library) is not run again.
    CourseError where nothing can be graded; what is wrong with a single submission is in the summary.
    """
    if jobs < 1:
        raise CourseError("--jobs must be 1 or more.")
    directory, root = directory.resolve(), root.resolve()
    known = {path.stem: masters.read(path) for path in masters.find(root)}
    found = submissions.find(directory, known)
    released = workspace.course_files(root)
    results = directory.with_name(f"{directory.name}-graded")
    assignments = {one.assignment for one in found if one.master}
    with _locked(results), tempfile.TemporaryDirectory(prefix="course-grade-") as temporary:
        blank = Path(temporary, GRADEBOOK)
        _enter([master for master in known.values() if master.assignment in assignments], blank)
        _update([master for master in known.values() if master.assignment in assignments], blank, results)
        graded = _grade_all(found, released, blank, results, jobs)
        rows, problems = _record(graded, results)
        _write_tables(results, rows, problems)
    summary = Summary(results, rows, problems)
    _show(summary)
    return summary


@contextlib.contextmanager
def _locked(results: Path) -> Iterator[None]:
    """Keep a second `course grade` from writing to the same results."""
    try:
        results.mkdir(exist_ok=True)
        lock = (results / ".lock").open("w")
    except OSError as error:
        raise CourseError(f"{results} cannot be written ({error.strerror}); mend its permissions.") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CourseError(f"Another `course grade` writes to {results}; wait until it has ended.") from None
        yield


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


def _grade_all(
    found: list[Submission], released: dict[str, bytes], blank: Path, results: Path, jobs: int
) -> list[tuple[Submission, dict[str, Any]]]:
    """(submission, result) for each; a result is that of one_submission, or {"problem": sentence}."""
    stopping = threading.Event()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    pool = ThreadPoolExecutor(jobs)
    try:
        with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
            task = progress.add_task("Grading", total=len(found))
            futures = {pool.submit(_grade_one, one, released, blank, results, stopping): one for one in found}
            for future in as_completed(futures):
                progress.update(task, advance=1, description=f"Graded {escape(futures[future].learner)}")
            return [(one, future.result()) for future, one in futures.items()]
    except KeyboardInterrupt:
        print("Stopped; what is graded is kept. Run the same command again to go on.", file=sys.stderr)
        raise
    finally:
        stopping.set()
        pool.shutdown(cancel_futures=True)


def _grade_one(
    one: Submission, released: dict[str, bytes], blank: Path, results: Path, stopping: threading.Event
) -> dict[str, Any]:
    if one.master is None:
        return {"problem": one.problem}
    place = Path(one.learner, one.assignment, one.notebook)
    memory = (results / ".results" / place).with_suffix(".json")
    pages = [Path("feedback", place).with_suffix(".html"), Path("autograded", place).with_suffix(".ipynb")]
    try:
        notebook = submissions.sanitise(one.path, one.master)
        files = {
            name.partition("/")[2]: content
            for name, content in released.items()
            if name.startswith(f"{one.assignment}/") and not name.endswith(".ipynb")
        }
        starters = [name for name in files if name.endswith(".py")]
        files.update(submissions.scripts(one, notebook, starters))
        digest = _digest(one.master, notebook, files)
        if (before := _remembered(memory)) and before["digest"] == digest:
            return before
        memory.unlink(missing_ok=True)
        with tempfile.TemporaryDirectory(prefix="course-grade-") as temporary:
            folder = Path(temporary)
            prepare(folder, one.master, notebook, files, blank)
            result = {**_run(folder, one.master, stopping), "digest": digest}
            for page in pages:
                made = folder / page.parts[0] / LEARNER / Path(*page.parts[2:])
                write(results / page, made.read_bytes())
        write(memory, json.dumps(result, indent=1).encode())
        return result
    except Unusable as problem:
        for path in (memory, *(results / page for page in pages)):
            path.unlink(missing_ok=True)  # they are of an earlier submission
        return {"problem": str(problem)}


def _digest(master: Master, notebook: Any, files: dict[str, bytes]) -> str:
    """Of everything that a grade depends on, but the data and the machine."""
    digest = hashlib.sha256(masters.to_text(notebook).encode() + master.path.read_bytes())
    for name in sorted(files):
        digest.update(name.encode() + files[name])
    digest.update(_library())
    return digest.hexdigest()


@functools.cache
def _library() -> bytes:
    """Digest of the course library, on which the tests stand."""
    paths = sorted((ROOT / "course_lib").rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).digest()


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


def _run(folder: Path, master: Master, stopping: threading.Event) -> dict[str, Any]:
    """Run one_submission in `folder`; nothing that it started is left afterwards. Unusable: it failed."""
    log, neutral = folder / "log", folder / "empty"
    neutral.mkdir()  # `python -m` imports from where it stands
    worker = [sys.executable, "-m", "course_lib.classroom.one_submission", str(folder), str(master.path)]
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, supervise.__file__, str(HARD_LIMIT), *worker],
            stdin=subprocess.PIPE,  # closed when we end, however we end
            stdout=output,
            stderr=subprocess.STDOUT,
            # What a notebook trains for show is not graded: a small slice will do.
            env={"COURSE_SLICE": SLICE, **jupyter.environment(folder / "jupyter")},
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
        raise Unusable(_why(code, log.read_text(errors="replace")))
    return json.loads((folder / "result.json").read_text())


def _why(code: int, log: str) -> str:
    if code == supervise.TIMED_OUT:
        return f"It ran for more than {HARD_LIMIT // 60} minutes and could not be interrupted."
    if "DeadKernelError" in log:
        return "Its process died while a cell ran: out of memory, or a cell ended it."
    lines = [line.strip() for line in log.splitlines() if "Error" in line or "Exception" in line]
    return f"nbgrader failed: {lines[-1] if lines else f'exit code {code}'}"


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
