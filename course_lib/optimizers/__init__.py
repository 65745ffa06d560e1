"""Layer-wise optimizers for large batches, as Keras 2.15 optimizers: LARS, LARC, LAMB, NovoGrad.

Notation of the papers: w weights of one layer (one variable), g its gradient, c learning rate, b weight decay,
m momentum, η trust coefficient, β₁ and β₂ decay rates of the moving averages. Norms are over one variable.

Where a ratio of norms has a zero in it (new biases, a dead layer) it counts as 1: the step is then that of the
optimizer within. Sparse gradients are made dense, since a norm needs all of a layer. `exclude` is a list of regular
expressions; a variable whose name one of them finds gets neither layer-wise scaling nor decay: usually
["bias", "batch_normalization"].
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import tensorflow as tf
from tensorflow import keras

if TYPE_CHECKING:
    from course_lib.optimizers.schedules import Rate


class _LayerWise(keras.optimizers.Optimizer):
    """What the four share: their settings, one slot of momentum for each variable, norms and ratios."""

    def __init__(self, learning_rate: Rate, weight_decay: float, exclude: Sequence[str] | None, **keras_options: Any):
        # Keras's own weight decay is kept off: the papers put decay into the ratio of norms.
        super().__init__(**{**keras_options, "weight_decay": None})
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.decay = float(weight_decay)
        self.exclude = None if exclude is None else list(exclude)
        self._excluded = re.compile("|".join(f"(?:{pattern})" for pattern in exclude) if exclude else r"(?!)")

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        """Make the momenta, zeros like the variables."""
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self._momenta = [self.add_variable_from_reference(variable, "m") for variable in var_list]
        self._second = self._second_moments(var_list)
        self._built = True

    def _second_moments(self, var_list: Sequence[tf.Variable]) -> list[tf.Variable]:
        return []

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        """One step of one variable."""
        gradient = tf.convert_to_tensor(gradient)
        place = self._index_dict[self._var_key(variable)]
        scaled = not self._excluded.search(variable.name)
        rate = tf.cast(self.learning_rate, variable.dtype)
        self._step(gradient, variable, place, rate, scaled)

    def _decayed(self, gradient: tf.Tensor, variable: tf.Variable, scaled: bool) -> tf.Tensor:
        return gradient + self.decay * variable if scaled and self.decay else gradient

    def get_config(self) -> dict[str, Any]:
        """All arguments: Horovod makes the optimizer anew from them."""
        rate = self._serialize_hyperparameter(self._learning_rate)
        return {**super().get_config(), "learning_rate": rate, "weight_decay": self.decay, "exclude": self.exclude}


def _norm(x: tf.Tensor) -> tf.Tensor:
    # One pass over x without a copy: l2_loss is half the sum of the squares.
    return tf.sqrt(2 * tf.nn.l2_loss(x))


def _ratio(above: tf.Tensor, below: tf.Tensor) -> tf.Tensor:
    """above / below; 1 where one of them is zero."""
    return tf.where((above > 0) & (below > 0), tf.math.divide_no_nan(above, below), tf.ones_like(above))


@keras.saving.register_keras_serializable("course_lib")
class LARS(_LayerWise):
    """Layer-wise adaptive rate scaling (You, Gitman, Ginsburg 2017, arXiv:1708.03888), as in MLPerf.

    λ = η‖w‖ / (‖g‖ + b‖w‖ + ε);  v ← m v + c λ (g + b w);  w ← w − v

    With `nesterov`, w ← w − (m v + c λ (g + b w)) with the new v. Excluded variables get λ = 1 and b = 0.
    """

    def __init__(
        self,
        learning_rate: Rate,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.001,
        nesterov: bool = False,
        epsilon: float = 0.0,
        exclude: Sequence[str] | None = None,
        name: str = "LARS",
        **keras_options: Any,
    ):
        super().__init__(learning_rate, weight_decay, exclude, name=name, **keras_options)
        self.momentum, self.trust_coefficient = float(momentum), float(trust_coefficient)
        self.nesterov, self.epsilon = bool(nesterov), float(epsilon)

    def _trust(self, gradient: tf.Tensor, variable: tf.Variable, unit: tf.Tensor | float = 1.0) -> tf.Tensor:
        """λ, the layer's local rate, in multiples of `unit`."""
        weights = _norm(variable)
        below = _norm(gradient) + self.decay * weights + self.epsilon
        return _ratio(self.trust_coefficient * weights, unit * below)

    def _step(self, gradient: tf.Tensor, variable: tf.Variable, place: int, rate: tf.Tensor, scaled: bool) -> None:
        trust = self._trust(gradient, variable) if scaled else tf.ones((), variable.dtype)
        # accum ← m accum − lr grad; var ← var + accum: one pass over memory for both.
        tf.raw_ops.ResourceApplyKerasMomentum(
            var=variable.handle,
            accum=self._momenta[place].handle,
            lr=rate * trust,
            grad=self._decayed(gradient, variable, scaled),
            momentum=tf.constant(self.momentum, variable.dtype),
            use_nesterov=self.nesterov,
        )

    def get_config(self) -> dict[str, Any]:
        """All arguments."""
        own = ("momentum", "trust_coefficient", "nesterov", "epsilon")
        return {**super().get_config(), **{name: getattr(self, name) for name in own}}


@keras.saving.register_keras_serializable("course_lib")
class LARC(LARS):
    """LARS that is clipped at the learning rate: with momentum SGD within, as the course's slides and apex have it.

    λ = η‖w‖ / (‖g‖ + b‖w‖ + ε), with `clip` at most c;  v ← m v + (λ / c) (g + b w);  w ← w − c v

    Without `clip` it is v ← m v + λ (g + b w): LARS with the learning rate outside the momentum.
    """

    def __init__(
        self,
        learning_rate: Rate,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        trust_coefficient: float = 0.001,
        nesterov: bool = False,
        epsilon: float = 0.0,
        exclude: Sequence[str] | None = None,
        clip: bool = True,
        name: str = "LARC",
        **keras_options: Any,
    ):
        super().__init__(
            learning_rate, momentum, weight_decay, trust_coefficient, nesterov, epsilon, exclude, name, **keras_options
        )
        self.clip = bool(clip)

    def _step(self, gradient: tf.Tensor, variable: tf.Variable, place: int, rate: tf.Tensor, scaled: bool) -> None:
        step = self._decayed(gradient, variable, scaled)
        if scaled and self.clip:
            step *= tf.minimum(self._trust(gradient, variable, unit=rate), 1)
        elif scaled:
            step *= self._trust(gradient, variable)
        # accum ← m accum + grad; var ← var − lr accum.
        tf.raw_ops.ResourceApplyMomentum(
            var=variable.handle,
            accum=self._momenta[place].handle,
            lr=rate,
            grad=step,
            momentum=tf.constant(self.momentum, variable.dtype),
            use_nesterov=self.nesterov,
        )

    def get_config(self) -> dict[str, Any]:
        """All arguments."""
        return {**super().get_config(), "clip": self.clip}


@keras.saving.register_keras_serializable("course_lib")
class LAMB(_LayerWise):
    """Adam with a layer-wise ratio (You et al. 2020, arXiv:1904.00962), bias correction included.

    M ← β₁M + (1−β₁)g;  V ← β₂V + (1−β₂)g²;  u = M̂ / (√V̂ + ε) + b w;  w ← w − c ‖w‖/‖u‖ u

    Excluded variables take Adam's step.
    """

    def __init__(
        self,
        learning_rate: Rate,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        weight_decay: float = 0.0,
        exclude: Sequence[str] | None = None,
        name: str = "LAMB",
        **keras_options: Any,
    ):
        super().__init__(learning_rate, weight_decay, exclude, name=name, **keras_options)
        self.beta_1, self.beta_2, self.epsilon = float(beta_1), float(beta_2), float(epsilon)

    def _second_moments(self, var_list: Sequence[tf.Variable]) -> list[tf.Variable]:
        # Keras's count of iterations is not that of steps when Horovod adds up several passes.
        self._times = [self.add_variable((), tf.int64, name="t") for _ in var_list]
        return [self.add_variable_from_reference(variable, "v") for variable in var_list]

    def _step(self, gradient: tf.Tensor, variable: tf.Variable, place: int, rate: tf.Tensor, scaled: bool) -> None:
        first, second = self._momenta[place], self._second[place]
        time = tf.cast(self._times[place].assign_add(1), variable.dtype)
        first.assign_add((gradient - first) * (1 - self.beta_1))
        second.assign_add((tf.square(gradient) - second) * (1 - self.beta_2))
        # û = M̂ / (√V̂ + ε) is `correction` times this. The factor is kept out of the arrays, and cancels in û/‖û‖.
        root = tf.sqrt(1 - tf.constant(self.beta_2, variable.dtype) ** time)
        correction = root / (1 - tf.constant(self.beta_1, variable.dtype) ** time)
        update = first / (tf.sqrt(second) + self.epsilon * root)
        if scaled:
            update = update + (self.decay / correction) * variable if self.decay else update
            rate = rate * _ratio(_norm(variable), correction * _norm(update))
        tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate * correction, delta=update)

    def get_config(self) -> dict[str, Any]:
        """All arguments."""
        return {**super().get_config(), "beta_1": self.beta_1, "beta_2": self.beta_2, "epsilon": self.epsilon}


@keras.saving.register_keras_serializable("course_lib")
class NovoGrad(_LayerWise):
    """Moving averages by layer (Ginsburg et al. 2019, arXiv:1905.11286): the second moment is one number a layer.

    V ← ‖g‖² in the first step, then β₂V + (1−β₂)‖g‖²;  M ← β₁M + g/(√V + ε) + b w;  w ← w − c M
    """

    def __init__(
        self,
        learning_rate: Rate,
        beta_1: float = 0.95,
        beta_2: float = 0.98,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        name: str = "NovoGrad",
        **keras_options: Any,
    ):
        super().__init__(learning_rate, weight_decay, None, name=name, **keras_options)
        self.beta_1, self.beta_2, self.epsilon = float(beta_1), float(beta_2), float(epsilon)

    def _second_moments(self, var_list: Sequence[tf.Variable]) -> list[tf.Variable]:
        return [self.add_variable((), variable.dtype, name="v") for variable in var_list]

    def _step(self, gradient: tf.Tensor, variable: tf.Variable, place: int, rate: tf.Tensor, scaled: bool) -> None:
        second, squares = self._second[place], 2 * tf.nn.l2_loss(gradient)
        # Zero is "no step yet": of a layer, which may get its first gradient late.
        second.assign(tf.where(second > 0, self.beta_2 * second + (1 - self.beta_2) * squares, squares))
        tf.raw_ops.ResourceApplyMomentum(
            var=variable.handle,
            accum=self._momenta[place].handle,
            lr=rate,
            grad=self._decayed(gradient / (tf.sqrt(second) + self.epsilon), variable, scaled),
            momentum=tf.constant(self.beta_1, variable.dtype),
        )

    def get_config(self) -> dict[str, Any]:
        """All arguments."""
        config = {**super().get_config(), "beta_1": self.beta_1, "beta_2": self.beta_2, "epsilon": self.epsilon}
        del config["exclude"]  # the paper's rule has no exceptions
        return config
