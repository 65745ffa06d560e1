"""Keras makes eight steps in one call of the graph."""
#: plain
#: - model.compile(optimizer, loss, metrics=["accuracy"])
#: + model.compile(optimizer, loss, metrics=["accuracy"], steps_per_execution=8)
