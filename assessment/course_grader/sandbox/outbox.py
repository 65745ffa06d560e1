"""What comes out of the sandbox: the saved weights, what each rank has recorded, and Horovod's timeline.

Strangers have written these files: known names only, plain files only, so many bytes and no more. What a rank
records comes through a pipe that nobody in the sandbox can read or take back (`Records`); the rest is copied when all
of them have ended (`hand_out`).
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import stat
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

WEIGHTS = "weights.h5"
EVIDENCE = "evidence"
TIMELINE = "timeline.json"
PIPED = ("jsonl", "steps", "examples", "updates")  # of `rank-R.…`, what is only ever appended to
MAX_FILES = 1000

_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}")
_CHUNK_BYTES = 2**20


class Records:
    """Takes what the ranks record, as it comes; a context manager.

    In the folder of each rank it makes pipes with the names of the files that the rank appends to; what goes into them
    is appended to files in `taken`, `most` bytes from each rank.
    """

    def __init__(self, folders: Mapping[int, Path], taken: Path, most: int) -> None:
        place = taken / EVIDENCE
        place.mkdir(parents=True, exist_ok=True)
        self._files: dict[int, tuple[int, int]] = {}  # pipe → (file, rank)
        self._left = dict.fromkeys(folders, most)
        self._problem: OSError | None = None
        self._ending, self._wake = os.pipe()
        for rank, folder in folders.items():
            for kind in PIPED:
                name = f"rank-{rank}.{kind}"
                os.mkfifo(folder / name, 0o600)
                # For writing too: so it has no end before ours.
                pipe = os.open(folder / name, os.O_RDWR | os.O_NONBLOCK)
                self._files[pipe] = (os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), rank)
        self._thread = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Records:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What lies in the pipes by now is taken too."""
        os.close(self._wake)
        self._thread.join()
        for handle in (self._ending, *self._files, *(file for file, _ in self._files.values())):
            os.close(handle)

    def check(self) -> None:
        """Raise OSError where what came could not be kept."""
        if self._problem:
            raise self._problem

    def _read(self) -> None:
        listener = select.poll()
        for handle in (self._ending, *self._files):
            listener.register(handle, select.POLLIN)
        while True:
            ready = {handle for handle, _ in listener.poll()}
            for pipe in ready & self._files.keys():
                self._take(pipe)
            if ready == {self._ending}:
                return

    def _take(self, pipe: int) -> None:
        file, rank = self._files[pipe]
        with contextlib.suppress(BlockingIOError):
            piece = os.read(pipe, _CHUNK_BYTES)
            kept = piece[: self._left[rank]]
            self._left[rank] -= len(kept)
            self._keep(file, kept)

    def _keep(self, file: int, piece: bytes) -> None:
        """What can't be kept is still taken out of the pipe: the rank goes on."""
        try:
            while piece:
                piece = piece[os.write(file, piece) :]
        except OSError as error:
            self._problem = error


def hand_out(work: Path, folders: Mapping[int, Path], taken: Path, most: int) -> None:
    """Copy into `taken` the weights from `work` and the plain files that each rank left in its folder, `most` bytes in
    all. The timeline is rank 0's to give."""
    found = [
        (folder / name, f"{EVIDENCE}/{name}")
        for rank, folder in folders.items()
        for name in (*sorted(_names(folder, f"rank-{rank}.")), *[TIMELINE] * (rank == 0))
    ]
    for path, name in [(work / WEIGHTS, WEIGHTS), *found]:
        most -= _copy(path, taken / name, most)


def _names(folder: Path, start: str) -> list[str]:
    with contextlib.suppress(OSError):
        return [name for name in os.listdir(folder)[:MAX_FILES] if name.startswith(start) and _NAME.fullmatch(name)]
    return []


def _copy(source: Path, target: Path, most: int) -> int:
    """Copy a plain file that is new and not larger than `most` bytes; return how many they were."""
    try:
        handle = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return 0
    about = os.fstat(handle)
    if not stat.S_ISREG(about.st_mode) or about.st_size > most:
        os.close(handle)
        return 0
    with open(handle, "rb") as file, contextlib.suppress(FileExistsError), target.open("xb") as copy:
        shutil.copyfileobj(file, copy)
        return about.st_size
    return 0
