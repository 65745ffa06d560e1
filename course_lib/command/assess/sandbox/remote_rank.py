"""A rank of a run across hosts, in a sandbox on its own host.

    python -m course_lib.command.assess.sandbox.remote_rank SPEC

Horovod's launcher starts it where it would start the script. SPEC is a file that `host_sandboxes` has written into a
folder that all hosts share. What comes out of the sandbox goes there, to `part-R`; the last line of `state-R` then says
how it ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from socket import AF_INET

import psutil

from course_lib.command.assess.contract import Limits
from course_lib.command.assess.sandbox import Sandbox, outbox
from course_lib.ranks import environment, launch
from course_lib.ranks.run import RankCommand, rank_program
from course_lib.system.processes import Supervised

# What the launcher says to this rank alone.
_LAUNCHER_VARIABLES = (
    *("HOROVOD_HOSTNAME", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
    *("HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE", "HOROVOD_CONTROLLER", "HOROVOD_CPU_OPERATIONS"),
    *("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT", "HOROVOD_GLOO_IFACE", "NCCL_SOCKET_IFNAME"),
)


class _Rank:
    """What the sandbox needs of a `launch.Run`, for one process tree whose output nobody here reads."""

    def __init__(self, command: RankCommand) -> None:
        self._reason: str | None = None
        self._process = Supervised(
            [*command.launcher, *command.rank],
            grace=launch.CONFINED_GRACE_S,
            temporary=command.temporary,
            env=command.env,
            cwd="/",
        )
        self.pid = self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def join(self, seconds: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def stop(self, reason: str = "") -> None:
        if self._reason is None:
            self._reason = reason
        self._process.end()

    def wait(self) -> launch.Result:
        code = self._process.wait()
        stopped = self._reason is not None
        return launch.Result(launch.STOPPED if stopped else code, 0.0, message=self._reason or "")


def main() -> int:
    """Entry point."""
    # At the end, Horovod's launcher freezes the process that it has started, as soon as that has no children any more.
    # So it is given one that has nothing left to do then.
    worker = os.fork()
    if worker:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
    spec = Path(sys.argv[1])
    state = spec.parent / f"state-{os.environ['HOROVOD_RANK']}"
    _say(state, {"started": True})
    try:
        code, told = _run(json.loads(spec.read_text()), spec.parent)
    except Exception as error:  # no fault of the script's
        code, told = 1, {"problem": f"{os.environ['HOROVOD_HOSTNAME']}: {str(error) or type(error).__name__}"}
    _say(state, told)
    return code


def _say(state: Path, told: dict) -> None:
    with state.open("a") as file:
        file.write(json.dumps(told) + "\n")


def _run(spec: dict, folder: Path) -> tuple[int, dict[str, str]]:
    number, local = (int(os.environ[name]) for name in ("HOROVOD_RANK", "HOROVOD_LOCAL_RANK"))
    held = spec["held"][os.environ["HOROVOD_HOSTNAME"]]
    env = {**spec["env"], **{name: os.environ[name] for name in _LAUNCHER_VARIABLES if name in os.environ}}
    if held["gpus"]:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, held["taken"]))
    else:
        os.sched_setaffinity(0, {held["taken"][local % len(held["taken"])]})
    files = {Path(host): Path(place) for host, place in spec["files"]}
    (address,) = [one.address for one in psutil.net_if_addrs()[env["HOROVOD_GLOO_IFACE"]] if one.family == AF_INET][:1]
    limits, marks = Limits(**spec["limits"]), list(map(Path, spec["marks"]))
    own = {"marks": marks, "keys": spec["keys"], "rank": number}
    with Sandbox(Path(spec["script"]), limits, 1, files, env, address=address, **own) as box:
        outside = {
            **os.environ,
            environment.FOLDER: str(box.work),
            environment.PROBE: str(box.work / outbox.EVIDENCE),
        }
        command = RankCommand((), rank_program(spec["script"]), outside)
        ending: list[int] = []
        signal.signal(signal.SIGTERM, lambda *_: ending.append(1))
        run = box.begin(lambda confine: _Rank(confine(command)))
        listener = select.poll()
        listener.register(2, 0)  # the launcher has gone when nobody reads our errors any more
        while run.running:
            if ending or listener.poll(0):
                run.stop()
            run.join(0.1)
        with tarfile.open(folder / f"part-{number}", "w") as part:
            part.add(box.folder, ".")
        return 1 if box.ended_by else run.wait().code, {"reason": box.ended_by}


if __name__ == "__main__":
    sys.exit(main())
