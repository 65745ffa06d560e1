# %% [markdown]
# # 1b Stochastic gradient descent
#
# Gradient descent looks at all examples before each step. Stochastic gradient descent (SGD) looks at a few, a
# *mini-batch*. Its steps are cheap and noisy. You will measure the noise, see what it does to a descent, and write the
# two update rules that the rest of the course uses: momentum and Adam.
#
# **You will be able to** draw mini-batches; predict the variance of their gradients; say how the learning rate η and
# the batch size m set the distance from the minimum; write momentum and Adam.
#
# **Time:** 55 minutes; the runs take about 15 seconds on 2 CPU cores.
#
# **Needs:** notebook 1a (gradient, learning rate, the bound $2/\lambda_{max}$) and NumPy.

# %%
import itertools
from functools import cache

import numpy as np
import pandas as pd

from course_lib import data
from course_lib.notebook import plots, predictions, widgets
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from labs.lab1_gradient_descent.lessons import figures_1b as stochastic
from labs.lab1_gradient_descent.lessons.checks_1b import check, points

fashion = data.load("fashion_mnist")
print(f"{fashion.name} (from: {fashion.source}): {len(fashion.x_train):,} training images")

# %% [markdown]
# ## The model
#
# A linear model with ten outputs. An image is a row $x$ of 784 pixels and a 1. The weights $w$ are a matrix [785, 10].
# Softmax turns the ten numbers $x w$ into probabilities $p$. For $m$ images at once, $x$ is [m, 785]:
#
# $$L(w) = -\frac{1}{m}\sum_{i=1}^{m} \log p_{i, y_i} \qquad
# \nabla L(w) = \frac{1}{m}\, x^\top (p - \text{one-hot}(y))$$
#
# This loss is convex: it has no local minima besides the global one.


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
# In an **epoch** each example is used once: shuffle the numbers of all examples, cut the shuffled list into batches,
# and shuffle again for the next epoch. This is drawing *without replacement*. The last batch may be smaller, as in
# Keras's `fit`. (With several ranks it is dropped: lab 2.)
#
# ### Exercise: mini-batches
#
# Write a function that returns the batches of one epoch.
#
# <details><summary>Hint</summary><code>np.random.default_rng([seed, epoch])</code> makes a random generator that
# depends on both numbers. It has a method <code>permutation</code>. A slice that goes beyond the end of an array
# ends at the end of the array.</details>


# %% exercise="minibatches"
def minibatches(examples, batch_size, epoch, seed=0):
    """The mini-batches of one epoch: a list of integer arrays, the numbers of the examples in each batch.

    examples: how many there are, numbered from 0; epoch: 0, 1, …; seed: another one for another run.
    Each example is in exactly one batch; every batch has `batch_size` of them, only the last may have fewer.
    The same seed and epoch give the same batches. Any other pair of seed and epoch gives others.
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
# What you should see: every square is filled, the three epochs differ, and the last batch has three examples.

# %%
stochastic.batches(minibatches, examples=27, batch_size=6, epochs=3)

# %% [markdown]
# ## How noisy is a mini-batch?
#
# A mini-batch's gradient is the mean of the gradients $g_i$ of its $m$ examples. If these are drawn independently, its
# variance is
#
# $$\text{Var}\Big(\frac{1}{m}\sum_{i=1}^{m} g_i\Big) = \frac{1}{m^2}\, m\, \text{Var}(g_1) = \frac{\sigma^2}{m},
# \qquad \sigma^2 = \mathbf{E}\,\|g_i - \nabla L\|^2 .$$
#
# (Variance means the sum over all 7,850 components.) Its root is the typical error.
#
# ### Predict
#
# You draw *without* replacement. Take a batch of half of all examples. How large is its typical error, compared with
# what this law says? (1: equal, 0: no error.)

# %% editable=true
predict("half of all examples: typical error, compared with the law", None)


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
half = np.mean([row[list(few_images["sizes"]).index(few // 2)] for row in few_images["measured"]])
measured(
    "half of all examples: typical error, compared with the law",
    np.sqrt(half / (few_images["one"] / (few // 2))),
    "No example is drawn twice. This halves the variance, and the error is its root.",
)
everything = measured_variance(x_few, y_few, w_0, gradient(w_0, x_few, y_few), few, seed=0, draws=1)
print(f"variance of a batch of all {few:,} examples: {everything:.1e}")
stochastic.variance([all_images, few_images], caption=plots.provenance(fashion.name))

# %% [markdown]
# The slope on the left is −1: **four times the batch, a quarter of the variance, half the error.** All rules for large
# batches in lab 3 rest on this law.
#
# Without replacement, the variance out of $N$ examples has another factor, the *finite population correction*:
#
# $$\text{Var} = \frac{\sigma^2}{m} \cdot \frac{N - m}{N - 1} .$$
#
# On the right, the dots follow it as $m$ comes near $N$: a batch of all examples *is* the gradient. With a usual batch,
# $m/N$ is below a hundredth, and the correction does not matter.
#
# ### Exercise: one epoch of SGD
#
# For each mini-batch, take the gradient *at the present weights*, and step against it.
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
# Five epochs with each of four batch sizes, all with the same η and the same number of gradients.


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
# The small batch wins by far: in an epoch it takes thousands of steps, the full batch ($m = N$, gradient descent) only
# one. But this is not fair: a large batch has less noise and tolerates a larger η. Notebook 1f tunes η for each.
#
# ## The noise ball
#
# At the minimum the gradient of *all* examples is 0, but that of a batch is not. So with constant η, SGD does not come
# to rest: the weights keep moving around the minimum, in a ball.
#
# How large is it? Take the line of 1a, $y = w x + b$ with noise of variance $s^2$ in $y$, and *half* the mean squared
# error as its loss, so that the gradient is $x\,(w x + b - y)$. Near the minimum, along a direction of curvature λ, a
# step reduces the squared distance by the share $2\eta\lambda$, and the noise adds $\eta^2 \sigma_\lambda^2 / m$. Here
# $\sigma_\lambda^2$ is the variance of one example's gradient along that direction. For this model it is $s^2 \lambda$.
# Both balance at a squared distance of $\eta s^2 / (2m)$ along each direction. For two directions together:
#
# $$\mathbf{E}\,\|w - w^*\|^2 \approx 2 \cdot \frac{\eta\, s^2}{2 m} = s^2\, \frac{\eta}{m}$$
#
# **Only η/m counts**: half the learning rate calms SGD as much as twice the batch. To test it, here is the loop of your
# `sgd_epoch` for any update rule and a changing η.


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
# With m = 64 and η = 1/64, how large is the measured squared distance, compared with $s^2 \eta/m$? (1: equal.) Think of
# how the batches are drawn.

# %% editable=true
predict("m = 64, η = 1/64: squared distance, compared with the formula", None)

# %% [markdown]
# Move the sliders. The orange circle has the radius that the formula predicts for constant η. Then let η decay, as
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
(small,) = [row["squared_distance"] for row in rows if row["eta"] == 1 / 64 and row["batch_size"] == 64]
measured(
    "m = 64, η = 1/64: squared distance, compared with the formula",
    small / (1 / 64 / 64),
    "The formula assumes independent batches. Those of one epoch are not: together they are all examples.",
)
stochastic.ball_sizes(pd.DataFrame(rows), line=1.0, caption="y = w x + b, 4,096 examples, 4,096 steps, one seed")

# %% [markdown]
# Runs with the same η/m have balls of about the same size, except two groups:
#
# - *Large batches with a small η are below the line.* The batches of an epoch are not independent: together they are
#   all examples. With m = 64 an epoch has only 64 steps, in which a small η hardly moves the weights, so the errors of
#   its batches cancel. Shuffling makes the ball smaller.
# - *m = 1 with a large η is above it*: the formula holds for $\eta \lambda \ll 1$.
#
# With a decaying η, SGD takes large steps at first, and its ball shrinks later. Or η stays and m grows: by the same
# law, this calms the noise, too (lab 3).
#
# ### Noise leaves a saddle
#
# Noise also helps. The loss $5 w_1^2 - \tfrac12 w_2^2 + \tfrac14 w_2^4$ has a *saddle* at 0: a minimum along $w_1$ and
# a maximum along $w_2$. Gradient descent that starts on the ridge, at $w_2 = 0$, ends in the saddle. SGD leaves it.
#
# ### Predict
#
# SGD with η = 0.1 starts on the ridge. Each gradient has noise of standard deviation $1/\sqrt{m}$. With m = 1 it needs
# $T$ steps to leave ($|w_2| > 0.5$). How many times $T$ does it need with m = 256?

# %% editable=true
predict("leaving the ridge: steps with m = 256, compared with m = 1", None)


# %%
def steps_off_the_ridge(m, eta=0.1, runs=500, most=400):
    """Steps until |w₂| > 0.5, the median of so many runs; infinite where half of them never leave."""
    noise = np.random.default_rng(0)
    w, left = np.tile([[-0.6], [0.0]], runs), np.full(runs, np.inf)
    for step in range(1, most + 1):
        slope = np.array([10 * w[0], w[1] ** 3 - w[1]])
        w = w - eta * (slope + noise.normal(0, 1 / np.sqrt(m), w.shape))
        left = np.where(np.isinf(left) & (np.abs(w[1]) > 0.5), step, left)
    return np.median(left)


off = pd.Series({"m = 1": 1, "m = 16": 16, "m = 256": 256, "m = 4,096": 4096, "no noise": np.inf}).map(
    steps_off_the_ridge
)
measured(
    "leaving the ridge: steps with m = 256, compared with m = 1",
    off["m = 256"] / off["m = 1"],
    "The noise is 16 times smaller. But the distance from the ridge grows by the factor 1 + η in each step, and "
    "ln 16 / ln 1.1 = 29 steps make up for it.",
)
off.to_frame("steps to leave").T

# %% [markdown]
# Sixteen times the batch costs about 15 steps more, at any size: the distance from the ridge grows exponentially, so
# only the logarithm of the noise counts. Saddles delay a noisy descent only a little.
#
# ## Momentum
#
# Plain SGD forgets each gradient. Other rules keep a *state*. All have the form of `sgd` above:
#
#     w, state = rule(w, g, state, eta)
#
# Before the first step `state` is `None`; afterwards it is what the rule returned before. A rule changes none of its
# arguments and stores nothing elsewhere, so two networks can use it at the same time.
#
# Each check runs your rule for 50 steps beside Keras's own optimizer, with a constant and with a falling η. The first
# check loads TensorFlow, which takes some seconds.
#
# The figures show each rule in a *ravine*, fifty times as steep across as along:


# %%
def ravine(w):
    """½ (w₁² + 50 w₂²), for weights [2] or [2, …]."""
    return 0.5 * (w[0] ** 2 + 50 * w[1] ** 2)


ravine_ground = stochastic.ground(ravine, (-2.3, 1.4), (-0.45, 0.45))


def in_the_ravine(steps=80, **rates):
    """Paths of rules by name, each with its learning rate."""
    paths = {}
    for name, eta in rates.items():
        path, state = [np.array([-2.0, 0.3])], None
        for _ in range(steps):
            g = np.array([path[-1][0], 50 * path[-1][1]])
            w, state = globals()[name](path[-1], g, state, eta)
            path.append(w)
        paths[f"{name}, η = {eta:g}"] = np.array(path)
    return stochastic.path(ravine_ground, paths, ravine)


# %% [markdown]
# ### Exercise: momentum
#
# A velocity collects the steps of plain SGD. In each step it keeps the share β of what it had, like a ball that rolls
# with friction. Across the ravine the gradients alternate and cancel. Along it they agree and add up, to
# $1/(1-\beta)$ times the step (Polyak 1964; Sutskever et al. 2013).
#
# There are two ways to write it. PyTorch's velocity collects gradients, and the whole velocity is multiplied by η when
# $w$ moves. Keras's velocity collects *steps*, η included: if η changes, what it has collected stays as it is. Write
# Keras's.
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
# SGD jumps from wall to wall, because η is between $1/50$ and $2/50$. Momentum with the same η swings wider, and gets
# further along the floor.
#
# ### Predict
#
# On a slope that is the same everywhere, η is divided by ten after twenty steps. Divide the length of Keras's next step
# by the length of PyTorch's: what is the ratio?

# %% editable=true
predict("after η has fallen: Keras's step, compared with PyTorch's", None)


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


measured(
    "after η has fallen: Keras's step, compared with PyTorch's",
    step_after_the_fall(momentum) / step_after_the_fall(as_in_pytorch),
    "PyTorch multiplies its whole velocity by the new η. In Keras's velocity all steps but the newest still have the "
    "old one.",
)

# %% [markdown]
# So with a falling η the same settings are not the same training. With a rising one, in a warm-up, PyTorch's step is
# the longer one (lab 3).

# %% [markdown] tags=["further"]
# ## Adam

# %% [markdown]
# One η for all weights is a compromise: steep directions need a smaller one. Adam (Kingma, Ba 2015) divides each
# weight's step by the size of its gradients. It keeps two running means: $m$ of the gradients (here $m$ is no batch
# size) and $v$ of their squares. The old mean has the weight $\beta_1$ in $m$ and $\beta_2$ in $v$.
#
# ### Exercise: Adam
#
# Both means start at 0, so both are too small at first. By which factor, after $t$ steps? Imagine that the gradient is
# the same in every step, and add up. Adam divides by the two factors (the *bias correction*), and gets $\hat m$ and
# $\hat v$.
#
# <details><summary>Hint</summary>The newest gradient has the weight 1 − β in the mean, the one before β (1 − β), and
# so on: a geometric sum. The state is three things: pack them into a tuple, and unpack it in the next step.</details>


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
in_the_ravine(sgd=0.037, momentum=0.02, adam=0.2)

# %% [markdown]
# Each rule has an η that suits it. In its first step Adam moves every weight by η, whether its gradient is large or
# small. (ε stands beside $\sqrt{\hat v}$ in the paper's Algorithm 1, but beside $\sqrt v$ in Keras. This matters only
# for gradients as small as ε.)

# %% [markdown]
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - Mini-batches are drawn without replacement and shuffled again in each epoch. Their gradients have the variance σ²/m
#   times (N − m)/(N − 1).
# - With constant η, SGD keeps moving in a ball around the minimum, at a mean squared distance proportional to η/m. To
#   make it smaller, let η decay or m grow.
# - Noise takes SGD off a saddle, even with large batches.
# - Momentum remembers steps. Adam remembers gradients and their squares, and scales each weight's step.
#
# Next: 1c trains a network with these tools. 1f asks which update rule and which batch size reach a target first.
#
# Papers:
#
# - B. Polyak: *Some methods of speeding up the convergence of iteration methods.* USSR Computational Mathematics and
#   Mathematical Physics 4 (1964)
# - I. Sutskever, J. Martens, G. Dahl, G. Hinton: *On the importance of initialization and momentum in deep learning.*
#   ICML 2013
# - D. Kingma, J. Ba: *Adam: a method for stochastic optimization.* arXiv:1412.6980
# - X. Jia et al.: *Highly scalable deep learning training system with mixed-precision: training ImageNet in four
#   minutes.* arXiv:1807.11205
