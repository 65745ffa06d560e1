"""Grade one prepared submission with nbgrader, in its own process: `python -m … FOLDER MASTER EXTRA`.

FOLDER is an nbgrader course with one assignment, one notebook and one learner (see `runner`). The result is
FOLDER/result.json: {"exercises": {cell: {score, max_score, reason, sound, fault}}, "comments": {cell: text}}, or
{"problem": sentence, "fault": traceback} if the grader could not grade a script.
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

from course_grader.classroom import exercise_runner
from course_grader.classroom.learners_notebook import LearnersNotebook
from course_grader.classroom.preprocessors import LOOK, HideHiddenTests, Outputs, StrictScores
from course_grader.classroom.runner import HANDED_IN, LEARNER
from course_lib.authoring import masters

NOTEBOOK_TIME_LIMIT_S = 1200  # for all cells of a notebook together
CELL_TIME_LIMIT_S = 600


def grade(folder: Path, master: masters.Master, extra: float = 0.0) -> dict[str, Any]:
    """Run the exercises, then nbgrader's autograde and feedback steps in `folder`; return the result.

    Exercises run outside of any notebook (see `exercise_runner`). For a script, nbgrader runs the tests only: they
    contain no learner's code, and the script has its own sandbox. `extra`: seconds that a script may take in addition
    to a notebook's time limit.
    """
    assignment, notebook = master.assignment, master.path.stem
    deadline = time.monotonic() + NOTEBOOK_TIME_LIMIT_S + extra
    config = masters.nbgrader_config()
    config.Execute.timeout_func = lambda cell: max(1, int(min(CELL_TIME_LIMIT_S + extra, deadline - time.monotonic())))
    config.Execute.startup_timeout = config.Execute.iopub_timeout = 120  # the machine may be busy
    coursedir = CourseDirectory(root=str(folder), assignment_id=assignment, student_id=LEARNER, config=config)
    autograde = Autograde(coursedir=coursedir, config=config)
    run = Execute if master.script else Outputs(_outputs(folder, master))
    steps = [run, StrictScores(bool(master.script)), LimitOutput, SaveAutoGrades, CheckCellMetadata]
    autograde.autograde_preprocessors = steps
    autograde.start()
    graded = json.loads((folder / "autograded" / LEARNER / assignment / f"{notebook}.ipynb").read_text())
    about = {cell["id"]: entry for cell in graded["cells"] if (entry := cell["metadata"].get("course"))}
    faults = [entry for entry in about.values() if not entry["sound"] and not entry["reason"].startswith(LOOK)]
    if master.script and faults:  # the notebook runs no learner's code, so it is not the learner's fault
        return {"problem": faults[0]["reason"], "fault": faults[0]["fault"]}
    feedback = GenerateFeedback(coursedir=coursedir, config=config)
    feedback.preprocessors = [GetGrades, HideHiddenTests(master), CSSHTMLHeaderPreprocessor]
    feedback.start()
    with Gradebook(coursedir.db_url) as book:
        submission = book.find_submission_notebook(notebook, assignment, LEARNER)
        return {
            "exercises": {
                grade.name: {"score": grade.auto_score, "max_score": grade.max_score, **about[grade.name]}
                for grade in submission.grades
            },
            "comments": {comment.name: comment.auto_comment for comment in submission.comments},
        }


def _outputs(folder: Path, master: masters.Master) -> dict[str, list[dict[str, Any]]]:
    notebook = LearnersNotebook(**json.loads((folder / HANDED_IN).read_text()))
    files = folder / "submitted" / LEARNER / master.assignment
    return exercise_runner.run(notebook, master, files, CELL_TIME_LIMIT_S, NOTEBOOK_TIME_LIMIT_S)


if __name__ == "__main__":
    logging.basicConfig()  # nbgrader reports problems in its log only
    course = Path(sys.argv[1])
    result = grade(course, masters.read(Path(sys.argv[2])), float(sys.argv[3]))
    (course / "result.json").write_text(json.dumps(result))
