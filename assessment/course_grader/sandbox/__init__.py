"""The sandbox for other people's code: its rules (`bubblewrap`, `seccomp`), and its monitoring from outside."""

from course_grader.sandbox.sandbox import Sandbox

__all__ = ["Sandbox"]
