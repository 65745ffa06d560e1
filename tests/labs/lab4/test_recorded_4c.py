"""The numbers that notebook 4c tells: of the model, of published runs, and of systems that the model has not seen."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from course_lib.cost import allreduce, networks, overlap, predict, published, roofline, scaling, stragglers
from course_lib.cost.allreduce import Link
from course_lib.notebook import experiments
from labs.lab4_communication.lessons import published_systems as systems
from tests.labs.notebooks import recorded, text

TEXT = text("4c")
TENCENT = published.tencent()
ALPHA = TENCENT.outer.latency
RESNET, ALEXNET = networks.resnet50(), networks.alexnet()
WAYS = {"ring": "ring", "hierarchical": "hierarchical", "halving": "halving"}


def step(algorithm, threshold=published.THRESHOLD, images=32, ranks=1024, **other):
    system = replace(TENCENT, algorithm=algorithm, fusion_bytes=threshold, **other)
    return predict(RESNET, system, ranks, images)


@pytest.fixture(scope="module")
def by_threshold():
    sizes = np.geomspace(1e4, 1e8, 200)
    return sizes, {name: np.array([step(name, size).efficiency for size in sizes]) for name in WAYS}


@pytest.fixture(scope="module")
def tests():
    """left out, and added later."""
    table = recorded("leave_one_out")
    return tuple(table[table["test"] == test].reset_index() for test in ("left out", "added later"))


def test_what_the_backward_pass_hides():
    computing = {images: 1e3 * images / 218 for images in (64, 32)}
    assert round(1e3 * (32 / 218 / 0.879 - 32 / 218 / 3)) == 118 and "about **118 ms** fit behind" in TEXT
    assert {images: round(2 / 3 * ms) for images, ms in computing.items()} == {64: 196, 32: 98}
    assert "a backward pass of 196 ms, but not behind one of 98 ms" in TEXT
    assert round(computing[32]) == 147 and "a step computes for 147 ms, 98 of them in the backward pass" in TEXT
    nbytes = 4 * sum(tensor.elements for tensor in RESNET)
    assert round(nbytes / 1e6) == 102 and "the gradient of 102 MB" in TEXT
    assert round(1e3 * 2 * nbytes / published.BANDWIDTH) == 16 and "that takes 16 ms" in TEXT
    assert round(12.1 / 0.8) == 15 and "fifteen times" in TEXT


def test_algorithms_with_the_threshold_of_the_fit():
    assert f"{1e6 * ALPHA:.1f}" == "9.6"
    latency = len(RESNET) * 2 * 1023 * ALPHA
    assert (len(RESNET), f"{latency:.1f}") == (161, "3.2")
    assert "161 messages × 2,046 rounds × 9.6 µs are 3.2 s of latency" in TEXT
    assert step("ring").efficiency == pytest.approx(0.17, abs=0.005) and "from 17 to 88 %" in TEXT
    assert 4 * 15 + 2 * 63 == 186 and "186 rounds for each message" in TEXT
    halving = step("halving", 0)
    assert f"its {1e3 * halving.communication_seconds:.0f} ms fit behind the backward pass" in TEXT


def test_the_hybrid_is_hierarchical_for_all_messages_of_resnet():
    assert step("hybrid") == step("hierarchical") and "(So has the hybrid" in TEXT


def test_algorithms_with_the_best_threshold(by_threshold):
    sizes, efficiency = by_threshold
    best = {name: (100 * values.max(), sizes[values.argmax()] / 1e6) for name, values in efficiency.items()}
    assert 0 < efficiency["ring"].argmax() < len(sizes) - 1 and 0 < efficiency["hierarchical"].argmax() < len(sizes) - 1
    assert f"**The ring** reaches {best['ring'][0]:.1f} %, as much as" in TEXT
    assert f"with {best['ring'][1]:.0f} MB: three messages" in TEXT
    backward = 2 / 3 * 32 / 218
    ready = overlap.ready_times([tensor.flops for tensor in RESNET], backward)
    nbytes = [4.0 * tensor.elements for tensor in RESNET]
    made = overlap.step(ready, nbytes, np.zeros_like, 1e6 * best["ring"][1], 0, at_least=True)
    assert len(made.messages) == 3
    assert len(overlap.step(ready, nbytes, np.zeros_like, 4e5, 0, at_least=True).messages) == 40
    assert f"**Hierarchical** reaches {best['hierarchical'][0]:.1f} %, with {best['hierarchical'][1]:.0f} MB" in TEXT
    assert f"{best['hierarchical'][0] - 87.9:.0f} points more" in TEXT
    assert f"**Halving** reaches {100 * step('halving', 0).efficiency:.1f} % without fusion, and never less" in TEXT
    assert efficiency["halving"].min() > 0.90 and "never less than 90 %" in TEXT


def test_halving_with_another_latency_explains_both_efficiencies():
    def halving(alpha, images=32):
        return predict(RESNET, replace(published.rings(alpha), algorithm="halving"), 1024, images).efficiency

    alpha = scaling.fit(halving, 0.879, 0, 1e-3)
    assert f"α = {1e6 * alpha:.0f} µs explains the 87.9 % too" in TEXT
    assert f"gives {100 * halving(alpha, 64):.1f} % for 64 images" in TEXT
    naive = replace(published.rings(alpha), algorithm="ring", fusion_bytes=0)
    times = halving(alpha, 64) / predict(RESNET, naive, 1024, 64).efficiency
    assert f'(But "11 times" would be {times:.0f}, if NCCL had this α.)' in TEXT


@pytest.mark.parametrize(("threshold", "agrees"), [(0.1e6, True), (1e6, True), (10e6, True), (30e6, False)])
def test_thresholds_that_explain_both_efficiencies(threshold, agrees):
    fitted = published.tencent(threshold)
    assert (abs(predict(RESNET, fitted, 1024, 64).efficiency - 0.992) <= 0.03) == agrees
    assert "Up to about 10 MB they also agree with the 99.2 %." in TEXT


def test_other_published_numbers():
    def minutes(ranks, images):
        seconds = predict(RESNET, TENCENT, ranks, images).step_seconds
        return scaling.training_seconds(published.IMAGES, 90, ranks, images, seconds) / 60

    assert max(abs(minutes(1024, 64) / 8.7 - 1), abs(minutes(2048, 32) / 6.6 - 1)) < 0.04
    assert "For ResNet-50 all are within 4 %" in TEXT
    alexnet = replace(TENCENT, images_per_second=published.ALEXNET_RATE)
    naive = replace(alexnet, algorithm="ring", fusion_bytes=0)
    times = predict(ALEXNET, alexnet, 1024, 128).efficiency / predict(ALEXNET, naive, 1024, 128).efficiency
    assert f"AlexNet's speed-up is {100 * (1 - times / 3):.0f} % too small" in TEXT
    times = step("hybrid").efficiency / step("ring", 0).efficiency
    assert f"with 32 the model says {times:.0f}" in TEXT


def test_what_the_118_ms_are():
    latency = 40 * 186 * ALPHA
    whole = step("hybrid").communication_seconds
    assert f"the {1e3 * whole:.0f} ms are {1e3 * latency:.0f} ms of latency (40 messages × 186 rounds × α)" in TEXT
    assert f"and {1e3 * (whole - latency):.0f} ms of bytes" in TEXT
    other = [abs(step("hybrid", images=64, **change).efficiency - 0.994) for change in ({"itemsize": 2}, {"group": 8})]
    assert max(other) < 0.01 and "With 64 images nothing matters" in TEXT


def test_the_roofline():
    numbers = {name: sum(one.elements for one in network) for name, network in (("r", RESNET), ("a", ALEXNET))}
    ridge = {
        name: sorted(2 * 1023 / 1024 * 4 * numbers[name] * rate * scale / published.BANDWIDTH for rate in (172, 218))
        for name, scale in (("r", 1), ("a", published.ALEXNET_RATE / 218))
    }
    assert [round(images) for images in ridge["r"]] == [3, 4] and "needs 3 or 4 images per GPU" in TEXT
    assert f"AlexNet {ridge['a'][0]:.0f} to {ridge['a'][1]:.0f}" in TEXT
    work = published.operations(RESNET) / published.operations(ALEXNET)
    assert numbers["a"] / numbers["r"] > 2 and round(work) == 6
    assert "more than twice the weights and a sixth of the work" in TEXT
    flops = 218 * published.operations(RESNET)
    intensity = 8 * published.operations(RESNET) / (2 * 1023 / 1024 * 4 * numbers["r"])
    assert 2 < intensity / roofline.ridge(flops, published.BANDWIDTH) < 2.5
    assert "ResNet-50 with 8 images has twice the FLOP per byte" in TEXT
    hybrid, halving = (step(name, images=8).efficiency for name in ("hybrid", "halving"))
    assert 0.2 < 1 - halving < 0.3 and 0.7 < 1 - hybrid < 0.75
    assert "halving loses a quarter, the hybrid nearly three quarters" in TEXT


def test_runs_on_the_same_kind_of_device():
    kinds = published.by_device()
    for line in published.lines(TENCENT):
        if kind := kinds.get(f"{line.network}, {line.hardware}"):
            assert (line.devices, line.minutes) in kind.values()
    (_, first), *more = kinds["ResNet-50, P100"].items()
    kept = {team: first[0] * first[1] / (devices * minutes) for team, (devices, minutes) in more}
    assert {f"{kept[team]:.2f}" for team in ("Goyal et al.", "Akiba et al.")} == {"0.91"}
    assert "Goyal et al. and Akiba et al. keep 0.91 of perfect scaling" in TEXT
    assert kept["Cho et al."] > 1 and "Cho et al. need fewer device-minutes than a single server" in TEXT
    work = {devices: devices * minutes for devices, minutes in kinds["ResNet-50, Xeon Phi"].values()}
    assert min(work.values()) == work[768] and work[1024] == work[1536]
    assert f"from 768 to 1,024 devices {100 * (1 - work[768] / work[1024]):.0f} % are lost, and from there" in TEXT


def test_the_tables_again():
    lines = published.lines(TENCENT)
    errors = [line.error for line in lines if line.error is not None]
    assert (sum(abs(error) < 0.1 for error in errors), len(errors)) == (9, 10)
    assert "Nine of ten lines are within 10 %" in TEXT
    assert f"On 1,024 CPUs the result is {-100 * min(errors):.0f} % short" in TEXT
    top = {(line.team, line.devices): line.accuracy for line in lines if line.network == "ResNet-50"}
    base = top["He et al.", 8]
    assert f"Cho et al. end {base - top['Cho et al.', 256]:.1f} points lower" in TEXT
    assert f"and Akiba et al. {base - top['Akiba et al.', 1024]:.1f}:" in TEXT
    runs = published.runs()
    assert len({run.network for run in runs}) == 5
    assert [run.team for run in runs if run.network == "ResNet-50" and run.accuracy] == ["Ying et al."]
    assert sum(run.network == "ResNet-50" for run in runs) == 4
    assert "They train five networks. Of the four with ResNet-50, one gives" in TEXT


def test_errors_by_line_and_by_system(tests):
    unseen, later = tests
    everything = recorded("leave_one_out")
    assert (len(unseen), len(later), everything["system"].nunique()) == (53, 16, 11)
    assert "Here are 69 published efficiencies of 11 systems" in TEXT and unseen["system"].nunique() == 7
    size = everything.groupby("system").size()
    assert (size.max(), sum(size == 1)) == (22, 3) and "One system has 22 of the lines, three have one each" in TEXT
    assert f"{later['error'].abs().median():.2f} points against {later['error of the mean'].abs().median():.2f}" in TEXT
    assert sum("Bugliarello" in source for source in later["source"]) == 14 and "14 of these 16 are from one" in TEXT
    large = everything[everything["ranks"] >= 64]
    for lines, words in (
        (everything, "{:.1f} ± {:.1f} points over all"),
        (later, "{:.1f} ± {:.1f} over those added later"),
        (large, "+{:.1f} ± {:.1f} from 64 GPUs on"),
    ):
        gain, interval = systems.compared(lines)
        assert abs(gain) < interval
        assert words.format(gain, interval).replace("-", "−") in TEXT
    nearer = large["error"].abs() < large["error of the mean"].abs()
    assert f"the model is nearer in {nearer.sum()} of {len(large)} lines" in TEXT
    constant = systems.by_system(everything)["error of the mean"].mean()
    assert f"one number for all is off by {constant:.1f} points" in TEXT
    assert 27 + 5 == 32 and "(32 of the lines were known when the model was made.)" in TEXT


def test_errors_of_some(tests):
    unseen, later = tests
    one = unseen[unseen["system"] == "DLPerf"]
    assert f"six programs: {one['published'].min():.0f} to {one['published'].max():.0f} %" in TEXT
    assert {f"{value:.0f}" for value in one["predicted"]} == {"91"} and "The model says 91 for all" in TEXT
    vgg = unseen[(unseen["system"] == "Horovod's benchmark") & (unseen["network"] == "VGG-16")]
    for column, words in (("published", "is at {:.0f} and {:.0f} %"), ("predicted", "sees it: {:.0f} and {:.0f} %")):
        assert words.format(*vgg[column]) in TEXT
    worst = later.loc[later["error"].abs().idxmax()]
    assert (worst["system"], worst["ranks"]) == ("Piz Daint", 128)
    assert f"{worst['predicted']:.0f} % predicted, {worst['published']:.0f} % published" in TEXT


def test_the_steps_of_piz_daint(tests):
    _, later = tests
    (line,) = [line for line in systems.LATER if line.cluster.name == "Piz Daint" and line.ranks == 128]
    alone = 64 / line.rate
    assert line.rate == 138.23 and f"{1e3 * 2 / 3 * alone:.0f} ms of backward pass" in TEXT
    network = networks.find("Inception V3")
    ready = overlap.ready_times([tensor.flops for tensor in network], 2 / 3 * alone)
    nbytes = [4.0 * tensor.elements for tensor in network]
    made = overlap.step(ready, nbytes, np.zeros_like, 64 * 2**20, 0.005)
    assert len(made.messages) == pytest.approx(50, abs=4) and "some 50 messages" in TEXT
    latency = 50 * allreduce.ring(128, 0.0, line.cluster.outer)
    assert latency < 2 / 3 * alone  # hidden
    published_at = later[later["system"] == "Piz Daint"].set_index("ranks")["published"]
    lost = alone * (100 / published_at - 1)
    assert 3.5 < lost[128] / lost[64] < 4.5


def test_the_spread_is_the_default_of_a_system():
    fitted = experiments.provenance(experiments.find()["leave_one_out"])["fitted_on_all"]
    (spread,) = re.findall(r"a spread of ([\d.]+)", fitted)
    link = systems.PCIE
    assert systems.System(1, 1, link, link, 1.0).straggler_spread == float(spread)


def test_the_table_is_that_of_the_lines(tests):
    for table, lines in zip(tests, (systems.LINES, systems.LATER)):
        assert list(table["published"]) == [round(100 * line.efficiency, 1) for line in lines]
        assert list(table["network"]) == [line.network for line in lines]
        again = [round(100 * systems.predicted(line, spread), 1) for line, spread in zip(lines, table["spread"])]
        assert list(table["predicted"]) == again


def test_one_minute():
    def seconds(ranks, images, algorithm, gigabits=100):
        link = Link(ALPHA, gigabits * 1e9 / 8)
        group = scaling.fewest_rounds(ranks)
        system = replace(TENCENT, inner=link, outer=link, group=group, algorithm=algorithm)
        made = predict(RESNET, system, ranks, images)
        return scaling.training_seconds(published.IMAGES, 90, ranks, images, made.step_seconds)

    perfect = 90 * published.IMAGES / 218
    assert round(perfect / 60, -2) == 8800 and "8,800 GPUs of 218 images/s" in TEXT
    assert seconds(8896, 64, "halving") <= 60 < seconds(8832, 64, "halving")
    assert round(64 * 8896, -4) == 570_000 and "The batch is 570,000 or more." in TEXT
    hybrid = [seconds(ranks, 65536 // ranks, "hybrid") for ranks in (2048, 4096, 8192, 16384)]
    assert hybrid == sorted(hybrid) and "more than 2,048 GPUs make the run *slower*" in TEXT
    assert f"8,192 GPUs take {seconds(8192, 8, 'halving') / 60:.1f} minutes" in TEXT
    faster = seconds(8192, 8, "halving", 400)
    assert faster == pytest.approx(perfect / 8192, rel=0.01) and f"{faster:.0f} s, which is perfect scaling" in TEXT


def test_stragglers_can_t_explain_the_loss():
    room = 64 / 218 / 0.992 - 64 / 218
    assert room / (32 / 218 + room) < 0.02 and "Stragglers can't explain a loss of 12 %" in TEXT
    assert stragglers.expected_maximum(stragglers.normal(0.01), 1024) > 1.03
