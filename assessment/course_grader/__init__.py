"""Judging a script by what it does: evidence, criteria."""
