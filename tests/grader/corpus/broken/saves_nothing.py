"""Forgets to save."""
#: plain
#: - if hvd.rank() == 0:
#: -     model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
