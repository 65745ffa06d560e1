"""Mistakes in the exercises of notebook 1b, and other right answers."""

SHUFFLE = "np.random.default_rng([seed, epoch]).permutation(examples)"
BATCHES = "[order[i : i + batch_size] for i in range(0, examples, batch_size)]"
GRADIENT = "gradient(w, x[batch], y[batch])"
STEP = f"eta * {GRADIENT}"
DRAW = "minibatches(len(x), batch_size, epoch, seed)"
VELOCITY = "beta * (0.0 if state is None else state) - eta * g"
MOVED = "w - eta * m_hat / (np.sqrt(v_hat) + epsilon)"
AHEAD = "w + beta * v - eta * g"

MISTAKES = {
    "minibatches": {
        "drawn with replacement":
            ({SHUFFLE: "np.random.default_rng([seed, epoch]).integers(0, examples, examples)"}, "without replacement"),
        "the same order in each epoch": ({"[seed, epoch]": "seed"}, "reshuffle in every epoch"),
        "the same order for each seed": ({"[seed, epoch]": "epoch"}, "`seed` into"),
        "the sum of seed and epoch": ({"[seed, epoch]": "seed + epoch"}, "not with their sum"),
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
        "the seed not handed on": ({DRAW: DRAW.replace(", seed", "")}, "hand `seed` on"),
    },
    "momentum": {
        "no memory": ({"0.0 if state is None else state": "0.0"}, "starts anew in each step"),
        "uphill": ({"return w + v, v": "return w - v, v"}, "up the slope"),
        "η twice": ({"return w + v, v": "return w + eta * v, v"}, "η is applied twice"),
        "no η": ({"beta * v - eta * g": "beta * v - g"}, "η is not applied"),
        "averaged": ({"eta * g": "(1 - beta) * eta * g"}, "factor 1 − β"),
        "PyTorch's form":
            ({"beta * v - eta * g": "beta * v + g", "return w + v, v": "return w - eta * v, v"},
             "that is PyTorch's form", 7),
        "Nesterov's rule": ({"return w + v, v": "return w + beta * v - eta * g, v"}, "Nesterov's rule"),
        "no state returned": ({"return w + v, v": "return w + v"}, "return two things"),
        "one number": ({"return w + v, v": "return np.sum(w + v), v"}, "as the new weights it returns shape ()"),
        "twice the step": ({"return w + v, v": "return w + 2 * v, v"}, "the change of w should be"),
        "weights in place": ({"return w + v, v": "w += v\nreturn w, v"}, "in place"),
        "state in place":
            ({"0.0 if state is None else state": "np.zeros_like(w) if state is None else state",
              "v = beta * v - eta * g": "v *= beta\nv -= eta * g"},
             "state is changed in place"),
    },
    "nesterov": {
        "a step of θ": ({AHEAD: "w + v"}, "that is how θ moves"),
        "ahead twice": ({AHEAD: "w + v + beta * v"}, "take that away again"),
        "ahead by the gradient": ({AHEAD: "w + v - eta * g"}, "look ahead by β u"),
        "behind": ({AHEAD: "w + v - beta * (0.0 if state is None else state)"}, "the point behind"),
        "ahead of θ": ({AHEAD: "w + beta * v"}, "θ itself moves, too, and"),
        "ahead by the change":
            ({AHEAD: "w + beta * (v - (0.0 if state is None else state))"}, "θ itself moves, too, by u"),
        "the gradient added": ({AHEAD: "w + beta * v + eta * g"}, "η g is added"),
        "no memory": ({"0.0 if state is None else state": "0.0"}, "starts anew in each step"),
        "PyTorch's form":
            ({VELOCITY: VELOCITY.replace("- eta * g", "+ g"), AHEAD: "w - eta * (beta * v + g)"},
             "that is PyTorch's form"),
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
    "heavy_ball": {
        "β of .9": ({"root**2": "0.9"}, "a smaller β would do"),
        "exchanged": ({"4 / (high + low) ** 2, root**2": "root**2, 4 / (high + low) ** 2"}, "η comes first"),
        "no momentum": ({"root**2": "0.0"}, "gradient descent"),
        "the root, not its square": ({"root**2": "root"}, "square it"),
        "one β for all": ({"root**2": "0.5658"}, "λ from 1 to 10"),
        "η of gradient descent": ({"4 / (high + low) ** 2": "1 / steepest"}, "along the floor it creeps"),
        "η twice as large": ({"4 / (high + low) ** 2": "8 / (high + low) ** 2"}, "above 2 (1 + β)"),
        "η below 0": ({"4 / (high + low) ** 2": "-1.0"}, "should be above 0"),
        "one number": ({"4 / (high + low) ** 2, root**2": "root**2"}, "2 values are expected: η, β"),
        "exchanged and upside down":
            ({"4 / (high + low) ** 2, root**2": "root**2, 4 * (high + low) ** 2"}, "η comes first"),
    },
}  # fmt: skip

RIGHT = {
    "adam": {
        "ε where Keras has it": {
            "np.sqrt(v_hat) + epsilon": "np.sqrt(v_hat) + epsilon / np.sqrt(1 - beta2**t)",
        },
    },
}
