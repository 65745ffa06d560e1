"""A restore of the exchange from a backup, which sets new change times (`st_ctime`).

`launch hub restore` writes the times of backup and restore to a file in the folder of assignments, which learners can't
write. Only the restore can have caused a change time between the two. Such a file counts as changed when the backup was
made. Later change times are the learners' own, and count.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from course_grader.hub import times

FILE = ".restored.json"  # {"backup": …, "restored": …}, in seconds since 1970
ROUNDING = timedelta(seconds=1)  # the file may have whole seconds


@dataclass(frozen=True)
class Restore:
    """When the backup was made, and when it had been unpacked; without both there was no restore.

    Attributes:
        sentence: what an instructor has to know; or "".
    """

    backup: datetime | None = None
    unpacked: datetime | None = None
    sentence: str = ""

    def time(self, changed: datetime) -> datetime:
        """Return the time of a change, which is the backup's if unpacking made it."""
        by_unpacking = self.backup and self.unpacked and self.backup < changed <= self.unpacked + ROUNDING
        return self.backup if by_unpacking else changed


def read(outbound: Path) -> Restore:
    """Return the last restore. A file that cannot be used is ignored, with a sentence."""
    path = outbound / FILE
    try:
        stored = json.loads(path.read_text())
        backup, unpacked = (datetime.fromtimestamp(stored[name], timezone.utc) for name in ("backup", "restored"))
        if backup > unpacked:
            raise ValueError
    except FileNotFoundError:
        return Restore()
    except (OSError, ValueError, TypeError, KeyError, OverflowError):
        return Restore(sentence=f"{path} cannot be used: what was restored from a backup may look late.")
    return Restore(
        backup,
        unpacked,
        f"The exchange was restored on {times.shown(unpacked)}: what was in the backup counts as handed in by "
        f"{times.shown(backup)}, when the backup was made.",
    )
