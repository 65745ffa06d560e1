"""The one exception that users are meant to read, and the words that it often quotes."""

from __future__ import annotations


class CourseError(Exception):
    """A problem that the user can fix: one sentence that says what to do, and the exit code of the command."""

    def __init__(self, sentence: str, code: int = 1) -> None:
        super().__init__(sentence)
        self.code = code

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows in place of a traceback (IPython asks for it)."""
        return [str(self)]


def last_line(output: str, otherwise: str = "no reason given") -> str:
    """The last line of what a process printed, mostly the reason of its end; `otherwise` where it printed nothing."""
    return (output.strip().splitlines() or [otherwise])[-1]
