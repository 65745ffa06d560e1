from __future__ import annotations

import numpy as np
import pytest

from tests.labs.notebooks import recorded

pytestmark = pytest.mark.slow  # TensorFlow takes seconds to import


@pytest.fixture(scope="module")
def timed_fit():
    from labs.lab1_gradient_descent.lessons import timed_fit

    return timed_fit


def test_limit_ends_training_with_the_epoch_that_passes_it_and_tells_how_far_it_is(monkeypatch, timed_fit):
    from tensorflow import keras

    now, shares = [50.0], []
    monkeypatch.setattr(timed_fit.time, "monotonic", lambda: now[0])

    class Slow(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            now[0] += 4

    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    watchers = [Slow(), timed_fit.Limit(10, shares.append)]
    history = model.fit(np.zeros((4, 1)), np.zeros(4), epochs=9, verbose=0, callbacks=watchers)
    assert len(history.epoch) == 3
    assert shares == pytest.approx([0.4, 0.8, 1.0])


def test_limit_does_not_revive_a_run_that_another_callback_has_stopped(timed_fit):
    from types import SimpleNamespace

    limit = timed_fit.Limit(1000)
    limit.set_model(SimpleNamespace(stop_training=True))
    limit.on_train_begin()
    limit.on_epoch_end(0)
    assert limit.model.stop_training is True


def test_batches_hold_every_image_with_its_label_once_in_another_order_each_epoch(timed_fit):
    x, y = np.arange(10, dtype=np.uint8).reshape(10, 1), np.arange(10) * 10
    made = timed_fit.batches(x, y, 4)
    epochs = [[(images.numpy()[:, 0], labels.numpy()) for images, labels in made] for _ in range(2)]
    for epoch in epochs:
        assert [len(images) for images, _ in epoch] == [4, 4, 2]
        assert all((images * 10 == labels).all() for images, labels in epoch)
        assert sorted(np.concatenate([images for images, _ in epoch])) == list(range(10))
    first, second = (list(np.concatenate([images for images, _ in epoch])) for epoch in epochs)
    assert first != second
    (ordered,) = timed_fit.batches(x, y, 10, shuffle=False)
    assert list(ordered[1].numpy()) == list(y)


def test_batches_have_no_autotuner_that_a_finished_run_would_wait_for(timed_fit):
    assert timed_fit.batches(np.zeros((2, 1)), np.zeros(2), 1).options().autotune.enabled is False


def test_the_seed_fixes_the_order(timed_fit):
    from tensorflow import keras

    orders = []
    for seed in (1, 1, 2):
        keras.utils.set_random_seed(seed)
        (batch,) = timed_fit.batches(np.arange(50), np.arange(50), 50)
        orders.append(batch[1].numpy().tolist())
    assert orders[0] == orders[1] != orders[2]


def test_a_slower_machine_is_told_to_wait_in_proportion(timed_fit):
    usual = timed_fit.USUAL_SECONDS / 60
    assert f"about {round(usual)} minutes for all" in timed_fit.expected(timed_fit.USUAL_RATE)
    assert f"about {round(3 * usual)} minutes for all" in timed_fit.expected(timed_fit.USUAL_RATE / 3)
    assert "about 1 minute for all" in timed_fit.expected(100 * timed_fit.USUAL_RATE)


def test_the_usual_rate_is_the_recorded_one(timed_fit):
    runs = recorded("batch_size").query("use == 'result' and `batch size` == 64")
    assert (6_400 * runs["epochs"] / runs["seconds"]).median() == pytest.approx(timed_fit.USUAL_RATE, rel=0.01)
