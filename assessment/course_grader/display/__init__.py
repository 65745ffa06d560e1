"""The output of an assessment: reports, leaderboards, similar scripts, the panel in the notebook."""
