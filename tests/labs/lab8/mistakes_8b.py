"""Mistakes in the exercises of notebook 8b."""

MISTAKES = {
    "broken_rule": {
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
}  # fmt: skip
