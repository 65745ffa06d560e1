"""`course doctor`: the capabilities of this machine, and its problems."""
