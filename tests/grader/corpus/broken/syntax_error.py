"""A bracket is missing."""
#: plain
#: - hvd.init()
#: + hvd.init(
