"""What the notebooks of lab 4 import: checks, figures, and helpers that one lab alone needs."""
