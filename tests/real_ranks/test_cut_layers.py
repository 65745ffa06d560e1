"""Layers that are cut over two and four real ranks equal the serial ones; standing ranks do one work after another."""

from __future__ import annotations

import os
import signal
import sys

import cloudpickle
import numpy as np
import psutil
import pytest

from course_lib.authoring import master_format
from course_lib.parallel.group import Group, rehearse
from course_lib.system.errors import CourseError
from course_lib.system.paths import ROOT
from labs.lab7_splitting_the_model.lessons import autodiff_pair, cut_network, experts, wire_words
from labs.lab7_splitting_the_model.lessons.standing_ranks import StandingRanks

pytestmark = [pytest.mark.slow, pytest.mark.ranks]
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the ranks can't import a test


@pytest.fixture(scope="module")
def ranks():
    found = StandingRanks()
    yield found
    found.close()


def one_of_each(group):
    random = np.random.default_rng(group.rank)
    x = random.normal(size=(2, 4))
    parts = [random.normal(size=(rank + group.rank, 3)) for rank in range(group.size)]
    return [
        group.all_reduce(x), group.all_reduce(x, "max"), group.all_gather(x), group.reduce_scatter(x),
        group.broadcast(x, 1), *group.all_to_all(parts),
    ]  # fmt: skip


class Reference:
    """The pair of layers as the library's formulas have it."""

    @staticmethod
    def columns(group, x, w, b):
        return x @ w + b

    @staticmethod
    def columns_back(group, x, w, slope):
        return group.all_reduce(slope @ w.T), x.T @ slope, slope.sum(0)

    @staticmethod
    def rows(group, x, w, b):
        return group.all_reduce(x @ w) + b

    @staticmethod
    def rows_back(group, x, w, slope):
        return slope @ w.T, x.T @ slope, slope.sum(0)


def test_collectives_are_those_of_the_rehearsal(ranks):
    found = ranks.call(lambda groups: {name: one_of_each(group) for name, group in groups.items()})
    four, two = rehearse(one_of_each, 4), rehearse(one_of_each, 2)
    for rank, mine in enumerate(found):
        for name, right in (("all", four[rank]), ("pairs", two[rank % 2]), ("across", two[rank // 2])):
            for one, other in zip(mine[name], right):
                np.testing.assert_allclose(one, other, rtol=1e-14, atol=1e-15)


def test_the_library_s_pair_on_two_and_four_ranks(ranks):
    found = ranks.call(lambda groups: [autodiff_pair.gradients(groups[name]) for name in ("pairs", "all")])
    for mine in found:
        for size, result in zip((2, 4), mine):
            assert max(result["summed, off by"].values()) < 1e-12
            for name in ("x", "w1", "b1", "w2"):  # what lies before the all-reduce, seen from the loss
                np.testing.assert_allclose(result["hvd.allreduce"][name], size * result["summed"][name], rtol=1e-10)
            np.testing.assert_allclose(result["hvd.allreduce"]["b2"], result["summed"]["b2"])


def solutions(notebook, *names):
    """What the notebook's exercises define when they are solved."""
    (path,) = ROOT.glob(f"labs/*/{notebook}.py")
    cells = {cell.name: cell.source for cell in master_format.read(path).cells if cell.kind == "exercise"}
    space = {"np": np}
    for name in names:
        exec(cells[name.lower()], space)
    return [space[name] for name in names]


def test_the_notebook_s_networks_equal_their_serial_twins(ranks):
    """Losses, gradients and weights, of the transformer and of the experts, on pairs of ranks and on all four."""
    names = ("Cut", "deal", "cut_cross_entropy", "route", "balance")
    *cuts, route, balance = solutions("7a_cut_the_layer", *names)
    learned = cut_network.Learners(*cuts)

    def on_a_rank(groups):
        return {
            name: (cut_network.train(groups[name], learned), experts.train(groups[name], route, balance))
            for name in ("pairs", "all")
        }

    found, serial = ranks.call(on_a_rank), cut_network.serial()
    for name, members in (("pairs", (0, 1)), ("pairs", (2, 3)), ("all", range(4))):
        networks, mixtures = zip(*(found[rank][name] for rank in members))
        assert max(cut_network.apart(list(networks), serial, learned.deal).values()) < 1e-10
        assert max(experts.apart(list(mixtures), experts.serial(len(members))).values()) < 1e-10


def test_every_plan_gives_the_serial_gradients(ranks):
    serial = wire_words.pair_step(Group(), Group(), Reference, 8)
    found = ranks.call(
        lambda groups: {
            plan: wire_words.pair_step(*wire_words.groups_of(plan, groups), Reference, 8) for plan in wire_words.PLANS
        }
    )
    cuts = (1, 0, 0, None)
    for rank, mine in enumerate(found):
        for plan, (_, tensor) in wire_words.PLANS.items():
            for one, whole, axis in zip(mine[plan], serial, cuts):
                right = whole if axis is None else np.split(whole, tensor, axis=axis)[rank % tensor]
                np.testing.assert_allclose(one, right, rtol=1e-9, atol=1e-9)


def test_what_the_sockets_send_is_what_rings_send(ranks):
    from labs.lab7_splitting_the_model.lessons.checks_7a import loads

    rows = [row for found in ranks.call(lambda groups: wire_words.count(groups, Reference, (512,))) for row in found]
    for plan, ways in wire_words.PLANS.items():
        counted = np.mean([row["counted"] for row in rows if row["plan"] == plan])
        assert counted == pytest.approx(sum(loads(512, wire_words.SIZES, *ways)), rel=0.1)


def test_a_rank_that_fails_is_named_and_the_next_call_starts_anew(ranks):
    def work(groups):
        if groups["all"].rank == 2:
            raise ValueError("seven")

    with pytest.raises(CourseError, match="seven"):
        ranks.call(work)
    assert ranks.call(lambda groups: groups["all"].rank) == [0, 1, 2, 3]


def test_ranks_that_wait_for_another_are_named(ranks):
    def work(groups):
        if groups["all"].rank != 1:
            groups["all"].all_reduce(np.ones(3))

    with pytest.raises(CourseError, match="no answer of rank 0, 2, 3"):
        ranks.call(work, timeout=3)


@pytest.mark.parametrize("what", ["late", "interrupted"])
def test_ranks_that_compute_for_ever_are_ended(ranks, what):
    def work(groups):
        while True:
            pass

    def interrupt(*_):
        raise KeyboardInterrupt

    ids = ranks.call(lambda groups: os.getpid())
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        if what == "interrupted":
            signal.setitimer(signal.ITIMER_REAL, 2)
        with pytest.raises(KeyboardInterrupt if what == "interrupted" else CourseError):
            ranks.call(work, timeout=3 if what == "late" else 60)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert not any(map(psutil.pid_exists, ids))
