"""Find the learners' files in folders and zip archives, even if a browser or a system has changed their names."""

from __future__ import annotations

import difflib
import os
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_grader.classroom.learners_notebook import Unusable, untouched
from course_lib.authoring.master_format import Master
from course_lib.system.errors import CourseError

MAX_BYTES = 50_000_000  # a larger file is not read
MAX_DEPTH = 4  # of folders in a learner's folder
MAX_MODULES = 50  # Python files in the folder of a notebook
MAX_MEMBERS = 10_000  # files in an archive
_EXTENSIONS = (".ipynb", ".py")
_HIDDEN = (".", "__MACOSX")  # prefixes of files that operating systems add to folders and archives
_COURSE_FOLDERS = ("reference", "master")  # left out if a learner hands in all files of the course
_BROKEN = (zipfile.BadZipFile, RuntimeError, ValueError, EOFError)  # what archives raise, NotImplementedError too
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_COPY = re.compile(r"(?i)[-_ ]*(copy|kopie)?[-_ ]*(of)?[-_ ]*\(?\d*\)?")  # the suffix that systems give a copy


@dataclass(frozen=True)
class File:
    """A file that a learner handed in.

    Attributes:
        path: path of the file, or of its zip archive; `member`: its name in this archive, else "".
        shown: its path in the learner's folder.
        name: its name without an extension that a system added (`.txt`), with its own extension in lower case.
    """

    path: Path
    member: str
    shown: str
    name: str

    @property
    def folder(self) -> str:
        """Its folder in the learner's folder."""
        return self.shown.rpartition("/")[0]

    def read(self) -> bytes:
        """Return its content. Raises Unusable if it cannot be read."""
        too_large = Unusable(f"{self.shown} is a link or larger than {MAX_BYTES // 1_000_000} MB.")
        try:
            if not self.member:
                if self.path.is_symlink() or self.path.stat().st_size > MAX_BYTES:
                    raise too_large
                return self.path.read_bytes()
            with zipfile.ZipFile(self.path) as archive, archive.open(self.member) as stream:
                content = stream.read(MAX_BYTES + 1)
        except OSError as error:
            raise Unusable(f"{self.shown} cannot be read ({error.strerror or error}).") from None
        except _BROKEN as error:
            raise Unusable(f"{self.shown} cannot be read ({error}).") from None
        if len(content) > MAX_BYTES:
            raise too_large
        return content


@dataclass(frozen=True)
class Submission:
    """A learner's submission of one notebook or one script.

    Attributes:
        path: of the notebook or the script, in the learner's folder.
        master: None if it cannot be graded.
        problem: without a master, why it cannot be graded; with a master, a remark for the instructor; or "".
        file: the notebook, or the script if only that is graded; None if it is missing.
        files: all notebooks and Python files that the learner handed in.
    """

    learner: str
    path: Path
    master: Master | None
    problem: str = ""
    file: File | None = None
    files: tuple[File, ...] = ()

    @property
    def assignment(self) -> str:
        """The lab's folder, nbgrader's assignment; "" without a master."""
        return self.master.assignment if self.master else ""

    @property
    def notebook(self) -> str:
        """The notebook's name without extension, in valid Unicode."""
        return self.master.path.stem if self.master else plain(self.path.stem)


def find(directory: Path, known: Mapping[str, Master], given: Mapping[str, bytes]) -> list[Submission]:
    """Return every submission in `directory`, which has a folder or a zip archive for each learner.

    `known` maps notebook names to masters, `given` the names of the course's files to their contents
    (`released.course_files`). Raises CourseError if `directory` has no such folders.
    """
    if not directory.is_dir():
        raise CourseError(f"{directory} is not a folder: give the folder that has one folder for each learner.")
    entries = sorted(path for path in directory.iterdir() if not path.name.startswith(_HIDDEN))
    learners = [path for path in entries if path.is_dir() or _is_archive(path)]
    assignments = {master.assignment for master in known.values()}
    if assignments.intersection(path.name for path in learners):
        raise CourseError(f"{directory} is one learner's folder: give the folder above it.")
    submissions = [submission for learner in learners for submission in _of_learner(learner, known, given)]
    if not any(submission.master for submission in submissions):
        raise CourseError(f"{directory} has no notebook of this course in any learner's folder.")
    return submissions


def scripts(submission: Submission, text: str, names: Sequence[str], given: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the learner's scripts among `names` that a notebook's `text` mentions; `given` is as for `find`.

    Raises Unusable if one is missing.
    """
    contents = {}
    for name in (name for name in names if name in text):
        beside = [file for file in submission.files if submission.file and file.folder == submission.file.folder]
        content = given.get(f"{submission.assignment}/{name}")
        chosen, problem = _choose(beside, name, content, _same_script)
        if not chosen and not problem:
            chosen, problem = _choose(submission.files, name, content, _same_script)
        if not chosen:
            raise Unusable(problem or f"{name} was not handed in with the notebook.")
        contents[name] = chosen.read()
    return contents


def modules(submission: Submission) -> dict[str, bytes]:
    """Return the learner's Python files beside the notebook, which it may import. Raises Unusable as `File.read`."""
    beside = [file for file in submission.files if file.folder == submission.file.folder and file.name.endswith(".py")]
    return {file.name: file.read() for file in beside[:MAX_MODULES]}


def _of_learner(path: Path, known: Mapping[str, Master], given: Mapping[str, bytes]) -> Iterator[Submission]:
    learner = path.stem if _is_archive(path) else path.name
    if plain(learner) != learner:
        yield Submission(plain(learner), path, None, "The folder's name is not valid text: rename the folder.")
        return
    problems: dict[str, None] = {}
    all_files = tuple(_files(path, path.parent if _is_archive(path) else path, problems))
    files = tuple(file for file in all_files if file.name.endswith(_EXTENSIONS))
    for problem in problems:
        yield Submission(learner, path, None, problem)
    handed_in = bool(problems)
    with_submission: set[str] = set()
    for master in known.values():
        wanted = master.script or master.notebook.name
        same = _same_script if master.script else untouched
        chosen, problem = _choose(files, wanted, given.get(f"{master.assignment}/{wanted}"), same)
        notebook = next((file for file in files if _is_named(file, master.notebook.name)), None)
        if chosen or problem or notebook:
            handed_in = True
            with_submission.add(master.path.stem)
            shown = (chosen or notebook).shown if chosen or notebook else wanted
            usable = None if problem and not chosen else master
            yield Submission(learner, Path(path, shown), usable, problem, chosen, files)
    # A scratch notebook is not reported, but a renamed one must not get lost.
    for file in files:
        stem, kind = os.path.splitext(file.name)
        missing = [
            name
            for name, master in known.items()
            if name not in with_submission and (master.script or kind == ".ipynb")
        ]
        if stem not in known and (name := _like(stem, missing)):
            handed_in = True
            problem = f"It seems to be {name}{kind}: rename it to that."
            yield Submission(learner, Path(path, file.shown), None, problem)
    if not handed_in:
        names = [file.shown for file in all_files if not file.name.endswith(".py")]
        only = f" of this course, only {', '.join(names[:5])}{' …' if names[5:] else ''}" if names else ""
        yield Submission(learner, path, None, f"No notebook{only} was handed in.")


def _choose(
    files: Sequence[File], wanted: str, given: bytes | None, same: Callable[[bytes, bytes], bool]
) -> tuple[File | None, str]:
    """Return the file that counts as `wanted`, and a remark for the instructor, or None and why no file counts.

    `same` returns whether a content is the same as `given`, without any work.
    """
    right = [file for file in files if _is_named(file, wanted)]
    stem, kind = os.path.splitext(wanted.casefold())
    like = [file for file in files if file not in right and stem in file.name.casefold() and file.name.endswith(kind)]
    if not right or (not like and len(right) == 1):
        return next(iter(right), None), ""
    try:
        contents = {file: file.read() for file in (*right, *like)}
    except Unusable as problem:
        return None, str(problem)
    with_work = [file for file, content in contents.items() if given is None or not same(content, given)]
    worked = list({contents[file]: file for file in reversed(right) if file in with_work}.values())[::-1]
    if len(worked) > 1:
        return None, f"It was handed in more than once: keep one of {_listing(worked)}."
    others = [file for file in like if file in with_work]
    if worked:
        others = [file for file in others if contents[file] != contents[worked[0]] and _is_copy(file, stem)]
        differs = f"{worked[0].shown} was graded; other work is in {_listing(others)}: keep only one of them."
        return worked[0], differs if others else ""
    if others:
        return None, (
            f"{right[0].shown} contains no work, unlike {_listing(others)}: rename the one that counts to {wanted}, "
            "and remove the other."
        )
    return right[0], ""


def _same_script(content: bytes, given: bytes) -> bool:
    return content.split() == given.split()


def _files(folder: Path, top: Path, problems: dict[str, None], depth: int = MAX_DEPTH) -> Iterator[File]:
    """Yield the files below a folder or in an archive, including nested archives; add sentences on unreadable ones to
    `problems`."""
    if _is_archive(folder):
        yield from _members(folder, folder.relative_to(top), problems)
        return
    try:
        paths = _listed(folder)
    except OSError:
        what = "The folder" if folder == top else plain(folder.name)
        problems[f"{what} cannot be read: correct its permissions."] = None
        return
    for path in paths:
        if path.is_symlink() and path.is_dir():
            problems[f"{plain(path.name)} is a link: ask the learner for the folder itself."] = None
        elif _is_archive(path) or (path.is_dir() and depth):
            yield from _files(path, top, problems, depth - 1)
        elif path.is_file():
            shown = plain(path.relative_to(top).as_posix())
            yield File(path, "", shown, _name(shown))


def _members(path: Path, path_in_folder: Path, problems: dict[str, None]) -> Iterator[File]:
    """Yield the files in an archive, without unpacking it."""
    shown = plain(path_in_folder.as_posix())
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (OSError, *_BROKEN) as error:
        problems[f"{shown} cannot be read ({error}): ask the learner to hand it in again."] = None
        return
    if len(members) > MAX_MEMBERS:
        problems[f"{shown} has more than {MAX_MEMBERS:,} files: ask for the notebook and its scripts only."] = None
        return
    for member in members:
        parts = member.filename.split("/")
        if not member.is_dir() and all(map(_counts, parts)):
            yield File(path, member.filename, f"{shown}/{plain(member.filename)}", _name(parts[-1]))


def _listed(folder: Path) -> list[Path]:
    """Return the entries of a folder, without those of operating systems and of the course."""
    return sorted(path for path in folder.iterdir() if _counts(path.name))


def _counts(name: str) -> bool:
    return not name.startswith(_HIDDEN) and name not in _COURSE_FOLDERS


def _is_archive(path: Path) -> bool:
    return path.suffix.lower() == ".zip" and path.is_file() and not path.is_symlink()


def _name(shown: str) -> str:
    """Return a file's intended name: `assessment.py` for `assessment.py.txt`, `.py` for `.PY`."""
    name = plain(shown).rpartition("/")[2]
    name = re.sub(r"(?i)(\.(py|ipynb))\.(txt|json)$", r"\1", name)
    stem, dot, kind = name.rpartition(".")
    return stem + dot + kind.lower()


def _is_named(file: File, name: str) -> bool:
    return file.name.casefold() == name.casefold()


def _is_copy(file: File, stem: str) -> bool:
    return bool(_COPY.fullmatch(os.path.splitext(file.name)[0].casefold().replace(stem, "", 1)))


def _like(stem: str, names: Sequence[str]) -> str | None:
    inside = [name for name in names if name in stem]
    return next(iter(inside or difflib.get_close_matches(stem, names, 1, 0.6)), None)


def _listing(files: Sequence[File]) -> str:
    return " and ".join(file.shown for file in files)


def plain(name: str) -> str:
    """Return a file's name in valid Unicode that a terminal can show: invalid bytes and controls are escaped."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    return _CONTROLS.sub(lambda match: f"\\x{ord(match[0]):02x}", text)
