"""The process that runs exercises: what a cell can reach, when what comes of it counts, whose fault an error is."""

from __future__ import annotations

import json

import nbformat
import pytest

from course_grader.classroom import exercise_process, preprocessors
from course_grader.classroom.slices import Cell

HEAD = "def answer(x):\n    "
NAMES_ABOVE = """
import sys
frame, names = sys._getframe(), []
while frame:
    names += frame.f_locals
    frame = frame.f_back
print(*names)
1
"""
WRITES = """
import os
for number in range(3, 40):
    try:
        os.write(number, TOKEN + b'[{"output_type": "execute_result"}]')
    except OSError:
        pass
os._exit(CODE)
1
"""


def in_a_child(source: str, **names: object) -> exercise_process.Outputs:
    return exercise_process._in_a_child(lambda: exercise_process.run(source, names), 10)


def served(*cells, test="answer(1)", course=(), seconds=20, points=2.0, names=("answer",)):
    """(score, reason) of a test of the exercise `answer`; cells are (id, source) or a source of the exercise's."""
    about = {"id": "answer-test", "source": test, "points": points, "exercise": "answer"}
    cells = [one if isinstance(one, tuple) else ("answer", one) for one in cells]
    spec = {
        "seconds": seconds,
        "total": 60,
        "cells": [{"id": name, "source": source} for name, source in cells],
        "course": list(course),
        "tests": [{**about, "names": list(names), "missing": "no cell"}],
    }
    (answer,) = exercise_process.serve(spec)
    return preprocessors.judge([nbformat.from_dict(output) for output in answer["outputs"]], points)


def test_an_answer_is_what_the_test_says():
    said, result = in_a_child("print('half')\n0.5")
    assert said["text"] == "half\n" and result["data"] == {"text/plain": "0.5"}


def test_no_frame_above_a_cell_knows_the_token():
    (said, _) = in_a_child(NAMES_ABOVE)
    assert not {"token", "writing"}.intersection(said["text"].split())


@pytest.mark.parametrize(("code", "counts"), [(0, True), (3, False)])
def test_an_answer_of_a_process_that_failed_does_not_count(monkeypatch, code, counts):
    monkeypatch.setattr(exercise_process.secrets, "token_bytes", lambda number: b"T" * number)
    (output,) = in_a_child(WRITES, TOKEN=b"T" * 16, CODE=code)
    assert (output.get("ename") is None) is counts


@pytest.mark.parametrize("ending", ["raise KeyboardInterrupt", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_a_cell_that_ends_its_process_gets_nothing_and_is_told_so(ending):
    score, reason = served(f"import os\n{HEAD}{ending}")
    assert (score, reason) == (0, "The process ended before the test: it ran out of memory, or the cell ended it.")


def test_a_cell_that_takes_too_long_is_told_so():
    assert served(f"{HEAD}while True:\n        pass", seconds=1) == (0, "The test took too long.")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (f"{HEAD}y = 2\n    return x / 0", "ZeroDivisionError: division by zero (line 3 of your cell)."),
        (f"\n\n{HEAD}return nowhere(x)", "NameError: name 'nowhere' is not defined (line 4 of your cell)."),
        (f"{HEAD}raise NotImplementedError()", "NotImplementedError (line 2 of your cell)."),
        (
            f"{HEAD}return f(x)\ndef f(x):\n    return [][x]",
            "IndexError: list index out of range (line 4 of your cell).",
        ),
        ("def answer():\n    return 1", "TypeError: answer() takes 0 positional arguments but 1 was given."),
        (
            f"import not_here\n\n{HEAD}return not_here.f(x)",
            "Skipped: ModuleNotFoundError: No module named 'not_here' (line 1 of your cell). "
            "NameError: name 'not_here' is not defined (line 4 of your cell).",
        ),
        (f"x = 1\n{HEAD}return x +\n", "SyntaxError: invalid syntax (line 3 of your cell)."),
        (f"%%time\n\n{HEAD}return x\n     x", "SyntaxError: unexpected indent (line 5 of your cell)."),
        (f"@undefined\n{HEAD}return x", "NameError: name 'undefined' is not defined (line 1 of your cell)."),
        ("def my_answer(x):\n    return x", "NameError: `answer` is defined nowhere in the notebook."),
        (f"{HEAD}import sys\n    sys.exit('enough')", "SystemExit: enough (line 3 of your cell)."),
        (f"{HEAD}return bytearray(2**62)", "MemoryError (line 2 of your cell)."),
        (
            f"{HEAD}raise type('NotJudged', (Exception,), {{}})('as I say')",
            "NotJudged: as I say (line 2 of your cell).",
        ),
    ],
)
def test_an_error_in_the_learners_cell_is_told_with_its_type_message_and_line(source, reason):
    assert served(source) == (0, reason)


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("answer(1) + {}['key']", "The test itself failed, not the answer (KeyError: 'key'), <test>, line 1."),
        ("1\nanswer(1) / []", "The test itself failed, not the answer (TypeError: unsupported operand"),
        (
            "from course_lib.system.errors import CourseError\nraise CourseError('Horovod does not load.')\nanswer(1)",
            "Horovod does not load.",
        ),
        ("check(answer)", "Right: the check itself failed, not the answer (KeyError: 3), <string>, line 1."),
    ],
)
def test_an_error_in_the_courses_own_code_is_no_mark(test, reason):
    judge = "eval('lambda answer: {}[3]', {'__name__': 'course_lib.notebook.made_here'})"
    check = f"from course_lib.notebook.judging import Criterion\ncheck = Criterion('right', 'Right', 1.0, {judge})"
    score, said = served(f"{HEAD}return x", test=test, course=[check])
    assert score is None and said.startswith(f"Could not be graded: {reason}")


def test_the_traceback_of_a_fault_of_ours_is_kept():
    (output,) = exercise_process.run("\n{}['key']", {"__name__": "course_grader.tests"})
    assert "KeyError: 'key'" in "".join(output["traceback"]) and "<test>" in "".join(output["traceback"])


def test_an_assertion_of_the_test_is_a_mark_and_its_text_a_secret():
    assert served(f"{HEAD}return x", test="assert answer(1) == 2, 'secret'\n2.0") == (
        *(0, "The test ended in AssertionError."),
    )
    score, reason = served(f"{HEAD}assert x == 2, 'mine'", test="answer(1)\n2.0")
    assert (score, reason) == (0, "AssertionError: mine (line 2 of your cell).")


def test_a_fault_of_ours_costs_nothing_though_another_definition_gets_a_part():
    cells = [HEAD + "return {'full': 2.0}", ("own", HEAD + "return {'half': 1.0, 'full': 1.0}")]
    assert served(*cells, test="answer(1)['half'] and answer(1)['full']")[0] is None
    assert served(*cells, test="answer(1)['full']") == (2.0, "")


def test_a_cell_that_is_no_python_is_told_where_a_copy_of_it_is_graded():
    cells = [f"{HEAD}return 1 +", ("copy", f"{HEAD}return 1")]
    assert served(*cells, test="float(answer(1))") == (
        *(1.0, "A cell was skipped: SyntaxError: invalid syntax (line 2 of your cell)."),
    )


@pytest.mark.parametrize(
    ("above", "lines"),
    [
        ("import sys", "print('chatter')\n    print('more', file=sys.stdout)\n    display(x)"),
        ("from IPython.display import display", "display('chatter')"),
        # IPython's lines do nothing within a function.
        ("", "!echo hello\n    files = !ls\n    %timeit -n1 sum([x])\n    get_ipython().magic('pwd')"),
    ],
)
def test_what_a_learner_shows_is_no_reason(above, lines):
    source = f"{above}\n{HEAD}{lines}\n    return 1"
    assert served(source, test="print('Half of it.')\nfloat(answer(1))") == (1.0, "Half of it.")


def test_a_variable_of_the_courses_own_cells_is_no_answer():
    course = ["for answer in [1.0]:\n    answer.there_is_no_such_thing"]
    reason = (0, "ZeroDivisionError: division by zero (line 2 of your cell).")
    assert served(f"{HEAD}return x / 0", ("shown", course[0]), course=course) == reason
    assert served(("shown", course[0]), course=course) == (None, "Could not be graded: no cell")


def test_a_file_that_a_learner_prints_to_is_written(tmp_path):
    source = f"{HEAD}with open({str(tmp_path / 'file')!r}, 'w') as file:\n        print(2, file=file)\n    return 2"
    assert served(source)[0] == 2.0
    assert (tmp_path / "file").read_text() == "2\n"


@pytest.mark.parametrize(
    "patch",
    [
        "import numpy as np\nnp.allclose = lambda *values, **named: True\n\ndef answer(x):\n    np\n    return 2",
        f"{HEAD}import numpy as np\n    np.allclose = lambda *values, **named: True\n    return 2",
        f"{HEAD}from course_lib.notebook import judging\n    judging.Criterion.__call__ = None\n    return 2",
        f"{HEAD}import builtins\n    builtins.abs = lambda x: 0\n    return 2",
        f"{HEAD}import math, sys\n    sys.modules['math'].isclose = None\n    sys.modules.clear()\n    return 2",
    ],
)
def test_what_changes_the_ground_of_the_tests_gets_no_mark(patch):
    score, reason = served(patch, course=["import numpy\nfrom course_lib.notebook import judging"])
    assert score is None and reason.startswith("Could not be graded: It changes `")


def test_no_line_of_the_learners_is_seen_by_the_test():
    source = "import numpy as points\ncheck = points = wanted = lambda *_: 2.0\n\ndef answer(x):\n    return 0"
    assert served(source, test="points(answer)", course=["def points(answer):\n    return float(answer(1))"])[0] == 0


def test_the_course_s_cells_stand_in_for_those_that_are_gone():
    course = ["import numpy as np\nscale = np.sqrt(4)", "raise RuntimeError('a run for show')"]
    assert served(f"{HEAD}return float(x * scale)", course=course) == (2.0, "")
    own = ("own", "scale = 1")
    assert served(own, f"{HEAD}return float(x * scale)", course=course)[0] == 1.0


def test_without_a_cell_it_could_not_be_graded():
    assert served(("own", "x = 1")) == (None, "Could not be graded: no cell")


def test_a_test_of_no_exercise_runs_with_the_courses_definitions():
    course = ["import os", "def of_script():\n    return 1 + len(os.sep)", "undefined_here()"]
    assert served(test="of_script()", course=course, names=()) == (2.0, "")
    assert served(test="while True: pass\n1", names=(), seconds=1) == (0, "The test took too long.")


@pytest.mark.parametrize(
    ("cells", "names"),
    [
        ([("a", "1"), ("e", "x = 1"), ("e", "y = 2"), ("b", "2")], ["cell 1", "e", "cell 3"]),
        ([("e", "def f():"), ("e", "    return 1")], ["e"]),
        ([("e", "x = 1"), ("e", "x = 1")], ["e"]),
        ([("e", "x = 1"), ("e", "def f(:")], ["e", "e, cell 2"]),
        ([("e", "x = 1"), ("a", "1"), ("e", "x = 2")], ["e", "cell 2", "e, cell 3"]),
        ([("a", "x = 1"), ("a", "x = 1")], ["cell 1", "cell 2"]),
    ],
)
def test_adjacent_pieces_of_an_exercise_are_one_cell(cells, names):
    assert [cell.name for _, cell in exercise_process.joined(cells, {"e"})] == names


def test_what_is_no_character_is_spelled_out():
    outputs = exercise_process.run(
        "print('a', chr(0xD800))\nraise ValueError(chr(0xDFFF))\n1", {"__name__": "__main__"}
    )
    assert [one.get("text") or one["evalue"] for one in outputs] == [
        "a \\ud800\n",
        "ValueError: \\udfff (line 2 of your cell)",
    ]
    json.dumps(outputs, ensure_ascii=False).encode()


def test_joined_cells_keep_their_lines():
    ((_, cell),) = exercise_process.joined([("e", "x = 1\n"), ("e", "y = 2")], {"e"})
    assert cell == Cell("e", "x = 1\n\ny = 2")
