"""Slurm: a command of the course as a job, followed and cancelled where it was asked for; the nodes of a job.

    code = run(["run", "train.py"], nodes=2)    # where jobs are submitted from
    hosts()                                     # in a job: "node1:4,node2:4", for `launch.start`

All is done by Slurm's own commands (20.11 or newer). What a site wants to know of each job is said in the variables
that `sbatch` reads itself: SBATCH_PARTITION, SBATCH_ACCOUNT, SBATCH_TIMELIMIT, SBATCH_GPUS_PER_NODE, …
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

OUTPUT_POLL_INTERVAL_S = 0.2  # between two looks at what the job has written
STATE_POLL_INTERVAL_S = 2.0  # and at what Slurm says of it
ANSWER_TIMEOUT_S = 30.0  # for Slurm's controller
CANCEL_TIMEOUT_S = 60.0  # for a cancelled job to end
JOB_NAME = "course"
DEFAULT_RANKS = 2  # where neither their number nor GPUs are asked for
# Several steps share a node: its ranks, and what looks after them. `sbatch --ntasks-per-node` is for the job, not for
# a step of one task.
REMOTE_SHELL = (
    "env -u SLURM_NTASKS_PER_NODE srun --quiet --nodes=1 --ntasks=1 --overlap --cpu-bind=none --export=ALL -w {host}"
)
_WAITING = ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "RESV_DEL_HOLD", "SPECIAL_EXIT")
_ALIVE = ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "STAGE_OUT", "RESIZING", "SIGNALING", *_WAITING)


@dataclass(frozen=True)
class State:
    """What Slurm says of a job: its state in Slurm's own word, why it waits or ended, its nodes, its exit code.

    The state is UNKNOWN where Slurm has forgotten the job, as it does minutes after a job's end.
    """

    name: str
    reason: str = ""
    nodes: str = ""
    code: int = 0

    @property
    def ended(self) -> bool:
        """True once nothing more comes of the job."""
        return self.name not in _ALIVE

    @property
    def waits(self) -> bool:
        """True before the job runs."""
        return self.name in _WAITING


def inside() -> bool:
    """Whether this process belongs to a job."""
    return "SLURM_JOB_ID" in os.environ


def check(nodes: int = 1) -> None:
    """Raise CourseError where jobs of so many nodes can't be submitted: no Slurm, no answer, too few nodes."""
    if not shutil.which("sbatch"):
        raise CourseError(
            "There is no Slurm here (no `sbatch` on the PATH): start this on a login node of the cluster, "
            "or leave out --slurm.",
            code=2,
        )
    if nodes < 1:
        raise CourseError(f"A job needs at least one node, not {nodes}: give -N 1 or more.", code=2)
    try:
        listing = _ask("sinfo", "--noheader", "--format=%P %D")
    except CourseError as error:
        raise CourseError(f"Slurm's controller does not answer: {error} Ask who runs the cluster.", code=2) from None
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
            f"ask for {size} at most with -N.",
            code=2,
        )


def hosts(nodes: int | None = None) -> str:
    """The nodes of this job as `host:slots,…`, which REMOTE_SHELL reaches.

    So many slots on each as the job has tasks there, where it asked for tasks; else one for each GPU. `nodes` is what
    was asked for. Raises CourseError where the job has another number of them.
    """
    names = _ask("scontrol", "show", "hostnames", os.environ["SLURM_JOB_NODELIST"]).split()
    if nodes is not None and nodes != len(names):
        raise CourseError(f"This job has {len(names)} nodes, not {nodes}: leave out -N.", code=2)
    slots = per_node(os.environ.get("SLURM_TASKS_PER_NODE") or f"1(x{len(names)})")
    gpus = int(os.environ.get("SLURM_GPUS_ON_NODE") or 0)
    if gpus and "SLURM_NTASKS_PER_NODE" not in os.environ:
        slots = [gpus] * len(names)
    return ",".join(f"{name}:{number}" for name, number in zip(names, slots))


def per_node(text: str) -> list[int]:
    """Slurm's "2(x3),1" → [2, 2, 2, 1]."""
    groups = re.findall(r"(\d+)(?:\(x(\d+)\))?", text)
    return [int(number) for number, times in groups for _ in range(int(times or 1))]


def run(arguments: Sequence[str], nodes: int | None = None, ranks: int | None = None) -> int:
    """Run `course ARGUMENTS` as a job on `nodes` nodes (default: one); show what it prints; return its exit code.

    `ranks` is what ARGUMENTS ask for; default: one for each GPU that the job gets, else one a node, two at least.
    An interrupt cancels the job. Raises CourseError where it can't be submitted.
    """
    nodes = 1 if nodes is None else nodes
    check(nodes)
    if ranks is not None and ranks < nodes:
        raise CourseError(f"{nodes} nodes need {nodes} ranks or more, not {ranks}: ask for fewer nodes.", code=2)
    try:
        folder = Path(tempfile.mkdtemp(prefix=".course-job-", dir=os.getcwd()))
    except OSError as error:
        raise CourseError(
            f"{os.getcwd()} cannot be written ({error.strerror}): start this in a folder that the nodes share.", code=2
        ) from None
    try:
        options = [f"--nodes={nodes}"]
        if ranks or not any(name.startswith(("SBATCH_GPUS", "SBATCH_GRES")) for name in os.environ):
            options += [f"--ntasks-per-node={math.ceil((ranks or max(DEFAULT_RANKS, nodes)) / nodes)}"]
        return _follow(_submit(options, [_course(), *arguments], folder), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def gpus_asked() -> int:
    """GPUs that Slurm's own variables ask for on one node; 0 where they name no number."""
    requests = (os.environ.get(f"SBATCH_{name}", "") for name in ("GPUS_PER_NODE", "GPUS", "GRES"))
    return next((int(match[1]) for request in requests if (match := re.search(r"(?:^|:)(\d{1,4})$", request))), 0)


def states(jobs: Iterable[str]) -> dict[str, State]:
    """What Slurm says of some jobs, by their numbers. Raises CourseError where its controller does not answer."""
    wanted = set(jobs)
    if not wanted:
        return {}
    listing = _ask("scontrol", "--oneliner", "show", "job", *([next(iter(wanted))] if len(wanted) == 1 else []))
    known = {}
    for line in listing.splitlines():
        fields = dict(reversed(re.findall(r"(\w+)=(\S+)", line)))  # the first counts: a name may hold anything
        if fields.get("JobId") in wanted:
            code, _, number = fields.get("ExitCode", "0:0").partition(":")
            nodes = fields.get("NodeList", "").replace("(null)", "")
            code = 128 + int(number) if int(number or 0) else int(code)
            known[fields["JobId"]] = State(fields["JobState"], fields.get("Reason", ""), nodes, code)
    return {job: known.get(job, State("UNKNOWN")) for job in wanted}


def cancel(*selection: str) -> None:
    """Cancel the jobs that `scancel SELECTION` selects, as far as there are any."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(["scancel", "--quiet", *selection], capture_output=True, timeout=ANSWER_TIMEOUT_S)


def ending(state: State, job: str) -> tuple[int, str]:
    """The exit code that a job's end stands for, and a sentence where Slurm, not the job, has ended it."""
    if state.name in ("COMPLETED", "FAILED"):
        return state.code, ""
    return {
        "CANCELLED": (130, f"Job {job} was cancelled."),
        "NODE_FAIL": (2, f"A node of job {job} failed ({state.nodes}): start it again."),
        "TIMEOUT": (124, f"Job {job} reached Slurm's time limit: ask for more with SBATCH_TIMELIMIT."),
        "OUT_OF_MEMORY": (137, f"Job {job} used more memory than it had: ask for more with SBATCH_MEM_PER_NODE."),
        "UNKNOWN": (2, f"Slurm does not know job {job} any more, so that its exit code is unknown."),
    }.get(state.name, (2, f"Slurm ended job {job} ({state.name})."))


def _course() -> str:
    """The command as it was installed: `python -m` would import what lies in the folder of the job."""
    return str(Path(sysconfig.get_path("scripts"), "course"))


def _ask(*command: str) -> str:
    """What one of Slurm's commands answers. Raises CourseError where it can't."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=ANSWER_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise CourseError(f"`{command[0]}` waited for {ANSWER_TIMEOUT_S:g} s in vain.") from None
    except OSError as error:
        raise CourseError(f"`{command[0]}` cannot be started ({error.strerror}).") from None
    if done.returncode and "Invalid job id" not in done.stderr:
        raise CourseError(f"`{command[0]}` says: {_reason(done.stderr)}.")
    return done.stdout


def _reason(errors: str) -> str:
    """The words of one of Slurm's commands, without its name."""
    lines = [re.sub(r"^\w+: (error: |fatal: )?", "", line) for line in errors.splitlines() if line.strip()]
    return (lines or ["no reason given"])[-1].rstrip(".")


def _submit(options: list[str], command: list[str], folder: Path) -> str:
    """Submit `command` as a job that writes to out and err in `folder`; return its number."""
    for name in ("out", "err"):
        (folder / name).touch()  # now, so that no file server remembers that they were not there
    options = ["--parsable", f"--job-name={JOB_NAME}", f"--chdir={os.getcwd()}", *options]
    options += [f"--output={folder / 'out'}", f"--error={folder / 'err'}", "--open-mode=append"]
    options += ["--export=ALL", "--no-requeue"]  # a run that starts again by itself would show everything twice
    script = folder / "job.sh"
    script.write_text(f"#!/bin/sh\nexec {shlex.join(command)}\n")
    process = subprocess.Popen(
        ["sbatch", *options, str(script)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # an interrupt must not leave a job whose number nobody knows
    )
    interrupted = False
    while True:
        try:
            answer, errors = process.communicate()
            break
        except KeyboardInterrupt:
            interrupted = True
    if process.returncode:
        raise CourseError(f"Slurm takes no such job: {_reason(errors)}.", code=2)
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
    except OSError:  # nobody reads what it tells any more, or its folder is gone
        cancel(job)
        raise
    code, sentence = ending(state, job)
    if not sentence and code and not any(shown):
        sentence = (
            f"Job {job} ended with exit code {code} before it said a word: do its nodes share {os.getcwd()}, "
            "and the course?"
        )
    if sentence:
        _print_notice(sentence)
    return code


def _current_state(job: str) -> State | None:
    """What Slurm says of the job; None where it does not answer: a controller may be restarted meanwhile."""
    try:
        return states([job])[job]
    except CourseError:
        return None


def _description(job: str, state: State | None) -> str:
    if state is None:
        return f"Slurm does not answer; job {job} is still followed."
    if state.waits:
        return f"Job {job} waits ({state.reason})." if state.reason != "None" else f"Job {job} is submitted."
    return f"Job {job} runs on {state.nodes}." if state.name == "RUNNING" else ""


def _stop(job: str, tails: Sequence[_Tail]) -> None:
    cancel(job)
    with contextlib.suppress(KeyboardInterrupt):  # who is in a hurry does not wait for the end
        deadline = time.monotonic() + CANCEL_TIMEOUT_S
        while time.monotonic() < deadline and not ((state := _current_state(job)) and state.ended):
            for tail in tails:
                tail.show()
            time.sleep(OUTPUT_POLL_INTERVAL_S)
    _print_notice(f"stopped; job {job} is cancelled.")


def _print_notice(text: str) -> None:
    if text:
        print(f"course: {text}", file=sys.stderr, flush=True)


class _Tail:
    """Shows what is added to a file."""

    def __init__(self, path: Path, stream) -> None:  # noqa: ANN001
        self._path, self._stream, self._shown = path, stream, 0

    def show(self) -> int:
        """Show what is new; return the number of bytes shown so far."""
        with self._path.open("rb") as file:  # opened anew: that is when a file server looks what there is
            file.seek(self._shown)
            new = file.read()
        if new:
            self._shown += len(new)
            self._stream.flush()
            self._stream.buffer.write(new)
            self._stream.flush()
        return self._shown
