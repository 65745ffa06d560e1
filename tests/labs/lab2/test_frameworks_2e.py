"""What notebook 2e says of PyTorch and JAX is what they do. CI has neither: these tests ran with 2.13 and 0.10.2."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest

from course_lib.cost import networks
from course_lib.system.paths import ROOT
from tests.labs import notebooks

needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
needs_jax = pytest.mark.skipif(find_spec("jax") is None, reason="JAX is not installed")
GRADIENTS = [tensor.elements for tensor in networks.resnet50()]
CELLS = {cell.source: cell for cell in notebooks.master("2e").cells}
BLOCKS = [
    block
    for cell in CELLS.values()
    if cell.markdown
    for block in re.findall(r"```python\n(.*?)```", cell.source, re.DOTALL)
]

DDP = """
import json, sys, torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

class Net(torch.nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.arrays = torch.nn.ParameterList(torch.nn.Parameter(torch.zeros(size)) for size in sizes)
    def forward(self, x):
        for array in self.arrays:
            x = x * (1 + array.sum())
        return x

def sent(state, bucket):
    messages.append(4 * bucket.buffer().numel())
    future = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future

dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
net, steps = torch.nn.parallel.DistributedDataParallel(Net(json.loads(sys.argv[1]))), []
net.register_comm_hook(None, sent)
for _ in range(2):
    messages = []
    net(torch.ones(1)).sum().backward()
    steps.append(messages)
print(json.dumps(steps))
"""

TRAFFIC = """
import collections, json, torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NAMES = {"allreduce_": "all-reduce", "_allgather_base_": "all-gather", "_reduce_scatter_base_": "reduce-scatter"}
class Count(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = NAMES.get(str(function).split(".")[1]) if str(function).startswith("c10d") else None
        if name:
            counted[name] += max(x.numel() for x in tree_leaves(args) if isinstance(x, torch.Tensor)) / 256
        return function(*args, **(kwargs or {}))

def layers(model, **how):
    for layer in model:
        fully_shard(layer, **how)
    return fully_shard(model, **how)

dist.init_process_group("gloo")
rows = {}
for name, wrap in {
    "DDP": torch.nn.parallel.DistributedDataParallel,
    "fully_shard of each layer": layers,
    "reshard_after_forward=False": lambda model: layers(model, reshard_after_forward=False),
    "fully_shard of the model alone": fully_shard,
}.items():
    model = wrap(torch.nn.Sequential(*[torch.nn.Linear(8, 8, bias=False) for _ in range(4)]))
    counted = collections.Counter()
    with Count():
        model(torch.ones(2, 8)).sum().backward()
    rows[name] = counted
if dist.get_rank() == 0:
    print(json.dumps(rows))
dist.destroy_process_group()
"""


def defined(name):
    """The function, or the value of the first assignment, of this name in the notebook."""
    for source, cell in CELLS.items():
        for node in [] if cell.markdown else ast.parse(source).body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                names = {}
                exec(ast.unparse(node), names)
                return names[name]
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == name:
                return node.value
    raise AssertionError(name)


def run(words, folder, **variables):
    """What Python prints."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", **variables}
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def on_two(program, folder):
    (folder / "program.py").write_text(program)
    return run(["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "program.py"], folder)


def test_a_bucket_is_sent_when_it_has_reached_its_limit():
    buckets = defined("buckets")
    assert buckets([1, 1, 3, 4, 2, 3], first=2, limit=5) == [2, 7, 5]
    messages = buckets([4 * size for size in reversed(GRADIENTS)])
    assert len(messages) == 5 and sum(messages) == pytest.approx(102e6, rel=0.01)
    assert f"the first holds the weights of the whole last layer, {messages[0] / 1e6:.1f} MB" in notebooks.text("2e")
    assert messages[0] == 4 * (2048 + 1) * 1000


def test_an_all_reduce_counts_as_two():
    table = {way: {kind: value.value for kind, value in zip(*entries(row))} for way, row in zip(*entries(traffic()))}
    sent = {way: 2 * row["all-reduce"] + row["all-gather"] + row["reduce-scatter"] for way, row in table.items()}
    assert np.array(list(sent.values())) / sent["DDP"] == pytest.approx([1, 1.5, 1, 1])


def traffic():
    """The dict of what was counted, as it stands in the notebook."""
    return defined("traffic").value.args[0]


def entries(node):
    return [key.value for key in node.keys], node.values


@needs_torch
@pytest.mark.slow
def test_ddp_sends_one_message_in_the_first_step_and_then_the_notebooks_buckets(tmp_path):
    sizes, buckets = [4 * size for size in reversed(GRADIENTS)], defined("buckets")
    steps = json.loads(run(["-c", DDP, json.dumps(GRADIENTS)], tmp_path))
    assert steps == [buckets(sizes, first=float("inf")), buckets(sizes)]


@needs_torch
@pytest.mark.slow
def test_what_fully_shard_sends(tmp_path):
    counted = json.loads(on_two(TRAFFIC, tmp_path))
    table = ast.literal_eval(ast.unparse(traffic()))
    assert counted == {way: {kind: times for kind, times in row.items() if times} for way, row in table.items()}


@needs_torch
@pytest.mark.slow
def test_the_code_with_a_mesh_runs(tmp_path):
    (block,) = [block for block in BLOCKS if "init_device_mesh" in block]
    said = on_two(block, tmp_path)
    for line, times in {"tensor([0., 1., 2., 3.])": 1, "tensor([4., 5., 6., 7.])": 1, "tensor(28.)": 2}.items():
        assert said.count(line) == times
    assert said.count("tensor([0., 1., 2., 3., 4., 5., 6., 7.])") == 2
    (block,) = [block for block in BLOCKS if "fully_shard(layer)" in block]
    begin = "import torch, torch.distributed as dist\ndist.init_process_group('gloo')\n"
    model = "model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))\n"
    on_two(f"{begin}{model}{block}dist.destroy_process_group()\n", tmp_path)


@needs_jax
@pytest.mark.slow
def test_explicit_shardings_are_as_the_comments_say(tmp_path):
    (block,) = [block for block in BLOCKS if "set_mesh" in block]
    two = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    assert run(["-c", block], tmp_path, **two).split("\n")[:3] == re.findall(r"# (float32\S+)", block)
    failing = f"{block}\ntry:\n    x.T @ x\nexcept Exception as error:\n    print(type(error).__name__)\n"
    assert "ShardingTypeError" in run(["-c", failing], tmp_path, **two)


@needs_jax
@pytest.mark.slow
@pytest.mark.parametrize("weights", ["copied", "split"])
def test_the_script_in_jax_runs_with_weights_that_are_copied_or_split(weights, tmp_path):
    script = (ROOT / "labs" / "lab2_horovod" / "same_jax.py").read_text()
    assert script.count("weights = copied\n") == 1
    changed = script.replace("weights = copied\n", f"weights = {weights}\n")
    said = run(["-c", changed], tmp_path, XLA_FLAGS="--xla_force_host_platform_device_count=2")
    assert "2 devices: [ 1. -2.  3. -4.]" in said
