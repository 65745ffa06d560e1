"""Horovod's step time by fusion threshold and cycle time: measured on two ranks, and predicted by a simulation.

ResNet-50's gradients become ready as a timer says, with a backward pass of 50, 150 or 300 ms, and Horovod reduces them.
The simulation's four parameters are fitted on the first two settings and on one message of 40 MB; all other settings
test it.
"""

from __future__ import annotations

from course_lib.cost import networks, overlap
from course_lib.notebook import experiments
from labs.lab4_communication.lessons import figures_4b, fused_steps

MIB = 2**20
STEPS = 10
BACKWARD_S = (0.05, 0.15, 0.3)
SETTINGS = {
    "1 MiB, 1 ms": (MIB, 0.001, "fit"),
    "128 MiB, 1 ms": (128 * MIB, 0.001, "fit"),
    "8 MiB, 1 ms": (8 * MIB, 0.001, "test"),
    "8 MiB, 20 ms": (8 * MIB, 0.02, "test"),
    "128 MiB, 20 ms": (128 * MIB, 0.02, "test"),
    "128 MiB, 60 ms": (128 * MIB, 0.06, "test"),
    "128 MiB, 200 ms": (128 * MIB, 0.2, "test"),
    "no fusion, 1 ms": (0, 0.001, "test"),
    "no fusion, 20 ms": (0, 0.02, "test"),
}


def measure() -> dict[str, list[fused_steps.Run]]:
    """The runs of each setting."""
    network = networks.resnet50()
    elements = [tensor.elements for tensor in network]
    jobs = [(elements, overlap.ready_times([tensor.flops for tensor in network], seconds)) for seconds in BACKWARD_S]
    runs = {}
    for name, (threshold, cycle, _) in SETTINGS.items():
        launched = jobs if runs else [*jobs, ([10_000_000], [0.0])]  # the single message tells β from the copying
        runs[name] = fused_steps.measure(launched, threshold, cycle, steps=STEPS)
        print(name, ", ".join(f"{run.typical:.3f} s" for run in runs[name]), flush=True)
    return runs


def main() -> experiments.Recording:
    runs = measure()
    machine = fused_steps.fit([runs[name] for name in SETTINGS if SETTINGS[name][2] == "fit"])
    table = fused_steps.compare(machine, runs, {name: used for name, (*_, used) in SETTINGS.items()})
    caption = f"ResNet-50's gradients, a timer for an accelerator · 2 ranks · {experiments.machine()}"
    return experiments.Recording(
        table.round(5).assign(error=(table["predicted"] / table["measured"] - 1).round(3)),
        figures_4b.predictions(table, caption),
        data="the sizes of ResNet-50's 161 gradients (102 MB) and one of 40 MB; 2 ranks, Gloo",
        seeds=f"none: {STEPS} steps for each row, their median and quartiles",
        fitted=machine,
    )
