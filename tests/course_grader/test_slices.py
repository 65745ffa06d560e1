"""Which statements of a notebook an exercise needs: all that it needs, nothing else, in an order that works."""

from __future__ import annotations

import ast
import re

import pytest

from course_grader.classroom.slices import Cell, Notebook, python


def notebook(cells, course=()):
    given = Notebook([Cell(f"course {number}", source) for number, source in enumerate(course)])
    return Notebook([Cell(f"cell {number}", source) for number, source in enumerate(cells)], given)


def slices(cells, name="f", after=-1, course=()):
    """Each slice as the first lines of its statements."""
    found = notebook(cells, course).slices([name], after)
    return [[ast.unparse(statement.node).split("\n")[0] for statement in one] for one in found]


@pytest.mark.parametrize(
    ("cells", "needed"),
    [
        # What a function reads, and what that reads.
        (["import os, sys\nx = 1\ny = 2", "def f(): return g(x)", "def g(a): return os"],
         ["import os, sys", "x = 1", "def f():", "def g(a):"]),
        # What shows, checks, measures and asserts is not among it.
        (["x = [1]\nprint(x)\ncheck(x)\nassert x\nx\nfor i in x: plot(i)\nplt.plot(x)", "def f(): return x"],
         ["x = [1]", "def f():"]),
        # Decorators, defaults, annotations and base classes are read at once, so they come first.
        (["@d\ndef f(a: T=n) -> T: return a", "class d(B): pass", "B = object", "n = 1", "T = int"],
         ["B = object", "class d(B):", "n = 1", "T = int", "@d"]),
        # A name is what the last statement above has made of it, not the first and not what stands below.
        (["x = 1", "x = 2", "def f(): return x", "x = 3"], ["x = 2", "def f():"]),
        (["x = 1", "x += 1", "def f(): return x"], ["x = 1", "x += 1", "def f():"]),
        (["x = 1", "y = x", "x = 5", "def f(): return x, y"], ["x = 1", "y = x", "x = 5", "def f():"]),
        # It is also what has been put into it.
        (["x = {}", "x['a'] = 1\nx.b = 2\nx.update(c=3)\nx.c.d.append(4)", "def f(): return x", "x.clear()"],
         ["x = {}", "x['a'] = 1", "x.b = 2", "x.update(c=3)", "x.c.d.append(4)", "def f():"]),
        (["x = []\nfor i in [1]:\n    x.append(i)", "def f(): return x"], ["x = []", "for i in [1]:", "def f():"]),
        (["def f(): pass\nf.a = 1\n@f.register\ndef _(): pass"], ["def f():", "f.a = 1", "@f.register"]),
        # Where it may not have been bound, what stands above counts as well.
        (["x = 1", "if y:\n    x = 2", "y = 0", "def f(): return x"], ["x = 1", "y = 0", "if y:", "def f():"]),
        (["try:\n    import a\nexcept ImportError:\n    a = None", "def f(): return a"], ["try:", "def f():"]),
        # Each import of a package may bring a part of it.
        (["import a.b", "import a.c", "def f(): return a.b"], ["import a.b", "import a.c", "def f():"]),
        # Modules: what sets them, if it asks for nothing more.
        (["import numpy as np, sys\nnp.random.seed(0)\nnp.show(x)\nnp.a = 1\nx = 1", "def f(): return np"],
         ["import numpy as np, sys", "np.random.seed(0)", "np.a = 1", "def f():"]),
        # What functions bind, they bind where they are called.
        (["def s():\n    global x\n    x = 1", "s()", "def f(): return x"], ["def s():", "s()", "def f():"]),
        # Names of comprehensions, arguments and attributes are no names of the notebook.
        (["i = x = a = 1", "def f(x): return [i for i in x if i.a]"], ["def f(x):"]),
        (["k = 1", "class f:\n    y = k\n    def g(self): return h", "h = 2\ny = 3"], ["k = 1", "class f:", "h = 2"]),
        (["if (n := 3) > 2: pass", "f = lambda: f'{n:>{w}}'", "w = 4"],
         ["if (n := 3) > 2:", "f = lambda: f'{n:>{w}}'", "w = 4"]),
        # A star may bring any name that the notebook does not bind.
        (["from math import *\nfrom os import path", "def f(): return sqrt(2)"], ["from math import *", "def f():"]),
        (["from math import *", "def f(): return x", "x = 1"], ["def f():", "x = 1"]),
    ],
)  # fmt: skip
def test_the_first_slice_has_what_is_needed_and_nothing_else(cells, needed):
    place = next(number for number, source in enumerate(cells, 1) if "f" in Notebook([Cell("", source)])._binding)
    assert slices(cells, after=place)[0] == needed


def test_what_is_bound_only_below_comes_from_there_before_it_is_read():
    cells = ["table = make(3)", "def f(): return table", "def make(n): return [one() for _ in range(n)]", "one = int"]
    assert slices(cells, after=2)[0] == ["def make(n):", "one = int", "table = make(3)", "def f():"]


def test_further_slices_are_for_other_definitions_the_last_first():
    cells = ["def f(): return 0", "def f(): return 1", "def f(): return 2", "x = 1"]
    statements = [[ast.unparse(one.node)[-1] for one in found] for found in notebook(cells).slices(["f"], 1)]
    assert statements == [["0"], ["2"], ["1"]]


def test_a_slice_is_there_for_what_may_be_changed_by_whatever_it_is_handed_to():
    cells = ["x = [2, 1]", "shuffle(x)", "print(x)", "def f(): return x"]
    assert slices(cells) == [["x = [2, 1]", "def f():"], ["x = [2, 1]", "shuffle(x)", "def f():"]]


def test_the_course_stands_in_for_what_the_notebook_does_not_bind():
    course = ["import numpy as np\nscale = np.sqrt(start)\nf = 1", "start = 4"]
    assert slices(["def f(): return np * scale"], course=course)[0] == [
        *("import numpy as np", "start = 4", "scale = np.sqrt(start)", "def f():")
    ]
    assert slices(["start = 1", "def f(): return scale"], course=course)[0] == [
        *("import numpy as np", "start = 1", "scale = np.sqrt(start)", "def f():")
    ]


def test_slices_are_few_whatever_a_notebook_is_like():
    assert len(slices(["def f(): return 0"] * 50)) == 6


def test_what_calls_itself_or_each_other_has_an_end():
    cells = ["def f(): return g()", "def g(): return f()", "x = y", "y = x", "def h(): return x"]
    assert slices(cells)[0] == ["def f():", "def g():"]
    assert sorted(slices(cells, "h")[0]) == ["def h():", "x = y", "y = x"]


@pytest.mark.parametrize(
    ("source", "left"),
    [
        ("%%time\nx = 1", "\nx = 1"),
        ("\n%%capture out\n%%time\n\nx = 1", "\n\n\n\nx = 1"),
        ("%%bash\nx = 1", ""),
        ("%%writefile f.py\nx = 1", ""),
        ("def f():\n    %time x = 1\n    return x", "def f():\n    x = 1\n    return x"),
        ("x = 1  # no IPython, 5 % 3, a ? b", "x = 1  # no IPython, 5 % 3, a ? b"),
    ],
)
def test_magics_leave_what_they_would_run_on_its_lines(source, left):
    assert python(source) == left


@pytest.mark.parametrize(
    "line", ["!ls", "%timeit f()", "f?", "??f", "x = !ls", "%cd -q ..", "x = %timeit -o 1", "!!ls", ",f a"]
)
def test_the_lines_below_ipythons_stay_where_they_are(line):
    source = f"\n\n{line}\ny = 1"
    statement = ast.parse(python(source)).body[-1]
    assert (statement.lineno, ast.unparse(statement)) == (4, "y = 1")


def test_what_is_no_python_is_said_with_its_line_and_the_rest_is_taken():
    found = notebook(["x = 1", "y = (\n", "z = 1\nreturn z", "a = '\0'", "f = (" * 300])
    assert found.binds("x") and found.binds("z") and not found.binds("y")
    assert re.fullmatch(r"SyntaxError: .+ \(line [12] of your cell\)", found.broken["cell 1"])
    assert found.broken["cell 2"] == "SyntaxError: 'return' outside function (line 2 of your cell)"
    assert set(found.broken) == {"cell 1", "cell 2", "cell 3", "cell 4"}
