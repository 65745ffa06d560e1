"""Writes one rank's evidence into a folder."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

STREAMS = ("steps", "examples", "updates")  # numbers that are only ever appended to


class Seal:
    """Writes codes on the lines of a stream, in their order, or checks them."""

    def __init__(self, key: str) -> None:
        self._key, self._number = key.encode(), 0

    def on(self, line: str) -> str:
        """The next line, a JSON object, with its code as the last entry; without a key the line itself."""
        return f'{line[:-1]}, "code": "{self._code(line)}"}}' if self._key else line

    def off(self, line: str) -> str | None:
        """The next line without its code; None where it is not the next one that was written."""
        if not self._key:
            return line
        text, _, code = line.rpartition(', "code": "')
        return f"{text}}}" if hmac.compare_digest(code, f'{self._code(text + "}")}"}}') else None

    def _code(self, line: str) -> str:
        self._number += 1
        return hmac.new(self._key, f"{self._number} {line}".encode(), "sha256").hexdigest()[:32]


class Recorder:
    """The files of one rank. Any thread may call it.

    Where a file `rank-R.key` lies in the folder, it is read and removed: each record then ends with a code of its text,
    its number and the key, so that whoever has the key sees what was left out, changed or put in.
    """

    # So that nobody puts another `note` in.
    __slots__ = "_lengths", "_lines", "_lock", "_seal", "_streams", "_sums", "_tampered", "_weights", "folder", "rank"

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        number = next(
            (os.environ[n] for n in ("HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK") if n in os.environ),
            "0",
        )
        self.rank = int(number)
        self.folder = folder
        self._lock = threading.RLock()
        self._seal = Seal(_taken(folder / f"rank-{number}.key"))
        self._tampered: dict[str, None] = {}
        self._lines = (folder / f"rank-{number}.jsonl").open("a", buffering=1)
        self._streams = {name: (folder / f"rank-{number}.{name}").open("ab", buffering=0) for name in STREAMS}
        self._sums = {name: hashlib.blake2b(digest_size=16) for name in STREAMS}
        self._lengths = dict.fromkeys(STREAMS, 0)
        self._weights = (folder / f"rank-{number}.weights").open("wb", buffering=0)

    def note(self, kind: str, **data: object) -> None:
        """Append one record."""
        with self._lock:
            self._lines.write(self._seal.on(json.dumps({"kind": kind, **data})) + "\n")

    def tampered(self, *names: str) -> None:
        """Note that the script has replaced these, with all that it replaced before: it may have erased that."""
        self._tampered.update(dict.fromkeys(names))
        for name in self._tampered:
            self.note("tampered", name=name)

    def append(self, steps: Sequence[np.ndarray], updates: Sequence[tuple[int, ...]]) -> None:
        """Append training steps, of each the brightness of its examples, and updates, of each the fingerprints of the
        weights before, of what was applied, and of the weights after, and which variables it has changed."""
        with self._lock:
            if steps:  # sizes last: a kill in between leaves examples that no step claims
                self._write("examples", np.concatenate(steps).astype("<f4"))
                self._write("steps", np.array([len(step) for step in steps], "<i4"))
            if updates:
                self._write("updates", np.array(updates, "<i8"))

    def progress(self, **data: object) -> None:
        """Note how far training is, and what has been appended by now."""
        with self._lock:
            sums = {name: one.hexdigest() for name, one in self._sums.items()}
            self.note("progress", **data, bytes=dict(self._lengths), sums=sums)

    def _write(self, name: str, values: np.ndarray) -> None:
        content = values.tobytes()
        self._sums[name].update(content)
        self._lengths[name] += len(content)
        while content:  # a pipe takes what it has room for
            content = content[self._streams[name].write(content) or 0 :]

    def save_weights(
        self, weights: Sequence[np.ndarray], trainable: Sequence[bool], kept: Sequence[np.ndarray] = ()
    ) -> None:
        """Replace the weights that were written of this rank, and those that it had not long before."""
        both = [*weights, *kept]
        with self._lock:
            self._weights.seek(0)
            self._weights.truncate()
            content = b"".join(np.ascontiguousarray(array).tobytes() for array in both)
            self._weights.write(content)
            self.note(
                "weights",
                sum=hashlib.blake2b(content, digest_size=16).hexdigest(),
                shapes=[list(array.shape) for array in both],
                types=[array.dtype.str for array in both],
                trainable=list(trainable),
            )


def _taken(path: Path) -> str:
    """The content of a file, which is removed; "" where there is none."""
    with contextlib.suppress(OSError):
        content = path.read_text()
        path.unlink()
        return content
    return ""
