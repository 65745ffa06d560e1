"""Mistakes in the exercises of notebook 6a, and other right answers."""

import numpy as np

ENOUGH = "len(server.waiting) < server.quorum"
MEAN = "np.mean(list(server.waiting.values()), axis=0)"
UPDATE = "server.weights - server.rate * mean"
ANSWERS = "dict.fromkeys(server.waiting, server.weights)"
FOUND = "update - read.get(number, 0)"
BOTH = "1 - 1 / workers, rate / workers"
STALE = "rate / (1 + staleness)"
SHARE = "np.bincount(features.ravel()) / len(features)"


def one_after_the_other(server, worker, gradient):
    server.waiting[worker] = gradient
    answers = {}
    if len(server.waiting) == server.quorum:
        server.weights -= server.rate * sum(server.waiting.values()) / server.quorum
        server.updates += 1
        while server.waiting:
            answers[server.waiting.popitem()[0]] = server.weights.copy()
    return answers


def since_the_last(worker):
    last, ages = [-1] * (max(worker) + 1), []
    for update, number in enumerate(worker):
        ages.append(update - last[number] - 1)
        last[number] = update
    return ages


def of_drawn_pairs(features):
    pairs = np.random.default_rng(0).integers(len(features), size=(2, 100_000))
    return float((features[pairs[0]] == features[pairs[1]]).sum(1).mean())


MISTAKES = {
    "arrived": {
        "no quorum": ({ENOUGH: "False"}, "though only 1 of 3 gradients have come"),
        "one too many": ({ENOUGH: "len(server.waiting) <= server.quorum"}, "stay as they are"),
        "a sum": ({MEAN: "np.sum(list(server.waiting.values()), axis=0)"}, "take their mean"),
        "the last gradient": ({MEAN: "gradient"}, "only the last gradient"),
        "a sum, of two":
            ({MEAN: "np.sum(list(server.waiting.values()), axis=0)"},
             "quorum 2, gradient 2, of worker 2: the gradients are added up"),
        "nothing instead of an empty dict": ({"return {}": "return None"}, "nobody is answered. Return {}"),
        "uphill": ({UPDATE: "server.weights + server.rate * mean"}, "up the slope"),
        "no rate": ({UPDATE: "server.weights - mean"}, "η is not applied"),
        "only the last one is answered": ({ANSWERS: "{worker: server.weights}"}, "would wait for ever"),
        "all are answered": ({ANSWERS: "dict.fromkeys(range(3), server.weights)"}, "which is still calculating"),
        "old weights":
            ({UPDATE: "server.weights",
              "server.waiting = {}":
               "server.waiting = {}; server.weights = server.weights "
               "- server.rate * mean"},
             "from before the update"),
        "kept gradients": ({"server.waiting = {}": "pass"}, "take them again"),
        "not counted": ({"server.updates += 1": "pass"}, "it counts the updates"),
        "nothing returned": ({"return answers": "pass"}, "returns nothing"),
    },
    "staleness": {
        "one too old": ({FOUND: "update - read.get(number, -1)", "update + 1": "update"}, "too many. A"),
        "own update counted": ({"update + 1": "update"}, "one too many, but for the first"),
        "first ones are fresh": ({FOUND: "update - read.get(number, update)"}, "gradient is stale, too"),
        "all updates": ({FOUND: "update"}, "how many updates there were in all"),
        "a list too short": ({"np.array(between)": "np.array(between[1:])"}, "returns shape"),
    },
    "disguise": {
        "the chance to be next": ({BOTH: "1 / workers, rate / workers"}, "what stays"),
        "rate not shared": ({BOTH: "1 - 1 / workers, rate"}, "a late one moves it by η"),
        "rate times N": ({BOTH: "1 - 1 / workers, rate * workers"}, "spread over"),
        "mean staleness": ({BOTH: "workers - 1, rate / workers"}, "would never fade"),
        "exchanged": ({BOTH: "rate / workers, 1 - 1 / workers"}, "are exchanged"),
        "one worker with momentum": ({BOTH: "1 - 1 / (workers + 1), rate / workers"}, "one worker alone"),
        "one number": ({BOTH: "1 - 1 / workers"}, "2 values are expected"),
    },
    "rate_for": {
        "an exponential": (lambda staleness, rate: rate * np.exp(-staleness / 4), "how large a rate do", 7),
        "constant": ({STALE: "rate"}, "the same for all"),
        "fresh ones only": ({STALE: "rate * (staleness == 0)"}, "most work in vain"),
        "half for the fresh": ({STALE: "rate / (2 + staleness)"}, "it gets"),
        "ever more": ({STALE: "rate * (1 + staleness)"}, "an older gradient is never the better one"),
        "a difference": ({STALE: "rate - staleness / 10"}, "is negative"),
        "a fixed limit": ({STALE: "min(rate, 1 / (1 + staleness))"}, "proportional to η"),
        "hardly less": ({STALE: "rate / (1 + staleness) ** 0.1"}, "it diverges"),
    },
    "common": {
        "as if even": ({"np.sum(share**2)": "features.shape[1] ** 2 / len(share)"}, "equally frequent"),
        "share of entries": ({SHARE: "np.bincount(features.ravel()) / features.size"}, "those of all entries"),
        "not squared": ({"np.sum(share**2)": "np.sum(share)"}, "of one example"),
        "a mean": ({"np.sum(share**2)": "np.mean(share**2)"}, "add up"),
        "pairs": ({"np.sum(share**2)": "np.sum(np.bincount(features.ravel()) ** 2)"}, "counts pairs"),
        "a share": ({"np.sum(share**2)": "np.sum(share**2) / features.shape[1]"}, "not their number"),
    },
}  # fmt: skip

RIGHT = {
    "arrived": {"one after the other": one_after_the_other},
    "staleness": {"since the last": since_the_last},
    "rate_for": {"never above": lambda staleness, rate: rate / max(1, staleness)},
    "common": {"of drawn pairs": of_drawn_pairs},
}
