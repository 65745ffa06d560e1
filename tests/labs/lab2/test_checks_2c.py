"""Notebook 2c: other right answers, and what a measured step is told."""

from __future__ import annotations

import numpy as np

from labs.lab2_horovod.lessons import checks_2c
from labs.lab2_horovod.lessons.checks_2c import points


def test_another_way_is_right_too():
    def covered(start, seconds):
        grid = np.unique(np.concatenate([start, start + seconds]))
        middle = (grid[1:] + grid[:-1]) / 2
        inside = ((middle > start[:, None]) & (middle < (start + seconds)[:, None])).any(axis=0)
        return float(np.diff(grid)[inside].sum())

    def lateness(arrivals):
        wide = arrivals.pivot(index=["tensor", "step"], columns="rank", values="start")
        return wide.sub(wide.min(axis=1), axis=0).mean().to_dict()

    assert points(covered, 6) == points(lateness, 6) == 6.0


def test_a_line_with_a_free_slope_is_not_the_law(capsys):
    def serial_fraction(ranks, speedup):
        return np.polyfit(1 / ranks, 1 / speedup, 1)[1] if len(ranks) > 1 else 0.3

    assert 0 < points(serial_fraction, 3) < 3
    assert "one number only" in capsys.readouterr().out


def test_a_measured_step_that_is_not_halved_is_blamed_on_the_knob_that_costs_most():
    def told(share=0.9, **knobs):
        return checks_2c.halved(share, {**checks_2c.BEST, "compression": "fp16", **knobs})

    assert told(0.4).startswith("Halved")
    assert "too small" in told(fusion_mb=0)
    assert "too long" in told(cycle_ms=50)
    assert "halve them" in told(compression="none")
    assert "too small" in told(fusion_mb=1 / 16, cycle_ms=20)
    assert "measure again" in told()
