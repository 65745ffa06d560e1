"""Mistakes in the exercises of notebook 1a, and other right answers."""

DAY = "seconds = work * 1e15 * day / rate"
ERROR = "error = w * x + b - y"
SLOPE = "dw, db = slope(w, b)"
STEP = "return w - eta * dw, b - eta * db"
VERDICT = 'return "converged" if len(quiet) == patience and quiet.all() else ""'

MISTAKES = {
    "stop": {
        "diverged from the smallest loss": ({"losses[0]": "min(losses)"}, "[5.0, 0.001, 3.0] ends below", 7),
        "diverged by the largest loss": (
            {"losses[-1] > 1000 * losses[0]": "max(losses) > 1000 * losses[0]"}, "only the newest loss counts", 7,
        ),
        "a change against the new loss":
            ({"tolerance * np.abs(recent[:-1])": "tolerance * np.abs(recent[1:])"}, "not × the new loss", 6),
        "a change divided by the loss":
            ({"np.abs(np.diff(recent)) <= tolerance * np.abs(recent[:-1])":
              "np.abs(np.diff(recent) / recent[:-1]) <= tolerance"},
             "divided by 0 it is nan", 6),
        "below the tolerance, not at most":
            ({"np.abs(np.diff(recent)) <= tolerance * np.abs(recent[:-1])":
              "np.abs(np.diff(recent)) < tolerance * np.abs(recent[:-1])"},
             "at most tolerance × 0", 6),
        "nan never ends": (
            {"not np.isfinite(losses[-1]) or losses[-1] > 1000 * losses[0]": "losses[-1] > 1000 * losses[0]"}, "nan", 7,
        ),
        "diverged at the first rise": ({"losses[-1] > 1000 * losses[0]": "losses[-1] > losses[0]"}, "rising", 4),
        "a rise counts as settled": ({"np.abs(np.diff(recent))": "np.diff(recent)"}, "size of the change", 7),
        "an absolute change": ({"tolerance * np.abs(recent[:-1])": "tolerance"}, "tolerance × the loss before", 3),
        "a small loss counts as settled":
            ({"quiet = np.abs(np.diff(recent)) <= tolerance * np.abs(recent[:-1])": "quiet = recent[1:] <= tolerance"},
             "has converged", 3),
        "stops at a rise": ({"quiet.all()": "(quiet.all() or losses[-1] > losses[-2])"}, "rise", 7),
        "the ends of the window":
            ({"quiet.all()": "abs(recent[-1] - recent[0]) <= tolerance * recent[0]"}, "look at every step", 7),
        "a change against the first loss":
            ({"tolerance * np.abs(recent[:-1])": "tolerance * losses[0]"}, "not with the first loss", 7),
        "one quiet step is enough": ({"quiet.all()": "quiet.any()"}, "in a row", 7),
        "too few losses": ({"len(quiet) == patience and quiet.all()": "quiet.all()"}, "go on", 7),
        "True and False": ({VERDICT: "return bool(len(quiet) == patience and quiet.all())"}, "should be", 3),
        "None to go on":
            ({VERDICT: 'return "converged" if len(quiet) == patience and quiet.all() else None'}, "None", 7),
        "the list grows":
            ({"recent = np.array(losses[-patience - 1 :])":
               "losses.append(1.0)\nrecent = np.array(losses[-patience - 2 : -1])"},
             "changes the list of losses", 3),
        "all of the history": (
            {"losses[-patience - 1 :]": "losses", "len(quiet) == patience": "len(quiet) >= patience"}, "last three", 3,
        ),
    },
    "years": {
        "a day without its seconds": ({DAY: "seconds = work * 1e15 / rate"}, "seconds of the day", 0),
        "days in place of years": ({"seconds / day / 365": "seconds / day"}, "number of days", 0),
        "tera in place of peta": ({"1e15": "1e12"}, "10¹²", 0),
        "years without brackets": ({"seconds / day / 365": "seconds / 24 * 60 * 60 / 365"}, "Brackets", 0),
        "years multiplied": ({"seconds / day / 365": "seconds / 60 * 60 * 24 * 365"}, "Brackets", 0),
        "days divided into years at once": ({"seconds / day / 365": "seconds / 365"}, "divided by 365", 0),
        "hours of minutes": ({DAY: "seconds = work * 1e15 * 24 * 60 / rate"}, "factor 60", 0),
        "an hour for a day": ({DAY: "seconds = work * 1e15 * 60 * 60 / rate"}, "hours are", 0),
        "work and rate exchanged": ({"return seconds / day / 365": "return day * 365 / seconds"}, "inverse", 0),
    },
    "loss": {
        "loss without 1/m": ({"np.mean": "np.sum"}, "divide by the number of examples", 5),
        "loss with 1/(2m)": ({"np.mean(error**2)": "0.5 * np.mean(error**2)"}, "not 1/(2m)", 0),
        "loss without the square": ({"error**2": "error"}, "square each", 0),
        "loss without the square, y first": ({"error**2": "-error"}, "y minus prediction: square each", 0),
        "absolute error": ({"error**2": "np.abs(error)"}, "absolute errors", 0),
        "square of the mean": ({"np.mean(error**2)": "np.mean(error) ** 2"}, "square of the mean", 5),
        "root of the mean square": ({"np.mean(error**2)": "np.mean(error**2) ** 0.5"}, "root", 0),
        "plus y": ({ERROR: "error = w * x + b + y"}, "sign", 0),
        "loss without b": ({ERROR: "error = w * x - y"}, "Is b in your prediction?", 0),
        "loss of each example": ({"np.mean(error**2)": "error**2"}, "mean over the examples", 0),
        "loss without a return": ({"return np.mean(error**2)": "np.mean(error**2)"}, "`return`", 0),
        "loss in words": ({"np.mean(error**2)": "'low'"}, "the loss should be 6.25; it is 'low'", 0),
    },
    "gradient": {
        "gradient with the wrong sign": ({ERROR: "error = y - w * x - b"}, "sign of ∂L/∂w", 0),
        "gradient without 1/m": ({"np.mean": "np.sum"}, "divide by their number m", 5),
        "gradient without the 2":
            ({"2 * np.mean(error * x)": "np.mean(error * x)", "2 * np.mean(error)": "np.mean(error)"},
             "factor 2 is missing", 0),
        "∂L/∂w without x": ({"error * x": "error"}, "inner derivative", 5),
        "∂L/∂w with w": ({"error * x": "error * w"}, "is x, not w", 5),
        "∂L/∂w without b": ({"error * x": "(error - b) * x"}, "b is left out", 5),
        "∂L/∂b with x": ({"np.mean(error)": "np.mean(error * x)"}, "no factor x here", 5),
        "wrong sign in ∂L/∂b only": ({"2 * np.mean(error)": "-2 * np.mean(error)"}, "sign of ∂L/∂b", 5),
        "means multiplied": ({"np.mean(error * x)": "np.mean(error) * np.mean(x)"}, "error times x", 7.5),
        "gradient swapped": ({"return dw, db": "return db, dw"}, "swapped", 0),
        "gradient of each example": ({"2 * np.mean(error * x)": "2 * error * x"}, "mean over the examples", 5),
        "gradient without a return": ({"return dw, db": "dw, db"}, "`return`", 0),
        "only one derivative": ({"return dw, db": "return dw"}, "two numbers", 0),
        "x changed in place": ({ERROR: "x *= w\nerror = x + b - y"}, "changed in place", 0),
    },
    "update": {
        "uphill": ({STEP: "return w + eta * dw, b + eta * db"}, "uphill", 0),
        "nothing moved": ({STEP: "return w, b"}, "Nothing moved", 0),
        "η applied twice": ({"eta * dw": "eta * eta * dw", "eta * db": "eta * eta * db"}, "η is in it twice", 0),
        "two steps": ({"eta * dw": "2 * eta * dw", "eta * db": "2 * eta * db"}, "Two steps", 0),
        "η forgotten": ({"eta * dw": "dw", "eta * db": "db"}, "η is missing", 0),
        "the step only": ({STEP: "return -eta * dw, -eta * db"}, "only the step", 0),
        "the slope elsewhere": ({"slope(w, b)": "slope(b, w)"}, "at another place", 0),
        "w moved before the gradient of b":
            ({SLOPE: "w = w - eta * slope(w, b)[0]\nb = b - eta * slope(w, b)[1]", STEP: "return w, b"},
             "w was updated before", 5),
        "b moved before the gradient of w":
            ({SLOPE: "b = b - eta * slope(w, b)[1]\nw = w - eta * slope(w, b)[0]", STEP: "return w, b"},
             "b was updated before", 5),
    },
}  # fmt: skip

RIGHT = {
    "years": {"a leap day": {"365": "365.25"}, "hours first": {DAY: "seconds = work / rate * 24e15 * 3600"}},
    "loss": {
        "a product": {"np.mean(error**2)": "error @ error / len(x)"},
        "by hand": {"np.mean(error**2)": "sum((w * a + b - c) ** 2 for a, c in zip(x, y)) / len(x)"},
    },
    "gradient": {
        "a matrix": {
            "dw, db": "dw, db",
            "return dw, db": "return 2 / len(x) * np.stack([x, np.ones_like(x)]) @ error",
        },
        "by differences": lambda w, b, x, y: central(w, b, x, y),
    },
    "update": {"an array": {STEP: "return np.array([w, b]) - eta * np.array([dw, db])"}},
    "stop": {
        "step by step": lambda *arguments, **settings: step_by_step(*arguments, **settings),
        "no more than 1,000 times the first, or diverged": {
            "not np.isfinite(losses[-1]) or losses[-1] > 1000 * losses[0]": "not losses[-1] <= 1000 * losses[0]",
        },
        "against both losses": {
            "np.abs(np.diff(recent)) <= tolerance * np.abs(recent[:-1])":
                "(recent[1:] <= (1 + tolerance) * recent[:-1]) & (recent[1:] >= (1 - tolerance) * recent[:-1])",
        },
    },
}  # fmt: skip


def central(w, b, x, y, h=0.5):
    """Central differences, which are exact for a parabola."""

    def loss(w, b):
        return ((w * x + b - y) ** 2).mean()

    return (loss(w + h, b) - loss(w - h, b)) / (2 * h), (loss(w, b + h) - loss(w, b - h)) / (2 * h)


def step_by_step(losses, tolerance=1e-6, patience=3):
    """From the newest step back."""
    *_, newest = losses
    if newest != newest or newest in (float("inf"), float("-inf")) or newest > 1000 * losses[0]:
        return "diverged"
    for back in range(1, patience + 1):
        if back >= len(losses) or abs(losses[-back] - losses[-back - 1]) > tolerance * abs(losses[-back - 1]):
            return ""
    return "converged"
