"""What is examined, in order: each step with its time limit, its function, and what it builds on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module

from course_lib.command.doctor.gpu.host import Host
from course_lib.command.doctor.gpu.lines import Line

BUDGET_S = 15 * 60  # of all steps together: a step that the time no longer suffices for is not tested


@dataclass(frozen=True)
class Step:
    """One step.

    Attributes:
        name: of its function in the module `where`.
        title: what it does, for who waits.
        seconds: its time limit.
        on_cpu: what it does where there is no GPU; "" where it does nothing there.
        after: steps that must not have failed: without them it has nothing to say.
    """

    name: str
    where: str
    title: str
    seconds: float
    on_cpu: str
    after: tuple[str, ...] = ()

    def lines(self, host: Host) -> Iterator[Line]:
        """What it finds; imports its module."""
        return getattr(import_module(self.where), self.name)(host)


_MACHINE, _ONE, _ALL, _GRADING = (f"{__package__}.{name}" for name in ("machine", "one_rank", "all_ranks", "grading"))
_STACK, _RANKS = ("stack",), ("all_reduce",)
STEPS = (
    Step("driver", _MACHINE, "Driver, GPUs and shared memory", 60, "shared memory"),
    Step("stack", _MACHINE, "TensorFlow and Horovod, and what they were built for", 120, "versions"),
    Step("first_use", _MACHINE, "The first training step, and what is compiled for it", 180, "its seconds", _STACK),
    Step("optimizers", _ONE, "LARS, LARC, LAMB and NovoGrad: check values", 90, "all of it", _STACK),
    Step("loops", _ONE, "fit and a loop with a gradient tape", 120, "all of it", _STACK),
    Step("mixed_precision", _ONE, "Mixed precision and its loss scale", 120, "all of it", _STACK),
    Step("memory", _ONE, "Memory growth", 60, "", _STACK),
    Step("speed", _ONE, "Images and operations a second", 120, "of the processor", _STACK),
    Step("pinned", _ALL, "One GPU for each rank", 120, "", _STACK),
    Step("all_reduce", _ALL, "All-reduces by size", 270, "over Gloo", _STACK),
    Step("controllers", _ALL, "Equal ranks under each controller", 180, "all of it", _RANKS),
    Step("batch_norm", _ALL, "Batch norm across ranks", 90, "over Gloo", _RANKS),
    Step("timeline", _ALL, "Horovod's timeline", 90, "over Gloo", _RANKS),
    Step("scaling", _ALL, "Scaling, and equal weights after training", 240, "over Gloo", _RANKS),
    Step("elastic", _ALL, "Losing a rank", 120, "over Gloo", _RANKS),
    Step("slots", _GRADING, "GPUs for two assessments at a time", 30, "with cores"),
    Step("calibrate", _GRADING, "The assessment's calibration", 150, "all of it", _RANKS),
    Step("reference", _GRADING, "The assessment of the reference", 420, "on few images", _RANKS),
    Step("starter", _GRADING, "The assessment of the serial starter", 420, "on few images", _RANKS),
)
