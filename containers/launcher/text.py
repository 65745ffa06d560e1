"""What the launcher prints and reads: notices, tables, commands for a shell, numbers."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Sequence

from course_lib.system.errors import CourseError

LINE_LENGTH = 110  # of a command on one line


def notice(sentence: str) -> None:
    """Print a sentence for the operator on standard error, beside the command's output."""
    print(sentence, file=sys.stderr)


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows of the same length, the first of them the titles, in aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def shell_command(command: Sequence[str]) -> str:
    """Return the command as a shell takes it; a long one has a line for each option."""
    arguments = [shlex.quote(argument) for argument in command]
    if len(" ".join(arguments)) <= LINE_LENGTH:
        return " ".join(arguments)
    new_line = " \\\n    "
    separated = (f"{new_line if argument[:2] == '--' else ' '}{argument}" for argument in arguments[:-1])
    return "".join(separated)[1:] + new_line + arguments[-1]


def plural(count: int, noun: str) -> str:
    """Return the count with its noun: 1 lab, 2 labs."""
    return f"{count} {noun}{'s' * (count != 1)}"


def comma_list(numbers: Iterable[int]) -> str:
    """Return the numbers as in 0,1,2."""
    return ",".join(map(str, numbers))


def ranges(numbers: Sequence[int]) -> str:
    """Return ascending numbers as in 0-3,8."""
    parts, rest = [], list(numbers)
    while rest:
        count = next((i for i in range(1, len(rest)) if rest[i] != rest[0] + i), len(rest))
        parts.append(f"{rest[0]}-{rest[count - 1]}" if count > 1 else f"{rest[0]}")
        rest = rest[count:]
    return ",".join(parts)


def whole_number(text: str, option: str, advice: str, least: int = 0, most: int = 10**6) -> int:
    """Return the number that `text` is. Raises CourseError (code 2), with `advice`, for anything else."""
    if not re.fullmatch(r"[0-9]{1,7}", text) or not least <= int(text) <= most:
        raise CourseError(f"{option} {text} is not valid: {advice}.", 2)
    return int(text)
