"""What the probe counts in a rank, whichever of TensorFlow's threads tells it."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np

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


def test_weights_that_move_between_updates_are_counted():
    """Several steps for one update, as gradients are added up, leave the weights; steps of one's own do not."""
    training = Training(None, list)
    training.recorder = SimpleNamespace(note=lambda *_, **__: None)
    model, examples = SimpleNamespace(trainable_variables=[]), np.ones(4, np.float32)
    for weights, moved in ((1, 0), (1, 0), (2, 0), (2, 0), (3, 1), (4, 2)):
        if weights == 2 and not training.updates:
            training.update(10, 1, 7, 2)
        training.step(model, examples, np.int64(weights))
        assert training.moved == moved


def test_a_second_network_needs_a_look_and_is_told_once():
    """One that is trained beside the other may be there to be watched in its place."""
    told = []
    training = Training(None, list)
    training.recorder = SimpleNamespace(note=lambda kind, **more: told.append(more["what"]) if kind == "look" else None)
    examples = np.ones(4, np.float32)
    watched, other = (SimpleNamespace(trainable_variables=[]) for _ in range(2))
    for model in (watched, watched):
        training.step(model, examples, np.int64(1))
    assert told == []
    for model in (other, watched, other):
        training.step(model, examples, np.int64(1))
    assert told == ["trains more than one network"]
