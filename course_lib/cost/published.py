"""Published runs on ImageNet, and predictions of their duration.

The numbers are from "Training ImageNet in Four Minutes" (Jia et al. 2018, arXiv:1807.11205) and its talk: tables 4, 5
and 9, figures 11 and 12. Other sources are named where they are used. `runs` has the runs of the tutorial of Pedram,
Lynch and Lauterbach (2018), slide "Pushing synchronous SGD farther", and two later ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from course_lib.cost import networks
from course_lib.cost.allreduce import Link
from course_lib.cost.cluster import System, predict
from course_lib.cost.networks import Tensor
from course_lib.cost.scaling import fit, training_seconds

IMAGES = 1_281_167  # in ImageNet's training set (ILSVRC 2012)
THROUGHPUT = {"single": 172.0, "mixed": 218.0}  # images/s of one Tesla P40, ResNet-50, 64 images (table 9)
EFFICIENCY = {64: 0.992, 32: 0.879}  # of 1,024 Tesla P40, ResNet-50, by images per GPU (figures 11 and 12)
K80_RATE = 29.7  # images/s of one K80, Inception V3, 64 images (TensorFlow's benchmarks, May 2017)
SPEEDUP = {"AlexNet": 3.0, "ResNet-50": 11.0}  # over NCCL's rings on 1,024 GPUs, "up to" (abstract)

BANDWIDTH = 12.5e9  # bytes/s of a server's link, 100 Gbit/s
THRESHOLD = 0.4e6  # bytes; chosen on SPEEDUP, see notebook 4c
ALEXNET_RATE = 790.0  # images/s of one P40: the minimum for 95 epochs in 5 minutes on 512 of them
PCIE = Link(5.7e-6, 12e9)  # PCIe 3 × 16: seconds per step of a ring and bytes/s in each direction, as NCCL assumes


def network(gigabits: float) -> Link:
    """A link between hosts: NCCL assumes 12 GB/s for 100 Gbit/s (src/graph/topo.h and tuning.cc of NCCL 2)."""
    return Link(14e-6, 0.96 * gigabits * 1e9 / 8)


def rings(alpha: float, fusion_bytes: float = THRESHOLD, itemsize: int = 4) -> System:
    """A cluster with a latency of `alpha` seconds for every message and links of 100 Gbit/s.

    The 8 GPUs of a server (assumed) have the same link to each other as to other servers. In each round of a ring one
    message leaves each server; in halving and doubling the messages of a server share its link. Groups of 16 have the
    fewest rounds for 1,024 ranks.
    """
    link = Link(alpha, BANDWIDTH)
    return System(
        8192, 8, link, link, THROUGHPUT["mixed"], cycle_seconds=0.0, fusion_bytes=fusion_bytes, at_least=True,
        straggler_spread=0.0, algorithm="hybrid", group=16, itemsize=itemsize,
    )  # fmt: skip


def tencent(threshold: float = THRESHOLD, itemsize: int = 4) -> System:
    """Tencent's cluster (Jia et al. 2018): α is fitted to the published efficiency of 87.9 % with 32 images per GPU."""

    def efficiency(alpha: float) -> float:
        return predict("ResNet-50", rings(alpha, threshold, itemsize), 1024, 32).efficiency

    return rings(fit(efficiency, EFFICIENCY[32], 0.0, 1e-3), threshold, itemsize)


@dataclass(frozen=True)
class Line:
    """A line of table 4 or 5, with a prediction.

    Attributes:
        minutes: published time.
        rate: images/s of one device alone.
        efficiency: of all devices together.
        source: the inputs of the prediction and where they come from.
        predicted: predicted minutes; None if the line itself is an input.
        accuracy: published top-1 accuracy on the validation set, in %.
    """

    table: int
    team: str
    network: str
    devices: int
    hardware: str
    batch: int
    epochs: int
    minutes: float
    rate: float
    efficiency: float
    source: str
    predicted: float | None
    accuracy: float | None = None

    @property
    def error(self) -> float | None:
        """Error of the prediction, relative to the published time."""
        return None if self.predicted is None else self.predicted / self.minutes - 1


def lines(system: System, seconds: Callable = training_seconds) -> list[Line]:
    """Tables 4 and 5, line by line.

    Args:
        system: the cluster for the lines of Jia et al.
        seconds: (examples, epochs, ranks, images per rank, seconds of a step) → seconds of the run.
    """
    resnet, alexnet = networks.resnet50(), networks.alexnet()
    p100 = _rate(90, 8, 29 * 60)
    knl = _rate(90, 1024, 42)
    work = operations(resnet) / operations(alexnet)  # ratio of the operations per image
    p40 = THROUGHPUT["mixed"]

    def ours(network: str, devices: int, rate: float) -> float:
        return predict(network, replace(system, images_per_second=rate), devices, 65536 / devices).efficiency

    rows = [
        (4, 58.8, "You et al.", "AlexNet", 8, "P100", 512, 100, 370, p100 * work, 1.0, "rate of He et al., by FLOP"),
        (4, 58.6, "You et al.", "AlexNet", 1024, "CPU", 32768, 100, 11, _rate(90, 1024, 48) * work, 1.0,
         "their ResNet-50, 48 min on 1,024 CPUs, by FLOP"),
        (4, 58.8, "Jia et al.", "AlexNet", 512, "P40", 65536, 95, 5, ALEXNET_RATE, ours("AlexNet", 512, ALEXNET_RATE),
         "input: 790 images/s are the least that 5 min need"),
        (4, 58.7, "Jia et al.", "AlexNet", 1024, "P40", 65536, 95, 4, ALEXNET_RATE, ours("AlexNet", 1024, ALEXNET_RATE),
         "790 images/s, from the line above; the model"),
        (5, 75.3, "He et al.", "ResNet-50", 8, "P100", 256, 90, 29 * 60, p100, 1.0, "input: gives the rate of a P100"),
        (5, 76.3, "Goyal et al.", "ResNet-50", 256, "P100", 8192, 90, 60, p100, 0.9,
         "rate of He et al.; their own 90 % from 8 GPUs on"),
        (5, 75.0, "Cho et al.", "ResNet-50", 256, "P100", 8192, 90, 50, p100, 1.0,
         "rate of He et al.; perfect scaling"),
        (5, 75.3, "Codreanu et al.", "ResNet-50", 1024, "KNL", 32768, 90, 42, _rate(90, 1536, 28), 1.0,
         "their own 28 min on 104,448 cores, 68 in a KNL"),
        (5, 75.4, "You et al.", "ResNet-50", 2048, "KNL", 32768, 90, 20, knl, 1.0,
         "rate of Codreanu et al., if 90 epochs there"),
        (5, 74.9, "Akiba et al.", "ResNet-50", 1024, "P100", 32768, 90, 15, p100, 0.9,
         "rate of He et al.; ChainerMN's 90 % on 128 GPUs"),
        (5, 76.2, "Jia et al.", "ResNet-50", 1024, "P40", 65536, 90, 8.7, p40, ours("ResNet-50", 1024, p40),
         "218 images/s; the model"),
        (5, 75.8, "Jia et al.", "ResNet-50", 2048, "P40", 65536, 90, 6.6, p40, ours("ResNet-50", 2048, p40),
         "218 images/s, also with 32 images; the model"),
    ]  # fmt: skip
    made = []
    for table, accuracy, team, network, devices, hardware, batch, epochs, minutes, rate, efficiency, source in rows:
        images = batch / devices
        time = seconds(IMAGES, epochs, devices, images, images / rate / efficiency) / 60
        predicted = None if source.startswith("input") else time
        what = table, team, network, devices, hardware, batch, epochs, minutes
        made.append(Line(*what, rate, efficiency, source, predicted, accuracy))
    return made


@dataclass(frozen=True)
class Run:
    """A published run that is not in tables 4 and 5.

    Attributes:
        batch, minutes, accuracy: None if not published; accuracy is top-1 in %.
        confirmed: a second source besides the slide; "" if there is none.
        predicted: predicted minutes; None if an input is missing.
        how: the inputs of the prediction, or the missing input.
    """

    year: int
    team: str
    network: str
    devices: str
    batch: int | None
    minutes: float | None
    accuracy: float | None
    confirmed: str
    predicted: float | None
    how: str


def runs() -> list[Run]:
    """Published runs with other networks, devices or schedules than in tables 4 and 5."""
    amazon = System(8, 16, PCIE, network(25), K80_RATE)
    amazon_rate = predict("Inception V3", amazon, 128, 32).images_per_second
    return [
        Run(2015, "FireCaffe", "GoogLeNet", "128 K20", 1024, 10.5 * 60, 68.3, "arXiv:1511.00175, abstract: 47 times",
            None, "no rate of a K20; 47 times one GPU, so 37 %"),
        Run(2016, "Intel (Das et al.)", "VGG-A", "128 Xeon E5", 512, None, None, "arXiv:1602.06709, abstract",
            None, "no time, no rate; 90 times one host, so 70 %"),
        Run(2016, "Google (Chen et al.)", "Inception V3", "200 K40", None, 22.94 * 60, None, "", None,
            "rate of a K40 and network are missing"),
        Run(2016, "Amazon (MXNet)", "Inception V3", "128 K80", None, 6.57 * 60, None, "",
            90 * IMAGES / amazon_rate / 60, "29.7 images/s (TensorFlow), the model, 90 epochs"),
        Run(2017, "SurfSara (Codreanu et al.)", "ResNet-50", "768 KNL", 12288, 40, None, "",
            28 * 1536 / 768, "their 28 min on 104,448 cores, perfect scaling"),
        Run(2017, "You et al.", "ResNet-50", "1,600 CPU", 16384, 31, None, "",
            48 * 1024 / 1600, "their own 48 min on 1,024 CPUs, perfect scaling"),
        Run(2018, "fast.ai", "ResNet-50", "128 V100", None, 18, None, "fast.ai, 10 August 2018: 93 % top-5",
            None, "images of several sizes, a batch that grows"),
        Run(2018, "Ying et al.", "ResNet-50", "1,024 TPU v3", None, 2.2, 76.3, "arXiv:1811.06992, abstract",
            90 * IMAGES / 1.05e6 / 60, "their own 1.05 million images/s, 90 epochs"),
        Run(2020, "Wongpanich et al.", "EfficientNet", "1,024 TPU v3 cores", 65536, 64, 83.0,
            "arXiv:2011.00071, abstract", None, "the rate of a core is missing"),
    ]  # fmt: skip


def by_device() -> dict[str, dict[str, tuple[int, float]]]:
    """Published runs of one network on one kind of device, from tables 4 and 5 and `runs`.

    "network, device" → team and devices → (devices, minutes), the fewest devices first.
    """
    return {
        "ResNet-50, P100": {
            "He et al.": (8, 29 * 60), "Goyal et al.": (256, 60), "Cho et al.": (256, 50), "Akiba et al.": (1024, 15),
        },
        "ResNet-50, Xeon Phi": {
            "Codreanu et al., 768": (768, 40), "Codreanu et al., 1,024": (1024, 42),
            "Codreanu et al., 1,536": (1536, 28), "You et al.": (2048, 20),
        },
        "ResNet-50, Xeon": {"You et al., 1,024": (1024, 48), "You et al., 1,600": (1600, 31)},
        "ResNet-50, P40": {"Jia et al., 1,024": (1024, 8.7), "Jia et al., 2,048": (2048, 6.6)},
        "AlexNet, P40": {"Jia et al., 512": (512, 5), "Jia et al., 1,024": (1024, 4)},
    }  # fmt: skip


def operations(network: list[Tensor]) -> float:
    """Floating-point operations of a training step for one image; the backward pass counts twice the forward pass."""
    return 3.0 * sum(tensor.flops for tensor in network)


def _rate(epochs: int, devices: int, minutes: float) -> float:
    """Images/s of one device, from the epochs, devices and minutes of a run on ImageNet."""
    return epochs * IMAGES / (devices * minutes * 60)
