# %% [markdown]
# # Assessment
#
# One script, several ranks, a target, a clock. [`assessment.py`](assessment.py) trains a network on CIFAR-10, on one
# device. Put it on all ranks of this host, so that it reaches the target in time. A grader runs it, and measures
# instead of believing.
#
# **You will be able to** say of a script of your own: it trains on N ranks, correctly, and fast enough.
#
# **Time:** 90 minutes, without the large batch at the end; an attempt takes one to five of them on 2 CPU cores; on GPUs
# it is not yet measured.
#
# **Needs:** 2a and 2b, and what a larger batch asks of the learning rate (3b); for the large batch 3d and 3e, too.

# %%
from course_grader.display import contract_view as terms
from course_grader.display import widgets
from course_lib import data
from course_lib.notebook.predictions import measured, predict
from course_lib.ranks import launch

# %% [markdown]
# ## The contract
#
# What is asked on this host, and what each criterion is worth:

# %%
asked = terms.read()
asked

# %% [markdown]
# **What is taken from you** is one file, `assessment.py`. It runs with no arguments. Three things are fixed: the
# network (`models.assessment_cnn`), the data (`data.load("cifar10", test=False)`), and that the trained weights are
# saved with `model.save_weights` where the environment variable `COURSE_WEIGHTS` says. Everything else is yours:
# optimizer, learning rate and its schedule, batch size, number of epochs, augmentation, `fit` or a loop of your own.
#
# **How it is run:** once on one rank, on a few images, to see that it still works alone; then on all ranks, under the
# clock. Both times in a sandbox: no network, no files of yours, limits on memory, processes, disk and output. A rank
# gets one core, or one GPU. There are no test images in there. To know how you stand, hold training images back, as
# the script does.
#
# **What is measured, from outside:** the time, start of the ranks included, by the grader's clock; the accuracy of the
# saved weights, by the grader itself, the test accuracy on images that no script sees; the processor seconds of each
# rank, and the bytes between them; and whose images trained the weights. For that, a few images of each rank's copy
# (less than one in a hundred) carry a faint pattern, a watermark, and the weights must have learned it from every rank.
# Watermarks cost no accuracy worth mention; leave them in. They change a few labels, so these differ from rank to rank:
# compute nothing from labels that all ranks must agree on, such as a number of batches.
#
# **What explains it:** each rank keeps a log of its training: which gradients it averages, which images it reads, what
# it saves. Where the log shows a mistake, it costs points. Each criterion says what it rests on, the host or the
# script's log.
#
# **What is not believed:** whatever the script prints or reports. The accuracy that it claims is shown beside the
# measured one and counts for nothing.
#
# **The time limit** is for a host as fast as the one that it was set on. Before your first attempt the grader
# measures this host, for some seconds. A slower one gets more time in proportion, a faster one no less. Small
# accidents are forgiven: the clock allows a little over the limit.
#
# **Partial marks:** each criterion is judged alone, with a reason. At the time limit the ranks are ended; the points
# for the time are lost, what was saved by then is still judged. But accuracy and time count only for a training of
# all ranks together, with averaged gradients. If this host can't grade (no free disk, no Horovod, or the script was
# late while other programs held its cores), you are told so: that is no verdict on your script.
#
# **What needs a look:** a script that would pass, but starts programs, opens connections, changes Horovod or Keras or
# reads files outside of its folder, does not pass before your instructor has read it. The report names the lines.
#
# **Two traps.** The network takes images of 0 to 255 and scales them itself: divide by 255 once more, as most scripts
# do, and it learns nothing. And `hvd.callbacks.LearningRateWarmupCallback` needs `momentum_correction=False` with the
# optimizers of this Keras.

# %% [markdown]
# ## Your own run first
#
# Read [`assessment.py`](assessment.py), then watch it train as it stands: on one rank first, then on all, not a letter
# changed.
#
# ### Predict

# %%
cifar = data.load(asked.contract.data, test=False)
print(f"{cifar.name} (from: {cifar.source}): {len(cifar.x_train):,} training images")

# %% editable=true
predict("one rank: seconds from start to end", None)
predict("all ranks, not a letter changed: in multiples of that", None)

# %%
on_one = widgets.train("assessment.py", ranks=1, data=cifar.name, env=launch.ONE_THREAD)

# %%
unchanged = widgets.train("assessment.py", ranks=asked.ranks, data=cifar.name, env=launch.ONE_THREAD)

# %%
on_one.result.check()
unchanged.result.check()
measured(
    "one rank: seconds from start to end",
    on_one.result.seconds,
    "The clock of the assessment runs from the start, too: importing TensorFlow and building the graph count.",
)
measured(
    "all ranks, not a letter changed: in multiples of that",
    unchanged.result.seconds / on_one.result.seconds,
    "Each rank trains on all images, so nothing is saved; above 1 is what busy cores take from each other.",
)

# %% [markdown]
# Now change the script, and run the next cell until it does what you want. To be quicker, train on a slice: add
# `"COURSE_SLICE": "5000"` to `env`, as in `env={**launch.ONE_THREAD, "COURSE_SLICE": "5000"}`. The cell is yours and is
# not graded; nothing here is in a sandbox.

# %% editable=true
my_run = widgets.train("assessment.py", ranks=asked.ranks, data=cifar.name, env=launch.ONE_THREAD)

# %% [markdown]
# ## Assess
#
# The button takes the script as it is saved now. You may go on working while it runs, in other cells too, but what
# computes beside it slows it down. Attempts are not counted against you: assess as often as you like. All of them are
# kept, with their scripts; the best is marked.

# %%
widgets.assess("assessment.py")

# %% [markdown]
# The same in a terminal: `course assess assessment.py`. With `--profile short` it trains on 2,560 images only and asks
# for little accuracy: in a minute you know whether all ten criteria are in place. That is no pass.
#
# ## What next
#
# - **A criterion failed?** Its reason says what was seen, its hint where the labs treat it. Fix one thing, assess
#   again.
# - **Accuracy too low?** With N ranks a step averages over N times as many images, and an epoch has N times fewer
#   steps: see 3b for the learning rate and its warm-up. If the training accuracy that your script prints is far above
#   the one that is measured, batch norm's moving averages have not arrived yet: see "A trap first" in 3c.
# - **Too slow?** Where do the seconds go: the start, the first step, the steps, the end of an epoch, validation?
#   The curves above and the output show it. In a terminal, `course run --where assessment.py` divides a step into
#   network, input, all-reduce and the rest, and names what to change first. If it is the network: where `course doctor`
#   lists instructions for bfloat16, the policy `mixed_bfloat16` makes it faster (5a).
# - **Passed?** See how much of the time limit you need. Then halve it. And go on to the large batch.
#
# ## A large batch
#
# So far an update averages over some hundreds of images, and lab 2 is enough to pass. The profile `large` asks for the
# same ten things with a large batch and few updates:

# %%
large = terms.read("large")
large

# %% [markdown]
# The batch is that of all ranks together, on average over the training. With the 45,000 images that the script trains
# on, the budget has room for three epochs. A script that makes more updates, or smaller ones, loses the points of *In
# time*, and does not pass. On one rank it gets 4,096 images, so that it can make an update there, too. All else is as
# before.
#
# Where a rank's part of a batch does not fit into memory, add up the gradients of several small batches, and average
# once for an update. `backward_passes_per_step=k` does that, with two traps (2c, *Tune*): it needs
# `average_aggregated_gradients=True` to divide the sum by k, and a schedule of Keras counts every small batch, k for an
# update.
#
# Copy your script to `large.py`, so that the one that you hand in stays as it is. First raise its batch, keep within
# the budget, change nothing else, and see how far you get:

# %%
widgets.assess("large.py", profile=large.profile.name)

# %% [markdown]
# In a terminal: `course assess large.py --profile large`.
#
# - **Accuracy too low?** With momentum SGD and warm-up no rate that we tried was enough: the one that suits a batch of
#   256 and twice that end 1 to 4 points below the target, one in proportion to the batch far below (3b has reasons).
#   Nor did LAMB get there as we tuned it. What passed gives each layer a rate of its own in another way: see 3d.
#   `course_lib.optimizers` has its methods, and `schedules` warm-up and cosine.
# - **Which rate?** Tune as in 3e: a few rates, spaced by factors, on the images that the script holds back; the best
#   inside the grid; then a second seed. For a run without the grader put `"large.py"` into the cell of `my_run` above.
#   One process with the whole batch makes the same updates as all ranks, but for batch norm's statistics (2a).
# - **Too many updates?** An epoch has as many as there are batches in it. An average of the gradients counts, too, even
#   if no update follows it.
#
# ## Handing in
#
# Save `assessment.py` and hand in this folder. For the mark your script is assessed anew. Where one run leaves doubt
# whether all ranks took part, it runs on all ranks again, up to three times. The cells below turn what came of it into
# points, one criterion each. There is nothing for you to do here. `large.py` is graded only if your instructor asks for
# it.

# %% hidden="serial" points=5
# Runs to the end on one rank: 5 points
### BEGIN HIDDEN TESTS
from course_grader.notebook_points import points

points("serial")
### END HIDDEN TESTS

# %% hidden="ranks" points=10
# Joins on all ranks: 10 points
### BEGIN HIDDEN TESTS
from course_grader.notebook_points import points

points("ranks")
### END HIDDEN TESTS

# %% hidden="device" points=5
# One device for each rank: 5 points
### BEGIN HIDDEN TESTS
from course_grader.notebook_points import points

points("device")
### END HIDDEN TESTS

# %% hidden="averaged" points=20
# Gradients averaged on every step: 20 points
### BEGIN HIDDEN TESTS
from course_grader.notebook_points import points

points("averaged")
### END HIDDEN TESTS

# %% hidden="broadcast" points=10
# Starts from the same weights: 10 points
### BEGIN HIDDEN TESTS
from course_grader.notebook_points import points

points("broadcast")
### END HIDDEN TESTS

# %% hidden="data" points=15
# Each rank reads its own part: 15 points
### BEGIN HIDDEN TESTS
from course_grader.notebook_points import points

points("data")
### END HIDDEN TESTS

# %% hidden="checkpoint" points=5
# One rank saves: 5 points
### BEGIN HIDDEN TESTS
from course_grader.notebook_points import points

points("checkpoint")
### END HIDDEN TESTS

# %% hidden="train_accuracy" points=10
# Training accuracy: 10 points
### BEGIN HIDDEN TESTS
from course_grader.notebook_points import points

points("train_accuracy")
### END HIDDEN TESTS

# %% hidden="test_accuracy" points=10
# Test accuracy: 10 points
### BEGIN HIDDEN TESTS
from course_grader.notebook_points import points

points("test_accuracy")
### END HIDDEN TESTS

# %% hidden="time" points=10
# In time: 10 points
### BEGIN HIDDEN TESTS
from course_grader.notebook_points import points

points("time")
### END HIDDEN TESTS

# %% [markdown]
# ## Summary
#
# A number that a training reports about itself is a claim. Time by another's clock, accuracy by another's hand on
# images that the training never held, and the same weights on every rank: these are measurements. The same three
# questions are worth asking of every published speed record.
#
# - A. Sergeev, M. Del Balso: *Horovod: fast and easy distributed deep learning in TensorFlow.* arXiv:1802.05799
# - P. Goyal et al.: *Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour.* arXiv:1706.02677
# - C. Coleman et al.: *Analysis of DAWNBench, a Time-to-Accuracy Machine Learning Performance Benchmark.*
#   arXiv:1806.01427
