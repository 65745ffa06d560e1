"""Energy of a dense layer: a published table of picojoules times accesses that are counted.

Pedram, Richardson, Galal, Kvatinsky, Horowitz 2017 (arXiv:1602.04183), 45 nm: floating-point numbers of 64 bits, whole
numbers of 16; see also Horowitz 2014 (doi:10.1109/ISSCC.2014.6757323).
"""

from __future__ import annotations

import pandas as pd

from labs.lab7_splitting_the_model.lessons import movement

PICOJOULES = pd.DataFrame(  # by bits of a number
    {16: [0.18, 0.62, 0.12, 0.23, 8.0, 11.0, 640.0], 64: [5.0, 20.0, 0.34, 0.42, 26.0, 47.0, 2560.0]},
    index=["add", "multiply", "16-word registers", "64-word registers", "4 K-word SRAM", "32 K-word SRAM", "DRAM"],
)
REGISTERS, SRAM = 64, 4_096  # words
ROW_BY_ROW = [("i", 1), ("j", 1), ("p", 1)]
BLOCKED = [("j", 32), ("p", 64), ("i", 32), ("i", 4), ("j", 4), ("p", 1), ("i", 1), ("j", 1)]


def per_multiply_add(batch: int, inputs: int, outputs: int, order: movement.Order, bits: int = 64) -> dict[str, float]:
    """Picojoules of a layer for each multiply-add, by what takes them: arithmetic, registers, SRAM, DRAM.

    The 64-word registers and the 4 K-word SRAM are LRU caches, one in front of the other. Each multiply-add reads three
    numbers from registers and writes one. What the registers fetch is read from the SRAM, what the SRAM fetches from
    DRAM; every result that is fetched is written back as well.
    """
    nest, cost = movement.matrix_product(batch, inputs, outputs), PICOJOULES[bits]
    words = {}
    for name, size in (("SRAM", REGISTERS), ("DRAM", SRAM)):
        fetched = movement.moved(nest, order, size)
        words[name] = (sum(fetched.values()) + fetched["C"]) / nest.iterations
    return {
        "arithmetic": cost["add"] + cost["multiply"],
        "registers": 4 * cost["64-word registers"],
        "SRAM": words["SRAM"] * cost["4 K-word SRAM"],
        "DRAM": words["DRAM"] * cost["DRAM"],
    }
