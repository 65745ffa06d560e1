"""Notebook 2d: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import pytest

from labs.lab2_horovod.lessons.checks_2d import check, points

NOTEBOOK = "2d_survive"
pytestmark = pytest.mark.slow  # a checkpoint is one of a Keras training


@pytest.mark.parametrize("name", ["examples_at", "Checkpoint", "Store", "lost_share", "keep_going"])
def test_the_solution_gets_full_points(answer, name, capfd):
    solution = answer(NOTEBOOK, name)
    check(solution)
    capfd.readouterr()  # TensorFlow has introduced itself
    assert points(solution, 6) == 6.0
    assert all(verdict.passed for verdict in check(solution).verdicts)
    assert capfd.readouterr() == ("", "")


SEEDED = "np.random.default_rng(epoch)"
ORDER = f"order = {SEEDED}.permutation(examples)"
DRAFT = 'draft = path.with_suffix(".draft")'
DAMAGED = """
if hashlib.sha256(content).digest() != digest:
    raise ValueError(f"{path.name} is cut short or damaged: go back to the checkpoint before it.")
"""
REFUSE = 'ValueError(f"{path.name} is cut short or damaged: go back to the checkpoint before it.")'
REDONE = "redone * failures_per_second"
LOOP = """
while state.step < steps:
    advance(state)
    state.step += 1
    if state.step % every == 0:
        state.commit()
"""
COMMIT_FIRST = """
while state.step < steps:
    advance(state)
    if state.step % every == 0:
        state.commit()
    state.step += 1
"""

WRONG = {
    "the same order in each epoch": ("examples_at", (SEEDED, "np.random.default_rng(0)"), "the same order"),
    "another shuffle on each rank": (
        "examples_at",
        (SEEDED, "np.random.default_rng([epoch, rank])"),
        "who takes which part",
    ),
    "no seed": ("examples_at", (SEEDED, "np.random.default_rng()"), "asked twice for step 9"),
    "NumPy's global generator": (
        "examples_at",
        (ORDER, "np.random.seed(epoch); order = np.random.permutation(examples)"),
        "a generator of your own",
    ),
    "an epoch of one rank": (
        "examples_at",
        ("examples // (size * batch)", "examples // batch"),
        "it should be (8,)",
    ),
    "no examples": ("examples_at", ("return order[start : start + batch]", "pass"), "returns nothing"),
    "shares, not numbers": (
        "examples_at",
        ("order[start : start + batch]", "order[start : start + batch] / examples"),
        "expected are integers",
    ),
    "all ranks the same part": ("examples_at", ("within * size + rank", "within * size"), "is read 3 times"),
    "windows that overlap": ("examples_at", ("within * size + rank", "within + rank"), "others never"),
    "no shuffle": ("examples_at", (f"{SEEDED}.permutation(examples)", "np.arange(examples)"), "shuffle the examples"),
    "the optimizer forgotten": ("Checkpoint", ("variable.assign(value)", "None"), "the optimizer's `iteration`"),
    "only the number of updates": (
        "Checkpoint",
        ('state["optimizer"]', 'state["optimizer"][:1]'),
        "averages",
    ),
    "the learning rate forgotten": (
        "Checkpoint",
        ('training.optimizer.learning_rate.assign(state["rate"])', "None"),
        "none of `optimizer.variables`",
    ),
    "the step forgotten": ("Checkpoint", ('training.step = state["step"]', "pass"), "`step` is 0 in place of 11"),
    "the generator forgotten": (
        "Checkpoint",
        ('training.random.bit_generator.state = state["random"]', "pass"),
        "the state of the generator",
    ),
    "what decides on the rate forgotten": (
        "Checkpoint",
        ('training.best, training.waited = state["progress"]', "pass"),
        "`best`",
    ),
    "no copy": (
        "Checkpoint",
        ("[variable.numpy() for variable in training.optimizer.variables]", "list(training.optimizer.variables)"),
        "Was a copy taken",
    ),
    "what no file can hold": (
        "Checkpoint",
        ("training.optimizer.learning_rate.numpy()", "lambda: 1"),
        "can't be written to a file",
    ),
    "no draft": ("Store", (DRAFT, "draft = path"), "leaves a torn file"),
    "the old one is deleted first": ("Store", (DRAFT, f"{DRAFT}; path.unlink(missing_ok=True)"), "leaves none at all"),
    "a draft in another folder": (
        "Store",
        (DRAFT, "import tempfile; draft = tempfile.mkstemp()[1]"),
        "in another folder",
    ),
    "no fsync": ("Store", ("os.fsync(file.fileno())", "None"), "os.fsync"),
    "no flush": ("Store", ("file.flush()", "None"), "flush first"),
    "the name before fsync": (
        "Store",
        ("os.fsync(file.fileno())", "os.replace(draft, path), os.fsync(file.fileno()), path.rename(draft)"),
        "comes after the renaming",
    ),
    "no digest": ("Store", ("hashlib.sha256(content).digest() != digest", "False"), "raise ValueError"),
    "only the length is checked": (
        "Store",
        ("hashlib.sha256(content).digest()", "len(content).to_bytes(32, 'big')"),
        "one bit flipped",
    ),
    "another kind of error": ("Store", (REFUSE, REFUSE.replace("ValueError", "KeyError")), "raise ValueError"),
    "no name in the sentence": ("Store", (REFUSE, REFUSE.replace("{path.name}", "A file")), "doesn't name the file"),
    "several lines": ("Store", (REFUSE, REFUSE.replace("damaged: ", r"damaged:\n")), "has several lines"),
    "a draft left behind": ("Store", ("os.replace(draft, path)", "path.write_bytes(draft.read_bytes())"), "behind"),
    "the whole interval": ("lost_share", ("interval / 2", "interval"), "half-way"),
    "one rank's failures": ("lost_share", ("ranks / mtbf", "1 / mtbf"), "one stops all"),
    "fewer failures with more ranks": ("lost_share", ("ranks / mtbf", "1 / (ranks * mtbf)"), "not less"),
    "no restart": ("lost_share", ("interval / 2 + restart", "interval / 2"), "the restart is missing"),
    "no writing": ("lost_share", (f"write / interval + {REDONE}", REDONE), "the writing is missing"),
    "writing times interval": ("lost_share", ("write / interval", "write * interval"), "δ/T"),
    "one interval at a time": ("lost_share", ("interval / 2", "np.mean(interval) / 2 + 0 * write"), "Young's"),
    "from the beginning": ("keep_going", (LOOP, f"state.step = 0{LOOP}"), "not from 0"),
    "a for loop": (
        "keep_going",
        (LOOP, LOOP.replace("while state.step < steps", "for _ in range(steps)")),
        "takes 20 steps",
    ),
    "commit before the step is counted": (
        "keep_going",
        (LOOP, COMMIT_FIRST),
        "commit when weights and `step` belong together",
    ),
    "never committed": ("keep_going", ("state.commit()", "None"), "nothing is ever committed"),
    "a commit after each step": ("keep_going", ("state.step % every == 0", "True"), "after every step"),
    "errors caught": (
        "keep_going",
        (LOOP, LOOP.replace("advance(state)", "try: advance(state)\n    except Exception: pass")),
        "let it pass",
    ),
    "not counted": ("keep_going", ("state.step += 1", "pass"), "doesn't end"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(answer, mistake, capsys):
    exercise, edit, word = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, edit), 6) < 6
    assert word in capsys.readouterr().out


def test_a_checkpoint_of_nothing_is_named(capsys):
    class Checkpoint:
        take = staticmethod(lambda training: None)
        put_back = staticmethod(lambda training, state: None)

    assert points(Checkpoint, 6) == 0.0
    assert "`take` returns nothing" in capsys.readouterr().out
