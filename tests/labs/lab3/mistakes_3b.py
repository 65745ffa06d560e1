"""Mistakes in the exercises of notebook 3b, and other right answers."""

import math

import numpy as np

POWER = "powers.get((compared, moment), 1)"
RATE = f"eta * (batch / base) ** {POWER}"
RAMP = "start + (eta - start) * step / steps"
GROWN = "min(batch * factor, largest)"
ETA = "eta * grown / (batch * factor)"
COUNT = "(end - epoch) * (examples // batch)"

MISTAKES = {
    "scaled_rate": {
        "linear for one update": ({"0.5": "1"}, "η enters it squared"),
        "the root for the same examples": ({POWER: POWER.replace("1)", "0.5)")}, "add up"),
        "the same rate for all": ({RATE: "eta"}, "the same rate for every batch"),
        "more examples, longer mean": ({POWER: "1"}, "whatever the batch"),
        "a root forgotten":
            ({POWER: "{**powers, ('same examples', 'covariance'): 2}.get((compared, moment), 1)"}, "a root is still"),
        "upside down": ({"batch / base": "base / batch"}, "the other way round"),
        "whole multiples only": ({"batch / base": "batch // base"}, "divide with /"),
        "the base forgotten": ({"batch / base": "batch"}, "not B itself"),
        "no return": ({f"return {RATE}": RATE}, "is a `return` missing"),
    },
    "warm_up": {
        "off by one": ({RAMP: "start + (eta - start) * (step + 1) / steps"}, "off by one: update 0"),
        "there an update early": ({RAMP: "start + (eta - start) * step / (steps - 1)"}, "not by update 3"),
        "there an update late":
            ({"step >= steps": "step > steps", RAMP: "start + (eta - start) * step / (steps + 1)"}, "not later"),
        "from zero": ({RAMP: "eta * step / steps"}, "it should rise from `start`"),
        "from zero, and early": ({RAMP: "min(eta, eta * (step + 1) / steps)"}, "and one update early"),
        "start added on top": ({"eta - start": "eta"}, "only η − start"),
        "no end": ({"step >= steps": "steps == 0"}, "goes on rising"),
        "no return at the end": ({"return eta": "return"}, "it returns nothing"),
        "no warm-up at all": ({"step >= steps": "True"}, "no warm-up"),
        "equal factors": ({RAMP: "start * (eta / start) ** (step / steps)"}, "equal factors"),
        "whole division": ({RAMP: "start + (eta - start) * (step // steps)"}, "one jump"),
        "division by no updates": ({"step >= steps": "steps and step >= steps"}, "ZeroDivisionError"),
    },
    "legw": {
        "a linear rate": ({'("one update", "covariance")': '("same examples", "mean")'}, "the square root"),
        "the same epochs": ({"epochs * batch / base": "epochs"}, "grows with the batch, too"),
        "fewer epochs": ({"epochs * batch / base": "epochs * base / batch"}, "longer, not shorter"),
        "the root of the epochs": ({"epochs * batch / base": "epochs * (batch / base) ** 0.5"}, "not to its root"),
        "rounded": ({"epochs * batch / base": "round(epochs * batch / base)"}, "may be a fraction"),
        "the root of fewer epochs":
            ({"epochs * batch / base": "epochs * (base / batch) ** 0.5"}, "longer, in proportion"),
    },
    "growth": {
        "a rate that falls, too": ({ETA: "eta / factor"}, "falls twice"),
        "nothing left for the rate": ({ETA: "eta"}, "the rest has to be taken"),
        "all or nothing":
            ({GROWN: "batch * factor if batch * factor <= largest else batch"}, "room for the whole factor"),
        "a part that is forgotten": ({ETA: "eta if batch < largest else eta / factor"}, "by a part of the factor"),
        "no largest batch": ({GROWN: "batch * factor"}, "beyond `largest`"),
        "no first stage": ({"[(0, batch, eta)]": "[]"}, "first stage"),
        "the decay": ({GROWN: "batch", ETA: "eta / factor"}, "that is the decay"),
        "a scaled rate": ({ETA: "eta * factor"}, "stays what it was"),
        "the rate rises": ({ETA: "eta * (batch * factor) / grown"}, "has to fall, not rise"),
        "half a batch": ({"batch = grown": "batch = float(grown)"}, "whole numbers"),
        "milestones used up": ({"return stages": "milestones.clear(); return stages"}, "changes the list"),
    },
    "updates": {
        "the last stage forgotten":
            ({"[epoch for epoch, _, _ in stages[1:]] + [epochs]": "[epoch for epoch, _, _ in stages[1:]]"},
             "the last stage"),
        "rounded up": ({"examples // batch": "-(-examples // batch)"}, "is left out"),
        "rounded by stage": ({COUNT: "(end - epoch) * examples // batch"}, "each *epoch*"),
        "not rounded": ({"examples // batch": "examples / batch"}, "whole updates only"),
        "from the start of training": ({COUNT: "end * (examples // batch)"}, "from its own first epoch"),
        "one epoch of each": ({COUNT: "examples // batch"}, "one epoch of each"),
    },
}  # fmt: skip


def rate_from_equal_moments(eta, batch, base, keep):
    k = np.float64(batch) / base
    updates = 1 if "one update" in keep else k
    if "mean" in keep:
        return updates * eta  # η′ G = updates · η G
    return np.sqrt(updates * eta**2 * k)  # η′² / (k B) = updates · η² / B


def interpolated(step, eta, steps, start):
    return np.interp(step, [0, steps], [start, eta]) if steps > 0 else eta


def by_updates(eta, epochs, batch, base):
    examples = 1e6
    steps = epochs * examples / base
    return [math.hypot(eta) * math.sqrt(batch) / math.sqrt(base), steps / (examples / batch)]


def closed_form(eta, batch, milestones, factor, largest):
    wanted = [batch * factor**n for n in range(len(milestones) + 1)]
    return [[epoch, min(b, largest), eta * min(1, largest / b)] for epoch, b in zip([0, *milestones], wanted)]


def epoch_by_epoch(stages, epochs, examples):
    total = 0
    for epoch in range(epochs):
        (*_, batch) = (batch for first, batch, _ in stages if first <= epoch)
        total += examples // batch
    return total


RIGHT = {
    "scaled_rate": {"from equal moments": rate_from_equal_moments},
    "warm_up": {"interpolated": interpolated},
    "legw": {"by updates": by_updates},
    "growth": {"closed form": closed_form},
    "updates": {"epoch by epoch": epoch_by_epoch},
}
