"""Paths of update rules over the loss of two weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba_array

from course_lib.notebook.plots.style import MARKERS, PALETTE, PAPER, WIDTH, Figure, powers_of_ten, style, subplots

_BANDS = ("#8aa7c6", "#9ab4cf", "#a9c0d7", "#b8cbdf", "#c6d6e6", "#d3e0ec", "#dfe8f1", "#e9eff5")  # from low to high


@dataclass(frozen=True)
class Ground:
    """The background of a path: bands of equal loss as an RGBA image [n, n, 4], and its limits. See `ground`."""

    bands: np.ndarray
    x: tuple[float, float]
    y: tuple[float, float]

    def draw(self, axis: Axes) -> None:
        """Draw the image on an axis, and set the axis's limits to it."""
        axis.imshow(self.bands, extent=(*self.x, *self.y), origin="lower", aspect="auto", interpolation="nearest")
        axis.set_xlim(self.x)
        axis.set_ylim(self.y)
        axis.grid(False)
        axis.locator_params(nbins=5)  # every tick costs a millisecond


def ground(
    loss: Callable[[np.ndarray], np.ndarray], x: tuple[float, float], y: tuple[float, float], points: int = 240
) -> Ground:
    """Evaluate a loss of two weights on a grid, as a background. Dark is low; bands are narrower near the minimum.

    Args:
        loss: weights [2, points, points] → losses [points, points].
        x, y: limits of the first and the second weight.
    """
    grid = np.stack(np.meshgrid(np.linspace(*x, points), np.linspace(*y, points)))
    height = np.sqrt(loss(grid) - loss(grid).min())  # the bands of a quadratic loss are equally wide
    bands = np.floor(height / height.max() * (len(_BANDS) - 0.001)).astype(int)
    return Ground((255 * to_rgba_array(_BANDS)).astype(np.uint8)[bands], x, y)


def path(scene: Ground, paths: Mapping[str, np.ndarray], loss: Callable[[np.ndarray], np.ndarray]) -> Figure:
    """Draw the paths of update rules over two weights, and the loss along them.

    Args:
        scene: from `ground`.
        paths: name of the rule → weights [steps + 1, 2].
        loss: weights [2, n] → losses [n].
    """
    return race(scene, paths, loss, step=max(map(len, paths.values())) - 1)


def race(
    scene: Ground,
    paths: Mapping[str, np.ndarray],
    loss: Callable[[np.ndarray], np.ndarray],
    *,
    step: int,
    lowest: float = 0.0,
    caption: str = "the same start for all; dark is low",
) -> Figure:
    """Draw the paths of update rules up to step `step`, and their loss above the minimum.

    Args:
        scene: from `ground`.
        paths: name of the rule → weights [steps + 1, 2].
        loss: weights [2, n] → losses [n].
        lowest: the loss at the minimum.
        caption: the line under the figure.
    """
    steps = max(map(len, paths.values())) - 1
    with style():
        figure, (left, right) = subplots(height=400, columns=2, caption=caption)
        figure.subplots_adjust(wspace=0.22, left=64 / WIDTH)
        scene.draw(left)
        for number, (name, walked) in enumerate(paths.items()):
            place = min(step, len(walked) - 1)
            so_far = walked[: place + 1]
            options = {"color": PALETTE[number % 7], "marker": MARKERS[number % 7], "markevery": [place]}
            left.plot(*so_far.T, linewidth=1.4, markeredgecolor=PAPER, markersize=9, **options)
            with np.errstate(all="ignore"):  # a rule may diverge
                above = np.maximum(loss(so_far.T) - lowest, 1e-9)
            right.plot(above, linewidth=1.6, markersize=7, label=name, **options)
        left.set_xlabel("w₁")
        left.set_ylabel("w₂", labelpad=0)
        left.set_title("the path")
        powers_of_ten(right)
        right.locator_params(axis="x", nbins=4)
        right.set_xlim(-1, steps + 1)
        ceiling = max(loss(walked[:1].T)[0] for walked in paths.values()) - lowest
        right.set_ylim(1e-6 * ceiling, 5 * ceiling)
        right.set_xlabel("steps")
        right.set_title("loss above the minimum")
        figure.legend(*right.get_legend_handles_labels(), loc="upper left", ncols=len(paths), handletextpad=0.3)
    return figure
