"""Why training takes many GPUs; and gradient descent on a line: where it goes, how fast, and what η does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from course_lib.notebook.plots.style import FAINT, INK, PALETTE, WIDTH, Figure, powers_of_ten, style, subplots

# Up to which η λ_max each regime goes. Where a crawl ends is a matter of taste, the other two bounds are not.
REGIMES = {"crawl": 0.1, "converge": 1.0, "oscillate": 2.0, "diverge": np.inf}
REGIME_COLOURS = dict(zip(REGIMES, (PALETTE[5], PALETTE[2], PALETTE[4], PALETTE[1])))
PATH_COLOUR, START_COLOUR = PALETTE[1], PALETTE[0]
MAX_COORDINATE, MAX_LOSS = 1e6, 1e12  # Matplotlib cannot draw points at 1e300

# OpenAI, "AI and Compute" (2018): AlexNet (September 2012) to AlphaGo Zero (October 2017).
COMPUTE_GROWTH, FIRST_YEAR, LAST_YEAR = 300_000, 2012.75, 2017.83
# Since then, from the papers, in petaflop/s-days; OpenAI gives about 1,900 for AlphaGo Zero.
ALPHAGO_ZERO = 1_900
LATER_RUNS = {"GPT-3": (2020.4, 3_640), "Llama 3.1": (2024.55, 440_000)}
MOORE_DOUBLING_YEARS = 2.0

# Error ∝ (size of the training set)^−exponent, rounded; Hestness et al. 2017, arXiv:1712.00409.
EXPONENTS = {
    "image classification": 0.31,
    "speech recognition": 0.30,
    "translation": 0.13,
    "language, by letter": 0.09,
    "language, by word": 0.07,
}
POWER_LABELS = {9: "10⁹", 11: "10¹¹", 13: "10¹³", 15: "10¹⁵", 17: "10¹⁷"}


# Why many GPUs


def doubling_time() -> float:
    """Months in which the compute of the largest training runs doubled, if it grew evenly."""
    return 12 * (LAST_YEAR - FIRST_YEAR) / np.log2(COMPUTE_GROWTH)


def later_doubling_time() -> float:
    """The same from AlphaGo Zero to the last of the later runs."""
    year, work = list(LATER_RUNS.values())[-1]
    return 12 * (year - LAST_YEAR) / np.log2(work / ALPHAGO_ZERO)


def trends(rates: Mapping[str, float], caption: str = "") -> Figure:
    """Three panels: what machines can do, how much the largest training runs took, and what more data buys.

    Args:
        rates: name of a machine → its floating-point operations per second.
        caption: where the rates come from.
    """
    with style():
        figure, (machines, runs, data) = subplots(height=400, columns=3, caption=caption)
        _draw_machines(machines, rates)
        _draw_runs(runs)
        _draw_data(data)
        figure.subplots_adjust(left=24 / WIDTH, wspace=0.33)
    return figure


def _draw_machines(axis: Axes, rates: Mapping[str, float]) -> None:
    for place, (name, rate) in enumerate(rates.items()):
        axis.plot([rate], [place], "o", color=PALETTE[place % len(PALETTE)], markersize=9)
        axis.text(0.02, place + 0.22, name, transform=axis.get_yaxis_transform(), fontsize=9.5, va="bottom")
    slowest, fastest = min(rates.values()), max(rates.values())
    axis.set(xscale="log", xlim=(slowest / 6, fastest * 6), ylim=(-0.5, len(rates)), yticks=[])
    axis.set_xticks(*zip(*[(10.0**n, name) for n, name in POWER_LABELS.items() if slowest / 6 < 10.0**n < fastest * 6]))
    axis.set_xlabel("operations per second")
    axis.set_title("machines")
    axis.spines["left"].set_visible(False)


def _draw_runs(axis: Axes) -> None:
    first = ALPHAGO_ZERO / COMPUTE_GROWTH
    moore = 2 ** ((LAST_YEAR - FIRST_YEAR) / MOORE_DOUBLING_YEARS)
    axis.semilogy([FIRST_YEAR, LAST_YEAR], [first, ALPHAGO_ZERO], "o-", color=PALETTE[1])
    later = [(LAST_YEAR, ALPHAGO_ZERO), *LATER_RUNS.values()]
    axis.semilogy(*zip(*later), "s-", color=PALETTE[0], markersize=5.5)
    axis.semilogy([FIRST_YEAR, LAST_YEAR], [first, first * moore], "--", color=FAINT)
    axis.text(FIRST_YEAR + 0.4, 0.6 * first, "AlexNet", va="center")
    axis.text(LAST_YEAR - 0.4, ALPHAGO_ZERO, "AlphaGo\nZero", ha="right", va="center")
    for name, (year, work) in LATER_RUNS.items():
        axis.text(
            year,
            2.2 * work if name != "GPT-3" else work / 3,
            name,
            ha="center",
            va="bottom" if name != "GPT-3" else "top",
        )
    axis.text(2015.9, 12, f"doubles every\n{doubling_time():.1f} months", va="top", color=PALETTE[1])
    axis.text(2021.3, 300, f"every\n{later_doubling_time():.0f} months", va="top", color=PALETTE[0])
    axis.text(LAST_YEAR + 0.3, first * moore, f"Moore's law: {moore:.0f}-fold", va="center", color=FAINT)
    axis.set(xlim=(2012, 2026.2), ylim=(1e-3, 1e7), xlabel="year", ylabel="petaflop/s-days")
    axis.set_yticks([0.01, 1, 100, 1e4, 1e6], ["0.01", "1", "100", "10⁴", "10⁶"])
    axis.set_xticks(range(2014, 2027, 4))
    axis.minorticks_off()
    axis.set_title("large training runs")


def _draw_data(axis: Axes) -> None:
    sizes = np.array([1.0, 1e3])
    for number, (name, exponent) in enumerate(EXPONENTS.items()):
        axis.loglog(sizes, sizes**-exponent, color=PALETTE[number], label=f"{name}, {exponent:.2f}")
    axis.loglog(sizes, sizes**-0.5, "--", color=FAINT, label="1/√n, 0.50")
    axis.set(
        xlabel="training examples, first set = 1", ylabel="error, first set = 1", xlim=(1, 1e3), ylim=(2.6e-3, 1.2)
    )
    axis.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
    axis.set_yticks([0.01, 0.1, 1], ["0.01", "0.1", "1"])
    axis.minorticks_off()
    axis.legend(
        loc="lower left", fontsize=8.5, labelspacing=0.25, title="error falls with the power", title_fontsize=8.5
    )
    axis.get_legend().get_title().set_color(INK)
    axis.set_title("error by size of the data set")


# Gradient descent


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

    def first(self, steps: int) -> Path:
        """Its beginning."""
        return Path(self.w[: steps + 1], self.b[: steps + 1], self.losses[: steps + 1], self.ended)


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


def fit(x: np.ndarray, y: np.ndarray, w: float, b: float, loss: float, over: Grid, caption: str = "") -> Figure:
    """The line w x + b through the points (x, y) with its errors, and the place of (w, b) on the loss contour."""
    with style():
        figure, (left, right) = subplots(height=360, columns=2, caption=caption)
        left.vlines(x, y, w * x + b, color=PATH_COLOUR, linewidth=0.9, alpha=0.7)
        left.locator_params(nbins=5)
        left.plot(x, y, "o", color=PALETTE[0], markersize=4.5, alpha=0.8)
        ends = np.array([np.min(x), np.max(x)])
        left.plot(ends, w * ends + b, color=PATH_COLOUR)
        margin = 0.35 * np.ptp(y)
        left.set(xlabel="x", ylabel="y", ylim=(np.min(y) - margin, np.max(y) + margin))
        left.set_title(f"w = {w:.2f}, b = {b:.2f}: L = {loss:.3g}")
        contour(right, over)
        right.plot([w], [b], "o", color=PATH_COLOUR, markersize=9)
        right.set_title("the same line as a point")
        figure.subplots_adjust(wspace=0.22)
    return figure


def differences(widths: np.ndarray, errors: Mapping[str, np.ndarray], caption: str = "") -> Figure:
    """How far finite differences are from the gradient, by their width h. errors: name → array like `widths`."""
    with style():
        figure, (axis,) = subplots(height=330, caption=caption)
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
        near = (np.abs(path.w) < MAX_COORDINATE) & (np.abs(path.b) < MAX_COORDINATE)
        axis.plot(path.w[near], path.b[near], ".-", color=PATH_COLOUR, linewidth=1.2, markersize=5)
        axis.plot(path.w[:1], path.b[:1], "o", color=START_COLOUR, markersize=7)
    axis.set(xlabel="w", ylabel="b", xlim=over.w[[0, -1]], ylim=over.b[[0, -1]])
    # Few ticks: each takes a millisecond of the hundred that a slider has.
    axis.xaxis.set_major_locator(MaxNLocator(4, steps=(1, 2, 5, 10)))
    axis.yaxis.set_major_locator(MaxNLocator(5, steps=(1, 2, 5, 10)))
    axis.grid(False)


def rate(over: Grid, path: Path, lowest: float, *, eta: float, steepest: float, most: int, caption: str = "") -> Figure:
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
        figure, (left, right) = subplots(height=height, columns=2, caption=caption)
        contour(left, over, path)
        left.set_title(f"η = {eta:.3g} = {eta * steepest:.2f}/λₘₐₓ")
        _plot_losses(right, path, lowest, REGIME_COLOURS[name])
        right.set(xlim=(-0.02 * most, 1.02 * most), ylim=(1e-7, 1e4))
        right.locator_params(axis="x", nbins=4)
        right.set_title(f"{path.ended or 'not there yet'} after {path.steps:,} steps")
        figure.subplots_adjust(wspace=0.22, bottom=150 / height)
        _draw_regimes(figure, eta * steepest, bottom=62 / height)
    return figure


def steps(etas: np.ndarray, paths: Sequence[Path], flattest: float, steepest: float, caption: str = "") -> Figure:
    """Steps until a descent converged by learning rate; those that diverged or did not arrive at the upper edge.

    Args:
        etas: learning rates. paths: a descent for each.
        flattest, steepest: the smallest and the largest curvature.
    """
    most = max(path.steps for path in paths)
    with style():
        figure, (axis,) = subplots(height=350, caption=caption)
        edges = np.clip([0, *REGIMES.values()], etas.min() * steepest, etas.max() * steepest) / steepest
        for name, begin, end in zip(REGIMES, edges[:-1], edges[1:]):
            axis.axvspan(begin, end, color=REGIME_COLOURS[name], alpha=0.16, linewidth=0)
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
) -> Figure:
    """Descents on their contours, each under its title.

    Args:
        cases: title → contour and descent.
        lowest: the smallest loss that there is; with it the last panel shows the losses above it, step by step.
        equal: w and b have the same scale, so that circles are round.
    """
    with style():
        figure, axes = subplots(height=370, columns=len(cases) + (lowest is not None), caption=caption)
        for number, (axis, (title, (over, path))) in enumerate(zip(axes, cases.items())):
            contour(axis, over, path)
            axis.set_title(title, fontsize=10)
            if equal:
                axis.set_aspect("equal", adjustable="box")
            if number:
                axis.set_ylabel("")
            if lowest is not None:
                _plot_losses(axes[-1], path, lowest, PALETTE[number], title)
        if lowest is not None:
            axes[-1].margins(y=0.3)
            axes[-1].legend(loc="best")
        figure.subplots_adjust(left=70 / WIDTH, wspace=0.24 if lowest is None else 0.32)
    return figure


def _plot_losses(axis: Axes, path: Path, lowest: float, colour: str, label: str = "") -> None:
    above = path.losses - lowest
    shown = (above > 0) & (above < MAX_LOSS)
    powers_of_ten(axis)
    axis.plot(np.flatnonzero(shown), above[shown], ".-", color=colour, markersize=4, linewidth=1.4, label=label)
    axis.set(xlabel="step", ylabel="loss above its minimum")


def _draw_regimes(figure: Figure, place: float, bottom: float) -> None:
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
        figure.add_artist(
            Rectangle((begin, bottom), end - begin, tall, color=REGIME_COLOURS[name], alpha=0.5, linewidth=0)
        )
        figure.text((begin + end) / 2, bottom + tall / 2, name, ha="center", va="center_baseline", fontsize=9.5)
    for value in list(REGIMES.values())[:-1]:
        label = f"{value:g}/λₘₐₓ"
        figure.text(across(value), bottom - 0.3 * tall, label, ha="center", va="top", fontsize=9.5, color=FAINT)
    figure.add_artist(
        Line2D([across(place)], [bottom + 1.35 * tall], marker="v", color=INK, markersize=9, linestyle="")
    )
