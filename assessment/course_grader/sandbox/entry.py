"""Run Horovod's launcher outside of the ranks' sandboxes: `python -m …sandbox.entry SPEC COMMAND [ARG …]`.

No learner's code runs in this process or in the COMMAND, Horovod's launcher: bubblewrap confines each rank below. This
process sets the limits that its children inherit, runs the command, ends its processes, and copies the weights and the
record to where the grader reads them. If there are `mounts`, `unshare` has given it its own network and mount
namespace. SIGTERM ends the command early. SPEC is a JSON object:

    work     the working directory of the scripts
    records  the folder of each rank's record
    copied   the folder for weights and records (see `outbox`). If this host has no room for them, the target of a
             symbolic link beside it, `problem`, is the error's number: on a full disk no file can be written
    mounts   folder → largest size in bytes of the file system in memory that it gets; {}: none
    kernels  folder with compiled GPU kernels → folders that get a copy (see `gpu_kernels`); {}: none
    memory   bytes of private memory for each process; 0: no limit
    disk     largest size of a file in bytes
    cores    the cores for all processes; []: all
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

from course_grader.sandbox import gpu_kernels, outbox
from course_lib.system.supervise import STDERR, supervise

_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def main() -> int:
    """Run the command; return its exit code."""
    spec = json.loads(sys.argv[1])
    work, records, copied = Path(spec["work"]), [Path(folder) for folder in spec["records"]], Path(spec["copied"])
    if spec["cores"]:
        os.sched_setaffinity(0, spec["cores"])
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, spec["disk"])
    if spec["memory"]:
        _limit(resource.RLIMIT_DATA, spec["memory"])
    if spec["mounts"]:
        _loopback_up()
    for folder, size in spec["mounts"].items():
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", folder], check=True)
    for source, copies in spec["kernels"].items():
        for folder in copies:
            gpu_kernels.copy(source, folder)
    for folder in (work / "home", work / "tmp", work / outbox.RECORD, *records):
        folder.mkdir(parents=True, exist_ok=True)
    try:
        code = supervise(sys.argv[2:], lease=STDERR)
    except SystemExit as ended:  # by SIGTERM
        code = ended.code
    try:
        outbox.copy_out(work, records, copied, 2 * spec["disk"])
    except OSError as error:
        (copied.parent / "problem").symlink_to(str(error.errno))
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
