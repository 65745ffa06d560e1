# %% [markdown]
# # 3c Normalisation and noise
#
# A small batch is noisy in two places: in its gradient, and in the mean and variance with which batch norm
# normalises. A large batch has lost both noises. Here you put each of them back, measure that it is the right amount,
# and find out whether it helps. On the way: what batch norm means when a batch lies on several ranks, which weights
# should not decay, and a trap in which a healthy network looks like one that does not generalise.
#
# **You will be able to** tell a generalisation gap from moving averages that have not arrived; write ghost batch
# norm; compute the statistics of a batch that is spread over ranks; leave bias, γ and β out of the decay; derive and
# write multiplicative gradient noise, and test whether the covariance is what you wanted.
#
# **Time:** 60 minutes; the runs take about 80 seconds on 2 CPU cores; on GPUs they are not yet measured.
#
# **Needs:** mini-batches and their variance (1b), all-reduce (2a), warm-up (3b).

# %%
import numpy as np
import pandas as pd
import tensorflow as tf
from tensorflow import keras

from course_lib.collectives import simulated
from course_lib.models import landscape, layers
from course_lib.notebook import plots, predictions
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from course_lib.optimizers import schedules
from course_lib.ranks import launch
from labs.lab3_large_batch.lessons import figures_3c as normalisation
from labs.lab3_large_batch.lessons import gradient_noise as noise
from labs.lab3_large_batch.lessons import short_runs as trial
from labs.lab3_large_batch.lessons.checks_3c import check, points

problem = trial.fashion()
IMAGES = len(problem.train.labels)
FULL = IMAGES >= 5_000  # else a slice: fewer updates and seeds
BATCH = 1_280 if FULL else IMAGES // 2
UPDATES = 80 if FULL else 24
SEEDS = (1, 2) if FULL else (1,)
WHERE = plots.provenance(f"{problem.name}, {IMAGES:,} images, B = {BATCH:,}, {UPDATES} updates")


def start(normalise=None, *, seed=1, rate=0.2, **options):
    """A run that has not begun: a quarter of UPDATES as warm-up, then cosine decay."""
    optimizer = keras.optimizers.SGD(schedules.cosine(rate, UPDATES, warm_up=UPDATES // 4), momentum=0.9)
    return trial.Run(problem.model(seed, normalise), optimizer, problem.train, seed=seed, **options)


def compare(variants):
    """Train each variant with each seed: a row with the validation accuracy for each. name → options of `start`."""
    rows, runs = [], len(variants) * len(SEEDS)
    with Filling(f"{runs} runs") as line:
        for name, options in variants.items():
            for seed in SEEDS:
                line.at(len(rows) / runs, name)
                run = start(seed=seed, **options)
                run.train(UPDATES, BATCH)
                accuracy = run.score(problem.validation).accuracy
                rows.append({"variant": name, "seed": seed, "validation accuracy": accuracy})
    return pd.DataFrame(rows)


def percent(accuracies):
    """A dict or a table of shares as %, to a tenth."""
    return {name: round(100 * float(share), 1) for name, share in accuracies.items()}


# What has been recorded (`course reproduce normalisation`, and so on), beside which your own runs will stand.
recorded = pd.read_csv("recorded/normalisation.csv", comment="#")
noise_recorded = pd.read_csv("recorded/gradient_noise.csv", comment="#")
print(f"{problem.name}: {IMAGES:,} images to train on, batches of {BATCH:,}")

# %% [markdown]
# ## A trap first
#
# Batch norm does two different things. In **training** it takes mean μ and variance σ² of each channel over the
# batch:
#
# $$\hat x = \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}}, \qquad y = \gamma\, \hat x + \beta .$$
#
# For **prediction** there may be no batch, so it uses *moving averages*, updated once in each training step:
#
# $$\text{moving} \leftarrow a \cdot \text{moving} + (1 - a) \cdot \text{batch} .$$
#
# They start at 0 (mean) and 1 (variance). Keras's default for the momentum is $a = .99$, which suits runs of many
# thousand updates. A run with a large batch makes few.
#
# ### Predict
#
# One network, the same first weights, the same batches, three momenta. They train *identically*: the moving averages
# are not used in training. What will the validation accuracy be at the end, in %?

# %% editable=true
predict("validation accuracy in %, momentum 0.99", None)
predict("validation accuracy in %, momentum 0.95", None)
predict("validation accuracy in %, momentum 0.8", None)


# %%
def trap(momenta, every):
    """Losses, curves of validation accuracy, and accuracy after estimating anew, by momentum."""
    losses, curves, anew = {}, {}, {}
    with Filling("three runs") as line:
        for number, momentum in enumerate(momenta):
            run = start(lambda momentum=momentum: keras.layers.BatchNormalization(momentum=momentum))
            curve = []
            for done in range(every, UPDATES + 1, every):
                line.at((number + done / UPDATES) / len(momenta), f"momentum {momentum}")
                losses[momentum] = run.train(every, BATCH)
                curve.append({"updates": done, "accuracy": run.score(problem.validation).accuracy})
            curves[momentum] = pd.DataFrame(curve)
            landscape.settle(run.model, problem.train.images[:2_000])
            anew[momentum] = run.score(problem.validation).accuracy
    return losses, curves, anew


losses, curves, anew = trap((0.99, 0.95, 0.8), every=8)
print(f"training loss: { {momentum: round(loss, 4) for momentum, loss in losses.items()} }")
for momentum, accuracy in percent({m: curve["accuracy"].iloc[-1] for m, curve in curves.items()}).items():
    measured(
        f"validation accuracy in %, momentum {momentum}",
        accuracy,
        too_large=f"Of the start {momentum**UPDATES:.0%} is still in the moving averages after {UPDATES} updates.",
    )
normalisation.moving_averages(curves, anew, caption=f"{WHERE}, one seed")

# %% [markdown]
# Equal training losses, and a large "generalisation gap". It is none. After $t$ updates the share $a^t$ of the moving
# averages is still their start, and the rest is mostly an average over the last $1/(1-a)$ updates: 100 for .99, but 5
# for .8. The weights are fine: with statistics estimated anew, in one pass over 2,000 images, all three score alike
# (the large open marks).
#
# **When you compare batch sizes, set the momentum for the number of updates, or estimate the statistics anew.** The
# networks of this course use .8.
#
# ## Ghost batch norm
#
# μ and σ² of a batch are estimates, with an error that shrinks as $1/\sqrt B$. So in a small batch what an example
# becomes depends a little on its companions: a noise that may keep it from learning them by heart. With B = 1,280 it
# is nearly gone. Hoffer et al. proposed to keep it: cut the large batch into *ghost batches* of a fixed small size,
# and normalise each with its own μ and σ². The gradient is still that of the large batch.
#
# ### Exercise: ghost batch norm
#
# <details><summary>Hint</summary>After <code>x.reshape(-1, ghost, *x.shape[1:])</code> the ghost batches stand side
# by side, one along the first axis. Take mean and variance over all axes but the first and the last;
# <code>keepdims=True</code> keeps them ready for subtracting.</details>


# %% exercise="ghost_batch_norm"
def ghost_batch_norm(x, ghost, gamma, beta, epsilon=1e-3):
    """Batch norm in training, with the statistics of ghost batches.

    x: activations [B, C] or [B, H, W, C], left as they are; ghost: examples in a ghost batch, a divisor of B. The first
    `ghost` examples are the first ghost batch, the next ones the second, …; gamma, beta [C]: scale and shift of each
    channel; epsilon: added to the variance. Mean and variance are over a ghost batch's examples and all H × W pixels.
    Returns an array of the shape of x.
    """
    ### BEGIN SOLUTION
    groups = x.reshape(-1, ghost, *x.shape[1:])
    axes = tuple(range(1, groups.ndim - 1))
    mean, variance = groups.mean(axes, keepdims=True), groups.var(axes, keepdims=True)
    return (gamma * (groups - mean) / np.sqrt(variance + epsilon) + beta).reshape(x.shape)
    ### END SOLUTION


# %%
check(ghost_batch_norm)

# %% hidden="ghost_batch_norm" points=4
### BEGIN HIDDEN TESTS
points(ghost_batch_norm, 4)
### END HIDDEN TESTS

# %% [markdown]
# What you should see: one image, put into 200 batches of 256, each time with other companions. What your function makes
# of it varies: less, the larger the ghost batch is. On these axes that is a straight line, since the error of a mean
# falls as $1/\sqrt n$. (In a very small ghost batch the image itself is a good part of the batch: there the dots stay
# below the line.)


# %%
def companions(ghosts, batches=200, size=256):
    """The standard deviation of one image's normalised values over many batches, for each size of the ghost batch."""
    model = problem.model(0)
    first = keras.Model(model.input, model.layers[2].output)
    few = first.predict_on_batch(problem.train.images[: min(1_000, IMAGES)])[:, ::4, ::4]  # some pixels are enough
    random = np.random.default_rng(0)
    others = [few[random.permutation(np.arange(1, len(few)))[: size - 1]] for _ in range(batches)]
    together = [np.concatenate([few[:1], companion]) for companion in others]
    unit = np.ones(few.shape[-1]), np.zeros(few.shape[-1])
    return [float(np.std([ghost_batch_norm(x, ghost, *unit)[0] for x in together], axis=0).mean()) for ghost in ghosts]


sizes = (4, 8, 16, 32, 64, 128, 256)
normalisation.spread(
    sizes, companions(sizes), caption=f"{problem.name}, first convolution of a network that is not trained, 200 batches"
)

# %% [markdown]
# In training the layer is `course_lib.models.layers.GhostBatchNormalization`, which does the same in Keras, and lets
# the moving averages follow the mean of the ghost batches' statistics.
#
# ### Predict
#
# Which has the highest validation accuracy: "batch norm" over the whole batch, "ghosts of 64", "ghosts of 16", or will
# two runs each be "too few to tell"?

# %% editable=true
predict("batch norm, ghosts of 64, ghosts of 16, or too few to tell", None)

# %%
with_ghosts = {f"ghosts of {g}": {"normalise": lambda g=g: layers.GhostBatchNormalization(g, 0.8)} for g in (64, 16)}
table = compare({"batch norm": {}, **with_ghosts})
means = table.groupby("variant")["validation accuracy"].mean().sort_values(ascending=False)
print(f"measured, %: {percent(means)}")
spread = table.groupby("variant")["validation accuracy"].agg(np.ptp).max()
measured(
    "batch norm, ghosts of 64, ghosts of 16, or too few to tell",
    "too few to tell" if means.iloc[0] - means.iloc[1] < spread or len(SEEDS) < 2 else means.index[0],
    "Two seeds of one variant lie further apart than the best two variants do: what is compared is noise.",
)
normalisation.by_setting(
    {"live: one learning rate for all": table}, x="variant", y="validation accuracy", caption=f"{WHERE}"
)

# %% [markdown]
# One or two seeds are an anecdote. The recorded experiment has five for each setting, learning rates chosen on
# validation data out of the same number for each, and two regimes in which a large batch can fail: too *few updates*,
# or *overfitting* a small training set. B = 64 is the goal: what a small batch reaches in the same number of epochs.

# %%
normalisation.ghosts(recorded, "Fashion-MNIST · 2 cores · 5 seeds · recorded: course reproduce normalisation")

# %%
results = recorded.query("part == 'ghost' and use == 'result'")
table = results.assign(percent=100 * results["test accuracy"]).groupby(["regime", "batch", "ghost"])["percent"]
table.agg(["mean", "std", "count"]).rename(columns={"mean": "test accuracy, %", "std": "s.d., points"}).round(2)

# %% [markdown]
# The small batch is ahead in both regimes, by 2.7 ± 0.7 and by 1.0 ± 0.4 points. Does ghost batch norm give something
# of that back? Less the same seeds with batch norm, ghosts of 16, 64 and 256 are −0.2 ± 0.9, −0.1 ± 1.3 and 0.2 ± 0.7
# points with few updates, and ghosts of 16 are −0.2 ± 0.7 where the network overfits: no difference that five seeds can
# see. Hoffer et al. report that it narrows the gap, with other networks and far more updates. Here the large batch
# lacks updates, and noisier statistics are no substitute for those. (Each setting tried the same six learning rates.
# None chose the smallest or the largest of them.)
#
# ## Batch norm across ranks
#
# With a batch spread over ranks there are two ways, and the first is what happens if you do nothing:
#
# - **Each rank normalises its own share.** It costs nothing.
# - **All ranks together** (*synchronised* batch norm): an all-reduce in each batch norm layer, forward and backward.
#
# The second needs mean and variance of all examples from what the ranks can send: a few numbers for each channel. The
# mean of the ranks' variances is not it: it is too small, because the ranks' means differ. What can be averaged
# instead?
#
# ### Exercise: synchronised statistics
#
# <details><summary>Hint</summary>All axes but the last: <code>tuple(range(x.ndim - 1))</code>. All shares are of
# equal size, so any mean over all examples is the mean of the ranks' means. Which means make up a variance? And
# <code>all_reduce</code> gives a sum.</details>


# %% exercise="synchronised_statistics"
def synchronised_statistics(me, x):
    """Mean and variance of each channel over the examples of all ranks.

    me: this rank: me.rank, me.size, me.all_reduce(array) → the sum over all ranks.
    x: this rank's share of the activations, [b, C] or [b, H, W, C], the same b on every rank.
    Returns (mean [C], variance [C]), equal on all ranks.
    """
    ### BEGIN SOLUTION
    axes = tuple(range(x.ndim - 1))
    mean = me.all_reduce(x.mean(axes)) / me.size
    square = me.all_reduce((x**2).mean(axes)) / me.size
    return mean, square - mean**2
    ### END SOLUTION


# %%
check(synchronised_statistics)

# %% hidden="synchronised_statistics" points=3
### BEGIN HIDDEN TESTS
points(synchronised_statistics, 3)
### END HIDDEN TESTS

# %% [markdown]
# Mean squares can be averaged: $\sigma^2 = \mathbf{E}[x^2] - \mu^2$.
#
# What you should see: 128 examples of variance 1 on more and more ranks. Yours stays what it is. The mean of the
# ranks' own variances falls to $(b-1)/b$ of it, where $b$ is the share of a rank.


# %%
def shared_out(x, ranks):
    """The variance by your function, and the mean of the ranks' own variances, both averaged over the channels."""
    shares = np.split(x, ranks)
    yours = simulated.run(synchronised_statistics, shares).results[0][1]
    return {"b": len(shares[0]), "yours": np.mean(yours), "own": np.mean([share.var(0) for share in shares])}


numbers = np.random.default_rng(0).normal(size=(128, 200))
normalisation.shares(
    pd.DataFrame([shared_out(numbers, ranks) for ranks in (64, 32, 16, 8, 4, 2, 1)]),
    caption="128 drawn examples, 200 channels, 1 to 64 simulated ranks",
)

# %% [markdown]
# Now two real ranks, ten steps of SGD on the whole network, 64 examples a step, 32 on each rank. And the same in one
# process, with batch norm over all 64, and with ghosts of 32.
#
# ### Predict
#
# Which of the two on ranks equals which of the two in one process?

# %% editable=true
predict("each rank its own share equals: batch norm, or ghosts of 32", None)
predict("all ranks together equals: batch norm, or ghosts of 32", None)

# %%
STEPS, TOGETHER = 10, 64
x = problem.train.images[: STEPS * TOGETHER].reshape(STEPS, TOGETHER, *problem.train.images.shape[1:])
y = problem.train.labels[: STEPS * TOGETHER].reshape(STEPS, TOGETHER)
classes = problem.classes


def ten_steps(normalise, share=slice(None), around=lambda tape: tape):
    """Trained weights and moving averages after ten steps on this share of each batch, each as one long array."""
    from tensorflow import keras

    from course_lib import models

    keras.utils.set_random_seed(1)
    model = models.quick_cnn(x.shape[2:], classes, normalise=normalise)
    optimizer = keras.optimizers.SGD(0.1)
    for images, labels in zip(x, y):
        with around(tf.GradientTape()) as tape:
            predicted = model(images[share].astype(np.float64), training=True)
            loss = tf.reduce_mean(keras.losses.sparse_categorical_crossentropy(labels[share], predicted))
        slopes = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(slopes, model.trainable_variables))
    kinds = model.trainable_variables, model.non_trainable_variables
    return [np.concatenate([v.numpy().ravel() for v in variables]) for variables in kinds]


def on_a_rank():
    """On two ranks, and for comparison in one process, which each rank does for itself."""
    import itertools

    import horovod.tensorflow as hvd
    from tensorflow import keras

    hvd.init()
    keras.backend.set_floatx("float64")  # or rounding grows from step to step until it can be seen
    each, number = TOGETHER // hvd.size(), itertools.count()
    share = slice(hvd.rank() * each, (hvd.rank() + 1) * each)

    def plain():
        return keras.layers.BatchNormalization(momentum=0.8, fused=False)

    def ghost():
        return layers.GhostBatchNormalization(each, momentum=0.8)

    def joint():  # with a name, as Horovod names all alike, and a model wants different ones
        return hvd.SyncBatchNormalization(momentum=0.8, name=f"synchronised_{next(number)}")

    return {
        "each rank its own share": ten_steps(plain, share, hvd.DistributedGradientTape),
        "all ranks together": ten_steps(joint, share, hvd.DistributedGradientTape),
        "one process, batch norm": ten_steps(plain),
        "one process, ghosts of 32": ten_steps(ghost),
    }


def pairs():
    one, two = launch.call(on_a_rank, 2)
    rows = {}
    for kind in ("each rank its own share", "all ranks together"):
        (weights, averages), (others, other_averages) = one[kind], two[kind]
        rows[kind] = {name: np.abs(weights - one[name][0]).max() for name in one if name.startswith("one process")}
        rows[kind]["rank 0 to rank 1, weights"] = np.abs(weights - others).max()
        rows[kind]["rank 0 to rank 1, moving averages"] = np.abs(averages - other_averages).max()
        alike = min(("batch norm", "ghosts of 32"), key=lambda name: rows[kind][f"one process, {name}"])
        measured(
            f"{kind} equals: batch norm, or ghosts of 32",
            alike,
            "With 32 of the 64 examples on each rank, whose mean and variance does a rank know?",
        )
    print(f"largest differences after {STEPS} steps:")
    return pd.DataFrame(rows).T.map("{:.0e}".format)


pairs()

# %% [markdown]
# Two numbers in the first two columns are rounding (float64), and they tell the pairs: each rank its own share **is**
# ghost batch norm with the rank's batch as ghost; synchronised batch norm **is** batch norm over all.
#
# Look at the last column as well. Without synchronising, the ranks agree on all trained weights, but *not* on the
# moving averages: each has seen its own examples only. Rank 0 saves, so its averages are the ones that survive.
# Average them over the ranks before saving (one all-reduce), above all if a rank's batch is small.
#
# Does it matter for the accuracy? Recorded on two real ranks, three seeds, one learning rate for both:

# %%
normalisation.across_ranks(
    recorded, "Fashion-MNIST · two ranks, 2 cores · 3 seeds · recorded: course reproduce normalisation"
)

# %% [markdown]
# With 4 examples on each rank, synchronising is 0.9 ± 3.0 points ahead, with 320 on each −0.6 ± 3.0. Three seeds can't
# tell either from chance. Two things are sure. The networks of two ranks that do not synchronise score differently, by
# up to 0.3 points here. And synchronising costs messages: small all-reduces in each batch norm layer, forward and
# backward, and the next layer waits for each of them. So synchronise where a rank's batch is very small (large images,
# detection), else don't.
#
# ## What should not decay
#
# L2 regularisation adds $\frac{\lambda}{2} \sum w^2$ to the loss, that is, $\lambda w$ to the gradient. Over *which*
# weights? Tencent trained with batches of 65,536 and left bias $b$, $\beta$ and $\gamma$ out:
#
# | network | decay on $b$, β, γ too | only on the rest |
# |---|---|---|
# | AlexNet, top-1 | 55.8 % | 57.1 % |
# | ResNet-50, top-1 | 71.9 % | 76.2 % |
#
# Why could it matter? A kernel in front of batch norm has no size of its own: $L(c w) = L(w)$ for every $c > 0$, as
# batch norm divides by $c$ again. Decay cannot make what such a layer computes any simpler. It only keeps ‖w‖ small,
# and because the gradient goes with $1/\|w\|$, that means a larger effective learning rate, $\eta/\|w\|^2$. The last
# γ and β are another matter: with the dense kernel they set how sure the answers can be.
#
# ### Exercise: decay of the kernels only
#
# <details><summary>Hint</summary>Keras names a variable <code>layer/what:0</code>, and only the end tells what it is:
# a layer can have any name.</details>


# %% exercise="decayed_gradients"
def decayed_gradients(names, weights, gradients, decay):
    """The gradients of L + ½ λ Σ w², the sum over all kernels only.

    names: of the variables, as Keras gives them: "conv2d/kernel:0", "batch_normalization/gamma:0", "dense/bias:0", …
    weights, gradients: lists of arrays in the same order, w and ∇L, left as they are; decay: λ.
    Returns a list of arrays in the same order.
    """
    ### BEGIN SOLUTION
    return [g + decay * w if name.endswith("kernel:0") else g for name, w, g in zip(names, weights, gradients)]
    ### END SOLUTION


# %%
check(decayed_gradients)

# %% hidden="decayed_gradients" points=2
### BEGIN HIDDEN TESTS
points(decayed_gradients, 2)
### END HIDDEN TESTS


# %% [markdown]
# What you should see: γ, β and bias are a hundredth of the network's numbers.


# %%
def who_decays():
    """The variables of the quick network, how many numbers each has, and whether your function lets it decay."""
    variables = problem.model(0).trainable_variables
    ones = [np.ones(v.shape) for v in variables]
    made = decayed_gradients([v.name for v in variables], ones, [0 * one for one in ones], 1.0)
    rows = [(v.name, v.shape.num_elements(), bool(np.any(g))) for v, g in zip(variables, made)]
    table = pd.DataFrame(rows, columns=["variable", "numbers", "decays"])
    print(f"{1 - table[table['decays']]['numbers'].sum() / table['numbers'].sum():.1%} of the numbers do not decay")
    return table


who_decays()

# %% [markdown]
# ### Predict
#
# With λ = .01, for our small network: is the accuracy higher with decay of all variables or of the kernels only, and
# by how many points?

# %% editable=true
predict("points by which decay of the kernels only is ahead of decay of all", None)

# %%
table = compare(
    {"no decay": {}, "all": {"decay": 0.01}, "kernels only": {"decay": 0.01, "exclude": ["bias", "gamma", "beta"]}}
)
means = table.groupby("variant")["validation accuracy"].mean()
measured(
    "points by which decay of the kernels only is ahead of decay of all",
    round(100 * (means["kernels only"] - means["all"]), 1),
    "Two seeds and one learning rate for all: the recorded runs below have five, and a rate for each.",
)
normalisation.by_setting({"live: λ = .01": table}, x="variant", y="validation accuracy", caption=WHERE)

# %% [markdown]
# Recorded: five seeds, and each variant with the rate that is best *for it*, out of the same six.

# %%
normalisation.decays(recorded, "course reproduce normalisation")

# %%
normalisation.gains(recorded)

# %% [markdown]
# Read the table before you read on. In which rows is the difference larger than its interval?
#
# - **With few updates five seeds see no difference** between the two: 0.1 ± 1.0 points with λ = .01, −0.1 ± 1.0 with
#   .03. The strong decay costs 1.3 ± 0.5 points, over all variables, against none.
# - **Where the network overfits, decay of *all* variables helps:** 0.7 ± 0.4 and 0.5 ± 0.2 points against no decay.
#   Decay of the kernels only does not: 0.1 ± 0.8 and −0.4 ± 0.6. Directly compared, it is behind by 0.6 ± 0.8 and by
#   0.9 ± 0.6.
#
# **A trap.** `recorded/normalisation.csv` also has runs that are not in the table above: all variants got the rate that
# is best *without* decay, 0.2 (use: "same rate"). There kernels only is behind in all 20 pairs of runs, on average by
# 0.2 to 1.2 points, and it looks as if the published result were reversed. With a rate for each, five seeds see no
# difference at few updates. At η = 0.2 and momentum .9, a decay of .01 or .03 takes 2 or 6 % off a weight at each
# update. That is a strong recipe, and it moves the best rate: from 0.05 to 0.4 among these variants.
#
# Is the published result wrong? Nothing here says so. Theirs are networks with 25 and 62 million weights and 90 or 95
# epochs of ImageNet; ours has 24,282 weights and makes 80 or 100 updates, with a λ that is large so that it does
# anything in that time. What to take along: leaving bias, γ and β out is common practice, not a law. It is one line to
# try both, each with its own rate.
#
# ## Noise in the gradient
#
# The other noise that a large batch has lost. Let $g_n$ be the gradient of example $n$, $G$ the mean of all and $C$
# their covariance. A batch of $M$ examples has a gradient with mean $G$ and covariance $C/M$. To give the large batch
# the covariance $C/m$ of a small one, weigh each example with a random number (Hoffer et al.):
#
# $$\hat g = \frac{1}{M} \sum_{n=1}^{M} g_n z_n, \qquad z_n \sim N(1, \sigma^2) \text{ independent.}$$
#
# The mean stays: $\mathbf{E}[g z] = \mathbf{E}[g]\, \mathbf{E}[z] = G$. For the covariance, with
# $\mathbf{E}[z^2] = 1 + \sigma^2$ and $\mathbf{E}[g g^\top] = C + G G^\top$:
#
# $$\text{Cov}(\hat g) = \frac{1}{M} \Big( \mathbf{E}[z^2]\, \mathbf{E}[g g^\top] - G G^\top \Big)
#   = \frac{1}{M} \Big( (1 + \sigma^2)\, C + \sigma^2\, G G^\top \Big) .$$
#
# The first term is $C/m$ if $\sigma^2$ grows with $M$ in the right way. The second is what is left over. It is small
# as long as single gradients are much larger than their mean, which is so after the first updates.
#
# ### Exercise: the weights
#
# <details><summary>Hint</summary>Compare the first term of the covariance with C/m. NumPy's <code>normal</code> wants
# mean, standard deviation and size.</details>


# %% exercise="noise_weights"
def noise_weights(batch, base, rng):
    """Weights z for the examples of a batch, so that its gradient is as noisy as that of `base` examples.

    batch: M, the number of examples in the batch; base: m ≤ M; rng: a NumPy random generator.
    Returns z [M], independent, normally distributed; the gradient keeps its mean, and C has the factor 1 / m.
    """
    ### BEGIN SOLUTION
    sigma = np.sqrt(batch / base - 1)
    return rng.normal(1.0, sigma, batch)
    ### END SOLUTION


# %%
check(noise_weights)

# %% hidden="noise_weights" points=3
### BEGIN HIDDEN TESTS
points(noise_weights, 3)
### END HIDDEN TESTS

# %% [markdown]
# ### Is the covariance kept?
#
# Theory said so; now real gradients of the network, a little trained. Each example's own gradient first, 24,282
# numbers each, then 300 batches of every size from them.
#
# ### Predict
#
# m = 16. By what factor is the variance of a batch of 1,024 smaller than that of a batch of 16, without your weights,
# and with them?

# %% editable=true
predict("variance with 16 over that with 1,024, without weights", None)
predict("variance with 16 over that with 1,024, with weights", None)

# %%
BASE, SIZES, DRAWS = 16, (16, 64, 256, 1_024), 300 if FULL else 100


def measure(weigh):
    """Total variances by batch size, with and without noise, and the variance along the main directions of C."""
    random = np.random.default_rng(0)
    weigh(SIZES[-1], BASE, random)
    run = start()
    run.train(UPDATES // 4, BATCH)
    few = 1_000 if FULL else 400
    each = noise.of_examples(run.model, problem.train.images[:few], problem.train.labels[:few])
    centred = each - each.mean(0)
    values, vectors = np.linalg.eigh(centred @ centred.T)  # C's main directions, from the small [n, n] matrix
    main = (vectors[:, ::-1][:, :30].T @ centred) / np.sqrt(values[::-1][:30, None])
    rows, spectra = [], {"C / m, exact": values[::-1][:30] / few / BASE}
    for size in SIZES:
        at = random.integers(few, size=(DRAWS, size))
        for noisy in (False, True):
            z = np.array([weigh(size, BASE if noisy else size, random) for _ in at])
            drawn = noise.of_batches(each, at, z)
            variance = float(drawn.var(0, ddof=1).sum())
            rows.append({"batch": size, "noise": noisy, "variance": variance, "statistics": "moving averages"})
            if size == SIZES[-1]:
                name = f"M = {size:,}, {'with' if noisy else 'without'} noise"
                spectra[name] = (drawn @ main.T).var(0, ddof=1)
    squared = np.sum(each.mean(0) ** 2)
    print(f"tr C = {np.sum(values) / few:.3g}, |G|² = {squared:.3g}; left over: (1/m − 1/M) |G|² = ", end="")
    print(f"{(1 / BASE - 1 / SIZES[-1]) * squared / (np.sum(values) / few / BASE):.1%} of tr C / m")
    return pd.DataFrame(rows), spectra


table, spectra = measure(noise_weights)
by_size = table.pivot(index="batch", columns="noise", values="variance")
for noisy, why in ((False, "1,024 is 64 times 16."), (True, "The weights are made to keep it.")):
    factor = round(by_size[noisy][16] / by_size[noisy][1_024], 2)
    measured(f"variance with 16 over that with 1,024, {'with' if noisy else 'without'} weights", factor, why)
normalisation.kept(table, BASE, spectra, caption=f"{problem.name}, gradients of single examples, {DRAWS} batches each")

# %% [markdown]
# Without weights the variance falls as $1/M$. With yours it stays where it was at m = 16, but for the few hundredths
# that $G G^\top$ leaves over (printed above the figure). And not only in sum: on the right, along each of the 30
# directions in which gradients vary most, the large batch with noise has the variance of the small one. That is the
# use of *multiplying*: noise that is added, the same in all directions, would have no such shape.
#
# Now the same in training, where batch norm couples the examples (recorded):

# %%
normalisation.variances(
    noise_recorded.query("part == 'variance'"),
    64,
    "Fashion-MNIST · 300 batches each · recorded: course reproduce gradient_noise",
)

# %% [markdown]
# It is kept in training as well: 1.59 with 1,280 examples and noise, 1.63 with 64 without; without noise .083 are
# left of it. (The level is lower than with the moving averages, which trail behind so early, 20 updates after the
# start.)
#
# ### Does it help?
#
# ### Predict
#
# The large batch without noise, and with the noise of a batch of 256 and of 64. Which has the highest validation
# accuracy?

# %% editable=true
predict("best: no noise, as noisy as 256, as noisy as 64", None)

# %%
noisy = {
    f"as noisy as {base}": {"weigh": lambda size, random, base=base: noise_weights(size, base, random)}
    for base in (256, 64)
}
table = compare({"no noise": {}, **noisy})
means = table.groupby("variant")["validation accuracy"].mean()
print(f"measured, %: {percent(means)}")
measured(
    "best: no noise, as noisy as 256, as noisy as 64",
    means.idxmax(),
    "The small batch has that noise, too, but 20 times as many updates.",
)
normalisation.by_setting(
    {"live: one learning rate for all": table}, x="variant", y="validation accuracy", caption=WHERE
)

# %%
normalisation.noisy_training(
    noise_recorded, "Fashion-MNIST · 2 cores · 5 seeds · recorded: course reproduce gradient_noise"
)

# %%
results = noise_recorded.query("part == 'training' and use == 'result'")
table = results.groupby(["regime", "batch", "base"])[["rate", "train accuracy", "test accuracy"]].mean()
table.assign(**{name: 100 * table[name] for name in ("train accuracy", "test accuracy")}).rename(
    columns={name: f"{name}, %" for name in ("train accuracy", "test accuracy")}
).round(2)

# %% [markdown]
# The noise has the right covariance, and it does not help. A little of it, the noise of half the batch, makes no
# difference that five seeds can see: −0.7 ± 0.8 points with few updates, −0.8 ± 1.1 where the network overfits. More
# hurts: that of a batch of 256 costs 3.0 ± 1.5 points, that of 64 costs 7.9 ± 2.1, and that of 128 in the other regime
# 2.8 ± 1.2.
#
# A likely reason: the small batch makes 20 times as many updates, over which the same noise averages out. The large
# batch with noise has the noise of the one and the few updates of the other. With $\sigma^2 = 19$, 41 % of the weights
# are negative: in each update, two examples of five are unlearned. Whether the noise helps when there are updates in
# plenty, these runs cannot tell. What they do tell: to match mean and covariance of *one* step does not make two
# trainings alike.
#
# ## Summary
#
# - Few updates and a moving average with momentum .99: the network is fine, its test accuracy is not. Check this
#   before you call anything a generalisation gap.
# - Ghost batch norm keeps the noise of small-batch statistics. It closed no gap here, where updates are what is
#   missing. Batch norm that is not synchronised across ranks *is* ghost batch norm, with the batch of a rank as
#   ghost, to rounding.
# - Synchronised statistics need mean squares; the mean of the ranks' variances is too small. Unsynchronised moving
#   averages differ from rank to rank.
# - Bias, γ and β are a hundredth of the numbers. Published results for very large batches gain by leaving them out of
#   the decay. In our short runs five seeds see no difference, and where the network overfits it is behind with λ = .03;
#   and whoever compares the two at one learning rate measures the rate.
# - Multiplicative noise with σ² = M/m − 1 gives a large batch the covariance of a small one, in every direction. In
#   runs of 80 to 100 updates five seeds see no difference by a little of it, and more costs accuracy.
#
# %%
predictions.table()

# %% [markdown]
# Next: 3d gives each layer a learning rate of its own.
#
# - S. Ioffe, C. Szegedy: *Batch normalization: accelerating deep network training by reducing internal covariate
#   shift.* arXiv:1502.03167
# - E. Hoffer, I. Hubara, D. Soudry: *Train longer, generalize better: closing the generalization gap in large batch
#   training of neural networks.* arXiv:1705.08741
# - X. Jia et al.: *Highly scalable deep learning training system with mixed-precision: training ImageNet in four
#   minutes.* arXiv:1807.11205
# - T. van Laarhoven: *L2 regularization versus batch and weight normalization.* arXiv:1706.05350
# - P. Goyal et al.: *Accurate, large minibatch SGD: training ImageNet in 1 hour.* arXiv:1706.02677
