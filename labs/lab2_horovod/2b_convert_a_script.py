# %% [markdown]
# # 2b Convert a script
#
# You have a script that trains a network on one device. In eight small edits you make it train on as many as
# there are. After each edit a check runs *your* script on two real Horovod ranks and says, from what it
# measured, what is still missing.
#
# **You will be able to** convert a Keras script to Horovod, say what each of the eight changes is for, and
# recognise from a run which one was forgotten.
#
# **Time:** 60 minutes; the runs take about 3 minutes on 2 CPU cores.
#
# **Needs:** Python and a little Keras. No GPU.
#
# A *rank* is one of the processes that train together. On a laptop each rank gets a processor core, on a multi-GPU host
# a GPU. Nothing else differs.

# %%
import numpy as np
import pandas as pd
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
# Open [`fashion_mnist.py`](fashion_mnist.py) beside this notebook (drag its tab to the right half of the window)
# and read it: 60 lines, a convolutional network, plain Keras. Now watch it train for three epochs on one rank.

# %%
# A rank gets one thread, as it would get one GPU: runs on one and on two ranks can then be compared.
serial = widgets.train("fashion_mnist.py", "--epochs", 3, ranks=1, data=fashion.name, env=launch.ONE_THREAD)

# %% [markdown]
# ### Predict
#
# Next, *two* ranks run the same script, not a letter changed. Will three epochs take half as long, as long, or
# twice as long? Will the two end with the same accuracy? Write down a guess before you run it.

# %% editable=true
predict("two copies: seconds, in multiples of those of one rank", None)
predict("two copies: the same accuracy on both", None)  # "yes" or "no"

# %%
copies = widgets.train("fashion_mnist.py", "--epochs", 3, ranks=2, data=fashion.name, env=launch.ONE_THREAD)


# %%
def seconds(record):
    """Of the slowest rank, for all epochs but the first: in that one TensorFlow also builds its graph."""
    return record.epochs[record.epochs["epoch"] > 1].groupby("rank")["seconds"].sum().max()


def accuracies(record):
    """The validation accuracy that each rank reports after the last epoch."""
    return record.epochs.groupby("rank")["val_accuracy"].last()


measured(
    "two copies: seconds, in multiples of those of one rank",
    seconds(copies) / seconds(serial),
    "What is above 1 is what two busy cores take from each other.",
    too_small="Half would need shared work. Each copy does all of it.",
)
measured(
    "two copies: the same accuracy on both",
    "yes" if accuracies(copies).nunique() == 1 else "no",
    "The script fixes the seed: the same first weights, the same order of the images, the same arithmetic.",
)
copies.epochs.pivot(index="epoch", columns="rank", values="val_accuracy").rename(columns="rank {}".format)

# %% [markdown]
# No time gained: each process read every image and trained a whole network. With `--seed 0` each would draw its own
# first weights, and you would own two different networks. The ranks don't know of each other yet. That is what you
# change now.
#
# The check runs `fashion_mnist.py --epochs 2 --batch-size 32 --lr 0.01 --seed 0` on a slice of 1,279 images, so keep
# the script's options. That took about 15 s here and takes longer on a busy machine; a line below the cell tells how
# far it is. Checking again without a change is free.
#
# Once a run shows all eight steps, the script runs once more, as if on two hosts: two ranks on one without a GPU, a
# third on one with a GPU. A step that was ticked off can then turn out to be wrong after all.

# %% [markdown]
# ## Step 1: initialise
#
# `hvd.init()` makes the processes find each other. Before it, no other Horovod call works. Afterwards each
# process knows its **rank** (its number among all), the **size** (how many there are) and its **local rank**
# (its number on its own host).
#
# Edit `fashion_mnist.py`: import `horovod.tensorflow.keras` as `hvd`, and initialise it before any other
# call of Horovod and before TensorFlow builds anything (step 2 will need that). Save, then check.
#
# <details><summary>Hint</summary>The import goes to the other imports, the call right after
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
# TensorFlow takes every GPU that it sees. Four ranks on a host with four GPUs would all settle on the first, and
# run out of memory. So each rank hides all GPUs but one: the one with the number of its *local* rank. (The rank
# would be wrong: on the second host of two with four GPUs, rank 4 needs GPU 0.)
#
# On a laptop there is nothing to hide, and the script must still run: guard it with `if gpus:`. The check shows
# your script two pretended GPUs and looks at what each rank picks.
#
# <details><summary>Hint</summary>Two functions of <code>tf.config</code>: one lists the physical devices, one sets
# those that are visible. They must run before TensorFlow touches a device, so right after <code>hvd.init()</code>. A
# third, <code>tf.config.experimental.set_memory_growth</code>, keeps TensorFlow from taking all memory at
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
# As soon as the images are shared out (step 6), an epoch has $N$ times fewer steps. With the old $\eta$ it would
# move the weights about $N$ times less far. The **linear scaling rule** (Goyal et al. 2017) makes up for it:
# $\eta \to N \eta$. It is a rule of thumb. Lab 3 shows where it breaks, and what warm-up does for it.
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
# The heart of it. `hvd.DistributedOptimizer(optimizer)` wraps the optimizer: before each update it all-reduces
# every gradient, so that all ranks apply the same average. The check counts the all-reduced values in
# Horovod's own timeline: in each step, as many as the network has weights that are trained.
#
# <details><summary>Hint</summary>Wrap it before <code>model.compile</code>. Wrapped later, nothing is reduced, and
# nothing complains.</details>

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
# variables of rank 0 to all others, the optimizer's momentum included. This also makes a restart from a checkpoint
# simple: only rank 0 has to read it.
#
# The check runs your script with `--seed 0`, so that the ranks draw different first weights, and compares them
# after the first step.
#
# <details><summary>Hint</summary>Look through <code>hvd.callbacks</code>. It wants to know from which rank, and goes
# first into the list of callbacks, on every rank. (In this script it would work at any place in the list: no other
# callback does anything at the end of the first step.)</details>

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
# So far each rank reads every image. Two ways to share them:
#
# - **Option 1:** shuffle, cut the data into one part for each rank, reshuffle and cut anew after the epoch. Every
#   rank must use the *same* shuffle, or the parts overlap.
# - **Option 2:** each rank shuffles the whole set for itself and reads the first $1/N$ of it. Simple, but in an
#   epoch some images are seen twice and others never.
#
# Both need the same number of batches on every rank: a rank with one batch more waits for the others, for ever, or
# until they have ended and it fails.
#
# Write both in NumPy first, on the numbers of the images.


# %% exercise="option1"
def option_1(images, rank, size, epoch):
    """The numbers of the images that `rank` reads in `epoch`, by option 1.

    images: how many there are; rank: 0 … size − 1; epoch: 0, 1, …
    Returns an integer array of length images // size, in the order of reading.
    Seed the shuffle so that it is the same on every rank, and another one in each epoch.
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
# Who reads what? Each small square is an image, its colour the rank that reads it in that epoch; black ones are
# read by more than one rank, empty ones by none. The 96 images of an epoch stand in three rows of 32.

# %%
partition({"option 1": option_1, "option 2": option_2}, images=96, ranks=4, epochs=3)

# %% [markdown]
# Now the script. `tf.data` can do option 1 in one word: `dataset.shard(size, rank)` keeps every size-th image,
# beginning with number `rank`. Think about where it goes. The shuffle has a fixed seed, and shuffles anew in each
# epoch: what does a rank read in the second epoch if you shard before it, and if you shard after it? And 1,279 images
# on two ranks are 640 and 639: with batches of 32 that is 20 batches and 19. Cut both to the number that all ranks
# have.
#
# <details><summary>Hint</summary>How many images do all ranks together consume in a step? <code>dataset.take(n)</code>
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
# All ranks hold the same weights, so one checkpoint is enough, and two ranks that write one file at the same time
# can spoil it. The same goes for the log: one voice. Let only rank 0 have the checkpoint callback, `verbose=2` and
# the `print` lines.
#
# <details><summary>Hint</summary>Below the condition stands what saves or prints, and nothing in which the ranks
# meet: a callback of Horovod's that only rank 0 has would wait there for the others.</details>

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
# Rank 0 now reports the loss and accuracy of *its* images only, a noisier number than that of all. A callback
# averages each metric over the ranks at the end of an epoch. It replaces them for the callbacks that come after it in
# the list, so it belongs before all that read one: a checkpoint of the *best* weights, early stopping, a schedule.
# (This script has none of them, so the check can't see where you have put it.)
#
# <details><summary>Hint</summary>Again one of <code>hvd.callbacks</code>, on every rank.</details>

# %% instructor=true
scripts.write("fashion_mnist.py", upto="metrics")

# %%
check("metrics")

# %% hidden="metrics" points=1
### BEGIN HIDDEN TESTS
points("metrics")
### END HIDDEN TESTS

# %% [markdown]
# ## The whole thing
#
# All eight are in. What will three epochs on two ranks take now, and what accuracy will they reach? Guess, then run.

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
    "2 would be perfect. What is missing went into the exchange, into waiting for the slower rank, and to two cores "
    "that share memory and clock."
    if faster > 1
    else "Slower than one rank: a step of this small network takes some milliseconds, and the exchange in it cost more "
    "than the halved number of steps saved.",
)
measured(
    "converted: validation accuracy",
    accuracies(converted)[0],
    "The batch is twice as large, so there were half as many updates: after so few epochs that often costs a little.",
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
# Each rank read half of the images. How far this goes, with more ranks and larger batches, is the subject of lab 3.
#
# ## What each omission costs
#
# The converted script less one step at a time, three epochs on 12,799 images, with `--seed 0 --lr 0.02`: some of the
# omissions stop it, some cost accuracy, some nothing that you would see, and one makes the network *better*.
#
# Which one is that? And how many points of accuracy (per cent of the validation images) do two others cost: when nobody
# averages the gradients, and when the ranks start from different weights?

# %% editable=true
predict("the step without which accuracy rises", None)  # its number
predict("points lost when nobody averages the gradients", None)
predict("points lost with different first weights", None)

# %% [markdown]
# Each variant that trains did so ten times. `course reproduce omissions` makes this figure and table again, in about
# half an hour.

# %%
omissions = pd.read_csv("recorded/omissions.csv", comment="#")
# Two ranks on a CPU train the same without these steps: forty runs that differ by chance alone.
SAME = ("nothing left out", "2 one GPU each", "7 one rank saves", "8 average metrics")
accuracy = (
    100 * omissions[["accuracy of rank 0", "accuracy of rank 1"]].mean(axis=1).groupby(omissions["left out"]).mean()
)
lost = accuracy[list(SAME)].mean() - accuracy.drop(list(SAME)).dropna()
measured(
    "the step without which accuracy rises",
    lost.idxmin()[0],
    "Without it every rank reads all images, so an epoch has twice as many updates, and takes twice the work.",
)
measured(
    "points lost when nobody averages the gradients",
    round(lost["4 average gradients"], 1),
    too_large="Each rank still trains, on one half of the images in each epoch: that is why nobody notices.",
    too_small="Each update has the gradient of half as many images, and still twice the rate.",
)
measured(
    "points lost with different first weights",
    round(lost["5 same first weights"], 1),
    "Every update is the average over two networks that are not the same: right for neither of them.",
)
Image("recorded/omissions.png", width=plots.WIDTH)

# %%
omissions[omissions["run"] == 1].drop(columns="run").fillna("")

# %% [markdown]
# That was the first run of each; the figure has them all. Runs of one script differ by chance. Four of the rows change
# nothing that two ranks on a CPU would notice in their training: *nothing left out*, *one GPU each*, *one rank saves*,
# *average metrics*. Their forty runs are the measure: 83.1 % on average, with a standard deviation of 1.0 points (the
# band in the figure is where 95 % of such runs fall). Against them, in points of accuracy, with Student's t:
#
# | left out | accuracy, 95 % | |
# |---|---|---|
# | 3 scale the rate | −0.9 ± 0.7 | worse: too small a rate for so few updates |
# | 4 average gradients | −1.0 ± 0.7 | worse: half the images in each gradient, at twice the rate |
# | 5 same first weights | −2.3 ± 0.7 | worse: gradients of two networks, averaged |
# | 6 share out the data | +3.5 ± 0.7 | better: twice as many updates in an epoch, for twice the work |
#
# The first two differences are no larger than what chance does to a single run. One run each would not have shown them.
#
# - *Without `init`* nothing runs: the best kind of mistake. *Without equal batches* the script hung in all three runs;
#   it was ended after 20 seconds without a step. (Which rank ends first is chance; it may also stop with an error.)
# - *Without the distributed optimizer* or *without the broadcast* the log looks fine and the ranks hold different
#   networks (right panel). If you have nothing to compare with, you don't miss a point or two of accuracy. And the
#   averaged metric hides both: it reports one number for two networks. Only comparing weights shows it. Remember these
#   two.
# - *Without sharing out the data* both ranks read the same batches in the same order, and average two equal gradients:
#   one rank's training with a doubled rate, paid twice. Nothing in the log says so.
# - *Without averaged metrics* the ranks reported different numbers for one and the same network in 10 of 10 runs.
# - *Without one writer* two ranks write one file; it goes well until it doesn't. *Without pinning* a CPU shows nothing;
#   on GPUs every rank lands on the first one.
#
# ## Three patients
#
# Now the other way round. Your script runs three times more, as A, B and C. Each time *one* of the steps 3 to 8 is
# undone, as if you had forgotten it. You get what a colleague would send you: what the ranks printed, and what was seen
# of each. You don't get the number of the step.
#
# A fingerprint stands for all weights: equal fingerprints, equal weights. (With `--seed 0` the ranks draw different
# first weights.)

# %%
examine("A")

# %%
examine("B")

# %%
examine("C")

# %% [markdown]
# ### Exercise: the diagnosis
#
# Which step does each run lack? Go by what must follow from each omission: what would be equal then, what
# different, and from when on?
#
# <details><summary>Hint</summary>Weights that differ at the end either started apart or were moved apart. The
# fingerprint after the first step tells which: Horovod's callback broadcasts at the end of that step.</details>


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
# Compare what A and C report with what they hold: one loss, for two networks. And B: two losses, for one network. Such
# a table needs no special tool. A hash of the weights of each rank, printed after the first step and after the last,
# finds the two mistakes that no log shows. Put it into every script that you convert.
#
# ## On your own terminal
#
# What the notebook did, by hand (File → New → Terminal):
#
#     course run fashion_mnist.py -np 2 -- --epochs 3
#     horovodrun -np 2 python fashion_mnist.py --epochs 3
#
# The second is Horovod's own launcher; `course run` starts it, gives each rank its share of the cores, and ends
# every process when one fails or you press Ctrl-C.
#
# ## Summary
#
# Initialise, pin, scale, average, broadcast, partition, one writer, average the metrics. Steps 4, 5 and 6 make it
# data-parallel training; the others make it correct on every host, fast, and legible. Your guesses:

# %%
predictions.table()

# %% [markdown]
# Next: 2c starts your script as on a cluster, and looks inside while it runs. 2e has the same eight steps in PyTorch
# and JAX.
#
# - A. Sergeev, M. Del Balso: *Horovod: fast and easy distributed deep learning in TensorFlow.* arXiv:1802.05799
# - P. Goyal et al.: *Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour.* arXiv:1706.02677
