"""A training that is stopped and resumed equals the uninterrupted one, to the last bit."""

from __future__ import annotations

import sys

import cloudpickle
import numpy as np
import pytest

from course_lib.authoring import master_format
from course_lib.ranks import launch
from course_lib.system.paths import ROOT

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the ranks can't import a test
pytestmark = [pytest.mark.slow, pytest.mark.ranks]

K = 12


def solutions():
    """What notebook 2d has learners write."""
    master = master_format.read(ROOT / "labs" / "lab2_horovod" / "2d_survive.py")
    cells = {cell.name: cell.source for cell in master.cells if cell.kind == "exercise"}
    wanted = (cells[name] for name in ("examples_at", "checkpoint", "store"))
    return "\n".join(["import hashlib, os, pickle", "import numpy as np", *wanted])


def runs(source, path):
    """(straight, resumed): losses and weights; `path` is written after K steps and read by other trainings."""
    from labs.lab2_horovod.lessons import checkpoint

    names = {"__name__": "solutions"}
    exec(source, names)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(200, 10)).astype(np.float32), random.integers(0, 3, 200)
    me = checkpoint.HorovodRank()

    def training(seed):
        return checkpoint.Training(me, names["examples_at"], x, y, seed=seed)

    straight = training(1)
    losses = [straight.advance() for _ in range(K)]
    state = names["Checkpoint"].take(straight)
    if me.rank == 0:
        names["Store"].save(path, state)
    losses += [straight.advance() for _ in range(K)]
    again = training(100 + me.rank)
    names["Checkpoint"].put_back(again, me.broadcast(names["Store"].load(path) if me.rank == 0 else None))
    resumed = [again.advance() for _ in range(K)]
    return (losses[K:], straight.model.get_weights()), (resumed, again.model.get_weights())


@pytest.mark.parametrize(("ranks", "controller"), [(1, None), (3, "gloo"), (3, "mpi")])
def test_equal_bit_for_bit(ranks, controller, tmp_path):
    if controller and controller not in launch.controllers():
        pytest.skip(f"Horovod was built without {controller} here")
    source, path = solutions(), tmp_path / "here.ckpt"
    for straight, resumed in launch.call(
        lambda: runs(source, path), ranks, controller=controller, env=launch.ONE_THREAD, timeout=120
    ):
        assert straight[0] == resumed[0]
        assert max(np.abs(a - b).max() for a, b in zip(straight[1], resumed[1])) == 0.0
