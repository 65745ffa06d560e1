"""A module that is not there."""
#: plain
#: - from course_lib import data, models
#: + from course_lib import data, modells
