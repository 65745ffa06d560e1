"""Each notebook of the course: solved, it gets full marks; untouched, it fails at the stubs."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import nbformat
import pytest

from course_lib.classroom import ROOT, grading, jupyter, masters, workspace

FIXTURES = (Path(__file__).parent / "fixtures").resolve()
MASTERS = [
    masters.read(path)
    for root in (FIXTURES, ROOT)
    for path in masters.find(root)
    if path.parent.parent.name == "labs"  # the assessment is graded in tests/grader
]

pytestmark = [pytest.mark.slow, pytest.mark.notebook, pytest.mark.ranks]


@pytest.fixture(autouse=True, scope="module")
def small_data():
    """Notebooks train on a slice of their data, so that they are run in minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_SLICE", os.environ.get("COURSE_SLICE", "1279"))
        yield


def hand_in(directory, master, notebook, solved):
    """The notebook, and the lab's scripts as they start or as they should become."""
    place = directory / master.assignment
    place.mkdir(parents=True)
    (place / master.notebook.name).write_text(nbformat.writes(notebook))
    lab = master.path.parent
    root = lab.parent.parent
    for name, content in workspace.course_files(root).items():
        if name.startswith(f"{lab.name}/") and not name.endswith(".ipynb"):
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            reference = lab / "reference" / path.name
            if solved and reference.exists():
                shutil.copyfile(reference, path)
    return place


def solve(directory, master):
    """Hand in the solution as the learner `solved`."""
    solved = masters.source(master)
    for cell in solved.cells:
        cell.source = re.sub(r"(?m)^\s*### (BEGIN|END) SOLUTION\n?", "", cell.source)
    hand_in(directory / "solved", master, solved, True)


@pytest.fixture(scope="module", params=MASTERS, ids=lambda master: master.path.stem)
def graded(request, tmp_path_factory):
    """A class of two: `solved` did everything right, `untouched` did nothing. (master, summary)"""
    master = request.param
    directory = tmp_path_factory.mktemp(master.path.stem) / "submitted"
    solve(directory, master)
    hand_in(directory / "untouched", master, masters.learner(master), False)
    root = master.path.parent.parent.parent
    return master, grading.grade(directory, jobs=2, root=root)


def rows(graded, learner):
    return [row for row in graded[1].rows if row["learner"] == learner]


def errors(graded, learner):
    """(cell id, error) for each error in the notebook that was run."""
    master, summary = graded
    path = summary.results / "autograded" / learner / master.assignment / master.notebook.name
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    return [(c["id"], out) for c in cells for out in c["outputs"] if out["output_type"] == "error"]


def test_everything_could_be_graded(graded):
    assert graded[1].problems == []


def test_solved_gets_full_marks_without_an_error(graded):
    assert errors(graded, "solved") == []
    hidden = [cell for cell in graded[0].cells if cell.kind == "hidden"]
    scores = [(row["exercise"], row["score"]) for row in rows(graded, "solved")]
    assert scores == [(cell.name, cell.points) for cell in hidden]


def test_untouched_gets_nothing_and_fails_exactly_at_the_stubs(graded):
    assert [row["score"] for row in rows(graded, "untouched")] == [0] * len(rows(graded, "solved"))
    sources = {cell.id: cell.source for cell in masters.learner(graded[0]).cells}
    stubs = [text for text in sources.values() if masters.STUB.split("\n")[0] in text]
    for _, error in errors(graded, "untouched"):
        assert error["ename"] == "NotImplementedError"
        last_frame = re.sub(r"\x1b\[[\d;]*m", "", error["traceback"][-2])
        assert "raise NotImplementedError()" in last_frame
    assert bool(stubs) == bool(errors(graded, "untouched"))


def test_feedback_gives_no_hidden_test_away(graded):
    pages = list((graded[1].results / "feedback").rglob("*.html"))
    assert len(pages) == 2
    assert masters.leaks(graded[0], [page.read_text() for page in pages], kinds=["hidden"]) == []


@pytest.mark.parametrize(
    "master",
    [master for master in MASTERS if master.path.stem.startswith("1b_")],
    ids=lambda master: master.path.stem,
)
def test_full_marks_on_the_stand_in_too(master, tmp_path, monkeypatch):
    monkeypatch.delenv("COURSE_DATA_DIR", raising=False)
    for name in ("HOME", "XDG_CACHE_HOME", "KERAS_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # where nobody answers
    solve(tmp_path / "submitted", master)
    summary = grading.grade(tmp_path / "submitted", jobs=1, root=ROOT)
    assert summary.problems == []
    hidden = [cell for cell in master.cells if cell.kind == "hidden"]
    assert [row["score"] for row in summary.rows] == [cell.points for cell in hidden]
    path = summary.results / "autograded" / "solved" / master.assignment / master.notebook.name
    assert "shapes (from: stand-in)" in path.read_text()


@pytest.mark.parametrize(
    "master",
    [master for master in MASTERS if any(cell.kind == "instructor" for cell in master.cells)],  # else it is `solved`
    ids=lambda master: master.path.stem,
)
def test_the_instructors_notebook_runs_from_top_to_bottom(master, tmp_path, monkeypatch):
    from nbclient import NotebookClient

    for name, value in jupyter.environment(tmp_path / "jupyter").items():
        monkeypatch.setenv(name, value)
    notebook = masters.solution(master)
    place = hand_in(tmp_path, master, notebook, True)
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(place)}}).execute()
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("grade"):
            result = [out for out in cell.outputs if out.output_type == "execute_result"]
            assert [float(out.data["text/plain"]) for out in result] == [cell.metadata.nbgrader.points]
