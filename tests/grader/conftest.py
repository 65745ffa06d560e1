"""The corpus: scripts, what each must get, and a room in which one is graded and watched afterwards."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from course_grader.script import calibration, contract, grader
from course_lib.authoring import conversions
from course_lib.system.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
CONVERSIONS = HERE.parent / "course_grader" / "conversions"
HONEST = ("honest/", "conversion/")
GONE_AFTER_S = 10  # processes may take so long to be gone after the grader's answer
INCLUDE = re.compile(r"^#: (\w[\w /]*)\n((?:#:(?: [-+].*)?\n)*)", re.MULTILINE)
LATIN_1 = "\udce4"  # becomes the byte E4, which is an ä in Latin-1 and nothing in UTF-8


def all_marks() -> dict[str, dict[str, Any]]:
    """KIND/NAME of each script of the corpus → its entry in marks.toml, that of an honest one filled in."""
    kinds = tomllib.loads((HERE / "marks.toml").read_text(encoding="utf-8"))
    found = {f"{kind}/{name}": marks for kind, names in kinds.items() for name, marks in names.items()}
    full = {"points": [*contract.read().points.values()], "passed": True}
    return {name: {**(full if name.startswith(HONEST) else {}), **marks} for name, marks in found.items()}


def terms(marks: dict[str, Any], profile: str) -> tuple[str, contract.Contract]:
    """The profile and the contract to grade a script with: `profile`, with what the script's entry changes of it."""
    changes = dict(marks.get("contract", {}))
    profile = changes.pop("profile", profile)
    whole = contract.read()
    return profile, replace(whole, profiles={profile: replace(whole.profiles[profile], **changes)})


def differences(outcome: grader.Outcome, name: str, marks: dict[str, Any]) -> list[str]:
    """In what an outcome differs from what marks.toml says of this script."""
    found = []
    got = {verdict.id: verdict for verdict in outcome.verdicts}
    if (outcome.passed, outcome.needs_a_look) != (marks["passed"], marks.get("look", False)):
        found.append(f"passed: {outcome.passed}, needs review: {outcome.needs_a_look}")
    for (id, verdict), points in zip(got.items(), marks.get("points", [])):
        if verdict.points != points:
            found.append(f"{id}: {verdict.points:g} points in place of {points:g}")
    for id, words in marks.get("reasons", {}).items():
        if words not in got[id].reason:
            found.append(f"{id}: '{words}' is not in the reason")
    if marks.get("error", "") not in outcome.error:
        found.append(f"'{marks['error']}' is not in the error")
    if "claims" in marks and (outcome.claimed != marks["claims"] or outcome.claimed == outcome.test_accuracy):
        found.append(f"claimed: {outcome.claimed}")
    if name.startswith(HONEST) and outcome.look:
        found.append(f"look: {'; '.join(outcome.look)}")
    return found


def complete(name: str) -> str:
    """The text of a script: KIND/NAME of the corpus, `starter`, `reference`, `reference without STEP`,
    `reference large` or `plain`.

    In a script, a line `#: NAME` stands for the whole text of another one. Lines `#: - old` and `#: + new` below it are
    edits: the old lines, found once, give way to the new ones. `#:` parts two edits.
    """
    whole, _, step = name.partition(" without ")
    if whole in ("reference", "starter"):
        steps = conversions.steps(conversions.ASSESSMENT) if whole == "reference" else []
        return conversions.converted([one for one in steps if one != step], folder=conversions.ASSESSMENT)
    if name == "reference large":
        return (ROOT / "assessment" / "reference" / "large.py").read_text(encoding="utf-8")
    kind, _, script = name.rpartition("/")
    if kind == "conversion":
        return (CONVERSIONS / f"{script}.py").read_text(encoding="utf-8")
    path = CORPUS / (kind or "honest") / f"{script}.py"
    if not path.exists():
        return complete(name.replace("broken/without_", "reference without "))
    text = path.read_text(encoding="utf-8").replace("@latin-1@", LATIN_1)
    return INCLUDE.sub(lambda found: _edited(complete(found[1]), found[2]), text)


def _edited(text: str, edits: str) -> str:
    for edit in edits.split("#:\n") if edits else ():
        lines = edit.splitlines()
        old, new = ("\n".join(line[5:] for line in lines if line[3] == sign) for sign in "-+")
        assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times, not once"
        text = text.replace(old, new)
    return text


def write(name: str, folder: Path) -> Path:
    """Write a script's text into a folder, and return its path."""
    path = folder / "assessment.py"
    path.write_bytes(complete(name).encode("utf-8", "surrogateescape"))
    return path


class Room:
    """A folder in which one script is graded, and in which nothing may be left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        self._ports = _ports()

    def grade(self, name: str, marks: dict[str, Any]) -> grader.Outcome:
        """Assess a script by name, on the profile `short` where its marks name no other."""
        profile, asked = terms(marks, "short")
        return grader.assess(write(name, self.folder), profile=profile, contract=asked)

    def left(self, patience: float = GONE_AFTER_S) -> list[str]:
        """What is still there, after so many seconds, that the grader or the script has started, made or changed."""
        deadline = time.monotonic() + patience
        while (found := self._found()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def _found(self) -> list[str]:
        found = [str(path) for path in self.temporary.iterdir()]
        found += [f"port {port}" for port in _ports() - self._ports]
        return found + [f"process {process.pid}" for process in psutil.process_iter() if self._ours(process)]

    def _ours(self, process: psutil.Process) -> bool:
        """True for processes that name the folder, or that see a part of it where they are confined."""
        if process.pid == os.getpid():
            return False
        with contextlib.suppress(psutil.Error, OSError):
            seen = [*process.cmdline(), *process.environ().values()]
            seen.append(Path(f"/proc/{process.pid}/mountinfo").read_text())
            return any(str(self.folder) in text for text in seen)
        return False


def _ports() -> set[int]:
    """Ports that this process listens on, with all that it has started."""
    mine, found = psutil.Process(), set()
    for process in (mine, *mine.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            connections = process.net_connections(kind="inet")
            found |= {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}
    return found


@pytest.fixture
def room(tmp_path, monkeypatch) -> Room:
    """A room in which nothing has happened yet. Temporary files go there; this host counts as fast enough."""
    room = Room(tmp_path / "room")
    monkeypatch.setenv("TMPDIR", str(room.temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(room.temporary))
    monkeypatch.setattr(calibration, "known", lambda _: contract.read().images_per_second)
    return room
