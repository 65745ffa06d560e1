"""What a notebook shows where a cell fails because something above it is missing: one sentence with the cause.

Three things can be missing, and each has its sentence in place of a traceback:

- an exercise that was skipped. Its stub raises NotImplementedError wherever it is used, on a rank too;
- the records of a run that failed: reading them raises CourseError (see `ranks.run.Result.check`);
- what a cell above defines: that cell failed, and Python says only that a name is not defined, or a key not there.

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

_STUB = re.compile(r"`(\w+)` is not written yet")  # as `authoring.masters` writes it, whatever has wrapped the error
_UNDEFINED = re.compile(r"name '(\w+)' is not defined")


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Let the notebook of this shell explain its errors."""
    errors = CellErrors(shell)
    shell.set_custom_exc((Exception,), errors.show)
    shell.events.register("pre_run_cell", errors.begin)
    shell.events.register("post_run_cell", errors.end)


@dataclass(frozen=True)
class Cause:
    """Why a cell failed: the name of a `stub` that it needs, else a `sentence`."""

    stub: str = ""
    sentence: str = ""


@dataclass(frozen=True)
class Names:
    """The names that a cell defines at its top level, and those of the notebook that it uses, in functions too."""

    defined: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()


class CellErrors:
    """The errors of one notebook: what caused them, and what is missing because of them."""

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._names = Names()  # of the cell that runs
        self._missing: dict[str, Cause] = {}  # name → why the cell that defines it failed

    def begin(self, info: ExecutionInfo) -> None:
        """Before a cell: note its names."""
        self._names = names(self._shell.transform_cell(info.raw_cell))

    def end(self, result: ExecutionResult) -> None:
        """After a cell: if it failed, what it defines is missing, and why; else it is there."""
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
        """Show an error as IPython does, or its sentence alone where it has one."""
        if sentence := self.sentence(error):
            error._render_traceback_ = lambda: [sentence]  # type: ignore[attr-defined]  # IPython asks for it
        shell.showtraceback((kind, error, frames), tb_offset=tb_offset, running_compiled_code=True)

    def sentence(self, error: Exception) -> str:
        """The cause of an error in one sentence; "" where the traceback says more."""
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
        """The name of what the cell that raised an error lacks; "" where it lacks nothing that is known."""
        undefined = _UNDEFINED.search(str(error)) if isinstance(error, NameError) else None
        candidates = [undefined[1]] if undefined else sorted(self._names.used)
        return next((name for name in candidates if name in self._missing), "")


def _own_cause(error: Exception) -> Cause | None:
    """What an error itself says of its cause, where that is a sentence."""
    if stub := _STUB.search(str(error)):
        return Cause(stub=stub[1])
    if isinstance(error, CourseError):
        return Cause(sentence=str(error))
    if type(error).__module__.startswith("tensorflow.") and (advice := hint(str(error).splitlines())):
        return Cause(sentence=advice)
    return None


def names(code: str) -> Names:
    """The names in the code of a cell; none where it is no Python."""
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
