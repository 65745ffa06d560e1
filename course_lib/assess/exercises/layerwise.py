"""Checks of notebook 3d: the local rate of a layer, LARS, LARC, LAMB and NovoGrad.

Three steps with published check values, then twenty steps of a convolution's weights with a falling learning rate.
Where an answer is wrong, the plausible mistakes take the same steps; the one that gives the learner's numbers is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from course_lib.assess.exercises import Exercise, Exercises, Part
from course_lib.assess.exercises.update_rules import one_step

# (w, gradient, state, η, …) → (new w, new state); the state of the first step is None.
Rule = Callable[..., "tuple[np.ndarray, Any]"]

TOLERANCE = 1e-6


def _length(x: np.ndarray) -> float:
    return float(np.sqrt((np.asarray(x, float) ** 2).sum()))


def _quotient(above: float, below: float) -> float:
    return above / below if min(above, below) > 0 else 1.0


# local_rate

_WRONG_RATES: dict[str, Callable[[np.ndarray, np.ndarray, float, float], float]] = {
    "the denominator is the norm of the sum, ‖∇L + b w‖; the paper has the sum of the norms, ‖∇L‖ + b ‖w‖.": (
        lambda w, g, tau, b: tau * _length(w) / _length(g + b * w)
    ),
    "the trust coefficient τ is missing.": lambda w, g, tau, b: _length(w) / (_length(g) + b * _length(w)),
    "τ is applied twice.": lambda w, g, tau, b: tau**2 * _length(w) / (_length(g) + b * _length(w)),
    "the decay's part of the denominator, b ‖w‖, is missing.": lambda w, g, tau, b: tau * _length(w) / _length(g),
    "the denominator has b where it should have b ‖w‖.": lambda w, g, tau, b: tau * _length(w) / (_length(g) + b),
    "the ratio is upside down: the norm of the weights stands above.": (
        lambda w, g, tau, b: tau * (_length(g) + b * _length(w)) / _length(w)
    ),
    "the norms are squared: take the root of the sum of the squares.": (
        lambda w, g, tau, b: tau * _length(w) ** 2 / (_length(g) ** 2 + b * _length(w) ** 2)
    ),
    "the norms add up absolute values; wanted is the Euclidean norm, the root of the sum of the squares.": (
        lambda w, g, tau, b: tau * np.abs(w).sum() / (np.abs(g).sum() + b * np.abs(w).sum())
    ),
    "it is the largest absolute value that is taken for the norm; wanted is the root of the sum of the squares.": (
        lambda w, g, tau, b: tau * np.abs(w).max() / (np.abs(g).max() + b * np.abs(w).max())
    ),
    "for a matrix it takes the spectral norm (`ord=2`); wanted is the root of the sum of all squares.": (
        lambda w, g, tau, b: tau * _spectral(w) / (_spectral(g) + b * _spectral(w))
    ),
}


def _spectral(x: np.ndarray) -> float:
    return float(np.linalg.norm(x, 2)) if np.ndim(x) == 2 else _length(x)


def _rate(answer: Callable, w: np.ndarray, g: np.ndarray, *settings: float) -> tuple[float, str]:
    given = w.copy(), g.copy()
    with np.errstate(all="ignore"):  # a warning would go to stderr, and nbgrader gives no points for such a cell
        value = answer(*given, *settings)
    if value is None:
        return 0.0, "the function returns nothing: return λ."
    if np.shape(value) != ():
        shape = np.shape(w)
        return 0.0, f"for weights of shape {shape} it returns shape {np.shape(value)}; a layer has one λ, one number."
    if not (np.array_equal(given[0], w) and np.array_equal(given[1], g)):
        return 0.0, "an argument is changed in place: make new arrays."
    return float(value), ""


def _rates(answer: Callable, cases: Sequence[tuple[np.ndarray, np.ndarray, float, float]]) -> str:
    found = []
    for w, g, tau, b in cases:
        value, reason = _rate(answer, w, g, tau, b)
        if reason:
            return reason
        found.append(value)
    expected = [tau * _length(w) / (_length(g) + b * _length(w)) for w, g, tau, b in cases]
    if np.allclose(found, expected, rtol=TOLERANCE, atol=0):
        return ""
    for reason, wrong in _WRONG_RATES.items():
        if np.allclose(found, [wrong(*case) for case in cases], rtol=1e-9, atol=0):
            return reason
    place = int(np.argmin(np.isclose(found, expected, rtol=TOLERANCE, atol=0)))
    w, g, tau, b = cases[place]
    norms = f"‖w‖ = {_length(w):.4g}, ‖∇L‖ = {_length(g):.4g}, τ = {tau:g}, b = {b:g}"
    return f"{norms}: λ should be {expected[place]:.6g}, yours is {found[place]:.6g}."


def _vectors(answer: Callable) -> str:
    w, g = np.array([3.0, 4.0]), np.array([-0.8, 0.6])
    return _rates(answer, [(w, g, 0.001, 0.1), (w, 2 * g, 0.02, 0.0), (2 * w, np.array([1.0, 2.0]), 1.0, 0.5)])


def _any_shape(answer: Callable) -> str:
    random = np.random.default_rng(2)
    shapes = ((6,), (4, 5), (3, 3, 2, 4))
    return _rates(answer, [(random.normal(size=s), random.normal(size=s), 0.01, 0.05) for s in shapes])


def _zero_norms(answer: Callable) -> str:
    some, none = np.array([3.0, 4.0]), np.zeros(2)
    for w, g, b, what in (
        (none, some, 0.1, "all weights are 0"),
        (none, none, 0.1, "weights and gradient are 0"),
        (some, none, 0.0, "the gradient is 0 and there is no decay"),
    ):
        value, reason = _rate(answer, w, g, 0.001, b)
        if reason:
            return reason
        if value != 1:
            why = " A layer whose rate is 0 would stay 0 for ever." if value == 0 else ""
            return f"where {what}, λ should be 1, yours is {value:g}.{why}"
    value, reason = _rate(answer, some, none, 0.001, 0.1)
    if reason or np.isclose(value, 0.01):
        return reason
    return f"with a gradient of 0 but decay, λ is τ ‖w‖ / (b ‖w‖), here 0.01; yours is {value:g}."


# The rules, each with mistakes in it by name. kept: what it remembers, None before the first step.


def _lars(
    w: np.ndarray, g: np.ndarray, kept: Any, eta: float, flaw: str = "", *, tau: float = 0.001, b: float = 0.0,
    beta: float = 0.9, skip: bool = False, larc: bool = False,
) -> tuple[np.ndarray, Any]:  # fmt: skip
    scaled, decayed = not skip, not skip
    if flaw in ("skip ignored", "λ on biases"):
        scaled = True
    if flaw in ("skip ignored", "decay on biases"):
        decayed = True
    b = b if decayed else 0.0
    direction = g if flaw in ("no decay", "decay outside") else g + b * w
    rate = eta if larc else 1.0
    if scaled and flaw != "no ratio":
        below = _length(g) + (0 if flaw == "decay not in ratio" else b * _length(w))
        below = _length(g + b * w) if flaw == "norm of the sum" else below
        trust = _quotient((1 if flaw == "no tau" else tau) * _length(w), below)
        clip = {"max": max, "no clip": lambda own, other: own}.get(flaw, min)
        rate = clip(trust, eta) if larc or flaw == "clip" else trust
    step = rate * direction + (b * w if flaw == "decay outside" else 0)
    before = 0.0 if kept is None or flaw == "reset" else kept
    outside = 1.0
    if larc and flaw != "inside":
        step, outside = (step if flaw == "eta twice" else step / eta), eta
    elif flaw == "eta outside":
        outside = eta
    elif not larc and flaw != "no eta":
        step = eta * step
    velocity = beta * before + (1 - beta if flaw == "average" else 1) * step
    return w + (outside if flaw == "up" else -outside) * velocity, velocity


def _lamb(
    w: np.ndarray, g: np.ndarray, kept: Any, eta: float, flaw: str = "", *, b: float = 0.0, beta1: float = 0.9,
    beta2: float = 0.999, epsilon: float = 1e-6, skip: bool = False,
) -> tuple[np.ndarray, Any]:  # fmt: skip
    first, second, count = (0.0, 0.0, 0) if kept is None or flaw == "reset" else kept
    count = 1 if flaw == "stuck" else count + 1
    slope = g + b * w if flaw == "in the gradient" and not skip else g
    first = first + (beta1 if flaw == "swapped" else 1 - beta1) * (slope - first)
    second = second + (1 - beta2) * ((np.abs(slope) if flaw == "plain" else slope * slope) - second)
    mean = first if flaw in ("no correction", "second only") else first / (1 - beta1**count)
    spread = second if flaw in ("no correction", "first only") else second / (1 - beta2**count)
    if flaw == "inside":
        adam = mean / np.sqrt(spread + epsilon)
    else:
        adam = mean / ((spread if flaw == "no root" else np.sqrt(spread)) + epsilon)
    b = b if flaw in ("skip ignored", "decay on biases") or not skip else 0.0
    scaled = flaw in ("skip ignored", "λ on biases") or not skip
    update = adam if flaw in ("no decay", "in the gradient", "decay outside") else adam + b * w
    trust = 1.0
    if scaled and flaw != "no ratio":
        trust = _quotient(_length(w), _length({"of the gradient": g, "not in ratio": adam}.get(flaw, update)))
        trust = {"tau": 0.001 * trust, "upside": 1 / trust}.get(flaw, trust)
    update = trust * update + (b * w if flaw == "decay outside" else 0)
    factor = {"up": eta, "no eta": -1.0}.get(flaw, -eta)
    return w + factor * update, (first, second, count)


def _novograd(
    w: np.ndarray, g: np.ndarray, kept: Any, eta: float, flaw: str = "", *, b: float = 0.0, beta1: float = 0.95,
    beta2: float = 0.98, epsilon: float = 1e-8,
) -> tuple[np.ndarray, Any]:  # fmt: skip
    first, second = (0.0, None) if kept is None or flaw == "reset" else kept
    squares = {"one for each weight": g * g, "not squared": _length(g)}.get(flaw, _length(g) ** 2)
    if second is None:
        now = (1 - beta2) * squares if flaw == "from zero" else squares
    else:
        old, new = (1 - beta2, beta2) if flaw == "swapped" else (beta2, 1 if flaw == "sum" else 1 - beta2)
        now = old * second + new * squares
    used = second if flaw == "late" and second is not None else now
    used = squares if flaw == "no average" else used
    slope = g + b * w if flaw == "decay divided" else g
    scaled = slope / ((used if flaw == "no root" else np.sqrt(used)) + epsilon)
    if flaw not in ("no decay", "decay divided", "decay outside"):
        scaled = scaled + b * w
    first = beta1 * first + (1 - beta1 if flaw == "average" else 1) * scaled
    moved = first + (b * w if flaw == "decay outside" else 0)
    factor = {"up": eta, "no eta": -1.0}.get(flaw, -eta)
    return w + factor * moved, (first, now)


_RULES: dict[str, Rule] = {"lars": _lars, "larc": partial(_lars, larc=True), "lamb": _lamb, "novograd": _novograd}

_COMMON = {
    "up": "the weights move up the slope: subtract.",
    "no eta": "η is not applied.",
    "no decay": "the decay b w is missing in the step.",
}
_FAMILY = {
    **_COMMON,
    "norm of the sum": "λ has the norm of the sum, ‖∇L + b w‖, in place of the sum of the norms, ‖∇L‖ + b ‖w‖.",
    "no tau": "λ lacks the trust coefficient τ.",
    "no ratio": "λ is missing: this is SGD with momentum.",
    "decay not in ratio": "λ is calculated without the decay: its denominator is ‖∇L‖ + b ‖w‖. Hand b to `local_rate`.",
    "decay outside": "the decay is not multiplied with λ: λ stands before the whole of ∇L + b w.",
    "reset": "the velocity starts anew in each step: keep it in the state, and return it.",
    "average": "the gradient enters the velocity with the factor 1 − β; here it enters whole.",
}
_FLAWS: dict[str, dict[str, str]] = {
    "lars": {
        **_FAMILY,
        "eta outside": "η stands outside the velocity; in LARS it is inside, so that v remembers the η of its time.",
        "clip": "λ is clipped at η: that is LARC.",
    },
    "larc": {
        **_FAMILY,
        "no clip": "λ is not clipped: it is at most η.",
        "max": "λ is at least η; it should be at most η: the smaller of the two.",
        "eta twice": "η is applied twice: λ already is the whole rate, so the velocity takes λ/η, and w the factor η.",
        "inside": "the learning rate stands inside the velocity; in LARC v takes λ/η, and w moves by η v.",
    },
    "lamb": {
        **_COMMON,
        "no correction": "the bias correction is forgotten: m and v start at 0 and are too small at first.",
        "first only": "the bias correction of v is forgotten: divide it by 1 − β₂ᵗ.",
        "second only": "the bias correction of m is forgotten: divide it by 1 − β₁ᵗ.",
        "stuck": "the step's number t stays 1: count it in the state.",
        "reset": "m, v and t start anew in each step: keep all three in the state, and return them.",
        "no ratio": "the trust ratio is missing: this is Adam with decay.",
        "of the gradient": "the ratio has the gradient's norm below; in LAMB it is that of the update u.",
        "not in ratio": "the ratio is taken before the decay is added: u includes b w.",
        "decay outside": "the decay is added behind the ratio; in the paper it is part of u, and scaled with it.",
        "in the gradient": "the decay goes through m and v; in LAMB it is added to u, behind them.",
        "tau": "the ratio has LARS's trust coefficient 0.001 in it; LAMB has none, so hand `local_rate` the value 1.",
        "upside": "the ratio is upside down: ‖w‖ stands above.",
        "no root": "the root is missing: divide by the root of v.",
        "inside": "ε stands inside the root; here it is added to the root.",
        "plain": "v averages gradients, not their squares.",
        "swapped": "β₁ and 1 − β₁ are swapped: the old mean has the weight β₁.",
    },
    "novograd": {
        **_COMMON,
        "from zero": "v starts at 0, so the first steps are too long: v is ‖∇L‖² in the first step.",
        "one for each weight": "v is kept for each weight, as in Adam; here it is one number for the layer, ‖∇L‖².",
        "not squared": "v averages the norm, not its square.",
        "no root": "the root is missing: divide by the root of v.",
        "no average": "v is only this step's ‖∇L‖²: average it, with β₂.",
        "sum": "‖∇L‖² enters v whole: in a mean it has the weight 1 − β₂.",
        "late": "the gradient is divided by the v of the step before: update v first.",
        "average": "the gradient enters M with the factor 1 − β₁; in the paper's rule it enters whole.",
        "decay divided": "the decay is divided by √v; it is added behind the division.",
        "decay outside": "the decay is added behind the momentum; in the paper it is part of what M collects.",
        "swapped": "β₂ and 1 − β₂ are swapped: the old mean has the weight β₂.",
        "reset": "M and v start anew in each step: keep both in the state, and return them.",
    },
}

# Published: float64, w = [3, 4], b = 0.1, and after each of three steps.
W, GRADIENTS = np.array([3.0, 4.0]), np.array([[-0.8, 0.6], [0.5, 0.5], [0.1, -0.2]])
_PUBLISHED: dict[str, tuple[dict[str, float], Sequence[float], Sequence[Sequence[float]]]] = {
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
_SETTINGS: dict[str, dict[str, float]] = {
    "lars": {"b": 0.02, "tau": 0.05, "beta": 0.8},
    "larc": {"b": 0.02, "tau": 0.2, "beta": 0.8},
    "lamb": {"b": 0.02, "beta1": 0.8, "beta2": 0.99, "epsilon": 1e-3},
    "novograd": {"b": 0.02, "beta1": 0.9, "beta2": 0.9, "epsilon": 1e-3},
}


def _drawn(skip: bool) -> Iterator[tuple[np.ndarray, float]]:
    """Gradients of twenty steps, of very different size, with a falling η. For a convolution, or for a bias."""
    random = np.random.default_rng(7)
    for step in range(20):
        g = random.normal(size=(4,) if skip else (3, 3, 2, 4)) * 10.0 ** random.integers(-2, 1)
        yield g, 0.4 / (1 + step / 4)


def _walk(rule: Rule, start: np.ndarray, steps: Iterator[tuple[np.ndarray, float]], **settings: Any) -> np.ndarray:
    """The weights after each step. ValueError, with a sentence, where it can't be."""
    w, state, path = start, None, []
    for g, eta in steps:
        w, state = one_step(rule, w.copy(), g.copy(), state, eta, **settings)
        path.append(w)
    return np.array(path)


def _published(name: str, rule: Rule) -> str:
    settings, rates, after = _PUBLISHED[name]
    try:
        path = _walk(rule, W, zip(GRADIENTS, rates), **settings)
    except ValueError as error:
        return str(error)
    if np.allclose(path, after, rtol=0, atol=TOLERANCE):
        return ""
    if reason := _twenty(name, rule):
        return reason  # the longer way tells more mistakes apart
    step = int(np.argmin(np.isclose(path, after, rtol=0, atol=TOLERANCE).all(1)))
    return (
        f"after step {step + 1} from w = [3, 4] with b = 0.1 the weights should be {_shown(after[step])}, "
        f"yours are {_shown(path[step])}."
    )


def _shown(w: Sequence[float]) -> str:
    return "[" + ", ".join(f"{value:.7f}" for value in w) + "]"


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """The same first ten steps, up to rounding. A mistake may blow the weights up: each step has its own scale."""
    one, other = one[:10].reshape(10, -1), other[:10].reshape(10, -1)
    return bool((np.abs(one - other).max(1) <= 1e-9 * np.abs(other).max(1)).all())


@np.errstate(all="ignore")
def _twenty(name: str, rule: Rule, skip: bool = False) -> str:
    start = np.random.default_rng(3).normal(size=(4,) if skip else (3, 3, 2, 4))
    settings: dict[str, Any] = {**_SETTINGS[name], **({"skip": True} if skip else {})}

    def walk(one: Rule, **changed: Any) -> np.ndarray:
        return _walk(one, start, _drawn(skip), **{**settings, **changed})

    try:
        path = walk(rule)
    except ValueError as error:
        return str(error)
    expected = walk(_RULES[name])
    if np.allclose(path, expected, rtol=TOLERANCE, atol=1e-9):
        return ""
    told = "a skipped layer: " if skip else ""
    for flaw, reason in {**(_SKIP if skip else {}), **_FLAWS[name]}.items():
        if _same(path, walk(partial(_RULES[name], flaw=flaw))):
            return reason if flaw in _SKIP else told + reason
    for argument in _SETTINGS[name]:
        default = {key: value for key, value in settings.items() if key != argument}
        if _same(path, _walk(_RULES[name], start, _drawn(skip), **default)):
            return f"{told}the argument `{argument}` is not used."
    if not np.isfinite(path).all():
        return told + "some weights are not finite numbers."
    step = int(np.argmin(np.isclose(path, expected, rtol=TOLERANCE, atol=1e-9).reshape(20, -1).all(1)))
    before = path[step - 1] if step else start
    wanted, taken = _length(expected[step] - before), _length(path[step] - before)
    first = "the first step" if step == 0 else f"step {step + 1}, the first that is wrong,"
    return f"{told}{first} changes the weights by {taken:.4g} (norm) where the rule changes them by {wanted:.4g}."


_SKIP = {
    "skip ignored": "with `skip` (biases, batch norm) the layer still gets ratio and decay; it should get neither.",
    "λ on biases": "with `skip` (biases, batch norm) the layer still gets the ratio of norms; it should not.",
    "decay on biases": "with `skip` (biases, batch norm) the layer still decays; it should not.",
}


def _sound(name: str, rule: Rule) -> str:
    """Zero norms, arguments left as they are, no memory but the state."""
    for w, g, what in ((np.zeros(3), np.ones(3), "weights"), (np.ones(3), np.zeros(3), "gradients")):
        try:
            new, _ = one_step(rule, w.copy(), g.copy(), None, 0.1)
        except ValueError as error:
            return str(error)
        if not np.isfinite(new).all():
            return f"with {what} of 0 the new weights are not finite numbers."
        if what == "weights" and not new.any():
            return "weights of 0 stay 0 though their gradient is not."
    w, state = W, None
    for number, g in enumerate(GRADIENTS[:2]):
        given, slope = w.copy(), g.copy()
        first, then = one_step(rule, given, slope, state, 0.1)
        first = first.copy()
        if not np.array_equal(given, w):
            return "the caller's w is changed in place (`w -= …`): write `w = w - …`, which makes a new array."
        if not np.array_equal(slope, g):
            return "the caller's gradient is changed in place: make a new array."
        if not np.array_equal(one_step(rule, w.copy(), g.copy(), state, 0.1)[0], first):
            where = "the state is changed in place" if number else "something is remembered outside the state"
            return f"called twice with the same arguments, the function answers differently: {where}. Make a new one."
        w, state = first, then
    return ""


def _rule(name: str, shares: Mapping[str, float]) -> Exercise:
    trials: dict[str, tuple[str, Callable[[Rule], str]]] = {
        "published": ("Three steps, to the published values", partial(_published, name)),
        "twenty": ("Twenty steps of a convolution, falling η", partial(_twenty, name)),
        "skip": ("Skipped: neither ratio nor decay", partial(_twenty, name, skip=True)),
        "sound": ("Zero norms; all memory in the state", partial(_sound, name)),
    }
    return Exercise(name, tuple(Part(trials[key][0], share, trials[key][1]) for key, share in shares.items()))


_SHARES = {"published": 0.4, "twenty": 0.2, "skip": 0.2, "sound": 0.2}

EXERCISES = Exercises(
    Exercise(
        "local_rate",
        (
            Part("λ of a small layer", 0.5, _vectors),
            Part("One number for a layer of any shape", 0.25, _any_shape),
            Part("Zero norms", 0.25, _zero_norms),
        ),
    ),
    *(_rule(name, _SHARES) for name in ("lars", "larc", "lamb")),
    _rule("novograd", {"published": 0.5, "twenty": 0.3, "sound": 0.2}),
)
check, points = EXERCISES.check, EXERCISES.points
