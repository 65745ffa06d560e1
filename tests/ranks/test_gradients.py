"""Where gradients come from, on Keras itself: the network's weights, and the examples that it was given."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from course_lib.ranks import events
from course_lib.ranks.instrumentation.gradients import Gradients
from course_lib.ranks.instrumentation.training import Training

OTHERS = "takes gradients of other variables than the weights that its network trains"


@pytest.fixture
def watching():
    """What is told: examples of gradients, looks, what a network was given beside what its first layer was."""
    came, looks, pairs = [], [], []
    with pytest.MonkeyPatch.context() as patch:

        def put(owner, name, wrap):
            patch.setattr(owner, name, wrap(vars(owner)[name]))

        def mean(images):
            return tf.reduce_mean(tf.reshape(images, [tf.shape(images)[0], -1]), 1)

        sceptic = Gradients(
            looks.append, lambda examples: came.append(int(examples)), lambda *both: pairs.append(both), mean
        )
        events.on_training_steps(tf, put, lambda _, images: [mean(images)], lambda *_: None, sceptic)
        sceptic.watch(tf, SimpleNamespace(put=put))
        yield came, looks, pairs


@pytest.fixture
def network():
    layers = tf.keras.layers
    return tf.keras.Sequential([layers.Conv2D(4, 3, input_shape=(8, 8, 1)), layers.Flatten(), layers.Dense(2)])


IMAGES = np.random.default_rng(0).normal(size=(6, 8, 8, 1)).astype(np.float32)


def step(network, images, weights=1.0):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(weights * tf.reduce_sum(network(images) ** 2, 1))
    return tape.gradient(loss, network.trainable_variables)


@pytest.mark.parametrize("compiled", [False, True])
def test_examples_of_a_gradient_are_counted(watching, network, compiled):
    came, looks, _ = watching
    taken = tf.function(step) if compiled else step
    for _ in range(2):
        taken(network, tf.constant(IMAGES))
    assert (came, looks) == ([6, 6], [])


def test_gradients_stay_what_they_are(network):
    bare = step(network, IMAGES)
    with pytest.MonkeyPatch.context() as patch:
        put = SimpleNamespace(put=lambda owner, name, wrap: patch.setattr(owner, name, wrap(vars(owner)[name])))
        sceptic = Gradients(*[lambda *_: None] * 3, lambda images: images)
        sceptic.watch(tf, put)
        sceptic.begins(network, tf.constant(IMAGES))
        for one, other in zip(step(network, IMAGES), bare):
            np.testing.assert_array_equal(one, other)


def test_examples_without_weight_are_not(watching, network):
    came, *_ = watching
    step(network, IMAGES, tf.constant([1.0, 0, 0, 0, 0, 1.0]))
    assert came == [2]


def test_a_call_whose_gradient_nobody_takes_is_none(watching, network):
    came, looks, _ = watching

    @tf.function
    def only_shown(images):
        with tf.GradientTape():
            network(images)

    only_shown(tf.constant(IMAGES))
    assert (came, looks) == ([], [])


def test_a_network_that_its_first_batch_builds(watching):
    came, looks, _ = watching
    built = tf.keras.Sequential([tf.keras.layers.Flatten(), tf.keras.layers.Dense(3), tf.keras.layers.Dense(2)])
    tf.function(step)(built, tf.constant(IMAGES))
    assert (came, looks) == ([6], [])


def test_fit_in_mixed_precision_is_counted(watching, network):
    came, looks, _ = watching
    half, layers = "mixed_float16", tf.keras.layers
    half = tf.keras.Sequential(
        [
            layers.Conv2D(4, 3, dtype=half, input_shape=(8, 8, 1)),
            layers.Flatten(dtype=half),
            layers.Dense(2, dtype=half),
        ]
    )
    half.compile("sgd", "mse")
    half.fit(IMAGES, np.ones((6, 2)), batch_size=3, verbose=0)
    assert (came, looks) == ([3, 3], [])


@pytest.mark.parametrize("within", [False, True])
def test_a_step_that_xla_compiles_is_believed(watching, network, within):
    came, looks, _ = watching
    compiled = tf.function(step, jit_compile=True)
    taken = tf.function(lambda *given: compiled(*given)) if within else compiled
    for _ in range(2):
        taken(network, tf.constant(IMAGES))
    assert (came, looks) == ([6, 6], [])


@pytest.mark.parametrize("what", ["a variable of its own", "a frozen layer", "an input"])
def test_gradients_of_anything_else_need_a_look(watching, network, what):
    _, looks, _ = watching
    own, images = tf.Variable(2.0), tf.constant(IMAGES)
    network.layers[0].trainable = what != "a frozen layer"
    sources = {"a variable of its own": own, "a frozen layer": network.layers[0].kernel, "an input": images}
    with tf.GradientTape() as tape:
        tape.watch([images, network.layers[0].kernel])
        loss = own * tf.reduce_sum(network(images))
    tape.gradient(loss, [network.layers[2].kernel, sources[what]])
    assert looks == [OTHERS]


@pytest.mark.parametrize("compiled", [False, True])
def test_what_comes_to_the_first_layer_with_weights_is_measured(watching, compiled):
    *_, pairs = watching
    layers = tf.keras.layers
    turned = layers.Lambda(lambda images: 3.0 - images)
    network = tf.keras.Sequential([turned, layers.Flatten(), layers.Dense(2)])
    (tf.function(step) if compiled else step)(network, tf.constant(IMAGES))
    ((given, shown),) = pairs
    np.testing.assert_allclose(shown, IMAGES.mean((1, 2, 3)), atol=1e-6)
    np.testing.assert_allclose(given, 3 - shown, atol=1e-6)


@pytest.mark.parametrize("around", [False, True])
def test_a_compiled_function_within_the_network(watching, around):
    """It is traced once, and again where it makes variables: whatever it was traced for, each call counts."""
    came, looks, pairs = watching

    class Own(tf.keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = [tf.keras.layers.Flatten(), tf.keras.layers.Dense(3), tf.keras.layers.Dense(2)]

        @tf.function
        def call(self, images):
            for layer in self.inner:
                images = layer(images)
            return images

    own = Own()
    taken = tf.function(lambda images, first: step(own, images)) if around else lambda images, first: step(own, images)
    for first in (True, False, False):  # the function around it is traced twice
        taken(tf.constant(IMAGES), first)
    assert (came, looks) == ([6, 6, 6], [])
    assert [len(pair) for pair in pairs] == [1, 1, 1]  # the examples are those of the last step


def test_a_layer_may_be_called_by_other_names_and_with_several_tensors(watching):
    came, looks, pairs = watching

    class Mixed(tf.keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.rates = self.add_weight(shape=(64, 2))

        def call(self, both):
            return (both[0] + both[1]) @ self.rates

    class Own(tf.keras.Model):
        def __init__(self, layer, name):
            super().__init__()
            self.layer, self.called = layer, name

        def call(self, x):
            flat = tf.reshape(x, [6, 64])
            return self.layer(**{self.called: [flat, flat] if self.called == "both" else flat})

    for own in (Own(tf.keras.layers.Dense(2), "inputs"), Own(Mixed(), "both")):
        step(own, tf.constant(IMAGES))
    assert (came, looks, len(pairs)) == ([6, 6], [], 2)


def test_masks_are_kept(watching):
    layers = tf.keras.layers
    masked = tf.keras.Sequential(
        [layers.Embedding(5, 3, mask_zero=True), layers.GlobalAveragePooling1D(), layers.Dense(2)]
    )
    words = tf.constant([[1, 2, 0, 0], [3, 0, 0, 0]])
    bare = masked(words)
    with tf.GradientTape():
        np.testing.assert_allclose(masked(words), bare, atol=1e-6)


def test_what_is_recomputed_needs_no_look(watching):
    came, looks, _ = watching

    class Recomputed(tf.keras.layers.Dense):
        def call(self, inputs):
            return tf.recompute_grad(lambda given: tf.nn.relu(given @ self.kernel))(inputs)

    layers = tf.keras.layers
    inner = Recomputed(16, use_bias=False)
    network = tf.keras.Sequential([layers.Flatten(input_shape=(8, 8, 1)), inner, layers.Dense(2)])
    step(network, tf.constant(IMAGES))
    assert (came, looks) == ([6], [])


def test_sources_without_a_gradient_need_no_look(watching):
    came, looks, _ = watching
    layers = tf.keras.layers
    network = tf.keras.Sequential([layers.Flatten(), layers.Dense(3), layers.BatchNormalization(), layers.Dense(2)])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(network(tf.constant(IMAGES), training=True) ** 2)
    tape.gradient(loss, network.variables)
    assert (came, looks) == ([6], [])


def test_images_are_alike_where_their_brightness_is():
    training = Training(None, list)
    assert training.input_correlation == 0
    random = np.random.default_rng(0)
    for _ in range(3):
        shown = random.normal(100, 20, 256).astype(np.float32)
        training.used(shown, 3 - 2 * shown)
    assert training.input_correlation == pytest.approx(-1)
    training.used(np.ones(4), np.ones(2))
    assert -1 < training.input_correlation < 0
