"""Docker and Podman: how they differ."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from containers.launcher import host
from containers.launcher.engine import Engine
from containers.launcher.text import comma_list
from course_lib.system.errors import CourseError, last_line

GPU_API = (5, 4)  # Podman's version from which its Docker API knows CDI devices; older ones leave them out silently


class Docker(Engine):
    """Docker's engine."""

    title, command = "Docker", "docker"
    # Its AppArmor profile forbids mounts, its seccomp filter user namespaces, a masked /proc a new one.
    sandbox_options = ("seccomp=unconfined", "apparmor=unconfined", "systempaths=unconfined")

    def installed(self) -> bool:
        """Return whether Docker is installed, and not Podman under its name, whose options differ."""
        return super().installed() and "podman" not in self.query("--version").stdout.lower()

    def problem(self) -> str:
        """Return "" if the daemon answers, else how to start it or to get access."""
        done = self.query("version", "--format", "{{.Server.Version}}")
        if done.returncode == 0:
            return ""
        if "permission denied" in done.stderr:
            return (
                "Docker does not let this user in: use sudo, or add the user with `sudo usermod -aG docker $USER` "
                "and log in again."
            )
        return "Docker is installed but does not answer: start it with `sudo systemctl start docker`."

    def gpu_options(self, gpus: Sequence[int]) -> list[str]:
        """Return the options that give GPUs to a container."""
        return ["--gpus", f'"device={comma_list(gpus)}"']  # the quotes keep Docker from splitting at the commas

    def api_socket(self) -> Path:
        """Return the socket of the daemon's API. Raises CourseError if the daemon is on another host."""
        if self.dry_run:
            return Path("/var/run/docker.sock")
        address = self.answer("context", "inspect", "--format", "{{.Endpoints.docker.Host}}").strip()
        if not address.startswith("unix://"):
            raise CourseError(f"Docker's daemon is on another host ({address}): start the hub there.")
        return Path(address.removeprefix("unix://"))


class Podman(Engine):
    """Podman, which needs no daemon."""

    title, command = "Podman", "podman"
    build_options = ("--format", "docker")  # Podman's own format has no health checks
    # Its seccomp filter forbids to set the name of the host that the sandbox pretends to be.
    sandbox_options = ("seccomp=unconfined", "apparmor=unconfined", "unmask=ALL")

    def __init__(self, dry_run: bool = False) -> None:
        super().__init__(dry_run)
        self._info: dict = {}

    def problem(self) -> str:
        """Return "" if Podman works, else why not; remember the controllers that it may use."""
        done = self.query("info", "--format", "json")
        if done.returncode:
            return f"Podman is installed but does not work here ({last_line(done.stderr)}): see `podman info`."
        self._info = json.loads(done.stdout)
        self.controllers = self._info["host"].get("cgroupControllers") or ()
        return ""

    def gpu_problem(self) -> str:
        """Return "" if a CDI file describes NVIDIA's GPUs, else how to make one."""
        for folder in (Path("/etc/cdi"), Path("/var/run/cdi")):
            for file in folder.glob("*"):
                with contextlib.suppress(OSError):
                    if "nvidia.com/gpu" in file.read_text(errors="replace"):
                        return ""
        return (
            "Podman knows no GPUs: install the NVIDIA Container Toolkit and give "
            "`sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`."
        )

    def hub_gpu_problem(self) -> str:
        """Return "" if Podman's API, through which the hub starts labs, can give GPUs, else what to install."""
        version = self._info["version"]["Version"]
        numbers = tuple(map(int, re.findall(r"\d+", version)[:2]))
        if numbers >= GPU_API:
            return ""
        minimum = ".".join(map(str, GPU_API))
        return (
            f"Podman {version} gives no GPUs through its API: install Podman {minimum} or newer, or "
            "leave the GPUs out with --gpus-each 0."
        )

    def gpu_options(self, gpus: Sequence[int]) -> list[str]:
        """Return the options that give GPUs to a container."""
        return [argument for gpu in gpus for argument in ("--device", f"nvidia.com/gpu={gpu}")]

    def ulimit(self, name: str, most: int) -> int:
        """Return at most the user's own limit: Podman has no daemon with more rights than its user."""
        hard = host.hard_limit(name)
        if name == "nproc" and hard != -1:  # Podman lowers its own to this, and cannot raise it again
            hard = min(hard, int(Path("/proc/sys/kernel/pid_max").read_text()))
        return most if hard == -1 else hard if most == -1 else min(most, hard)

    def api_socket(self) -> Path:
        """Return where `podman system service` listens, whether it runs or not."""
        if address := self._info.get("host", {}).get("remoteSocket", {}).get("path"):
            return Path(address.removeprefix("unix://"))
        run = "/run" if os.getuid() == 0 else os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
        return Path(run) / "podman" / "podman.sock"
