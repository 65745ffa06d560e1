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
ORDER = f"return {SEEDED}.permutation(examples)"
PART = "return shuffled(examples, epoch)[start : start + batch]"
DRAFT = 'draft = path.with_suffix(".draft")'
REFUSE = 'ValueError(f"{path.name} is cut short or damaged: go back to the checkpoint before it.")'
REDONE, WRITING = "redone * failures_per_second", "write / (interval + write)"
LOOP = """
while state.step < steps:
    advance(state)
    state.step += 1
    if state.step % every == 0:
        state.commit()
"""
COMMIT_AT_THE_START = """
while state.step < steps:
    if state.step % every == 0:
        state.commit()
    advance(state)
    state.step += 1
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
        (PART, "return np.random.default_rng([epoch, rank]).permutation(examples)[start : start + batch]"),
        "who takes which part",
    ),
    "a part of the epoch for each rank": (
        "examples_at",
        ("(within * size + rank) * batch", "rank * (examples // size) + within * batch"),
        "cut each step, not the epoch",
    ),
    "no seed": ("examples_at", (SEEDED, "np.random.default_rng()"), "asked twice for step 9"),
    "NumPy's global generator": (
        "examples_at",
        (ORDER, "np.random.seed(epoch); return np.random.permutation(examples)"),
        "a generator of your own",
    ),
    "one order, read on and on": (
        "examples_at",
        (PART, "return np.roll(shuffled(examples, 0), -step * size * batch)[rank * batch : (rank + 1) * batch]"),
        "begun at another place",
    ),
    "an epoch of one rank": (
        "examples_at",
        ("examples // (size * batch)", "examples // batch"),
        "it should be (8,)",
    ),
    "no examples": ("examples_at", (PART, "pass"), "returns nothing"),
    "shares, not numbers": (
        "examples_at",
        (PART, f"{PART} / examples"),
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
    "the best loss forgotten": ("Checkpoint", ('training.best = state["best"]', "pass"), "`best`"),
    "the waiting forgotten": ("Checkpoint", ('training.waited = state["waited"]', "pass"), "`waited`"),
    "no copy": (
        "Checkpoint",
        ("[variable.numpy() for variable in training.optimizer.variables]", "list(training.optimizer.variables)"),
        "was a copy taken",
    ),
    "what no file can hold": (
        "Checkpoint",
        ("training.optimizer.learning_rate.numpy()", "lambda: 1"),
        "can't be written to a file",
    ),
    "no draft": ("Store", (DRAFT, "draft = path"), "leaves a torn file"),
    "the old one is deleted first": ("Store", (DRAFT, f"{DRAFT}; path.unlink(missing_ok=True)"), "leaves none at all"),
    "the old one is deleted just before the renaming": (
        "Store",
        ("os.replace(draft, path)", "path.unlink(missing_ok=True); os.replace(draft, path)"),
        "neither the old one nor the new one",
    ),
    "the draft is copied": (
        "Store",
        ("os.replace(draft, path)", "path.write_bytes(draft.read_bytes()); draft.unlink()"),
        "is torn",
    ),
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
        "has its name already",
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
    "nothing is done again": ("lost_share", ("interval / 2 + restart", "restart"), "half an interval"),
    "no writing": ("lost_share", (f"{WRITING} + {REDONE}", REDONE), "the writing is missing"),
    "writing as a share of the work": ("lost_share", (WRITING, "write / interval"), "300 %"),
    "the restart outside the brackets": (
        "lost_share",
        (REDONE, "interval / 2 + restart * failures_per_second"),
        "so both are multiplied",
    ),
    "no brackets below the line": ("lost_share", (WRITING, "write / interval + write"), "divides by b alone"),
    "what is left": (
        "lost_share",
        (f"{WRITING} + {REDONE}", f"1 - ({WRITING} + {REDONE})"),
        "subtract it from 1",
    ),
    "one interval at a time": ("lost_share", ("interval / 2", "np.mean(interval) / 2 + 0 * write"), "derivative is 0"),
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
    "commit before the step": ("keep_going", (LOOP, COMMIT_AT_THE_START), "not before the next one"),
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


@pytest.mark.parametrize(
    "left_out",
    [
        "training.optimizer.learning_rate.assign(state['rate'])",
        "training.best = state['best']",
        "training.waited = state['waited']",
    ],
)
def test_without_what_decides_on_the_rate_it_is_not_the_uninterrupted_run(answer, left_out):
    verdicts = {verdict.id: verdict for verdict in check(answer(NOTEBOOK, "Checkpoint", (left_out, "None"))).verdicts}
    assert not verdicts["uninterrupted"].passed
    assert "differs" in verdicts["uninterrupted"].reason


def test_what_is_forgotten_is_not_taken_for_a_missing_copy(answer):
    verdicts = check(answer(NOTEBOOK, "Checkpoint", ("variable.assign(value)", "None"))).verdicts
    (copy,) = [verdict for verdict in verdicts if verdict.id == "copy"]
    assert not copy.passed and "not in the checkpoint, or not put back" in copy.reason


def test_half_of_the_writing_may_count_as_lost_with_a_failure(answer):
    assert points(answer(NOTEBOOK, "lost_share", ("interval / 2", "(interval + write) / 2")), 6) == 6.0


def test_a_stub_is_told_in_one_line(capsys):
    class Checkpoint:
        @staticmethod
        def take(training):
            raise NotImplementedError()

    assert [verdict.title for verdict in check(Checkpoint).verdicts] == ["Not written yet"]
    assert points(Checkpoint, 6) == 0.0
    assert "still a stub" in capsys.readouterr().out


def test_a_checkpoint_of_nothing_is_named(capsys):
    class Checkpoint:
        take = staticmethod(lambda training: None)
        put_back = staticmethod(lambda training, state: None)

    assert points(Checkpoint, 6) == 0.0
    assert "`take` returns nothing" in capsys.readouterr().out
