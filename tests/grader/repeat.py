"""Grade the scripts of the corpus several times, on a host on which nothing else computes.

    python tests/grader/repeat.py [--times 3] [--profile short|cpu] [--only honest conversion] [--out repeat.csv]

Prints a line for each grading, and writes a CSV with a row for each: script, run, in what it differs from marks.toml,
points by criterion, and what the host measured. Rates of false accusations are counted from it.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from course_grader.script import criteria, grader
from course_grader.script.outcome import CannotGrade, Outcome
from course_lib.notebook.judging import judge
from tests.grader import conftest

COLUMNS = (
    *("script", "run", "profile", "differs", "passed", "look", "score", *criteria.IDS, "seconds"),
    *("train_accuracy", "test_accuracy", "cpu_ratio", "bytes", "margins", "lost"),
)


def main() -> None:
    """Grade, print, write."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--times", type=int, default=3)
    arguments.add_argument("--profile", choices=("short", "cpu"), default="short")
    arguments.add_argument("--only", nargs="*", default=[""], help="how KIND/NAME begins: honest, dishonest/one_rank …")
    arguments.add_argument("--out", type=Path, default=Path("repeat.csv"))
    args = arguments.parse_args()
    chosen = {name: marks for name, marks in conftest.all_marks().items() if name.startswith(tuple(args.only))}
    with args.out.open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        for run in range(1, args.times + 1):
            for name, marks in chosen.items():
                row = {"script": name, "run": run, **graded(name, marks, args.profile)}
                table.writerow(row)
                file.flush()
                shown = (f"{key}={value}" for key, value in row.items() if key not in criteria.IDS)
                print(*shown, sep="  ", flush=True)


def graded(name: str, marks: dict[str, Any], profile: str) -> dict[str, Any]:
    """Grade a script once; its row in the table, but for script and run."""
    profile, asked = conftest.terms(marks, profile)
    seen: list[criteria.Measured] = []

    def noted(measured: criteria.Measured, asked: list) -> list:
        seen.append(measured)
        return judge(measured, asked)

    grader.judge = noted  # the outcome does not say what the host measured
    with tempfile.TemporaryDirectory() as folder:
        try:
            outcome = grader.assess(conftest.write(name, Path(folder)), profile=profile, contract=asked)
        except CannotGrade as error:
            return {"profile": profile, "differs": "could not be graded", "lost": str(error)}
    differs = "; ".join(conftest.differences(outcome, name, marks))
    return {"profile": profile, "differs": differs, **_outcome(outcome), **(_measured(seen[-1]) if seen else {})}


def _outcome(outcome: Outcome) -> dict[str, Any]:
    lost = [f"{one.id}: {one.reason}" for one in outcome.verdicts if one.points < one.max_points]
    return {
        "passed": outcome.passed,
        "look": "; ".join(outcome.look),
        "score": outcome.score,
        **{verdict.id: verdict.points for verdict in outcome.verdicts},
        "seconds": outcome.seconds,
        "train_accuracy": outcome.train_accuracy,
        "test_accuracy": outcome.test_accuracy,
        "lost": " | ".join(lost),
    }


def _measured(measured: criteria.Measured) -> dict[str, Any]:
    used = measured.host.cpu_seconds()
    margins = [" ".join(f"{margin:.2f}" for margin in run) for run in measured.margins]
    return {
        "cpu_ratio": "" if used is None or not used.max() else round(float(used.min() / used.max()), 3),
        "bytes": measured.host.bytes,
        "margins": "; ".join(margins),
    }


if __name__ == "__main__":
    main()
