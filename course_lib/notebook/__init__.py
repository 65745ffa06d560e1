"""Tools for notebooks: exercises and their checks, guesses, figures, widgets, recorded experiments."""
