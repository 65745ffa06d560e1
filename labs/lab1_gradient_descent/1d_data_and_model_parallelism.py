# %% [markdown]
# # 1d Data and model parallelism
#
# This notebook takes one step of training apart, into fifteen small steps, some on the host and some on the device.
# Then it puts the same step on many devices, in two ways: each device gets a part of the *data*, or a part of the
# *model*.
#
# **You will be able to** write the backward pass of a network and say what it costs; say what each device holds and
# what is sent between devices in either way; tell from a network and a batch size which way sends fewer bytes; and
# predict the memory that training takes.
#
# **Time:** 55 minutes; the runs take about 10 seconds on 2 CPU cores.
#
# **Needs:** 1c, or some idea of what a convolution and a batch norm do. No data and no GPU.

# %%
import time

import numpy as np
import pandas as pd

from course_lib import models
from course_lib.cost.memory import NETWORKS, OPTIMIZERS, cuts, walk
from course_lib.notebook import plots, predictions, widgets
from course_lib.notebook.predictions import measured, predict
from labs.lab1_gradient_descent.lessons import figures_1d as parallelism
from labs.lab1_gradient_descent.lessons import peak_memory as peak
from labs.lab1_gradient_descent.lessons.checks_1d import check, misjudged, misplaced, points
from labs.lab1_gradient_descent.lessons.quiz_1d import DATA_AND_MODEL_PARALLELISM

# %% [markdown]
# ## Fifteen steps
#
# A network with three layers trains on one device, such as a GPU with memory of its own. The host is the computer
# that the device is built into. One step of training is:
#
# 1. Ask the disk for the files of the next batch.
# 2. Bring their bytes into the host's memory.
# 3. Decode, crop and scale the images.
# 4. Put the finished batch into a queue, so that it is ready when the device needs it.
# 5. Bring the batch into the device's memory.
# 6. Compute the activations of layer one.
# 7. Compute the activations of layer two.
# 8. Compute the output, layer three.
# 9. Compute the loss from output and labels.
# 10. Backpropagate through layer three.
# 11. Backpropagate through layer two.
# 12. Backpropagate through layer one.
# 13. Let the optimizer make a change from each gradient: with momentum, Adam …
# 14. Add the change to the weights.
# 15. Return: the Python loop goes on to the next batch.
#
# ### Place them
#
# Does each step happen on the **host** or on the **device**, or is it a transfer over a **wire** (a cable or a bus)?
# The weights of all layers are in the device's memory.
#
# <details><summary>Hint</summary>Two of the fifteen are transfers. Whatever is in the device's memory stays there until
# the step is over.</details>


# %% exercise="place"
def place():
    """Where the fifteen steps happen: {"host": [...], "wire": [...], "device": [...]}, lists of step numbers."""
    ### BEGIN SOLUTION
    return {"host": [1, 3, 4, 15], "wire": [2, 5], "device": list(range(6, 15))}
    ### END SOLUTION


# %%
check(place)

# %% hidden="place" points=2
### BEGIN HIDDEN TESTS
points(place, 2)
### END HIDDEN TESTS

# %% [markdown]
# The figure shows your answer; time runs from left to right. Between steps 5 and 15 nothing should leave the device: a
# copy to the host and back takes longer than these small steps.

# %%
parallelism.lanes(place(), misplaced(place()))

# %% [markdown]
# ### Exercise: steps 10 to 12
#
# Here is the network, three dense layers without biases, and its forward pass. Each layer multiplies its input by its
# weights; between the layers, ReLU sets all negative numbers to 0.


# %%
def forward(weights, x):
    """The input of each layer, a list [x, h₁, h₂], and the output [m, classes]. weights: [w₁, w₂, w₃]."""
    inputs = []
    for w in weights:
        inputs.append(x)
        output = x @ w
        x = np.maximum(output, 0)
    return inputs, output


# %% [markdown]
# Step 9 gives you the gradient of the loss by the output, `slope`. Write the backward pass. Each layer needs two
# gradients: one by its weights, for the update, and one by its input, for the layer before. Their shapes leave little
# choice: [inputs, outputs] for the first, [m, inputs] for the second. Don't forget the ReLU: where it gave 0, a small
# change of its input changes nothing.
#
# <details><summary>Hint</summary>Both gradients are products of <code>slope</code> with something that the layer used
# in the forward pass; one of them has it on the left, transposed. ReLU gave 0 exactly where the next layer's input is
# not above 0.</details>


# %% exercise="backward"
def backward(weights, inputs, slope):
    """The gradient by each layer's weights: a list, in the order of the layers.

    weights: [w₁, w₂, w₃]; inputs: [x, h₁, h₂], from `forward`; slope: the gradient by the output, [m, classes].
    """
    ### BEGIN SOLUTION
    gradients = []
    for w, h in zip(reversed(weights), reversed(inputs)):
        gradients.append(h.T @ slope)
        slope = (slope @ w.T) * (h > 0)
    return gradients[::-1]
    ### END SOLUTION


# %%
check(backward)

# %% hidden="backward" points=3
### BEGIN HIDDEN TESTS
points(backward, 3)
### END HIDDEN TESTS

# %% [markdown]
# ### Predict
#
# How many times as long as the forward pass does the backward pass take?

# %% editable=true
predict("backward pass, in forward passes", None)


# %%
def shortest(work, repeats=7):
    """The seconds of the fastest of several runs: other work on the machine can only slow it down."""
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


rng = np.random.default_rng(0)
wide = [rng.standard_normal((768, 768), dtype=np.float32) / 28 for _ in range(3)]
inputs, output = forward(wide, rng.standard_normal((512, 768), dtype=np.float32))
there, back = shortest(lambda: forward(wide, inputs[0])), shortest(lambda: backward(wide, inputs, output))
measured(
    "backward pass, in forward passes",
    back / there,
    "For each product of the forward pass, the backward pass has two: by the weights, and by the input.",
)
print(f"forward {1000 * there:.1f} ms, backward {1000 * back:.1f} ms: {back / (there + back):.0%} of both together")

# %% [markdown]
# The backward pass has two products for each one of the forward pass. So it is about two thirds of a step's computing,
# and the forward pass one third; lab 4 uses these shares. This matters for communication: when the gradient of the
# *last* of three equal layers is ready, two thirds of the backward pass are still to come, and its exchange can begin.
#
# ### Now on N devices
#
# With **data parallelism** every device has the whole network and goes through all fifteen steps, with a process of
# its own on the host. All devices start the step with equal weights and must end it with equal weights. For that they
# communicate once in a step: an **all-reduce** adds up what each device has and gives every device the sum (or the
# average).
#
# Which steps work on numbers that *differ* from device to device? After which step does the all-reduce come?
#
# <details><summary>Hint</summary>Follow the images: where does a difference between two devices begin? The all-reduce
# ends it. What is averaged must be complete, and not yet used.</details>


# %% exercise="data_parallel"
def data_parallel():
    """(differs, after) for data parallelism on several devices.

    differs: a set of the steps from 1 to 14 whose numbers differ from device to device.
    after: the number of the step after which all devices average their gradients.
    """
    ### BEGIN SOLUTION
    differs = set(range(1, 13))
    return differs, 12
    ### END SOLUTION


# %%
check(data_parallel)

# %% hidden="data_parallel" points=2
### BEGIN HIDDEN TESTS
points(data_parallel, 2)
### END HIDDEN TESTS

# %%
parallelism.shares(*data_parallel(), misjudged(*data_parallel()))

# %% [markdown]
# Left of the bar, N devices do N times the work of one device in the same time. Right of it, all devices compute the
# same small update.
#
# With **model parallelism** the network is cut. In its simplest form, which this notebook uses, each device gets whole
# layers. Suppose device 0 has layer one, and device 1 the other two. Then the activations cross between steps 6 and 7,
# their gradients come back between steps 11 and 12, and each device updates its own layers: no weight gradient is
# exchanged. (In *tensor parallelism* each layer is cut, and every device has some of its columns: 7a.)

# %% [markdown]
# ## What crosses the wires
#
# ### Data parallelism
#
# The best known all-reduce is a **ring** of $N$ devices (Patarasuk, Yuan 2009; you will write one in lab 2). Each
# device cuts its gradients into $N$ pieces. In a first round the pieces travel along the ring and are added up on the
# way: each device sends $N - 1$ of them. In a second round the sums travel on: another $N - 1$. As long as only devices
# add, no all-reduce sends fewer bytes. Numbers are in single precision: 4 bytes.


# %%
def bytes_data_parallel(weights, devices):
    """Bytes that each device sends in one data-parallel step; weights: how many numbers the network learns."""
    piece = 4 * weights / devices
    return 2 * (devices - 1) * piece


# %% [markdown]
# ### Model parallelism
#
# Where the network is cut between two layers, the output of the first one must cross, for each image of the batch. In
# the backward pass the gradient of the loss by these activations crosses in the other direction: as many numbers.
#
# How many bytes cross in a step, over *all cuts* together and both ways?
#
# <details><summary>Hint</summary>Numbers at all cuts, times images, times ways, times bytes.</details>


# %% exercise="bytes_model_parallel"
def bytes_model_parallel(crossing, batch):
    """Bytes that cross all cuts in one model-parallel step, forward and backward.

    crossing: list with, for each cut, how many activations of one image cross it; batch: number of images.
    """
    ### BEGIN SOLUTION
    one_way = 4 * batch * sum(crossing)
    return 2 * one_way
    ### END SOLUTION


# %%
check(bytes_model_parallel)

# %% hidden="bytes_model_parallel" points=2
### BEGIN HIDDEN TESTS
points(bytes_model_parallel, 2)
### END HIDDEN TESTS

# %% [markdown]
# ### Predict
#
# Four devices, a step on 256 images in all. Which way moves fewer bytes, "data" or "model", for ResNet-50 (25.6 million
# weights, many of them used over and over on large images) and for AlexNet (61 million weights, most of them in its
# dense layers)?

# %% editable=true
predict("fewer bytes for ResNet-50: data or model", None)
predict("fewer bytes for AlexNet: data or model", None)


# %%
def bytes_over_all_wires(network, devices, batch):
    return {
        "data": devices * bytes_data_parallel(network.weights, devices),
        "model": bytes_model_parallel(cuts(network, devices), batch),
    }


for name in ("ResNet-50", "AlexNet"):
    load = bytes_over_all_wires(NETWORKS[name], 4, 256)
    measured(
        f"fewer bytes for {name}: data or model",
        min(load, key=load.get),
        "Neither number decides alone: compare the weights with the activations that cross the cuts.",
    )
pd.DataFrame(
    {
        name: {
            "million weights": f"{network.weights / 1e6:.3g}",
            "billion multiply-adds an image": f"{network.multiply_adds / 1e9:.3g}",
            **{f"{way} parallelism": parallelism.size(b) for way, b in bytes_over_all_wires(network, 4, 256).items()},
        }
        for name, network in NETWORKS.items()
    }
).T

# %% [markdown]
# At the three cuts of ResNet-50, 401,408, 200,704 and 200,704 numbers cross for each image. At those of AlexNet, behind
# its first three convolutions, there are 69,984, 43,264 and 64,896: in all less than a quarter of that, for more than
# twice the weights. So at this batch, ResNet-50's gradients are the smaller load, and AlexNet's activations.
#
# (Published counts differ. AlexNet without its groups of channels has 62.4 million weights. ResNet-50 has 4.1 billion
# multiply-adds in most frameworks, which halve the image one convolution later in a block.)
#
# ### Exercise: the crossover
#
# One of the two loads grows with the batch, the other does not. So at some batch both are equal: below it, model
# parallelism moves fewer bytes over all wires together; above it, data parallelism does. Derive this batch.
#
# <details><summary>Hint</summary>Write both loads down, for all devices together. Much cancels.</details>


# %% exercise="crossover"
def crossover(weights, crossing, devices):
    """The batch at which both ways move equally many bytes over all wires: a number, not rounded.

    weights: how many numbers the network learns; crossing: as for `bytes_model_parallel`; devices: 2, 3, …
    """
    ### BEGIN SOLUTION
    return weights * (devices - 1) / sum(crossing)
    ### END SOLUTION


# %%
check(crossover)

# %% hidden="crossover" points=2
### BEGIN HIDDEN TESTS
points(crossover, 2)
### END HIDDEN TESTS

# %%
pd.DataFrame(
    {
        name: {f"{devices} devices": round(crossover(network.weights, cuts(network, devices), devices))
               for devices in (2, 4, 8)}
        for name, network in NETWORKS.items()
    }
).T  # fmt: skip

# %% [markdown]
# There are $N - 1$ cuts. So the crossover is the number of weights divided by the mean number of activations at a cut;
# it hardly depends on the number of devices.
#
# ## Memory
#
# Training keeps in the device's memory:
#
# - the **weights**,
# - a **gradient** for each weight,
# - the **optimizer's state**: nothing for plain SGD, one number for each weight for momentum, two for Adam,
# - the **activations** of each image of the batch, because the backward pass needs them again.
#
# Write down the bytes of each part, in single precision.
#
# <details><summary>Hint</summary>Three of the four do not depend on the batch.</details>


# %% exercise="memory"
def memory(weights, activations, batch, state_per_weight):
    """Bytes that training keeps: a dict with the keys "weights", "gradients", "state" and "activations".

    weights: how many numbers the network learns; activations: how many are kept for one image; batch: images of a
    step; state_per_weight: how many numbers the optimizer keeps for each weight.
    """
    ### BEGIN SOLUTION
    learned = 4 * weights
    return {
        "weights": learned,
        "gradients": learned,
        "state": state_per_weight * learned,
        "activations": 4 * activations * batch,
    }
    ### END SOLUTION


# %%
check(memory)

# %% hidden="memory" points=2
### BEGIN HIDDEN TESTS
points(memory, 2)
### END HIDDEN TESTS


# %% [markdown]
# ## Who holds what
#
# The next figure puts everything together and uses your functions. The network is cut so that the busiest device has
# as few multiply-adds as possible. Both ways process the same batch $B$ in a step; the optimizer is SGD with momentum.


# %%
def draw(network, mode, devices, power):
    return parallelism.exchange(
        NETWORKS[network],
        mode,
        devices,
        2**power,
        data_bytes=bytes_data_parallel,
        model_bytes=bytes_model_parallel,
        parts=memory,
        state=OPTIMIZERS["momentum"],
    )


widgets.explore(
    draw,
    network=widgets.choice("network", ["ResNet-50", "AlexNet", "WRN-28-10", "small CNN"]),
    mode=widgets.choice("parallel in", {"data": "data", "model": "model"}),
    devices=widgets.slider("devices N", 2, 8, 4),
    power=widgets.slider("log₂ of the batch size B", 3, 13, 8),
)

# %% [markdown]
# Try to find out:
#
# - In model parallelism the devices have about equal work, not equal memory. Which device needs the most, and why?
# - In data parallelism, what happens to the memory of a device when you double the devices? Which part stays the same?
#
# <details><summary>Answers</summary>In ResNet-50 and WRN-28-10 the first device needs the most: the early layers have
# the large images, which must be kept. In AlexNet with few images it is the last device, with the weights of the dense
# layers. In data parallelism, twice as many devices halve the activations of each; weights, gradients and state stay
# the same.</details>
#
# Bytes are not time. In model parallelism as drawn here, one device computes while the others wait. Small pieces of the
# batch, sent one after the other, keep them busy (a *pipeline*: 7b). In data parallelism all devices compute at the
# same time. That, and the crossover, is why this course is mostly about data parallelism. Networks too large for one
# device need model parallelism as well.
#
# ### What fits?

# %%
widgets.explore(
    lambda network, optimizer, power: parallelism.memory(
        NETWORKS[network], 2**power, parts=memory, state=OPTIMIZERS[optimizer]
    ),
    network=widgets.choice("network", ["ResNet-50", "AlexNet", "WRN-28-10", "small CNN"]),
    optimizer=widgets.choice("optimizer", list(OPTIMIZERS)),
    power=widgets.slider("log₂ of the batch size B", 0, 13, 8),
)

# %% [markdown]
# With momentum, the activations take more memory than all the rest from a batch of 2 (small CNN), 4 (ResNet-50), 24
# (WRN-28-10) and 130 (AlexNet) on. Rhu et al. (2016) therefore move them to the host's memory until they are needed.
# One can also discard most of them, and compute them again in the backward pass: an example by Graphcore (slides by
# Simon Knowles, 2018) keeps only the input of each residual block; it takes 25 percent more computing and 80 percent
# less memory. (5c tries that.)
#
# ## Count and measurement
#
# Here is the course's small CNN in Keras, layer by layer, for one image:

# %%
layers = pd.DataFrame(walk(models.small_cnn((28, 28, 1), 10)))
layers

# %% [markdown]
# (1c's 48,106 parameters include 288 moving averages of batch norm, which are not trained.)
#
# `outputs` counts the numbers in a layer's output. `kept` marks the outputs that the backward pass needs again. The
# gradient of a convolution needs the convolution's input; that of a batch norm needs *its* input, which is the
# convolution's output; that of a ReLU needs only where its output is 0. So the output of a batch norm is not kept.
#
# ### Predict
#
# Next, a process trains this network for two steps with plain SGD, at growing batch sizes, and we ask the operating
# system for its peak memory. How many MB more will the peak be with 1,024 images than with 1?

# %% editable=true
predict("MB more with 1,024 images than with 1", None)


# %%
def grown(rows):
    """MB that the peak grew by, from the first to the last batch."""
    return (rows[-1]["peak"] - rows[0]["peak"]) / 1e6


def predicted(numbers):
    """MB that `memory` says the growth from 1 to 1,024 images is, with so many numbers kept for an image."""
    weights = int(layers["weights"].sum())
    small, large = (sum(memory(weights, numbers, batch, OPTIMIZERS["SGD"]).values()) for batch in (1, 1024))
    return (large - small) / 1e6


kept = int(layers.loc[layers["kept"], "outputs"].sum())
every = int(layers["outputs"].sum())
forecast = {"what the backward pass needs": predicted(kept), "all outputs": predicted(every)}
rows = []
for row in peak.training((1, 128, 256, 512, 1024)):
    rows.append(row)
    print(f"batch {row['batch']:>5,}: {row['peak'] / 1e6:,.0f} MB")
measured(
    "MB more with 1,024 images than with 1",
    grown(rows),
    "For each image, the outputs of many layers are kept, not only the image itself.",
)
print("counted:", ", ".join(f"{name} {megabytes:.0f} MB" for name, megabytes in forecast.items()))
parallelism.measured(
    rows,
    {name: 1e6 * megabytes / 1023 for name, megabytes in forecast.items()},
    caption="models.small_cnn · SGD, 2 steps each · peak resident memory of one process · " + plots.provenance(),
)

# %% [markdown]
# What you should see:
#
# - The peak grows along a straight line: activations are the part that grows with the batch.
# - The line is steeper than the count of what the backward pass needs. During the backward pass there are also the
#   *gradients of activations*, one layer's at a time, and work space of the library that computes convolutions. So the
#   count is a lower bound: leave room, or measure.
# - "All outputs" may come closer, but only by chance: it counts outputs of batch norm, which are not kept, and leaves
#   out the gradients and the work space.
# - With one image the peak is already hundreds of MB: that is TensorFlow itself.

# %% [markdown]
# ## Quiz
#
# The quiz is not graded. Choose an answer and read the reason.

# %%
DATA_AND_MODEL_PARALLELISM

# %% [markdown]
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# The backward pass is about two thirds of a step's computing.
#
# | | data parallelism | model parallelism, by layers |
# |---|---|---|
# | the devices hold | the same layers, all of them | different layers |
# | the devices see | different images | the same images |
# | what crosses | gradients | activations and their gradients |
# | how many bytes | $2 (N-1)/N \cdot 4 W$ from each device | $2 \cdot 4 a B$ at each cut |
# | grows with | the weights | the batch |
# | you gain | speed | room for a larger network |
#
# In float32, training takes $4 W (2 + s)$ bytes, with $s$ numbers of optimizer state for each weight, and four bytes
# for each activation that is kept of each image. With larger batches the activations dominate. Frameworks need more.
#
# - P. Patarasuk, X. Yuan: *Bandwidth optimal all-reduce algorithms for clusters of workstations.* Journal of Parallel
#   and Distributed Computing 69, 2009
# - M. Rhu et al.: *vDNN: Virtualized Deep Neural Networks for Scalable, Memory-Efficient Neural Network Design.*
#   arXiv:1602.08124
# - A. Krizhevsky: *One weird trick for parallelizing convolutional neural networks* (data parallel for convolutions,
#   model parallel for dense layers). arXiv:1404.5997
# - K. He et al.: *Deep Residual Learning for Image Recognition.* arXiv:1512.03385
# - S. Zagoruyko, N. Komodakis: *Wide Residual Networks.* arXiv:1605.07146
# - A. Krizhevsky, I. Sutskever, G. Hinton: *ImageNet Classification with Deep Convolutional Neural Networks.* 2012
