"""What the log says of one rank's training and saving, on Keras itself."""

from __future__ import annotations

import functools

import h5py
import numpy as np
import pytest
import tensorflow as tf

from course_lib.ranks import run_record
from course_lib.ranks.instrumentation import collectives, devices, events, saving, training
from course_lib.ranks.instrumentation.log import Log
from course_lib.ranks.instrumentation.patches import Patches
from course_lib.ranks.instrumentation.training_steps import TrainingSteps
from course_lib.ranks.launch import Result

layers = tf.keras.layers


@pytest.fixture
def patches():
    patches = Patches()
    yield patches
    patches.undo()


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.delenv("HOROVOD_RANK", raising=False)
    return Log(tmp_path / "record")


@pytest.fixture
def trained(log, patches, tmp_path, monkeypatch):
    """trained(): what is logged of the training so far."""
    end = []
    monkeypatch.setattr(events.Progress, "flush_periodically", lambda self: None)
    monkeypatch.setattr(training.atexit, "register", end.append)
    training.watch(log, patches, lambda *_, **__: None)

    def read():
        end[0]()
        return run_record.read(tmp_path / "record", 1, Result(0, 1.0)).ranks[0]

    return read


def network(**options):
    return tf.keras.Sequential([layers.Flatten(), layers.Dense(2)], **options)


IMAGES = np.random.default_rng(0).random((70, 4, 4, 3), np.float32)


class TestTraining:
    def test_a_fit(self, trained):
        model = network()
        model.compile(tf.keras.optimizers.SGD(tf.keras.optimizers.schedules.ExponentialDecay(0.5, 1, 0.1)), "mse")
        model.fit(IMAGES, np.ones(70), batch_size=32, epochs=2, shuffle=False, verbose=0)
        model.evaluate(IMAGES, np.ones(70), verbose=0)  # no step
        rank = trained()
        assert [len(step) for step in rank.examples] == [32, 32, 6] * 2
        np.testing.assert_allclose(rank.epoch_examples(1), training.brightness(IMAGES), rtol=1e-6)
        assert rank.all("fit") == [{"epochs": 2, "steps": 3}]
        assert [(one["epoch"], one["first"], one["steps"]) for one in rank.all("epoch")] == [(0, 0, 3), (1, 3, 3)]
        assert set(rank.last("epoch")["logs"]) == {"loss"}
        assert rank.last("progress") == {"steps": 6, "images": 140, "updates": 6, "values": 6 * rank.values}
        assert [*rank.digests] == [1, 2, 4] and len({tuple(one) for one in rank.digests.values()}) == 3
        assert rank.last("fit-end")["learning_rate"] == 0.5  # the highest
        assert len(rank.all("first-step")) == len(rank.all("end")) == 1
        for logged, weight in zip(rank.weights, model.get_weights()):
            np.testing.assert_array_equal(logged, weight)

    def test_many_updates_have_few_digests(self, trained):
        weight, optimizer = tf.Variable([1.0]), tf.keras.optimizers.SGD(0.1)
        for _ in range(300):
            optimizer.apply_gradients([(tf.constant([1.0]), weight)])
        assert [*trained().digests] == [1, 2, 4, 8, 16, 32, 64, 100, 128, 200, 256, 300]

    def test_values_without_a_gradient_do_not_count(self, trained):
        used, unused = tf.Variable([1.0]), tf.Variable([1.0, 2.0])
        tf.keras.optimizers.SGD(0.1).apply_gradients([(tf.constant([1.0]), used), (None, unused)])
        assert trained().number("progress", "values") == 1

    @pytest.mark.parametrize("wrap", [tf.function, lambda step: step])
    def test_a_second_gradient_of_the_same_examples_is_no_step(self, trained, wrap):
        model = network()

        @wrap
        def step(images):
            for _ in range(2):
                with tf.GradientTape():
                    model(images)

        for batch in (IMAGES[:32], IMAGES[32:64], IMAGES[:32]):
            step(tf.constant(batch))
        assert [len(one) for one in trained().examples] == [32] * 3

    def test_a_compiled_step_is_counted_by_its_arguments(self, trained):
        model = network()

        @tf.function(jit_compile=True)
        def step(images, weights):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(weights[:, None] * model(images))
            return tape.gradient(loss, model.trainable_variables)

        for start in (0, 4, 8):
            step(tf.constant(IMAGES[start : start + 4]), tf.ones(4))
        logged = np.concatenate(trained().examples)
        np.testing.assert_allclose(logged, training.brightness(IMAGES[:12]), rtol=1e-6)

    def test_gpus_that_cuda_was_told_of_are_logged_with_the_first_step(self, trained, monkeypatch):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
        with tf.GradientTape():
            network()(IMAGES)
        assert trained().all("gpus") == [{"visible": ["GPU:1", "GPU:3"]}]


class TestSteps:
    """Of models in models the outermost one that is trained is called once for each step."""

    @pytest.fixture
    def seen(self, patches):
        steps = []

        def step(model, shape):
            steps.append((model.name, list(shape)))

        TrainingSteps(lambda examples: [tf.shape(examples)], step).install(patches)
        return steps

    class Around(tf.keras.Model):
        def __init__(self, network):
            super().__init__(name="outer")
            self.network = network

        def call(self, images):
            return self.network(images[:1]) + self.network(images)

    @pytest.mark.parametrize("wrap", [tf.function, lambda step: step])
    def test_a_model_in_a_model_is_a_part_of_its_step(self, seen, wrap):
        outer = self.Around(network(name="inner"))

        @wrap
        def step(images):
            with tf.GradientTape():
                outer(images)
            outer(images)  # no step

        step(tf.zeros((4, 3)))
        step(tf.zeros((4, 3)))
        assert seen == [("outer", [4, 3])] * 2

    def test_a_model_without_weights_only_changes_images(self, seen):
        noise = tf.keras.Sequential([layers.GaussianNoise(0.1)])
        own = network(name="own")
        for step in (lambda x: own(inputs=noise(x)), tf.function(lambda x: own(noise(x)))):
            with tf.GradientTape():
                step(tf.zeros((4, 3)))
        assert seen == [("own", [4, 3])] * 2

    def test_of_several_inputs_the_largest_has_the_examples(self, seen):
        number, image = tf.keras.Input(1), tf.keras.Input((4, 4, 3))
        both = layers.Concatenate()([number, layers.Flatten()(image)])
        with tf.GradientTape():
            tf.keras.Model([number, image], layers.Dense(1)(both), name="two")(
                [tf.zeros((2, 1)), tf.zeros((2, 4, 4, 3))]
            )
        assert seen == [("two", [2, 4, 4, 3])]

    def test_masks_and_gradients_stay_what_they_are(self, patches):
        model = tf.keras.Sequential([layers.Embedding(5, 3, mask_zero=True), layers.GlobalAveragePooling1D()])

        def gradient():
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(tf.function(model)(tf.constant([[1, 2, 0], [3, 0, 0]])) ** 2)
            return tf.convert_to_tensor(tape.gradient(loss, model.trainable_variables)[0])

        bare = gradient()
        TrainingSteps(lambda examples: [examples], lambda *_: None).install(patches)
        np.testing.assert_array_equal(gradient(), bare)


def test_brightness_is_that_of_an_image_and_of_its_mirror():
    images = np.random.default_rng(0).normal(0, 1, (512, 8, 6, 3)).astype(np.float32)
    images = (images - images.mean((1, 2, 3), keepdims=True)) / images.std((1, 2, 3), keepdims=True)
    brightness = training.brightness(images).numpy()
    assert brightness.std() > 0.01 and len(np.unique(brightness)) == len(images)  # though each has the mean 0
    np.testing.assert_allclose(training.brightness(images[:, :, ::-1]), brightness, atol=1e-6)
    np.testing.assert_allclose(training.brightness(np.full((2, 8, 6, 3), 7, np.uint8)), 7, rtol=1e-5)
    np.testing.assert_allclose(training.brightness(images[:, 0, 0]), images[:, 0, 0].mean(axis=1), atol=1e-6)


def test_a_callback_is_added_behind_all_others_however_they_are_given(patches):
    order = []

    class Added(events.FitCallback):
        def on_train_begin(self, logs=None):
            order.append("added")

        def close(self):
            order.append("closed")

    events.in_each_fit(patches, Added)
    model = network()
    model.compile("sgd", "mse")
    own = tf.keras.callbacks.LambdaCallback(on_train_begin=lambda _: order.append("own"))
    x, y = IMAGES[:2], np.ones(2)
    for given in (own, [own], (own,), tf.keras.callbacks.CallbackList([own], model=model)):
        model.fit(x, y, verbose=0, callbacks=given)
    model.fit(x, y, None, 1, 0, [own])
    assert order == ["own", "added", "closed"] * 5
    with pytest.raises(ValueError):
        model.fit(x, np.ones(3), verbose=0)
    assert order[-1] == "closed"


def test_each_file_that_a_network_is_saved_to_is_logged_once(log, patches, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COURSE_WEIGHTS", "weights.h5")
    model = network()
    model(IMAGES)
    model.save_weights("given.h5")
    saving.watch(log, patches)
    for _ in range(2):
        model.save_weights("weights.h5")
    model.save_weights(filepath=tmp_path / "other.h5")
    model.save("whole.keras")
    tf.train.Checkpoint(model=model).save("checkpoint")
    with h5py.File("own.h5", "w"), h5py.File("given.h5"):
        pass
    model.load_weights("given.h5")
    rank = run_record.read(tmp_path / "record", 1, Result(0, 1.0)).ranks[0]
    assert rank.first("start") == {"weights": str(tmp_path / "weights.h5")}
    saved = [one["path"].replace(f"{tmp_path}/", "") for one in rank.all("save")]
    assert [name for name in saved if "model.weights.h5" not in name] == [
        "weights.h5", "other.h5", "whole.keras", "checkpoint", "own.h5"
    ]  # fmt: skip


def test_a_rank_sees_gpus_that_are_not_there_and_its_choice_is_logged(log, patches, tmp_path):
    devices.watch(log, patches, 2)
    gpus = tf.config.list_physical_devices("GPU")
    assert len(gpus) == 2 and set(gpus) <= set(tf.config.list_physical_devices())
    tf.config.experimental.set_memory_growth(gpus[0], True)
    tf.config.set_visible_devices(gpus[1], "GPU")
    assert tf.config.get_visible_devices("GPU") == gpus[1:]
    (choice,) = run_record.read(tmp_path / "record", 1, Result(0, 1.0)).ranks[0].all("gpus")
    assert choice["visible"] == ["/physical_device:GPU:1"]


@pytest.mark.parametrize(
    ("tensor", "values", "floating", "octets"),
    [
        (tf.zeros((2, 3)), 6, 6, 24),
        (tf.Variable(tf.zeros(4, tf.float16)), 4, 4, 8),
        (tf.zeros(5, tf.int64), 5, 0, 40),
        (np.zeros(3, np.float32), 3, 3, 12),
        (np.zeros(2, np.int64), 2, 0, 16),
        (7, 1, 0, 4),
    ],
)
def test_the_size_of_a_collective(tensor, values, floating, octets):
    several = collectives._sizes([tensor, tf.zeros(1)])
    assert several == {"values": values + 1, "floating": floating + 1, "bytes": octets + 4}


@pytest.mark.parametrize(
    ("args", "kwargs", "values"),
    [((tf.zeros(3), 0), {}, 3), ((), {"root_rank": 0, "tensor": tf.zeros(2)}, 2), (([tf.zeros(1)] * 4,), {}, 4)],
)
def test_a_collective_is_logged_and_called_as_the_script_calls_it(log, tmp_path, args, kwargs, values):
    calls = []
    note = functools.partial(collectives._note_collective, log, "broadcast")
    collectives._logged(lambda *args, **kwargs: calls.append((args, kwargs)), note)(*args, **kwargs)
    assert len(calls) == 1 and len(calls[0][0]) == len(args) and calls[0][1].keys() == kwargs.keys()
    (record,) = run_record.read(tmp_path / "record", 1, Result(0, 1.0)).ranks[0].all("collective")
    assert record == {
        "operation": "broadcast",
        "graph": False,
        "values": values,
        "floating": values,
        "bytes": 4 * values,
    }
