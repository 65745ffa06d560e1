"""Mistakes in the exercises of notebook 8b, and other right answers."""

from functools import partial

from labs.lab8_honest_benchmarks.lessons import reports_8b
from tests.labs import notebooks

REPORTS = reports_8b.reports()
truth = partial(
    notebooks.changed, {letter: (one.trick, (one.low * one.high) ** 0.5) for letter, one in REPORTS.items()}
)

MISTAKES = {
    "broken_rule": {
        "yes or no": (lambda record, division: True, "expected is the rule's name"),
        "any time that is long enough":
            ({'abs(get("reported", math.inf) - median) <= 0.051': 'get("reported", -1) >= median - 0.4'},
             "breaks the rule"),
        "the mean of the runs": ({"np.median(seconds)": "np.mean(seconds)"}, "breaks the rule"),
        "failed runs left out":
            ({'seconds = [math.inf if one is None else one for one in get("seconds", [])]':
               'seconds = [one for one in get("seconds", []) if one is not None]'},
             "a failed run that is counted"),
        "started is not asked": ({'get("started") == len(seconds)': "True"}, "the best five of twenty"),
        "no entry, no fault":
            ({'get("chosen_on") == "validation"': 'get("chosen_on") != "test"'}, "without 'chosen_on'"),
        "a KeyError": ({'get("clock") == "process"': 'record["clock"] == "process"'}, "What a record does not say"),
        "open is free of all": ({'bool(get("network")) and bool(get("precision"))': "True"}, "without 'network'"),
        "settings that are not told": ({'get("settings", math.inf)': 'get("settings", 0)'}, "without 'settings'"),
        "no seconds, no answer": ({'get("seconds", [])': 'record["seconds"]'}, "What a record does not say"),
        "closed is not asked": ({'division == "open"': "True"}, "another network"),
        "an exact median": ({"0.051": "0.0"}, "a median that is rounded"),
        "exactly as many settings":
            ({'get("settings_of_baseline", 0) >= get("settings", math.inf)':
               'get("settings_of_baseline") == get("settings")'},
             "a baseline with more settings"),
        "the record is changed":
            ({"named = bool(get('network')) and bool(get('precision'))": "named = bool(record.pop('network', 0))"},
             "must not touch the evidence"),
    },
    "verdicts": {
        "the trick turned round": (truth(C=("threshold", 0.75)), "factor"),
        "a trick where there is none": (truth(B=("best run", 1.27)), "suspicion is no evidence"),
        "none where there is one": (truth(A=("none", 1.0)), "which columns does each side's number add up"),
        "start for best run": (truth(D=("start", 0.9)), "the same seconds are counted on both sides"),
        "the claim's own factor": (truth(E=("baseline", 39)), "how was the setting of each side chosen"),
        "turned round": (truth(E=("baseline", 1 / 8)), "turned round"),
        "per core": (truth(F=("normaliser", 3.28)), "by what are the two sides divided"),
        "just the bound": (truth(C=("threshold", 3.76)), "just beyond the bound"),
        "an unknown word": (truth(A=("cold start", 1.0)), "is none of"),
        "no factor": (truth(A="start"), "(trick, factor) is expected"),
        "a report left out": (truth(C=None), "the keys A, B, C"),
        "five of six": (truth(A=("none", 1.05)), "", 9.17),
    },
}  # fmt: skip

RIGHT = {
    "verdicts": {"both sides are the same training": truth(D=("best run", 1.0))},
}
