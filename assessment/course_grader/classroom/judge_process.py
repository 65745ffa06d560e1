"""Judge the exercises of one notebook, in a sandbox: `python -m … SPEC`.

A learner's cell runs in a child process of its own for each test that asks for it: what it rebinds, patches, starts or
breaks reaches no other test. The tests see the course's own imports and definitions, and of the learner's cells what
the exercises are named for. Other cells of the notebook are not run.

SPEC is a file with a JSON object:

    folder   the learner's files, where everything runs
    seconds  that a test may take; `total`: all tests together; `memory`: bytes of its own that a process may have
    cells    a list of {id, kind, source, names, look}: course, exercise or test; the names that an exercise defines,
             and what in it has to be looked at first; of a test, what in the scripts, where it asks for no exercise

For each test a JSON line is printed: {id, outputs}, as a notebook has outputs.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import io
import json
import os
import resource
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from course_lib.system import supervise
from course_lib.system.errors import CourseError

LOOK = "NeedsALook"  # the name of the error of a test whose cells somebody has to look at first
NOT_JUDGED = "NotJudged"  # of a test in which the course, not a learner's cell, could not go on
MAX_OUTPUT = 10_000  # characters of a test that are kept
MAX_ANSWER_BYTES = 2**17
MAX_FILES = 2**12  # open ones that a child can have inherited
POLL_INTERVAL_S = 0.02
_PR_SET_DUMPABLE = 4

Outputs = list[dict[str, Any]]


@dataclass(frozen=True)
class Cell:
    """A cell as SPEC has it."""

    id: str
    kind: str
    source: str
    names: tuple[str, ...] = ()
    look: tuple[str, ...] = ()


class _Bounded(io.StringIO):
    def write(self, text: str) -> int:
        super().write(_plain(text[: max(0, MAX_OUTPUT - self.tell())]))
        return len(text)


def serve(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Judge test after test; yield what came of each."""
    cells = [Cell(**{**cell, "names": tuple(cell["names"]), "look": tuple(cell["look"])}) for cell in spec["cells"]]
    definitions = [cell.source for cell in cells if cell.kind == "course"]
    course, learner = _defined(definitions), _defined(definitions, hidden=("labs", "course_lib.notebook"))
    exercises = [cell for cell in cells if cell.kind == "exercise"]
    deadline = time.monotonic() + spec["total"]
    for test in cells:
        if test.kind != "test":
            continue
        needed = _needed(test.source, exercises)
        look = [f"{cell.id}, {finding}" for cell in needed for finding in cell.look] if needed else test.look
        seconds = max(1.0, min(spec["seconds"], deadline - time.monotonic()))
        if look:
            outputs = [error(LOOK, "; ".join(look))]
        elif needed:
            outputs = _in_a_child(lambda: _judge(test, needed, course, learner), seconds)  # noqa: B023
        else:
            outputs = _within(lambda: _of_the_course(run(test.source, course)), seconds)  # noqa: B023
        yield {"id": test.id, "outputs": outputs}


def run(source: str, namespace: dict[str, Any]) -> Outputs:
    """Run a test; its outputs, of which the result is a number or is missing."""
    said, found = _Bounded(), None
    problem: Outputs = []
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(_Bounded()):
        try:
            *statements, last = ast.parse(source).body
            exec(compile(ast.Module(statements, []), "<test>", "exec"), namespace)
            found = eval(compile(ast.Expression(last.value), "<test>", "eval"), namespace)
        except (Exception, SystemExit) as raised:
            problem = [_ended_in(raised)]
    text = said.getvalue()
    outputs = [{"output_type": "stream", "name": "stdout", "text": text}] if text else []
    if type(found) in (int, float):  # its subclasses can say what they like
        data = {"text/plain": repr(found)}
        outputs.append({"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": 0})
    return outputs + problem


def error(name: str, value: str) -> dict[str, Any]:
    """The output of a cell that ended in an error."""
    return {"output_type": "error", "ename": name, "evalue": value, "traceback": []}


def _ended_in(raised: BaseException) -> dict[str, Any]:
    """The output of a cell that raised this; that it needs a look is not the learner's to say."""
    name = type(raised).__name__
    return error("Exception" if name in (LOOK, NOT_JUDGED) else _plain(name), _plain(str(raised)[:MAX_OUTPUT]))


def _of_the_course(outputs: Outputs) -> Outputs:
    """The outputs of a test in which no cell of the learner's runs: a CourseError in it says nothing of the learner."""
    return [{**one, "ename": NOT_JUDGED} if one.get("ename") == CourseError.__name__ else one for one in outputs]


def _plain(text: str) -> str:
    """The text as it can be written to a file: what is no character is spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _defined(sources: list[str], hidden: tuple[str, ...] = ()) -> dict[str, Any]:
    """What the course's cells import and define, but for what comes from `hidden` packages.

    What the cells calculate is for show, and is left out.
    """
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for source in sources:
        for statement in ast.parse(source).body:
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith(hidden or "."):
                continue
            if _is_definition(statement):
                with contextlib.suppress(NameError):  # of what another cell calculates
                    exec(compile(ast.Module([statement], []), "<course>", "exec"), namespace)
    return namespace


def _is_definition(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assign):
        return not any(isinstance(node, (ast.Call, ast.Await)) for node in ast.walk(statement))
    return isinstance(statement, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef))


def _needed(source: str, exercises: list[Cell]) -> list[Cell]:
    """The exercises that a test names, and those that these name, in the notebook's order."""
    wanted, todo = set(), [source]
    while todo:
        used = _names(todo.pop())
        new = {cell for cell in exercises if used.intersection(cell.names)} - wanted
        wanted |= new
        todo += [cell.source for cell in new]
    return [cell for cell in exercises if cell in wanted]


def _names(source: str) -> set[str]:
    try:
        return {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()


def _judge(test: Cell, needed: list[Cell], course: dict[str, Any], learner: dict[str, Any]) -> Outputs:
    """Run the learner's cells, then the test; in a child, which may do with the namespaces what it likes."""
    for cell in needed:
        try:
            with contextlib.redirect_stdout(_Bounded()), contextlib.redirect_stderr(_Bounded()):
                exec(compile(cell.source, f"<{cell.id}>", "exec"), learner)
        except (Exception, SystemExit) as raised:
            return [_ended_in(raised)]
    names = [name for cell in needed for name in cell.names if name in learner]
    return run(test.source, {**course, **{name: learner[name] for name in names}})


def _within(judge: Callable[[], Outputs], seconds: float) -> Outputs:
    """What `judge` returns in this process, where no code of the learner's runs; scripts that it starts may hang."""

    def late(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return judge()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _in_a_child(judge: Callable[[], Outputs], seconds: float) -> Outputs:
    """What `judge` returns in a child process; nothing that it started is left.

    It runs in a thread, so that no frame that it can reach knows the token.
    """
    reading, writing = os.pipe()
    token = secrets.token_bytes(16)  # what the learner's code writes into the pipe does not begin with it
    child = os.fork()
    if not child:
        code, judged = 1, []
        try:
            os.closerange(3, writing)
            os.closerange(writing + 1, MAX_FILES)
            thread = threading.Thread(target=lambda: judged.append(judge()))
            thread.start()
            thread.join()
            with open(writing, "wb") as answer:
                answer.write(token + json.dumps(judged[0]).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    deadline, answer = time.monotonic() + seconds, b""
    with open(reading, "rb", buffering=0) as stream:
        os.set_blocking(reading, False)
        ended = late = False
        while not ended and not late:
            number, status = os.waitpid(child, os.WNOHANG)
            ended, late = number == child, time.monotonic() > deadline
            while (piece := stream.read(2**16)) and len(answer) < MAX_ANSWER_BYTES:
                answer += piece
            if not ended:
                time.sleep(POLL_INTERVAL_S)
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    supervise.end_tree(0.0)
    if late and not ended:
        return [error("CellTimeoutError", "")]
    with contextlib.suppress(ValueError):
        if answer.startswith(token) and status == 0:
            return json.loads(answer.removeprefix(token))
    return [error("DeadKernelError", "")]


def main() -> None:
    """Entry point."""
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    resource.setrlimit(resource.RLIMIT_DATA, (spec["memory"], spec["memory"]))
    supervise.adopt_orphans()
    if sys.platform == "linux":  # no child may look into this process, or into another's pipe
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)
    os.chdir(spec["folder"])
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (1, 2):  # what the cells print is no answer
            os.dup2(nowhere, number)
        for answer in serve(spec):
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
