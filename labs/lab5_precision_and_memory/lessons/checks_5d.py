"""Checks of notebook 5d: which weights stay, when the others go, and what the positions of the rest cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from course_lib.notebook.answers import array, case, compare, name_mistake, number, returned, several, unchanged
from course_lib.notebook.exercises import Exercise, Exercises
from course_lib.notebook.judging import Criterion, Wrong
from labs.lab5_precision_and_memory.lessons import pruning, sparse_regression

# --- stays

SHAPE = (3, 3, 4, 6)
GROUPS = {"weights": (3, 3, 4, 6), "rows": (3, 1, 4, 6), "filters": (1, 1, 1, 6)}
DENSITIES = (0.5, 0.25, 0.1)


def _kernel(grain: str) -> np.ndarray:
    """Groups that are scaled copies of each other, with signs of their own: every norm orders them alike."""
    random = np.random.default_rng(5)
    groups = GROUPS[grain]
    scales = random.permutation(np.geomspace(0.01, 1, math.prod(groups))).reshape(groups)
    inside = tuple(whole // part for whole, part in zip(SHAPE, groups))
    profile = np.linspace(0.9, 1.1, math.prod(inside)).reshape(inside)
    signs = random.choice([-1.0, 1.0], SHAPE)
    return scales * np.tile(profile, tuple(whole // part for whole, part in zip(SHAPE, inside))) * signs


def _largest(strength: np.ndarray, count: int) -> np.ndarray:
    stay = np.zeros(strength.size, bool)
    stay[np.argsort(strength, axis=None, kind="stable")[strength.size - count :]] = True
    return np.broadcast_to(stay.reshape(strength.shape), SHAPE)


def _answer(stays: Callable, kernel: np.ndarray, density: float, grain: str) -> np.ndarray:
    with unchanged(kernel):
        found = stays(kernel, density, grain)
    found = array(found, SHAPE)
    if not np.isin(found, (0, 1)).all():
        raise Wrong("it returns other values than True and False: a mask says which weights stay, not what they are.")
    return found.astype(bool)


def _stays(grain: str) -> Callable[[Callable], None]:
    def judge(stays: Callable) -> None:
        kernel, groups = _kernel(grain), GROUPS[grain]
        axes = pruning.GRAINS[grain]
        for density in DENSITIES:
            count = max(1, round(density * math.prod(groups)))
            with case(f"grain {grain!r}, density {density:g}"):
                found = _answer(stays, kernel, density, grain)
                strength = np.abs(kernel).mean(axes, keepdims=True)
                mistakes = {
                    "the strongest go and the weakest stay: it is the other way round.": _largest(-strength, count),
                    "a large negative weight counts as weak: signs must not matter.": _largest(
                        kernel.mean(axes, keepdims=True), count
                    ),
                    "the weights of a group cancel each other: take their sizes first, then the mean.": _largest(
                        np.abs(kernel.mean(axes, keepdims=True)), count
                    ),
                    "`density` is the share that stays, not the share that goes.": _largest(
                        strength, max(1, round((1 - density) * strength.size))
                    ),
                }
                if grain == "rows":
                    mistakes["a row runs along the width, axis 1."] = _largest_of_axis(kernel, 0, density)
                if grain != "weights":
                    mistakes["single weights are chosen: a group stays or goes as a whole."] = _largest(
                        np.abs(kernel), round(density * kernel.size)
                    )
                name_mistake(found, _largest(strength, count), mistakes)
                whole = np.broadcast_to(found.any(axes, keepdims=True), SHAPE) if axes else found
                if not np.array_equal(found, whole):
                    raise Wrong("a group is taken apart: all of its weights stay, or all go.")
                if found.sum() != count * (kernel.size // strength.size):
                    kept = found.sum() // (kernel.size // strength.size)
                    raise Wrong(f"{count} of {strength.size} groups should stay; {kept} do.")
                if not np.array_equal(found, _largest(strength, count)):
                    raise Wrong("some groups stay that are weaker, by every measure, than others that go.")

    return judge


def _largest_of_axis(kernel: np.ndarray, axis: int, density: float) -> np.ndarray:
    strength = np.abs(kernel).mean(axis, keepdims=True)
    return _largest(strength, max(1, round(density * strength.size)))


def _ties(stays: Callable) -> None:
    kernel = np.full(SHAPE, 0.5)
    found = _answer(stays, kernel, 0.25, "weights").sum()
    if found != kernel.size // 4:
        raise Wrong(
            f"of {kernel.size} weights of equal size {kernel.size // 4} should stay at density 0.25; {found} do. A "
            "threshold can't tell equals apart: count."
        )
    half = np.where(np.arange(kernel.size).reshape(SHAPE) % 10, 0.0, kernel)
    found = _answer(stays, half, 0.5, "weights").sum()
    if found != kernel.size // 2:
        raise Wrong(f"of a kernel that is nine tenths 0 already {found} weights stay at density 0.5: count those, too.")


# --- pruned_share

GOOD, FAIR = 0.01, 0.1  # of the answers' mean square


def _ends(pruned_share: Callable) -> None:
    for updates, final in ((200, 0.95), (1_000, 0.5), (60, 0.98)):
        shares = np.array([number(pruned_share(update, updates, final)) for update in range(updates)])
        with case(f"{updates} updates, final share {final:g}"):
            if shares.min() < 0 or shares.max() > final + 1e-9:
                raise Wrong(
                    f"the share runs from {shares.min():.3g} to {shares.max():.3g}: it has to stay in 0 … final."
                )
            if np.diff(shares).min() < -1e-12:
                first = int(np.argmin(np.diff(shares) >= -1e-12)) + 1
                raise Wrong(f"the share falls at update {first}: what is pruned stays pruned.")
            if abs(shares[-1] - final) > 1e-6:
                raise Wrong(f"at the last update the share is {shares[-1]:.3g}, not {final:g}.")


def _recovers(pruned_share: Callable) -> None:
    updates, final = 1_000, 0.9
    shares = np.array([number(pruned_share(update, updates, final)) for update in range(updates)])
    reached = int(np.argmax(shares > final - 1e-3))
    if shares[-1] < final - 1e-3:
        raise Wrong("the final share is never reached.")
    if reached > 0.95 * updates:
        raise Wrong(
            f"the last weights go at update {reached} of {updates}: leave those that stay some time to take over."
        )


def _small_error(pruned_share: Callable) -> str:
    def share(update: int, updates: int, final: float) -> float:
        return number(pruned_share(update, updates, final))

    found = float(sparse_regression.errors(share).mean())
    shares = [share(update, 200, 0.95) for update in range(200)]
    steps = np.diff(shares, prepend=0.0)
    if found <= GOOD:
        return f"The error is {found:.2g}; asked for was {GOOD:g}."
    told = f"the error is {found:.2g} and should be at most {GOOD:g}: "
    if steps[0] > 0.5:
        raise Wrong(told + "at the first update no weight has shown yet what it is worth.")
    if steps.max() > 0.5:
        raise Wrong(told + "most weights go in one update, and the others can't take over what they did step by step.")
    late = np.mean(np.array(shares)[100:] < 0.8 * 0.95)
    hint = (
        "many weights go in the last third, when few are left and each matters. Where is a weight cheap: among 100, "
        "or among 10?"
        if late > 0.1
        else "compare how many weights go in an update with how many are left."
    )
    raise Wrong(told + hint, 0.4 if found <= FAIR else 0.0)


# --- sizes

MATRICES = (
    (64, 144, 500, 4), (300, 200, 6_000, 4), (512, 70_000, 100_000, 2), (10, 3_136, 1, 4), (7, 9, 20, 4),
    (256, 65_536, 256, 4),  # the largest numbers are 255, 65,535 and 256
)  # fmt: skip
FORMATS = ("bitmap", "compressed rows", "coordinates")


def _bytes_for(largest: int) -> int:
    """Of an unsigned whole number up to `largest`: 1, 2 or 4."""
    return next(size for size in (1, 2, 4) if largest < 256**size)


def reference_sizes(rows: int, columns: int, nonzeros: int, value: int) -> dict[str, int]:
    """Bytes of a matrix in each of FORMATS; see the exercise `sizes`."""
    column, row, start = _bytes_for(columns - 1), _bytes_for(rows - 1), _bytes_for(nonzeros)
    return {
        "bitmap": nonzeros * value + math.ceil(rows * columns / 8),
        "compressed rows": nonzeros * (value + column) + (rows + 1) * start,
        "coordinates": nonzeros * (value + row + column),
    }


def _size(form: str) -> Callable[[Callable], None]:
    def judge(sizes: Callable) -> None:
        for rows, columns, nonzeros, value in MATRICES:
            found = returned(sizes(rows, columns, nonzeros, value))
            if not isinstance(found, dict) or set(found) != set(FORMATS):
                raise Wrong(f"it should return a dict with {', '.join(map(repr, FORMATS))}.")
            got = number(found[form], f"for {form!r} it")
            expected = reference_sizes(rows, columns, nonzeros, value)[form]
            column, row, start = _bytes_for(columns - 1), _bytes_for(rows - 1), _bytes_for(nonzeros)
            payload, cells = nonzeros * value, rows * columns
            mistakes = {
                "the values themselves are missing.": expected - payload,
                "only the values are counted: where does each of them stand?": payload,
            }
            if form == "bitmap":
                mistakes |= {
                    "a bit is an eighth of a byte.": payload + cells,
                    "a bitmap has a bit for every weight, also for those that are 0.": payload
                    + math.ceil(nonzeros / 8),
                    "a file has whole bytes: round up.": payload + cells // 8,
                    "half a byte can't be stored: round up.": payload + cells / 8,
                }
            from_0 = "rows and columns are counted from 0: the largest is one less than there are."
            if form == "compressed rows":
                own = nonzeros * (value + column)
                mistakes |= {
                    from_0: nonzeros * (value + _bytes_for(columns)) + (rows + 1) * start,
                    "the end of the last row is the number of non-zeros itself.": own
                    + (rows + 1) * _bytes_for(nonzeros - 1),
                    "of each row its beginning is stored, and the end of the last one: rows + 1 numbers.": own
                    + rows * start,
                    "a row's beginning counts non-zeros: it can be as large as their number, not only as large as a "
                    "column's number.": own + (rows + 1) * column,
                    "where a row begins is not stored.": own,
                    "indices take 4 bytes only where 1 or 2 can't hold them.": nonzeros * (value + 4) + (rows + 1) * 4,
                }
            if form == "coordinates":
                mistakes |= {
                    from_0: nonzeros * (value + _bytes_for(rows) + _bytes_for(columns)),
                    "a weight has two coordinates, a row and a column.": nonzeros * (value + column),
                    "rows and columns need not be counted with equally many bytes.": nonzeros
                    * (value + 2 * max(row, column)),
                    "indices take 4 bytes only where 1 or 2 can't hold them.": nonzeros * (value + 8),
                }
            told = f"{rows} × {columns}, {nonzeros:,} weights of {value} bytes: {form}"
            compare(got, float(expected), told, {f"{told}: {why}": wrong for why, wrong in mistakes.items()})

    return judge


# --- break_even

WIDTHS = ((4, 2), (2, 2), (1, 1), (4, 4), (0.5, 2))


def reference_break_even(value: float, index: float) -> tuple[float, float, float]:
    """Densities at which each of FORMATS is as large as the dense matrix, where rows are long."""
    return 1 - 1 / (8 * value), value / (value + index), value / (value + 2 * index)


def _breaks_even(place: int) -> Callable[[Callable], None]:
    def judge(break_even: Callable) -> None:
        for value, index in WIDTHS:
            got = number(several(break_even(value, index), *FORMATS)[place], f"for {FORMATS[place]!r} it")
            expected = reference_break_even(value, index)[place]
            mistakes = {
                "that is the share of zeros; asked for is that of the weights that stay.": 1 - expected,
                "in per cent? Asked for is a share.": 100 * expected,
            }
            if place == 0:
                mistakes["the bitmap costs a bit for each weight, not a byte."] = 1 - 1 / value
                mistakes["the bits of the bitmap are paid for the zeros, too: n·d·v + n/8 = n·v."] = value / (
                    value + 1 / 8
                )
            else:
                mistakes["the index is compared with the value; together they must not exceed a dense value."] = (
                    value / (index * place)
                )
                mistakes["one weight has one index in compressed rows, and two in coordinates."] = value / (
                    value + (3 - place) * index
                )
            told = f"values of {value:g} bytes, indices of {index:g}: for {FORMATS[place]} the density"
            compare(got, expected, told, mistakes)

    return judge


def _titled(forms: Sequence[str], judge: Callable, shares: Sequence[float]) -> list[Criterion]:
    return [
        Criterion(form.replace(" ", "-"), form.capitalize(), share, judge(form)) for form, share in zip(forms, shares)
    ]


EXERCISES = Exercises(
    Exercise("stays", *_titled(tuple(GROUPS), _stays, (0.3, 0.25, 0.25)), Criterion("ties", "Equals", 0.2, _ties)),
    Exercise(
        "pruned_share",
        Criterion("ends", "From 0 to the final share, never back", 0.2, _ends),
        Criterion("recovers", "Time to recover", 0.2, _recovers),
        Criterion("error", "A small error", 0.6, _small_error),
    ),
    Exercise("sizes", *_titled(FORMATS, _size, (0.35, 0.4, 0.25))),
    Exercise(
        "break_even",
        *(
            Criterion(form.replace(" ", "-"), form.capitalize(), 1 / 3, _breaks_even(place))
            for place, form in enumerate(FORMATS)
        ),
    ),
)
check, points = EXERCISES.check, EXERCISES.points
