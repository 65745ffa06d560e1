"""LARS, LARC, LAMB and NovoGrad as Keras 2.15 optimizers; their formulas are the functions of `rules`.

Arguments of all:

    learning_rate: c, a number or a Keras schedule.
    weight_decay: b.
    exclude: regular expressions; a variable whose name matches one of them (`re.search`) gets neither layer-wise
        scaling nor weight decay. Usual: ["bias", "batch_normalization"]. Not for NovoGrad.

Sparse gradients become dense, because the norm is over the whole layer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow import keras

from course_lib.optimizers import rules
from course_lib.optimizers.schedules import Rate


class _LayerWise(keras.optimizers.Optimizer):
    """Base class: settings, state variables, and the update by a rule.

    Subclasses define `rule`, a function of `rules`, and `hyperparameters`, the names of their own arguments.
    """

    rule: Callable
    hyperparameters: tuple[str, ...]
    nesterov = False

    def __init__(self, learning_rate: Rate, weight_decay: float, exclude: Sequence[str] | None, **keras_options: Any):
        # Keras's weight decay stays off: in the papers the decay is part of the ratio of norms.
        super().__init__(**{**keras_options, "weight_decay": None})
        self._learning_rate = self._build_learning_rate(learning_rate)
        self.decay = float(weight_decay)
        self.exclude = None if exclude is None else list(exclude)
        self._excluded = re.compile("|".join(f"(?:{pattern})" for pattern in exclude) if exclude else r"(?!)")

    def build(self, var_list: Sequence[tf.Variable]) -> None:
        """Create the state variables, initialised to zero."""
        super().build(var_list)
        if getattr(self, "_built", False):
            return
        self._momenta = [self.add_variable_from_reference(variable, "m") for variable in var_list]
        self._states = self._first_states(var_list)
        self._built = True

    def _first_states(self, var_list: Sequence[tf.Variable]) -> list[dict[str, tf.Variable]]:
        """The state of the rule for each variable, in addition to the momentum."""
        return [{} for _ in var_list]

    def update_step(self, gradient: tf.Tensor, variable: tf.Variable) -> None:
        """Update one variable by its gradient."""
        place = self._index_dict[self._var_key(variable)]
        state, scaled = self._states[place], not self._excluded.search(variable.name)
        rate = tf.cast(self.learning_rate, variable.dtype)
        changed, rate, step = type(self).rule(variable, tf.convert_to_tensor(gradient), state, rate, self, scaled)
        for name, value in changed.items():
            state[name].assign(value)
        self._apply(variable, self._momenta[place], rate, step)

    def _apply(self, variable: tf.Variable, momentum: tf.Variable, rate: tf.Tensor, step: tf.Tensor) -> None:
        """v ← m v + step; w ← w − rate · v, in one pass over memory."""
        tf.raw_ops.ResourceApplyMomentum(
            var=variable.handle,
            accum=momentum.handle,
            lr=rate,
            grad=step,
            momentum=tf.constant(self.momentum, variable.dtype),
            use_nesterov=self.nesterov,
        )

    def get_config(self) -> dict[str, Any]:
        """All arguments; Horovod creates its distributed optimizer from them."""
        rate = self._serialize_hyperparameter(self._learning_rate)
        own = {name: getattr(self, name) for name in self.hyperparameters}
        return {
            **super().get_config(),
            "learning_rate": rate,
            "weight_decay": self.decay,
            "exclude": self.exclude,
            **own,
        }


@keras.saving.register_keras_serializable("course_lib")
class LARS(_LayerWise):
    """Layer-wise adaptive rate scaling (You, Gitman, Ginsburg 2017, arXiv:1708.03888), as in MLPerf.

    λ = η‖w‖ / (‖g‖ + b‖w‖ + ε);  v ← m v + c λ (g + b w);  w ← w − v

    With `nesterov`, w ← w − (m v + c λ (g + b w)) with the new v. Excluded variables get λ = 1 and b = 0.

    Args:
        momentum: m.
        trust_coefficient: η.
        epsilon: ε.
    """

    rule = rules.lars
    hyperparameters = ("momentum", "trust_coefficient", "nesterov", "epsilon")

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

    def _apply(self, variable: tf.Variable, momentum: tf.Variable, rate: tf.Tensor, step: tf.Tensor) -> None:
        """v ← m v + rate · step; w ← w − v. TensorFlow's operation stores −v."""
        tf.raw_ops.ResourceApplyKerasMomentum(
            var=variable.handle,
            accum=momentum.handle,
            lr=rate,
            grad=step,
            momentum=tf.constant(self.momentum, variable.dtype),
            use_nesterov=self.nesterov,
        )


@keras.saving.register_keras_serializable("course_lib")
class LARC(_LayerWise):
    """LARS with the local rate clipped at the learning rate, on momentum SGD, as in the slides and in NVIDIA's apex.

    λ = min(η‖w‖ / (‖g‖ + b‖w‖ + ε), c);  v ← m v + (λ / c) (g + b w);  w ← w − c v

    Without `clip`, λ = η‖w‖ / (‖g‖ + b‖w‖ + ε) and v ← m v + λ (g + b w): LARS with the learning rate outside the
    momentum.

    Args:
        momentum: m.
        trust_coefficient: η.
        epsilon: ε.
        clip: whether λ is at most the learning rate.
    """

    rule = rules.larc
    hyperparameters = ("momentum", "trust_coefficient", "nesterov", "epsilon", "clip")

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
        super().__init__(learning_rate, weight_decay, exclude, name=name, **keras_options)
        self.momentum, self.trust_coefficient = float(momentum), float(trust_coefficient)
        self.nesterov, self.epsilon, self.clip = bool(nesterov), float(epsilon), bool(clip)


@keras.saving.register_keras_serializable("course_lib")
class LAMB(_LayerWise):
    """Adam with a layer-wise trust ratio (You et al. 2020, arXiv:1904.00962), with bias correction.

    M ← β₁M + (1−β₁)g;  V ← β₂V + (1−β₂)g²;  u = M̂ / (√V̂ + ε) + b w;  w ← w − c ‖w‖/‖u‖ u

    Excluded variables get Adam's update.

    Args:
        beta_1, beta_2: β₁ and β₂.
        epsilon: ε.
    """

    rule = rules.lamb
    hyperparameters = ("beta_1", "beta_2", "epsilon")

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

    def _first_states(self, var_list: Sequence[tf.Variable]) -> list[dict[str, tf.Variable]]:
        # Keras's `iterations` is not the number of updates if Horovod accumulates gradients over several passes.
        updates = [self.add_variable((), tf.int64, name="t") for _ in var_list]
        second = [self.add_variable_from_reference(variable, "v") for variable in var_list]
        return [{"m": m, "v": v, "t": t} for m, v, t in zip(self._momenta, second, updates)]

    def _apply(self, variable: tf.Variable, momentum: tf.Variable, rate: tf.Tensor, step: tf.Tensor) -> None:
        """w ← w − rate · step; the rule's step includes the momentum."""
        tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=rate, delta=step)


@keras.saving.register_keras_serializable("course_lib")
class NovoGrad(_LayerWise):
    """NovoGrad (Ginsburg et al. 2019, arXiv:1905.11286): the second moment is one number for each layer.

    V ← ‖g‖² in the first step, then β₂V + (1−β₂)‖g‖²;  M ← β₁M + g/(√V + ε) + b w;  w ← w − c M

    Args:
        beta_1, beta_2: β₁ and β₂.
        epsilon: ε.
    """

    rule = rules.novograd
    hyperparameters = ("beta_1", "beta_2", "epsilon")

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
        self.momentum = self.beta_1

    def _first_states(self, var_list: Sequence[tf.Variable]) -> list[dict[str, tf.Variable]]:
        return [{"v": self.add_variable((), variable.dtype, name="v")} for variable in var_list]

    def get_config(self) -> dict[str, Any]:
        """All arguments; `exclude` is not one of them, because the paper excludes no variable."""
        config = super().get_config()
        del config["exclude"]
        return config
