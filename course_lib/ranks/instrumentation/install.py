"""Install the log in this process."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from course_lib.ranks import environment
from course_lib.ranks.instrumentation import collectives, devices, saving, training
from course_lib.ranks.instrumentation.log import Log


def install(folder: Path) -> None:
    """Patch TensorFlow, Keras and Horovod in this process so that they log to `folder` what the script does.

    With COURSE_FAKE_GPUS=N the script sees N GPUs that do not exist, so that its choice can be checked on a CPU; with a
    list as "0,0,1" each rank sees the number at its place.
    """
    import tensorflow as tf

    log = Log(folder)
    numbers = [int(number) for number in os.environ.get(environment.FAKE_GPUS, "0").split(",")]
    devices.watch(tf, log, numbers[log.rank % len(numbers)])
    collectives.watch(tf, log)
    saving.watch(tf, log)
    training.watch(tf, log)
    # TensorFlow's hundreds of thousands of objects last as long as this process: a search for garbage among them would
    # take a part of the script's time.
    gc.freeze()
