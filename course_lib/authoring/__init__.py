"""Authoring of notebooks: masters, the learners' notebooks generated from them, the files for learners."""
