"""Mistakes in the exercises of notebook 1b, and other right answers."""

import numpy as np

SHUFFLE = "np.random.default_rng([seed, epoch]).permutation(examples)"
BATCHES = "[order[i : i + batch_size] for i in range(0, examples, batch_size)]"
GRADIENT = "gradient(w, x[batch], y[batch])"
STEP = f"eta * {GRADIENT}"
DRAW = "minibatches(len(x), batch_size, epoch, seed)"
MOVED = "w - eta * m_hat / (np.sqrt(v_hat) + epsilon)"

MISTAKES = {
    "minibatches": {
        "drawn with replacement":
            ({SHUFFLE: "np.random.default_rng([seed, epoch]).integers(0, examples, examples)"}, "without replacement"),
        "the same order in each epoch": ({"[seed, epoch]": "seed"}, "reshuffle in every epoch"),
        "the same order for each seed": ({"[seed, epoch]": "epoch"}, "`seed` into"),
        "the sum of seed and epoch": ({"[seed, epoch]": "seed + epoch"}, "not with their sum"),
        "ten epochs for each seed": ({"[seed, epoch]": "10 * seed + epoch"}, "epoch 10 of seed 0 is epoch 0 of seed 1"),
        "a hundred seeds for each epoch": ({"[seed, epoch]": "seed + 100 * epoch"}, "made of both"),
        "a product": ({"[seed, epoch]": "(1 + seed) * (1 + epoch)"}, "made of both"),
        "no seed": ({"[seed, epoch]": "None"}, "seed its random generator"),
        "stored order": ({SHUFFLE: "np.arange(examples)"}, "stored order"),
        "the small batch left out":
            ({"range(0, examples, batch_size)": "range(0, examples - batch_size + 1, batch_size)"}, "are lost"),
        "equal batches": ({BATCHES: "np.array_split(order, -(-examples // batch_size))"}, "be [3, 3, 3, 1]"),
        "counted from 1": ({SHUFFLE: f"1 + {SHUFFLE}"}, "holds example 12"),
        "some never drawn": ({SHUFFLE: f"{SHUFFLE}[2:]"}, "2 examples are in no batch"),
        "floats": ({SHUFFLE: f"{SHUFFLE}.astype(float)"}, "batch 0 is float64"),
        "no return": ({f"return {BATCHES}": BATCHES}, "returns nothing"),
        "batches shuffled, not examples":
            ({SHUFFLE: "np.arange(examples)",
              f"return {BATCHES}":
               f"cut = {BATCHES}\nplaces = np.random.default_rng([seed, epoch]).permutation(len(cut) - 1)\n"
               "return [cut[i] for i in places] + cut[-1:]"},
             "shuffle the examples"),
    },
    "sgd_epoch": {
        "η twice": ({STEP: f"eta * {STEP}"}, "η is applied twice"),
        "uphill": ({f"w = w - {STEP}": f"w = w + {STEP}"}, "up the slope"),
        "no η": ({STEP: GRADIENT}, "η is not applied"),
        "too far": ({STEP: f"1.5 * {STEP}"}, "should be 0.01; it is 0.015"),
        "divided by the batch again": ({GRADIENT: f"{GRADIENT} / len(batch)"}, "mean already"),
        "only the sign": ({GRADIENT: f"np.sign({GRADIENT})"}, "does not go along the gradient"),
        "labels of the first": ({"y[batch]": "y[: len(batch)]"}, "labels do not belong"),
        "the whole gradient": ({GRADIENT: "gradient(w, x, y)"}, "11 examples in batches of 4"),
        "all at the first weights":
            ({f"w = w - {STEP}": f"start = locals().get('start', w)\nw = w - {STEP}",
              GRADIENT: "gradient(start, x[batch], y[batch])"},
             "at the first weights"),
        "one batch only": ({f"w = w - {STEP}": f"w = w - {STEP}\nreturn w"}, "11 examples in batches of 4"),
        "in place": ({f"w = w - {STEP}": f"w -= {STEP}"}, "in place"),
        "always the first epoch": ({DRAW: DRAW.replace("epoch", "0")}, "hand `epoch` on"),
        "the small batch skipped":
            ({f"w = w - {STEP}": f"if len(batch) == batch_size:\n    w = w - {STEP}"},
             "an epoch uses each of the 11 once"),
        "η shared among the batches": ({STEP: f"eta / len(list({DRAW})) * {GRADIENT}"}, "should be 0.01; it is 0.0033"),
        "one epoch in each call of two": ({"return w": f"for batch in {DRAW}:\n    w = w - {STEP}\nreturn w"},
                                          "uses each of the 11 once"),
        "the seed not handed on": ({DRAW: DRAW.replace(", seed", "")}, "hand `seed` on"),
    },
    "momentum": {
        "no memory": ({"0.0 if state is None else state": "0.0"}, "starts anew in each step"),
        "uphill": ({"return w + v, v": "return w - v, v"}, "up the slope"),
        "η twice": ({"return w + v, v": "return w + eta * v, v"}, "η is applied twice"),
        "no η": ({"beta * v - eta * g": "beta * v - g"}, "η is not applied"),
        "averaged": ({"eta * g": "(1 - beta) * eta * g"}, "factor 1 − β"),
        "the share exchanged": ({"beta * v": "(1 - beta) * v"}, "it should keep β"),
        "PyTorch's form":
            ({"beta * v - eta * g": "beta * v + g", "return w + v, v": "return w - eta * v, v"},
             "that is PyTorch's form", 7),
        "Nesterov's rule": ({"return w + v, v": "return w + beta * v - eta * g, v"}, "Nesterov's rule"),
        "no state returned": ({"return w + v, v": "return w + v"}, "return two things"),
        "kept in a global":
            ({"v = 0.0 if state is None else state": "v = globals().get('kept', 0.0)",
              "return w + v, v": "globals()['kept'] = v\nreturn w + v, v"},
             "something is stored outside the state"),
        "friction on the step too": ({"beta * v - eta * g": "beta * (v - eta * g)"}, "the change of w should be"),
        "one number": ({"return w + v, v": "return np.sum(w + v), v"}, "as the new weights it returns shape ()"),
        "twice the step": ({"return w + v, v": "return w + 2 * v, v"}, "the change of w should be"),
        "weights in place": ({"return w + v, v": "w += v\nreturn w, v"}, "in place"),
        "state in place":
            ({"0.0 if state is None else state": "np.zeros_like(w) if state is None else state",
              "v = beta * v - eta * g": "v *= beta\nv -= eta * g"},
             "state is changed in place"),
    },
    "adam": {
        "no bias correction": ({"m / (1 - beta1**t), v / (1 - beta2**t)": "m, v"}, "bias correction is missing"),
        "none of v": ({"v / (1 - beta2**t)": "v"}, "bias correction of v"),
        "none of m": ({"m / (1 - beta1**t)": "m"}, "bias correction of m"),
        "t stays 1": ({"t += 1": "t = 1"}, "t stays 1"),
        "t counted later": (
            {"t += 1": "pass", f"return {MOVED}, (m, v, t)": f"return {MOVED}, (m, v, t + 1)"}, "divides by 1 − β⁰ = 0",
        ),
        "βᵗ for 1 − βᵗ": ({"1 - beta1**t": "beta1**t", "1 - beta2**t": "beta2**t"}, "βᵗ in place of 1 − βᵗ"),
        "multiplied, not divided":
            ({"m / (1 - beta1**t), v / (1 - beta2**t)": "m * (1 - beta1**t), v * (1 - beta2**t)"}, "divide"),
        "no memory": ({"state or (0.0, 0.0, 0)": "(0.0, 0.0, 0)"}, "start anew in each step"),
        "without ε": ({"np.sqrt(v_hat) + epsilon": "np.sqrt(v_hat)"}, "0/0, no number: add ε", 2),
        "no square": ({"g**2": "g"}, "no number"),
        "absolute values": ({"g**2": "abs(g)"}, "not their squares"),
        "no root": ({"np.sqrt(v_hat)": "v_hat"}, "root is missing"),
        "squares of m": ({"g**2": "m**2"}, "squares of m"),
        "decays exchanged": ({"t += 1": "t += 1; beta1, beta2 = beta2, beta1"}, "are exchanged"),
        "corrected again and again":
            ({"m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)": "m, v = m / (1 - beta1**t), v / (1 - beta2**t)",
              MOVED: MOVED.replace("m_hat", "m").replace("v_hat", "v")},
             "corrected again"),
        "1 − β for 1 − βᵗ": ({"1 - beta1**t": "1 - beta1", "1 - beta2**t": "1 - beta2"}, "left out of βᵗ"),
        "the gradient whole": ({"(1 - beta1) * g": "g"}, "enters m whole"),
        "uphill": ({MOVED: MOVED.replace("w -", "w +")}, "up the slope"),
    },
}  # fmt: skip

RIGHT = {
    "minibatches": {
        "shuffled once more for each epoch": lambda *arguments: shuffled(*arguments),
        "lists, in a legacy generator": {
            SHUFFLE: "np.random.RandomState([seed, epoch]).permutation(examples).tolist()",
        },
        "cut by NumPy": {BATCHES: "np.split(order, range(batch_size, examples, batch_size))"},
        "an iterator": {f"return {BATCHES}": f"return iter({BATCHES})"},
    },
    "sgd_epoch": {
        "a function of two, folded": {
            f"for batch in {DRAW}:\n    w = w - {STEP}": "import functools\nw = functools.reduce("
            f"lambda w, batch: w - {STEP}, {DRAW}, w)",
        },
        "a copy, in place": {f"for batch in {DRAW}:\n    w = w - {STEP}":
                             f"w = w.copy()\nfor batch in {DRAW}:\n    w -= {STEP}"},
    },
    "momentum": {
        "the place before as the state": lambda w, g, state, eta, beta=0.9: (
            w - eta * g + (0 if state is None else beta * (w - state)), w.copy()),
        "the velocity uphill": {"beta * v - eta * g": "beta * v + eta * g", "return w + v, v": "return w - v, v"},
    },
    "adam": {
        "ε where Keras has it": {
            "np.sqrt(v_hat) + epsilon": "np.sqrt(v_hat) + epsilon / np.sqrt(1 - beta2**t)",
        },
        "sums and their weights": lambda *arguments: adam_of_sums(*arguments),
    },
}  # fmt: skip


def shuffled(examples, size, epoch, seed):
    """One generator for a run: it shuffles once for each epoch up to this one."""
    random = np.random.default_rng(seed)
    for _ in range(epoch + 1):
        order = random.permutation(examples)
    return [order[i : i + size] for i in range(0, examples, size)]


def adam_of_sums(w, g, state, eta):
    """Each mean is a sum over its weights, so nothing has to be corrected. The state is a dict."""
    old = state or {"g": 0.0, "g in all": 0.0, "square": 0.0, "square in all": 0.0}
    new = {
        "g": 0.9 * old["g"] + g,
        "g in all": 0.9 * old["g in all"] + 1,
        "square": 0.999 * old["square"] + g * g,
        "square in all": 0.999 * old["square in all"] + 1,
    }
    root = np.sqrt(new["square"] / new["square in all"])
    return w - eta * new["g"] / new["g in all"] / (root + 1e-7), new
