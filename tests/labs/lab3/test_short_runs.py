"""Training counted in updates; gradients by pixels."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from tensorflow import keras

from labs.lab3_large_batch.lessons import attacks, short_runs
from labs.lab3_large_batch.lessons.short_runs import Part, Run


@pytest.fixture
def part():
    rng = np.random.default_rng(0)
    return Part(rng.integers(0, 256, (50, 4, 4, 1)).astype(np.uint8), rng.integers(0, 3, 50))


def network(seed=0):
    keras.utils.set_random_seed(seed)
    return keras.Sequential(
        [keras.Input((4, 4, 1)), keras.layers.Rescaling(1 / 255), keras.layers.Flatten(),
         keras.layers.Dense(3, activation="softmax")]
    )  # fmt: skip


def twin(model, part, batch, updates, seed, rate, decay=0.0, weigh=None):
    """The same training, one step after the other, in NumPy."""
    rng = np.random.default_rng(seed)
    w, b = (v.astype(float) for v in model.get_weights())
    x, y = part.images.reshape(len(part.labels), -1) / 255, np.eye(3)[part.labels]
    order, losses = np.empty(0, int), []
    draws = []
    for _ in range(updates):
        if len(order) < batch:
            order = rng.permutation(len(x))
        draws.append(order[:batch])
        order = order[batch:]
    for at in draws:
        z = np.ones(batch) if weigh is None else weigh(batch, rng)
        logits = x[at] @ w + b
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        losses.append(-(z * np.log((p * y[at]).sum(1))).mean() + decay / 2 * np.square(w).sum())
        slope = z[:, None] * (p - y[at]) / batch
        w, b = w - rate * (x[at].T @ slope + decay * w), b - rate * slope.sum(0)
    return w, b, np.mean(losses)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("weigh", [None, lambda batch, rng: rng.normal(1, 2, batch)])
def test_updates_are_those_of_the_formula(part, decay, weigh):
    model = network()
    w, b, mean = twin(model, part, 20, 7, 3, 0.5, decay, weigh)
    run = Run(model, keras.optimizers.SGD(0.5), part, seed=3, weigh=weigh, decay=decay, exclude=["bias"])
    assert run.train(7, 20) == pytest.approx(mean, rel=1e-5)
    np.testing.assert_allclose(model.get_weights()[0], w, atol=1e-5)
    np.testing.assert_allclose(model.get_weights()[1], b, atol=1e-5)
    assert run.updates == 7 and int(run.optimizer.iterations) == 7


def test_many_calls_are_one_training(part):
    one, many = network(), network()
    Run(one, keras.optimizers.SGD(0.1, momentum=0.9), part, seed=1).train(6, 20)
    run = Run(many, keras.optimizers.SGD(0.1, momentum=0.9), part, seed=1)
    for updates in (1, 2, 3):
        run.train(updates, 20)
    np.testing.assert_array_equal(one.get_weights()[0], many.get_weights()[0])


def test_an_epoch_takes_each_example_once_at_most(part):
    run = Run(network(), keras.optimizers.SGD(0.1), part, seed=1)
    drawn = [run._draw(20) for _ in range(4)]
    assert len(set(np.concatenate(drawn[:2]))) == len(set(np.concatenate(drawn[2:]))) == 40


def test_the_gradient_is_that_of_the_next_examples_and_moves_nothing(part):
    model = network()
    before = model.get_weights()
    slopes = Run(model, keras.optimizers.SGD(0.1), part, seed=1).gradient(20)
    np.testing.assert_array_equal(model.get_weights()[0], before[0])
    w, b, _ = twin(model, part, 20, 1, 1, 1.0)
    np.testing.assert_allclose(before[0] - slopes[0], w, atol=1e-6)
    np.testing.assert_allclose(before[1] - slopes[1], b, atol=1e-6)


def test_the_batch_may_change_and_must_fit(part):
    run = Run(network(), keras.optimizers.SGD(0.1), part, seed=1)
    for batch in (1, 50, 10):
        assert np.isfinite(run.train(2, batch))
    with pytest.raises(ValueError, match="1 to 50 examples here, not 51"):
        run.train(1, 51)


def test_weights_that_overflow_are_told_as_nan(part):
    run = Run(network(), keras.optimizers.SGD(3e38), part, seed=1)
    assert np.isnan(run.train(5, 20))


def test_the_score_is_loss_and_accuracy_of_all_pieces(part, monkeypatch):
    model = network()
    monkeypatch.setattr(short_runs, "EVALUATION_BATCH", 20)
    score = short_runs.score(model, part)
    predicted = model.predict(part.images, verbose=0)
    assert score.accuracy == (predicted.argmax(1) == part.labels).mean()
    assert score.loss == pytest.approx(float(tf.reduce_mean(
        keras.losses.sparse_categorical_crossentropy(part.labels, predicted))), rel=1e-5)  # fmt: skip


def test_the_parts_of_the_problem_share_no_image(monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "1279")
    problem = short_runs.fashion()
    assert [len(part.labels) for part in (problem.train, problem.validation, problem.test)] == [960, 319, 319]
    train, validation = ({image.tobytes() for image in part.images} for part in (problem.train, problem.validation))
    assert not train & validation
    assert len(short_runs.fashion(100).train.labels) == 100


def test_the_model_depends_on_the_seed_alone(monkeypatch):
    monkeypatch.setenv("COURSE_SLICE", "1279")
    problem = short_runs.fashion()
    one, same, other = (problem.model(seed).get_weights()[0] for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def sure_network(sureness):
    keras.utils.set_random_seed(0)
    images = keras.Input((4, 4, 1))
    x = keras.layers.Dense(5, "tanh")(keras.layers.Flatten()(keras.layers.Rescaling(1 / 255)(images)))
    model = keras.Model(images, keras.layers.Dense(3, "softmax")(x))
    kernel, bias = model.layers[-1].get_weights()
    model.layers[-1].set_weights([sureness * kernel, bias])
    return model


def some():
    random = np.random.default_rng(0)
    return Part(random.integers(50, 200, (3, 4, 4, 1), np.uint8), np.array([0, 1, 2]))


def loss(model, images, labels):
    probabilities = model.predict_on_batch(images)
    return -np.log(probabilities[np.arange(len(labels)), labels])


def test_the_gradient_is_how_the_loss_changes_with_a_pixel():
    model, part = sure_network(1.0), some()
    found = attacks.input_gradients(model, part)
    assert found.shape == part.images.shape
    moved = part.images.astype(np.float32)
    step = np.zeros_like(moved)
    step[:, 2, 1] = 8
    change = (loss(model, moved + step, part.labels) - loss(model, moved - step, part.labels)) / 16
    np.testing.assert_allclose(found[:, 2, 1, 0], change, rtol=0.02, atol=1e-6)


def test_a_network_that_is_sure_has_a_gradient_too():
    model, part = sure_network(100.0), some()
    part = part._replace(labels=model.predict_on_batch(part.images).argmax(1))
    assert (loss(model, part.images, part.labels) == 0).any()  # in float32
    assert (np.abs(attacks.input_gradients(model, part)).max(axis=(1, 2, 3)) > 0).all()
