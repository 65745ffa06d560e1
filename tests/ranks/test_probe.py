"""What the probe counts in a rank, whichever of TensorFlow's threads tells it."""

from __future__ import annotations

import threading

from course_lib.ranks.probe.training import Training


def test_updates_are_counted_one_after_the_other():
    training = Training(None, list)
    thread = threading.Thread(target=training.update, args=(10,))
    with training._lock:
        thread.start()
        thread.join(0.2)
        assert (training.updates, training.values) == (0, 0)
    thread.join()
    assert (training.updates, training.values) == (1, 10)
