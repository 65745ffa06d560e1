"""The ways through the course: each walks over what it needs, and its hours add up."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from course_lib.authoring import released, ways, welcome
from course_lib.authoring.master_format import opening
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
        "afternoon": "2½", "day": "8", "two-days": "11¼", "term": "37½", "systems": "23½", "methods": "20¼",
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
            section = [section, *ways.section_headings(source)][-1]
            continue
        names = cell_errors.names(transform(source))
        if section in ("", "Your guesses", "Summary", *part.only):
            lacking |= names.used - defined
            defined |= names.defined
        else:
            elsewhere |= dict.fromkeys(names.defined, section)
    assert {name: elsewhere[name] for name in lacking - defined if name in elsewhere} == {}


@pytest.mark.parametrize("part", [part for part in WAYS["day"].parts if part.only], ids=lambda part: part.notebook.code)
def test_folded_are_the_sections_that_all_ways_with_a_part_of_the_notebook_leave_out(part):
    folded = [
        "".join(cell["source"]).split("\n")[0].replace("## ", "")
        for cell in json.loads(FILES[part.notebook.path])["cells"]
        if "further" in cell["metadata"].get("tags", ())
    ]
    done = {section for other in PARTIAL.values() if other.notebook == part.notebook for section in other.only}
    assert not set(folded) & set(part.only)
    assert folded == [
        section for section in part.notebook.sections if section not in {*done, "Your guesses", "Summary"}
    ]


def test_what_a_notebook_needs_is_read_from_its_opening():
    needs = {part.notebook.code: part.notebook.needs for part in WAYS["term"].parts}
    assert needs["1e"] == ("1a", "1b", "1c")  # "1a to 1c"
    assert needs["5b"] == ("2a", "5a")  # "2f's slow link helps"
    assert needs["5c"] == ("1d", "2a", "3d")  # "3d (LARS) for section …"
    assert needs["7c"] == ("1f",)  # "1f, section *From GEMV to GEMM*"
    assert needs["8c"] == ("2a", "3c", "3d", "4c", "8a")
    assert needs["assessment"] == ("2a", "2b", "3b")  # "for the large batch 3d and 3e, too"


def test_sections_that_an_opening_names_exist():
    headings = {section for part in WAYS["term"].parts for section in part.notebook.sections}
    named = {}
    for path in (part.notebook.path for part in WAYS["term"].parts):
        _, _, needs = opening("".join(json.loads(FILES[path])["cells"][0]["source"]))
        named.update(dict.fromkeys(re.findall(r"\*([A-Z][^*]+)\*", needs), path))
    assert "From GEMV to GEMM" in named
    assert {section: path for section, path in named.items() if section not in headings} == {}


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            '"3b",\n    { notebook = "3d", minutes = 45',
            '{ notebook = "3d", minutes = 45',
            "notebook 3d needs 3b before it",
        ),
        ('"How soon at 85 %', '"How late at 85 %', "notebook 1c has no section “How late at 85 %"),
        ('"1b", minutes = 45', '"1b", minutes = 55', "a part of 1b must take less than 55 minutes"),
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
    assert lines.startswith("One day, 8 hours without breaks: ")
    assert lines.count("lunch") == 1
    times = [(60 * int(h) + int(m), 60 * int(H) + int(M), what) for h, m, H, M, what in re.findall(
        r"(\d+):(\d\d)–\s*(\d+):(\d\d)  (\S+)", lines)]  # fmt: skip
    assert [begin for begin, *_ in times[1:]] == [end for _, end, _ in times[:-1]]
    sitting = 0
    for begin, end, what in times:
        sitting = 0 if what in ("lunch", "break") else sitting + end - begin
        assert sitting <= ways.LONGEST_SITTING


def planned(name):
    """The headings, the codes below each and the last line of what `course plan` prints on a lab or a notebook."""
    *lines, last = [line for line in ways.plan(name, FILES) if line]
    headings = [line for line in lines if not line.startswith(" ")]
    rows = [re.match(r" +(\d+) min  (\w+) ", line) for line in lines if line.startswith(" ")]
    minutes = {part.notebook.code: part.minutes for part in WAYS["term"].parts}
    assert [(row[2], int(row[1])) for row in rows] == [(row[2], minutes[row[2]]) for row in rows]
    return headings, " ".join(row[2] for row in rows), last


@pytest.mark.parametrize(
    ("name", "codes", "sum_of_both"),
    [
        ("7", "1a 1b 1c 1d 1f 2a 4a 7a 7b 7c", "Lab 7 takes 3¾ hours; what it needs before, 6¾ hours."),
        ("7c", "1a 1b 1f 7c", "Notebook 7c takes 1¼ hours; what it needs before, 2½ hours."),
        ("8b", "1a 1b 1c 2a 3a 3b 3c 3d 3e 8a 8b", "Notebook 8b takes 1 hour; what it needs before, 9¾ hours."),
    ],
)
def test_what_leads_to_a_lab_or_a_notebook(name, codes, sum_of_both):
    headings, listed, last = planned(name)
    kind = "lab" if len(name) == 1 else "notebook"
    assert headings == [f"Before {kind} {name}", f"{kind.capitalize()} {name}"]
    assert listed == codes
    assert last.startswith(sum_of_both)


@pytest.mark.parametrize("name", ["1", "1a"])
def test_nothing_leads_to_the_first_lab(name):
    headings, listed, last = planned(name)
    assert len(headings) == 1 and listed.startswith("1a") and "; it needs no other notebook." in last


def test_the_welcome_page_shows_all_that_a_notebook_needs():
    rows = re.findall(r"^\| \[(\w+) .*?\|.*?\| (.*?) \|", welcome.page(FILES, {}), re.MULTILINE)
    needs = dict(rows)
    assert "a rough idea of attention" in needs["7a"]
    assert "A C++ compiler" in needs["7c"]


def test_the_welcome_page_links_each_way():
    page = welcome.page(FILES, {})
    for way in WAYS.values():
        row = next(line for line in page.splitlines() if f"(`{way.id}`)" in line)
        assert re.findall(r"\[(\w+)\]\((\S+)\)", row) == [(p.notebook.code, p.notebook.path) for p in way.parts]


def checks(path, only=""):
    """The checks of a notebook, or of one section of it."""
    section, lines = "", []
    for cell in json.loads(FILES[path])["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            section = [section, *ways.section_headings(source)][-1]
        elif section.startswith(only):
            lines += welcome.checks(source)
    return lines


def test_a_way_that_is_chosen_stands_first_with_its_sections_and_what_is_solved_of_them():
    (layer_wise,) = [part for part in WAYS["day"].parts if part.notebook.code == "3d"]
    lars, larc = checks(layer_wise.notebook.path, "LARS"), checks(layer_wise.notebook.path, "LARC")
    assert lars and larc
    page = welcome.page(FILES, {"3d": welcome.Progress(frozenset(lars + larc))}, way="day")
    own, _, labs = page.partition("## Lab 1: ")
    assert "## Your way: One day (8\u00a0h without breaks)" in own and "These are ways through" not in page
    rows = re.findall(r"^\| \[[^\]]+\]\(([^)]+)\)(.*?) \| (\d+) \|", own, re.MULTILINE)
    assert rows == [(part.notebook.path, part.extent, str(part.minutes)) for part in WAYS["day"].parts]

    in_part = sum(len(checks(layer_wise.notebook.path, section)) for section in layer_wise.only)
    whole = len(checks(layer_wise.notebook.path))
    for text, solved, of in ((own, len(lars), in_part), (labs, len(lars + larc), whole)):
        (row,) = re.findall(r"^\| \[3d .*\|$", text, re.MULTILINE)
        assert f"{solved}\u00a0of\u00a0{of} |" in row


def test_the_other_ways_stand_at_the_end_when_one_is_chosen():
    _, _, end = welcome.page(FILES, {}, way="day").partition("## Other ways through the course")
    assert re.findall(r"\(`(\S+)`\)", end) == [way for way in WAYS if way != "day"]
    assert "\n---\n" in end and "## " not in end
    assert "Other ways" not in welcome.page(FILES, {})


def test_go_on_follows_the_way_that_is_chosen():
    parts = {part.notebook.code: part for part in WAYS["day"].parts}
    solved = [line for section in parts["1c"].only for line in checks(parts["1c"].notebook.path, section)]
    done = {"1c": welcome.Progress(frozenset(solved), time=1.0)}
    assert "**Continue here:** [1c " in welcome.page(FILES, done)
    assert "**Continue here:** [2a " in welcome.page(FILES, done, way="day")


@pytest.mark.parametrize("way", ["term", "systems"])
def test_a_way_of_weeks_or_parts_has_a_table_for_each(way):
    headings = re.findall(r"^### (.+)$", welcome.page(FILES, {}, way=way), re.MULTILINE)
    assert headings == WAYS[way].headings and len(headings) == len(WAYS[way].sessions)


def test_without_a_way_or_with_one_that_is_gone_the_page_says_how_to_choose():
    page = welcome.page(FILES, {})
    assert "course plan day --choose" in page and "Your way" not in page
    assert welcome.page(FILES, {}, way="night") == page


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["day"], 0, "lunch"),
        ([], 0, "  afternoon   2½ h  those who know gradient descent"),
        ([], 0, "course plan day --choose"),
        (["7"], 0, "Lab 7 takes"),
        (["night"], 1, "Name a way through the course: afternoon, day, two-days"),
        (["9z"], 1, "Name a way through the course: afternoon, day, two-days"),
        (["night", "--choose"], 1, "Name a way through the course: afternoon, day, two-days"),
        (["7", "--choose"], 1, "Name a way through the course: afternoon, day, two-days"),
        (["day", "--choose"], 1, "is not in a workspace"),
    ],
)
def test_the_command(tmp_path, arguments, code, words):
    command = [sys.executable, "-m", "course_lib.command.cli", "plan", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, words in done.stdout + done.stderr) == (code, True)
    assert not done.stderr or len(done.stderr.splitlines()) == 1
