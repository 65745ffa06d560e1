"""The grader: it runs learners' scripts and exercises, and says what they are worth."""
