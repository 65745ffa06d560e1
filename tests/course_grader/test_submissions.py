"""What learners hand in is found wherever they put it, and nothing is graded in the place of something else unsaid."""

from __future__ import annotations

import io
import os
import re
import zipfile

import pytest

from course_grader.classroom import submissions
from course_lib.authoring import masters, released
from course_lib.system.errors import CourseError
from tests.course_grader.classes import FIXTURES, NAME, TINY, notebook

LAB = f"lab0_tiny/{NAME}"
STARTER = "print('serial')\n"
GIVEN, WORK, OTHER = (
    masters.to_text(notebook(**answer))
    for answer in ({}, *({"slope": f"def slope(x, y):\n    return {number}"} for number in (1, 2)))
)


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """Masters of a lab and of an assessment by script."""
    root = tmp_path_factory.mktemp("course")
    place = root / "assessment" / "master"
    place.mkdir(parents=True)
    text = "# %% [markdown]\n# # A\n#\n# **Time:** an hour\n#\n# **Needs:** nothing\n\n"
    text += '# %% hidden="serial" points=5\n### BEGIN HIDDEN TESTS\n5.0\n### END HIDDEN TESTS\n'
    (place / "assessment.py").write_text(text)
    return {NAME: TINY, "assessment": masters.read(place / "assessment.py")}


@pytest.fixture
def find(tmp_path, known):
    """Hand in files (place → text, or bytes) beside those of a learner `zoe`; what was found of the others."""
    given = {**released.course_files(FIXTURES), "assessment/assessment.py": STARTER.encode()}
    assert given[f"{LAB}.ipynb"] == GIVEN.encode()

    def find(files, whole=False):
        put(tmp_path, {f"zoe/{LAB}.ipynb": WORK, **files})
        found = submissions.find(tmp_path, known, given)
        return found if whole else [one for one in found if one.learner != "zoe"]

    return find


def put(directory, files):
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def archive(files):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as made:
        for name, content in files.items():
            made.writestr(name, content)
    return stream.getvalue()


@pytest.mark.parametrize(
    "place",
    [
        f"{LAB}.ipynb",
        f"{NAME}.ipynb",
        f"course-main/labs/{LAB}.ipynb",
        f"1/2/3/4/{NAME}.ipynb",
        f"{NAME}.IPYNB",
        f"{NAME.upper()}.ipynb",
        f"{NAME}.ipynb.txt",
        f"{NAME}.ipynb.json",
    ],
)
def test_a_notebook_is_found_in_any_folder_and_under_the_names_that_systems_give(find, place):
    (one,) = find({f"anna/{place}": WORK})
    assert (one.learner, one.master, one.problem, one.notebook) == ("anna", TINY, "", NAME)
    assert one.file.read() == WORK.encode()


@pytest.mark.parametrize(
    "place",
    ["assessment.py", "x/assessment/assessment.py", "assessment.py.txt", "Assessment.PY", "a/b/assessment.Py.TXT"],
)  # fmt: skip
def test_so_is_a_script(find, place):
    (one,) = find({f"anna/{place}": "1"})
    assert (one.assignment, one.problem, one.file.read()) == ("assessment", "", b"1")


@pytest.mark.parametrize("place", ["anna/x.zip", "anna/deep/er/x.ZIP", "anna.zip"])
@pytest.mark.parametrize("inside", ["", "x/", "x/y/z/"])
def test_so_is_what_an_archive_holds(find, place, inside):
    files = {
        f"{inside}assessment.py": "1",
        "__MACOSX/._assessment.py": "2",
        f"{inside}.ipynb_checkpoints/{NAME}.ipynb": GIVEN,
    }
    (one,) = find({place: archive({**files, f"{inside}notes.txt": "3"})})
    assert (one.learner, one.assignment, one.file.read()) == ("anna", "assessment", b"1")


def test_an_archive_and_what_was_unpacked_from_it_are_one(find):
    (one,) = find({"anna/x.zip": archive({"assessment.py": "1"}), "anna/x/assessment.py": "1"})
    assert one.problem == "" and one.file.read() == b"1"


def test_nothing_of_an_archive_is_unpacked_and_too_much_is_not_read(find, tmp_path, monkeypatch):
    before = set(tmp_path.parent.rglob("*"))
    files = {"x/assessment.py": "1" * 1000, "../../../assessment.py": "2", "/etc/cron.d/x.py": "3"}
    (one,) = find({"anna/x.zip": archive(files)})
    assert one.file.read() == b"1" * 1000
    made = {path.name for path in set(tmp_path.parent.rglob("*")) - before}
    assert made == {"anna", "x.zip", "zoe", "lab0_tiny", f"{NAME}.ipynb"}
    monkeypatch.setattr(submissions, "MAX_BYTES", 100)
    with pytest.raises(submissions.Unusable, match="larger than 0 MB"):
        one.file.read()
    monkeypatch.setattr(submissions, "MAX_MEMBERS", 1)
    (one,) = find({})
    assert one.problem == "x.zip has more than 1 files: ask for the notebook and its scripts only."


@pytest.mark.parametrize("content", [b"PK\x03\x04 cut short", b"Rar!"])
def test_a_damaged_archive_is_said(find, content):
    (one,) = find({"anna/x.zip": content})
    assert one.master is None and one.problem.startswith("x.zip cannot be read (File is not a zip file)")


@pytest.mark.parametrize("version", [64, 255])
def test_an_archive_of_a_later_version_of_the_format_is_unreadable(find, version):
    content = bytearray(archive({"assessment.py": "1"}))
    content[content.index(b"PK\x01\x02") + 6] = version  # that its reader must know: 6.4
    (one,) = find({"anna/x.zip": bytes(content)})
    assert one.master is None and one.problem.startswith("x.zip cannot be read (zip file version")


def test_an_encrypted_file_is_said(find):
    content = bytearray(archive({"assessment.py": "1"}))
    for signature, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + flags] |= 1
    (one,) = find({"anna/x.zip": bytes(content)})
    with pytest.raises(submissions.Unusable, match=r"x\.zip/assessment\.py cannot be read \(.*encrypted"):
        one.file.read()


@pytest.mark.parametrize("name", ["__MACOSX", ".git", "__MACOSX.x"])
def test_what_systems_leave_is_no_learner(find, name):
    assert find({f"{name}/{NAME}.ipynb": WORK, f"{name}/assessment.py": "1"}) == []


def test_the_courses_own_reference_is_no_work_of_a_learner(find):
    files = {"anna/assessment/assessment.py": STARTER, "anna/assessment/reference/assessment.py": "1"}
    (one,) = find({**files, "anna/assessment/master/assessment.py": "2"})
    assert one.file.read() == STARTER.encode() and not one.problem


@pytest.mark.parametrize("learner", ["reference", "master"])
def test_a_learner_may_have_the_name_of_a_folder_of_the_course(find, learner):
    (one,) = find({f"{learner}/assessment.py": "1"})
    assert (one.learner, one.file.read()) == (learner, b"1")


def test_attempts_that_the_button_keeps_and_checkpoints_are_not_submissions(find):
    kept = {"anna/.attempts/0001/assessment.py": "0", f"anna/.ipynb_checkpoints/{NAME}.ipynb": OTHER}
    (one,) = find({"anna/assessment.py": "1", **kept, f"anna/._{NAME}.ipynb": "x"})
    assert one.file.read() == b"1"


@pytest.mark.parametrize(
    ("files", "graded", "sentence"),
    [
        # The right name holds no work, another does.
        ({"N.ipynb": GIVEN, "N-Copy1.ipynb": WORK}, None, "N.ipynb contains no work, unlike N-Copy1.ipynb: rename"),
        ({"N.ipynb": GIVEN, "N_anna.ipynb": WORK}, None, "N.ipynb contains no work, unlike N_anna.ipynb"),
        ({"N.ipynb": GIVEN, "N (1).ipynb": WORK, "N (2).ipynb": OTHER}, None, "N.ipynb contains no work, unlike N (1)"),
        ({"N.ipynb": "{not json", "N-Copy1.ipynb": WORK}, None, "N.ipynb contains no work"),
        # Both do.
        ({"N.ipynb": WORK, "N-Copy1.ipynb": OTHER}, WORK, "N.ipynb was graded; other work is in N-Copy1.ipynb"),
        ({"N.ipynb": WORK, "N - Kopie (2).ipynb": OTHER}, WORK, "N.ipynb was graded; other work is in N - Kopie"),
        ({"N.ipynb": WORK, "Copy of N.ipynb": OTHER}, WORK, "N.ipynb was graded; other work is in Copy of N.ipynb"),
        # There is nothing to choose.
        ({"N.ipynb": WORK, "N-Copy1.ipynb": WORK}, WORK, ""),
        ({"N.ipynb": WORK, "N-Copy1.ipynb": GIVEN}, WORK, ""),
        ({"N.ipynb": GIVEN, "N-Copy1.ipynb": GIVEN}, GIVEN, ""),
        ({"N.ipynb": WORK, "N_my_tries.ipynb": OTHER}, WORK, ""),
        ({"N.ipynb": WORK, "Untitled.ipynb": OTHER}, WORK, ""),
        # The right name twice.
        ({"a/N.ipynb": WORK, "b/N.ipynb": OTHER}, None, "It was handed in more than once: keep one of a/N."),
        ({"a/N.ipynb": WORK, "b/N.ipynb": WORK}, WORK, ""),
        ({"a/N.ipynb": GIVEN, "b/N.ipynb": WORK}, WORK, ""),
        # The right name is missing.
        ({"N (1).ipynb": WORK}, None, "It seems to be N.ipynb: rename it to that."),
        ({os.fsdecode(b"N-\xe9.ipynb"): WORK}, None, "It seems to be N.ipynb: rename it to that."),
    ],
)  # fmt: skip
def test_which_notebook_counts(find, files, graded, sentence):
    (one,) = find({f"anna/{name.replace('N', NAME, 1)}": text for name, text in files.items()})
    assert one.problem.startswith(re.sub(r"\bN(?=[-_. ])", NAME, sentence))
    assert (one.master is None) is (graded is None)
    assert graded is None or one.file.read() == graded.encode()
    assert sentence or not one.problem


@pytest.mark.parametrize(
    ("files", "graded", "sentence"),
    [
        ({"assessment.py": STARTER, "assessment (1).py": "1"}, None, "assessment.py contains no work, unlike"),
        ({"assessment.py": "print('serial')", "assessment(1).py": "1"}, None, "assessment.py contains no work"),
        ({"assessment.py": "print('serial')\r\n", "my_assessment.py": "1"}, None, "assessment.py contains no work"),
        ({"assessment.py": "1", "assessment (1).py": "2"}, "1", "assessment.py was graded; other work is in"),
        ({"assessment.py": "1", "assessment_old_attempt.py": "2"}, "1", ""),
        ({"assessment.py": STARTER}, STARTER, ""),
        ({"assessment (1).py": "1"}, None, "It seems to be assessment.py: rename it to that."),
        ({"a/assessment.py": "1", "b/assessment.py": "2"}, None, "It was handed in more than once: keep one of"),
        ({"helper.py": "1"}, None, "No notebook was handed in."),
        ({"assessment_2.ipynb": "{}"}, None, "It seems to be assessment.ipynb: rename it to that."),
        ({"assessment.ipynb": "{}"}, "", ""),
        ({"assessment.ipynb": "{}", "x/assessment.py": "1"}, "1", ""),
    ],
)  # fmt: skip
def test_which_script_counts(find, files, graded, sentence):
    (one,) = find({f"anna/{name}": text for name, text in files.items()})
    assert one.problem.startswith(sentence) and (sentence or not one.problem)
    assert (one.master is None) is (graded is None)
    assert not graded or one.file.read() == graded.encode()


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"Untitled.ipynb": "{}"}, "No notebook of this course, only Untitled.ipynb was handed in."),
        (
            {"homework.rar": "Rar!", "a/notes.docx": "x"},
            "No notebook of this course, only a/notes.docx, homework.rar was",
        ),
        ({"x.py": "1"}, "No notebook was handed in."),
    ],
)
def test_where_nothing_is_found_it_is_said_what_there_is(find, files, sentence):
    (one,) = find({f"anna/{name}": text for name, text in files.items()})
    assert one.master is None and one.problem.startswith(sentence)


class TestScripts:
    """The scripts of a lab that are handed in with its notebook."""

    @pytest.fixture
    def scripts(self, find):
        def scripts(files, text="run script.py"):
            (one,) = find({f"anna/{name}": content for name, content in {f"{LAB}.ipynb": WORK, **files}.items()})
            given = {"lab0_tiny/script.py": STARTER.encode()}
            return {
                name: content.decode() for name, content in submissions.scripts(one, text, ["script.py"], given).items()
            }

        return scripts

    @pytest.mark.parametrize(
        "name", ["lab0_tiny/script.py", "script.py", "lab0_tiny/script.py.txt", "elsewhere/script.PY"]
    )
    def test_are_found_as_notebooks_are(self, scripts, name):
        assert scripts({name: "1"}) == {"script.py": "1"}

    def test_count_beside_the_notebook_first(self, scripts):
        assert scripts({"lab0_tiny/script.py": "1", "old/script.py": "2"}) == {"script.py": "1"}

    def test_are_not_needed_where_the_notebook_does_not_name_them(self, scripts):
        assert scripts({"script.py": "1"}, text="") == {}

    @pytest.mark.parametrize(
        ("files", "sentence"),
        [
            ({}, r"script\.py was not handed in with the notebook"),
            ({"script.py": STARTER, "script (1).py": "1"}, r"script\.py contains no work, unlike script \(1\)\.py"),
            ({"lab0_tiny/script.py": STARTER, "lab0_tiny/script-2.py": "1"}, r"lab0_tiny/script\.py contains no work"),
        ],
    )
    def test_that_cannot_be_told_are_said(self, scripts, files, sentence):
        with pytest.raises(submissions.Unusable, match=sentence):
            scripts(files)


class TestFolder:
    def test_none(self, tmp_path, known):
        with pytest.raises(CourseError, match="is not a folder"):
            submissions.find(tmp_path / "missing", known, {})
        with pytest.raises(CourseError, match="has no notebook of this course"):
            submissions.find(tmp_path, known, {})

    def test_of_one_learner_is_not_a_class(self, tmp_path, known):
        put(tmp_path, {f"{LAB}.ipynb": WORK})
        with pytest.raises(CourseError, match="is one learner's folder: give the folder above it"):
            submissions.find(tmp_path, known, {})

    def test_that_is_a_link_is_not_followed(self, find, tmp_path):
        put(tmp_path, {f"zoe/{LAB}.ipynb": WORK, "anna/x.txt": "x"})
        (tmp_path / "anna" / "lab0_tiny").symlink_to(tmp_path / "zoe" / "lab0_tiny")
        (one,) = find({})
        assert (one.master, one.problem) == (None, "lab0_tiny is a link: ask the learner for the folder itself.")

    def test_with_a_link_to_a_file_elsewhere(self, find, tmp_path):
        put(tmp_path, {"elsewhere": "1", "anna/x": "x"})
        (tmp_path / "anna" / "assessment.py").symlink_to(tmp_path / "elsewhere")
        (one,) = find({})
        with pytest.raises(submissions.Unusable, match=r"assessment\.py is a link"):
            one.file.read()

    def test_whose_name_is_no_text_is_spelled_out(self, find, tmp_path):
        (tmp_path / os.fsdecode(b"jos\xe9")).mkdir()
        (tmp_path / "eve").mkdir()
        (tmp_path / "eve" / os.fsdecode(b"b\xe9.ipynb")).touch()
        eve, jose = find({})
        assert "only b\\xe9.ipynb was handed in" in eve.problem
        assert (jose.learner, jose.problem[:17]) == ("jos\\xe9", "The folder's name")
