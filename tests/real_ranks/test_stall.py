"""Unequal numbers of batches: with MPI the stall inspector ends the run, with Gloo the course does."""

from __future__ import annotations

import pytest

from course_lib.ranks import launch
from course_lib.system.paths import ROOT

SCRIPT = ROOT / "labs" / "lab2_horovod" / "small_network.py"
IMPATIENT = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2"}

pytestmark = [pytest.mark.slow, pytest.mark.ranks]


def run(controller, env, **settings):
    """How the script ended on two ranks, and all that they said."""
    said = []
    arguments, env = ["--images", 65, "--batch-size", 8], {**IMPATIENT, **env}
    with launch.start(SCRIPT, arguments, 2, controller=controller, env=env, timeout=120, **settings) as run:
        said += [event.data["text"] for event in run if event.kind == "output"]
    return run.wait(), "\n".join(said)


def test_with_gloo_the_ranks_wait_without_a_word(tmp_path, marked):
    if "gloo" not in launch.controllers():
        pytest.skip("Horovod was built without Gloo")
    result, said = run("gloo", marked, options=launch.Options(stall_timeout=6, record=tmp_path))
    assert "the ranks wait for each other" in result.message
    assert "Missing ranks" not in said  # Horovod 0.28.1 with Gloo does not know which ranks there are


def test_with_mpi_the_stall_inspector_speaks_and_ends_the_run(marked):
    if "mpi" not in launch.controllers():
        pytest.skip("Horovod was built without MPI")
    result, said = run("mpi", marked)
    assert result.code not in (0, launch.TIMED_OUT)
    assert "Missing ranks" in said and "Will shutdown" in said
