"""Kernel → Interrupt in each cell of lab 2 that starts ranks: no process and no port is left, the kernel goes on."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import time
import uuid
from pathlib import Path

import psutil
import pytest
from jupyter_client.manager import KernelManager

from course_lib.authoring import masters
from course_lib.command.classroom import workspace
from course_lib.notebook import jupyter
from course_lib.system.paths import ROOT

MASTERS = [path for path in masters.find(ROOT) if path.parent.name == "lab2_horovod"]
DELAYS = 2, 5  # seconds after a cell's first child: while the ranks start, when they work
CELL = 120  # seconds that a cell may take that nobody interrupts
ENDED = 8  # seconds that it may take to end after an interrupt; it takes one or two
GONE = 4  # seconds that processes may take to be gone after their cell has ended; it waits for them
MARK = "TEST_KERNEL"

pytestmark = [pytest.mark.slow, pytest.mark.ranks, pytest.mark.notebook]


class Notebook:
    """A kernel in a learner's workspace, and all processes that come of it."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.mark = uuid.uuid4().hex
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=str(folder), env={**env, MARK: self.mark})
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.kernel = psutil.Process(self.manager.provisioner.pid)
        self.ports = listening([self.kernel])

    def close(self) -> None:
        left = self.others()
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def others(self) -> list[psutil.Process]:
        """The kernel's descendants, also those that have left its tree: they inherit its environment."""
        mark = f"{MARK}={self.mark}".encode()
        children = set()
        with contextlib.suppress(psutil.NoSuchProcess):
            children = {child.pid for child in self.kernel.children(recursive=True)}
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(OSError, psutil.Error):
                ours = process.pid in children or mark in Path(f"/proc/{process.pid}/environ").read_bytes()
                if ours and process != self.kernel and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def execute(self, source: str, delay: float) -> tuple[bool, set[int]]:
        """Run a cell; interrupt it `delay` seconds after its first child has appeared, if it still has some.

        Returns whether it was interrupted, and the ports on which its children listened.
        """
        began, first, interrupted, ports = time.monotonic(), None, False, set()
        message = self.client.execute(source, allow_stdin=False)
        while not self.replied(message):
            now = time.monotonic()
            assert now - began < CELL, f"This cell does not end{' after an interrupt' * interrupted}:\n{source}"
            if interrupted or not (children := self.others()):
                continue
            first = first or now
            ports |= listening(children)
            if now - first >= delay:
                self.manager.interrupt_kernel()
                interrupted, began = True, now - CELL + ENDED
        return interrupted, ports

    def replied(self, message: str) -> bool:
        try:
            return self.client.get_shell_msg(timeout=0.2)["parent_header"]["msg_id"] == message
        except queue.Empty:
            return False

    def answers(self) -> bool:
        reply = self.client.execute_interactive("", user_expressions={"sum": "1 + 1"}, timeout=10, allow_stdin=False)
        return reply["content"]["user_expressions"]["sum"]["data"]["text/plain"] == "2"

    def left(self, ports: set[int]) -> list[str]:
        """What is left of a cell: processes, and ports among `ports` that somebody listens on.

        The kernel's own ports are no cell's: a child has them between its fork and its exec.
        """
        found = []
        for process in self.others():
            with contextlib.suppress(psutil.Error):  # it has ended just now
                found.append(" ".join(process.cmdline()))
        open_ports = (listening() & ports) | listening([self.kernel])
        return found + [f"port {port}" for port in open_ports - self.ports]


def listening(processes: list[psutil.Process] | None = None) -> set[int]:
    """The TCP ports on which these processes (default: all) listen."""
    if processes is not None:
        processes = {process.pid for process in processes}
    sockets = psutil.net_connections("tcp")
    return {s.laddr.port for s in sockets if s.status == "LISTEN" and (processes is None or s.pid in processes)}


def leavings(kernel: Notebook, source: str, delay: float, patience: float = GONE) -> tuple[bool, list[str]]:
    """Run a cell, interrupt it if it starts ranks; return whether, and what is left of it after `patience` seconds."""
    interrupted, ports = kernel.execute(source, delay)
    deadline = time.monotonic() + patience
    while (left := kernel.left(ports)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert kernel.answers()
    return interrupted, left


@pytest.fixture
def start(tmp_path, monkeypatch):
    """start(folder): a kernel there."""
    env = {**jupyter.environment(tmp_path / "jupyter"), "COURSE_SLICE": os.environ.get("COURSE_SLICE", "1279")}
    monkeypatch.setenv("JUPYTER_PATH", env["JUPYTER_PATH"])
    with contextlib.ExitStack() as stack:
        yield lambda folder: stack.enter_context(contextlib.closing(Notebook(folder, env)))


@pytest.mark.parametrize("path", MASTERS, ids=lambda path: path.stem)
def test_an_interrupted_cell_leaves_nothing(path, start, tmp_path):
    master = masters.read(path)
    workspace.fill(tmp_path / "work")
    kernel = start(tmp_path / "work" / master.assignment)
    seen = set()
    for cell in master.cells:
        pattern = re.sub(r'"[^"\n]*"', "", cell.source)  # check("one step") does what check("another") does
        if cell.markdown or cell.kind == "hidden" or pattern in seen:  # a hidden test does what its check does
            continue
        interrupted, left = leavings(kernel, cell.source, DELAYS[len(seen) % len(DELAYS)])
        assert not left, f"{left} left by\n{cell.source}"
        if interrupted:
            seen.add(pattern)
    assert seen, "no cell of this notebook starts ranks"


ASSESS = """
from course_grader.script import calibration
from course_grader.display import widgets
calibration.known = lambda *_: 10_000.0  # a busy host refuses to be calibrated
widgets.assess("assessment.py", profile="short")
next(iter(widgets._panels.values())).start()
"""


def runs_a_script(process):
    """Whether this is a sandbox's first process and has started the script: from then on it hears signals."""
    with contextlib.suppress(psutil.Error):  # it has ended just now
        return "course_grader.sandbox.entry" in process.cmdline()[:3] and process.children() != []
    return False


@pytest.mark.parametrize("how", ["interrupted", "shut down", "killed"])
def test_an_assessment_ends_with_its_kernel_and_at_an_interrupt(how, start, tmp_path):
    (tmp_path / "assessment.py").write_text("import time\ntime.sleep(600)\n")
    kernel = start(tmp_path)
    kernel.execute(ASSESS, delay=CELL)
    deadline = time.monotonic() + CELL
    running = []
    while not any(runs_a_script(process) for process in running):
        assert time.monotonic() < deadline, "nothing was started"
        time.sleep(0.5)
        running = kernel.others()
    if how == "interrupted":
        kernel.manager.interrupt_kernel()
        assert kernel.answers()
    else:
        kernel.manager.shutdown_kernel(now=how == "killed")
    assert not psutil.wait_procs(running, timeout=4 * GONE)[1]
    outcome, deadline = tmp_path / ".attempts" / "0001" / "outcome.json", time.monotonic() + GONE
    while how != "killed" and not outcome.exists():
        assert time.monotonic() < deadline, "the attempt was not kept"
        time.sleep(0.1)


LEAVES = {
    "sleep 60": "import subprocess, time; subprocess.Popen(['setsid', 'sleep', '60']); time.sleep(60)",  # a child
    "sleep 61": "import subprocess; subprocess.run('setsid sleep 61 >/dev/null 2>&1 &', shell=True)",  # a daemon
    "port": "import socket; server = socket.create_server(('127.0.0.1', 0))",
}


def test_what_a_cell_leaves_is_found_and_the_kernel_s_own_ports_are_not_what_its_fork_leaves(start, tmp_path):
    kernel = start(tmp_path)
    fork = "import os, time; child = os.fork()\nif not child: time.sleep(2); os._exit(0)\nos.waitpid(child, 0);"
    assert leavings(kernel, fork, delay=CELL) == (False, [])
    for what, cell in LEAVES.items():
        _, left = leavings(kernel, cell, delay=0, patience=1)
        assert re.match(what, *left)
        for process in kernel.others():
            process.kill()
