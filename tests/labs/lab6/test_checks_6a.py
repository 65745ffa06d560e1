"""Notebook 6a: other right answers."""

from __future__ import annotations

import numpy as np

from labs.lab6_beyond_synchronous.lessons.checks_6a import points


def test_other_right_answers():
    def arrived(server, worker, gradient):
        server.waiting[worker] = gradient
        answers = {}
        if len(server.waiting) == server.quorum:
            server.weights -= server.rate * sum(server.waiting.values()) / server.quorum
            server.updates += 1
            while server.waiting:
                answers[server.waiting.popitem()[0]] = server.weights.copy()
        return answers

    def staleness(worker):
        last = [-1] * (max(worker) + 1)
        found = []
        for update, number in enumerate(worker):
            found.append(update - last[number] - 1)
            last[number] = update
        return found

    def rate_for(staleness, rate):
        return rate / max(1, staleness)

    def common(features):
        random = np.random.default_rng(0)
        pairs = random.integers(len(features), size=(2, 100_000))
        return float((features[pairs[0]] == features[pairs[1]]).sum(1).mean())

    for right in (arrived, staleness, rate_for, common):
        assert points(right, 4) == 4.0


def test_a_fair_rate_gets_a_part():
    def rate_for(staleness, rate):
        return rate * np.exp(-staleness / 4)

    assert 1.0 < points(rate_for, 3) < 3.0
