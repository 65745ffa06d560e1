"""Each notebook of the course: solved, it gets full marks; untouched, it fails at the stubs."""

from __future__ import annotations

import os
import re
import shutil

import nbformat
import pytest
from nbgrader.utils import is_grade, is_solution

from course_grader.classroom import grading, preprocessors
from course_lib.authoring import masters, released
from course_lib.notebook import jupyter
from course_lib.system.paths import ROOT
from tests.course_grader.classes import FIXTURES, solved

MASTERS = [
    masters.read(path)
    for root in (FIXTURES, ROOT)
    for path in masters.find(root)
    if path.parent.parent.name == "labs"  # the assessment is graded in tests/grader
]

WHOLE = ("1a", "2d", "7b")  # run whole, untouched: the skipped exercises' errors come from here and from ranks
# A rank that dies as it starts: what Python runs first, where PYTHONPATH has it.
DYING = """
import os, sys
from pathlib import Path
if Path("/proc/self/cmdline").read_text().split("\\0")[1].endswith("/ranks/rank.py"):
    sys.stderr.write("ValueError: this rank dies\\n")
    sys.stderr.flush()
    os._exit(1)
"""

pytestmark = [pytest.mark.slow, pytest.mark.notebook, pytest.mark.ranks]


@pytest.fixture(autouse=True, scope="module")
def small_data():
    """Notebooks train on a slice of their data, so that they are run in minutes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COURSE_SLICE", os.environ.get("COURSE_SLICE", "1279"))
        yield


def hand_in(directory, master, notebook, with_reference):
    """The notebook, and the lab's scripts as they start or as they should become."""
    place = directory / master.assignment
    place.mkdir(parents=True)
    (place / master.notebook.name).write_text(nbformat.writes(notebook))
    lab = master.path.parent
    root = lab.parent.parent
    for name, content in released.course_files(root).items():
        if name.startswith(f"{lab.name}/") and not name.endswith(".ipynb"):
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            reference = lab / "reference" / path.name
            if with_reference and reference.exists():
                shutil.copyfile(reference, path)
    return place


def solve(directory, master):
    """Hand in the solution as the learner `solved`."""
    hand_in(directory / "solved", master, solved(master), True)


def execute_solved(master, folder):
    """Run the solution as a learner would, without the tests; its code cells."""
    notebook = solved(master)
    notebook.cells = [cell for cell in notebook.cells if not is_grade(cell)]
    return execute(notebook, hand_in(folder / "work", master, notebook, True), folder)


@pytest.fixture(scope="module", params=MASTERS, ids=lambda master: master.path.stem)
def master(request):
    return request.param


@pytest.fixture(scope="module")
def graded(master, tmp_path_factory):
    """What `course grade` makes of a learner who has solved everything."""
    directory = tmp_path_factory.mktemp(master.path.stem) / "submitted"
    solve(directory, master)
    return grading.grade(directory, jobs=1, root=master.path.parent.parent.parent)


def execute(notebook, place, folder):
    """Run a notebook from top to bottom, over errors too; its code cells."""
    from nbclient import NotebookClient

    with pytest.MonkeyPatch.context() as patch:
        for name, value in jupyter.environment(folder / "jupyter").items():
            patch.setenv(name, value)
        client = NotebookClient(
            notebook, timeout=600, allow_errors=True, resources={"metadata": {"path": str(place)}}
        )  # fmt: skip
        client.execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.fixture(scope="module")
def untouched(master, tmp_path_factory):
    """Of the learner's notebook, as handed out: the imports, each exercise, its check and its hidden test; a few whole.

    Run.
    """
    folder = tmp_path_factory.mktemp(f"{master.path.stem}-untouched")
    notebook, tests = masters.learner(master), {cell.id: cell.source for cell in masters.source(master).cells}
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    kept = {code[0].id}
    for cell, after in zip(code, [*code[1:], None]):
        if is_grade(cell):
            cell.source = tests[cell.id]
            kept.add(cell.id)
        elif is_solution(cell):
            kept.update(one.id for one in (cell, after) if one is not None)
    place = hand_in(folder / "work", master, notebook, False)
    if ROOT / "labs" in master.path.parents and master.path.stem[:2] not in WHOLE:  # the tiny notebook runs whole, too
        notebook.cells = [cell for cell in notebook.cells if cell.id in kept]
    return execute(notebook, place, folder)


def errors(cells):
    return [out for cell in cells for out in cell.outputs if out.output_type == "error"]


def test_solved_gets_full_marks(master, graded):
    assert graded.problems == []
    hidden = [cell for cell in master.cells if cell.kind == "hidden"]
    scores = [(row["exercise"], row["score"]) for row in graded.rows]
    assert scores == [(cell.name, cell.points) for cell in hidden]


def test_solved_runs_without_an_error(master, tmp_path):
    cells = execute_solved(master, tmp_path)
    assert len(cells) >= 4
    assert errors(cells) == []
    tables = [cell for cell in cells if "predictions.table()" in cell.source]
    assert not any("not yet" in str(cell.outputs) for cell in tables), "a prediction is never measured"


def test_untouched_gets_nothing_and_each_check_says_that_the_stub_is_one(master, untouched):
    """No error comes from a check: only from a cell that needs an exercise, and in a sentence that names it."""
    scores = [
        preprocessors.judge(cell.outputs, cell.metadata.nbgrader.points)[0] for cell in untouched if is_grade(cell)
    ]
    assert scores == [0] * sum(cell.kind == "hidden" for cell in master.cells)
    stubs = [cell for cell in untouched if masters.STUB.split("\n")[0] in cell.source]
    for error in errors(untouched):
        assert re.fullmatch(r"Solve `\w+` first: .*this cell uses.*\.", "\n".join(error.traceback))
    told = [cell for cell in untouched if "Not written yet" in str(cell.outputs)]
    assert bool(stubs) == bool(errors(untouched) or told)
    checks = [after for cell, after in zip(untouched, untouched[1:]) if cell in stubs]
    assert all(check in told for check in checks if re.fullmatch(r"check\(\w+\)", check.source))


@pytest.mark.parametrize(
    "master", [master for master in MASTERS if master.path.stem[:2] == "2b"], ids=lambda master: master.path.stem
)
def test_a_cell_that_reads_a_failed_run_says_why_it_failed(master, tmp_path, monkeypatch):
    (tmp_path / "sitecustomize.py").write_text(DYING)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    shown = [error.traceback for error in errors(execute_solved(master, tmp_path))]
    assert len(shown) == 2
    for (sentence,) in shown:
        assert re.fullmatch(
            r"fashion_mnist.py --epochs 3 on . ranks?: Rank . failed with exit code 1\. ValueError: this rank dies",
            sentence,
        )


def test_feedback_gives_no_hidden_test_away(master, graded):
    (page,) = (graded.results / "feedback").rglob("*.html")
    assert masters.leaks(master, [page.read_text()], kinds=["hidden"]) == []


@pytest.mark.parametrize(
    "master",
    [master for master in MASTERS if master.path.stem.startswith("1e_")],
    ids=lambda master: master.path.stem,
)
def test_on_the_stand_in_too(master, tmp_path, monkeypatch):
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
    cells = execute_solved(master, tmp_path)
    assert errors(cells) == []
    assert any("shapes (from: stand-in)" in str(cell.outputs) for cell in cells)


@pytest.mark.parametrize(
    "master",
    [master for master in MASTERS if any(cell.kind == "instructor" for cell in master.cells)],  # else it is `solved`
    ids=lambda master: master.path.stem,
)
def test_the_instructors_cells_make_the_reference(master, tmp_path):
    """What they write is what `solve` hands in. The tiny notebook runs whole."""
    notebook, whole = masters.solution(master), ROOT / "labs" not in master.path.parents
    place = hand_in(tmp_path, master, notebook, whole)
    if not whole:
        first = next(cell for cell in master.cells if not cell.markdown)
        kept = {cell.source for cell in master.cells if cell is first or cell.kind == "instructor"}
        notebook.cells = [cell for cell in notebook.cells if cell.source in kept]
    cells = execute(notebook, place, tmp_path)
    assert errors(cells) == []
    for reference in (master.path.parent / "reference").glob("*.py"):
        assert whole or (place / reference.name).read_text() == reference.read_text()
    for cell in cells:
        if is_grade(cell):
            result = [out for out in cell.outputs if out.output_type == "execute_result"]
            assert [float(out.data["text/plain"]) for out in result] == [cell.metadata.nbgrader.points]
