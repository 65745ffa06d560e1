"""Watch where gradients come from: of which weights they are, of how many examples, and of which.

That a network is called on examples does not say that it learns from them. So a gradient is counted where it has gone
back through the whole network, to the output of its first layer with weights; and what this layer is given is compared
with what the network was given.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable

from course_lib.ranks import events
from course_lib.ranks.instrumentation.patches import Patches

ROWS = 4  # in the middle of a layer's output, in which an example's gradient is looked for


class Gradients:
    """Tells of what gradients are.

    Args:
        look: called with what a person should look at: gradients of other variables than the weights of a network.
        came: called with the number of examples whose gradient has gone through the network.
        used: called with what `measure` makes of what comes to a network's first layer with weights and, where they are
            at hand, of the examples that the network was given; else these are those of the last step.
        measure: examples → one number for each.
    """

    def __init__(
        self,
        look: Callable[[str], None],
        came: Callable[[int], None],
        used: Callable[..., None],
        measure: Callable[[object], object],
    ) -> None:
        self.look = look
        self._came, self._used, self._measure = came, used, measure
        self._firsts: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # network → its first layer with weights
        self._networks: weakref.WeakSet = weakref.WeakSet()
        self._call = threading.local()

    def begins(self, model: object, measured: object) -> None:
        """The call of a network begins; in a graph: is traced. `measured` is what was measured of its examples."""
        self._networks.add(model)
        self._call.network, self._call.shown = model, measured

    def ends(self) -> None:
        """It ends."""
        self._call.network = self._call.shown = None

    def compiled(self, examples: int) -> None:
        """What XLA has compiled can't be watched: it is believed that these examples have a gradient."""
        self._came(examples)

    def watch(self, tf: object, patches: Patches) -> None:
        """Patch Keras's layers and TensorFlow's tape."""
        from tensorflow.python.eager import record
        from tensorflow.python.ops import custom_gradient

        def examples_in(gradient: object) -> object:
            """How many examples have a gradient, int32 []."""
            if gradient.shape.rank > 2:  # several rows: a next layer's stride may leave some out
                middle = tf.shape(gradient)[1] // 2
                gradient = gradient[:, tf.maximum(middle - ROWS // 2, 0) : middle + ROWS // 2]
            each = tf.reshape(gradient, [tf.shape(gradient)[0], -1])
            return tf.reduce_sum(tf.cast(tf.reduce_any(each != 0, axis=1), tf.int32))

        @tf.custom_gradient
        def watched(tensor: object) -> tuple[object, Callable]:
            def back(gradient: object) -> object:
                if tf.executing_eagerly():
                    self._came(int(examples_in(gradient)))
                    return gradient
                told = tf.numpy_function(self._came, [examples_in(gradient)], [], stateful=True)
                with tf.control_dependencies([told]):
                    return tf.identity(gradient)

            return tf.identity(tensor), back

        def compare(given: list) -> None:
            """Of several inputs of a layer it is the largest."""
            tensors = [one for one in given if isinstance(one, tf.Tensor) and one.shape.rank]
            if not tensors:
                return
            measured = [self._measure(max(tensors, key=lambda one: one.shape[1:].num_elements() or 0))]
            shown = self._call.shown
            if tf.executing_eagerly():
                return self._used(*(one.numpy() for one in [*measured, shown]))
            # A function within the network is traced once, for examples that have come from elsewhere each time.
            if not hasattr(shown, "numpy") and shown.graph is tf.compat.v1.get_default_graph():
                measured.append(shown)
            tf.numpy_function(self._used, measured, [], stateful=True)

        def first(original: Callable) -> Callable:
            @functools.wraps(original)
            def __call__(layer: object, *args: object, **kwargs: object) -> object:
                output = original(layer, *args, **kwargs)
                network = getattr(self._call, "network", None)
                if (
                    network is None
                    or isinstance(layer, tf.keras.Model)
                    or not (isinstance(output, tf.Tensor) and output.shape.rank)
                    or not (record.could_possibly_record() and layer.trainable_weights)
                    or events.in_xla(tf)
                    or self._firsts.setdefault(network, weakref.ref(layer))() is not layer
                ):
                    return output
                with record.stop_recording():
                    compare(tf.nest.flatten([args, kwargs]))
                return events.with_mask_of(output, watched(output))

            return __call__

        def of_weights(original: Callable) -> Callable:
            @functools.wraps(original)
            def gradient(tape: object, target: object, sources: object, *args: object, **kwargs: object) -> object:
                found = original(tape, target, sources, *args, **kwargs)
                known = {weight.ref() for network in self._networks for weight in network.trainable_variables}
                others = [
                    source
                    for source, one in zip(tf.nest.flatten(sources), tf.nest.flatten(found))
                    if one is not None and not (isinstance(source, tf.Variable) and source.ref() in known)
                ]
                # TensorFlow's own `recompute_grad` takes gradients of what it recomputes.
                if others and sys._getframe(1).f_code.co_filename != custom_gradient.__file__:
                    self.look("takes gradients of other variables than the weights that its network trains")
                return found

            return gradient

        patches.put(tf.keras.layers.Layer, "__call__", first)
        patches.put(tf.GradientTape, "gradient", of_weights)
