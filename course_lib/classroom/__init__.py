"""The classroom: masters → notebooks, the learner's lab, grading a class."""

from course_lib.places import ROOT

__all__ = ["ROOT"]
