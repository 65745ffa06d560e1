"""Gradient descent on a line's two numbers, w and b: where it goes, how fast, and what its learning rate does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from course_lib.plots.style import FAINT, INK, PALETTE, WIDTH, Card, card, powers_of_ten, style

# Up to which η λ_max each regime goes. Where a crawl ends is a matter of taste, the other two bounds are not.
REGIMES = {"crawl": 0.1, "converge": 1.0, "oscillate": 2.0, "diverge": np.inf}
_COLOURS = dict(zip(REGIMES, (PALETTE[5], PALETTE[2], PALETTE[4], PALETTE[1])))
_TRAIL, _START = PALETTE[1], PALETTE[0]
_FAR = 1e6  # how far away a point is still drawn: a picture cannot be made of 1e300


class Path(NamedTuple):
    """A descent: w, b and loss before the first step and after each, and how it ended, in a word."""

    w: np.ndarray
    b: np.ndarray
    losses: np.ndarray
    ended: str = ""

    @property
    def steps(self) -> int:
        """How many steps were made."""
        return len(self.losses) - 1


@dataclass(frozen=True)
class Grid:
    """The loss at every pair of some w [n] and b [m], in an array [m, n], and the place of its minimum (w, b)."""

    w: np.ndarray
    b: np.ndarray
    losses: np.ndarray
    best: tuple[float, float]


def grid(
    loss: Callable[[float, float], float],
    w: tuple[float, float],
    b: tuple[float, float],
    best: tuple[float, float],
    points: int = 61,
) -> Grid:
    """The loss (w, b) → L on `points` × `points` places between the given ends; `best` is the place of its minimum."""
    ws, bs = np.linspace(*w, points), np.linspace(*b, points)
    return Grid(ws, bs, np.array([[float(loss(w, b)) for w in ws] for b in bs]), best)


def regime(eta: float, steepest: float) -> str:
    """What gradient descent does with the learning rate η where the largest curvature is `steepest` (λ_max)."""
    return next(name for name, end in REGIMES.items() if eta * steepest < end)


def fit(x: np.ndarray, y: np.ndarray, w: float, b: float, loss: float, over: Grid, caption: str = "") -> Card:
    """The line w x + b through the points (x, y) with its errors, and the place of (w, b) on the loss contour."""
    with style():
        figure, (left, right) = card(height=360, columns=2, caption=caption)
        left.vlines(x, y, w * x + b, color=_TRAIL, linewidth=0.9, alpha=0.7)
        left.locator_params(nbins=5)
        left.plot(x, y, "o", color=PALETTE[0], markersize=4.5, alpha=0.8)
        ends = np.array([np.min(x), np.max(x)])
        left.plot(ends, w * ends + b, color=_TRAIL)
        margin = 0.35 * np.ptp(y)
        left.set(xlabel="x", ylabel="y", ylim=(np.min(y) - margin, np.max(y) + margin))
        left.set_title(f"w = {w:.2f}, b = {b:.2f}: L = {loss:.3g}")
        contour(right, over)
        right.plot([w], [b], "o", color=_TRAIL, markersize=9)
        right.set_title("the same line as a point")
        _roomy(figure)
    return figure


def differences(widths: np.ndarray, errors: Mapping[str, np.ndarray], caption: str = "") -> Card:
    """How far finite differences are from the gradient, by their width h. errors: name → array like `widths`."""
    with style():
        figure, (axis,) = card(height=330, caption=caption)
        for number, (name, values) in enumerate(errors.items()):
            # An exact zero has no place on a logarithmic axis: the smallest difference of floats near 1 stands for it.
            shown = np.maximum(values, np.finfo(float).eps)
            axis.loglog(widths, shown, "os"[number % 2], linestyle="-", color=PALETTE[number], markersize=5, label=name)
        axis.set(xlabel="width h of the difference", ylabel="distance from your gradient")
        axis.legend(loc="upper left", ncols=len(errors), bbox_to_anchor=(0, 1.17), borderaxespad=0)
        figure.subplots_adjust(left=76 / WIDTH)
    return figure


def contour(axis: Axes, over: Grid, path: Path | None = None) -> None:
    """Draw the loss contour on an axis, its minimum as a cross, and a descent on it if there is one."""
    low, high = over.losses.min(), over.losses.max()
    levels = low + (high - low) * np.geomspace(1e-3, 1, 11)[:-1]
    axis.contour(over.w, over.b, over.losses, levels, cmap="viridis", linewidths=1.0)
    axis.plot(*over.best, "+", color=INK, markersize=11, markeredgewidth=2)
    if path is not None:
        near = (np.abs(path.w) < _FAR) & (np.abs(path.b) < _FAR)
        axis.plot(path.w[near], path.b[near], ".-", color=_TRAIL, linewidth=1.2, markersize=5)
        axis.plot(path.w[:1], path.b[:1], "o", color=_START, markersize=7)
    axis.set(xlabel="w", ylabel="b", xlim=over.w[[0, -1]], ylim=over.b[[0, -1]])
    # Few ticks: each takes a millisecond of the hundred that a slider has.
    axis.xaxis.set_major_locator(MaxNLocator(4, steps=(1, 2, 5, 10)))
    axis.yaxis.set_major_locator(MaxNLocator(5, steps=(1, 2, 5, 10)))
    axis.grid(False)


def rate(over: Grid, path: Path, lowest: float, *, eta: float, steepest: float, most: int, caption: str = "") -> Card:
    """A descent with one learning rate: its way on the contour, its loss by step, and η among the four regimes.

    Args:
        over: the contour.
        path: the descent.
        lowest: the smallest loss that there is; the curve is what lies above it.
        eta: the learning rate η.
        steepest: the largest curvature λ_max.
        most: how many steps the axis has room for.
    """
    name = regime(eta, steepest)
    height = 410
    with style():
        figure, (left, right) = card(height=height, columns=2, caption=caption)
        contour(left, over, path)
        left.set_title(f"η = {eta:.3g} = {eta * steepest:.2f}/λₘₐₓ")
        _descending(right, path, lowest, _COLOURS[name])
        right.set(xlim=(-0.02 * most, 1.02 * most), ylim=(1e-7, 1e4))
        right.locator_params(axis="x", nbins=4)
        right.set_title(f"{path.ended or 'not there yet'} after {path.steps:,} steps")
        _roomy(figure)
        figure.subplots_adjust(bottom=150 / height)
        _strip(figure, eta * steepest, bottom=62 / height)
    return figure


def steps(etas: np.ndarray, paths: Sequence[Path], flattest: float, steepest: float, caption: str = "") -> Card:
    """Steps until a descent converged by learning rate; those that diverged or did not arrive at the upper edge.

    Args:
        etas: learning rates. paths: a descent for each.
        flattest, steepest: the smallest and the largest curvature.
    """
    most = max(path.steps for path in paths)
    with style():
        figure, (axis,) = card(height=350, caption=caption)
        edges = np.clip([0, *REGIMES.values()], etas.min() * steepest, etas.max() * steepest) / steepest
        for name, begin, end in zip(REGIMES, edges[:-1], edges[1:]):
            axis.axvspan(begin, end, color=_COLOURS[name], alpha=0.16, linewidth=0)
            axis.text(np.sqrt(begin * end), 1.35 * most, name, ha="center", va="bottom", color=INK)
        marks = {"converged": ("o", PALETTE[2]), "": ("^", PALETTE[5]), "diverged": ("x", PALETTE[1])}
        names = {"converged": "converged", "": "did not arrive", "diverged": "diverged"}
        for ended, (marker, colour) in marks.items():
            chosen = [(eta, path.steps) for eta, path in zip(etas, paths) if path.ended == ended]
            if chosen:
                there = [(eta, count if ended == "converged" else most) for eta, count in chosen]
                axis.plot(*zip(*there), marker, color=colour, label=names[ended], markeredgewidth=1.8)
        axis.axvline(2 / steepest, color=INK, linewidth=1.2)
        axis.axvline(2 / (steepest + flattest), color=INK, linewidth=1.2, linestyle=":")
        least = min((path.steps for path in paths if path.ended == "converged"), default=most / 10)
        axis.set(xscale="log", yscale="log", xlim=edges[[0, -1]], ylim=(0.7 * least, 1.3 * most))
        axis.set(xlabel="learning rate η", ylabel="steps")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter("{x:,.0f}")
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.xaxis.set_major_formatter("{x:g}")
        lines = [
            Line2D([], [], color=INK, linewidth=1.2, label="2/λₘₐₓ"),
            Line2D([], [], color=INK, linewidth=1.2, linestyle=":", label="2/(λₘₐₓ + λₘᵢₙ)"),
        ]
        axis.legend(handles=[*axis.get_legend_handles_labels()[0], *lines], loc="lower left")
        figure.subplots_adjust(left=76 / WIDTH)
    return figure


def side_by_side(
    cases: Mapping[str, tuple[Grid, Path]], caption: str = "", *, lowest: float | None = None, equal: bool = False
) -> Card:
    """Descents on their contours, each under its title.

    Args:
        cases: title → contour and descent.
        lowest: the smallest loss that there is; with it the last panel shows the losses above it, step by step.
        equal: w and b have the same scale, so that circles are round.
    """
    with style():
        figure, axes = card(height=370, columns=len(cases) + (lowest is not None), caption=caption)
        for number, (axis, (title, (over, path))) in enumerate(zip(axes, cases.items())):
            contour(axis, over, path)
            axis.set_title(title, fontsize=10)
            if equal:
                axis.set_aspect("equal", adjustable="box")
            if number:
                axis.set_ylabel("")
            if lowest is not None:
                _descending(axes[-1], path, lowest, PALETTE[number], title)
        if lowest is not None:
            axes[-1].margins(y=0.3)
            axes[-1].legend(loc="best")
        figure.subplots_adjust(left=70 / WIDTH, wspace=0.24 if lowest is None else 0.32)
    return figure


def _descending(axis: Axes, path: Path, lowest: float, colour: str, label: str = "") -> None:
    above = path.losses - lowest
    shown = (above > 0) & (above < _FAR**2)
    powers_of_ten(axis)
    axis.plot(np.flatnonzero(shown), above[shown], ".-", color=colour, markersize=4, linewidth=1.4, label=label)
    axis.set(xlabel="step", ylabel="loss above its minimum")


def _strip(figure: Card, place: float, bottom: float) -> None:
    """The four regimes along η λ_max at a height of the figure, and a mark at one place.

    Drawn without an axis, which would take a fifth of the time that a slider has.
    """
    low, high = 5e-3, 6.0
    left, right = 56 / WIDTH, 1 - 24 / WIDTH
    tall = 17 / (100 * figure.get_figheight())

    def across(value: float) -> float:
        return left + (right - left) * np.log(np.clip(value, low, high) / low) / np.log(high / low)

    for name, begin, end in zip(REGIMES, [low, *REGIMES.values()], REGIMES.values()):
        begin, end = across(begin), across(end)
        figure.add_artist(Rectangle((begin, bottom), end - begin, tall, color=_COLOURS[name], alpha=0.5, linewidth=0))
        figure.text((begin + end) / 2, bottom + tall / 2, name, ha="center", va="center_baseline", fontsize=9.5)
    for value in list(REGIMES.values())[:-1]:
        label = f"{value:g}/λₘₐₓ"
        figure.text(across(value), bottom - 0.3 * tall, label, ha="center", va="top", fontsize=9.5, color=FAINT)
    figure.add_artist(
        Line2D([across(place)], [bottom + 1.35 * tall], marker="v", color=INK, markersize=9, linestyle="")
    )


def _roomy(figure: Card) -> None:
    figure.subplots_adjust(wspace=0.22)
