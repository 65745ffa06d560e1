# %% [markdown]
# # 6a Asynchronous
#
# In 2d a dead rank stopped all ranks, and in 4b the slowest of them set the pace. Here nobody waits. Each worker takes
# the weights as they are, calculates a gradient, hands it in and gets new weights at once. The price is that others
# have changed the weights meanwhile: the gradient is *stale*. You will count how stale gradients are, see what that
# does to training, and find out when it hardly matters.
#
# **You will be able to** write what a parameter server does with a gradient; tell staleness from a log; explain why
# asynchrony acts like momentum; choose a learning rate for stale gradients; and say when processes may write to the
# same weights without a lock.
#
# **Time:** 60 minutes; the runs take about 30 seconds on 2 CPU cores. There is nothing for a GPU to do.
#
# **Needs:** momentum (1b). 2d and 4b help.

# %%
import numpy as np
import pandas as pd
from IPython.display import Image

from course_lib.cost import stragglers
from course_lib.notebook import plots, predictions
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from labs.lab6_beyond_synchronous.lessons import bowl, hogwild, parameter_server, ratings, small_network
from labs.lab6_beyond_synchronous.lessons import figures_6a as figures
from labs.lab6_beyond_synchronous.lessons.asynchronous import arrivals
from labs.lab6_beyond_synchronous.lessons.checks_6a import check, points

problem = small_network.fashion()
FULL = len(problem.train.labels) >= 5_000  # else a slice
WHERE = f"{problem.name} · a server and two workers · {plots.provenance().split(' · ')[-1]}"

# %% [markdown]
# ## A server that waits for nobody
#
# A *parameter server* holds the weights (Dean et al. 2012 split theirs over many machines). A worker receives the
# weights, calculates the gradient of a batch and sends it. The server makes an update and answers with new weights.
#
# How many gradients an update takes is the server's decision, its *quorum*. With a quorum of all workers, the training
# is synchronous. With a quorum of one, it is asynchronous. Between them, the server goes on as soon as the fastest few
# have handed in.
#
# ### Exercise: a gradient arrives
#
# The processes and sockets are there. Decide what the server does each time: who is in the next update, which weights
# does it make, and who is answered? A worker that is not answered waits; a worker that is still calculating can't be
# answered.
#
# <details><summary>Hint</summary>Put every gradient into <code>server.waiting</code> first. Then either there are
# enough or not. If there are, every worker in <code>server.waiting</code> gets an answer.</details>


# %% exercise="arrived"
def arrived(server, worker, gradient):
    """What the server does with a gradient. An update is a step of descent with the mean of `quorum` gradients.

    server: has weights [n]; rate, η; quorum; updates, the number made so far, which you count; and waiting, a dict,
    worker → gradient [n], at first empty. worker: the number of the one that hands in; gradient: [n].
    Returns a dict, worker → weights, of those that get an answer now, {} if nobody does.
    """
    ### BEGIN SOLUTION
    server.waiting[worker] = gradient
    if len(server.waiting) < server.quorum:
        return {}
    mean = np.mean(list(server.waiting.values()), axis=0)
    server.weights = server.weights - server.rate * mean
    server.updates += 1
    answers = dict.fromkeys(server.waiting, server.weights)
    server.waiting = {}
    return answers
    ### END SOLUTION


# %%
check(arrived)

# %% hidden="arrived" points=4
### BEGIN HIDDEN TESTS
points(arrived, 4)
### END HIDDEN TESTS

# %% [markdown]
# ### Predict
#
# Two workers train a small network. Calculating takes them next to no time, so each sleeps as well: worker 0 for 20 ms
# in every step, worker 1 for 100 ms. How many gradients will the server take in a second with a quorum of 2, and how
# many with a quorum of 1?

# %% editable=true
predict("gradients a second, quorum 2", None)
predict("gradients a second, quorum 1", None)

# %%
PAUSES = (0.02, 0.1)


def both():
    """A run for each quorum: three processes each, and a socket from the server to each worker."""
    runs = {}
    with Filling("two runs") as line:
        for number, (title, quorum) in enumerate({"quorum 2": 2, "quorum 1": 1}.items()):
            line.at(number / 2, title)
            runs[title] = parameter_server.run(arrived, PAUSES, quorum, seconds=4 if FULL else 1)
    return runs


runs = both()
for title, reveals in (
    ("quorum 2", "Both wait for the slow one: two gradients in each 100 ms."),
    ("quorum 1", "Each goes at its own pace: 50 a second and 10 a second, less what messages take."),
):
    measured(f"gradients a second, {title}", round(len(runs[title].log) / runs[title].seconds, 1), reveals)
figures.timeline({title: run.log for title, run in runs.items()}, caption=f"{WHERE} · 20 and 100 ms of sleep in a step")

# %% [markdown]
# The slow worker no longer holds up the fast one. The number in each bar is the *staleness* of that gradient: how many
# updates the server made between sending the weights and using their gradient. It is 0 if nobody changed the weights
# meanwhile.
#
# ### Exercise: staleness
#
# Suppose that the log holds only the order in which the workers handed in: 0, 0, 1, 0, … With a quorum of one that is
# enough. When did a worker read the weights that its gradient was taken at?
#
# <details><summary>Hint</summary>A worker reads right after its own update. Before the first update, all workers have
# read the first weights.</details>


# %% exercise="staleness"
def staleness(worker):
    """The staleness of each gradient that an asynchronous server took.

    worker: ints [updates], 0, 1, …: whose gradient each update took. Returns ints [updates].
    """
    ### BEGIN SOLUTION
    read = {}
    between = []
    for update, number in enumerate(worker):
        between.append(update - read.get(number, 0))
        read[number] = update + 1
    return np.array(between)
    ### END SOLUTION


# %%
check(staleness)

# %% hidden="staleness" points=3
### BEGIN HIDDEN TESTS
points(staleness, 3)
### END HIDDEN TESTS

# %% [markdown]
# ### Predict
#
# The slow worker's gradients are stale by about 5, most of the fast one's by 0. What is the mean over all gradients?
# And what does it become when a third worker joins, which takes a whole second for a step?

# %% editable=true
predict("mean staleness, two workers", None)
predict("mean staleness, a third one that takes 1 s", None)

# %%
log = runs["quorum 1"].log
stale = np.asarray(staleness(log["worker"].to_numpy()))
print("the server counted the same:", np.array_equal(stale, runs["quorum 1"].staleness))
measured(
    "mean staleness, two workers",
    round(float(stale.mean()), 2),
    "A few gradients are very stale, and most are fresh. The mean of two workers is 1, whatever their pace.",
)
third = arrivals(stragglers.normal(0.05), 3, 20_000, slower=(0.02, 0.1, 1.0))  # simulated: nobody sleeps
measured(
    "mean staleness, a third one that takes 1 s",
    round(float(np.mean(staleness(third.worker))), 2),
    too_large="Its own gradients are stale by about 60, but they are only one in 61.",
    too_small="It seldom hands in, but when it does, about 60 updates of the others count.",
)

# %% [markdown]
# With N workers the mean is N − 1, however fast or slow they are. Why? Add up the staleness of one worker's gradients:
# over a long run that counts every update but its own. Over all N workers every update is counted N − 1 times. So
# **slow workers don't raise the mean staleness; more workers do.**
#
# ## Staleness is momentum
#
# In a large cluster many small things decide when a worker is done. Take the most random case: a worker's time is
# *exponential*, so that at any moment all N are equally likely to be the next to hand in, however long they have
# worked.
#
# Each worker holds the weights that it last read, and will hand in their gradient. Let $\bar g$ be the mean of these N
# gradients. Then the next step is on average $-\eta\,\bar g$. The worker that handed in, any of the N, now reads the
# new weights.
#
# ### Exercise: the disguise
#
# Let the loss be quadratic: then the mean of gradients is the gradient at the mean. The *mean* of many asynchronous
# runs takes exactly the path of another training: one worker, never stale, with momentum
# ($v \leftarrow \beta v + \eta' \nabla L(w)$, then $w \leftarrow w - v$; at first $v$ is η times the first gradient).
# Which $\beta$, and which $\eta'$?
#
# <details><summary>Hint</summary>How does an update change ḡ, on average? Write down the new ḡ from the old one and the
# gradient at the new weights. Then compare η ḡ with <em>v</em>.</details>


# %% exercise="disguise"
def disguise(workers, rate):
    """Momentum and learning rate of the one worker whose path is the mean of N asynchronous workers' paths.

    workers: N, 1 or more; rate: η of the asynchronous workers, who have no momentum of their own.
    Returns (momentum, rate).
    """
    ### BEGIN SOLUTION
    return 1 - 1 / workers, rate / workers
    ### END SOLUTION


# %%
check(disguise)

# %% hidden="disguise" points=3
### BEGIN HIDDEN TESTS
points(disguise, 3)
### END HIDDEN TESTS

# %% [markdown]
# Eight workers go down a bowl, L = w²/2, with η = .1. One worker alone would creep to the bottom and never pass it.
# What you should see: single runs in grey, their mean in blue, and your one worker's path on top of the mean.

# %%
mean_paths = bowl.paths(workers=8, rate=0.1, updates=80, runs=1000 if FULL else 100)
momentum, rate = disguise(8, 0.1)
yours = bowl.path(rate, momentum, 80)
figures.paths(mean_paths, yours, "eight asynchronous workers, η = .1", caption="exponential times, no momentum")

# %% [markdown]
# The runs overshoot, as they would with momentum, although nobody gave them any. Mitliagkas et al. (2016) found this
# *implicit momentum*. In a real network $\nabla L$ is not linear, and the result is no longer exact. Whether it still
# helps to choose the momentum is measured below.
#
# ## What it costs
#
# The recorded experiment: a network with one hidden layer sees the same 64,000 examples of Fashion-MNIST, 4,000
# batches of 16, whether one worker calculates their gradients or 128. The workers are simulated: who hands in when is
# drawn, and the updates are then made exactly (`lessons/asynchronous.py`). Each number of workers chose its learning
# rate out of seven. Five seeds; `course reproduce staleness`, typed in a terminal, takes about 11 minutes on one core.
#
# Pedram, Lynch and Lauterbach's tutorial says that asynchronous training loses accuracy beyond 32 workers (after
# S. Zhang et al. 2015 and Jin et al. 2016).
#
# ### Predict
#
# With which number of workers (2, 4, 8, 16, 32, 64 or 128) does the test accuracy first lie a hundredth or more below
# that of one worker? How many hundredths are lost at 32, and at 128?

# %% editable=true
predict("first N that loses a hundredth", None)
predict("hundredths lost with 32 workers", None)
predict("hundredths lost with 128 workers", None)

# %%
recorded = pd.read_csv("recorded/staleness.csv", comment="#")
lost = figures.lost(recorded, "asynchronous").set_index("workers")["mean"]
measured(
    "first N that loses a hundredth",
    int(lost.index[lost >= 0.01][0]),
    "There is no threshold: the accuracy falls all along.",
)
for workers in (32, 128):
    measured(
        f"hundredths lost with {workers} workers",
        round(100 * float(lost[workers]), 1),
        "Many workers with one worker's rate would lose far more: here the rate is chosen anew for each N.",
    )
Image("recorded/staleness.png", width=plots.WIDTH)

# %% [markdown]
# What is lost of one worker's accuracy, in hundredths, with the 95 % interval over pairs with the same seed. "Even"
# workers take nearly the same time (20 % spread) for each gradient. "Synchronous" has β = .9, as has the one worker
# that it is compared with. The others have no momentum, and 16,000 batches are compared with one worker's 16,000.
#
# | workers | asynchronous | even workers | synchronous | 16,000 batches |
# |---|---|---|---|---|
# | 2 | 0.2 ± 0.3 | – | 0.2 ± 0.2 | – |
# | 4 | 0.8 ± 0.4 | – | 0.4 ± 0.5 | – |
# | 8 | 1.3 ± 0.5 | 1.9 ± 0.4 | 0.8 ± 0.5 | – |
# | 16 | 1.8 ± 0.6 | – | 1.7 ± 0.2 | – |
# | 32 | 2.7 ± 0.5 | 5.7 ± 0.9 | 2.6 ± 0.3 | 1.4 ± 0.4 |
# | 64 | 4.3 ± 1.0 | – | 5.1 ± 0.6 | – |
# | 128 | 6.3 ± 0.8 | 12.9 ± 1.7 | 12.7 ± 2.1 | 3.1 ± 0.3 |
#
# - **There is no threshold at 32.** With 4 workers the loss is already larger than its interval, with 8 its mean is
#   more than a hundredth, and the mean grows with each doubling.
# - **It depends on how long one trains.** With four times as many batches, 32 workers lose 1.4 ± 0.4 instead of
#   2.7 ± 0.5. A staleness of 127 is a thirtieth of 4,000 updates, but a 3,500th of the 450,000 that 90 epochs of
#   ImageNet take with a batch of 256. A number of workers alone does not say where accuracy falls.
# - **Even workers are worse:** 5.7 ± 0.9 with 32. Their staleness is about N − 1 each time. With exponential times the
#   mean is the same, but most gradients are fresher than that, and a few are very stale.
# - **At equal examples synchronous training loses, too.** With 8 workers it is ahead of asynchronous training by
#   0.5 ± 0.3, with 32 there is no difference, 0.1 ± 0.4. It owes that to its momentum. Without momentum it is worse
#   than asynchronous training, by 0.9 ± 0.6 with 8 workers and by 2.4 ± 0.8 with 32. With 128 workers an update takes
#   2,048 images, and only 31 updates are left: they lose 6.3 ± 1.9 more. The time that synchronous workers wait for
#   each other is not counted here.
# - **Asynchronous training gains nothing from momentum here,** with any number of workers. With 32, momentum of .9
#   costs 1.3 ± 0.5.
#
# ## The best momentum of N workers
#
# If asynchrony brings momentum, many workers should need less *explicit* momentum, the β that the server applies. How
# much less? Think of *age*: with momentum β a gradient's effect on w comes β / (1 − β) updates after its own, on
# average. Staleness adds N − 1. Suppose that the best total age is the same for all N.
#
# ### Predict
#
# For one worker, .8 is best in the recorded experiment below (batches of 256, 200 updates: there momentum helps). Which
# momentum keeps the same age with 2 workers, and with 4? Which is better with 8 workers, each with its own best rate: 0
# or .8?

# %% editable=true
predict("momentum of the same age, 2 workers", None)
predict("momentum of the same age, 4 workers", None)
predict("better momentum with 8 workers, 0 or .8", None)

# %%
momenta = pd.read_csv("recorded/implicit_momentum.csv", comment="#")
best = figures.best_momenta(momenta).set_index("workers")
for workers in (2, 4):
    measured(
        f"momentum of the same age, {workers} workers",
        round(figures.explicit(workers, best.loc[1, "best"]), 2),
        f"The age of .8 is 4, and {workers - 1} of it comes from staleness: {5 - workers} is left for β / (1 − β).",
    )
losses = figures.summary(momenta, ["workers", "momentum"], "test loss").set_index(["workers", "momentum"])["mean"]
measured(
    "better momentum with 8 workers, 0 or .8",
    float(losses.loc[8].loc[[0.0, 0.8]].idxmin()),
    "Their staleness alone is an age of 7, more than 4: momentum makes it worse.",
)
Image("recorded/implicit_momentum.png", width=plots.WIDTH)

# %% [markdown]
# Every point on the left has its own best rate out of eight; eight seeds; `course reproduce implicit_momentum` took
# about 7 minutes on one core. The best explicit momentum is .8, .7, .5, 0 and −.5 for 1, 2, 4, 8 and 16 workers; from
# −.8 to .95 were tried. Equal age would be .8, .75 and .5 for 1, 2 and 4; from 6 workers on no momentum above
# −1 is low enough. So the direction is right. Mitliagkas et al., too, found negative momentum useful.
#
# But the bars on the right reach from the lowest to the highest momentum that may be as good. With 2 workers that is 0
# to .8. With 16 it is −.8 to .8, although .7 is worse than the best; so are .9 and .95, and nothing else can be told
# apart from it. A loss that scatters much counts the more easily as good. Bumps and long bars come largely from seed 6,
# which nearly diverges at rates that two other seeds had chosen: with 2 workers and momentum .3 or .5 its loss is 0.84
# or 0.85, that of the other seeds below 0.6. Two examples that matter: with momentum .8 instead of 0, the test loss of
# one worker is better by 0.053 ± 0.012, and that of 8 workers is worse by 0.045 ± 0.019. So tune momentum again, and
# not only the rate, when you go from one worker to many.
#
# ## A rate for stale gradients
#
# In the recorded experiment each number of workers had its own rate. In practice one often does not know in advance how
# many will work or how stale their gradients will be. But the server counts updates, so it knows the staleness of each
# gradient that arrives. W. Zhang et al. (2016) choose a rate for each gradient by its staleness.
#
# ### Exercise: a rate by staleness
#
# On a noisy bowl one worker can train with η = 1.2; at 2 it would diverge. Your function turns η into a rate for each
# gradient. It is measured with 1, 4, 16 and 64 workers and has to suit all of them. The loss starts at 1, and should
# end at .012 or less.
#
# <details><summary>Hint</summary>The mean staleness is N − 1. Suppose that N workers stand a rate of about η / N. What
# does that suggest for a gradient of staleness τ? And why is it no good to throw nearly all stale gradients
# away?</details>


# %% exercise="rate_for"
def rate_for(staleness, rate):
    """The learning rate of one gradient.

    staleness: its own, 0, 1, 2, …; rate: η, which a gradient with staleness 0 gets whole. The result is proportional
    to η, and never larger for an older gradient.
    """
    ### BEGIN SOLUTION
    return rate / (1 + staleness)
    ### END SOLUTION


# %%
check(rate_for)

# %% hidden="rate_for" points=3
### BEGIN HIDDEN TESTS
points(rate_for, 3)
### END HIDDEN TESTS

# %%
NUMBERS = (1, 2, 4, 8, 16, 32, 64)
untuned = {
    "the same for all": bowl.losses(bowl.RATE, NUMBERS),
    "only fresh ones": bowl.losses(lambda stale: bowl.RATE * (stale == 0), NUMBERS),
    "yours": bowl.losses(lambda stale: rate_for(stale, bowl.RATE), NUMBERS),
}
figures.untuned(NUMBERS, untuned, caption="noisy bowl, η = 1.2, 400 gradients, exponential times, 4 seeds")

# %% [markdown]
# With the same rate for all, 4 workers diverge, although one worker with the values that `disguise` gives would not.
# They describe the mean of many runs, not how far single runs scatter.
#
# ### Predict
#
# Back to the network and its recorded experiment. It also compares the same rate for all with a rate by staleness,
# close to that of W. Zhang et al. Each of the two chooses its η for each N. Which is better with 32 workers: "by
# staleness", "the same" or "neither"? And by which factor does the best η shrink from 2 workers to 128, for each of the
# two? (A factor below 1 would mean that it grows.)

# %% editable=true
predict("better with 32 workers, each with its best η", None)
predict("factor by which the best η shrinks, the same for all", None)
predict("factor by which the best η shrinks, by staleness", None)

# %%
measured(
    "better with 32 workers, each with its best η",
    figures.better(recorded, 32, ("by staleness", "the same")),
    "Once η is tuned for N, it is already small enough for stale gradients.",
)
for way, name, reveals in (
    ("asynchronous", "the same for all", "More staleness asks for a smaller rate, and only η can provide it."),
    ("aware", "by staleness", "Stale gradients already get smaller rates: η need not shrink."),
):
    rates = figures.best_rates(recorded, way)
    measured(f"factor by which the best η shrinks, {name}", float(rates[2] / rates[128]), reveals)
figures.by_staleness(recorded, caption="recorded: staleness · 5 seeds · bars: 95 % intervals (Student's t)")

# %% [markdown]
# With η tuned, the rate by staleness has the lower mean for every N, beyond chance with all but 8 and 64 workers: with
# 32 by 1.2 ± 0.4 hundredths. Its advantage is that η need not be tuned for each N. Its best η is .16 or .32 for every
# number of workers; that of the constant rate shrinks from .16 to .02. With η = .16 and 128 workers the constant rate
# reaches a validation accuracy of 30 %, that by staleness 76 % (means of the two tuning seeds).

# %% [markdown]
# ## The same weights for all
#
# On one machine no server is needed: processes can share memory. An update then reads some weights, adds to them and
# writes them back. If another process writes one of them between the reading and the writing, that change is
# overwritten and lost. A *lock* prevents this: whoever holds it works, and the other waits.
#
# *Hogwild!* (Recht et al. 2011) leaves the lock out. Try it on three problems:
#
# - **sparse**: a logistic regression (a linear model with a sigmoid) with 1,000 weights. An example has ten fields,
#   each with one of 100 values, and touches ten weights, one for each of its values.
# - **ratings**: a recommender. The rating that a user gives an item is about the product of the user's row and the
#   item's row, each of 8 numbers. A rating touches one of 500 users and one of 300 items.
# - **dense**: a logistic regression with 20,000 weights, in which every example touches all of them.
#
# To count what is lost, each weight has a counter beside it, to which every update of that weight adds 1 in the same
# way: read, add, write back. What is missing at the end was lost.
#
# ### Predict
#
# Two processes on two cores, against one. By which factor does the number of updates a second change with a lock, and
# without one, in the sparse problem? Without one in the dense problem? And how many of a thousand additions to a
# weight get lost in the sparse problem?

# %% editable=true
predict("speed-up, sparse, locked", None)
predict("speed-up, sparse, lock-free", None)
predict("speed-up, dense, lock-free", None)
predict("lost of a thousand, sparse", None)

# %%
EXAMPLES = 100_000 if FULL else 4_000
PROBLEMS = {  # what draws it, its settings, epochs
    "sparse": (ratings.Sparse.drawn, {"examples": EXAMPLES, "values": 100}, 1),
    "ratings": (ratings.Ratings.drawn, {"examples": EXAMPLES, "users": 500, "items": 300}, 1),
    "dense": (ratings.Dense.drawn, {"examples": EXAMPLES // 100, "size": 20_000}, 10),
}


def nine_runs():
    rows = []
    with Filling("nine runs") as line:
        for name, (draw, settings, epochs) in PROBLEMS.items():
            task = draw(**settings)
            for way in hogwild.WAYS:
                line.at(len(rows) / 9, f"{name}, {way}")
                run = hogwild.run(way, draw, settings, epochs)
                row = {"updates a second": round(run.per_second), "lost of a thousand": round(1_000 * run.lost, 3)}
                rows.append({"problem": name, "way": way, **row, "loss": round(task.loss(run.weights), 4)})
    return pd.DataFrame(rows).set_index(["problem", "way"])


shared = nine_runs()
for name, way, reveals in (
    ("sparse", "locked", "One works while the other waits, and handing over the lock costs time."),
    ("sparse", "lock-free", "Nobody waits. If it is less than 2, memory that both write to costs time."),
    ("dense", "lock-free", "Each process rewrites all weights, and the other has to fetch them anew."),
):
    speed = shared.loc[(name, way), "updates a second"] / shared.loc[(name, "alone"), "updates a second"]
    measured(f"speed-up, {name}, {way}", round(float(speed), 2), reveals)
measured(
    "lost of a thousand, sparse",
    float(shared.loc[("sparse", "lock-free"), "lost of a thousand"]),
    "Two examples seldom touch the same weight, and a change is lost only if they do so at the same moment.",
)
shared

# %% [markdown]
# One run of each proves little, since times scatter. The recorded experiment below has seven.
#
# ### Exercise: what two examples share
#
# How much is lost depends on how much two examples have in common. Two examples are drawn at random. How many weights
# do both touch, on average? In real data a few values are frequent (large towns, well-known brands), and most are rare.
#
# <details><summary>Hint</summary>Comparing all pairs takes too long. Take one weight first: what is the chance that an
# example touches it? That both do? <code>np.bincount</code> counts.</details>


# %% exercise="common"
def common(features):
    """The mean number of weights that two random examples both touch.

    features: ints [examples, fields], the weights 0, 1, … that each example touches; none twice. Returns a float.
    """
    ### BEGIN SOLUTION
    share = np.bincount(features.ravel()) / len(features)
    return np.sum(share**2)
    ### END SOLUTION


# %%
check(common)

# %% hidden="common" points=3
### BEGIN HIDDEN TESTS
points(common, 3)
### END HIDDEN TESTS

# %%
uneven = ratings.Sparse.drawn(EXAMPLES, values=100, popularity=1.0)
print(f"in common: {common(uneven.features):.2f}; if all were equally frequent: {10 * 10 / uneven.size:.2f}")

# %% [markdown]
# These are examples with fields of 100 values again, but value v = 0, 1, … is now drawn in proportion to 1 / (v + 1).
#
# ### Predict
#
# In the recorded experiment two examples with ten fields of 10 values, all equally frequent, have 1 weight in common on
# average, and 19 updates in a thousand are lost. How many are lost with 100 values of uneven frequency?

# %% editable=true
predict("lost of a thousand, 100 uneven values", None)

# %%
table = pd.read_csv("recorded/hogwild.csv", comment="#")
overlap = table[table["part"] == "overlap"].groupby("problem", sort=False)[["common", "lost"]].mean()
measured(
    "lost of a thousand, 100 uneven values",
    round(1_000 * float(overlap.loc["100 values, uneven", "lost"]), 1),
    too_small="The few frequent values collide often: 100 uneven values share as much as 16 or 17 even ones.",
    too_large="It is proportional to what two examples share.",
)
Image("recorded/hogwild.png", width=plots.WIDTH)

# %% [markdown]
# Two processes on two cores; seven repeats; `course reproduce hogwild` makes it again in about 2 minutes. Factors of
# the updates a second of one process, and what the loss becomes:
#
# | problem | locked | lock-free | lost of a thousand | change of the loss, lock-free |
# |---|---|---|---|---|
# | sparse | 0.56 ± 0.10 | 1.57 ± 0.30 | 2.0 ± 0.4 | −0.0007 ± 0.0025 |
# | ratings | 0.64 ± 0.05 | 1.88 ± 0.28 | 0.0 ± 0.0 | +0.0047 ± 0.0074 |
# | dense | 0.69 ± 0.10 | 1.04 ± 0.31 | 36.3 ± 33.1 | +0.0044 ± 0.0047 |
#
# - **With a lock, two are slower than one.** In the sparse problem an update takes 5 µs alone, and the lock adds nearly
#   as much. A lock around the whole update lets only one process work at a time, so two can't be faster than one.
# - **Without it, the sparse problem and the ratings gain,** and in both no change of the loss is larger than its
#   interval.
# - **What is lost is proportional to what examples share:** 1.9 updates in a hundred for each weight in common, from
#   0.01 to 1 weight, and with uneven values, too.
# - **It also depends on the time between reading and writing.** Two ratings share 0.04 weights on average, but next to
#   nothing is lost. The likely reason: NumPy adds to a row in place, but copies scattered weights, changes the copy and
#   writes it back.
# - **The dense problem gains nothing** beyond its interval: two cores rewrite the same 160 kilobytes of weights. What
#   is lost scatters from run to run, from 13 to 115 of a thousand. The loss rises in all seven repeats, by 0.0007 to
#   0.0152, and most where most is lost. That run makes the interval wide, but seven of seven are hardly chance (sign
#   test: p = 0.016).
#
# Recht et al. prove that the rate of convergence stays nearly optimal if examples share few weights. They assume that
# an addition to one weight can't be interrupted, so that nothing is lost; gradients are only stale. Our additions can
# be interrupted. Most gradients of a neural network are dense: their premise does not hold there.
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - An asynchronous server answers at once. Throughput is then the sum of the workers' paces, not N times the slowest.
# - Mean staleness is N − 1, however fast the workers are.
# - With exponential times, random staleness acts on average like momentum 1 − 1/N. With more workers, tune momentum and
#   rate again, downwards.
# - Accuracy at equal examples falls gradually with N, not from 32 on; how far depends on the number of updates.
# - A rate by staleness saves tuning η for each N. It is no better than a constant rate that is tuned.
# - Without a lock, what is lost is proportional to what two updates share. Sparse problems get faster; the dense one
#   did not.
#
# Next: 6b lets workers meet less often.
#
# - B. Recht, C. Ré, S. Wright, F. Niu: *Hogwild!: A Lock-Free Approach to Parallelizing Stochastic Gradient Descent.*
#   NIPS 24, 2011; arXiv:1106.5730
# - J. Dean et al.: *Large Scale Distributed Deep Networks.* NIPS 25, 2012
# - I. Mitliagkas, C. Zhang, S. Hadjis, C. Ré: *Asynchrony begets Momentum, with an Application to Deep Learning.*
#   arXiv:1605.09774
# - W. Zhang, S. Gupta, X. Lian, J. Liu: *Staleness-aware Async-SGD for Distributed Deep Learning.* arXiv:1511.05950
# - S. Zhang, A. Choromanska, Y. LeCun: *Deep learning with Elastic Averaging SGD.* arXiv:1412.6651
# - P. H. Jin, Q. Yuan, F. Iandola, K. Keutzer: *How to scale distributed deep learning?* arXiv:1611.04581
# - A. Pedram, W. Lynch, G. Lauterbach: the tutorial on the systems side of training: asynchronous SGD
