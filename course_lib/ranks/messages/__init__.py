"""What the ranks and the launcher say while a run goes on, and what follows from it."""
