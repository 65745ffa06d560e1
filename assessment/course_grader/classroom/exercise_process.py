"""Run the exercises of one notebook against their tests, in a sandbox: `python -m … SPEC`.

For each test, what its exercise needs of the learner's notebook (see `slices`) runs in a child process of its own: what
it rebinds, patches, starts or breaks reaches no other test. The test itself sees the course's definitions, and of the
learner's the exercise alone. Where there are several slices the best counts: a learner may have written an exercise
twice, or have run cells in another order.

SPEC is a file with a JSON object:

    folder   the learner's files, where everything runs
    seconds  that a test may take; `total`: all tests together; `memory`: bytes of its own that a process may have
    cells    a list of {id, source}: the learner's cells, in their order
    course   the text of the course's own cells: what tests need, and what stands in for cells that a learner removed
    tests    a list of {id, source, points, exercise, names, missing}: the id of the exercise's cell, the names of the
             course's exercises that the test uses, and what to say where the notebook has no such cell

For each test a JSON line is printed: {id, outputs}, as a notebook has outputs.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import io
import itertools
import json
import os
import resource
import secrets
import signal
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from IPython.display import display

from course_grader.classroom.slices import Cell, Notebook, Statement, python
from course_lib.notebook import judging
from course_lib.system import supervise
from course_lib.system.errors import CourseError

NOT_JUDGED = "NotJudged"  # the name of the error of a test that the course, not the learner, could not go on with
MODULES = "modules"  # in the learner's folder: Python files of their own, which notebooks may import
MAX_OUTPUT = 10_000  # characters of a test that are kept
MAX_ANSWER_BYTES = 2**17
MAX_FILES = 2**12  # open ones that a child can have inherited
POLL_INTERVAL_S = 0.02
_PR_SET_DUMPABLE = 4
_TEST = "<test>"
_METHODS = (types.FunctionType, property, staticmethod, classmethod)
_GUARDED = ("builtins", "course_lib", "labs", "math", "numpy")  # packages whose functions a test stands on

Outputs = list[dict[str, Any]]


@dataclass(frozen=True)
class Test:
    """A test as SPEC has it."""

    id: str
    source: str
    points: float
    exercise: str
    names: tuple[str, ...]
    missing: str


class _Bounded(io.StringIO):
    def write(self, text: str) -> int:
        super().write(_plain(text[: max(0, MAX_OUTPUT - self.tell())]))
        return len(text)


def serve(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Run test after test; yield what came of each."""
    tests = [Test(**{**test, "names": tuple(test["names"])}) for test in spec["tests"]]
    cells = joined([(cell["id"], cell["source"]) for cell in spec["cells"]], {test.exercise for test in tests})
    given = Notebook([Cell(f"course {number}", source) for number, source in enumerate(spec["course"])])
    notebook = Notebook([cell for _, cell in cells], given, {name for test in tests for name in test.names})
    course = _course(given, tests)
    deadline = time.monotonic() + spec["total"]
    for test in tests:
        until = min(deadline, time.monotonic() + spec["seconds"])
        try:
            outputs = _best(test, notebook, cells, course, until) if test.names else _alone(test, course, until)
        except Exception as raised:
            outputs = [_raised(raised)]
        yield {"id": test.id, "outputs": outputs}


def joined(cells: list[tuple[str, str]], exercises: set[str]) -> list[tuple[str, Cell]]:
    """The cells, from (id, source). Adjacent pieces of an exercise's cell, which was split, are one again."""
    found: list[tuple[str, Cell]] = []
    for identifier, group in itertools.groupby(cells, lambda cell: cell[0]):
        sources = [source for _, source in group]
        if identifier in exercises:
            sources = list(dict.fromkeys(sources))
            whole = "\n".join(sources)
            sources = [whole] if _parses(whole) else sources
        for source in sources:
            number = len(found) + 1
            name = identifier if identifier in exercises else f"cell {number}"
            again = any(name == cell.name for _, cell in found)
            found.append((identifier, Cell(f"{name}, cell {number}" if again else name, source)))
    return found


def _parses(source: str) -> bool:
    try:
        ast.parse(python(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _course(given: Notebook, tests: list[Test]) -> dict[str, Any]:
    """The course's imports, and of its other definitions what the tests need."""
    exercises = {name for test in tests for name in test.names}
    read = Notebook([Cell(test.id, test.source) for test in tests]).reads() - exercises
    namespace: dict[str, Any] = {"__name__": "course_grader.tests"}
    for statement in [*given.imports(), *given.slices(sorted(read))[0]]:
        with contextlib.suppress(Exception):  # a test that needs it will say so
            statement.run(namespace)
    return namespace


def _best(
    test: Test, notebook: Notebook, cells: list[tuple[str, Cell]], course: dict[str, Any], until: float
) -> Outputs:
    """What came of the best of the slices, each run in a child."""
    own = [number for number, (identifier, _) in enumerate(cells) if identifier == test.exercise]
    broken = [notebook.broken[name] for number in own if (name := cells[number][1].name) in notebook.broken]
    if lacking := [name for name in test.names if not notebook.binds(name)]:
        if not own:
            return [error(NOT_JUDGED, test.missing)]
        why = broken[0] if broken else f"NameError: `{lacking[0]}` is defined nowhere in the notebook"
        return [error("SyntaxError" if broken else "NameError", why)]
    after = next((number for number, (identifier, _) in enumerate(cells) if identifier == test.id), None)
    after = after if after is not None else own[-1] + 1 if own else len(cells)
    best, most = [], float("-inf")
    for statements in notebook.slices(test.names, after):
        seconds = max(1.0, until - time.monotonic())
        outputs = _in_a_child(lambda: _judge(test, statements, course), seconds)  # noqa: B023
        fault = any(one.get("ename") == NOT_JUDGED for one in outputs)
        score = test.points - 1e-9 if fault else _score(outputs)  # nothing but full points goes before a fault of ours
        if score > most:
            best, most = outputs, score
        if score >= test.points or time.monotonic() > until:
            break
    return [_said(f"A cell is left out: {broken[0]}.\n"), *best] if broken and most < test.points else best


def _score(outputs: Outputs) -> float:
    return next((float(one["data"]["text/plain"]) for one in outputs if "data" in one), 0.0)


def _judge(test: Test, statements: list[Statement], course: dict[str, Any]) -> Outputs:
    """Run the learner's statements, then the test; in a child, which may do with the namespaces what it likes."""
    guarded = list(_functions())
    sys.modules["__main__"] = types.ModuleType("__main__")
    learner = vars(sys.modules["__main__"])
    learner.update(print=_print, display=_print)
    failures: dict[Statement, BaseException] = {}
    with contextlib.redirect_stdout(_Bounded()), contextlib.redirect_stderr(_Bounded()):
        for statement in statements:
            try:
                statement.run(learner)
            except (Exception, SystemExit) as raised:  # the exercise may do without
                failures[statement] = raised
    if learner.get("display") is display:
        learner["display"] = _print
    for name in test.names:
        if name not in learner:
            why = next((raised for one, raised in failures.items() if name in one.binds), NameError(f"no `{name}`"))
            return [_raised(why)]
    course.update({name: learner[name] for name in test.names})
    outputs = run(test.source, course)
    if changed := next((what for what, place, key, value in guarded if place.get(key) is not value), None):
        return [error(NOT_JUDGED, f"It changes `{changed}`, on which the tests stand: read the cell.")]
    if failures and _score(outputs) < test.points:
        outputs.insert(0, _said(f"Left out: {'; '.join(dict.fromkeys(map(_told, failures.values())))}.\n"))
    return outputs


def _print(*values: object, file: Any = None, **options: Any) -> None:
    """What a learner prints is no reason for a mark."""
    if file not in (None, sys.stdout, sys.stderr):
        print(*values, file=file, **options)


def _functions() -> Iterator[tuple[str, Any, str, Any]]:
    """(what, names, name, value) of each function that tests stand on, the methods of the course's classes included."""
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] in _GUARDED:
            for name, value in list(vars(module).items()):
                if callable(value):
                    yield f"{module_name}.{name}", vars(module), name, value
                if isinstance(value, type) and value.__module__.startswith(("course_lib", "labs")):
                    methods = [(key, one) for key, one in vars(value).items() if isinstance(one, _METHODS)]
                    yield from ((f"{value.__name__}.{key}", vars(value), key, method) for key, method in methods)


def run(source: str, namespace: dict[str, Any]) -> Outputs:
    """Run a test; its outputs, of which the result is a number or is missing."""
    said, found = _Bounded(), None
    problem: Outputs = []
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(_Bounded()):
        try:
            *statements, last = ast.parse(source).body
            exec(compile(ast.Module(statements, []), _TEST, "exec"), namespace)
            found = eval(compile(ast.Expression(last.value), _TEST, "eval"), namespace)
        except (Exception, SystemExit) as raised:
            problem = [_raised(raised)]
    outputs = [_said(text)] if (text := said.getvalue()) else []
    if type(found) in (int, float):  # its subclasses can say what they like
        data = {"text/plain": repr(found)}
        outputs.append({"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": 0})
    return outputs + problem


def error(name: str, value: str, lines: list[str] | None = None) -> dict[str, Any]:
    """The output of a cell that ended in an error."""
    return {"output_type": "error", "ename": name, "evalue": value, "traceback": lines or []}


def _said(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def _raised(raised: BaseException) -> dict[str, Any]:
    """The output of a test that raised this; what no code of the learner's raised is a fault of ours."""
    failed = isinstance(raised, judging.CheckFailed)
    frames = traceback.extract_tb((raised.__cause__ if failed and raised.__cause__ else raised).__traceback__)
    if isinstance(raised, AssertionError) and frames[-1].filename == _TEST:
        return error("AssertionError", "")  # what it says is the test's secret
    if not failed and (not frames or judging.is_learners(raised)):
        name = type(raised).__name__
        return error("Exception" if name == NOT_JUDGED else _plain(name), _plain(_told(raised)))
    if isinstance(raised, CourseError):
        return error(NOT_JUDGED, _plain(str(raised)))
    place = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}"
    what = judging.message(raised) if failed else f"The test failed, not what it tests ({judging.described(raised)})."
    lines = list(map(_plain, traceback.format_exception(type(raised), raised, raised.__traceback__)))
    return error(NOT_JUDGED, _plain(f"{what.removesuffix('.')}, {place}."), lines)


def _told(raised: BaseException) -> str:
    """An error's type, message and, where it passed a learner's cell, its line there."""
    place = judging.learners_place(raised)
    return judging.described(raised) + (f" ({place[1]})" if place else "")


def _plain(text: str) -> str:
    """The text as it can be written to a file: what is no character is spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _alone(test: Test, course: dict[str, Any], until: float) -> Outputs:
    """A test of no exercise runs in this process: no code of the learner's is here. Scripts that it starts may hang."""

    def late(*_: object) -> None:
        raise _Late

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, until - time.monotonic()))
    try:
        return run(test.source, course)
    except _Late:
        return [error("CellTimeoutError", "")]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class _Late(BaseException):
    """A test's time is up."""


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
    sys.path += [spec["folder"], str(Path(spec["folder"], MODULES))]  # last: no file there takes a package's place
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (1, 2):  # what the cells print is no answer
            os.dup2(nowhere, number)
        for answer in serve(spec):
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    from course_grader.classroom import exercise_process

    exercise_process.main()  # not this `__main__`, which is the learner's name: see `judging.learners_place`
