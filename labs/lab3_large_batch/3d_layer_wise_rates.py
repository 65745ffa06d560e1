# %% [markdown]
# # 3d Layer-wise rates
#
# With a large batch there are few updates, so the learning rate has to be large. The layer that tolerates the smallest
# rate limits all the others. LARS gives each layer its own rate. With LARS You, Gitman and Ginsburg trained ResNet-50
# with batches of 32K images, and Tencent with 64K.
#
# **You will be able to** derive the rate of LARS; write LARS, LARC and LAMB from a description; find the mistakes in a
# colleague's NovoGrad; say which changes of scale each rule responds to, and where the norms are computed when many
# ranks train.
#
# **Time:** 80 minutes; the runs take about 30 seconds on 2 CPU cores; on GPUs they are not yet measured.
#
# **Needs:** momentum and Adam from 1b, the all-reduce from 2a, warm-up from 3b.

# %%
from functools import cache

import numpy as np
import pandas as pd
from tensorflow import keras

from course_lib import optimizers
from course_lib.notebook import plots, predictions, widgets
from course_lib.notebook.plots import descent_paths as stochastic
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from course_lib.ranks import launch
from labs.lab3_large_batch.lessons import figures_3d as layerwise
from labs.lab3_large_batch.lessons import short_runs as trial
from labs.lab3_large_batch.lessons.checks_3d import check, points

problem = trial.fashion()
EXAMPLES = len(problem.train.labels)
BATCH = EXAMPLES // 10  # ten updates an epoch
KERNELS = {"conv 1": 0, "conv 2": 3, "conv 3": 6, "dense": 9}  # among the model's 11 trainable variables
print(f"{problem.name}: {EXAMPLES:,} images to train on, a large batch is {BATCH:,} of them")

# %% [markdown]
# ## The rate that a layer tolerates
#
# A step of plain gradient descent changes a layer, relative to the size of its weights, by
#
# $$\frac{\|\Delta w\|}{\|w\|} = \eta\, \frac{\|\nabla L\|}{\|w\|} .$$
#
# The gradient describes the loss only near $w$. A step that changes a large part of a layer leads too far away. So
# $\|w\|/\|\nabla L\|$ shows which η a layer tolerates, up to a factor.
#
# In LARS this factor is the *trust coefficient* τ: the largest relative change of a layer in one step. (The papers
# call it η, which is always the learning rate in this course.) The step of a layer is
#
# $$\Delta w = -\lambda\, (\nabla L + b\, w)$$
#
# with weight decay $b$ and the layer's **local rate** λ; $w$ and $\nabla L$ are those of *this layer* alone.
#
# ### Exercise: the local rate
#
# What is the largest λ for which $\|\Delta w\| \le \tau \|w\|$ holds *for every angle* between gradient and weights?
# The answer depends only on their lengths.
#
# <details><summary>Hint</summary>How long can a sum of two vectors be, if only their lengths are known? For an array
# of any shape, <code>np.linalg.norm(x)</code> without further arguments is the root of the sum of all
# squares.</details>


# %% exercise="local_rate"
def local_rate(w, g, tau=0.001, b=0.0):
    """The local rate λ of one layer, a number.

    w, g: the layer's weights and gradient, arrays of one shape (a convolution's has four axes); tau: trust
    coefficient τ, the largest relative change of the layer; b: weight decay.
    If no largest λ exists, or if it would be 0, λ is 1. Otherwise a layer of zeros would remain zero.
    """
    ### BEGIN SOLUTION
    above = tau * np.linalg.norm(w)
    below = np.linalg.norm(g) + b * np.linalg.norm(w)
    return above / below if above > 0 and below > 0 else 1.0
    ### END SOLUTION


# %%
check(local_rate)

# %% hidden="local_rate" points=2
### BEGIN HIDDEN TESTS
points(local_rate, 2)
### END HIDDEN TESTS

# %% [markdown]
# So the denominator of λ is the sum of the norms.
#
# Now measure $\|w\|/\|\nabla L\|$ (λ with τ = 1 and no decay) for the course's quick network, three convolutions with
# batch norm and a dense layer, at the first weights and after some epochs of SGD with momentum.
#
# ### Predict
#
# At the first weights, with the large batch: which layer tolerates the smallest rate? After some epochs: are the
# ratios with small batches larger or smaller?

# %% editable=true
predict("smallest ratio at the first weights: conv 1, conv 2, conv 3 or dense", None)
predict("later, ratios with small batches: larger or smaller", None)

# %%
SIZES = [size for size in (32, 128, 1_280) if size <= EXAMPLES // 2]


def ratios(run, draws=5):
    """‖w‖/‖∇L‖ of the four kernels: batch size → [draws, 4]."""
    weights = [variable.numpy() for variable in run.model.trainable_variables]

    def drawn(size):
        gradients = run.gradient(size)
        return [local_rate(weights[k], gradients[k], 1.0) for k in KERNELS.values()]

    return {size: np.array([drawn(size) for _ in range(draws)]) for size in SIZES}


def measure():
    """The ratios at the first weights and after four epochs."""
    sgd = keras.optimizers.SGD(0.1, momentum=0.9)
    run = trial.Run(problem.model(seed=0), sgd, problem.train, seed=0)
    found = {"first weights": ratios(run)}
    run.train(4 * EXAMPLES // BATCH, BATCH)
    found[f"after {run.updates} updates"] = ratios(run)
    return found


def show_ratios():
    found = measure()
    medians = np.median(found["first weights"][SIZES[-1]], axis=0)
    measured(
        "smallest ratio at the first weights: conv 1, conv 2, conv 3 or dense",
        list(KERNELS)[medians.argmin()],
        "The ratio is not a matter of depth alone: weights and gradients differ from layer to layer.",
    )
    ratio_of = ", ".join(f"{name} {value:.2g}" for name, value in zip(KERNELS, medians))
    print(f"first weights, B = {SIZES[-1]:,}: {ratio_of}; largest over smallest: {medians.max() / medians.min():.1f}")
    later = np.median(list(found.values())[1][SIZES[-1]], axis=0)
    noisy = np.median(list(found.values())[1][SIZES[0]], axis=0)
    measured(
        "later, ratios with small batches: larger or smaller",
        "smaller" if np.median(noisy / later) < 1 else "larger",
        "The gradient of a small batch has more noise, and the noise makes it longer.",
    )
    print(f"later, B = {SIZES[-1]:,} to B = {SIZES[0]}: {(later / noisy).round(1)}; √ of the batches' ratio: ", end="")
    print(f"{np.sqrt(SIZES[-1] / SIZES[0]):.1f}")
    caption = plots.provenance(f"{problem.name}, five batches each, one seed")
    return layerwise.ratios(found, list(KERNELS), spread=0.16, caption=caption)


show_ratios()

# %% [markdown]
# With Fashion-MNIST:
#
# - **The layers differ** (above the figure, line *first weights*). The first convolution tolerates the smallest rate.
# - **The ratios grow during training**, because the gradients become small. A constant η is too large at the start or
#   too small later; a rate proportional to $\|w\|/\|\nabla L\|$ starts small by itself, like a warm-up.
# - **They depend on the batch.** The gradient of a batch is $\nabla L$ plus noise, which makes it longer:
#   $\mathbf{E}\,\|g\|^2 = \|\nabla L\|^2 + \sigma^2 / B$. At the start the noise hardly matters. Later it does, and
#   the ratio grows with the batch. With noise alone it would grow with the root of $B$ (line *later*). So LARS
#   includes a part of the square-root rule of 3b.
#
# ## Why divide by the norm of the gradient?
#
# If a layer moves by $\Delta w$, the loss changes to first order by $\nabla L \cdot \Delta w$. Which step with
# $\|\Delta w\| \le \tau \|w\|$ lowers it most? By the Cauchy–Schwarz inequality
#
# $$-\nabla L \cdot \Delta w \;\le\; \|\nabla L\|\, \|\Delta w\| \;\le\; \tau\, \|w\|\, \|\nabla L\| ,$$
#
# with equality for
#
# $$\Delta w = -\,\tau\, \frac{\|w\|}{\|\nabla L\|}\, \nabla L .$$
#
# This is LARS without decay.
#
# `conv 2` is followed by a batch norm, which removes any constant factor of the weights. If all weights of `conv 2`
# are multiplied by $k$, the network computes the same function, and the gradient is divided by $k$. What does a step
# then change?


# %%
def first_step(factor, eta=0.1, tau=0.01):
    """The first step of conv 2 if its weights were `factor` times as large."""
    model = problem.model(seed=0)
    kernel = model.trainable_variables[KERNELS["conv 2"]]
    kernel.assign(factor * kernel)
    images = problem.train.images[:256].astype(np.float32)
    run = trial.Run(model, keras.optimizers.SGD(), problem.train, seed=0)
    w, g = kernel.numpy(), run.gradient(BATCH)[KERNELS["conv 2"]]
    length = np.linalg.norm(g)
    return model(images, training=True).numpy(), {
        "‖w‖": np.linalg.norm(w),
        "‖∇L‖": length,
        "SGD: ‖Δw‖/‖w‖": eta * length / np.linalg.norm(w),
        "LARS: ‖Δw‖/‖w‖": local_rate(w, g, tau) * length / np.linalg.norm(w),
    }


def rescaled():
    answers = {factor: first_step(factor) for factor in (1, 10, 100)}
    same = answers[1][0]
    rows = {
        f"{factor} w": {"probabilities differ by": np.abs(outputs - same).max(), **row}
        for factor, (outputs, row) in answers.items()
    }
    return pd.DataFrame(rows).T.map("{:.2g}".format)


rescaled()

# %% [markdown]
# The network computes the same function (the differences come from the small constant in batch norm's root). But with
# ten times the weights, the step of SGD is 100 times smaller relative to them. That of LARS stays the same. It also
# stays the same if the loss is multiplied by 1,024, as in mixed precision: with $b = 0$ the size of the gradient
# cancels.
#
# ## LARS
#
# Momentum (1b) collects gradients in a velocity: first $v \leftarrow \beta v + \nabla L$, then $w \leftarrow w - \eta
# v$. In LARS the velocity collects complete steps of the layer, including decay, local rate and learning rate: $\eta$
# times the step above.
#
# Biases and the two vectors of a batch norm are *skipped*: they get neither λ nor decay. Biases and shifts begin at 0,
# and a rate proportional to ‖w‖ would keep them there.
#
# The rules have the form `w, state = rule(w, g, state, eta)`, as in 1b. Each layer has its own state, which is `None`
# before the first step. A rule must not change its arguments.
#
# ### Exercise: LARS
#
# <details><summary>Hint</summary>First choose λ and decay for this layer. What does one step add to the velocity, how
# much of the old velocity is kept, and by how much do the weights move?</details>


# %% exercise="lars"
def lars(w, g, state, eta, tau=0.001, b=0.0, beta=0.9, skip=False):
    """One step of LARS for one layer: (new w, new state).

    w, g: weights and gradient, arrays of one shape; eta: learning rate η > 0; tau: trust coefficient τ; b: weight
    decay; beta: momentum β, the part of the velocity that is kept. The velocity starts at 0.
    skip: for biases and batch norm; a layer that gets neither λ nor decay.
    """
    ### BEGIN SOLUTION
    lam, b = (1.0, 0.0) if skip else (local_rate(w, g, tau, b), b)
    v = beta * (0.0 if state is None else state) + eta * lam * (g + b * w)
    return w - v, v
    ### END SOLUTION


# %%
check(lars)

# %% hidden="lars" points=3
### BEGIN HIDDEN TESTS
points(lars, 3)
### END HIDDEN TESTS

# %% [markdown]
# $$v \leftarrow \beta v + \eta \lambda\, (\nabla L + b\, w), \qquad w \leftarrow w - v$$
#
# A loss with two layers of *one weight each* shows what the rules do. The second layer is fifty times as steep:
# $L = \tfrac12 (w_1 - 1)^2 + \tfrac{50}{2} (w_2 - 1)^2$, without momentum.


# %%
def valley(w):
    """The loss, for weights [2] or [2, …]."""
    return 0.5 * (w[0] - 1) ** 2 + 25 * (w[1] - 1) ** 2


def sgd(w, g, state, eta):
    return w - eta * g, state


ground = stochastic.ground(valley, (0.4, 3.4), (0.6, 2.4))


def walk(rule, eta, steps=80, **settings):
    """The two weights at the start and after each step [steps + 1, 2], each as a layer of its own."""
    layers, states, path = [np.array([3.0]), np.array([2.0])], [None, None], [[3.0, 2.0]]
    for _ in range(steps):
        slopes = [layers[0] - 1, 50 * (layers[1] - 1)]
        for k in (0, 1):
            layers[k], states[k] = rule(layers[k], slopes[k], states[k], eta, **settings)
        path.append([layers[0][0], layers[1][0]])
    return np.array(path)


def in_the_valley(**paths):
    """Draw the paths of walks by name."""
    return stochastic.path(ground, paths, valley)


in_the_valley(**{"LARS, ητ = 0.03": walk(lars, 3, tau=0.01, beta=0), "SGD, η = 0.02": walk(sgd, 0.02)})

# %% [markdown]
# SGD reaches the minimum of the steep layer in one step, and moves slowly in the flat one. LARS changes both by 3 % in
# each step until a layer reaches its minimum. There it jumps from one side to the other, because its steps do not
# become shorter with the gradient. **LARS needs a learning rate that decays.**
#
# With the usual τ = 0.001 learning rates are large, 10 or 30, because only the product ητ counts. But the skipped
# vectors get the same η without a λ. So τ is larger in this notebook.

# %% [markdown] tags=["further"]
# ## LARC

# %% [markdown]
# LARC (NVIDIA's apex) clips the local rate: no layer gets more than η. The optimizer stays as it is: SGD with momentum
# and η *outside* the velocity, $w \leftarrow w - \eta v$, as in 1b. LARC changes only the gradient that it gives to
# this optimizer (decay included), so that the layer moves with λ instead of η.
#
# ### Exercise: LARC
#
# <details><summary>Hint</summary>It differs from your <code>lars</code> in three places: the smaller of two rates,
# what the velocity collects, and how far the weights move.</details>


# %% exercise="larc"
def larc(w, g, state, eta, tau=0.001, b=0.0, beta=0.9, skip=False):
    """One step of LARC for one layer: (new w, new state). The arguments are those of `lars`.

    skip: for biases and batch norm; the plain step of SGD with momentum, without decay.
    """
    ### BEGIN SOLUTION
    lam, b = (eta, 0.0) if skip else (min(eta, local_rate(w, g, tau, b)), b)
    v = beta * (0.0 if state is None else state) + lam / eta * (g + b * w)
    return w - eta * v, v
    ### END SOLUTION


# %%
check(larc)

# %% hidden="larc" points=3
### BEGIN HIDDEN TESTS
points(larc, 3)
### END HIDDEN TESTS

# %%
in_the_valley(
    **{
        "LARS, ητ = 0.03": walk(lars, 3, tau=0.01, beta=0),
        "LARC, η = 0.02, τ = 0.03": walk(larc, 0.02, tau=0.03, beta=0),
    }
)

# %% [markdown]
# $$\lambda = \min\Big(\eta,\ \tau\, \frac{\|w\|}{\|\nabla L\| + b\, \|w\|}\Big), \qquad
# v \leftarrow \beta v + \frac{\lambda}{\eta}\, (\nabla L + b\, w), \qquad w \leftarrow w - \eta v$$
#
# In the steep layer LARC takes the 3 % of LARS until the gradient is small. Then λ is clipped, and the weight
# converges. The flat layer is clipped from the start and moves as with SGD. But now there are two numbers to tune, η
# and τ.

# %% [markdown] tags=["further"]
# ## LAMB

# %% [markdown]
# LAMB applies the same idea to Adam (You et al. 2020), with two differences. The direction is Adam's, bias correction
# included; the decay is added *after* all averages: call the result $u$. There is no trust coefficient: η is exactly
# the relative change of a layer in a step. As in 1b, ε is added to the root of $\hat v$.
#
# ### Exercise: LAMB
#
# <details><summary>Hint</summary>Begin as in your <code>adam</code> of 1b. Your <code>local_rate</code> already
# handles zero norms, if you give it the right arguments.</details>


# %% exercise="lamb"
def lamb(w, g, state, eta, b=0.0, beta1=0.9, beta2=0.999, epsilon=1e-6, skip=False):
    """One step of LAMB for one layer: (new w, new state).

    eta: the relative change of the layer; beta1, beta2: how much the means of g and of g² keep. They start at 0.
    If a norm is 0, the step is η u. skip: for biases and batch norm; Adam's step without decay.
    """
    ### BEGIN SOLUTION
    m, v, t = state or (0.0, 0.0, 0)
    t += 1
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * g**2
    u = m / (1 - beta1**t) / (np.sqrt(v / (1 - beta2**t)) + epsilon)
    if skip:
        return w - eta * u, (m, v, t)
    u = u + b * w
    return w - eta * local_rate(w, u, 1.0) * u, (m, v, t)
    ### END SOLUTION


# %%
check(lamb)

# %% hidden="lamb" points=3
### BEGIN HIDDEN TESTS
points(lamb, 3)
### END HIDDEN TESTS

# %%
in_the_valley(
    **{"LARS, ητ = 0.03": walk(lars, 3, tau=0.01, beta=0), "LAMB, η = 0.03": walk(lamb, 0.03, beta1=0, beta2=0)}
)

# %% [markdown]
# $$u = \frac{\hat m}{\sqrt{\hat v} + \varepsilon} + b\, w, \qquad
# w \leftarrow w - \eta\, \frac{\|w\|}{\|u\|}\, u$$
#
# Without averages (β₁ = β₂ = 0) and with one weight a layer, $u$ is the sign of the gradient, and LAMB equals LARS.
# With many weights it does not: Adam equalises the weights *within* a layer, then the ratio equalises the layers.

# %% [markdown] tags=["further"]
# ## NovoGrad

# %% [markdown]
# NovoGrad (Ginsburg et al. 2019) uses the norm of the gradient, but not that of the weights. It divides each layer's
# gradient by *one* number, the root of a running mean of its squared norms, and momentum collects the normalised
# gradients. The paper claims half of Adam's memory, no need for a bias correction, and a decay that does not depend on
# the size of the gradient.
#
# ### Exercise: repair
#
# A colleague's version trains, but none of the three claims holds for it:


# %%
def colleagues_novograd(weights, gradient, memory, rate, decay=0.0, beta_m=0.95, beta_v=0.98, epsilon=1e-8):
    """What the colleague calls NovoGrad."""
    moment, second = (np.zeros_like(weights), np.zeros_like(weights)) if memory is None else memory
    second = beta_v * second + (1 - beta_v) * gradient**2
    moment = beta_m * moment + (gradient + decay * weights) / (np.sqrt(second) + epsilon)
    return weights - rate * moment, (moment, second)


def first_steps(rule, scale):
    """Of a layer of 100 weights: the length of the first step, and how many numbers the state holds."""
    w, g = np.ones(100), scale * np.random.default_rng(0).normal(size=100)
    new, state = rule(w, g, None, 1.0)
    decayed = rule(w, g, None, 1.0, 0.1)[0]
    return {
        "numbers kept": sum(np.size(part) for part in state),
        "length of the first step": np.linalg.norm(new - w),
        "what decay 0.1 adds to it": np.linalg.norm(decayed - new),
    }


pd.DataFrame({f"‖∇L‖ ≈ {10 * scale:g}": first_steps(colleagues_novograd, scale) for scale in (0.1, 1, 10)}).round(3)

# %% [markdown]
# Write a version for which the claims hold. The first step then has the length η for every gradient.
#
# <details><summary>Hint</summary>There are three mistakes. Two are in the line of <code>second</code> or in its initial
# value, one is in the line of <code>moment</code>. If a mean begins with its first value, it needs no
# correction.</details>


# %% exercise="novograd"
def novograd(w, g, state, eta, b=0.0, beta1=0.95, beta2=0.98, epsilon=1e-8):
    """One step of NovoGrad for one layer: (new w, new state).

    b: weight decay; beta1: what momentum keeps; beta2: what the mean of the squared norms keeps. The paper's rule skips
    no layers.
    """
    ### BEGIN SOLUTION
    squares = np.sum(g**2)
    M, v = (0.0, squares) if state is None else state
    v = beta2 * v + (1 - beta2) * squares
    M = beta1 * M + g / (np.sqrt(v) + epsilon) + b * w
    return w - eta * M, (M, v)
    ### END SOLUTION


# %%
check(novograd)

# %% hidden="novograd" points=3
### BEGIN HIDDEN TESTS
points(novograd, 3)
### END HIDDEN TESTS

# %%
in_the_valley(
    **{
        "LARS, ητ = 0.03": walk(lars, 3, tau=0.01, beta=0),
        "NovoGrad, η = 0.03": walk(novograd, 0.03, beta1=0),
    }
)

# %% [markdown]
# $$v_1 = \|\nabla L\|^2, \quad v \leftarrow \beta_2 v + (1 - \beta_2) \|\nabla L\|^2, \qquad
# M \leftarrow \beta_1 M + \frac{\nabla L}{\sqrt v + \varepsilon} + b\, w, \qquad w \leftarrow w - \eta M$$
#
# The first step has the length η in both layers, because the norm of the weights is not used. Then the steps become
# shorter: $v$ still contains the large gradients of the start (β₂ = 0.98 averages over about 50 steps).

# %% [markdown] tags=["further"]
# ## What does a rule respond to?

# %% [markdown]
# Two changes of scale: *the loss is ten times as large*, for example because the gradients of ten ranks are added and
# not averaged; *the weights are ten times as large*, in a layer followed by a batch norm, so its gradient is a tenth.
#
# ### Exercise: invariances
#
# Without decay, in the first step: by which factor does $\|\Delta w\|/\|w\|$ change with each rule, in each of the two
# cases? Derive it from the rules; the cell after the check measures it.
#
# <details><summary>Hint</summary>How does the length of Δw depend on the size of the gradient, and how on the size of
# the weights? Adam's first step is η in each weight. For LARC take the case in which λ is not clipped.</details>


# %% exercise="invariances"
def invariances():
    """Rule → (factor with ten times the loss, factor with ten times the weights), of ‖Δw‖/‖w‖ in the first step.

    The rules: "SGD", "Adam", "LARS", "LARC", "LAMB", "NovoGrad"; weights in front of a batch norm; b = 0.
    """
    ### BEGIN SOLUTION
    nothing, weights = (1, 1), (1, 1 / 10)
    return {
        "SGD": (10, 1 / 100),
        "Adam": weights,
        "NovoGrad": weights,
        "LARS": nothing,
        "LARC": nothing,
        "LAMB": nothing,
    }
    ### END SOLUTION


# %%
check(invariances)

# %% hidden="invariances" points=3
### BEGIN HIDDEN TESTS
points(invariances, 3)
### END HIDDEN TESTS


# %%
def noticed():
    """The same with your rules, on a layer of drawn weights."""
    w, g = np.random.default_rng(1).normal(size=(2, 50))
    relative = {
        "SGD": lambda w, g: sgd(w, g, None, 0.1)[0],
        "Adam": lambda w, g: lamb(w, g, None, 0.1, skip=True)[0],
        "LARS": lambda w, g: lars(w, g, None, 0.1)[0],
        "LARC": lambda w, g: larc(w, g, None, 0.1)[0],
        "LAMB": lambda w, g: lamb(w, g, None, 0.1)[0],
        "NovoGrad": lambda w, g: novograd(w, g, None, 0.1)[0],
    }

    def change(rule, w, g):
        return np.linalg.norm(rule(w, g) - w) / np.linalg.norm(w)

    return pd.DataFrame(
        {
            name: {
                "loss × 10": change(rule, w, 10 * g) / change(rule, w, g),
                "weights × 10": change(rule, 10 * w, g / 10) / change(rule, w, g),
            }
            for name, rule in relative.items()
        }
    ).T.round(3)


noticed()

# %% [markdown]
# Only the rules that use both norms are invariant to both changes. With Adam and NovoGrad the size of the loss does
# not matter, but a layer slows down when its weights grow. With SGD it slows down with the square of their length.

# %% [markdown] tags=["further"]
# ## Your rules train a network

# %% [markdown]
# The quick network is trained for eight epochs with the large batch: 80 updates made by *your* functions, with warm-up
# in the first quarter and then a cosine schedule. Each run records, for each layer, the factor by which the rule
# multiplies its direction, and the relative change.

# %%
UPDATES, DECAY = 80, 1e-3


def momentum(w, g, state, eta, b=0.0, beta=0.9, skip=False):
    """SGD with momentum, for comparison."""
    kept = 0.0 if state is None else beta * state
    step = kept + eta * (g if skip else g + b * w)
    return w - step, step


def rate(update, peak):
    """Linear warm-up over the first quarter, then half a cosine to 0."""
    warm = UPDATES // 4
    if update < warm:
        return peak * (update + 1) / warm
    return peak * 0.5 * (1 + np.cos(np.pi * (update - warm) / (UPDATES - warm)))


# rules: name → rule, peak rate, settings; multipliers: the factor of a layer before a step
TAU = 0.02
rules = {
    "LARS": (lars, 0.5, {"tau": TAU}),
    "LARC": (larc, 0.4, {"tau": TAU}),
    "LAMB": (lamb, 0.04, {}),
    "NovoGrad": (novograd, 0.08, {}),
    "SGD": (momentum, 0.4, {}),
}
multipliers = {
    "LARS": lambda w, g, state, eta: local_rate(w, g, TAU, DECAY),
    "LARC": lambda w, g, state, eta: min(eta, local_rate(w, g, TAU, DECAY)),
    "LAMB": lambda w, g, state, eta: local_rate(w, (w - lamb(w, g, state, eta, skip=True)[0]) / eta + DECAY * w, 1.0),
    "NovoGrad": lambda w, g, state, eta: np.linalg.norm(novograd(0 * w, g, state, 1.0, beta1=0)[0]) / np.linalg.norm(g),
    "SGD": lambda w, g, state, eta: local_rate(w, g, 1.0, DECAY),
}
titles = {
    "LARS": "λ of LARS",
    "LARC": "λ of LARC, at most η",
    "LAMB": "trust ratio ‖w‖/‖u‖ of LAMB",
    "NovoGrad": "1/√v of NovoGrad",
    "SGD": "‖w‖/‖∇L‖, which SGD does not use",
}


def update_layers(run, rule, eta, states, **settings):
    """One update of all variables by `rule`; for each (w, g, state before, new w)."""
    seen = []
    for k, (variable, g) in enumerate(zip(run.model.trainable_variables, run.gradient(BATCH))):
        w, before = variable.numpy(), states[k]
        skip = {} if rule is novograd else {"skip": w.ndim == 1}  # biases and batch norm are vectors
        new, states[k] = rule(w, g, before, eta, b=DECAY, **settings, **skip)
        variable.assign(new)
        seen.append((w, g, before, new))
    return seen


def train(name, line, before):
    """80 updates with one of the rules: multipliers and relative changes [80, 4], validation accuracy.

    `line` shows the progress of all runs; `before` runs are already complete.
    """
    rule, peak, settings = rules[name]
    run = trial.Run(problem.model(0), keras.optimizers.SGD(), problem.train, seed=0)  # SGD stays unused
    states, trust, relative = [None] * len(run.model.trainable_variables), [], []
    for update in range(UPDATES):
        line.at((before + update / UPDATES) / len(rules), name)
        eta = rate(update, peak)
        seen = update_layers(run, rule, eta, states, **settings)
        kernels = [seen[k] for k in KERNELS.values()]
        trust.append([multipliers[name](w, g, before, eta) for w, g, before, _ in kernels])
        relative.append([np.linalg.norm(new - w) / np.linalg.norm(w) for w, _, _, new in kernels])
    return np.array(trust), np.array(relative), run.score(problem.validation).accuracy


@cache
def my_runs():
    """Each rule's run. Calculated once."""
    results = {}
    with Filling("five runs") as line:
        for number, name in enumerate(rules):
            results[name] = train(name, line, number)
    return results


# %% [markdown]
# ### Predict
#
# In LARS, is λ of the dense layer larger or smaller at the last update than at the first? Halfway, how many times as
# large is the largest relative change ‖Δw‖/‖w‖ of a layer as the smallest?

# %% editable=true
predict("LARS: λ of the dense layer, last update: larger or smaller than at first", None)
predict("LARS, update 40: largest ‖Δw‖/‖w‖ over the smallest", None)


# %%
def tell():
    trust, relative, _ = my_runs()["LARS"]
    dense = list(KERNELS).index("dense")
    grew = trust[-1, dense] > trust[0, dense]
    measured(
        "LARS: λ of the dense layer, last update: larger or smaller than at first",
        "larger" if grew else "smaller",
        f"‖∇L‖ is in the denominator of λ, and in proportion to ‖w‖ it has {'fallen' if grew else 'grown'}.",
    )
    measured(
        "LARS, update 40: largest ‖Δw‖/‖w‖ over the smallest",
        round(float(relative[39].max() / relative[39].min()), 2),
        "λ removes ‖w‖ and ‖∇L‖ from the step. What remains is how well the steps in the velocity agree in direction.",
    )
    accuracies = {name: round(100 * accuracy, 1) for name, (_, _, accuracy) in my_runs().items()}
    print("validation accuracy, %:", accuracies)
    return (
        pd.DataFrame(trust[[0, 9, 19, 39, 59, 79]], [1, 10, 20, 40, 60, 80], list(KERNELS))
        .rename_axis("update")
        .round(3)
    )


tell()


# %%
def draw(name, update):
    trust, relative, accuracy = my_runs()[name]
    caption = (
        f"your {name}, {problem.name}, B = {BATCH:,}, {UPDATES} updates, one seed; validation accuracy "
        f"{100 * accuracy:.1f} %"
    )
    return layerwise.over_time(list(KERNELS), trust, relative, update, title=titles[name], caption=caption)


widgets.explore(
    draw,
    name=widgets.choice("rule", list(rules)),
    update=widgets.animation("update", UPDATES, interval=150),
)

# %% [markdown]
# - **LARS.** λ is small at the start, when the gradients are large: an automatic warm-up. `conv 1` has the smallest λ
#   throughout. The relative changes (right) differ less, because λ removes ‖w‖ and ‖∇L‖ from the step.
# - **LARC.** Where several lines lie on one smooth curve, this curve is the schedule: λ is clipped at η.
# - **LAMB.** On the right all four lines coincide: η is exactly the relative change of every layer.
# - **NovoGrad.** $1/\sqrt v$ follows the gradients with a delay.
# - **SGD.** At first `conv 1` changes fastest. Later the four come closer together, without any λ. Batch norm is one
#   reason: if the size of $w$ does not matter, the gradient is perpendicular to $w$. So a layer that changes fast
#   grows, and its relative changes become smaller.

# %% [markdown] tags=["further"]
# ## The same as the course's optimizers?

# %% [markdown]
# `course_lib.optimizers` has the four rules as Keras optimizers, for `model.compile` and for Horovod. Compare ten
# updates from the same weights on the same batches:


# %%
def snapshots(run, advance):
    """The weights after the first and after the tenth update. advance(n) makes n more."""
    taken = []
    for more in (1, 9):
        advance(more)
        taken.append(run.model.get_weights())
    return taken


def theirs(optimizer):
    """With a Keras optimizer."""
    run = trial.Run(problem.model(seed=1), optimizer, problem.train, seed=1)
    return snapshots(run, lambda updates: run.train(updates, BATCH))


def mine(rule, eta, **settings):
    """With one of your functions."""
    run = trial.Run(problem.model(seed=1), keras.optimizers.SGD(), problem.train, seed=1)
    states = [None] * len(run.model.trainable_variables)

    def advance(updates):
        for _ in range(updates):
            update_layers(run, rule, eta, states, **settings)

    return snapshots(run, advance)


def apart(some, others):
    return max(np.abs(a - b).max() for a, b in zip(some, others))


def compare():
    vectors = ["bias", "gamma", "beta"]
    first = problem.model(seed=1).get_weights()
    pairs = {
        "LARS": (lars, 0.5, {"tau": TAU}, optimizers.LARS(0.5, 0.9, DECAY, TAU, exclude=vectors)),
        "LARC": (larc, 0.1, {"tau": TAU}, optimizers.LARC(0.1, 0.9, DECAY, TAU, exclude=vectors)),
        "LAMB": (lamb, 0.01, {}, optimizers.LAMB(0.01, weight_decay=DECAY, exclude=vectors)),
        "NovoGrad": (novograd, 0.01, {}, optimizers.NovoGrad(0.01, weight_decay=DECAY)),
    }
    rows = {}
    for name, (rule, eta, settings, optimizer) in pairs.items():
        (mine_1, mine_10), (theirs_1, theirs_10) = mine(rule, eta, **settings), theirs(optimizer)
        rows[name] = {
            "moved by, in 10 updates": apart(theirs_10, first),
            "yours differ after 1 by": apart(mine_1, theirs_1),
            "after 10 by": apart(mine_10, theirs_10),
        }
    return pd.DataFrame(rows).T.map("{:.1e}".format)


compare()

# %% [markdown]
# The table shows the largest difference among all weights. After one update it is rounding in float32, which training
# then amplifies.
#
# ### Which LARS is it?
#
# Other libraries use other formulas under the same name. Three steps from $w = [3, 4]$ end at different weights:
#
# | LARS of | local rate | after 3 steps |
# |---|---|---|
# | the paper, MLPerf, this course | λ = τ ‖w‖ / (‖∇L‖ + b ‖w‖) | 2.9999866, 3.9867392 |
# | optax, TF-models | λ = τ ‖w‖ / ‖∇L + b w‖ | 3.0006684, 3.9832218 |
#
# Some slides call LARC's minimum "LARS". Libraries also differ in what they skip, in τ, and in whether η is inside the
# velocity. So a learning rate for one is not right for another.

# %% [markdown] tags=["further"]
# ## On many ranks: which norm?

# %% [markdown]
# With several ranks each rank has the gradient of its share of the batch. Two orders are possible:
#
# 1. average the gradients, then compute the norms;
# 2. each rank takes a LARS step with its own gradient, then the weights are averaged.
#
# ### Predict
#
# Does each of them reach the same weights as a single rank with the whole batch?

# %% editable=true
predict("1, averaged first, ends where one rank ends: yes or no", None)
predict("2, norms first, ends where one rank ends: yes or no", None)


# %%
def keras_steps(rank, size, wrap):
    """20 steps of a small Keras network with the course's LARS on this rank's share of each batch: its weights."""
    import numpy as np
    from tensorflow import keras

    from course_lib import optimizers

    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((12,)), keras.layers.Dense(16, "tanh"), keras.layers.Dense(3)])
    model.compile(wrap(optimizers.LARS(0.1, weight_decay=0.01, trust_coefficient=0.02, exclude=["bias"])), "mse")
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20 * 32, 12)).astype(np.float32)
    y = np.tanh(x[:, :3]) + x[:, 3:6]
    model.fit(x[rank::size], y[rank::size], batch_size=32 // size, epochs=1, shuffle=False, verbose=0)
    return np.concatenate([weights.ravel() for weights in model.get_weights()])


def my_steps(rank, size, average, norms_first):
    """20 steps of a linear model with your `lars` on this rank's share."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 5))
    y = x @ rng.normal(size=5) + rng.normal(size=32)
    weights, state, own = rng.normal(size=5), None, slice(rank, None, size)
    for _ in range(20):
        g = 2 * x[own].T @ (x[own] @ weights - y[own]) / len(y[own])
        if norms_first:
            weights, state = lars(weights, g, state, 0.5, tau=0.1, b=0.01)
            weights = average(weights)
        else:
            weights, state = lars(weights, average(g), state, 0.5, tau=0.1, b=0.01)
    return weights


def all_steps(rank, size, wrap, average):
    return {
        "1, your lars": my_steps(rank, size, average, norms_first=False),
        "2, your lars": my_steps(rank, size, average, norms_first=True),
        "1, hvd.DistributedOptimizer(LARS)": keras_steps(rank, size, wrap),
    }


def on_a_rank():
    import horovod.tensorflow.keras as hvd

    hvd.init()
    return all_steps(hvd.rank(), hvd.size(), hvd.DistributedOptimizer, lambda x: hvd.allreduce(x).numpy())


def two_ranks():
    alone = all_steps(0, 1, wrap=lambda optimizer: optimizer, average=lambda x: x)
    first, second = launch.call(on_a_rank, 2)
    for order, asked, why in (
        ("1, your lars", "1, averaged first", "All ranks compute the norms of the same gradient."),
        (
            "2, your lars",
            "2, norms first",
            "The mean of the steps is not the step of the mean: λ is not linear in ∇L.",
        ),
    ):
        equal = np.abs(first[order] - alone[order]).max() < 1e-9
        measured(f"{asked}, ends where one rank ends: yes or no", "yes" if equal else "no", why)
    return pd.DataFrame(
        {
            "two ranks to one, at most": {name: np.abs(first[name] - alone[name]).max() for name in alone},
            "between the ranks": {name: np.abs(first[name] - second[name]).max() for name in alone},
        }
    ).map("{:.1e}".format)


two_ranks()

# %% [markdown]
# Order 1 equals the single rank, up to rounding. `hvd.DistributedOptimizer` works in this order with any optimizer.
# Order 2 is a different training, and no error shows it, because the ranks agree with each other. The gradient of a
# small share is noisier and therefore longer, so each rank's λ is too small; and the average of steps in different
# directions is shorter than the steps.
#
# The same holds for every rule that is not linear in the gradient, such as Adam.

# %% [markdown] tags=["further"]
# ## What it costs

# %% [markdown]
# Two norms per layer read all weights and gradients once more, and each rule keeps a state. Here are your states for a
# layer of 1,000 weights:


# %%
def numbers(state):
    """How many numbers a state holds."""
    if isinstance(state, dict):
        state = list(state.values())
    return sum(map(numbers, state)) if isinstance(state, (tuple, list)) else np.size(state)


def memory():
    w = np.ones(1000)
    found = {name: numbers(rule(w, w, None, 0.1)[1]) for name, (rule, _, _) in rules.items()}
    return pd.DataFrame(
        {"numbers in the state": found, "MB for ResNet-50, float32": pd.Series(found) * 4 * 25.6e6 / 1e9}
    )


memory().round(0).astype(int)

# %% [markdown]
# The time of a compiled update of ResNet-50's 161 parameter arrays, compared with Keras's own optimizer, recorded with
# `course reproduce optimizer_cost`:

# %%
recorded = pd.read_csv("recorded/optimizer_cost.csv", comment="#")
layerwise.cost(recorded, caption="ResNet-50's 161 arrays of parameters, drawn values · course reproduce optimizer_cost")

# %%
recorded.fillna("").set_index("optimizer")

# %% [markdown]
# LARS is no slower than Keras's SGD with momentum. LAMB keeps two arrays like Adam and takes a tenth longer; NovoGrad
# keeps only one, and takes half of Adam's time.

# %% [markdown]
# ## Does it help?
#
# With LARS, Tencent's ResNet-50 with a batch of 64K gained 3.0 points in one comparison and 11.3 in another (3e). Nado
# et al. (2021) tuned all methods equally, and found that Nesterov momentum and Adam match LARS and LAMB at the same
# large batches. The runs of this notebook can't decide it, with one seed and without an equal tuning budget.
#
# ## Summary
#
# - $\|w\|/\|\nabla L\|$ shows which rate a layer tolerates. LARS is the steepest step among those whose relative
#   change is at most τ. The size of the gradient cancels; η must decay.
# - LARC clips λ at η. LAMB does with Adam's direction what LARS does with the gradient. NovoGrad does not use the
#   weights' norm.
# - On many ranks: first the all-reduce, then the norms.

# %%
predictions.table()

# %% [markdown]
# Next: 3e compares all of them with an equal tuning budget and several seeds.
#
# - Y. You, I. Gitman, B. Ginsburg: *Large Batch Training of Convolutional Networks.* arXiv:1708.03888
# - Y. You et al.: *Large Batch Optimization for Deep Learning: Training BERT in 76 minutes.* arXiv:1904.00962
# - B. Ginsburg et al.: *Stochastic Gradient Methods with Layer-wise Adaptive Moments.* arXiv:1905.11286
# - Z. Nado et al.: *A Large Batch Optimizer Reality Check.* arXiv:2102.06356
# - X. Jia et al.: *Highly Scalable Deep Learning Training System with Mixed-Precision.* arXiv:1807.11205
