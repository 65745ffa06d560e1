"""`cost.predict`: limits that can be computed by hand, and what each field of a system does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from course_lib.cost import Link, System, allreduce, cluster, networks, predict
from course_lib.cost.cluster import ALGORITHMS

GBIT = 1e9 / 8
ORDINARY = System(128, 4, Link(5e-6, 10e9), Link(20e-6, 25 * GBIT), 100.0)
EVEN = replace(ORDINARY, straggler_spread=0.0)


def test_one_rank_has_no_communication():
    made = predict("ResNet-50", ORDINARY, 1, 64)
    assert (made.images_per_second, made.efficiency, made.step_seconds) == pytest.approx((100, 1, 0.64))
    assert made.exposed_communication_seconds == 0


@pytest.mark.parametrize("ranks", [2, 4, 5, 100, 512])
def test_the_figures_of_a_prediction_agree_with_each_other(ranks):
    made = predict("VGG-16", replace(ORDINARY, straggler_spread=0.03), ranks, 32)
    assert made.images_per_second == pytest.approx(ranks * 32 / made.step_seconds)
    assert made.efficiency == pytest.approx(made.images_per_second / (ranks * 100))
    assert made.step_seconds >= made.compute_seconds + made.exposed_communication_seconds


def test_with_all_gradients_ready_at_the_end_the_exposed_time_is_the_all_reduce():
    one_tensor = [networks.Tensor("only", 10_000_000, 1)]
    system = replace(EVEN, cycle_seconds=0.0, algorithm="ring", ranks_per_host=1)
    made = predict(one_tensor, system, 64, 32)
    assert made.exposed_communication_seconds == pytest.approx(allreduce.ring(64, 4e7, system.outer))


def test_a_cycle_adds_about_half_of_itself():
    one_tensor = [networks.Tensor("only", 1000, 1)]
    system = replace(EVEN, algorithm="ring", ranks_per_host=1)
    exposed = [
        predict(one_tensor, replace(system, cycle_seconds=cycle), 64, 32).exposed_communication_seconds
        for cycle in (0.0, 0.1)
    ]
    assert exposed[1] - exposed[0] == pytest.approx(0.05, abs=0.1 / cluster.PHASES / 2)


def test_stragglers_cost_as_the_slowest_of_them():
    free = replace(ORDINARY, inner=Link(0, 1e15), outer=Link(0, 1e15), cycle_seconds=0.0)
    efficiency = predict("ResNet-50", replace(free, straggler_spread=0.05), 512, 64).efficiency
    assert 1 / efficiency == pytest.approx(1 + 0.05 * 3.04, abs=0.005)  # E[max] of 512 normal numbers is 3.04


@pytest.mark.parametrize(
    ("worse", "change"),
    [
        ("a slower network", {"outer": Link(20e-6, 10 * GBIT)}),
        ("more latency", {"outer": Link(2e-3, 25 * GBIT)}),
        ("a slower link in the host", {"inner": Link(5e-6, 1e9)}),
        ("uneven ranks", {"straggler_spread": 0.1}),
        ("no fusion", {"fusion_bytes": 0, "outer": Link(1e-3, 25 * GBIT)}),
        ("a longer cycle", {"cycle_seconds": 0.2}),
        ("a quicker GPU, less to hide behind", {"images_per_second": 400.0}),
    ],
)
def test_what_lowers_efficiency(worse, change):
    base, changed = (
        predict("VGG-16", system, 512, 64).efficiency for system in (ORDINARY, replace(ORDINARY, **change))
    )
    assert changed < base, worse


def test_efficiency_rises_with_images():
    made = [predict("ResNet-101", ORDINARY, 512, images).efficiency for images in (4, 8, 16, 32, 64)]
    assert np.all(np.diff(made) > 0)


def test_branches_and_many_bytes_scale_differently():
    """Horovod's page has 90, 90 and 68 %."""
    made = [
        predict(name, replace(ORDINARY, images_per_second=rate), 512, 64).efficiency
        for name, rate in (("Inception V3", 142), ("ResNet-101", 104), ("VGG-16", 154))
    ]
    assert made[0] > made[2] + 0.1 and made[1] > made[2] + 0.1


def test_where_all_links_are_alike_a_ring_is_that_of_4a():
    link = Link(3e-6, 1e9)
    system = replace(ORDINARY, inner=link, outer=link, algorithm="ring")
    nbytes = np.geomspace(1, 1e9, 20)
    assert cluster.all_reduce(system, 512, nbytes) == pytest.approx(allreduce.ring(512, nbytes, link))


@pytest.mark.parametrize("hybrid", ["hybrid", "best"])
def test_the_quicker_of_two_for_each_message(hybrid):
    nbytes = np.geomspace(1, 1e9, 50)
    by_name = {name: cluster.all_reduce(replace(ORDINARY, algorithm=name), 512, nbytes) for name in ALGORITHMS}
    other = {"hybrid": "hierarchical", "best": "two levels"}[hybrid]
    assert np.array_equal(by_name[hybrid], np.minimum(by_name["ring"], by_name[other]))


def test_halving_shares_a_host_s_link():
    alone, shared = replace(ORDINARY, ranks_per_host=1, hosts=512), replace(ORDINARY, inner=ORDINARY.outer)
    seconds = [cluster.all_reduce(replace(one, algorithm="halving"), 512, 1e8) for one in (alone, shared)]
    assert seconds[0] == pytest.approx(allreduce.halving(512, 1e8, ORDINARY.outer))
    assert seconds[1] == pytest.approx(allreduce.halving(512, 1e8, ORDINARY.outer, 4)) and seconds[1] > seconds[0]
    with pytest.raises(ValueError, match="power of two"):
        cluster.all_reduce(replace(ORDINARY, ranks_per_host=6, algorithm="halving"), 512, 1e8)


@pytest.mark.parametrize("network", ["ResNet-50", "VGG-16", "AlexNet"])
@pytest.mark.parametrize("ranks", [2, 3, 5, 40, 512])
def test_a_better_link_is_never_slower(network, ranks):
    """Also for ranks that fill no host, or half of the last one."""
    for end in ("inner", "outer"):
        by_bandwidth = [
            predict(network, replace(ORDINARY, **{end: Link(5e-6, bandwidth)}), ranks, 32).step_seconds
            for bandwidth in np.geomspace(1e8, 1e12, 13)
        ]
        by_latency = [
            predict(network, replace(ORDINARY, **{end: Link(latency, 3e9)}), ranks, 32).step_seconds
            for latency in np.geomspace(1e-7, 1e-2, 13)
        ]
        assert np.all(np.diff(by_bandwidth) <= 1e-12) and np.all(np.diff(by_latency) >= -1e-12)


@pytest.mark.parametrize(
    ("what", "arguments", "said"),
    [
        ("network", ("LeNet", ORDINARY, 4, 32), "Inception V3"),
        ("no layers", ([], ORDINARY, 4, 32), "no layer"),
        ("too many ranks", ("AlexNet", ORDINARY, 513, 32), r"1 to 512 \(128 hosts of 4\)"),
        ("no rank", ("AlexNet", ORDINARY, 0, 32), "1 to 512"),
        ("half a rank", ("AlexNet", ORDINARY, 2.5, 32), "2.5 ranks"),
        ("no images", ("AlexNet", ORDINARY, 4, 0), "images per rank"),
    ],
)
def test_what_makes_no_sense_is_an_error(what, arguments, said):
    with pytest.raises(ValueError, match=said):
        predict(*arguments)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hosts": 0}, "hosts is a whole number"),
        ({"ranks_per_host": 1.5}, "ranks_per_host is a whole number"),
        ({"group": 0}, "group is a whole number"),
        ({"group": 2 * ORDINARY.ranks_per_host}, "groups of 8 are no hosts of 4"),
        ({"images_per_second": 0}, "images_per_second has to be positive"),
        ({"images_per_second": float("nan")}, "images_per_second has to be positive"),
        ({"cycle_seconds": -1e-3}, "cycle_seconds can't be negative"),
        ({"straggler_spread": -0.1}, "straggler_spread can't be negative"),
        ({"backward": 66}, "share of the computation"),
        ({"algorithm": "butterfly"}, "two levels"),
    ],
)
def test_a_system_that_cannot_be_is_an_error(change, said):
    with pytest.raises(ValueError, match=said):
        replace(ORDINARY, **change)


@pytest.mark.parametrize(("latency", "bandwidth"), [(-1e-6, 1e9), (1e-6, 0), (1e-6, float("nan"))])
def test_a_link_that_cannot_be_is_an_error(latency, bandwidth):
    with pytest.raises(ValueError, match="bandwidth above 0"):
        Link(latency, bandwidth)


@pytest.mark.parametrize("name", ["inception v3", "InceptionV3", "resnet-101", "ResNet101", "vgg16", "alexnet"])
def test_names_of_networks_may_be_written_otherwise(name):
    assert predict(name, ORDINARY, 8, 32).efficiency > 0
