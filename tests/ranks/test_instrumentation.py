"""What the probe counts in a rank, whichever of TensorFlow's threads tells it."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.ops import control_flow_ops

from course_lib.ranks import events
from course_lib.ranks.instrumentation.gradients import Gradients
from course_lib.ranks.instrumentation.training import Training


def test_updates_are_counted_one_after_the_other():
    training = Training(None, list)
    thread = threading.Thread(target=training.update, args=({0: 4, 1: 6},))
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
    model, examples = SimpleNamespace(trainable_variables=[], weights=[]), np.ones(4, np.float32)
    for weights, moved in ((1, 0), (1, 0), (2, 0), (2, 0), (3, 1), (4, 2)):
        if weights == 2 and not training.updates:
            training.update({0: 10}, 1, 7, 2)
        training.step(model, examples, np.int64(weights))
        assert training.moved == moved


def test_a_second_network_needs_a_look_and_is_told_once():
    """One that is trained beside the other may be there to be watched in its place."""
    told = []
    training = Training(None, list)
    training.recorder = SimpleNamespace(note=lambda kind, **more: told.append(more["what"]) if kind == "look" else None)
    examples = np.ones(4, np.float32)
    watched, other = (SimpleNamespace(trainable_variables=[], weights=[]) for _ in range(2))
    for model in (watched, watched):
        training.step(model, examples, np.int64(1))
    assert told == []
    for model in (other, watched, other):
        training.step(model, examples, np.int64(1))
    assert told == ["trains more than one network"]


def test_a_loop_without_an_optimizer_leaves_the_weights_of_each_step():
    """No update is seen where XLA compiles it, or the script assigns the weights itself."""
    training = Training(None, list)
    training.recorder = SimpleNamespace(note=lambda *_, **__: None)
    model = SimpleNamespace(trainable_variables=[], weights=[])
    for weights in (3, 5, 9):
        training.step(model, np.ones(4, np.float32), np.int64(weights))
    assert training._applied == [(3, 0, 5, 0), (5, 0, 9, 0)]
    training.update({0: 10}, 9, 7, 11)
    training.step(model, np.ones(4, np.float32), np.int64(11))
    assert [update[:3] for update in training._applied[2:]] == [(9, 7, 11)]


def test_ranks_tell_of_their_weights_as_the_step_found_them():
    """An optimizer may change them meanwhile: a decay of weights waits for no gradient."""
    told = []
    training = Training(None, list)
    training.recorder = SimpleNamespace(note=lambda kind, **more: told.append(more["digest"]))
    variable = SimpleNamespace(numpy=lambda: np.random.default_rng().normal(size=3))
    model = SimpleNamespace(trainable_variables=[variable], weights=[])
    for updates in (1, 2):
        training.updates = updates
        training.step(model, np.ones(4, np.float32), np.int64(255))
    assert told == ["ff", "ff"]


def test_weights_are_kept_from_not_long_before_the_end():
    training = Training(None, list)
    training.recorder = SimpleNamespace(note=lambda *_, **__: None)
    kept = {}
    for done in range(1, 200):
        value = SimpleNamespace(numpy=lambda done=done: np.array([done]), shape=(1,))
        model = SimpleNamespace(trainable_variables=[], weights=[value])
        training._seen = {id(model): (0, 0)}
        training.step(model, np.ones(4, np.float32), np.int64(done))
        kept[done] = int(training._kept[0][0]) if training._kept else 0
    assert all(done - at <= 1 + done // 8 + 1 for done, at in kept.items() if done > 1)
    assert len(set(kept.values())) < 40  # of 199: it takes a copy


class TestWhichNetworkIsWatched:
    """On Keras itself: of models in models, the innermost with all weights."""

    @pytest.fixture
    def watching(self):
        seen, looks = [], []
        with pytest.MonkeyPatch.context() as patch:
            events.on_training_steps(
                tf,
                lambda owner, name, wrap: patch.setattr(owner, name, wrap(vars(owner)[name])),
                lambda _, examples: [tf.shape(examples)[0]],
                lambda model, images: seen.append((model.name, int(images))),
                Gradients(looks.append, *[lambda *_: None] * 3),
            )
            yield seen, looks

    @staticmethod
    def network():
        return tf.keras.Sequential([tf.keras.layers.Dense(2, input_shape=(3,))], name="inner")

    class Around(tf.keras.Model):
        """Does what it is told to, with what its network is given."""

        def __init__(self, network, does):
            super().__init__(name="outer")
            self.network, self.does = network, does

        def call(self, images, other=None):
            return self.does(self.network, images, other)

    @pytest.mark.parametrize("compiled", [False, True])
    @pytest.mark.parametrize(
        ("does", "expected"),
        [
            (lambda network, images, other: network(images), [("inner", 4)] * 2),
            (lambda network, images, other: network(images[:1]), [("inner", 1)] * 2),
            (lambda network, images, other: network(other), [("inner", 6)] * 2),
            (lambda network, images, other: network(images) + network(images), [("inner", 4)] * 4),
            (lambda network, images, other: tf.reduce_mean(images), []),
        ],
    )
    def test_what_a_model_gives_to_its_network(self, watching, does, expected, compiled):
        seen, looks = watching
        outer = self.Around(self.network(), does)

        def step(images, other):
            with tf.GradientTape():
                outer(images, other)

        step = tf.function(step) if compiled else step
        for _ in range(2):
            step(tf.zeros((4, 3)), tf.zeros((6, 3)))
        assert (seen, looks) == (expected, [])

    def test_a_model_of_its_own_layers_is_its_own_network(self, watching):
        seen, looks = watching
        augmented = tf.keras.Sequential([tf.keras.layers.GaussianNoise(0.1), self.network()], name="both")
        own = tf.keras.Model(inputs := tf.keras.Input(3), tf.keras.layers.Dense(2)(inputs), name="own")
        with tf.GradientTape():
            augmented(tf.zeros((4, 3)), training=True)
            own(inputs=tf.zeros((5, 3)))
        own(tf.zeros((6, 3)))
        assert (seen, looks) == ([("inner", 4), ("own", 5)], [])

    def test_what_only_changes_images_is_no_network(self, watching):
        seen, looks = watching
        noise = tf.keras.Sequential([tf.keras.layers.GaussianNoise(0.1)])
        network = self.network()
        for step in (lambda x: network(noise(x, training=True)), tf.function(lambda x: network(noise(x)))):
            with tf.GradientTape():
                step(tf.zeros((4, 3)))
        assert (seen, looks) == ([("inner", 4)] * 2, [])

    def test_layers_that_are_trained_outside_of_their_network_need_a_look(self, watching):
        seen, looks = watching
        network = self.network()
        network.layers[0](tf.zeros((4, 3)))
        assert not looks
        with tf.GradientTape():
            network.layers[0](tf.zeros((4, 3)))
        assert not seen and looks == ["trains a layer by itself, outside of its network"]

    def test_a_compiled_step_with_two_batches_needs_a_look(self, watching):
        seen, looks = watching
        network = self.network()

        @tf.function(jit_compile=True)
        def step(shown, images, labels):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((network(images) - labels[:, None]) ** 2)
            return tape.gradient(loss, network.trainable_variables)

        step(tf.zeros((4, 1)), tf.zeros((4, 3)), tf.zeros(4))
        assert seen == [("inner", 4)] and not looks
        step(tf.zeros((4, 3)), tf.zeros((4, 3)), tf.zeros(4))
        assert looks == ["gives its network, or a compiled step, more than one batch of examples"]

    def test_a_compiled_step_that_calls_its_network_again_needs_a_look(self, watching):
        _, looks = watching
        network = self.network()

        @tf.function(jit_compile=True)
        def step(images, how):
            for _ in range(3 if how == "again and again" else 1):
                with tf.GradientTape():
                    network(images)
            if how == "in a loop":
                for _ in tf.range(3):
                    with tf.GradientTape():
                        network(images)

        for images in (4, 5):  # which it compiles anew
            step(tf.zeros((images, 3)), "once")
        assert not looks
        for how in ("again and again", "in a loop"):
            looks.clear()
            step(tf.zeros((4, 3)), how)
            assert set(looks) == {"calls its network more than once in a compiled step"}

    def test_a_network_of_two_batches_needs_a_look(self, watching):
        _, looks = watching
        shown, hidden = tf.keras.Input(3), tf.keras.Input(3)
        network = tf.keras.Model([shown, hidden], tf.keras.layers.Dense(2)(hidden) + 0 * shown[:, :1])
        with tf.GradientTape():
            network([tf.zeros((4, 3)), tf.zeros((4, 3))])
        assert looks == ["gives its network, or a compiled step, more than one batch of examples"]

    def test_who_only_says_that_xla_compiles_needs_a_look(self, watching):
        seen, looks = watching
        network = self.network()

        @tf.function
        def step(images):
            context = control_flow_ops.XLAControlFlowContext()
            context.Enter()
            with tf.GradientTape():
                network(images)
            context.Exit()

        step(tf.zeros((4, 3)))
        assert not seen and looks == ["calls its network as if XLA compiled it"]

    def test_a_tape_within_a_model_that_was_called_without_one_hides_no_layer(self, watching):
        _, looks = watching
        network = self.network()

        def alone(_, images, __):
            with tf.GradientTape():
                network.layers[0](images)

        self.Around(network, alone)(tf.zeros((4, 3)))
        assert looks == ["trains a layer by itself, outside of its network"]
