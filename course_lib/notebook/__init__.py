"""What notebooks use: exercises and their checks, guesses, figures, widgets, recorded experiments."""
