"""An optimizer whose state two and four ranks share out takes the steps of the serial one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from course_lib.ranks import launch
from course_lib.system.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.ranks]
SCRIPT = Path(__file__).with_name("sharded_steps.py")
WEIGHTS = 58


@pytest.mark.parametrize("ranks", [2, 4])
def test_sharded_ranks_take_the_steps_of_one(ranks, tmp_path):
    with launch.start(SCRIPT, [tmp_path / "found"], ranks, env={"PYTHONPATH": str(ROOT)}) as run:
        result = run.wait()
    assert result.code == 0, result
    every = [json.loads((tmp_path / f"found-{rank}.json").read_text()) for rank in range(ranks)]
    for name, arrays in (("Adam", 2), ("momentum", 1)):
        for stage, uneven in ((1, 1), (2, 2)):  # each `Sharded` gives some ranks one number more
            told = [found[f"{name}, stage {stage}"] for found in every]
            assert max(rank["apart"] for rank in told) < 1e-6
            shares = [rank["share"] for rank in told]
            assert sum(shares) == WEIGHTS and max(shares) - min(shares) <= uneven
            assert [rank["state"] for rank in told] == [8 * arrays * share for share in shares]


def test_the_example_trains_and_says_what_it_keeps():
    with launch.start(ROOT / "labs/lab5_precision_and_memory/sharded.py", ["--units", "33"], 2) as run:
        lines = [event.data["text"] for event in run if event.kind == "output"]
    assert run.wait().code == 0
    kept = sorted(line for line in lines if "bytes of state" in line)
    weights = 64 * 33 + 33 + 2 * (33 * 33 + 33) + 33 * 10 + 10
    shares = (weights + 1) // 2, weights // 2
    told = [f"rank {rank}: {weights:,} weights, {8 * share:,} bytes of state" for rank, share in enumerate(shares)]
    assert kept == told
    losses = [float(line.split()[-1]) for line in lines if "loss" in line]
    assert len(losses) == 4 and losses[-1] < 0.9 * losses[0]
