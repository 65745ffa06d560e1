"""Notebook 2e's script with Horovod, on two ranks."""

from __future__ import annotations

import pytest

from course_lib.ranks import launch
from course_lib.system.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.ranks]
SCRIPT = ROOT / "labs" / "lab2_horovod" / "same_horovod.py"
BROADCAST = "hvd.broadcast_variables([w], root_rank=0)\n"


def said(script):
    """What each rank printed after its name."""
    with launch.start(script, ranks=2, timeout=120) as run:
        lines = [event.data["text"] for event in run if event.kind == "output" and event.data["stream"] == "stdout"]
        result = run.wait()
    assert result.code == 0, result
    return [line.split(": ")[1] for line in sorted(lines) if line.startswith("rank ")]


def test_both_ranks_find_the_same_weights():
    assert said(SCRIPT) == ["[ 1. -2.  3. -4.]"] * 2


def test_without_the_broadcast_they_stay_apart(tmp_path):
    text = SCRIPT.read_text()
    assert text.count(BROADCAST) == 1
    changed = tmp_path / "changed.py"
    changed.write_text(text.replace(BROADCAST, ""))
    first, second = said(changed)
    assert first != second
