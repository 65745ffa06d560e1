"""Grade one prepared submission with nbgrader, in a process of its own: `python -m … FOLDER MASTER`.

FOLDER is an nbgrader course with one assignment, one notebook and one learner (see `grading`). The result is
FOLDER/result.json: {"exercises": {cell: {score, max_score, reason, sound}}, "comments": {cell: text}}
"""

from __future__ import annotations

import json
import logging
import sys
import time
from pathlib import Path
from typing import Any

from nbconvert.preprocessors import CSSHTMLHeaderPreprocessor
from nbgrader.api import Gradebook
from nbgrader.converters import Autograde, GenerateFeedback
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import CheckCellMetadata, Execute, GetGrades, LimitOutput, SaveAutoGrades

from course_lib.classroom import masters
from course_lib.classroom.grading import LEARNER
from course_lib.classroom.preprocessors import Discreet, StrictScores

NOTEBOOK_LIMIT = 1200  # seconds for all cells of a notebook together
CELL_LIMIT = 600


def grade(folder: Path, master: masters.Master) -> dict[str, Any]:
    """Run nbgrader's autograde and feedback steps in `folder`; return the result."""
    assignment, notebook = master.assignment, master.path.stem
    Discreet.master = master
    deadline = time.monotonic() + NOTEBOOK_LIMIT
    config = masters.nbgrader_config()
    config.Execute.timeout_func = lambda cell: max(1, min(CELL_LIMIT, int(deadline - time.monotonic())))
    config.Execute.startup_timeout = config.Execute.iopub_timeout = 120  # the machine may be busy
    config.Autograde.autograde_preprocessors = [
        Execute,
        StrictScores,
        LimitOutput,
        SaveAutoGrades,
        CheckCellMetadata,
    ]
    config.GenerateFeedback.preprocessors = [GetGrades, Discreet, CSSHTMLHeaderPreprocessor]
    coursedir = CourseDirectory(root=str(folder), assignment_id=assignment, student_id=LEARNER, config=config)
    for step in (Autograde, GenerateFeedback):
        step(coursedir=coursedir, config=config).start()
    graded = json.loads((folder / "autograded" / LEARNER / assignment / f"{notebook}.ipynb").read_text())
    said = {cell["id"]: cell["metadata"].get("course") for cell in graded["cells"]}
    with Gradebook(coursedir.db_url) as book:
        submission = book.find_submission_notebook(notebook, assignment, LEARNER)
        return {
            "exercises": {
                grade.name: {"score": grade.auto_score, "max_score": grade.max_score, **said[grade.name]}
                for grade in submission.grades
            },
            "comments": {comment.name: comment.auto_comment for comment in submission.comments},
        }


if __name__ == "__main__":
    logging.basicConfig()  # nbgrader says in its log alone what went wrong
    where = Path(sys.argv[1])
    result = grade(where, masters.read(Path(sys.argv[2])))
    (where / "result.json").write_text(json.dumps(result))
