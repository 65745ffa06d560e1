"""Picojoules for each multiply-add of a dense layer, by batch: row by row, and in blocks for registers and SRAM.

A layer of 128 inputs and 128 outputs in numbers of 64 bits. *row by row*: one example after the other, each output a
row times a column, as a matrix-vector product does it. *blocked*: blocks of 32 examples, 64 inputs and 32 outputs, in
them blocks of 4 examples and 4 outputs. Accesses are counted by simulating two LRU caches of 64 and 4,096 words.
"""

from __future__ import annotations

import time
from pathlib import Path

import pandas as pd

from course_lib.notebook import experiments, plots
from labs.lab7_splitting_the_model.lessons import energy, figures_7c

WIDTH = 128
BATCHES = (1, 2, 4, 8, 16, 32, 64)
ORDERS = {"row by row": energy.ROW_BY_ROW, "blocked": energy.BLOCKED}


def main(folder: Path) -> None:
    began = time.monotonic()
    table = pd.DataFrame(
        [
            {"order": name, "batch": batch, **energy.per_multiply_add(batch, WIDTH, WIDTH, order)}
            for name, order in ORDERS.items()
            for batch in BATCHES
        ]
    )
    experiments.write_table(
        folder / "layer_energy.csv",
        table.round(3),
        command="course reproduce layer_energy",
        data="none: counted accesses",
        seeds="none",
        seconds=round(time.monotonic() - began),
    )
    draw(table, f"{WIDTH} inputs, {WIDTH} outputs, 64 bits · counted").savefig(folder / "layer_energy.png", dpi=150)


def draw(table: pd.DataFrame, caption: str) -> plots.Figure:
    """A panel for each order."""
    return figures_7c.energy(table, caption)
