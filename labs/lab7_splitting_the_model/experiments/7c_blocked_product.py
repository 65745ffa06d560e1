"""GFLOP/s of a matrix product in C++ by the block that stays in registers, and of NumPy's by the lanes of a register.

One core, matrices of 1,056 × 1,056. *C++* (lessons/products.cpp, float32): rows 0 computes each result as a row times a
column. Any other number of rows keeps a block of rows × 32 results in registers while `depth` products are added to
each. *NumPy*: OpenBLAS with the kernels of three generations of processors, with registers of 128, 256 and 512 bits.
Each number is the best of three (rows 0: of one); the whole is done several times.
"""

from __future__ import annotations

import time
from pathlib import Path

import pandas as pd

from course_lib.notebook import experiments, plots
from labs.lab7_splitting_the_model.lessons import figures_7c, machine

SIZE, TURNS = 1_056, 5
BLOCKS = [(0, SIZE), *((rows, depth) for depth in (256, SIZE) for rows in (1, 2, 4, 8))]


def main(folder: Path) -> None:
    began, tables = time.monotonic(), []
    for turn in range(TURNS):
        blocks = machine.products(SIZE, BLOCKS)
        blocks["gigaflops"] = 2e-9 * SIZE**3 / blocks.pop("seconds")
        lanes = machine.lanes(SIZE)
        lanes["gigaflops"] = 1e-9 * lanes.pop("flops")
        tables += [blocks.assign(what="C++", number="float32", turn=turn), lanes.assign(what="NumPy", turn=turn)]
    table = pd.concat(tables)[["what", "rows", "depth", "kernels", "bits", "number", "lanes", "turn", "gigaflops"]]
    experiments.write_table(
        folder / "blocked_product.csv",
        table.round(3),
        command="course reproduce blocked_product",
        data="none",
        seeds="none",
        seconds=round(time.monotonic() - began),
    )
    draw(table, f"{SIZE:,} × {SIZE:,}, one core, {TURNS} runs · {experiments.machine()}").savefig(
        folder / "blocked_product.png", dpi=150
    )


def draw(table: pd.DataFrame, caption: str) -> plots.Card:
    """Blocks, and lanes."""
    return figures_7c.products(table, caption)
