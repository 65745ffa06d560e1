"""Add the scores that an instructor set by hand to the learners' feedback pages."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from course_grader.classroom import runner
from course_grader.classroom.submissions import Submission
from course_lib.system.files import write

_NOTE = re.compile(r"<!-- by hand -->.*?<!-- end -->", re.DOTALL)
_BODY = re.compile(r"<body[^>]*>")
_STYLE = "margin: 1em; padding: 1em; border: 2px solid #2a6f97; font-family: sans-serif"


def note_scores_by_hand(
    graded: list[tuple[Submission, dict[str, Any]]], rows: list[dict[str, Any]], results: Path
) -> None:
    """Write a note on the scores that were set by hand, and on the total, at the top of each feedback page.

    `rows` are the rows of grades.csv. The note of an earlier run is replaced.
    """
    for submission, _ in graded:
        page = results / runner.pages(submission)[0] if submission.master else None
        if page is None or not page.exists():
            continue
        place = (submission.learner, submission.assignment, submission.notebook)
        note = _note([row for row in rows if (row["learner"], row["assignment"], row["notebook"]) == place])
        before = page.read_text(encoding="utf-8")
        without = _NOTE.sub("", before)
        start = body.end() if (body := _BODY.search(without)) else 0
        after = without[:start] + note + without[start:]
        if after != before:
            write(page, after.encode())


def _note(rows: list[dict[str, Any]]) -> str:
    by_hand = [row for row in rows if row.get("by_hand")]  # the row of an ungraded notebook has no such entry
    if not by_hand:
        return ""
    scores = ", ".join(f"{row['exercise']} {row['score']:g} of {row['max_score']:g}" for row in by_hand)
    total = f"{sum(row['score'] or 0 for row in rows):g} of {sum(row['max_score'] for row in rows):g}"
    text = html.escape(f"Your instructor set these scores by hand: {scores}. Your total is {total} points.")
    return f'<!-- by hand --><div style="{_STYLE}">{text}</div><!-- end -->'
