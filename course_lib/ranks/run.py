"""A run of a script on N ranks: its processes, followed as a stream of events until nothing of it is left."""

from __future__ import annotations

import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from course_lib.ranks.messages import output
from course_lib.ranks.messages.known_errors import hint
from course_lib.ranks.messages.output import signal_name
from course_lib.ranks.messages.waiting import Waiting
from course_lib.ranks.rank import RankTask
from course_lib.system.errors import CourseError
from course_lib.system.processes import Supervised
from course_lib.system.supervise import GRACE_S, LEFT, TIMED_OUT

PROGRAM_FOLDER = Path(__file__).parent
STOPPED = 130  # exit code, as after Ctrl-C
TAIL_LINES = 200  # kept of each rank: TensorFlow's tracebacks are long
LINE_OVERHEAD_BYTES = 100  # that a line counts beside its own: so much it takes in memory, however short it is
FAILURE_GRACE_S = 4.0  # for the other ranks to end by themselves, once one has failed
SHUTDOWN_LIMIT_S = 10.0  # for the launcher to end after the last script; what is left then is ended
CONFINED_GRACE_S = 8.0  # for what is confined to hand out what it has, at the end
MAX_EXIT_CODE = 255
SIGNAL_BASE = 128  # the exit code of what a signal has ended is so much more than its number
SILENCE_S = 20.0  # without output and steps, after which a run whose ranks wait for each other is called stalled
_RUN_KINDS = ("output", "exit", "stage", "stall")  # kinds of events that no rank can report
_STEP_KINDS = ("batch", "epoch", "images")  # events that show a rank to go on


@dataclass(frozen=True)
class RankCommand:
    """What starts the ranks.

    Attributes:
        launcher: Horovod's launcher with its options.
        env: the environment of the launcher and of the ranks.
        task: what each rank does; None where the launcher starts no command.
        wrapper: what runs the command of each rank, which follows it.
        temporary: a folder that is removed where this process dies before the run.
    """

    launcher: tuple[str, ...]
    env: Mapping[str, str]
    task: RankTask | None = None
    wrapper: tuple[str, ...] = ()
    temporary: Path | None = None

    def command_line(self) -> list[str]:
        """All of it in one command."""
        return [*self.launcher, *self.wrapper, *(self.task.command() if self.task else ())]


Confine = Callable[[RankCommand], RankCommand]


@dataclass(frozen=True)
class Options:
    """How `launch.start` runs a script, where the defaults won't do.

    Attributes:
        hosts: Horovod's `host:slots,…` (default: this host), of which the first slots are taken, all where no number of
            ranks is given.
        min_ranks: makes the run elastic: it goes on while so many ranks are left, and succeeds if they reach the end.
        cwd: the folder that the script runs in; default: this process's.
        stall_timeout: seconds without a training step on any rank after which the ranks count as deadlocked and are
            ended; it counts from the first step on. It needs a `record` or `training_events`.
        record: a folder for what each rank records of its training (see `course_lib.ranks.instrumentation`).
        profile: a folder for a profile of each rank's training steps, which `step_shares` reads; it goes with neither
            `record` nor `training_events`.
        training_events: whether the ranks report how their training goes on (see `instrumentation.events`).
        output_limit: bytes that the ranks may print, where each line counts LINE_OVERHEAD_BYTES more than it has.
        cores: the core of each rank (see `RankTask`).
        fake_gpus: how many GPUs that do not exist each rank sees (see `RankTask`).
        confine: makes of the command what is run in its place.
        confined: whether each rank is then shut in alone, so that nothing that it starts outlives it, and a rank that
            goes on has not ended.
    """

    hosts: str | None = None
    min_ranks: int | None = None
    cwd: str | Path | None = None
    stall_timeout: float = float("inf")
    record: Path | None = None
    profile: Path | None = None
    training_events: bool = False
    output_limit: int | None = None
    cores: tuple[int, ...] = ()
    fake_gpus: tuple[int, ...] = ()
    confine: Confine | None = None
    confined: bool = False


@dataclass(frozen=True)
class Event:
    """One thing that happened: `kind`, the rank it happened in (None: the run as a whole), seconds since the start.

    Kinds: `output` (stream, text), `stall` (cause; at most once: the run stands still, and why), `exit` (code, message;
    always the last) and, from ranks that report how they train, `fit`, `batch`, `epoch` and `images` (see
    `course_lib.ranks.instrumentation.events`).
    """

    kind: str
    rank: int | None
    time: float
    data: dict


@dataclass(frozen=True)
class Result:
    """How a run ended.

    Attributes:
        code: exit code.
        seconds: since the start.
        failed_rank: the rank that failed first; None where none did.
        message: one sentence; "" for a run that ended well.
        tail: the last lines of that rank, less the frames of libraries; without such a rank the launcher's.
        reason: what that rank gave as the reason itself.
        cause: the sentence that says which rank waited for which, in what; "" where that is not known.
    """

    code: int
    seconds: float
    failed_rank: int | None = None
    message: str = ""
    tail: tuple[str, ...] = ()
    reason: str = ""
    cause: str = ""

    def check(self, title: str = "") -> None:
        """Raise CourseError if the run failed or was stopped: who reads what a run has left asks this first.

        The error says why: the cause, the message, and what to do about a known error, else the rank's last words.
        `title` names the run, where a learner has several.
        """
        if self.code:
            title = title and f"{title}:"
            last_words = self.reason or next((line for line in reversed(self.tail) if line.strip()), "")
            advice = hint((*self.tail, self.reason))
            raise CourseError(
                " ".join(filter(None, (title, self.cause, self.message, advice or last_words))), self.code
            )


@dataclass
class Failures:
    """What is known of failed ranks.

    Attributes:
        reported_by_rank: rank → when it failed, in seconds since the epoch, and its exit code.
        reported_by_launcher: rank → exit code.
    """

    reported_by_rank: dict[int, tuple[float, int]] = field(default_factory=dict)
    reported_by_launcher: dict[int, int] = field(default_factory=dict)

    def count(self) -> int:
        """How many ranks failed, or were ended by the launcher."""
        return len(self.reported_by_rank.keys() | self.reported_by_launcher.keys())

    def first(self) -> tuple[int, int] | None:
        """The rank that failed first and its exit code. The failures of the others follow from the first."""
        by_time = sorted(self.reported_by_rank.items(), key=lambda item: item[1][0])
        by_rank = {rank: code for rank, (_, code) in by_time}
        terminated = (
            SIGNAL_BASE + signal.SIGTERM,
            -signal.SIGTERM,
        )  # by the launcher, which ends the others, or their shells
        ended = [(rank, code) for rank, code in self.reported_by_launcher.items() if code not in terminated]
        # A rank that was killed had no time to report, but ended before those that its end made fail. The launcher too
        # kills, in the end, a rank that ignores SIGTERM: after the rank that failed first.
        if ended and ended[0][0] not in by_rank:
            return ended[0]
        return next(iter((by_rank or self.reported_by_launcher).items()), None)


class Run:
    """A script running on N ranks: iterate over it for its events, `stop()` it, `wait()` for its `Result`.

    Events that nobody reads wait in memory; several readers share them.
    """

    def __init__(
        self, command: RankCommand, ranks: int, *, timeout: float | None = None, options: Options | None = None
    ) -> None:
        """Start `command`, which starts so many `ranks`; end it after `timeout` seconds."""
        self._started = time.time()
        self._ranks = ranks
        self._timeout = timeout
        self._options = options = options or Options()
        self._max_failures = ranks - (options.min_ranks or ranks)
        self._unfinished = set(range(ranks))
        self._last_step: float | None = None
        self._last_sign = time.monotonic()  # of any rank's going on
        self._waiting, self._stall_reported = Waiting(ranks), False
        self._data: dict[str, dict[int, str]] = {}  # name of a data set → rank → what it got when it loaded it first
        self._events: queue.Queue[Event] = queue.Queue()
        self._failures = Failures()
        self._tails: dict[int | None, deque[str]] = {}
        self._reasons: dict[int, str] = {}  # in a failed rank's own words, where it gave any
        # Why we end the run: "stopped", "stalled", "data" or "late". What ranks do after that is no failure.
        self._ending = ""
        self._stop_reason = "Stopped."
        self._left = ""  # the sentence on processes that could not be ended
        self._printed = 0  # bytes
        self._result: Result | None = None
        self._process = Supervised(
            command.command_line(),
            timeout=timeout or 0,
            grace=CONFINED_GRACE_S if options.confine else GRACE_S,
            temporary=command.temporary,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=command.env,
            cwd="/",  # `rank` goes to the script's folder; the launchers must not import what lies there
        )
        streams = (self._process.stdout, self._process.stderr)
        self._readers = [threading.Thread(target=self._read, args=(stream,), daemon=True) for stream in streams]
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
        self._process.end()

    def _end_after(self, seconds: float, why: str = "") -> None:
        timer = threading.Timer(seconds, self._end, [why])
        timer.daemon = True
        timer.start()

    def _read(self, stream: IO[bytes]) -> None:
        for printed in output.lines(stream):
            self._printed += len(printed) + LINE_OVERHEAD_BYTES
            limit = self._options.output_limit
            if limit is not None and self._printed > limit:
                self.stop(f"It printed more than {limit / 2**20:g} MB.")
                continue  # read on, so that what prints can end
            for line in output.parse(printed, self._ranks):
                self._take(line)

    def _take(self, line: output.Line) -> None:
        if line.record and line.rank is not None:
            self._record(line.rank, line.text)
            return
        self._tails.setdefault(line.rank, deque(maxlen=TAIL_LINES)).append(line.text)
        if line.rank is not None:
            if not self._waiting.note_line(line.text):
                self._note_progress()
            self._put("output", line.rank, time.time(), {"stream": line.stream, "text": line.text})
        elif line.text.startswith(LEFT):
            self._left = line.text
        elif not self._ending:
            for rank, code in output.reported_failures(line.text):
                self._note_launcher_report(rank, code)

    def _note_progress(self) -> None:
        self._last_sign = time.monotonic()
        self._waiting.goes_on()

    def _record(self, rank: int, text: str) -> None:
        record = output.parse_record(text)
        if record is None:
            return
        kind, when = record.pop("kind"), record.pop("time")
        if kind == "rank-exit":
            self._note_exit(rank, when, record.get("code"), record.get("reason", ""))
        elif kind == "place":
            self._waiting.note_place(rank, record)
        elif kind == "data":
            self._note_data(rank, record)
        elif kind not in _RUN_KINDS:
            self._put(kind, rank, when, record)

    def _note_exit(self, rank: int, when: float, code: object, reason: object) -> None:
        """What a rank says of its own end. Its word is the script's: it may say anything."""
        self._unfinished.discard(rank)
        code = int(code) if isinstance(code, int) and abs(code) <= MAX_EXIT_CODE else int(bool(code))
        self._waiting.note_end(rank, code)
        if code and not self._ending:
            self._failures.reported_by_rank.setdefault(rank, (when, code))
            self._reasons[rank] = reason if isinstance(reason, str) else ""
            self._end_if_failed()
        if not self._unfinished and not self._failed:
            self._end_after(SHUTDOWN_LIMIT_S, "late")  # a daemon that holds the output open would delay the launcher

    def _note_data(self, rank: int, record: dict) -> None:
        """What a rank has loaded. All must have the same, or they train on different images without a word.

        Names and numbers are compared, and not the images: in an assessment each rank has some of its own, on purpose.
        Nor are the places: what one rank downloads, the next finds in the cache.
        """
        got = f"{record.get('images')} training images of {record.get('loaded')}"
        loaded = self._data.setdefault(str(record.get("name")), {})
        loaded.setdefault(rank, got)
        first, theirs = next(iter(loaded.items()))
        if loaded[rank] != theirs and not self._ending:
            self._stop_reason = (
                f"Rank {rank} loads {loaded[rank]}, rank {first} {theirs}: all ranks must train on the same data. Run "
                "`course data` on each host, or set COURSE_DATA_DIR to a folder that all of them see, and COURSE_SLICE "
                "alike on all."
            )
            self._end("data")

    def _note_launcher_report(self, rank: int, code: int) -> None:
        """What the launcher says of a rank's end."""
        if rank < self._ranks:
            self._failures.reported_by_launcher.setdefault(rank, code)
            self._unfinished.discard(rank)
            self._end_if_failed()

    @property
    def _failed(self) -> bool:
        return self._failures.count() > self._max_failures

    def _end_if_failed(self) -> None:
        if self._failed:
            self._end_after(FAILURE_GRACE_S)

    def _put(self, kind: str, rank: int | None, when: float, data: dict) -> None:
        if kind in _STEP_KINDS:
            self._last_step = time.monotonic()
            self._note_progress()
        self._events.put(Event(kind, rank, when - self._started, data))

    def _close(self) -> None:
        while True:
            try:
                code = self._process.wait(0.5)
                break
            except subprocess.TimeoutExpired:
                now = time.monotonic()
                if self._last_step and now - self._last_step > self._options.stall_timeout:
                    self._end("stalled")
                if not self._stall_reported and now - self._last_sign > SILENCE_S and (cause := self._waiting.stall()):
                    self._stall_reported = True
                    self._put("stall", None, time.time(), {"cause": cause})
        for reader in self._readers:
            reader.join(5)
        self._end()
        result = self._outcome(code, time.time() - self._started)
        if self._left:
            result = replace(result, message=f"{result.message} {self._left}".lstrip())
        self._put("exit", None, time.time(), {"code": result.code, "message": result.message})
        self._result = result

    def _outcome(self, code: int, seconds: float) -> Result:
        """How the run ended, whose launcher ended with `code`."""
        if code == TIMED_OUT and self._timeout:
            late = f"Stopped at the time limit of {self._timeout:g} s."
            return Result(TIMED_OUT, seconds, message=late, cause=self._waiting.stall())
        if self._ending == "data":
            return Result(2, seconds, message=self._stop_reason)
        first = self._failures.first()
        if first and (self._failed or (code and self._ending != "late")):
            return self._failure(*first, seconds)
        if self._ending in ("stalled", "stopped"):
            stalled = f"No rank made a step for {self._options.stall_timeout:g} s: the ranks wait for each other."
            code, message = (STOPPED, self._stop_reason) if self._ending == "stopped" else (TIMED_OUT, stalled)
            return Result(code, seconds, message=message, cause=self._waiting.stall())
        if self._ending == "late" and self._options.confined:
            went_on = f"All ranks said that they had ended, and went on for {SHUTDOWN_LIMIT_S:g} s more."
            return Result(TIMED_OUT, seconds, message=went_on)
        return Result(0, seconds) if code == 0 or self._ending == "late" else self._launcher_failure(code, seconds)

    def _failure(self, rank: int, code: int, seconds: float) -> Result:
        """The end of a run whose `rank` failed first, with `code`."""
        how = f"failed with exit code {code}"
        if code > SIGNAL_BASE and rank not in self._failures.reported_by_rank:
            how = f"was killed by {signal_name(code - SIGNAL_BASE)}"
        tail, reason = tuple(self._tails.get(rank, ())), self._reasons.get(rank, "")
        cause = self._waiting.failure(rank, (*tail, reason))
        return Result(code, seconds, rank, f"Rank {rank} {how}.", output.excerpt(tail), reason, cause)

    def _launcher_failure(self, code: int, seconds: float) -> Result:
        """The end of a run whose launcher failed, and no rank."""
        tail = tuple(self._tails.get(None, ()))
        message = f"Horovod could not start the ranks: {output.launcher_error(tail, code)}"
        if code == SIGNAL_BASE + signal.SIGKILL:
            message = f"Horovod's launcher was killed by {signal_name(signal.SIGKILL)}."
        return Result(code, seconds, message=message, tail=tail[-output.EXCERPT_LINES :])
