"""Habits that honest learners have: whatever stands beside a right answer, and however cells are ordered, it gets its
points. Each habit is tried on an exercise of each notebook here, by the process that grades, without a sandbox."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence
from string import Template
from typing import NamedTuple

import nbformat
import pytest

from course_grader.classroom import exercise_process, exercise_runner, preprocessors
from course_lib.authoring import master_format
from course_lib.system.paths import ROOT

NOTEBOOKS = ("1a", "1d", "4b", "6a", "7a", "8a")  # that need no TensorFlow; in 7a exercises are classes too

pytestmark = pytest.mark.slow  # some hundred gradings in sandboxes


class Book:
    """A solved notebook: its cells as [id, source], and one exercise of it."""

    def __init__(self, master, number):
        self.cells = [
            [cell.id, "" if cell.kind == "hidden" else solved(cell.source)]
            for cell in master.cells
            if not cell.markdown and cell.kind != "instructor"
        ]
        written = [cell for cell in master.cells if cell.kind == "exercise"]
        exercise = written[number % len(written)]
        self.exercises = [cell.id for cell in written]
        self.id, self.test = exercise.id, f"{exercise.id}-test"
        self.stub = re.sub(r"(?s)### BEGIN SOLUTION.*### END SOLUTION", "raise NotImplementedError()", exercise.source)
        (self.about,) = (test for test in exercise_runner._tests(master) if test["id"] == self.test)
        self.name = self.about["names"][0]
        definition = next(one for one in ast.parse(self.source).body if getattr(one, "name", "") == self.name)
        self.is_function = isinstance(definition, ast.FunctionDef)

    @property
    def source(self):
        return next(source for name, source in self.cells if name == self.id)

    @source.setter
    def source(self, source):
        self.cells[self.place()][1] = source

    def place(self, identifier=None):
        return next(number for number, (name, _) in enumerate(self.cells) if name == (identifier or self.id))

    def insert(self, source, after=False, identifier="own"):
        """A cell of the learner's own: before the exercise or, `after`, below its test."""
        self.cells.insert(self.place(self.test) + 1 if after else self.place(), [identifier, source])

    def begin(self, lines):
        """Let the exercise's function, or a class's first method, begin with these lines."""
        tree = ast.parse(self.source)
        function = next(one for one in tree.body if getattr(one, "name", "") == self.name)
        if isinstance(function, ast.ClassDef):
            function = next(one for one in function.body if isinstance(one, ast.FunctionDef))
        docstring = 1 if ast.get_docstring(function) is not None else 0
        function.body[docstring:docstring] = ast.parse(lines).body
        self.source = ast.unparse(tree)

    def renamed(self, name):
        """The exercise's text with its function or class under another name."""
        tree = ast.parse(self.source)
        next(one for one in tree.body if getattr(one, "name", "") == self.name).name = name
        return ast.unparse(tree)

    def hands_over_to(self, helper):
        """What the exercise is where a helper does the work."""
        if self.is_function:
            return f"def {self.name}(*values, **named):\n    return {helper}(*values, **named)"
        return f"class {self.name}({helper}):\n    pass"


def solved(source):
    return re.sub(r"(?m)^\s*### (BEGIN|END) SOLUTION\n?", "", source).rstrip()


class Habit(NamedTuple):
    """What is written around an exercise: cells above it, its function's first lines, cells below its test, its cell.

    In these texts `$name` is the exercise's name, `$source` its text, `$stub` that of the stub, `$helper` its text
    under the name `helper`, and `$calls_NAME` an exercise that lets NAME do the work.
    """

    above: Sequence[str] = ()
    begin: str = ""
    below: Sequence[str] = ()
    cell: str = "$source"
    of_functions: bool = False  # a class cannot be written that way

    def __call__(self, book: Book) -> None:
        """Write it."""
        if self.of_functions and not book.is_function:
            return
        words = {f"calls_{name}": book.hands_over_to(name) for name in ("helper", "middle", "int")}
        words.update(name=book.name, stub=book.stub, helper=book.renamed("helper"))
        if self.begin:
            book.begin(self.begin)
        words["source"] = book.source
        for source in self.above:
            book.insert(Template(source).substitute(words))
        for source in self.below:
            book.insert(Template(source).substitute(words), after=True)
        book.source = Template(self.cell).substitute(words)


RAISES = "\n    raise ValueError"
FAIL_OR_NEVER_END = (
    "def broken(:\n    pass",
    "1 / 0",
    "while True:\n    pass",
    "raise SystemExit",
    "exit()",
    "import no_such_package",
)
HABITS = {
    "nothing": Habit(),
    # Beside the definition, in its cell
    "check in the cell": Habit(cell="$source\ncheck($name)"),
    "trailing print and figure": Habit(
        cell="$source\nprint($name(1, 2, 3))\nplt.plot([1, 2])\nplt.show();\n$name",
    ),
    "redefined in the cell": Habit(cell="$stub\n\n$source"),
    "overwritten in its cell": Habit(cell="$source\n$name = 3.5"),
    "attributes of the function": Habit(cell="$source\n$name.author = 'me'\n$name.__doc__ = 'Mine.'"),
    "assertions on the notebook's variables": Habit(
        cell="$source\nassert measured_here[0] == 1, 'run the cell below'\nassert $name(measured_here) > 0",
        below=["measured_here = [1, 2, 3]"],
    ),
    "prints much and displays": Habit(
        begin="print('x' * 20000)\ndisplay('here')\nprint('now', end='', flush=True)",
    ),
    "a name that is only mentioned": Habit(
        begin="if False:\n    never_defined(1)",
        cell="$source\nnever = never_defined_either",
    ),
    # The definition elsewhere, or in other ways
    "helper above": Habit(above=["$helper"], cell="$calls_helper"),
    "helper below": Habit(below=["$helper"], cell="$calls_helper"),
    "helper in the cell below the function": Habit(cell="$calls_helper\n\n$helper", of_functions=True),
    "helper of a helper over three cells": Habit(
        above=["def unused():\n    raise RuntimeError\n\nmiddle = helper"],
        cell="$calls_middle",
        below=["$helper"],
    ),
    "redefined below where a wrong one is left": Habit(cell="$calls_int", below=["$source"]),
    "written above where the stub is left": Habit(above=["$source"], cell="$stub"),
    "tried out below under the same name": Habit(below=["$calls_int"]),
    "overwritten by its own result": Habit(below=["$name = 3"]),
    "lambda": Habit(cell="$helper\n\n$name = lambda *values, **named: helper(*values, **named)", of_functions=True),
    "partial": Habit(
        above=["from functools import partial"],
        cell="$helper\n\n$name = partial(helper)",
        of_functions=True,
    ),
    "static method": Habit(
        cell="$helper\n\nclass Mine:\n    helper = staticmethod(helper)\n\n$name = Mine.helper",
        of_functions=True,
    ),
    "tuple assignment": Habit(cell="$helper\n\n$name, other = helper, 3"),
    "decorator": Habit(
        above=[
            "import functools",
            "def counted(function):\n"
            "    @functools.wraps(function)\n"
            "    def inner(*values, **named):\n"
            "        counts[function.__name__] = counts.get(function.__name__, 0) + 1\n"
            "        return function(*values, **named)\n"
            "    return inner\n"
            "counts = {}",
        ],
        cell="@counted\n$calls_helper\n$helper",
        of_functions=True,
    ),
    # What the exercise uses of other cells
    "computed global": Habit(
        above=[
            "import numpy as np\ntable = np.cumsum(np.ones(3))",
            "table[1:] -= 1\ntable = table.tolist()\ntable.append(len(table))\nscale = {'one': table[0]}",
            "scale['two'] = 2 * scale['one']",
        ],
        begin=f"if scale['two'] != 2 or table != [1, 1, 2, 3]:{RAISES}(table)",
    ),
    "global filled by a loop and by a function": Habit(
        above=[
            "names = []\nfor number in range(3):\n    names.append(number)\n"
            "def fill():\n    global squares\n    squares = [n * n for n in names]",
            "fill()",
        ],
        begin=f"if squares != [0, 1, 4]:{RAISES}(squares)",
    ),
    "list shuffled in place": Habit(
        above=[
            "import random\norder = [3, 1, 2]\nrandom.shuffle(order)\n"
            "sorted_by_hand = list(order)\nsort_in_place(sorted_by_hand)",
            "def sort_in_place(x):\n    x.sort()",
        ],
        begin=f"if sorted_by_hand != [1, 2, 3]:{RAISES}(sorted_by_hand)",
    ),
    "a variable used again below for something else": Habit(
        above=["gain = 1.0"],
        begin=f"if gain != 1:{RAISES}(gain)",
        below=["gain = 'a title'"],
    ),
    "deleted at the end": Habit(
        above=["temporary = 1"],
        begin=f"if temporary != 1:{RAISES}(temporary)",
        below=["del temporary, $name"],
    ),
    "star import": Habit(above=["from math import *"], begin=f"if sqrt(4) != 2 or pi < 3:{RAISES}"),
    "import in a cell of one's own": Habit(
        above=["import math\nimport os.path, statistics as st\nimport os"],
        begin=f"if math.pi < 3 or st.mean([1, 3]) != 2 or os.path.join('a', 'b') != os.sep.join('ab'):{RAISES}",
    ),
    "import below": Habit(begin=f"if string.digits[0] != '0':{RAISES}", below=["import string"]),
    "names that are not ASCII": Habit(
        above=["η = 1.0\ndef größe(x):\n    return η * x"],
        begin=f"β = größe(2)\nif β != 2:{RAISES}('β ≠ 2')",
    ),
    "nested function and closure": Habit(
        above=["OFFSET = 1"],
        begin="bias = 1\ndef inner():\n    nonlocal bias\n    bias += OFFSET\n    return bias\n"
        f"if inner() != 2:{RAISES}",
    ),
    "global counter": Habit(
        above=["calls = 0"],
        begin="global calls\ncalls += 1",
        cell="$source\nprint('called', calls, 'times')",
    ),
    "walrus and f-strings": Habit(
        above=["if (limit := len('abc')) > 2:\n    label = f'{limit!r:>4} of {limit:.2f}'"],
        begin=f"if (n := limit) != 3 or f'{{n}}' != '3' or not label:{RAISES}",
    ),
    "await at the top level": Habit(
        above=["import asyncio\nasync def later():\n    await asyncio.sleep(0)\n    return 5\nfive = await later()"],
        begin=f"if five != 5 or asyncio.run(later()) != 5:{RAISES}",
    ),
    "with and context": Habit(
        above=["import contextlib\nwith contextlib.suppress(ZeroDivisionError):\n    ratio = 3\n    1 / 0"],
        begin=f"if ratio != 3:{RAISES}",
    ),
    "own class with annotations, and what is pickled": Habit(
        above=[
            "from __future__ import annotations\nfrom dataclasses import dataclass\nimport typing",
            "@dataclass\nclass Point:\n    x: Number\n\nNumber = float\ndef double(x):\n    return 2 * x",
            "import pickle",
        ],
        begin=f"if typing.get_type_hints(Point) != {{'x': float}}:{RAISES}\n"
        f"if pickle.loads(pickle.dumps(double)) is not double:{RAISES}\n"
        f"if pickle.loads(pickle.dumps(Point(1))) != Point(1):{RAISES}",
    ),
    # Cells that fail
    "cells that fail or never end": Habit(above=FAIL_OR_NEVER_END, below=FAIL_OR_NEVER_END),
    "package that the grader does not have": Habit(
        above=["import no_such_package as drawing\ncanvas = drawing.Canvas()"],
        begin="if len('') > 3:\n    canvas.show()",
    ),
    "variable from a cell that fails halfway": Habit(
        above=["ready_here = 1\nnot_ready = no_such_name\nalso_ready = 2"],
        begin=f"if ready_here + also_ready != 3:{RAISES}",
    ),
}


def habit(change):
    """Add what is not told by texts around the exercise."""
    HABITS[change.__name__] = change
    return change


@habit
def type_hints(book):
    book.insert("from __future__ import annotations\nfrom typing import Optional, Sequence\nVector = Sequence[float]")
    tree = ast.parse(book.source)
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            node.annotation = ast.parse("Optional[Vector | OnlyForTheEditor]").body[0].value
    book.source = ast.unparse(tree)


@habit
def type_hints_that_are_evaluated(book):
    book.insert("from typing import Optional, Sequence\nVector = Sequence[float]")
    tree = ast.parse(book.source)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            node.returns = ast.parse("Optional[Vector]").body[0].value
    book.source = ast.unparse(tree) + "\nlearning_rate: float = 0.1\nunset: int"


@habit
def cell_split_between_statements(book):
    book.begin("if one_half * 2 != 1 or math.pi < 3:\n    raise ValueError")
    book.cells.insert(book.place(), [book.id, "import math\none_half = 1 / 2"])


@habit
def cell_split_within_the_function(book):
    lines = book.source.split("\n")
    book.source = "\n".join(lines[:-1])
    book.cells.insert(book.place() + 1, [book.id, lines[-1]])


@habit
def merged_into_the_cell_above(book):
    place = book.place()
    book.cells[place - 1][1] += f"\n\n{book.source}"
    del book.cells[place]


@habit
def merged_with_its_test(book):
    source = book.source
    del book.cells[book.place()]
    book.cells[book.place(book.test)][1] = source + "\n\n# Hidden test: 2 points"


@habit
def checks_and_tests_deleted(book):
    book.cells = [cell for cell in book.cells if not cell[0].endswith("-test") and "check(" not in cell[1]]


@habit
def all_cells_of_the_course_deleted(book):
    book.cells = [cell for cell in book.cells if cell[0] in book.exercises]


@habit
def copies_of_the_cell(book):
    book.insert(book.source, after=True, identifier=book.id)
    book.insert(book.source, after=True)
    book.cells.insert(book.place(), [book.id, book.source])


@habit
def copy_of_the_stub_kept_below(book):
    book.insert(book.stub, after=True, identifier=book.id)
    book.cells.insert(book.place(), [book.id, book.stub])


@habit
def stub_and_answer_in_cells_with_one_id(book):
    book.cells.insert(book.place() + 1, [book.id, book.stub])


@habit
def duplicated_ids(book):
    for cell in book.cells:
        if cell[0] not in (book.id, book.test):
            cell[0] = "same"


@habit
def no_ids_at_all(book):
    for cell in book.cells:
        cell[0] = ""


@habit
def cells_in_another_order(book):
    place = book.place()
    book.cells = [*book.cells[place:], *book.cells[:place]]


@habit
def cells_in_the_reverse_order(book):
    book.cells.reverse()


@habit
def defined_under_a_condition(book):
    body = "\n".join("    " + line for line in book.source.split("\n"))
    book.source = f"if True:\n{body}\nelse:\n    {book.name} = None"


@habit
def defined_in_a_try(book):
    book.begin("if np2.pi < 3:\n    raise ValueError")
    body = "\n".join("    " + line for line in book.source.split("\n"))
    book.insert("try:\n    import no_such_package as np2\nexcept ImportError:\n    import numpy as np2")
    book.source = f"try:\n{body}\nexcept Exception as error:\n    print(error)\nfinally:\n    done = True"


@habit
def semicolons_tabs_and_blank_lines(book):
    book.source = (
        "\n\n"
        + re.sub(r"(?m)^((?:    )+)", lambda match: "\t" * (len(match[0]) // 4), ast.unparse(ast.parse(book.source)))
        + ";\n\n"
    )


MAGICS = {
    "time": "%%time\n{}",
    "timeit": "%%timeit -n1 -r1\n{}",
    "capture": "%%capture out\n{}",
    "capture and time": "\n%%capture\n%%time\n{}",
    "prun": "%%prun -q\n{}",
    "lines": "%matplotlib inline\n%load_ext autoreload\n%autoreload 2\n{}\n%whos\n%history",
    "settings": "%config InlineBackend.figure_format = 'svg'\n{}\n%precision 3",
    "timed line": "{}\n%timeit -n1 sum(range(3))\n%time total = 3",
    "shell": "!pip install numpy\n%pip install numpy\n%conda list\n{}\n!nvidia-smi\nfiles = !ls\n!!ls",
    "help": "{}\n{name}?\n?{name}\n{name}??\nhelp({name})",
    "ipython": "from IPython import get_ipython\nget_ipython().run_line_magic('matplotlib', 'inline')\n{}",
    "time of its call": "{}\n%time {name}",
    "surroundings": "%env OMP_NUM_THREADS=1\n%cd .\n%pwd\n{}",
}


@pytest.mark.parametrize("notebook", NOTEBOOKS)
@pytest.mark.parametrize("name", HABITS)
def test_a_right_answer_gets_its_points(name, notebook):
    number = list(HABITS).index(name)
    book = Book(master(notebook), number)
    HABITS[name](book)
    assert graded(notebook, book) == full(book)


@pytest.mark.parametrize("name", MAGICS)
def test_magics_do_no_harm(name):
    for number, notebook in enumerate(NOTEBOOKS):
        book = Book(master(notebook), number)
        book.source = MAGICS[name].replace("{name}", book.name).replace("{}", book.source)
        assert graded(notebook, book) == full(book)


def test_what_a_magic_or_a_shell_line_gives_is_used_by_what_stands_below():
    book = Book(master("1a"), 0)
    book.insert("%time seconds = 3")
    book.insert("%%time\nminutes = 2 * seconds")
    book.begin("if minutes != 6:\n    raise ValueError")
    assert graded("1a", book) == full(book)


@pytest.mark.parametrize("magic", ["bash", "html", "writefile f.py", "javascript", "latex", "script python"])
def test_a_cell_in_another_language_defines_nothing(magic):
    book = Book(master("1a"), 0)
    book.source = f"%%{magic.split()[0]} {' '.join(magic.split()[1:])}\n{book.source}"
    points, reason = graded("1a", book)
    assert (points, reason) == (0, "NameError: `years` is defined nowhere in the notebook.")


@functools.lru_cache
def master(notebook):
    return master_format.read(next(ROOT.glob(f"labs/*/{notebook}_*.py")))


def graded(notebook, book):
    """(points, reason) of the book's exercise."""
    course = [cell for cell in master(notebook).cells if cell.kind in ("code", "editable") and not cell.markdown]
    spec = {
        "seconds": 60,
        "total": 60,
        "cells": [{"id": name, "source": source} for name, source in book.cells],
        "course": [cell.source for cell in course],
        "tests": [book.about],
    }
    (answer,) = exercise_process.serve(spec)
    outputs = [nbformat.from_dict(output) for output in answer["outputs"]]
    return preprocessors.judge(outputs, book.about["points"])


def full(book):
    return book.about["points"], ""
