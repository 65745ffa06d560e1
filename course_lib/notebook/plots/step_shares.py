"""The breakdown of a training step, with one bar for each rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from course_lib.notebook.plots.style import FAINT, PALETTE, PAPER, WIDTH, Figure, empty_figure, panel, style
from course_lib.ranks.step_shares import KERAS, PARTS, StepShares

_LEFT_PX, _RIGHT_PX, _ROW_PX = 70, 24, 30
_COLOURS = dict(zip(PARTS, (*PALETTE, "#8c6d46"))) | {KERAS: FAINT}
_LEGEND_COLUMNS = 3
_LABELLED = 0.04  # larger shares are labelled with their percentage


def step_shares(ranks: Sequence[StepShares], caption: str = "") -> Figure:
    """Draw the parts of a training step in milliseconds, with one bar for each rank.

    Args:
        ranks: from `course_lib.ranks.step_shares.read`.
        caption: the line under the figure, see `provenance`.
    """
    height = 180 + _ROW_PX * len(ranks)
    with style():
        figure = empty_figure(height, caption)
        axis = panel(figure, _LEFT_PX, 70, WIDTH - _LEFT_PX - _RIGHT_PX, _ROW_PX * len(ranks))
        left = np.zeros(len(ranks))
        for part in PARTS:
            shares = np.array([rank.shares[part] for rank in ranks])
            width = shares * [rank.milliseconds for rank in ranks]
            bars = axis.barh(range(len(ranks)), width, 0.72, left, color=_COLOURS[part], label=part)
            labels = [f"{share:.0%}" if share >= _LABELLED else "" for share in shares]
            axis.bar_label(bars, labels, label_type="center", color=PAPER, fontsize=9)
            left += width
        axis.set(xlabel="one training step (ms)", xlim=(0, left.max()), ylim=(len(ranks) - 0.5, -0.5))
        axis.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in range(len(ranks))])
        axis.tick_params(length=0)
        figure.legend(loc="upper left", ncols=_LEGEND_COLUMNS, bbox_to_anchor=(0, 1 - 8 / height))
    return figure
