"""Watch where gradients come from: of which weights they are, and of how many examples, and of which.

That a network is called on examples does not say that it learns from them. So a gradient is counted where it has gone
back through the whole network, to the output of its first layer with weights; and what this layer is given is compared
with what the network was given.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable

import numpy as np

from course_lib.ranks.probe.patches import Patches

POSITIONS = 512  # of a layer's output, at which an example's gradient is looked for


class Gradients:
    """Tells of what gradients are.

    Args:
        look: called with what a person should look at: gradients of other variables than the weights of a network.
        came: called with the number of examples whose gradient has gone through the network.
        used: called with what `measure` makes of the examples that a network was given, and of what comes to its first
            layer with weights.
        measure: examples → one number for each.
    """

    def __init__(
        self,
        look: Callable[[str], None],
        came: Callable[[int], None],
        used: Callable[[np.ndarray, np.ndarray], None],
        measure: Callable[[object], object],
    ) -> None:
        self.look, self._came, self._used, self._measure = look, came, used, measure
        self._networks: weakref.WeakSet = weakref.WeakSet()
        self._thread = threading.local()

    def begins(self, model: object) -> None:
        """The call of a network begins; in a graph: is traced."""
        self._networks.add(model)
        self._thread.waits = True

    def shows(self, measured: object) -> None:
        """The network of the call that begins is given examples of which this was measured."""
        self._thread.shown = measured

    def compiled(self, examples: int) -> None:
        """A function that XLA has compiled has run a step: what it does can't be seen, and is believed."""
        self._came(examples)

    def watch(self, tf: object, patches: Patches) -> None:
        """Patch Keras's layers and TensorFlow's tape."""
        from tensorflow.python.eager import record
        from tensorflow.python.ops import control_flow_util

        def in_xla() -> bool:
            graph = tf.compat.v1.get_default_graph()
            return not tf.executing_eagerly() and control_flow_util.GraphOrParentsInXlaContext(graph)

        def examples_in(gradient: object) -> object:
            """How many examples have a gradient, int32 []."""
            each = tf.reshape(gradient, [tf.shape(gradient)[0], -1])
            # An odd stride, so that it is not one channel that is looked at.
            stride = ((gradient.shape[1:].num_elements() or 1) // POSITIONS) | 1
            return tf.reduce_sum(tf.cast(tf.reduce_any(each[:, ::stride] != 0, axis=1), tf.int32))

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

        def compare(given: object) -> None:
            shown, given = self._thread.shown, self._measure(given)
            if tf.executing_eagerly():
                self._used(shown.numpy(), given.numpy())
            else:
                tf.numpy_function(self._used, [shown, given], [], stateful=True)

        def first(original: Callable) -> Callable:
            @functools.wraps(original)
            def __call__(layer: object, *args: object, **kwargs: object) -> object:
                output = original(layer, *args, **kwargs)
                if (
                    getattr(self._thread, "waits", False)
                    and record.could_possibly_record()
                    and not isinstance(layer, tf.keras.Model)
                    and isinstance(output, tf.Tensor)
                    and layer.trainable_weights
                    and not in_xla()
                ):
                    self._thread.waits = False
                    with record.stop_recording():
                        compare(args[0] if args else kwargs["inputs"])
                    return watched(output)
                return output

            return __call__

        def of_weights(original: Callable) -> Callable:
            @functools.wraps(original)
            def gradient(tape: object, target: object, sources: object, *args: object, **kwargs: object) -> object:
                known = {weight.ref() for network in self._networks for weight in network.trainable_variables}
                if not all(isinstance(one, tf.Variable) and one.ref() in known for one in tf.nest.flatten(sources)):
                    self.look("takes gradients of other variables than the weights that its network trains")
                return original(tape, target, sources, *args, **kwargs)

            return gradient

        patches.put(tf.keras.layers.Layer, "__call__", first)
        patches.put(tf.GradientTape, "gradient", of_weights)
