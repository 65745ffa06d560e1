"""Grade one submission on this host: nbgrader runs in its own process, with its own course folder and database."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import CancelledError
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from course_grader.classroom.gradebook import GRADEBOOK, TEMPORARY_PREFIX
from course_grader.classroom.learners_notebook import LearnersNotebook, Unusable
from course_grader.classroom.submissions import Submission
from course_grader.sandbox import bubblewrap
from course_grader.script import contract
from course_lib.authoring import masters
from course_lib.authoring.master_format import Master
from course_lib.notebook import jupyter
from course_lib.system import variables
from course_lib.system.errors import CourseError
from course_lib.system.files import write
from course_lib.system.paths import ROOT
from course_lib.system.processes import Supervised
from course_lib.system.supervise import TIMED_OUT

DEFAULT_SLICE = "1280"  # images on which graded notebooks train, unless the instructor sets COURSE_SLICE
TIME_LIMIT_S = 1500  # for a submission; the limits of its cells are below this (see one_submission)
POLL_INTERVAL_S = 0.1
LEARNER = "learner"  # name of the only learner in a submission's course folder
HANDED_IN = "handed_in.json"  # in that folder: the learner's notebook
OUTCOME = "outcome.json"  # in that folder: the outcome of the assessment
DIGITS = 8  # shown of a digest


@dataclass(frozen=True)
class Work:
    """A submission that can be graded.

    Attributes:
        notebook: None if only a script is graded.
        files: name → content of the files that are run.
        accepted: whether an instructor has accepted the flags of the script.
        outcome: of an earlier run of the same script, which is then not run again; None: run it.
    """

    submission: Submission
    notebook: LearnersNotebook | None
    files: dict[str, bytes]
    accepted: bool = False
    outcome: dict[str, Any] | None = None

    @functools.cached_property
    def handed_in(self) -> str:
        """The digest of the learner's notebook and files."""
        digest = hashlib.sha256(json.dumps(self.notebook and asdict(self.notebook)).encode())
        for name in sorted(self.files):
            digest.update(name.encode() + self.files[name])
        return digest.hexdigest()

    @functools.cached_property
    def digest(self) -> str:
        """The digest of everything that the grade depends on, except for the data and the machine."""
        master = self.submission.master
        digest = hashlib.sha256(f"{self.handed_in} {self.accepted}".encode() + master.path.read_bytes())
        if master.script:
            digest.update(contract.CONTRACT.read_bytes() + contract.read().profile().name.encode())
        digest.update(_code().encode())
        return digest.hexdigest()

    def versions(self, outcome: dict[str, Any] | None) -> dict[str, Any]:
        """Return the course's version and, for a script, the contract's digest and the host's calibration factor."""
        script = self.submission.master.script
        contract_digest = hashlib.sha256(contract.CONTRACT.read_bytes()).hexdigest()[:DIGITS] if script else ""
        version = f"{metadata.version('one-model-many-gpus')}+{_code()[:DIGITS]}"
        return {
            "course_version": version,
            "contract": contract_digest,
            "host_factor": (outcome or {}).get("factor", ""),
        }


@functools.cache
def _code() -> str:
    """Return the digest of the course's code, on which the marks depend."""
    library = [*(ROOT / "course_lib").rglob("*.py"), *(ROOT / "labs").glob("*/lessons/*.py")]
    grader = [path for path in (ROOT / "assessment" / "course_grader").rglob("*") if path.suffix in (".py", ".toml")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted([*library, *grader]))).hexdigest()


def weakness() -> str:
    """Return why learners' code would run without a sandbox on this host; "" if it has one.

    Raises CourseError in a lab of a hub, where that code could collect, grade and read as its instructor.
    """
    problem = bubblewrap.available()
    if problem and os.environ.get("JUPYTERHUB_API_TOKEN"):
        raise CourseError(
            f"Without a sandbox learners' code could do in this lab what you can ({problem.rstrip('.')}): grade what "
            "was collected on another machine, or let the operator of the hub make bubblewrap work."
        )
    return problem


@dataclass(frozen=True)
class Graded:
    """The result of one_submission, and its pages: path in the results → content."""

    result: dict[str, Any]
    pages: dict[Path, bytes]


def perform(work: Work, stopping: threading.Event, blank: Path, extra: float, below: Path | None = None) -> Graded:
    """Grade one submission on this host, in a temporary folder below `below`.

    Args:
        work: the submission.
        stopping: set this event to stop.
        blank: a gradebook with the assignment.
        extra: seconds that a script may take in addition to a notebook's time limit.
        below: default: the system's folder of temporary files.

    Raises Unusable if the submission cannot be graded, CancelledError if `stopping` was set.
    """
    try:
        return _attempt(work, stopping, blank, extra, below)
    except _Failed:  # mostly a kernel that does not start, because another process took its port
        return _attempt(work, stopping, blank, extra, below)


def _attempt(work: Work, stopping: threading.Event, blank: Path, extra: float, below: Path | None) -> Graded:
    master = work.submission.master
    with tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=below) as temporary:
        folder = Path(temporary)
        prepare(folder, work, blank)
        result = _run(folder, master, stopping, extra if master.script else 0, work.accepted)
        result.update(work.versions(result.get("outcome")))
        paths = {page: folder / page.parts[0] / LEARNER / Path(*page.parts[2:]) for page in pages(work.submission)}
        return Graded(result, {page: path.read_bytes() for page, path in paths.items()})


class _Failed(Unusable):
    """nbgrader failed, and not because of the submission."""


def pages(submission: Submission) -> list[Path]:
    """Return the paths of the feedback page and the graded notebook, within the results."""
    folder, name = Path(submission.learner, submission.assignment), submission.notebook
    return [Path("feedback", folder, f"{name}.html"), Path("autograded", folder, f"{name}.ipynb")]


def prepare(folder: Path, work: Work, blank: Path) -> None:
    """Write an nbgrader course with one submission into a folder.

    Its gradebook has the assignment but no other learner. There is no source folder, because nbgrader would overwrite
    the learner's files with those in it.
    """
    master = work.submission.master
    submitted = folder / "submitted" / LEARNER / master.assignment
    page = work.notebook.page(master) if work.notebook else masters.source(master, kinds=("prose", "hidden"))
    write(submitted / master.notebook.name, masters.to_text(page).encode())
    for name, content in work.files.items():
        write(submitted / name, content)
    if work.notebook:
        write(folder / HANDED_IN, json.dumps(asdict(work.notebook)).encode())
    if work.outcome:
        write(folder / OUTCOME, json.dumps(work.outcome).encode())
    shutil.copyfile(blank, folder / GRADEBOOK)


def _run(folder: Path, master: Master, stopping: threading.Event, extra: float, accepted: bool) -> dict[str, Any]:
    """Run one_submission in `folder`; return its result. Raises Unusable if it failed.

    `extra` and `accepted` are as in `perform` and `Work`.
    """
    log, empty, limit = folder / "log", folder / "empty", TIME_LIMIT_S + extra
    empty.mkdir()  # `python -m` imports from its working directory
    (folder / "tmp").mkdir()  # a killed process leaves its files here, and they are removed with the folder
    env = {**jupyter.environment(folder / "jupyter"), "TMPDIR": str(folder / "tmp")}
    for name in [name for name in env if name.startswith("SLURM_")]:
        del env[name]  # in a job, mpirun would start as many ranks as Slurm has tasks
    outcome, grading = folder / OUTCOME, folder / "grading.json"
    grading.write_text(json.dumps({"accepted": accepted, "outcome": str(outcome)}))
    env[variables.GRADING] = str(grading)
    if master.script:
        env.pop(variables.SLICE, None)  # the contract has the number of images
    else:
        env.setdefault(variables.SLICE, DEFAULT_SLICE)  # trainings for demonstration are not graded
    worker = [sys.executable, "-m", "course_grader.classroom.one_submission", folder, master.path, extra]
    with (
        log.open("w") as output,
        Supervised(
            list(map(str, worker)), timeout=limit, stdout=output, stderr=subprocess.STDOUT, env=env, cwd=empty
        ) as process,
    ):
        while process.poll() is None and not stopping.wait(POLL_INTERVAL_S):
            pass
    code = process.returncode
    if stopping.is_set():
        raise CancelledError
    if code:
        raise _why(code, log.read_text(errors="replace"), limit)
    result = json.loads((folder / "result.json").read_text())
    if "problem" in result:
        raise Unusable(result["problem"], result["fault"])
    return {**result, "outcome": json.loads(outcome.read_text())} if outcome.exists() else result


def _why(code: int, log: str, limit: float) -> Unusable:
    if code == TIMED_OUT:
        return Unusable(f"It ran for more than {limit // 60:.0f} minutes and could not be interrupted.")
    if "DeadKernelError" in log:
        return Unusable("The process died while a cell ran: it ran out of memory, or the cell ended it.")
    errors = [line.strip() for line in log.splitlines() if "Error" in line or "Exception" in line]
    lines = [line for line in errors if "NbGraderException" not in line] or errors  # it only refers to other errors
    return _Failed(f"nbgrader failed: {lines[-1] if lines else f'exit code {code}'}")
