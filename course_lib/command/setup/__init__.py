"""The set-up behind `./course`: with the standard library alone, until its packages are there."""
