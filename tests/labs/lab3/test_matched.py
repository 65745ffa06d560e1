"""Runs beside each other at the same loss or accuracy."""

from __future__ import annotations

import pandas as pd
import pytest

from labs.lab3_large_batch.lessons import matched


def test_a_run_is_compared_at_its_own_loss_with_its_own_seed():
    theirs = pd.DataFrame(
        {"seed": [1, 1, 2, 2], "loss": [0.1, 0.4, 0.1, 0.4], "accuracy": [90.0, 80.0, 0.0, 0.0], "epochs": [8, 2, 8, 2]}
    )
    ours = pd.DataFrame({"seed": [1, 1, 3], "loss": [0.2, 0.9, 0.2], "accuracy": [84.0, 90.0, 84.0], "epochs": 80})
    (row,) = matched.differences(ours, theirs, "loss", ["accuracy"]).to_dict("records")
    # 0.9 lies outside, seed 3 has no partner, and 0.2 is half-way between 0.1 and 0.4 in its logarithm
    assert row == {"seed": 1, "loss": 0.2, "accuracy": pytest.approx(-1), "epochs": 80}


def test_without_a_partner_the_columns_are_still_there():
    empty = pd.DataFrame({"seed": [], "loss": [], "accuracy": []})
    assert list(matched.differences(empty, empty, "loss", ["accuracy"])) == ["seed", "loss", "accuracy"]
