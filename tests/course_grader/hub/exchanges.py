"""Exchanges of the hub: made by hand where only folders matter, and by nbgrader itself in a learner's lab."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path

from tests.course_grader import classes
from tests.course_grader.classes import LAB, NAME

SECRET = "5e" * 64
TIMESTAMPS = [f"2026-11-27 1{hour}:00:00.000000 UTC" for hour in range(10)]


def make(folder: Path, *learners: str) -> Path:
    """Make an exchange as an instructor sees it, for these learners; return its folder."""
    exchange = folder / "exchange" / "course"
    place = exchange / "outbound" / LAB
    place.mkdir(parents=True)
    shutil.copyfile(classes.TINY.notebook, place / f"{NAME}.ipynb")
    shutil.copyfile(classes.FIXTURES / "labs" / LAB / "script.py", place / "script.py")
    for learner in learners:
        for part in ("inbound", "feedback"):
            (exchange / part / learner).mkdir(parents=True)
    return exchange


def submit(
    exchange: Path,
    learner: str,
    content: str | bytes = "{}",
    timestamp: str = TIMESTAMPS[0],
    complete: bool = True,
    secret: str = SECRET,
) -> Path:
    """Hand in a file as the tiny notebook, in nbgrader's form; return the submission's folder."""
    folder = exchange / "inbound" / learner / f"learner+{LAB}+{timestamp}+Rand-0m_"
    folder.mkdir()
    (folder / f"{NAME}.ipynb").write_bytes(content.encode() if isinstance(content, str) else content)
    (folder / "timestamp.txt").write_text(timestamp)
    if complete:
        (folder / "submission_secret.txt").write_text(secret)
    return folder


def from_now(**span: float) -> str:
    """The time so far from now, as an instructor may write it."""
    return (datetime.now(timezone.utc) + timedelta(**span)).isoformat()


class LearnersLab:
    """nbgrader in the lab of a learner, whose folders are those of the exchange that the hub mounts there."""

    def __init__(self, folder: Path, exchange: Path, learner: str) -> None:
        from traitlets.config import Config

        self.workspace = folder / learner / "workspace"
        course = folder / learner / "exchange" / "course"
        for path in (self.workspace, course):
            path.mkdir(parents=True)
        (course / "outbound").symlink_to(exchange / "outbound")
        for part in ("inbound", "feedback"):
            (course / part).symlink_to(exchange / part / learner)
        shutil.copytree(exchange / "outbound" / LAB, self.workspace / LAB)
        self._config = Config()
        self._config.Exchange.root = str(course.parent)
        self._config.Exchange.cache = str(folder / learner / "cache")
        self._config.Exchange.assignment_dir = str(self.workspace)
        self._config.CourseDirectory.course_id = course.name

    def submit(self) -> None:
        """Press Submit in the Assignment List."""
        self._start("Submit", LAB)

    def submissions(self) -> list[dict]:
        """What the Assignment List shows as submitted for the lab, oldest first."""
        self._config.ExchangeList.cached = True
        (assignment,) = self._start("List", "")
        return assignment["submissions"]

    def fetch_feedback(self) -> dict[str, str]:
        """Press Fetch Feedback; return the path below the lab's folder `feedback` → the page."""
        self._start("FetchFeedback", LAB)
        feedback = self.workspace / LAB / "feedback"
        return {str(path.relative_to(feedback)): path.read_text() for path in feedback.rglob("*.html")}

    def _start(self, action: str, assignment: str) -> list:
        from nbgrader.auth import Authenticator
        from nbgrader.coursedir import CourseDirectory
        from nbgrader.exchange import ExchangeFactory

        config = self._config
        coursedir = CourseDirectory(config=config, assignment_id=assignment)
        action = getattr(ExchangeFactory(config=config), action)
        return action(coursedir=coursedir, authenticator=Authenticator(config=config), config=config).start()
