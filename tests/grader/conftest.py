"""The corpus: scripts, and how the grader is asked about one and watched afterwards."""

from __future__ import annotations

import atexit
import base64
import contextlib
import functools
import http.server
import multiprocessing
import os
import re
import secrets
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

import psutil
import pytest

from course_grader import sandbox
from course_grader.script import calibration, contract, grader, slots
from course_grader.script.evaluator import Evaluator
from course_lib.authoring import conversions
from course_lib.system.paths import ROOT

CORPUS = Path(__file__).with_name("corpus")
SECRET = "a file of the host's"
GONE_AFTER_S = 10  # processes may take so long to be gone after the grader's answer
INCLUDE = re.compile(r"^#: (\w[\w /]*)\n((?:#:(?: [-+].*)?\n)*)", re.MULTILINE)


def complete(name: str) -> str:
    """The text of a script of the corpus.

    A line `#: NAME` stands for the whole text of another: `starter`, `reference`, `reference without STEP`,
    `reference large`, `plain` or a file's name. Lines
    `#: - old` and `#: + new` below it are edits: the old lines, found once, give way to the new ones. `#:` parts two
    edits.
    """
    whole, _, step = name.partition(" without ")
    if whole in ("reference", "starter"):
        steps = conversions.steps(conversions.ASSESSMENT) if whole == "reference" else []
        return conversions.converted([one for one in steps if one != step], folder=conversions.ASSESSMENT)
    if name == "reference large":
        return (ROOT / "assessment" / "reference" / "large.py").read_text(encoding="utf-8")
    path = CORPUS / ("honest/plain.py" if name == "plain" else f"{name}.py")
    if not path.exists():
        return complete(name.replace("broken/without_", "reference without "))
    text = path.read_text(encoding="utf-8")
    return INCLUDE.sub(lambda found: _edited(complete(found[1]), found[2]), text)


def _edited(text: str, edits: str) -> str:
    for edit in edits.split("#:\n") if edits else ():
        lines = edit.splitlines()
        old, new = ("\n".join(line[5:] for line in lines if line[3] == sign) for sign in "-+")
        assert text.count(old) == 1, f"{old!r} is there {text.count(old)} times, not once"
        text = text.replace(old, new)
    return text


@dataclass(frozen=True)
class Graded:
    """What came of grading a script, and what was there of it afterwards that should not be."""

    outcome: grader.Outcome
    left: list[str]


class Room:
    """A folder in which one script is graded; nothing outside of it may change, and nothing may be left in it."""

    def __init__(self, folder: Path, server: str) -> None:
        self.folder = folder
        self.outside = folder / "outside.h5"
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        self.outside.write_text(SECRET)
        self._ports = _ports()
        self._fill = {"@server@": server, "@outside@": str(self.outside), "@weights@": _blob()}

    def grade(
        self,
        name: str,
        *,
        profile: str = "short",
        memory: float | None = None,
        **asked: float,
    ) -> grader.Outcome:
        """Assess a script by name; `memory` and what is `asked` take the place of what contract and profile say."""
        text = complete(name)
        for mark, filling in self._fill.items():
            text = text.replace(mark, filling)
        path = self.folder / "script.py"
        path.write_text(text, encoding="utf-8")
        terms = contract.read()
        profiles = {profile: replace(terms.profiles[profile], **asked)}
        limits = replace(terms.limits, memory=memory or terms.limits.memory)
        return grader.assess(path, profile=profile, contract=replace(terms, profiles=profiles, limits=limits))

    def left(self, patience: float = GONE_AFTER_S) -> list[str]:
        """What is still there, after so many seconds, that the grader or the script has started, made or changed."""
        deadline = time.monotonic() + patience
        while (found := self._found()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def _found(self) -> list[str]:
        found = [str(path) for path in self.temporary.iterdir()]
        if self.outside.read_text() != SECRET:
            found.append(f"{self.outside} has changed")
        places = (ROOT, Path.cwd(), Path.home(), Path("/tmp"), Path("/dev/shm"), Path("/var/tmp"), self.folder)
        found += [str(place / "sitecustomize.py") for place in places if (place / "sitecustomize.py").exists()]
        found += [f"port {port}" for port in _ports() - self._ports]
        return found + [f"process {process.pid}" for process in psutil.process_iter() if self._ours(process)]

    def _ours(self, process: psutil.Process) -> bool:
        """True for processes that name the folder, or that see a part of it where they are confined."""
        if process.pid == os.getpid():
            return False
        with contextlib.suppress(psutil.Error, OSError):
            seen = [*process.cmdline(), *process.environ().values()]
            seen.append(Path(f"/proc/{process.pid}/mountinfo").read_text())
            return any(str(self.folder) in text for text in seen)
        return False


def _blob() -> str:
    """More than the largest script that the contract takes."""
    return base64.b64encode(secrets.token_bytes(contract.read().largest * 1024)).decode()


def _ports() -> set[int]:
    """Ports that this process listens on, with all that it has started."""
    mine, found = psutil.Process(), set()
    for process in (mine, *mine.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            connections = process.net_connections(kind="inet")
            found |= {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}
    return found


# The corpus is graded by two processes. They share the cores, which is why nothing here depends on the clock, and each
# keeps one evaluator. What only a host's first assessment needs, and the waiting for free cores, are left out.


def _prepare(folder: str, started: Synchronized) -> None:
    signal.signal(signal.SIGINT, lambda *_: None)  # who waits for us ends us
    tempfile.tempdir = folder
    evaluators = contextlib.ExitStack()
    few = contract.read().profiles["short"].images
    shared = evaluators.enter_context(Evaluator(contract.read().data, few))
    atexit.register(evaluators.close)
    grader.Evaluator = lambda data, images: contextlib.nullcontext(shared) if images == few else Evaluator(data, images)
    calibration.known = lambda ranks: contract.read().images_per_second
    grader.SERIAL_LIMIT_S = 240.0  # two scripts share the host
    slots.take = lambda *_, **__: contextlib.nullcontext(sorted(os.sched_getaffinity(0)))
    sandbox.cores_cpu_seconds = lambda _: None  # the other process would be to blame for every late script
    with started:
        started.value += 1
        # Runs on one rank take the first core: one process begins with the last.
        sandbox.sorted = functools.partial(sorted, reverse=started.value % 2 == 0)


def _grade(name: str, folder: Path, server: str, terms: dict[str, Any], chance: bool) -> Graded:
    room = Room(folder, server)
    os.environ["TMPDIR"] = tempfile.tempdir = str(room.temporary)
    outcome = room.grade(name, **terms)
    if chance and (outcome.passed or outcome.needs_a_look):
        outcome = room.grade(name, **terms)
    return Graded(outcome, room.left())


@pytest.fixture(scope="session")
def server() -> Iterator[tuple[str, list[str]]]:
    """A server that hands out a solution: its address, and the paths that it was asked for."""
    asked: list[str] = []

    class Solutions(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(complete("plain").encode())

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Solutions) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{serving.server_port}/", asked
        serving.shutdown()


@pytest.fixture
def room(tmp_path) -> Room:
    """A room in which nothing has happened yet."""
    return Room(tmp_path / "room", "http://127.0.0.1/")


@pytest.fixture(scope="session")
def graded(request, tmp_path_factory, server) -> Iterator[dict[str, Future]]:
    """Every script that a test asks for (`name`, `marks`), being graded: its name → a future of `Graded`."""
    asked = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    asked = {params["name"]: params["marks"] for params in asked if {"name", "marks"} <= set(params)}
    folder = tmp_path_factory.mktemp("corpus")
    fork = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(2, fork, initializer=_prepare, initargs=(str(folder), fork.Value("i", 0))) as pool:
        try:
            yield {
                name: pool.submit(
                    _grade, name, folder / name, server[0], marks.get("contract", {}), marks.get("chance", False)
                )
                for name, marks in asked.items()
            }
        finally:  # also at Ctrl-C: those that have not begun are not waited for
            pool.shutdown(cancel_futures=True)
