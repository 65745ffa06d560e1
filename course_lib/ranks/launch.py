"""Start a script or a function on N Horovod ranks, follow its events, and end all of its processes.

    with start("train.py", ranks=2) as run:
        for event in run:
            ...
    run.wait().code

    results = call(function, ranks=2)

Horovod's launcher (`horovodrun` over Gloo or MPI) starts the ranks. It runs under `supervise`, which ends the whole
process tree; each rank runs `rank`, which runs the script and reports its exit code.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cloudpickle

from course_lib.ranks import environment, remote
from course_lib.ranks.environment import ONE_THREAD
from course_lib.ranks.rank import RankTask
from course_lib.ranks.run import PROGRAM_FOLDER, STOPPED, Confine, Event, Options, RankCommand, Result, Run
from course_lib.system import paths, supervise
from course_lib.system.errors import CourseError, last_line
from course_lib.system.files import write
from course_lib.system.gpus import names as gpus
from course_lib.system.gpus import visible
from course_lib.system.supervise import TIMED_OUT

__all__ = ["ONE_THREAD", "STOPPED", "TIMED_OUT", "Confine", "Event", "Options", "RankCommand", "Result", "Run"]
__all__ += ["call", "controllers", "default_ranks", "gpus", "start", "visible_gpus"]

Hosts = tuple[remote.Host, ...]

GLOO_TIMEOUT_S = 5  # without an answer, ranks of an elastic run regard another as lost; Horovod's default is 30
LOADING_LIMIT_S = 120.0  # for TensorFlow and Horovod, on a busy host


def start(
    script: str | Path,
    args: Sequence[object] = (),
    ranks: int | None = None,
    *,
    controller: str | None = None,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
    options: Options | None = None,
) -> Run:
    """Start `script` on N Horovod ranks.

    Args:
        script: path of a Python script.
        args: its arguments.
        ranks: number of ranks; default: all slots of the hosts, else one for each GPU of this host, else two.
        controller: "gloo" or "mpi"; default: the first with which Horovod was built.
        timeout: seconds after which the run is ended.
        env: variables to add to the environment of the ranks.
        options: further settings.

    Raises:
        CourseError: the script is missing; the number of ranks is invalid; Horovod lacks the controller; a host can't
            be reached or has other files or versions; with Gloo, the name of this host does not resolve.
    """
    options = options or Options()
    path = Path(script).absolute()
    if not path.is_file():
        raise CourseError(f"There is no script {script}: give the path of a Python file.", code=2)
    ranks, named, used = _placed(ranks, options.hosts, timeout)
    if options.min_ranks is not None:
        _check_elastic(ranks, options.min_ranks)
        controller = "gloo"
        used = named  # an elastic run may move to the other hosts
    controller = _choose(controller)
    hosts = remote.written(used) or None
    variables = environment.of_ranks(_local_ranks(ranks, used), env)
    if options.min_ranks is not None:
        hosts = hosts or _one_rank_each(ranks)
        variables.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", str(GLOO_TIMEOUT_S))
    task = _task(path, args, options)
    wrapper: Sequence[str] = ()
    if not options.confined:  # in a rank's own sandbox the host is localhost
        shared = "run the command in a folder that all hosts share."
        needed = {path: remote.SHARED_FOLDER_ADVICE, Path(task.folder): shared}
        remote.check(used, needed, gloo=controller == "gloo")
    if not options.confine and not all(remote.here(host.name) for host in named):
        # On another host only this wrapper ends the processes of a rank. Its lease is the pipe of standard error.
        wrapper = supervise.command_line([], lease=supervise.STDERR)
    command = RankCommand(_launcher(controller, ranks, hosts, options.min_ranks), variables, task, tuple(wrapper))
    return Run(options.confine(command) if options.confine else command, ranks, timeout=timeout, options=options)


def _task(script: Path, args: Sequence[object], options: Options) -> RankTask:
    return RankTask(
        str(script),
        tuple(map(str, args)),
        os.path.abspath(options.cwd or os.getcwd()),
        os.path.abspath(options.record) if options.record else None,
        os.path.abspath(options.profile) if options.profile else None,
        options.training_events,
        options.cores,
        options.fake_gpus,
    )


def _launcher(controller: str, ranks: int, hosts: str | None, min_ranks: int | None) -> tuple[str, ...]:
    """The command line of horovodrun."""
    command = [sys.executable, "-u", str(PROGRAM_FOLDER / "horovodrun.py"), f"--{controller}", "-np", str(ranks)]
    command += ["--disable-cache"]  # all runs of a user would share one cache file, on other hosts too
    command += ["-H", hosts] if hosts else []
    command += ["--min-np", str(min_ranks), "--max-np", str(ranks)] if min_ranks is not None else []
    return tuple(command)


def call(
    function: Callable[[], Any],
    ranks: int | None = None,
    *,
    controller: str | None = None,
    hosts: str | None = None,
    timeout: float | None = None,
    env: Mapping[str, str] | None = None,
) -> list[Any]:
    """Call `function()` on N ranks with `horovod.run`; return the results in rank order.

    The output of the ranks is printed here. An interrupt ends all ranks.

    Args:
        function: sent to the ranks by cloudpickle, with everything that it refers to; it calls `hvd.init()` itself.
        ranks, controller, timeout, env: as in `start`.
        hosts: Horovod's `host:slots,…`; default: this host.

    Raises:
        CourseError: for invalid arguments as in `start`, or if a rank fails.
    """
    ranks, _, used = _placed(ranks, hosts, timeout)
    hosts = remote.written(used) or None
    controller = _choose(controller)
    remote.check(used, gloo=controller == "gloo")
    with tempfile.TemporaryDirectory(prefix="course-") as folder:
        (Path(folder) / "function.pkl").write_bytes(cloudpickle.dumps(function))
        launcher = [sys.executable, str(PROGRAM_FOLDER / "run_function.py"), folder, str(ranks), controller]
        launcher += [hosts] if hosts else []
        variables = environment.of_ranks(_local_ranks(ranks, used), env)
        with Run(RankCommand(tuple(launcher), variables), ranks, timeout=timeout) as run:
            for event in run:
                if event.kind == "output" and event.data["stream"] == "stdout":
                    print(f"[{event.rank}] {event.data['text']}", flush=True)
        run.wait().check()
        return cloudpickle.loads((Path(folder) / "results.pkl").read_bytes())


def visible_gpus() -> int:
    """The number of GPUs of this host that are visible under CUDA_VISIBLE_DEVICES."""
    there = range(len(gpus()))
    return len(list(itertools.takewhile(lambda number: number in there, visible(len(there)))))


def default_ranks() -> int:
    """The default number of ranks: one for each visible GPU of this host, or two without GPUs."""
    return visible_gpus() or 2


def controllers() -> tuple[str, ...]:
    """The controllers with which the installed Horovod was built, "gloo" or "mpi", the preferred one first.

    Horovod answers only after TensorFlow is loaded, which takes four seconds, so the answer is cached for each build.
    Raises CourseError if Horovod is not installed or does not load.
    """
    spec = find_spec("horovod")
    if spec is None or not spec.origin:
        raise CourseError("Horovod is not installed in this environment: run `course setup`.", code=2)
    build = next(Path(spec.origin).parent.glob("tensorflow/mpi_lib*.so"), Path(spec.origin))
    key = f"{build}:{build.stat().st_mtime_ns}"
    cache = paths.cache() / "controllers.json"
    try:
        known = json.loads(cache.read_text())
    except (OSError, ValueError):
        known = {}
    if key not in known:
        known = {**known, key: _ask_horovod()}  # one entry for each installation on this machine
        with contextlib.suppress(OSError):  # without a cache, the next call is slow too
            write(cache, json.dumps(known).encode())
    return tuple(known[key])


def _ask_horovod() -> list[str]:
    ask = "import horovod.tensorflow as h; print('built', *['gloo'] * h.gloo_built(), *['mpi'] * h.mpi_built())"
    env = {**environment.TENSORFLOW, **os.environ}
    try:
        answer = subprocess.run(
            [sys.executable, "-c", ask], capture_output=True, text=True, env=env, timeout=LOADING_LIMIT_S
        )
    except subprocess.TimeoutExpired:
        sentence = f"Horovod did not load within {LOADING_LIMIT_S:.0f} s: run `course doctor` to find out why."
        raise CourseError(sentence, code=2) from None
    lines = [line.split()[1:] for line in answer.stdout.splitlines() if line.startswith("built")]
    if not lines or not lines[0]:
        reason = last_line(answer.stderr)
        raise CourseError(f"Horovod does not load ({reason}): run `course setup` to build it again.", code=2)
    return lines[0]


def _choose(controller: str | None) -> str:
    built = controllers()
    if controller is None:
        return built[0]
    if controller not in built:
        raise CourseError(f"Horovod was built without {controller}: use {' or '.join(built)}.", code=2)
    return controller


def _check_elastic(ranks: int, min_ranks: int) -> None:
    if not 1 <= min_ranks <= ranks or ranks < 2:
        raise CourseError(
            f"An elastic run needs at least 2 ranks, and min_ranks from 1 to their number, not {min_ranks} of {ranks}.",
            code=2,
        )
    if "gloo" not in controllers():
        raise CourseError("Elastic runs need Gloo, but Horovod was built without it.", code=2)


def _placed(ranks: int | None, hosts: str | None, timeout: float | None) -> tuple[int, Hosts, Hosts]:
    """The number of ranks, the given hosts, and the hosts with the slots that are used.

    Raises CourseError for an invalid argument.
    """
    named = () if hosts is None else remote.parse(hosts)
    ranks = ranks if ranks is not None else sum(host.slots for host in named) or default_ranks()
    if ranks < 1:
        raise CourseError(f"A run needs at least one rank, not {ranks}: give -np 1 or more.", code=2)
    if timeout is not None and timeout <= 0:
        raise CourseError(f"The time limit must be more than 0 seconds, not {timeout:g}.", code=2)
    return ranks, named, remote.first(named, ranks) if named else ()


def _local_ranks(ranks: int, hosts: Hosts) -> int:
    """The number of ranks on the first host; the other hosts are assumed to be equal."""
    return min(ranks, hosts[0].slots) if hosts else ranks


def _one_rank_each(ranks: int) -> str:
    """Different names of this host, one for each rank: an elastic run drops a host with all its ranks when one fails.

    All addresses 127.x.x.x belong to this host.
    """
    loopback = ipaddress.ip_address("127.0.0.0")
    return ",".join(f"{name}:1" for name in ("localhost", *(loopback + number for number in range(1, ranks))))
