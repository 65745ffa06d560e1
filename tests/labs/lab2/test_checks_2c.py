"""Notebook 2c: other right answers, and what a measured step is told."""

from __future__ import annotations

from labs.lab2_horovod.lessons import checks_2c


def test_a_measured_step_that_is_not_halved_is_blamed_on_the_knob_that_costs_most():
    def told(share=0.9, **knobs):
        return checks_2c.halved(share, {**checks_2c.BEST, "compression": "fp16", **knobs})

    assert told(0.4).startswith("Halved")
    assert "too small" in told(fusion_mb=0)
    assert "too long" in told(cycle_ms=50)
    assert "halve them" in told(compression="none")
    assert "too small" in told(fusion_mb=1 / 16, cycle_ms=20)
    assert "measure again" in told()
