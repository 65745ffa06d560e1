"""What the notebooks of lab 1 import: checks, figures, and helpers that one lab alone needs."""
