"""How notebooks are written: masters, the learners' notebooks made from them, what learners get."""
