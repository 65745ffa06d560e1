"""The folder with all that a class has: the class list, settings, the hub's database, everyone's work."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Collection
from pathlib import Path

from containers.launcher.lab import PREFIX
from course_lib.system.errors import CourseError

MOUNT = "/srv/state"  # where the hub's containers see it


class State:
    """The state of a class. Only its operator can enter the folder; the hub, as root, owns what it makes there."""

    def __init__(self, folder: str | None) -> None:
        default = Path(os.environ.get("XDG_DATA_HOME") or "~/.local/share").expanduser() / PREFIX / "hub"
        self.folder = Path(folder).expanduser().resolve() if folder else default
        if special := set(str(self.folder)) & set(":,\"'\n"):
            raise CourseError(
                f"--state {self.folder} is not valid: an engine cannot mount a folder with {min(special)!r} in its "
                "name.",
                2,
            )
        self.class_file, self.settings_file = self.folder / "class.json", self.folder / "hub.json"
        self.removed_file = self.folder / "removed.json"
        self.backup_file = self.folder / "backup.json"
        self.calibration = self.folder / "calibration" / "calibration.json"

    def create(self) -> bool:
        """Make the folder; return whether it is new. Raises CourseError if it cannot be made."""
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                self.folder.mkdir(mode=0o700)
                return True
            self.folder.chmod(0o700)
        except OSError as error:
            raise CourseError(f"{self.folder} cannot be made ({error.strerror}): choose another --state.") from None
        return False

    def members(self) -> dict[str, dict[str, str]]:
        """Return name → role and scrypt of everyone in the class; {} before the first start."""
        return _read(self.class_file)

    def settings(self) -> dict:
        """Return the settings of the last start; {} before the first."""
        return _read(self.settings_file)

    def require_members(self) -> dict[str, dict[str, str]]:
        """Return the members. Raises CourseError (code 2) if there is no class."""
        if not (members := self.members()):
            raise CourseError(f"There is no class in {self.folder}: start one with `launch hub --class FILE`.", 2)
        return members

    def write_members(self, members: dict[str, dict[str, str]]) -> None:
        """Replace the class list; only the operator can read it."""
        _write(self.class_file, json.dumps(members, indent=1).encode())

    def removed(self) -> list[str]:
        """Return the removed names, which logins other than the class list refuse."""
        return list(_read(self.removed_file))

    def write_removed(self, names: Collection[str]) -> None:
        """Replace the list of removed names."""
        _write(self.removed_file, json.dumps(sorted(names)).encode())

    def write_settings(self, settings: dict) -> None:
        """Replace the settings."""
        _write(self.settings_file, json.dumps(settings, indent=1).encode())

    def write_backup_time(self, time: float) -> None:
        """Store when a backup is made, in seconds since the epoch, for the archive."""
        _write(self.backup_file, json.dumps({"time": time}).encode())

    def backup_time(self) -> float | None:
        """Return when the backup was made from which this state was restored; None if it does not say so."""
        return _read(self.backup_file).get("time")

    def restore_files(self, contents: dict[Path, bytes | None]) -> None:
        """Write the files that `file_contents` returned."""
        for path, content in contents.items():
            if content is None:
                path.unlink(missing_ok=True)
            else:
                _write(path, content)

    def file_contents(self) -> dict[Path, bytes | None]:
        """Return the bytes of class list, removed names and settings; None for a file that does not exist."""
        files = (self.class_file, self.removed_file, self.settings_file)
        return {path: path.read_bytes() if path.exists() else None for path in files}


def _read(path: Path) -> dict:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise CourseError(f"{path} cannot be read ({error}): restore it from a backup, or remove it.") from None


def _write(path: Path, content: bytes) -> None:
    """Write a file with mode 0600, whole or not at all."""
    draft, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(draft, "wb") as file:
            file.write(content)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
