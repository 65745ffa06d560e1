"""The exception whose message users read, and the last line of a process's output for such messages."""

from __future__ import annotations


class CourseError(Exception):
    """A problem that the user can fix.

    Args:
        sentence: one sentence that says what to do.
        code: exit code of the command.
    """

    def __init__(self, sentence: str, code: int = 1) -> None:
        super().__init__(sentence)
        self.code = code

    def _render_traceback_(self) -> list[str]:
        """IPython calls this method: a notebook shows the sentence instead of a traceback."""
        return [str(self)]


def last_line(output: str, otherwise: str = "no reason given") -> str:
    """The last line of a process's output, usually the reason of its failure; `otherwise` if there is no output."""
    return (output.strip().splitlines() or [otherwise])[-1]
