"""What notebook 4b says of its recorded steps is what the table says."""

from __future__ import annotations

import numpy as np
import pytest

from course_lib.cost import networks, overlap, stragglers
from course_lib.cost.allreduce import Link, ring
from tests.labs.notebooks import recorded, text

TEXT = text("4b")
TABLE = recorded("fusion")


def test_how_far_the_predictions_are_off():
    off = TABLE[TABLE["used"] == "test"]["error"].abs()
    said = f"Of the {len(off)} predictions half are off by less than 4 %, the worst by {100 * off.max():.0f} %"
    assert said in TEXT
    assert 0.03 < off.median() < 0.04 and "half of them within 4 %. Long cycles they don't predict well" in TEXT
    worst = TABLE.loc[off.nlargest(3).index, "setting"]
    assert "Its worst three are cycles of 60 and 200 ms" in TEXT
    assert set(worst) == {"128 MiB, 60 ms", "128 MiB, 200 ms"}
    elsewhere = TABLE[TABLE["used"] == "test"].drop(worst.index)["error"]
    assert f"Elsewhere it is up to {100 * elsewhere.abs().max():.0f} % off, mostly too quick" in TEXT
    assert (elsewhere < 0).mean() > 0.5


def test_the_steps_it_cites():
    short = TABLE[(TABLE["backward"] > 0.04) & (TABLE["backward"] < 0.06)].set_index("setting")["measured"]
    some, much, none = (1e3 * short[f"{size}, 1 ms"] for size in ("1 MiB", "128 MiB", "no fusion"))
    assert f"takes {some:.0f} ms with 1 MiB, {much:.0f} ms with 128 MiB, {none:.0f} ms without fusion" in TEXT
    longer = TABLE[(TABLE["backward"] > 0.14) & (TABLE["backward"] < 0.16)].set_index("setting")["measured"]
    assert "With a backward pass of 150 ms all are hidden" in TEXT
    assert (longer[["1 MiB, 1 ms", "8 MiB, 1 ms", "128 MiB, 1 ms", "no fusion, 1 ms"]] < 0.155).all()


def test_what_is_said_of_vgg_16_with_a_batch_of_256():
    network = networks.vgg16()
    flops, nbytes = (np.array([getattr(tensor, key) for tensor in network], float) for key in ("flops", "elements"))
    per_second = 172 * 3 * sum(tensor.flops for tensor in networks.resnet50())

    def parts(ranks):
        forward = 256 / ranks * flops.sum() / per_second
        ready = overlap.ready_times(flops, 2 * forward)
        made = overlap.step(ready, 4 * nbytes, lambda size: ring(ranks, size, Link(5e-6, 12.5e9)), 0, 0)
        return 1e3 * np.array([3 * forward + made.exposed, made.exposed, made.communication])

    steps = {ranks: parts(ranks) for ranks in (8, 16, 32, 64, 128, 256)}
    assert min(steps, key=lambda ranks: steps[ranks][0]) == 64
    assert f"hide the all-reduces, {steps[32][2]:.0f} ms. With 64 a step takes {steps[64][0]:.0f} ms" in TEXT
    assert f"and {steps[64][1]:.0f} of them are waiting" in TEXT
    assert steps[256][0] == pytest.approx(steps[32][0], rel=0.01) and "it takes as long as with 32" in TEXT
    convolutions = np.array([tensor.name.startswith("conv") for tensor in network])
    shares = [100 * part[convolutions].sum() / part.sum() for part in (flops, nbytes)]
    assert "have {:.0f} % of the operations and {:.0f} % of the bytes".format(*shares) in TEXT


def test_how_far_the_slowest_of_2_048_lies_above_the_mean(answer):
    times = np.concatenate([np.linspace(0, 4, 2001), np.geomspace(4, 100, 200)[1:]])
    late = {
        step.name: answer("4b", "slowest")(step.cumulative(times), times, 2048)
        for step in (stragglers.normal(0.05), stragglers.exponential(0.05))
    }
    deviations = [f"{(mean - 1) / 0.05:.1f}" for mean in late.values()]
    assert (
        "the slowest of 2,048 lies {} standard deviations above the mean. For exponential times it lies {}".format(
            *deviations
        )
        in TEXT
    )
    assert "lose {:.0f} to {:.0f} %".format(*(100 * (1 - 1 / mean) for mean in late.values())) in TEXT
