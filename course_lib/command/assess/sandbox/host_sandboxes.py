"""The sandbox of a run across hosts: Horovod's launcher stands outside, and each rank has a sandbox of its own.

What `sandbox` keeps from a script is kept from it on every host, but for the network, over which the ranks speak to
each other. The ranks' sandboxes (see `remote_rank`) get the script, and give what comes out, through a folder that all
hosts share.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from course_lib.command.assess import sandbox
from course_lib.command.assess.contract import Limits
from course_lib.command.assess.sandbox import outbox
from course_lib.command.assess.sandbox.slot_holder import HeldSlots
from course_lib.ranks import launch, remote
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

COLLECTION_LIMIT_S = launch.CONFINED_GRACE_S + 7.0  # from the end of the run to that of the ranks' sandboxes
POLL_INTERVAL_S = 0.1
# Debian 12's Python has no filters; `outbox.hand_out` takes only what is a rank's to give, wherever it came from.
_AS_DATA = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
WEAKNESSES = (
    "The ranks are on several hosts: the script can use the network.",
    "The bytes that the ranks sent each other were not counted.",
)


class HostSandboxes:
    """As `sandbox.Sandbox`, for ranks on `hosts`; `held` are the slots that are held there."""

    use = ()

    def __init__(
        self,
        script: Path,
        limits: Limits,
        hosts: Sequence[remote.Host],
        held: Mapping[str, HeldSlots],
        files: Mapping[Path, Path],
        env: Mapping[str, str],
        seconds: float,
        marks: Sequence[Path] = (),
        keys: Sequence[str] = (),
    ) -> None:
        problems = {name: one.problem for name, one in held.items() if one.problem}
        self.kind, self.others = "none" if problems else "bubblewrap", None
        self.weaknesses = WEAKNESSES
        if problems:
            self.weaknesses += (*(f"No sandbox on {name}: {problem}" for name, problem in problems.items()),)
            self.weaknesses += sandbox.WEAKNESSES[1:]
        self._limits, self._hosts, self._seconds = limits, tuple(hosts), seconds
        self._ranks = sum(host.slots for host in hosts)
        self._run: launch.Run | None = None
        self._collector: threading.Thread | None = None
        self._ended_by, self._problem = "", ""
        self._private = Path(tempfile.mkdtemp(prefix=sandbox.FOLDER_PREFIX))
        self._script = self._private / sandbox.SCRIPT.name
        shutil.copyfile(script, self._script)
        spec = {
            "script": str(self._script),
            "limits": asdict(limits),
            "files": [[str(Path(host).absolute()), str(place)] for host, place in files.items()],
            "env": dict(env),
            "keys": list(keys),
            "marks": list(map(str, marks)) if not problems else [],
            "held": {name: {"taken": one.taken, "gpus": one.gpus} for name, one in held.items()},
        }
        (self._private / "spec.json").write_text(json.dumps(spec))
        for rank in range(self._ranks):  # so that no host remembers that they are not there
            for name in ("state", "part"):
                (self._private / f"{name}-{rank}").touch()

    def __enter__(self) -> HostSandboxes:
        return self

    def __exit__(self, *_: object) -> None:
        if self._run:
            self._run.stop()
            self._collector.join()
        shutil.rmtree(self._private, ignore_errors=True)

    def start(self, ranks: int, *, patience: float) -> launch.Run:
        """Start the script; see `Sandbox.start`. `ranks` are as many as the hosts have slots."""
        self._run = launch.start(
            self._script,
            ranks=ranks,
            controller="gloo",
            hosts=remote.written(self._hosts),
            timeout=self._seconds,
            patience=patience,
            confine=self._confine,
            output_limit=self._limits.output * sandbox.MB,
        )
        self._collector = threading.Thread(target=self._collect, daemon=True)
        self._collector.start()
        return self._run

    @property
    def folder(self) -> Path:
        self._ended()
        return self._private / "taken"

    @property
    def ended_by(self) -> str:
        self._ended()
        return self._ended_by

    def _ended(self) -> None:
        self._collector.join()
        if self._problem:
            raise CourseError(self._problem, code=2)

    def _confine(self, command: launch.RankCommand) -> launch.RankCommand:
        program = (sys.executable, "-m", "course_lib.command.assess.sandbox.remote_rank")
        return replace(
            command,
            rank=(*program, str(self._private / "spec.json")),
            env={**command.env, "PYTHONPATH": str(ROOT)},
            temporary=self._private,
        )

    def _collect(self) -> None:
        result = self._run.wait()
        deadline = time.monotonic() + COLLECTION_LIMIT_S
        states = [self._state(rank, deadline) for rank in range(self._ranks)]
        reasons = [state["reason"] for state in states if state.get("reason")]
        if reasons:
            self._ended_by = reasons[0]
        elif result.code in (launch.TIMED_OUT, launch.STOPPED):
            self._ended_by = result.message
        try:
            self._problem = next((state["problem"] for state in states if state.get("problem")), "")
            for rank in range(self._ranks):
                self._collect_rank(rank)
        except OSError as error:
            self._problem = f"What came out of the sandboxes cannot be held here: {error.strerror or error}."

    def _state(self, rank: int, deadline: float) -> dict:
        """What the sandbox of a rank says last; {} for one that has not started or does not end."""
        while True:
            *lines, _ = (self._private / f"state-{rank}").read_text(errors="replace").split("\n")
            if len(lines) > 1 or not lines or time.monotonic() > deadline:
                return json.loads(lines[-1]) if len(lines) > 1 else {}
            time.sleep(POLL_INTERVAL_S)

    def _collect_rank(self, rank: int) -> None:
        """Keep of what a rank's sandbox gave what is that rank's to give."""
        taken, given = self._private / "taken", self._private / f"given-{rank}"
        (taken / outbox.EVIDENCE).mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(tarfile.ReadError), tarfile.open(self._private / f"part-{rank}") as part:
            part.extractall(given, **_AS_DATA)
        outbox.hand_out(given, {rank: given / outbox.EVIDENCE}, taken, 2 * self._limits.disk * sandbox.MB)
