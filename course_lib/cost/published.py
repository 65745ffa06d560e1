"""Published runs on ImageNet, and what recomputes them.

The figures are those of "Training ImageNet in Four Minutes" (Jia et al. 2018, arXiv:1807.11205) and of its talk:
its tables 4, 5 and 9, figures 11 and 12. What other papers add is named at its line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from course_lib.cost import networks
from course_lib.cost.networks import Tensor
from course_lib.cost.scaling import System, fit, predict, training_seconds

IMAGES = 1_281_167  # in ImageNet's training set (ILSVRC 2012)
THROUGHPUT = {"single": 172.0, "mixed": 218.0}  # images/s of one Tesla P40, ResNet-50, 64 images (table 9)
EFFICIENCY = {64: 0.992, 32: 0.879}  # of 1,024 Tesla P40, ResNet-50, by images per GPU (figures 11 and 12)
SPEEDUP = {"AlexNet": 3.0, "ResNet-50": 11.0}  # over NCCL's rings on 1,024 GPUs, "up to" (abstract)


def tencent(threshold: float = System.threshold, **others: float) -> System:
    """The system that predicts 87.9 % with 32 images per GPU: α is fitted to that figure, and to no other."""
    resnet = networks.resnet50()

    def efficiency(alpha: float) -> float:
        return predict(resnet, 1024, 32, THROUGHPUT["mixed"], System(alpha, threshold=threshold, **others)).efficiency

    return System(fit(efficiency, EFFICIENCY[32], 0.0, 1e-3), threshold=threshold, **others)


@dataclass(frozen=True)
class Line:
    """A line of table 4 or 5, recomputed.

    rate: images/s of one device on its own; efficiency: of all of them together; minutes: as published;
    predicted: recomputed, None where the line itself is the input; source: what was put in, and from where.
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

    @property
    def error(self) -> float | None:
        """Of the prediction, relative to the published time."""
        return None if self.predicted is None else self.predicted / self.minutes - 1


def lines(system: System, seconds: Callable = training_seconds) -> list[Line]:
    """Tables 4 and 5, line by line.

    Args:
        system: what the lines of Jia et al. are predicted with.
        seconds: (examples, epochs, ranks, images per rank, seconds of a step) → seconds of the run.
    """
    resnet, alexnet = networks.resnet50(), networks.alexnet()
    p100 = _rate(90, 8, 29 * 60)
    knl = _rate(90, 1024, 42)
    work = operations(resnet) / operations(alexnet)  # an image of ResNet-50 in images of AlexNet
    p40, p40_alexnet = THROUGHPUT["mixed"], THROUGHPUT["mixed"] * work

    def ours(network: list[Tensor], devices: int, rate: float) -> float:
        return predict(network, devices, 65536 / devices, rate, system).efficiency

    rows = [
        (4, "You et al.", "AlexNet", 8, "P100", 512, 100, 370, p100 * work, 1.0, "rate of He et al., by FLOP"),
        (4, "You et al.", "AlexNet", 1024, "CPU", 32768, 100, 11, _rate(90, 1024, 48) * work, 1.0,
         "their ResNet-50, 48 min on 1,024 CPUs, by FLOP"),
        (4, "Jia et al.", "AlexNet", 512, "P40", 65536, 95, 5, p40_alexnet, ours(alexnet, 512, p40_alexnet),
         "218 images/s of ResNet-50, by FLOP; the model"),
        (4, "Jia et al.", "AlexNet", 1024, "P40", 65536, 95, 4, p40_alexnet, ours(alexnet, 1024, p40_alexnet),
         "218 images/s of ResNet-50, by FLOP; the model"),
        (5, "He et al.", "ResNet-50", 8, "P100", 256, 90, 29 * 60, p100, 1.0, "input: gives the rate of a P100"),
        (5, "Goyal et al.", "ResNet-50", 256, "P100", 8192, 90, 60, p100, 0.9,
         "rate of He et al.; their own 90 % from 8 to 256 GPUs"),
        (5, "Cho et al.", "ResNet-50", 256, "P100", 8192, 90, 50, p100, 1.0, "rate of He et al.; perfect scaling"),
        (5, "Codreanu et al.", "ResNet-50", 1024, "KNL", 32768, 90, 42, _rate(90, 1536, 28), 1.0,
         "their own 28 min on 104,448 cores, 68 in a KNL"),
        (5, "You et al.", "ResNet-50", 2048, "KNL", 32768, 90, 20, knl, 1.0,
         "rate of Codreanu et al., if 90 epochs there"),
        (5, "Akiba et al.", "ResNet-50", 1024, "P100", 32768, 90, 15, p100, 0.9,
         "rate of He et al.; ChainerMN's 90 % on 128 GPUs"),
        (5, "Jia et al.", "ResNet-50", 1024, "P40", 65536, 90, 8.7, p40, ours(resnet, 1024, p40),
         "218 images/s; the model"),
        (5, "Jia et al.", "ResNet-50", 2048, "P40", 65536, 90, 6.6, p40, ours(resnet, 2048, p40),
         "218 images/s, also with 32 images; the model"),
    ]  # fmt: skip
    made = []
    for table, team, network, devices, hardware, batch, epochs, minutes, rate, efficiency, source in rows:
        images = batch / devices
        time = seconds(IMAGES, epochs, devices, images, images / rate / efficiency) / 60
        predicted = None if source.startswith("input") else time
        made.append(
            Line(table, team, network, devices, hardware, batch, epochs, minutes, rate, efficiency, source, predicted)
        )
    return made


def operations(network: list[Tensor]) -> float:
    """Floating-point operations of a training step for one image: forward, and twice that backward."""
    return 3.0 * sum(tensor.flops for tensor in network)


def _rate(epochs: int, devices: int, minutes: float) -> float:
    """Images/s of one of the devices in a run over ImageNet."""
    return epochs * IMAGES / (devices * minutes * 60)
