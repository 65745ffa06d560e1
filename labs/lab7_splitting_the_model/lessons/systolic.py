"""Two arrays of multiply-add units that hold the weights, cycle by cycle: systolic, and with a broadcast and a tree.

Unit (r, c) holds the weight of input r and output c. A layer with more inputs or outputs takes several *tiles*, one
after the other. Loading a tile takes `side` cycles, a row of weights in each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Record:
    """What an array did.

    busy: [cycles, side, side], True where a unit multiplied; outputs: [tiles, batch, side].
    """

    busy: np.ndarray
    outputs: np.ndarray

    @property
    def cycles(self) -> int:
        """From the first weight that is loaded to the last output."""
        return len(self.busy)

    @property
    def utilisation(self) -> float:
        """The share of all units in all cycles that multiplied."""
        return float(self.busy.mean())


def systolic(weights: np.ndarray, inputs: np.ndarray, buffered: bool = False) -> Record:
    """A systolic array: inputs move to the right and sums move down, one unit in each cycle, between neighbours only.

    Input r of an example enters row r one cycle later than input r − 1, so that it meets the sum that comes from
    above. A unit multiplies in the cycle in which its input arrives.

    Args:
        weights: [tiles, side, side], by input and output.
        inputs: [tiles, batch, side].
        buffered: units have a second register for a weight. Then the next tile is loaded while this one is used, and
            its first example follows the last one of this tile at once, or as soon as its weights are there. Without
            it, weights are loaded when all units have finished.
    """
    tiles, batch, side = inputs.shape
    starts, loaded = [], side  # the cycle in which a tile's first example enters; that in which its weights are there
    for _ in range(tiles):
        free = starts[-1] + batch if starts else 0
        if starts and not buffered:
            loaded = starts[-1] + batch + 2 * (side - 1) + side
        starts.append(max(loaded, free))
        loaded = starts[-1] + side  # the second register is free when the first example has taken over
    entering = {start + example: (tile, example) for tile, start in enumerate(starts) for example in range(batch)}
    cycles = starts[-1] + batch + 2 * (side - 1)
    rows, columns = np.indices((side, side))
    values, tags = np.zeros((side, side)), np.full((side, side, 2), -1)  # tile and example of what a unit holds
    sums, outputs = np.zeros((side, side)), np.zeros((tiles, batch, side))
    busy = np.zeros((cycles, side, side), bool)
    for cycle in range(cycles):
        values[:, 1:], tags[:, 1:] = values[:, :-1].copy(), tags[:, :-1].copy()
        for row in range(side):
            tags[row, 0] = entering.get(cycle - row, (-1, -1))
            values[row, 0] = inputs[tuple(tags[row, 0])][row] if tags[row, 0, 0] >= 0 else 0
        busy[cycle] = tags[..., 0] >= 0
        above = np.vstack([np.zeros(side), sums[:-1]])
        sums = above + weights[tags[..., 0], rows, columns] * values * busy[cycle]
        for column in np.flatnonzero(busy[cycle, -1]):
            outputs[(*tags[-1, column], column)] = sums[-1, column]
    return Record(busy, outputs)


def tree(weights: np.ndarray, inputs: np.ndarray) -> Record:
    """Broadcast and reduction: an example's inputs reach all units in one cycle, on wires across the array; then every
    output's products are added in pairs, log₂(side) cycles long, while the next example is multiplied.

    Args and returns as for `systolic`; weights are not buffered.
    """
    tiles, batch, side = inputs.shape
    levels = (side - 1).bit_length()
    busy = np.zeros((tiles, side + batch + levels, side, side), bool)
    busy[:, side : side + batch] = True
    return Record(busy.reshape(-1, side, side), inputs @ weights)


def layer(batch: int, tiles: int, side: int = 16, buffered: bool = False, seed: int = 0) -> Record:
    """The systolic array on drawn numbers."""
    random = np.random.default_rng(seed)
    return systolic(random.normal(size=(tiles, side, side)), random.normal(size=(tiles, batch, side)), buffered)
