"""Notebook 4a: answers of another kind."""

from __future__ import annotations

from labs.lab4_communication.lessons.checks_4a import check


def test_an_if_on_an_array_is_named():
    def ring_seconds(ranks, nbytes, alpha, beta):
        if ranks == 1:
            return 0
        return 2 * (ranks - 1) * (alpha + beta * nbytes / ranks)

    assert "no `if` is needed" in check(ring_seconds).verdicts[2].reason


def test_nothing_but_a_return_missing_is_said():
    def ring_seconds(ranks, nbytes, alpha, beta):
        ranks - 1

    def halve(me, x):
        return 3.0

    assert "return" in check(ring_seconds).verdicts[0].reason
    assert "2 values are expected" in check(halve).verdicts[0].reason
