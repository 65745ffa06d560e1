"""Mistakes in the exercises of notebook 7a, and other right answers."""

import numpy as np

ROOT_ONLY = "total if group.rank == root else np.zeros_like(total)"
OWN = "np.split(y, group.size, axis=1)[group.rank]"
COLUMNS_BACK = "group.all_reduce(slope @ w.T), x.T @ slope, slope.sum(0)"
ROWS_BACK = "slope @ w.T, x.T @ slope, slope.sum(0)"
KINDS = "[np.split(kind, size, axis=1)[rank] for kind in kinds]"
TOP = "group.all_reduce(logits.max(1), 'max')"
HERE = "np.flatnonzero((places >= 0) & (places < width))"
BOTH = "group.all_reduce(np.array([e.sum(1), right]))"
PLACES = "[np.flatnonzero(choice == rank)[:capacity] for rank in range(group.size)]"
MADE = "np.split(expert(np.concatenate(came)), np.cumsum([len(some) for some in came])[:-1])"
SUMS = "group.all_reduce(np.array([counts, probabilities.sum(0)]))"
SLOPE = "np.tile(many * counts / tokens**2, (len(probabilities), 1))"
ACTIVATIONS = "(into + out) * tokens / data"
WEIGHTS = "(into * hidden + hidden + hidden * out) / tensor + out"


def shared_room(group, tokens, choice, capacity, expert):
    places = [np.flatnonzero(choice == rank) for rank in range(group.size)]
    came = group.all_to_all([tokens[some] for some in places])
    every = np.concatenate(came)
    made = np.concatenate([expert(every[:capacity]), np.zeros_like(every[capacity:])])
    out = np.zeros(tokens.shape)
    ends = np.cumsum([len(some) for some in came])[:-1]
    for some, back in zip(places, group.all_to_all(np.split(made, ends))):
        out[some] = back
    return out


def in_one_gather(group, logits, labels):
    n, width = logits.shape
    top, place = logits.max(1), labels - group.rank * width
    here = (place >= 0) & (place < width)
    right = np.where(here, logits[np.arange(n), place * here], -np.inf)
    mine = np.stack([top, np.exp(logits - top[:, None]).sum(1), right], axis=1)[..., None]
    tops, sums, rights = np.moveaxis(group.all_gather(mine), 1, 0)
    most = tops.max(1)
    total = (sums * np.exp(tops - most[:, None])).sum(1)
    slope = np.exp(logits - most[:, None]) / total[:, None]
    slope[here, place[here]] -= 1
    return np.mean(np.log(total) + most - rights.max(1)), slope / n


MISTAKES = {
    "Adjoint": {
        "everywhere": ({ROOT_ONLY: "total"}, "does not look at what the others give"),
        "a broadcast again": ({"total = group.all_reduce(y)": "total = group.broadcast(y, root)"}, "add it up"),
        "nothing back": ({"total = group.all_reduce(y)": "total = y"}, "went to every rank"),
        "own columns": ({"group.reduce_scatter(y)": OWN}, "what did the others do with them"),
        "all of the sum":
            ({"group.reduce_scatter(y)": "np.split(group.all_reduce(y), group.size, axis=1)[group.rank]"},
             "Who needs which part"),
        "not adjoint to itself": ({"return group.all_reduce(y)": "return y"}, "not in its own alone"),
        "sent nowhere": ({"group.all_to_all(parts)": "parts"}, "who has it now"),
        "a deadlock":
            ({"return group.reduce_scatter(y)": "if group.rank: return group.reduce_scatter(y)\nreturn y[:, :2]"},
             "waits in its collective number 1, reduce_scatter, for rank 0"),
    },
    "Cut": {
        "gathered": ({"return x @ w + b\n": "return group.all_gather(x @ w + b)"}, "go on with its own"),
        "own x": ({COLUMNS_BACK: "slope @ w.T, x.T @ slope, slope.sum(0)"}, "columns of all ranks"),
        "sum of weights":
            ({COLUMNS_BACK: "group.all_reduce(slope @ w.T), group.all_reduce(x.T @ slope), slope.sum(0)"},
             "different weights"),
        "bias for each": ({"group.all_reduce(x @ w) + b": "group.all_reduce(x @ w + b)"}, "bias is in the sum"),
        "own rows": ({"group.all_reduce(x @ w) + b": "x @ w + b"}, "own part of the sum"),
        "the adjoint of the sum":
            ({"return slope @ w.T, x.T @ slope, slope.sum(0)":
               "slope = group.all_reduce(slope)\nreturn slope @ w.T, x.T @ slope, slope.sum(0)"},
             "it counts once"),
        "sum of own columns":
            ({ROWS_BACK: "group.all_reduce(slope @ w.T), x.T @ slope, slope.sum(0)"}, "dx is added up over"),
        "mean of examples":
            ({COLUMNS_BACK: "group.all_reduce(slope @ w.T), x.T @ slope / len(x), slope.mean(0)"},
             "divided by the number of examples"),
    },
    "deal": {
        "neighbours":
            ({"np.concatenate(mine, axis=1)": "np.split(qkv, size, axis=1)[rank]"}, "Those of rank 0 are queries"),
        "every other head":
            ({KINDS: "[kind.reshape(len(kind), heads, -1)[:, rank::size].reshape(len(kind), -1) for kind in kinds]"},
             "side by side"),
        "as many columns as rows":
            ({"np.split(qkv, 3, axis=1)": "[qkv[:, i * len(qkv) : (i + 1) * len(qkv)] for i in range(3)]"},
             "a qkv with one row"),
        "columns of out": ({"np.split(out, size)[rank]": "np.split(out, size, axis=1)[rank].T"}, "are inputs"),
    },
    "cut_cross_entropy": {
        "own largest": ({TOP: "logits.max(1)"}, "the loss"),
        "no largest": ({TOP: "np.zeros(len(logits))"}, "take something off"),
        "own sum": ({BOTH: "e.sum(1), group.all_reduce(right)"}, "this rank's words alone"),
        "negative places":
            ({HERE: "np.flatnonzero(places < width)", "places[here]": "places[here] % width"}, "word of another rank"),
        "largest taken off once":
            ({"logits[here, places[here]] - top[here]": "logits[here, places[here]]"}, "not off the right word's"),
        "logarithms added":
            ({TOP: "np.zeros(n)",
              BOTH: "group.all_reduce(np.array([np.log(e.sum(1)), right]))",
              "np.log(total)": "total"},
             "the sum of all"),
        "three collectives": ({BOTH: "group.all_reduce(e.sum(1)), group.all_reduce(right)"}, "two are enough"),
        "gathered logits": ({TOP: "group.all_gather(logits).max(1)"}, "three for each are enough"),
        "sum of examples": ({"slope / n": "slope"}, "sum over the examples"),
        "no right word": ({"slope[here, places[here]] -= 1": "pass"}, "does not know the right"),
    },
    "route": {
        "room that all ranks share": (shared_room, "of all ranks together"),
        "back to others": ({MADE: f"{MADE}[::-1]"}, "broadcast"),
        "nothing dropped": ({PLACES: PLACES.replace("[:capacity]", "")}, "no token is dropped"),
        "dropped ones kept": ({"np.zeros(tokens.shape)": "tokens.copy()"}, "experts *add*"),
        "the last ones": ({PLACES: PLACES.replace("[:capacity]", "[-capacity:]")}, "the first ones"),
        "own expert": ({"group.all_to_all(made)": "[expert(tokens[some]) for some in places]"}, "its own expert"),
    },
    "balance": {
        "own balance": ({SUMS: "counts, probabilities.sum(0)"}, "this rank's tokens alone"),
        "mean of means":
            ({SUMS: "group.all_reduce(np.array([counts, probabilities.sum(0)]) / len(probabilities)) / group.size"},
             "counts some tokens"),
        "own number":
            ({SLOPE: "np.tile(many * counts / tokens / len(probabilities), (len(probabilities), 1))"},
             "divides by their number"),
        "by the mean": ({SLOPE: "np.tile(many * counts / tokens, (len(probabilities), 1))"}, "mean probability"),
        "no factor": ({"many * (counts @ sums) / tokens**2": "(counts @ sums) / tokens**2"}, "factor is missing"),
    },
    "words": {
        "all tokens": ({ACTIVATIONS: "(into + out) * tokens"}, "own part of the tokens"),
        "all weights": ({WEIGHTS: "into * hidden + hidden + hidden * out + out"}, "only a part of the weights"),
        "one way": ({ACTIVATIONS: "out * tokens / data"}, "in the backward pass, too"),
        "no biases": ({WEIGHTS: "(into * hidden + hidden * out) / tensor"}, "which of them is cut"),
        "both biases cut": ({WEIGHTS: "(into * hidden + hidden + hidden * out + out) / tensor"}, "is whole"),
        "half a ring":
            ({"2 * (tensor - 1)": "(tensor - 1)", "2 * (data - 1)": "(data - 1)"}, "sends each number twice"),
        "hidden numbers": ({ACTIVATIONS: "hidden * tokens / data"}, "hidden numbers stay"),
        "wide outputs": ({ACTIVATIONS: "2 * into * tokens / data"}, "only in some layers"),
        "all ranks' words":
            ({"2 * (tensor - 1) / tensor * activations": "2 * (tensor - 1) * data * activations",
              "2 * (data - 1) / data * weights": "2 * (data - 1) * tensor * weights"},
             "of all ranks together"),
    },
}  # fmt: skip

RIGHT = {
    "cut_cross_entropy": {"in one gather": in_one_gather},
}
