"""Points of a class as the CSV that a learning platform imports: a column for each lab.

Canvas: gradebook, Import (its format is defined by `lib/gradebook_importer.rb`): it finds learners by their login.
Moodle: Grades, Import, CSV file: there `Username` or `Email address` is mapped to the user, the labs to grade items.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from course_grader.classroom.grading import results_of
from course_grader.hub.receipt import GRADES, table
from course_lib.system.errors import CourseError
from course_lib.system.files import write

PLATFORMS = ("canvas", "moodle")


def write_points(directory: Path, platform: str, path: Path) -> None:
    """Write the points of the class in `directory`, in the form of one of PLATFORMS.

    A lab that was graded in part stays empty, and is named: an import would show its points as final. Raises
    CourseError if nothing has been graded, or the file can't be written.
    """
    results = results_of(directory.resolve())
    points, maxima, partial = _points(results / GRADES)
    if not maxima:
        raise CourseError(f"There are no points in {results / GRADES}: give `course grade {directory}` first.")
    text = io.StringIO()
    csv.writer(text).writerows(_canvas(points, maxima) if platform == "canvas" else _moodle(points, maxima))
    try:
        write(path, text.getvalue().encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise CourseError(f"{path} cannot be written ({error.strerror}): name another file.") from None
    if partial:
        print(f"Left out, as it was graded in part: {', '.join(partial)}.")
    print(f"Points for {platform.capitalize()}: {path}")


Points = dict[str, dict[str, float]]  # learner → lab → points


def _points(path: Path) -> tuple[Points, dict[str, float], list[str]]:
    """The points in grades.csv, the most that each lab has, and "learner (lab)" of what was graded in part."""
    groups: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in table(path):
        if row["assignment"]:
            groups.setdefault((row["learner"], row["assignment"]), []).append(row)
    points: Points = {}
    maxima: dict[str, float] = {}
    partial = []
    for (learner, lab), rows in sorted(groups.items()):
        labs = points.setdefault(learner, {})
        if all(row["score"] for row in rows):
            labs[lab] = sum(float(row["score"]) for row in rows)
            maxima[lab] = max(maxima.get(lab, 0.0), sum(float(row["max_score"]) for row in rows))
        else:
            partial.append(f"{learner} ({lab})")
    return points, maxima, partial


def _canvas(points: Points, maxima: dict[str, float]) -> list[list[str]]:
    who = ["Student", "ID", "SIS Login ID", "Section"]
    most = ["    Points Possible", "", "", "", *(f"{maxima[lab]:g}" for lab in sorted(maxima))]
    rows = [[learner, "", learner, "", *_cells(labs, maxima)] for learner, labs in points.items()]
    return [[*who, *sorted(maxima)], most, *rows]


def _moodle(points: Points, maxima: dict[str, float]) -> list[list[str]]:
    who = "Email address" if all("@" in learner for learner in points) else "Username"
    return [[who, *sorted(maxima)], *([learner, *_cells(labs, maxima)] for learner, labs in points.items())]


def _cells(labs: dict[str, float], maxima: dict[str, float]) -> list[str]:
    return [f"{labs[lab]:g}" if lab in labs else "" for lab in sorted(maxima)]
