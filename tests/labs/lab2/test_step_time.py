"""Seconds and bytes of a step, on real ranks."""

from __future__ import annotations

import pandas as pd
import pytest

from labs.lab2_horovod.lessons import step_time
from labs.lab2_horovod.lessons.step_time import Setting


def reading(**changes):
    return {
        "setting": "a", "ranks": 2, "batch": 8, "block": 0, "steps": 4, "seconds": 2.0, "bytes": 800, "busy": 5.0,
        "own": 1.5, "tensors": 3, "elements": 50, "startup": 6.0, **changes,
    }  # fmt: skip


def test_a_step_takes_as_long_as_on_the_slowest_rank():
    (row,) = step_time.combine([[reading()], [reading(seconds=4.0, bytes=900)]]).to_dict("records")
    assert row["seconds"] == 1.0
    assert row["bytes"] == 100  # this machine's counter, read on rank 0, for each of two ranks and four steps
    assert row["others"] == 0.5  # 5 s of work on the machine less 3 s of the ranks, in 4 s


def test_all_settings_and_blocks_are_kept_in_their_order():
    ranks = [[reading(setting=name, block=block) for block in range(2) for name in "ab"] for _ in range(3)]
    table = step_time.combine(ranks)
    assert list(zip(table["setting"], table["block"])) == [("a", 0), ("b", 0), ("a", 1), ("b", 1)]


def test_disturbed_blocks_are_left_out_where_others_remain():
    table = pd.DataFrame({"setting": list("aaaabbb"), "ranks": 2, "others": [0.1, 0.9, 0.1, 0.0, 0.1, 0.9, 0.8]})
    assert step_time.quiet(table).index.tolist() == [0, 2, 3, 4, 5, 6]


def test_a_busy_machine_is_told():
    assert "again" in step_time.disturbance(pd.DataFrame({"others": [0.9, 1.1, 0.1]}))
    assert "100% of the blocks" in step_time.disturbance(pd.DataFrame({"others": [0.0, 0.1]}))


def test_a_choice_is_what_horovod_reads_and_what_the_optimizer_gets():
    env, setting = step_time.configured({"fusion_mb": 0.25, "cycle_ms": 5, "compression": "fp16"}, 8)
    assert env == {"HOROVOD_FUSION_THRESHOLD": "262144", "HOROVOD_CYCLE_TIME": "5"}
    assert setting == Setting(8, fp16=True)


def test_launches_take_turns(monkeypatch):
    def measure(settings, ranks, *, env, **how):
        return pd.DataFrame([{"setting": name, "env": env["HOROVOD_CYCLE_TIME"], **how} for name in settings])

    monkeypatch.setattr(step_time, "measure", measure)
    choice = {"fusion_mb": 1, "compression": "none"}
    table = step_time.in_turns({"a": {**choice, "cycle_ms": 1}, "b": {**choice, "cycle_ms": 9}}, 8, turns=2, blocks=3)
    assert list(zip(table["setting"], table["env"])) == [("a", "1"), ("b", "9")] * 2
    assert set(table["blocks"]) == {3}


@pytest.mark.slow
@pytest.mark.ranks
def test_the_bytes_of_a_step_are_those_of_the_ring():
    settings = {"plain": Setting(4), "fp16": Setting(4, fp16=True), "4 passes": Setting(4, passes=4)}
    settings["copies"] = Setting(4, exchange=False)
    table = step_time.measure(settings, 2, depth=10, blocks=3, env={"HOROVOD_CYCLE_TIME": "5"})
    gradient = 4 * table["elements"].iloc[0]
    # The least of the blocks: other programs may use the interface too.
    share = table.groupby("setting")["bytes"].min() / gradient
    assert 4 * 3 <= len(table) <= 4 * 3 * step_time.MAX_REPEATS  # as long as other programs disturb
    assert set(table["tensors"]) == {23}
    assert 1 <= share["plain"] < 1.2
    assert 0.5 <= share["fp16"] < 0.7
    assert 0.25 <= share["4 passes"] < 0.4
    assert share["copies"] < 0.15
