"""Start a script or a function on N Horovod ranks, follow it as a stream of events, leave nothing running.

    with start("train.py", ranks=2) as run:
        for event in run:
            ...
    run.wait().code

    results = call(function, ranks=2)

Horovod's own launchers do the starting (`horovodrun` over Gloo or MPI). Around them stand `supervise`, which
ends the whole process tree, and `rank`, which runs the script in each rank and reports how it ended.
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

GLOO_TIMEOUT_S = 5  # of silence, after which ranks of an elastic run take another for lost; Horovod's default is 30
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
        ranks: how many; default: all slots of the hosts, one for each GPU of this host, else two.
        controller: "gloo" or "mpi"; default: the first that Horovod was built with.
        timeout: seconds after which the run is ended.
        env: adds to the environment of the ranks.
        options: what else there is to say.

    Raises CourseError for a script that is not there, an impossible number of ranks, a missing controller, a host that
    can't be reached or does not see what this one sees, or, with Gloo, this host's name if it does not resolve.
    """
    options = options or Options()
    path = Path(script).absolute()
    if not path.is_file():
        raise CourseError(f"There is no script {script}: give the path of a Python file.", code=2)
    ranks, named, used = _placed(ranks, options.hosts, timeout)
    if options.min_ranks is not None:
        _check_elastic(ranks, options.min_ranks)
        controller = "gloo"
        used = named  # it may move to the others
    controller = _choose(controller)
    hosts = remote.written(used) or None
    variables = environment.of_ranks(_local_ranks(ranks, used), env)
    if options.min_ranks is not None:
        hosts = hosts or _one_rank_each(ranks)
        variables.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", str(GLOO_TIMEOUT_S))
    task = _task(path, args, options)
    wrapper: Sequence[str] = ()
    if not options.confined:  # in a sandbox of its own a rank's host is called localhost
        shared = "give the command in a folder that all hosts share."
        needed = {path: remote.SHARED_FOLDER_ADVICE, Path(task.folder): shared}
        remote.check(used, needed, gloo=controller == "gloo")
    if not options.confine and not all(remote.here(host.name) for host in named):
        # On another host nobody else ends what a rank leaves; the lease is the connection that reads its errors.
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
    """What starts the ranks: horovodrun with its options."""
    command = [sys.executable, "-u", str(PROGRAM_FOLDER / "horovodrun.py"), f"--{controller}", "-np", str(ranks)]
    command += ["--disable-cache"]  # one file for all runs of a user, also of those on other hosts
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
    """What `function()` returns on each of `ranks` ranks (default as in `start`), by Horovod's own `horovod.run`.

    The function goes to the ranks by cloudpickle, with all that it refers to; it calls `hvd.init()` itself. What the
    ranks print is printed here. An interrupt ends all of them.

    Raises CourseError for bad input as `start` does, and with a rank's last words where one fails.
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
    """How many GPUs of this host CUDA_VISIBLE_DEVICES leaves."""
    there = range(len(gpus()))
    return len(list(itertools.takewhile(lambda number: number in there, visible(len(there)))))


def default_ranks() -> int:
    """One rank for each GPU of this host that CUDA_VISIBLE_DEVICES leaves; two where there is none."""
    return visible_gpus() or 2


def controllers() -> tuple[str, ...]:
    """The controllers that the installed Horovod was built with: of "gloo" and "mpi", best first.

    Horovod answers only after TensorFlow is loaded (four seconds), so its answer is kept until the build changes.
    Raises CourseError where Horovod is missing or cannot be loaded.
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
        known = {**known, key: _ask_horovod()}  # one for each installation on this machine
        with contextlib.suppress(OSError):  # without the cache, it takes longer the next time
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
        sentence = f"Horovod does not load within {LOADING_LIMIT_S:.0f} s: run `course doctor`, it says why."
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
        raise CourseError(f"Horovod was built without {controller} here; it has {' and '.join(built)}.", code=2)
    return controller


def _check_elastic(ranks: int, min_ranks: int) -> None:
    if not 1 <= min_ranks <= ranks or ranks < 2:
        raise CourseError(
            f"An elastic run needs two ranks or more and min_ranks from 1 to all, not {min_ranks} of {ranks}.", code=2
        )
    if "gloo" not in controllers():
        raise CourseError("Elastic runs need Gloo, and Horovod was built without it here.", code=2)


def _placed(ranks: int | None, hosts: str | None, timeout: float | None) -> tuple[int, Hosts, Hosts]:
    """How many ranks there are to be, the hosts that are named for them, and their slots that are used.

    Raises CourseError where one of the arguments makes no sense.
    """
    named = () if hosts is None else remote.parse(hosts)
    ranks = ranks if ranks is not None else sum(host.slots for host in named) or default_ranks()
    if ranks < 1:
        raise CourseError(f"A run needs at least one rank, not {ranks}: give -np 1 or more.", code=2)
    if timeout is not None and timeout <= 0:
        raise CourseError(f"The time limit must be more than 0 seconds, not {timeout:g}.", code=2)
    return ranks, named, remote.first(named, ranks) if named else ()


def _local_ranks(ranks: int, hosts: Hosts) -> int:
    """How many of the ranks are on the first of the hosts, which the others are taken to be like."""
    return min(ranks, hosts[0].slots) if hosts else ranks


def _one_rank_each(ranks: int) -> str:
    """As many names of this host as there are ranks: Horovod gives a host up, with all its ranks, when one fails.

    All addresses 127.x.x.x are this host's.
    """
    loopback = ipaddress.ip_address("127.0.0.0")
    return ",".join(f"{name}:1" for name in ("localhost", *(loopback + number for number in range(1, ranks))))
