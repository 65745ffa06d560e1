"""The assessment's reference solution in PyTorch, for `ddp.py`. torchrun starts it; it needs only torch and NumPy.

Network, recipe, batches and the order of images are those of assessment/reference/assessment.py. Gradients are views of
their buckets, and buffers are not broadcast on each step, as PyTorch recommends for speed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("arrays", type=Path, help="folder with x_train.npy, y_train.npy, x_test.npy, y_test.npy")
parser.add_argument("--epochs", type=int, required=True)
parser.add_argument("--batch-size", type=int, required=True)
parser.add_argument("--rate", type=float, required=True)
parser.add_argument("--layout", choices=("channels_last", "contiguous_format"), default="channels_last")
parser.add_argument("--bfloat16", action="store_true", help="use torch's autocast in the forward pass")
parser.add_argument("--compile", action="store_true", help="compile the network with torch.compile")
args = parser.parse_args()

# Pin to a core and set the scheduling as the course does for its ranks (see course_lib.ranks.rank), before Gloo
# starts its thread.
cores = sorted(os.sched_getaffinity(0))
os.sched_setaffinity(0, {cores[int(os.environ["LOCAL_RANK"]) % len(cores)]})
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.set_num_threads(1)
layout = getattr(torch, args.layout)

x, y = (np.load(args.arrays / f"{name}_train.npy") for name in "xy")
held_out = len(x) // 10
x = torch.from_numpy(x).permute(0, 3, 1, 2)
if args.layout == "contiguous_format":
    x = x.contiguous()
y = torch.from_numpy(y)
x, x_valid, y, y_valid = x[:-held_out], x[-held_out:], y[:-held_out], y[-held_out:]


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        blocks, before = [], 3
        for channels in (16, 32, 64, 128):
            convolution = nn.Conv2d(before, channels, 3, padding=1, bias=False)
            blocks += [convolution, nn.MaxPool2d(2), nn.BatchNorm2d(channels, eps=1e-3, momentum=0.2), nn.ReLU(True)]
            before = channels
        self.body, self.head = nn.Sequential(*blocks), nn.Linear(before, 10)
        for layer in self.modules():  # the initialisation of Keras
            if isinstance(layer, (nn.Conv2d, nn.Linear)):
                nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        scaled = images.to(torch.float32, memory_format=layout).mul_(1 / 64).sub_(2)
        return self.head(self.body(scaled).mean((2, 3)))


model = nn.parallel.DistributedDataParallel(
    Network().to(memory_format=layout), gradient_as_bucket_view=True, forward_sync_buffers=False
)
forward = torch.compile(model) if args.compile else model
steps = len(x) // (args.batch_size * size)
optimizer = torch.optim.SGD(model.parameters(), args.rate, momentum=0.9, nesterov=True)


def rate(step: int) -> float:
    """Return the learning rate of a step: warm-up over the first epoch, then cosine decay to 0."""
    high = args.rate * size
    if step < steps:
        return args.rate + (high - args.rate) * step / steps
    return high * (1 + math.cos(math.pi * (step - steps) / ((args.epochs - 1) * steps))) / 2


def accuracy(images: torch.Tensor, labels: torch.Tensor) -> float:
    model.eval()
    with torch.inference_mode():
        found = torch.cat([model.module(part).argmax(1) for part in images.split(500)])
    return float((found == labels).float().mean())


random = torch.Generator().manual_seed(torch.seed())
start = time.time()
step = 0
for epoch in range(args.epochs):
    model.train()
    mine = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))[rank::size]
    for batch in mine[: steps * args.batch_size].split(args.batch_size):
        images, flip = x[batch], torch.rand(len(batch), generator=random) < 0.5
        images = torch.where(flip[:, None, None, None], images.flip(3), images)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bfloat16):
            loss = nn.functional.cross_entropy(forward(images), y[batch])
        loss.backward()
        optimizer.step()
        step += 1
seconds = time.time() - start

valid = torch.tensor(accuracy(x_valid[rank::size], y_valid[rank::size]))
dist.all_reduce(valid)
if rank == 0:
    torch.save(model.module.state_dict(), os.environ["COURSE_WEIGHTS"])
ended = time.time()
if rank == 0:
    x_test, y_test = (torch.from_numpy(np.load(args.arrays / f"{name}_test.npy")) for name in "xy")
    x_test = x_test.permute(0, 3, 1, 2)
    test = accuracy(x_test, y_test)
    print(json.dumps({"seconds": seconds, "test_accuracy": test, "testing": time.time() - ended}))
dist.destroy_process_group()
