"""Trains and saves another network."""
#: plain
#: - models.assessment_cnn(
#: + models.small_cnn(
