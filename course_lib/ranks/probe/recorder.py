"""Writes one rank's evidence into a folder."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np


class Recorder:
    """The files of one rank. Any thread may call it."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        number = next(
            (os.environ[n] for n in ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK") if n in os.environ),
            "0",
        )
        self.folder = folder
        self._lock = threading.RLock()
        self._tampered: dict[str, None] = {}
        self._lines = (folder / f"rank-{number}.jsonl").open("a", buffering=1)
        self._steps = (folder / f"rank-{number}.steps").open("ab", buffering=0)
        self._examples = (folder / f"rank-{number}.examples").open("ab", buffering=0)
        self._weights = (folder / f"rank-{number}.weights").open("wb", buffering=0)

    def note(self, kind: str, **data: object) -> None:
        """Append one record."""
        line = json.dumps({"kind": kind, **data}) + "\n"
        with self._lock:
            self._lines.write(line)

    def tampered(self, *names: str) -> None:
        """Note that the script has replaced these, with all that it replaced before: it may have erased that."""
        self._tampered.update(dict.fromkeys(names))
        for name in self._tampered:
            self.note("tampered", name=name)

    def append(self, steps: Sequence[np.ndarray]) -> None:
        """Append training steps: of each the brightness of its examples."""
        with self._lock:  # sizes last: a kill in between leaves examples that no step claims
            self._examples.write(np.concatenate(steps).astype("<f4").tobytes())
            self._steps.write(np.array([len(step) for step in steps], "<i4").tobytes())

    def save_weights(self, weights: Sequence[np.ndarray], trainable: Sequence[bool]) -> None:
        """Replace the weights that were written of this rank."""
        with self._lock:
            self._weights.seek(0)
            self._weights.truncate()
            for array in weights:
                self._weights.write(np.ascontiguousarray(array).tobytes())
            self.note(
                "weights",
                shapes=[list(array.shape) for array in weights],
                types=[array.dtype.str for array in weights],
                trainable=list(trainable),
            )
