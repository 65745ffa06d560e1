"""Store in the workspace which checks a learner has passed and how far off the guesses were. Nothing is sent.

Kernels load this module as an extension of IPython (see `jupyter.environment`). It does nothing outside a workspace,
for example where a notebook is graded or tested.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from course_lib.authoring import released, ways, welcome
from course_lib.notebook import predictions
from course_lib.notebook.report import Report
from course_lib.system.files import write

if TYPE_CHECKING:
    from IPython.core.interactiveshell import ExecutionResult, InteractiveShell

SESSION = "JPY_SESSION_NAME"  # Jupyter's server sets it to the path of a kernel's notebook


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Record the progress in the notebook of this shell, if it is in a workspace; IPython calls this."""
    notebook = Path(os.environ.get(SESSION, ""))
    workspace = welcome.workspace_of(notebook)
    if notebook.suffix == ".ipynb" and workspace:
        shell.events.register("post_run_cell", Follower(workspace, ways.code_of(notebook.name)).end)


class Follower:
    """Records the progress in one notebook."""

    def __init__(self, workspace: Path, code: str) -> None:
        self._workspace = workspace
        self._file = workspace / welcome.PROGRESS / f"{code}.json"
        before = welcome.read_progress(workspace).get(code, welcome.Progress())
        self._passed, self._guesses = set(before.passed), dict(before.guesses)

    def end(self, result: ExecutionResult) -> None:
        """After a cell: store a passed check and the measured guesses."""
        before = set(self._passed), dict(self._guesses)
        if isinstance(result.result, Report) and result.result.passed:
            self._passed |= set(welcome.checks(result.info.raw_cell))
        self._guesses.update(predictions.off())
        if (self._passed, self._guesses) != before:
            with contextlib.suppress(OSError):  # for example a full disk: an error here would not help the learner
                self._write()

    def _write(self) -> None:
        content = {"passed": sorted(self._passed), "guesses": self._guesses}
        write(self._file, json.dumps(content, indent=1).encode())
        welcome.write_page(self._workspace, released.course_files())
