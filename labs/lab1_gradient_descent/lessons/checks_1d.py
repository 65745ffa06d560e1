"""Checks of notebook 1d: where the steps of training happen, its memory, and what crosses the wires."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from course_lib.notebook.answers import compare, number, returned
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
    range(13, 15): "behind the all-reduce all have the same gradient, so they make the same update; if they did not, "
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
    if not isinstance(value, Iterable) or isinstance(value, str) or any(step not in STEP_PLACES for step in value):
        raise Wrong(f"{what} should hold step numbers from 1 to 15.")
    return list(value)


def _placed(name: str) -> Callable[[Callable], None]:
    """A judge of the steps that happen at this place."""

    def judge(place: Callable) -> None:
        answer = returned(place())
        if not isinstance(answer, dict) or set(answer) != {"host", "wire", "device"}:
            raise Wrong('It should return a dict with the keys "host", "wire" and "device", each with a list of steps.')
        places = {key: _steps(steps, f'"{key}"') for key, steps in answer.items()}
        for step, why in [(step, why) for step, (right, why) in STEP_PLACES.items() if right == name]:
            found = [key for key, steps in places.items() if step in steps]
            if not found:
                raise Wrong(f"Step {step} stands nowhere.")
            if found[0] != name:
                raise Wrong(f"Step {step} does not happen on the {found[0]}: {why}.")
            if len(found) > 1:
                raise Wrong(f"Step {step} stands in more than one place; it happens in one.")

    return judge


def _shares(answer: Callable) -> tuple[list[int], int]:
    result = returned(answer())
    if not isinstance(result, tuple) or len(result) != 2:
        raise Wrong("It should return two things: the steps that differ, and the number of a step.")
    differs, after = result
    if isinstance(after, (bool, float)) or after not in list(STEP_PLACES):
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
        raise Wrong(f"Behind step {after} there is no gradient yet that could be averaged.")
    if after < LAST_GRADIENT:
        raise Wrong(
            f"Behind step {after} the gradients of the earlier layers are still missing. (Horovod does begin with "
            "those that are there; the exchange is over when the last ones are averaged.)"
        )
    if after > LAST_GRADIENT:
        raise Wrong(
            f"Behind step {after} each device has already used its own gradient: the optimizer must see the average, "
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
        "the optimizer keeps nothing for them: it knows weights only.": 8 * ACTIVATIONS * BATCH,
        "they were counted by the weights.": 4 * WEIGHTS * BATCH,
    }
    _compare_part(memory, "activations", 4 * ACTIVATIONS * BATCH, mistakes)


def _data_parallel(*cases: int) -> Callable[[Callable], None]:
    """A judge of these numbers of devices."""

    def judge(bytes_data_parallel: Callable) -> None:
        weights = 5_040
        gradients = 4 * weights
        for devices in cases:
            expected = 2 * gradients * (devices - 1) / devices
            mistakes = {
                "a device alone has nobody to send to.": gradients if devices == 1 else expected,
                "the factor 2 is missing: the ring goes round twice, once to add up and once to hand out the sums.": (
                    expected / 2
                ),
                "the factor (N − 1)/N is missing: of N pieces each device sends N − 1 in each round.": 2 * gradients,
                "these are all the gradients once; a ring sends 2 (N − 1)/N of them.": gradients,
                "these are the bytes of all devices together; each sends 1/N of that.": expected * devices,
                "(N + 1)/N in place of (N − 1)/N: a device keeps one of the N pieces.": (
                    2 * gradients * (devices + 1) / devices
                ),
                "that is what a device would send that sends everything to each of the others.": (
                    gradients * (devices - 1)
                ),
                "that is 2/N of the gradients: (N − 1) pieces of size 1/N go out in each round.": (
                    2 * gradients / devices
                ),
            }
            case = f"{weights:,} weights, {devices} device{'s' * (devices > 1)}"
            _compare_bytes(number(bytes_data_parallel(weights, devices)), expected, case, mistakes)

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
        "bytes_data_parallel",
        Criterion("one-device", "One device", 0.2, _data_parallel(1)),
        Criterion("four-devices", "Four devices", 0.3, _data_parallel(4)),
        Criterion("many-devices", "Many devices", 0.5, _data_parallel(3, 7, 10)),
    ),
    Exercise(
        "bytes_model_parallel",
        Criterion("one-cut", "One cut", 0.5, _model_parallel(410)),
        Criterion("several-cuts", "Several cuts", 0.5, _model_parallel(90, 410, 170)),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
