"""Nanoseconds of a read and gigabytes a second, by the size of what is read: the caches of this machine.

One core and one C++ program (lessons/hierarchy.cpp). *nanoseconds*: a chain of pointers through all lines of 64 bytes
in a random order, so that each read has to wait for the one before it. *gigabytes*: 64-bit numbers, read in order and
added up. Each measurement is the shortest of three of at least 10 ms; the whole is done several times.
"""

from __future__ import annotations

import pandas as pd

from course_lib.notebook import experiments
from labs.lab7_splitting_the_model.lessons import figures_7c, machine

SIZES = [2**k * half // 2 for k in range(13, 28) for half in (2, 3)] + [2**28]
TURNS = 3


def main() -> experiments.Recording:
    table = pd.concat([machine.hierarchy(SIZES).assign(turn=turn) for turn in range(TURNS)])
    caches = machine.caches()
    return experiments.Recording(
        table,
        figures_7c.hierarchy(table, caches, f"one core, {TURNS} runs · {experiments.machine()}"),
        data="none",
        seeds="1, for the order of the pointers",
        caches=", ".join(f"{level} {size}" for level, size in caches.items()),
    )
