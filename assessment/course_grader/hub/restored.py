"""A restore of the exchange from a backup, which makes change times (`st_ctime`) of its own.

`launch hub restore` notes it in a file among what is handed out, where no learner can write. A change between the
backup and the end of unpacking can only come from unpacking: the file is then one of the backup, and counts as changed
when the backup was made. What learners change after that has later times, which count.
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
