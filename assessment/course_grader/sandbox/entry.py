"""Stands between the grader and the ranks' sandboxes: `python -m …sandbox.entry SPEC COMMAND [ARG …]`.

No learner's code runs in this process or in the COMMAND, Horovod's launcher, that it starts: the ranks below that are
shut in, each by bubblewrap. This process sets the limits that processes hand down, runs the command, ends what is left
of it, and copies the weights and the record to where the grader reads them. Where there are `mounts`, `unshare` gave it
a network and file systems of its own. SIGTERM ends the command early. SPEC is a JSON object:

    work     the folder that the scripts work in
    records  for each rank the folder of its record
    taken    where weights and records go (see `outbox`); where this host can't hold them, a link beside it, `problem`,
             says why, by the number of the error: on a full disk nothing can be written
    mounts   folders that need a file system of their own; []: none
    memory   bytes of memory of its own for each process; 0: as many as there are
    disk     bytes that a file, and a file system, may have
    cores    the cores that everything runs on; []: all
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import socket
import struct
import subprocess
import sys
from pathlib import Path

from course_grader.sandbox import outbox
from course_lib.system.supervise import STDERR, supervise

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def main() -> int:
    """Entry point."""
    spec = json.loads(sys.argv[1])
    work, records, taken = Path(spec["work"]), [Path(folder) for folder in spec["records"]], Path(spec["taken"])
    if spec["cores"]:
        os.sched_setaffinity(0, spec["cores"])
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, spec["disk"])
    if spec["memory"]:
        _limit(resource.RLIMIT_DATA, spec["memory"])
    if spec["mounts"]:
        _loopback_up()
    for folder in spec["mounts"]:
        options = f"size={spec['disk']},mode=0700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    for folder in (work / "home", work / "tmp", work / outbox.RECORD, *records):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        code = supervise(sys.argv[2:], lease=STDERR)
    except SystemExit as ended:  # by SIGTERM
        code = ended.code
    try:
        outbox.copy_out(work, records, taken, 2 * spec["disk"])
    except OSError as error:
        (taken.parent / "problem").symlink_to(str(error.errno))
    return code


def _limit(kind: int, limit: int) -> None:
    _, hard = resource.getrlimit(kind)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(kind, (limit, limit))


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16xh14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[0]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


if __name__ == "__main__":
    sys.exit(main())
