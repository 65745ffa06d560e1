"""What a script may have saved instead of the network's weights, and in which forms these are read."""

from __future__ import annotations

import zipfile

import h5py
import numpy as np
import pytest

from course_grader.script import weights_file
from course_grader.script.weights_file import NotWeights

pytestmark = pytest.mark.slow
SAVE = 'call model.save_weights(os.environ["COURSE_WEIGHTS"])'


@pytest.fixture(scope="module")
def keras():
    import tensorflow as tf

    return tf.keras


@pytest.fixture(scope="module")
def network():
    """network(): a fresh one, with weights of its own."""
    from course_lib import models

    return lambda: models.assessment_cnn((32, 32, 3), 10)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "weights.h5"


def same(one, other):
    return all(np.array_equal(*pair) for pair in zip(one.get_weights(), other.get_weights()))


def test_a_whole_model_is_read(network, path):
    trained, own = network(), network()
    trained.compile("adam", "sparse_categorical_crossentropy")
    trained.fit(np.zeros((8, 32, 32, 3)), np.zeros(8), verbose=0)  # so that there is an optimizer's state too
    trained.save(path)
    weights_file.load(own, path)
    assert same(own, trained)


@pytest.mark.parametrize("how", ["sequential", "functional"])
def test_a_model_around_the_network_is_read(keras, network, path, how):
    trained, own = network(), network()
    for variable in trained.weights:  # none equals another
        variable.assign(np.random.default_rng(0).normal(size=variable.shape))
    around = [keras.layers.RandomFlip("horizontal"), keras.layers.RandomTranslation(0.1, 0.1)]
    images = keras.Input((32, 32, 3))
    if how == "sequential":
        keras.Sequential([images, *around, trained]).save_weights(path)
    else:
        keras.Model(images, trained(around[1](around[0](images)))).save_weights(path)
    weights_file.load(own, path)
    assert same(own, trained)


def refusal(network, path):
    own = network()
    before = own.get_weights()
    with pytest.raises(NotWeights) as caught:
        weights_file.load(own, path)
    assert all(np.array_equal(*pair) for pair in zip(before, own.get_weights()))
    return str(caught.value)


@pytest.mark.parametrize(
    ("layer", "difference"),
    [
        (lambda layers: layers.Conv2D(16, 5, use_bias=False), "the shape 3 × 3 × 3 × 16, but has 5 × 5 × 3 × 16."),
        (lambda layers: layers.Dense(3), "/kernel should have the shape 3 × 3 × 3 × 16, but has 3 × 3."),
        (lambda layers: layers.ReLU(), "the file has 0 arrays, but the network 22."),
        (None, "the file has 24 arrays, but the network 22."),  # the course's network with one layer more
    ],
)
def test_another_network_is_named_by_its_first_difference(keras, network, path, layer, difference):
    one, images = network(), keras.Input((32, 32, 3))
    if layer:
        other = keras.Model(images, layer(keras.layers)(images))
    else:
        other = keras.Model(one.input, keras.layers.Dense(10)(one.output))
    other.save_weights(path)
    found = refusal(network, path)
    assert found.startswith("The saved weights are not those of models.assessment_cnn, the only network that counts")
    assert found.endswith(difference)


def test_other_formats_are_named(keras, network, path):
    one = network()
    one.save(path.with_suffix(".keras"))
    path.with_suffix(".keras").rename(path)
    assert refusal(network, path) == (
        f"The saved file is a whole model in Keras's own format (.keras), not its weights: {SAVE}."
    )
    one.save_weights(path.with_suffix(".weights.h5"))
    path.with_suffix(".weights.h5").rename(path)
    said = f"The saved file is in the format of Keras 3 (.weights.h5): use tf.keras, and {SAVE}."
    assert refusal(network, path) == said
    with h5py.File(path, "w") as file:
        file["values"] = np.zeros(3)
    assert refusal(network, path) == f"The saved file is HDF5, but not Keras's weights: {SAVE}."
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", b"")
    foreign = f"The saved file is not in HDF5, the format of Keras's weights: {SAVE}."
    assert refusal(network, path) == foreign
    for content in (b"", b"text", np.random.default_rng(0).bytes(100_000)):
        path.write_bytes(content)
        assert refusal(network, path) == foreign


def test_a_file_that_is_cut_short_is_damaged(network, path):
    network().save_weights(path)
    path.write_bytes(path.read_bytes()[:100_000])
    assert refusal(network, path) == weights_file.DAMAGED


@pytest.mark.parametrize(
    ("layer", "name", "array", "said"),
    [
        ("dense", "bias:0", {"data": np.array([b"text"] * 10)}, weights_file.DAMAGED),
        # No array is read whose shape does not fit.
        ("conv2d", "kernel:0", {"shape": (10**12,), "dtype": "f4", "chunks": (10**6,)}, "but has 1000000000000"),
    ],
)
def test_an_array_of_something_else_is_told(network, path, layer, name, array, said):
    network().save_weights(path)
    with h5py.File(path, "r+") as file:
        outer = file[next(one for one in file if layer in one)]
        group = outer[next(iter(outer))]
        del group[name]
        group.create_dataset(name, **array)
    assert said in refusal(network, path)


def test_what_is_no_number_is_counted(network, path):
    one = network()
    one.weights[-1].assign([np.nan, np.inf] + [0.0] * 8)
    one.save_weights(path)
    with pytest.raises(NotWeights, match=r"^2 of the saved weights are not numbers \(NaN or infinite\)"):
        weights_file.load(network(), path)


@pytest.mark.parametrize(
    ("names", "what"),
    [
        ([], "No weights were saved."),
        (["weights.txt"], "No weights were saved."),
        (["weights.data-00000-of-00001", "weights.index"], "but a TensorFlow checkpoint is beside it"),
        (["weights.keras"], "but a model in Keras's own format is beside it"),
    ],
)
def test_what_lies_beside_a_missing_file_is_named(names, what):
    sentence = weights_file.missing(names)
    assert what in sentence and sentence.startswith(weights_file.NOTHING)
    assert (SAVE in sentence) == ("beside" in what)
