"""`course test`: run the quick tests, all tests, or those that pytest's arguments select."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from course_lib.system.paths import ROOT

LONG = ("slow", "ranks", "notebook", "browser", "container", "alone")  # markers of tests that are not quick
INTERRUPTED, NOTHING_COLLECTED = 2, 5  # exit codes of pytest


def run(arguments: Sequence[str] = (), everything: bool = False) -> int:
    """Run tests with as many workers as cores; return pytest's first exit code that is not 0.

    Args:
        arguments: for pytest. Without a path, `-m` or `-k` in them, the quick tests run.
        everything: run all tests: first in parallel those that allow it, then, one at a time, those marked `alone`.
    """
    workers = ["-n", "logical"]
    if everything:
        rounds = [["-m", "not alone", *workers], ["-m", "alone"]]
    elif _choose(arguments):
        rounds = [[]]
    else:
        rounds = [["-m", f"not ({' or '.join(LONG)})", *workers]]
    codes = []
    for options in rounds:
        codes.append(_pytest([*options, *arguments]))
        if codes[-1] == INTERRUPTED:
            break
    if not everything and not _choose(arguments):
        print(f"Skipped the tests marked {', '.join(LONG)}. `course test --all` runs all tests, in over an hour.")
    return next((code for code in codes if code not in (0, NOTHING_COLLECTED)), min(codes))


def _choose(arguments: Sequence[str]) -> bool:
    """Whether pytest's arguments select tests."""
    return any(text[:2] in ("-m", "-k") or (ROOT / text.partition("::")[0]).exists() for text in arguments)


def _pytest(arguments: Sequence[str]) -> int:
    with subprocess.Popen([sys.executable, "-m", "pytest", *arguments], cwd=ROOT) as process:
        while True:
            try:
                return process.wait()
            except KeyboardInterrupt:
                continue  # pytest also gets the interrupt, ends by itself, and reports the tests so far
