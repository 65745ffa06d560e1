"""Notebook 4a: the solutions, and mistakes that learners make in them."""

from __future__ import annotations

import pytest

from labs.lab4_communication.lessons.checks_4a import check, points

NOTEBOOK = "4a_collectives_and_their_cost"


@pytest.mark.parametrize("exercise", ["ring_seconds", "hierarchical_all_reduce", "crossing", "halve"])
def test_the_solution_gets_full_points(answer, exercise):
    solution = answer(NOTEBOOK, exercise)
    assert points(solution, 6) == 6.0
    assert all(verdict.passed for verdict in check(solution).verdicts)


RING, HIERARCHICAL, CROSSING, HALVE = "ring_seconds", "hierarchical_all_reduce", "crossing", "halve"

WRONG = {
    "halved without end": (HALVE, [("distance *= 2", "pass")], "does its loop come to an end?"),
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
        [("total = ring_among(me, total, range(0, me.size, group))", "pass")],
        "own group only",
    ),
    "the members are not asked": (
        HIERARCHICAL,
        [("total += me.receive(member)", "me.receive(member)")],
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
    "members get nothing": (HIERARCHICAL, [("return me.receive(leader)", "return None")], "rank 1 returns nothing"),
    "the leader adds in place": (HIERARCHICAL, [("np.array(x)", "x")], "changed in place"),
    "everybody to everybody between leaders": (
        HIERARCHICAL,
        [
            (
                "total = ring_among(me, total, range(0, me.size, group))",
                "others = [r for r in range(0, me.size, group) if r != me.rank]\n"
                "for other in others:\n    me.send(total, other)\n"
                "total = (total + sum(me.receive(other) for other in others)).astype(x.dtype)",
            )
        ],
        "with their ring it is",
    ),
    "a member forgotten": (
        HIERARCHICAL,
        [
            (
                "for member in members:\n    total += me.receive(member)",
                "for member in members[1:]:\n    total += me.receive(member)",
            )
        ],
        "lacks the numbers of rank 1 and 5",
    ),
    "a member added twice": (
        HIERARCHICAL,
        [("total += me.receive(member)", "total += me.receive(member) * (2 if member == 5 else 1)")],
        "has the numbers of rank 5 2 times",
    ),
    "the average": (HIERARCHICAL, [("return total", "return total / me.size")], "has the average"),
    "another type": (HIERARCHICAL, [("np.array(x)", "np.array(x, np.float64)")], "returns float64"),
    "upside down": (
        CROSSING,
        [("max(more_rounds, 0) * alpha / (more_bytes * beta)", "max(more_rounds, 0) * beta / (more_bytes * alpha)")],
        "exchanged",
    ),
    "the broadcast forgotten": (
        CROSSING,
        [("4 * (group - 1)", "2 * (group - 1)")],
        "a reduction and a broadcast",
    ),
    "leaders with small chunks": (CROSSING, [("2 * (groups - 1) / groups", "2 * (groups - 1) / ranks")], "N/k"),
    "a negative size": (CROSSING, [("max(more_rounds, 0)", "more_rounds")], "return 0"),
    "only for very many": (
        CROSSING,
        [("max(more_rounds, 0) * alpha / (more_bytes * beta)", "alpha / beta * ranks / 2")],
        "should be exact",
    ),
    "the farthest partner first": (
        HALVE,
        [
            ("distance = 1", "distance = me.size // 2"),
            ("distance < me.size", "distance > 0"),
            ("distance *= 2", "distance //= 2"),
        ],
        "6.00 n leave a host, 0.75 n are enough",
    ),
    "nothing is added": (
        HALVE,
        [("lower + me.receive(partner)", "lower + 0 * me.receive(partner)")],
        "its own numbers",
    ),
    "both keep the lower half": (
        HALVE,
        [("sums = upper + me.receive(partner)", "sums = me.receive(partner) + lower"), ("first += middle", "pass")],
        "no sum of one number",
    ),
    "it is not said which part": (HALVE, [("first += middle", "pass")], "and says first = 0"),
    "a round too few": (HALVE, [("distance < me.size", "2 * distance < me.size")], "shape (8,); it should be (4,)"),
    "nobody answers": (HALVE, [("me.send(lower, partner)", "pass")], "Two partners exchange"),
    "all of it is sent": (
        HALVE,
        [
            ("me.send(upper, partner)", "me.send(sums, partner)"),
            ("me.send(lower, partner)", "me.send(sums, partner)"),
            ("lower + me.receive(partner)", "lower + me.receive(partner)[:middle]"),
            ("upper + me.receive(partner)", "upper + me.receive(partner)[middle:]"),
        ],
        "half of what is left is 32, 16, 8, 4",
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_mistake_costs_points_and_is_named(answer, mistake, capsys):
    exercise, edits, word = WRONG[mistake]
    assert points(answer(NOTEBOOK, exercise, *edits), 6) < 6
    assert word in capsys.readouterr().out


def numbers(alpha_rounds, volume):
    """A ring that takes so many α, and β for so many times the bytes."""

    def ring_seconds(ranks, nbytes, alpha, beta):
        return alpha_rounds(ranks) * alpha + volume(ranks) * beta * nbytes

    return ring_seconds


@pytest.mark.parametrize(
    ("alpha_rounds", "volume", "said"),
    [
        (lambda n: n - 1, lambda n: n - 1, "two halves, and the messages are chunks"),
        (lambda n: 2 * n - 2, lambda n: 1, "2(N−1) chunks of n/N bytes"),
        (lambda n: 0, lambda n: (2 * n - 2) / n, "the latency α is missing"),
        (lambda n: 2 * n - 2, lambda n: 0, "the time for the bytes is missing"),
        (lambda n: (2 * n - 2) / n, lambda n: (2 * n - 2) / n, "every round has a whole α"),
        (lambda n: 2 * n - 2, lambda n: 3 * (n - 1) / n, "the number of seconds should be"),
    ],
)
def test_mistakes_in_the_terms_of_the_ring_are_named(alpha_rounds, volume, said):
    reasons = [verdict.reason for verdict in check(numbers(alpha_rounds, volume)).verdicts]
    assert any(said in reason for reason in reasons), reasons


def test_an_if_on_an_array_is_named():
    def ring_seconds(ranks, nbytes, alpha, beta):
        if ranks == 1:
            return 0
        return 2 * (ranks - 1) * (alpha + beta * nbytes / ranks)

    assert "no `if` is needed" in check(ring_seconds).verdicts[2].reason


@pytest.mark.parametrize(
    ("rounds", "volume", "said"),
    [
        (
            lambda n, k: 2 * (n - 1) - 2 * (k - 1) - 2 * (n / k - 1),
            lambda n, k: 2 * (k - 1) + 2 * (n / k - 1) * k / n - 2 * (n - 1) / n,
            "the plain way",
        ),
        (
            lambda n, k: 2 * n - 4 * k - 2 * n / k,
            lambda n, k: 4 * (k - 1) / k + 2 * (n / k - 1) * k / n - 2 * (n - 1) / n,
            "not 2N",
        ),
    ],
)
def test_wrong_counts_in_the_crossing_are_named(rounds, volume, said):
    def crossing(n, k, alpha, beta):
        return max(rounds(n, k), 0) * alpha / (volume(n, k) * beta)

    assert all(said in verdict.reason for verdict in check(crossing).verdicts[:2])


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda saved, lost, a, b: a * saved / lost, "divide by β"),
        (lambda saved, lost, a, b: saved / lost, "α/β is missing"),
        (lambda saved, lost, a, b: -a * saved / (b * lost), "the sign is wrong"),
        (lambda saved, lost, a, b: a * lost / (b * saved), "rounds saved over bytes lost"),
    ],
)
def test_mistakes_in_the_crossing_are_named(wrong, said):
    def crossing(n, k, alpha, beta):
        saved = 2 * (n - 1) - 4 * (k - 1) - 2 * (n / k - 1)
        lost = 4 * (k - 1) / k + 2 * (n / k - 1) * k / n - 2 * (n - 1) / n
        return wrong(saved, lost, alpha, beta)

    assert said in check(crossing).verdicts[0].reason


def test_nothing_but_a_return_missing_is_said():
    def ring_seconds(ranks, nbytes, alpha, beta):
        ranks - 1

    def halve(me, x):
        return 3.0

    assert "return" in check(ring_seconds).verdicts[0].reason
    assert "2 values are expected" in check(halve).verdicts[0].reason
