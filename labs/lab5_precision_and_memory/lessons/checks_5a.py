"""Checks of notebook 5a: rounding to a format, a step with a scaled loss, where training stops, chance, a bound."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np

from course_lib import precision
from course_lib.notebook.answers import array, case, number, returned, several, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong

# --- quantise

EVERY = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)


def _numbers() -> np.ndarray:
    random = np.random.default_rng(3)
    spread = random.normal(size=100_000) * np.exp2(random.uniform(-30, 20, 100_000))
    middle = (EVERY[1:31_743] + EVERY[:31_742]) / 2  # half-way between two neighbours of float16: all ties
    return np.concatenate([spread, middle, -middle]).astype(np.float32)


NUMBERS = _numbers()


def _rounded(quantise: Callable, x: np.ndarray, exponent: int, mantissa: int) -> np.ndarray:
    with unchanged(x):
        found = quantise(x, exponent, mantissa)
    return array(found, x.shape).astype(np.float64)


def _hit(found: np.ndarray, expected: np.ndarray, where: np.ndarray) -> bool:
    return bool(np.array_equal(found[where], expected[where], equal_nan=True))


def _inside(exponent: int, mantissa: int, expected: np.ndarray, told: str) -> Callable[[Callable], str]:
    """A judge of the usual numbers of a format: neither subnormal nor near its end."""

    def judge(quantise: Callable) -> str:
        with case(f"quantise(x, {exponent}, {mantissa})"):
            found = _rounded(quantise, NUMBERS, exponent, mantissa)
            size = np.abs(NUMBERS)
            normal = (size >= 2.0 ** (2 - 2 ** (exponent - 1))) & (size < 0.9 * precision.largest(exponent, mantissa))
            if not _hit(found, expected, normal):
                _why(found, expected, normal, mantissa)
        return f"{normal.sum():,} numbers are those of {told}."

    return judge


def _why(found: np.ndarray, expected: np.ndarray, where: np.ndarray, mantissa: int) -> None:
    x, got, right = NUMBERS[where].astype(np.float64), found[where], expected[where]
    wrong = got != right
    spacing = np.exp2(np.floor(np.log2(np.abs(x))) - mantissa)
    tie = np.abs(np.abs(x - right) - spacing / 2) < 1e-3 * spacing
    first = np.flatnonzero(wrong)[0]
    if np.array_equal(got, x):
        raise Wrong(f"{x[first]:.9g} stays as it is: nothing is rounded.")
    if tie[wrong].all():
        raise Wrong(f"{x[first]:.9g} lies half-way between two numbers: the one with the even mantissa is taken.")
    if np.all(np.abs(got[wrong]) < np.abs(x[wrong])):
        raise Wrong("numbers are cut off towards 0: the nearest number is wanted, above or below.")
    if np.all(np.abs(got[wrong] - x[wrong]) < np.abs(right[wrong] - x[wrong]) + spacing[wrong] * 1e-3):
        raise Wrong("a mantissa bit too many is kept: of a format's 1 + m digits the first is not stored.")
    raise Wrong(
        f"{x[first]:.9g} becomes {got[first]:.9g}; the nearest number of the format is {right[first]:.9g}. How far are "
        "neighbours apart near it?"
    )


def _small(quantise: Callable) -> str:
    x = EVERY[np.abs(EVERY) < 2.0**-13]
    x = np.concatenate([x, x * 1.25, x / 2, np.float32([2.0**-25, 2.0**-30, -(2.0**-25)])]).astype(np.float32)
    found, expected = _rounded(quantise, x, 5, 10), x.astype(np.float16).astype(np.float64)
    if np.isnan(found).any():
        raise Wrong("a small number becomes NaN: 0 has no exponent of its own. Does the spacing of 0 exist?")
    if not np.array_equal(found, expected):
        at = np.flatnonzero(found != expected)[0]
        below = np.abs(x) < 2.0**-14
        if not found[below].any():
            raise Wrong(
                "all numbers below 2⁻¹⁴ become 0: the lowest exponent still holds numbers, with the spacing of the one "
                "above it."
            )
        if np.array_equal(found[below], np.rint(x[below] * 2.0**25) / 2.0**25):
            raise Wrong("below 2⁻¹⁴ neighbours are 2⁻²⁵ apart: the lowest exponent is 2 − 2ᵉ⁻¹, here −14, not −15.")
        if np.all(np.abs(found - x) <= np.abs(expected - x) * (1 + 1e-9)):
            raise Wrong("numbers below 2⁻¹⁴ are as exact as larger ones: there the spacing stops falling.")
        raise Wrong(f"{x[at]:.9g} becomes {found[at]:.9g}; in float16 it is {expected[at]:.9g}. Mind the bias.")
    return "Below 2⁻¹⁴ neighbours stay equally far apart, down to 2⁻²⁴."


def _ends(quantise: Callable) -> str:
    x = np.float32([65_504, 65_505, 65_519.9, 65_520, 1e9, -65_520, np.inf, -np.inf, np.nan])
    found, expected = _rounded(quantise, x, 5, 10), np.array([65_504] * 3 + [np.inf] * 2 + [-np.inf, np.inf, -np.inf])
    if not np.isnan(found[-1]):
        raise Wrong("NaN becomes a number: an error must stay visible.")
    if np.array_equal(found[:-1], expected):
        return "65,504 is the last finite number, and NaN stays."
    if np.isfinite(found[4]) and found[4] <= 65_504:
        raise Wrong("what is too large becomes the largest number: in an IEEE format it becomes infinite.")
    if found[4] > 65_504 and np.isfinite(found[4]):
        raise Wrong("1e9 stays finite in five exponent bits: the highest exponent is for infinity and NaN.")
    if np.isinf(found[1]) or np.isinf(found[2]):
        raise Wrong("65,505 becomes infinite: round first, then see whether the result is too large.")
    if found[5] > 0:
        raise Wrong("−65,520 becomes +∞: the sign stays.")
    if np.isnan(found[6]) or np.isnan(found[7]):
        raise Wrong("infinity becomes NaN: it stays as it is.")
    raise Wrong(f"the numbers {list(x[:-1])} become {list(found[:-1])}, not {list(expected)}.")


def _eight(quantise: Callable) -> str:
    for exponent, mantissa in ((5, 2), (4, 3)):
        with case(f"quantise(x, {exponent}, {mantissa})"):
            found = _rounded(quantise, NUMBERS, exponent, mantissa)
            expected = precision.quantise(NUMBERS, exponent, mantissa).astype(np.float64)
            if not np.array_equal(found, expected):
                at = np.flatnonzero(found != expected)[0]
                size = abs(float(NUMBERS[at]))
                small, large = size < 2.0 ** (2 - 2 ** (exponent - 1)), size > precision.largest(exponent, mantissa)
                where = "below the lowest exponent" if small else "beyond the end" if large else "within the range"
                raise Wrong(
                    f"{NUMBERS[at]:.6g} becomes {found[at]:.6g}; it should be {expected[at] + 0.0:.6g}. It lies "
                    f"{where} of this format. If such numbers are right in float16, a number of float16 is left in "
                    "the code."
                )
    return "Both formats of 8 bits are right."


# --- scaled_step

PATIENCE = 3


def _make(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    return tuple(random.normal(size=7).astype(np.float32) for _ in range(3))


def _step(scaled_step: Callable, weights: np.ndarray, velocity: np.ndarray, slope: np.ndarray, scale: float,
          clean: int) -> tuple[np.ndarray, np.ndarray, float, int]:  # fmt: skip
    with unchanged(weights, velocity, slope):
        found = scaled_step(weights, velocity, slope, scale, clean, 0.1, PATIENCE)
    new, speed, factor, count = several(found, "weights", "velocity", "scale", "clean", what="it")
    return array(new, (7,)), array(speed, (7,)), number(factor, "the scale"), int(number(count, "clean"))


def _no_trace(scaled_step: Callable) -> str:
    weights, velocity, slope = _make(1)
    expected_velocity = 0.9 * velocity + slope
    expected = weights - 0.1 * expected_velocity
    for scale, clean in ((1.0, 0), (1024.0, 0), (1024.0, PATIENCE - 1)):
        with case(f"scale {scale:,.0f}, {clean} clean steps before"):
            new, speed, _, _ = _step(scaled_step, weights, velocity, slope * np.float32(scale), scale, clean)
            if np.allclose(new, expected, rtol=1e-5) and np.allclose(speed, expected_velocity, rtol=1e-5):
                continue
            if np.allclose(speed, 0.9 * velocity + slope * scale, rtol=1e-5) and scale > 1:
                if np.allclose(new, expected, rtol=1e-4):
                    raise Wrong("the velocity holds scaled gradients: when the scale changes, it will be wrong.")
                raise Wrong("the gradient is still multiplied by the scale: weights may not depend on it.")
            raise Wrong(f"without a scale the first weight would be {expected[0]:.6g}; it is {new[0]:.6g}.")
    return "The scale leaves no trace in weights and velocity."


def _overflow(scaled_step: Callable) -> str:
    weights, velocity, slope = _make(2)
    for bad in (np.inf, -np.inf, np.nan):
        spoiled = slope.copy()
        spoiled[3] = bad
        with case(f"a gradient with {bad}"):
            new, speed, scale, clean = _step(scaled_step, weights, velocity, spoiled, 1024.0, 2)
            if not np.isfinite(speed).all():
                raise Wrong("the velocity is spoiled, and with it every later step.")
            if not np.isfinite(new).all():
                raise Wrong("the weights are spoiled for ever: look at the gradient before anything is changed.")
            if not np.array_equal(speed, velocity):
                raise Wrong("the velocity changes: nothing is known of this step, so nothing may change.")
            if not np.array_equal(new, weights):
                raise Wrong("the weights move: nothing is known of this step, so leave it out.")
            if scale != 512:
                raise Wrong(f"the scale goes from 1,024 to {scale:,.0f}; half is expected.")
            if clean != 0:
                raise Wrong(f"after it {clean} clean steps are counted; the count begins anew.")
    return "A step that overflows changes nothing but the scale."


def _grows(scaled_step: Callable) -> str:
    weights, velocity, slope = _make(3)
    scale, clean, seen = 8.0, 0, []
    for step in range(8):
        bad = step == 4
        now = np.full(7, np.inf, np.float32) if bad else slope * np.float32(scale)
        _, _, scale, clean = _step(scaled_step, weights, velocity, now, scale, clean)
        seen.append(scale)
    expected = [8, 8, 16, 16, 8, 8, 8, 16]
    if seen == expected:
        return f"After {PATIENCE} clean steps in a row it doubles."
    if max(seen) <= 8:
        raise Wrong("the scale never grows: after one overflow too many it would be 1.")
    if seen[2] == 8 and seen[3] == 16:
        raise Wrong(f"it doubles one step too late: the step that is made now counts among the {PATIENCE}.")
    if seen[3] == 32:
        raise Wrong("after doubling, the count of clean steps must begin anew.")
    raise Wrong(f"steps with an overflow in the fifth give the scales {_scales(seen)}, not {_scales(expected)}.")


def _scales(values: list) -> str:
    return ", ".join(f"{value:g}" for value in values)


# --- stuck_distance

TARGETS = (1.1, 2.2, 0.26, 65.0)  # up to where `descend` begins there is no power of two


def descend(target: float, rate: float, mantissa: int, start: float, steps: int = 20_000) -> float:
    """How far from its target a weight ends that is kept with so many mantissa bits; it starts above the target."""
    weight = float(precision.quantise(start, 8, mantissa))
    for _ in range(steps):
        new = float(precision.quantise(weight - rate * (weight - target), 8, mantissa))
        if new == weight:
            break
        weight = new
    return abs(weight - target)


def _stuck(targets: tuple, rates: tuple, mantissas: tuple) -> Callable[[Callable], str]:
    def judge(stuck_distance: Callable) -> str:
        for target in targets:
            for rate in rates:
                for mantissa in mantissas:
                    told = f"stuck_distance({target:g}, {rate:g}, {mantissa})"
                    found = number(stuck_distance(target, rate, mantissa), told)
                    spacing = 2.0 ** (math.floor(math.log2(target)) - mantissa)
                    right = spacing / (2 * rate)
                    if math.isclose(found, right, rel_tol=1e-6):
                        continue
                    if math.isclose(found, target * 2.0**-mantissa / (2 * rate), rel_tol=1e-6):
                        raise Wrong(f"{told}: the spacing is the same from one power of two to the next.")
                    at_one = number(stuck_distance(1.0, rate, mantissa), f"stuck_distance(1, {rate:g}, {mantissa})")
                    if target != 1 and math.isclose(at_one, 2.0**-mantissa / (2 * rate), rel_tol=1e-6):
                        raise Wrong(
                            f"{told}: {found:.3g}. Yours is right for a target of 1, but the numbers around "
                            f"{target:g} are {spacing:.3g} apart."
                        )
                    mistakes = {
                        "an update is rounded away when it is below half of the spacing, not below all of it.": 2,
                        "this is the smallest update that counts: divide by the rate to get a distance.": rate,
                        "the mantissa has one bit more than you think: with m bits, [1, 2) has 2ᵐ numbers.": 2.0,
                        "a quarter of the spacing? The nearest number is at most half of it away.": 0.5,
                    }
                    for sentence, factor in mistakes.items():
                        if math.isclose(found, right * factor, rel_tol=1e-6):
                            raise Wrong(f"{told}: {sentence}")
                    ended = descend(target, rate, mantissa, target + 1.5 * right)
                    raise Wrong(f"{told}: {found:.3g}, but a weight from above stops {ended:.3g} from its target.")
        return "A weight that is rounded after each step stops there."

    return judge


# --- chance


def _neighbours(chance: Callable) -> str:
    for x, mantissa in ((1.3, 2), (-1.3, 2), (0.3, 3), (5.1, 7), (-0.011, 4)):
        with case(f"chance({x:g}, {mantissa}, random)"):
            found = _draws(chance, x, mantissa)
            spacing = 2.0 ** (math.floor(math.log2(abs(x))) - mantissa)
            steps = found / spacing
            if not np.array_equal(steps, np.rint(steps)):
                raise Wrong(f"{found[steps != np.rint(steps)][0]:g} is no number of the format: do you round at all?")
            if np.abs(found - x).max() >= spacing:
                raise Wrong("a number farther away than the two neighbours comes out.")
            if len(np.unique(found)) == 1:
                raise Wrong("it always rounds the same way: with which probability should it be up?")
    return "Only the two neighbours come out."


def _draws(chance: Callable, x: float, mantissa: int, count: int = 40_000) -> np.ndarray:
    numbers = np.full(count, x, np.float32)
    with unchanged(numbers):
        found = chance(numbers, mantissa, np.random.default_rng(7))
    return array(found, (count,)).astype(np.float64)


def _mean(chance: Callable) -> str:
    for x, mantissa in ((1.3, 2), (-1.3, 2), (1.03, 2), (3.9, 3), (-0.26, 2)):
        with case(f"chance({x:g}, {mantissa}, random)"):
            mean = _draws(chance, x, mantissa).mean()
            spacing = 2.0 ** (math.floor(math.log2(abs(x))) - mantissa)
            if abs(mean - x) < 0.02 * spacing:
                continue
            below = math.floor(x / spacing) * spacing
            if abs(mean - (below + spacing / 2)) < 0.02 * spacing:
                raise Wrong("up and down are equally likely: the mean is then half-way, not x.")
            if abs(mean - (2 * below + spacing - x)) < 0.02 * spacing:
                raise Wrong("the nearer neighbour is the less likely one: it is the other way round.")
            raise Wrong(f"the mean of many is {mean:.5g}, not {x:g}.")
    return "The mean of many is the number itself."


def _stays(chance: Callable) -> str:
    for x in (1.25, -1.5, 4.0, 0.0):
        with case(f"chance({x:g}, 2, random)"):
            found = _draws(chance, x, 2, 100)
            if np.isnan(found).any():
                raise Wrong("NaN comes out: what is the logarithm of 0?")
            if not np.array_equal(found, np.full(100, x)):
                raise Wrong("a number of the format does not stay as it is.")
    values = np.full(1_000, 1.1, np.float32)
    if len(np.unique(chance(values, 2, np.random.default_rng(1)))) == 1:
        raise Wrong("all numbers of an array go the same way: each needs a draw of its own.")
    return "What the format holds stays."


# --- bound


def traces() -> dict[str, np.ndarray]:
    """Largest magnitudes of a tensor, update by update."""
    random = np.random.default_rng(11)
    return {
        "steady": 1e-3 * np.exp(0.1 * random.normal(size=300)),
        "falling": 1e-2 * np.exp(-0.03 * np.arange(300) + 0.1 * random.normal(size=300)),
        "rising": 1e-5 * np.exp(0.05 * np.arange(300) + 0.1 * random.normal(size=300)),
        "restless": 1e-2 * np.exp(0.35 * random.normal(size=300)),
    }


MOST_OVERFLOWS, MOST_WASTE = 0.03, 2.5  # share of updates; bits, as a mean
WARM = 20  # updates at the beginning that aren't judged


def follow(bound: Callable, trace: np.ndarray) -> tuple[float, float]:
    """The share of updates in which `bound` is below the largest magnitude, and the bits that it wastes on average."""
    over, wasted = 0, []
    for update in range(WARM, len(trace)):
        value = bound([float(one) for one in trace[:update]])
        planned = number(value, "`bound`")
        if planned <= 0:
            raise Wrong(f"it plans for {planned:g}; a largest magnitude is above 0.")
        over += trace[update] > planned
        wasted.append(max(0.0, math.log2(planned / trace[update])))
    return over / len(wasted), float(np.mean(wasted))


def _follows(name: str) -> Callable[[Callable], str]:
    def judge(bound: Callable) -> str:
        returned(bound([1.0, 1.0]))
        over, waste = follow(bound, traces()[name])
        if over > MOST_OVERFLOWS:
            why = {
                "rising": "the next one is usually above all that have been.",
                "restless": "the next one may be well above the last: how much do they scatter?",
            }.get(name, "leave some room above the last ones.")
            raise Wrong(f"maxima that are {name}: {over:.0%} of the updates overflow; {why}")
        if waste > MOST_WASTE:
            why = "old maxima are long out of date." if name == "falling" else "less room is enough."
            raise Wrong(f"maxima that are {name}: {waste:.1f} of 15 bits stay empty; {why}")
        return f"{over:.1%} of the updates overflow, and {waste:.1f} bits stay empty."

    return judge


with np.errstate(over="ignore"):
    _F16 = NUMBERS.astype(np.float16).astype(np.float64)
_BF16 = NUMBERS.astype(ml_dtypes.bfloat16).astype(np.float64)

EXERCISES = Exercises(
    Exercise(
        "quantise",
        Criterion("float16", "The numbers of float16", 0.3, _inside(5, 10, _F16, "NumPy's float16")),
        Criterion("bfloat16", "The numbers of bfloat16", 0.15, _inside(8, 7, _BF16, "ml_dtypes's bfloat16")),
        Criterion("small", "Near 0", 0.2, _small, "The spacing halves with each power of two, until when?"),
        Criterion("ends", "The ends", 0.2, _ends),
        Criterion("eight", "Eight bits", 0.15, _eight),
    ),
    Exercise(
        "scaled_step",
        Criterion("trace", "Without a trace", 0.3, _no_trace),
        Criterion("overflow", "A step that overflows", 0.4, _overflow, "`np.isfinite(gradient).all()`"),
        Criterion("grows", "Growing again", 0.3, _grows),
    ),
    Exercise(
        "stuck_distance",
        Criterion("powers", "A target of 1", 0.4, _stuck((1.0,), (0.1, 0.01), (7, 10))),
        Criterion("any", "Any target", 0.6, _stuck(TARGETS, (0.1, 0.01), (7, 10))),
    ),
    Exercise(
        "chance",
        Criterion("neighbours", "Two neighbours", 0.3, _neighbours),
        Criterion("mean", "The mean", 0.4, _mean),
        Criterion("stays", "What the format holds", 0.3, _stays),
    ),
    Exercise("bound", *(Criterion(name, f"Maxima: {name}", 0.25, _follows(name)) for name in traces())),
)
check, points = EXERCISES.check, EXERCISES.points
