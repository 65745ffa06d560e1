# %% [markdown]
# # 4b Fusion and overlap
#
# The simplest step computes first, then communicates. Real systems do better in two ways. They send a gradient while
# the backward pass still works on the next, and they pack small gradients into one message. The two are in conflict,
# because packing means waiting. Here you write both, and compare your simulation with real Horovod steps.
#
# **You will be able to** say which gradients are ready when; write tensor fusion with a threshold and a cycle time, and
# choose both; distinguish hidden from exposed communication; say what it costs to wait for the slowest of N ranks.
#
# **Time:** 70 minutes; the runs take about 90 seconds on 2 CPU cores; on GPUs they are not yet measured.
#
# **Needs:** the α–β model from 4a. No GPU: a timer replaces the ranks' accelerator.

# %%
import os
import time

import numpy as np
import pandas as pd
from IPython.display import Image, Pretty, display

from course_lib.cost import networks, stragglers
from course_lib.cost.allreduce import Link, ring
from course_lib.cost.overlap import ready_times
from course_lib.notebook import plots, predictions, widgets
from course_lib.notebook.predictions import measured, predict
from labs.lab4_communication.lessons import figures_4b as overlap
from labs.lab4_communication.lessons import fused_steps as fusion
from labs.lab4_communication.lessons.checks_4b import check, points

MB = 1e6
NETWORKS = {"ResNet-50": networks.resnet50(), "AlexNet": networks.alexnet()}
FLOPS = {name: np.array([tensor.flops for tensor in network]) for name, network in NETWORKS.items()}
BYTES = {name: np.array([4.0 * tensor.elements for tensor in network]) for name, network in NETWORKS.items()}

# %% [markdown]
# ## What is to be sent, and when
#
# Two networks of Jia et al. (2018) are computed layer by layer from their architectures. Every trainable array has a
# gradient of the same size: weights, biases, the scale and shift of each batch norm.
#
# The backward pass goes from the last layer to the first. It has twice the operations of the forward pass: once for the
# gradient of a layer's weights, once for that of its input. A gradient is ready when its layer is done.
#
# ### Predict
#
# ResNet-50 has 25.6 million weights in 161 arrays. What percentage of the arrays is smaller than 100 kB, and what
# percentage of the bytes do they have? What percentage of AlexNet's gradient is ready after a tenth of its backward
# pass?

# %% editable=true
predict("per cent of ResNet-50's arrays that are below 100 kB", None)
predict("per cent of its bytes that are in them", None)
predict("per cent of AlexNet's gradient that is ready after a tenth", None)

# %%
small = BYTES["ResNet-50"] < 0.1 * MB
early = ready_times(FLOPS["AlexNet"], 1) <= 0.1
measured("per cent of ResNet-50's arrays that are below 100 kB", 100 * small.mean())
print(f"{small.sum()} of {len(small)}; 106 of them belong to batch norms")
measured(
    "per cent of its bytes that are in them",
    100 * BYTES["ResNet-50"][small].sum() / BYTES["ResNet-50"].sum(),
)
measured(
    "per cent of AlexNet's gradient that is ready after a tenth",
    100 * BYTES["AlexNet"][early].sum() / BYTES["AlexNet"].sum(),
)
display(
    pd.DataFrame(
        {
            name: {
                "arrays": f"{len(network)}",
                "weights (millions)": f"{BYTES[name].sum() / 4e6:.1f}",
                "gradient (MB)": f"{BYTES[name].sum() / MB:.0f}",
                "forward, one image (10⁹ multiply-adds)": f"{FLOPS[name].sum() / 2e9:.2f}",
                "bytes for 1,000 multiply-adds": f"{BYTES[name].sum() / (FLOPS[name].sum() / 2e3):.0f}",
            }
            for name, network in NETWORKS.items()
        }
    )
)
overlap.gradients(
    {name: (BYTES[name], ready_times(FLOPS[name], 1)) for name in NETWORKS},
    "sizes and operations computed from the architectures; float32; image 224 × 224 and 227 × 227",
)

# %% [markdown]
# - **ResNet-50** has many small arrays. Two thirds of all arrays belong to batch norms and have 0.2 % of the bytes. As
#   a message of its own, each costs a full latency.
# - **AlexNet** has 96 % of its bytes in three dense layers. They are at the end of the network, so their gradients are
#   ready first, with nearly all of the backward pass still to come. But there are 13 times as many bytes for each
#   multiply-add: more to hide, and less to hide it behind.
#
# Take a ring of 256 ranks on a network with 5 µs for a message and 12.5 GB/s (100 Gbit/s). How long does ResNet-50's
# gradient take as 161 messages, and as one?

# %%
LINK = Link(latency=5e-6, bandwidth=12.5e9)
apart, together = ring(256, BYTES["ResNet-50"], LINK).sum(), ring(256, BYTES["ResNet-50"].sum(), LINK)
print(f"161 messages {1e3 * apart:.0f} ms, one message {1e3 * together:.0f} ms: {apart / together:.0f} times")

# %% [markdown]
# Each of the 161 messages has 510 latencies. But the one message can leave only after the backward pass, and then none
# of it is hidden.
#
# ## Tensor fusion
#
# In Horovod a background thread wakes up once in a **cycle** and takes all gradients that have become ready since. It
# packs them, in the order in which they became ready, into messages of at most **threshold** bytes.
# `HOROVOD_CYCLE_TIME` (1 ms) and `HOROVOD_FUSION_THRESHOLD` (128 MiB) set the two.
#
# A message is closed when the next gradient does not fit, or when the cycle has no more. A gradient larger than the
# threshold travels alone.
#
# ### Exercise: fuse
#
# <details><summary>Hint</summary><code>np.argsort(ready, kind="stable")</code> lists the indices by time. The cycle
# that takes a gradient begins at its time rounded <em>up</em> to a multiple of the cycle. For each gradient in order:
# does it fit into the last message, and does that message leave with the same cycle?</details>


# %% exercise="fuse"
def fuse(ready, nbytes, threshold, cycle):
    """Pack gradients into messages.

    ready: when each gradient is ready, [T], in seconds; nbytes: how many bytes it has, [T];
    threshold: the most bytes of a message with more than one gradient;
    cycle: a cycle begins at 0, cycle, 2·cycle, … seconds and takes what is ready by then, to the very moment.
    Returns a list of messages (moment, indices): when the cycle begins that sends it, in seconds, and the list of the
    gradients in it. Messages and gradients go in the order of `ready`, at equal times in that of the indices.
    """
    ### BEGIN SOLUTION
    messages, held = [], 0
    for tensor in np.argsort(ready, kind="stable"):
        moment = np.ceil(ready[tensor] / cycle) * cycle
        if not messages or messages[-1][0] != moment or held + nbytes[tensor] > threshold:
            messages.append((moment, []))
            held = 0
        messages[-1][1].append(tensor)
        held += nbytes[tensor]
    return messages
    ### END SOLUTION


# %%
check(fuse)

# %% hidden="fuse" points=5
### BEGIN HIDDEN TESTS
points(fuse, 5)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise: send
#
# The messages share one network. A message starts when the one before it has ended, and not before its own moment.
#
# <details><summary>Hint</summary>Remember, from one message to the next, when the network is free again.</details>


# %% exercise="send"
def send(messages, nbytes, all_reduce):
    """When each message travels.

    messages: as from `fuse`; nbytes: bytes of each gradient, [T];
    all_reduce: a function, bytes of a message → seconds that its all-reduce takes.
    Returns a list of (start, end) in seconds, one for each message.
    """
    ### BEGIN SOLUTION
    times, free = [], 0.0
    for moment, tensors in messages:
        start = max(moment, free)
        free = start + all_reduce(sum(nbytes[tensor] for tensor in tensors))
        times.append((start, free))
    return times
    ### END SOLUTION


# %%
check(send)

# %% hidden="send" points=3
### BEGIN HIDDEN TESTS
points(send, 3)
### END HIDDEN TESTS

# %% [markdown]
# ## A step over time
#
# The time of the computation is published (Jia et al. 2018): a Tesla P40 trains ResNet-50 with batches of 64 at 172
# images a second. A step takes 372 ms, a third of it forward, two thirds backward. For AlexNet assume the same
# operations a second and 128 images.
#
# Move one slider at a time, and answer:
# 1. With which threshold and cycle is all but the last message hidden on 64 ranks?
# 2. What does a cycle of 100 ms change, and why?
# 3. What is in AlexNet's first message with a threshold of 64 MB? Below which bandwidth are the next messages too long
#    to hide?
#
# <details><summary>What you should have found</summary>
#
# 1. Many do it, for example 64 MB and 5 ms: of 44 messages only the last is exposed, and the ranks wait 2.6 ms.
# 2. Five messages are left, and the ranks wait 53 ms, but not for the wire: the last message takes less than a
#    millisecond. The backward pass ends after 248 ms, and the next cycle begins at 300.
# 3. The bias of the last layer, 4 kB, which is ready at once. The three dense layers follow within 7 ms. Below about
#    6.5 GB/s the 235 MB of their weights need longer than the backward pass, and all that follows is late.
#
# </details>

# %%
RATE = 172 * 3 * FLOPS["ResNet-50"].sum()  # operations a second, forward and backward
BATCH = {"ResNet-50": 64, "AlexNet": 128}
FORWARD = {name: BATCH[name] * FLOPS[name].sum() / RATE for name in NETWORKS}
BACKWARD = {name: 2 * seconds for name, seconds in FORWARD.items()}
READY = {name: ready_times(FLOPS[name], BACKWARD[name]) for name in NETWORKS}


def simulate(network, threshold, cycle, ranks, link=LINK, late=0.0):
    """Start and end of each message, [M, 2], by your fuse and send; the backward pass begins `late` after a cycle."""
    messages = fuse(READY[network] + late, BYTES[network], threshold, cycle)
    return np.array(send(messages, BYTES[network], lambda nbytes: ring(ranks, nbytes, link))) - late


def timeline(network, threshold, cycle, ranks, bandwidth):
    times = simulate(network, threshold * MB, cycle / 1e3, ranks, Link(LINK.latency, 1e9 * bandwidth))
    caption = (
        f"simulated with your fuse and send · {network}, {BATCH[network]} images a rank at a P40's speed · ring of "
        f"{ranks} ranks, 5 µs a message, {bandwidth:.3g} GB/s"
    )
    return overlap.step(FORWARD[network], BACKWARD[network], times, caption)


widgets.explore(
    timeline,
    network=widgets.choice("network", list(NETWORKS)),
    threshold=widgets.slider("threshold (MB)", -2, 2.5, 64.0, log=True),
    cycle=widgets.slider("cycle (ms)", -1, 2.5, 5.0, log=True),
    ranks=widgets.slider("ranks", 2, 2048, 256),
    bandwidth=widgets.slider("bandwidth (GB/s)", -0.5, 2, 12.5, log=True),
)

# %% [markdown]
# ## Which threshold, which cycle?
#
# ### Predict
#
# ResNet-50 on 1,024 ranks of that network: at which cycle time, in ms, do the ranks wait least at the end of a step?
# (The backward pass may begin at any moment of a cycle. Each point below is a mean over eight such moments.)

# %% editable=true
predict("ms of the cycle with the least waiting, ResNet-50, 128 MB", None)

# %%
CYCLES = np.geomspace(1e-4, 0.3, 36)
PHASES = (np.arange(8) + 0.5) / 8
THRESHOLDS = {"no fusion": 0, "1 MB": 1 * MB, "16 MB": 16 * MB, "128 MB": 128 * MB}


def waiting(network, threshold, cycle, ranks=1024):
    """Seconds from the end of the backward pass to that of the last message, a mean over when in a cycle it begins."""
    ends = [simulate(network, threshold, cycle, ranks, late=part * cycle)[-1, 1] for part in PHASES]
    return np.mean(np.maximum(0, np.subtract(ends, BACKWARD[network])))


def sweep():
    curves = {
        name: {label: [waiting(name, size, cycle) for cycle in CYCLES] for label, size in THRESHOLDS.items()}
        for name in NETWORKS
    }
    best = CYCLES[np.argmin(curves["ResNet-50"]["128 MB"])]
    measured(
        "ms of the cycle with the least waiting, ResNet-50, 128 MB",
        1e3 * best,
    )
    caption = "simulated with your fuse and send · ring of 1,024 ranks, 5 µs a message, 12.5 GB/s · a P40's speed"
    ticks = [0.1, 1, 10, 100]
    return overlap.waiting(1e3 * CYCLES, curves, "cycle time (ms)", ticks=ticks, caption=caption)


sweep()

# %% [markdown]
# - **Left of the best cycle** messages are small and many. Their latencies queue up, and the queue is still there when
#   the backward pass ends. On 1,024 ranks every message takes at least 10 ms.
# - **Right of it** the last gradients wait for their cycle, on average half of one.
# - **The threshold** limits the size of a message, and so sets the least number of messages. If it is too small, no
#   cycle time helps. A very large one does no harm *here*, because the cycle ends a message long before.
# - The best cycle is about as long as one message.
#
# ## What overlap hides, and what it can't
#
# Compare three ways: all gradients in one message after the backward pass; every gradient at once and alone; and fusion
# with overlap, at the best of many settings.


# %%
def least(network, ranks):
    """The least waiting that some threshold and cycle time allow, in seconds."""
    return min(waiting(network, size, cycle, ranks) for size in (16 * MB, 128 * MB, 1000 * MB) for cycle in CYCLES[::2])


def ways():
    ranks = [2, 8, 32, 128, 512, 2048]
    curves = {
        name: {
            "one message at the end": [ring(n, BYTES[name].sum(), LINK) for n in ranks],
            "overlap, no fusion": [waiting(name, 0, 1e-4, n) for n in ranks],
            "overlap and fusion": [least(name, n) for n in ranks],
        }
        for name in NETWORKS
    }
    compute = {name: FORWARD[name] + BACKWARD[name] for name in NETWORKS}
    caption = "simulated with your fuse and send · ring, 5 µs a message, 12.5 GB/s · a P40's speed"
    return overlap.waiting(ranks, curves, "number of ranks", ticks=ranks, compute=compute, caption=caption)


ways()

# %% [markdown]
# Three things can't be hidden:
#
# 1. **The last message.** The first layer's gradient is ready when the computation ends. It still waits for a cycle and
#    takes a full latency.
# 2. **More than fits.** Communication that is longer than the backward pass is exposed. AlexNet's 244 MB take 39 ms on
#    this network, and there are 88 ms to hide them behind. With a fifth of the bandwidth no cycle would help.
# 3. **Latency times messages.** Fusion reduces the number of messages, a hierarchical all-reduce or halving (4a) the
#    rounds of each.
#
# The model leaves out that an all-reduce takes some of the memory's bandwidth from the computation on a GPU, and whole
# cores on a CPU.

# %% [markdown] tags=["further"]
# ## Layer by layer, with a fixed batch

# %% [markdown]
# If the whole batch is fixed, more ranks divide it. A slide of Pedram et al. (2018), after Lee et al. (2017), shows the
# parts of a step's time for VGG with a mini-batch of 256. Here your simulation computes them: VGG-16, 256 images in
# all, each gradient sent at once and alone.
#
# ### Predict
#
# On the same network, of 8 to 256 ranks: with how many is a step shortest? Which layer's all-reduce is the longest?

# %% editable=true
predict("ranks of the shortest step, 8 to 256", None)
predict("VGG-16's layer with the longest all-reduce: conv1_1 … conv5_3, fc6, fc7, fc8", None)

# %%
VGG = networks.vgg16()
VGG_LAYERS = [tensor.name.partition("/")[0] for tensor in VGG]
VGG_FLOPS = np.array([tensor.flops for tensor in VGG])
VGG_BYTES = np.array([4.0 * tensor.elements for tensor in VGG])


def vgg_step(ranks, batch=256):
    """Seconds of a step's parts, in their order; the ranks wait for what overlap does not hide."""
    forward = batch / ranks * VGG_FLOPS.sum() / RATE
    messages = fuse(ready_times(VGG_FLOPS, 2 * forward), VGG_BYTES, 0, 1e-5)
    _, end = send(messages, VGG_BYTES, lambda nbytes: ring(ranks, nbytes, LINK))[-1]
    return {"forward": forward, "backward": 2 * forward, "waiting": max(0, end - 2 * forward)}


def split(at=64, counts=(8, 16, 32, 64, 128, 256)):
    steps = pd.DataFrame({ranks: vgg_step(ranks) for ranks in counts}).T
    forward = steps["forward"][at] * VGG_FLOPS / VGG_FLOPS.sum()
    parts = pd.DataFrame({"forward": forward, "backward": 2 * forward, "all-reduce": ring(at, VGG_BYTES, LINK)})
    layers = parts.groupby(VGG_LAYERS, sort=False).sum()
    measured(
        "ranks of the shortest step, 8 to 256",
        steps.sum(axis=1).idxmin(),
    )
    measured(
        "VGG-16's layer with the longest all-reduce: conv1_1 … conv5_3, fc6, fc7, fc8",
        layers["all-reduce"].idxmax(),
    )
    caption = "simulated with your fuse and send · 256 images in all · ring, 5 µs a message, 12.5 GB/s · a P40's speed"
    return overlap.breakdown(layers, steps, f"layers of VGG-16 on {at} ranks (ms)", caption)


split()

# %% [markdown]
# Different layers compute and send. The convolutions have 99 % of the operations and 11 % of the bytes. The first dense
# layer, fc6, has three quarters of the bytes. Its gradient is sent while the convolutions still compute.
#
# More ranks divide the computation, but each sends as many bytes. Up to 32 ranks the backward pass is long enough to
# hide the all-reduces, 96 ms. With 64 a step takes 137 ms, and 49 of them are waiting; with 256 ranks, one image each,
# it takes as long as with 32. That is why data parallelism needs the large batches of lab 3.

# %% [markdown]
# ## Horovod on this machine
#
# Does a real step follow such a model? Two real ranks reduce ResNet-50's 161 gradients, 102 MB, with Horovod. Their
# *accelerator* is a timer. It hands over each gradient when it would be ready, and until then the processor is free to
# communicate, as it is beside a GPU (`labs.lab4_communication.lessons.fused_steps`).
#
# One thing differs from your simulation. On a CPU, Horovod's thread carries out the all-reduces *itself*, and the next
# cycle waits for them. (With NCCL the GPU does the all-reduces, and cycles continue.) The model has four parameters: α
# for a message, β for a byte, a copy for each byte that passes the fusion buffer, and the *negotiation*: once in a
# cycle the ranks agree on what is ready on all of them.
#
# They are **fitted** on steps at two settings, with thresholds of 1 and 128 MiB, and on a single message of 40 MB that
# is never copied. They are **tested** on two other settings.
#
# ### Predict
#
# The reference is a step with 128 MiB, a cycle of 1 ms and 100 ms of backward pass. Is a step longer, shorter or the
# same (within 3 %) with a cycle of 60 ms? And without fusion?

# %% editable=true
predict("a cycle of 60 ms: longer, shorter, the same", None)
predict("no fusion: longer, shorter, the same", None)

# %%
MIB = 2**20
SETTINGS = {
    "1 MiB, 1 ms": (1 * MIB, 0.001, "fit"),
    "128 MiB, 1 ms": (128 * MIB, 0.001, "fit"),
    "128 MiB, 60 ms": (128 * MIB, 0.06, "test"),
    "no fusion, 1 ms": (0, 0.001, "test"),
}
QUICK = "COURSE_SLICE" in os.environ
STEPS, ROUNDS = (2, 1) if QUICK else (4, 2)
ELEMENTS = [tensor.elements for tensor in NETWORKS["ResNet-50"]]
JOBS = [(ELEMENTS, ready_times(FLOPS["ResNet-50"], backward)) for backward in ((0.1,) if QUICK else (0.1, 0.3))]
LARGE = ([10_000_000], [0.0])  # it tells β from the copying


def run_all():
    """The measured runs of each setting, all settings in turns, round after round."""
    jobs = {name: JOBS if number else [*JOBS, LARGE] for number, name in enumerate(SETTINGS)}
    turns = [name for _ in range(ROUNDS) for name in SETTINGS]
    status, rounds, began = display(Pretty(""), display_id=True), {name: [] for name in SETTINGS}, time.time()
    for number, name in enumerate(turns):
        left = (
            f"about {(time.time() - began) / number * (len(turns) - number):.0f} s left" if number else "a minute or so"
        )
        status.update(Pretty(f"run {number + 1} of {len(turns)}: {name}; {left}"))
        threshold, cycle, _ = SETTINGS[name]
        rounds[name].append(fusion.measure(jobs[name], threshold, cycle, steps=STEPS))
    status.update(Pretty("measured"))
    print(fusion.steadiness(rounds))
    return {name: fusion.joined(measured) for name, measured in rounds.items()}


runs = run_all()
for setting, name in (("128 MiB, 60 ms", "a cycle of 60 ms"), ("no fusion, 1 ms", "no fusion")):
    times = runs[setting][0].typical / runs["128 MiB, 1 ms"][0].typical
    measured(
        f"{name}: longer, shorter, the same",
        "the same" if 0.97 < times < 1.03 else "longer" if times > 1 else "shorter",
    )
pd.DataFrame(
    {"a step with a backward pass of 100 ms (ms)": {name: round(1e3 * runs[name][0].typical) for name in SETTINGS}}
)

# %%
machine = fusion.fit([runs[name] for name in SETTINGS if SETTINGS[name][2] == "fit"])
table = fusion.compare(machine, runs, {name: used for name, (*_, used) in SETTINGS.items()})
print(
    f"this machine: {1e3 * machine.alpha:.2f} ms a message, {1e9 * machine.beta:.2f} ms a megabyte and "
    f"{1e9 * machine.copy:.2f} ms for copying it, {1e3 * machine.negotiation:.2f} ms to negotiate"
)
errors = (table["predicted"] / table["measured"] - 1)[table["used"] == "test"].groupby(table["setting"])
print("largest error:", ", ".join(f"{name} {error.abs().max():.0%}" for name, error in errors))
overlap.predictions(table, plots.provenance("ResNet-50's gradients, a timer for an accelerator", 2))

# %% [markdown]
# If the line above says that the machine is steady:
#
# - **With a cycle of 60 ms** a step is longer by up to 60 ms, because the last gradients wait for their cycle.
# - **Without fusion** there are 161 messages in place of 5 or so. They take about as long as the backward pass, which
#   hides most of them.
#
# On a busy machine the settings can change places. The figure below was recorded on a quiet machine: nine settings,
# with backward passes of 50, 150 and 300 ms. Again only the first two were fitted. Of the 21 predictions half are off
# by less than 4 %, the worst by 28 %.
#
# - **A little fusion is best.** With a backward pass of 50 ms a step takes 89 ms with 1 MiB, 103 ms with 128 MiB, 116
#   ms without fusion. With a backward pass of 150 ms all are hidden.
# - **Long cycles are where the model fails.** Its worst three are cycles of 60 and 200 ms: it does not know when in a
#   cycle the step begins. Elsewhere it is up to 13 % off, mostly too quick.
#
# `course reproduce fusion` makes the figure again in about 3 minutes.

# %%
Image("recorded/fusion.png", width=plots.WIDTH)

# %% [markdown]
# ## The slowest of N ranks
#
# So far every rank was equally fast. In *bulk-synchronous* training all ranks wait for the slowest in every step. Let a
# rank's time for a step be random. It is done by time $t$ with probability $F(t)$, independently of the others. What is
# the mean time of a step?
#
# ### Predict
#
# Step times are normal, with a standard deviation of 5 % of the mean. How many per cent of the time do 2,048 ranks
# compute, on average? And if the 5 % come from rare interruptions of random (exponential) length?

# %% editable=true
predict("per cent of the time that 2,048 ranks compute, normal", None)
predict("per cent of the time that 2,048 ranks compute, exponential", None)

# %% [markdown]
# ### Exercise: the slowest
#
# Answer two questions first. With which probability are *all* done by t? And how do you get the mean of a positive
# random time from the probability that it is still running at t?
#
# <details><summary>Hint</summary>The second: take many steps, and add up over all moments the share of steps that still
# run. The trapezoidal rule: between two neighbouring times, the width (<code>np.diff</code>) times the mean of the two
# heights (<code>x[1:]</code> and <code>x[:-1]</code>).</details>


# %% exercise="slowest"
def slowest(cumulative, times, ranks):
    """The expected time of the slowest rank.

    cumulative: F at each of the times, [n]: the probability that a rank is done by then; times: [n], in seconds, from
    0 to where everyone is done, not always evenly spaced; ranks: N.
    Returns E[max] in seconds, a float: integrate by the trapezoidal rule.
    """
    ### BEGIN SOLUTION
    running = 1 - cumulative**ranks
    return np.sum(np.diff(times) * (running[1:] + running[:-1]) / 2)
    ### END SOLUTION


# %%
check(slowest)

# %% hidden="slowest" points=4
### BEGIN HIDDEN TESTS
points(slowest, 4)
### END HIDDEN TESTS

# %% [markdown]
# All $N$ are done by $t$ with probability $F(t)^N$, and the mean is the integral of the probability that at least one
# still works:
#
# $$\mathrm{E}[\max] = \int_0^\infty \big(1 - F(t)^N\big)\, dt$$
#
# The figure compares your formula (lines) with a simulation (marks).

# %%
RANKS = [1, 2, 4, 16, 64, 256, 1024, 2048]
TIMES = np.concatenate([np.linspace(0, 4, 2001), np.geomspace(4, 100, 200)[1:]])


def race(spread):
    """`spread`: the standard deviation in % of the mean."""
    results = {}
    for distribution in (stragglers.normal, stragglers.lognormal, stragglers.exponential):
        step = distribution(spread / 100)
        formula = [slowest(step.cumulative(TIMES), TIMES, ranks) for ranks in RANKS]
        drawn = [stragglers.simulate(step, ranks, steps=40, seed=ranks).max(1).mean() for ranks in RANKS]
        results[step.name] = formula, drawn
    caption = f"random step times, standard deviation {spread:g} % of the mean · marks: mean of 40 simulated steps"
    return overlap.stragglers(RANKS, results, caption)


widgets.explore(race, spread=widgets.slider("standard deviation (%)", 1.0, 30.0, 5.0, step=1.0))

# %%
at_2048 = [slowest(step(0.05).cumulative(TIMES), TIMES, 2048) for step in (stragglers.normal, stragglers.exponential)]
measured(
    "per cent of the time that 2,048 ranks compute, normal",
    100 / at_2048[0],
)
measured(
    "per cent of the time that 2,048 ranks compute, exponential",
    100 / at_2048[1],
)

# %% [markdown]
# - The loss begins with two ranks and grows with every rank. For normal times the maximum grows slowly, like $\sqrt{2
#   \ln N}$: the slowest of 2,048 lies 3.4 standard deviations above the mean. For exponential times it lies 7.2 above:
#   the longest of $N$ interruptions is $1 + \frac12 + \dots + \frac1N \approx \ln N$ times as long as the mean one. The
#   tail decides, not the spread.
# - **Faster ranks don't help, more even ranks do.** With all communication hidden, 2,048 ranks that are 5 % uneven
#   still lose 15 to 26 %.
# - These measures help: one process for each GPU with nothing else on it, data read ahead, larger batches (causes
#   average out within a step), a few spare ranks whose gradients are not waited for (Chen et al. 2016), or no
#   synchronisation at all (6a).
#
# ## Summary
#
# - Gradients become ready from the last layer to the first. They are ready early if a network has its bytes at its end.
# - Fusion means fewer latencies and more waiting. The cycle time matters most; the best is about the time of one
#   message.
# - Overlap hides communication behind the backward pass. The last message, what is longer than the pass, and latency
#   times messages stay exposed.
# - Four parameters predict Horovod's fused steps at other settings: half of them within 4 %. Long cycles they don't
#   predict well.
# - The slowest of N ranks sets the pace, and the tail of the step times says how slow it is.

# %%
predictions.table()

# %% [markdown]
# Next: 4c predicts a supercomputer.
#
# - X. Jia et al.: *Highly Scalable Deep Learning Training System with Mixed-Precision.* arXiv:1807.11205
# - A. Sergeev, M. Del Balso: *Horovod: fast and easy distributed deep learning in TensorFlow.* arXiv:1802.05799
# - J. Chen et al.: *Revisiting Distributed Synchronous SGD.* arXiv:1604.00981
# - S. Lee et al.: *Parallel Deep Convolutional Neural Network Training by Exploiting the Overlapping of Computation and
#   Communication.* HiPC 2017
# - A. Pedram et al.: tutorial on training at scale, 2018
# - D. Das et al.: *Distributed Deep Learning Using Synchronous Stochastic Gradient Descent.* arXiv:1602.06709
# - K. He et al.: *Deep Residual Learning for Image Recognition.* arXiv:1512.03385
