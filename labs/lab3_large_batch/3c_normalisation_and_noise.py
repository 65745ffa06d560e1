# %% [markdown]
# # 3c Normalisation and noise
#
# A small batch is noisy in two places: in its gradient, and in the mean and variance with which batch norm normalises.
# A large batch has little of either noise. Here you add each of them to a large batch, check that the amount is right,
# and measure whether it helps.
#
# **You will be able to** tell a generalisation gap from moving averages that have not converged; write ghost batch
# norm; synchronise batch norm across ranks without losing the variance to rounding; leave weights out of the decay, and
# compare settings so that the tuning does not decide; derive and write multiplicative gradient noise, and test its
# covariance.
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
# Batch norm does two different things. In **training** it takes mean μ and variance σ² of each channel over the batch:
#
# $$\hat x = \frac{x - \mu}{\sqrt{\sigma^2 + \varepsilon}}, \qquad y = \gamma\, \hat x + \beta .$$
#
# For **prediction** it uses *moving averages*, which each training step updates once:
#
# $$\text{moving} \leftarrow a \cdot \text{moving} + (1 - a) \cdot \text{batch} .$$
#
# They start at 0 (mean) and 1 (variance). Keras's default for the momentum is $a = .99$. A run with a large batch makes
# few updates.
#
# ### Predict
#
# Three runs of one network differ only in the momentum. They train *identically*, since training does not use the
# moving averages. What will the validation accuracy be at the end, in %?

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
        too_large=f"After {UPDATES} updates {momentum**UPDATES:.0%} of the moving averages is still their start.",
    )
normalisation.moving_averages(curves, anew, caption=f"{WHERE}, one seed")

# %% [markdown]
# The training losses are equal, yet there seems to be a large generalisation gap. It is not one: after $t$ updates the
# share $a^t$ of the moving averages is still their start. The weights are fine: with statistics estimated anew on 2,000
# images, all three networks have about the same accuracy (the large open marks).
#
# **When you compare batch sizes, set the momentum for the number of updates, or estimate the statistics anew.** The
# network of this notebook uses .8.
#
# ## Ghost batch norm
#
# μ and σ² of a batch are estimates, with an error in proportion to $1/\sqrt B$. So in a small batch, the normalised
# value of an example depends a little on the other examples. This noise may keep a network from memorising its
# examples. Hoffer et al. proposed to keep it in a large batch: cut the batch into *ghost batches* of a fixed small
# size, and normalise each with its own μ and σ². The gradient is still that of the large batch.
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
# What you should see: one image is put into 200 batches of 256, each time with other images. With larger ghost batches,
# its normalised values vary less, in proportion to $1/\sqrt n$. (The smallest lie below the line, because the image
# itself is a good part of them.)


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
# In training, the layer `course_lib.models.layers.GhostBatchNormalization` does the same in Keras.
#
# ### Predict
#
# Which has the highest validation accuracy: "batch norm" over the whole batch, "ghosts of 64" or "ghosts of 16"? Or are
# two runs of each "too few to tell"?

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
    "With so few seeds, compare the distance between the best two variants with that between seeds of one variant.",
)
normalisation.by_setting(
    {"live: one learning rate for all": table}, x="variant", y="validation accuracy", caption=f"{WHERE}"
)

# %% [markdown]
# The recorded experiment has five seeds for each setting. Three other seeds chose its learning rate on validation data,
# out of the same six for all, and never the smallest or the largest. There are two regimes, because a large batch can
# fail in two ways: too *few updates*, and *overfitting* of a small training set. The goal is what B = 64 reaches in the
# same number of epochs.

# %%
normalisation.ghosts(recorded, "Fashion-MNIST · 2 cores · 5 seeds · recorded: course reproduce normalisation")

# %%
normalisation.both_sides(recorded, "ghost")[["best η", "each at its best η"]]

# %% [markdown]
# The small batch is ahead in both regimes, by 2.8 ± 0.6 and by 0.5 ± 0.4 points. Ghost batch norm gives nothing of that
# back that five seeds can see: ghosts of 16 and 64 are 0.2 ± 0.5 and −0.1 ± 1.3 points ahead of batch norm with few
# updates, and ghosts of 16 are −0.2 ± 0.7 where the network overfits. Hoffer et al. report that it narrows the gap,
# with other networks and far more updates. With few updates the large batch reaches only 88.7 % on its *training*
# images, the small one 95.2 %. It lacks updates, and this noise does not replace them.
#
# ## Batch norm across ranks
#
# A batch on several ranks can be normalised in two ways:
#
# - **Each rank normalises its own share.** This happens if you do nothing, and costs nothing.
# - **All ranks normalise together** (*synchronised* batch norm): all-reduces in each batch norm layer, forward and
#   backward.
#
# Synchronised batch norm needs the mean and the variance of all examples, but each rank can send only a few numbers for
# each channel. The mean of the ranks' variances is too small, because the ranks' means differ. And a formula that is
# right on paper can lose the variance to rounding. Your function may all-reduce more than once.
#
# ### Exercise: synchronised statistics
#
# <details><summary>Hint</summary>All axes but the last: <code>tuple(range(x.ndim - 1))</code>. All shares have the same
# size, so any mean over all examples is the mean of the ranks' means. A variance is such a mean, too: the mean of
# squared deviations. From what? Each rank knows that after the first <code>all_reduce</code>, which gives a
# sum.</details>


# %% exercise="synchronised_statistics"
def synchronised_statistics(me, x):
    """Mean and variance of each channel over the examples of all ranks.

    me: this rank: me.rank, me.size, me.all_reduce(array) → the sum over all ranks, as often as you call it.
    x: this rank's share of the activations, [b, C] or [b, H, W, C], the same b on every rank; float32 values whose mean
    may be 10,000 times their standard deviation.
    Returns (mean [C], variance [C]), equal on all ranks.
    """
    ### BEGIN SOLUTION
    axes = tuple(range(x.ndim - 1))
    mean = me.all_reduce(x.mean(axes)) / me.size
    return mean, me.all_reduce(((x - mean) ** 2).mean(axes)) / me.size
    ### END SOLUTION


# %%
check(synchronised_statistics)

# %% hidden="synchronised_statistics" points=3
### BEGIN HIDDEN TESTS
points(synchronised_statistics, 3)
### END HIDDEN TESTS

# %% [markdown]
# **First subtract, then square.** On paper $\sigma^2 = \mathbf{E}[x^2] - \mu^2$ needs only one all-reduce. But in
# float32, with μ = 100 and σ = .01, x² is about 10,000, where neighbouring float32 numbers are .001 apart. That is ten
# times the variance: the difference is only rounding error (*cancellation*). Horovod's layer takes the difference, in
# one message; PyTorch's merges the ranks' means and variances in a safe way.
#
# What you should see: on the left, your variance stays the same, while the mean of the ranks' own variances falls to
# $(b-1)/b$ of it, with $b$ examples on a rank. On the right, the error of the difference grows as $(\mu/\sigma)^2$;
# yours stays small.


# %%
def shared_out(x, ranks):
    """The variance by your function, and the mean of the ranks' own variances, both averaged over the channels."""
    shares = np.split(x, ranks)
    yours = simulated.run(synchronised_statistics, shares).results[0][1]
    return {"b": len(shares[0]), "yours": np.mean(yours), "own": np.mean([share.var(0) for share in shares])}


def far_from_zero(ratio, ranks=4):
    """Relative errors of the variance of float32 values with μ = ratio · σ, by your function and as E[x²] − μ²."""
    x = np.float32(numbers + ratio)
    exact = np.float64(x).var(0)
    yours = simulated.run(synchronised_statistics, np.split(x, ranks)).results[0][1]
    made = {"yours": yours, "E[x²] − μ²": (x**2).mean(0) - x.mean(0) ** 2}
    return {"ratio": ratio, **{name: np.mean(np.abs(got / exact - 1)) for name, got in made.items()}}


numbers = np.random.default_rng(0).normal(size=(128, 200))
normalisation.variances_of_ranks(
    pd.DataFrame([shared_out(numbers, ranks) for ranks in (64, 32, 16, 8, 4, 2, 1)]),
    pd.DataFrame([far_from_zero(ratio) for ratio in (1, 10, 100, 1_000, 10_000)]),
    caption="128 drawn examples, 200 channels, 1 to 64 simulated ranks; right: 4 ranks, float32",
)

# %% [markdown]
# Now on two real ranks: ten steps of SGD with 64 examples a step, 32 on each rank. For comparison, one process does the
# same, with batch norm over all 64 and with ghosts of 32.
#
# ### Predict
#
# The ranks start from the same weights and average their gradients in every step. Each normalises its own share. After
# ten steps, are the trained weights the "same" on both ranks, or "different"? And the moving averages?

# %% editable=true
predict("trained weights on the two ranks: same or different", None)
predict("moving averages on the two ranks: same or different", None)

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


REASONS = {
    "trained weights": "Both ranks apply the same averaged gradient to the same weights.",
    "moving averages": "They have no gradient: nothing averages them over the ranks.",
}


def pairs():
    one, two = launch.call(on_a_rank, 2)
    rows = {}
    for kind in ("each rank its own share", "all ranks together"):
        rows[kind] = {
            name: np.abs(one[kind][0] - alone[0]).max() for name, alone in one.items() if name.startswith("one process")
        }
        for what, mine, other in zip(REASONS, one[kind], two[kind]):
            rows[kind][f"rank 0 to rank 1, {what}"] = np.abs(mine - other).max()
    for what, why in REASONS.items():
        apart = rows["each rank its own share"][f"rank 0 to rank 1, {what}"]
        measured(f"{what} on the two ranks: same or different", "same" if apart < 1e-9 else "different", why)
    print(f"largest differences after {STEPS} steps:")
    return pd.DataFrame(rows).T.map("{:.0e}".format)


pairs()

# %% [markdown]
# In each row, one of the first two numbers is only rounding (float64). So each rank its own share **is** ghost batch
# norm with the rank's share as ghost batch, and synchronised batch norm **is** batch norm over all.
#
# The last column: without synchronising, the ranks' moving averages differ, because each rank has seen only its own
# examples. Average them over the ranks before rank 0 saves the network, above all if a rank's share is small.
#
# Does it matter for the accuracy? Recorded on two real ranks:

# %%
normalisation.across_ranks(
    recorded, "Fashion-MNIST · two ranks, 2 cores · 5 seeds · recorded: course reproduce normalisation"
)

# %% [markdown]
# With 4 examples on each rank, synchronising is 0.6 ± 1.5 points ahead, with 320 on each −0.9 ± 1.2. Five seeds can't
# tell either from chance. The networks of two ranks that do not synchronise score differently, by up to 0.5 points
# here. In practice, ranks synchronise only where each has very few examples (large images, object detection).
#
# ## Which weights should decay?
#
# L2 regularisation adds $\frac{\lambda}{2} \sum w^2$ to the loss, that is, $\lambda w$ to the gradient. Over *which*
# weights? Tencent trained with batches of 65,536 and left bias $b$, $\beta$ and $\gamma$ out:
#
# | network | decay on all | left out |
# |---|---|---|
# | AlexNet, top-1 ($b$, β, γ) | 55.8 % | 57.1 % |
# | ResNet-50, top-1 ("no decay BN") | 71.9 % | 76.2 % |
#
# Why could it matter? Batch norm undoes the scale of the kernel before it: $L(c w) = L(w)$ for every $c > 0$, if ε is
# small. Decay cannot make such a layer's function simpler. It only keeps ‖w‖ small. The gradient is in proportion to
# $1/\|w\|$, so a small ‖w‖ means a larger effective learning rate, $\eta/\|w\|^2$ (van Laarhoven). γ and β of the last
# batch norm are different: with the dense kernel, their size limits how confident the predictions can be.
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
# What you should see: γ, β and bias are about 1 % of the numbers.


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
# Your own runs, with λ = .01 and one learning rate:

# %%
table = compare(
    {"no decay": {}, "all": {"decay": 0.01}, "kernels only": {"decay": 0.01, "exclude": ["bias", "gamma", "beta"]}}
)
normalisation.by_setting({"live: λ = .01": table}, x="variant", y="validation accuracy", caption=WHERE)

# %% [markdown]
# One rate for all is not a fair comparison, because decay can change the best rate. In the recorded experiment three
# seeds choose each variant's rate, out of six. One of them, seed 0, measured this with few updates and λ = .03 over all
# variables: validation accuracy 85.62 % at η = 0.1 and 85.54 % at 0.2. Alone it would have chosen 0.1.
#
# ### Predict
#
# Both rates then ran with five other seeds. On test data, how many points is 0.1 ahead of 0.2?

# %% editable=true
predict("points by which η = 0.1 is ahead of 0.2, five other seeds", None)

# %%
strong = recorded.query("regime == 'few updates' and decayed == 'all' and decay == 0.03 and use != 'tuning'")
by_rate = 100 * strong.groupby("rate")["test accuracy"].mean()
measured(
    "points by which η = 0.1 is ahead of 0.2, five other seeds",
    round(by_rate[0.1] - by_rate[0.2], 1),
    f"Seed 0 saw 0.08 points, 4 of 5,000 images. From seed to seed, the accuracy at one rate varies by "
    f"{100 * strong.groupby('rate')['test accuracy'].std().mean():.1f} points (standard deviation).",
)

# %% [markdown]
# The table compares each pair twice: each at the rate chosen for it, and both at the same rate.

# %%
normalisation.decays(recorded, "course reproduce normalisation")

# %%
normalisation.both_sides(recorded, "decay")

# %% [markdown]
# Which differences are larger than their interval? Which depend on the rate?
#
# - **With few updates all variants have the same best rate, 0.2.** With λ = .01 their means differ by at most 0.2
#   points. With λ = .03 kernels only is 1.1 ± 0.5 behind all, and 1.4 ± 0.7 behind no decay. Decay of all costs nothing
#   that five seeds see, 0.3 ± 0.6.
# - **Where the network overfits, decay of *all* variables helps:** 0.7 ± 0.4 and 0.5 ± 0.2 points against no decay,
#   both at 0.2. Kernels only, each at its best rate, is behind all by 1.0 ± 0.5 and 0.9 ± 0.6. But this depends on the
#   rate. With λ = .01 and both at 0.2 it is behind by 0.6 ± 0.8; with λ = .03 and both at 0.05 it is not behind.
#
# **The trap is the tuning.** With few updates and λ = .03, seed 0 alone would have chosen 0.1 for all and 0.2 for
# kernels only. Then there is no difference between the two, −0.1 ± 1.0, and decay of all costs 1.3 ± 0.5 points. Both
# conclusions would rest on 4 images. Three seeds are still few: for kernels only with λ = .01, where the network
# overfits, they preferred η = 0.1 to 0.2 by 0.1 points, and five others see 0.2 ahead by 0.4 ± 0.9. Also compare both
# settings at each other's rates.
#
# The published result need not be wrong. Tencent's networks have 25 and 62 million weights and train for 90 or 95
# epochs of ImageNet. Ours has 24,058 weights and makes 80 or 100 updates, with a λ large enough to matter there.
# Leaving bias, γ and β out is common practice, not a law: try both.
#
# ## Noise in the gradient
#
# Let $g_n$ be the gradient of example $n$, $G$ the mean of all and $C$ their covariance. A batch of $M$ examples has a
# gradient with mean $G$ and covariance $C/M$. To give the large batch the covariance $C/m$ of a small one, multiply
# each example's gradient by a random number (Hoffer et al.):
#
# $$\hat g = \frac{1}{M} \sum_{n=1}^{M} g_n z_n, \qquad z_n \sim N(1, \sigma^2) \text{ independent.}$$
#
# The mean stays the same: $\mathbf{E}[g z] = \mathbf{E}[g]\, \mathbf{E}[z] = G$. For the covariance, use
# $\mathbf{E}[z^2] = 1 + \sigma^2$ and $\mathbf{E}[g g^\top] = C + G G^\top$:
#
# $$\text{Cov}(\hat g) = \frac{1}{M} \Big( \mathbf{E}[z^2]\, \mathbf{E}[g g^\top] - G G^\top \Big)
#   = \frac{1}{M} \Big( (1 + \sigma^2)\, C + \sigma^2\, G G^\top \Big) .$$
#
# The first term is $C/m$ if $\sigma^2$ depends on $M$ and $m$ in the right way. The second is an error. It is small if
# single gradients are much larger than their mean, as they are after the first updates.
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
# The cell computes each example's own gradient, 24,058 numbers, after a few updates, and draws 300 batches of each size
# from them.
#
# ### Predict
#
# An example with a negative weight is unlearned: the update goes up its gradient. With m = 16 and M = 1,024, how many
# of your weights are negative, in %?

# %% editable=true
predict("negative weights in %, M = 1,024 and m = 16", None)

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
random = np.random.default_rng(0)
weights = np.array([noise_weights(SIZES[-1], BASE, random) for _ in range(100)])
measured(
    "negative weights in %, M = 1,024 and m = 16",
    round(100 * float(np.mean(weights < 0)), 1),
    f"Their mean is 1, their standard deviation {np.std(weights):.1f}: zero is only {1 / np.std(weights):.2f} standard "
    "deviations below the mean.",
)
by_size = table.pivot(index="batch", columns="noise", values="variance")
for noisy, how in ((False, "without"), (True, "with")):
    ratio = by_size[noisy][1_024] / by_size[noisy][16]
    print(f"variance with 1,024 examples over that with 16, {how} weights: {ratio:.3f}")
normalisation.kept(table, BASE, spectra, caption=f"{problem.name}, gradients of single examples, {DRAWS} batches each")

# %% [markdown]
# With your weights the variance stays near that of m = 16, but for the $G G^\top$ term (printed above). This also holds
# along each of the 30 directions in which gradients vary most. That is the reason to *multiply*: noise of the same size
# in all directions would not have this shape.
#
# The same, recorded, and also with the batch's own statistics, as in training:

# %%
normalisation.variances(
    noise_recorded.query("part == 'variance'"),
    64,
    "Fashion-MNIST · 300 batches each · recorded: course reproduce gradient_noise",
)

# %% [markdown]
# Here, too, the variance is kept: 1.59 with 1,280 examples and noise, 1.63 with 64 and none. Without noise it is .083.
#
# ### Does it help?
#
# ### Predict
#
# The large batch runs without noise, "as noisy as 256" and "as noisy as 64". Which has the highest validation accuracy?

# %% editable=true
predict("best: no noise, as noisy as 256 or as noisy as 64", None)

# %%
noisy = {
    f"as noisy as {base}": {"weigh": lambda size, random, base=base: noise_weights(size, base, random)}
    for base in (256, 64)
}
table = compare({"no noise": {}, **noisy})
means = table.groupby("variant")["validation accuracy"].mean()
print(f"measured, %: {percent(means)}")
measured(
    "best: no noise, as noisy as 256 or as noisy as 64",
    means.idxmax(),
    "A small batch has that noise, too, but makes more updates, over which it averages out."
    if means.idxmax() == "no noise"
    else "These are few seeds, and one rate for all: see the recorded runs.",
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
# The noise has the right covariance, and it does not help. Five seeds see no difference with the noise of half the
# batch: −0.7 ± 0.8 points with few updates, −0.8 ± 1.1 where the network overfits. More noise hurts: that of a batch of
# 256 costs 3.0 ± 1.5 points, that of 64 costs 7.9 ± 2.1, and that of 128 in the other regime 2.8 ± 1.2. (One seed chose
# each rate. With it, too, the best of seven rates was 3.3, 6.7 and 1.7 points behind the best without noise.)
#
# A likely reason: with few updates, a batch of 64 makes 20 times as many updates as the large batch, and the same noise
# averages out over them. These runs cannot tell whether the noise helps over many updates. But equal mean and
# covariance of *one* step do not make two trainings alike.
#
# ## Summary
#
# - After few updates with momentum .99, the moving averages are still wrong, and so is the test accuracy, but the
#   weights are fine.
# - Ghost batch norm keeps the noise of small-batch statistics. It closed no gap here. Batch norm that is not
#   synchronised across ranks *is* ghost batch norm.
# - Synchronise the mean first, then the squared deviations from it.
# - Tencent reports a gain from leaving bias, γ and β out of the decay. Our short runs gained nothing; each at its best
#   rate, they lost about a point in three of four comparisons.
# - A rate that one seed chose can change a conclusion. Choose with several, and compare at equal rates, too.
# - Multiplicative noise gives a large batch the covariance of a small one, but for a small term. In our short runs a
#   little of it makes no visible difference, and more costs accuracy.

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
