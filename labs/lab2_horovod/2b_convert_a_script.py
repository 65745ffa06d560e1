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
# **Time:** 45 minutes; the runs take about 4 minutes on 2 CPU cores; on GPUs they are not yet measured.
#
# **Needs:** Python and a little Keras. A *rank* is one of the processes that train together. No GPU: on a laptop
# each rank gets a processor core, on a multi-GPU host a GPU. Nothing else differs.

# %%
import numpy as np
import pandas as pd
from IPython.display import Image

from course_lib import data
from course_lib.notebook import plots, widgets
from course_lib.ranks import launch
from labs.lab2_horovod.lessons.checks_2b import check, check_partition, partition_points, points

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
my_seconds = None  # your guess for the three epochs on two ranks

# %%
copies = widgets.train("fashion_mnist.py", "--epochs", 3, ranks=2, data=fashion.name, env=launch.ONE_THREAD)


# %%
def seconds(record):
    return record.epochs.groupby("rank")["seconds"].sum().max()


print(f"your guess: {my_seconds} s, one rank: {seconds(serial):.1f} s, two copies: {seconds(copies):.1f} s")
copies.epochs.pivot(index="epoch", columns="rank", values="val_accuracy").rename(columns="rank {}".format)

# %% [markdown]
# Two ranks, the same curves, no time gained: each process read every image and trained a whole network. They
# agree to the last digit only because the script fixes the seed. With `--seed 0` each would draw its own first
# weights, and you would own two different networks. The ranks don't know of each other yet. That is what you
# change now.
#
# The check needs `fashion_mnist.py` to keep its options (`--epochs`, `--batch-size`, `--lr`, `--seed`,
# `--checkpoint`). It runs the script on a slice of 1,279 images and takes about 15 s; running it again
# without a change is free.

# %% [markdown]
# ## Step 1: initialise
#
# `hvd.init()` makes the processes find each other. Before it, no other Horovod call works. Afterwards each
# process knows its **rank** (its number among all), the **size** (how many there are) and its **local rank**
# (its number on its own host).
#
# Edit `fashion_mnist.py`: import `horovod.tensorflow.keras` as `hvd`, and initialise it before anything else
# happens. Save, then check.
#
# <details><summary>Hint</summary>The import goes to the other imports; <code>hvd.init()</code> right behind
# <code>parser.parse_args()</code>.</details>

# %% instructor=true
from course_lib.command.classroom import conversions as scripts

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
# <details><summary>Hint</summary><code>tf.config.list_physical_devices("GPU")</code> lists them,
# <code>tf.config.set_visible_devices(…, "GPU")</code> chooses. It must happen before TensorFlow touches a device,
# so right behind <code>hvd.init()</code>. <code>tf.config.experimental.set_memory_growth(gpu, True)</code> keeps
# TensorFlow from taking all memory at once.</details>

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
# An epoch now has $N$ times fewer steps. With the old $\eta$ it would move the weights about $N$ times less far.
# The **linear scaling rule** (Goyal et al. 2017) makes up for it: $\eta \to N \eta$. It is a rule of thumb. Lab 3
# shows where it breaks, and what warm-up does for it.
#
# <details><summary>Hint</summary>The number of ranks is <code>hvd.size()</code>.</details>

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
# every gradient, so that all ranks apply the same average. The check counts the all-reduced tensors in
# Horovod's own timeline: one for each trainable variable in each step.
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
# Ranks that apply the same updates stay equal only if they start equal. A callback broadcasts the variables of
# rank 0 to all others, the optimizer's momentum included. This also makes a restart from a checkpoint simple:
# only rank 0 has to read it.
#
# The check runs your script with `--seed 0`, so that the ranks draw different first weights, and compares them
# after the first step.
#
# <details><summary>Hint</summary><code>hvd.callbacks.BroadcastGlobalVariablesCallback(0)</code> goes into the list
# of callbacks, first.</details>

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
# Both need the same number of batches on every rank: a rank with one batch more waits for the others for ever.
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
# read by more than one rank, empty ones by none.

# %%
plots.partition({"option 1": option_1, "option 2": option_2}, images=96, ranks=4, epochs=3)

# %% [markdown]
# Now the script. `tf.data` can do option 1 in one word: `dataset.shard(size, rank)` keeps every size-th image,
# beginning with number `rank`. Think about where it goes: behind the shuffle, which has a fixed seed, every rank
# cuts the same order, anew in each epoch. And 1,279 images on two ranks are 640 and 639: with batches of 32 that
# is 20 batches and 19. Cut both to the number that all ranks have.
#
# <details><summary>Hint</summary>Shard between <code>shuffle</code> and <code>batch</code>. All ranks together
# consume <code>batch_size * hvd.size()</code> images in a step; <code>dataset.take(n)</code> keeps the first
# <code>n</code> batches.</details>

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
# <details><summary>Hint</summary><code>if hvd.rank() == 0:</code> and
# <code>verbose = 2 if hvd.rank() == 0 else 0</code>.</details>

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
# averages each metric over the ranks at the end of an epoch.
#
# <details><summary>Hint</summary><code>hvd.callbacks.MetricAverageCallback()</code>, before every callback that
# reads a metric.</details>

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
my_seconds_now = None  # your guess for the converted script on two ranks

# %%
converted = widgets.train("fashion_mnist.py", "--epochs", 3, ranks=2, data=fashion.name, env=launch.ONE_THREAD)

# %%
runs = {"serial, 1 rank": serial, "two copies": copies, "converted, 2 ranks": converted}
print(f"your guess: {my_seconds_now} s")
pd.DataFrame(
    {
        name: {
            "seconds for 3 epochs": seconds(run),
            "images read by each rank": run.epochs["images"].max(),
            "speed-up": seconds(serial) / seconds(run),
            "validation accuracy": run.epochs.groupby("rank")["val_accuracy"].last()[0],
        }
        for name, run in runs.items()
    }
).T.round(3)

# %% [markdown]
# Half the images for each rank, hence about half the time. Not quite half: in every step both ranks wait for the
# slower one and for the exchange, and on a laptop two busy cores share memory and clock. The accuracy after
# three epochs is a little lower or about the same: the batch is twice as large, so there were half as many updates.
# How far that goes is the subject of lab 3.
#
# ## What each omission costs
#
# Before you look: which of the eight, left out alone, stops the script? Which one makes it slow, which one makes
# it *silently wrong*?

# %% editable=true
my_answer = {"stops": [], "slow": [], "silently wrong": []}

# %% [markdown]
# The converted script less one step at a time, three runs each. `course reproduce omissions` makes this
# figure and table again, in about ten minutes.

# %%
Image("recorded/omissions.png", width=plots.WIDTH)

# %%
pd.read_csv("recorded/omissions.csv", comment="#")

# %% [markdown]
# - *Without `init`* nothing runs: the best kind of mistake.
# - *Without the distributed optimizer* or *without the broadcast* everything runs, the log looks fine, and the ranks
#   hold different networks (middle panel), each a point or two worse. Only comparing weights shows it: the two to
#   remember.
# - *Without sharing out the data* nothing is wrong, and nothing was gained: each rank still reads every image. An
#   epoch then holds twice as many updates, hence the higher accuracy after three, for twice the work.
# - *Without equal batches* the script hangs in the first epoch, without a word. The check gives up after 20 seconds.
# - *Without scaling* it learns more slowly. After three epochs that is about a point; three runs are too few to say
#   more.
# - *Without one writer* two ranks write one file; it goes well until it doesn't.
# - *Without averaged metrics* the ranks report different numbers for one and the same network.
# - *Without pinning* a CPU shows nothing. On GPUs every rank lands on the first one.
#
# The seconds are from a machine that was busy with other work: read them as rough.
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
# data-parallel training; the others make it correct on every host, fast, and legible.
#
# - A. Sergeev, M. Del Balso: *Horovod: fast and easy distributed deep learning in TensorFlow.* arXiv:1802.05799
# - P. Goyal et al.: *Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour.* arXiv:1706.02677
