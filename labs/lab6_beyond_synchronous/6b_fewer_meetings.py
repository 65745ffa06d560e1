# %% [markdown]
# # 6b Fewer meetings
#
# So far all ranks met after every update. In 6a they went on without each other's newest gradients. Here they take
# steps by themselves and meet now and then, or pull at each other with springs, or talk to one neighbour only.
#
# **You will be able to** derive elastic averaging from its objective; say how rarely ranks must meet for a given wire;
# predict from a matrix how quickly gossip brings ranks together; and recognise a faulty meeting.
#
# **Time:** 45 minutes; the runs take seconds on 2 CPU cores. There is nothing for a GPU to do.
#
# **Needs:** the cost of a ring from 4a, and eigenvalues.

# %%
import math

import numpy as np
import pandas as pd
from IPython.display import Image

from course_lib.cost import allreduce
from course_lib.notebook import plots, predictions
from course_lib.notebook.predictions import measured, predict
from labs.lab6_beyond_synchronous.lessons import figures_6b as meetings
from labs.lab6_beyond_synchronous.lessons import gossip, local_sgd, small_network
from labs.lab6_beyond_synchronous.lessons.checks_6b import check, points
from labs.lab6_beyond_synchronous.lessons.diagnosis_6b import MISTAKES, check_diagnosis, diagnosis_points, patients

problem = small_network.fashion()
IMAGES = len(problem.train.labels)
FULL = IMAGES >= 5_000  # else a slice
RANKS = local_sgd.RANKS
print(f"{problem.name}: {IMAGES:,} images; {small_network.SIZE:,} weights; {RANKS} ranks in one process")

# %% [markdown]
# ## Local SGD
#
# Each rank takes H steps of SGD with its own batches. Then all ranks replace their weights by the mean of all. H = 1 is
# ordinary synchronous SGD. Stich (2018) proved for convex problems that the meetings can be rare without harm, as long
# as the ranks don't drift too far apart. How far they drift also depends on what they see: below, every rank draws from
# all images, or from one sixteenth of them sorted by class.
#
# ### Predict
#
# H = 16, learning rate 0.2. How many times as far apart are the ranks, on average, when each has its own classes?

# %% editable=true
predict("own classes: times as far apart", None)


# %%
def drift(own_classes):
    meeting = local_sgd.meeting("local", 16, 1)
    training = local_sgd.Training(meeting, 0.2, 1, updates=56 if FULL else 24, own_classes=own_classes)
    far = []
    while training.update < training.updates:
        training.step()
        far.append(gossip.distance(training.weights))
    return far


far = {"all classes": drift(False), "own classes": drift(True)}
measured(
    "own classes: times as far apart",
    round(float(np.mean(far["own classes"]) / np.mean(far["all classes"])), 1),
    "Near 1? Noise moves ranks apart like a random walk. Different data pull each of them steadily elsewhere.",
)
pd.DataFrame({name: values[7:24:4] for name, values in far.items()}, index=range(8, 25, 4)).rename_axis("update").round(
    2
)

# %% [markdown]
# The ranks drift apart for 16 updates, then agree (distance 0), and drift apart again.
#
# ## How rarely?
#
# Between two meetings each rank computes for H updates. The meeting is a ring all-reduce of the weights.
#
# ### Exercise: the period that a wire asks for
#
# <details><summary>Hint</summary>Write down the time from one meeting to the next. Which part of it is the
# meeting's?</details>


# %% exercise="period"
def period(numbers, ranks, link, computing, share):
    """The smallest H with which meetings take at most `share` of all time.

    numbers: float32 weights that are averaged by `allreduce.ring(ranks, nbytes, link)`, in seconds.
    computing: seconds of a rank's own update; share: between 0 and 1.
    """
    ### BEGIN SOLUTION
    meeting = allreduce.ring(ranks, 4 * numbers, link)
    return max(1, math.ceil(meeting * (1 - share) / (share * computing)))
    ### END SOLUTION


# %%
check(period)

# %% hidden="period" points=3
### BEGIN HIDDEN TESTS
points(period, 3)
### END HIDDEN TESTS

# %% [markdown]
# In a recorded experiment two real ranks, on two pretended hosts, train this network by local SGD. An update is short:
# 16 images. `course reproduce meetings_wire`, typed in a terminal, makes it again.
#
# ### Predict
#
# At 100 Mbit/s, how many times as long does an update take with H = 1 as with H = 64? And at 1 Gbit/s?

# %% editable=true
predict("100 Mbit/s: seconds with H = 1 / with H = 64", None)
predict("1 Gbit/s: seconds with H = 1 / with H = 64", None)

# %%
wire = pd.read_csv("recorded/meetings_wire.csv", comment="#")
by_period = wire.pivot(index="period", columns="link", values="seconds")
for link, reveals in (
    ("100 Mbit/s", "Near 64? With H = 64 the computing is left, which no period makes shorter."),
    ("1 Gbit/s", "A tenth of what 100 Mbit/s gives? Most of a small meeting is latency, not bytes."),
):
    ratio = by_period[link][1] / by_period[link][64]
    measured(f"{link}: seconds with H = 1 / with H = 64", round(float(ratio), 1), reveals)
Image("recorded/meetings_wire.png", width=plots.WIDTH)

# %% [markdown]
# At 100 Mbit/s an update takes 2.39 ms with H = 1 and 0.18 ms with H = 64; at 1 Gbit/s 1.25 ms and 0.14 ms. A link that
# is ten times as fast makes the meetings far less than ten times as short. For messages as small as these, fewer
# meetings help even on a quick link.

# %% [markdown]
# ## Elastic averaging
#
# Averaging throws away where each rank has been. Zhang, Choromanska and LeCun (2015) let ranks stay apart: a spring
# ties the weights xᵢ of each rank to a *centre* c, which is the network that is judged in the end. All together
# minimise
#
# $$\sum_i \left( L_i(x_i) + \frac{\rho}{2} \lVert x_i - c \rVert^2 \right)$$
#
# over x₁ … x_N **and** c, where Lᵢ is the loss on the batch of rank i.
#
# ### Exercise: one step on this objective
#
# <details><summary>Hint</summary>Differentiate by one rank's weights, then by the centre: how many terms of the sum
# contain it? A step of gradient descent moves all variables at once, from where they were.</details>


# %% exercise="elastic_step"
def elastic_step(weights, centre, gradients, rate, spring):
    """One step of gradient descent with learning rate `rate` on the objective, in all its variables at once.

    weights: of the ranks, [N, L]; centre: [L]; gradients: of the Lᵢ at the ranks' weights, [N, L]; spring: ρ.
    Returns the new weights and the new centre.
    """
    ### BEGIN SOLUTION
    pulled = rate * spring * (weights - centre)
    return weights - rate * gradients - pulled, centre + pulled.sum(axis=0)
    ### END SOLUTION


# %%
check(elastic_step)

# %% hidden="elastic_step" points=4
### BEGIN HIDDEN TESTS
points(elastic_step, 4)
### END HIDDEN TESTS

# %% [markdown]
# A rank moves by α = ηρ of its distance from the centre, the centre by Nα of its distance from the ranks' mean.
#
# ### Predict
#
# Without gradients, for which α does the centre reach the mean of 16 ranks in one step?

# %% editable=true
predict("α that brings the centre to the mean of 16", None)

# %%
random = np.random.default_rng(1)
scattered, middle = random.normal(size=(RANKS, 50)), np.zeros(50)
alphas = np.arange(1, 65) / 256
left = [
    np.linalg.norm(elastic_step(scattered, middle, 0 * scattered, 1.0, alpha)[1] - scattered.mean(0))
    for alpha in alphas
]
measured(
    "α that brings the centre to the mean of 16",
    float(alphas[np.argmin(left)]),
    "Near 1? All springs pull at the centre together; with a larger α it overshoots.",
)

# %% [markdown]
# ## Gossip
#
# No centre and no all-reduce: after each step a rank averages with one or two others only (Boyd et al. 2006; Jin et al.
# 2016 train networks so). Row i of a matrix W says what rank i takes of whom, and one round makes W·x of the weights x.
# W is symmetric, and its rows sum to 1.
#
# The *distance to consensus* is the root of the mean squared distance of the ranks from their mean.
#
# ### Predict
#
# 16 ranks, no gradients. After how many rounds is the distance a thousandth, in a ring where each takes a third of
# itself and of both neighbours? And when all are paired anew at random in each round?

# %% editable=true
predict("rounds to a thousandth, ring", None)
predict("rounds to a thousandth, random pairs", None)

# %% [markdown]
# ### Exercise: the mixing rate
#
# <details><summary>Hint</summary>Write the ranks' differences from their mean as a sum of eigenvectors of W. What does
# a round do to each of them, and which is left at the end? The mean belongs to an eigenvector, too.</details>


# %% exercise="mixing"
def mixing(matrix):
    """The factor by which, after many rounds, each round still multiplies the distance to consensus, in the worst case.

    matrix: W, symmetric, [N, N], with rows that sum to 1.
    """
    ### BEGIN SOLUTION
    return np.sort(np.abs(np.linalg.eigvalsh(matrix)))[-2]
    ### END SOLUTION


# %%
check(mixing)

# %% hidden="mixing" points=4
### BEGIN HIDDEN TESTS
points(mixing, 4)
### END HIDDEN TESTS

# %% [markdown]
# A random matrix has no fixed eigenvectors. But a matrix of pairs W is a projection, WᵀW = W, so that in a round the
# *squared* distance shrinks on average by the second eigenvalue of the mean of all such matrices: half of oneself,
# and half of the others' mean. Its root foretells the distance.


# %%
def rounds(matrix, count=200):
    """The distance to consensus after each round, from drawn weights."""
    ranks = np.random.default_rng(2).normal(size=(RANKS, 500))
    distances = [gossip.distance(ranks)]
    for _ in range(count):
        ranks = matrix() @ ranks
        distances.append(gossip.distance(ranks))
        if distances[-1] < 1e-3 * distances[0]:
            break
    return distances


partners = np.random.default_rng(3)
ring = gossip.ring(RANKS)
expected = 0.5 * np.eye(RANKS) + 0.5 * (1 - np.eye(RANKS)) / (RANKS - 1)
foretold = {"ring": mixing(ring), "random pairs": mixing(expected) ** 0.5}
seen = {"ring": rounds(lambda: ring), "random pairs": rounds(lambda: gossip.random_pairs(RANKS, partners))}
for name, reveals in (
    ("ring", "Far fewer? News travels by one rank a round, and comes back diluted."),
    ("random pairs", "Far more? After a few rounds every rank has heard of all others, by way of others."),
):
    measured(f"rounds to a thousandth, {name}", len(seen[name]) - 1, reveals)
meetings.consensus(seen, foretold, caption="16 ranks, no gradients; dashed: foretold by the eigenvalue")

# %% [markdown]
# The ring begins faster than foretold, because differences between neighbours vanish at once. What is left is the slow
# wave around the ring, and its slope is the eigenvalue's.
#
# ## A diagnosis
#
# Four meetings of eight ranks after eight updates, each with one mistake, beside a healthy one.

# %%
seen_meetings = patients()
seen_meetings

# %%
pd.Series(MISTAKES, name="mistake").to_frame()

# %% [markdown]
# ### Exercise: the diagnosis
#
# <details><summary>Hint</summary>Are the ranks different before the meeting? Are they equal after it? Does a meeting
# move the mean, and how?</details>


# %% exercise="diagnosis"
def diagnosis():
    """The number of the mistake in each meeting, as in {"A": 1, "B": 2, "C": 3, "D": 4}."""
    ### BEGIN SOLUTION
    return {"A": 3, "B": 6, "C": 2, "D": 5}
    ### END SOLUTION


# %%
check_diagnosis(diagnosis)

# %% hidden="diagnosis" points=4
### BEGIN HIDDEN TESTS
diagnosis_points(diagnosis, 4)
### END HIDDEN TESTS

# %% [markdown]
# ## What does it cost?
#
# The recorded experiment: 16 emulated ranks, at most 400 updates, and a target of 0.8 on validation data. Each way
# chose its learning rate out of the same eight with one seed; five other seeds make the table.
# `course reproduce fewer_meetings` makes it again; it took about 3 minutes.
#
# ### Predict
#
# All ranks have all classes. How many times as many updates does H = 64 need as H = 1? And how many of five runs with
# H = 16 reach the target when each rank has its own classes?

# %% editable=true
predict("updates with H = 64 / with H = 1", None)
predict("own classes, H = 16: runs of five", None)

# %%
recorded = pd.read_csv("recorded/fewer_meetings.csv", comment="#")
found = meetings.summary(recorded).set_index(meetings.BY)
measured(
    "updates with H = 64 / with H = 1",
    round(float(found.loc[("local", 64, False), "mean"] / found.loc[("local", 1, False), "mean"]), 1),
    "Far more? Between meetings each rank learns by itself, if noisily.",
)
measured(
    "own classes, H = 16: runs of five",
    int(found.loc[("local", 16, True), "reached"]),
    "All of them? The mean of networks that each know one class or two need not know all ten.",
)
Image("recorded/fewer_meetings.png", width=plots.WIDTH)

# %% [markdown]
# Updates to the target when all ranks have all classes, with 95 % intervals, and seconds: these updates times the
# seconds of an update that two real ranks took. Sixteen real ranks would take longer to meet.
#
# | H | updates | 1 Gbit/s | 100 Mbit/s |
# |---|---|---|---|
# | 1 | 152 ± 24 | 0.19 s | 0.36 s |
# | 4 | 202 ± 28 | 0.07 s | 0.13 s |
# | 16 | 228 ± 49 | 0.05 s | 0.06 s |
# | 64 | 292 ± 33 | 0.04 s | 0.05 s |
#
# - More updates, less time: H = 64 needs more updates than H = 1, but the meetings that it saves weigh more.
# - With classes of their own, all five runs reach the target with H = 1, two with H = 4, none with H = 16 or 64. There
#   the mean accuracy at the end is 0.75 and 0.69.
# - Gossip after every update needs 166 ± 21 updates in the ring and 158 ± 16 with random pairs, no more than all
#   together beyond chance. With classes of their own three of five runs with random pairs reach the target, and none in
#   the ring.
# - Elastic averaging with H = 16 and Nα = 0.9 is not better here: four of five runs reach the target with all classes,
#   none with their own. With momentum 0.9 all five do, but its best rate was the smallest of the eight, so that a
#   smaller one may be better still. Other values of α were not tried. Zhang et al. report an advantage, for larger
#   networks and far longer trainings.
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - Local SGD divides the meetings by H. It needs more updates, and on a slow wire less time. Between meetings the ranks
#   drift apart; where their data differ, the target may be out of reach.
# - Elastic averaging is gradient descent on the losses and springs; the centre is one of its variables.
# - Gossip's matrix tells how quickly it mixes: by the second largest eigenvalue in size.
#
# - S. Boyd, A. Ghosh, B. Prabhakar, D. Shah: *Randomized Gossip Algorithms.* IEEE Transactions on Information Theory
#   52(6), 2006
# - S. Zhang, A. Choromanska, Y. LeCun: *Deep learning with Elastic Averaging SGD.* arXiv:1412.6651
# - P. H. Jin, Q. Yuan, F. Iandola, K. Keutzer: *How to scale distributed deep learning?* arXiv:1611.04581
# - S. U. Stich: *Local SGD Converges Fast and Communicates Little.* arXiv:1805.09767
# - T. Lin, S. U. Stich, K. K. Patel, M. Jaggi: *Don't Use Large Mini-Batches, Use Local SGD.* arXiv:1808.07217
