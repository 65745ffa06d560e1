"""Notebook 2f: what a measured step is told, and the settings that the exercise asks for."""

from __future__ import annotations

from labs.lab2_horovod.lessons import checks_2f


def test_a_measured_step_that_is_not_halved_is_blamed_on_the_knob_that_costs_most():
    def told(share=0.9, **knobs):
        return checks_2f.halved(share, {**checks_2f.best(checks_2f.SLOW), **knobs})

    assert told(0.4).startswith("Halved")
    assert "too small" in told(fusion_mb=0)
    assert "too long" in told(cycle_ms=50)
    assert "halve them" in told(compression="none")
    assert "too small" in told(fusion_mb=1 / 16, cycle_ms=20)
    assert "measure again" in told()


def test_each_cycle_is_right_on_some_machine():
    choices = [checks_2f.best(megabits, machine) for machine, megabits in checks_2f.MACHINES]
    assert {choice["cycle_ms"] for choice in choices} == set(checks_2f.CYCLES_MS)
    assert {choice["compression"] for choice in choices} == {"none", "fp16"}
    for choice, (machine, megabits) in zip(choices, checks_2f.MACHINES):
        assert checks_2f.wrong_knob(choice, megabits, machine) == ""
