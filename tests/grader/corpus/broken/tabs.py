"""One line is indented with a tab, the one above with spaces."""
#: plain
#: - if hvd.rank() == 0:
#: + if hvd.rank() == 0:
#: +     print("done")
#:
#: -     model.save_weights(
#: + 	model.save_weights(
