"""Brings weights along in its own text."""
#: plain
#: - model = models.
#: + CARRIED = "@weights@"
#: + model = models.
