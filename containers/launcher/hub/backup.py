"""Back up all that a class has, and restore it: `launch hub backup` and `restore`.

An archive is made in a container of the hub's image, as root: without root's rights on the host, files of the labs
belong to users that the host does not know.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import tempfile
import time
from pathlib import Path

from containers.launcher.engine import Engine
from containers.launcher.hub import one_off
from containers.launcher.hub.commands import hub_engine
from containers.launcher.hub.start import remove_state
from containers.launcher.hub.state import MOUNT, State
from containers.launcher.text import notice, shell_command
from course_lib.system.errors import CourseError

RESTORED = "exchange/outbound/.restored.json"  # instructors' labs can read it
CHANGED_CODE = 1  # of tar: some files changed while it read them
LEFT_OUT = ("./workspaces/*/.cache", "./calibration", "./podman.log", "./*.sock")  # what can be made again
# Folder and settings then belong to the operator, as before, whoever that was when the backup was made.
UNPACK = f"""
set -e
cd {MOUNT}
operator=$(stat -c %u:%g .)
tar --numeric-owner --same-permissions --exclude=./calibration -xz
chown "$operator" .
find . -maxdepth 1 -name '*.json' -exec chown -h "$operator" {{}} +
"""


def backup(options: argparse.Namespace) -> None:
    """Write an archive of the state, which only the operator can read."""
    state, target = State(options.state), Path(options.file)
    state.require_members()
    if target.exists():
        raise CourseError(f"{target} exists already: choose another file.", 2)
    if not target.resolve().parent.is_dir() or state.folder in target.resolve().parents:
        raise CourseError(f"{target} cannot be written: choose a file in another folder, outside of the state.", 2)
    engine = hub_engine(options, state)
    image = _image(engine, state)
    left_out = [f"--exclude={pattern}" for pattern in LEFT_OUT]
    command = ["tar", "-C", MOUNT, *left_out, "--numeric-owner", "--sparse", "-cz", "."]
    arguments = one_off.arguments(engine, state.folder, image, command, "ro")
    if options.dry_run:
        print(shell_command([engine.command, "run", *arguments]), ">", shell_command([str(target)]))
        return
    state.write_backup_time(time.time())
    code = _write_archive(engine, arguments, target)
    print(f"Wrote {target}, with everyone's work: keep it where only you can read it.")
    if code == CHANGED_CODE:
        notice("Some files changed meanwhile. For a backup at rest, `containers/launch hub stop` comes first.")


def _write_archive(engine: Engine, arguments: list[str], target: Path) -> int:
    """Write what the container prints to `target`, which only the operator can read; return the exit code of tar."""
    draft = None
    try:
        descriptor, draft = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
        with open(descriptor, "wb") as file:
            code, reason = one_off.run(engine, arguments, stdout=file)
        if code not in (0, CHANGED_CODE):
            raise CourseError(f"The backup failed ({reason}); no file was written.")
        os.replace(draft, target)
    except OSError as error:
        raise CourseError(f"{target} cannot be written ({error.strerror}): choose another file.") from None
    finally:
        if draft:
            Path(draft).unlink(missing_ok=True)
    return code


def restore(options: argparse.Namespace) -> None:
    """Unpack an archive of `backup` into a state folder that has no class."""
    state, source = State(options.state), Path(options.file)
    if not source.is_file():
        raise CourseError(f"There is no file {source}: name one that `containers/launch hub backup` has written.", 2)
    if state.folder.exists() and any(state.folder.iterdir()):
        raise CourseError(
            f"There is a class in {state.folder}, and `restore` replaces none: choose another --state, or move that "
            "folder away.",
            2,
        )
    engine = hub_engine(options, state)
    image = _image(engine, state)
    arguments = one_off.arguments(engine, state.folder, image, ["sh", "-c", UNPACK])
    if options.dry_run:
        print(shell_command(["mkdir", "-p", "-m", "700", str(state.folder)]))
        print(shell_command([engine.command, "run", *arguments]), "<", shell_command([str(source)]))
        return
    with contextlib.ExitStack() as undo:
        state.create()
        undo.callback(remove_state, engine, state, image)
        with source.open("rb") as file:
            code, reason = one_off.run(engine, arguments, stdin=file)
        if code:
            raise CourseError(f"{source} could not be unpacked ({reason}); nothing was restored.")
        if not state.class_file.exists():
            raise CourseError(f"{source} is no backup of a class; nothing was restored.", 2)
        _write_restore_times(engine, state, image)
        undo.pop_all()
    state.create()  # its permissions, whatever the archive says
    print(f"Restored {len(state.members())} names into {state.folder}; `containers/launch hub` opens the hub.")


def _write_restore_times(engine: Engine, state: State, image: str) -> None:
    """Tell `course collect` when the backup was made and restored: all submissions have the time of the restore."""
    times = {"backup": state.backup_time(), "restored": time.time()}
    target = f"{MOUNT}/{RESTORED}"
    command = ["sh", "-c", f"mkdir -p {os.path.dirname(target)} && cat > {target} && chmod 644 {target}"]
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(times).encode())
        file.seek(0)
        code, reason = one_off.run(engine, one_off.arguments(engine, state.folder, image, command), stdin=file)
    if code:
        raise CourseError(f"The time of the backup could not be stored ({reason}); nothing was restored.")


def _image(engine: Engine, state: State) -> str:
    """Return the hub's image. Raises CourseError if it is not on this host."""
    image = state.settings().get("images", {}).get("hub") or engine.image("hub")
    if not engine.has_image(image):
        raise CourseError(f"There is no image {image} on this host: build it with `containers/launch build hub`.")
    return image
