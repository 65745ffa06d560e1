"""Why training takes many GPUs: how fast machines are, how much training wants, and what more data buys."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from course_lib.plots.style import FAINT, INK, PALETTE, WIDTH, Card, card, style

# OpenAI, "AI and Compute" (2018): AlexNet (September 2012) to AlphaGo Zero (October 2017).
GROWTH, FROM, TO = 300_000, 2012.75, 2017.8
MOORE = 2.0  # years in which the transistors of a chip double

# Error ∝ (size of the training set)^−exponent, rounded; Hestness et al. 2017, arXiv:1712.00409.
EXPONENTS = {
    "image classification": 0.31,
    "attention speech": 0.30,
    "translation": 0.13,
    "language, by letter": 0.09,
    "language, by word": 0.07,
}


def doubling_time() -> float:
    """Months in which the compute of the largest training runs doubled, if it grew evenly."""
    return 12 * (TO - FROM) / np.log2(GROWTH)


def trends(rates: Mapping[str, float], caption: str = "") -> Card:
    """Three panels: what machines can do, how much the largest training runs took, and what more data buys.

    Args:
        rates: name of a machine → its floating-point operations per second.
        caption: where the rates come from.
    """
    with style():
        figure, (machines, runs, data) = card(height=400, columns=3, caption=caption)
        _machines(machines, rates)
        _runs(runs)
        _data(data)
        figure.subplots_adjust(left=24 / WIDTH, wspace=0.33)
    return figure


def _machines(axis: Axes, rates: Mapping[str, float]) -> None:
    for place, (name, rate) in enumerate(rates.items()):
        axis.plot([rate], [place], "o", color=PALETTE[place % len(PALETTE)], markersize=9)
        axis.text(0.02, place + 0.22, name, transform=axis.get_yaxis_transform(), fontsize=9.5, va="bottom")
    slowest, fastest = min(rates.values()), max(rates.values())
    axis.set(xscale="log", xlim=(slowest / 6, fastest * 6), ylim=(-0.5, len(rates)), yticks=[])
    axis.set_xticks(*zip(*[(10.0**n, name) for n, name in _UNITS.items() if slowest / 6 < 10.0**n < fastest * 6]))
    axis.set_xlabel("operations per second")
    axis.set_title("machines")
    axis.spines["left"].set_visible(False)


_UNITS = {9: "10⁹", 11: "10¹¹", 13: "10¹³", 15: "10¹⁵", 17: "10¹⁷"}


def _runs(axis: Axes) -> None:
    years = np.array([FROM, TO])
    moore = 2 ** ((TO - FROM) / MOORE)
    axis.semilogy(years, [1, GROWTH], "o-", color=PALETTE[1])
    axis.semilogy(years, [1, moore], "--", color=FAINT)
    axis.text(FROM + 0.15, 0.45, "AlexNet", va="center")
    axis.text(TO - 0.3, GROWTH, "AlphaGo Zero", ha="right", va="center")
    axis.text(TO + 0.25, 1e3, f"doubles every\n{doubling_time():.1f} months", ha="right", va="top", color=PALETTE[1])
    axis.text(TO, 1.6 * moore, f"Moore's law: {moore:.0f}-fold", ha="right", color=FAINT)
    axis.set(xlim=(2012.4, 2018.1), ylim=(0.2, 2e6), xlabel="year", ylabel="compute, AlexNet = 1")
    axis.set_yticks([1, 100, 1e4, 1e6], ["1", "100", "10⁴", "10⁶"])
    axis.set_xticks(range(2013, 2019, 1))
    axis.set_title("largest training runs")


def _data(axis: Axes) -> None:
    sizes = np.array([1.0, 1e3])
    for number, (name, exponent) in enumerate(EXPONENTS.items()):
        axis.loglog(sizes, sizes**-exponent, color=PALETTE[number], label=f"{name}, {exponent:.2f}")
    axis.loglog(sizes, sizes**-0.5, "--", color=FAINT, label="many theories, 0.5")
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
