"""Replace the traceback of a cell by one sentence if the cell fails because of an earlier cell.

There are three cases:

- a skipped exercise: its stub raises NotImplementedError wherever it is called, also on a rank;
- the record of a failed run: reading it raises CourseError (see `ranks.run.Result.check`);
- a name that a failed cell would have defined: Python only reports a NameError or, for example, a KeyError.

Kernels load this module as an extension of IPython (see `jupyter.environment`).
"""

from __future__ import annotations

import re
import symtable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from course_lib.notebook.judging import described
from course_lib.ranks.messages.known_errors import hint
from course_lib.system.errors import CourseError

if TYPE_CHECKING:
    from IPython.core.interactiveshell import ExecutionInfo, ExecutionResult, InteractiveShell

_STUB = re.compile(r"`(\w+)` is not written yet")  # the text of a stub from `authoring.masters`, also in other errors
_UNDEFINED = re.compile(r"name '(\w+)' is not defined")


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Register `CellErrors` for the notebook of this shell; IPython calls this."""
    errors = CellErrors(shell)
    shell.set_custom_exc((Exception,), errors.show)
    shell.events.register("pre_run_cell", errors.begin)
    shell.events.register("post_run_cell", errors.end)


@dataclass(frozen=True)
class Cause:
    """The cause of a failed cell: the name of a `stub` that it uses, or a `sentence`."""

    stub: str = ""
    sentence: str = ""


@dataclass(frozen=True)
class Names:
    """The names that a cell defines at its top level, and the global names that it uses, also in functions."""

    defined: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()


class CellErrors:
    """The errors of one notebook: their causes, and the names that are missing because of them."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._names = Names()  # of the running cell
        self._missing: dict[str, Cause] = {}  # name → why the cell that defines it failed

    def begin(self, info: ExecutionInfo) -> None:
        """Before a cell: record its names."""
        self._names = names(self._shell.transform_cell(info.raw_cell))

    def end(self, result: ExecutionResult) -> None:
        """After a cell: if it failed, record its names as missing, with the cause; else as defined."""
        for name in self._names.defined:
            self._missing.pop(name, None)
        if error := result.error_in_exec:
            cause = self._cause(error) or Cause(sentence=described(error))
            self._missing.update(dict.fromkeys(self._names.defined, cause))

    def show(
        self,
        shell: InteractiveShell,
        kind: type[Exception],
        error: Exception,
        frames: TracebackType | None,
        tb_offset: int | None = None,
    ) -> None:
        """Show an error as IPython does, or only its sentence if there is one."""
        if sentence := self.sentence(error):
            error._render_traceback_ = lambda: [sentence]  # type: ignore[attr-defined]  # IPython asks for it
        shell.showtraceback((kind, error, frames), tb_offset=tb_offset, running_compiled_code=True)

    def sentence(self, error: Exception) -> str:
        """The cause of an error in one sentence; "" if it is unknown, so that the traceback is shown."""
        if cause := _own_cause(error):
            return f"Solve `{cause.stub}` first: this cell uses it." if cause.stub else cause.sentence
        if not (name := self._missing_name(error)):
            return ""
        cause = self._missing[name]
        if cause.stub:
            return f"Solve `{cause.stub}` first: `{name}`, which this cell uses, needs it."
        return f"This cell uses `{name}`, and the cell that defines it failed: {cause.sentence}"

    def _cause(self, error: Exception) -> Cause | None:
        return _own_cause(error) or self._missing.get(self._missing_name(error))

    def _missing_name(self, error: Exception) -> str:
        """The name that is missing in the failed cell; "" if no missing name is known."""
        undefined = _UNDEFINED.search(str(error)) if isinstance(error, NameError) else None
        candidates = [undefined[1]] if undefined else sorted(self._names.used)
        return next((name for name in candidates if name in self._missing), "")


def _own_cause(error: Exception) -> Cause | None:
    """The cause that an error itself states; None if it is not one of the known kinds."""
    if stub := _STUB.search(str(error)):
        return Cause(stub=stub[1])
    if isinstance(error, CourseError):
        return Cause(sentence=str(error))
    if type(error).__module__.startswith("tensorflow.") and (advice := hint(str(error).splitlines())):
        return Cause(sentence=advice)
    return None


def names(code: str) -> Names:
    """The names in the code of a cell; empty if the code is not valid Python."""
    try:
        tables = [symtable.symtable(code, "cell", "exec")]
    except (SyntaxError, ValueError):
        return Names()
    defined = frozenset(
        symbol.get_name() for symbol in tables[0].get_symbols() if symbol.is_assigned() or symbol.is_imported()
    )
    used = set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        used |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()}
    return Names(defined, frozenset(used) - defined)
