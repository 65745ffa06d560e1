"""Mistakes in the exercises of notebook 1f, and other right answers."""

import numpy as np

VELOCITY = "beta * (0.0 if state is None else state) - eta * g"
AHEAD = "w + beta * v - eta * g"

MISTAKES = {
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
        "the whole step as the velocity":
            ({"v = " + VELOCITY: "v = " + VELOCITY + "\nstep = beta * v - eta * g",
              f"return {AHEAD}, v": "return w + step, step"}, "step 2 from w"),
        "PyTorch's form":
            ({VELOCITY: VELOCITY.replace("- eta * g", "+ g"), AHEAD: "w - eta * (beta * v + g)"},
             "that is PyTorch's form"),
    },
    "heavy_ball": {
        "β of .9": ({"root**2": "0.9"}, "a smaller β would do"),
        "exchanged": ({"4 / (high + low) ** 2, root**2": "root**2, 4 / (high + low) ** 2"}, "η comes first"),
        "no momentum": ({"root**2": "0.0"}, "gradient descent"),
        "one β for all": ({"root**2": "0.5658"}, "λ from 1 to 10"),
        "η of gradient descent": ({"4 / (high + low) ** 2": "1 / steepest"}, "along the floor it creeps"),
        "gradient descent's best η, with the best β":
            ({"4 / (high + low) ** 2": "2 / (flattest + steepest)"}, "a learning rate for gradient descent", 0),
        "the largest η of gradient descent":
            ({"4 / (high + low) ** 2": "2 / steepest"}, "a learning rate for gradient descent"),
        "only the steep end": ({"4 / (high + low) ** 2, root**2": "(1 + 0.9**0.5) ** 2 / steepest, 0.9"},
                               "a smaller β would do"),
        "curvatures for their roots":
            ({"np.sqrt(flattest), np.sqrt(steepest)": "flattest, steepest"}, "momentum needs"),
        "only the flat end, β too small":
            ({"4 / (high + low) ** 2, root**2": "3 / steepest, (1 - (3 * flattest / steepest) ** 0.5) ** 2"},
             "is above 2 (1 + β)"),
        "η twice as large": ({"4 / (high + low) ** 2": "8 / (high + low) ** 2"}, "above 2 (1 + β)"),
        "η below 0": ({"4 / (high + low) ** 2": "-1.0"}, "should be above 0"),
        "one number": ({"4 / (high + low) ** 2, root**2": "root**2"}, "2 values are expected: η, β"),
        "exchanged and upside down":
            ({"4 / (high + low) ** 2, root**2": "root**2, 4 * (high + low) ** 2"}, "η comes first"),
    },
}  # fmt: skip

RIGHT = {
    "nesterov": {
        "back to θ, then ahead again": lambda *arguments: there_and_back(*arguments),
        "the new velocity put in": {AHEAD: "w + beta * (beta * (0.0 if state is None else state) - eta * g) - eta * g"},
    },
    "heavy_ball": {
        "the flat end only, η of gradient descent": {
            "4 / (high + low) ** 2, root**2": "1 / steepest, (1 - (flattest / steepest) ** 0.5) ** 2"
        },
        "gradient descent's best η, with β for it": {
            "4 / (high + low) ** 2, root**2":
            "2 / (flattest + steepest), (1 - (2 * flattest / (flattest + steepest)) ** 0.5) ** 2"
        },
        "the steep end for each β, the flat end by search": lambda *ends: searched(*ends),
        "by κ": {"4 / (high + low) ** 2, root**2":
                 "(1 + root) ** 2 / steepest, (2 / (1 + (flattest / steepest) ** 0.5) - 1) ** 2"},
    },
}  # fmt: skip


def there_and_back(w, g, state, eta, beta=0.9):
    """θ from w, its step, and the point ahead of the new θ."""
    old = np.zeros_like(w) if state is None else state
    behind = w - beta * old
    new = beta * old - eta * g
    return behind + new + beta * new, new


def searched(flattest, steepest):
    """The smallest β whose range reaches from λ_min to λ_max, of many."""
    for beta in np.linspace(0, 0.999, 4000):
        eta = (1 + beta**0.5) ** 2 / steepest
        if eta * flattest >= (1 - beta**0.5) ** 2:
            return eta, beta
