"""Masters → notebooks: what learners get, what they must not get, and what is wrong with a master."""

from __future__ import annotations

import json
import shutil

import nbformat
import pytest

from course_grader.script import contract
from course_lib.authoring import masters
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

FIXTURES = ROOT / "tests" / "notebooks" / "fixtures"
TINY = FIXTURES / "labs" / "lab0_tiny" / "0a_two_exercises.py"

OPENING = "# %% [markdown]\n# # Title\n#\n# **Time:** 5 minutes. Or six.\n#\n# **Needs:** nothing\n# at all\n\n"
EXERCISE = """# %% exercise="a"
def f(x):
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION

"""
HIDDEN = """# %% hidden="a" points=4
### BEGIN HIDDEN TESTS
4.0 * (f(1) == 2)
### END HIDDEN TESTS
"""
SECTION = '# %% [markdown] tags=["further"]\n# ## More\n\n# %% [markdown]\n# Text.\n\n'
MASTER = OPENING + EXERCISE + HIDDEN


@pytest.fixture
def course(tmp_path):
    """A course folder with the fixture master in it, and a second lab."""
    shutil.copytree(FIXTURES, tmp_path / "course")
    other = tmp_path / "course" / "labs" / "lab1_other" / "1a_other.py"
    other.parent.mkdir()
    other.write_text(MASTER)
    masters.build(root=tmp_path / "course")
    return tmp_path / "course"


@pytest.fixture
def read(tmp_path):
    """Read a master from its text."""

    def read(text: str) -> masters.Master:
        path = tmp_path / "1a_test.py"
        path.write_text(text, encoding="utf-8")
        return masters.read(path)

    return read


def cells(notebook):
    return {cell.id: cell for cell in notebook.cells}


class TestLearnersNotebook:
    def test_solution_becomes_a_stub_that_keeps_its_place_and_names_itself(self, read):
        stub = cells(masters.learner(read(MASTER)))["a"].source
        assert stub == 'def f(x):\n    # Your code here\n    raise NotImplementedError("`f` is not written yet")'

    def test_hidden_tests_are_cut_and_announced(self, read):
        assert cells(masters.learner(read(MASTER)))["a-test"].source == "# Hidden test: 4 points"

    def test_instructor_cells_are_in_the_solution_notebook_only(self):
        master = masters.read(TINY)
        sources = [cell.source for cell in masters.solution(master).cells]
        assert any("For instructors" in source for source in sources)
        for notebook in (masters.source(master), masters.learner(master)):
            assert not any("For instructors" in cell.source for cell in notebook.cells)

    def test_only_exercises_and_editable_cells_can_be_edited(self):
        master = masters.read(TINY)
        kinds = {cell.id: cell.kind for cell in master.cells}
        for cell in masters.learner(master).cells:
            free = kinds[cell.id] in ("exercise", "editable")
            assert cell.metadata.get("editable", True) == free

    def test_a_section_that_shorter_ways_leave_out_is_folded_and_says_so(self, read):
        _, heading, *others = masters.learner(read(OPENING + SECTION + EXERCISE + HIDDEN)).cells
        assert heading.source == f"## More\n\n{masters.FOLD_SENTENCE}"
        assert (heading.metadata["tags"], heading.metadata["jp-MarkdownHeadingCollapsed"]) == (["further"], True)
        assert heading.metadata.nbgrader["locked"] and not heading.metadata["editable"]
        assert not any(masters.FOLD in cell.metadata for cell in others)

    def test_is_a_valid_nbgrader_assignment_with_the_points(self):
        from nbgrader.nbgraderformat import MetadataValidator

        notebook = masters.learner(masters.read(TINY))
        nbformat.validate(notebook)
        MetadataValidator().validate_nb(notebook)
        points = {c.id: c.metadata.nbgrader.points for c in notebook.cells if c.id.endswith("-test")}
        assert points == {"slope-test": 4, "script-test": 2, "shout-test": 1}

    def test_has_nothing_in_it_that_changes_between_machines(self):
        metadata = masters.learner(masters.read(TINY)).metadata
        assert set(metadata) == {"course", "kernelspec", "language_info"}
        assert metadata.language_info == {"name": "python"}

    def test_a_cell_keeps_its_id_when_others_come_and_go(self, read):
        extra = "# %%\nprint('hello')\n\n"
        before = masters.learner(read(OPENING + extra + EXERCISE + HIDDEN))
        after = masters.learner(read(OPENING + "# %%\n1 + 1\n\n" + extra + EXERCISE + HIDDEN))
        assert set(cells(before)) < set(cells(after))

    def test_equal_cells_get_different_ids(self, read):
        assert len(cells(masters.learner(read(MASTER + "\n# %%\nf(1)\n\n# %%\nf(1)\n")))) == 5


class TestBuild:
    def test_twice_gives_the_same_bytes(self, course, tmp_path):
        shutil.copytree(FIXTURES, tmp_path / "again", ignore=shutil.ignore_patterns("*.ipynb"))
        masters.build(root=tmp_path / "again")
        notebook = TINY.relative_to(FIXTURES).with_suffix(".ipynb")
        assert (tmp_path / "again" / notebook).read_bytes() == (FIXTURES / notebook).read_bytes()

    def test_rewrites_only_what_changed(self, course):
        assert masters.build(root=course) == []
        changed, other = masters.find(course)
        changed.write_text(changed.read_text().replace("A tiny assignment", "A small assignment"))
        before = other.with_suffix(".ipynb").stat().st_mtime_ns
        assert masters.build(root=course) == [changed.with_suffix(".ipynb")]
        assert "A small assignment" in changed.with_suffix(".ipynb").read_text()
        assert other.with_suffix(".ipynb").stat().st_mtime_ns == before

    def test_check_reports_and_writes_nothing(self, course):
        master = masters.find(course)[0]
        before = master.with_suffix(".ipynb").read_bytes()
        master.write_text(master.read_text().replace("A tiny assignment", "A small assignment"))
        assert masters.build(check=True, root=course) == [master.with_suffix(".ipynb")]
        assert master.with_suffix(".ipynb").read_bytes() == before

    def test_a_hand_edited_notebook_is_stale(self, course):
        notebook = masters.find(course)[0].with_suffix(".ipynb")
        notebook.write_text(notebook.read_text().replace("mean of", "average of"))
        assert masters.build(check=True, root=course) == [notebook]

    def test_a_wrong_master_stops_all_writing(self, course):
        first, second = masters.find(course)
        first.write_text(first.read_text().replace("A tiny assignment", "A small assignment"))
        second.write_text(second.read_text().replace("END SOLUTION", "END SOLUTON"))
        before = first.with_suffix(".ipynb").read_bytes()
        with pytest.raises(CourseError):
            masters.build(root=course)
        assert first.with_suffix(".ipynb").read_bytes() == before

    def test_scripts_without_cells_are_no_masters(self, course):
        assert [path.name for path in masters.find(course)] == ["0a_two_exercises.py", "1a_other.py"]

    def test_the_courses_own_notebooks_are_fresh(self):
        assert masters.build(check=True) == []


class TestWrongMasters:
    @pytest.mark.parametrize(
        "old, new, line, hint",
        [
            ("    ### END SOLUTION", "    ### END SOLUTON", 13, "not a marker"),
            ("    ### END SOLUTION", "    # END SOLUTION", 13, "not a marker"),
            ("    ### END SOLUTION", "    ### end solution", 13, "not a marker"),
            ("    ### END SOLUTION", "    ###END SOLUTION", 13, "not a marker"),
            ("    ### END SOLUTION", "    ### SOLUTION END", 13, "not a marker"),
            ("### BEGIN HIDDEN TESTS", "### BEGIN HIDDEN TEST", 16, "not a marker"),
            ("    ### END SOLUTION\n", "", 11, "never closed; add `### END SOLUTION`"),
            ("    ### BEGIN SOLUTION\n", "", 12, "nothing is open"),
            ("    return 2 * x\n", "    ### BEGIN SOLUTION\n", 12, "line 11 is still open"),
            ("### END HIDDEN TESTS\n", "", 16, "never closed"),
            ('# %% exercise="a"', "# %%", 11, "does not belong"),
            ('# %% hidden="a" points=4', '# %% exercise="b"', 16, "does not belong"),
            (EXERCISE.partition("\n")[2], "pass\n\n", 9, "no `### BEGIN SOLUTION` region"),
            ("### BEGIN HIDDEN", "print(f(1))\n### BEGIN HIDDEN", 16, "learners would see"),
            ('hidden="a" points=4', 'hidden="a"', 15, "no points"),
            ("points=4", "points=0", 15, "no points"),
            ("points=4", 'points="4"', 15, "no points"),
            ('exercise="a"', 'exercise="a" points=4', 9, "points belong to a hidden test"),
            ('exercise="a"', 'excercise="a"', 9, "`excercise` is not known"),
            ('exercise="a"', "exercise=a", 9, "`exercise=a` is not known"),
            ('exercise="a"', 'exercise="A b"', 9, "not a name"),
            ('exercise="a"', 'exercise="a" editable=true', 9, "only one kind"),
            ('exercise="a"', "Some title", 9, "`Some title` is not known"),
            ('exercise="a"', "instructor=false", 9, "can only be true"),
            ('# %% exercise="a"', '#%% exercise="a"', 9, "starts with `# %%`"),
            ('# %% exercise="a"', '# %%exercise="a"', 9, "starts with `# %%`"),
            ('# %% exercise="a"', '# %% [markdown] exercise="a"', 9, "code cells"),
            ("4.0 * (f(1) == 2)", "score = 4.0", 15, "must end with its score"),
            ("4.0 * (f(1) == 2)", "4.0 * (f(1) == 2);", 15, "must end with its score"),
            ("4.0 * (f(1) == 2)", "4.0 * (f(1) = = 2)", 17, "is not valid Python"),
            ("**Time:**", "**Tiem:**", 1, "first cell must have"),
            ("# # Title", "# ## Title", 1, "first cell must have"),
            ("    return 2 * x", '    return """\n# %% no cell\n"""', 1, "string with a `# %%` line"),
        ],
    )  # fmt: skip
    def test_is_named_with_its_line_and_fix(self, read, old, new, line, hint):
        assert MASTER.count(old) == 1
        with pytest.raises(CourseError) as error:
            read(MASTER.replace(old, new))
        sentence = str(error.value)
        assert "1a_test.py" in sentence and f"line {line}:" in sentence and hint in sentence

    @pytest.mark.parametrize(
        "old, new, line, hint",
        [
            ('["further"]', '["extra"]', 9, 'write tags=["further"]'),
            ("# ## More", "# ### More", 9, "the heading of a section, alone in its cell"),
            ("# ## More", "# ## More\n#\n# Text.", 9, "the heading of a section, alone in its cell"),
            ("[markdown] tags", "tags", 9, "the heading of a section, alone in its cell"),
            ("# Text.", "# Text.\n#\n# ## Next", 12, "begin a cell with the next heading"),
        ],
    )
    def test_a_section_that_is_folded_is_whole(self, read, old, new, line, hint):
        with pytest.raises(CourseError) as error:
            read(OPENING + SECTION.replace(old, new) + EXERCISE + HIDDEN)
        assert f"line {line}:" in str(error.value) and hint in str(error.value)

    @pytest.mark.parametrize("again", [EXERCISE, HIDDEN, EXERCISE.replace('"a"', '"a-test"')])
    def test_a_name_is_used_once(self, read, again):
        with pytest.raises(CourseError, match=r"line 20: line (9|15) already uses the name a(-test)?"):
            read(f"{MASTER}\n{again}")

    def test_text_before_the_first_cell(self, read):
        with pytest.raises(CourseError, match="outside the cells"):
            read(f"import os\n\n{MASTER}")

    def test_ordinary_comments_and_headings_are_fine(self, read):
        code = "# %%\n# hidden layer, then the end of the tests\nx = 1  # begin here\n\n"
        prose = "# %% [markdown]\n# ### Test it\n"
        assert read(MASTER + code + prose).cells[-1].source == "### Test it"

    def test_opening_says_title_time_and_needs(self, read):
        master = read(MASTER)
        assert (master.title, master.time, master.needs) == ("Title", "5 minutes. Or six.", "nothing at all")


class TestLeaks:
    secret = "return sum(quotients) / len(quotients)"

    @pytest.fixture
    def master(self):
        return masters.read(TINY)

    def test_the_solution_notebook_leaks_every_kind(self, master):
        found = masters.leaks(master, [masters.to_text(masters.solution(master))])
        for part in (self.secret, "expected_number", "For instructors", "BEGIN SOLUTION", "END HIDDEN TESTS"):
            assert any(part in line for line in found)

    def test_the_learners_notebook_leaks_nothing(self, master):
        assert masters.leaks(master, [masters.to_text(masters.learner(master))]) == []

    @pytest.mark.parametrize("place", ["source", "metadata", "text", "error", "html", "attachment"])
    def test_no_place_in_a_notebook_is_overlooked(self, master, place):
        notebook = masters.learner(master)
        cell = cells(notebook)["slope"]
        if place == "source":
            cell.source += f"\n    {self.secret}"
        elif place == "metadata":
            cell.metadata["old"] = {"answers": [self.secret]}
        elif place == "text":
            cell.outputs = [nbformat.v4.new_output("stream", text=f"a\n  {self.secret}\n")]
        elif place == "error":
            trace = [f"\x1b[0;32m----> 4\x1b[0m {self.secret}"]
            cell.outputs = [nbformat.v4.new_output("error", ename="E", evalue="", traceback=trace)]
        elif place == "html":
            page = "<pre><b>return</b> sum(quotients) <i>/</i> len(quotients)</pre>"
            cell.outputs = [nbformat.v4.new_output("display_data", {"text/html": page})]
        else:
            notebook.cells[0]["attachments"] = {"a.txt": {"text/plain": ["return sum(quotients)", " / len(quotients)"]}}
        assert masters.leaks(master, [masters.to_text(notebook)]) == [self.secret]

    def test_plain_text_is_searched_too(self, master):
        assert masters.leaks(master, ["fine", f"    {self.secret}  # copied"]) == [self.secret]

    def test_what_says_nothing_or_is_seen_anyway_does_not_count(self, read):
        master = read(
            MASTER.replace("    return 2 * x", "    x = f'{x}'\n    try:\n        (\n    return\n    print(f(1))")
            + "\n# %%\nprint(f(1))\n"
        )
        assert masters.leaks(master, ["try:\n(\nreturn\n)\nprint(f(1))"]) == []
        assert masters.leaks(master, ["x  =  f'{x}'"]) == ["x = f'{x}'"]

    def test_build_refuses_to_write_an_answer(self, read, monkeypatch):
        """Should nbgrader ever keep a region, nothing is written."""
        from nbgrader import preprocessors

        monkeypatch.setattr(preprocessors.ClearSolutions, "preprocess", lambda self, nb, resources: (nb, resources))
        with pytest.raises(CourseError, match="is part of an answer"):
            masters.learner(read(MASTER))

    def test_json_that_is_no_notebook(self, master):
        assert masters.leaks(master, [json.dumps([1, None, {"a": [self.secret, 2]}])]) == [self.secret]


class TestOfAScript:
    """A master in a folder `master/`: nothing but the script beside its notebook is the learner's."""

    CELL = '# %% hidden="{name}" points={points:g}\n### BEGIN HIDDEN TESTS\n1.0\n### END HIDDEN TESTS\n\n'

    @pytest.fixture
    def read(self, tmp_path):
        """Read a master from its text, beside a copy of the course's contract."""

        def read(text: str) -> masters.Master:
            place = tmp_path / "assessment"
            (place / "master").mkdir(parents=True)
            shutil.copyfile(contract.CONTRACT, place / "contract.toml")
            (place / "master" / "assessment.py").write_text(OPENING + text)
            return masters.read(place / "master" / "assessment.py")

        return read

    def cells(self, **changed):
        asked = {**contract.read().points, **changed}
        return "".join(self.CELL.format(name=name, points=points) for name, points in asked.items() if points)

    def test_stands_beside_the_folder_of_its_master(self, read, tmp_path):
        master = read(self.cells())
        assert master.notebook == tmp_path / "assessment" / "assessment.ipynb"
        assert (master.assignment, master.script) == ("assessment", "assessment.py")

    def test_of_a_lab_stands_beside_its_master(self):
        master = masters.read(TINY)
        assert (master.notebook, master.script) == (TINY.with_suffix(".ipynb"), "")

    def test_asks_for_no_cell(self, read):
        with pytest.raises(CourseError, match=r"line 11: this notebook hands in assessment\.py"):
            read("# %%\n1\n" + EXERCISE)

    @pytest.mark.parametrize(
        "changed, sentence",
        [
            ({"serial": 7}, r"line 9: .*contract\.toml gives different points to serial; write points=5\.$"),
            ({"serial": 0}, r'contract\.toml gives points to serial; add a cell hidden="serial" points=5\.$'),
            ({"extra": 1}, r"contract\.toml gives different points to extra; remove the cell\.$"),
        ],
    )
    def test_has_the_points_of_the_contract(self, read, changed, sentence):
        with pytest.raises(CourseError, match=sentence):
            read(self.cells(**changed))
