# %% [markdown]
# # 5c Memory
#
# A network that does not fit into memory cannot be trained, however many ranks there are. Where do the bytes go? There
# are three ways to need fewer of them: forget an array and compute it again, send it to the host and fetch it back, or
# divide it among the ranks. What does each of them cost?
#
# **You will be able to** count the bytes of each part of a training, and measure them; run a backward pass with a tenth
# of its arrays, in the fewest computations possible; tell when a transfer to the host costs nothing; divide an
# optimizer's state among ranks, get the same weights, and say what it costs on the wire; and decide where LARS then
# takes its norms.
#
# **Time:** 90 minutes; the runs take about 20 seconds on 2 CPU cores. The recorded experiment takes some minutes:
# `course reproduce recompute`, typed in a terminal of the whole course, makes it again.
#
# **Needs:** 1d (the backward pass, memory), 2a (reduce-scatter, all-gather); 3d (LARS) for section *LARS: norms of
# layers that no rank has*. No GPU.

# %%
import math
import time
from functools import lru_cache, partial

import numpy as np
import pandas as pd
from IPython.display import Image

from course_lib import data, statistics
from course_lib.cost import memory
from course_lib.notebook import plots, predictions, widgets
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from course_lib.ranks import launch
from labs.lab5_precision_and_memory.lessons import figures_5c as figures
from labs.lab5_precision_and_memory.lessons import offload, peaks, shards
from labs.lab5_precision_and_memory.lessons.checks_5c import check, points
from labs.lab5_precision_and_memory.lessons.counted_chain import Chain, arrays_needed

MB, GB = 1e6, 1e9

# %% [markdown]
# ## Where the bytes are
#
# 1d counted four parts: the weights, a gradient for each, the optimizer's state, and the activations, which the
# backward pass needs again. Here `course_lib.cost.memory.training` counts them. Does the count agree with what is in
# memory? NumPy reports every array to Python's `tracemalloc`, so we can measure it to the byte. Here is one step of
# Adam, for eight dense layers of 256 × 256 weights, with two batch sizes.
#
# ### Predict
#
# In which part of the step is most memory in use, with 128 examples and with 1,024: `"forward"`, `"backward"` or
# `"update"`?

# %% editable=true
predict("the fullest moment, 128 examples", None)
predict("the fullest moment, 1,024 examples", None)

# %%
dense = peaks.dense_network(8, 256)
profiles = {f"{batch:,} examples": peaks.step(8, 256, batch) for batch in (128, 1024)}
for title, rows in profiles.items():
    measured(
        f"the fullest moment, {title}",
        rows["phase"][rows["peak"].idxmax()],
        "Going backward, each layer frees an activation and adds a gradient. The batch decides which is larger.",
    )
    four = sum(memory.training(dense, int(title.split()[0].replace(",", ""))).values())
    print(f"    counted, all four parts: {four / MB:.1f} MB; measured peak: {rows['peak'].max() / MB:.1f} MB")
figures.step(profiles, caption="one step of Adam in NumPy, float32, 8 layers of 256 × 256; traced by tracemalloc")

# %% [markdown]
# Two things are missing from the count. Inside a call there is more than the four parts: the gradient by the
# activations, and the intermediate arrays of an expression. And the four parts are never all there at the same time:
# the backward pass frees activations while it makes gradients. The first makes the peak higher than 1d's sum, the
# second makes it lower. So the sum is an estimate, and no bound.
#
# ### Predict
#
# In single precision, Adam needs 4 + 4 + 8 = 16 bytes for each weight: the weight, its gradient, and two numbers of
# state. With mixed precision (5a), weights and gradients have 16 bits. A second copy of the weights, which Adam
# updates, has 32, and so has Adam's state. How many bytes does each weight need now?

# %% editable=true
predict("bytes for each weight, mixed precision and Adam", None)

# %%
LANGUAGE_MODEL = memory.Network(
    "a language model", "arXiv:1910.02054", 0, (memory.Layer("all", 7_500_000_000, 0, 0, 0),)
)
NETWORKS = {network.name: network for network in (memory.NETWORKS["ResNet-50"], memory.vgg16(), LANGUAGE_MODEL)}


def gigabytes(batch):
    rows = {}
    for name, network in NETWORKS.items():
        for precision, mixed in (("32 bits", False), ("mixed", True)):
            rows[name, precision] = {k: v / GB for k, v in memory.training(network, batch, mixed=mixed).items()}
    return pd.DataFrame(rows).T


bare = memory.training(LANGUAGE_MODEL, 0, mixed=True)
measured(
    "bytes for each weight, mixed precision and Adam",
    sum(bare.values()) / LANGUAGE_MODEL.weights,
    "Halving weights and gradients saves four bytes, and the second copy of the weights takes four.",
)
gigabytes(32).round(2)

# %% [markdown]
# (Gigabytes; 32 images; the language model's activations are left out.) In ResNet-50, activations fill the memory:
# forget them, or send them to the host. In the language model it is the bytes that come with each weight, and 16 bits
# don't help: divide them among the ranks. VGG-16 has much of both.
#
# ## Storage quadratic in depth
#
# "Storage is a quadratic function of network depth", says a slide of the tutorial. For the networks so far it is
# linear: every layer adds an array. In a densely connected network (Huang et al. 2016) each layer takes the outputs of
# *all* layers before it. There are no more outputs than before. But to multiply them, a layer needs them side by side
# in one array, and each layer's array is longer than the last.


# %%
def wide_open(depth, channels=16):
    """Weights of a densely connected network: layer k takes what all layers before it, and the input, made."""
    random = np.random.default_rng(0)
    return [random.normal(0, 0.1, ((k + 1) * channels, channels)).astype(np.float32) for k in range(depth)]


def backward_pass(weights, gradients, keep, batch=512):
    """Forward and backward; `keep` the inputs of the layers, or concatenate them again in the backward pass."""
    channels = weights[0].shape[1]
    outputs, inputs = [np.ones((batch, channels), np.float32)], []
    for w in weights:
        x = np.concatenate(outputs, axis=1)
        outputs.append(np.maximum(x @ w, 0))
        if keep:
            inputs.append(x)
    slopes = np.ones((batch, channels * len(outputs)), np.float32)  # by all outputs, side by side
    for k in reversed(range(len(weights))):
        x = inputs.pop() if keep else np.concatenate(outputs[: k + 1], axis=1)
        here = channels * (k + 1)
        slope = slopes[:, here : here + channels] * (outputs[k + 1] > 0)
        np.matmul(x.T, slope, out=gradients[k])
        slopes[:, :here] += slope @ weights[k].T


# %% [markdown]
# ### Predict
#
# The depth grows from 30 layers to 60. By which factor does the peak grow, if the inputs are kept, and if they are
# concatenated again?

# %% editable=true
predict("60 layers over 30, inputs kept", None)
predict("60 layers over 30, inputs concatenated again", None)


# %%
def peak_by_depth(depths):
    rows = []
    for depth in depths:
        weights = wide_open(depth)
        gradients = [np.empty_like(w) for w in weights]
        kept, made_again = (peaks.peak(partial(backward_pass, weights, gradients, keep)) for keep in (True, False))
        rows.append({"depth": depth, "inputs kept": kept, "inputs concatenated again": made_again})
    return pd.DataFrame(rows)


by_depth = peak_by_depth((10, 15, 20, 30, 40, 60))
at = by_depth.set_index("depth")
for way in at:
    measured(
        f"60 layers over 30, {way}",
        at[way][60] / at[way][30],
        "Layer k's input is k outputs long. Kept, they add up to about n²/2, beside all that grows as n. But only one "
        "is needed at a time.",
    )
figures.by_depth(
    by_depth, caption="densely connected, 16 channels a layer, 512 examples, float32; traced by tracemalloc"
)

# %% [markdown]
# So the square is a property of the program, not of the network: it keeps arrays that one copy would make again
# (Pleiss et al. 2017 found this in the frameworks of their time). The next arrays cost more to make again.
#
# ## Forget, and compute again
#
# Take a chain of n equal layers. In the backward pass, a layer needs its input and nothing else. So keep n inputs, or
# compute some of them a second time. The chain counts both:
#
# - `chain.forward(layer, x)` gives the layer's output for its input `x`, which is the input of the next layer; every
#   call counts;
# - `chain.backward(layer, x, slope)` gives the gradient by the layer's input, from that by its output;
# - `chain.kept` is the largest number of inputs that were alive during a call, not counting the one that the layer
#   takes and the one that it makes. An array is alive as long as a variable or a list refers to it.
#
# First the plain way:


# %%
def everything(chain, x, slope):
    """The gradient by the chain's input x, from the gradient by its output."""
    inputs = [x]
    for layer in range(chain.layers - 1):
        inputs.append(chain.forward(layer, inputs[-1]))
    for layer in reversed(range(chain.layers)):
        slope = chain.backward(layer, inputs.pop(), slope)
    return slope


def on_a_chain(way, layers, *arguments, **size):
    """The chain after `way` has gone through it."""
    chain = Chain(layers, **size)
    x, slope = chain.start()
    way(chain, x, slope, *arguments)
    return chain


plain = on_a_chain(everything, 100)
print(f"100 layers: {plain.forwards} forward calls, {plain.kept} arrays kept")

# %% [markdown]
# ### Exercise: segments
#
# Cut the chain into segments of equal length (the last one may be shorter). Forward, keep only the input of each
# segment. Backward, take the segments from the last to the first: compute the inputs within the segment again, then go
# back through it. No layer is computed more than twice. Which length keeps the fewest arrays at a time?
#
# <details><summary>Hint</summary>With segments of L layers, how many inputs of segments are kept, and how many inputs
# within the current segment? What happens to the sum when L doubles, if L is small, and if it is large?</details>
# <details><summary>It keeps more than it should</summary>While you fill a new list, the name of the old list still
# keeps the old arrays alive. <code>pop()</code> returns an array and takes it out of the list.</details>


# %% exercise="in_segments"
def in_segments(chain, x, slope):
    """The gradient by the chain's input, with few arrays kept and no layer computed more than twice.

    chain: chain.layers is the number of layers; forward and backward as above. x: the chain's input.
    slope: the gradient by the chain's output.
    """
    ### BEGIN SOLUTION
    length = max(1, round(math.sqrt(chain.layers)))
    starts = list(range(0, chain.layers, length))
    snapshots = [x]
    for layer in range(starts[-1]):
        x = chain.forward(layer, x)
        if layer + 1 in starts:
            snapshots.append(x)
    for start in reversed(starts):
        inputs = [snapshots.pop()]
        for layer in range(start, min(start + length, chain.layers) - 1):
            inputs.append(chain.forward(layer, inputs[-1]))
        while inputs:
            slope = chain.backward(start + len(inputs) - 1, inputs.pop(), slope)
    return slope
    ### END SOLUTION


# %%
check(in_segments)

# %% hidden="in_segments" points=3
### BEGIN HIDDEN TESTS
points(in_segments, 3)
### END HIDDEN TESTS

# %% [markdown]
# What you should see: on the left, a ramp of calls with everything below it kept. On the right, one grey line for the
# input of each segment, and short ramps in the backward pass.

# %%
LAYERS = 36
figures.schedules(
    {
        "everything": on_a_chain(everything, LAYERS).calls,
        "your segments": on_a_chain(in_segments, LAYERS).calls,
    },
    caption=f"a chain of {LAYERS} layers; a column is a call",
)

# %% [markdown]
# ### Predict
#
# Look at the grey lines. When the first segment is processed, at the far right, the inputs of all others are gone, and
# their memory is unused. With equal segments of 10, 100 layers need 18 arrays. Suppose that any schedule is allowed,
# with at most 200 forward calls. How many arrays does the best one need?

# %% editable=true
predict("arrays for 100 layers, 200 forward calls", None)

# %%
enough = arrays_needed(layers=100, forwards=200)
measured(
    "arrays for 100 layers, 200 forward calls",
    enough,
    "Segments need not be equal. The earlier ones may be longer, because by then fewer inputs of segments are kept.",
)

# %% [markdown]
# ### Exercise: recursively
#
# A segment is itself a chain, and can be cut again. Now the number of arrays is given, and the forward calls are to be
# as few as possible. (A search that forgets what it has found takes billions of calls for 24 layers: let it remember.)
#
# Every schedule begins like this: go forward j layers from the input x, and keep the array y that is there. Then y is
# the input of a shorter chain, which has one array fewer for itself, because x must be kept as well. When that chain is
# done, let go of y; x is the input of a chain of j layers. Both chains are the same task again. Only j is open, and
# half of the layers is not the best choice.
#
# <details><summary>Hint</summary>Write a second function: the fewest forward calls for n layers with s arrays. It tries
# every j, and calls itself for both parts. <code>@lru_cache(None)</code> above its <code>def</code> makes it remember
# results. What does it return for one layer? For several layers and no array?</details>
# <details><summary>It keeps one array more than allowed</summary>A variable in your function lives as long as the
# function runs: <code>del</code> it before you process the chain of j layers.</details>


# %% exercise="recursive"
def recursive(chain, x, slope, first, last, kept):
    """The gradient by the input of layer `first`, in the fewest forward calls with at most `kept` arrays.

    chain: as above; this part of it has the layers first, first + 1, … last − 1. x: the input of layer `first`; it is
    one of the `kept` arrays. slope: the gradient by the output of layer last − 1. kept: at least 1 if there are two
    layers or more.
    """
    ### BEGIN SOLUTION
    if last - first == 1:
        return chain.backward(first, x, slope)
    _, steps = cheapest(last - first, kept)
    y = x
    for layer in range(first, first + steps):
        y = chain.forward(layer, y)
    slope = recursive(chain, y, slope, first + steps, last, kept - 1)
    del y
    return recursive(chain, x, slope, first, first + steps, kept)


@lru_cache(None)
def cheapest(layers, kept):
    """The fewest forward calls, and how many layers to go forward first."""
    if layers == 1:
        return 0, 0
    if kept == 0:
        return math.inf, 0
    return min((j + cheapest(layers - j, kept - 1)[0] + cheapest(j, kept)[0], j) for j in range(1, layers))
    ### END SOLUTION


# %%
check(recursive)

# %% hidden="recursive" points=5
### BEGIN HIDDEN TESTS
points(recursive, 5)
### END HIDDEN TESTS

# %% [markdown]
# What you should see: ramps within ramps, and more of them with fewer arrays.

# %%
figures.schedules(
    {f"{kept} arrays": on_a_chain(recursive, LAYERS, 0, LAYERS, kept).calls for kept in (3, 5)},
    caption=f"your recursive, a chain of {LAYERS} layers; a column is a call",
)

# %% [markdown]
# And the cost for every number of arrays:


# %%
def costs(layers=100):
    dots = {"everything kept": on_a_chain(everything, layers), "your segments": on_a_chain(in_segments, layers)}
    dots |= {f"yours, {k} arrays": on_a_chain(recursive, layers, 0, layers, k) for k in (enough, 6, 3)}
    return figures.trade({name: (chain.kept, chain.forwards) for name, chain in dots.items()}, layers)


costs()

# %% [markdown]
# - Equal segments lie on the curve, but at a poor place: it is almost flat there. With 13 arrays in place of 18, the
#   best schedule has 185 forward calls in place of 180.
# - If each layer may be computed t times, s arrays are enough for $\binom{s+t}{s}$ layers (Griewank 1992): with t = 3
#   and s = 9 for 220. If s and t grow together, each grows as the logarithm of the number of layers.
# - The layers of a real network differ in size and time. The search stays the same, with weights in its sums.
#
# So far arrays and calls were counted. Now they are measured, with arrays of 1 MB:


# %%
def real_arrays(layers=24, **size):
    ways = {
        "everything kept": (everything,),
        "in segments": (in_segments,),
        "recursive, 6 arrays": (recursive, 0, layers, 6),
        "recursive, 3 arrays": (recursive, 0, layers, 3),
    }
    rows = {}
    with Filling("four ways through a chain") as line:
        for number, (name, (way, *rest)) in enumerate(ways.items()):
            line.at(number / len(ways), name)
            chain = Chain(layers, **size)
            most = peaks.peak(partial(way, chain, *chain.start(), *rest))
            seconds = []
            for _ in range(2):
                again = Chain(layers, **size)
                began = time.perf_counter()
                way(again, *again.start(), *rest)
                seconds.append(time.perf_counter() - began)
            rows[name] = {"peak MB": most / MB, "kept": chain.kept, "forwards": chain.forwards, "s": min(seconds)}
    table = pd.DataFrame(rows).T
    table["seconds, to the first"] = table["s"] / table["s"].iloc[0]
    return table.drop(columns="s").round(2)


real_arrays(width=256, batch=512)

# %% [markdown]
# The peak is the kept arrays and a few more: those of the call itself, and the slopes. The time grows less than the
# number of forward calls, because most of a step is the backward pass.
#
# ## A residual network
#
# A slide that 1d quoted keeps only the input of each residual block: "25 % more compute saves 80 % memory", for a batch
# of 16 on a CPU. The recorded experiment repeats it: a Wide ResNet in TensorFlow, 16 images of 32 × 32, every block in
# `tf.recompute_grad` or none. Each run was a process of its own. The peak is its largest resident memory; its computing
# is the time that it spent on all processors.
#
# ### Predict
#
# A block is twice batch norm, ReLU and convolution, and keeps four arrays of about the same size. How many percent of
# the memory are saved at depth 40 (18 blocks)? How many percent more computing does a step take?

# %% editable=true
predict("percent of the memory saved, depth 40", None)
predict("percent more computing, depth 40", None)

# %%
runs = pd.read_csv("recorded/recompute.csv", comment="#")
deep = runs[runs["depth"] == 40].pivot(index="run", columns="recompute")
saved = statistics.mean(100 * (1 - deep["megabytes", True] / deep["megabytes", False]))
more = statistics.mean(100 * (deep["processor seconds", True] / deep["processor seconds", False] - 1))
measured(
    "percent of the memory saved, depth 40",
    saved[0],
    "Of four arrays one remains, so at most 75; and the block at work has all four of its own.",
)
measured(
    "percent more computing, depth 40",
    more[0],
    "The forward pass is about a third of a step. Which part of a block's need not be computed again?",
)
print(f"95 % intervals: saved {saved[0]:.1f} ± {saved[1]:.1f} %, more computing {more[0]:.0f} ± {more[1]:.0f} %")
Image("recorded/recompute.png", width=plots.WIDTH)

# %% [markdown]
# - **Memory.** At depth 40 the step needs 194 MB more than with one image, and 60 MB with recomputing: 69 % less. The
#   deeper the network, the more is saved, because the block at work counts less. But of the four arrays of a block one
#   must stay, so here 75 % cannot be reached. A program that keeps the output of *every* operation has seven arrays for
#   a block, and could do without six. So "80 %" depends on the program that it is compared with.
# - **Computing.** A forward pass is about a third of a step. To repeat all of it would add 33 %. But the backward pass
#   does not need the output of the block's second convolution. A graph that leaves it out repeats half of the products,
#   and adds 17 %. The measured 18 ± 4 % agree with that, and not with the slide's 25 %.
# - **Traps.** What is computed again must have the same result. Dropout draws another mask, unless its generator is
#   reset. Batch norm updates its moving averages twice (the network here has none). And a compiler that sees the same
#   expression twice may compute it once and keep it. To prevent that, `tf.recompute_grad` lets the second computation
#   wait for the gradient that arrives at the block.
#
# ## Send it to the host
#
# The host has more memory than the device. vDNN (Rhu et al. 2016) sends a layer's input to the host while the layer
# computes, and brings it back before the backward pass needs it. This costs no time if the transfer takes no longer
# than the computation. Two speeds decide: the device's operations per second, and the cable's bytes per second.
#
# ### Predict
#
# The layer is a convolution, and its transfer takes twice as long as its forward pass. Now the batch is doubled. How
# many times as long as the forward pass does the transfer take? And with images of twice the width and height?

# %% editable=true
predict("transfer over computation, batch doubled", None)
predict("transfer over computation, images doubled", None)

# %% [markdown]
# ### Exercise: what decides
#
# A convolution has a k × k kernel, stride 1, and padding that keeps the size; all numbers are in single precision. Its
# input is sent during the forward pass. How many *output* channels does it need so that the transfer takes no longer
# than the computation? Everything else cancels.
#
# <details><summary>Hint</summary>In how many multiply-adds does each number of the input take part, and how long do
# they take? How long does one number take on the cable?</details>


# %% exercise="channels_to_hide"
def channels_to_hide(kernel, speed, bandwidth):
    """The number of output channels (not rounded) with which transfer and computation take equally long.

    kernel: k; speed: floating-point operations a second; a multiply-add is two of them; bandwidth: bytes a second.
    """
    ### BEGIN SOLUTION
    operations_while_a_number_travels = speed * 4 / bandwidth
    return operations_while_a_number_travels / (2 * kernel**2)
    ### END SOLUTION


# %%
check(channels_to_hide)

# %% hidden="channels_to_hide" points=2
### BEGIN HIDDEN TESTS
points(channels_to_hide, 2)
### END HIDDEN TESTS


# %%
def transfer_over_computation(batch, side, channels=64, kernel=3, speed=5e12, bandwidth=12e9):
    numbers = batch * side**2 * channels
    return (4 * numbers / bandwidth) / (2 * kernel**2 * channels * numbers / speed)


once = transfer_over_computation(64, 56)
measured(
    "transfer over computation, batch doubled",
    2 * transfer_over_computation(128, 56) / once,
    "Both grow alike: twice as many numbers travel, and each of them takes part in as many products as before.",
)
measured("transfer over computation, images doubled", 2 * transfer_over_computation(64, 112) / once, "Likewise.")
pd.DataFrame(
    {
        device: {f"{k} × {k}": round(channels_to_hide(k, speed, bandwidth)) for k in (1, 3, 5)}
        for device, speed, bandwidth in (
            ("5 TFLOP/s, 12 GB/s", 5e12, 12e9),
            ("50 TFLOP/s, 25 GB/s", 5e13, 25e9),
            ("200 TFLOP/s, 50 GB/s", 2e14, 50e9),
        )
    }
).rename_axis("output channels needed")

# %% [markdown]
# From left to right the arithmetic becomes forty times as fast, and the cable about four times. VGG-16's convolutions
# are 3 × 3 with 64 to 512 output channels: on the first device, most transfers hide. A 1 × 1 convolution needs nine
# times as many channels.
#
# ### Exercise: bring it back in time
#
# Each input has to come back. If it comes too late, a layer waits. If it comes too early, it fills the memory that was
# to be saved. The transfers share one cable: they come one at a time, in the order in which they are needed. When
# should each of them start?
#
# <details><summary>Hint</summary>Begin with the last transfer: how late can it start? The one before it has two
# deadlines.</details>


# %% exercise="prefetch"
def prefetch(needed, seconds):
    """When each transfer should start, so that no array is late and each transfer starts as late as possible.

    needed: the moments at which the arrays must be there, rising, in seconds from the start of the backward pass.
    seconds: how long each transfer takes. Both lists have the same length, which may be 0.
    Returns the starts in the same order. Where time is short they are below 0.
    """
    ### BEGIN SOLUTION
    starts, free = [], math.inf
    for moment, took in zip(reversed(needed), reversed(seconds)):
        free = min(moment, free) - took
        starts.append(free)
    return starts[::-1]
    ### END SOLUTION


# %%
check(prefetch)

# %% hidden="prefetch" points=3
### BEGIN HIDDEN TESTS
points(prefetch, 3)
### END HIDDEN TESTS

# %% [markdown]
# Now a whole step, with your plan. What happens in VGG-16 and in ResNet-50 (here a block counts as a layer) if all
# inputs are moved, and if only those are moved that hide? Then make the device ten times as fast.


# %%
def plan(layers, moved):
    """The layers whose input is moved. The last layer's input is needed at once, so it always stays."""
    choices = {"nothing": [], "what hides": offload.hidden(layers), "everything": range(1, len(layers))}
    return [layer for layer in choices[moved] if layer < len(layers) - 1]


def draw(network, moved, speed, bandwidth):
    layers = offload.works(NETWORKS[network], 64, 1e12 * speed, 1e9 * bandwidth)
    step = offload.timeline(layers, plan(layers, moved), prefetch)
    return figures.offload(
        step, [layer.name for layer in layers], caption=f"simulated · {network}, 64 images, float32 · your prefetch"
    )


widgets.explore(
    draw,
    network=widgets.choice("network", ["VGG-16", "ResNet-50"]),
    moved=widgets.choice("moved to the host", ["everything", "what hides", "nothing"]),
    speed=widgets.slider("device, TFLOP/s", 0, 2.5, 5.0, log=True),
    bandwidth=widgets.slider("cable, GB/s", 0.5, 2, 12.0, log=True),
)


# %%
def at_once(needed, seconds):
    """All arrays come back one after the other, from the start of the backward pass."""
    return [sum(seconds[:place]) for place in range(len(seconds))]


def offloaded(network):
    layers = offload.works(NETWORKS[network], 64, 5e12, 12e9)
    rows = {}
    for moved in ("nothing", "what hides", "everything"):
        for name, back in (("your prefetch", prefetch), ("back at once", at_once)):
            step = offload.timeline(layers, plan(layers, moved), back)
            rows[network, moved, name] = {"ms": 1e3 * step.seconds, "GB of activations": step.peak / GB}
    return pd.DataFrame(rows).T


pd.concat([offloaded("VGG-16"), offloaded("ResNet-50")]).round(2)

# %% [markdown]
# - In VGG-16, the transfers of most layers hide, and moving their inputs costs no time. Moving all inputs saves more
#   memory, and the step takes longer.
# - If everything comes back at once, it fills the memory again. What is saved depends on the plan for the way back.
# - In ResNet-50 nothing hides, not even on the slow device of 5 TFLOP/s: batch norms and 1 × 1 convolutions keep many
#   numbers for little arithmetic. What is cheap to compute is better computed again than sent to the host.
#
# ## Divide it among the ranks
#
# Now the other kind of network, with many weights. In data parallelism all ranks hold the same optimizer state and make
# the same update of all weights: N times the same memory, N times the same work. ZeRO (Rajbhandari et al. 2019) gives
# each rank a share of it, in three stages:
#
# 1. the optimizer's **state**;
# 2. the averaged **gradients** as well: a rank keeps only those that its own update needs;
# 3. the **weights** as well: each layer's weights are gathered just before it computes, forward and again backward, and
#    dropped afterwards.


# %%
def bytes_for_each_weight():
    rows = []
    for stage in (0, 1, 2, 3):
        for ranks in (1,) if stage == 0 else (4, 64):
            parts = memory.training(LANGUAGE_MODEL, 0, mixed=True, ranks=ranks, stage=stage)
            rows.append({"stage": stage, "ranks": ranks, **{k: v / LANGUAGE_MODEL.weights for k, v in parts.items()}})
    return pd.DataFrame(rows)


figures.shares(bytes_for_each_weight(), caption="counted: mixed precision, Adam; activations not included")

# %% [markdown]
# ### Predict
#
# Plain data parallelism averages n gradients by an all-reduce: on a ring, each rank sends $2 (N-1)/N \cdot n$ numbers.
# By which factor does this change in stage 1, in stage 2, and in stage 3?

# %% editable=true
predict("traffic of stage 1, over an all-reduce", None)
predict("traffic of stage 2, over an all-reduce", None)
predict("traffic of stage 3, over an all-reduce", None)

# %% [markdown]
# ### Exercise: a sharded optimizer
#
# An all-reduce is a reduce-scatter, after which each rank has one part of the sum, and an all-gather, after which each
# rank has all parts (2a). All weights of the network stand in one vector of length n. Write stage 1, with an Adam that
# knows only this rank's part. Send nothing that nobody needs.
#
# The parts are those of `np.array_split`: if n is no multiple of N, the first ranks have one number more.
#
# <details><summary>Hint</summary>At the end of the step, what do the other ranks need from this one: gradients or
# weights? Which numbers of the vector belong to this rank? <code>np.array_split(weights, N)</code> has all parts; their
# lengths tell where each of them begins.</details>


# %% exercise="sharded"
class Sharded:
    """An optimizer that keeps, on each rank, the state for this rank's part of the weights."""

    def __init__(self, me, weights, make):
        """Prepare the step.

        me: this rank, with me.rank and me.size; me.reduce_scatter(array [n]) → this rank's part of the sum over ranks;
        me.all_gather(part) → the parts of all ranks, one after the other; me.all_reduce(array) → the whole sum.
        weights: the first weights, [n], the same on all ranks.
        make: make(k) → an Adam for k numbers; its update(weights [k], gradient [k]) → new weights [k].
        """
        ### BEGIN SOLUTION
        lengths = [len(part) for part in np.array_split(weights, me.size)]
        begin = sum(lengths[: me.rank])
        self.me, self.mine = me, slice(begin, begin + lengths[me.rank])
        self.optimizer = make(lengths[me.rank])
        ### END SOLUTION

    def step(self, weights, gradient):
        """The new weights [n], the same on all ranks, as after a serial step on the examples of all.

        weights: [n], not changed; gradient: [n], the mean over this rank's own examples. All ranks have equally many.
        """
        ### BEGIN SOLUTION
        average = self.me.reduce_scatter(gradient) / self.me.size
        return self.me.all_gather(self.optimizer.update(weights[self.mine], average))
        ### END SOLUTION


# %%
check(Sharded)

# %% hidden="sharded" points=4
### BEGIN HIDDEN TESTS
points(Sharded, 4)
### END HIDDEN TESTS

# %% [markdown]
# Now real ranks: Fashion-MNIST in a network of four dense layers, ten steps. Four processes train first as two pairs,
# then all together. The serial run, here, has all images. Each run trains three ways: with an all-reduce and an Adam
# for everything on each rank, with your `Sharded` (stage 1), and with one `Sharded` for each layer (stage 2). In stage
# 2, a layer's gradient is averaged and used as soon as the backward pass has made it, and dropped before the next one
# comes.

# %%
fashion = data.load("fashion_mnist")
IMAGES = 64
x = fashion.x_train[:IMAGES, ::2, ::2].reshape(IMAGES, -1) / 255.0
y = fashion.y_train[:IMAGES]
network = shards.Network((x.shape[1], 64, 64, 64, 10))
first, n = network.start(), network.bounds[-1]
STEPS = 10


class Plain:
    """All-reduce, and an optimizer for everything on every rank."""

    def __init__(self, me, weights, make):
        self.me, self.optimizer = me, make(len(weights))

    def step(self, weights, gradient):
        return self.optimizer.update(weights, self.me.all_reduce(gradient) / self.me.size)


class ByLayer:
    """A `Sharded` for each layer; `gradients` come layer by layer, as `network.backward` makes them."""

    def __init__(self, me, weights, make):
        self.layers = [Sharded(me, weights[layer], make) for layer in network.layers]

    def step(self, weights, gradients):
        following = np.empty_like(weights)
        for layer, gradient in gradients:
            here = network.layers[layer]
            following[here] = self.layers[layer].step(weights[here], gradient)
        return following


class Alone:
    rank, size = 0, 1

    @staticmethod
    def all_reduce(array):
        return array


WAYS = {"plain": Plain, "stage 1": Sharded, "stage 2": ByLayer}


def numbers_of_state(way, me):
    """Counted: Adam keeps two numbers for each weight of this rank."""
    if way == "plain":
        return 2 * n
    cut = [first] if way == "stage 1" else [first[layer] for layer in network.layers]
    return 2 * sum(len(np.array_split(part, me.size)[me.rank]) for part in cut)


def train(way, me):
    """STEPS with this rank's images: the weights, and bytes of state and of gradients, counted and measured."""
    backward = network.backward if way == "stage 2" else network.gradient
    together = max(layer.stop - layer.start for layer in network.layers) if way == "stage 2" else n
    with peaks.traced() as before:
        optimizer = WAYS[way](me, first, shards.Adam)
        state = peaks.in_use() - before
    weights, mine = first, slice(me.rank, None, me.size)
    for _ in range(STEPS):
        weights = optimizer.step(weights, backward(weights, x[mine], y[mine]))

    def all_gradients():
        gradients = backward(first, x[mine], y[mine])
        if way == "stage 2":
            for _ in gradients:
                pass

    return {
        "ranks": me.size, "rank": me.rank, "way": way, "weights": weights,
        "state, counted": 8 * numbers_of_state(way, me), "state, measured": state,
        "gradients, counted": 8 * together,
        "peak of the backward pass": peaks.peak(all_gradients),
    }  # fmt: skip


def on_a_rank():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")  # NumPy's arrays are on the host
    pairs = [hvd.ProcessSet([0, 1]), hvd.ProcessSet([2, 3])]
    hvd.init(process_sets=pairs)
    groups = pairs[hvd.rank() // 2], hvd.global_process_set
    return [train(way, shards.HorovodRank(hvd, group)) for group in groups for way in WAYS]


def on_ranks():
    with Filling("four ranks start") as line:
        line.at(0.02, "TensorFlow is loaded four times")
        found = launch.call(on_a_rank, 4, env=launch.ONE_THREAD)
    return pd.DataFrame([row for rows in found for row in rows])


def beside_the_serial_run(rows, serial):
    """For each way and number of ranks: the worst of the ranks."""
    rows["off by"] = [np.abs(weights - serial["weights"]).max() for weights in rows["weights"]]
    table = pd.concat([rows, pd.DataFrame([serial])]).drop(columns=["weights", "rank"]).groupby(["ranks", "way"]).max()
    table["off by"] = [f"{apart:.0e}" for apart in table["off by"].fillna(0)]
    return table


serial = train("plain", Alone())
beside_the_serial_run(on_ranks(), serial)

# %% [markdown]
# (Bytes on the fullest rank.) The weights equal those of the serial run, up to the rounding of float64. In both stages
# a rank holds a half or a quarter of the state, and a little for Python's objects. (Is yours three quarters in place of
# a quarter? `np.array_split(np.arange(n), N)` returns views, and a view keeps the whole array alive. A slice is
# smaller.) Stage 1 makes all gradients before it averages them, as the plain way does. Stage 2 holds one layer's
# gradient at a time; in both, the activations of the backward pass come on top. (ZeRO averages buckets of several
# layers, and keeps each rank's share of the averages until the backward pass is over.)
#
# And the traffic? Simulated ranks count each number that is sent:


# %%
def numbers_sent(way, ranks):
    """How many numbers a rank sends in a step, over n: the mean of all ranks."""

    def program(me, rank):
        backward = network.backward if way == "stage 2" else network.gradient
        return WAYS[way](me, first, shards.Adam).step(first, backward(first, x[rank::ranks], y[rank::ranks]))

    return shards.simulate(program, range(ranks))[1].mean() / n


def stage_3(me, part):
    """What travels in stage 3: the weights before the forward and before the backward pass, then the gradients."""
    for _ in range(2):
        whole = me.all_gather(part)
    return me.reduce_scatter(whole)


def traffic(ranks):
    sent = {way: numbers_sent(way, ranks) for way in WAYS}
    return {**sent, "stage 3": shards.simulate(stage_3, np.array_split(first, ranks))[1].mean() / n}


table = pd.DataFrame({f"{ranks} ranks": traffic(ranks) for ranks in (2, 4, 8)})
for stage in (1, 2, 3):
    measured(
        f"traffic of stage {stage}, over an all-reduce",
        table["4 ranks"][f"stage {stage}"] / table["4 ranks"]["plain"],
        "An all-reduce is a reduce-scatter and an all-gather. How many of these does a stage need?",
    )
table.round(3)

# %% [markdown]
# Stages 1 and 2 send as much as plain data parallelism: the all-gather carries weights in place of gradients. So the
# memory is saved without any traffic beyond that. Stage 3 sends half as much again, because the weights travel twice.
# (These are rings. And 5b sends gradients in fewer bits: there an all-gather of weights in full precision is the larger
# part.)
#
# The script `sharded.py` beside this notebook does the same in Keras, for networks that are not one vector. Try it:
# `course run sharded.py -np 2`.
#
# ## LARS: norms of layers that no rank has
#
# Adam treats each number by itself. LARS has a rate for each layer, $\eta \, \|w\| / \|\nabla L\|$ (3d; here without
# decay). If a layer lies on several ranks, then after the reduce-scatter no rank has its whole averaged gradient. There
# are three places to take the norms:
#
# - **before the reduce-scatter**, where each rank still has a whole gradient: its own;
# - **after it**, of the rank's own pieces of the layers;
# - **after it, of the whole layers**, with one more message.
#
# ### Predict
#
# Four ranks share the network above. If each rank takes the norms of its own pieces, how many of the four weight
# matrices get a wrong rate on some rank? And with the norms from before the reduce-scatter, are the rates too
# `"large"`, too `"small"`, or `"right"`?

# %% editable=true
predict("weight matrices with a wrong rate from pieces", None)
predict("rates from norms before the reduce-scatter", None)

# %% [markdown]
# ### Exercise: the norms of whole layers
#
# One all-reduce of very few numbers is enough for every rank to know the norm of every layer. Of which numbers?
#
# <details><summary>Hint</summary>A layer's two pieces have the norms 3 and 4, and the layer has the norm 5. What adds
# up? What does a rank add for a layer of which it has nothing? A slice may end beyond its array, but a negative end
# counts from the back.</details>


# %% exercise="layer_norms"
def layer_norms(me, part, first, bounds):
    """The norm of each whole layer, [layers], the same on all ranks.

    me: as in `Sharded`. part: this rank's part of a vector of all layers; first: which number of the vector it begins
    with. bounds: layer i is the numbers from bounds[i] to bounds[i + 1] − 1 of the vector.
    """
    ### BEGIN SOLUTION
    squares = np.zeros(len(bounds) - 1)
    for layer, (start, end) in enumerate(zip(bounds, bounds[1:])):
        piece = part[max(0, start - first) : max(0, end - first)]
        squares[layer] = np.sum(piece**2)
    return np.sqrt(me.all_reduce(squares))
    ### END SOLUTION


# %%
check(layer_norms)

# %% hidden="layer_norms" points=3
### BEGIN HIDDEN TESTS
points(layer_norms, 3)
### END HIDDEN TESTS


# %%
class NoOtherRank:
    """With it, `layer_norms` takes the norms of what this rank has."""

    rank, size = 0, 1

    @staticmethod
    def all_reduce(array):
        return np.asarray(array)


def norms_in_three_places(ranks=4):
    """LARS's rates of the weight matrices on each rank, over those of the serial run."""
    weights, bounds = serial["weights"], network.bounds
    want = layer_norms(NoOtherRank, weights, 0, bounds)
    want = want / layer_norms(NoOtherRank, network.gradient(weights, x, y), 0, bounds)

    def program(me, rank):
        own = network.gradient(weights, x[rank::ranks], y[rank::ranks])
        mine = np.array_split(np.arange(n), ranks)[rank]
        part, begin = me.reduce_scatter(own) / ranks, int(mine[0])

        def rates(who, w, g, begin):
            with np.errstate(invalid="ignore"):
                return layer_norms(who, w, begin, bounds) / layer_norms(who, g, begin, bounds) / want

        return {
            "before the reduce-scatter": rates(NoOtherRank, weights, own, 0),
            "after it, of own pieces": rates(NoOtherRank, weights[mine], part, begin),
            "after it, of whole layers": rates(me, weights[mine], part, begin),
        }

    rows = []
    for rank, places in enumerate(shards.simulate(program, range(ranks))[0]):
        for place, ratios in places.items():
            found = dict(zip(network.names, ratios))
            rows += [{"place": place, "rank": rank, "layer": f"w{i}", "ratio": found[f"w{i}"]} for i in (1, 2, 3, 4)]
    return pd.DataFrame(rows)


table = norms_in_three_places()
wrong = table.dropna().assign(wrong=lambda rows: (rows["ratio"] - 1).abs() > 1e-6).groupby(["place", "layer"])["wrong"]
measured(
    "weight matrices with a wrong rate from pieces",
    int(wrong.any()["after it, of own pieces"].sum()),
    "Which layers are cut by the end of a part? The others lie whole on one rank.",
)
middle = table[table["place"] == "before the reduce-scatter"]["ratio"].median()
measured(
    "rates from norms before the reduce-scatter",
    "small" if middle < 0.99 else "large" if middle > 1.01 else "right",
    "A rank's own gradient has more noise than the average of all (1b), and noise makes its norm larger.",
)
figures.rates(table, caption=f"{fashion.name}, {IMAGES} images, four simulated ranks, after {STEPS} steps of Adam")

# %% [markdown]
# - **Before the reduce-scatter**, the rates are too small, and differ from rank to rank: the pieces of one layer would
#   move at different speeds. To average these norms over the ranks would not help: the mean of the norms is not the
#   norm of the mean.
# - **Of own pieces**, the rates of layers that lie whole on one rank are right, and the others are wrong. Nothing
#   fails: the run goes on with other rates, and they depend on the number of ranks.
# - **Of whole layers**, they are right, and cost one number for each layer and step in stages 1 and 2, where all ranks
#   have the weights, and two in stage 3. The all-reduce of the squares comes after the reduce-scatter and before the
#   update. Clipping by the norm of the whole gradient needs the same, with one number.
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# | what fills the memory | what to do | what it costs |
# |---|---|---|
# | activations of a chain | keep s inputs, compute the rest again | each layer t times, for $\binom{s+t}{s}$ layers |
# | concatenated inputs | concatenate them again | a copy |
# | activations of convolutions | send them to the host | nothing, with enough output channels for the two speeds |
# | state and gradients | a share on each rank (ZeRO 1, 2) | nothing; norms need an all-reduce of squares |
# | weights | a share on each rank (ZeRO 3) | half as much traffic again |
#
# - A. Griewank: *Achieving logarithmic growth of temporal and spatial complexity in reverse automatic differentiation.*
#   Optimization Methods and Software 1, 1992
# - T. Chen et al.: *Training Deep Nets with Sublinear Memory Cost* (segments of √n). arXiv:1604.06174
# - M. Rhu et al.: *vDNN: Virtualized Deep Neural Networks for Scalable, Memory-Efficient Neural Network Design.*
#   arXiv:1602.08124
# - G. Huang et al.: *Densely Connected Convolutional Networks.* arXiv:1608.06993
# - G. Pleiss et al.: *Memory-Efficient Implementation of DenseNets.* arXiv:1707.06990
# - S. Rajbhandari et al.: *ZeRO: Memory Optimizations Toward Training Trillion Parameter Models.* arXiv:1910.02054
# - S. Knowles: slides on Graphcore's processor, 2018, which 1d quotes
# - A. Pedram, W. Lynch, G. Lauterbach: the tutorial on the systems side of training: memory
