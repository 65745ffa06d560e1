"""What a rank tells of its training while it trains, whether it is only watched or judged too."""

from __future__ import annotations

import pytest

from course_lib.ranks import launch

pytestmark = [pytest.mark.slow, pytest.mark.ranks]

START = """
import numpy as np
import tensorflow as tf

images, labels = np.linspace(0, 1, 70 * 64, dtype=np.float32).reshape(70, 8, 8, 1), np.zeros(70, np.int64)
model = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(2)])
loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
"""
FIT = (
    START
    + """
model.compile(tf.keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
model.fit(images, labels, batch_size=32, epochs=2, verbose=0, validation_data=(images, labels))
model.fit(images, labels, batch_size=32, initial_epoch=2, epochs=3, verbose=0)
"""
)
LOOP = (
    START
    + """
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
)


@pytest.fixture(params=["watched", "judged"])
def told(request, tmp_path):
    """told(text): the (kind, data) of what the one rank of a run tells of its training."""

    def tell(text: str) -> list[tuple[str, dict]]:
        script, record = tmp_path / "script.py", tmp_path / "record"
        script.write_text(text)
        watched = request.param == "watched"
        options = launch.Options(training_events=True) if watched else launch.Options(record=record)
        with launch.start(script, ranks=1, timeout=120, options=options) as run:
            told = [(event.kind, event.data) for event in run if event.kind not in ("output", "exit")]
        assert run.wait().code == 0
        assert record.exists() == (request.param == "judged")
        return told

    return tell


def test_a_fit_tells_its_epochs_with_their_metrics_and_images(told):
    events = told(FIT)
    fits = [data for kind, data in events if kind == "fit"]
    assert fits == [{"epochs": 2, "steps": 3, "initial_epoch": 0}, {"epochs": 3, "steps": 3, "initial_epoch": 2}]
    epochs = [data for kind, data in events if kind == "epoch"]
    assert [(data["epoch"], data["images"]) for data in epochs] == [(0, 70), (1, 140), (2, 70)]
    assert set(epochs[0]["logs"]) == {"loss", "accuracy", "val_loss", "val_accuracy"}
    batch = next(data for kind, data in events if kind == "batch")
    assert (batch["epoch"], batch["step"], batch["images"]) == (0, 0, 32)
    assert {"loss", "accuracy"} <= set(batch)


def test_a_loop_of_its_own_tells_its_images(told):
    events = told(LOOP)
    assert {kind for kind, _ in events} == {"images"}
    assert events[-1][1] == {"images": 140, "steps": 6}


def test_a_run_that_nobody_watches_tells_nothing(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(LOOP)
    with launch.start(script, ranks=1, timeout=120) as run:
        assert [event for event in run if event.kind not in ("output", "exit")] == []
