"""JupyterLab on a workspace: started, announced, and ended with everything it started.

Who starts it for others sets JUPYTER_TOKEN, the token that the lab asks for (else a random one), and COURSE_ADDRESS,
where it listens: this machine only (127.0.0.1) or, as in a container, 0.0.0.0 for everywhere.
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
from collections.abc import Iterator
from pathlib import Path

from course_lib.notebook import jupyter
from course_lib.system import variables
from course_lib.system.errors import CourseError, last_line
from course_lib.system.processes import Supervised

FIRST_PORT, MAX_PORTS = 8888, 100  # tried one after the other where no port is asked for
START_TIMEOUT_S = 120.0
LOOPBACK, ALL_INTERFACES = "127.0.0.1", "0.0.0.0"
LOG_NAME = "jupyterlab.log"
_SETTINGS_FOLDER = Path(__file__).parent


def check_port(port: int | None) -> None:
    """CourseError where the port that was asked for cannot be had."""
    if port is None:
        return
    if not 0 < port < 65536:
        raise CourseError(f"{port} is no port; choose one between 1024 and 65535, or leave --port out.")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_address(), port))
        except OSError as error:
            taken = f"Port {port} cannot be used ({error.strerror})"
            raise CourseError(f"{taken}; choose another with --port, or leave it out to get a free one.") from None


def serve(directory: Path, state: Path, port: int | None, browser: bool) -> int:
    """Run JupyterLab on `directory` until it is stopped (Ctrl-C, or from its menu); return the exit code.

    Settings and state stay in `state`. Kernels, and the ranks that they started, end with it. CourseError if
    it does not start or fails.
    """
    token, address = _token(), _address()
    _settings(state)
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


def _token() -> str:
    token = os.environ.get("JUPYTER_TOKEN") or secrets.token_hex(24)
    if not re.fullmatch(r"[\w.~-]{16,}", token, re.ASCII):
        rule = "must be 16 or more letters, digits, '-', '_', '.' or '~'"
        raise CourseError(f"JUPYTER_TOKEN {rule}; unset it to get a random one.", code=2)
    return token


def _address() -> str:
    address = os.environ.get(variables.ADDRESS) or LOOPBACK
    if address not in (LOOPBACK, ALL_INTERFACES):
        allowed = f"{LOOPBACK} (this machine only) or {ALL_INTERFACES} (everywhere)"
        raise CourseError(f"COURSE_ADDRESS is {address!r}; it can be {allowed}.", code=2)
    return address


def _jupyterlab(directory: Path, state: Path, port: int | None, token: str, address: str) -> Supervised:
    """JupyterLab in the background, as a context manager."""
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
            # The token is not on the command line, which every user of the machine can read.
            env={**jupyter.environment(state), "JUPYTER_TOKEN": token},
            cwd=state,
        )


def _settings(state: Path) -> None:
    for name, folder in (
        ("jupyter_server_config.json", "config"),
        ("page_config.json", "config/labconfig"),
        ("overrides.json", "app"),
    ):
        (state / folder).mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_SETTINGS_FOLDER / name, state / folder / name)


def _await_start(process: subprocess.Popen, state: Path, token: str) -> str | None:
    """The address at which the server answers; None where it does not start."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        # A server writes down its address before it listens; another may be first at the port.
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
        with contextlib.suppress(OSError, ValueError):  # just being written, or just gone
            server = json.loads(path.read_text())
            if server["token"] == token:
                # Not server["url"]: it has the host's name where the lab listens everywhere, which need not resolve.
                yield f"http://{LOOPBACK}:{server['port']}{server['base_url']}"


def _announce(url: str, directory: Path, browser: bool) -> None:
    print(f"\nThe lab is open on {directory}:\n\n    {url}\n", flush=True)
    print("Ctrl-C closes it. Your work is saved as you go.", flush=True)
    # Without a display Python would start a browser in the terminal.
    shown = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if browser and shown:
        threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()


def _log(state: Path) -> str:
    return (state / LOG_NAME).read_text(errors="replace")


def _last_line(state: Path) -> str:
    return last_line(_log(state), "it said nothing")
