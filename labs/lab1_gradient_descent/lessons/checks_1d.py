"""Checks of notebook 1d: where the steps of training happen, the way back, memory, and what crosses the wires."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from course_lib.notebook.answers import array, compare, items, number, plain, returned, unchanged, whole
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong

# Where each step happens, and why.
STEP_PLACES = {
    1: ("host", "the host asks the disk for the files"),
    2: ("wire", "the bytes travel from the disk into the host's memory"),
    3: ("host", "the host's cores decode, crop and scale the images"),
    4: ("host", "finished batches wait in the host's memory"),
    5: ("wire", "the batch travels from the host's memory into the device's"),
    6: ("device", "the weights and the images are in the device's memory"),
    7: ("device", "what layer one has computed is in the device's memory"),
    8: ("device", "what layer two has computed is in the device's memory"),
    9: ("device", "the output is already there, and step 10 needs the loss's gradient there"),
    10: ("device", "the activations that it needs were kept on the device"),
    11: ("device", "the activations that it needs were kept on the device"),
    12: ("device", "the activations that it needs were kept on the device"),
    13: ("device", "gradients and the optimizer's state are in the device's memory"),
    14: ("device", "the weights are in the device's memory"),
    15: ("host", "the Python loop goes on, on the host"),
}
FIRST_GRADIENT, LAST_GRADIENT = 10, 12
DIFFERING_STEPS = frozenset(range(1, LAST_GRADIENT + 1))  # on each device its own images, hence its own numbers

# Of runs of steps, why they differ from device to device, or do not.
DIFFERENCES = {
    range(1, 6): "every device trains on images of its own, otherwise N devices do the work of one N times",
    range(6, 10): "the weights are the same everywhere, but the images are not: nor are activations and loss",
    range(10, 13): "each device knows only the loss of its own images, so it has its own gradients",
    range(13, 15): "after the all-reduce all have the same gradient, so they make the same update; if they did not, "
    "the copies would drift apart",
}

# The network of `memory`.
WEIGHTS, ACTIVATIONS, BATCH = 1_009, 370, 12


def misplaced(places: Mapping[str, Collection[int]]) -> set[int]:
    """The steps that stand in a wrong lane, or in two. Those that stand nowhere are not among them."""
    return {step for name, steps in places.items() for step in steps if STEP_PLACES.get(step, ("",))[0] != name}


def misjudged(differs: Collection[int], after: int) -> set[int]:
    """The steps on which `differs` is wrong, and 0 if `after` is. Step 15 has no numbers and does not count."""
    return ((set(differs) ^ DIFFERING_STEPS) - {15}) | ({0} if after != LAST_GRADIENT else set())


def _steps(value: Any, what: str) -> list[int]:
    try:
        steps = [whole(step) for step in items(value, "step numbers are expected")]
    except Wrong:  # it holds nothing, or something else
        steps = [0]
    if not set(steps) <= set(STEP_PLACES):
        raise Wrong(f"{what} should hold step numbers from 1 to 15.")
    return steps


def _placed(name: str) -> Callable[[Callable], str | None]:
    """A judge of the steps that happen at this place."""

    def judge(place: Callable) -> str | None:
        answer = returned(place())
        if not isinstance(answer, dict) or set(answer) != {"host", "wire", "device"}:
            raise Wrong('It should return a dict with the keys "host", "wire" and "device", each with a list of steps.')
        places = {key: _steps(steps, f'"{key}"') for key, steps in answer.items()}
        for step, why in [(step, why) for step, (right, why) in STEP_PLACES.items() if right == name]:
            found = [key for key, steps in places.items() if step in steps]
            if not found:
                raise Wrong(f"Step {step} is missing.")
            if found[0] != name:
                raise Wrong(f"Step {step} does not happen on the {found[0]}: {why}.")
            if len(found) > 1:
                raise Wrong(f"Step {step} is in more than one place; it happens in one.")
        strangers = sorted({step for step in places[name] if STEP_PLACES[step][0] != name})
        if strangers:
            return f"These are right, but step {', '.join(map(str, strangers))} does not belong to them: see there."
        return None

    return judge


def _shares(answer: Callable) -> tuple[list[int], int]:
    result = returned(answer())
    if not isinstance(result, tuple) or len(result) != 2:
        raise Wrong("It should return two things: the steps that differ, and the number of a step.")
    differs, after = result
    try:
        after = whole(after)
    except Wrong:
        after = 0
    if after not in STEP_PLACES:
        raise Wrong("The second should be the number of one step, from 1 to 15.")
    return _steps(differs, "The first"), after


def _differs(data_parallel: Callable) -> None:
    differs, _ = _shares(data_parallel)
    wrong = misjudged(differs, LAST_GRADIENT)
    for steps, reason in DIFFERENCES.items():
        if bad := sorted(wrong & set(steps)):
            raise Wrong(f"Step{'s' * (len(bad) > 1)} {', '.join(map(str, bad))}: {reason}.")


def _after(data_parallel: Callable) -> None:
    _, after = _shares(data_parallel)
    if after < FIRST_GRADIENT:
        raise Wrong(f"After step {after} there is no gradient yet that could be averaged.")
    if after < LAST_GRADIENT:
        raise Wrong(
            f"After step {after} the gradients of the earlier layers are still missing. (Horovod does begin with "
            "those that are there; the exchange is over when the last ones are averaged.)"
        )
    if after > LAST_GRADIENT:
        raise Wrong(
            f"After step {after} each device has already used its own gradient: the optimizer must see the average, "
            "or its state differs from device to device."
        )


def _compare_bytes(got: Any, expected: float, case: str, mistakes: Mapping[str, float]) -> None:
    """Pass what is expected, within half a byte."""
    mistakes = {
        **mistakes,
        "these are numbers; each takes 4 bytes.": expected / 4,
        "these are bits: 4 bytes are 32 bits, but bytes were asked for.": 8 * expected,
        "a number takes 4 bytes here, in single precision, not 2.": expected / 2,
        "a number takes 4 bytes here, in single precision, not 8.": 2 * expected,
    }
    told = {f"{case}: {sentence}": value for sentence, value in mistakes.items()}
    compare(got, expected, f"{case}: the bytes", told, atol=0.51)


def _compare_part(memory: Callable, part: str, expected: float, mistakes: Mapping[str, float], state: int = 1) -> None:
    parts = returned(memory(WEIGHTS, ACTIVATIONS, BATCH, state))
    keys = ("weights", "gradients", "state", "activations")
    if not isinstance(parts, dict) or set(parts) != set(keys):
        raise Wrong(f"It should return a dict with the keys {', '.join(map(repr, keys))}.")
    case = f'"{part}" ({WEIGHTS:,} weights, {ACTIVATIONS} activations an image, batch {BATCH}, state {state})'
    _compare_bytes(parts[part], expected, case, mistakes)


def _weights(memory: Callable) -> None:
    mistakes = {f"they are the same for the whole batch; do not multiply by {BATCH}.": 4 * WEIGHTS * BATCH}
    _compare_part(memory, "weights", 4 * WEIGHTS, mistakes)
    mistakes = {
        "one number for each weight: the gradient is summed over the batch.": 4 * WEIGHTS * BATCH,
        "there is one number for each weight; they cannot be left out.": 0,
        "one number for each weight; those of the activations are not kept.": 4 * ACTIVATIONS * BATCH,
    }
    _compare_part(memory, "gradients", 4 * WEIGHTS, mistakes)


def _state(memory: Callable) -> None:
    for state in (0, 2, 1):
        expected = 4 * WEIGHTS * state
        mistakes = {
            "the optimizer's state was forgotten: `state_per_weight` numbers for each weight.": 0,
            "`state_per_weight` says how many numbers the optimizer keeps for each weight.": 4 * WEIGHTS,
            "it belongs to the weights, not to the activations.": 4 * ACTIVATIONS * state,
            "it belongs to the weights, not to the activations of the batch.": 4 * ACTIVATIONS * BATCH * state,
            "it is the same for the whole batch; do not multiply by the batch.": expected * BATCH,
            "the weights themselves are counted already.": 4 * WEIGHTS * (state + 1),
            "it is the number for one weight only; multiply by the weights.": 4 * state,
        }
        _compare_part(memory, "state", expected, mistakes, state)


def _activations(memory: Callable) -> None:
    mistakes = {
        "every image of the batch has its own; multiply by the batch.": 4 * ACTIVATIONS,
        "count each once: the optimizer keeps nothing for them, and their gradients are not kept.": (
            8 * ACTIVATIONS * BATCH
        ),
        "they were counted by the weights.": 4 * WEIGHTS * BATCH,
    }
    _compare_part(memory, "activations", 4 * ACTIVATIONS * BATCH, mistakes)


# --- backward

LAYERS, IMAGES_BACK = (4, 5, 3, 2), 6


def _loss(weights: Sequence[np.ndarray], x: np.ndarray, direction: np.ndarray) -> float:
    """A loss whose gradient by the output is `direction`."""
    for w in weights[:-1]:
        x = np.maximum(x @ w, 0)
    return float(np.sum(direction * (x @ weights[-1])))


def _back_case() -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Weights, what each layer got, and the gradient by the output."""
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=shape) for shape in zip(LAYERS, LAYERS[1:])]
    inputs = [rng.normal(size=(IMAGES_BACK, LAYERS[0]))]
    for w in weights[:-1]:
        inputs.append(np.maximum(inputs[-1] @ w, 0))
    return weights, inputs, rng.normal(size=(IMAGES_BACK, LAYERS[-1]))


def _differences(weights: list[np.ndarray], x: np.ndarray, direction: np.ndarray, layer: int) -> np.ndarray:
    """The gradient by one layer's weights, by central differences."""
    found, h = np.empty_like(weights[layer]), 1e-6
    for place in np.ndindex(found.shape):
        ends = []
        for step in (h, -h):
            moved = [w.copy() for w in weights]
            moved[layer][place] += step
            ends.append(_loss(moved, x, direction))
        found[place] = (ends[0] - ends[1]) / (2 * h)
    return found


def _gradient_of(layer: int) -> Callable[[Callable], None]:
    """A judge of the gradient by this layer's weights."""

    def judge(backward: Callable) -> None:
        weights, inputs, slope = _back_case()
        with unchanged(*weights, *inputs, slope):
            answer = returned(backward(weights, inputs, slope))
        if not isinstance(answer, (list, tuple)) or len(answer) != len(weights):
            raise Wrong(f"return a list of {len(weights)} arrays, the gradient by each layer's weights.")
        shapes = [getattr(plain(one), "shape", None) for one in answer]
        expected_shapes = [w.shape for w in weights]
        if shapes != expected_shapes and shapes[::-1] == expected_shapes:
            raise Wrong("the list begins with the last layer: reverse it.")
        if shapes != expected_shapes and shapes == [shape[::-1] for shape in expected_shapes]:
            raise Wrong("these are transposed: [inputs, outputs], as the weights.")
        got = array(answer[layer], weights[layer].shape, f"for layer {layer + 1} it")
        expected = _differences(weights, inputs[0], slope, layer)
        if np.allclose(got, expected, rtol=1e-5, atol=1e-6):
            return
        for sentence, wrong in _wrong_ways(weights, inputs, slope, layer).items():
            if np.allclose(got, wrong, rtol=1e-5, atol=1e-6):
                raise Wrong(sentence)
        worst = np.unravel_index(np.argmax(np.abs(got - expected)), expected.shape)
        raise Wrong(
            f"moved a little, weight {tuple(map(int, worst))} of layer {layer + 1} changes the loss by "
            f"{expected[worst]:.4g} times as much; you have {got[worst]:.4g}."
        )

    return judge


def _wrong_ways(weights: list, inputs: list, slope: np.ndarray, layer: int) -> dict[str, np.ndarray]:
    def back(passes: Callable[[np.ndarray, np.ndarray], np.ndarray], g: np.ndarray = slope) -> np.ndarray:
        """The layer's gradient where ReLU lets through what `passes` (gradient, the layer's input) says."""
        for w, h in zip(weights[:layer:-1], inputs[:layer:-1]):
            g = passes(g @ w.T, h)
        return inputs[layer].T @ g

    right = back(lambda g, h: g * (h > 0))
    return {
        "the sign is wrong: the gradient is asked for, not the step.": -right,
        "that is a mean over the images: `slope` has the 1/m already.": right / len(slope),
        "the ReLU is left out: where it gave 0, the gradient is 0.": back(lambda g, h: g),
        "that multiplies by the output of the ReLU; multiply by its slope, which is 0 or 1.": back(lambda g, h: g * h),
        "the output of the forward pass decides where the ReLU cuts off, not the sign of the gradient.": back(
            lambda g, h: np.maximum(g, 0)
        ),
        "the ReLU is the wrong way round: its slope is 1 where its output is above 0.": back(lambda g, h: g * (h <= 0)),
        "there is no ReLU after the last layer: its gradient comes in as it is.": back(
            lambda g, h: g * (h > 0), slope * (inputs[-1] @ weights[-1] > 0)
        ),
    }


# --- bytes


def _crossover(*devices: int) -> Callable[[Callable], None]:
    """A judge of these numbers of devices."""

    def judge(crossover: Callable) -> None:
        weights = 5_040
        for count in devices:
            crossing = [30 * k + 70 for k in range(count - 1)]
            given = list(crossing)
            got = number(crossover(weights, given, count))
            if given != crossing:
                raise Wrong("It changed the list that it was given; leave it as it is.")
            total = sum(crossing)
            expected = weights * (count - 1) / total
            of_many = {
                "the loads of all devices are to be compared; that is one device's gradients with all cuts.": (
                    expected / count
                ),
                "N devices send 2 (N − 1)/N of their gradients each: together N − 1 times, not N times.": (
                    weights * count / total
                ),
                "2 (N − 1)/N of the gradients is what one device sends; there are N of them.": 2 * expected / count,
                "that leaves out the number of devices.": weights / total,
            }
            of_two = {  # N and 2 are the same here, so that two mistakes make one value
                "that is twice as much: the 2 of both ways cancels, and the gradients of N devices are sent together "
                "N − 1 times, not N times.": 2 * expected,
                "that is half of it: the 2 of both ways cancels, and the gradients of all devices count, not of one.": (
                    expected / 2
                ),
            }
            mistakes = {
                "that is the inverse: the batch stands in model parallelism's load.": 1 / expected,
                **(of_two if count == 2 else of_many),
                "it should not be rounded.": float(int(expected)),
                "both loads have 4 bytes a number: that cancels.": 4 * expected,
                "both loads go both ways: the 2 cancels.": 2 * expected,
                "both loads go both ways; the 2 cancels.": expected / 2,
                "all cuts count, not one of them.": weights * (count - 1) / crossing[0],
            }
            compare(got, expected, f"{weights:,} weights, cuts {crossing}, {count} devices: the batch", mistakes)

    return judge


def _model_parallel(*crossing: int) -> Callable[[Callable], None]:
    """A judge of these numbers at the cuts."""

    def judge(bytes_model_parallel: Callable) -> None:
        batch, given = 6, list(crossing)
        got = number(bytes_model_parallel(given, batch))
        if given != list(crossing):
            raise Wrong("It changed the list that it was given; leave it as it is.")
        expected = 8 * sum(crossing) * batch
        mistakes = {
            "forward only: the gradients of these activations come back over the same wire.": expected / 2,
            "every image of the batch crosses; multiply by the batch.": expected / batch,
            "forward only, and for one image only.": expected / 2 / batch,
            "all cuts count, not the first alone.": 8 * crossing[0] * batch,
            "all cuts count, not the last alone.": 8 * crossing[-1] * batch,
            "all cuts count, not the largest alone.": 8 * max(crossing) * batch,
            "this is the mean of the cuts; their sum was asked for.": expected / len(crossing),
            "that counts the cuts, not the numbers that cross them.": 8 * len(crossing) * batch,
        }
        _compare_bytes(got, expected, f"Cuts {list(crossing)}, batch {batch}", mistakes)

    return judge


EXERCISES = Exercises(
    Exercise(
        "place",
        Criterion("transports", "The transports", 0.25, _placed("wire")),
        Criterion("host", "The host's steps", 0.25, _placed("host")),
        Criterion("device", "The device's steps", 0.5, _placed("device")),
    ),
    Exercise(
        "data_parallel",
        Criterion("differs", "What differs from device to device", 0.5, _differs),
        Criterion("all-reduce", "The all-reduce", 0.5, _after),
    ),
    Exercise(
        "memory",
        Criterion("weights", "Weights and gradients", 0.25, _weights),
        Criterion("state", "The optimizer's state", 0.35, _state),
        Criterion("activations", "Activations", 0.4, _activations),
    ),
    Exercise(
        "backward",
        Criterion("last", "By the last layer's weights", 0.3, _gradient_of(2)),
        Criterion("middle", "By the middle layer's", 0.4, _gradient_of(1)),
        Criterion("first", "By the first layer's", 0.3, _gradient_of(0)),
    ),
    Exercise(
        "crossover",
        Criterion("two-devices", "Two devices", 0.4, _crossover(2)),
        Criterion("more-devices", "More devices", 0.6, _crossover(3, 6)),
    ),
    Exercise(
        "bytes_model_parallel",
        Criterion("one-cut", "One cut", 0.5, _model_parallel(410)),
        Criterion("several-cuts", "Several cuts", 0.5, _model_parallel(90, 410, 170)),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
