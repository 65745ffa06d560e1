"""Run JupyterLab on a workspace, and end all of its processes afterwards.

JUPYTER_TOKEN sets the lab's token (default: a random one). COURSE_ADDRESS sets the address on which it listens:
127.0.0.1 for this machine only (the default), or 0.0.0.0 for all network interfaces, as in a container.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import webbrowser
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from course_lib.notebook import jupyter
from course_lib.system import variables
from course_lib.system.errors import CourseError, last_line
from course_lib.system.processes import Supervised

FIRST_PORT, MAX_PORTS = 8888, 100  # without --port, this many ports are tried
START_TIMEOUT_S = 120.0
LOOPBACK, ALL_INTERFACES = "127.0.0.1", "0.0.0.0"
LOG_NAME = "jupyterlab.log"
_SETTINGS_FOLDER = Path(__file__).parent


def check_port(port: int | None) -> None:
    """Raise CourseError if the requested port can't be used; None: no request."""
    if port is None:
        return
    if not 0 < port < 65536:
        raise CourseError(f"{port} is not a port: choose one between 1024 and 65535, or remove --port.")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_address(), port))
        except OSError as error:
            taken = f"Port {port} cannot be used ({error.strerror})"
            raise CourseError(f"{taken}: choose another with --port, or remove --port to get a free one.") from None


def serve(directory: Path, state: Path, port: int | None, browser: bool) -> int:
    """Run JupyterLab on `directory` until it is stopped (Ctrl-C, or from its menu); return the exit code.

    Its kernels, and their ranks, end with it.

    Args:
        directory: root folder of the lab.
        state: folder for settings and state.
        port: None: the first free port from FIRST_PORT on.
        browser: whether to open a browser window.

    Raises CourseError if the lab does not start, or fails.
    """
    token, address = _token(), _address()
    put_settings(state)
    try:
        while True:
            with _jupyterlab(directory, state, port, token, address) as process:
                if url := _await_start(process, state, token):
                    _announce(f"{url}lab/tree/Welcome.md?token={token}", directory, browser)
                    code = process.wait()
                    break
            if port or "already in use" not in _log(state):
                raise CourseError(f"JupyterLab did not start: {_last_line(state)} (log: {state / LOG_NAME})")
    except KeyboardInterrupt:
        print("\nThe lab is closed.")
        return 0
    if code:
        raise CourseError(f"JupyterLab failed with exit code {code}: {_last_line(state)} (log: {state / LOG_NAME})")
    return 0


def become(server: Sequence[str], directory: Path, state: Path) -> NoReturn:
    """Replace this process by `server`, the command line of a Jupyter server, in the folder `directory`.

    The folder `state` has the server's settings (see `put_settings`). PATH starts with this Python's environment.
    """
    environment = jupyter.environment(state)  # before the folder changes: `state` may be relative to it
    os.chdir(directory)
    os.execvpe(server[0], server, environment)


def _token() -> str:
    token = os.environ.get("JUPYTER_TOKEN") or secrets.token_hex(24)
    if not re.fullmatch(r"[\w.~-]{16,}", token, re.ASCII):
        rule = "must have 16 or more characters, each a letter, a digit, '-', '_', '.' or '~'"
        raise CourseError(f"JUPYTER_TOKEN {rule}: change it, or unset it to get a random one.", code=2)
    return token


def _address() -> str:
    address = os.environ.get(variables.ADDRESS) or LOOPBACK
    if address not in (LOOPBACK, ALL_INTERFACES):
        allowed = f"{LOOPBACK} (this machine only) or {ALL_INTERFACES} (all network interfaces)"
        raise CourseError(f"COURSE_ADDRESS is {address!r}: set it to {allowed}.", code=2)
    return address


def _jupyterlab(directory: Path, state: Path, port: int | None, token: str, address: str) -> Supervised:
    """Start JupyterLab in the background; return a context manager that ends it."""
    command = [
        *(sys.executable, "-m", "jupyterlab"),
        f"--ServerApp.root_dir={directory}",
        f"--ServerApp.ip={address}",
        f"--ServerApp.port={port or FIRST_PORT}",
        f"--ServerApp.port_retries={0 if port else MAX_PORTS}",
        f"--LabApp.app_settings_dir={state / 'app'}",
    ]
    with (state / LOG_NAME).open("w") as log:
        return Supervised(
            command,
            stdout=log,
            stderr=subprocess.STDOUT,
            # Not on the command line, which every user of the machine can read.
            env={**jupyter.environment(state), "JUPYTER_TOKEN": token},
            cwd=state,
        )


def put_settings(state: Path) -> None:
    """Put the course's Jupyter settings into the folder `state`."""
    for name, folder in (
        ("jupyter_server_config.json", "config"),
        ("page_config.json", "config/labconfig"),
        ("overrides.json", "app"),
    ):
        (state / folder).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_SETTINGS_FOLDER / name, state / folder / name)


def _await_start(process: subprocess.Popen, state: Path, token: str) -> str | None:
    """Wait until the server answers; return its address, or None if it does not start."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        # A server writes its address to a file before it listens; another process may get the port first.
        for url in _addresses(state, token):
            status = urllib.request.Request(f"{url}api/status", headers={"Authorization": f"token {token}"})
            try:
                with direct.open(status, timeout=5):
                    return url
            except OSError:
                pass
        time.sleep(0.1)
    return None


def _addresses(state: Path, token: str) -> Iterator[str]:
    for path in (state / "runtime").glob("jpserver-*.json"):
        with contextlib.suppress(OSError, ValueError):  # the file is incomplete, or was just deleted
            server = json.loads(path.read_text())
            if server["token"] == token:
                # Not server["url"]: with 0.0.0.0 it contains the host's name, which may not resolve.
                yield f"http://{LOOPBACK}:{server['port']}{server['base_url']}"


def _announce(url: str, directory: Path, browser: bool) -> None:
    print(f"\nThe lab is open on {directory}:\n\n    {url}\n", flush=True)
    print("Ctrl-C closes it. Your work is saved as you go.", flush=True)
    # Without a display, Python would start a text browser in the terminal.
    shown = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if browser and shown:
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def _log(state: Path) -> str:
    return (state / LOG_NAME).read_text(errors="replace")


def _last_line(state: Path) -> str:
    return last_line(_log(state), "it printed nothing")
