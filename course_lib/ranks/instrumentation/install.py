"""Install the log in this process."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from pathlib import Path

from course_lib.ranks.instrumentation import collectives, devices, saving, training
from course_lib.ranks.instrumentation.log import Log
from course_lib.ranks.instrumentation.patches import Patches


def install(folder: Path, report: Callable[..., None], fake_gpus: Sequence[int] = ()) -> Patches:
    """Patch TensorFlow, Keras and Horovod in this process so that they log the script's calls to `folder`.

    Args:
        report: receives the events of the training (see `course_lib.ranks.instrumentation.events`).
        fake_gpus: as in `RankTask`.

    Returns:
        The patches, which `undo` removes.
    """
    log, patches = Log(folder), Patches()
    devices.watch(log, patches, fake_gpus[log.rank % len(fake_gpus)] if fake_gpus else 0)
    collectives.watch(log, patches)
    saving.watch(log, patches)
    training.watch(log, patches, report)
    # TensorFlow's hundreds of thousands of objects live as long as this process. Without `freeze`, each full garbage
    # collection would examine them, in the script's time.
    gc.freeze()
    return patches
