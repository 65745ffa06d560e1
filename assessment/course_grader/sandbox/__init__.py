"""A place for other people's code (`sandbox`), what bubblewrap runs there, what is seen of it from outside."""

from course_grader.sandbox.sandbox import Sandbox

__all__ = ["Sandbox"]
