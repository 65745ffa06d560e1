"""Picojoules for each multiply-add of a dense layer, by batch: row by row, and in blocks for registers and SRAM.

A layer of 128 inputs and 128 outputs in numbers of 64 bits. *row by row*: one example after the other, each output a
row times a column, as a matrix-vector product does it. *blocked*: blocks of 32 examples, 64 inputs and 32 outputs, in
them blocks of 4 examples and 4 outputs. Accesses are counted by simulating two LRU caches of 64 and 4,096 words.
"""

from __future__ import annotations

import pandas as pd

from course_lib.notebook import experiments
from labs.lab7_splitting_the_model.lessons import energy, figures_7c

WIDTH = 128
BATCHES = (1, 2, 4, 8, 16, 32, 64)
ORDERS = {"row by row": energy.ROW_BY_ROW, "blocked": energy.BLOCKED}


def main() -> experiments.Recording:
    table = pd.DataFrame(
        [
            {"order": name, "batch": batch, **energy.per_multiply_add(batch, WIDTH, WIDTH, order)}
            for name, order in ORDERS.items()
            for batch in BATCHES
        ]
    )
    return experiments.Recording(
        table.round(3),
        figures_7c.energy(table, f"{WIDTH} inputs, {WIDTH} outputs, 64 bits · counted"),
        data="none: counted accesses",
        seeds="none",
    )
