# %% [markdown]
# # 5c Memory
#
# A network that does not fit into memory is not trained at all, however many ranks there are. So where do the bytes
# go? And what does it cost to make do with fewer: to forget and compute again, to send away and fetch back, to share
# out among the ranks?
#
# **You will be able to** say how many bytes each part of a training takes, and check it; run a backward pass with a
# tenth of its arrays, in the fewest computations that this allows; tell when a transfer to the host costs nothing;
# share an optimizer's state out among ranks, end up with the same weights, and say what that costs on the wire; and say
# where LARS then takes its norms.
#
# **Time:** 75 minutes; the runs took about 30 seconds on the 2 CPU cores on which this was written. The recorded
# experiment takes some minutes: `course reproduce recompute`, typed in a terminal, makes it again.
#
# **Needs:** 1d (the backward pass, memory), 2a (reduce-scatter, all-gather), for the last part 3d (LARS). No GPU.

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
from labs.lab5_precision_and_memory.lessons.counted_chain import Chain, fewest, halved

MB, GB = 1e6, 1e9

# %% [markdown]
# ## Where the bytes are
#
# 1d counted four parts: the weights, a gradient for each, the optimizer's state, and the activations, which the
# backward pass needs again. `course_lib.cost.memory.training` counts them from here on. Is that what is in memory? With
# NumPy one can know: it tells Python's `tracemalloc` of every array. Here is one step of Adam, for eight dense layers
# of 256 × 256 weights, with two batch sizes.
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
        "Activations go while gradients come. Which of the two are more bytes depends on the batch.",
    )
    four = sum(memory.training(dense, int(title.split()[0].replace(",", ""))).values())
    print(f"    the four parts together: {four / MB:.1f} MB; at most in use: {rows['peak'].max() / MB:.1f} MB")
figures.step(profiles, caption="one step of Adam in NumPy, float32, 8 layers of 256 × 256; traced by tracemalloc")

# %% [markdown]
# Between two calls the measured line lies on the counted areas. Inside a call there is more: the gradient by the
# activations, and what an expression needs on its way. And the four parts are never there all at once: gradients come
# as activations go. So 1d's sum is neither a floor nor a ceiling. It is a good estimate.
#
# ### Predict
#
# 5a trained with numbers of 16 bits: weights, gradients and activations, and beside them the weights once more in 32
# bits, where Adam changes them. Adam's own numbers have 32 bits as well. In single precision it is 4 + 4 + 8 = 16
# bytes for each weight. And now?

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
    "8? Halving weights and gradients saves four bytes, and the second copy of the weights takes four.",
)
gigabytes(32).round(2)

# %% [markdown]
# (Gigabytes; 32 images; activations of the language model are left out.) Two kinds of network, and two kinds of
# remedy. Where convolutions share few weights, the activations fill the memory: forget them, or send them away. Where
# the weights are many, it is what comes with each weight, and 16 bits do not help: share it out.
#
# ## The square of the depth
#
# "Storage is a quadratic function of network depth", says a slide of 2018. For the networks so far it is not: every
# layer adds an array. It becomes true when each layer gets the outputs of *all* layers before it, as in a densely
# connected network (Huang et al. 2016). The outputs are as many as ever. But before a layer can multiply them they
# have to stand side by side, and that is a new array for each layer, longer each time.


# %%
def wide_open(depth, channels=16):
    """Weights of a densely connected network: layer k takes what all layers before it, and the input, made."""
    random = np.random.default_rng(0)
    return [random.normal(0, 0.1, ((k + 1) * channels, channels)).astype(np.float32) for k in range(depth)]


def backward_pass(weights, gradients, keep, batch=512):
    """Forward, and back again; `keep` the inputs of the layers for the way back, or put them together once more."""
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
# From 30 layers to 60: how many times as large does the peak become, if the inputs are kept, and if they are put
# together again?

# %% editable=true
predict("60 layers over 30, inputs kept", None)
predict("60 layers over 30, inputs put together again", None)


# %%
def peak_by_depth(depths):
    rows = []
    for depth in depths:
        weights = wide_open(depth)
        gradients = [np.empty_like(w) for w in weights]
        kept, made_again = (peaks.peak(partial(backward_pass, weights, gradients, keep)) for keep in (True, False))
        rows.append({"depth": depth, "inputs kept": kept, "inputs put together again": made_again})
    return pd.DataFrame(rows)


by_depth = peak_by_depth((10, 15, 20, 30, 40, 60))
at = by_depth.set_index("depth")
for way in at:
    measured(
        f"60 layers over 30, {way}",
        at[way][60] / at[way][30],
        "Layer k's input is k outputs long. The sum of 1, 2, … n is n²/2; but only one of them is needed at a time.",
    )
figures.by_depth(
    by_depth, caption="densely connected, 16 channels a layer, 512 examples, float32; traced by tracemalloc"
)

# %% [markdown]
# So the square belongs to a program that keeps what it could make again at the price of a copy (Pleiss et al. 2017
# saw it in the frameworks of their time). The rest of this part is about arrays that cost more to make again.
#
# ## Forget, and compute again
#
# A chain of n layers, all alike. On the way back a layer needs its input, and nothing else; so keep n inputs, or make
# some of them a second time. The chain counts both:
#
# - `chain.forward(layer, x)` gives the layer's output for its input `x`, which is the input of the next layer; every
#   call counts;
# - `chain.backward(layer, x, slope)` gives the gradient by the layer's input, from that by its output;
# - `chain.kept` is the most inputs that were alive during a call, beside the one that the layer takes and the one that
#   it makes. An array is alive as long as a variable or a list has it; `del` lets go of it.
#
# The plain way first:


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
# Cut the chain into segments of equal length (the last one may be shorter). Keep only the input of each segment on the
# way there. On the way back, take the segments from the last to the first: make the inputs within the segment again,
# and go back through it. No layer is then computed more than twice. Which length leaves the fewest arrays at a time?
#
# <details><summary>Hint</summary>n layers in segments of L: n / L inputs of segments, and up to L within the one at
# work. How does the sum change when L doubles, where L is small, and where it is large?</details>
# <details><summary>It keeps more than it should</summary>A list that is filled anew still holds the old arrays until
# the new list takes its name. <code>pop()</code> takes an array out of a list as it hands it over.</details>


# %% exercise="in_segments"
def in_segments(chain, x, slope):
    """The gradient by the chain's input, with few arrays kept and no layer computed more than twice.

    chain: chain.layers is their number, n; forward and backward as above. x: the chain's input; slope: the gradient by
    its output. At most 2 √n arrays are kept.
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
# What you should see: at the left a ramp of calls with everything below it kept. At the right grey lines, one for the
# input of each segment, and small ramps that come and go.

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
# Look at the grey lines: when the first segment has its turn, on the far right, all others are gone. The room is there,
# and stays empty. With equal segments of 10, 100 layers need 18 arrays. If everything is free, and only the forward
# calls must not be more than 200 in all: how many arrays do they need?

# %% editable=true
predict("arrays for 100 layers, 200 forward calls", None)

# %%
enough = next(kept for kept in range(1, 100) if fewest(100, kept) <= 200)
measured(
    "arrays for 100 layers, 200 forward calls",
    enough,
    "Segments of 14, 13, … 1 layers cover 105 with 13 arrays: as snapshots go, the segments may grow.",
)

# %% [markdown]
# ### Exercise: recursively
#
# Why stop at two? A segment is a chain, and can be cut again. Let a number of arrays be given, and ask for the fewest
# forward calls.
#
# Whatever the schedule, it begins like this: go forward j layers from the input x, and keep what is there. That array
# is the input of a shorter chain, which has one array less to itself, because x must be kept as well. When it is done,
# let go of it, and x is the input of a chain of j layers. Both are the same task again. Only j is open, and halves are
# not the best answer.
#
# <details><summary>Hint</summary>Write a second function that tells the fewest forward calls for a chain of n layers
# with s arrays, by trying every j: it needs itself, for both parts. <code>@lru_cache(None)</code> above its
# <code>def</code> makes it remember what it has worked out. What is it for one layer? For more than one, and no
# array?</details>
# <details><summary>It keeps one array more than allowed</summary>A variable in your function lives as long as the
# function runs: <code>del</code> it before you go to the left.</details>


# %% exercise="recursive"
def recursive(chain, x, slope, first, last, kept):
    """The gradient by the input of layer `first`, in the fewest forward calls with at most `kept` arrays.

    chain: as above; this part of it has the layers first, first + 1, … last − 1. x: the input of layer `first`; it
    counts as one of the arrays (except in the calls that take it). slope: the gradient by the output of layer last − 1.
    kept: at least 1 if there are two layers or more.
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
# What you should see: with few arrays, ramps within ramps. Each array is kept as long as the calls on its right take.

# %%
figures.schedules(
    {f"{kept} arrays": on_a_chain(recursive, LAYERS, 0, LAYERS, kept).calls for kept in (3, 5)},
    caption=f"your recursive, a chain of {LAYERS} layers; a column is a call",
)

# %% [markdown]
# And what it costs, over all numbers of arrays:


# %%
def costs(layers=100):
    kept = np.arange(1, layers)
    best = kept, np.array([fewest(layers, int(k)) for k in kept])
    halves = kept, np.array([halved(layers, int(k)) for k in kept])
    dots = {"everything kept": on_a_chain(everything, layers), "your segments": on_a_chain(in_segments, layers)}
    dots |= {f"yours, {k} arrays": on_a_chain(recursive, layers, 0, layers, k) for k in (enough, 6, 3)}
    return figures.trade(
        {"the fewest possible": best, "always half-way": halves},
        {name: (chain.kept, chain.forwards) for name, chain in dots.items()},
        layers,
    )


costs()

# %% [markdown]
# - Equal segments lie to the right of the curve: they keep half as many arrays again as are needed.
# - The curve is steep only at its ends. If each layer may be computed t times, s arrays reach $\binom{s+t}{s}$ layers
#   (Griewank 1992): three times and nine arrays are enough for 220. With both about equal, a chain takes a logarithm of
#   its length in arrays *and* in repetitions.
# - Layers of a real network differ in size and time. The search stays the same, only the sums get weights.
#
# Arrays and calls are counts. Real ones, each of 1 MB:


# %%
def real_arrays(layers=36, **size):
    ways = {
        "everything kept": (everything,),
        "in segments": (in_segments,),
        "recursive, 7 arrays": (recursive, 0, layers, 7),
        "recursive, 4 arrays": (recursive, 0, layers, 4),
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
    table["seconds, to the first"] = table.pop("s") / table["s"].iloc[0]
    return table.round(2)


real_arrays(width=256, batch=512)

# %% [markdown]
# The peak is the kept arrays and a few more: those of the call itself, and the slopes. The time grows less than the
# forward calls, because a backward pass is two thirds of a step and more.
#
# ## A residual network
#
# On the slide that 1d quoted, the naive strategy is to keep the input of each residual block only: "25 % more compute
# saves 80 % memory", for a batch of 16 on a CPU. Recorded: a Wide ResNet in TensorFlow, 16 images of 32 × 32, every
# block in a `tf.recompute_grad` or none. Each run was a process of its own, asked for its largest resident memory.
#
# ### Predict
#
# A block is twice batch norm, ReLU and convolution, and keeps four arrays of about the same size. Which percentage of
# the memory is saved at depth 40 (18 blocks)? And how many percent longer does a step take?

# %% editable=true
predict("percent of the memory saved, depth 40", None)
predict("percent more seconds, depth 40", None)

# %%
runs = pd.read_csv("recorded/recompute.csv", comment="#")
deep = runs[runs["depth"] == 40].pivot(index="run", columns="recompute")
saved = statistics.mean(100 * (1 - deep["megabytes", True] / deep["megabytes", False]))
longer = statistics.mean(100 * (deep["seconds", True] / deep["seconds", False] - 1))
measured(
    "percent of the memory saved, depth 40",
    saved[0],
    "Of four arrays one remains, so not above 75; and the block at work has all of its four.",
)
measured(
    "percent more seconds, depth 40",
    longer[0],
    "A forward pass is a third of a step. What of a block need not be computed again?",
)
print(f"95 % intervals: saved {saved[0]:.1f} ± {saved[1]:.1f} %, longer {longer[0]:.0f} ± {longer[1]:.0f} %")
Image("recorded/recompute.png", width=plots.WIDTH)

# %% [markdown]
# - **Memory.** At depth 40 the step needs 187 MB more than with one image, and 60 MB with recomputing: 68 % saved. The
#   deeper the network the more, because the block at work counts less. But the count has a floor: of the four arrays
#   of a block one must stay, so 75 % is out of reach here. A program that keeps the output of *every* operation has
#   seven arrays in a block, and could save six of them. So "80 %" says as much about the program that one starts from
#   as about the trick.
# - **Time.** If all of a block's forward pass is repeated, a step takes a third longer. But the output of the block's
#   second convolution is not needed to go back through the block. A graph that leaves it out repeats half of the
#   products: a sixth longer. The slide's 25 % lies in between, and the measured number is printed above.
# - **A trap.** What is computed again must come out the same. Dropout draws another mask, unless its generator is set
#   back. Batch norm moves its moving averages twice. (Here the network has none.) And a compiler that finds the same
#   expression twice may compute it once and keep it: `tf.recompute_grad` makes the second one depend on the gradient
#   that arrives, so that it can't be had earlier.
#
# ## Send it away
#
# The host has more memory than the device. vDNN (Rhu et al. 2016) sends a layer's input to the host while the layer
# computes, and brings it back before the backward pass needs it. It is free of charge if the transfer is no longer
# than the computation that it hides behind. When is that so? Two speeds decide: operations of the device, and bytes of
# the cable.
#
# ### Predict
#
# The transfer takes twice as long as the layer's forward pass. Now the batch is doubled. How many times as long as the
# forward pass does the transfer take? And with images of twice the width and height (a convolution, the same channels)?

# %% editable=true
predict("transfer over computation, batch doubled", None)
predict("transfer over computation, images doubled", None)

# %% [markdown]
# ### Exercise: what decides
#
# A convolution with a k × k kernel, stride 1 and padding that keeps the size, in single precision. Its input leaves
# while it computes, forward. From how many *output* channels on does the transfer hide? Everything else should cancel.
#
# <details><summary>Hint</summary>The transfer takes the numbers of the input, times bytes, over the bandwidth. And the
# computation: in how many multiply-adds does each number of the input take part? Set both equal.</details>


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
# From left to right, arithmetic gets forty times as fast and the cable four times: roughly the way from graphics cards
# of 2015 on PCIe 3 to accelerators on PCIe 5. VGG-16's convolutions have 64 to 512 channels of 3 × 3, so most of them
# hide on the first. A 1 × 1 convolution needs nine times as many channels as one of 3 × 3.
#
# ### Exercise: bring it back in time
#
# On the way back the question is *when*. Too late, and a layer waits. Too early, and the array lies on the device again
# while nobody needs it: the memory was saved for nothing. Transfers share one cable and come one at a time, in the
# order in which they are needed.
#
# <details><summary>Hint</summary>The last transfer is easy: what is the latest that it can start? Then the one before
# it has two deadlines.</details>


# %% exercise="prefetch"
def prefetch(needed, seconds):
    """When each transfer should start, so that none is late and each starts as late as it can.

    needed: the moments at which the arrays must be there, rising, in seconds from the start of the backward pass.
    seconds: that each transfer takes. Both lists have the same length, which may be 0.
    Returns the starts, in the same order. Where time is short they are below 0.
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
# Now a whole step, with your plan for the way back. In VGG-16 and in ResNet-50 (whose blocks count as layers), what
# happens if all inputs are moved, or only those that hide? Then make the device ten times as fast.


# %%
def plan(layers, moved):
    """The numbers of the layers whose input is moved. The last layer's is needed at once, so it always stays."""
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
    """All arrays come back from the start of the backward pass on, one after the other."""
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
# - What hides costs nothing, and in VGG-16 that is most of the layers. Moving everything saves more, and makes the step
#   longer. (Rhu et al. report 18 % for VGG-16 with 256 images, against an imagined card that could hold them all.)
# - What comes back at once fills the memory again: the way back decides what is saved.
# - ResNet-50 has nothing that hides, not even on the old card: its batch norms and 1 × 1 convolutions keep many numbers
#   for little arithmetic. There one computes again what is cheap (batch norm, ReLU), and sends away nothing.
#
# ## Share it out
#
# Now the other kind of network: many weights. In data parallelism every rank holds the same state of the optimizer,
# and every rank makes the same update of all weights: N times the same memory and the same work. ZeRO (Rajbhandari et
# al. 2019) gives each rank its share, in three stages:
#
# 1. the optimizer's **state**;
# 2. the averaged **gradients** as well: each rank keeps only what its own update needs;
# 3. the **weights** as well: each layer's are gathered just before it computes, forward and again backward, and dropped
#    afterwards.


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
# How many times as many does it send in stage 1, in stage 2, and in stage 3?

# %% editable=true
predict("traffic of stage 1, over an all-reduce", None)
predict("traffic of stage 2, over an all-reduce", None)
predict("traffic of stage 3, over an all-reduce", None)

# %% [markdown]
# ### Exercise: an optimizer in shares
#
# 2a: an all-reduce is a reduce-scatter, after which each rank has a part of the sum, and an all-gather, after which all
# have all parts. All numbers of the network stand in one vector of length n. Write stage 2, with an Adam that knows
# only this rank's part. Send nothing that nobody needs.
#
# The parts are those of `np.array_split`: where n can't be divided, the first ranks have one number more.
#
# <details><summary>Hint</summary>What do the other ranks need from this one at the end of the step: gradients, or
# weights? And which numbers of the vector are this rank's? <code>np.array_split(weights, N)</code> has all parts; their
# lengths tell where each begins.</details>


# %% exercise="sharded"
class Sharded:
    """An optimizer of which each rank keeps the state for its own part of the weights."""

    def __init__(self, me, weights, make):
        """Prepare the step.

        me: this rank: me.rank, me.size; me.reduce_scatter(array [n]) → this rank's part of the sum over the ranks;
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

        weights: [n], left as they are; gradient: [n], the mean over this rank's own examples, as many on each rank.
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
# Now real ranks: Fashion-MNIST in a network of four dense layers, ten steps. Four processes, first as two pairs, then
# all four together. Each run also does it the plain way, with an all-reduce and an Adam for everything, and the memory
# of both optimizers is traced. The serial run happens here, on all images.

# %%
fashion = data.load("fashion_mnist")
IMAGES = 256
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


class Alone:
    rank, size = 0, 1

    @staticmethod
    def all_reduce(array):
        return array


def train(way, me):
    """Weights after STEPS with this rank's images, and the bytes that the optimizer takes."""
    with peaks.traced() as before:
        optimizer = way(me, first, shards.Adam)
        state = peaks.in_use() - before
    weights, mine = first, slice(me.rank, None, me.size)
    for _ in range(STEPS):
        weights = optimizer.step(weights, network.gradient(weights, x[mine], y[mine]))
    return weights, state


def on_a_rank():
    import horovod.tensorflow as hvd
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")  # NumPy's arrays are on the host
    pairs = [hvd.ProcessSet([0, 1]), hvd.ProcessSet([2, 3])]
    hvd.init(process_sets=pairs)
    found = []
    for group in (pairs[hvd.rank() // 2], hvd.global_process_set):
        me = shards.HorovodRank(hvd, group)
        for way in (Plain, Sharded):
            weights, state = train(way, me)
            found.append({"ranks": me.size, "rank": me.rank, "way": way.__name__, "weights": weights, "state": state})
    return found


def on_ranks():
    with Filling("four ranks start") as line:
        line.at(0.02, "TensorFlow is loaded four times")
        found = launch.call(on_a_rank, 4, env=launch.ONE_THREAD)
    return pd.DataFrame([row for rows in found for row in rows]).drop_duplicates(["ranks", "rank", "way"])


def beside_the_serial_run():
    rows = on_ranks()
    rows["largest difference of a weight"] = [f"{np.abs(weights - serial).max():.0e}" for weights in rows["weights"]]
    rows["bytes of state"] = [f"{state:,}" for state in rows["state"]]
    rows["of the whole"] = [f"{state / serial_state:.1%}" for state in rows["state"]]
    return rows.drop(columns=["weights", "state"]).set_index(["ranks", "way", "rank"]).sort_index()


serial, serial_state = train(Plain, Alone())
print(f"{n:,} weights; the serial run's Adam: {serial_state:,} bytes")
beside_the_serial_run()

# %% [markdown]
# The same weights as the serial run, to the rounding of float64, from a half or a quarter of the state. (Plus what
# Python's objects take. Three quarters in place of a quarter? Then the optimizer holds an array of indices, which is as
# long as one of Adam's two, or a view of one, which keeps the whole alive. A slice takes nothing.) And the traffic? On
# simulated ranks every number is counted:


# %%
def numbers_sent(way, ranks):
    """That a rank sends in one step, over n: the mean of all ranks."""

    def program(me, rank):
        return way(me, first, shards.Adam).step(first, network.gradient(first, x[rank::ranks], y[rank::ranks]))

    return shards.simulate(program, range(ranks))[1].mean() / n


def stage_3(me, part):
    """What travels in stage 3: the weights before the way there and before the way back, then the gradients."""
    for _ in range(2):
        whole = me.all_gather(part)
    return me.reduce_scatter(whole)


def traffic(ranks):
    parts = np.array_split(first, ranks)
    sent = {way.__name__: numbers_sent(way, ranks) for way in (Plain, Sharded)}
    return {**sent, "stage 3": shards.simulate(stage_3, parts)[1].mean() / n}


table = pd.DataFrame({f"{ranks} ranks": traffic(ranks) for ranks in (2, 4, 8)})
ratios = table["4 ranks"] / table["4 ranks"]["Plain"]
for stage, way in ((1, "Sharded"), (2, "Sharded"), (3, "stage 3")):
    measured(
        f"traffic of stage {stage}, over an all-reduce",
        ratios[way],
        "An all-reduce is a reduce-scatter and an all-gather. Who counts those knows all three.",
    )
table.round(3)

# %% [markdown]
# Stages 1 and 2 send the same: what the gradients' all-gather sent, the weights' all-gather sends now. The memory is
# free of charge. Only stage 3 pays, half as much again, because the weights travel twice. (These are rings. Horovod's
# reduce-scatter over Gloo is none, and sends somewhat more. And in 16 bits weights and gradients are equally long on
# the wire; where the gradients have fewer, as in 5b, an all-gather of full weights is the larger half.)
#
# The same in Keras, for networks that do not stand in one vector, is the script `sharded.py` beside this notebook, in
# a class of twenty lines. Try it: `course run sharded.py -np 2`.
#
# ## Norms of what nobody has
#
# Adam treats each number by itself. LARS does not: layer by layer, its rate is $\eta \, \|w\| / \|\nabla L\|$ (3d; here
# without decay). After the reduce-scatter no rank has the whole averaged gradient of a layer that is cut. Three places
# where one might take the norms:
#
# - **before the reduce-scatter**, where each rank still has a whole gradient: its own;
# - **after it**, of the rank's own pieces of the layers;
# - **after it, of the whole layers**, with one more message.
#
# ### Predict
#
# Four ranks share the network above. Of its four weight matrices, how many get a wrong rate on some rank if each takes
# the norms of its own pieces? And are the rates that come from the norms before the reduce-scatter too `"large"`, too
# `"small"`, or `"right"`?

# %% editable=true
predict("weight matrices with a wrong rate from pieces", None)
predict("rates from norms before the reduce-scatter", None)

# %% [markdown]
# ### Exercise: the norms of whole layers
#
# With one all-reduce of very few numbers every rank can know the norm of every layer. Which numbers?
#
# <details><summary>Hint</summary>A layer has the norm 5, and its two pieces have the norms 3 and 4. What has been added
# up? Of the layers that a rank has nothing of, it has nothing to add. Slices don't mind ends that lie beyond an array,
# but they do mind negative ones.</details>


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
    """So that `layer_norms` takes the norms of what is at hand."""

    rank, size = 0, 1

    @staticmethod
    def all_reduce(array):
        return np.asarray(array)


def norms_in_three_places(ranks=4):
    """LARS's rates of the weight matrices on each rank, over those of the serial run."""
    weights, bounds = serial, network.bounds
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
    "Count the layers that an end of a part falls into: the others lie whole on one rank.",
)
middle = table[table["place"] == "before the reduce-scatter"]["ratio"].median()
measured(
    "rates from norms before the reduce-scatter",
    "small" if middle < 0.99 else "large" if middle > 1.01 else "right",
    "Each rank's own gradient has more noise than their average (1b), and noise makes it longer.",
)
figures.rates(table, caption=f"{fashion.name}, {IMAGES} images, four simulated ranks, after {STEPS} steps of Adam")

# %% [markdown]
# - **Before** the reduce-scatter all rates are too small, and differ from rank to rank: a layer that is cut would be
#   moved at two speeds. Averaging these norms would not help either: the mean of the lengths is not the length of the
#   mean.
# - **Of own pieces** the layers that lie whole on one rank are right, and the others wrong. It is an error that nobody
#   notices: the run goes on, a little worse, and changes with the number of ranks.
# - **Of whole layers** it is right, for two numbers a layer and step. An all-reduce of squares comes after the
#   averaging and before the update. Global gradient clipping needs the same, with one number.
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# | what fills the memory | remedy | price |
# |---|---|---|
# | activations of a chain | keep s inputs, compute the rest again | t forwards a layer, for $\binom{s+t}{s}$ layers |
# | inputs put together from others | put them together again | a copy |
# | activations of wide convolutions | send them to the host | none, if k² c is large enough for the two speeds |
# | state and gradients | a share on each rank (ZeRO 1, 2) | none; norms need an all-reduce of squares |
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
# - S. Knowles: *Graphcore Intelligent Processing Unit.* Slides, Deep Learning at Supercomputer Scale, NIPS 2017
