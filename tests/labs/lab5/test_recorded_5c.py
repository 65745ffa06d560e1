"""What notebook 5c says of its chain and of its recorded runs is what they show."""

from __future__ import annotations

import pytest

from course_lib import statistics
from course_lib.cost import memory
from labs.lab5_precision_and_memory.lessons.counted_chain import Chain, fewest
from tests.labs.notebooks import recorded, text


def test_equal_segments_keep_eighteen_arrays(answer):
    chain = Chain(100)
    answer("5c", "in_segments")(chain, *chain.start())
    assert (chain.kept, chain.forwards) == (18, 180)
    assert "100 layers need 18 arrays" in text("5c")
    assert fewest(100, 18) == 180 and fewest(100, 13) == 185
    assert "With 13 arrays in place of 18, the best schedule has 185 forward calls in place of 180" in text("5c")


def test_residual_networks():
    runs = recorded("recompute")
    mean = runs.groupby(["depth", "recompute"])["megabytes"].mean()
    plain, again = mean[40]
    told = f"At depth 40 the step needs {plain:.0f} MB more than with one image, and {again:.0f} MB with recomputing: "
    assert f"{told}{100 * (1 - again / plain):.0f} % less" in text("5c")
    saved = 1 - mean.xs(True, level=1) / mean.xs(False, level=1)
    assert saved.is_monotonic_increasing and saved.max() < 0.75
    for depth in saved.index:  # within a fifth of the count, where there is much
        network = memory.wide_resnet(int(depth), 4)
        assert mean[depth, False] == pytest.approx(15 * 4 * network.activations / 1e6, rel=0.25)
    deep = runs[runs["depth"] == 40].pivot(index="run", columns="recompute", values="processor seconds")
    more, half = statistics.mean(100 * (deep[True] / deep[False] - 1))
    assert f"The measured {more:.0f} ± {half:.0f} % agree with that, and not with the slide's 25 %" in text("5c")
    assert abs(more - 100 / 6) < half and more + half < 25
