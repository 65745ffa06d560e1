"""The learner's lab: its workspace, JupyterLab, and the course's files for learners' images."""
