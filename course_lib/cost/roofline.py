"""The roofline model of this machine (Williams, Waterman, Patterson 2009, doi:10.1145/1498765.1498785).

A kernel with I floating-point operations per byte runs at min(peak, I · bandwidth) at most. With a small I the memory
limits it, with a large I the arithmetic. Peak and bandwidth are measured with NumPy's BLAS library, on all threads that
it uses.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

_CACHE = Path("/sys/devices/system/cpu/cpu0/cache")


def attainable(intensity: float | np.ndarray, peak: float, bandwidth: float) -> float | np.ndarray:
    """The attainable FLOP/s of a kernel: min(peak, intensity · bandwidth).

    Args:
        intensity: FLOP per byte.
        peak: FLOP/s.
        bandwidth: bytes/s.
    """
    return np.minimum(peak, np.asarray(intensity) * bandwidth)[()]


def dense_flops(batch: int, inputs: int, outputs: int) -> int:
    """FLOP of x @ w with x [batch, inputs] and w [inputs, outputs]: two for each multiply-add."""
    return 2 * batch * inputs * outputs


def dense_bytes(batch: int, inputs: int, outputs: int, itemsize: int = 4) -> int:
    """The minimum bytes that x @ w moves: x and w are read once, the result is written once."""
    return itemsize * (batch * inputs + inputs * outputs + batch * outputs)


def dense_intensity(batch: int, inputs: int, outputs: int, itemsize: int = 4) -> float:
    """FLOP per byte of x @ w for `dense_bytes`; about batch / 2 in float32 if most of the bytes are weights."""
    return dense_flops(batch, inputs, outputs) / dense_bytes(batch, inputs, outputs, itemsize)


def ridge(peak: float, bandwidth: float) -> float:
    """The ridge point in FLOP per byte: with a higher intensity, arithmetic is the limit instead of memory."""
    return peak / bandwidth


def best_time(call: Callable[[], object], repeats: int = 5, at_least: float = 0.01) -> float:
    """Seconds of one call: the minimum of `repeats` measurements, because other processes can only add time.

    Args:
        at_least: seconds of a measurement, which repeats the call until then.
    """
    call()  # warm-up: the first call allocates memory and starts threads
    calls, best = 1, float("inf")
    done = 0
    while done < repeats:
        start = time.perf_counter()
        for _ in range(calls):
            call()
        seconds = time.perf_counter() - start
        if seconds < at_least:
            calls = max(calls + 1, int(calls * 1.2 * at_least / max(seconds, 1e-9)))
            continue
        best = min(best, seconds / calls)
        done += 1
    return best


def measure_peak(size: int = 2048, repeats: int = 5) -> float:
    """FLOP/s of a float32 product of two [size, size] matrices, an estimate of the peak with this machine's BLAS."""
    a, b, out = (np.ones((size, size), np.float32) for _ in range(3))
    return dense_flops(size, size, size) / best_time(lambda: np.matmul(a, b, out=out), repeats)


def measure_bandwidth(size: int | None = None, repeats: int = 5) -> float:
    """Bytes/s of reads from memory, measured on float32 arrays larger than the caches.

    The faster of a dot product and a matrix-vector product. Both write little, as a dense layer with a small batch.

    Args:
        size: bytes to read; default: eight times the last-level cache, between 256 MiB and 1 GiB.
    """
    size = size or min(max(8 * last_level_cache(), 2**28), 2**30)
    numbers = np.ones(size // 4, np.float32)
    first, second = np.split(numbers[: numbers.size // 2 * 2], 2)
    matrix = numbers[: numbers.size // 1024 * 1024].reshape(-1, 1024)
    vector = np.ones(1024, np.float32)
    seconds = min(best_time(lambda: first @ second, repeats), best_time(lambda: matrix @ vector, repeats))
    return size / seconds


def measure_dense(batch: int, inputs: int, outputs: int, repeats: int = 3) -> float:
    """Seconds of x @ w in float32, x [batch, inputs], w [inputs, outputs], with warm caches."""
    x, w = np.ones((batch, inputs), np.float32), np.ones((inputs, outputs), np.float32)
    out = np.empty((batch, outputs), np.float32)
    return best_time(lambda: np.matmul(x, w, out=out), repeats)


def last_level_cache() -> int:
    """Bytes of this processor's largest cache; 32 MiB if the system does not report it."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    sizes = [path.read_text().strip() for path in _CACHE.glob("index*/size")]
    return max((int(text[:-1]) * units[text[-1]] for text in sizes if text[-1:] in units), default=2**25)
