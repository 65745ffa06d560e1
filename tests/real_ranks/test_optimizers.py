"""The layer-wise optimizers on two real ranks against the serial run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from course_lib import optimizers
from course_lib.ranks import launch

pytestmark = [pytest.mark.slow, pytest.mark.ranks]
SCRIPT = Path(__file__).with_name("layerwise.py")


NAMES = optimizers.__all__
IN_PASSES = "LAMBx1", "LAMBx2"


def train(ranks, folder):
    """Twenty steps of each optimizer on this many ranks: a folder with each rank's weights after them."""
    with launch.start(SCRIPT, [folder / str(ranks), *NAMES, *IN_PASSES], ranks=ranks) as run:
        result = run.wait()
    assert result.code == 0, result


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layerwise")
    train(1, folder)
    train(2, folder)
    return folder


def weights(path):
    with np.load(path) as file:
        return [file[key] for key in file.files]


@pytest.mark.parametrize("name", NAMES)
def test_two_ranks_take_the_steps_of_one(name, trained):
    serial, first, second = (weights(trained / f"{file}.npz") for file in (f"1-{name}-0", f"2-{name}-0", f"2-{name}-1"))
    for one, mine, other in zip(serial, first, second):
        np.testing.assert_array_equal(mine, other)
        np.testing.assert_allclose(mine, one, rtol=0, atol=1e-5)


def test_lamb_corrects_its_bias_by_steps_where_a_step_takes_several_passes(trained):
    at_once = weights(trained / "1-LAMBx1-0.npz")
    for ranks in (1, 2):
        for one, other in zip(at_once, weights(trained / f"{ranks}-LAMBx2-0.npz")):
            np.testing.assert_allclose(other, one, rtol=0, atol=1e-5)
