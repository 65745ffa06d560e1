"""The names of the course's environment variables. docs/variables.md describes each of them."""

from __future__ import annotations

DATA_DIR = "COURSE_DATA_DIR"
SLICE = "COURSE_SLICE"
TENSORFLOW = "COURSE_TENSORFLOW"
REMOTE_SHELL = "COURSE_REMOTE_SHELL"
PROFILE = "COURSE_PROFILE"
ADDRESS = "COURSE_ADDRESS"
CHECK = "COURSE_CHECK"
SLOTS = "COURSE_SLOTS"
WEIGHTS = "COURSE_WEIGHTS"
GRADING = "COURSE_GRADING"
