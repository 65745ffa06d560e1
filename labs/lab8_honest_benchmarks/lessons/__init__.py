"""What the notebooks of lab 8 import: checks, figures, and helpers that one lab alone needs."""
