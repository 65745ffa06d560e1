"""Grading a class: submissions, exercises in notebooks, gradebook, leaderboard, similar scripts."""
