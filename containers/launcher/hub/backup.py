"""Back up all that a class has, and restore it: `launch hub backup` and `restore`.

An archive is made in a container of the hub's image, as root: without root's rights on the host, files of the labs
belong to users that the host does not know.
"""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path

from containers.launcher.engine import Engine
from containers.launcher.hub import one_off
from containers.launcher.hub.commands import hub_engine
from containers.launcher.hub.start import remove_state
from containers.launcher.hub.state import MOUNT, State
from containers.launcher.text import notice, shell_command
from course_lib.system.errors import CourseError

CHANGED_CODE = 1  # of tar: some files changed while it read them
LEFT_OUT = ("./workspaces/*/.cache", "./podman.log", "./*.sock")  # what can be made again


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
    command = ["tar", "-C", MOUNT, *left_out, "--numeric-owner", "-cz", "."]
    arguments = one_off.arguments(engine, state.folder, image, command, "ro")
    if options.dry_run:
        print(shell_command([engine.command, "run", *arguments]), ">", shell_command([str(target)]))
        return
    draft = target.with_name(f".{target.name}.part")
    try:
        with open(os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "wb") as file:
            code, reason = one_off.run(engine, arguments, stdout=file)
        if code not in (0, CHANGED_CODE):
            raise CourseError(f"The backup failed ({reason}); no file was written.")
        draft.replace(target)
    except OSError as error:
        raise CourseError(f"{target} cannot be written ({error.strerror}): choose another file.") from None
    finally:
        draft.unlink(missing_ok=True)
    print(f"Wrote {target}, with everyone's work: keep it where only you can read it.")
    if code == CHANGED_CODE:
        notice("Some files changed meanwhile. For a backup at rest, `containers/launch hub stop` comes first.")


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
    command = ["tar", "-C", MOUNT, "--numeric-owner", "--same-permissions", "-xz"]
    arguments = one_off.arguments(engine, state.folder, image, command)
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
        undo.pop_all()
    state.create()  # its permissions, whatever the archive says
    print(f"Restored {len(state.members())} names into {state.folder}; `containers/launch hub` opens the hub.")


def _image(engine: Engine, state: State) -> str:
    """Return the hub's image. Raises CourseError if it is not on this host."""
    image = state.settings().get("images", {}).get("hub") or engine.image("hub")
    if not engine.has_image(image):
        raise CourseError(f"There is no image {image} on this host: build it with `containers/launch build hub`.")
    return image
