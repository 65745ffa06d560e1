"""On pretended hosts: what is this machine's root's alone, as Python under /root, is there for every user."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from course_lib.ranks.namespaces import Host

SCRIPT = """
set -e
mkdir -p "/run$1"
mount --bind "$1" "/run$1"
mount -t tmpfs -o mode=755 none "$1"
shift
for path; do
    mkdir -p "$path"
    mount --bind "/run$path" "$path"
done
"""


def let_others_in(host: Host, paths: Iterable[Path]) -> None:
    """Let every user of this host reach folders, also where one above them is closed. This machine stays as it is."""
    within: dict[Path, list[Path]] = {}
    for path in sorted(set(paths)):
        if closed := [parent for parent in path.parents if not parent.stat().st_mode & 1]:
            within.setdefault(closed[-1], []).append(path)
    for closed, inside in within.items():
        done = host.run(["sh", "-c", SCRIPT, "sh", str(closed), *map(str, inside)])
        assert done.returncode == 0, done.stderr
