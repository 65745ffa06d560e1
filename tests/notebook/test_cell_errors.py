"""What a notebook shows where a cell fails because something above it is missing."""

from __future__ import annotations

import re

import pytest
from IPython.core.interactiveshell import InteractiveShell

from course_lib.notebook import cell_errors
from course_lib.ranks.messages import known_errors

STUB = "def lars(w):\n    # Your code here\n    raise NotImplementedError('`lars` is not written yet')"
WRAPPED = """def wrapped(f):
    try:
        f(1)
    except NotImplementedError as error:
        raise ValueError(f"layer d: {error}") from None"""
FAILED = "from course_lib.ranks.launch import Result\nrun = Result(1, 9.0, 0, 'Rank 0 failed.', ('ValueError: no',))"
OUT_OF_MEMORY = "class InternalError(Exception):\n    __module__ = 'tensorflow.python.framework.errors_impl'"


@pytest.fixture
def shell():
    """A notebook's shell, with the course's extension."""
    shell = InteractiveShell()
    cell_errors.load_ipython_extension(shell)
    yield shell
    shell.history_manager.end_session()


@pytest.fixture
def shown(shell, capsys):
    """What the last of some cells shows."""

    def run(*cells: str) -> str:
        for cell in cells:
            capsys.readouterr()
            shell.run_cell(cell, store_history=True)
        return re.sub(r"\x1b\[[\d;]*m", "", capsys.readouterr().out).strip()

    return run


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        ([STUB, "w = lars(1)"], "Solve `lars` first: this cell uses it."),
        ([STUB, WRAPPED, "wrapped(lars)"], "Solve `lars` first: this cell uses it."),
        ([STUB, "w = lars(1)", "print(w)"], "Solve `lars` first: `w`, which this cell uses, needs it."),
        ([STUB, "w = lars(1)", "v = w", "print(v)"], "Solve `lars` first: `v`, which this cell uses, needs it."),
        (
            [STUB, "table = {}\ntable['a'] = lars(1)", "def read():\n    return table['a']\nread()"],
            "Solve `lars` first: `table`, which this cell uses, needs it.",
        ),
        ([FAILED, "run.check()"], "Rank 0 failed. ValueError: no"),
        (
            [FAILED, "run.check()\nfirst, *rest = [1]", "len(rest)"],
            "This cell uses `rest`, and the cell that defines it failed: Rank 0 failed. ValueError: no",
        ),
        (
            ["import json\nw = 1 / 0", "w + 1"],
            "This cell uses `w`, and the cell that defines it failed: ZeroDivisionError: division by zero",
        ),
    ],
)
def test_one_sentence_names_the_cause(shown, cells, sentence):
    assert shown(*cells) == sentence


@pytest.mark.parametrize(
    ("cells", "error"),
    [
        (["1 / 0"], "ZeroDivisionError: division by zero"),
        (["print(nowhere)"], "NameError: name 'nowhere' is not defined"),
        (["raise NotImplementedError('of the learner')"], "NotImplementedError: of the learner"),
        ([STUB, "t = {'a': lars(1)}", "t = {}", "t['a']"], "KeyError: 'a'"),  # the cell was repaired
        ([STUB, "t = {'a': lars(1)}", "[][0]"], "IndexError: list index out of range"),  # uses nothing that is missing
        (["w = = 1", "print(w)"], "NameError: name 'w' is not defined"),
    ],
)
def test_other_errors_keep_their_traceback(shown, cells, error):
    output = shown(*cells)
    assert output.endswith(error)
    assert "Traceback (most recent call last)" in output


def test_an_error_of_tensorflow_that_is_known_says_what_to_do(shown, monkeypatch):
    monkeypatch.setattr(known_errors, "HINTS", {"CUDA_ERROR_OUT_OF_MEMORY": "End process 7."})
    failing = "raise InternalError('when calling layer d:\\nCUDA_ERROR_OUT_OF_MEMORY: out of memory')"
    assert shown(OUT_OF_MEMORY, failing) == "End process 7."
    assert "Traceback" in shown("raise ValueError('CUDA_ERROR_OUT_OF_MEMORY')")


def test_the_cell_still_counts_as_failed(shell):
    assert not shell.run_cell("import nowhere_at_all").success
    shell.run_cell(STUB)
    assert isinstance(shell.run_cell("lars(1)").error_in_exec, NotImplementedError)
