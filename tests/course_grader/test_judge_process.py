"""The process that judges exercises: what a cell can reach, and when what comes of it counts."""

from __future__ import annotations

import json

import nbformat
import pytest

from course_grader.classroom import judge, judge_process, preprocessors
from course_grader.sandbox import bubblewrap
from course_lib.authoring import conversions, masters
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT

LINEAR = masters.read(next(ROOT.glob("labs/lab1*/1a_*.py")))
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


def in_a_child(source: str, **names: object) -> judge_process.Outputs:
    return judge_process._in_a_child(lambda: judge_process.run(source, names), 10)


def test_an_answer_is_what_the_test_says():
    said, result = in_a_child("print('half')\n0.5")
    assert said["text"] == "half\n" and result["data"] == {"text/plain": "0.5"}


def test_no_frame_above_a_cell_knows_the_token():
    (said, _) = in_a_child(NAMES_ABOVE)
    assert not {"token", "writing"}.intersection(said["text"].split())


@pytest.mark.parametrize(("code", "counts"), [(0, True), (3, False)])
def test_an_answer_of_a_process_that_failed_does_not_count(monkeypatch, code, counts):
    monkeypatch.setattr(judge_process.secrets, "token_bytes", lambda number: b"T" * number)
    (output,) = in_a_child(WRITES, TOKEN=b"T" * 16, CODE=code)
    assert (output.get("ename") is None) is counts


@pytest.mark.parametrize("ending", ["raise KeyboardInterrupt", "raise MemoryError", "import os; os._exit(0)"])
def test_a_cell_that_ends_its_process_gets_nothing(ending):
    (output,) = in_a_child(f"{ending}\n1")
    assert output["ename"] in ("DeadKernelError", "MemoryError")


def test_that_it_needs_a_look_is_not_the_learner_s_to_say():
    (output,) = judge_process.run("raise type('NeedsALook', (Exception,), {})('as I say')\n1", {})
    assert output == judge_process.error("Exception", "as I say")


def test_what_the_course_can_not_judge_is_no_mark_and_not_the_learner_s_to_say():
    fails = "from course_lib.system.errors import CourseError\nraise CourseError('Horovod does not load.')\n1"
    (output,) = judge_process._of_the_course(judge_process.run(fails, {}))
    assert preprocessors.judge([nbformat.from_dict(output)], 2.0) == (None, "Horovod does not load.")
    (output,) = judge_process.run("raise type('NotJudged', (Exception,), {})('as I say')\n1", {})
    assert preprocessors.judge([nbformat.from_dict(output)], 2.0)[0] == 0.0


def test_what_is_no_character_is_spelled_out():
    outputs = judge_process.run("print('a', chr(0xD800))\nraise ValueError(chr(0xDFFF))\n1", {})
    assert [one.get("text") or one["evalue"] for one in outputs] == ["a \\ud800\n", "\\udfff"]
    json.dumps(outputs, ensure_ascii=False).encode()


@pytest.mark.skipif(bool(bubblewrap.available()), reason="it stands in the sandbox")
def test_a_process_that_fails_is_no_mark(monkeypatch, tmp_path):
    monkeypatch.setattr(judge.bubblewrap, "command", lambda *_: ["sh", "-c", "exit 7"])
    step = judge.Judge()
    step.master, step.folder, step.test_seconds, step.seconds = LINEAR, tmp_path, 1.0, 1.0
    with pytest.raises(CourseError, match=r"failed \(exit code 7\)"):
        step._judge([])


def test_what_the_course_s_scripts_do_not_do_is_looked_at_in_the_learner_s(tmp_path):
    given, folder = tmp_path / "given", tmp_path / "handed_in"
    for place, text in ((given, "import torch\n"), (folder, "\nimport torch.nn\nimport ctypes\n")):
        place.mkdir()
        (place / "script.py").write_text(text)
    (folder / "own.py").write_text("eval('1')\n")
    assert list(judge._in_scripts(folder, given)) == ["own.py, line 1 uses eval", "script.py, line 3 imports ctypes"]


def test_a_test_of_scripts_waits_and_one_of_exercises_does_not():
    cells = [
        {"id": "f", "kind": "exercise", "source": "def f():\n    return 1", "names": ["f"], "look": []},
        {"id": "of-f", "kind": "test", "source": "f()", "names": [], "look": ["script.py, line 3 imports ctypes"]},
        {"id": "of-script", "kind": "test", "source": "1", "names": [], "look": ["script.py, line 3 imports ctypes"]},
    ]
    first, second = judge_process.serve({"cells": cells, "total": 10, "seconds": 10})
    assert first["outputs"][0]["data"] == {"text/plain": "1"}
    assert second["outputs"] == [judge_process.error(judge_process.LOOK, "script.py, line 3 imports ctypes")]


@pytest.mark.parametrize("folder", [conversions.LAB2, conversions.LAB2 / "pytorch"])
def test_the_scripts_of_lab_2_as_they_are_meant_have_nothing_of_it(tmp_path, folder):
    name = conversions.script(folder).name
    (tmp_path / name).write_text(conversions.converted(folder=folder))
    assert list(judge._in_scripts(tmp_path, conversions.LAB2)) == []
