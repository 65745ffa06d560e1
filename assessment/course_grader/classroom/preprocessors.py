"""The course's steps in nbgrader's pipeline: strict scores, and feedback without the code of hidden tests."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode, from_dict
from nbformat.v4 import new_output
from nbgrader.preprocessors import ClearHiddenTests, NbGraderPreprocessor
from nbgrader.utils import is_grade

from course_grader.classroom.exercise_process import NOT_JUDGED
from course_lib.authoring import masters

LOOK = "Needs review"  # start of the reason if a person has to read a learner's code
NOT_GRADED = "Could not be graded: "  # start of the reason if the course, not the learner, failed
_TOO_LONG = "The test took too long."
_ENDINGS = {
    "CellTimeoutError": _TOO_LONG,
    "KeyboardInterrupt": _TOO_LONG,
    "TimeoutError": _TOO_LONG,
    "DeadKernelError": "The process ended before the test: it ran out of memory, or the cell ended it.",
}
_NUMBER = re.compile(r"-?\d+(\.\d*)?(e[+-]?\d+)?")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")  # in tracebacks
_SENTENCES = ("CannotGrade", "CourseError", "Stopped", "DeadKernelError")  # errors whose message is a sentence
_LINE = re.compile(r" \(line \d+ of [^()]*\)$")  # at the end of the message of an error in a learner's cell


class Outputs(NbGraderPreprocessor):
    """Puts the given outputs of each test into its cell. No cell of the notebook is run."""

    def __init__(self, outputs: Mapping[str, list[dict[str, Any]]]) -> None:
        super().__init__()
        self._outputs = outputs

    def preprocess_cell(
        self, cell: NotebookNode, resources: ResourcesDict, index: int
    ) -> tuple[NotebookNode, ResourcesDict]:
        """Set the outputs of a test's cell. nbconvert calls this method for every cell."""
        if is_grade(cell):
            cell.outputs = [from_dict(output) for output in self._outputs[cell.id]]
        return cell, resources


class StrictScores(NbGraderPreprocessor):
    """Gives each test cell one number in [0, points].

    Without this step nbgrader gives full marks to a test without a number, and none if a framework wrote a warning.
    The cell's metadata get the reason for lost points, whether the test gave a score, and the traceback of an error of
    the course. If a script is graded, an error of a test is an error of the grader, so the test has no score.
    """

    def __init__(self, script: bool) -> None:
        super().__init__()
        self._script = script

    def preprocess_cell(
        self, cell: NotebookNode, resources: ResourcesDict, index: int
    ) -> tuple[NotebookNode, ResourcesDict]:
        """Score a test's cell. nbconvert calls this method for every cell, after execution."""
        if is_grade(cell):
            points = float(cell.metadata.nbgrader["points"])
            score, reason = judge(cell.outputs, points)
            errors = [out for out in cell.outputs if out.output_type == "error"]
            if self._script and errors and not reason.startswith(LOOK):
                failed = f"The grader failed ({errors[0].ename}: {errors[0].evalue})."
                score, reason = None, errors[0].evalue if errors[0].ename in _SENTENCES else failed
            lines = errors[0].traceback if errors and score is None and not reason.startswith(LOOK) else []
            fault = _COLOUR.sub("", "\n".join(line.rstrip("\n") for line in lines))
            cell.metadata["course"] = {"sound": score is not None, "reason": reason, "fault": fault}
            types = ("error", "display_data") if self._script else ("error",)
            outputs = [out for out in cell.outputs if out.output_type in types or out.get("name") == "stdout"]
            result = new_output("execute_result", {"text/plain": repr(score or 0.0)}, execution_count=0)
            cell.outputs = [*outputs, result]
        return cell, resources


def judge(outputs: list[NotebookNode], points: float) -> tuple[float | None, str]:
    """Return the score in [0, points] and the reason for lost points; the score is None if the test gave no number."""
    printed = " ".join("".join(out.text for out in outputs if out.get("name") == "stdout").split())[:500]
    errors = [out for out in outputs if out.output_type == "error"]
    if errors:
        if errors[0].ename == "NeedsALook":
            return None, f"{LOOK}: {errors[0].evalue}."
        if errors[0].ename == NOT_JUDGED:
            return None, NOT_GRADED + errors[0].evalue
        ending = f"{errors[0].evalue}." if errors[0].evalue else f"The test ended in {errors[0].ename}."
        return 0.0, f"{printed} {_ENDINGS.get(errors[0].ename, ending)}".strip()
    results = [out.data.get("text/plain", "") for out in outputs if out.output_type == "execute_result"]
    if len(results) != 1 or not _NUMBER.fullmatch(results[0]) or not math.isfinite(float(results[0])):
        return None, "The test gave no score."
    score = min(max(float(results[0]), 0.0), points)
    return score, printed if score < points else ""


class HideHiddenTests(ClearHiddenTests):
    """Removes the code of hidden tests from feedback pages, which show a test's result and what it printed.

    A test's traceback would show its code, and so might the outputs of a cell that searches for it. Of an error the
    page shows the type and the line in the learner's cell, or the reason why the exercise could not be graded.
    """

    def __init__(self, master: masters.Master) -> None:
        super().__init__()
        self._master = master

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        """Called by nbconvert for every notebook. If a script is graded, the page only has its report."""
        if self._master.script:
            nb.cells = [cell for cell in nb.cells if is_grade(cell)]
        return super().preprocess(nb, resources)

    def preprocess_cell(
        self, cell: NotebookNode, resources: ResourcesDict, index: int
    ) -> tuple[NotebookNode, ResourcesDict]:
        """Clean a cell's outputs. nbconvert calls this method for every cell, before it makes the page."""
        cell, resources = super().preprocess_cell(cell, resources, index)
        if cell.cell_type == "code":
            cell.outputs = [self._neutral(output, is_grade(cell)) for output in cell.outputs]
        return cell, resources

    def _neutral(self, output: NotebookNode, of_test: bool) -> NotebookNode:
        """Return an output without the code of a hidden test."""
        if of_test and output.output_type == "error":
            line = _LINE.search(output.evalue)
            ending = f"The test ended in {output.ename}{line[0] if line else ''}."
            if output.ename == NOT_JUDGED:
                ending = f"Could not be graded, so there is no mark: {output.evalue}"
            elif output.ename == "NeedsALook":
                ending = f"{LOOK}: {output.evalue}."
            output = new_output("stream", name="stdout", text=f"{ending}\n")
        plain = re.sub(r"\\u001b\[[\d;]*m", "", json.dumps(output))
        if masters.leaks(self._master, [plain], kinds=["hidden"]):
            return new_output("stream", name="stdout", text="(not shown: this output contains part of a test)\n")
        return output
