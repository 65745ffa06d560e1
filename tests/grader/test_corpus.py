"""Honest, broken and dishonest scripts get their marks, and leave nothing behind.

`marks.toml` says what each must get; `corpus/` holds the scripts, and `conftest.complete` says how to read them.
`repeat.py` grades them several times.
"""

from __future__ import annotations

import hashlib
import socket
import subprocess
import time
from pathlib import Path

import pytest

from course_grader.sandbox import bubblewrap
from course_grader.script import contract
from course_lib.authoring import conversions
from course_lib.system.paths import ROOT
from tests.grader import conftest

MARKS = conftest.all_marks()

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ranks,
    pytest.mark.skipif(bool(bubblewrap.available()), reason="the corpus needs bubblewrap"),
]


def test_each_script_has_marks():
    files = {f"{path.parent.name}/{path.stem}" for path in conftest.CORPUS.glob("*/*.py")}
    files |= {f"conversion/{path.stem}" for path in conftest.CONVERSIONS.glob("*.py")}
    omissions = {f"broken/without_{step}" for step in conversions.steps(conversions.ASSESSMENT)}
    assert files <= set(MARKS) <= files | omissions
    criteria = len(contract.read().points)
    assert {len(marks["points"]) for marks in MARKS.values() if "points" in marks} == {criteria}


def test_each_script_is_made_of_parts_that_fit():
    texts = {name: conftest.complete(name) for name in MARKS}
    assert len(set(texts.values())) == len(MARKS)
    assert [name for name, text in texts.items() if "\n#: " in text] == []


def test_what_is_left_is_noticed(room):
    assert room.left(patience=0) == []
    room.temporary.joinpath("forgotten").touch()
    confined = bubblewrap.command(["sleep", "60"], {room.folder: Path("/room")}, {}, room.folder)
    with socket.create_server(("127.0.0.1", 0)) as listening, subprocess.Popen(confined) as process:
        port = listening.getsockname()[1]
        try:
            deadline = time.monotonic() + 10
            while sum(found.startswith("process") for found in room.left(patience=0)) < 2:  # bwrap and sleep
                assert time.monotonic() < deadline
            left = room.left(patience=0)
        finally:
            process.kill()
    assert str(room.temporary / "forgotten") in left
    assert f"port {port}" in left


@pytest.fixture(scope="module", autouse=True)
def course_as_it_was():
    """The course's own files, which no script may change."""
    before = _digests()
    yield
    assert _digests() == before


def _digests() -> dict[Path, str]:
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in ("assessment", "course_lib", "tests/grader")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.long
@pytest.mark.alone  # a grading that other programs slow down is none
@pytest.mark.parametrize("name", MARKS)
def test_script_gets_its_marks(name, room):
    marks = MARKS[name]
    outcome = room.grade(name, marks)
    if marks.get("watermarks") and outcome.passed:  # as 5 of 100 do
        outcome = room.grade(name, marks)
    assert conftest.differences(outcome, name, marks) == [], _report(outcome)
    assert room.left() == []


def _report(outcome) -> str:
    verdicts = [f"{verdict.id} {verdict.points:g}: {verdict.reason}" for verdict in outcome.verdicts]
    measured = f"{outcome.seconds} s, accuracy {outcome.train_accuracy} and {outcome.test_accuracy}"
    return "\n".join([*verdicts, f"{measured}, {outcome.claimed} claimed", *outcome.look, outcome.error])
