"""Mistakes in the exercises of notebook 6c, and other right answers."""

from functools import partial

import numpy as np

from course_lib.cost import allreduce
from tests.labs import notebooks

CHOICE, REST = "np.argsort(np.abs(waiting))[-k:]", "rest[positions] = 0"
RETURNED = "return (positions, waiting[positions], rest)"
SPEED, TOTAL, CHOSEN = "momentum * velocity + gradient", "kept + speed", "np.argsort(np.abs(total))[-k:]"
LEFT, STEP = "np.linalg.qr(me.all_reduce(matrix @ right))[0]", "me.all_reduce(matrix.T @ left) / me.size"
SPARE = "8 * sent * link.beta - link.alpha"
CROSSING = "max(2, math.floor(8 * numbers * link.beta / spare) + 1) if spare > 0 else math.inf"


def one_value_less(exercise):
    solution = notebooks.answer("6c", exercise)
    return lambda *arguments: solution(*arguments)[:-1]


def by_search(numbers, sent, link):
    ranks = np.arange(2, 2_000_000)
    quicker = allreduce.ring(ranks, 4 * numbers, link) < (ranks - 1) * link.seconds(8 * sent)
    return int(ranks[np.argmax(quicker)]) if quicker.any() else np.inf


def gram_schmidt(me, matrix, right):
    left = me.all_reduce(matrix @ right)
    for column in range(left.shape[1]):
        before = left[:, :column]
        left[:, column] -= before @ (before.T @ left[:, column])
        left[:, column] /= np.linalg.norm(left[:, column])
    after = me.all_reduce(matrix.T @ left / me.size)
    return left @ after.T, after


numbers = partial(notebooks.changed, {"A": 5, "B": 1, "C": 2, "D": 3})

MISTAKES = {
    "send_largest": {
        "a value too few": (one_value_less("send_largest"), "3 values are expected"),
        "by the gradient": ({CHOICE: "np.argsort(np.abs(gradient))[-k:]"}, "by the gradient alone"),
        "by what was kept": ({CHOICE: "np.argsort(np.abs(kept))[-k:]"}, "by what was kept alone"),
        "with signs": ({CHOICE: "np.argsort(waiting)[-k:]"}, "only positive numbers"),
        "the smallest": ({CHOICE: "np.argsort(np.abs(waiting))[:k]"}, "smallest"),
        "never emptied": ({REST: "rest[positions] *= 1"}, "again and again"),
        "nothing kept": ({REST: "rest[:] = 0"}, "nothing is kept"),
        "the gradient's numbers": ({RETURNED: "return positions, gradient[positions], rest"}, "waits for ever"),
        "sizes": ({RETURNED: "return positions, np.abs(waiting)[positions], rest"}, "signs are lost"),
        "only the last gradient":
            ({RETURNED: "return positions, waiting[positions], np.where(rest == 0, 0, gradient)"}, "nothing is left"),
        "all of it": ({RETURNED: "return positions, waiting, rest"}, "it should be (4,)"),
        "in place": ({"kept + gradient": "np.add(kept, gradient, out=kept)"}, "changed in place"),
        "a mask": ({RETURNED: "return np.abs(waiting) > 1, waiting[positions], rest"}, "as positions"),
    },
    "send_velocity": {
        "a value too few": (one_value_less("send_velocity"), "4 values are expected"),
        "momentum on what waits": ({SPEED: "gradient", TOTAL: "momentum * kept + speed"}, "velocity has to live on"),
        "no momentum": ({SPEED: "gradient"}, "velocity has to live on"),
        "masking": (
            {"left[chosen] = 0": "left[chosen] = 0\nspeed = np.where(left == 0, 0, speed)"}, "velocity has to live on",
        ),
        "steps are not kept": ({TOTAL: "kept * 0 + speed"}, "each of its steps"),
        "gradients are kept": ({"left = total.copy()": "left = kept + gradient"}, "each of its steps"),
        "chosen by velocity": ({CHOSEN: "np.argsort(np.abs(speed))[-k:]"}, "by velocity alone"),
        "velocity and memory exchanged":
            ({"return (chosen, total[chosen], speed, left)": "return chosen, total[chosen], left, speed"},
             "what is kept exchanged"),
    },
    "low_rank_mean": {
        "a value too few": (one_value_less("low_rank_mean"), "2 values are expected"),
        "no orthonormal columns": ({LEFT: "me.all_reduce(matrix @ right) / me.size"}, "as they are"),
        "each its own columns": ({LEFT: "np.linalg.qr(matrix @ right)[0]"}, "different approx"),
        "the sum": ({STEP: "me.all_reduce(matrix.T @ left)"}, "the sum of the ranks"),
        "its own right":
            ({"return (left @ following.T, following)": "return left @ following.T, matrix.T @ left"},
             "different right matrices"),
        "own factors": ({STEP: "matrix.T @ left"}, "different"),
        "no warm start":
            ({"return (left @ following.T, following)": "return left @ following.T, right"}, "does not improve"),
        "everything": ({"matrix @ right": "me.all_reduce(matrix) @ right / me.size"}, "all-reduced"),
        "nothing travels":
            ({LEFT: "np.linalg.qr(matrix @ right)[0]", STEP: "matrix.T @ left"}, "nothing is all-reduced"),
    },
    "dense_from": {
        "no positions": ({SPARE: "4 * sent * link.beta - link.alpha"}, "positions are sent"),
        "one half of the ring":
            ({SPARE: "8 * sent * link.beta", CROSSING: "max(2, math.floor(4 * numbers * link.beta / spare) + 1)"},
             "two halves"),
        "without latency": ({CROSSING: "math.floor(numbers / sent) + 1"}, "without latency"),
        "no whole number": ({CROSSING: "8 * numbers * link.beta / spare if spare > 0 else math.inf"}, "whole numbers"),
        "one too few":
            ({CROSSING:
               "max(2, math.floor(8 * numbers * link.beta / spare))"
               " if spare > 0 else math.inf"},
             "the next number"),
        "never": ({CROSSING: "math.inf"}, "says never"),
        "always some number":
            ({CROSSING: "max(2, math.floor(8 * numbers * link.beta / abs(spare)) + 1)"}, "never quicker"),
    },
    "diagnosis": {
        "no memory for chance": (numbers(A=1), "in A much is waiting", 7.5),
        "the last tensors for no memory": (numbers(B=6), "What becomes of the rest?", 7.5),
        "chance for what stays in the memory": (numbers(C=5), "would hardly be the same in two updates", 7.5),
        "chance for signs": (numbers(D=5), "half of what is sent would be negative", 7.5),
        "a training left out": (numbers(D=None), "D has no diagnosis", 7.5),
        "letters of no training": (numbers(E=4), "the number of a mistake for each training", 0),
    },
}  # fmt: skip

RIGHT = {
    "dense_from": {"by search": by_search},
    "low_rank_mean": {"by Gram and Schmidt": gram_schmidt},
}
