# %% [markdown]
# # 2b Convert a script
#
# You have a script that trains a network on one device. In eight small steps you change it so that it trains on all
# available devices. After each step a check runs *your* script on two real Horovod ranks, measures it, and says what is
# still missing.
#
# **You will be able to** convert a Keras script to Horovod, say why each of the eight changes is needed, and recognise
# from a run which one was forgotten.
#
# **Time:** 60 minutes; the runs take about 3 minutes on 2 CPU cores.
#
# **Needs:** Python and a little Keras. No GPU.
#
# A *rank* is one of the processes that train together. On a laptop each rank gets a processor core, on a multi-GPU host
# a GPU.

# %%
import numpy as np
import pandas as pd
import psutil
from IPython.display import Image

from course_lib import data
from course_lib.notebook import plots, predictions, widgets
from course_lib.notebook.predictions import measured, predict
from course_lib.ranks import launch
from labs.lab2_horovod.lessons.checks_2b import check, check_partition, partition_points, points
from labs.lab2_horovod.lessons.diagnosis_2b import check_diagnosis, diagnosis_points, examine
from labs.lab2_horovod.lessons.figures_2b import partition

fashion = data.load("fashion_mnist")
print(f"{fashion.name} (from: {fashion.source}): {len(fashion.x_train):,} training images")

# %% [markdown]
# ## The serial script
#
# Open [`fashion_mnist.py`](fashion_mnist.py) beside this notebook (drag its tab to the right half of the window) and
# read it: 60 lines of plain Keras with a convolutional network. Now run it for three epochs on one rank.

# %%
# A rank gets one thread, as it would get one GPU. So runs on one and on two ranks can be compared.
print(f"before the run, {psutil.cpu_percent(1):.0f} % of the processor's time is in use")
serial = widgets.train("fashion_mnist.py", "--epochs", 3, ranks=1, data=fashion.name, env=launch.ONE_THREAD)

# %% [markdown]
# ### Predict
#
# Next, *two* ranks run the same script without any change. Will three epochs take half as long, as long, or twice as
# long? Will both ranks reach the same accuracy?

# %% editable=true
predict("two copies: seconds, in multiples of those of one rank", None)
predict("two copies: the same accuracy on both", None)  # "yes" or "no"

# %%
copies = widgets.train("fashion_mnist.py", "--epochs", 3, ranks=2, data=fashion.name, env=launch.ONE_THREAD)


# %%
def seconds(record):
    """The seconds of the slowest rank, without the first epoch, in which TensorFlow also builds its graph."""
    return record.epochs[record.epochs["epoch"] > 1].groupby("rank")["seconds"].sum().max()


def accuracies(record):
    """The validation accuracy that each rank reports after the last epoch."""
    return record.epochs.groupby("rank")["val_accuracy"].last()


ratio = seconds(copies) / seconds(serial)
measured(
    "two copies: seconds, in multiples of those of one rank",
    ratio,
    "Each copy does the whole work."
    + (" They also share memory, clock and perhaps cores, with other programs, too." if ratio > 1.1 else ""),
)
measured(
    "two copies: the same accuracy on both",
    "yes" if accuracies(copies).nunique() == 1 else "no",
    "The script fixes the seed, so both have the same first weights and the same order of the images.",
)
copies.epochs.pivot(index="epoch", columns="rank", values="val_accuracy").rename(columns="rank {}".format)

# %% [markdown]
# Nothing is faster: each process read every image and trained a complete network. The ranks do not know of each other
# yet. The following steps change that.
#
# The check runs `fashion_mnist.py --epochs 2 --batch-size 32 --lr 0.01 --seed 0` on a slice of 1,279 images, so keep
# the script's options. This takes 15 s or more; a line below the cell shows the progress.
#
# When a run passes all eight steps, the script runs once more, as if on two hosts: two ranks on a host without a GPU, a
# third on a host with a GPU. A step that has passed can then still fail.

# %% [markdown]
# ## Step 1: initialise
#
# With `hvd.init()` the processes find each other. Before it, no other Horovod call works. Afterwards each process knows
# its **rank** (its number among all), the **size** (how many there are) and its **local rank** (its number on its own
# host).
#
# Edit `fashion_mnist.py`: import `horovod.tensorflow.keras` as `hvd`, and initialise it before any other call of
# Horovod and before TensorFlow builds anything. Save, then check.
#
# <details><summary>Hint</summary>Put the import with the other imports, and the call right after
# <code>parser.parse_args()</code>.</details>

# %% instructor=true
from course_lib.authoring import conversions as scripts

scripts.write("fashion_mnist.py", upto="init")

# %%
check("init")

# %% hidden="init" points=1
### BEGIN HIDDEN TESTS
points("init")
### END HIDDEN TESTS

# %% [markdown]
# ## Step 2: one GPU for each rank
#
# TensorFlow uses all GPUs that it sees. Four ranks on a host with four GPUs would all put their model on the first GPU,
# and its memory would not be enough. So each rank hides all GPUs but one: the one with the number of its *local* rank.
# (The rank would be wrong: on the second of two hosts with four GPUs each, rank 4 needs GPU 0.)
#
# On a laptop there is nothing to hide, and the script must still run: use `if gpus:`. The check shows your script two
# simulated GPUs.
#
# <details><summary>Hint</summary>You need two functions of <code>tf.config</code>: one lists the physical devices, one
# sets the visible ones. Call them before TensorFlow uses a device, so right after <code>hvd.init()</code>. A third
# function, <code>tf.config.experimental.set_memory_growth</code>, prevents TensorFlow from taking all memory at
# once.</details>

# %% instructor=true
scripts.write("fashion_mnist.py", upto="gpu")

# %%
check("gpu")

# %% hidden="gpu" points=1
### BEGIN HIDDEN TESTS
points("gpu")
### END HIDDEN TESTS

# %% [markdown]
# ## Step 3: scale the learning rate
#
# With $N$ ranks and $B$ images on each, a step averages the gradient over $N B$ images:
#
# $$w \leftarrow w - \eta \, \frac{1}{N} \sum_{r=1}^{N} \nabla L_r(w)$$
#
# With the data divided among the ranks (step 6), an epoch has $N$ times fewer steps. With the old $\eta$ it would
# change the weights about $N$ times less. The **linear scaling rule** (Goyal et al. 2017) corrects for this: $\eta \to
# N \eta$. It is only approximate: lab 3 shows where it fails, and how warm-up helps.
#
# <details><summary>Hint</summary>Which of the numbers that a rank knows is $N$?</details>

# %% instructor=true
scripts.write("fashion_mnist.py", upto="rate")

# %%
check("rate")

# %% hidden="rate" points=1
### BEGIN HIDDEN TESTS
points("rate")
### END HIDDEN TESTS

# %% [markdown]
# ## Step 4: average the gradients
#
# `hvd.DistributedOptimizer(optimizer)` wraps the optimizer: before each update it all-reduces every gradient, so that
# all ranks apply the same average. The check counts the all-reduced values in Horovod's own timeline: in each step
# there must be as many as the network has trainable weights.
#
# <details><summary>Hint</summary>Wrap it before <code>model.compile</code>. If you wrap it later, nothing is reduced,
# and no error is raised.</details>

# %% instructor=true
scripts.write("fashion_mnist.py", upto="optimizer")

# %%
check("optimizer")

# %% hidden="optimizer" points=2
### BEGIN HIDDEN TESTS
points("optimizer")
### END HIDDEN TESTS

# %% [markdown]
# ## Step 5: start from the same weights
#
# Ranks that apply the same updates stay equal only if they start equal. One of Horovod's callbacks broadcasts the
# variables of rank 0 to all others, including the optimizer's momentum. So after a restart from a checkpoint, only rank
# 0 has to read it.
#
# The check runs your script with `--seed 0`, so that the ranks draw different first weights, and compares them after
# the first step.
#
# <details><summary>Hint</summary>Look at <code>hvd.callbacks</code>. The callback needs the number of the rank that
# sends. Put it first in the list of callbacks, on every rank.</details>

# %% instructor=true
scripts.write("fashion_mnist.py", upto="broadcast")

# %%
check("broadcast")

# %% hidden="broadcast" points=1
### BEGIN HIDDEN TESTS
points("broadcast")
### END HIDDEN TESTS

# %% [markdown]
# ## Step 6: share out the data
#
# So far each rank reads every image. There are two ways to divide them:
#
# - **Option 1:** shuffle, cut the data into one part for each rank, and shuffle and cut again in each epoch. Every rank
#   must use the *same* shuffle, or the parts overlap.
# - **Option 2:** each rank shuffles the whole set independently and reads the first $1/N$ of it. This is simple, but
#   in an epoch some images are read twice and others are not read.
#
# Both need the same number of batches on every rank: a rank with one more batch waits for the others, for ever, or
# until they have ended and it fails.
#
# First write both in NumPy, for the numbers of the images.


# %% exercise="option1"
def option_1(images, rank, size, epoch):
    """The numbers of the images that `rank` reads in `epoch`, by option 1.

    images: how many there are; rank: 0 … size − 1; epoch: 0, 1, …
    Returns an integer array of length images // size, in the order of reading.
    Seed the shuffle so that it is the same on every rank, and different in each epoch.
    """
    ### BEGIN SOLUTION
    order = np.random.default_rng(epoch).permutation(images)
    part = images // size
    return order[rank * part : (rank + 1) * part]
    ### END SOLUTION


# %%
check_partition(option_1, option=1)

# %% hidden="option1" points=2
### BEGIN HIDDEN TESTS
partition_points(option_1, option=1, maximum=2)
### END HIDDEN TESTS


# %% exercise="option2"
def option_2(images, rank, size, epoch):
    """The numbers of the images that `rank` reads in `epoch`, by option 2.

    Arguments and result as in `option_1`; here the shuffle differs between ranks and between epochs.
    """
    ### BEGIN SOLUTION
    order = np.random.default_rng([epoch, rank]).permutation(images)
    return order[: images // size]
    ### END SOLUTION


# %%
check_partition(option_2, option=2)

# %% hidden="option2" points=2
### BEGIN HIDDEN TESTS
partition_points(option_2, option=2, maximum=2)
### END HIDDEN TESTS

# %% [markdown]
# Each small square is an image, and its colour is the rank that reads it in that epoch. Black images are read by
# several ranks, empty ones by none.

# %%
partition({"option 1": option_1, "option 2": option_2}, images=96, ranks=4, epochs=3)

# %% [markdown]
# Now change the script. `tf.data` has a method for option 1: `dataset.shard(size, rank)` keeps every size-th image,
# beginning with number `rank`. Decide where to put it. The shuffle has a fixed seed, and shuffles again in each epoch:
# what does a rank read in the second epoch if you shard before the shuffle, and if you shard after it? And 1,279 images
# on two ranks are 640 and 639: with batches of 32 that is 20 batches and 19. Cut both to the number that all ranks
# have.
#
# <details><summary>Hint</summary>How many images do all ranks together read in a step? <code>dataset.take(n)</code>
# keeps the first <code>n</code> batches.</details>

# %% instructor=true
scripts.write("fashion_mnist.py", upto="data")

# %%
check("data")

# %% hidden="data" points=2
### BEGIN HIDDEN TESTS
points("data")
### END HIDDEN TESTS

# %% [markdown]
# ## Step 7: one rank saves and prints
#
# All ranks hold the same weights, so one checkpoint is enough, and two ranks that write the same file at the same time
# can damage it. Let only rank 0 have the checkpoint callback, `verbose=2` and the `print` lines.
#
# <details><summary>Hint</summary>Put only what saves or prints under the condition. A callback in which ranks
# communicate must be on every rank: on rank 0 alone it would wait for the others.</details>

# %% instructor=true
scripts.write("fashion_mnist.py", upto="rank0")

# %%
check("rank0")

# %% hidden="rank0" points=1
### BEGIN HIDDEN TESTS
points("rank0")
### END HIDDEN TESTS

# %% [markdown]
# ## Step 8: average the metrics
#
# Rank 0 now reports the loss and accuracy of *its* images only, which are noisier than those of all images. A callback
# averages each metric over the ranks at the end of an epoch. Put it before all callbacks that use a metric: a
# checkpoint of the *best* weights, early stopping, a schedule. (This script has none of them, so the check can't see
# where you have put it.)
#
# <details><summary>Hint</summary>It is also one of <code>hvd.callbacks</code>, on every rank.</details>

# %% instructor=true
scripts.write("fashion_mnist.py", upto="metrics")

# %%
check("metrics")

# %% hidden="metrics" points=1
### BEGIN HIDDEN TESTS
points("metrics")
### END HIDDEN TESTS

# %% [markdown]
# ## The converted script
#
# All eight changes are made. How long will three epochs on two ranks take now, and which accuracy will they reach?

# %% editable=true
predict("converted: how many times as fast as one rank", None)
predict("converted: validation accuracy", None)

# %%
converted = widgets.train("fashion_mnist.py", "--epochs", 3, ranks=2, data=fashion.name, env=launch.ONE_THREAD)

# %%
runs = {"serial, 1 rank": serial, "two copies": copies, "converted, 2 ranks": converted}
faster = seconds(serial) / seconds(converted)
measured(
    "converted: how many times as fast as one rank",
    faster,
    "2 would be perfect. Communication, waiting for the slower rank, and cores that share memory and clock take time."
    if faster > 1
    else "Slower than one rank: each step of this small network is short, and communication, or another program, took "
    "more time than half the number of steps saved.",
)
measured(
    "converted: validation accuracy",
    accuracies(converted)[0],
    "The batch is twice as large, so there were half as many updates. After so few epochs this often costs accuracy.",
)
pd.DataFrame(
    {
        name: {
            "seconds for epochs 2 and 3": seconds(run),
            "images read by each rank": run.epochs["images"].max(),
            "speed-up": seconds(serial) / seconds(run),
            "validation accuracy": accuracies(run)[0],
        }
        for name, run in runs.items()
    }
).T.round(3)

# %% [markdown]
# ## What each omission costs
#
# The converted script was trained without one of the steps, for each step, for three epochs on 12,799 images with
# `--seed 0 --lr 0.02`. Some omissions stop the script, some cost accuracy, some have no visible effect, and one makes
# the network *better*.
#
# Which one? And how many points of accuracy (per cent of the validation images) do two others cost: gradients that are
# not averaged, and different first weights?

# %% editable=true
predict("the step without which accuracy rises", None)  # its number
predict("points lost when nobody averages the gradients", None)
predict("points lost with different first weights", None)

# %% [markdown]
# Each variant that trains was run ten times. `course reproduce omissions` makes this figure and table again, in about
# half an hour.

# %%
omissions = pd.read_csv("recorded/omissions.csv", comment="#")
# These steps do not change the training of two ranks on a CPU: forty runs that differ only by chance.
SAME = ("nothing left out", "2 one GPU each", "7 one rank saves", "8 average metrics")
accuracy = (
    100 * omissions[["accuracy of rank 0", "accuracy of rank 1"]].mean(axis=1).groupby(omissions["left out"]).mean()
)
lost = accuracy[list(SAME)].mean() - accuracy.drop(list(SAME)).dropna()
measured(
    "the step without which accuracy rises",
    lost.idxmin()[0],
    "Without it every rank reads all images, so an epoch has twice as many updates and takes twice the work.",
)
measured(
    "points lost when nobody averages the gradients",
    round(lost["4 average gradients"], 1),
    too_large="Each rank still trains, on one half of the images in each epoch, so the mistake is hard to notice.",
    too_small="Each update has the gradient of half as many images, but still twice the rate.",
)
measured(
    "points lost with different first weights",
    round(lost["5 same first weights"], 1),
    "Every update is the average of the gradients of two different networks, and wrong for both.",
)
Image("recorded/omissions.png", width=plots.WIDTH)

# %%
omissions[omissions["run"] == 1].drop(columns="run").fillna("")

# %% [markdown]
# The table has the first run of each; the figure has all. Four of the rows do not change the training of two ranks on a
# CPU: *nothing left out*, *one GPU each*, *one rank saves*, *average metrics*. The others are compared with these forty
# runs: 83.1 % on average, with a standard deviation of 1.0 points (95 % of such runs lie in the band of the figure).
# The differences, in points of accuracy, with Student's t:
#
# | left out | accuracy, 95 % | |
# |---|---|---|
# | 3 scale the rate | −0.9 ± 0.7 | worse: too small a rate for so few updates |
# | 4 average gradients | −1.0 ± 0.7 | worse: half the images in each gradient, at twice the rate |
# | 5 same first weights | −2.3 ± 0.7 | worse: gradients of two networks, averaged |
# | 6 share out the data | +3.5 ± 0.7 | better: twice as many updates in an epoch, for twice the work |
#
# The ten runs of *average metrics* are 82.6 % on average, the other thirty 83.3 %: a difference of −0.8 ± 0.7. The
# callback acts after an epoch's updates, so it can't change the weights, and we take this for chance. Without these ten
# runs the reference would be higher by 0.2, each difference lower by 0.2, and no verdict would change.
#
# The first two differences are no larger than what chance does to a single run. One run of each would not have shown
# them.
#
# - *Without `init`* nothing runs. *Without equal batches* the script hung in all three runs; it was ended after 20
#   seconds without a step.
# - *Without the distributed optimizer* or *without the broadcast* the log looks right, but the ranks hold different
#   networks (right panel). The averaged metric hides both mistakes: it is one number for two networks. Only a
#   comparison of the weights shows them.
# - *Without sharing out the data* both ranks read the same batches in the same order, and average two equal gradients.
#   This is the training of one rank with a doubled rate, at twice the cost.
# - *Without averaged metrics* the ranks reported different numbers for one and the same network in 10 of 10 runs.
#
# ## Diagnose three runs
#
# Now find the mistake from its effects. Your script runs three times more, as A, B and C. Each time *one* of the steps
# 3 to 8 is undone. You see what the ranks printed, and a table of measurements.
#
# The table shows a fingerprint (a hash) of all weights: equal fingerprints mean equal weights. (With `--seed 0` the
# ranks draw different first weights.)

# %%
examine("A")

# %%
examine("B")

# %%
examine("C")

# %% [markdown]
# ### Exercise: the diagnosis
#
# Which step is missing in each run? Ask for each omission: what would then be equal, what would be different, and from
# when on?
#
# <details><summary>Hint</summary>Weights that differ at the end were different from the start, or became different
# later. The fingerprint after the first step shows which: Horovod's callback broadcasts at the end of that
# step.</details>


# %% exercise="diagnosis"
def diagnosis():
    """The step that each run lacks, by its number from 3 to 8: {"A": …, "B": …, "C": …}."""
    ### BEGIN SOLUTION
    return {"A": 5, "B": 8, "C": 4}
    ### END SOLUTION


# %%
check_diagnosis(diagnosis)

# %% hidden="diagnosis" points=3
### BEGIN HIDDEN TESTS
diagnosis_points(diagnosis, 3)
### END HIDDEN TESTS

# %% [markdown]
# In A and C the ranks report one loss for two networks; in B they report two losses for one network. Print a hash of
# the weights of each rank, after the first step and after the last: it shows the two mistakes that no log shows. Add it
# to every script that you convert.
#
# ## In your own terminal
#
# The same by hand (File → New → Terminal):
#
#     course run fashion_mnist.py -np 2 -- --epochs 3
#     horovodrun -np 2 python fashion_mnist.py --epochs 3
#
# The second command is Horovod's own launcher. `course run` starts it, gives each rank its share of the cores, and ends
# all processes when one fails.
#
# ## Summary
#
# Initialise, pin, scale, average, broadcast, partition, save on one rank, average the metrics. Steps 4, 5 and 6 make it
# data-parallel training; the others make it correct on every host, fast, and easy to follow. Your guesses:

# %%
predictions.table()

# %% [markdown]
# Next: 2c starts your script as on a cluster, and shows what happens while it runs. 2e has the same eight steps in
# PyTorch and JAX.
#
# - A. Sergeev, M. Del Balso: *Horovod: fast and easy distributed deep learning in TensorFlow.* arXiv:1802.05799
# - P. Goyal et al.: *Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour.* arXiv:1706.02677
