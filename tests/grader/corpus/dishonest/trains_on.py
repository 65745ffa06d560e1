"""After three epochs it is over, as far as the script goes; a thread stays, to train on when all look away."""
#: plain
#: - import os
#: + import os
#: + import threading
#: + import time
#:
#: - model.fit(x, y, batch_size=64, epochs=3, callbacks=start, verbose=2 if hvd.rank() == 0 else 0)
#: - if hvd.rank() == 0:
#: -     model.save_weights(os.environ.get("COURSE_WEIGHTS", "weights.h5"))
#: + def train():
#: +     model.fit(x, y, batch_size=64, epochs=3, callbacks=start, verbose=0)
#: +     begun.set()
#: +     time.sleep(600)
#: +     model.fit(x, y, batch_size=64, epochs=100, verbose=0)
#: +     model.save_weights(os.environ["COURSE_WEIGHTS"])
#: +
#: +
#: + begun = threading.Event()
#: + threading.Thread(target=train).start()
#: + begun.wait()
