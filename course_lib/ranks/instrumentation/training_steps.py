"""Detect training steps of Keras: a training step is a call of a model under a gradient tape."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import record
from tensorflow.python.eager.polymorphic_function.polymorphic_function import Function
from tensorflow.python.ops import control_flow_util

from course_lib.ranks.instrumentation.patches import Patches

STEP_OPERATION = "course_step"  # name of the operation that reports a step


class TrainingSteps:
    """Calls `step(model, *values)` before each call of a model under a gradient tape.

    A model that is called within another model belongs to the same step. A function compiled by XLA cannot call Python:
    if it calls a model, each call of the function counts as a step, and its largest argument has the examples.
    """

    def __init__(self, measure: Callable[[tf.Tensor], Sequence[tf.Tensor]], step: Callable[..., None]) -> None:
        """`measure` maps the tensor of the step's examples (the largest of several inputs) to tensors; `step` receives
        their values as arrays."""
        self._measure, self._step = measure, step
        self._thread = threading.local()  # in_step: within a call of a model; compiled: the XLA function being called
        self._trained_by: weakref.WeakKeyDictionary[object, object] = weakref.WeakKeyDictionary()  # function → model

    def install(self, patches: Patches) -> None:
        """Patch Keras and TensorFlow in this process."""
        patches.replace(tf.keras.Model, "__call__", self._model_call)
        patches.replace(Function, "__call__", self._function_call)

    def _model_call(self, original: Callable) -> Callable:
        @functools.wraps(original)
        def call(model: tf.keras.Model, *args: object, **kwargs: object) -> object:
            if not args and "inputs" in kwargs:
                args = (kwargs.pop("inputs"),)
            under_tape = record.could_possibly_record() and args and _tensors(tf.nest.flatten(args[0])[:1])
            if not under_tape or getattr(self._thread, "in_step", False):
                return original(model, *args, **kwargs)
            reported = None
            if not in_xla():
                reported = self._report(model, tf.nest.flatten(args[0]))
            elif function := getattr(self._thread, "compiled", None):
                self._trained_by[function] = model
            after = tf.executing_eagerly() and not model.built  # this call creates the weights
            if reported and not after:  # report before the weights change
                args = (reported(args[0]), *args[1:])
            self._thread.in_step = True
            try:
                outputs = original(model, *args, **kwargs)
            finally:
                self._thread.in_step = False
            return reported(outputs) if reported and after else outputs

        return call

    def _function_call(self, original: Callable) -> Callable:
        @functools.wraps(original)
        def call(function: Function, *args: object, **kwargs: object) -> object:
            if not function._jit_compile or getattr(self._thread, "compiled", None):
                return original(function, *args, **kwargs)
            self._thread.compiled = function
            try:
                outputs = original(function, *args, **kwargs)
            finally:
                self._thread.compiled = None
            tensors = _tensors((args, kwargs))
            if function not in self._trained_by or not tensors:
                return outputs
            return self._report(self._trained_by[function], tensors)(outputs)

        return call

    def _report(self, model: tf.keras.Model, tensors: Sequence[tf.Tensor]) -> Callable[[object], object]:
        """Measure a step's examples; return a function that reports the step and returns its argument.

        In a graph, the returned tensors depend on the report.
        """

        def step(*values: np.ndarray) -> None:
            if model.trainable_variables:  # a model without weights only augments images
                self._step(model, *values)

        def reported(outputs: object) -> object:
            if tf.executing_eagerly():
                step(*(tensor.numpy() for tensor in measured))
                return outputs
            return _after(tf.numpy_function(step, measured, [], stateful=True, name=STEP_OPERATION), outputs)

        with record.stop_recording(), tf.device("/CPU:0"):  # avoids a copy from a GPU, which would delay the step
            measured = self._measure(max(tensors, key=_size_of_example))
        return reported


def in_xla() -> bool:
    """Whether the current graph is traced for XLA, which can't call Python."""
    graph = tf.compat.v1.get_default_graph()
    return not tf.executing_eagerly() and control_flow_util.GraphOrParentsInXlaContext(graph)


def _tensors(structure: object) -> list:
    """The tensors and arrays in a nested structure."""
    return [leaf for leaf in tf.nest.flatten(structure) if isinstance(leaf, (tf.Tensor, np.ndarray))]


def _size_of_example(tensor: object) -> int:
    """The number of values in one example of a tensor."""
    return tf.TensorShape(getattr(tensor, "shape", None))[1:].num_elements() or 0


def _after(operation: tf.Operation, structure: object) -> object:
    """Copies of the tensors that depend on `operation`, with their Keras masks."""

    def identity(leaf: object) -> object:
        if not isinstance(leaf, tf.Tensor):
            return leaf
        copy = tf.identity(leaf)
        if hasattr(leaf, "_keras_mask"):
            copy._keras_mask = leaf._keras_mask
        return copy

    with tf.control_dependencies([operation]):
        return tf.nest.map_structure(identity, structure)
