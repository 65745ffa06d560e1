"""Notebook 7a: other answers, wrong and right."""

from __future__ import annotations

import numpy as np

from labs.lab7_splitting_the_model.lessons.checks_7a import points


def test_room_that_all_ranks_share_is_named(capsys):
    def route(group, tokens, choice, capacity, expert):
        places = [np.flatnonzero(choice == rank) for rank in range(group.size)]
        came = group.all_to_all([tokens[some] for some in places])
        every = np.concatenate(came)
        made = np.concatenate([expert(every[:capacity]), np.zeros_like(every[capacity:])])
        out = np.zeros(tokens.shape)
        ends = np.cumsum([len(some) for some in came])[:-1]
        for some, back in zip(places, group.all_to_all(np.split(made, ends))):
            out[some] = back
        return out

    assert points(route, 4) < 4
    assert "of all ranks together" in capsys.readouterr().out


def test_another_way_of_the_loss_is_right():
    def cut_cross_entropy(group, logits, labels):
        n, width = logits.shape
        top, place = logits.max(1), labels - group.rank * width
        here = (place >= 0) & (place < width)
        right = np.where(here, logits[np.arange(n), place * here], -np.inf)
        mine = np.stack([top, np.exp(logits - top[:, None]).sum(1), right], axis=1)[..., None]
        tops, sums, rights = np.moveaxis(group.all_gather(mine), 1, 0)
        most = tops.max(1)
        total = (sums * np.exp(tops - most[:, None])).sum(1)
        slope = np.exp(logits - most[:, None]) / total[:, None]
        slope[here, place[here]] -= 1
        return np.mean(np.log(total) + most - rights.max(1)), slope / n

    assert points(cut_cross_entropy, 5) == 5.0
