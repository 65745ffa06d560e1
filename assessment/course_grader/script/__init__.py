"""Assessing a script: contract, runs, measurements, criteria and outcome."""
