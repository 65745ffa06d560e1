"""When all have trained and saved, rank 0 alone averages something, and rank 1 comes to the end of the script."""
#: plain
#: - import os
#: + import os
#: + import time
#:
#: - if hvd.rank() == 0:
#: -     model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
#: + if hvd.rank() == 0:
#: +     model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
#: +     print("loss", hvd.allreduce(model.history.history["loss"][-1]))
#: + else:
#: +     time.sleep(10)
