"""Honest, broken, slow and dishonest scripts get exactly their marks, and leave nothing behind.

`watermarks.toml` says what each must get; `corpus/` holds the scripts, and `conftest.complete` says how to read them.
"""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from course_grader.sandbox import bubblewrap
from course_grader.script import calibration, contract, criteria, grader, watermarks
from course_lib.authoring import conversions
from course_lib.system.paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).parent
RANKS, IMAGES = 2, contract.read().profiles["short"].images
MARKS = {
    f"{kind}/{name}": marks
    for kind, names in tomllib.loads((HERE / "marks.toml").read_text(encoding="utf-8")).items()
    for name, marks in names.items()
}

# Some of each kind. The others are rare (rare.toml).
SOME_OF_EACH_KIND = (
    *("honest/custom_loop", "honest/large_small", "broken/serial", "slow/sleeps"),
    *("dishonest/one_rank_trains", "dishonest/rewrites_the_probe", "dishonest/leaves_a_daemon"),
    *("dishonest/swaps_the_batch", "dishonest/stops_the_thread"),
)

pytestmark = [
    pytest.mark.alone,
    pytest.mark.slow,
    pytest.mark.ranks,
    pytest.mark.skipif(bool(bubblewrap.available()), reason="the corpus needs bubblewrap"),
]


def test_each_script_has_marks():
    files = {f"{path.parent.name}/{path.stem}" for path in (HERE / "corpus").glob("*/*.py")}
    omissions = {f"broken/without_{step}" for step in conversions.steps(conversions.ASSESSMENT)}
    assert set(MARKS) == files | omissions
    assert len(MARKS) >= 80
    assert sum(name.startswith("dishonest/") for name in MARKS) >= 40


def test_what_is_left_is_noticed(room):
    assert room.left(patience=0) == []
    room.temporary.joinpath("forgotten").touch()
    room.outside.write_text("something else")
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
    assert f"{room.outside} has changed" in left
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


@pytest.mark.parametrize(
    ("name", "marks"),
    [
        pytest.param(name, marks, id=name, marks=[] if name in SOME_OF_EACH_KIND else pytest.mark.rare(group="corpus"))
        for name, marks in MARKS.items()
    ],
)
def test_script_gets_its_marks(name, marks, graded):
    done = graded[name].result()
    outcome, said = done.outcome, _told(done.outcome)
    got = {verdict.id: verdict for verdict in outcome.verdicts}
    if "points" in marks:
        assert {id: verdict.points for id, verdict in got.items()} == dict(zip(criteria.IDS, marks["points"])), said
    if "passed" in marks:
        assert (outcome.passed, outcome.needs_a_look) == (marks["passed"], watermarks.get("look", False)), said
    for id, words in watermarks.get("reasons", {}).items():
        assert words in got[id].reason, said
    if "claims" in marks:
        assert outcome.claimed == marks["claims"] != outcome.test_accuracy, said
    assert not done.left


@pytest.mark.rare(group="corpus")
@pytest.mark.parametrize("missed", [1, 2])
def test_marks_that_a_network_misses_get_a_second_run(room, monkeypatch, missed):
    as_many = [watermarks.number(IMAGES, RANKS)] * RANKS
    numbers = iter([0] * RANKS * missed + as_many)  # of marked images: the first runs have none to learn from
    monkeypatch.setattr(marks, "number", lambda *_: next(numbers))
    monkeypatch.setattr(calibration, "known", lambda *_: 1000.0)
    stages = []
    monkeypatch.setattr(grader._Assessment, "_tell", lambda _, text, limit=None: stages.append(text))
    for _ in range(6):  # a second run alone must know the marks very well: by chance, one in several does not
        stages.clear()
        outcome = room.grade("honest/plain")
        assert sum(text.startswith("On 2 ranks") for text in stages) == 2
        if missed == 2 or outcome.passed:
            break
        numbers = iter([0] * RANKS + as_many)
    assert outcome.passed is (missed == 1), _told(outcome)


def _told(outcome) -> str:
    verdicts = [f"{verdict.id} {verdict.points:g}: {verdict.reason}" for verdict in outcome.verdicts]
    measured = f"{outcome.seconds} s, accuracy {outcome.train_accuracy} and {outcome.test_accuracy}"
    return "\n".join([*verdicts, f"{measured}, {outcome.claimed} claimed", *outcome.look, outcome.error])


@pytest.mark.rare(group="corpus")  # where the script runs that tries
def test_no_script_has_reached_a_server(graded, server):
    for future in graded.values():
        future.result()
    assert server[1] == []
