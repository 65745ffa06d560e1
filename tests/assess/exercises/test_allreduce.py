"""Notebook 4a: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import pytest

from course_lib.assess.exercises.allreduce import check, points

NOTEBOOK = "4a_collectives_and_their_cost"


@pytest.mark.parametrize("exercise", ["ring_seconds", "hierarchical_all_reduce", "crossing", "fit_link"])
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 6) == 6.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


RING, HIERARCHICAL, CROSSING, FIT = "ring_seconds", "hierarchical_all_reduce", "crossing", "fit_link"

WRONG = {
    "half a ring": (RING, [("2 * (ranks - 1)", "(ranks - 1)")], "reduce-scatter alone"),
    "whole tensors go round": (RING, [("nbytes / ranks", "nbytes")], "n/N bytes"),
    "a round too many": (RING, [("(ranks - 1)", "ranks")], "one round fewer"),
    "messages counted, not rounds": (RING, [("2 * (ranks - 1)", "2 * (ranks - 1) * ranks")], "count rounds"),
    "one latency for all": (
        RING,
        [("rounds * (alpha + beta * message)", "alpha + rounds * beta * message")],
        "its own α",
    ),
    "beta as a bandwidth": (RING, [("beta * message", "message / beta")], "per byte"),
    "the leaders don't meet": (
        HIERARCHICAL,
        [("    total = ring_among(me, total, range(0, me.size, group))\n", "")],
        "own group only",
    ),
    "the members are not asked": (
        HIERARCHICAL,
        [("        total += me.receive(member)\n", "        me.receive(member)\n")],
        "leaders' own numbers",
    ),
    "the group is never full": (
        HIERARCHICAL,
        [("min(leader + group, me.size)", "leader + group")],
        "can't receive",
    ),
    "a ring of all": (
        HIERARCHICAL,
        [("range(0, me.size, group)", "range(me.size)")],
        "wait",
    ),
    "members get nothing": (HIERARCHICAL, [("        return me.receive(leader)\n", "        return None\n")], "None"),
    "the leader adds in place": (HIERARCHICAL, [("np.array(x)", "x")], "in a copy"),
    "everybody to everybody between leaders": (
        HIERARCHICAL,
        [
            (
                "    total = ring_among(me, total, range(0, me.size, group))\n",
                "    others = [r for r in range(0, me.size, group) if r != me.rank]\n"
                "    for other in others:\n        me.send(total, other)\n"
                "    total = total + sum(me.receive(other) for other in others)\n"
                "    total = total.astype(x.dtype)\n",
            )
        ],
        "with their ring it is",
    ),
    "upside down": (
        CROSSING,
        [("max(more_rounds, 0) * alpha / (more_bytes * beta)", "max(more_rounds, 0) * beta / (more_bytes * alpha)")],
        "exchanged",
    ),
    "the broadcast forgotten": (
        CROSSING,
        [("4 * (group - 1) -", "2 * (group - 1) -"), ("4 * (group - 1) /", "2 * (group - 1) /")],
        "a reduction and a broadcast",
    ),
    "leaders with small chunks": (CROSSING, [("(groups - 1) / groups", "(groups - 1) / ranks")], "N/k"),
    "a negative size": (CROSSING, [("max(more_rounds, 0)", "more_rounds")], "return 0"),
    "only for very many": (
        CROSSING,
        [("max(more_rounds, 0) * alpha / (more_bytes * beta)", "alpha / beta * ranks / 2")],
        "should be exact",
    ),
    "errors in seconds": (
        FIT,
        [
            ("rounds / seconds", "rounds * np.ones(len(seconds))"),
            ("rounds * nbytes / ranks / seconds", "rounds * nbytes / ranks"),
            ("np.ones(len(seconds)), rcond", "seconds, rcond"),
        ],
        "relative to the measured",
    ),
    "of the whole all-reduce": (FIT, [("2 * (ranks - 1)", "1"), ("nbytes / ranks", "nbytes")], "belong"),
    "one round": (FIT, [("2 * (ranks - 1)", "(ranks - 1)")], "2(N−1) rounds"),
    "whole tensors in each round": (FIT, [("nbytes / ranks", "nbytes")], "n/N bytes"),
    "exchanged": (FIT, [("return alpha, beta", "return beta, alpha")], "α first"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(answer, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 6) < 6
    assert word in capsys.readouterr().out


def test_nothing_but_a_return_missing_is_said():
    def ring_seconds(ranks, nbytes, alpha, beta):
        ranks - 1

    def fit_link(ranks, nbytes, seconds):
        return 3.0

    assert "return" in check(ring_seconds).verdicts[0].reason
    assert "two numbers" in check(fit_link).verdicts[0].reason
