"""Run the exercises of one notebook against their tests, in a sandbox: `python -m … SPEC`.

For each test, the statements that its exercise needs from the learner's notebook (see `slices`) run in their own child
process: what they rebind, patch, start or break affects no other test. The test sees the course's definitions and, of
the learner's, the exercise only. If there are several slices, the best one counts: a learner may have written an
exercise twice, or have run cells in another order.

SPEC is a file with a JSON object:

    folder   the learner's files; the working directory
    seconds  time limit of a test; `total`: of all tests together; `memory`: bytes of private memory for a process
    cells    a list of {id, source}: the learner's cells, in their order
    course   the texts of the course's cells: for the tests, and in place of cells that a learner removed
    tests    a list of {id, source, points, exercise, names, missing}: `exercise` is the id of the exercise's cell,
             `names` are the course's exercises that the test uses, `missing` is the message if there is no such cell

For each test a JSON line is printed: {id, outputs}, with outputs in the format of a notebook.
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

NOT_JUDGED = "NotJudged"  # name of the error if the course, not the learner, failed
MODULES = "modules"  # in the learner's folder: the learner's Python files, which notebooks may import
MAX_OUTPUT = 10_000  # characters of a test's output
MAX_ANSWER_BYTES = 2**17
MAX_FILES = 2**12  # a child closes all file descriptors below this number
POLL_INTERVAL_S = 0.02
_PR_SET_DUMPABLE = 4
_TEST = "<test>"
_METHODS = (types.FunctionType, property, staticmethod, classmethod)
_GUARDED = ("builtins", "course_lib", "labs", "math", "numpy")  # packages whose functions the tests use

Outputs = list[dict[str, Any]]


@dataclass(frozen=True)
class Test:
    """A test, as in SPEC."""

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
    """Run the tests one by one; yield {id, outputs} for each."""
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
    """Return (id, cell) for each (id, source). Adjacent pieces of an exercise's cell that was split are joined."""
    joined_cells: list[tuple[str, Cell]] = []
    for identifier, group in itertools.groupby(cells, lambda cell: cell[0]):
        sources = [source for _, source in group]
        if identifier in exercises:
            sources = list(dict.fromkeys(sources))
            text = "\n".join(sources)
            sources = [text] if _parses(text) else sources
        for source in sources:
            number = len(joined_cells) + 1
            name = identifier if identifier in exercises else f"cell {number}"
            again = any(name == cell.name for _, cell in joined_cells)
            joined_cells.append((identifier, Cell(f"{name}, cell {number}" if again else name, source)))
    return joined_cells


def _parses(source: str) -> bool:
    try:
        ast.parse(python(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _course(given: Notebook, tests: list[Test]) -> dict[str, Any]:
    """Return a namespace with the course's imports, and those of its other definitions that the tests need."""
    exercises = {name for test in tests for name in test.names}
    read = Notebook([Cell(test.id, test.source) for test in tests]).reads() - exercises
    namespace: dict[str, Any] = {"__name__": "course_grader.tests"}
    for statement in [*given.imports(), *given.slices(sorted(read))[0]]:
        with contextlib.suppress(Exception):  # a test that needs it will fail
            statement.run(namespace)
    return namespace


def _best(
    test: Test, notebook: Notebook, cells: list[tuple[str, Cell]], course: dict[str, Any], until: float
) -> Outputs:
    """Run each slice in a child; return the outputs of the best one."""
    own = [number for number, (identifier, _) in enumerate(cells) if identifier == test.exercise]
    broken = [notebook.broken[name] for number in own if (name := cells[number][1].name) in notebook.broken]
    if missing := [name for name in test.names if not notebook.binds(name)]:
        if not own:
            return [error(NOT_JUDGED, test.missing)]
        reason = broken[0] if broken else f"NameError: `{missing[0]}` is defined nowhere in the notebook"
        return [error("SyntaxError" if broken else "NameError", reason)]
    after = next((number for number, (identifier, _) in enumerate(cells) if identifier == test.id), None)
    after = after if after is not None else own[-1] + 1 if own else len(cells)
    best, best_score = [], float("-inf")
    for statements in notebook.slices(test.names, after):
        seconds = max(1.0, until - time.monotonic())
        outputs = _in_a_child(lambda: _judge(test, statements, course), seconds)  # noqa: B023
        fault = any(output.get("ename") == NOT_JUDGED for output in outputs)
        score = test.points - 1e-9 if fault else _score(outputs)  # only full points are better than an error of ours
        if score > best_score:
            best, best_score = outputs, score
        if score >= test.points or time.monotonic() > until:
            break
    return [_printed(f"A cell was skipped: {broken[0]}.\n"), *best] if broken and best_score < test.points else best


def _score(outputs: Outputs) -> float:
    return next((float(output["data"]["text/plain"]) for output in outputs if "data" in output), 0.0)


def _judge(test: Test, statements: list[Statement], course: dict[str, Any]) -> Outputs:
    """Run the learner's statements, then the test. This changes both namespaces, so it must run in a child."""
    guarded = list(_functions())
    sys.modules["__main__"] = types.ModuleType("__main__")
    learner = vars(sys.modules["__main__"])
    learner.update(print=_print, display=_print)
    failures: dict[Statement, BaseException] = {}
    with contextlib.redirect_stdout(_Bounded()), contextlib.redirect_stderr(_Bounded()):
        for statement in statements:
            try:
                statement.run(learner)
            except (Exception, SystemExit) as raised:  # the exercise may work without this statement
                failures[statement] = raised
    if learner.get("display") is display:
        learner["display"] = _print
    for name in test.names:
        if name not in learner:
            causes = [raised for statement, raised in failures.items() if name in statement.binds]
            return [_raised(causes[0] if causes else NameError(f"no `{name}`"))]
    course.update({name: learner[name] for name in test.names})
    outputs = run(test.source, course)
    if changed := next((title for title, names, key, value in guarded if names.get(key) is not value), None):
        return [error(NOT_JUDGED, f"It changes `{changed}`, which the tests use: review the cell.")]
    if failures and _score(outputs) < test.points:
        outputs.insert(0, _printed(f"Skipped: {'; '.join(dict.fromkeys(map(_described, failures.values())))}.\n"))
    return outputs


def _print(*values: object, file: Any = None, **options: Any) -> None:
    """Print to files only: what a learner's code prints must not become the reason for a mark."""
    if file not in (None, sys.stdout, sys.stderr):
        print(*values, file=file, **options)


def _functions() -> Iterator[tuple[str, Any, str, Any]]:
    """Yield (title, namespace, name, value) for functions that tests use, and for methods of the course's classes."""
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] in _GUARDED:
            for name, value in list(vars(module).items()):
                if callable(value):
                    yield f"{module_name}.{name}", vars(module), name, value
                if isinstance(value, type) and value.__module__.startswith(("course_lib", "labs")):
                    methods = [(key, method) for key, method in vars(value).items() if isinstance(method, _METHODS)]
                    yield from ((f"{value.__name__}.{key}", vars(value), key, method) for key, method in methods)


def run(source: str, namespace: dict[str, Any]) -> Outputs:
    """Run a test in a namespace; return its outputs. A result that is not a number is left out."""
    printed, result = _Bounded(), None
    problem: Outputs = []
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(_Bounded()):
        try:
            *statements, last = ast.parse(source).body
            exec(compile(ast.Module(statements, []), _TEST, "exec"), namespace)
            result = eval(compile(ast.Expression(last.value), _TEST, "eval"), namespace)
        except (Exception, SystemExit) as raised:
            problem = [_raised(raised)]
    outputs = [_printed(text)] if (text := printed.getvalue()) else []
    if type(result) in (int, float):  # a subclass could have any `repr`
        data = {"text/plain": repr(result)}
        outputs.append({"output_type": "execute_result", "data": data, "metadata": {}, "execution_count": 0})
    return outputs + problem


def error(name: str, value: str, lines: list[str] | None = None) -> dict[str, Any]:
    """Return the output of a cell that ended in an error: its name, message and traceback."""
    return {"output_type": "error", "ename": name, "evalue": value, "traceback": lines or []}


def _printed(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text}


def _raised(raised: BaseException) -> dict[str, Any]:
    """Return the output of a test that raised this error; without learner's code in its traceback it is ours."""
    failed = isinstance(raised, judging.CheckFailed)
    frames = traceback.extract_tb((raised.__cause__ if failed and raised.__cause__ else raised).__traceback__)
    if isinstance(raised, AssertionError) and frames[-1].filename == _TEST:
        return error("AssertionError", "")  # its message would show the hidden test
    if not failed and (not frames or judging.is_learners(raised)):
        name = type(raised).__name__
        return error("Exception" if name == NOT_JUDGED else _plain(name), _plain(_described(raised)))
    if isinstance(raised, CourseError):
        return error(NOT_JUDGED, _plain(str(raised)))
    line = f"{Path(frames[-1].filename).name}, line {frames[-1].lineno}"
    message = (
        judging.message(raised) if failed else f"The test itself failed, not the answer ({judging.described(raised)})."
    )
    lines = list(map(_plain, traceback.format_exception(type(raised), raised, raised.__traceback__)))
    return error(NOT_JUDGED, _plain(f"{message.removesuffix('.')}, {line}."), lines)


def _described(raised: BaseException) -> str:
    """Return an error's type and message and, if it is in a learner's cell, its line."""
    place = judging.learners_place(raised)
    return judging.described(raised) + (f" ({place[1]})" if place else "")


def _plain(text: str) -> str:
    """Return the text in valid Unicode: surrogates are escaped."""
    return text.encode("utf-8", "backslashreplace").decode()


def _alone(test: Test, course: dict[str, Any], until: float) -> Outputs:
    """Run a test of no exercise in this process, as it has no learner's code; it may start scripts, which may hang."""

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
    """Return what `judge` returns in a child process; then end all processes that it started.

    `judge` runs in a thread, so that learner's code finds no frame with the token.
    """
    reading, writing = os.pipe()
    token = secrets.token_bytes(16)  # starts the answer, so that learner's code cannot write one into the pipe
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
    """Read SPEC, confine this process, run the tests and print their outputs."""
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    resource.setrlimit(resource.RLIMIT_DATA, (spec["memory"], spec["memory"]))
    supervise.adopt_orphans()
    if sys.platform == "linux":  # no child may read this process's memory, or another child's pipe
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)
    os.chdir(spec["folder"])
    sys.path += [spec["folder"], str(Path(spec["folder"], MODULES))]  # at the end: no file there can hide a package
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number in (1, 2):  # the cells' own output must not mix with the answers
            os.dup2(nowhere, number)
        for answer in serve(spec):
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    from course_grader.classroom import exercise_process

    exercise_process.main()  # not this `__main__`, which is the learner's name: see `judging.learners_place`
