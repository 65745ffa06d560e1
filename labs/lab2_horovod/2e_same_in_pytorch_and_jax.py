# %% [markdown]
# # 2e The same in PyTorch and JAX
#
# You have trained on many ranks with Horovod and Keras. Most code that you will meet uses PyTorch, and some uses JAX.
# The ideas and the mistakes are the same. The names differ.
#
# **You will be able to** name each part of data-parallel training in PyTorch and JAX; convert a PyTorch script to
# `DistributedDataParallel`; say what FSDP and ZeRO divide and what they send; read code with meshes and shardings.
#
# **Time:** 40 minutes; the runs take about 5 seconds on 2 CPU cores.
#
# **Needs:** 2a and 2b. For the exercise PyTorch, which the course doesn't install.
#
# To install PyTorch, type `pip install "torch>=2.4"` in a terminal of the course. Without it you can read and run
# everything except the exercise. What this notebook says of PyTorch was tried with version 2.13, and what it says of
# JAX with version 0.10.2. `torch.distributed.tensor` is public since 2.5, `torch.distributed.fsdp.fully_shard` and
# `torch.accelerator` since 2.6.

# %%
import pandas as pd
from IPython.display import Code

from course_lib.cost import networks
from course_lib.notebook import predictions
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.report import Ticker
from course_lib.notebook.widgets.survey import Survey
from course_lib.ranks import launch
from labs.lab2_horovod.lessons.checks_2e import check

# %% [markdown]
# ## What Horovod is
#
# Horovod (Sergeev, Del Balso 2018) is a library beside the framework. The processes find each other with MPI or Gloo.
# In each process a background thread collects the gradients that are ready. The threads agree on an order, pack small
# gradients together, and all-reduce them with NCCL, MPI or Gloo. For the framework this is an optimizer that takes a
# little longer. Therefore one library serves TensorFlow, Keras, PyTorch and MXNet. Its PyTorch form reads like 2b:
#
# ```python
# import horovod.torch as hvd
#
# hvd.init()
# optimizer = torch.optim.SGD(model.parameters(), lr=0.05 * hvd.size(), momentum=0.9)
# optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
# hvd.broadcast_parameters(model.state_dict(), root_rank=0)
# hvd.broadcast_optimizer_state(optimizer, root_rank=0)
# ```
#
# (This is for reading: the course's Horovod is built for TensorFlow only.) The last release of Horovod is from 2023.
# PyTorch and JAX now contain the same functions, and new projects use those.
#
# ## A phrase book
#
# | what | Horovod with Keras | PyTorch, DDP | JAX |
# |---|---|---|---|
# | start and meet | `hvd.init()` | `dist.init_process_group()` | `jax.distributed.initialize()` |
# | who am I | `hvd.rank()`, `hvd.size()` | `dist.get_rank()`, … | `jax.process_index()`, … |
# | which device | `hvd.local_rank()` | `LOCAL_RANK` in `os.environ` | `jax.local_devices()` |
# | share the data | `dataset.shard(size, rank)` | `DistributedSampler`, `set_epoch` | each process loads its part |
# | average gradients | `DistributedOptimizer` | `DistributedDataParallel` | sharded data with `jit`, or `pmean` |
# | fusion, overlap | buffer of 128 MiB, a thread | buckets of 25 MiB, from hooks | by the compiler, XLA |
# | accumulate | `backward_passes_per_step` | `with model.no_sync():` | `lax.scan` over small batches |
# | the same start | broadcast callback | when the model is wrapped | the same key for all |
# | one rank saves | `if hvd.rank() == 0:` | `model.module.state_dict()`, by rank 0 | process 0 |
# | each rank saves its part | – | `torch.distributed.checkpoint` | Orbax |
# | shard weights and state | – | `fully_shard` (FSDP) | another sharding for the weights |
# | arrange the devices | process sets | `init_device_mesh` | `jax.make_mesh`, `jax.set_mesh` |
# | transport | NCCL, MPI, Gloo | NCCL, Gloo; MPI if built so | NCCL, Gloo; its own on TPUs |
# | launcher | `horovodrun`, `mpirun`, `srun` | `torchrun`, `srun` | `srun`, or one process a host |
#
# Three points matter:
#
# - **DDP wraps the model, Horovod wraps the optimizer.** DDP registers hooks on the gradients. When all gradients of a
#   bucket are ready, its all-reduce begins, during the backward pass. Only calls of the *wrapped* model are averaged.
# - **JAX wraps nothing.** You say on which devices an array lies: the data are split over the devices (a process may
#   have several), and each device has a copy of the weights. The mean over the batch is then a mean over all devices,
#   and the compiler inserts the all-reduce. With `shard_map` you write the program of one device yourself, and call
#   `jax.lax.pmean` in it.
# - **Padding.** `DistributedSampler` repeats a few images, so that all ranks have the same number. This is fine for
#   training. In an evaluation these images count twice.
#
# ### Predict
#
# DDP fills its buckets in the order in which gradients become ready: the first up to 1 MiB, so that sending begins
# early, the others up to 25 MiB. When you wrap a model, DDP does not know this order yet. ResNet-50 has 161 arrays of
# weights, 102 MB in all. How many messages does DDP send in the first step, and how many in the second?

# %% editable=true
predict("messages in the first step, ResNet-50 under DDP", None)
predict("messages in the second step, ResNet-50 under DDP", None)


# %%
def buckets(arrays, first=2**20, limit=25 * 2**20):
    """The bytes of each message. A bucket is full as soon as it has reached its limit."""
    messages, filled = [], 0
    for size in arrays:
        filled += size
        if filled >= (limit if messages else first):
            messages.append(filled)
            filled = 0
    return messages + [filled] * (filled > 0)


# The backward pass begins with the last layer.
arrays = [4 * tensor.elements for tensor in reversed(networks.resnet50())]
messages = {"first": buckets(arrays, first=float("inf")), "second": buckets(arrays)}
for step, sizes in messages.items():
    measured(f"messages in the {step} step, ResNet-50 under DDP", len(sizes))
    print(f"MB in the {step} step, in the order of sending:", [round(size / 1e6, 1) for size in sizes])

# %% [markdown]
# With its default arguments DDP makes *one* bucket at first. It sends the whole gradient at the end of the first
# backward pass, notes the order in which gradients became ready, and builds the buckets anew. (With
# `find_unused_parameters=True` it keeps the buckets that it made when it wrapped the model, in the reverse order of
# `model.parameters()`.) So do not judge a run by its first step.
#
# Why not a message for each array? Each message takes time to start; 4b measures how much. Why not one bucket in every
# step? It could not be sent before the backward pass has ended. DDP does not cut arrays, so a bucket may exceed its
# limit: the first holds the weights of the whole last layer, 8.2 MB. The last message overlaps with nothing, because
# the gradients of the first layers are ready when the backward pass ends.
#
# ## One problem, three scripts
#
# All ranks together fit four weights to 64 examples. Each rank has its own part of the examples. First Horovod, with a
# training loop of its own: [`same_horovod.py`](same_horovod.py).

# %%
Code(filename="same_horovod.py", language="python")


# %%
def run_it():
    with Ticker("two ranks") as ticker, launch.start("same_horovod.py", ranks=2, timeout=120) as run:
        for event in run:
            ticker.follow(event)
            if event.kind == "output" and event.data["stream"] == "stdout":
                print(event.data["text"])
        run.wait().check()


run_it()

# %% [markdown]
# The same in PyTorch. If PyTorch is installed, type `torchrun --nproc-per-node 2 same_pytorch.py` in a terminal.

# %%
Code(filename="same_pytorch.py", language="python")

# %% [markdown]
# The same in JAX. **You can't run it in the course's environment**: today's JAX needs a newer NumPy than the course's
# TensorFlow accepts. In an environment of its own (`pip install jax`), this command runs it in one process with two
# pretended devices:
#
#     XLA_FLAGS=--xla_force_host_platform_device_count=2 python same_jax.py

# %%
Code(filename="same_jax.py", language="python")

# %% [markdown]
# Where is the broadcast in each script, and what averages the gradient? Horovod has one line for each. PyTorch's `DDP`
# does both. Without it training runs without an error, and each process fits its own part. In JAX the loss *is* the
# mean over all examples, and the compiler inserts the all-reduce. Try it: remove `hvd.broadcast_variables` from
# `same_horovod.py` and run it again. The ranks then end with different weights: both take the same steps, so they stay
# as far apart as they started.
#
# ## Exercise: convert a PyTorch script
#
# [`fashion_mnist_torch.py`](fashion_mnist_torch.py) is 2b's script in plain PyTorch, with the same network and options.
# Convert it to DDP with the phrase book. `torchrun` sets `RANK`, `LOCAL_RANK`, `WORLD_SIZE`, `MASTER_ADDR` and
# `MASTER_PORT` for each process. The check starts two processes in the same way, over Gloo, with an odd number of
# images and different first weights. It compares their weights, the learning rate, the images that they read, who
# saves, and their gradients with those of *one* process that has both batches. Then it pretends that the script runs on
# a second host with two GPUs, as ranks 2 and 3, and looks which GPU each takes. Keep the `TensorDataset` and
# `torch.save`, and scale the learning rate as in 2b.
#
# You decide:
#
# - What shuffles the images now, and how does it know the epoch?
# - Which backend and which device work on GPUs *and* here?
# - Which names must the saved file contain, so that the serial network can load it?
#
# The exercise gives no points, because PyTorch is not part of the course's environment.
#
# <details><summary>Hint</summary>A <code>DataLoader</code> takes a sampler in place of <code>shuffle=True</code>.
# Let <code>torch.cuda.is_available()</code> decide between NCCL and Gloo. The wrapper has the original model as
# <code>module</code>.</details>

# %% instructor=true
from course_lib.authoring import conversions as scripts

scripts.write("fashion_mnist.py")
scripts.write("fashion_mnist_torch.py", folder=scripts.LAB2 / "pytorch")

# %%
check("fashion_mnist_torch.py")

# %% [markdown]
# In a terminal: `torchrun --nproc-per-node 2 fashion_mnist_torch.py --epochs 3`. If one process fails, it ends all.
#
# ## When the model doesn't fit: ZeRO and FSDP
#
# DDP and Horovod keep everything on every GPU. With Adam in float32 this is 16 bytes for each weight: 4 for the weight,
# 4 for its gradient, 8 for two moving averages. ZeRO (Rajbhandari et al. 2020) divides them among the $N$ GPUs, in
# three stages: stage 1 divides the optimizer's state, stage 2 also the gradients, stage 3 also the weights. In stage 3
# each layer's weights are gathered when they are needed, and freed afterwards.


# %%
def bytes_for_a_weight(stage, gpus):
    parts = {"weight": 4, "gradient": 4, "optimizer": 8}
    divided = {"optimizer": 1, "gradient": 2, "weight": 3}  # from which stage on
    return {name: size / (gpus if stage >= divided[name] else 1) for name, size in parts.items()}


names = {0: "DDP, Horovod", 1: "ZeRO 1", 2: "ZeRO 2", 3: "ZeRO 3"}
memory = pd.DataFrame({name: bytes_for_a_weight(stage, 8) for stage, name in names.items()}).T
memory["bytes for a weight, 8 GPUs"] = memory.sum(axis=1)
memory

# %% [markdown]
# Activations come on top. None of these stages divides them (1d counts them).
#
# PyTorch's FSDP (*fully sharded data parallel*) can do stage 3 or stage 2. `fully_shard` divides the weights of a
# module, and the optimizer then has only its part of them:
#
# ```python
# from torch.distributed.fsdp import fully_shard
#
# for layer in model:
#     fully_shard(layer)  # or fully_shard(layer, reshard_after_forward=False)
# fully_shard(model)
# optimizer = torch.optim.Adam(model.parameters())  # after fully_shard
# ```
#
# Before a layer computes, an all-gather fetches its weights. After its backward pass a reduce-scatter adds up the
# gradients, and each GPU gets its part. By default a layer's weights are freed after its forward pass. With
# `reshard_after_forward=False` they stay until the backward pass.
#
# ### Predict
#
# A ring all-reduce is a reduce-scatter and an all-gather (2a). In multiples of what a rank sends with DDP: how much
# does it send with `fully_shard` of each layer, by default and with `reshard_after_forward=False`?

# %% editable=true
predict("times DDP's bytes, fully_shard by default", None)
predict("times DDP's bytes, reshard_after_forward=False", None)

# %%
# Counted with PyTorch 2.13: one step of four linear layers on two processes. Bytes, in multiples of the model's.
traffic = pd.DataFrame(
    {
        "DDP": {"all-reduce": 1, "all-gather": 0, "reduce-scatter": 0},
        "fully_shard of each layer": {"all-reduce": 0, "all-gather": 2, "reduce-scatter": 1},
        "reshard_after_forward=False": {"all-reduce": 0, "all-gather": 1, "reduce-scatter": 1},
        "fully_shard of the model alone": {"all-reduce": 0, "all-gather": 1, "reduce-scatter": 1},
    }
).T
sent = 2 * traffic["all-reduce"] + traffic["all-gather"] + traffic["reduce-scatter"]
traffic["sent, times DDP's"] = sent / sent["DDP"]
for name, way in {"fully_shard by default": 1, "reshard_after_forward=False": 2}.items():
    measured(f"times DDP's bytes, {name}", float(traffic["sent, times DDP's"].iloc[way]))
traffic

# %% [markdown]
# - **Stage 3**, the default, fetches the weights twice, for the forward and for the backward pass. It sends half as
#   much again as DDP.
# - **Stage 2** is `reshard_after_forward=False`. It fetches the weights once and sends as much as DDP. Between the
#   passes every GPU has all weights, beside its part of them.
# - **`fully_shard(model)` alone** is a common mistake. All weights are then one group, which is gathered at once. For
#   the outermost module the default is not to free them after the forward pass.
#
# ## Meshes: arrays that know where they lie
#
# Data parallelism, FSDP and the divided layers of 7a have a common description. A **mesh** arranges the devices in a
# grid with named axes. Each array says along which axis of the mesh it is split or copied. In PyTorch such an array is
# a `DTensor`; `fully_shard` makes the weights `DTensor`s. This runs on two processes with `torchrun`:
#
# ```python
# import torch
# import torch.distributed as dist
# import torch.distributed.checkpoint as dcp
# from torch.distributed.device_mesh import init_device_mesh
# from torch.distributed.tensor import Replicate, Shard, distribute_tensor
#
# mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("data",))  # starts the process group, too
# weights = distribute_tensor(torch.arange(8.0), mesh, [Shard(0)])
# print(weights.to_local())  # four numbers in each process
# print(weights.sum().full_tensor())  # 28 in both: an all-reduce
#
# dcp.save({"weights": weights}, checkpoint_id="checkpoint")  # each process writes its part
# copied = distribute_tensor(torch.zeros(8), mesh, [Replicate()])
# dcp.load({"weights": copied}, checkpoint_id="checkpoint")  # now all eight in each process
# print(copied.to_local())
# dist.destroy_process_group()
# ```
#
# A **distributed checkpoint** is a folder. No process needs memory for the whole model, and the number of processes may
# change between `save` and `load`: each process reads the parts that it needs.
#
# In JAX every array has a sharding. In `same_jax.py`, replace `weights = copied` by `weights = split`: each of the two
# devices then has two of the four weights, and the compiler inserts what it needs to gather them. (The number of
# devices must divide the length of the axis that is split: three weights on two devices are an error.)
#
# In `same_jax.py` the compiler chooses the shardings of intermediate results. With **explicit sharding** they are part
# of the type, and `jax.set_mesh` sets the mesh for all that follows:
#
# ```python
# import jax
# import jax.numpy as jnp
# from jax.sharding import AxisType, PartitionSpec
#
# jax.set_mesh(jax.make_mesh((2,), ("data",), axis_types=(AxisType.Explicit,)))
# x = jax.device_put(jnp.ones((64, 4)), PartitionSpec("data"))
# print(jax.typeof(x))  # float32[64@data,4]
# print(jax.typeof(x @ jnp.ones(4)))  # float32[64@data]
# print(jax.typeof(jnp.matmul(x.T, x, out_sharding=PartitionSpec())))  # float32[4,4]
# ```
#
# `x.T @ x` raises a `ShardingTypeError`: both factors are split along the axis that is summed, and JAX does not guess
# whether the sum should be copied to all devices (all-reduce) or split (reduce-scatter). `out_sharding` says which.
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - Every framework has the same six parts: meet, choose a device, share the data, average the gradients, start with
#   equal weights, let one rank write.
# - Horovod wraps the optimizer, DDP the model. In JAX you say where arrays lie.
# - The silent mistakes are the same, too: gradients that are not averaged, data that are not shared, an order that
#   never changes. Only a comparison of the ranks shows them.
# - DDP sends one message in the first step, and buckets from the second step on.
# - DDP copies everything. ZeRO and FSDP divide it: `fully_shard` of each layer is stage 3 with half as much traffic
#   again, and `reshard_after_forward=False` is stage 2 with the traffic of DDP.
#
# - A. Sergeev, M. Del Balso: *Horovod: fast and easy distributed deep learning in TensorFlow.* arXiv:1802.05799
# - S. Li et al.: *PyTorch Distributed: Experiences on Accelerating Data Parallel Training.* arXiv:2006.15704
# - S. Rajbhandari et al.: *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models.* arXiv:1910.02054
# - Y. Zhao et al.: *PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel.* arXiv:2304.11277

# %% [markdown]
# ## How was this lab?
#
# From 1, not at all, to 5, entirely. *Save* writes your answers into `survey.csv` beside this notebook.

# %%
Survey()
