"""The layer-wise optimizers on two real ranks against the serial run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from course_lib.ranks import launch

pytestmark = [pytest.mark.slow, pytest.mark.ranks]
SCRIPT = Path(__file__).with_name("layerwise.py")


def train(name, ranks, folder):
    """The weights of each rank after twenty steps."""
    with launch.start(SCRIPT, [name, str(folder / str(ranks))], ranks=ranks, cwd=folder) as run:
        result = run.wait()
    assert result.code == 0, result
    files = [np.load(folder / f"{ranks}-{rank}.npz") for rank in range(ranks)]
    return [[file[key] for key in file.files] for file in files]


@pytest.mark.parametrize("name", ["LARS", "LARC", "LAMB", "NovoGrad"])
def test_two_ranks_take_the_steps_of_one(name, tmp_path):
    (serial,), (first, second) = train(name, 1, tmp_path), train(name, 2, tmp_path)
    for one, mine, other in zip(serial, first, second):
        np.testing.assert_array_equal(mine, other)
        np.testing.assert_allclose(mine, one, rtol=0, atol=1e-5)
