"""Download a published file and verify it."""

from __future__ import annotations

import hashlib
import queue
import sys
import threading
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from course_lib.system.files import replacing

CHUNK_BYTES = 1 << 18
STALL_LIMIT_S = 20  # a download fails after so many seconds without a byte


class DownloadError(OSError):
    """A download failed; the text is the reason, without a full stop."""


def download(url: str, path: Path, sha256: str, *, timeout: float) -> None:
    """Download `url` to `path`, with a progress bar on a terminal.

    The file gets its name only when it is complete and its checksum matches.

    Args:
        sha256: the checksum of the file, in hexadecimal digits.
        timeout: seconds that the server has to answer.

    Raises DownloadError; a partial file is deleted.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for stale in path.parent.glob(f".{path.name}.*.part"):  # left by a process that was killed
        stale.unlink(missing_ok=True)
    host = urlsplit(url).hostname
    try:
        with replacing(path) as part:
            _receive(url, part, path.name, sha256, timeout)
    except DownloadError:
        raise
    except (OSError, HTTPException) as error:
        raise DownloadError(f"{path.name} from {host}: {_reason(error)}") from error


def _receive(url: str, part: Path, name: str, sha256: str, timeout: float) -> None:
    """Download the file `name` from `url` into the new file `part`, and verify its length and checksum."""
    host = urlsplit(url).hostname
    with _open(url, timeout) as response, part.open("xb") as file:
        expected = int(response.headers.get("Content-Length") or 0)
        digest, received = hashlib.sha256(), 0
        for piece in _with_progress(response, name, expected):
            digest.update(piece)
            file.write(piece)
            received += len(piece)
    if received < expected:
        raise DownloadError(f"{host} stopped after {received:,} of {expected:,} bytes of {name}")
    if digest.hexdigest() != sha256:
        raise DownloadError(f"the file {name} from {host} has the wrong checksum")


def probe(url: str, *, timeout: float) -> None:
    """Check that `url` exists, without a download. Raises DownloadError if it does not."""
    _open(url, timeout, method="HEAD").close()


def _open(url: str, timeout: float, method: str = "GET") -> HTTPResponse:
    """The server's response. Raises DownloadError after `timeout` seconds.

    The request runs in a thread, because a socket's time-out does not cover the name lookup, which can take half a
    minute offline.
    """
    host = urlsplit(url).hostname
    answers: queue.SimpleQueue[HTTPResponse | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(urlopen(Request(url, method=method), timeout=STALL_LIMIT_S))
        except Exception as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=timeout)
    except queue.Empty:
        raise DownloadError(f"no answer from {host} within {timeout:g} s") from None
    if isinstance(answer, Exception):
        raise DownloadError(f"{host}: {_reason(answer)}") from answer
    return answer


def _reason(error: Exception) -> str:
    """The text of a network error. URLError wraps an OSError, which has a number and a text."""
    error = getattr(error, "reason", error)
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _with_progress(response: HTTPResponse, title: str, total: int) -> Iterator[bytes]:
    from rich.console import Console
    from rich.filesize import decimal
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn()
    console = Console(stderr=True)
    if not console.is_terminal:
        print(f"Downloading {title}" + (f", {decimal(total)}" if total else ""), file=sys.stderr, flush=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(title, total=total or None)
        while piece := response.read(CHUNK_BYTES):
            progress.advance(task, len(piece))
            yield piece
