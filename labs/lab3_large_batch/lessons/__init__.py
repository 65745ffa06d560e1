"""What the notebooks of lab 3 import: checks, figures, and helpers that one lab alone needs."""
