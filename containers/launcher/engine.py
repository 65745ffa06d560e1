"""What Docker and Podman have in common: images, labs, volumes."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from containers.launcher.client import EngineClient
from containers.launcher.lab import GPUS_LABEL, INNER_PORT, LAB_LABEL, PREFIX, PROCESSES, ULIMITS, WORKSPACE_LABEL, Lab
from containers.launcher.text import comma_list, ranges
from course_lib.system import paths
from course_lib.system.errors import CourseError, last_line

REPORT = "gpu-report"  # the name of what `check` writes
REPORT_CODES = (0, 1, 2)  # the doctor's exit codes with which it has written a report


class Engine(EngineClient):
    """An engine. Its labels describe the running labs, so that any terminal can list and stop them."""

    controllers: Collection[str] = ("cpuset", "memory", "pids")  # of cgroups; without root's rights often some only
    build_options: Sequence[str] = ()
    sandbox_options: Sequence[str] = ()  # for --security-opt, so that bubblewrap works inside

    def __init__(self, dry_run: bool = False) -> None:
        super().__init__(dry_run)
        self._new_volumes: list[str] = []

    def problem(self) -> str:
        """Return "" if the engine works, else the sentence that says what to do."""
        raise NotImplementedError

    def gpu_problem(self) -> str:
        """Return "" if containers can get GPUs, as far as can be checked, else the sentence that says what to do."""
        return ""

    def hub_gpu_problem(self) -> str:
        """Return "" if the hub can give GPUs to labs, else the sentence that says what to do."""
        return ""

    def api_socket(self) -> Path:
        """Return the socket of the engine's API, through which the hub starts labs."""
        raise NotImplementedError

    def gpu_options(self, gpus: Sequence[int]) -> list[str]:
        """Return the options that give GPUs to a container."""
        raise NotImplementedError

    def ulimit(self, name: str, most: int) -> int:
        """Return the value that a container gets for a limit that should be `most`."""
        return most

    # images

    def image(self, kind: str, role: str = "") -> str:
        """Return the name of the image that `build` makes."""
        return f"{PREFIX}:{kind}-{role}" if role else f"{PREFIX}:{kind}"

    def has_image(self, image: str) -> bool:
        """Return whether the image is on this host; True in a dry run."""
        return self.dry_run or self.query("image", "inspect", image).returncode == 0

    def build(self, kind: str, role: str, image: str, base: str) -> None:
        """Build an image; the engine's output is shown."""
        file = "hub/Dockerfile" if kind == "hub" else f"{kind}.Dockerfile"
        options = [*self.build_options, "--file", str(paths.ROOT / "containers" / file)]
        options += ["--target", role] if role else []
        options += ["--tag", image, *(["--build-arg", f"BASE={base}"] if base else [])]
        self.run("build", *options, str(paths.ROOT), shown=True)

    # labs

    def inspect_all(self, label: str) -> list[dict]:
        """Return the engine's descriptions of all containers with a label, which may be `name=value`."""
        names = self.answer("ps", "--all", "--quiet", "--filter", f"label={label}").split()
        return json.loads(self.answer("inspect", *names)) if names else []

    def labs(self) -> list[Lab]:
        """Return the labs, running or not."""
        return [self._lab(description) for description in self.inspect_all(LAB_LABEL)]

    def held_gpus(self) -> set[int]:
        """Return the GPUs of running labs, including the hub's labs."""
        containers = self.inspect_all(GPUS_LABEL)
        running = [container for container in containers if container["State"]["Status"] == "running"]
        return {gpu for container in running for gpu in _gpus(container)}

    def log(self, name: str) -> str:
        """Return the last line that a container printed."""
        done = self.query("logs", "--tail", "20", name)
        return last_line(done.stdout + done.stderr).removeprefix("course: ")

    def create(self, lab: Lab) -> None:
        """Make the lab's volume, unless it exists, and its container."""
        if self.dry_run or self.query("volume", "inspect", lab.name).returncode:
            self._new_volumes.append(lab.name)  # first: an interrupt comes when the volume exists
            self.run("volume", "create", "--label", f"{WORKSPACE_LABEL}={lab.name}", lab.name)
        labels = {"lab": lab.name, "address": lab.address, "port": lab.port, "gpus": comma_list(lab.gpus)}
        options = ["--name", lab.name]
        for name, value in labels.items():
            options += ["--label", f"{PREFIX}.{name}={value}"]
        options += ["--publish", f"{lab.address}:{lab.port}:{INNER_PORT}", "--volume", f"{lab.name}:/workspace"]
        options += ["--env", "JUPYTER_TOKEN", *self.resource_options(lab)]
        # The token is not on the command line, which every user of the host can read.
        self.run("create", *options, lab.image, environment={"JUPYTER_TOKEN": lab.token})

    def resource_options(self, lab: Lab) -> list[str]:
        """Return the options for a lab's data, memory, limits and GPUs, with no more rights than it needs."""
        options = ["--volume", f"{lab.data}:/data:ro", "--env", "COURSE_DATA_DIR=/data"] if lab.data else []
        options += ["--shm-size", lab.shared_memory, *self.ulimit_options(), *self.cgroup_options(lab)]
        options += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
        for option in self.sandbox_options if lab.sandbox else ():
            options += ["--security-opt", option]
        return options + (self.gpu_options(lab.gpus) if lab.gpus else [])

    def ulimit_options(self) -> list[str]:
        """Return the limits of a container's processes."""
        limits = [f"{name}={self.ulimit(name, most)}" for name, most in ULIMITS.items()]
        return [argument for limit in limits for argument in ("--ulimit", limit)]

    def cgroup_options(self, lab: Lab) -> list[str]:
        """Return the limits on processes and cores that this user may set."""
        options = ["--pids-limit", str(PROCESSES)] if "pids" in self.controllers else []
        return options + (["--cpuset-cpus", ranges(lab.cores)] if lab.cores and "cpuset" in self.controllers else [])

    def start(self, lab: Lab) -> None:
        """Start what `create` made."""
        self.run("start", lab.name)

    def stop(self, labs: Collection[Lab]) -> None:
        """End the labs and remove their containers."""
        self.remove_containers([lab.name for lab in labs], [lab.name for lab in labs if lab.running])

    def remove_containers(self, names: Collection[str], running: Collection[str] = ()) -> None:
        """Remove containers; those that are running have 20 seconds to end."""
        if running:
            self.run("stop", "-t", "20", *running)
        if names:
            self.run("rm", "--force", *names)

    def undo(self, labs: Collection[Lab]) -> None:
        """Remove what this object made for labs that could not be started."""
        try:
            self.stop([replace(lab, state="") for lab in labs])
        finally:
            self.remove_volumes(self._new_volumes)

    def check(self, lab: Lab, folder: Path) -> int:
        """Run `course doctor --gpu` in the lab's image, shown; copy its report to `folder`; return its exit code."""
        report = f"/tmp/{REPORT}"
        doctor = ["course", "doctor", "--gpu", "--report", report]
        options = ["--name", lab.name, *self.resource_options(lab)]
        files = [(f"{report}{suffix}", folder / f"{REPORT}{suffix}") for suffix in (".json", ".html")]
        return self.run_once(lab.name, [*options, lab.image, *doctor], files, REPORT_CODES)

    def run_once(
        self, name: str, arguments: Sequence[str], files: Sequence[tuple[str, Path]], copy_codes: Sequence[int] = (0,)
    ) -> int:
        """Run a new container to its end, shown, and remove it; return its exit code.

        `arguments` are those of `create`. If the exit code is one of `copy_codes`, each of `files`, a path in the
        container and one on this host, is copied.
        """
        remove = ["rm", "--force", "--volumes", name]
        try:
            self.run("create", *arguments)
            code = self.run_attached("start", "--attach", name)
            for source, target in files if code in copy_codes else ():
                self.run("cp", f"{name}:{source}", str(target))
        except BaseException:
            with contextlib.suppress(CourseError):  # if nothing was created there is nothing to remove
                self.run(*remove)
            raise
        self.run(*remove)
        return code

    # volumes

    def volumes(self) -> list[str]:
        """Return the volumes that the launcher has made."""
        return self.answer("volume", "ls", "--quiet", "--filter", f"label={WORKSPACE_LABEL}").split()

    def remove_volumes(self, names: Collection[str]) -> None:
        """Remove volumes with all that is in them."""
        if names:
            self.run("volume", "rm", *names)

    def _lab(self, description: dict) -> Lab:
        labels = description["Config"]["Labels"]
        environment = dict(item.partition("=")[::2] for item in description["Config"]["Env"] or ())
        return Lab(
            name=labels[LAB_LABEL],
            image=description["Config"]["Image"],
            port=int(labels[f"{PREFIX}.port"]),
            address=labels[f"{PREFIX}.address"],
            gpus=_gpus(description),
            token=environment.get("JUPYTER_TOKEN", ""),
            state=description["State"]["Status"],
            health=(description["State"].get("Health") or {}).get("Status", ""),
        )


def _gpus(description: dict) -> tuple[int, ...]:
    """Return the GPUs that a container's label names."""
    return tuple(map(int, filter(None, description["Config"]["Labels"][GPUS_LABEL].split(","))))
