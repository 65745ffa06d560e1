"""What the notebooks of lab 6 import: checks, figures, and helpers that one lab alone needs."""
