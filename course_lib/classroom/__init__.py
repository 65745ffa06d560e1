"""The classroom: masters → notebooks, the learner's lab, grading a class."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # the course's own folder, with labs/ and assessment/
