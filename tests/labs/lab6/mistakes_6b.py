"""Mistakes in the exercises of notebook 6b."""

from functools import partial

from tests.labs import notebooks

H = "return max(1, math.ceil(meeting * (1 - share) / (share * computing)))"
RANKS = "weights - rate * gradients - pulled"
CENTRE = "centre + pulled.sum(axis=0)"
PULLED = "rate * spring * (weights - centre)"
FOUND = "np.sort(np.abs(np.linalg.eigvalsh(matrix)))[-2]"


numbers = partial(notebooks.changed, {"A": 3, "B": 6, "C": 2, "D": 5})

MISTAKES = {
    "period": {
        "one more, always": ({H: H.replace("math.ceil(", "1 + math.floor(")}, "one more than is needed"),
        "share of the computing": ({H: "return max(1, math.ceil(meeting / (share * computing)))"}, "all the"),
        "numbers for bytes": ({"4 * numbers": "numbers"}, "4 bytes"),
        "half a ring": (
            {"allreduce.ring(ranks, 4 * numbers, link)": "allreduce.ring(ranks, 4 * numbers, link) / 2"}, "two halves",
        ),
        "the other share":
            ({H: "return max(1, math.ceil(meeting * share / ((1 - share) * computing)))"}, "not the computing"),
        "rounded down": ({"math.ceil": "math.floor"}, "Round up"),
        "no whole number": ({H: "return max(1, meeting * (1 - share) / (share * computing))"}, "whole number"),
        "never at once": ({H: "return math.floor(meeting * (1 - share) / (share * computing))"}, "can't meet"),
    },
    "elastic_step": {
        "pushed away": ({RANKS: "weights - rate * gradients + pulled"}, "pushes the ranks"),
        "no springs": ({RANKS: "weights - rate * gradients"}, "springs are missing"),
        "no gradients": ({RANKS: "weights - pulled"}, "gradients are missing"),
        "without rate": ({PULLED: "spring * (weights - centre)"}, "lacks the learning rate"),
        "twice": ({PULLED: "2 * rate * spring * (weights - centre)"}, "twice too large"),
        "the mean": ({CENTRE: "centre + pulled.mean(axis=0)"}, "mean of the springs"),
        "centre pushed": ({CENTRE: "centre - pulled.sum(axis=0)"}, "push the centre"),
        "local SGD": ({CENTRE: "weights.mean(axis=0)"}, "local SGD"),
        "one after the other":
            ({CENTRE: "centre + rate * spring * (weights - rate * gradients - pulled - centre).sum(axis=0)"},
             "old place"),
        "gradients at the centre":
            ({CENTRE: "centre + (pulled - rate * gradients).sum(axis=0)"}, "takes the gradients"),
        "twice, the centre": ({CENTRE: "centre + 2 * pulled.sum(axis=0)"}, "the penalty's slope is twice"),
    },
    "mixing": {
        "the largest": ({FOUND: "np.linalg.eigvalsh(matrix)[-1]"}, "largest eigenvalue"),
        "with signs": ({FOUND: "np.linalg.eigvalsh(matrix)[-2]"}, "negative eigenvalues"),
        "the gap, all together":
            ({FOUND: "1 - np.sort(np.abs(np.linalg.eigvalsh(matrix)))[-2]"}, "After one round all ranks are"),
        "the gap": ({FOUND: "1 - np.sort(np.abs(np.linalg.eigvalsh(matrix)))[-2]"}, "gap to 1"),
        "squared": ({FOUND: "np.sort(np.abs(np.linalg.eigvalsh(matrix)))[-2] ** 2"}, "squared"),
        "the smallest": ({FOUND: "np.sort(np.abs(np.linalg.eigvalsh(matrix)))[0]"}, "smallest eigenvalue"),
    },
    "diagnosis": {
        "one rank out for weights of rank 0": (numbers(A=4), "all ranks agree", 7.5),
        "one rank out for pairs": (numbers(B=4), "there would be two different rows", 7.5),
        "no meeting for the same images": (numbers(C=1), "alike before they met", 7.5),
        "weights of rank 0 for a wrong divisor": (numbers(D=3), "D's are shorter", 7.5),
        "a meeting left out": (numbers(B=None), "B has no diagnosis", 7.5),
        "no return": (lambda: None, "returns nothing", 0),
    },
}  # fmt: skip
