"""The converted script on real ranks against its serial twin."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from course_lib.ranks import launch
from course_lib.ranks.run_record import collect

LAB = Path(__file__).parents[2] / "labs" / "lab2_horovod"
pytestmark = [pytest.mark.slow, pytest.mark.ranks]
SLICE = 640  # images, of which the script holds back a fifth for validation
IMAGES = (
    SLICE - SLICE // 5
)  # 512, four steps an epoch: in many more, rounding errors grow, as in any network with kinks
# One thread a rank: sums are then always taken in the same order.


def train(script: str, ranks: int, batch: int, rate: float, tmp_path: Path, controller: str | None = None):
    return collect(
        LAB / script,
        ["--epochs", 2, "--batch-size", batch, "--lr", rate],
        ranks,
        controller=controller,
        env={"COURSE_SLICE": str(SLICE), **launch.ONE_THREAD},
        options=launch.Options(cwd=tmp_path),
    )


@pytest.fixture(scope="module")
def serial(tmp_path_factory):
    """The serial script with batch 128: what all others are compared with."""
    evidence = train("fashion_mnist.py", 1, 128, 0.008, tmp_path_factory.mktemp("serial"))
    assert evidence.result.code == 0, evidence.result
    return evidence


@pytest.fixture(scope="module")
def parallel(tmp_path_factory):
    """parallel(ranks, controller): what this many ranks recorded that share the serial script's batches."""

    @functools.cache
    def run(ranks, controller):
        folder = tmp_path_factory.mktemp(f"{controller}-{ranks}")
        return train("reference/fashion_mnist.py", ranks, 128 // ranks, 0.008 / ranks, folder, controller)

    return run


@pytest.mark.parametrize("ranks", [2, 4])
def test_n_ranks_with_batch_b_equal_one_rank_with_batch_nb(ranks, serial, parallel, controller):
    shared = parallel(ranks, controller)
    assert shared.result.code == 0, shared.result
    assert shared.weights_differ() == 0.0  # bit for bit
    for mine, theirs in zip(shared.ranks[0].weights, serial.ranks[0].weights):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)
    losses = [epoch["logs"]["loss"] for epoch in serial.ranks[0].records["epoch"]]
    assert losses[1] < losses[0]  # not equal because nothing was learned


def test_the_ranks_together_read_what_one_reads(serial, parallel):
    both = (rank.examples for rank in parallel(2, launch.controllers()[0]).ranks)
    for step, (alone, *shared) in enumerate(zip(serial.ranks[0].examples, *both)):
        assert sorted(alone) == sorted(np.concatenate(shared)), f"step {step}"
    first, second = (set(serial.ranks[0].epoch_examples(epoch)) for epoch in (0, 1))
    assert first == second
    order = [tuple(serial.ranks[0].epoch_examples(epoch)) for epoch in (0, 1)]
    assert order[0] != order[1]


def test_the_serial_script_on_two_ranks_trains_two_equal_copies(tmp_path):
    copies = train("fashion_mnist.py", 2, 128, 0.008, tmp_path)
    assert copies.result.code == 0
    assert copies.weights_differ() == 0.0
    assert not any(rank.all("collective") for rank in copies.ranks)
    assert sum(len(rank.epoch_examples(0)) for rank in copies.ranks) == 2 * IMAGES
