"""The grader: it runs learners' scripts and exercises, and gives them points."""
