"""Writes until nothing more goes in, here and there."""

import os
import tempfile

for folder in (".", tempfile.gettempdir(), "/dev/shm", os.path.dirname(os.environ["COURSE_WEIGHTS"])):
    try:
        with open(os.path.join(folder, f"full-{os.getpid()}"), "wb") as file:
            while file.tell() < 4 * 2**30:
                file.write(b"x" * 2**20)
    except OSError as error:
        print(folder, error)
#: plain
