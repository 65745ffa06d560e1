"""Checks of the exercises of lab 1d: a training step's places, its memory, and what crosses the wires."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Collection, Iterable, Mapping

from course_lib.assess.exercises import Exercise, Exercises, Part

# Where each step happens, and why.
WHERE = {
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
OWN = frozenset(step for step in WHERE if step < 13)  # on each device its own images, hence its own numbers
LAST_GRADIENT = max(OWN)


# The steps


def misplaced(places: Mapping[str, Collection[int]]) -> set[int]:
    """The steps that stand in a wrong lane, or in two. Those that stand nowhere are not among them."""
    return {step for name, steps in places.items() for step in steps if WHERE.get(step, ("",))[0] != name}


def misjudged(differs: Collection[int], after: int) -> set[int]:
    """The steps on which `differs` is wrong, and 0 if `after` is. Step 15 has no numbers and does not count."""
    return ((set(differs) ^ OWN) - {15}) | ({0} if after != LAST_GRADIENT else set())


def _places(answer: Callable) -> dict[str, list[int]] | str:
    places = answer()
    if not isinstance(places, dict) or set(places) != {"host", "wire", "device"}:
        return 'It should return a dict with the keys "host", "wire" and "device", each with a list of steps.'
    for name, steps in places.items():
        if not isinstance(steps, Iterable) or isinstance(steps, str) or any(step not in WHERE for step in steps):
            return f'"{name}" should hold a list of step numbers from 1 to 15.'
    return {name: list(steps) for name, steps in places.items()}


def _stands(name: str) -> Callable[[Callable], str]:
    def trial(answer: Callable) -> str:
        places = _places(answer)
        if isinstance(places, str):
            return places
        for step, (place, why) in WHERE.items():
            found = [lane for lane, steps in places.items() if step in steps]
            if name == place and not found:
                return f"Step {step} stands nowhere."
            if name == place and found != [name]:
                return (
                    f"Step {step} does not happen on the {found[0]}: {why}."
                    if found[0] != name
                    else (f"Step {step} stands in more than one place; it happens in one.")
                )
        return ""

    return trial


def _shares(answer: Callable) -> tuple[set[int], int] | str:
    result = answer()
    if not isinstance(result, tuple) or len(result) != 2:
        return "It should return two things: the steps that differ, and the number of a step."
    differs, after = result
    if not isinstance(differs, Iterable) or isinstance(differs, str) or any(step not in WHERE for step in differs):
        return "The first should be a collection of step numbers from 1 to 15."
    if isinstance(after, bool) or not isinstance(after, numbers.Integral) or after not in WHERE:
        return "The second should be the number of one step, from 1 to 15."
    return set(differs), int(after)


def _differs(answer: Callable) -> str:
    result = _shares(answer)
    if isinstance(result, str):
        return result
    wrong = misjudged(result[0], LAST_GRADIENT)
    for steps, reason in (
        (range(1, 6), "every device trains on images of its own, otherwise N devices do the work of one N times"),
        (range(6, 10), "the weights are the same everywhere, but the images are not: nor are activations and loss"),
        (range(10, 13), "each device knows only the loss of its own images, so it has its own gradients"),
        (range(13, 15), "behind the all-reduce all have the same gradient, so they make the same update; if they "
         "did not, the copies would drift apart"),
    ):  # fmt: skip
        bad = sorted(wrong & set(steps))
        if bad:
            return f"Step{'s' * (len(bad) > 1)} {', '.join(map(str, bad))}: {reason}."
    return ""


def _after(answer: Callable) -> str:
    result = _shares(answer)
    if isinstance(result, str):
        return result
    after = result[1]
    if after == LAST_GRADIENT:
        return ""
    if after < 10:
        return f"Behind step {after} there is no gradient yet that could be averaged."
    if after < LAST_GRADIENT:
        return (
            f"Behind step {after} the gradients of the earlier layers are still missing. (Horovod does begin with "
            "those that are there; the exchange is over when the last ones are averaged.)"
        )
    return (
        f"Behind step {after} each device has already used its own gradient: the optimizer must see the average, "
        "or its state differs from device to device."
    )


# Bytes


def _number(value: object, what: str) -> str:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return f"{what} should be a number; it is {value!r}."
    return "" if math.isfinite(value) and value >= 0 else f"{what} cannot be {value}."


def _compare(got: object, expected: float, what: str, mistakes: Mapping[str, float]) -> str:
    """ "" if the number is right, else what it was mistaken for, or what it should be."""
    problem = _number(got, what)
    if problem or math.isclose(got, expected, rel_tol=1e-6, abs_tol=0.51):
        return problem
    for reason, value in {
        **mistakes,
        "These are numbers; each takes 4 bytes.": expected / 4,
        "These are bits: 4 bytes are 32 bits, but bytes were asked for.": 8 * expected,
        "A number takes 4 bytes here, in single precision, not 2.": expected / 2,
        "A number takes 4 bytes here, in single precision, not 8.": 2 * expected,
    }.items():
        if math.isclose(got, value, rel_tol=1e-6, abs_tol=0.51):
            return f"{what}: {reason}"
    return f"{what} should be {expected:,.0f} bytes; it is {got:,.0f}."


_WEIGHTS, _ACTIVATIONS, _BATCH = 1_009, 370, 12


def _bytes_of(answer: Callable, state: int) -> dict[str, float] | str:
    parts = answer(_WEIGHTS, _ACTIVATIONS, _BATCH, state)
    keys = ("weights", "gradients", "state", "activations")
    if not isinstance(parts, dict) or set(parts) != set(keys):
        return f"It should return a dict with the keys {', '.join(map(repr, keys))}."
    return parts


def _case(state: int = 1) -> str:
    return f"{_WEIGHTS:,} weights, {_ACTIVATIONS} activations an image, batch {_BATCH}, state {state}"


def _weights(answer: Callable) -> str:
    parts = _bytes_of(answer, 1)
    if isinstance(parts, str):
        return parts
    one = 4 * _WEIGHTS
    per_image = {f"they are the same for the whole batch; do not multiply by {_BATCH}.": one * _BATCH}
    return _compare(parts["weights"], one, f"The weights ({_case()})", per_image) or _compare(
        parts["gradients"],
        one,
        f"The gradients ({_case()})",
        {
            "one number for each weight: the gradient is summed over the batch.": one * _BATCH,
            "there is one number for each weight; they cannot be left out.": 0,
            "one number for each weight; those of the activations are not kept.": 4 * _ACTIVATIONS * _BATCH,
        },
    )


def _state(answer: Callable) -> str:
    for state in (0, 2, 1):
        parts = _bytes_of(answer, state)
        if isinstance(parts, str):
            return parts
        expected = 4 * _WEIGHTS * state
        mistakes = {
            "the optimizer's state was forgotten: `state_per_weight` numbers for each weight.": 0,
            "`state_per_weight` says how many numbers the optimizer keeps for each weight.": 4 * _WEIGHTS,
            "it belongs to the weights, not to the activations.": 4 * _ACTIVATIONS * state,
            "it belongs to the weights, not to the activations of the batch.": 4 * _ACTIVATIONS * _BATCH * state,
            "it is the same for the whole batch; do not multiply by the batch.": expected * _BATCH,
            "the weights themselves are counted already.": 4 * _WEIGHTS * (state + 1),
            "it is the number for one weight only; multiply by the weights.": 4 * state,
        }
        reason = _compare(parts["state"], expected, f"The optimizer's state ({_case(state)})", mistakes)
        if reason:
            return reason
    return ""


def _activations(answer: Callable) -> str:
    parts = _bytes_of(answer, 1)
    if isinstance(parts, str):
        return parts
    one = 4 * _ACTIVATIONS
    return _compare(
        parts["activations"],
        one * _BATCH,
        f"The activations ({_case()})",
        {
            "every image of the batch has its own; multiply by the batch.": one,
            "the optimizer keeps nothing for them: it knows weights only.": 2 * one * _BATCH,
            "they were counted by the weights.": 4 * _WEIGHTS * _BATCH,
        },
    )


def _data_parallel(*devices: int) -> Callable[[Callable], str]:
    def trial(answer: Callable) -> str:
        weights = 5_040
        for count in devices:
            expected = 8 * weights * (count - 1) / count
            all_of_it = 4 * weights
            mistakes = {
                "a device alone has nobody to send to.": all_of_it if count == 1 else -1,
                "the factor 2 is missing: the ring goes round twice, once to add up and once to hand out the sums.":
                    expected / 2,
                "the factor (N − 1)/N is missing: of N pieces each device sends N − 1 in each round.": 2 * all_of_it,
                "these are all the gradients once; a ring sends 2 (N − 1)/N of them.": all_of_it,
                "these are the bytes of all devices together; each sends 1/N of that.": expected * count,
                "(N + 1)/N in place of (N − 1)/N: a device keeps one of the N pieces.":
                    2 * all_of_it * (count + 1) / count,
                "that is what a device would send that sends everything to each of the others.":
                    all_of_it * (count - 1),
                "that is 2/N of the gradients: (N − 1) pieces of size 1/N go out in each round.":
                    2 * all_of_it / count,
            }  # fmt: skip
            # A wrong factor of two is told as the ring's, not as half or double precision.
            reason = _compare(
                answer(weights, count), expected, f"{weights:,} weights, {count} device{'s' * (count > 1)}", mistakes
            )
            if reason:
                return reason
        return ""

    return trial


def _model_parallel(*cuts: list[int]) -> Callable[[Callable], str]:
    def trial(answer: Callable) -> str:
        batch = 6
        for crossing in cuts:
            expected = 8 * sum(crossing) * batch
            mistakes = {
                "forward only: the gradients of these activations come back over the same wire.": expected / 2,
                "every image of the batch crosses; multiply by the batch.": expected / batch,
                "forward only, and for one image only.": expected / 2 / batch,
                "all cuts count, not the first alone.": 8 * crossing[0] * batch,
                "all cuts count, not the last alone.": 8 * crossing[-1] * batch,
                "all cuts count, not the largest alone.": 8 * max(crossing) * batch,
                "this is the mean of the cuts; their sum was asked for.": expected / len(crossing),
                "these are numbers; each takes 4 bytes.": expected / 4,
            }
            given = list(crossing)
            got = answer(given, batch)
            if given != crossing:
                return "It changed the list that it was given; leave it as it is."
            reason = _compare(got, expected, f"Cuts {crossing}, batch {batch}", mistakes)
            if reason:
                return reason
        return ""

    return trial


EXERCISES = Exercises(
    Exercise(
        "place",
        (
            Part("The transports", 0.25, _stands("wire")),
            Part("The host's steps", 0.25, _stands("host")),
            Part("The device's steps", 0.5, _stands("device")),
        ),
    ),
    Exercise(
        "data_parallel",
        (Part("What differs from device to device", 0.5, _differs), Part("The all-reduce", 0.5, _after)),
    ),
    Exercise(
        "memory",
        (
            Part("Weights and gradients", 0.25, _weights),
            Part("The optimizer's state", 0.35, _state),
            Part("Activations", 0.4, _activations),
        ),
    ),
    Exercise(
        "bytes_data_parallel",
        (
            Part("One device", 0.2, _data_parallel(1)),
            Part("Four devices", 0.3, _data_parallel(4)),
            Part("Many devices", 0.5, _data_parallel(3, 7, 10)),
        ),
    ),
    Exercise(
        "bytes_model_parallel",
        (Part("One cut", 0.5, _model_parallel([410])), Part("Several cuts", 0.5, _model_parallel([90, 410, 170]))),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
