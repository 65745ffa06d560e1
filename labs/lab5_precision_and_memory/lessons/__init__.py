"""What the notebooks of lab 5 import: checks, figures, and helpers that one lab alone needs."""
