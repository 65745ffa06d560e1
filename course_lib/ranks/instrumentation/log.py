"""Write the log of one rank."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from course_lib.system.rank import rank


class Log:
    """The log files of one rank. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.rank = rank()
        self._weights = folder / f"rank-{self.rank}.npz"
        self._lines = (folder / f"rank-{self.rank}.jsonl").open("a", buffering=1)
        self._steps = (folder / f"rank-{self.rank}.steps").open("ab", buffering=0)
        self._examples = (folder / f"rank-{self.rank}.examples").open("ab", buffering=0)
        self._lock = threading.Lock()

    def note(self, kind: str, **data: object) -> None:
        """Append one record."""
        with self._lock:
            self._lines.write(json.dumps({"kind": kind, **data}) + "\n")

    def append(self, steps: Sequence[np.ndarray]) -> None:
        """Append training steps; each is the brightness of its examples, float32 [examples]."""
        if steps:
            with self._lock:  # sizes last: after a kill in between, the extra examples are ignored
                self._examples.write(np.concatenate(steps).astype("<f4").tobytes())
                self._steps.write(np.array([len(step) for step in steps], "<i4").tobytes())

    def save_weights(self, weights: Sequence[np.ndarray], trainable: Sequence[bool]) -> None:
        """Write the weights of this rank's network, and which of them are trainable; replace earlier ones."""
        part = self._weights.with_suffix(".part")
        with self._lock, part.open("wb") as file:
            np.savez(file, trainable=np.array(trainable, bool), **{f"w{i:04}": w for i, w in enumerate(weights)})
        part.replace(self._weights)
