"""What people see of an assessment: reports, leaderboards, similar scripts, the panel in the notebook."""
