"""Notebook 2d: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import pytest

from course_lib.assess.exercises.survival import check, points

NOTEBOOK = "2d_survive"
CELLS = {"Checkpoint": "checkpoint", "Store": "store"}
DRAFT = 'draft = path.with_suffix(".draft")'

pytestmark = pytest.mark.slow  # a checkpoint is one of a Keras training


@pytest.fixture
def made(answer):
    """The solution after edits. (Cells have lower-case names, classes don't.)"""

    def make(name, *edits):
        cell = CELLS.get(name, name)
        renamed = [(f"class {name}", f"class {cell}")] if name in CELLS else []
        solution = answer(NOTEBOOK, cell, *renamed, *edits)
        solution.__name__ = name
        return solution

    return make


@pytest.mark.parametrize("name", ["examples_at", "Checkpoint", "Store", "lost_share", "keep_going"])
def test_the_solution_gets_full_points(made, name, capfd):
    solution = made(name)
    check(solution)
    capfd.readouterr()  # TensorFlow has introduced itself
    assert points(solution, 6) == 6.0
    assert all(verdict.passed for verdict in check(solution).verdicts)
    assert capfd.readouterr() == ("", "")


WRONG = {
    "the same order in each epoch": ("examples_at", [("default_rng(epoch)", "default_rng(0)")], "the same order"),
    "another shuffle on each rank": (
        "examples_at",
        [("default_rng(epoch)", "default_rng([epoch, rank])")],
        "who takes which part",
    ),
    "no seed": ("examples_at", [("default_rng(epoch)", "default_rng()")], "asked twice for step 9"),
    "NumPy's global generator": (
        "examples_at",
        [("order = np.random.default_rng(epoch)", "np.random.seed(epoch)\n    order = np.random")],
        "a generator of your own",
    ),
    "an epoch of one rank": (
        "examples_at",
        [("examples // (size * batch)", "examples // batch")],
        "8 numbers are expected",
    ),
    "all ranks the same part": ("examples_at", [("within * size + rank", "within * size")], "is read 3 times"),
    "windows that overlap": ("examples_at", [("within * size + rank", "within + rank")], "others never"),
    "no shuffle": ("examples_at", [("np.random.default_rng(epoch).permutation", "np.arange")], "shuffle the examples"),
    "the optimizer forgotten": ("Checkpoint", [("variable.assign(value)", "pass")], "the optimizer's `iteration`"),
    "only the number of updates": (
        "Checkpoint",
        [('zip(training.optimizer.variables, state', 'zip(training.optimizer.variables[:1], state')],
        "averages",
    ),
    "the learning rate forgotten": (
        "Checkpoint",
        [('training.optimizer.learning_rate.assign(state["rate"])', "pass")],
        "none of `optimizer.variables`",
    ),
    "the step forgotten": ("Checkpoint", [('training.step = state["step"]', "pass")], "`step` is 0 in place of 11"),
    "the generator forgotten": (
        "Checkpoint",
        [('training.random.bit_generator.state = state["random"]', "pass")],
        "the state of the generator",
    ),
    "what decides on the rate forgotten": (
        "Checkpoint",
        [('training.best, training.waited = state["progress"]', "pass")],
        "`best`",
    ),
    "no copy": (
        "Checkpoint",
        [("[variable.numpy() for variable in training.optimizer.variables]", "list(training.optimizer.variables)")],
        "Was a copy taken",
    ),
    "nothing returned": ("Checkpoint", [("return {", "kept = {")], "returns None"),
    "no draft": ("Store", [(DRAFT, "draft = path")], "leaves a torn file"),
    "the old one is deleted first": (
        "Store",
        [(DRAFT, f"{DRAFT}\n        path.unlink(missing_ok=True)")],
        "leaves none at all",
    ),
    "a draft in another folder": (
        "Store",
        [(DRAFT, 'import tempfile\n        draft = tempfile.mkstemp()[1]')],
        "in another folder",
    ),
    "no fsync": ("Store", [("            os.fsync(file.fileno())\n", "")], "os.fsync"),
    "no flush": ("Store", [("            file.flush()\n", "")], "flush first"),
    "no digest": (
        "Store",
        [("hashlib.sha256(content).digest() != digest", "False")],
        "raise ValueError",
    ),
    "only the length is checked": (
        "Store",
        [("hashlib.sha256(content).digest()", "len(content).to_bytes(32, 'big')")],
        "one bit flipped",
    ),
    "another kind of error": ("Store", [("raise ValueError", "raise KeyError")], "raise ValueError"),
    "no name in the sentence": ("Store", [("{path.name} is", "A file is")], "doesn't name the file"),
    "a draft left behind": ("Store", [("os.replace(draft, path)", "path.write_bytes(draft.read_bytes())")], "behind"),
    "the whole interval": ("lost_share", [("interval / 2", "interval")], "half-way"),
    "one rank's failures": ("lost_share", [("ranks / mtbf", "1 / mtbf")], "one stops all"),
    "fewer failures with more ranks": ("lost_share", [("ranks / mtbf", "1 / (ranks * mtbf)")], "not less"),
    "no restart": ("lost_share", [(" + restart", "")], "the restart is missing"),
    "no writing": ("lost_share", [("write / interval + ", "")], "the writing is missing"),
    "writing times interval": ("lost_share", [("write / interval", "write * interval")], "δ/T"),
    "from the beginning": (
        "keep_going",
        [("while state.step < steps:", "state.step = 0\n    while state.step < steps:")],
        "not from 0",
    ),
    "a for loop": ("keep_going", [("while state.step < steps:", "for _ in range(steps):")], "takes 20 steps"),
    "commit before the step is counted": (
        "keep_going",
        [
            ("        state.step += 1\n", ""),
            ("            state.commit()", "            state.commit()\n        state.step += 1"),
        ],
        "commit when weights and `step` belong together",
    ),
    "never committed": ("keep_going", [("state.commit()", "pass")], "nothing is ever committed"),
    "a commit after each step": ("keep_going", [("if state.step % every == 0:", "if True:")], "after every step"),
    "errors caught": (
        "keep_going",
        [("advance(state)\n", "try:\n            advance(state)\n        except Exception:\n            pass\n")],
        "let it pass",
    ),
    "not counted": ("keep_going", [("state.step += 1", "pass")], "doesn't end"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(made, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(made(exercise, *edits), 6) < 6
    assert word in capsys.readouterr().out


@pytest.mark.parametrize("name", ["examples_at", "lost_share"])
def test_an_answer_of_nothing_is_named(name, capsys):
    def nothing(*args, **options):
        return None

    nothing.__name__ = name
    assert points(nothing, 6) == 0.0
    assert "None" in capsys.readouterr().out
