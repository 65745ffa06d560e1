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

import codecs
import contextlib
import io
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any

import cloudpickle

from course_lib import places, remote
from course_lib.errors import CourseError, last_line
from course_lib.rank import MARK
from course_lib.supervise import GRACE, TIMED_OUT

HERE = Path(__file__).parent
STOPPED = 130
TAIL = 20  # last lines kept of each rank
AFTER_FAILURE = 4.0  # seconds that the other ranks get to end by themselves
ONE_THREAD = {"OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
OPEN_MPI = {
    # It refuses to run as root, as in containers, unless told twice.
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    # Horovod's thread spins while it waits for a message: it must let the thread that computes have the core.
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
SILENCE = 5  # seconds of silence after which ranks of an elastic run take another for lost; Horovod's own limit is 30
GRACE_CONFINED = 8.0  # seconds that what is confined gets to hand out what it has, at the end
LONGEST = 2**16  # characters of a line of output; the rest of it is dropped
LATEST = 1e11  # seconds since the epoch: a time beyond that is none
PER_LINE = 100  # bytes that a line counts beside its own: so much it takes in memory, however short it is
# On another host nobody but this ends what a rank leaves behind; its lease is the connection that reads its errors.
ABROAD = [sys.executable, str(HERE / "supervise.py"), f"0:{GRACE}:2"]
AFTER_END = 10.0  # seconds for shutting down after the last script has ended; what is left then is ended

_TAG = re.compile(r"^\[(?:\d+,)?(\d{1,9})\]<(stdout|stderr)>:")
_MPI_TAG = re.compile(r"\[\d+,\d+\]<(?:stdout|stderr)>:")
_FAILED = (
    re.compile(r"Process (?P<rank>\d{1,9}) exit with status code (?P<code>-?\d{1,9})"),  # horovodrun over Gloo
    re.compile(r"process rank (?P<rank>\d{1,9}) with PID .* exited on signal (?P<signal>\d{1,3})"),  # mpirun
)
_OURS = ("output", "exit", "stage")  # kinds of events that no rank can tell
_LAUNCHER_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): (?P<reason>.+)")


@dataclass(frozen=True)
class Event:
    """One thing that happened: `kind`, the rank it happened in (None: the run as a whole), seconds since the start.

    Kinds: `output` (stream, text), `exit` (code, message; always the last) and, from ranks with a probe,
    `fit`, `batch` and `epoch` (see `course_lib.probe`).
    """

    kind: str
    rank: int | None
    time: float
    data: dict


@dataclass(frozen=True)
class Result:
    """How a run ended: exit code, seconds, the rank that failed (None: none did), one sentence, that rank's tail
    and the reason that it gave itself."""

    code: int
    seconds: float
    failed_rank: int | None = None
    message: str = ""
    tail: tuple[str, ...] = ()
    reason: str = ""


@dataclass
class _Failures:
    """What is known of failed ranks, from the ranks themselves and from the launcher."""

    told: dict[int, tuple[float, int]] = field(default_factory=dict)  # rank → when it failed, code
    seen: dict[int, int] = field(default_factory=dict)  # rank → code, as the launcher saw it

    def count(self) -> int:
        """How many ranks failed, or were ended by the launcher."""
        return len(self.told.keys() | self.seen.keys())

    def first(self) -> tuple[int, int] | None:
        """The rank that failed first and its exit code. The failures of the others follow from the first."""
        told = {r: code for r, (_, code) in sorted(self.told.items(), key=lambda item: item[1][0])}
        by_launcher = (128 + signal.SIGTERM, -signal.SIGTERM)  # which ends the others, or their shells
        ended = [(rank, code) for rank, code in self.seen.items() if code not in by_launcher]
        # A rank that was killed had no time to tell, but ended before those that its end made fail. The launcher too
        # kills, in the end, who does not heed it: after the rank that failed first.
        if ended and ended[0][0] not in told:
            return ended[0]
        return next(iter((told or self.seen).items()), None)


class Run:
    """A script running on N ranks: iterate over it for its events, `stop()` it, `wait()` for its `Result`.

    Events that nobody reads wait in memory; several readers share them.
    """

    def __init__(
        self,
        command: list[str],
        ranks: int,
        env: Mapping[str, str],
        timeout: float,
        patience: float = float("inf"),
        spare: int = 0,
        output_limit: int | None = None,
        grace: float = GRACE,
    ) -> None:
        self._started = time.time()
        self._ranks = ranks
        self._spare = spare  # so many ranks may fail
        self._unfinished = set(range(ranks))
        self._timeout = timeout
        self._patience = patience
        self._last_step: float | None = None
        self._events: queue.Queue[Event] = queue.Queue()
        self._failures = _Failures()
        self._tails: dict[int | None, deque[str]] = {}
        self._reasons: dict[int, str] = {}  # in a failed rank's own words, where it gave any
        self._ending = ""  # why we end the run: "stopped", "stalled" or "late"; what ranks do after that is no failure
        self._stop_reason = "Stopped."
        self._output_limit, self._printed = output_limit, 0
        self._result: Result | None = None
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "supervise.py"), f"{timeout}:{grace}", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=env,
            cwd="/",  # `rank` goes to the script's folder; the launchers must not import what lies there
            start_new_session=True,
        )
        self._readers = [
            threading.Thread(target=self._read, args=(stream, name), daemon=True)
            for stream, name in ((self._process.stdout, "stdout"), (self._process.stderr, "stderr"))
        ]
        self._closer = threading.Thread(target=self._close, daemon=True)
        for thread in (*self._readers, self._closer):
            thread.start()

    def __iter__(self) -> Iterator[Event]:
        while self._result is None or not self._events.empty():
            try:
                event = self._events.get(timeout=0.2)
            except queue.Empty:
                continue
            yield event
            if event.kind == "exit":
                return

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.wait()

    @property
    def started(self) -> float:
        """When the run was started, in seconds since the epoch: the zero of the events' times."""
        return self._started

    @property
    def running(self) -> bool:
        """True until the run and all its processes have ended."""
        return self._result is None

    @property
    def pid(self) -> int:
        """Process number of `supervise`, the root of the run's process tree."""
        return self._process.pid

    def stop(self, reason: str = "Stopped.") -> None:
        """End the run and its whole process tree; return at once (`wait` for the end). Any thread may call it.

        `reason` becomes the message of the result, unless a rank has failed before.
        """
        if not self._ending:
            self._stop_reason = reason
        self._end("stopped")

    def wait(self) -> Result:
        """Wait until every process of the run has ended; return how it went."""
        while self._closer.is_alive():
            self._closer.join(0.2)  # in slices, so that Ctrl-C is noticed
        assert self._result is not None
        return self._result

    def join(self, seconds: float) -> None:
        """Wait until the run has ended, `seconds` at most."""
        self._closer.join(seconds)

    def _end(self, why: str = "") -> None:
        self._ending = self._ending or why
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def _read(self, stream: IO[bytes], name: str) -> None:
        for line in _lines(stream):
            self._printed += len(line) + PER_LINE
            if self._output_limit is not None and self._printed > self._output_limit:
                self.stop(f"It printed more than {self._output_limit / 2**20:g} MB.")
                continue  # read on, so that what prints can end
            tag = _TAG.match(line)
            rank = int(tag.group(1)) if tag and int(tag.group(1)) < self._ranks else None
            text = line[tag.end() :] if tag else line
            if rank is not None and MARK in text:
                self._record(rank, text.partition(MARK)[2])
                continue
            text = _MPI_TAG.sub("", text) if tag and "," in tag.group() else text
            self._tails.setdefault(rank, deque(maxlen=TAIL)).append(text)
            if rank is not None:
                self._put("output", rank, time.time(), {"stream": tag.group(2), "text": text})
            else:
                self._note_launcher(text)

    def _record(self, rank: int, text: str) -> None:
        record = _parse(text)
        if record is None:
            return
        kind, when = record.pop("kind"), record.pop("time")
        if kind == "rank-exit":
            code, reason = record.get("code"), record.get("reason", "")
            self._unfinished.discard(rank)
            if code and not self._ending:
                code = int(code) if isinstance(code, int) and abs(code) < 256 else 1
                self._failures.told.setdefault(rank, (when, code))
                self._reasons[rank] = reason if isinstance(reason, str) else ""
                self._mind_failures()
            if not self._unfinished and not self._too_many_failed:
                self._hurry(AFTER_END, "late")  # a daemon that holds the output open would keep the launcher waiting
        elif kind not in _OURS:
            self._put(kind, rank, when, record)

    def _note_launcher(self, text: str) -> None:
        for pattern in _FAILED:
            if not self._ending and (found := pattern.search(text)):
                groups = found.groupdict()
                if int(groups["rank"]) >= self._ranks:
                    continue
                code = int(groups["code"]) if "code" in groups else 128 + int(groups["signal"])
                self._failures.seen.setdefault(int(groups["rank"]), code)
                self._unfinished.discard(int(groups["rank"]))
                self._mind_failures()

    @property
    def _too_many_failed(self) -> bool:
        return self._failures.count() > self._spare

    def _mind_failures(self) -> None:
        if self._too_many_failed:
            self._hurry(AFTER_FAILURE)

    def _hurry(self, seconds: float, why: str = "") -> None:
        timer = threading.Timer(seconds, self._end, [why])
        timer.daemon = True
        timer.start()

    def _put(self, kind: str, rank: int | None, when: float, data: dict) -> None:
        if kind in ("batch", "epoch", "images"):
            self._last_step = time.monotonic()
        self._events.put(Event(kind, rank, when - self._started, data))

    def _close(self) -> None:
        while True:
            try:
                code = self._process.wait(0.5)
                break
            except subprocess.TimeoutExpired:
                if self._last_step and time.monotonic() - self._last_step > self._patience:
                    self._end("stalled")
        for reader in self._readers:
            reader.join(5)
        self._end()
        result = self._judge(code, time.time() - self._started)
        self._put("exit", None, time.time(), {"code": result.code, "message": result.message})
        self._result = result

    def _judge(self, code: int, seconds: float) -> Result:
        if code == TIMED_OUT and self._timeout:
            return Result(TIMED_OUT, seconds, message=f"Stopped at the time limit of {self._timeout:g} s.")
        failed = self._failures.first()
        if failed and (self._too_many_failed or (code and self._ending != "late")):
            rank, rank_code = failed
            how = f"failed with exit code {rank_code}"
            if rank_code > 128 and rank not in self._failures.told:
                how = f"was killed by {_signal_name(rank_code - 128)}"
            tail, reason = tuple(self._tails.get(rank, ())), self._reasons.get(rank, "")
            return Result(rank_code, seconds, rank, f"Rank {rank} {how}.", tail, reason)
        if self._ending == "stalled":
            waited = f"No rank made a step for {self._patience:g} s: the ranks wait for each other."
            return Result(TIMED_OUT, seconds, message=waited)
        if self._ending == "stopped":
            return Result(STOPPED, seconds, message=self._stop_reason)
        if code == 0 or self._ending == "late":
            return Result(0, seconds)
        tail = tuple(self._tails.get(None, ()))
        if code == 128 + signal.SIGKILL:
            return Result(code, seconds, None, f"Horovod's launcher was killed by {_signal_name(code - 128)}.", tail)
        reasons = [found.group("reason") for line in tail if (found := _LAUNCHER_ERROR.match(line))]
        reason = (
            reasons[-1] if reasons else next((line for line in reversed(tail) if line.strip()), f"exit code {code}")
        )
        return Result(code, seconds, None, f"Horovod could not start the ranks: {reason}", tail)


def start(
    script: str | Path,
    args: Sequence[str] = (),
    ranks: int | None = None,
    *,
    controller: str | None = None,
    hosts: str | None = None,
    min_ranks: int | None = None,
    timeout: float | None = None,
    patience: float = float("inf"),
    probe: Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    confine: Callable[[list[str], dict[str, str]], tuple[list[str], dict[str, str]]] | None = None,
    output_limit: int | None = None,
) -> Run:
    """Start `script` with `args` on `ranks` Horovod ranks (default: one per GPU of this host, else two).

    `controller` is "gloo" or "mpi" (default: the first that Horovod was built with); `hosts` is Horovod's
    `host:slots,…` (default: this host), of which the first slots are taken, all where no `ranks` are given;
    `min_ranks` makes the run elastic: it goes on while so many ranks are left,
    and succeeds if they reach the end; `timeout` in seconds; `patience` the seconds without a training
    step on any rank after which the ranks count as deadlocked and are ended (it needs a probe); `probe` a folder
    for the evidence that each rank records (see `course_lib.probe`); `env` adds to the environment of the ranks;
    `confine` makes of the launcher's command and environment what is run in their place; `output_limit` in bytes,
    where each line counts PER_LINE more than it has.

    Raises CourseError for a script that is not there, an impossible number of ranks, a missing controller, or a host
    that can't be reached or does not see what this one sees.
    """
    path = Path(script).absolute()
    ranks, named = _ranks(ranks, hosts)
    if not path.is_file():
        raise CourseError(f"There is no script {script}: give the path of a Python file.", code=2)
    _check_numbers(ranks, timeout)
    used = remote.first(named, ranks) if named else ()
    hosts = remote.written(used if min_ranks is None else named) or None  # an elastic run may move to the others
    environment = _environment(ranks, hosts, probe, env or {})
    if min_ranks is not None:
        _check_elastic(ranks, min_ranks)
        controller, hosts = "gloo", hosts or _one_rank_each(ranks)
        environment.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", str(SILENCE))
    controller = _choose(controller)
    command = [sys.executable, "-u", str(HERE / "horovodrun.py"), f"--{controller}", "-np", str(ranks)]
    command += ["--disable-cache"]  # one file for all runs of a user, also of those on other hosts
    command += ["-H", hosts] if hosts else []
    command += ["--min-np", str(min_ranks), "--max-np", str(ranks)] if min_ranks is not None else []
    folder = os.path.abspath(cwd or os.getcwd())
    if not confine and not all(remote.here(host.name) for host in named):
        shared = "give the command in a folder that all hosts share."
        paths = {path: remote.SHARED, Path(folder): shared}
        remote.check(named if min_ranks is not None else used, paths, gloo=controller == "gloo")
        command += ABROAD
    command += [sys.executable, str(HERE / "rank.py"), str(path)]
    environment["COURSE_FOLDER"] = folder
    # Not on the command line, where horovodrun would take `--hosts` or `--a` for options of its own.
    environment["COURSE_ARGUMENTS"] = json.dumps([str(arg) for arg in args])
    if confine:
        command, environment = confine(command, environment)
    grace = GRACE_CONFINED if confine else GRACE
    spare = ranks - (min_ranks or ranks)
    return Run(command, ranks, environment, timeout or 0, patience, spare, output_limit, grace)


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
    ranks, named = _ranks(ranks, hosts)
    _check_numbers(ranks, timeout)
    used = remote.first(named, ranks) if named else ()
    hosts = remote.written(used) or None
    controller = _choose(controller)
    remote.check(used, gloo=controller == "gloo")
    with tempfile.TemporaryDirectory(prefix="course-") as folder:
        (Path(folder) / "function.pkl").write_bytes(cloudpickle.dumps(function))
        command = [sys.executable, str(HERE / "run_function.py"), folder, str(ranks), controller]
        command += [hosts] if hosts else []
        with Run(command, ranks, _environment(ranks, hosts, None, env or {}), timeout or 0) as run:
            for event in run:
                if event.kind == "output" and event.data["stream"] == "stdout":
                    print(f"[{event.rank}] {event.data['text']}", flush=True)
        result = run.wait()
        if result.code:
            words = result.reason or next((line for line in reversed(result.tail) if line.strip()), "")
            raise CourseError(f"{result.message} {words}".strip(), result.code)
        return cloudpickle.loads((Path(folder) / "results.pkl").read_bytes())


def default_ranks() -> int:
    """One rank for each GPU of this host; two where there is none."""
    return len(gpus()) or 2


def gpus() -> list[str]:
    """Names of the NVIDIA GPUs of this host, as its driver lists them; empty where there is none."""
    if not shutil.which("nvidia-smi"):
        return []
    listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=20)
    return re.findall(r"^GPU \d+: (.+?) \(UUID", listing.stdout, re.MULTILINE) if listing.returncode == 0 else []


def controllers() -> tuple[str, ...]:
    """The controllers that the installed Horovod was built with: of "gloo" and "mpi", best first.

    Horovod answers only after TensorFlow is loaded (four seconds), so its answer is kept until the build changes.
    Raises CourseError where Horovod is missing or cannot be loaded.
    """
    spec = find_spec("horovod")
    if spec is None:
        raise CourseError("Horovod is not installed in this environment: run `course setup`.", code=2)
    build = next(Path(spec.origin).parent.glob("tensorflow/mpi_lib*.so"), Path(spec.origin))
    key = f"{build}:{build.stat().st_mtime_ns}"
    memory = places.cache() / "controllers.json"
    try:
        known = json.loads(memory.read_text())
    except (OSError, ValueError):
        known = {}
    if key not in known:
        known = {key: _ask_controllers()}
        _write(memory, json.dumps(known))
    return tuple(known[key])


def _lines(stream: IO[bytes]) -> Iterator[str]:
    """The lines of a stream, of each the first LONGEST characters."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")("replace"), translate=True)
    rest, cut = "", False
    while chunk := stream.read(2**16):
        *lines, rest = (rest + decoder.decode(chunk)).split("\n")
        for line in lines:
            if not cut:
                yield line[:LONGEST]
            cut = False
        if len(rest) > LONGEST and not cut:
            yield rest[:LONGEST]
            cut = True
        rest = "" if cut else rest
    if rest:
        yield rest


def _parse(text: str) -> dict | None:
    """A rank's record; None for what is none: cut short by a kill, or the script's own invention."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        return None
    when = record.get("time")
    return record if isinstance(when, (int, float)) and abs(when) < LATEST else None


def _ask_controllers() -> list[str]:
    ask = "import horovod.tensorflow as h; print('built', *['gloo'] * h.gloo_built(), *['mpi'] * h.mpi_built())"
    answer = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, env=_quiet(os.environ))
    lines = [line.split()[1:] for line in answer.stdout.splitlines() if line.startswith("built")]
    if not lines or not lines[0]:
        reason = last_line(answer.stderr)
        raise CourseError(f"Horovod does not load ({reason}): run `course setup` to build it again.", code=2)
    return lines[0]


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(text)
        draft.replace(path)
    except OSError:
        pass  # a cache that cannot be written costs time, nothing else


def _choose(controller: str | None) -> str:
    built = controllers()
    if controller is None:
        return built[0]
    if controller not in built:
        raise CourseError(f"Horovod was built without {controller} here; it has {' and '.join(built)}.", code=2)
    return controller


def _check_numbers(ranks: int, timeout: float | None) -> None:
    if ranks < 1:
        raise CourseError(f"A run needs at least one rank, not {ranks}: give -np 1 or more.", code=2)
    if timeout is not None and timeout <= 0:
        raise CourseError(f"The time limit must be more than 0 seconds, not {timeout:g}.", code=2)


def _ranks(ranks: int | None, hosts: str | None) -> tuple[int, tuple[remote.Host, ...]]:
    """How many ranks there are to be, and the hosts that are named for them."""
    named = () if hosts is None else remote.parse(hosts)
    return ranks if ranks is not None else sum(host.slots for host in named) or default_ranks(), named


def _check_elastic(ranks: int, min_ranks: int) -> None:
    if not 1 <= min_ranks <= ranks or ranks < 2:
        raise CourseError(
            f"An elastic run needs two ranks or more and min_ranks from 1 to all, not {min_ranks} of {ranks}.", code=2
        )
    if "gloo" not in controllers():
        raise CourseError("Elastic runs need Gloo, and Horovod was built without it here.", code=2)


def _one_rank_each(ranks: int) -> str:
    """As many names of this host as there are ranks: Horovod gives a host up, with all its ranks, when one fails."""
    return ",".join(f"{name}:1" for name in ("localhost", *(f"127.0.0.{'0' * i}1" for i in range(ranks - 1))))


def _environment(ranks: int, hosts: str | None, probe: Path | None, extra: Mapping[str, str]) -> dict[str, str]:
    """The ranks' environment: their share of threads, no framework chatter, the launcher's channel."""
    on_this_host = min(ranks, int(hosts.split(",")[0].rpartition(":")[2])) if hosts else ranks
    threads = str(max(1, len(os.sched_getaffinity(0)) // on_this_host))
    env = {**OPEN_MPI, **dict.fromkeys(ONE_THREAD, threads), **_quiet(os.environ), "COURSE_EVENTS": "1"}
    if probe is not None:
        env["COURSE_PROBE"] = str(Path(probe).absolute())
    return {**env, **extra}


def _quiet(env: Mapping[str, str]) -> dict[str, str]:
    return {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "1", **env}


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
