"""Run a PyTorch script as one of several processes, and note what it does.

    python torch_witness.py OUT IMAGES SCRIPT [ARG …]

OUT becomes a .npz with the weights before the first step (`start_0`, `start_1`, …), the first step's gradients as the
optimizer got them (`gradient_0`, …), the weights after the last step (`end_0`, …), the numbers of the `images` that
were read (of the data set that has IMAGES), how many processes had `met` at the first step and with which learning
`rate`, the number of `steps`, and for each `torch.save` whether names begin with `module.` (`saves`).
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import TensorDataset


class Witness:
    """What one process did."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.images: list[int] = []
        self.saves: list[bool] = []
        self.met = self.steps = 0
        self.rate = 0.0

    def watch(self, images: int) -> None:
        """Look at every optimizer, at each data set of so many images, and at `torch.save`."""
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)
        read, save = TensorDataset.__getitem__, torch.save

        def seen(dataset: TensorDataset, index: int) -> tuple:
            if len(dataset) == images:
                self.images.append(int(index))
            return read(dataset, index)

        def saved(thing: Any, *args: Any, **options: Any) -> None:
            names = list(thing) if isinstance(thing, dict) else []
            self.saves.append(any(str(name).startswith("module.") for name in names))
            save(thing, *args, **options)

        TensorDataset.__getitem__, torch.save = seen, saved

    def write(self, path: Path) -> None:
        """Everything, as one file."""
        facts = {"images": self.images, "saves": self.saves, "met": self.met, "rate": self.rate, "steps": self.steps}
        np.savez(path, **self.arrays, **{name: np.array(fact) for name, fact in facts.items()})

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        if not self.steps:
            self._keep("start", optimizer)
            for number, weight in enumerate(_weights(optimizer)):
                gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad
                self.arrays[f"gradient_{number}"] = gradient.detach().cpu().numpy().copy()
            together = torch.distributed.is_available() and torch.distributed.is_initialized()
            self.met = torch.distributed.get_world_size() if together else 1
            self.rate = float(optimizer.param_groups[0]["lr"])

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        self.steps += 1
        self._keep("end", optimizer)

    def _keep(self, name: str, optimizer: torch.optim.Optimizer) -> None:
        for number, weight in enumerate(_weights(optimizer)):
            self.arrays[f"{name}_{number}"] = weight.detach().cpu().numpy().copy()


def _weights(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


if __name__ == "__main__":
    out, images, script, *arguments = sys.argv[1:]
    witness = Witness()
    witness.watch(int(images))
    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        witness.write(Path(out))
