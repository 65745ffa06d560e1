"""What the notebooks of lab 7 import: checks, figures, and helpers that one lab alone needs."""
