"""Fetch a published file: whole, verified and only once, however many ranks ask for it at the same time."""

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
STALL_LIMIT_S = 20  # without a byte, after which a download has failed


class DownloadError(OSError):
    """The file could not be fetched; the text is the reason, without a full stop."""


def download(url: str, path: Path, sha256: str, *, timeout: float) -> None:
    """Fetch `url` to `path`, showing progress on a terminal.

    The file appears under its name only when it is whole and its checksum is right. The server has `timeout`
    seconds to answer. Raises DownloadError; nothing half-read is left behind.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for stale in path.parent.glob(f".{path.name}.*.part"):  # of a process that was killed
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
    """Write what `url` sends, which is to be `name`, to the new file `part`."""
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
        raise DownloadError(f"what {host} sent for {name} has the wrong checksum")


def probe(url: str, *, timeout: float) -> None:
    """Ask whether `url` is there, without fetching it. Raises DownloadError when it is not."""
    _open(url, timeout, method="HEAD").close()


def _open(url: str, timeout: float, method: str = "GET") -> HTTPResponse:
    """The server's answer, or DownloadError after `timeout` seconds.

    The thread is there because a socket's time-out does not cover the look-up of the name, which can take
    half a minute offline.
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
    """The heart of a network error: URLError wraps an OSError that holds a number and a text."""
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
