"""Runs of one kind beside those of another, at the same value of something that both have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd


def differences(ours: pd.DataFrame, theirs: pd.DataFrame, at: str, columns: Sequence[str]) -> pd.DataFrame:
    """Each of our runs less the same seed's runs of theirs, at our run's value of `at`.

    Theirs are interpolated in the logarithm of `at`, which is positive. A run of ours that none of theirs surround is
    left out. All tables have a row for each run, and the columns seed, `at` and `columns`.

    Returns our rows with `columns` replaced by the differences.
    """
    rows = []
    for run in ours.to_dict("records"):
        known = theirs[theirs["seed"] == run["seed"]].sort_values(at)
        x, here = np.log(known[at].to_numpy(float)), np.log(run[at])
        if len(x) and x[0] <= here <= x[-1]:
            rows.append({**run, **{name: run[name] - np.interp(here, x, known[name]) for name in columns}})
    return pd.DataFrame(rows, columns=list(ours.columns))
