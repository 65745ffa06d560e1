"""Log axes with plain numbers."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FixedLocator, LogLocator, NullLocator


def ticks_at(axis: Axes, ticks: Sequence[float]) -> None:
    """A horizontal log axis that shows these numbers only."""
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(FixedLocator(list(ticks)))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter("{x:g}")


def log_ticks(axis: Axis) -> None:
    """A log axis with 1, 2 and 5 times the powers of ten as plain numbers."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter("{x:,g}")


def batch_ticks(axis: Axes, sizes: Sequence[int]) -> None:
    """A horizontal log axis of batch sizes, with a tick at each of these, or at every second of more than seven."""
    axis.set_xscale("log", base=2)
    shown = sorted(set(sizes))
    shown = shown[:: 2 if len(shown) > 7 else 1]
    axis.set_xticks(shown, [f"{size:,}" for size in shown])
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlabel("batch size B")
