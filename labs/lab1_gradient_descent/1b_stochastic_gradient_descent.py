# %% [markdown]
# # 1b Stochastic gradient descent
#
# Gradient descent looks at every example before it takes one step. Stochastic gradient descent (SGD) looks at a few,
# a *mini-batch*, and steps at once. Its gradients are noisy. You will measure how noisy, tame the noise, race six
# update rules, and find out which batch size is fastest here, and why it is rarely the smallest or the largest.
#
# **You will be able to** draw mini-batches properly, predict the variance of their gradients, derive momentum,
# Nesterov and Adam, choose their settings, and explain a processor's throughput by batch size from two numbers that
# you measure yourself.
#
# **Time:** 80 minutes; the runs take about 30 seconds on 2 CPU cores. On a slower or busy machine they take longer, but
# as many steps; a line shows how far each is.
#
# **Needs:** notebook 1a (gradient, learning rate, the bound $2/\lambda_{max}$) and NumPy.

# %%
import itertools
from functools import cache

import numpy as np
import pandas as pd
from IPython.display import Image, display

from course_lib import data
from course_lib.cost import roofline
from course_lib.notebook import plots, predictions, widgets
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from labs.lab1_gradient_descent.lessons import figures_1b as stochastic
from labs.lab1_gradient_descent.lessons import first_to_target
from labs.lab1_gradient_descent.lessons.checks_1b import check, points

fashion = data.load("fashion_mnist")
print(f"{fashion.name} (from: {fashion.source}): {len(fashion.x_train):,} training images")

# %% [markdown]
# ## The model
#
# A linear model with ten outputs. An image is a row $x$ of 784 pixels and a 1, the weights $w$ are a matrix
# [785, 10], and softmax turns the ten numbers $x w$ into probabilities $p$. For $m$ images at once, $x$ is [m, 785]:
#
# $$L(w) = -\frac{1}{m}\sum_{i=1}^{m} \log p_{i, y_i} \qquad
# \nabla L(w) = \frac{1}{m}\, x^\top (p - \text{one-hot}(y))$$
#
# The loss is convex: where a run ends does not depend on luck, so runs can be compared.


# %%
def probabilities(w, x):
    """Of each class for each image: [m, 10]. w [785, 10], x [m, 785]."""
    z = x @ w
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return z / z.sum(axis=1, keepdims=True)


def loss(w, x, y):
    """Mean cross-entropy over the images. y [m], the numbers of the classes."""
    return float(-np.log(probabilities(w, x)[np.arange(len(y)), y] + 1e-30).mean())


def gradient(w, x, y):
    """The gradient of `loss` by w: [785, 10], a mean over the m images."""
    p = probabilities(w, x)
    p[np.arange(len(y)), y] -= 1
    return x.T @ p / len(y)


x_all = fashion.x_train.reshape(len(fashion.x_train), -1).astype(np.float32) / 255
x_all = np.column_stack([x_all - x_all.mean(axis=0), np.ones(len(x_all), np.float32)])
y_all = fashion.y_train
x, y = x_all[:4096], y_all[:4096]  # enough for most of this notebook, and fast
w_0 = np.zeros((x.shape[1], 10), np.float32)
print(f"loss at w = 0: {loss(w_0, x, y):.4f}, which is log 10: every class is as likely")

# %% [markdown]
# ## Mini-batches
#
# In an **epoch** each example is used once. So: shuffle the numbers of all examples, cut the shuffle into batches,
# and shuffle anew in the next epoch. That is drawing *without replacement*. Where the batch size does not divide the
# number of examples, this notebook keeps the last, smaller batch, as Keras's `fit` does. (With several ranks it is
# dropped, because all ranks need equally many batches: lab 2.)
#
# ### Exercise: mini-batches
#
# Write a function that deals out one epoch.
#
# <details><summary>Hint</summary><code>np.random.default_rng([seed, epoch])</code> makes a random generator that
# depends on both numbers. It has a method <code>permutation</code>. A slice that goes beyond the end of an array
# just ends there.</details>


# %% exercise="minibatches"
def minibatches(examples, batch_size, epoch, seed=0):
    """The mini-batches of one epoch: a list of integer arrays, the numbers of the examples in each batch.

    examples: how many there are, numbered from 0; epoch: 0, 1, …; seed: another one for another run.
    Each example is in exactly one batch; every batch has `batch_size` of them, only the last may have fewer.
    The same seed and epoch give the same batches; another epoch, or another seed, gives others.
    """
    ### BEGIN SOLUTION
    order = np.random.default_rng([seed, epoch]).permutation(examples)
    return [order[i : i + batch_size] for i in range(0, examples, batch_size)]
    ### END SOLUTION


# %%
check(minibatches)

# %% hidden="minibatches" points=2
### BEGIN HIDDEN TESTS
points(minibatches, 2)
### END HIDDEN TESTS

# %% [markdown]
# What you should see: every square filled, in three epochs that differ, and a last batch of three.

# %%
stochastic.batches(minibatches, examples=27, batch_size=6, epochs=3)

# %% [markdown]
# ## How noisy is a mini-batch?
#
# ### Predict
#
# The gradient of a mini-batch is off from that of all examples. Take a batch 16 times as large: how many times smaller
# does its typical error become? And how large is the error of a batch that holds half of all examples, compared with
# what you expect of so many examples drawn from an endless supply? (1: the same, 0: none.)

# %% editable=true
predict("16 times the batch: how many times smaller the typical error", None)
predict("half of all examples: error, compared with an endless supply", None)

# %% [markdown]
# The gradient of a mini-batch is the mean of $m$ gradients $g_i$, each of one example. If those are drawn
# independently, the variance of their mean is
#
# $$\text{Var}\Big(\frac{1}{m}\sum_{i=1}^{m} g_i\Big) = \frac{1}{m^2}\, m\, \text{Var}(g_1) = \frac{\sigma^2}{m},
# \qquad \sigma^2 = \mathbf{E}\,\|g_i - \nabla L\|^2 .$$
#
# Here variance means the sum of the variances of all 7,850 components. You draw *without* replacement, though. Out
# of $N$ examples that makes it smaller by a factor (the *finite population correction*):
#
# $$\text{Var} = \frac{\sigma^2}{m} \cdot \frac{N - m}{N - 1} .$$


# %%
def measured_variance(x, y, w, centre, batch_size, seed, draws=400):
    """Mean squared distance of the gradients of `draws` mini-batches from `centre`, the gradient of all examples."""
    epochs = (minibatches(len(x), batch_size, epoch, seed) for epoch in itertools.count())
    whole = (batch for batch in itertools.chain.from_iterable(epochs) if len(batch) == batch_size)
    return np.mean([np.sum((gradient(w, x[b], y[b]) - centre) ** 2) for b in itertools.islice(whole, draws)])


def variance_of_one(x, y, w, centre):
    """σ², exactly: an example's gradient is the outer product of x and p − one-hot(y), its norm that of theirs."""
    p = probabilities(w, x)
    p[np.arange(len(y)), y] -= 1
    return np.mean(np.einsum("ij,ij->i", x, x) * np.sum(p**2, axis=1)) - np.sum(centre**2)


def variance_panel(title, x, y, sizes, seeds=5, **more):
    centre, rows = gradient(w_0, x, y), []
    with Filling(f"200 gradients for each batch size: {title}") as line:
        for seed in range(seeds):
            line.at(seed / seeds, f"seed {seed}")
            rows.append([measured_variance(x, y, w_0, centre, m, seed, draws=200) for m in sizes])
    one = variance_of_one(x, y, w_0, centre)
    return {"title": title, "population": len(x), "sizes": sizes, "measured": rows, "one": one, **more}


# %%
few = min(1024, len(x_all))
x_few, y_few = x_all[:few], y_all[:few]
doubling = 2 ** np.arange(10)
all_images = variance_panel("all images", x_all, y_all, doubling[doubling <= len(x_all) // 25], fit=True)
few_images = variance_panel(
    "a few", x_few, y_few, np.append(doubling[doubling < few], [few * 3 // 4, few * 7 // 8, few * 15 // 16])
)
slopes = [stochastic.slope(all_images["sizes"], row) for row in all_images["measured"]]
print(f"slope measured with five seeds: {np.round(slopes, 3)}, mean {np.mean(slopes):.3f}")
measured(
    "16 times the batch: how many times smaller the typical error",
    16 ** (-np.mean(slopes) / 2),
    "16 is the variance's factor. The error is its root: averaging pays less and less.",
)
half = np.mean([row[list(few_images["sizes"]).index(few // 2)] for row in few_images["measured"]])
measured(
    "half of all examples: error, compared with an endless supply",
    np.sqrt(half / (few_images["one"] / (few // 2))),
    "1? No example is drawn twice: the only ones that this half misses are those of the other half.",
)
everything = measured_variance(x_few, y_few, w_0, gradient(w_0, x_few, y_few), few, seed=0, draws=1)
print(f"variance of a batch of all {few:,} examples: {everything:.1e}")
stochastic.variance([all_images, few_images], caption=plots.provenance(fashion.name))

# %% [markdown]
# The slope is −1: **four times the batch, a quarter of the variance, half the typical error.** Each further halving of
# the error costs four times the work. That is the law behind every rule for large batches in lab 3.
#
# On the right, as $m$ comes near $N$, the dots leave σ²/m and follow the correction: a batch of all examples is no
# longer a sample, it *is* the gradient, and its variance is 0 up to rounding. With a real data set and a usual batch,
# $m/N$ is below a hundredth and nobody can see the difference.
#
# ### Exercise: one epoch of SGD
#
# For each mini-batch in turn: take the gradient *at the present weights*, and step against it.
#
# $$w \leftarrow w - \eta\, \nabla L_\text{batch}(w)$$
#
# <details><summary>Hint</summary><code>x[batch]</code> and <code>y[batch]</code> are the batch's images and labels.
# Write <code>w = w - …</code>: <code>w -= …</code> would change the caller's array.</details>


# %% exercise="sgd_epoch"
def sgd_epoch(w, x, y, gradient, eta, batch_size, epoch, seed=0):
    """The weights after one epoch of SGD, one step for each batch of `minibatches`.

    w: weights at the start, left as they are; x, y: all examples, one a row; eta: learning rate;
    gradient(w, x, y): the mean gradient over the examples it is given; epoch and seed are for `minibatches`.
    """
    ### BEGIN SOLUTION
    for batch in minibatches(len(x), batch_size, epoch, seed):
        w = w - eta * gradient(w, x[batch], y[batch])
    return w
    ### END SOLUTION


# %%
check(sgd_epoch)

# %% hidden="sgd_epoch" points=2
### BEGIN HIDDEN TESTS
points(sgd_epoch, 2)
### END HIDDEN TESTS


# %% [markdown]
# Five epochs each with four batch sizes and one η. Every line has cost the same number of gradients.


# %%
def losses_by_epoch(batch_size, eta, epochs=5):
    w, seen = w_0, [loss(w_0, x, y)]
    for epoch in range(epochs):
        w = sgd_epoch(w, x, y, gradient, eta, batch_size, epoch)
        seen.append(loss(w, x, y))
    return seen


stochastic.epochs(
    {m: losses_by_epoch(m, eta=0.01) for m in (1, 16, 256, len(x))},
    eta=0.01,
    caption=plots.provenance(f"{fashion.name}, {len(x):,} images"),
)

# %% [markdown]
# With the same η the small batch wins by far: in an epoch it takes thousands of steps, the full batch ($m = N$, plain
# gradient descent) a single one. But this is not yet a fair comparison: a large batch has less noise and can bear a
# larger η. We come back to that.
#
# ## The noise ball
#
# Gradient descent with a small enough η comes to rest at the minimum. SGD never does: at the minimum the gradient of
# *all* examples is 0, that of a batch is not. With constant η the weights end up dancing around the minimum in a ball.
#
# How large is it? Take the linear model of 1a, $y = w x + b$ with noise of variance $s^2$ in $y$, but with *half* the
# mean squared error as its loss: its gradient is $x\,(w x + b - y)$, without 1a's factor 2, so η here is 2η there. Near
# the minimum a step shrinks the squared distance along a direction of curvature λ by $2\eta\lambda$ of itself, and adds
# $\eta^2 \sigma_\lambda^2 / m$. Where both balance, with $\sigma_\lambda^2 = s^2 \lambda$ for this model, and for two
# directions:
#
# $$\mathbf{E}\,\|w - w^*\|^2 \approx 2 \cdot \frac{\eta\, s^2}{2 m} = s^2\, \frac{\eta}{m}$$
#
# **What counts is η/m**: half the learning rate calms SGD as much as twice the batch. The loop of your `sgd_epoch`
# follows once more, a step at a time, for any update rule and for an η that may change from step to step.


# %%
def sgd(w, g, state, eta):
    """The plain update rule: w ← w − η g. It remembers nothing, so its state stays None."""
    return w - eta * g, state


def descend(rule, w, x, y, gradient, eta, batch_size, seed=0):
    """Yield the weights after each step, for ever. eta(step) is the learning rate, step = 0, 1, …"""
    state = None
    draws = (rows for epoch in itertools.count() for rows in minibatches(len(x), batch_size, epoch, seed))
    for step, rows in enumerate(draws):
        w, state = rule(w, gradient(w, x[rows], y[rows]), state, eta(step))
        yield w


rng = np.random.default_rng(0)
xs = rng.uniform(-2, 2, 4096)
line = np.column_stack([xs, np.ones(4096)])  # a column for w and one for b
targets = 1.5 * xs + 0.5 + rng.normal(0, 1, 4096)  # noise of variance s² = 1
lowest = np.linalg.lstsq(line, targets, rcond=None)[0]  # the minimum w*, exactly
basin = stochastic.ground(
    lambda w: (w[0] - lowest[0]) ** 2 * np.mean(xs**2) + (w[1] - lowest[1]) ** 2, (-0.32, 3.32), (-0.8, 1.8)
)


def line_gradient(w, x, y):
    return x.T @ (x @ w - y) / len(y)


@cache
def dance(eta, batch_size, decayed):
    """4,096 steps on the line: weights [4097, 2]."""
    start = np.array([0.4, 1.6])
    rate = (lambda step: eta / (1 + step / 200)) if decayed else (lambda step: eta)
    steps = descend(sgd, start, line, targets, line_gradient, rate, batch_size)
    return np.array([start, *itertools.islice(steps, 4096)])


# %% [markdown]
# ### Predict
#
# With m = 64 and η = 1/64 the formula gives $s^2 \eta/m$. How large is the measured squared distance, compared with
# that? (1: the same.) Think of how the batches are drawn.

# %% editable=true
predict("m = 64, η = 1/64: squared distance, compared with the formula", None)

# %% [markdown]
# Move the sliders. The orange circle has the radius that the formula predicts for constant η. One notch of η is a
# factor of 2, one of m a factor of 4. Then let η decay, as $\eta / (1 + t/200)$.


# %%
def draw_ball(exponent, batch_size, decay):
    eta = 2.0**exponent
    walked = dance(eta, batch_size, decay)
    settled = np.mean(np.sum((walked[2048:] - lowest) ** 2, axis=1))
    return stochastic.ball(
        basin,
        walked,
        lowest,
        eta / batch_size,
        title=f"η = {eta:g}{', decaying' if decay else ''}, m = {batch_size}",
        caption=f"y = w x + b, 4,096 examples · mean squared distance in the second half {settled:.2g}, "
        f"s² η/m = {eta / batch_size:.2g}",
    )


for exponent, batch_size, decay in itertools.product(range(-8, -1), (1, 4, 16, 64), (False, True)):
    dance(2.0**exponent, batch_size, decay)  # all of them now, so that the sliders answer at once
widgets.explore(
    draw_ball,
    exponent=widgets.slider("log₂ η", -8, -2, -4),
    batch_size=widgets.choice("batch size m", (1, 4, 16, 64)),
    decay=widgets.choice("η", {"constant": False, "decaying": True}),
)

# %%
rows = [
    {"eta": 2.0**k, "batch_size": m, "squared_distance": np.mean(np.sum((walked[2048:] - lowest) ** 2, axis=1))}
    for k, m in itertools.product(range(-6, -1), (1, 4, 16, 64))
    for walked in [dance(2.0**k, m, False)]
]
(small,) = [row["squared_distance"] for row in rows if row["eta"] == 1 / 64 and row["batch_size"] == 64]
measured(
    "m = 64, η = 1/64: squared distance, compared with the formula",
    small / (1 / 64 / 64),
    "About 1? The formula takes batches for independent. Those of one epoch are not: together they are all examples.",
)
stochastic.ball_sizes(pd.DataFrame(rows), line=1.0, caption="y = w x + b, 4,096 examples, 4,096 steps, one seed")

# %% [markdown]
# Runs with different η and m but the same η/m have balls of about the same size. Two things are off the line, and
# both are real:
#
# - *Large batches with a small η stay below it.* The formula assumes independent batches. Yours are drawn without
#   replacement: over one epoch their errors add up to almost nothing. With m = 64 an epoch is only 64 steps, and a
#   small η hardly moves in that time, so the errors cancel. Reshuffling is not just tidy, it is better.
# - *m = 1 with a large η is above it*: the formula holds for small steps, $\eta \lambda \ll 1$.
#
# Decaying η gets both: large steps at first, a ball that shrinks to nothing later. In practice η falls in steps or
# along a cosine; or it stays and m grows, which calms the noise as well, by the same law (lab 3).
#
# ## Update rules
#
# Plain SGD forgets every gradient at once. The rules below remember something. All have the form of `sgd` above:
#
#     w, state = rule(w, g, state, eta)
#
# `state` is what the rule remembers, in any form you like: `None` before the first step, afterwards what you returned
# the step before. A rule changes none of its arguments and keeps nothing anywhere else, so two networks (or two ranks)
# can use it at the same time.
#
# Each check runs your rule for 50 steps beside Keras's own optimizer, in float64, once with constant η and once with an
# η that falls, and wants the same weights to $10^{-5}$. The first check loads TensorFlow, which takes a few seconds.
# This is `sgd`:

# %%
check(sgd)


# %% [markdown]
# To see what a rule does, the figures let it run down a *ravine*, fifty times as steep across as along.


# %%
def ravine(w):
    """½ (w₁² + 50 w₂²), for weights [2] or [2, …]."""
    return 0.5 * (w[0] ** 2 + 50 * w[1] ** 2)


def ravine_gradient(w):
    return np.array([w[0], 50 * w[1]])


ravine_ground = stochastic.ground(ravine, (-2.3, 0.8), (-0.45, 0.45))
ravine_start = np.array([-2.0, 0.3])


def walk(rule, gradient, start, eta, steps=80, **settings):
    """The weights at the start and after each step of `rule`: [steps + 1, 2]."""
    path, state = [start], None
    with np.errstate(all="ignore"):  # a learning rate that is too large ends in infinity
        for _ in range(steps):
            w, state = rule(path[-1], gradient(path[-1]), state, eta, **settings)
            path.append(w)
    return np.array(path)


def in_the_ravine(**rates):
    """Paths of rules by name, each with its learning rate."""
    rules = {name: globals()[name] for name in rates}
    paths = {f"{n}, η = {eta:g}": walk(rules[n], ravine_gradient, ravine_start, eta) for n, eta in rates.items()}
    return stochastic.path(ravine_ground, paths, ravine)


# %% [markdown]
# ### Exercise: momentum
#
# A velocity collects the steps of plain SGD, like a ball that rolls, and loses the share $1 - \beta$ in each step.
# Across the ravine the gradients alternate and cancel; along it they agree and add up, to $1/(1-\beta)$ times the step
# (Polyak 1964; Sutskever et al. 2013).
#
# There are two ways to write it. PyTorch's velocity collects gradients, and η multiplies the whole of it when $w$
# moves. Keras's collects *steps*, η included: what it has once taken up stays as it is when η changes. Write Keras's.
#
# <details><summary>Hint</summary>The velocity is the state. In the first step, where the state is still
# <code>None</code>, take 0 for it. Return the new velocity as the new state.</details>


# %% exercise="momentum"
def momentum(w, g, state, eta, beta=0.9):
    """One step of SGD with momentum: (new w, new state). w, g: arrays of one shape.

    First the velocity takes up this step, then w moves by the velocity.
    """
    ### BEGIN SOLUTION
    v = 0.0 if state is None else state
    v = beta * v - eta * g
    return w + v, v
    ### END SOLUTION


# %%
check(momentum)

# %% hidden="momentum" points=1
### BEGIN HIDDEN TESTS
points(momentum, 1)
### END HIDDEN TESTS

# %%
in_the_ravine(sgd=0.037, momentum=0.037)

# %% [markdown]
# SGD jumps from wall to wall, as it must between $1/50$ and $2/50$. Momentum with the same η swings wider, and is
# further along the floor.
#
# ### Predict
#
# On a slope that is the same everywhere, η is divided by ten after twenty steps. Whose next step is longer, Keras's or
# PyTorch's? And how many times?

# %% editable=true
predict("the longer step after η has fallen: Keras or PyTorch", None)
predict("how many times longer it is", None)


# %%
def as_in_pytorch(w, g, state, eta, beta=0.9):
    v = beta * (0.0 if state is None else state) + g
    after = w - eta * v
    return after, v


def step_after_the_fall(rule):
    """The length of the first step with a tenth of η, along a slope that is the same everywhere."""
    w, state, g = np.zeros(1), None, np.ones(1)
    for eta in [0.1] * 20 + [0.01]:
        before = w
        w, state = rule(w, g, state, eta)
    return abs(float((w - before)[0]))


ratio = step_after_the_fall(momentum) / step_after_the_fall(as_in_pytorch)
measured(
    "the longer step after η has fallen: Keras or PyTorch",
    "Keras" if ratio > 1 else "PyTorch",
    "PyTorch multiplies its whole velocity by the new η; Keras's velocity still has the old η in it.",
)
measured("how many times longer it is", ratio, "10 would be right if this step's own gradient were not in it.")

# %% [markdown]
# So with a falling η the same settings are not the same training. (With a rising one, in a warm-up, it is the other
# way round: lab 3.)
#
# ### Exercise: Nesterov
#
# Momentum overshoots. Nesterov (1983) takes the gradient not where the weights θ are, but where the velocity is about
# to lead:
#
# $$u \leftarrow \beta u - \eta\, \nabla L(\theta + \beta u), \qquad \theta \leftarrow \theta + u$$
#
# A framework can't ask for the gradient somewhere else: it gets $g$, taken at its weights. So Keras keeps as its $w$
# the point *ahead*, $w = \theta + \beta u$, and never knows θ. Derive its step on paper: what must be added to $w$, as
# a function of $u$, $g$, η and β only?
#
# <details><summary>Hint</summary>Write the new point ahead with the new θ and the new u, subtract the old one, and
# see which terms you can replace.</details>


# %% exercise="nesterov"
def nesterov(w, g, state, eta, beta=0.9):
    """One step of SGD with Nesterov's momentum, in Keras's form: (new w, new state).

    w: the point ahead; g: the gradient there; state: the velocity u, which starts at 0.
    """
    ### BEGIN SOLUTION
    v = beta * (0.0 if state is None else state) - eta * g
    return w + beta * v - eta * g, v
    ### END SOLUTION


# %%
check(nesterov)

# %% hidden="nesterov" points=3
### BEGIN HIDDEN TESTS
points(nesterov, 3)
### END HIDDEN TESTS

# %%
in_the_ravine(sgd=0.037, momentum=0.02, nesterov=0.02)

# %% [markdown]
# Nesterov's swings die out sooner. (It pays with a smaller bound: with β = 0.9 SGD bears an η up to $2/\lambda_{max}$,
# momentum up to $3.8/\lambda_{max}$, Nesterov only up to $1.36/\lambda_{max}$. That is why η is 0.02 here.)
#
# ### Exercise: β and η for a ravine
#
# β = 0.9 is a habit, not a law. Along a direction of curvature λ the distance $d$ from the minimum follows, with
# momentum,
#
# $$d_{t+1} = (1 + \beta - \eta\lambda)\, d_t - \beta\, d_{t-1} .$$
#
# While $(1 - \sqrt\beta)^2 \le \eta\lambda \le (1 + \sqrt\beta)^2$ it shrinks by $\sqrt\beta$ in a step, on average,
# *for every such λ*: one speed for the steep direction and the flat one. Below this range it creeps, above it the
# swings die out more slowly, or grow. Choose η and β for a ravine with given curvatures. The check runs momentum with
# them until the loss is a millionth of what it was:
#
# | κ = λ_max/λ_min | gradient descent, best η | momentum, β = 0.9, best η | your budget |
# |---|---|---|---|
# | 10 | 35 | 126 | 20 |
# | 50 | 173 | 127 | 48 |
# | 200 | 691 | 129 | 100 |
# | 1,000 | 3,454 | 140 | 240 |
#
# (Find a rule that works in all four. It need not be the fastest for one start and one millionth: in the last ravine a
# β near 0.86 needs only 117 steps, and β = 0.9 is not bad.)
#
# <details><summary>Hint</summary>The smaller β, the faster. What keeps you from taking a smaller one? Both ends of
# the range: put λ_min at one and λ_max at the other. Two equations, two unknowns; take roots first.</details>


# %% exercise="heavy_ball"
def heavy_ball(flattest, steepest):
    """(η, β) for momentum in a ravine with curvatures from `flattest` (λ_min) to `steepest` (λ_max)."""
    ### BEGIN SOLUTION
    low, high = np.sqrt(flattest), np.sqrt(steepest)
    root = (high - low) / (high + low)  # √β: both ends of the range are touched
    return 4 / (high + low) ** 2, root**2
    ### END SOLUTION


# %%
check(heavy_ball)

# %% hidden="heavy_ball" points=2
### BEGIN HIDDEN TESTS
points(heavy_ball, 2)
### END HIDDEN TESTS

# %% [markdown]
# Gradient descent needs steps in proportion to κ, momentum with this choice in proportion to $\sqrt\kappa$. The longer
# the ravine, the longer the memory: β = 0.57 suits this one, 0.9 suits κ = 1,400.
#
# ### Adagrad and RMSprop, given
#
# One η for all weights is a compromise. Adagrad (Duchi, Hazan, Singer 2011) gives each weight its own: it sums up the
# weight's squared gradients in $G$ and divides by the root. Steep directions take smaller steps. RMSprop (Hinton 2012,
# in a lecture) divides by the root of a running *mean* of the squares, which forgets the old ones.


# %%
def adagrad(w, g, state, eta, epsilon=1e-7):
    """One step of Adagrad. Keras starts G at 0.1, the paper at 0."""
    total = np.full_like(w, 0.1) if state is None else state
    total = total + g**2
    return w - eta * g / np.sqrt(total + epsilon), total


def rmsprop(w, g, state, eta, rho=0.9, epsilon=1e-7):
    """One step of RMSprop. Keras has ε inside the root, others outside."""
    mean = rho * (0.0 if state is None else state) + (1 - rho) * g**2
    return w - eta * g / np.sqrt(mean + epsilon), mean


# %% [markdown]
# ### Predict
#
# Two places: the ravine, and a *cliff*: a steep wall, then a gentle slope down to the minimum. Each rule takes 80
# steps, Adagrad with η = 0.5 and RMSprop with η = 0.05. Which of the two ends nearer to the minimum in the ravine,
# which below the cliff?

# %% editable=true
predict("ends nearer to the minimum in the ravine", None)
predict("ends nearer to the minimum below the cliff", None)


# %%
def cliff(w):
    """A bowl, ½ (w₁² + 4 w₂²), with a wall left of w₁ = −1.5."""
    return 0.5 * (w[0] ** 2 + 4 * w[1] ** 2) + 60 * np.maximum(0, -1.5 - w[0]) ** 2


def cliff_gradient(w):
    return np.array([w[0] - 120 * np.maximum(0, -1.5 - w[0]), 4 * w[1]])


cliff_ground = stochastic.ground(cliff, (-2.3, 0.8), (-0.45, 0.45))
two = {"adagrad": (adagrad, 0.5), "rmsprop": (rmsprop, 0.05)}
ends = {}
for place, slope in {"in the ravine": ravine_gradient, "below the cliff": cliff_gradient}.items():
    paths = {name: walk(rule, slope, ravine_start, eta) for name, (rule, eta) in two.items()}
    ends[place] = {f"{name}, η = {two[name][1]:g}": path for name, path in paths.items()}
    measured(
        f"ends nearer to the minimum {place}",
        min(paths, key=lambda name: np.linalg.norm(paths[name][-1])),
        "G only grows. In the ravine it grows slowly; the wall fills it in one step, and every later step is short.",
    )
display(stochastic.path(ravine_ground, ends["in the ravine"], ravine))
stochastic.path(cliff_ground, ends["below the cliff"], cliff)

# %% [markdown]
# Adagrad never forgets: one steep place early on, and it nearly halts for good. RMSprop forgets, and so never comes to
# rest: near the minimum it divides a small gradient by a small root, and its steps remain about η long. It needs
# a decaying η.
#
# ### Exercise: Adam
#
# Momentum and RMSprop together (Kingma, Ba 2015): a running mean $m$ of the gradients and a running mean $v$ of their
# squares, in which the old mean has the weight $\beta_1$ and $\beta_2$. Both start at 0, so both are too small at
# first. By which factor, after $t$ steps? Imagine that the gradient is the same in every step, and add up. Adam divides
# the two factors out, the *bias correction*; what is left is $\hat m$ and $\hat v$.
#
# <details><summary>Hint</summary>The newest gradient has the weight 1 − β in the mean, the one before β (1 − β), and
# so on: a geometric sum. The state is three things; pack them into a tuple, and unpack it in the next step.</details>


# %% exercise="adam"
def adam(w, g, state, eta, beta1=0.9, beta2=0.999, epsilon=1e-7):
    """One step of Adam: (new w, new state).

    It is η m̂ / (√v̂ + ε), against the slope. The state is m, v and the number t of steps so far, this one included.
    """
    ### BEGIN SOLUTION
    m, v, t = state or (0.0, 0.0, 0)
    t += 1
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
    return w - eta * m_hat / (np.sqrt(v_hat) + epsilon), (m, v, t)
    ### END SOLUTION


# %%
check(adam)

# %% hidden="adam" points=3
### BEGIN HIDDEN TESTS
points(adam, 3)
### END HIDDEN TESTS

# %%
in_the_ravine(momentum=0.02, rmsprop=0.05, adam=0.2)

# %% [markdown]
# In its first step Adam moves every weight by η, large gradient or small. (Where ε stands is a matter of taste: beside
# $\sqrt{\hat v}$ in the paper's Algorithm 1; beside $\sqrt v$ in Keras and in the paper's faster form, where it counts
# for more, $1/\sqrt{1 - \beta_2^t}$ times as much. That matters where gradients are as small as ε.)

# %% [markdown] tags=["further"]
# ## The race

# %% [markdown]
# Six rules, on three surfaces: the ravine; the same ravine *turned* by 30°, so that it runs along no axis; and a
# *saddle*, $5 w_1^2 - \tfrac12 w_2^2 + \tfrac14 w_2^4$, that is a minimum along $w_1$ and a maximum along
# $w_2$. The start lies almost on the ridge, where the gradient points to the saddle and hardly anywhere else.
#
# To be fair, every rule is tuned in the same way: it tries 49 learning rates from $2^{-10}$ to $2^2$, and, where it has
# a decay (β, ρ, β₁), 0.5, 0.6, 0.7, 0.8 and 0.9 for it: five times the tries. It races with the pair that takes it to a
# thousandth of the start's height, to stay there, in the fewest steps.
#
# ### Predict
#
# Which rule is first in the ravine, which in the turned ravine, which at the saddle? And which one is the last to
# *leave* the saddle ($|w_2| > 0.5$)? The rules: sgd, momentum, nesterov, adagrad, rmsprop, adam.

# %% editable=true
predict("first in the ravine", None)
predict("first in the turned ravine", None)
predict("first at the saddle", None)
predict("leaves the saddle last", None)

# %%
turn = np.array([[np.cos(np.pi / 6), np.sin(np.pi / 6)], [-np.sin(np.pi / 6), np.cos(np.pi / 6)]])


def turned(w):
    return ravine(np.tensordot(turn, w, 1))


def turned_gradient(w):
    return turn.T @ ravine_gradient(turn @ w)


def saddle(w):
    return 5 * w[0] ** 2 - 0.5 * w[1] ** 2 + 0.25 * w[1] ** 4


def saddle_gradient(w):
    return np.array([10 * w[0], w[1] ** 3 - w[1]])


# name → loss, gradient, start, loss at the minimum, what is drawn
surfaces = {
    "ravine": (ravine, ravine_gradient, ravine_start, 0.0, ravine_ground),
    "turned ravine": (
        turned,
        turned_gradient,
        turn.T @ ravine_start,
        0.0,
        stochastic.ground(turned, (-2.3, 0.7), (-1.3, 0.6)),
    ),
    "saddle": (
        saddle,
        saddle_gradient,
        np.array([-0.6, 0.001]),
        -0.25,
        stochastic.ground(saddle, (-0.8, 0.8), (-1.4, 1.4)),
    ),
}
steps = 120
rates = 2.0 ** np.arange(-10, 2.25, 0.25)
decays = {momentum: "beta", nesterov: "beta", rmsprop: "rho", adam: "beta1"}


def steps_needed(path, surface):
    """Steps until the loss stays below a thousandth of its height at the start; `steps` + 1 if it never does."""
    surface_loss, _, start, lowest_loss, _ = surfaces[surface]
    with np.errstate(all="ignore"):
        near = surface_loss(path.T) - lowest_loss <= 1e-3 * (surface_loss(start) - lowest_loss)
    return len(path) - int(np.argmin(near[::-1])) if not near.all() else 0


def steps_to_leave(path):
    """Steps until |w₂| > 0.5."""
    return int(np.argmax(np.abs(path[:, 1]) > 0.5))


def final_loss(path, surface):
    with np.errstate(all="ignore"):
        return np.nan_to_num(surfaces[surface][0](path[-1]), nan=np.inf)


def racers(surface, tuned=True):
    """Each rule with its best settings: name → (settings, path). Not `tuned`: the decay has its usual value."""
    _, slope, start, _, _ = surfaces[surface]
    best = {}
    for rule in (sgd, momentum, nesterov, adagrad, rmsprop, adam):
        decay = decays.get(rule)
        settings = [{decay: value} for value in (0.5, 0.6, 0.7, 0.8, 0.9)] if decay and tuned else [{}]
        tried = [
            ({"eta": eta, **more}, walk(rule, slope, start, eta, steps, **more))
            for eta, more in itertools.product(rates, settings)
        ]
        best[rule.__name__] = min(tried, key=lambda run: (steps_needed(run[1], surface), final_loss(run[1], surface)))
    return best


# %%
with Filling("every rule tries its settings") as line:
    race = {}
    for number, surface in enumerate(surfaces):
        line.at(number / len(surfaces), surface)
        race[surface] = racers(surface)


def draw_race(surface, frame):
    surface_loss, _, _, lowest_loss, scene = surfaces[surface]
    paths = {rule: path for rule, (_, path) in race[surface].items()}
    chosen = ", ".join(f"{rule} {settings['eta']:.2g}" for rule, (settings, _) in race[surface].items())
    return stochastic.race(
        scene, paths, surface_loss, step=2 * frame, lowest=lowest_loss, caption=f"{surface} · η: {chosen}"
    )


widgets.explore(
    draw_race,
    surface=widgets.choice("surface", list(surfaces)),
    frame=widgets.animation("frame (2 steps each)", steps // 2 + 1),
)


# %%
def race_table():
    """Steps that each rule needs on each surface, with its settings."""
    rows = {}
    for surface in surfaces:
        for rule, (settings, path) in race[surface].items():
            needed = steps_needed(path, surface)
            told = ", ".join(f"{value:.3g}" for value in settings.values())
            row = rows.setdefault(rule, {})
            row[surface] = (f"{needed}" if needed <= steps else f"more than {steps}") + f"  ({told})"
            if surface == "saddle":
                row["leaves the saddle"] = steps_to_leave(path)
    for rule, (_, path) in racers("ravine", tuned=False).items():
        rows[rule]["ravine, usual decay"] = steps_needed(path, "ravine")
    return pd.DataFrame(rows).T


def first(surface):
    return min(race[surface], key=lambda rule: steps_needed(race[surface][rule][1], surface))


leaving = {rule: steps_to_leave(path) for rule, (_, path) in race["saddle"].items()}
measured("first in the ravine", first("ravine"), "A rate for each weight is made for ravines along an axis.")
measured("first in the turned ravine", first("turned ravine"), "Turned, both weights see much the same steepness.")
measured(
    "first at the saddle",
    first("saddle"),
    "There the gradient is tiny, and only a rule that divides by its size takes long steps at once.",
)
measured("leaves the saddle last", max(leaving, key=leaving.get), "It has nothing but the tiny gradient.")
race_table()

# %% [markdown]
# In brackets: η, and the decay.
#
# - **SGD** is bound by the steepest direction: η must stay below $2/50$, and along the ravine that is little: 82 steps.
# - **Momentum** needs 16 and **Nesterov** 20. With the usual decay of 0.9 it would be 58 and 39, and Nesterov would
#   look like the better rule. A ranking at one fixed β says more about that β than about the rules.
# - These three do not care about the turn. They add up gradients, and a sum of vectors turns with its vectors.
# - **Adagrad** wins the straight ravine in 4 steps and needs 98 in the turned one. A rate for each weight is a cure for
#   a ravine *along an axis*. **Adam** has a rate for each weight, too, and also suffers, from 13 to 23 steps, though
#   less.
# - **RMSprop** is near quickly, but with these ρ does not stay: its steps remain about η long. In the ravine and at the
#   saddle its best ρ, 0.5, is the end of the list, so its row judges the list as much as the rule: with 0.98, which is
#   not in it, RMSprop would take 4 steps to each, and be second to none.
# - At the **saddle** the gradient along $w_2$ is tiny at first. Adam and Adagrad leave after 3 steps, RMSprop after 14:
#   they divide by the size of past gradients. (Adagrad's first steps are short all the same, as its $G$ starts at 0.1;
#   an η of 2.83 makes up for it.) Momentum (17) and Nesterov (21) come next, then SGD (39). To leave first is not to
#   settle first: until they stay, Adagrad takes 6 steps, Adam 9, momentum 25, Nesterov 29, RMSprop 31, SGD 48.
#
# So none of them is simply the best. Which comes first depends on the surface, and on how fairly the settings were
# chosen: lab 3 comes back to this with real networks.
#
# ### On the ridge itself
#
# The race began almost on the ridge. Exactly on it, at $w_2 = 0$, the gradient along $w_2$ is 0, and gradient descent
# runs into the saddle and stays. SGD does not: the gradient of a mini-batch has noise, of the variance $\sigma^2/m$.
#
# ### Predict
#
# Plain SGD with η = 0.1 begins on the ridge, and each gradient has noise with σ = 1. With m = 256 it takes longer to
# leave than with m = 1: how many times as long?

# %% editable=true
predict("leaving the ridge: m = 256, compared with m = 1", None)


# %%
def steps_off_the_ridge(m, eta=0.1, sigma=1.0, runs=500, most=400):
    """Steps until |w₂| > 0.5, the median of so many runs; infinite where half of them never leave."""
    noise = np.random.default_rng(0)
    w, left = np.tile([[-0.6], [0.0]], runs), np.full(runs, np.inf)
    for step in range(1, most + 1):
        w = w - eta * (saddle_gradient(w) + noise.normal(0, sigma / np.sqrt(m), w.shape))
        left = np.where(np.isinf(left) & (np.abs(w[1]) > 0.5), step, left)
    return np.median(left)


off = pd.Series({"m = 1": 1, "m = 16": 16, "m = 256": 256, "m = 4,096": 4096, "no noise": np.inf}).map(
    steps_off_the_ridge
)
measured(
    "leaving the ridge: m = 256, compared with m = 1",
    off["m = 256"] / off["m = 1"],
    too_large="A push once made grows by the factor 1 + η in each step. A push 16 times smaller is made up for by "
    "ln 16 / ln 1.1 = 29 steps.",
    too_small="The noise is 16 times smaller, and what is smaller takes longer to grow.",
)
off.to_frame("steps to leave").T

# %% [markdown]
# Sixteen times the batch costs some 15 steps more, however large it is: the distance from the ridge grows
# exponentially, so only the logarithm of the first push counts. That is why saddles hold up a noisy descent so little
# (1e looks for them in a network).

# %% [markdown] tags=["further"]
# ## Which batch size gets there first?

# %% [markdown]
# Back to the images. The target is a loss; who reaches it with the fewest **steps**, who with the fewest **examples**
# looked at, who in the fewest **seconds**? Batch sizes from 1 to all images, plain SGD.
#
# A batch size must not win because η suits it. So each one tries the same ten learning rates, $2^{2} \dots 2^{-7}$, on
# a seed of its own; the best of them then runs with five other seeds, which are what is shown. A rate is given up when
# it has used more examples than the best so far, or 500 epochs, or 16,000 steps. The clock runs during steps only, not
# while the loss is measured, which happens each time the number of steps has grown by 5 %.
#
# ### Predict
#
# A batch size for each: 1, 4, 16, 64, 256, 1024 or 4096 (all).

# %% editable=true
predict("batch size with the fewest steps", None)
predict("batch size with the fewest examples", None)
predict("batch size with the fewest seconds", None)


# %%
probe = x[:1024], y[:1024]  # the loss is measured on these


def steps_of_sgd(batch_size, eta, seed):
    """The weights after each step, for ever."""
    return descend(sgd, w_0, x, y, gradient, lambda _: eta, batch_size, seed)


def full_batch_loss(steps=500):
    """The loss after some steps of gradient descent with η = 1/λ, λ a bound on the curvature: the target."""
    curvature = np.linalg.eigvalsh(x.T @ x / len(x))[-1] / 2
    run = steps_of_sgd(len(x), float(1 / curvature), seed=0)
    return loss(next(itertools.islice(run, steps - 1, None)), *probe)


# %%
target = full_batch_loss()
sizes = [m for m in (1, 4, 16, 64, 256, 1024) if m < len(x)] + [len(x)]
with Filling("ten rates, then five seeds for each batch size") as line:
    runs = first_to_target.compare(steps_of_sgd, lambda w: loss(w, *probe), target, sizes, len(x), line.at)
reveals = {
    "steps": "A larger batch needs fewer steps, down to a floor; along the floor chance decides which is first.",
    "examples": "Every example that only improves an average is spent. The small batches lie close together here.",
    "seconds": "The smallest wastes the processor, the largest wastes examples.",
}
for what, sentence in reveals.items():
    winner = int(runs.groupby("batch_size")[what].median().idxmin())
    measured(f"batch size with the fewest {what}", winner, sentence)
display(runs.drop(columns="seed").groupby("batch_size").median().rename(columns={"eta": "best η"}).round(4))
stochastic.to_target(
    runs,
    title=f"To a loss of {target:.3f}: median and range of five seeds; ring: the best",
    caption=plots.provenance(f"{fashion.name}, {len(x):,} images"),
)

# %% [markdown]
# Seconds are those of your machine. Steps and examples are not: here are the recorded ones. `course reproduce
# softmax_to_target`, typed in a terminal, makes figure and table again in half a minute.

# %%
recorded = pd.read_csv("recorded/softmax_to_target.csv", comment="#")
display(Image("recorded/softmax_to_target.png", width=plots.WIDTH))
recorded.groupby("batch_size")[["eta", "steps", "examples"]].median().rename(columns={"eta": "best η"}).T

# %% [markdown]
# Three questions, and as a rule three winners.
#
# - **Steps** fall with $m$, at first in proportion: four times the batch, a quarter of the noise, a larger η, a quarter
#   of the steps. Then comes a floor: once the noise is small, curvature limits η, and a still better gradient is of
#   little use. (Recorded: 4,139 steps with m = 1, 89 with 64; from 256 on, between 50 and 63.)
# - **Examples** are steps times $m$: level as long as the steps fall in proportion, then rising. The smallest batch
#   wins, or ties with the next ones: no example's gradient is spent on averaging. (Recorded: 4,139 examples with m = 1,
#   4,464 with 16, 204,800 with all.)
# - **Seconds** are examples times the time for an example, and that time is much shorter in a batch. So the winner lies
#   between: large enough to use the processor well, small enough to waste no examples. Where exactly depends on the
#   machine, and on what else runs on it: it is what the ring says *here*.
#
# (Recorded, batches of 256 and 1,024 do best with η = 2, and all images with η = 1. The bound $2/\lambda$ at the start
# is 1.01. The curvature of this loss falls as the model gets surer: the first hint that 1a's bound is not a law for
# other losses.)
#
# Now think of many GPUs. Shared out among enough of them, a step on 4,096 examples takes as long as one on 64, and the
# *left* panel decides. How far to the right the steps keep falling, and what can push the floor down, is what the
# rest of this course is about.

# %% [markdown]
# ## From GEMV to GEMM
#
# Why is the time for an example so much shorter in a batch? With one example, a layer multiplies a *vector* by its
# weights (BLAS calls that GEMV): every weight is fetched from memory and used for one multiplication and one addition.
# With $m$ examples it multiplies a *matrix* (GEMM), and each weight that was fetched is used $m$ times.
#
# Two numbers of the machine decide: its **peak**, in floating-point operations a second (FLOP/s), and the **bandwidth**
# of its memory, in bytes a second. A kernel that does $I$ FLOP for each byte it moves can at best reach
#
# $$\min(\text{peak},\; I \cdot \text{bandwidth})$$
#
# This is the **roofline** (Williams, Waterman, Patterson 2009). For a layer in float32, as long as the weights are most
# of what moves, $I \approx 2m/4 = m/2$ FLOP per byte. Both numbers are measured here: the peak by a product of two
# matrices [2048, 2048], the bandwidth by reading an array eight times as large as the largest cache. Of five
# repeats the best counts, as other work on the machine can only slow it down.

# %%
peak, bandwidth = roofline.measure_peak(), roofline.measure_bandwidth()
knee = roofline.ridge(peak, bandwidth)
print(f"peak {peak / 1e9:.0f} GFLOP/s, bandwidth {bandwidth / 1e9:.0f} GB/s")
print(f"they meet at {knee:.1f} FLOP per byte: a batch of about {2 * knee:.0f}")
print(f"largest cache: {roofline.last_level_cache() / 2**20:.0f} MiB")

# %% [markdown]
# ### Predict
#
# A layer with 8,192 inputs and 4,096 outputs has 128 MiB of weights. How many times more images a second does it
# process with a batch of 256 than with one image at a time? And a layer of 1,024 × 1,024, whose 4 MiB fit into a
# cache?

# %% editable=true
predict("8,192 → 4,096: images per second, batch of 256 over one", None)
predict("1,024 → 1,024: images per second, batch of 256 over one", None)

# %%
layers = {"8,192 → 4,096": (8192, 4096), "1,024 → 1,024": (1024, 1024), "784 → 10": (784, 10)}
timed = []
for layer, shape in layers.items():
    for m in 2 ** np.arange(9):
        seconds = roofline.measure_dense(int(m), *shape)
        timed.append(
            {
                "layer": layer,
                "batch_size": int(m),
                "images_per_second": m / seconds,
                "intensity": roofline.dense_intensity(m, *shape),
                "flops": roofline.dense_flops(m, *shape) / seconds,
            }
        )
throughput = pd.DataFrame(timed)
rate = throughput.pivot(index="batch_size", columns="layer", values="images_per_second")
for layer in ("8,192 → 4,096", "1,024 → 1,024"):
    measured(
        f"{layer}: images per second, batch of 256 over one",
        rate[layer][256] / rate[layer][1],
        "256? Only if 256 images took as long as one. Near 1? Then fetching the weights would be free.",
    )
stochastic.roofline(throughput, peak, bandwidth, caption=plots.provenance("x @ w in float32, best of 3", ranks=1))

# %% [markdown]
# From left to right, the batch grows. (The roof is measured, too, and like all that is timed it is too low where other
# work ran at the time: a point a little above the peak is no miracle.)
#
# - **On the slant.** The large layer with m = 1 does half a FLOP for each byte, and reaches what memory delivers. The
#   arithmetic units are idle most of the time: the dot is far below the peak.
# - **Above it.** The layer of 4 MiB stays in the cache between two calls, and a cache delivers faster than memory. The
#   slant is memory's roof; a cache has one of its own, further up.
# - **Below it.** In a batch of two an image often takes *longer* than alone. For a single row NumPy calls GEMV, which
#   reads the weights where they are. From two on it calls GEMM, which first copies them into an order that suits the
#   processor. That copy pays off only for a larger batch. The roofline counts the least bytes possible; a real kernel
#   moves more.
# - **At the top.** Once a layer is near the peak, more examples bring nothing but waiting.
# - **784 → 10**, the layer that you trained above, never gets there. Its weights are small, so it is the images that
#   move, and a larger batch brings more of them: its intensity stops at 5 FLOP per byte. With few images the time is
#   mostly that of calling NumPy at all.
#
# The wider the gap between arithmetic and memory, the larger a batch must be. Tencent's talk on ImageNet in
# four minutes gives 12 TFLOP/s and 346 GB/s for a P40, 9.3 TFLOP/s and 732 GB/s for a P100. Peak and memory meet at 35
# and 13 FLOP per byte: for a *dense* layer, batches of about 70 and 25 *on each GPU*, just to keep it busy. (A
# convolution uses each weight at every position of the image, so it does many operations for each byte even with
# one image. What a small batch lacks there is enough work for all of the GPU's cores.)
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - Mini-batches are drawn without replacement and reshuffled in each epoch. Their gradients have the variance σ²/m
#   times (N − m)/(N − 1).
# - With constant η, SGD dances in a ball around the minimum: mean squared distance ∝ η/m. Decay η, or grow m.
# - Momentum and Nesterov remember gradients, Adagrad and RMSprop their squares, Adam both. Rules that scale each weight
#   by itself depend on the axes; the others do not. No ranking holds before β is tuned as well as η.
# - Larger batches need fewer steps, down to a floor, and more examples. Seconds lie between, because a batch turns GEMV
#   into GEMM: a weight that was fetched once is used m times.
#
# Papers:
#
# - S. Ruder: *An overview of gradient descent optimization algorithms.* arXiv:1609.04747
# - Y. Nesterov: *A method of solving a convex programming problem with convergence rate O(1/k²).* Soviet Mathematics
#   Doklady 27 (1983)
# - J. Duchi, E. Hazan, Y. Singer: *Adaptive subgradient methods for online learning and stochastic optimization.* JMLR
#   12 (2011)
# - B. Polyak: *Some methods of speeding up the convergence of iteration methods.* USSR Computational Mathematics and
#   Mathematical Physics 4 (1964)
# - I. Sutskever, J. Martens, G. Dahl, G. Hinton: *On the importance of initialization and momentum in deep learning.*
#   ICML 2013
# - D. Kingma, J. Ba: *Adam: a method for stochastic optimization.* arXiv:1412.6980
# - X. Jia et al.: *Highly scalable deep learning training system with mixed-precision: training ImageNet in four
#   minutes.* arXiv:1807.11205
# - Y. Li, A. Pedram: *CATERPILLAR: coarse grain reconfigurable architecture for accelerating the training of deep
#   neural networks.* arXiv:1706.00517
# - S. Williams, A. Waterman, D. Patterson: *Roofline: an insightful visual performance model for multicore
#   architectures.* CACM 52 (2009), doi:10.1145/1498765.1498785
