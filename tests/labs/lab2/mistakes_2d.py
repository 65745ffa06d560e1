"""Mistakes in the exercises of notebook 2d, and other right answers."""

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


class Nothing:
    take = staticmethod(lambda training: None)
    put_back = staticmethod(lambda training, state: None)


MISTAKES = {
    "examples_at": {
        "the same order in each epoch": ({SEEDED: "np.random.default_rng(0)"}, "the same order"),
        "another shuffle on each rank":
            ({PART: "return np.random.default_rng([epoch, rank]).permutation(examples)[start : start + batch]"},
             "who takes which part"),
        "a part of the epoch for each rank":
            ({"(within * size + rank) * batch": "rank * (examples // size) + within * batch"},
             "cut each step, not the epoch"),
        "no seed": ({SEEDED: "np.random.default_rng()"}, "asked twice for step 9"),
        "NumPy's global generator":
            ({ORDER: "np.random.seed(epoch); return np.random.permutation(examples)"}, "a generator of your own"),
        "one order, read on and on":
            ({PART: "return np.roll(shuffled(examples, 0), -step * size * batch)[rank * batch : (rank + 1) * batch]"},
             "begun at another place"),
        "an epoch of one rank": ({"examples // (size * batch)": "examples // batch"}, "it should be (8,)"),
        "no examples": ({PART: "pass"}, "returns nothing"),
        "shares, not numbers": ({PART: f"{PART} / examples"}, "expected are integers"),
        "all ranks the same part": ({"within * size + rank": "within * size"}, "is read 3 times"),
        "windows that overlap": ({"within * size + rank": "within + rank"}, "others never"),
        "an epoch that begins when all examples are read":
            ({"divmod(step, steps)": "step * size * batch // examples, step % steps"}, "2 times and others never"),
        "no shuffle": ({f"{SEEDED}.permutation(examples)": "np.arange(examples)"}, "shuffle the examples"),
    },
    "Checkpoint": {
        "of nothing": (Nothing, "`take` returns nothing", 0),
        "the optimizer forgotten": ({"variable.assign(value)": "None"}, "the optimizer's `iteration`"),
        "only the number of updates": ({'state["optimizer"]': 'state["optimizer"][:1]'}, "averages"),
        "the learning rate forgotten":
            ({'training.optimizer.learning_rate.assign(state["rate"])': "None"}, "none of `optimizer.variables`"),
        "the step forgotten": ({'training.step = state["step"]': "pass"}, "`step` is 0 in place of 11"),
        "the generator forgotten":
            ({'training.random.bit_generator.state = state["random"]': "pass"}, "the state of the generator"),
        "the generator anew, with the same seed":
            ({'training.random.bit_generator.state = state["random"]': "training.random = np.random.default_rng(1)"},
             "the state of the generator"),
        "the best loss forgotten": ({'training.best = state["best"]': "pass"}, "`best`"),
        "the waiting forgotten": ({'training.waited = state["waited"]': "pass"}, "`waited`"),
        "no copy":
            ({"[variable.numpy() for variable in training.optimizer.variables]": "list(training.optimizer.variables)"},
             "was a copy taken"),
        "what no file can hold":
            ({"training.optimizer.learning_rate.numpy()": "lambda: 1"}, "can't be written to a file"),
    },
    "Store": {
        "no draft": ({DRAFT: "draft = path"}, "leaves a torn file"),
        "the old one is deleted first": ({DRAFT: f"{DRAFT}; path.unlink(missing_ok=True)"}, "leaves none at all"),
        "the old one is deleted just before the renaming":
            ({"os.replace(draft, path)": "path.unlink(missing_ok=True); os.replace(draft, path)"},
             "neither the old one nor the new one"),
        "the draft is copied":
            ({"os.replace(draft, path)": "path.write_bytes(draft.read_bytes()); draft.unlink()"}, "is torn"),
        "a draft in another folder": ({DRAFT: "import tempfile; draft = tempfile.mkstemp()[1]"}, "in another folder"),
        "no fsync": ({"os.fsync(file.fileno())": "None"}, "os.fsync"),
        "no flush": ({"file.flush()": "None"}, "flush first"),
        "the name before fsync":
            ({"os.fsync(file.fileno())": "os.replace(draft, path), os.fsync(file.fileno()), path.rename(draft)"},
             "has its name already"),
        "no digest": ({"hashlib.sha256(content).digest() != digest": "False"}, "raise ValueError"),
        "Python's hash":
            ({"hashlib.sha256(content).digest()": "hash(content).to_bytes(32, 'big', signed=True)"},
             "`hash` differs between processes"),
        "only the length is checked":
            ({"hashlib.sha256(content).digest()": "len(content).to_bytes(32, 'big')"}, "one bit flipped"),
        "another kind of error": ({REFUSE: REFUSE.replace("ValueError", "KeyError")}, "raise ValueError"),
        "no name in the sentence": ({REFUSE: REFUSE.replace("{path.name}", "A file")}, "doesn't name the file"),
        "several lines": ({REFUSE: REFUSE.replace("damaged: ", r"damaged:\n")}, "has several lines"),
        "a draft left behind": ({"os.replace(draft, path)": "path.write_bytes(draft.read_bytes())"}, "behind"),
    },
    "lost_share": {
        "the whole interval": ({"interval / 2": "interval"}, "half-way"),
        "one rank's failures": ({"ranks / mtbf": "1 / mtbf"}, "one stops all"),
        "fewer failures with more ranks": ({"ranks / mtbf": "1 / (ranks * mtbf)"}, "not less"),
        "no restart": ({"interval / 2 + restart": "interval / 2"}, "the restart is missing"),
        "nothing is done again": ({"interval / 2 + restart": "restart"}, "half an interval"),
        "failures in an interval": ({REDONE: "redone * (interval + write) * failures_per_second"}, "in a second"),
        "no writing": ({f"{WRITING} + {REDONE}": REDONE}, "the writing is missing"),
        "writing as a share of the work": ({WRITING: "write / interval"}, "300 %"),
        "the restart outside the brackets":
            ({REDONE: "interval / 2 + restart * failures_per_second"}, "so both are multiplied"),
        "no brackets below the line": ({WRITING: "write / interval + write"}, "divides by b alone"),
        "what is left": ({f"{WRITING} + {REDONE}": f"1 - ({WRITING} + {REDONE})"}, "subtract it from 1"),
        "one interval at a time": ({"interval / 2": "np.mean(interval) / 2 + 0 * write"}, "derivative is 0"),
    },
    "keep_going": {
        "from the beginning": ({LOOP: f"state.step = 0{LOOP}"}, "not from 0"),
        "a for loop": ({LOOP: LOOP.replace("while state.step < steps", "for _ in range(steps)")}, "takes 20 steps"),
        "commit before the step is counted": ({LOOP: COMMIT_FIRST}, "commit when weights and `step` belong together"),
        "commit before the step": ({LOOP: COMMIT_AT_THE_START}, "not before the next one"),
        "never committed": ({"state.commit()": "None"}, "nothing is ever committed"),
        "a commit after each step": ({"state.step % every == 0": "True"}, "after every step"),
        "errors caught":
            ({LOOP: LOOP.replace("advance(state)", "try: advance(state)\n    except Exception: pass")}, "let it pass"),
        "a counter of its own":
            ({LOOP: "step = state.step\n" + LOOP.replace("state.step % every == 0:", "step % every == 0:\n        "
              "state.step = step").replace("state.step += 1", "step += 1").replace("while state.", "while ")},
             "as the steps are taken"),
        "not counted": ({"state.step += 1": "pass"}, "doesn't end"),
    },
}  # fmt: skip

SYNC = "os.fsync(file.fileno())"

RIGHT = {
    "examples_at": {
        "every size-th of the step's examples":
            {PART: "return shuffled(examples, epoch)[within * size * batch :][: size * batch][rank::size]"},
    },
    "Checkpoint": {
        "the generator itself":
            {'training.random.bit_generator.state = state["random"]': "training.random = pickle.loads(state['random'])",
             "training.random.bit_generator.state": "pickle.dumps(training.random)"},
    },
    "Store": {
        "fdatasync": {SYNC: "os.fdatasync(file.fileno())"},
        "sync, for all files": {SYNC: "os.sync()"},
        "a name imported for it": {SYNC: "from os import fsync as to_disk; to_disk(file)"},
        "a draft that is written through":
            {SYNC: "None", 'open(draft, "wb")':
             "open(draft, 'wb', opener=lambda name, flags: os.open(name, flags | os.O_SYNC, 0o600))"},
    },
    "lost_share": {
        "half of the writing": {"interval / 2": "(interval + write) / 2"},
        "by cycles":
            {f"{WRITING} + {REDONE}":
             "(write + redone * (interval + write) * failures_per_second) / (interval + write)"},
    },
    "keep_going": {"a for loop from there": {LOOP: LOOP.replace("while state.step < steps",
                                                                "for _ in range(state.step, steps)")}},
}  # fmt: skip
