"""What a rank reports of its training while it trains, whether its record is asked for too or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from course_lib.ranks import launch

pytestmark = [pytest.mark.slow, pytest.mark.ranks]

SCRIPT = """
import numpy as np
import tensorflow as tf

images, labels = np.linspace(0, 1, 70 * 64, dtype=np.float32).reshape(70, 8, 8, 1), np.zeros(70, np.int64)
model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(2)])
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

model.compile(tf.keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
model.fit(images, labels, batch_size=32, epochs=2, verbose=0, validation_data=(images, labels))
model.fit(images, labels, batch_size=32, initial_epoch=2, epochs=3, verbose=0)

@tf.function
def step(images, labels):
    with tf.GradientTape() as tape:
        error = loss(labels, model(images, training=True))
    for variable, gradient in zip(model.trainable_variables, tape.gradient(error, model.trainable_variables)):
        variable.assign_sub(0.1 * gradient)

for epoch in range(2):
    for i in range(0, 70, 32):
        step(tf.constant(images[i : i + 32]), tf.constant(labels[i : i + 32]))
    model(images)  # no step
"""


def reported(folder: Path, options: launch.Options) -> list[tuple[str, dict]]:
    """The (kind, data) of what the one rank of a run reports of its training, by `fit` and then in a loop."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    with launch.start(script, ranks=1, timeout=120, options=options) as run:
        events = [(event.kind, event.data) for event in run if event.kind not in ("output", "exit")]
    assert run.wait().code == 0
    return events


@pytest.mark.parametrize("recorded", [False, True])
def test_a_fit_reports_epochs_and_batches_a_loop_its_images(recorded, tmp_path):
    record = tmp_path / "record"
    options = launch.Options(record=record) if recorded else launch.Options(training_events=True)
    events = reported(tmp_path, options)
    assert record.exists() == recorded
    fits = [data for kind, data in events if kind == "fit"]
    assert fits == [{"epochs": 2, "steps": 3, "initial_epoch": 0}, {"epochs": 3, "steps": 3, "initial_epoch": 2}]
    epochs = [data for kind, data in events if kind == "epoch"]
    assert [(data["epoch"], data["images"]) for data in epochs] == [(0, 70), (1, 140), (2, 70)]
    assert set(epochs[0]["logs"]) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    batch = next(data for kind, data in events if kind == "batch")
    assert (batch["epoch"], batch["step"], batch["images"]) == (0, 0, 32)
    assert {"loss", "accuracy"} <= set(batch)
    in_loop = events[max(place for place, (kind, _) in enumerate(events) if kind == "epoch") + 1 :]
    assert {kind for kind, _ in in_loop} == {"images"}
    assert in_loop[-1][1] == {"images": 210 + 140, "steps": 9 + 6}


def test_a_run_that_nobody_watches_reports_nothing(tmp_path):
    assert reported(tmp_path, launch.Options()) == []
