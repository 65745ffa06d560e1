"""Mistakes in the exercises of notebook 5a, and other right answers."""

import numpy as np

from course_lib import precision

NEAREST = "np.rint(wide / spacing) * spacing"
POWER = "np.maximum(np.frexp(wide)[1] - 1, lowest)"
LARGE = "np.where(np.abs(rounded) >= 2.0 ** (highest + 1), np.copysign(np.inf, wide), rounded)"
FINITE = "np.where(np.isfinite(wide), rounded, wide)"
LOOK = "if not np.isfinite(gradient).all():\n        return weights, velocity, scale / 2, 0"
SKIPPED, DOUBLED = "return weights, velocity, scale / 2, 0", "(weights, velocity, scale * 2, 0)"
VELOCITY = "0.9 * velocity + gradient / scale"
DISTANCE = "spacing / 2 / rate"
DRAW = "np.floor(wide / spacing + random.random(wide.shape)) * spacing"
PLAN = "2 * max(maxima[-8:])"


def by_spread(maxima):
    logs = np.log2(maxima[-12:])
    return float(2 ** (logs.max() + 0.5 + logs.std()))


MISTAKES = {
    "scaled_step": {
        "the scale doubled before it is used":
            ({VELOCITY: "0.9 * velocity + gradient / (scale * 2 if clean + 1 == patience else scale)"},
             "without a scale the first weight would be"),
        "the scale stays in": ({VELOCITY: "0.9 * velocity + gradient"}, "still multiplied by the scale"),
        "unscaled too late":
            ({"weights - rate * velocity": "weights - rate * (velocity - gradient + gradient / scale)",
              VELOCITY: "0.9 * velocity + gradient"},
             "the velocity holds scaled gradients"),
        "not looked at": ({LOOK: "pass"}, "spoiled"),
        "NaN not looked at": ({"not np.isfinite(gradient).all()": "np.isinf(gradient).any()"}, "spoiled"),
        "coasting": ({SKIPPED: "return weights - rate * velocity, velocity, scale / 2, 0"}, "the weights move"),
        "velocity decays": ({SKIPPED: "return weights, 0.9 * velocity, scale / 2, 0"}, "nothing may change"),
        "the count goes on": ({SKIPPED: "return weights, velocity, scale / 2, clean"}, "the count begins anew"),
        "never up": ({DOUBLED: "(weights, velocity, scale, 0)"}, "never grows"),
        "a step late": ({"clean == patience": "clean > patience"}, "one step too late"),
        "no new count":
            ({"clean == patience": "clean >= patience", DOUBLED: "(weights, velocity, scale * 2, clean)"},
             "must begin anew"),
    },
    "quantise": {
        "cut off": ({NEAREST: "np.trunc(wide / spacing) * spacing"}, "cut off towards 0"),
        "ties up": ({NEAREST: "np.copysign(np.floor(np.abs(wide) / spacing + 0.5), wide) * spacing"}, "even mantissa"),
        "a bit too many": ({"power - mantissa": "power - mantissa - 1"}, "a mantissa bit too many"),
        "no subnormal numbers":
            ({FINITE: "np.where(np.isfinite(wide), rounded * (np.abs(wide) >= 2.0**lowest), wide)"},
             "lowest exponent still holds"),
        "unrounded": ({NEAREST: "wide"}, "nothing is rounded"),
        "one exponent too low": ({POWER: POWER.replace("lowest", "lowest - 1")}, "here −14, not −15"),
        "numbers of float16": ({"2.0 ** (highest + 1)": "2.0**16"}, "beyond the end of this format"),
        "subnormals of float16":
            ({POWER: "np.maximum(np.frexp(wide)[1] - 1, -14)"}, "below the lowest exponent of this format"),
        "ever finer": ({POWER: "np.frexp(wide)[1] - 1"}, "the spacing stops falling"),
        "cut to the largest": ({LARGE: "np.clip(rounded, -65504, 65504)"}, "in an IEEE format it becomes infinite"),
        "too large before rounding": (
            {LARGE: "np.where(np.abs(wide) > (2 - 2.0**-mantissa) * 2.0**highest, np.copysign(np.inf, wide), rounded)"},
            "round first",
        ),
        "one exponent more": ({"(highest + 1)": "(highest + 20)"}, "for infinity and NaN"),
        "the sign lost": ({"np.copysign(np.inf, wide)": "np.inf"}, "the sign stays"),
        "NaN lost": ({FINITE: "np.nan_to_num(np.where(np.isfinite(wide), rounded, wide))"}, "NaN becomes"),
    },
    "stuck_distance": {
        "a whole spacing": ({DISTANCE: "spacing / rate"}, "below half of the spacing"),
        "an update": ({DISTANCE: "spacing / 2"}, "divide by the rate"),
        "relative":
            ({"2.0 ** (np.floor(np.log2(target)) - mantissa)": "target * 2.0**-mantissa"},
             "from one power of two to the next"),
        "the spacing at 1": ({"np.floor(np.log2(target))": "0"}, "right for a target of 1"),
        "the next power": ({"np.floor": "np.ceil"}, "right for a target of 1"),
        "something else": ({DISTANCE: "spacing * rate"}, "a weight from above stops"),
    },
    "chance": {
        "nearest": ({DRAW: "np.rint(wide / spacing) * spacing"}, "always rounds the same way"),
        "a coin":
            ({DRAW: "(np.floor(wide / spacing) + (random.random(wide.shape) < 0.5) * (wide % spacing != 0)) * spacing"},
             "equally likely"),
        "the wrong way round":
            ({DRAW:
               "(np.floor(wide / spacing) + (random.random(wide.shape) > wide / spacing % 1) "
               "* (wide % spacing != 0)) * spacing"},
             "other way round"),
        "one draw for all": ({"random.random(wide.shape)": "random.random()"}, "same way"),
        "noise": ({DRAW: "wide + spacing * (random.random(wide.shape) - 0.5)"}, "do you round at all"),
        "no 0": ({"np.frexp(wide)[1] - 1": "np.floor(np.log2(np.abs(wide))).astype(int)"}, "logarithm of 0"),
    },
    "bound": {
        "the last one": ({PLAN: "maxima[-1]"}, "overflow"),
        "all of the past": ({PLAN: "2 * max(maxima)"}, "out of date"),
        "much room": ({PLAN: "100 * maxima[-1]"}, "less room"),
        "the mean": ({PLAN: "sum(maxima) / len(maxima)"}, "overflow"),
        "no room": ({PLAN: "max(maxima[-8:])"}, "above all that have been"),
        "nothing": ({PLAN: "0 * maxima[0]"}, "above 0"),
    },
}  # fmt: skip

RIGHT = {
    "quantise": {"the library's": precision.quantise},
    "bound": {"by the spread of the logarithms": by_spread},
}
