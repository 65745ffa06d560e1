"""Where things are: the course's own folder, and what it keeps on a machine between runs."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # with labs/ and assessment/


def cache() -> Path:
    """The folder for what can be made again: wheels, drawn data, what is known of the installed Horovod."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "one-model-many-gpus"
