"""A run of a script on N ranks: its processes and its events, until all processes have ended."""

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
TAIL_LINES = 200  # lines of each rank that are kept: TensorFlow's tracebacks are long
LINE_OVERHEAD_BYTES = 100  # memory of a line in addition to its characters
FAILURE_GRACE_S = 4.0  # after a failed rank, the time for the other ranks to end by themselves
SHUTDOWN_LIMIT_S = 10.0  # time for the launcher to end after the last script; then its processes are ended
CONFINED_GRACE_S = 8.0  # time for a sandbox to copy out its files at the end
MAX_EXIT_CODE = 255
SIGNAL_BASE = 128  # exit code of a process that a signal has ended, minus the signal's number
SILENCE_S = 20.0  # after so long without output and steps, a run whose ranks wait for each other counts as stalled
_RUN_KINDS = ("output", "exit", "stage", "stall")  # kinds of events that ranks may not report
_STEP_KINDS = ("batch", "epoch", "images")  # kinds of events that show progress of a rank


@dataclass(frozen=True)
class RankCommand:
    """The command that starts the ranks.

    Attributes:
        launcher: Horovod's launcher with its options.
        env: the environment of the launcher and of the ranks.
        task: the task of each rank; None if the launcher starts no command.
        wrapper: prefix of each rank's command.
        temporary: a folder that is deleted if this process dies before the run.
    """

    launcher: tuple[str, ...]
    env: Mapping[str, str]
    task: RankTask | None = None
    wrapper: tuple[str, ...] = ()
    temporary: Path | None = None

    def command_line(self) -> list[str]:
        """The whole command line."""
        return [*self.launcher, *self.wrapper, *(self.task.command() if self.task else ())]


Confine = Callable[[RankCommand], RankCommand]


@dataclass(frozen=True)
class Options:
    """Further settings of `launch.start`.

    Attributes:
        hosts: Horovod's `host:slots,…`; default: this host. The first slots are used; all if the number of ranks is not
            given.
        min_ranks: makes the run elastic: it continues while so many ranks are left, and succeeds if they reach the end.
        cwd: working folder of the script; default: that of this process.
        stall_timeout: after so many seconds without a training step on any rank, the ranks count as deadlocked and are
            ended. It applies after the first step, and needs a `record` or `training_events`.
        record: folder for the log of each rank's training (see `course_lib.ranks.instrumentation`).
        profile: folder for a profile of each rank's training steps (see `step_shares`); not together with `record` or
            `training_events`.
        training_events: whether the ranks report their training (see `instrumentation.events`).
        output_limit: maximum bytes of output of all ranks; each line counts LINE_OVERHEAD_BYTES more.
        cores: the core of each rank (see `RankTask`).
        fake_gpus: number of GPUs that each rank sees although they do not exist (see `RankTask`).
        confine: maps the command to the one that is run instead, for example in a sandbox.
        confined: whether `confine` isolates each rank, so that all processes of a rank end with it. A rank that reports
            its end, but does not end, then fails.
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
    """An event of a run.

    Attributes:
        kind: `output` (data: stream, text), `stall` (cause; at most once), `exit` (code, message; always the last) and,
            from ranks that report their training, `fit`, `batch`, `epoch` and `images` (see
            `course_lib.ranks.instrumentation.events`).
        rank: the rank of the event; None: the whole run.
        time: seconds since the start of the run.
        data: values, by name.
    """

    kind: str
    rank: int | None
    time: float
    data: dict


@dataclass(frozen=True)
class Result:
    """The result of a run.

    Attributes:
        code: exit code.
        seconds: duration.
        failed_rank: the rank that failed first; None if none failed.
        message: one sentence; "" after a success.
        tail: the last lines of the failed rank, without library frames; without a failed rank, those of the launcher.
        reason: the reason that the failed rank reported.
        cause: a sentence that says which rank waited for which, and in which collective; "" if unknown.
    """

    code: int
    seconds: float
    failed_rank: int | None = None
    message: str = ""
    tail: tuple[str, ...] = ()
    reason: str = ""
    cause: str = ""

    def check(self, title: str = "") -> None:
        """Raise CourseError if the run failed or was stopped. Call it before reading the results of a run.

        The error has the cause, the message, and advice for a known error or else the rank's last line.

        Args:
            title: name of the run, if there are several.
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
    """The failures that ranks and the launcher have reported.

    Attributes:
        reported_by_rank: rank → time of the failure, in seconds since the epoch, and exit code.
        reported_by_launcher: rank → exit code.
    """

    reported_by_rank: dict[int, tuple[float, int]] = field(default_factory=dict)
    reported_by_launcher: dict[int, int] = field(default_factory=dict)

    def count(self) -> int:
        """Number of ranks that failed or that the launcher ended."""
        return len(self.reported_by_rank.keys() | self.reported_by_launcher.keys())

    def first(self) -> tuple[int, int] | None:
        """The rank that failed first, which causes the other failures, and its exit code; None if no rank failed."""
        by_time = sorted(self.reported_by_rank.items(), key=lambda item: item[1][0])
        by_rank = {rank: code for rank, (_, code) in by_time}
        terminated = (
            SIGNAL_BASE + signal.SIGTERM,
            -signal.SIGTERM,
        )  # the launcher ends the other ranks, or their shells, with SIGTERM
        ended = [(rank, code) for rank, code in self.reported_by_launcher.items() if code not in terminated]
        # A killed rank could not report its end, but it ended before the ranks that failed because of it. The launcher
        # finally kills a rank that ignores SIGTERM as well, but only after the rank that failed first.
        if ended and ended[0][0] not in by_rank:
            return ended[0]
        return next(iter((by_rank or self.reported_by_launcher).items()), None)


class Run:
    """A script that runs on N ranks. Iterate over it for its events, `stop()` it, `wait()` for its `Result`.

    Unread events stay in memory. If several threads iterate, each event goes to one of them.
    """

    def __init__(
        self, command: RankCommand, ranks: int, *, timeout: float | None = None, options: Options | None = None
    ) -> None:
        """Start `command`, which starts `ranks` ranks; end it after `timeout` seconds."""
        self._started = time.time()
        self._ranks = ranks
        self._timeout = timeout
        self._options = options = options or Options()
        self._max_failures = ranks - (options.min_ranks or ranks)
        self._unfinished = set(range(ranks))
        self._last_step: float | None = None
        self._last_sign = time.monotonic()  # time of the last output or step of any rank
        self._waiting, self._stall_reported = Waiting(ranks), False
        self._data: dict[str, dict[int, str]] = {}  # data set → rank → description of what the rank loaded first
        self._events: queue.Queue[Event] = queue.Queue()
        self._failures = Failures()
        self._tails: dict[int | None, deque[str]] = {}
        self._reasons: dict[int, str] = {}  # failed rank → the reason that it reported
        # Why this process ends the run: "stopped", "stalled", "data" or "late". Later failures of ranks don't count.
        self._ending = ""
        self._stop_reason = "Stopped."
        self._left = ""  # the sentence on processes that could not be ended
        self._printed = 0  # bytes of output
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
            cwd="/",  # `rank` changes to the script's folder; the launcher must not import modules from there
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
        """Start of the run in seconds since the epoch; the times of events are relative to it."""
        return self._started

    @property
    def running(self) -> bool:
        """True until all processes of the run have ended."""
        return self._result is None

    @property
    def pid(self) -> int:
        """Process id of `supervise`, the root of the run's process tree."""
        return self._process.pid

    def stop(self, reason: str = "Stopped.") -> None:
        """End the run and its process tree; return at once (use `wait`). Thread-safe.

        `reason` becomes the message of the result, unless a rank has failed before.
        """
        if not self._ending:
            self._stop_reason = reason
        self._end("stopped")

    def wait(self) -> Result:
        """Wait until all processes of the run have ended; return the result."""
        while self._closer.is_alive():
            self._closer.join(0.2)  # a time-out, so that Ctrl-C is noticed
        assert self._result is not None
        return self._result

    def join(self, seconds: float) -> None:
        """Wait until the run has ended, at most `seconds`."""
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
                continue  # go on reading, so that the writing process does not block
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
        """Record a rank's report of its end. The script could have written the report, so its values are checked."""
        self._unfinished.discard(rank)
        code = int(code) if isinstance(code, int) and abs(code) <= MAX_EXIT_CODE else int(bool(code))
        self._waiting.note_end(rank, code)
        if code and not self._ending:
            self._failures.reported_by_rank.setdefault(rank, (when, code))
            self._reasons[rank] = reason if isinstance(reason, str) else ""
            self._end_if_failed()
        if not self._unfinished and not self._failed:
            self._end_after(SHUTDOWN_LIMIT_S, "late")  # a daemon that keeps the output open would delay the launcher

    def _note_data(self, rank: int, record: dict) -> None:
        """Record which data a rank has loaded; end the run if it differs from that of another rank.

        The check compares names and numbers of images. It does not compare the images, because in an assessment each
        rank has some of its own, nor the sources, because a rank finds in the cache what another has downloaded.
        """
        got = f"{record.get('images')} training images of {record.get('loaded')}"
        loaded = self._data.setdefault(str(record.get("name")), {})
        loaded.setdefault(rank, got)
        first, theirs = next(iter(loaded.items()))
        if loaded[rank] != theirs and not self._ending:
            self._stop_reason = (
                f"Rank {rank} loads {loaded[rank]}, rank {first} {theirs}: all ranks must train on the same data. Run "
                "`course data` on each host, or set COURSE_DATA_DIR to a folder that all hosts see; set COURSE_SLICE "
                "to the same value on all hosts."
            )
            self._end("data")

    def _note_launcher_report(self, rank: int, code: int) -> None:
        """Record the launcher's report of a failed rank."""
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
        """The result of the run, whose launcher ended with exit code `code`."""
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
            went_on = f"All ranks reported their end, but kept running for another {SHUTDOWN_LIMIT_S:g} s."
            return Result(TIMED_OUT, seconds, message=went_on)
        return Result(0, seconds) if code == 0 or self._ending == "late" else self._launcher_failure(code, seconds)

    def _failure(self, rank: int, code: int, seconds: float) -> Result:
        """The result if `rank` failed first, with exit code `code`."""
        how = f"failed with exit code {code}"
        if code > SIGNAL_BASE and rank not in self._failures.reported_by_rank:
            how = f"was killed by {signal_name(code - SIGNAL_BASE)}"
        tail, reason = tuple(self._tails.get(rank, ())), self._reasons.get(rank, "")
        cause = self._waiting.failure(rank, (*tail, reason))
        return Result(code, seconds, rank, f"Rank {rank} {how}.", output.excerpt(tail), reason, cause)

    def _launcher_failure(self, code: int, seconds: float) -> Result:
        """The result if the launcher failed but no rank."""
        tail = tuple(self._tails.get(None, ()))
        message = f"Horovod could not start the ranks: {output.launcher_error(tail, code)}"
        if code == SIGNAL_BASE + signal.SIGKILL:
            message = f"Horovod's launcher was killed by {signal_name(signal.SIGKILL)}."
        return Result(code, seconds, message=message, tail=tail[-output.EXCERPT_LINES :])
