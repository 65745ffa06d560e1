"""Load a file of saved weights into the assessment's network, or describe what the file contains instead."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

SAVE = 'call model.save_weights(os.environ["COURSE_WEIGHTS"])'
NOTHING = "No weights were saved"  # start of the sentence about a missing file
DAMAGED = "The file of weights is damaged or cut short: only rank 0 should save, after training."


class NotWeights(Exception):
    """The file does not contain the network's weights; the message is a sentence on what it contains."""


def missing(names: Iterable[str]) -> str:
    """Return a sentence about a missing file of weights; `names`: of the files beside the expected one."""
    for name in sorted(names):
        for end, kind in ((".index", "a TensorFlow checkpoint"), (".keras", "a model in Keras's own format")):
            if name.endswith(end):
                return f"{NOTHING} to the path in COURSE_WEIGHTS, but {kind} is beside it: {SAVE}."
    return f"{NOTHING}."


def load(model: Any, path: Path) -> None:
    """Load the weights in a file into a Keras model.

    The file is from `save_weights` or `save`, of the same network or of a model that wraps it. A wrapping model may
    have more layers, such as those that augment images, but no more weights. No array is read before all shapes match.

    Raises NotWeights if the file contains anything else, or values that are not finite.
    """
    if not h5py.is_hdf5(path):
        raise NotWeights(_foreign(path))
    try:
        with h5py.File(path, "r") as file:
            arrays = _arrays(file)
            shapes = [array.shape for array in arrays]
            # Keras saves a layer's weights with the trainable ones first, and a model in a model is one layer.
            orders = model.weights, [*model.trainable_weights, *model.non_trainable_weights]
            variables = next((order for order in orders if [tuple(v.shape) for v in order] == shapes), None)
            if variables is None:
                raise NotWeights(_another_network(model.weights, shapes))
            values = [array[()].astype(np.float32) for array in arrays]
    except NotWeights:
        raise
    except Exception:  # h5py raises many kinds of errors for a damaged file
        raise NotWeights(DAMAGED) from None
    for variable, value in zip(variables, values):
        variable.assign(value)
    if broken := sum(int((~np.isfinite(value)).sum()) for value in values):
        raise NotWeights(f"{broken:,} of the saved weights are not numbers (NaN or infinite): the training diverged.")


def _foreign(path: Path) -> str:
    """Return a sentence that says what a file is that is not HDF5."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if "config.json" in archive.namelist():
                return f"The saved file is a whole model in Keras's own format (.keras), not its weights: {SAVE}."
    return f"The saved file is not in HDF5, the format of Keras's weights: {SAVE}."


def _arrays(file: h5py.File) -> list[h5py.Dataset]:
    """Return the arrays of all layers in the order in which Keras saved them."""
    group = file.get("model_weights", file)
    if "layer_names" not in group.attrs:
        if "layers" in file:
            raise NotWeights(f"The saved file is in the format of Keras 3 (.weights.h5): use tf.keras, and {SAVE}.")
        raise NotWeights(f"The saved file is HDF5, but not Keras's weights: {SAVE}.")
    layers = [group[name] for name in group.attrs["layer_names"]]
    return [layer[name] for layer in layers for name in layer.attrs["weight_names"]]


def _another_network(variables: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> str:
    """Return a sentence that says how the saved shapes differ from those of the network's variables."""
    difference = f"the file has {len(shapes)} arrays, but the network {len(variables)}"
    for variable, shape in zip(variables, shapes):
        if shape != tuple(variable.shape):
            name = variable.name.partition(":")[0]
            difference = f"{name} should have the shape {_shape_text(variable.shape)}, but has {_shape_text(shape)}"
            break
    return f"The saved weights are not those of models.assessment_cnn, the only network that counts: {difference}."


def _shape_text(shape: Iterable[int]) -> str:
    return " × ".join(map(str, shape)) or "()"
