"""Slurm: run a command of the course as a job, follow it and cancel it; list the nodes of a job.

    code = run(["run", "train.py"], nodes=2)    # on a login node
    hosts()                                     # in a job: "node1:4,node2:4", for `launch.start`

This module calls Slurm's commands (20.11 or newer). Users set further options of a job in the variables that `sbatch`
reads: SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT, SBATCH_GPUS_PER_NODE, …
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from course_lib.system.errors import CourseError

OUTPUT_POLL_INTERVAL_S = 0.2  # between two reads of the job's output
STATE_POLL_INTERVAL_S = 2.0  # between two queries of the job's state
ANSWER_TIMEOUT_S = 30.0  # for Slurm's controller
CANCEL_TIMEOUT_S = 60.0  # for a cancelled job to end
JOB_NAME = "course"
DEFAULT_RANKS = 2  # if the user requests neither ranks nor GPUs
# Several job steps share a node (`--overlap`). SLURM_NTASKS_PER_NODE applies to the job and would be wrong for a step
# of one task.
REMOTE_SHELL = (
    "env -u SLURM_NTASKS_PER_NODE srun --quiet --nodes=1 --ntasks=1 --overlap --cpu-bind=none --export=ALL -w {host}"
)
_WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT")
_ALIVE = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "STAGE_OUT", "RESIZING", "SIGNALING", *_WAITING)


@dataclass(frozen=True)
class State:
    """The state of a job.

    Attributes:
        name: Slurm's name of the state; UNKNOWN if Slurm no longer has the job, which it forgets minutes after its end.
        reason: why the job waits or has ended.
        nodes: names of its nodes.
        code: exit code, 128 + n for signal n.
    """

    name: str
    reason: str = ""
    nodes: str = ""
    code: int = 0

    @property
    def ended(self) -> bool:
        """Whether the job has ended."""
        return self.name not in _ALIVE

    @property
    def waits(self) -> bool:
        """Whether the job has not started yet."""
        return self.name in _WAITING


def inside() -> bool:
    """Whether this process is part of a job."""
    return "SLURM_JOB_ID" in os.environ


def check(nodes: int = 1) -> None:
    """Raise CourseError if jobs of `nodes` nodes can't be submitted: no Slurm, no answer, too few nodes."""
    if not shutil.which("sbatch"):
        raise CourseError(
            "Slurm is not installed here (no `sbatch` on the PATH): run this on a login node of the cluster, "
            "or remove --slurm.",
            code=2,
        )
    if nodes < 1:
        raise CourseError(f"A job needs at least one node, not {nodes}: give -N 1 or more.", code=2)
    try:
        listing = _ask("sinfo", "--noheader", "--format=%P %D")
    except CourseError as error:
        raise CourseError(f"Slurm's controller does not answer: {error} Ask your administrator.", code=2) from None
    sizes: dict[str, int] = {}
    for name, number in (line.split() for line in listing.splitlines()):
        sizes[name] = sizes.get(name, 0) + int(number)
    requested = os.environ.get("SBATCH_PARTITION")
    partition = requested or next((name for name in sizes if name.endswith("*")), "")
    size = sizes.get(partition, sizes.get(f"{partition}*"))
    if requested and size is None and "," not in requested:
        known = ", ".join(sorted(name.rstrip("*") for name in sizes))
        raise CourseError(f"There is no partition {requested} (SBATCH_PARTITION) here; there is {known}.", code=2)
    if size is not None and nodes > size:
        raise CourseError(
            f"The partition {partition.rstrip('*')} has {size} node{'s' if size > 1 else ''}, not {nodes}: "
            f"give -N {size} or less.",
            code=2,
        )


def hosts(nodes: int | None = None) -> str:
    """The nodes of this job as `host:slots,…`; REMOTE_SHELL reaches them.

    The slots of a node are the job's tasks on it, if the job requested tasks, else its GPUs.

    Args:
        nodes: the requested number of nodes; None: any.

    Raises CourseError if the job has another number of nodes.
    """
    names = _ask("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]).split()
    if nodes is not None and nodes != len(names):
        raise CourseError(f"This job has {len(names)} nodes, not {nodes}: remove -N.", code=2)
    slots = per_node(os.environ.get("SLURM_TASKS_PER_NODE") or f"1(x{len(names)})")
    gpus = int(os.environ.get("SLURM_GPUS_ON_NODE") or 0)
    if gpus and "SLURM_NTASKS_PER_NODE" not in os.environ:
        slots = [gpus] * len(names)
    return ",".join(f"{name}:{number}" for name, number in zip(names, slots))


def per_node(text: str) -> list[int]:
    """Parse Slurm's list of numbers per node: "2(x3),1" → [2, 2, 2, 1]."""
    groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return [int(number) for number, times in groups for _ in range(int(times or 1))]


def run(arguments: Sequence[str], nodes: int | None = None, ranks: int | None = None) -> int:
    """Run `course ARGUMENTS` as a job, print its output, return its exit code. An interrupt cancels the job.

    Args:
        arguments: arguments of the command `course`.
        nodes: number of nodes; default: one.
        ranks: number of ranks that `arguments` request; default: one for each GPU of the job, else one per node, but at
            least two.

    Raises CourseError if the job can't be submitted.
    """
    nodes = 1 if nodes is None else nodes
    check(nodes)
    if ranks is not None and ranks < nodes:
        raise CourseError(f"{nodes} nodes need at least {nodes} ranks, not {ranks}: use fewer nodes.", code=2)
    try:
        folder = Path(tempfile.mkdtemp(prefix=".course-job-", dir=os.getcwd()))
    except OSError as error:
        raise CourseError(
            f"{os.getcwd()} cannot be written ({error.strerror}): run this in a folder that the nodes share.", code=2
        ) from None
    try:
        options = [f"--nodes={nodes}"]
        if ranks or not any(name.startswith(("SBATCH_GPUS", "SBATCH_GRES")) for name in os.environ):
            options += [f"--ntasks-per-node={math.ceil((ranks or max(DEFAULT_RANKS, nodes)) / nodes)}"]
        return _follow(_submit(options, [_course(), *arguments], folder), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def gpus_asked() -> int:
    """The number of GPUs per node in the SBATCH_ variables; 0 if they have no number."""
    requests = (os.environ.get(f"SBATCH_{name}", "") for name in ("GPUS_PER_NODE", "GPUS", "GRES"))
    return next((int(match[1]) for request in requests if (match := re.search(r"(?:^|:)(\d{1,4})$", request))), 0)


def states(jobs: Iterable[str]) -> dict[str, State]:
    """The states of some jobs, by job number. Raises CourseError if Slurm's controller does not answer."""
    wanted = set(jobs)
    if not wanted:
        return {}
    listing = _ask("scontrol", "--oneliner", "show", "job", *([next(iter(wanted))] if len(wanted) == 1 else []))
    known = {}
    for line in listing.splitlines():
        # The first value of a field is valid; a job's name may contain further ones.
        fields = dict(reversed(re.findall(r"(\w+)=(\S+)", line)))
        if fields.get("JobId") in wanted:
            code, _, number = fields.get("ExitCode", "0:0").partition(":")
            nodes = fields.get("NodeList", "").replace("(null)", "")
            code = 128 + int(number) if int(number or 0) else int(code)
            known[fields["JobId"]] = State(fields["JobState"], fields.get("Reason", ""), nodes, code)
    return {job: known.get(job, State("UNKNOWN")) for job in wanted}


def cancel(*selection: str) -> None:
    """Cancel the jobs that `scancel SELECTION` selects; ignore errors."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(["scancel", "--quiet", *selection], capture_output=True, timeout=ANSWER_TIMEOUT_S)


def ending(state: State, job: str) -> tuple[int, str]:
    """The exit code for an ended job, and a sentence if Slurm ended it; "" if it ended by itself."""
    if state.name in ("COMPLETED", "FAILED"):
        return state.code, ""
    return {
        "CANCELLED": (130, f"Job {job} was cancelled."),
        "NODE_FAIL": (2, f"A node of job {job} failed ({state.nodes}): start it again."),
        "TIMEOUT": (124, f"Job {job} reached Slurm's time limit: ask for more with SBATCH_TIMELIMIT."),
        "OUT_OF_MEMORY": (137, f"Job {job} used more memory than it had: ask for more with SBATCH_MEM_PER_NODE."),
        "UNKNOWN": (2, f"Slurm no longer knows job {job}, so its exit code is unknown."),
    }.get(state.name, (2, f"Slurm ended job {job} ({state.name})."))


def _course() -> str:
    """The path of the installed command. `python -m` would import modules from the job's working folder."""
    return str(Path(sysconfig.get_path("scripts"), "course"))


def _ask(*command: str) -> str:
    """The output of one of Slurm's commands. Raises CourseError if it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=ANSWER_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise CourseError(f"`{command[0]}` did not answer within {ANSWER_TIMEOUT_S:g} s.") from None
    except OSError as error:
        raise CourseError(f"`{command[0]}` cannot be started ({error.strerror}).") from None
    if done.returncode and "Invalid job id" not in done.stderr:
        raise CourseError(f"`{command[0]}` says: {_reason(done.stderr)}.")
    return done.stdout


def _reason(errors: str) -> str:
    """The last line of a Slurm command's standard error, without the name of the command."""
    lines = [re.sub(r"^\w+: (error: |fatal: )?", "", line) for line in errors.splitlines() if line.strip()]
    return (lines or ["no reason given"])[-1].rstrip(".")


def _submit(options: list[str], command: list[str], folder: Path) -> str:
    """Submit `command` as a job that writes to the files out and err in `folder`; return its number."""
    for name in ("out", "err"):
        (folder / name).touch()  # before the job starts: a file server may cache that a file does not exist
    options = ["--parsable", f"--job-name={JOB_NAME}", f"--chdir={os.getcwd()}", *options]
    options += [f"--output={folder / 'out'}", f"--error={folder / 'err'}", "--open-mode=append"]
    options += ["--export=ALL", "--no-requeue"]  # a requeued job would print everything twice
    script = folder / "job.sh"
    script.write_text(f"#!/bin/sh\nexec {shlex.join(command)}\n")
    process = subprocess.Popen(
        ["sbatch", *options, str(script)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # an interrupt must not end sbatch before it prints the job's number
    )
    interrupted = False
    while True:
        try:
            answer, errors = process.communicate()
            break
        except KeyboardInterrupt:
            interrupted = True
    if process.returncode:
        raise CourseError(f"Slurm rejects the job: {_reason(errors)}.", code=2)
    job = answer.strip().partition(";")[0]
    if interrupted:
        cancel(job)
        raise KeyboardInterrupt
    return job


def _follow(job: str, folder: Path) -> int:
    tails = [_Tail(folder / "out", sys.stdout), _Tail(folder / "err", sys.stderr)]
    reported = ""
    try:
        while True:
            state = _current_state(job)
            if (news := _description(job, state)) != reported:
                _print_notice(news)
                reported = news
            if state is not None and state.ended:
                break
            polled = time.monotonic()
            while time.monotonic() < polled + STATE_POLL_INTERVAL_S:
                for tail in tails:
                    tail.show()
                time.sleep(OUTPUT_POLL_INTERVAL_S)
        shown = [tail.show() for tail in tails]
    except KeyboardInterrupt:
        _stop(job, tails)
        return 128 + signal.SIGINT
    except OSError:  # standard output is closed, or the folder was deleted
        cancel(job)
        raise
    code, sentence = ending(state, job)
    if not sentence and code and not any(shown):
        sentence = (
            f"Job {job} ended with exit code {code} and printed nothing: check that its nodes share {os.getcwd()} "
            "and the course."
        )
    if sentence:
        _print_notice(sentence)
    return code


def _current_state(job: str) -> State | None:
    """The state of a job; None if Slurm does not answer, for example while its controller restarts."""
    try:
        return states([job])[job]
    except CourseError:
        return None


def _description(job: str, state: State | None) -> str:
    if state is None:
        return f"Slurm does not answer; still waiting for job {job}."
    if state.waits:
        return f"Job {job} waits ({state.reason})." if state.reason != "None" else f"Job {job} is submitted."
    return f"Job {job} runs on {state.nodes}." if state.name == "RUNNING" else ""


def _stop(job: str, tails: Sequence[_Tail]) -> None:
    cancel(job)
    with contextlib.suppress(KeyboardInterrupt):  # a second interrupt skips the wait
        deadline = time.monotonic() + CANCEL_TIMEOUT_S
        while time.monotonic() < deadline and not ((state := _current_state(job)) and state.ended):
            for tail in tails:
                tail.show()
            time.sleep(OUTPUT_POLL_INTERVAL_S)
    _print_notice(f"Stopped; job {job} is cancelled.")


def _print_notice(text: str) -> None:
    if text:
        print(f"course: {text}", file=sys.stderr, flush=True)


class _Tail:
    """Prints what is appended to a file."""

    def __init__(self, path: Path, stream) -> None:  # noqa: ANN001
        self._path, self._stream, self._shown = path, stream, 0

    def show(self) -> int:
        """Print the new bytes; return the number of bytes printed so far."""
        with self._path.open("rb") as file:  # opened again each time, because a network file system updates on open
            file.seek(self._shown)
            new = file.read()
        if new:
            self._shown += len(new)
            self._stream.flush()
            self._stream.buffer.write(new)
            self._stream.flush()
        return self._shown
