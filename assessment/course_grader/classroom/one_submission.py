"""Grade one prepared submission with nbgrader, in a process of its own: `python -m … FOLDER MASTER EXTRA`.

FOLDER is an nbgrader course with one assignment, one notebook and one learner (see `runner`). The result is
FOLDER/result.json: {"exercises": {cell: {score, max_score, reason, sound, fault}}, "comments": {cell: text}}, or
{"problem": sentence, "fault": traceback} where a script is graded and the grader could not do it.
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

    Exercises run outside of any notebook (see `exercise_runner`). Where a script is graded, the tests alone are run, by
    nbgrader: no code of the learner's is among them, and the script has a sandbox of its own. `extra` are the seconds
    that it may take beyond what a notebook has.
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
    said = {cell["id"]: about for cell in graded["cells"] if (about := cell["metadata"].get("course"))}
    faults = [one for one in said.values() if not one["sound"] and not one["reason"].startswith(LOOK)]
    if master.script and faults:  # no code of the learner runs in the notebook: it is not their fault
        return {"problem": faults[0]["reason"], "fault": faults[0]["fault"]}
    feedback = GenerateFeedback(coursedir=coursedir, config=config)
    feedback.preprocessors = [GetGrades, HideHiddenTests(master), CSSHTMLHeaderPreprocessor]
    feedback.start()
    with Gradebook(coursedir.db_url) as book:
        submission = book.find_submission_notebook(notebook, assignment, LEARNER)
        return {
            "exercises": {
                grade.name: {"score": grade.auto_score, "max_score": grade.max_score, **said[grade.name]}
                for grade in submission.grades
            },
            "comments": {comment.name: comment.auto_comment for comment in submission.comments},
        }


def _outputs(folder: Path, master: masters.Master) -> dict[str, list[dict[str, Any]]]:
    notebook = LearnersNotebook(**json.loads((folder / HANDED_IN).read_text()))
    files = folder / "submitted" / LEARNER / master.assignment
    return exercise_runner.run(notebook, master, files, CELL_TIME_LIMIT_S, NOTEBOOK_TIME_LIMIT_S)


if __name__ == "__main__":
    logging.basicConfig()  # nbgrader says in its log alone what went wrong
    where = Path(sys.argv[1])
    result = grade(where, masters.read(Path(sys.argv[2])), float(sys.argv[3]))
    (where / "result.json").write_text(json.dumps(result))
