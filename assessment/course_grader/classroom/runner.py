"""Grade one submission on this host: nbgrader runs it in a process, a course folder and a database of its own."""

from __future__ import annotations

import functools
import hashlib
import json
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
from course_grader.script import contract
from course_lib.authoring import masters
from course_lib.authoring.master_format import Master
from course_lib.notebook import jupyter
from course_lib.ranks import environment
from course_lib.system.files import write
from course_lib.system.paths import ROOT
from course_lib.system.processes import Supervised
from course_lib.system.supervise import TIMED_OUT

DEFAULT_SLICE = "1280"  # images on which graded notebooks train, unless the instructor sets COURSE_SLICE
TIME_LIMIT_S = 1500  # for a whole submission; its cells have less (see one_submission)
POLL_INTERVAL_S = 0.1
LEARNER = "learner"  # the name of the only one in a submission's own course folder
HANDED_IN = "handed_in.json"  # in that folder: the learner's notebook
OUTCOME = "outcome.json"  # in that folder: what came of the assessment
DIGITS = 8  # of a digest that is shown


@dataclass(frozen=True)
class Work:
    """A submission that can be graded: the notebook (None where a script alone is graded), the files that are run."""

    one: Submission
    notebook: LearnersNotebook | None
    files: dict[str, bytes]
    accepted: bool = False  # an instructor has looked at it
    outcome: dict[str, Any] | None = None  # of an earlier run of the same script: it is not run again

    @functools.cached_property
    def handed_in(self) -> str:
        """Digest of what the learner handed in."""
        digest = hashlib.sha256(json.dumps(self.notebook and asdict(self.notebook)).encode())
        for name in sorted(self.files):
            digest.update(name.encode() + self.files[name])
        return digest.hexdigest()

    @functools.cached_property
    def digest(self) -> str:
        """Of everything that the grade depends on, but the data and the machine."""
        digest = hashlib.sha256(f"{self.handed_in} {self.accepted}".encode() + self.one.master.path.read_bytes())
        if self.one.master.script:
            digest.update(contract.CONTRACT.read_bytes() + contract.read().profile().name.encode())
        digest.update(_code().encode())
        return digest.hexdigest()

    def versions(self, outcome: dict[str, Any] | None) -> dict[str, Any]:
        """What gave the mark: the course's version and, of a script, the contract and the host's factor."""
        agreed = hashlib.sha256(contract.CONTRACT.read_bytes()).hexdigest()[:DIGITS] if self.one.master.script else ""
        version = f"{metadata.version('one-model-many-gpus')}+{_code()[:DIGITS]}"
        return {"course_version": version, "contract": agreed, "host_factor": (outcome or {}).get("factor", "")}


@functools.cache
def _code() -> str:
    """Digest of the course's code, on which the marks stand."""
    places = [*(ROOT / "course_lib").rglob("*.py"), *(ROOT / "labs").glob("*/lessons/*.py")]
    grader = [path for path in (ROOT / "assessment" / "course_grader").rglob("*") if path.suffix in (".py", ".toml")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted([*places, *grader]))).hexdigest()


@dataclass(frozen=True)
class Graded:
    """What comes of grading a submission: the result of one_submission, and the pages by their place in the results."""

    result: dict[str, Any]
    pages: dict[Path, bytes]


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
    with tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=below) as temporary:
        folder = Path(temporary)
        prepare(folder, work, blank)
        result = _run(folder, one.master, stopping, extra if one.master.script else 0, work.accepted)
        result.update(work.versions(result.get("outcome")))
        made = {page: folder / page.parts[0] / LEARNER / Path(*page.parts[2:]) for page in pages(one)}
        return Graded(result, {page: path.read_bytes() for page, path in made.items()})


class _Failed(Unusable):
    """nbgrader failed, for no reason that lies in the submission."""


def pages(one: Submission) -> list[Path]:
    """Feedback page and graded notebook, within the results."""
    place = Path(one.learner, one.assignment)
    return [Path("feedback", place, f"{one.notebook}.html"), Path("autograded", place, f"{one.notebook}.ipynb")]


def prepare(folder: Path, work: Work, blank: Path) -> None:
    """Lay out an nbgrader course with one submission.

    Its gradebook knows the assignment but no other learner. There is no source folder: nbgrader would put its
    files over the learner's.
    """
    master = work.one.master
    place = folder / "submitted" / LEARNER / master.assignment
    page = work.notebook.page(master) if work.notebook else masters.source(master, kinds=("prose", "hidden"))
    write(place / master.notebook.name, masters.to_text(page).encode())
    for name, content in work.files.items():
        write(place / name, content)
    if work.notebook:
        write(folder / HANDED_IN, json.dumps(asdict(work.notebook)).encode())
    if work.outcome:
        write(folder / OUTCOME, json.dumps(work.outcome).encode())
    shutil.copyfile(blank, folder / GRADEBOOK)


def _run(folder: Path, master: Master, stopping: threading.Event, extra: float, accepted: bool) -> dict[str, Any]:
    """Run one_submission in `folder`; nothing that it started is left afterwards. Unusable: it failed.

    `extra` are the seconds that it may take beyond what a notebook has; `accepted` as in `Work`.
    """
    log, neutral, limit = folder / "log", folder / "empty", TIME_LIMIT_S + extra
    neutral.mkdir()  # `python -m` imports from where it stands
    (folder / "tmp").mkdir()  # what is killed in the middle leaves nothing elsewhere
    env = {**jupyter.environment(folder / "jupyter"), "TMPDIR": str(folder / "tmp")}
    for name in [name for name in env if name.startswith("SLURM_")]:
        del env[name]  # in a job, mpirun would count Slurm's tasks, not the ranks that it is asked for
    env.update({environment.ACCEPTED: "1"} if accepted else {})
    outcome = folder / OUTCOME
    env[environment.OUTCOME] = str(outcome)
    if master.script:
        env.pop(environment.SLICE, None)  # the contract says how much it trains on
    else:
        env.setdefault(environment.SLICE, DEFAULT_SLICE)  # what a notebook trains for show is not graded
    worker = [sys.executable, "-m", "course_grader.classroom.one_submission", folder, master.path, extra]
    with (
        log.open("w") as output,
        Supervised(
            list(map(str, worker)), timeout=limit, stdout=output, stderr=subprocess.STDOUT, env=env, cwd=neutral
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
        return Unusable("Its process died while a cell ran: out of memory, or a cell ended it.")
    errors = [line.strip() for line in log.splitlines() if "Error" in line or "Exception" in line]
    lines = [line for line in errors if "NbGraderException" not in line] or errors  # that only refers to the others
    return _Failed(f"nbgrader failed: {lines[-1] if lines else f'exit code {code}'}")
