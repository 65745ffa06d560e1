"""What `containers/launch` does. Needs Python 3.9 and its standard library alone."""
