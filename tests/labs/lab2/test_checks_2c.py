"""Notebook 2c: the profiles of `diagnose`, and what a profile becomes in the notebook."""

from __future__ import annotations

import pytest

from course_lib.ranks import step_shares
from labs.lab2_horovod.lessons import checks_2c, step_parts

PROFILES = [checks_2c.run_profile(own, moving) for own, moving in checks_2c._RUNS]


def test_each_change_helps_one_of_the_runs_most_and_no_choice_is_close():
    best = []
    for profile in PROFILES:
        steps = sorted((step_parts.after(profile, change), change) for change in step_parts.CHANGES)
        assert steps[1][0] - steps[0][0] >= 3
        best.append(steps[0][1])
    assert set(best) == set(step_parts.CHANGES)


def test_one_rank_of_each_run_limits_it():
    limits = []
    for profile in PROFILES:
        work = profile.drop(step_parts.SHARED).sum().sort_values()
        assert work.iloc[-1] - work.iloc[-2] >= 4
        column = profile[work.index[-1]].drop("waiting").sort_values()
        assert column.iloc[-1] - column.iloc[-2] >= 4
        assert set(profile.sum()) == {profile.sum().max()}  # a step takes all ranks equally long
        limits.append(work.index[-1])
    assert set(limits) == {0, 1, 2}


def test_a_profile_has_all_parts_of_a_step_in_milliseconds():
    shares = dict.fromkeys(step_shares.PARTS, 0.05) | {step_shares.NETWORK: 0.6}
    table = step_parts.milliseconds([step_shares.StepShares(20.0, shares), step_shares.StepShares(40.0, shares)])
    assert {name for name, _ in step_parts.PARTS.values()} == set(step_shares.PARTS)
    assert table.sum().to_list() == pytest.approx([20, 40]) and table.loc["network", 1] == pytest.approx(24)


def test_the_load_is_told_in_cores():
    assert "cores." in step_parts.load(0.01)
