# %% [markdown]
# # Assessment
#
# The script [`assessment.py`](assessment.py) trains a network on CIFAR-10, on one device. Change it to train on all
# ranks of this host, and to reach a target accuracy within a time limit. A grader runs the script and measures the
# result.
#
# **You will be able to** show that a script of your own trains on N ranks, correctly and fast enough.
#
# **Time:** 90 minutes, without the large batch at the end; an attempt takes one to five of them on 2 CPU cores; on GPUs
# it is not yet measured.
#
# **Needs:** 2a and 2b, and how to choose the learning rate for a larger batch (3b); for the large batch also 3d and 3e.

# %%
from course_grader.display import contract_view as terms
from course_grader.display import widgets
from course_lib import data
from course_lib.notebook.predictions import measured, predict
from course_lib.ranks import launch

# %% [markdown]
# ## The contract
#
# The contract lists the requirements on this host, and the points of each criterion:

# %%
asked = terms.read()
asked

# %% [markdown]
# **You hand in** one file, `assessment.py`. It runs without arguments. You must not change three things: the network
# (`models.assessment_cnn`), the data (`data.load("cifar10", test=False)`), and how the script saves the trained weights
# (with `model.save_weights`, to the file that the environment variable `COURSE_WEIGHTS` names). You may change
# everything else: optimizer, learning rate and its schedule, batch size, number of epochs, augmentation, `fit` or your
# own training loop.
#
# **The grader runs the script twice:** on one rank with a few images, to check that it still works alone; then on all
# ranks, under the clock. Both runs are in a sandbox: it has no network and none of your files, and it limits memory,
# processes, disk and output. Each rank gets one core or one GPU. The sandbox has no test images. To estimate your test
# accuracy, hold out training images, as the script does.
#
# **The grader measures** from outside:
#
# - the time, including the start of the ranks, with its own clock;
# - the accuracy of the saved weights, on training images and on test images that no script sees;
# - the CPU seconds of each rank, and the bytes between the ranks;
# - which ranks' images trained the weights. For this, a few images of each rank's copy of the data (less than one in a
#   hundred) carry a faint pattern, a *watermark*. The weights must have learned the watermark of every rank.
#
# Watermarks have almost no effect on accuracy; leave them in. They change a few labels, so labels differ from rank to
# rank. Do not compute from labels any value that all ranks must agree on, such as a number of batches.
#
# **Each rank keeps a log** of its training: which gradients it averages, which images it reads, which files it saves.
# If the log shows a mistake, you lose points. Each criterion says whether it rests on the host's measurements or on the
# script's log. Output of the script does not count: the report shows the accuracy that the script prints next to the
# measured one, but only the measured one gives points.
#
# **The time limit** is for a host as fast as the one on which it was set. Before your first attempt, the grader
# measures the speed of this host for some seconds. On a slower host, the limit is longer in proportion. On a faster
# host, it stays the same. The clock allows slightly more than the limit, because times vary by chance.
#
# **Partial points:** each criterion is judged separately, with a reason. At the time limit, the grader stops the ranks.
# You then lose the points for the time, but the grader still judges what the script has saved. Accuracy and time count
# only if all ranks trained together, with averaged gradients. If this host can't grade (no free disk, no Horovod, or
# the script was late while other programs used its cores), a message says so. This is not a result of your script.
#
# **Your instructor must read some scripts first:** those that would pass, but start programs, open connections, change
# Horovod or Keras, or read files outside of their folder. The report names the lines.
#
# **Two common mistakes.** The network expects pixel values from 0 to 255 and scales them itself. If you also divide by
# 255, as most scripts do, it learns nothing. And `hvd.callbacks.LearningRateWarmupCallback` needs
# `momentum_correction=False` with the optimizers of this Keras version.

# %% [markdown]
# ## Run the script yourself first
#
# Read [`assessment.py`](assessment.py). Then watch the unchanged script train: first on one rank, then on all ranks.
#
# ### Predict

# %%
cifar = data.load(asked.contract.data, test=False)
print(f"{cifar.name} (from: {cifar.source}): {len(cifar.x_train):,} training images")

# %% editable=true
predict("one rank: seconds from start to end", None)
predict("all ranks, script unchanged: time as a multiple of that of one rank", None)

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
    "The assessment also measures from the start: importing TensorFlow and building the graph count.",
)
measured(
    "all ranks, script unchanged: time as a multiple of that of one rank",
    unchanged.result.seconds / on_one.result.seconds,
    "Each rank trains on all images, so more ranks save no time. If the ratio is above 1, busy cores slow each other "
    "down.",
)

# %% [markdown]
# Now change the script, and run the next cell until the script does what you want. To save time, train on a slice: add
# `"COURSE_SLICE": "5000"` to `env`, as in `env={**launch.ONE_THREAD, "COURSE_SLICE": "5000"}`. You may change this
# cell; it is not graded. It does not run in a sandbox.

# %% editable=true
my_run = widgets.train("assessment.py", ranks=asked.ranks, data=cifar.name, env=launch.ONE_THREAD)

# %% [markdown]
# ## Assess
#
# The button assesses the script as you last saved it. You may continue to work while it runs, also in other cells, but
# other computations slow it down. You can assess as often as you like: the number of attempts does not change your
# mark. All attempts are kept with their scripts, and the best one is marked.

# %%
widgets.assess("assessment.py")

# %% [markdown]
# To do the same in a terminal, run `course assess assessment.py`. With `--profile short`, it trains on 2,560 images
# only and requires a low accuracy. In a minute it shows whether the script meets all ten criteria. This does not count
# as a pass.
#
# ## What next
#
# - **A criterion failed?** Its reason says what the grader measured, and its hint names the lab that explains it. Fix
#   one thing and assess again.
# - **Accuracy too low?** With N ranks, a step averages over N times as many images, and an epoch has N times fewer
#   steps. 3b explains the learning rate and its warm-up. If the script prints a training accuracy far above the
#   measured one, the moving averages of batch norm have not converged yet: see "A trap first" in 3c.
# - **Too slow?** Find where the time goes: the start, the first step, the other steps, the end of an epoch, validation.
#   The curves above and the output show it. In a terminal, `course run --where assessment.py` divides a step into
#   network, input, all-reduce and the rest, and says what to change first. If it is the network, and `course doctor`
#   lists instructions for bfloat16, the policy `mixed_bfloat16` makes it faster (5a).
# - **Passed?** See how much of the time limit you need. Then try to halve this time, and continue with the large batch.
#
# ## A large batch
#
# So far an update averages over some hundreds of images, and lab 2 is enough to pass. The profile `large` has the same
# ten criteria, but requires a large batch and few updates:

# %%
large = terms.read("large")
large

# %% [markdown]
# The batch counts the images of all ranks together, averaged over the training. The script trains on 45,000 images, so
# the updates are enough for three epochs. A script that makes more or smaller updates loses the points of *In time*,
# and does not pass. In the run on one rank it gets 4,096 images, enough for at least one update. Everything else is as
# before.
#
# If a rank's part of a batch does not fit into memory, add up the gradients of several small batches, and average them
# once per update. `backward_passes_per_step=k` does this. Note two details (2f, *Tune*): it divides the sum by k only
# with `average_aggregated_gradients=True`, and a Keras schedule counts every small batch, so it counts k per update.
#
# Copy your script to `large.py`, so that the script that you hand in does not change. First increase its batch, stay
# within the number of updates, and change nothing else. Which accuracy does it reach?

# %%
widgets.assess("large.py", profile=large.profile.name)

# %% [markdown]
# In a terminal, run `course assess large.py --profile large`.
#
# - **Accuracy too low?** Momentum SGD with warm-up did not reach the target with any learning rate that we tried.
#   The rate for a batch of 256 and twice that rate end 1 to 4 percentage points below the target.
#   A rate in proportion to the batch ends far below it (3b explains why). LAMB, as we tuned it, does not reach the
#   target either. Another method passed that also gives each layer its own learning rate: see 3d.
#   `course_lib.optimizers` has these methods, and `schedules` has warm-up and cosine decay.
# - **Which learning rate?** Tune as in 3e: try a few rates with equal ratios, and compare them on the held-out images.
#   The best rate must be inside the grid. Then try a second seed. To run without the grader, put `"large.py"` into the
#   cell of `my_run` above. One process with the whole batch makes the same updates as all ranks, except for the
#   statistics of batch norm (2a).
# - **Too many updates?** An epoch has as many updates as it has batches. An average of the gradients counts too, even
#   if no update follows.
#
# ## Hand in
#
# Save `assessment.py` and hand in this folder. The grader assesses your script again for the mark. If one run does not
# show clearly whether all ranks took part, it runs the script on all ranks again, up to three times. The cells below
# turn the results into points, one criterion each. You need not do anything here. `large.py` is graded only if your
# instructor asks for it.

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
# What a script reports about its own training is a claim, not a measurement. The grader measures time with its own
# clock, accuracy on images that the training never had, and whether all ranks have the same weights. Check the same
# three things when you read about a speed record.
#
# - A. Sergeev, M. Del Balso: *Horovod: fast and easy distributed deep learning in TensorFlow.* arXiv:1802.05799
# - P. Goyal et al.: *Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour.* arXiv:1706.02677
# - C. Coleman et al.: *Analysis of DAWNBench, a Time-to-Accuracy Machine Learning Performance Benchmark.*
#   arXiv:1806.01427
