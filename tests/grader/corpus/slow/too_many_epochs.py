"""Would train for days, and saves at the end."""
#: plain
#: - epochs=3
#: + epochs=100_000
