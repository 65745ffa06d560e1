"""Podman's API, which needs a process that listens at its socket: systemd's, else one that the launcher starts."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import time
from pathlib import Path

from containers.launcher.engine import Engine
from course_lib.system.errors import CourseError, last_line

START_LIMIT_S = 30.0
POLL_INTERVAL_S = 0.1


def open_service(engine: Engine, api_socket: Path, log: Path, undo: contextlib.ExitStack) -> int:
    """Start Podman's service if nobody answers at its socket; return its process id, else 0."""
    if not engine.dry_run and _answers(api_socket):
        return 0
    command = [engine.command, "system", "service", "--time", "0", f"unix://{api_socket}"]
    if engine.dry_run:
        print(shlex.join(command), ">/dev/null 2>&1 &")
        return 0
    api_socket.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
    undo.callback(process.terminate)
    deadline = time.monotonic() + START_LIMIT_S
    while not _answers(api_socket):
        if process.poll() is not None or time.monotonic() > deadline:
            raise CourseError(
                f"Podman's API did not start ({last_line(log.read_text(errors='replace'))}): "
                "try `systemctl enable --now podman.socket`."
            )
        time.sleep(POLL_INTERVAL_S)
    return process.pid


def close_service(process_id: int) -> None:
    """End the service that `open_service` has started, if it still runs."""
    with contextlib.suppress(OSError):
        if b"system\0service" in Path(f"/proc/{process_id}/cmdline").read_bytes():
            os.kill(process_id, signal.SIGTERM)


def _answers(api_socket: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client, contextlib.suppress(OSError):
        client.connect(str(api_socket))
        return True
    return False
