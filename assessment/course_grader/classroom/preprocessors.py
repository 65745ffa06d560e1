"""Our steps within nbgrader's pipeline: scores that fail closed, feedback that keeps hidden tests hidden."""

from __future__ import annotations

import json
import math
import re

from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader.preprocessors import ClearHiddenTests, NbGraderPreprocessor
from nbgrader.utils import is_grade

from course_lib.authoring import masters

LOOK = "Needs a look"  # how the reason begins where a person has to look at what a learner wrote
_TOO_LONG = "The test took too long."
_ENDINGS = {
    "CellTimeoutError": _TOO_LONG,
    "KeyboardInterrupt": _TOO_LONG,
    "TimeoutError": _TOO_LONG,
    "DeadKernelError": "Its process ended before the test did: out of memory, or the cell ended it.",
}
_NUMBER = re.compile(r"-?\d+(\.\d*)?(e[+-]?\d+)?")


class StrictScores(NbGraderPreprocessor):
    """Leaves nbgrader nothing to guess: a test cell has one number in [0, points], or an error.

    nbgrader alone gives full marks to a test without a number, and none where a framework wrote a warning.
    The reason for lost points, and whether the test gave a score at all, stay in the cell's metadata. Where a script
    is graded, an error of a test is a fault of the grader, and so is no score.
    """

    script: bool = False  # set by whoever uses the class

    def preprocess_cell(
        self, cell: NotebookNode, resources: ResourcesDict, index: int
    ) -> tuple[NotebookNode, ResourcesDict]:
        """Called by nbconvert for every cell, after execution."""
        if is_grade(cell):
            points = float(cell.metadata.nbgrader["points"])
            score, reason = judge(cell.outputs, points)
            errors = [out.evalue for out in cell.outputs if out.output_type == "error"]
            if self.script and errors and not reason.startswith(LOOK):
                score, reason = None, errors[0]
            cell.metadata["course"] = {"sound": score is not None, "reason": reason}
            kept = ("error", "display_data") if self.script else ("error",)
            keep = [out for out in cell.outputs if out.output_type in kept or out.get("name") == "stdout"]
            result = new_output("execute_result", {"text/plain": repr(score or 0.0)}, execution_count=0)
            cell.outputs = [*keep, result]
        return cell, resources


def judge(outputs: list[NotebookNode], points: float) -> tuple[float | None, str]:
    """Score in [0, points], and why it is not full; score None where the test gave no number."""
    said = " ".join("".join(out.text for out in outputs if out.get("name") == "stdout").split())[:500]
    errors = [out for out in outputs if out.output_type == "error"]
    if errors:
        if errors[0].ename == "NeedsALook":
            return None, _ended_in(errors[0])
        if errors[0].ename == "NotJudged":
            return None, errors[0].evalue
        ending = _ENDINGS.get(errors[0].ename, _ended_in(errors[0]))
        return 0.0, f"{said} {ending}".strip()
    results = [out.data.get("text/plain", "") for out in outputs if out.output_type == "execute_result"]
    if len(results) != 1 or not _NUMBER.fullmatch(results[0]) or not math.isfinite(float(results[0])):
        return None, "The test gave no score."
    score = min(max(float(results[0]), 0.0), points)
    return score, said if score < points else ""


def _ended_in(error: NotebookNode) -> str:
    """What is said of a test's error: its name, or what a person has to look at first."""
    return f"{LOOK}: {error.evalue}." if error.ename == "NeedsALook" else f"The test ended in {error.ename}."


class HideHiddenTests(ClearHiddenTests):
    """Feedback pages show a hidden test's result and what it printed, never its code.

    Its traceback would show that code; so might the outputs of a cell that looks for it.
    """

    master: masters.Master  # set by whoever uses the class

    def preprocess_cell(
        self, cell: NotebookNode, resources: ResourcesDict, index: int
    ) -> tuple[NotebookNode, ResourcesDict]:
        """Called by nbconvert for every cell, before the page is made."""
        cell, resources = super().preprocess_cell(cell, resources, index)
        if cell.cell_type == "code":
            cell.outputs = [self._neutral(output, is_grade(cell)) for output in cell.outputs]
        return cell, resources

    def _neutral(self, output: NotebookNode, of_test: bool) -> NotebookNode:
        if of_test and output.output_type == "error":
            output = new_output("stream", name="stdout", text=f"{_ended_in(output)}\n")
        plain = re.sub(r"\\u001b\[[\d;]*m", "", json.dumps(output))
        if masters.leaks(self.master, [plain], kinds=["hidden"]):
            return new_output("stream", name="stdout", text="(not shown: this output held a part of a test)\n")
        return output
