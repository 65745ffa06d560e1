"""Keep in the workspace which checks a learner has passed and how far off the guesses were. Nothing leaves it.

Kernels load this module as an extension of IPython (see `jupyter.environment`). Outside of a workspace it does nothing,
so that nothing is kept where a notebook is graded or tested.
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

SESSION = "JPY_SESSION_NAME"  # Jupyter's server names a kernel's notebook in it


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Follow the cells of this shell, if its notebook is in a workspace."""
    notebook = Path(os.environ.get(SESSION, ""))
    workspace = next((folder for folder in notebook.parents if (folder / welcome.PROGRESS).parent.is_dir()), None)
    if notebook.suffix == ".ipynb" and workspace:
        shell.events.register("post_run_cell", Follower(workspace, ways.code_of(notebook.name)).end)


class Follower:
    """Keeps the progress of one notebook."""

    def __init__(self, workspace: Path, code: str) -> None:
        self._workspace = workspace
        self._file = workspace / welcome.PROGRESS / f"{code}.json"
        before = welcome.read_progress(workspace).get(code, welcome.Progress())
        self._passed, self._guesses = set(before.passed), dict(before.guesses)

    def end(self, result: ExecutionResult) -> None:
        """After a cell: keep the check that it has passed, and the guesses that were measured by now."""
        before = set(self._passed), dict(self._guesses)
        if isinstance(result.result, Report) and result.result.passed:
            self._passed |= set(welcome.checks(result.info.raw_cell))
        self._guesses.update(predictions.off())
        if (self._passed, self._guesses) != before:
            with contextlib.suppress(OSError):  # as where the disk is full: the learner has no use for an error here
                self._write()

    def _write(self) -> None:
        content = {"passed": sorted(self._passed), "guesses": self._guesses}
        write(self._file, json.dumps(content, indent=1).encode())
        text = welcome.page(released.course_files(), welcome.read_progress(self._workspace))
        write(self._workspace / welcome.NAME, text.encode())
