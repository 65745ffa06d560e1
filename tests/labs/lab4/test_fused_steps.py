from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from course_lib.cost import networks, overlap
from labs.lab4_communication.lessons import fused_steps
from labs.lab4_communication.lessons.fused_steps import Machine, Run

MIB = 2**20
MACHINE = Machine(alpha=8e-4, beta=8e-10, copy=7e-10, negotiation=5e-4)


def launch(threshold, cycle, *backward):
    """What this machine would measure, in one launch."""
    network = networks.resnet50()
    nbytes, flops = np.array([[4.0 * tensor.elements, tensor.flops] for tensor in network]).T
    runs = [Run(threshold, cycle, nbytes, overlap.ready_times(flops, seconds), np.zeros(1)) for seconds in backward]
    return as_measured(runs)


def as_measured(runs):
    return [replace(run, seconds=np.full(3, seconds)) for run, seconds in zip(runs, MACHINE.seconds(runs))]


def test_a_machine_is_found_from_its_own_steps():
    single = as_measured([Run(0, 0.001, np.array([4e7]), np.zeros(1), np.zeros(1))])
    fitted = fused_steps.fit([single, *(launch(size, 0.001, 0.1) for size in (0, 128 * MIB))])
    assert fitted.alpha == pytest.approx(MACHINE.alpha, rel=0.1)
    assert fitted.beta == pytest.approx(MACHINE.beta, rel=0.1)
    assert fitted.copy == pytest.approx(MACHINE.copy, rel=0.2)
    for setting in ((8 * MIB, 0.005, 0.1), (128 * MIB, 0.05, 0.2), (0, 0.02, 0.05)):
        other = launch(*setting)
        assert fitted.seconds(other) == pytest.approx([run.typical for run in other], rel=0.1)


def test_steps_fall_into_the_rhythm_of_a_long_cycle():
    machine = Machine(alpha=0.001, beta=0, copy=0, negotiation=0)

    def seconds(*ready):
        return machine.seconds([Run(0, 0.05, np.ones(1), np.array([moment]), np.zeros(1)) for moment in ready])

    assert seconds(0.01) == pytest.approx([0.05])  # a whole cycle, not 10 ms and half of one
    assert seconds(0.06, 0.01) == pytest.approx([0.1, 0.05])
    assert seconds(0.0495) == pytest.approx([0.1])  # a message takes 1 ms: just too late for the cycle


def test_what_was_measured_is_not_looked_at_in_a_prediction():
    some = launch(MIB, 0.001, 0.1, 0.2)
    assert (MACHINE.seconds(some) == MACHINE.seconds([replace(run, seconds=np.full(3, 99.0)) for run in some])).all()


def test_the_table_says_what_was_fitted_and_what_was_predicted():
    table = fused_steps.compare(
        MACHINE, {"a": launch(0, 0.001, 0.1), "b": launch(MIB, 0.001, 0.1, 0.2)}, {"a": "fit", "b": "test"}
    )
    assert list(table["used"]) == ["fit", "test", "test"]
    assert table["predicted"].to_numpy() == pytest.approx(table["measured"].to_numpy())


@pytest.mark.slow
@pytest.mark.ranks
def test_real_ranks_hand_over_gradients_when_they_are_due_and_wait_for_a_long_cycle():
    due = np.array([0.06, 0.03, 0.0])
    jobs = [((1000, 10, 100_000), due), ((1000, 10, 100_000), 2 * due)]
    (short, long) = fused_steps.measure(jobs, 128 * MIB, 0.25, steps=3)
    assert (short.nbytes == [4000, 40, 400_000]).all()
    assert (short.ready >= due).all()
    assert (long.ready >= 2 * due).all()
    assert len(short.seconds) == 3
    assert short.typical > 0.2  # ready after 0.06 s, but the cycle takes 0.25 s


def rounds(*factors):
    """Rounds of one setting, each so many times as slow as the first."""
    (run,) = as_measured(launch(MIB, 0.001, 0.1))
    return [[replace(run, seconds=run.seconds * factor)] for factor in factors]


def test_rounds_are_joined_with_all_their_steps():
    (run,) = fused_steps.joined(rounds(1, 3))
    assert len(run.seconds) == 6
    assert run.typical == pytest.approx(2 * rounds(1)[0][0].typical)


def test_a_busy_machine_is_told_with_the_setting_that_shows_it():
    steady = fused_steps.steadiness({"a": rounds(1, 1.1), "b": rounds(1, 0.95)})
    assert steady == "The machine is steady: rounds of one setting differ by 10 % at most."
    busy = fused_steps.steadiness({"a": rounds(1, 1.1), "no fusion": rounds(1, 2.5)})
    assert "with no fusion one round took 2.5 times as long" in busy and "recorded figure" in busy
    assert "One round only" in fused_steps.steadiness({"a": rounds(1)})
