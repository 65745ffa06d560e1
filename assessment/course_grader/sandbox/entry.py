"""Stands between the grader and the ranks' sandboxes: `python -m …sandbox.entry SPEC COMMAND [ARG …]`.

No learner's code runs in this process or in the COMMAND, Horovod's launcher, that it starts: the ranks below that are
shut in, each by bubblewrap. Where `shared` is set, this process has namespaces of its own for network and files
(`unshare` gave it them): here it makes the folders that the ranks share, of limited size, and one for what each rank
records. It sets the limits that processes hand down, takes the records as they come, runs the command, ends what is
left of it, and puts the weights and the evidence where the grader reads them (see `outbox`). SIGTERM ends the command
early. SPEC is a JSON object:

    work     the folder that the scripts work in
    taken    where weights and evidence go; at most `most` bytes of them
    problem  the place of a link that says, by the number of the error, that this host can't hold what comes out
    shared   folders that need a file system of their own, of `file` bytes each; []: none
    network  true where the network has to be made
    records  one folder for what each rank records, by rank; `keys`: with what each signs it
    data     bytes of memory of its own for each process; 0: as many as there are
    file     bytes that a file may have
    cores    the cores that everything runs on; []: all
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

from course_grader.sandbox import outbox
from course_lib.system.supervise import adopt_orphans, end_tree

GRACE_S = 2.0  # between asking processes to end and killing them
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1


def main() -> int:
    """Entry point."""
    spec = json.loads(sys.argv[1])
    work, taken = Path(spec["work"]), Path(spec["taken"])
    records = {int(rank): Path(folder) for rank, folder in spec["records"].items()}
    if spec["cores"]:
        os.sched_setaffinity(0, spec["cores"])
    if spec["network"]:
        _loopback_up()
    for folder in spec["shared"]:
        options = f"size={spec['file']},mode=0700"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    for name in ("home", "tmp", outbox.EVIDENCE):
        (work / name).mkdir(parents=True, exist_ok=True)
    for rank, folder in records.items():
        folder.mkdir(parents=True, exist_ok=True)
        if key := spec["keys"].get(str(rank)):
            (folder / f"rank-{rank}.key").write_text(key)
    adopt_orphans()
    ending: list[float] = []
    signal.signal(signal.SIGTERM, lambda *_: ending.append(time.monotonic()))
    with outbox.Records(records, taken, spec["most"]) as coming:
        code = _run(sys.argv[2:], ending, spec)
        end_tree(GRACE_S if ending else 0.0)
    try:
        coming.check()
        outbox.hand_out(work, records, taken, spec["most"])
    except OSError as error:
        Path(spec["problem"]).symlink_to(str(error.errno))  # on a full disk nothing can be written
    return code


def _loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16xh14x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))[0]
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | _IFF_UP))


def _limit(spec: dict) -> None:
    limits = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": spec["file"], "RLIMIT_DATA": spec["data"] or resource.RLIM_INFINITY}
    for name, limit in limits.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
        resource.setrlimit(kind, (limit, limit))


def _run(command: list[str], ending: list[float], spec: dict) -> int:
    """Run the command until it ends or, once `ending` holds when its end was asked for, GRACE_S later."""
    process = subprocess.Popen(command, preexec_fn=lambda: _limit(spec))
    while process.poll() is None:
        if ending:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, ending[0] + GRACE_S - time.monotonic()))
            process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


if __name__ == "__main__":
    sys.exit(main())
