"""Fit four weights in all processes, with PyTorch: torchrun --nproc-per-node 2 same_pytorch.py"""

import numpy as np
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()

x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
y = x @ np.float32([1, -2, 3, -4])
x, y = torch.from_numpy(x[rank::size]), torch.from_numpy(y[rank::size])

torch.manual_seed(rank)
line = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1, bias=False))
optimizer = torch.optim.SGD(line.parameters(), 0.1)
for _ in range(50):
    loss = ((line(x).squeeze(1) - y) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"rank {rank} of {size}: {line.module.weight.detach().numpy().round(3)}")
dist.destroy_process_group()
