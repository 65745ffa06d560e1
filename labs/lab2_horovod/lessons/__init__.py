"""What the notebooks of lab 2 import: checks, figures, and helpers that one lab alone needs."""
