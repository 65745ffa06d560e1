"""GFLOP/s of a matrix product in C++ by the block that stays in registers, and of NumPy's by the lanes of a register.

One core, matrices of 1,056 × 1,056. *C++* (lessons/products.cpp, float32): rows 0 computes each result as a row times a
column. Any other number of rows keeps a block of rows × 32 results in registers while `depth` products are added to
each. *registers alone*: as many multiply-adds with numbers that never leave the registers. *NumPy*: OpenBLAS with the
kernels of three generations of processors, with registers of 128, 256 and 512 bits. Each number is the best of three
(rows 0: of one, registers alone: of ten); the whole is done several times.
"""

from __future__ import annotations

import pandas as pd

from course_lib.notebook import experiments
from labs.lab7_splitting_the_model.lessons import figures_7c, machine

SIZE, TURNS = 1_056, 5
BLOCKS = [(-1, SIZE), (0, SIZE), *((rows, depth) for depth in (256, SIZE) for rows in (1, 2, 4, 8))]


def main() -> experiments.Recording:
    table = pd.concat([machine.race(SIZE, BLOCKS).assign(turn=turn) for turn in range(TURNS)])
    table["gigaflops"] = table.pop("gigaflops")  # last
    return experiments.Recording(
        table.round(3),
        figures_7c.products(table, f"{SIZE:,} × {SIZE:,}, one core, {TURNS} runs · {experiments.machine()}"),
        data="none",
        seeds="none",
    )
