# %% [markdown]
# # 2e The same in PyTorch and JAX
#
# You have trained on many ranks with Horovod and Keras. Most code that you will meet is written in PyTorch, some of it
# in JAX. The ideas are the same, and so are the mistakes; the names differ.
#
# **You will be able to** name each part of data-parallel training in PyTorch and JAX; convert a PyTorch script to
# `DistributedDataParallel`; and say what FSDP and ZeRO add to it.
#
# **Time:** 35 minutes; the runs take about 5 seconds on 2 CPU cores.
#
# **Needs:** 2a and 2b. For the exercise PyTorch, which the course doesn't install.
#
# To install PyTorch, type `pip install "torch>=2.4"` in a terminal of the course. Everything but the exercise can be
# read and run without it.

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
# Horovod (Sergeev, Del Balso 2018) is a library beside the framework. Processes find each other over MPI or Gloo, and a
# background thread in each of them collects the gradients that are ready, agrees with the others on an order, packs
# small ones together, and all-reduces them with NCCL, MPI or Gloo. The framework sees an optimizer that takes a little
# longer. So one library serves TensorFlow, Keras, PyTorch and MXNet. Its PyTorch form reads like 2b:
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
# (The course's Horovod is built for TensorFlow only, so this is for reading.) Its last release is of 2023. PyTorch and
# JAX now bring the same with them, and new projects use that.
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
# | one rank saves | `if hvd.rank() == 0:` | `model.module.state_dict()`, by rank 0 | by process 0, or Orbax by all |
# | shard the state | – | `fully_shard` (FSDP) | another sharding for the weights |
# | transport | NCCL, MPI, Gloo | NCCL, Gloo; MPI if built so | NCCL, Gloo; its own on TPUs |
# | launcher | `horovodrun`, `mpirun`, `srun` | `torchrun`, `srun` | `srun`, or one process a host |
#
# Three things to note:
#
# - **DDP wraps the model, Horovod wraps the optimizer.** DDP listens to the backward pass: as soon as the gradients of
#   a bucket are there, its all-reduce begins. So only calls of the *wrapped* model are averaged. The first bucket is
#   small (1 MiB), so that sending begins early.
# - **JAX wraps nothing.** You say where arrays lie: data split over the devices (a process may have several), weights
#   copied to all. The mean over the batch is then a mean over all devices, and the compiler inserts the all-reduce.
#   With `shard_map` you write each device's program yourself, and `jax.lax.pmean` in it.
# - **Padding.** `DistributedSampler` repeats a few images, so that all ranks have the same number. Good for training;
#   in an evaluation these images count twice.
#
# ### Predict
#
# ResNet-50 has 161 arrays of weights, 102 MB in all. How many messages does a step of DDP send with its usual buckets?

# %% editable=true
predict("messages in a step, ResNet-50 under DDP", None)


# %%
def buckets(arrays, first=2**20, limit=25 * 2**20):
    """The bytes of each message. A bucket is sent as soon as it has reached its limit."""
    messages, filled = [], 0
    for size in arrays:
        filled += size
        if filled >= (limit if messages else first):
            messages.append(filled)
            filled = 0
    return messages + [filled] * (filled > 0)


# The backward pass begins with the last layer.
messages = buckets([4 * tensor.elements for tensor in reversed(networks.resnet50())])
measured(
    "messages in a step, ResNet-50 under DDP",
    len(messages),
    too_large="With a message for each array much of the time would go into starting them: 4b measures how much.",
    too_small="One bucket for all could not be sent before the backward pass has ended.",
)
print("MB, in the order of sending:", [round(size / 1e6, 1) for size in messages])

# %% [markdown]
# No array is cut, so that a bucket may pass its limit: the first holds the whole last layer, 8.2 MB.
# What is sent last overlaps with nothing: the first layers' gradients are ready when the backward pass ends.
#
# ## One problem, three scripts
#
# Three weights are to be found from 64 examples, by all ranks together, each with its own half. First Horovod, with a
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
# The same in PyTorch. With PyTorch installed, type `torchrun --nproc-per-node 2 same_pytorch.py` in a terminal.

# %%
Code(filename="same_pytorch.py", language="python")

# %% [markdown]
# And in JAX. **It can't be run in the course's environment**, where JAX is not installed: today's JAX needs a newer
# NumPy than the course's TensorFlow takes. In an environment of its own (`pip install jax`; tried with 0.10.2), this
# runs it in one process on two pretended devices:
#
#     XLA_FLAGS=--xla_force_host_platform_device_count=2 python same_jax.py

# %%
Code(filename="same_jax.py", language="python")

# %% [markdown]
# Where is the broadcast in each, and what averages the gradient? Horovod has a line for either. PyTorch's `DDP` does
# both; without it training runs just the same, and each process fits its own half. In JAX the loss *is* the mean over
# all examples, and the compiler adds the all-reduce that this takes. Try it: take `hvd.broadcast_variables` out of
# `same_horovod.py` and run it again. The ranks then end on two sides of the solution: equal steps keep them exactly as
# far apart as they began.
#
# ## Exercise: convert a PyTorch script
#
# [`fashion_mnist_torch.py`](fashion_mnist_torch.py) is 2b's script in plain PyTorch, with the same network and options.
# Convert it to DDP, with the phrase book. `torchrun` sets `RANK`, `LOCAL_RANK`, `WORLD_SIZE`, `MASTER_ADDR` and
# `MASTER_PORT` for each process. The check starts two processes in the same way, over Gloo, with odd numbers of images
# and different first weights, and compares what the two did: their weights, their gradients with those of *one* process
# that has both batches, the learning rate, the images that they read, and who saved. Keep the `TensorDataset` and
# `torch.save`, and scale the learning rate as in 2b.
#
# Three decisions are yours: who shuffles now, and how does it know the epoch? Which backend and which device, so that
# the script runs on GPUs *and* here? And which names does the saved file have to have, so that the serial network can
# load it?
#
# The exercise gives no points, since PyTorch is not part of the course's environment.
#
# <details><summary>Hint</summary>A <code>DataLoader</code> takes a sampler in place of <code>shuffle=True</code>.
# <code>torch.cuda.is_available()</code> decides between NCCL and Gloo. The wrapped model holds the one inside as
# <code>module</code>.</details>

# %% instructor=true
from course_lib.authoring import conversions as scripts

scripts.write("fashion_mnist.py")
scripts.write("fashion_mnist_torch.py", folder=scripts.LAB2 / "pytorch")

# %%
check("fashion_mnist_torch.py")

# %% [markdown]
# In a terminal: `torchrun --nproc-per-node 2 fashion_mnist_torch.py --epochs 3`. It ends all processes when one fails.
#
# ## When the model doesn't fit: FSDP and ZeRO
#
# DDP, like Horovod, keeps everything on every GPU. With Adam and in float32 that is 16 bytes for each weight: 4 for the
# weight, 4 for its gradient, 8 for two averages. ZeRO (Rajbhandari et al. 2020) divides them among the $N$ GPUs, in
# stages: 1 the optimizer's state, 2 also the gradients, 3 also the weights, which are then gathered layer by layer when
# they are needed. PyTorch's FSDP (*fully sharded data parallel*) is stage 3. It sends half as much again as DDP: each
# layer's weights once forward, once backward, and its gradients.
#
# ### Predict
#
# On 8 GPUs, which share of DDP's 16 bytes is left on each GPU in stage 1, and which in stage 3?

# %% editable=true
predict("share of DDP's bytes, ZeRO stage 1, 8 GPUs", None)
predict("share of DDP's bytes, ZeRO stage 3, 8 GPUs", None)


# %%
def bytes_for_a_weight(stage, gpus):
    parts = {"weight": 4, "gradient": 4, "optimizer": 8}
    divided = {"optimizer": 1, "gradient": 2, "weight": 3}  # from which stage on
    return {name: size / (gpus if stage >= divided[name] else 1) for name, size in parts.items()}


names = {0: "DDP, Horovod", 1: "ZeRO 1", 2: "ZeRO 2", 3: "ZeRO 3, FSDP"}
memory = pd.DataFrame({name: bytes_for_a_weight(stage, 8) for stage, name in names.items()}).T
memory["in all"] = memory.sum(axis=1)
for stage in (1, 3):
    measured(
        f"share of DDP's bytes, ZeRO stage {stage}, 8 GPUs",
        float(memory["in all"][names[stage]] / memory["in all"]["DDP, Horovod"]),
        "Half of the bytes are Adam's averages; only what is divided shrinks with the number of GPUs.",
    )
memory

# %% [markdown]
# Activations come on top, and none of these stages divides them (1d counts them). In JAX all this is a matter of
# shardings: give the weights `PartitionSpec("data")` in place of `PartitionSpec()`, and the compiler gathers them when
# they are needed.
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - Meet, choose the device, share the data, average, start equal, one writer: the six are in every framework.
# - Horovod wraps the optimizer, DDP the model; JAX is told where arrays lie.
# - What goes silently wrong is the same, too: gradients that nobody averages, data that nobody shares, an order that
#   never changes. Only a comparison of ranks shows it.
# - DDP copies everything; ZeRO and FSDP divide it, and FSDP is ZeRO's third stage.
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
