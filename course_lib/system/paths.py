"""The course's folder, and its cache on this machine."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]  # with labs/ and assessment/


def cache() -> Path:
    """The cache folder: wheels, drawn data, facts about the installed Horovod. It can be deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "one-model-many-gpus"
