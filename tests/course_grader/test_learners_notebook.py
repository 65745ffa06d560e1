"""A notebook that was handed in: its cells, its edition, and what can be graded of it."""

from __future__ import annotations

import json
from dataclasses import replace

import nbformat
import pytest

from course_grader.classroom import exercise_runner, learners_notebook
from course_lib.authoring import masters
from tests.course_grader import classes
from tests.course_grader.classes import TINY as MASTER

SLOPE = "def slope(x, y):\n    return 3"


@pytest.fixture
def made():
    """The learner's notebook, as handed out but for an answer."""
    return classes.notebook(slope=SLOPE)


def read(notebook):
    return learners_notebook.read(nbformat.writes(notebook).encode(), "0a.ipynb")


def changed(**sources):
    """The master with other sources in these cells."""
    cells = (replace(cell, source=sources.get(cell.id.replace("-", "_"), cell.source)) for cell in MASTER.cells)
    return replace(MASTER, cells=tuple(cells))


def test_all_cells_of_code_are_taken_in_their_order(made):
    made.cells.insert(3, nbformat.v4.new_code_cell("x = 1", id="own"))
    made.cells.reverse()
    found = read(made)
    code = [cell for cell in made.cells if cell.cell_type == "code"]
    assert found.cells == tuple((cell.id, cell.source) for cell in code)
    assert dict(found.cells)["slope"] == SLOPE


def test_an_exercise_counts_whatever_kind_its_cell_has_become(made):
    for number, cell in enumerate(made.cells):
        if cell.id == "slope":
            made.cells[number] = nbformat.from_dict({**cell, "cell_type": "raw"})
    assert ("slope", SLOPE) in read(made).cells


def test_cells_are_found_by_their_id_where_the_metadata_is_lost(made):
    for cell in made.cells:
        cell.metadata = {}
    made.metadata = {}
    found = read(made)
    assert ("slope", SLOPE) in found.cells and found.edition == "" and found.refusals(MASTER) == {}


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "not json",
        "{}",
        "[]",
        "null",
        '{"cells": 3}',
        '{"cells": [3]}',
        '{"cells": [{"metadata": {}, "source": [1]}]}',
        '{"cells": [{"metadata": [], "source": ""}]}',
        '{"cells": [{"metadata": {"nbgrader": 1}, "source": ""}]}',
        '{"cells": [{"metadata": {}, "source": "\\ud800"}]}',
        "[" * 100_000,
    ],
)
def test_what_is_no_notebook_is_said_in_a_sentence(broken):
    with pytest.raises(learners_notebook.Unusable, match=r"0a\.ipynb is not a valid notebook"):
        learners_notebook.read(broken.encode(), "0a.ipynb")


class TestEdition:
    def test_a_notebook_says_it_and_each_exercise_what_it_asks(self, made):
        found = read(made)
        assert (
            found.edition
            == masters.edition(MASTER)
            == json.loads(nbformat.writes(made))["metadata"]["course"]["edition"]
        )
        assert found.digests == masters.digests(MASTER) and set(found.digests) == {"slope", "shout"}

    def test_it_is_that_of_the_exercises_and_tests_alone(self):
        prose = next(cell for cell in MASTER.cells if cell.kind == "prose")
        solution = next(cell for cell in MASTER.cells if cell.id == "slope").source.replace("b / a", "(b / a)")
        assert masters.edition(changed(slope=solution)) == masters.edition(MASTER)
        assert masters.edition(changed(**{prose.id: "Other prose"})) == masters.edition(MASTER)
        for name in ("slope", "slope_test", "script_test"):
            source = next(cell for cell in MASTER.cells if cell.id == name.replace("_", "-")).source
            assert masters.edition(changed(**{name: f"# New\n{source}"})) != masters.edition(MASTER)

    def test_of_an_older_one_the_exercises_that_are_as_they_were_are_graded(self, made):
        today = changed(shout="def shout(text, times):\n    ### BEGIN SOLUTION\n    return text\n    ### END SOLUTION")
        (refused,) = read(made).refusals(today).items()
        assert refused[0] == "shout-test"
        for part in (f"notebook is {masters.edition(MASTER)}", masters.edition(today), "Grade the notebook with"):
            assert part in refused[1]

    def test_an_exercise_that_an_older_one_does_not_have_could_not_be_graded(self, made):
        made.cells = [cell for cell in made.cells if cell.id != "shout"]
        made.metadata["course"]["edition"] = "0ld"
        assert "notebook is 0ld" in read(made).refusals(MASTER)["shout-test"]

    def test_without_one_every_exercise_that_is_there_is_graded(self, made):
        for cell in made.cells:
            cell.metadata.pop("course", None)
        made.metadata.pop("course")
        assert read(made).refusals(changed(shout="def shout(text):\n    pass")) == {}
        made.cells = [cell for cell in made.cells if cell.id != "shout"]
        assert read(made).refusals(MASTER) == {}
        missing = [test["missing"] for test in exercise_runner._tests(MASTER) if test["id"] == "shout-test"]
        assert missing[0].startswith("the notebook has no cell of this exercise, and `shout` is not defined")


class TestPage:
    def sources(self, notebook):
        return {cell.id: cell.source for cell in read(notebook).page(MASTER).cells}

    def test_shows_the_exercises_in_the_courses_notebook(self, made):
        given = {cell.id: cell.source for cell in masters.source(MASTER).cells}
        for cell in made.cells:
            if cell.id.endswith("-test"):
                cell.source, cell.metadata.nbgrader["points"] = "400.0", 400.0
        made.cells.append(nbformat.v4.new_code_cell("x = 1"))
        shown = self.sources(made)
        assert shown["slope"] == SLOPE and list(shown) == list(given)
        assert {name: source for name, source in shown.items() if name not in ("slope", "shout")} == {
            name: source for name, source in given.items() if name not in ("slope", "shout")
        }
        assert [cell.metadata for cell in read(made).page(MASTER).cells] == [
            cell.metadata for cell in masters.source(MASTER).cells
        ]

    def test_shows_pieces_once_and_what_was_written_elsewhere_and_never_the_solution(self, made):
        place = next(number for number, cell in enumerate(made.cells) if cell.id == "slope")
        made.cells[place + 1 : place + 1] = [
            nbformat.from_dict({**made.cells[place], "id": f"piece{number}", "source": source})
            for number, source in enumerate(("y = 1", SLOPE))
        ]
        for cell in made.cells:
            if cell.id == "shout":
                cell.id, cell.metadata, cell.source = "own", {}, "def shout(text):\n    return 1"
        shown = self.sources(made)
        assert shown["slope"] == f"{SLOPE}\n\ny = 1" and shown["shout"] == "def shout(text):\n    return 1"
        made.cells = [cell for cell in made.cells if cell.id != "own"]
        assert self.sources(made)["shout"] == "# The notebook has no such cell."


@pytest.mark.parametrize(
    ("sources", "is_so"),
    [
        ({}, True),
        ({"slope": SLOPE}, False),
        ({"slope": "# my notes\nraise NotImplementedError()"}, True),  # the stub of another edition
        ({"shout": "def shout(text):\n    return 1"}, False),
        ({"own": "x = 1"}, True),  # all exercises are stubs
    ],
)
def test_a_notebook_without_work_is_known(sources, is_so):
    given, notebook = classes.notebook(), classes.notebook(**sources)
    notebook.cells.append(nbformat.v4.new_code_cell(sources.get("own", ""), id="own"))
    content, handed_out = (nbformat.writes(one).encode() for one in (notebook, given))
    assert learners_notebook.untouched(content, handed_out) is is_so
    assert learners_notebook.untouched(b"{}", handed_out) and learners_notebook.untouched(b"<html>", handed_out)
