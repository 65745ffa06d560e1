"""`course return`: the pages of graded submissions, where learners see them.

A learner's lab shows feedback/USER as its folder `feedback`, with a folder of pages for each lab. nbgrader's Assignment
List looks beside them for pages named by a digest of the submission's secret and the notebook's name, and links a
submission's feedback only if each of its notebooks has one. So a notebook without a graded page gets one that says why.
"""

from __future__ import annotations

import contextlib
import html
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from course_grader.classroom.grading import results_of
from course_grader.classroom.learners_notebook import Unusable
from course_grader.classroom.preprocessors import LOOK
from course_grader.hub import exchange, snapshot, times
from course_grader.hub.receipt import GRADES, Collected, Receipt, exclusive, is_graded, table
from course_lib.system.errors import CourseError

NOT_GRADED = "No notebook of this name is graded: it has no points."
READ_FIRST = "Your instructor has to read your script before its points count. Until then it has none."
NO_MARK = "This could not be graded, which is no mark. Your instructor was told: {reason}"


def hand_back(lab: str | None, directory: Path, folder: Path) -> int:
    """Return the feedback for what was collected, and print to whom.

    Args:
        lab: name or short name of a lab; None: all labs.
        directory: the class's folder, which `course collect` has filled.
        folder: the exchange.

    Returns:
        0, or 1 if something that was collected has not been graded since, or could not be returned.

    Raises CourseError if nothing was collected, or the class's folder can't be written.
    """
    source = exchange.find(folder)
    with exclusive(directory) as receipt:
        labs = sorted({name for entries in receipt.collected.values() for name in entries})
        if not labs:
            raise CourseError(f"Nothing has been collected into {directory}: give `course collect` first.")
        wanted = labs if lab is None else [exchange.lab_named(lab, labs)]
        results = results_of(directory.resolve())
        sentences = _sentences(table(results / GRADES))
        returned = left = 0
        for learner, name in _collected(receipt, wanted):
            if not is_graded(directory, learner, name):
                print(f"{learner}, {name}: not graded since it was collected or changed: course grade {directory}")
                left += 1
                continue
            entry = receipt.entry(learner, name)
            graded = {page.stem: page.read_bytes() for page in (results / "feedback" / learner / name).glob("*.html")}
            pages = _pages(learner, name, entry, graded, sentences)
            try:
                _release(source.folder, (learner, name), entry, pages)
            except (OSError, Unusable) as problem:
                print(f"{learner}, {name}: not returned. {_why(problem)}")
                left += 1
                continue
            receipt.enter(learner, name, entry.returned_at(times.now()))
            receipt.write(directory)
            returned += 1
    print(f"Returned: the feedback for {returned} of {returned + left} submissions.")
    return 1 if left else 0


def _why(problem: OSError | Unusable) -> str:
    if not isinstance(problem, OSError):
        return str(problem)
    return f"The learner's folder of feedback cannot be written ({problem.strerror}); it must be a folder, and no link."


def _collected(receipt: Receipt, labs: Iterable[str]) -> list[tuple[str, str]]:
    return sorted((learner, lab) for learner, entries in receipt.collected.items() for lab in labs if lab in entries)


def _sentences(rows: Iterable[Mapping[str, str]]) -> dict[tuple[str, str, str], str]:
    """Return (learner, lab, notebook) → why the notebook has no page; "" if it was graded. `rows` are of grades.csv.

    The lab is "" for a file that could not be taken for one of the course's.
    """
    sentences: dict[tuple[str, str, str], str] = {}
    for row in rows:
        key = row["learner"], row["assignment"], row["notebook"]
        if row["reason"].startswith(LOOK):
            sentences[key] = READ_FIRST
        elif not row["exercise"]:
            sentences[key] = NO_MARK.format(reason=row["reason"])
        else:
            sentences.setdefault(key, "")
    return sentences


def _pages(
    learner: str,
    lab: str,
    entry: Collected,
    graded: Mapping[str, bytes],
    sentences: Mapping[tuple[str, str, str], str],
) -> dict[str, bytes]:
    """Return a page for each notebook of the submission, and those of other notebooks that were graded with it.

    `graded` are the pages of the lab among the results, some of which may be of earlier submissions.
    """
    by_name = {name.casefold(): page for name, page in graded.items()}  # 1A.ipynb was graded as 1a.ipynb
    pages = {name: page for name, page in graded.items() if sentences.get((learner, lab, name)) == ""}
    for name in entry.notebooks:
        sentence = sentences.get((learner, lab, name)) or sentences.get((learner, "", name))
        page = None if sentence else by_name.get(name.casefold())
        pages[name] = page or _page(name, sentence or NOT_GRADED)
    return pages


def _release(folder: Path, place: tuple[str, str], entry: Collected, pages: Mapping[str, bytes]) -> None:
    """Write the pages into the feedback of (learner, lab), for the learner and for nbgrader's Assignment List.

    `folder` is the exchange's. On a cluster the learner owns the feedback: no link in it is followed. Raises OSError if
    it can't be written, Unusable if nbgrader could not find the pages.
    """
    from nbgrader.utils import notebook_hash

    if not entry.secret:
        raise Unusable(f"Its {snapshot.SECRET} was empty: let the learner hand in again, then collect again.")
    learner, lab = place
    with snapshot.opened(folder / "feedback") as feedback, _folder(learner, feedback) as own:
        with _folder(lab, own) as of_lab:
            for name, page in pages.items():
                _write(of_lab, f"{name}.html", page)
            for name in os.listdir(of_lab):
                if name.endswith(".html") and name[: -len(".html")] not in pages:  # is no longer handed in
                    os.unlink(name, dir_fd=of_lab)
        for name in entry.notebooks:
            digest = notebook_hash(secret=entry.secret, notebook_id=name)
            _write(own, f"{digest}.html", pages[name])


@contextlib.contextmanager
def _folder(name: str, above: int) -> Iterator[int]:
    """Open a folder in an opened folder; make it if it is missing. Raises OSError for a link."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=above)
    with snapshot.opened(name, above) as folder:
        yield folder


def _write(folder: int, name: str, page: bytes) -> None:
    """Write a page atomically, unless it is the same as before: its time then says when it changed."""
    with contextlib.suppress(OSError, Unusable):
        if snapshot.read(folder, name, len(page)) == page:
            return
    draft = f".{secrets.token_hex(8)}.part"
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder), "wb") as file:
            file.write(page)
        os.replace(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=folder)


def _page(notebook: str, sentence: str) -> bytes:
    title, text = html.escape(notebook), html.escape(sentence)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>\n'
        f'<body style="margin: 24px; max-width: 50em; font: 15px/1.5 sans-serif"><h1>{title}</h1>\n'
        f"<p>{text}</p></body></html>\n"
    ).encode("utf-8", "backslashreplace")
