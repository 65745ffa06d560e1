"""Run a PyTorch script as if its host had GPUs, up to the first backward pass, and note which GPUs it uses.

    python pretended_gpus.py OUT SCRIPT [ARG …]

The GPUs are those of CUDA_VISIBLE_DEVICES, and the process is rank RANK of a group of WORLD_SIZE processes. Neither
exists: tensors stay in the host's memory, and PyTorch's "fake" process group sends nothing. OUT becomes a JSON object:
`gpus`, the numbers of the GPUs to which weights and images were moved; `backend`, which was asked for; `failed`, the
exception that ended the script before that, or "".
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode
from torch.testing._internal.distributed.fake_pg import FakeStore


class Enough(BaseException):
    """The first backward pass is reached."""


class Host(TorchFunctionMode):
    """A host with GPUs, for what runs in this mode. What is moved to a GPU stays where it is, and the GPU is noted."""

    def __init__(self) -> None:
        super().__init__()
        self.used: set[int] = set()
        self.backend: str | None = None
        self._current = 0
        self._visible: list[int] = []

    def visible(self) -> list[int]:
        """The GPUs of this process. As with CUDA, the variable counts when it is first asked for."""
        if not self._visible:
            self._visible = [int(number) for number in os.environ["CUDA_VISIBLE_DEVICES"].split(",")]
        return self._visible

    def number(self, device: Any) -> int:
        """Of a device, a name like "cuda:1" or a number."""
        if isinstance(device, str):
            device = torch.device(device)
        index = getattr(device, "index", device)
        return self._current if index is None else int(index)

    def use(self, device: Any) -> None:
        """Note a GPU by its number on the host."""
        number, visible = self.number(device), self.visible()
        self.used.add(visible[number] if 0 <= number < len(visible) else number)

    def select(self, device: Any) -> None:
        """As `torch.cuda.set_device`."""
        self._current = self.number(device)

    def current(self) -> int:
        """As `torch.cuda.current_device`."""
        return self._current

    def __torch_function__(self, function: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        name, kwargs = getattr(function, "__name__", ""), dict(kwargs or {})
        if function is torch.device:  # it names a GPU, and moves nothing there
            return function(*args, **kwargs)
        if name == "cuda":
            self.use(args[1] if len(args) > 1 else kwargs.get("device"))
            return args[0]
        if name == "pin_memory":
            return args[0]
        if name == "to" and len(args) > 1 and type(args[1]) is int:
            args = (args[0], torch.device("cuda", args[1]), *args[2:])
        if type(kwargs.get("device")) is int:
            kwargs["device"] = torch.device("cuda", kwargs["device"])
        here = [self._at_home(value) for value in args]
        return function(*here, **{key: self._at_home(value) for key, value in kwargs.items()})

    def _at_home(self, value: Any) -> Any:
        if isinstance(value, str) and value.startswith("cuda"):
            value = torch.device(value)
        if not (isinstance(value, torch.device) and value.type == "cuda"):
            return value
        self.use(value)
        return torch.device("cpu")


def pretend(host: Host) -> None:
    """Replace what asks for GPUs and what starts processes' communication."""
    for module in (torch.cuda, getattr(torch, "accelerator", torch.cuda)):
        module.is_available = lambda: bool(host.visible())
        module.device_count = lambda: len(host.visible())
        module.synchronize = lambda *_: None
    torch.cuda.set_device, torch.cuda.current_device = host.select, host.current
    torch.cuda.get_device_name = lambda *_: "a pretended GPU"
    if hasattr(torch, "accelerator"):
        torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")
        torch.accelerator.set_device_index = torch.accelerator.set_device_idx = host.select
        torch.accelerator.current_device_index = torch.accelerator.current_device_idx = host.current
    start, wrap = dist.init_process_group, DistributedDataParallel.__init__

    def meet(backend: str | None = None, *_: Any, device_id: Any = None, **__: Any) -> None:
        host.backend = backend and str(backend)
        if device_id is not None:
            host.use(device_id)
        start("fake", rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"]), store=FakeStore())

    def wrapped(
        self: Any, module: Any, device_ids: Any = None, output_device: Any = None, *rest: Any, **more: Any
    ) -> None:
        for device in device_ids or ():
            host.use(device)
        wrap(self, module, None, None, *rest, **more)

    dist.init_process_group = dist.distributed_c10d.init_process_group = meet
    DistributedDataParallel.__init__ = wrapped


def run(script: str) -> dict[str, Any]:
    """What the script does up to its first backward pass."""

    def stop(*_: Any) -> None:
        raise Enough

    host, failed = Host(), ""
    pretend(host)
    torch.autograd.backward = torch.Tensor.backward = stop
    try:
        with host:
            runpy.run_path(script, run_name="__main__")
    except Enough:
        pass
    except BaseException as error:
        failed = f"{type(error).__name__}: {error}"
    return {"gpus": sorted(host.used), "backend": host.backend, "failed": failed}


if __name__ == "__main__":
    out, sys.argv = Path(sys.argv[1]), sys.argv[2:]
    out.write_text(json.dumps(run(sys.argv[0])), encoding="utf-8")
