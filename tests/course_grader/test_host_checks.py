"""What the host's looks at the ranks say, on looks that are made up."""

from __future__ import annotations

import numpy as np
import pytest

from course_grader.script import host_checks
from course_lib.ranks.run_record import Moment

STEPS = 50


def looks(bytes_each, *cpu_each) -> list[Moment]:
    """A look every 0.2 s: bytes and CPU seconds of each rank between them."""
    traffic = np.cumsum([0, *bytes_each])
    seconds = [np.cumsum([0, *(np.broadcast_to(one, len(bytes_each)))]) for one in cpu_each]
    return [Moment(0.2 * i, int(t), tuple(float(s[i]) for s in seconds)) for i, t in enumerate(traffic)]


def test_ranks_that_compute_and_speak_all_the_time():
    honest = looks([1e6] * STEPS, 0.2, 0.18)
    assert (host_checks.idle(honest), host_checks.silent(honest)) == ("", "")


def test_a_rank_that_computes_only_while_it_is_asked_to():
    """All is computed by one rank before the first word; then both do the same."""
    before = [0.2] * 100 + [0.1] * STEPS
    told = host_checks.idle(looks([0] * 100 + [1e6] * STEPS, before, [0.0] * 100 + [0.1] * STEPS))
    assert told.startswith("In the whole run, rank 1 used 5.0 s of its core, rank 0 25.0 s")
    start = [0.2] * 20
    assert host_checks.idle(looks([0] * 20 + [1e6] * STEPS, start + [0.2] * STEPS, start + [0.1] * STEPS)) == ""


def test_a_rank_that_only_listens():
    told = host_checks.idle(looks([0] * STEPS + [1e6] * STEPS, 0.2, [0.2] * STEPS + [0.02] * STEPS))
    assert told.startswith("While gradients went between the ranks, rank 1 used")
    assert "rank 0 9.8 s" in told


def test_an_idle_time_before_and_after_says_nothing():
    cpu = [0.0] * 20 + [0.2] * STEPS + [0.0] * 40
    assert host_checks.idle(looks([0] * 20 + [1e6] * STEPS + [0] * 40, 0.2, cpu)) == ""


def test_ranks_that_speak_now_and_then():
    bursts = [1e7 if i % 50 == 0 else 0 for i in range(4 * STEPS)]
    assert host_checks.silent(looks(bursts, 0.2, 0.2)).startswith("For 7")
    evaluations = [0 if i % 50 < 20 else 1e6 for i in range(4 * STEPS)]
    assert host_checks.silent(looks(evaluations, 0.2, 0.2)) == ""
    large_batches = [1e7 if i % 8 == 0 else 0 for i in range(4 * STEPS)]
    assert host_checks.silent(looks(large_batches, 0.2, 0.2)) == ""


@pytest.mark.parametrize(
    "few", [[], looks([1e6] * 3, 0.2, 0.0), looks([1e6] * STEPS, 0.2), looks([0] * STEPS, 0.0, 0.0)]
)
def test_little_to_look_at_says_nothing(few):
    assert (host_checks.idle(few), host_checks.silent(few)) == ("", "")


def test_a_rank_that_saves_while_the_others_wait_for_it_is_no_reason():
    cpu, alone = [0.08] * 6 + [0.0] * 5, [0.08] * 6 + [0.2] * 5
    start = [0.2] * 25
    sent = [0] * 25 + ([1e6] * 6 + [0] * 5) * 6
    assert host_checks.idle(looks(sent, start + alone * 6, start + cpu * 6)) == ""


def test_nor_is_one_long_pause_in_a_short_training_in_which_only_horovod_speaks():
    sent, cpu = [4e6] * 5 + [2e5] * 25 + [4e6] * 7, [0.1] * 5 + [0.01] * 25 + [0.1] * 7
    assert host_checks.idle(looks(sent, 0.12, cpu)) == ""
    assert "rank 1 used" in host_checks.idle(looks(sent, 0.12, 0.01))


def test_in_long_steps_what_is_computed_between_two_words_counts():
    told = host_checks.idle(looks([1e7, 0, 0, 0, 0] * 12, 0.2, [0.1, 0, 0, 0, 0] * 12))
    assert "rank 1 used" in told
    assert host_checks.idle(looks([1e7, 0, 0, 0, 0] * 12, 0.2, [0.0, 0.2, 0.2, 0.1, 0.1] * 12)) == ""


@pytest.mark.parametrize("burst", [1e6, 1e8])
def test_a_burst_of_bytes_at_the_end_hides_nothing(burst):
    sent = [1e6] * STEPS + [burst] * 8
    honest = looks(sent, 0.2, 0.2)
    assert (host_checks.idle(honest, update=10**6), host_checks.silent(honest, update=10**6)) == ("", "")
    assert "rank 1 used" in host_checks.idle(looks(sent, 0.2, [0.02] * STEPS + [0.2] * 8), update=10**6)
    start = [1e6, *[0] * (2 * STEPS), *sent]  # weights are broadcast, then each rank builds what it computes
    assert host_checks.silent(looks(start, 0.2, 0.2), update=10**6) == ""
