"""Apptainer: without root's rights and without isolated networks; a volume is a folder, with a file on its lab."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from containers.launcher import host
from containers.launcher.engine import REPORT, Engine
from containers.launcher.lab import PREFIX, Lab
from containers.launcher.text import comma_list, shell_command
from course_lib.system import paths
from course_lib.system.errors import CourseError, last_line

FOLDERS = ("workspace", "home", "scratch")  # of a lab
FIELDS = ("name", "image", "port", "address", "gpus", "token")  # of a lab, in its file


class Apptainer(Engine):
    """Apptainer, whose instances are the labs."""

    title, command = "Apptainer", "apptainer"

    def problem(self) -> str:
        """Return ""; remember the controllers of cgroups that the user may use."""
        self.controllers = host.delegated_controllers()
        return ""

    def image(self, kind: str, role: str = "") -> str:
        """Return the path of the image that `build` makes."""
        return str(paths.ROOT / "build" / f"{kind}-{role}.sif")

    def has_image(self, image: str) -> bool:
        """Return whether the image is on this host; True in a dry run."""
        return self.dry_run or Path(image).exists()

    def build(self, kind: str, role: str, image: str, base: str) -> None:
        """Build an image; Apptainer's output is shown."""
        if not self.dry_run:
            Path(image).parent.mkdir(parents=True, exist_ok=True)
        base = base or ("docker.io/library/debian:bookworm-slim" if kind == "cpu" else "")
        values = [f"TARGET={role}", *([f"BASE={base}"] if base else [])]
        options = [argument for value in values for argument in ("--build-arg", value)]
        # The definition's files are relative to the folder in which it is built.
        definition = str(paths.ROOT / "containers" / "apptainer.def")
        self.run("build", "--force", *options, image, definition, shown=True, folder=paths.ROOT)

    def labs(self) -> list[Lab]:
        """Return the labs, running or not."""
        instances = json.loads(self.answer("instance", "list", "--json") or "{}").get("instances") or ()
        running = {instance["instance"] for instance in instances}
        labs = []
        for file in _home().glob("*/lab.json"):
            fields = json.loads(file.read_text())
            fields["gpus"] = tuple(fields["gpus"])
            labs.append(Lab(**fields, state="running" if fields["name"] in running else "exited"))
        return labs

    def held_gpus(self) -> set[int]:
        """Return the GPUs that a running lab has."""
        return {gpu for lab in self.labs() if lab.running for gpu in lab.gpus}

    def log(self, name: str) -> str:
        """Return the last line that a lab printed."""
        for file in Path.home().glob(f".apptainer/instances/logs/*/*/{name}.err"):
            with contextlib.suppress(OSError):
                return last_line(file.read_text(errors="replace")).removeprefix("course: ")
        return "see `apptainer instance list --logs`"

    def create(self, lab: Lab) -> None:
        """Make the lab's folders and its file."""
        if lab.address not in ("127.0.0.1", "0.0.0.0"):
            raise CourseError("With Apptainer --bind can be 127.0.0.1, for this host alone, or 0.0.0.0, for all.", 2)
        folder = _home() / lab.name
        if self.dry_run:
            print(shell_command(["mkdir", "-p", *(str(folder / name) for name in FOLDERS)]))
            return
        if not folder.exists():
            self._new_volumes.append(lab.name)
        for name in FOLDERS:
            (folder / name).mkdir(parents=True, exist_ok=True)
        draft = folder / "lab.draft"
        draft.touch(mode=0o600)
        draft.write_text(json.dumps({name: getattr(lab, name) for name in FIELDS}))
        draft.replace(folder / "lab.json")

    def start(self, lab: Lab) -> None:
        """Start an instance."""
        folder = _home() / lab.name
        options = ["--containall", "--home", f"{folder / 'home'}:/home/learner", "--workdir", str(folder / "scratch")]
        options += ["--bind", f"{folder / 'workspace'}:/workspace"]
        options += [*self.cgroup_options(lab), *self.resource_options(lab)]
        variables = {"JUPYTER_TOKEN": lab.token, "COURSE_ADDRESS": lab.address, "JUPYTER_PORT": str(lab.port)}
        self.run("instance", "start", *options, lab.image, lab.name, environment=_environment(lab, **variables))

    def check(self, lab: Lab, folder: Path) -> int:
        """Run `course doctor --gpu` in the lab's image, shown; its report goes to `folder`. Return its exit code."""
        with contextlib.ExitStack() as stack:
            scratch = "SCRATCH" if self.dry_run else stack.enter_context(tempfile.TemporaryDirectory())
            options = ["--containall", "--workdir", scratch, "--bind", f"{scratch}:/workspace"]
            options += ["--bind", f"{folder}:/report", *self.resource_options(lab)]
            doctor = ["course", "doctor", "--gpu", "--report", f"/report/{REPORT}"]
            return self.run_attached("exec", *options, lab.image, *doctor, environment=_environment(lab))

    def resource_options(self, lab: Lab) -> list[str]:
        """Return the options for a lab's data and GPUs; which GPUs, `_environment` says."""
        data = ["--bind", f"{lab.data}:/data:ro"] if lab.data else []
        return data + (["--nv"] if lab.gpus else [])

    def stop(self, labs: Collection[Lab]) -> None:
        """End the labs, and remove their files but for the workspaces."""
        for lab in labs:
            if lab.running:
                self.run("instance", "stop", lab.name)
            if not self.dry_run:
                (_home() / lab.name / "lab.json").unlink(missing_ok=True)
                shutil.rmtree(_home() / lab.name / "scratch", ignore_errors=True)

    def undo(self, labs: Collection[Lab]) -> None:
        """Remove what this object made for labs that could not be started."""
        running = {lab.name for lab in self.labs() if lab.running}
        self.stop([replace(lab, state="running" if lab.name in running else "") for lab in labs])
        self.remove_volumes(self._new_volumes)

    def volumes(self) -> list[str]:
        """Return the names of the labs that have a workspace."""
        return [folder.parent.name for folder in _home().glob("*/workspace")]

    def remove_volumes(self, names: Collection[str]) -> None:
        """Remove labs' folders with all that is in them."""
        for name in names:
            if self.dry_run:
                print(shell_command(["rm", "-r", str(_home() / name)]))
            else:
                shutil.rmtree(_home() / name)


def _home() -> Path:
    """Return the folder of all labs."""
    return Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / PREFIX


def _environment(lab: Lab, **variables: str) -> dict[str, str]:
    """Return what puts variables into a lab's container, with those for its data and GPUs."""
    variables |= {"COURSE_DATA_DIR": "/data"} if lab.data else {}
    variables |= {"CUDA_VISIBLE_DEVICES": comma_list(lab.gpus)} if lab.gpus else {}
    return {f"APPTAINERENV_{name}": value for name, value in variables.items()}
