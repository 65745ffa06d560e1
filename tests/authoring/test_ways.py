"""The ways through the course: each walks over what it needs, and its hours add up."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from course_lib.authoring import released, ways, welcome
from course_lib.notebook import cell_errors
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

FILES = released.course_files()
WAYS = ways.read(FILES)
LABS = {"systems": "2457", "methods": "1368"}  # the labs that a way has whole


def codes(way):
    return [part.notebook.code for part in WAYS[way].parts]


def test_the_ways_and_their_hours():
    assert {way.id: way.hours for way in WAYS.values()} == {
        "day": "8", "two-days": "11¾", "term": "36½", "systems": "23", "methods": "19½",
    }  # fmt: skip
    assert len(WAYS["term"].sessions) == 12
    assert all(minutes for way in WAYS.values() for minutes in [part.minutes for part in way.parts])


def test_a_term_has_all_notebooks_and_a_subject_all_of_its_labs():
    every = [path for path in FILES if path.endswith(".ipynb")]
    assert sorted(part.notebook.path for part in WAYS["term"].parts) == sorted(every)
    assert not any(part.only for part in WAYS["term"].parts)
    for way, labs in LABS.items():
        whole = {part.notebook.code for part in WAYS[way].parts if not part.only}
        assert {path.split("/")[1][:2] for path in every if re.match(f"lab[{labs}]", path)} <= whole


PARTIAL = {(part.notebook.code, part.only): part for way in WAYS.values() for part in way.parts if part.only}


@pytest.mark.parametrize("part", PARTIAL.values(), ids=lambda part: f"{part.notebook.code}-{len(part.only)}")
def test_sections_that_are_done_use_nothing_from_those_that_are_left_out(part):
    transform = TransformerManager().transform_cell
    section, defined, elsewhere, lacking = "", set(), {}, set()
    for cell in json.loads(FILES[part.notebook.path])["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            section = [section, *re.findall(r"^## (.+)$", source, re.MULTILINE)][-1]
            continue
        names = cell_errors.names(transform(source))
        if section in ("", "Your guesses", "Summary", *part.only):
            lacking |= names.used - defined
            defined |= names.defined
        else:
            elsewhere |= dict.fromkeys(names.defined, section)
    assert {name: elsewhere[name] for name in lacking - defined if name in elsewhere} == {}


def test_what_a_notebook_needs_is_read_from_its_opening():
    needs = {part.notebook.code: part.notebook.needs for part in WAYS["term"].parts}
    assert needs["1e"] == ("1a", "1b", "1c")  # "1a to 1c"
    assert needs["5b"] == ("2a", "5a")  # "2c's slow link helps"
    assert needs["8c"] == ("2a", "3c", "3d", "4c", "8a")
    assert needs["assessment"] == ("2a", "2b", "3b")  # "for the large batch 3d and 3e, too"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            '"3b",\n    { notebook = "3d", minutes = 45',
            '{ notebook = "3d", minutes = 45',
            "notebook 3d needs 3b before it",
        ),
        ('"How soon at 85 %', '"How late at 85 %', "notebook 1c has no section “How late at 85 %"),
        ('"1b", minutes = 45', '"1b", minutes = 80', "a part of 1b takes less than its 80 minutes"),
        ('    "assessment",\n]\n\n[[way]]\nid = "two', '    "9z",\n]\n\n[[way]]\nid = "two', "there is no notebook 9z"),
    ],
)
def test_a_way_that_is_wrong_is_named(tmp_path, old, new, reason):
    text = (ROOT / ways.PATHS).read_text(encoding="utf-8")
    assert text.count(old) == 1
    (tmp_path / ways.PATHS).parent.mkdir()
    (tmp_path / ways.PATHS).write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(CourseError, match=reason):
        ways.read(FILES, tmp_path)


def test_a_day_has_a_lunch_and_no_sitting_is_too_long():
    lines = "\n".join(ways.timetable(WAYS["day"]))
    assert lines.count("lunch") == 1
    times = [(60 * int(h) + int(m), 60 * int(H) + int(M), what) for h, m, H, M, what in re.findall(
        r"(\d+):(\d\d)–\s*(\d+):(\d\d)  (\S+)", lines)]  # fmt: skip
    assert [begin for begin, *_ in times[1:]] == [end for _, end, _ in times[:-1]]
    sitting = 0
    for begin, end, what in times:
        sitting = 0 if what in ("lunch", "break") else sitting + end - begin
        assert sitting <= ways.LONGEST_SITTING


def test_the_welcome_page_links_each_way():
    page = welcome.page(FILES, {})
    for way in WAYS.values():
        row = next(line for line in page.splitlines() if f"(`{way.id}`)" in line)
        assert re.findall(r"\[(\w+)\]\((\S+)\)", row) == [(p.notebook.code, p.notebook.path) for p in way.parts]


@pytest.mark.parametrize(
    ("way", "code", "words"), [("day", 0, "lunch"), ("night", 1, "Name a way through the course: day, two-days")]
)
def test_the_command(way, code, words):
    done = subprocess.run([sys.executable, "-m", "course_lib.command.cli", "plan", way], capture_output=True, text=True)
    assert (done.returncode, words in done.stdout + done.stderr) == (code, True)
