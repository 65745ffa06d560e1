"""Mistakes in the exercises of notebook 6a."""

ENOUGH = "len(server.waiting) < server.quorum"
MEAN = "np.mean(list(server.waiting.values()), axis=0)"
UPDATE = "server.weights - server.rate * mean"
ANSWERS = "dict.fromkeys(server.waiting, server.weights)"
FOUND = "update - read.get(number, 0)"
BOTH = "1 - 1 / workers, rate / workers"
STALE = "rate / (1 + staleness)"
SHARE = "np.bincount(features.ravel()) / len(features)"

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
