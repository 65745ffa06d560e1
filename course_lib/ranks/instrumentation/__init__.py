"""Record, inside a rank, what a Keras script does: what it initialises, sees, reads, reduces into, saves.

`rank` installs the probe before the script starts, where somebody judges the run; the script needs no change, and it
may train with `Model.fit` or in a loop of its own. Beside the live events (see `events`), evidence comes of it, in a
folder:

    rank-R.jsonl      one record a line: init, join, gpus, fit, first-step, epoch, fit-end, progress, digest, weights,
                      save, tampered, look
    rank-R.steps      int32: how many examples each training step held
    rank-R.examples   float32: the mean brightness, weighted to the centre, of each of these examples, in order
    rank-R.updates    int64 [n, 4]: of each update, fingerprints of the weights before, of what was applied, of the
                      weights after; a number of the variables that it changed
    rank-R.weights    the weights after training; their shapes are in the record `weights`

Everything is written as it happens, so that a rank that is killed leaves its evidence. With COURSE_FAKE_GPUS=N the
script sees N GPUs that are not there, so that its choice can be checked on a CPU; with a list as "0,0,1" each rank sees
the number in its place.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

from course_lib.ranks import environment
from course_lib.ranks.instrumentation import joining, listening, saving, training
from course_lib.ranks.instrumentation.patches import Patches
from course_lib.ranks.instrumentation.recorder import Recorder


def install(folder: Path, script: str) -> None:
    """Patch TensorFlow, Keras and Horovod in this process so that they report to `folder` what `script` does."""
    import tensorflow as tf

    recorder, patches = Recorder(folder), Patches()
    fakes = [int(number) for number in os.environ.get(environment.FAKE_GPUS, "0").split(",")]
    joining.watch(tf, recorder, patches, fakes[recorder.rank % len(fakes)])
    saving.watch(tf, recorder, patches)
    training.watch(tf, recorder, patches)
    listening.watch(recorder, script)
    # TensorFlow's hundreds of thousands of objects last as long as this process: looking for garbage among them, at the
    # end of the process too, would take a part of the script's time.
    gc.freeze()
