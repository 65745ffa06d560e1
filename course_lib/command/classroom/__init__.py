"""The learner's lab: its workspace, JupyterLab on it, and what images hand out."""
