"""Mistakes in the exercises of notebook 3d."""

NORM_W, NORM_G = "np.linalg.norm(w)", "np.linalg.norm(g)"
BELOW = f"{NORM_G} + b * {NORM_W}"
RATIO = "above / below if above > 0 and below > 0 else 1.0"
SKIP = "(1.0, 0.0) if skip else (local_rate(w, g, tau, b), b)"
SKIP_LARC = "(eta, 0.0) if skip else (min(eta, local_rate(w, g, tau, b)), b)"
CLIP = "min(eta, local_rate(w, g, tau, b))"
KEPT = "0.0 if state is None else state"
ADAM = "m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + epsilon)"
LAMB = "return w - eta * local_rate(w, u, 1.0) * u, (m, v, t)"
ADAM_INSIDE = "m / (1 - beta1**t) / np.sqrt(v / (1 - beta2**t) + epsilon)"
ADAM_STEP = "return w - eta * u, (m, v, t)"
MEAN = "beta2 * v + (1 - beta2) * squares"
COLLECT = "M = beta1 * M + g / (np.sqrt(v) + epsilon) + b * w"
FACTORS = """{"SGD": (10, 1 / 100), "Adam": weights, "NovoGrad": weights,
               "LARS": nothing, "LARC": nothing, "LAMB": nothing}"""

MISTAKES = {
    "local_rate": {
        "norm of the sum": ({BELOW: "np.linalg.norm(g + b * w)"}, "norm of the sum"),
        "no trust coefficient": ({f"tau * {NORM_W}": NORM_W}, "τ is missing"),
        "decay forgotten": ({BELOW: NORM_G}, "b ‖w‖, is missing"),
        "decay subtracted": ({BELOW: f"{NORM_G} - b * {NORM_W}"}, "pulled against the gradient"),
        "the larger of the two": ({BELOW: f"max({NORM_G}, b * {NORM_W})"}, "how long is their sum"),
        "a right angle": ({BELOW: f"np.hypot({NORM_G}, b * {NORM_W})"}, "as at a right angle"),
        "decay without ‖w‖": ({f"b * {NORM_W}": "b"}, "should have b ‖w‖"),
        "upside down": ({"above / below": "tau**2 * below / above"}, "upside down"),
        "squared": ({NORM_W: "np.sum(w**2)", NORM_G: "np.sum(g**2)"}, "squared"),
        "sum of absolute values": ({NORM_W: "np.abs(w).sum()", NORM_G: "np.abs(g).sum()"}, "absolute values"),
        "largest absolute value": ({NORM_W: "np.abs(w).max()", NORM_G: "np.abs(g).max()"}, "largest absolute value"),
        "spectral norm":
            ({f"np.linalg.norm({x})": f"np.linalg.norm({x}, 2 if {x}.ndim == 2 else None)" for x in "wg"},
             "spectral"),
        "another number": ({BELOW: f"2 * {NORM_G} + b * {NORM_W}"}, "λ should be [0.00333333, "),
        "a norm for each column": ({NORM_W: "np.linalg.norm(w, axis=0)", RATIO: "above / below"}, "one number"),
        "divides by zero": ({RATIO: "above / below"}, "λ should be 1"),
        "a rate of zero": ({"1.0": "0.0"}, "stay 0 for ever"),
        "zero only tested above": ({"above > 0 and below > 0": "above > 0"}, "the gradient is 0"),
        "no return": ({f"return {RATIO}": RATIO}, "returns nothing"),
        "weights in place": ({f"above = tau * {NORM_W}": f"w *= tau\nabove = {NORM_W}"}, "in place"),
    },
    "lars": {
        "norm of the sum in LARS":
            ({"local_rate(w, g, tau, b)": "tau * np.linalg.norm(w) / np.linalg.norm(g + b * w)"}, "norm of the sum"),
        "trust ratio on biases": ({SKIP: "(local_rate(w, g, tau, b), b)"}, "gets ratio and decay"),
        "λ on biases": ({"(1.0, 0.0)": "(local_rate(w, g, tau, 0.0), 0.0)"}, "the ratio of"),
        "decay on biases": ({"(1.0, 0.0)": "(1.0, b)"}, "still decays"),
        "decay not handed on": ({"local_rate(w, g, tau, b)": "local_rate(w, g, tau)"}, "Hand b to"),
        "τ not handed on": ({"local_rate(w, g, tau, b)": "local_rate(w, g, b=b)"}, "`tau` is not used"),
        "λ on the gradient only": ({"eta * lam * (g + b * w)": "eta * (lam * g + b * w)"}, "whole of ∇L + b w"),
        "no decay": ({"g + b * w": "g"}, "the decay b w is missing"),
        "no η": ({"eta * lam": "lam"}, "η is not applied"),
        "no λ": ({"eta * lam": "eta"}, "SGD with momentum"),
        "clipped": ({"eta * lam": "eta * min(eta, lam)"}, "that is LARC"),
        "decay beside the velocity":
            ({"eta * lam * (g + b * w)": "eta * lam * g", "return w - v, v": "return w - v - eta * b * w, v"},
             "beside the velocity"),
        "η outside": ({"eta * lam": "lam", "return w - v, v": "return w - eta * v, v"}, "outside the velocity"),
        "uphill": ({"return w - v, v": "return w + v, v"}, "up the slope"),
        "no memory": ({KEPT: "0.0"}, "starts anew"),
        "averaged": ({"eta * lam": "(1 - beta) * eta * lam"}, "factor 1 − β"),
        "β by heart": ({"beta": "0.9"}, "`beta` is not used"),
        "too far": ({"return w - v, v": "return w - 2 * v, v"}, "the change of w should be"),
        "in place": ({"return w - v, v": "w -= v\nreturn w, v"}, "in place"),
        "only the weights": ({"return w - v, v": "return w - v"}, "return two things"),
        "a global velocity": (
            {KEPT: "globals().get(w.shape, 0.0)", "return w - v, v": "globals().update({w.shape: v})\nreturn w - v, v"},
            "stored outside the state",
        ),
        "zeros stay": ({SKIP: f"({SKIP}) if w.any() else (0.0, 0.0)"}, "weights of 0 stay 0"),
    },
    "larc": {
        "no clip": ({CLIP: "local_rate(w, g, tau, b)"}, "not clipped"),
        "the larger": ({CLIP: CLIP.replace("min", "max")}, "the smaller of the two"),
        "clipped at 1": ({CLIP: CLIP.replace("min(eta", "min(1.0")}, "clipped at 1"),
        "the quotient clipped at η":
            ({CLIP: "local_rate(w, g, tau, b)", "lam / eta": "min(eta, lam / eta)"}, "at most 1"),
        "η twice": ({"lam / eta": "lam"}, "applied twice"),
        "η inside": ({"lam / eta": "lam", "return w - eta * v, v": "return w - v, v"}, "takes λ/η"),
        "trust ratio on biases in LARC": ({SKIP_LARC: f"({CLIP}, b)"}, "gets ratio and decay"),
        "λ = 1 on biases in LARC": ({"(eta, 0.0)": "(1.0, 0.0)"}, "λ is η, not 1"),
    },
    "lamb": {
        "bias correction forgotten": ({ADAM: "m / (np.sqrt(v) + epsilon)"}, "bias correction is forgotten"),
        "bias correction of v": ({"v / (1 - beta2**t)": "v"}, "bias correction of v"),
        "bias correction of m": ({"m / (1 - beta1**t)": "m"}, "bias correction of m"),
        "t is not counted": ({"t += 1": "t = 1"}, "t stays 1"),
        "no memory in LAMB": ({"state or (0.0, 0.0, 0)": "(0.0, 0.0, 0)"}, "start anew"),
        "the trust coefficient of LARS": ({"local_rate(w, u, 1.0)": "local_rate(w, u)"}, "LAMB has none"),
        "decay handed to the ratio": ({"local_rate(w, u, 1.0)": "local_rate(w, u, 1.0, b)"}, "counts the decay twice"),
        "ratio of the gradient": ({"local_rate(w, u, 1.0)": "local_rate(w, g, 1.0)"}, "gradient's norm below"),
        "ratio upside down": ({"local_rate(w, u, 1.0)": "local_rate(u, w, 1.0)"}, "upside down"),
        "no ratio": ({"local_rate(w, u, 1.0)": "1.0"}, "trust ratio is missing"),
        "no decay in LAMB": ({"u = u + b * w": ""}, "the decay b w is missing"),
        "ratio before decay":
            ({"u = u + b * w": "", LAMB: LAMB.replace("* u", "* (u + b * w)")}, "before the decay is added"),
        "decay behind the ratio":
            ({"u = u + b * w": "", LAMB: "return w - eta * (local_rate(w, u, 1.0) * u + b * w), (m, v, t)"},
             "behind the ratio"),
        "decay in the gradient":
            ({"t += 1": "g = g if skip else g + b * w\nt += 1", "u = u + b * w": ""}, "goes through m and v"),
        "skip not honoured in LAMB": ({f"if skip:\n    {ADAM_STEP}": ""}, "gets ratio and decay"),
        "no root": ({"np.sqrt(v / (1 - beta2**t))": "v / (1 - beta2**t)"}, "root is missing"),
        "ε in the root": ({ADAM: ADAM_INSIDE}, "inside the root"),
        "gradients in v": ({"g**2": "abs(g)"}, "not their squares"),
        "β₁ swapped": ({"beta1 * m + (1 - beta1) * g": "(1 - beta1) * m + beta1 * g"}, "are swapped"),
    },
    "novograd": {
        "v starts at 0": ({"(0.0, squares)": "(0.0, 0.0)"}, "v starts at 0"),
        "a v for each weight": ({"np.sum(g**2)": "g**2"}, "one number for the layer"),
        "the norm, not its square": ({"np.sum(g**2)": "np.linalg.norm(g)"}, "not its square"),
        "the gradient averaged":
            ({COLLECT: "M = beta1 * M + (1 - beta1) * (g / (np.sqrt(v) + epsilon) + b * w)"}, "factor 1 − β₁"),
        "decay divided": ({COLLECT: "M = beta1 * M + (g + b * w) / (np.sqrt(v) + epsilon)"}, "behind"),
        "decay outside the momentum":
            ({COLLECT: "M = beta1 * M + g / (np.sqrt(v) + epsilon)",
              "return w - eta * M, (M, v)": "return w - eta * (M + b * w), (M, v)"},
             "part of what M collects"),
        "β₂ swapped": ({MEAN: "(1 - beta2) * v + beta2 * squares"}, "swapped"),
        "a sum of squares": ({MEAN: "squares if state is None else beta2 * v + squares"}, "enters v whole"),
        "the v before": (
            {f"v = {MEAN}": f"before = v\nv = {MEAN}", COLLECT: COLLECT.replace("(v)", "(before)")}, "the step before",
        ),
        "no memory in NovoGrad": ({"(0.0, squares) if state is None else state": "(0.0, squares)"}, "anew"),
        "η inside M":
            ({COLLECT: "M = beta1 * M + eta * (g / (np.sqrt(v) + epsilon) + b * w)", "w - eta * M": "w - M"},
             "η stands inside M"),
        "no average": ({MEAN: "squares"}, "average it"),
        "no root in NovoGrad": ({"np.sqrt(v)": "v"}, "root is missing"),
    },
    "invariances": {
        "a table without a rule": (lambda: {"SGD": (10, 0.01)}, "LAMB is missing."),
        "no table": (lambda: 3, "should return a dict"),
        "1/10 of SGD": ({FACTORS: FACTORS + ' | {"SGD": (10, 1 / 10)}'}, "two things change"),
        "Adam with the loss": ({FACTORS: FACTORS + ' | {"Adam": (10, 1 / 10)}'}, "the first step is η in each weight"),
        "NovoGrad's Δw itself": ({FACTORS: FACTORS + ' | {"NovoGrad": nothing}'}, "that is the factor of Δw itself"),
        "NovoGrad like LARS, turned round": ({FACTORS: FACTORS + ' | {"NovoGrad": (1, 10)}'}, "nothing looks at ‖w‖"),
        "LARS with the loss": ({FACTORS: FACTORS + ' | {"LARS": (10, 1)}'}, "whatever the gradient"),
        "LAMB's Δw itself": ({FACTORS: FACTORS + ' | {"LAMB": (1, 10)}'}, "that is the factor of Δw itself"),
        "LARC with the clip":
            ({FACTORS: FACTORS + ' | {"LARC": (10, 1 / 100)}'}, "LARC, ten times the loss: where λ is not clipped"),
        "one factor": ({FACTORS: FACTORS + ' | {"SGD": (10, 0.1), "LARC": 10}'}, "two factors"),
        "no factors": ({FACTORS: FACTORS + ' | {"LAMB": None}'}, "two factors"),
    },
}  # fmt: skip

RIGHT = {
    "local_rate": {
        "solved for the inverse": {f"above = tau * {NORM_W}": "n = np.sqrt(np.einsum('i,i', w.ravel(), w.ravel()))",
                                   f"below = {BELOW}": "d = np.sqrt(np.vdot(g, g))",
                                   f"return {RATIO}": "return 1.0 if n == 0 or d + b == 0 else tau / (d / n + b)"},
    },
    "lars": {"a velocity that points downhill":
             {"eta * lam * (g + b * w)": "-eta * lam * (g + b * w)", "return w - v, v": "return w + v, v"}},
    "larc": {"the quotient clipped at 1":
             {SKIP_LARC: "(eta, 0.0) if skip else (eta * min(1.0, local_rate(w, g, tau, b) / eta), b)"}},
    "lamb": {"arrays of zeros, and a ratio of its own":
             {"state or (0.0, 0.0, 0)": "state or (np.zeros_like(w), np.zeros_like(w), 0)",
              "local_rate(w, u, 1.0)": "(np.linalg.norm(w) / np.linalg.norm(u) if w.any() and u.any() else 1)"}},
    "novograd": {"a mean by its change":
                 {MEAN: "v + (1 - beta2) * (np.vdot(g, g) - v)",
                  "return w - eta * M, (M, v)": "return w - eta * M, {'M': M, 'v': v}",
                  "(0.0, squares) if state is None else state":
                      "(0.0, squares) if state is None else (state['M'], state['v'])"}},
    "invariances": {"lists and powers": {FACTORS: FACTORS + ' | {"SGD": [10.0, 0.1**2], "LARC": np.array([1, 1])}'}},
}  # fmt: skip
