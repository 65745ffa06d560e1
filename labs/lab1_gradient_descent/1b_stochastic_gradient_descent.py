# %% [markdown]
# # 1b Stochastic gradient descent
#
# Gradient descent looks at every example before it takes one step. Stochastic gradient descent (SGD) looks at a few,
# a *mini-batch*, and steps at once. Its gradients are noisy. You will measure how noisy, tame the noise, race six
# update rules, and find out on your own runs which batch size is fastest, and why it is neither the smallest nor the
# largest.
#
# **You will be able to** draw mini-batches properly, predict the variance of their gradients, write momentum,
# Nesterov, Adagrad, RMSprop and Adam, and explain a processor's throughput by batch size from two numbers that you
# measure yourself.
#
# **Time:** 75 minutes; the runs take about 40 seconds on 2 CPU cores; on GPUs they are not yet measured.
#
# **Needs:** notebook 1a (gradient, learning rate, the bound $2/\lambda_{max}$) and NumPy.

# %%
import itertools
import time
from functools import cache

import numpy as np
import pandas as pd
from IPython.display import display

from course_lib import data
from course_lib.cost import roofline
from course_lib.notebook import plots, widgets
from course_lib.notebook.widgets.growing_figure import Filling
from labs.lab1_gradient_descent.lessons import figures_1b as stochastic
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
# The loss is convex: no luck is involved in where a run ends, so runs can be compared.


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
# <details><summary>Hint</summary><code>np.random.default_rng([seed, epoch])</code> makes a random generator that
# depends on both numbers. It has a method <code>permutation</code>. A slice that goes beyond the end of an array
# just ends there.</details>


# %% exercise="minibatches"
def minibatches(examples, batch_size, epoch, seed=0):
    """The mini-batches of one epoch: a list of integer arrays, the numbers of the examples in each batch.

    examples: how many there are, numbered from 0; epoch: 0, 1, …; seed: for a run of its own.
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
#
# ### Predict
#
# Plotted log-log, the variance over $m$ will be a straight line, as long as $m \ll N$. With which slope? And what is
# the variance of a "mini-batch" of all $N$ examples?

# %% editable=true
my_slope = None
my_variance_at_N = None


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
    centre = gradient(w_0, x, y)
    measured = [[measured_variance(x, y, w_0, centre, m, seed) for m in sizes] for seed in range(seeds)]
    one = variance_of_one(x, y, w_0, centre)
    return {"title": title, "population": len(x), "sizes": sizes, "measured": measured, "one": one, **more}


# %%
few = 1024
x_few, y_few = x_all[:few], y_all[:few]
doubling = 2 ** np.arange(10)
all_images = variance_panel("all images", x_all, y_all, doubling[doubling <= len(x_all) // 25], fit=True)
few_images = variance_panel("a few", x_few, y_few, np.append(doubling, [few * 3 // 4, few * 7 // 8, few * 15 // 16]))
slopes = [stochastic.slope(all_images["sizes"], row) for row in all_images["measured"]]
print(f"your guess: {my_slope}; slope measured with five seeds: {np.round(slopes, 3)}, mean {np.mean(slopes):.3f}")
everything = measured_variance(x_few, y_few, w_0, gradient(w_0, x_few, y_few), few, seed=0, draws=1)
print(f"your guess: {my_variance_at_N}; variance of a batch of all {few:,} examples: {everything:.1e}")
stochastic.variance([all_images, few_images], caption=plots.provenance(fashion.name))

# %% [markdown]
# The slope is −1: **four times the batch, a quarter of the variance, half the typical error.** Each further halving of
# the error costs four times the work. That is the law behind every rule for large batches in lab 3.
#
# On the right, as $m$ comes near $N$, the dots leave σ²/m and follow the correction: a batch of all examples is no
# sample any more, it *is* the gradient, and its variance is 0 up to rounding. With a real data set and a usual batch,
# $m/N$ is below a hundredth and nobody can see the difference.
#
# ## One epoch of SGD
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
# How large is it? Take the linear model of 1a, $y = w x + b$ with noise of variance $s^2$ in $y$. Near the minimum a
# step shrinks the squared distance along a direction of curvature λ by $2\eta\lambda$ of itself, and adds
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
# Move the sliders. The orange circle has the radius that the formula predicts for constant η. What do you expect when
# η goes down by one notch (a factor of 2)? When m goes up by one (a factor of 4)? Then let η decay, as
# $\eta / (1 + t/200)$.


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
# Decaying η gets both: large steps at first, a ball that shrinks to nothing later. In practice one decays by steps, by
# a cosine, or not η at all but lets m grow, which by the same law calms the noise as well (lab 3).
#
# ## Five update rules
#
# Plain SGD forgets every gradient at once. The five rules below remember something. All have the form of `sgd` above:
#
#     w, state = rule(w, g, state, eta)
#
# `state` is what the rule remembers, in any form you like: `None` before the first step, afterwards what you returned
# the step before. A rule changes none of its arguments and keeps nothing anywhere else, so two networks (or two ranks)
# can use it at the same time.
#
# Each check runs your rule for 50 steps beside Keras's own optimizer, in float64, and wants the same weights to
# $10^{-6}$. So Keras's conventions hold, where they differ from the papers'; the docstrings say how. The first check
# loads TensorFlow, which takes a few seconds. This is `sgd`:

# %%
check(sgd)


# %% [markdown]
# To see what a rule does, the figure below each check lets it run down a *ravine*, fifty times as steep across
# as along.


# %%
def ravine(w):
    """½ (w₁² + 50 w₂²), for weights [2] or [2, …]."""
    return 0.5 * (w[0] ** 2 + 50 * w[1] ** 2)


def ravine_gradient(w):
    return np.array([w[0], 50 * w[1]])


ravine_ground = stochastic.ground(ravine, (-2.3, 0.8), (-0.45, 0.45))
ravine_start = np.array([-2.0, 0.3])


def walk(rule, gradient, start, eta, steps=80):
    """The weights at the start and after each step of `rule`: [steps + 1, 2]."""
    path, state = [start], None
    with np.errstate(all="ignore"):  # a learning rate that is too large ends in infinity
        for _ in range(steps):
            w, state = rule(path[-1], gradient(path[-1]), state, eta)
            path.append(w)
    return np.array(path)


def in_the_ravine(**rates):
    """Paths of rules by name, each with its learning rate."""
    rules = {name: globals()[name] for name in rates}
    paths = {f"{n}, η = {eta:g}": walk(rules[n], ravine_gradient, ravine_start, eta) for n, eta in rates.items()}
    return stochastic.path(ravine_ground, paths, ravine)


# %% [markdown]
# ### Momentum
#
# A velocity $v$ collects the gradients, like a ball that rolls. Across the ravine they alternate and cancel; along it
# they agree and add up, to $1/(1-\beta)$ times the step (Polyak 1964; Sutskever et al. 2013).
#
# <details><summary>Hint</summary>The velocity is the state. In the first step, where the state is still
# <code>None</code>, take 0 for it. Return the new velocity as the new state.</details>


# %% exercise="momentum"
def momentum(w, g, state, eta, beta=0.9):
    """One step of SGD with momentum: (new w, new state). w, g: arrays of one shape.

    v ← β v − η g,  w ← w + v;  v starts at 0.
    As in Keras, η is inside v. Other books and PyTorch write v ← β v + g, w ← w − η v: the same while η is constant,
    but when η decays, Keras's velocity remembers the old η.
    """
    ### BEGIN SOLUTION
    v = 0.0 if state is None else state
    v = beta * v - eta * g
    return w + v, v
    ### END SOLUTION


# %%
check(momentum)

# %% hidden="momentum" points=2
### BEGIN HIDDEN TESTS
points(momentum, 2)
### END HIDDEN TESTS

# %%
in_the_ravine(sgd=0.02, momentum=0.02)

# %% [markdown]
# ### Nesterov
#
# Momentum overshoots. Nesterov (1983) takes the gradient where the velocity is about to lead, not where $w$ is now.
# Keras keeps as its $w$ that point ahead. Then the gradient is taken at $w$ as usual, and the step becomes: update the
# velocity, then go one more β v, looking ahead from there.


# %% exercise="nesterov"
def nesterov(w, g, state, eta, beta=0.9):
    """One step of SGD with Nesterov's momentum: (new w, new state).

    v ← β v − η g,  w ← w + β v − η g, with the new v;  v starts at 0.
    The paper's form is u ← β u − η ∇L(θ + β u), θ ← θ + u: the same path, with w = θ + β u and v = u.
    """
    ### BEGIN SOLUTION
    v = beta * (0.0 if state is None else state) - eta * g
    return w + beta * v - eta * g, v
    ### END SOLUTION


# %%
check(nesterov)

# %% hidden="nesterov" points=2
### BEGIN HIDDEN TESTS
points(nesterov, 2)
### END HIDDEN TESTS

# %%
in_the_ravine(sgd=0.02, momentum=0.02, nesterov=0.02)

# %% [markdown]
# ### Adagrad
#
# One η for all weights is a compromise. Adagrad (Duchi, Hazan, Singer 2011) gives each weight its own: it sums up the
# weight's squared gradients in $G$ and divides by the root. Steep directions take smaller steps. As $G$ only grows,
# the steps get smaller and smaller.
#
# <details><summary>Hint</summary><code>np.full_like(w, 0.1)</code> is an array like w, filled with 0.1.
# Squares, roots and quotients are taken element by element.</details>


# %% exercise="adagrad"
def adagrad(w, g, state, eta, epsilon=1e-7):
    """One step of Adagrad: (new w, new state).

    G ← G + g²,  w ← w − η g / √(G + ε), each weight for itself;  G starts at 0.1.
    The paper starts at 0, where Keras has 0.1 (which tames the first steps); Ruder too has ε inside the root.
    """
    ### BEGIN SOLUTION
    total = np.full_like(w, 0.1) if state is None else state
    total = total + g**2
    return w - eta * g / np.sqrt(total + epsilon), total
    ### END SOLUTION


# %%
check(adagrad)

# %% hidden="adagrad" points=2
### BEGIN HIDDEN TESTS
points(adagrad, 2)
### END HIDDEN TESTS

# %%
in_the_ravine(sgd=0.02, adagrad=0.5)

# %% [markdown]
# ### RMSprop
#
# Adagrad never forgets and so comes to a halt. RMSprop (Hinton 2012, in a lecture) divides by the root of a running
# *mean* of the squares instead, which forgets the old ones.


# %% exercise="rmsprop"
def rmsprop(w, g, state, eta, rho=0.9, epsilon=1e-7):
    """One step of RMSprop: (new w, new state).

    v ← ρ v + (1 − ρ) g²,  w ← w − η g / √(v + ε);  v starts at 0.
    Keras has ε inside the root. Others put it outside; that matters where gradients are as small as √ε.
    """
    ### BEGIN SOLUTION
    mean = rho * (0.0 if state is None else state) + (1 - rho) * g**2
    return w - eta * g / np.sqrt(mean + epsilon), mean
    ### END SOLUTION


# %%
check(rmsprop)

# %% hidden="rmsprop" points=2
### BEGIN HIDDEN TESTS
points(rmsprop, 2)
### END HIDDEN TESTS

# %%
in_the_ravine(adagrad=0.5, rmsprop=0.05)

# %% [markdown]
# RMSprop does not come to rest: the mean forgets, so near the minimum it divides a small gradient by a small root,
# and the step stays about η long. It needs a decaying η.
#
# ### Adam
#
# Momentum and RMSprop together (Kingma, Ba 2015): a running mean $m$ of the gradients, a running mean $v$ of their
# squares. Both start at 0, so both are too small at first: after $t$ steps by the factors $1 - \beta_1^t$ and
# $1 - \beta_2^t$. Adam divides that out, the *bias correction*.
#
# <details><summary>Hint</summary>The state is three things: m, v and the number of steps so far. Pack them into a tuple
# when you return them, and unpack it in the next step; in the first step all three are 0.</details>


# %% exercise="adam"
def adam(w, g, state, eta, beta1=0.9, beta2=0.999, epsilon=1e-7):
    """One step of Adam: (new w, new state).

    t ← t + 1,  m ← β₁ m + (1 − β₁) g,  v ← β₂ v + (1 − β₂) g²,
    w ← w − α m / (√v + ε)  with  α = η √(1 − β₂ᵗ) / (1 − β₁ᵗ);  m, v and t start at 0.
    This is the paper's second form, before its section 2.1, and Keras's. Algorithm 1 corrects first and adds ε then,
    which makes ε larger by 1/√(1 − β₂ᵗ). The paper's ε is 1e-8, Keras's 1e-7.
    """
    ### BEGIN SOLUTION
    m, v, t = state or (0.0, 0.0, 0)
    t += 1
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    alpha = eta * np.sqrt(1 - beta2**t) / (1 - beta1**t)
    return w - alpha * m / (np.sqrt(v) + epsilon), (m, v, t)
    ### END SOLUTION


# %%
check(adam)

# %% hidden="adam" points=2
### BEGIN HIDDEN TESTS
points(adam, 2)
### END HIDDEN TESTS

# %%
in_the_ravine(momentum=0.02, rmsprop=0.05, adam=0.2)

# %% [markdown]
# ## The race
#
# Your six rules, on three surfaces: the ravine; the same ravine *turned* by 30°, so that it runs along no axis; and a
# *saddle*, $5 w_1^2 - \tfrac12 w_2^2 + \tfrac14 w_2^4$, that is a minimum along $w_1$ and a maximum along
# $w_2$. The start lies almost on the ridge, where the gradient points to the saddle and hardly anywhere else.
#
# To be fair, every rule tries the same eleven learning rates on each surface ($2^{-10} \dots 1$) and races with the
# one that takes it to a thousandth of the start's height, to stay there, in the fewest steps.
#
# ### Predict
#
# Which rule is first in the ravine, which in the turned ravine, which one leaves the saddle first, and which last?

# %% editable=true
my_winners = {"ravine": None, "turned ravine": None, "saddle": None}

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


def steps_needed(path, surface):
    """Steps until the loss stays below a thousandth of its height at the start; `steps` + 1 if it never does."""
    surface_loss, _, start, lowest_loss, _ = surfaces[surface]
    with np.errstate(all="ignore"):
        near = surface_loss(path.T) - lowest_loss <= 1e-3 * (surface_loss(start) - lowest_loss)
    return len(path) - int(np.argmin(near[::-1])) if not near.all() else 0


def final_loss(path, surface):
    with np.errstate(all="ignore"):
        return np.nan_to_num(surfaces[surface][0](path[-1]), nan=np.inf)


def racers(surface):
    """The path of each rule with its best learning rate: name → (η, path)."""
    _, slope, start, _, _ = surfaces[surface]
    best = {}
    for rule in (sgd, momentum, nesterov, adagrad, rmsprop, adam):
        tried = [(eta, walk(rule, slope, start, eta, steps)) for eta in 2.0 ** np.arange(-10, 1)]
        best[rule.__name__] = min(tried, key=lambda run: (steps_needed(run[1], surface), final_loss(run[1], surface)))
    return best


# %%
race = {surface: racers(surface) for surface in surfaces}


def draw_race(surface, frame):
    surface_loss, _, _, lowest_loss, scene = surfaces[surface]
    paths = {rule: path for rule, (_, path) in race[surface].items()}
    rates = ", ".join(f"{rule} {eta:g}" for rule, (eta, _) in race[surface].items())
    return stochastic.race(
        scene, paths, surface_loss, step=2 * frame, lowest=lowest_loss, caption=f"{surface} · η: {rates}"
    )


widgets.explore(
    draw_race,
    surface=widgets.choice("surface", list(surfaces)),
    frame=widgets.animation("frame (2 steps each)", steps // 2 + 1),
)


# %%
def race_table():
    """Steps that each rule needs on each surface, and its η."""
    rows = {}
    for surface in surfaces:
        for rule, (eta, path) in racers(surface).items():
            needed = steps_needed(path, surface)
            rows.setdefault(rule, {})[surface] = f"{needed}" if needed <= steps else f"more than {steps}"
            rows[rule][surface] += f"  (η = {eta:.3g})"
    return pd.DataFrame(rows).T


print(f"your guess: {my_winners}")
race_table()

# %% [markdown]
# - **SGD** is bound by the steepest direction: η must stay below $2/50$, and along the ravine that is little.
#   **Momentum** and above all **Nesterov** get there in about half the steps.
# - These three do not care about the turn: 97, 58 and 40 steps in both ravines. They add up gradients, and a sum of
#   vectors turns with its vectors.
# - **Adagrad** wins the straight ravine in a few steps and is the slowest but one in the turned one. A rate for each
#   weight is a cure for a ravine *along an axis*; turned, both weights see much the same steepness.
# - **RMSprop** is near quickly, but does not stay: its steps remain about η long. It would need a decaying η.
# - At the **saddle** the gradient along $w_2$ is tiny at first. SGD crawls for 60 steps. The rules that divide by the
#   size of past gradients take steps of their usual length and leave at once, though not all then settle as fast.
#
# So none of them is simply the best. What stands first depends on the surface, and on how fairly η was chosen: lab 3
# comes back to this with real networks.
#
# ## Which batch size gets there first?
#
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
# Write down a batch size for each panel: 1, 4, 16, 64, 256, 1,024 or 4,096 (all).

# %% editable=true
my_batch_sizes = {"steps": None, "examples": None, "seconds": None}


# %%
probe = x[:1024], y[:1024]  # the loss is measured on these


def to_target(target, batch_size, eta, seed, limit):
    """Steps and seconds until the loss is `target`; None when `limit` examples were not enough."""
    seconds, look, begun = 0.0, 1, time.perf_counter()
    for step, w in enumerate(descend(sgd, w_0, x, y, gradient, lambda _: eta, batch_size, seed), 1):
        if step < look:
            continue
        seconds += time.perf_counter() - begun
        reached = loss(w, *probe)
        if reached <= target:
            return step, seconds
        if step * batch_size >= limit or reached > 10:
            return None
        look, begun = max(step + 1, int(1.05 * step)), time.perf_counter()


def full_batch_loss(steps=500):
    """The loss after some steps of gradient descent with η = 1/λ, λ a bound on the curvature: the target."""
    curvature = np.linalg.eigvalsh(x.T @ x / len(x))[-1] / 2
    run = descend(sgd, w_0, x, y, gradient, lambda _: float(1 / curvature), len(x))
    return loss(next(itertools.islice(run, steps - 1, None)), *probe)


def compare_batch_sizes(target, sizes, line):
    """A row for each batch size and seed: steps, examples, seconds, and the η that was best."""
    rates, seeds, rows = [2.0**-k for k in range(-2, 8)], range(1, 6), []
    for m in sizes:
        line.at(len({row["batch_size"] for row in rows}) / len(sizes), f"batch size {m:,}")
        best, limit = None, min(500 * len(x), 16_000 * m)
        for eta in rates:
            if run := to_target(target, m, eta, 0, limit):
                best, limit = eta, run[0] * m
        for seed in seeds if best else ():
            if run := to_target(target, m, best, seed, 10 * limit):
                rows.append({"batch_size": m, "eta": best, "steps": run[0], "examples": run[0] * m, "seconds": run[1]})
    return pd.DataFrame(rows)


# %%
target = full_batch_loss()
sizes = [m for m in (1, 4, 16, 64, 256, 1024) if m < len(x)] + [len(x)]
with Filling("ten rates, then five seeds for each batch size") as line:
    runs = compare_batch_sizes(target, sizes, line)
winners = {what: int(runs.groupby("batch_size")[what].median().idxmin()) for what in ("steps", "examples", "seconds")}
print(f"your guess: {my_batch_sizes}; fewest: {winners}")
display(runs.groupby("batch_size").median().rename(columns={"eta": "best η"}).round(4))
stochastic.to_target(
    runs,
    guesses=my_batch_sizes,
    title=f"To a loss of {target:.3f}: median and range of five seeds; ring: the best; dotted: your guess",
    caption=plots.provenance(f"{fashion.name}, {len(x):,} images"),
)

# %% [markdown]
# Three panels, three winners.
#
# - **Steps** fall with $m$, at first in proportion: four times the batch, a quarter of the noise, a larger η, a quarter
#   of the steps. Then comes a floor: once the noise is small, curvature limits η, and a still better gradient is no
#   use.
# - **Examples** are steps times $m$: level as long as the steps fall in proportion, then rising. The smallest batch
#   wins, or ties with the next ones: no example's gradient is spent on averaging.
# - **Seconds** are examples times the time for an example, and that time is much shorter in a batch. So the winner lies
#   between: large enough to use the processor well, small enough to waste no examples. On the 2 cores that this was
#   written on it was m = 64, more than ten times as fast as 1 or as all 4,096.
#
# (Batches of all images do well with an η beyond the bound $2/\lambda$ that held at the start: the curvature of this
# loss falls as the model gets surer.)
#
# Now think of many GPUs. Shared out among enough of them, a step on 4,096 examples takes as long as one on 64, and the
# *left* panel decides. How far to the right the steps keep falling, and what can push the floor down, is what the
# rest of this course is about.
#
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
my_factors = {"8,192 → 4,096": None, "1,024 → 1,024": None}

# %%
layers = {"8,192 → 4,096": (8192, 4096), "1,024 → 1,024": (1024, 1024), "784 → 10": (784, 10)}
measured = []
for layer, shape in layers.items():
    for m in 2 ** np.arange(9):
        seconds = roofline.measure_dense(int(m), *shape)
        measured.append(
            {
                "layer": layer,
                "batch_size": int(m),
                "images_per_second": m / seconds,
                "intensity": roofline.dense_intensity(m, *shape),
                "flops": roofline.dense_flops(m, *shape) / seconds,
            }
        )
throughput = pd.DataFrame(measured)
rate = throughput.pivot(index="batch_size", columns="layer", values="images_per_second")
print(f"your guess: {my_factors}; measured: { {n: round(float(rate[n][256] / rate[n][1]), 1) for n in my_factors} }")
stochastic.roofline(throughput, peak, bandwidth, caption=plots.provenance("x @ w in float32, best of 3", ranks=1))

# %% [markdown]
# From left to right, the batch grows.
#
# - **On the slant.** The large layer with m = 1 does half a FLOP for each byte, and reaches what memory delivers. The
#   arithmetic units are idle nine tenths of the time.
# - **Above it.** The layer of 4 MiB stays in the cache between two calls, and a cache delivers faster than memory. The
#   slant is memory's roof; a cache has one of its own, further up.
# - **Below it.** Where this was written, two images took *longer* than one, each. For a single row NumPy calls GEMV,
#   which reads the weights where they are. From two on it calls GEMM, which first copies them into an order that suits
#   the processor. That copy pays off only for a larger batch. The roofline counts the least bytes possible; a real
#   kernel moves more.
# - **At the top.** From a batch of about 100 both are near the peak, and more examples bring nothing but waiting.
# - **784 → 10**, the layer that you trained above, never gets there. Its weights are small, so it is the images that
#   move, and a larger batch brings more of them: its intensity stops at 5 FLOP per byte. With few images the time is
#   mostly that of calling NumPy at all.
#
# The wider the gap between arithmetic and memory, the larger a batch must be. Tencent's talk on ImageNet in
# four minutes gives 12 TFLOP/s and 346 GB/s for a P40, 9.3 TFLOP/s and 732 GB/s for a P100. Peak and memory meet at 35
# and 13 FLOP per byte: batches of about 70 and 25 *on each GPU*, just to keep it busy.
#
# ## Summary
#
# - Mini-batches are drawn without replacement and reshuffled in each epoch. Their gradients have the variance σ²/m
#   times (N − m)/(N − 1).
# - With constant η, SGD dances in a ball around the minimum: mean squared distance ∝ η/m. Decay η, or grow m.
# - Momentum and Nesterov remember gradients, Adagrad and RMSprop their squares, Adam both. Rules that scale each weight
#   by itself depend on the axes; the others do not.
# - Larger batches need fewer steps, down to a floor, and more examples. Seconds lie between, because a batch turns GEMV
#   into GEMM: a weight that was fetched once is used m times.
#
# Papers:
#
# - S. Ruder: *An overview of gradient descent optimization algorithms.* arXiv:1609.04747
# - J. Duchi, E. Hazan, Y. Singer: *Adaptive subgradient methods for online learning and stochastic optimization.* JMLR
#   12 (2011)
# - I. Sutskever, J. Martens, G. Dahl, G. Hinton: *On the importance of initialization and momentum in deep learning.*
#   ICML 2013
# - D. Kingma, J. Ba: *Adam: a method for stochastic optimization.* arXiv:1412.6980
# - X. Jia et al.: *Highly scalable deep learning training system with mixed-precision: training ImageNet in four
#   minutes.* arXiv:1807.11205
# - Y. Li, A. Pedram: *CATERPILLAR: coarse grain reconfigurable architecture for accelerating the training of deep
#   neural networks.* arXiv:1706.00517
# - S. Williams, A. Waterman, D. Patterson: *Roofline: an insightful visual performance model for multicore
#   architectures.* CACM 52 (2009), doi:10.1145/1498765.1498785
