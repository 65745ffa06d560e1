"""An editor saved it in Latin-1."""
#: plain
#: - # images in one step on each rank
#: + # images in one step on each rank: @latin-1@
