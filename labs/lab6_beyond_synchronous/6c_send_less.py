# %% [markdown]
# # 6c Send less
#
# 5b sent each number of a gradient with fewer bits. With four bits, that is an eighth of the bytes. Here you go further
# and leave numbers out: 999 of 1,000 of them, or all but a sign, or all but two thin matrices for each kernel. Most of
# this works only if what was left out is remembered.
#
# **You will be able to** send the largest numbers of a gradient without losing the others; recognise what breaks a
# training that does so; say from how many ranks on sending everything is cheaper; put momentum on the right side of the
# compression; and find a low-rank mean by two small all-reduces.
#
# **Time:** 70 minutes; the runs take about 15 seconds on 2 CPU cores. There is nothing for a GPU to do.
#
# **Needs:** the cost of a ring from 4a, momentum from 1b; 5b helps.

# %%
import math

import numpy as np
import pandas as pd
from IPython.display import Image

from course_lib import compression
from course_lib.cost import allreduce
from course_lib.cost.allreduce import Link
from course_lib.notebook import plots, predictions
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from course_lib.ranks import launch
from labs.lab6_beyond_synchronous.lessons import dense_training as training
from labs.lab6_beyond_synchronous.lessons import figures_6c as less
from labs.lab6_beyond_synchronous.lessons import own_ways as own
from labs.lab6_beyond_synchronous.lessons.checks_6c import check, points
from labs.lab6_beyond_synchronous.lessons.diagnosis_6c import MISTAKES, check_diagnosis, diagnosis_points, patients

problem, network = training.fashion(), training.Network()
IMAGES, LENGTH = len(problem.train.labels), int(network.ends[-1])
FULL = IMAGES >= 5_000  # else a slice
UPDATES = training.UPDATES if FULL else 40
WHERE = plots.provenance(f"{problem.name}, {IMAGES:,} images", training.RANKS) + ", emulated"
print(f"{problem.name}: {IMAGES:,} images; {LENGTH:,} weights")

# %% [markdown]
# ## What travels
#
# The network is small: three dense layers for images of 14 × 14 pixels, in NumPy. Two ranks compute a gradient each. In
# each update they exchange them in one of four ways:
#
# - **dense**: the mean of all numbers, by a ring all-reduce;
# - **largest**: each rank chooses the 1 of 10, 100 or 1,000 numbers that are largest in size, and sends them;
# - **signs**: one bit for each number, and for each tensor the mean size of its numbers;
# - **low rank**: two thin matrices for each kernel.
#
# ### Predict
#
# Of two ranks, each sends 1 of 100 numbers, as float32. How many times as many bytes does a dense exchange take?
#
# And seconds: in a recorded experiment, two ranks on two pretended hosts train a network of 355,110 weights. How many
# times as long does a dense step take as one with 1 of 1,000 numbers, on a link of 100 Mbit/s? And on a link without a
# limit? (2: the dense step takes twice as long; 0.5: half as long.)

# %% editable=true
predict("1 of 100: bytes of a dense exchange / bytes", None)
predict("100 Mbit/s: seconds dense / seconds with 1 of 1,000", None)
predict("no limit: seconds dense / seconds with 1 of 1,000", None)

# %%
WAYS = [("dense", 1), ("memory", 0.1), ("memory", 0.01), ("memory", 0.001), ("signs", 1), ("low rank", 4)]


def gradients(ranks, seed=1, size=32):
    """Gradients [ranks, L] of a network that is a little trained, each of `size` drawn images."""
    weights = training.train("dense", 1, 0.05, seed, 30).weights
    at = np.random.default_rng(seed).integers(IMAGES, size=(ranks, size))
    return np.stack([network.gradient(weights, problem.train.images[one], problem.train.labels[one])[1] for one in at])


def bytes_of_an_exchange():
    rows, two = {}, gradients(2)
    for way, amount in WAYS:
        wire = compression.LocalCommunicator()
        training.compressor(way, amount, wire, network)[0].compressed_mean(two)
        name = f"largest 1/{1 / amount:,.0f}" if way == "memory" else f"{way}, {amount}" if amount > 1 else way
        rows[name] = wire.sent(2)
    return pd.Series(rows, name="bytes that a rank sends").round().astype(int)


sent = bytes_of_an_exchange()
measured(
    "1 of 100: bytes of a dense exchange / bytes",
    sent["dense"] / sent["largest 1/100"],
    too_large="Whoever receives a number must know its position: four bytes more.",
    too_small="On two ranks a dense exchange sends each number once, and so does this one.",
)
sent.to_frame()

# %% [markdown]
# On two hosts (recorded; `course reproduce send_less_seconds`, as root on Linux, makes it again in half a minute):

# %%
link = pd.read_csv("recorded/send_less_seconds.csv", comment="#")
took = link.pivot(index="link", columns="name", values="seconds per step")
measured(
    "100 Mbit/s: seconds dense / seconds with 1 of 1,000",
    took.loc["100 Mbit/s", "dense"] / took.loc["100 Mbit/s", "largest 1/1,000"],
    too_large="500 would be right if a step did nothing but send. Choosing the numbers takes time, too.",
    too_small="Nearly all of the dense step is sending.",
)
measured(
    "no limit: seconds dense / seconds with 1 of 1,000",
    took.loc["no limit", "dense"] / took.loc["no limit", "largest 1/1,000"],
    "Here there is little to save, and finding the largest of 355,110 numbers takes longer than sending all of them.",
)
Image("recorded/send_less_seconds.png", width=plots.WIDTH)

# %% [markdown]
# On the slow link, 125 ms become 10 ms with 1 of 100. A tenth of that again saves nothing: with 1 of 1,000 a step takes
# 11 ms. What is left is the gradient, the choice and the latency. The network card counts 11,536 bytes for the 2,840
# that the rank hands over: the rest are headers and Horovod's own messages. Low rank with four columns takes 8 ms. It
# needs no search, only thin products, which NumPy is fast at. Without a limit the dense step is the quickest of all.
#
# ## The largest numbers
#
# A rank that sends 1 of 1,000 numbers can choose well: the largest of its 17,418. But the others are not worthless:
# small pushes in the same direction add up.
#
# ### Exercise: what to send, and what to keep
#
# Write what one rank does with its gradient. It sends k numbers. What it does not send has to reach the others later.
# So at any time, all that was ever sent and what is kept now add up to all of the gradients so far. And each time the k
# largest numbers go *of all that is waiting*.
#
# <details><summary>Hint</summary>After ten updates with a gradient of 0.1 each, how much is waiting?</details>
# <details><summary>Tools</summary><code>np.argsort</code> or <code>np.argpartition</code> of sizes.</details>


# %% exercise="send_largest"
def send_largest(gradient, kept, k):
    """What a rank sends in an update, and what it keeps for later.

    gradient: float32 [L], of this update; kept: float32 [L], what this function returned the time before, at first 0.
    Both stay as they are. Returns positions (int [k], in any order), values (float32 [k]), and what is kept now [L].
    """
    ### BEGIN SOLUTION
    waiting = kept + gradient
    positions = np.argsort(np.abs(waiting))[-k:]
    rest = waiting.copy()
    rest[positions] = 0
    return positions, waiting[positions], rest
    ### END SOLUTION


# %%
check(send_largest)

# %% hidden="send_largest" points=4
### BEGIN HIDDEN TESTS
points(send_largest, 4)
### END HIDDEN TESTS

# %% [markdown]
# ### Predict
#
# Send 1 of 1,000 with your function, and with one that forgets what it does not send. After 500 updates, which share of
# the weights has ever moved if everything else is forgotten?

# %% editable=true
predict("nothing kept: share of the weights that ever moved", None)


# %%
def followed(reduce, rate, momentum, what):
    """A training: the loss of each update, the validation accuracy, and the share of weights that ever moved."""
    run = training.Training(reduce, rate, 1, momentum=momentum, updates=UPDATES)
    losses, moved = [], np.zeros(LENGTH, bool)
    with Filling(what) as line, np.errstate(all="ignore"):
        while run.update < UPDATES and np.isfinite(run.weights).all():
            run.step()
            losses.append(run.loss)
            moved |= run.mean != 0
            if run.update % 20 == 0:
                line.at(run.update / UPDATES, f"loss {run.loss:.2f}")
    return losses, run.accuracy(problem.validation), float(moved.mean())


RATIO = 0.001
runs = {
    "dense": followed(compression.Dense(compression.LocalCommunicator()).compressed_mean, 0.1, 0, "dense"),
    "yours": followed(own.Largest(send_largest, RATIO).compressed_mean, 0.1, 0, "yours"),
    "nothing kept": followed(
        compression.TopK(compression.LocalCommunicator(), RATIO, memory=False).compressed_mean, 0.1, 0, "nothing kept"
    ),
}
measured(
    "nothing kept: share of the weights that ever moved",
    round(runs["nothing kept"][2], 3),
    "The same positions win again and again. A weight whose gradient is never among the largest stays as it was drawn.",
)
less.losses({name: run[0] for name, run in runs.items()}, caption=f"{WHERE} · one seed, 1 of 1,000, no momentum")

# %%
pd.DataFrame({name: run[1:] for name, run in runs.items()}, ["validation accuracy", "weights that ever moved"]).round(3)

# %% [markdown]
# What you should see: without a memory the loss falls at first, where gradients are large, and then training stalls.
# With it far more weights have their turn, though later. Karimireddy et al. prove that with a memory, in the long run,
# training with such a compression converges as fast as SGD without any.
#
# ## Five trainings, four mistakes
#
# All of these send 1 of 1,000, with the same learning rate and no momentum. One is healthy; each of the others has
# exactly *one* of these mistakes:

# %%
for number, mistake in MISTAKES.items():
    print(f"{number}  {mistake}")

# %%
with Filling("five trainings"):
    seen = patients(UPDATES)
less.losses({name: one.losses for name, one in seen.items()}, caption=f"{WHERE} · one seed, 1 of 1,000, no momentum")

# %% [markdown]
# What was seen of rank 0, in the last tenth of the updates:

# %%
pd.DataFrame({name: one.whole for name, one in seen.items()})

# %% [markdown]
# ### Exercise: the diagnosis
#
# Which mistake does each training have? The curves alone will not tell you: A and B are much alike, and D might be a
# healthy training with a smaller learning rate.
#
# <details><summary>Hint</summary>Ask each column: does anything wait at all? Is what is sent larger than what waits? Of
# both signs? And is it something else in each update?</details>


# %% exercise="diagnosis"
def diagnosis():
    """The number of each training's mistake: {"A": …, "B": …, "C": …, "D": …}."""
    ### BEGIN SOLUTION
    return {"A": 5, "B": 1, "C": 2, "D": 3}
    ### END SOLUTION


# %%
check_diagnosis(diagnosis)

# %% hidden="diagnosis" points=4
### BEGIN HIDDEN TESTS
diagnosis_points(diagnosis, 4)
### END HIDDEN TESTS

# %% [markdown]
# With positions drawn at random nothing is lost, and yet training is slow: what is sent is old. Without a memory the
# numbers are fresh, but of most weights nothing ever arrives. So a memory needs the choice by size, and the choice by
# size needs a memory.
#
# ## Real ranks
#
# On real ranks the positions and the values travel by Horovod's all-gather. Here the compressor of the library does a
# few updates on two of them, and its emulation does the same in this process.


# %%
def on_real_ranks(updates=10):
    """Bytes in an update with 1 of 100, on two real ranks and on emulated ones, and how their weights differ."""

    def function():
        import horovod.tensorflow as hvd

        from labs.lab6_beyond_synchronous.lessons import horovod_wire

        hvd.init()
        return horovod_wire.train("memory", 0.01, 0.05, 1, updates)

    with Filling("two real ranks"):
        (weights, sent), _ = launch.call(function, 2, env=launch.ONE_THREAD)
    wire = compression.LocalCommunicator()
    twin = training.train("memory", 0.01, 0.05, 1, updates, wire)
    told = {"bytes in an update, real": sent / updates, "emulated": wire.sent(2) / updates}
    return {**told, "largest difference of the weights": float(np.abs(weights - twin.weights).max())}


on_real_ranks()

# %% [markdown]
# What you should see: the same bytes, and weights that are equal, or nearly so: with more than one thread in this
# process, products may be added up in another order. With one thread in each they are equal to the last bit. So the
# recorded trainings below are emulated.
#
# ## Positions do not add up
#
# In an all-reduce the ranks add up numbers on their way, so a message does not grow with the number of ranks. The
# largest numbers of different ranks stand in different places. Their sum has more numbers than each of them.
#
# ### Predict
#
# Of 64 ranks, each sends 1 of 100 numbers of its own gradient. Which share of all positions is sent by at least one of
# them? (Between 0.01, if all choose the same, and 0.47, if they choose at random.)

# %% editable=true
predict("64 ranks, 1 of 100 each: share that somebody sends", None)


# %%
def unions():
    """The share of positions that at least one rank sends: columns ranks, ratio, union."""
    everybody, rows = gradients(64), []
    for ratio in (0.1, 0.01, 0.001):
        positions = compression.largest(everybody, max(1, round(ratio * LENGTH)))
        for ranks in (1, 2, 4, 8, 16, 32, 64):
            rows.append({"ranks": ranks, "ratio": ratio, "union": len(np.unique(positions[:ranks])) / LENGTH})
    return pd.DataFrame(rows)


shares = unions()
measured(
    "64 ranks, 1 of 100 each: share that somebody sends",
    round(float(shares.query("ranks == 64 and ratio == .01")["union"].iloc[0]), 3),
    "Images have much in common, so ranks agree on many positions. Yet the sum of 64 has several times as many numbers "
    "as each of them.",
)
less.union(shares, caption=f"{plots.provenance(problem.name, 64)}, emulated · gradients of 32 images, after 30 updates")

# %% [markdown]
# So there is no short sum to pass on, and the ranks take an *all-gather*: round a ring, each rank first sends its own
# message to its neighbour, and then in each round passes on what came in the round before, until all have all.
#
# ### Predict
#
# A network of 355,110 weights on a link of 100 Mbit/s, with a latency of 0.1 ms. Each rank sends 1 of 100 numbers with
# their positions, 4 bytes each. From how many ranks on is the dense ring all-reduce the quicker one?

# %% editable=true
predict("1 of 100, 100 Mbit/s: ranks from which dense is quicker", None)

# %% [markdown]
# ### Exercise: from how many ranks on?
#
# Derive it, for any link. Both exchanges go round a ring, and in each round every rank sends one message at the same
# time as the others. Mind that there may be no such number.
#
# <details><summary>Hint</summary>How many rounds has each, and how many bytes has a message? Write down seconds for N
# ranks and divide both by N − 1. Which side still depends on N?</details>


# %% exercise="dense_from"
def dense_from(numbers, sent, link):
    """The smallest number of ranks (2 or more) from which on the dense exchange is the quicker one; math.inf if never.

    numbers: of the gradient, float32. sent: how many of them each rank sends in the sparse exchange, with a position of
    4 bytes for each.
    link: link.alpha is the latency of a message in seconds, link.beta the seconds for a byte.
    """
    ### BEGIN SOLUTION
    spare = 8 * sent * link.beta - link.alpha
    return max(2, math.floor(8 * numbers * link.beta / spare) + 1) if spare > 0 else math.inf
    ### END SOLUTION


# %%
check(dense_from)

# %% hidden="dense_from" points=4
### BEGIN HIDDEN TESTS
points(dense_from, 4)
### END HIDDEN TESTS

# %%
SLOW, NUMBERS = Link(latency=1e-4, bandwidth=12.5e6), 355_110
measured(
    "1 of 100, 100 Mbit/s: ranks from which dense is quicker",
    dense_from(NUMBERS, 3_551, SLOW),
    "What a rank receives in an all-gather grows with the number of ranks. In an all-reduce it does not.",
)
ranks = [2**power for power in range(1, 13)]
gathered = {
    f"1 of {1 / r:,.0f}": [(n - 1) * SLOW.seconds(8 * round(r * NUMBERS)) for n in ranks] for r in (0.1, 0.01, 0.001)
}
dense = [allreduce.ring(n, 4 * NUMBERS, SLOW) for n in ranks]
less.costs(gathered, ranks, dense, caption="a model: 355,110 weights, 100 Mbit/s, 0.1 ms latency, one rank a host")

# %% [markdown]
# Without latency the answer is short: if 1 of n numbers is sent, dense is quicker with more than n ranks. Positions
# double what a rank sends, but the dense ring passes everything round twice. With many ranks latency counts as well,
# and there the all-gather has the advantage: it needs half as many rounds.
#
# Low rank does not have this limit: its thin matrices add up, in a plain all-reduce. That comes below.
#
# ## Momentum before or after?
#
# A weight whose number is sent once in 100 updates gets 100 gradients at once. If momentum is added to what arrives
# (*after*), one large step is repeated, 0.9, 0.81, … times as large, long after its gradients. With ordinary momentum
# each of these gradients would have built up speed and lost it again in the meantime.
#
# ### Exercise: late, but in full
#
# Put momentum *before* the compression, on each rank, so that:
#
# - where all numbers are sent in all updates, the steps are those of ordinary momentum, v ← βv + g;
# - where a number has waited, then in the update in which it is sent its weight has moved, in all, exactly as far as
#   ordinary momentum with this rank's gradients would have moved it.
#
# The receiver takes the mean of what arrives as a step, and adds no momentum of its own.
#
# <details><summary>Hint</summary>What would ordinary momentum have added to the weight while its number had to wait?
# Which of the two memories does sending empty?</details>


# %% exercise="send_velocity"
def send_velocity(gradient, velocity, kept, k, momentum):
    """What a rank sends in an update, with momentum before the compression.

    gradient: float32 [L]; velocity, kept: float32 [L], as this function returned them the time before, at first 0.
    momentum: β. Arguments stay as they are. Returns positions (int [k]), values (float32 [k]), velocity and kept [L].
    """
    ### BEGIN SOLUTION
    speed = momentum * velocity + gradient
    total = kept + speed
    chosen = np.argsort(np.abs(total))[-k:]
    left = total.copy()
    left[chosen] = 0
    return chosen, total[chosen], speed, left
    ### END SOLUTION


# %%
check(send_velocity)

# %% hidden="send_velocity" points=4
### BEGIN HIDDEN TESTS
points(send_velocity, 4)
### END HIDDEN TESTS

# %% [markdown]
# This is the *momentum correction* of deep gradient compression (Lin et al. 2018). The paper adds three more changes:
#
# - **masking**: the velocity of what is sent is set to 0, so that old gradients don't push on;
# - **clipping**: each rank shortens its gradient before it adds it up, if it is longer than a threshold over √N;
# - **warm-up**: at first more is sent, here 1 of 4, and then ever less, in the first tenth of the updates.
#
# In the recorded experiment these come one after the other, with a learning rate of its own for each of them and each
# ratio. `course reproduce send_less` makes it again; it took about 7 minutes on one core.
#
# ### Predict
#
# With 1 of 1,000: is accuracy higher with momentum "before", "after", or "neither" (no difference beyond chance)? And
# how many hundredths of test accuracy does all of it together still lose against dense training?

# %% editable=true
predict("1 of 1,000: better with momentum …", None)  # "before", "after" or "neither"
predict("1 of 1,000, deep gradient compression: hundredths lost", None)

# %%
recorded = pd.read_csv("recorded/send_less.csv", comment="#")


def better(ours, theirs, names):
    """Which of two recorded settings has the higher accuracy, by `names`; "neither" where it may be chance."""
    difference, half = less.ahead(recorded, ours, theirs)
    return "neither" if abs(difference) <= half else names[difference < 0]


measured(
    "1 of 1,000: better with momentum …",
    better(("momentum before", 0.001), ("memory", 0.001), ("before", "after")),
    "Each has a learning rate of its own here. A smaller rate makes up for steps that are repeated too often.",
)
measured(
    "1 of 1,000, deep gradient compression: hundredths lost",
    round(-less.ahead(recorded, ("warm-up", 0.001), ("dense", 1))[0], 1),
    "Far more? The ladder below shows what each of its parts brings.",
)
Image("recorded/send_less_ladder.png", width=plots.WIDTH)

# %% [markdown]
# Test accuracy less that of dense training, in hundredths, with the 95 % interval over pairs with the same seed:
#
# | | 1 of 10 | 1 of 100 | 1 of 1,000 |
# |---|---|---|---|
# | nothing kept | −1.2 ± 0.3 | −4.4 ± 0.5 | −10.7 ± 0.8 |
# | + memory | −0.6 ± 0.4 | −2.0 ± 0.1 | −6.0 ± 1.3 |
# | + momentum before | −0.4 ± 0.5 | −2.0 ± 0.9 | −5.4 ± 0.7 |
# | + masking | +0.3 ± 0.1 | −1.4 ± 0.4 | −4.8 ± 0.6 |
# | + clipping | +0.4 ± 0.3 | −0.7 ± 0.2 | −3.4 ± 1.0 |
# | + warm-up | +0.4 ± 0.2 | 0.0 ± 0.3 | −1.4 ± 0.3 |
#
# - The memory is the largest step at 1 of 100 and 1 of 1,000: 2.5 ± 0.5 and 4.7 ± 1.4.
# - The order of momentum alone makes no difference beyond chance at any of the three ratios, once each order has its
#   own rate. The argument above is about one rate for both; at 1 of 1,000, momentum after chose half of the other's.
# - Deep gradient compression as a whole gains 2.0 ± 0.4 over memory with momentum after at 1 of 100, and 4.5 ± 1.5 at 1
#   of 1,000. With 1 of 100 nothing is lost any more. With 1 of 1,000 it loses 1.4 ± 0.3, although its warm-up sends
#   more: 786 bytes in an update on average, not 136.
# - With 1 of 10 it is better than dense training, and is so from masking on. That need not come from sending less:
#   masking weakens momentum, and clipping shortens steps. Dense training was tried with neither.
#
# Lin et al. report no loss at all for 1 of 1,000, for larger networks and trainings of many epochs. Here all
# have 500 updates: after the warm-up a rank sends 17 numbers in an update, 7,650 in the other 450, fewer than half of
# the weights. And the threshold of clipping, 2, was not tuned.
#
# ## Signs
#
# Seide et al. sent one bit for each number in 2014, and kept the rest from the start. Here each tensor's signs travel
# with one float32, the mean size of its numbers.
#
# ### Predict
#
# With momentum *after*: is accuracy higher "with" a memory, "without" it, or "neither"? And how many hundredths do
# signs without a memory gain when momentum moves *before* the signs?

# %% editable=true
predict("signs, momentum after: better … memory", None)  # "with", "without" or "neither"
predict("signs, nothing kept: hundredths that momentum before gains", None)

# %%
measured(
    "signs, momentum after: better … memory",
    better(("signs", 1), ("signs, nothing kept", 1), ("with", "without")),
    "Did you expect that a memory always helps? With momentum after, what it sends late is repeated as well.",
)
before = less.ahead(recorded, ("signs, momentum before, nothing kept", 1), ("signs, nothing kept", 1))
measured(
    "signs, nothing kept: hundredths that momentum before gains",
    round(before[0], 1),
    "The sign of a velocity is that of many gradients added up, in which the noise of single ones cancels.",
)
less.summary(recorded[recorded["way"].str.startswith("signs")]).round(4)

# %% [markdown]
# - With momentum after, the memory makes signs *worse*: 1.7 ± 1.7, just beyond chance. Momentum before improves both.
# - With momentum before, signs without a memory are as good as dense training (+0.2 ± 0.2) with 2,202 bytes in place of
#   69,672. With a memory they are worse by 1.3 ± 0.2.
#
# So for signs the order matters, and the memory does not help. This contradicts what the largest numbers taught.
# Karimireddy et al. give examples in which signs without a memory never arrive; this training is not one of them. A
# sign makes a small gradient's step as long as a large one's, as normalised methods do; a memory undoes that over time.
# Perhaps that undoing hurts here; this experiment can't tell.
#
# ## Low rank
#
# A kernel's gradient is a matrix M of a × b. Its best approximation of rank r has two factors with r columns, (a + b)r
# numbers in place of ab. They come from the largest singular vectors, which are too slow to compute in each update.
# *Power iteration* approaches them: multiply a thin matrix by M, then by Mᵀ, and so on. Its columns turn towards the
# largest singular vectors. Vogels et al. do one such step in each update and go on from there in the next.
#
# Each rank has its own M, and wants the mean of all.
#
# ### Exercise: the mean, by two thin all-reduces
#
# - Only thin matrices are all-reduced: (a + b)r numbers in all.
# - All ranks return the same.
# - If the mean has rank r, the result is the mean itself, for nearly every `right`.
# - Otherwise it is the mean projected onto r directions; and if the gradients stay the same, these become the best ones
#   from update to update.
#
# <details><summary>Hint</summary>Multiplying by a matrix is linear: the mean of products with the same `right` is the
# product with the mean. Between the two products the columns have to become orthonormal. Why, and on which
# side?</details>
# <details><summary>Tools</summary><code>np.linalg.qr(x)[0]</code> has orthonormal columns that span those of
# <code>x</code>.</details>


# %% exercise="low_rank_mean"
def low_rank_mean(me, matrix, right):
    """A low-rank approximation of the mean of all ranks' matrices.

    me: this rank: me.rank, me.size; me.all_reduce(array) returns the sum over the ranks, all of which have to call it.
    matrix: [a, b], of this rank. right: [b, r], the same on all ranks; what this function returned the time before.
    Returns the approximation [a, b], and the next `right` [b, r].
    """
    ### BEGIN SOLUTION
    left = np.linalg.qr(me.all_reduce(matrix @ right))[0]
    following = me.all_reduce(matrix.T @ left) / me.size
    return left @ following.T, following
    ### END SOLUTION


# %%
check(low_rank_mean)

# %% hidden="low_rank_mean" points=5
### BEGIN HIDDEN TESTS
points(low_rank_mean, 5)
### END HIDDEN TESTS


# %% [markdown]
# ### Predict
#
# The error is the distance from the mean gradient, divided by its length. In a training with your function and r = 1,
# how many times as large is it as that of the best approximation with r = 1, at the end? And how many hundredths of
# test accuracy does a memory bring, with r = 1 (recorded)?

# %% editable=true
predict("r = 1: your error / the smallest possible", None)
predict("r = 1: hundredths that a memory brings", None)


# %%
def low_rank_errors(updates=40 if FULL else 10):
    """In a training with r = 1: your error and the smallest one, over all kernels, by update."""
    mine, rows = own.LowRank(low_rank_mean, network, 1), []
    run = training.Training(mine.compressed_mean, 0.02, 1, updates=updates)
    kernels = [number for number, shape in enumerate(network.shapes) if len(shape) == 2]
    with Filling("a training with r = 1") as line:
        for _ in range(updates):
            run.step()
            line.at(run.update / updates, f"loss {run.loss:.2f}")
            exact, found = (compression.split(x, network.shapes) for x in (run.gradients.mean(0), run.mean))
            off = [np.linalg.norm(exact[k] - found[k]) for k in kernels]
            least = [np.linalg.norm(np.linalg.svd(exact[k], compute_uv=False)[1:]) for k in kernels]
            whole = np.linalg.norm([np.linalg.norm(exact[k]) for k in kernels])
            rows.append({"yours": np.linalg.norm(off) / whole, "smallest possible": np.linalg.norm(least) / whole})
    return pd.DataFrame(rows, index=range(1, updates + 1)).rename_axis("update")


errors = low_rank_errors()
last = errors.tail(5).mean()
measured(
    "r = 1: your error / the smallest possible",
    round(last["yours"] / last["smallest possible"], 2),
    "Far more? Gradients change from batch to batch, so `right` is always a little late. One step still finds much of "
    "what one direction can hold.",
)
measured(
    "r = 1: hundredths that a memory brings",
    round(less.ahead(recorded, ("low rank", 1), ("low rank, nothing kept", 1))[0], 1),
    "What one direction leaves out in an update goes into the next: in time, the memory sends the others, too.",
)
errors.iloc[[0, 1, 4, len(errors) // 2, -1]].round(3)

# %% [markdown]
# What you should see: your error stays near the smallest possible one. But that is large, too: one direction leaves out
# about half of a gradient's length or more. This is what the memory is for.
#
# ## What does a byte buy?

# %%
Image("recorded/send_less.png", width=plots.WIDTH)

# %% [markdown]
# - Deep gradient compression (1 of 100) needs 2,326 bytes in an update (warm-up included), signs with momentum before
#   and no memory 2,202: both lose nothing against 69,672. Below that only the former goes on, with a loss.
# - Low rank with r = 4 loses nothing beyond chance, 0.3 ± 0.3, with 7,944 bytes. With r = 1 it loses 2.4 ± 0.4; without
#   a memory 7.4 ± 0.7. This network's kernels are small: a large kernel is compressed far more by the same r.
# - Low rank and dense go by all-reduce, the others by all-gather. On two ranks both send the same for a message. On 100
#   ranks an all-gather sends 50 times as much as an all-reduce.
#
# What this can't tell: 500 updates of a small network of dense layers are not a training of ResNet-50. The rates were
# chosen by one seed from the same nine for every way and amount.
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - Of the largest numbers, what is not sent has to be kept: with one of 1,000 and no memory most weights never move,
#   and training stalls. Low rank needs a memory, too; signs did better without one here.
# - Positions cost as much as values, and they don't add up: an all-gather grows with the number of ranks, an all-reduce
#   does not. Thin matrices do add up.
# - Compression has a price in seconds. On a quick link, sending everything is quicker.
# - Tune the learning rate for each way of compression. Which way is better at one common rate says little.
#
# - F. Seide, H. Fu, J. Droppo, G. Li, D. Yu: *1-Bit Stochastic Gradient Descent and its Application to Data-Parallel
#   Distributed Training of Speech DNNs.* Interspeech 2014
# - Y. Lin, S. Han, H. Mao, Y. Wang, W. J. Dally: *Deep Gradient Compression: Reducing the Communication Bandwidth for
#   Distributed Training.* arXiv:1712.01887
# - S. P. Karimireddy, Q. Rebjock, S. U. Stich, M. Jaggi: *Error Feedback Fixes SignSGD and other Gradient Compression
#   Schemes.* arXiv:1901.09847
# - T. Vogels, S. P. Karimireddy, M. Jaggi: *PowerSGD: Practical Low-Rank Gradient Compression for Distributed
#   Optimization.* arXiv:1905.13727
