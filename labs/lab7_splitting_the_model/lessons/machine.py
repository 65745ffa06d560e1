"""What notebook 7c measures this processor with: two C++ programs, and NumPy in processes of its own."""

from __future__ import annotations

import atexit
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd

from course_lib.ranks.launch import ONE_THREAD
from course_lib.system.errors import CourseError, last_line

KERNELS = {  # OpenBLAS's name of its kernels → the processor's flag that they need, and the bits of a register
    "Prescott": ("sse3", 128),
    "Haswell": ("avx2", 256),
    "SkylakeX": ("avx512f", 512),
}
_FLAGS = {"sse3": ("sse3", "pni")}  # what Linux calls it
_PRODUCT = """
import json, sys, time
import numpy as np
found = {}
for name in ("float32", "float64"):
    a, b, out = (np.ones((int(sys.argv[1]),) * 2, name) for _ in range(3))
    np.matmul(a, b, out=out)
    best = 1e9
    for _ in range(3):
        start = time.perf_counter()
        np.matmul(a, b, out=out)
        best = min(best, time.perf_counter() - start)
    found[name] = 2 * len(a) ** 3 / best
print(json.dumps(found))
"""


def compiler() -> str:
    """The C++ compiler; CourseError where there is none."""
    for name in (os.environ.get("CXX", ""), "g++", "clang++"):
        if name and shutil.which(name):
            return name
    raise CourseError("There is no C++ compiler: install g++ (Debian, Ubuntu: sudo apt install g++) to measure this.")


@lru_cache
def program(name: str) -> str:
    """Compile `name`.cpp, which stands beside this file; return the path of the program.

    Raises CourseError where there is no compiler, or with what it said.
    """
    folder = tempfile.mkdtemp(prefix="course-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    made = str(Path(folder) / name)
    command = [
        compiler(),
        "-std=c++17",
        "-O3",
        "-march=native",
        "-o",
        made,
        str(Path(__file__).with_name(f"{name}.cpp")),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "error" in line] or [last_line(done.stderr)]
        raise CourseError(f"{command[0]} does not compile {name}.cpp: {said[0]}")
    return made


def _table(name: str, *arguments: object) -> pd.DataFrame:
    try:
        done = subprocess.run([program(name), *map(str, arguments)], capture_output=True, text=True, timeout=200)
    except subprocess.TimeoutExpired as error:
        raise CourseError(f"The program {name} was not done after {error.timeout:.3g} seconds.") from None
    except OSError as error:
        raise CourseError(f"The program {name} can't be started ({error.strerror}): set TMPDIR.") from None
    if done.returncode:
        raise CourseError(f"The program {name} ended with exit code {done.returncode}: {last_line(done.stderr)}")
    return pd.read_csv(io.StringIO(done.stdout))


def hierarchy(sizes: list[int]) -> pd.DataFrame:
    """Reads from memory by the size of what is read: columns bytes, nanoseconds (each waits for the one before it, in
    random order, one for each 64 bytes), gigabytes (a second, in order, one core)."""
    return _table("hierarchy", *sizes)


def products(size: int, blocks: list[tuple[int, int]]) -> pd.DataFrame:
    """A product of two matrices [size, size] in C++, one core, by (rows, depth) of the block that stays in registers.

    Rows of 0: each result by itself, a row times a column; of −1: as many multiply-adds with numbers that never leave
    the registers. Columns rows, depth, seconds.
    """
    return _table("products", size, *(f"{rows},{depth}" for rows, depth in blocks))


def lanes(size: int) -> pd.DataFrame:
    """NumPy's product of two matrices [size, size] with each of the KERNELS that this processor has, on one core.

    Columns kernels, bits (of a register), number, lanes (numbers in a register), flops (FLOP/s).
    """
    rows = []
    for kernels, (flag, bits) in KERNELS.items():
        if not set(_FLAGS.get(flag, (flag,))) & _flags():
            continue
        env = {**os.environ, **ONE_THREAD, "OPENBLAS_CORETYPE": kernels}
        done = subprocess.run([sys.executable, "-c", _PRODUCT, str(size)], env=env, capture_output=True, text=True)
        if done.returncode:
            raise CourseError(f"NumPy with {kernels}'s kernels failed: {last_line(done.stderr)}")
        for number, flops in json.loads(done.stdout).items():
            width = bits // int(number[5:])
            rows.append({"kernels": kernels, "bits": bits, "number": number, "lanes": width, "flops": flops})
    return pd.DataFrame(rows, columns=["kernels", "bits", "number", "lanes", "flops"])


def race(size: int, blocks: list[tuple[int, int]]) -> pd.DataFrame:
    """`products` and `lanes` in one table: columns what, rows, depth, kernels, bits, number, lanes, gigaflops.

    what: "C++", "registers alone" (rows of −1) or "NumPy".
    """
    compiled, numpy = products(size, blocks), lanes(size)
    compiled["gigaflops"] = 2e-9 * size**3 / compiled.pop("seconds")
    compiled["what"] = np.where(compiled["rows"] < 0, "registers alone", "C++")
    numpy["gigaflops"] = 1e-9 * numpy.pop("flops")
    both = pd.concat([compiled.assign(number="float32"), numpy.assign(what="NumPy")])
    return both[["what", "rows", "depth", "kernels", "bits", "number", "lanes", "gigaflops"]]


def _flags() -> set[str]:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return set(line.partition(":")[2].split())


def caches() -> dict[str, int]:
    """Bytes of the first core's caches for data, as in {"L1": 32768}; empty where the system does not say."""
    found, units = {}, {"K": 2**10, "M": 2**20}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind, level, size = ((folder / name).read_text().strip() for name in ("type", "level", "size"))
        except OSError:
            continue
        if kind != "Instruction" and size[-1:] in units:
            found[f"L{level}"] = int(size[:-1]) * units[size[-1]]
    return found


def live(measure: Callable[[], pd.DataFrame], recorded: pd.DataFrame) -> tuple[pd.DataFrame, bool]:
    """What `measure` returns, and True; where it can't measure here, it says why: then what was recorded, and False."""
    try:
        return measure(), True
    except CourseError as error:
        print(f"{error} Shown is what was recorded on another machine.")
        return recorded, False
