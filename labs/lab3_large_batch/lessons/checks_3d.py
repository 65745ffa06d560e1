"""Checks of notebook 3d: the local rate of a layer, LARS, LARC, LAMB and NovoGrad, and what each of them notices.

A rule takes three steps with published weights behind them, then twenty steps of a convolution with a falling η.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from course_lib.notebook.answers import case, compare, number, same, several, shown, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from course_lib.notebook.update_rules import (
    ETA_MISSING,
    WRONG_SIGN,
    Rule,
    Walk,
    collected,
    compare_walk,
    delayed,
    judge_memory,
    take_step,
    walk,
)

TOLERANCE = 1e-6

# --- local_rate

Layer = tuple[np.ndarray, np.ndarray, float, float]  # w, gradient, τ, b


def _rate(answer: Callable, layer: Layer, what: str = "") -> float:
    w, g, tau, b = layer
    with unchanged(w, g):
        return number(answer(w, g, tau, b), what or f"for weights of shape {w.shape} it")


def _rates(layer: Layer) -> tuple[float, dict[str, float]]:
    """λ, and by sentence what an answer with this mistake gives."""
    w, g, tau, b = layer

    def rate(norm: Callable[[np.ndarray], float]) -> float:
        return tau * norm(w) / (norm(g) + b * norm(w))

    of_w, of_g = np.linalg.norm(w), np.linalg.norm(g)
    return rate(np.linalg.norm), {
        "the denominator is the norm of the sum, ‖∇L + b w‖; the paper has the sum of the norms, ‖∇L‖ + b ‖w‖.": (
            tau * of_w / np.linalg.norm(g + b * w)
        ),
        "the trust coefficient τ is missing.": of_w / (of_g + b * of_w),
        "τ is applied twice.": tau**2 * of_w / (of_g + b * of_w),
        "the decay's part of the denominator, b ‖w‖, is missing.": tau * of_w / of_g,
        "the denominator has b where it should have b ‖w‖.": tau * of_w / (of_g + b),
        "b ‖w‖ is subtracted, as if decay pulled against the gradient. The bound has to hold whatever the angle.": (
            tau * of_w / (of_g - b * of_w)
        ),
        "‖∇L‖ and b ‖w‖ are added as at a right angle. The bound has to hold whatever the angle: which is the worst?": (
            tau * of_w / np.hypot(of_g, b * of_w)
        ),
        "the denominator is the larger of ‖∇L‖ and b ‖w‖. If both pull in one direction, how long is their sum?": (
            tau * of_w / max(of_g, b * of_w)
        ),
        "the ratio is upside down: the norm of the weights belongs in the numerator.": tau * (of_g + b * of_w) / of_w,
        "the norms are squared: take the root of the sum of the squares.": rate(lambda x: np.sum(x**2)),
        "the norms add up absolute values; use the Euclidean norm, the root of the sum of the squares.": (
            rate(lambda x: np.abs(x).sum())
        ),
        "it takes the largest absolute value as the norm; use the root of the sum of the squares.": (
            rate(lambda x: np.abs(x).max())
        ),
        "for a matrix it takes the spectral norm (`ord=2`); use the root of the sum of all squares.": (
            rate(lambda x: np.linalg.norm(x, 2 if x.ndim == 2 else None))
        ),
    }


def _compare_rates(answer: Callable, layers: Sequence[Layer]) -> None:
    found = [_rate(answer, layer) for layer in layers]
    expected, mistakes = zip(*map(_rates, layers))
    mistakes = {sentence: [wrong[sentence] for wrong in mistakes] for sentence in mistakes[0]}
    norms = [shown((np.linalg.norm(w), np.linalg.norm(g), tau, b)) for w, g, tau, b in layers]
    compare(found, list(expected), f"for (‖w‖, ‖∇L‖, τ, b) = {', '.join(norms)} λ", mistakes)


def _judge_vectors(answer: Callable) -> None:
    w, g = np.array([3.0, 4.0]), np.array([-0.8, 0.6])
    _compare_rates(answer, [(w, g, 0.001, 0.1), (w, 2 * g, 0.02, 0.0), (2 * w, np.array([1.0, 2.0]), 1.0, 0.5)])


def _judge_shapes(answer: Callable) -> None:
    random = np.random.default_rng(2)
    shapes = ((6,), (4, 5), (3, 3, 2, 4))
    _compare_rates(answer, [(random.normal(size=s), random.normal(size=s), 0.01, 0.05) for s in shapes])


def _judge_zero_norms(answer: Callable) -> None:
    some, none = np.array([3.0, 4.0]), np.zeros(2)
    for w, g, b, what in (
        (none, some, 0.1, "all weights are 0"),
        (none, none, 0.1, "weights and gradient are 0"),
        (some, none, 0.0, "the gradient is 0 and there is no decay"),
    ):
        rate = _rate(answer, (w, g, 0.001, b), f"where {what}, λ should be 1, but it")
        still = {f"where {what}, λ should be 1, not 0: a layer whose rate is 0 would stay 0 for ever.": 0.0}
        compare(rate, 1.0, f"where {what}, λ", still, rtol=0)
    rate = _rate(answer, (some, none, 0.001, 0.1))
    compare(rate, 0.01, "with a gradient of 0 but decay, λ = τ ‖w‖ / (b ‖w‖)")


# --- rules: how one changes the weights in each step of a learner's walk, and by sentence how one with a mistake does

Changes = tuple[np.ndarray, dict[str, np.ndarray]]
Ratio = Callable[[np.ndarray, np.ndarray], np.ndarray]

NO_DECAY = "the decay b w is missing in the step."
NOT_CLIPPED = "λ is not clipped: it is at most η."


def _norms(x: np.ndarray) -> np.ndarray:
    """The norm of each step [steps, 1, …]."""
    return np.sqrt(np.sum(x**2, axis=tuple(range(1, x.ndim)), keepdims=True))


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    return np.divide(above, below, out=np.ones_like(above), where=(above > 0) & (below > 0))


def _no_ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """As in layers that are skipped."""
    return np.ones_like(above)


def _momentum_changes(
    taken: Walk, move: Callable[..., np.ndarray], rate: Ratio, tau: float, b: float, beta: float
) -> Changes:
    """What LARS and LARC share. move: what enters the velocity (but for η) → changes; rate: what λ is, of norms."""
    w, g = taken.before, taken.gradients
    decayed, of_w, of_g = g + b * w, _norms(w), _norms(g)
    right_rate = rate(tau * of_w, of_g + b * of_w)
    step = right_rate * decayed
    return move(step), {
        WRONG_SIGN: -move(step),
        NO_DECAY: move(right_rate * g),
        "λ has the norm of the sum, ‖∇L + b w‖, in place of the sum of the norms, ‖∇L‖ + b ‖w‖.": (
            move(rate(tau * of_w, _norms(decayed)) * decayed)
        ),
        "λ lacks the trust coefficient τ.": move(rate(of_w, of_g + b * of_w) * decayed),
        "λ is missing: this is SGD with momentum.": move(decayed),
        "λ is calculated without the decay: its denominator is ‖∇L‖ + b ‖w‖. Hand b to `local_rate`.": (
            move(rate(tau * of_w, of_g) * decayed)
        ),
        "the decay is not multiplied by λ: λ multiplies the whole of ∇L + b w.": move(right_rate * g + b * w),
        "the velocity starts anew in each step: keep it in the state, and return it.": move(step, beta=0),
        "the gradient enters the velocity with the factor 1 − β; here it enters whole.": (1 - beta) * move(step),
    }


def _lars_changes(taken: Walk, ratio: Ratio = _ratio, tau: float = 0.001, b: float = 0.0, beta: float = 0.9) -> Changes:
    w, g, eta = taken.before, taken.gradients, taken.rates

    def move(step: np.ndarray, beta: float = beta) -> np.ndarray:
        return -collected(eta * step, beta)

    right, mistakes = _momentum_changes(taken, move, ratio, tau, b, beta)
    trust, decayed = ratio(tau * _norms(w), _norms(g) + b * _norms(w)), g + b * w
    without_eta = -collected(trust * decayed, beta)
    return right, {
        **mistakes,
        ETA_MISSING: without_eta,
        "η stands outside the velocity; in LARS it is inside, so that v remembers the η of its time.": (
            eta * without_eta
        ),
        "λ is clipped at η: that is LARC.": move(np.minimum(trust, eta) * decayed),
        "the decay moves w beside the velocity; in LARS the velocity collects it, with λ.": (
            move(trust * g) - eta * b * w
        ),
    }


def _larc_changes(taken: Walk, ratio: Ratio = _ratio, tau: float = 0.001, b: float = 0.0, beta: float = 0.9) -> Changes:
    w, g, eta = taken.before, taken.gradients, taken.rates

    def move(step: np.ndarray, beta: float = beta) -> np.ndarray:
        return -eta * collected(step, beta)

    def clipped(above: np.ndarray, below: np.ndarray) -> np.ndarray:
        return np.minimum(ratio(above, below), eta) / eta  # a skipped layer has η too: it is at most 1 here

    right, mistakes = _momentum_changes(taken, move, clipped, tau, b, beta)
    trust, decayed = ratio(tau * _norms(w), _norms(g) + b * _norms(w)), g + b * w
    return right, {
        **mistakes,
        ETA_MISSING: right / eta,
        NOT_CLIPPED: move(trust / eta * decayed),
        "λ is at least η; it should be at most η: the smaller of the two.": (
            move(np.maximum(trust, eta) / eta * decayed)
        ),
        "λ is clipped at 1; it is clipped at η.": move(np.minimum(trust, 1) / eta * decayed),
        "λ/η is clipped at η; it is λ that is clipped at η, so λ/η is at most 1.": (
            move(np.minimum(trust / eta, eta) * decayed)
        ),
        "η is applied twice: λ already is the whole rate, so the velocity takes λ/η, and w the factor η.": (
            move(np.minimum(trust, eta) * decayed)
        ),
        "the learning rate stands inside the velocity; in LARC v takes λ/η, and w moves by η v.": (
            -collected(np.minimum(trust, eta) * decayed, beta)
        ),
    }


def _lamb_changes(
    taken: Walk, ratio: Ratio = _ratio, b: float = 0.0, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-6
) -> Changes:
    w, g, eta = taken.before, taken.gradients, taken.rates
    t = np.arange(1, len(g) + 1).reshape(eta.shape)
    m_correction, v_correction = 1 - beta1**t, 1 - beta2**t
    m, v = (1 - beta1) * collected(g, beta1), (1 - beta2) * collected(g**2, beta2)
    decayed = g + b * w
    m_decayed, v_decayed = (1 - beta1) * collected(decayed, beta1), (1 - beta2) * collected(decayed**2, beta2)

    def adam(m=m, v=v, m_correction=m_correction, v_correction=v_correction) -> np.ndarray:  # noqa: ANN001
        return m / m_correction / (np.sqrt(v / v_correction) + epsilon)

    def move(direction: np.ndarray, decay: np.ndarray | float = b * w) -> np.ndarray:
        u = direction + decay
        return -eta * ratio(_norms(w), _norms(u)) * u

    right, u = move(adam()), adam() + b * w
    v_of_gradients = (1 - beta2) * collected(np.abs(g), beta2)
    return right, {
        WRONG_SIGN: -right,
        ETA_MISSING: right / eta,
        NO_DECAY: move(adam(), decay=0),
        "the bias correction is forgotten: m and v start at 0 and are too small at first.": (
            move(adam(m_correction=1, v_correction=1))
        ),
        "the bias correction of v is forgotten: divide it by 1 − β₂ᵗ.": move(adam(v_correction=1)),
        "the bias correction of m is forgotten: divide it by 1 − β₁ᵗ.": move(adam(m_correction=1)),
        "the step's number t stays 1: count it in the state.": move(adam(m, v, 1 - beta1, 1 - beta2)),
        "m, v and t start anew in each step: keep all three in the state, and return them.": move(adam(g, g**2, 1, 1)),
        "the trust ratio is missing: this is Adam with decay.": -eta * u,
        "the ratio has the gradient's norm below; in LAMB it is that of the update u.": (
            -eta * ratio(_norms(w), _norms(g)) * u
        ),
        "the ratio is taken before the decay is added: u includes b w.": -eta * ratio(_norms(w), _norms(adam())) * u,
        "the decay is added behind the ratio; in the paper it is part of u, and scaled with it.": (
            move(adam(), decay=0) - eta * b * w
        ),
        "the decay goes through m and v; in LAMB it is added to u, behind them.": (
            move(adam(m_decayed, v_decayed), decay=0)
        ),
        "the ratio has LARS's trust coefficient 0.001 in it; LAMB has none, so hand `local_rate` the value 1.": (
            0.001 * right
        ),
        "the ratio is upside down: ‖w‖ belongs in the numerator.": -eta * ratio(_norms(u), _norms(w)) * u,
        "the ratio counts the decay twice: u already includes b w, so `local_rate` gets no b.": (
            -eta * ratio(_norms(w), _norms(u) + b * _norms(w)) * u
        ),
        "the root is missing: divide by the root of v.": move(m / m_correction / (v / v_correction + epsilon)),
        "ε stands inside the root; here it is added to the root.": (
            move(m / m_correction / np.sqrt(v / v_correction + epsilon))
        ),
        "v averages gradients, not their squares.": move(adam(v=v_of_gradients)),
        "β₁ and 1 − β₁ are swapped: the old mean has the weight β₁.": move(adam(beta1 * collected(g, 1 - beta1))),
    }


def _novograd_changes(
    taken: Walk, b: float = 0.0, beta1: float = 0.95, beta2: float = 0.98, epsilon: float = 1e-8
) -> Changes:
    w, g, eta = taken.before, taken.gradients, taken.rates

    def averaged(x: np.ndarray, beta: float = beta2) -> np.ndarray:
        return collected((1 - beta) * x, beta, start=x[0])

    def normalized(v: np.ndarray) -> np.ndarray:
        return g / (np.sqrt(v) + epsilon)

    def move(collects: np.ndarray, decay: np.ndarray | float = b * w) -> np.ndarray:
        return -eta * collected(collects + decay, beta1)

    squares = _norms(g) ** 2
    v = averaged(squares)
    right = move(normalized(v))
    return right, {
        WRONG_SIGN: -right,
        ETA_MISSING: right / eta,
        NO_DECAY: move(normalized(v), decay=0),
        "v starts at 0, so the first steps are too long: v is ‖∇L‖² in the first step.": (
            move(normalized(collected((1 - beta2) * squares, beta2)))
        ),
        "v is kept for each weight, as in Adam; here it is one number for the layer, ‖∇L‖².": (
            move(normalized(averaged(g**2)))
        ),
        "v averages the norm, not its square.": move(normalized(averaged(_norms(g)))),
        "the root is missing: divide by the root of v.": move(g / (v + epsilon)),
        "v is only this step's ‖∇L‖²: average it, with β₂.": move(normalized(squares)),
        "‖∇L‖² enters v whole: in a mean it has the weight 1 − β₂.": move(normalized(collected(squares, beta2))),
        "the gradient is divided by the v of the step before: update v first.": (
            move(normalized(delayed(v, first=v[0])))
        ),
        "the gradient enters M with the factor 1 − β₁; in the paper's rule it enters whole.": (1 - beta1) * right,
        "the decay is divided by √v; it is added behind the division.": (
            move((g + b * w) / (np.sqrt(v) + epsilon), decay=0)
        ),
        "the decay is added behind the momentum; in the paper it is part of what M collects.": (
            move(normalized(v), decay=0) - eta * b * w
        ),
        "β₂ and 1 − β₂ are swapped: the old mean has the weight β₂.": move(normalized(averaged(squares, 1 - beta2))),
        "M and v start anew in each step: keep both in the state, and return them.": (
            -eta * (normalized(squares) + b * w)
        ),
        "η stands inside M; in NovoGrad it is outside: w ← w − η M.": -collected(eta * (normalized(v) + b * w), beta1),
    }


_CHANGES: dict[str, Callable[..., Changes]] = {
    "lars": _lars_changes,
    "larc": _larc_changes,
    "lamb": _lamb_changes,
    "novograd": _novograd_changes,
}

# Published: float64, from w = [3, 4], after each of three steps. Settings, η of each step, weights.
START, GRADIENTS = np.array([3.0, 4.0]), np.array([[-0.8, 0.6], [0.5, 0.5], [0.1, -0.2]])
PUBLISHED: dict[str, tuple[dict[str, float], Sequence[float], Sequence[Sequence[float]]]] = {
    "lars": (
        {"b": 0.1},
        (1, 0.5, 0.5),
        ((3.0016667, 3.9966667), (3.0015098, 3.9918038), (2.9999866, 3.9867392)),
    ),
    "larc": (
        {"b": 0.1, "tau": 0.02},
        (1, 0.5, 0.5),
        ((3.0333333, 3.9333333), (2.9820401, 3.8296131), (2.8813536, 3.7112136)),
    ),
    "lamb": (
        {"b": 0.1},
        (0.01, 0.01, 0.005),
        ((3.0223607, 3.9552786), (3.0177626, 3.9057131), (3.0119583, 3.8817266)),
    ),
    "novograd": (
        {"b": 0.1},
        (0.01, 0.01, 0.005),
        ((3.0050000, 3.9900000), (3.0017198, 3.9714848), (2.9981535, 3.9617191)),
    ),
}

# No default among them: an argument that is not used shows.
SETTINGS: dict[str, dict[str, float]] = {
    "lars": {"b": 0.02, "tau": 0.05, "beta": 0.8},
    "larc": {"b": 0.02, "tau": 0.2, "beta": 0.8},
    "lamb": {"b": 0.02, "beta1": 0.8, "beta2": 0.99, "epsilon": 1e-3},
    "novograd": {"b": 0.02, "beta1": 0.9, "beta2": 0.9, "epsilon": 1e-3},
}
STEPS = 20


@np.errstate(all="ignore")
def _changes(name: str, taken: Walk, settings: dict[str, float], **layer: Any) -> Changes:
    """Those of the rule, and by sentence those of its mistakes and of arguments that are not used."""
    right, mistakes = _CHANGES[name](taken, **{**settings, **layer})
    for argument in settings:
        others = {key: value for key, value in settings.items() if key != argument}
        mistakes[f"the argument `{argument}` is not used."] = _CHANGES[name](taken, **{**others, **layer})[0]
    return right, mistakes


def _judge_published(name: str, rule: Rule) -> None:
    settings, rates, weights = PUBLISHED[name]
    taken = walk(rule, START, GRADIENTS, rates, **settings)
    if not same(taken.after, np.array(weights), rtol=0, atol=TOLERANCE):
        _judge_twenty(name, rule)  # tells more mistakes apart
        compare_walk(taken, np.array(weights), {}, atol=TOLERANCE)


def _judge_twenty(name: str, rule: Rule) -> None:
    taken = _twenty_steps(rule, (3, 3, 2, 4), SETTINGS[name])
    right, mistakes = _changes(name, taken, SETTINGS[name])
    compare_walk(taken, taken.before + right, mistakes, rtol=TOLERANCE, atol=1e-9)


def _judge_skipped(name: str, rule: Rule) -> None:
    settings = SETTINGS[name]
    no_ratio, no_decay = {"ratio": _no_ratio}, {"b": 0.0}
    with case("with `skip` (biases, batch norm)"):
        taken = _twenty_steps(rule, (4,), {**settings, "skip": True})
        right, mistakes = _changes(name, taken, settings, **no_ratio, **no_decay)
        if NOT_CLIPPED in mistakes:  # λ = 1 where it should be η
            in_full = mistakes.pop(NOT_CLIPPED)
            mistakes = {"in a layer that is skipped λ is η, not 1: SGD's own step.": in_full, **mistakes}
        not_skipped = {
            "the layer still gets ratio and decay; it should get neither.": _changes(name, taken, settings)[0],
            "the layer still gets the ratio of norms; it should not.": _changes(name, taken, settings, **no_decay)[0],
            "the layer still decays; it should not.": _changes(name, taken, settings, **no_ratio)[0],
        }
        compare_walk(taken, taken.before + right, {**not_skipped, **mistakes}, rtol=TOLERANCE, atol=1e-9)


def _twenty_steps(rule: Rule, shape: Sequence[int], settings: dict[str, Any]) -> Walk:
    """With gradients of very different size and a falling η."""
    random = np.random.default_rng(7)
    gradients = [random.normal(size=shape) * 10.0 ** random.integers(-2, 1) for _ in range(STEPS)]
    rates = [0.4 / (1 + step / 4) for step in range(STEPS)]
    return walk(rule, np.random.default_rng(3).normal(size=shape), np.array(gradients), rates, **settings)


def _judge_zeros_and_memory(rule: Rule) -> None:
    zeros, ones = np.zeros(3), np.ones(3)
    for w, g, what in ((zeros, ones, "weights"), (ones, zeros, "gradients")):
        new, _ = take_step(rule, w.copy(), g.copy(), None, 0.1)
        if not np.isfinite(new).all():
            raise Wrong(f"with {what} of 0 the new weights are not finite numbers.")
        if w is zeros and not new.any():
            raise Wrong("weights of 0 stay 0 though their gradient is not.")
    judge_memory(rule, START, GRADIENTS, 0.1)


def _update_rule(name: str, published: float, twenty: float, skipped: float, sound: float) -> Exercise:
    """The numbers are the criteria's shares of the points."""
    criteria = (
        Criterion("published", "Three steps, to the published values", published, partial(_judge_published, name)),
        Criterion("twenty", "Twenty steps of a convolution, falling η", twenty, partial(_judge_twenty, name)),
        Criterion("skipped", "Skipped: neither ratio nor decay", skipped, partial(_judge_skipped, name)),
        Criterion("sound", "Zero norms; all memory in the state", sound, _judge_zeros_and_memory),
    )
    return Exercise(name, *(criterion for criterion in criteria if criterion.max_points))


# --- invariances: what Δw is, in powers of the sizes of gradient and weights

_LENGTHS = {"SGD": (1, 0), "Adam": (0, 0), "LARS": (0, 1), "LARC": (0, 1), "LAMB": (0, 1), "NovoGrad": (0, 0)}
_BECAUSE = {
    "SGD": "Δw is η times the gradient, so it follows its size",
    "Adam": "the first step is η in each weight, for m̂/√v̂ is the sign of the gradient",
    "LARS": "λ is in proportion to ‖w‖/‖∇L‖, so Δw is in proportion to ‖w‖ whatever the gradient",
    "LARC": "where λ is not clipped, the step is that of LARS",
    "LAMB": "the ratio ‖w‖/‖u‖ makes Δw the part η of the weights",
    "NovoGrad": "the gradient is divided by its own norm, and nothing looks at ‖w‖",
}


def _judge_invariance(name: str, answer: Callable) -> None:
    table = answer()
    if not isinstance(table, dict):
        raise Wrong(f"it should return a dict, rule → (factor, factor); it returns {shown(table)}.")
    if name not in table:
        raise Wrong(f"{name} is missing.")
    try:
        loss, weights = map(number, several(table[name], "with the loss", "with the weights"))
    except Wrong:
        raise Wrong(f"{name} should have two factors; it has {shown(table[name])}.") from None
    of_gradient, of_weights = _LENGTHS[name]
    if not same(loss, 10.0**of_gradient):
        raise Wrong(f"{name}, ten times the loss: {_BECAUSE[name]}.")
    length = 10.0 ** (of_weights - of_gradient)  # of Δw, with a tenth of the gradient
    if same(weights, length / 10):
        return
    told = f"{name}, ten times the weights"
    if of_gradient and same(weights, 0.1):
        raise Wrong(f"{told}: two things change, the gradient is a tenth and the weights are ten times as long.")
    if same(weights, length):
        raise Wrong(f"{told}: that is the factor of Δw itself; asked is that of the part of the weights, ‖Δw‖/‖w‖.")
    raise Wrong(f"{told} and a tenth of the gradient: {_BECAUSE[name]}.")


EXERCISES = Exercises(
    Exercise(
        "local_rate",
        Criterion("small-layer", "λ of a small layer", 0.5, _judge_vectors),
        Criterion("shapes", "One number for a layer of any shape", 0.25, _judge_shapes),
        Criterion("zero-norms", "Zero norms", 0.25, _judge_zero_norms),
    ),
    _update_rule("lars", 0.4, 0.2, 0.2, 0.2),
    _update_rule("larc", 0.4, 0.2, 0.2, 0.2),
    _update_rule("lamb", 0.4, 0.2, 0.2, 0.2),
    _update_rule("novograd", 0.5, 0.3, 0.0, 0.2),
    Exercise(
        "invariances",
        *(Criterion(name.lower(), name, 1 / len(_LENGTHS), partial(_judge_invariance, name)) for name in _LENGTHS),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
