"""The classroom: masters → notebooks, the learner's lab, grading a class."""
