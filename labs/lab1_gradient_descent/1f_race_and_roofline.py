# %% [markdown]
# # 1f Race and roofline
#
# Which update rule reaches its target first, and which batch size? Many comparisons only show whose settings were
# better. You will choose settings by theory, race six tuned rules, count what a batch size costs in steps, examples and
# seconds, and explain the seconds by two numbers of your machine.
#
# **You will be able to** derive Nesterov's step as frameworks write it; choose η and β from the curvatures; compare
# update rules fairly; explain a processor's throughput by batch size with its roofline.
#
# **Time:** 55 minutes; the runs take about 25 seconds on 2 CPU cores.
#
# **Needs:** notebook 1b (mini-batches, momentum, Adam).

# %%
import os

import numpy as np
import pandas as pd
from IPython.display import Image, display

from course_lib import data
from course_lib.cost import roofline
from course_lib.notebook import plots, predictions, widgets
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from labs.lab1_gradient_descent.lessons import figures_1f as figures
from labs.lab1_gradient_descent.lessons import first_to_target
from labs.lab1_gradient_descent.lessons import rule_race as rules
from labs.lab1_gradient_descent.lessons.checks_1f import check, points

# %% [markdown]
# ## Momentum that looks ahead
#
# Update rules have the form of 1b, `w, state = rule(w, g, state, eta)`; momentum and Adam are those that you wrote
# there. The figures show them in a *ravine*, fifty times as steep across as along.


# %%
def ravine(w):
    """½ (w₁² + 50 w₂²), for weights [2] or [2, …]."""
    return 0.5 * (w[0] ** 2 + 50 * w[1] ** 2)


def ravine_gradient(w):
    return np.array([w[0], 50 * w[1]])


def sgd(w, g, state, eta):
    return w - eta * g, state


ravine_ground = figures.ground(ravine, (-2.3, 0.8), (-0.45, 0.45))
ravine_start = np.array([-2.0, 0.3])
momentum, adam = rules.momentum, rules.adam

# %% [markdown]
# ### Exercise: Nesterov
#
# Momentum overshoots. Nesterov (1983) takes the gradient not at the weights θ, but at the point to which the velocity
# leads:
#
# $$u \leftarrow \beta u - \eta\, \nabla L(\theta + \beta u), \qquad \theta \leftarrow \theta + u$$
#
# A framework gets $g$, taken at its weights. So Keras keeps as its $w$ the point *ahead*, $w = \theta + \beta u$, and
# never knows θ. Derive its step on paper: what must be added to $w$, as a function of $u$, $g$, η and β only?
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
paths = {
    f"{rule.__name__}, η = {eta:g}": rules.walk(rule, ravine_gradient, ravine_start, eta)
    for rule, eta in ((sgd, 0.037), (momentum, 0.02), (nesterov, 0.02))
}
figures.path(ravine_ground, paths, ravine)

# %% [markdown]
# Nesterov's swings die out sooner. But with β = 0.9 it tolerates an η only up to $1.36/\lambda_{max}$, SGD up to
# $2/\lambda_{max}$, and momentum up to $3.8/\lambda_{max}$.
#
# ### Exercise: β and η for a ravine
#
# Must β be 0.9? Along a direction of curvature λ, the distance $d$ from the minimum follows, with momentum,
#
# $$d_{t+1} = (1 + \beta - \eta\lambda)\, d_t - \beta\, d_{t-1} .$$
#
# While $(1 - \sqrt\beta)^2 \le \eta\lambda \le (1 + \sqrt\beta)^2$, a step multiplies it by $\sqrt\beta$ on average,
# *for every such λ*. Below this range the descent creeps. Above it the swings die out more slowly, or grow.
#
# Choose η and β for a ravine with given curvatures. The check runs momentum with them until the distances in *both*
# directions are a thousandth of the start's. Find a rule for all four ravines:
#
# | κ = λ_max/λ_min | gradient descent, best η | momentum, β = 0.9, best η | your budget |
# |---|---|---|---|
# | 10 | 35 | 129 | 25 |
# | 50 | 173 | 128 | 62 |
# | 200 | 691 | 130 | 128 |
# | 1,000 | 3,454 | 144 | 300 |
#
# <details><summary>Hint</summary>The smaller β, the faster. What keeps you from taking a smaller one? λ_min and λ_max
# must both stay in the range. Put one at each end: two equations, two unknowns. Take roots first.</details>


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
# How many steps does your choice need? With λ_min and λ_max at the two ends of the range, they are 16, 40, 85 and 204:


# %%
def steps_in_a_ravine(flattest, steepest):
    """Steps of momentum with your η and β until both distances stay below a thousandth of the start's."""
    eta, beta = heavy_ball(flattest, steepest)
    curvatures = np.array([flattest, steepest])
    walked = rules.walk(momentum, lambda w: curvatures * w, np.ones(2), eta, 400, beta=beta)
    return 1 + int(np.flatnonzero(np.abs(walked).max(axis=1) > 1e-3)[-1])


ravines = {"κ = 10": (1, 10), "κ = 50": (1, 50), "κ = 200": (0.02, 4), "κ = 1,000": (2, 2000)}
pd.DataFrame({"your steps": {name: steps_in_a_ravine(*ends) for name, ends in ravines.items()}}).T

# %% [markdown]
# Gradient descent needs steps in proportion to κ, momentum in proportion to $\sqrt\kappa$. The longer the ravine, the
# longer the memory: β = 0.57 suits κ = 50, 0.9 suits κ = 1,400.
#
# ## A rate for each weight
#
# Two rules divide by the size of past gradients, as Adam does, but without momentum. *Adagrad* (Duchi, Hazan, Singer
# 2011) sums up the squared gradients in $G$ and divides by its root. *RMSprop* (Hinton 2012) divides by the root of a
# running *mean* of the squares, which forgets old ones.


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
# The start is on a *cliff*: a steep wall above a gentle slope. Each rule takes 80 steps, Adagrad with η = 0.5 and
# RMSprop with η = 0.05. In the ravine Adagrad ends nearer to the minimum with these rates. Which one does below the
# cliff: adagrad or rmsprop?

# %% editable=true
predict("ends nearer to the minimum below the cliff", None)


# %%
def cliff(w):
    """A bowl, ½ (w₁² + 4 w₂²), with a wall left of w₁ = −1.5."""
    return 0.5 * (w[0] ** 2 + 4 * w[1] ** 2) + 60 * np.maximum(0, -1.5 - w[0]) ** 2


def cliff_gradient(w):
    return np.array([w[0] - 120 * np.maximum(0, -1.5 - w[0]), 4 * w[1]])


paths = {
    f"{rule.__name__}, η = {eta:g}": rules.walk(rule, cliff_gradient, ravine_start, eta)
    for rule, eta in ((adagrad, 0.5), (rmsprop, 0.05))
}
measured(
    "ends nearer to the minimum below the cliff",
    min(paths, key=lambda name: np.linalg.norm(paths[name][-1])).split(",")[0],
    "G only grows. The wall fills it in one step, and every later step of Adagrad is short.",
)
figures.path(figures.ground(cliff, (-2.3, 0.8), (-0.45, 0.45)), paths, cliff)

# %% [markdown]
# Adagrad never forgets: after one steep place it nearly stops. RMSprop forgets, so it never comes to rest: near the
# minimum it divides a small gradient by a small root, and its steps remain about η long. It needs a decaying η.
#
# ## The race
#
# Six rules race on three surfaces: the ravine; the same ravine *turned* by 30°, so that it runs along no axis; and the
# *saddle* of 1b, $5 w_1^2 - \tfrac12 w_2^2 + \tfrac14 w_2^4$. There the start is almost on the ridge.
#
# All rules are tuned in the same way. Each tries 41 learning rates, from $2^{-8}$ to $2^2$. Rules with a decay (β, ρ,
# β₁) try each with seven decays from 0.2 to 0.98. The race shows the settings that bring the loss below a thousandth of
# its start, for good (1,000 steps), in the fewest steps.
#
# ### Predict
#
# Which rule is first in the turned ravine? Which is the last to *leave* the saddle ($|w_2| > 0.5$)? The rules: sgd,
# momentum, nesterov, adagrad, rmsprop, adam.

# %% editable=true
predict("first in the turned ravine", None)
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


surfaces = {
    "ravine": rules.Surface(ravine, ravine_gradient, ravine_start),
    "turned ravine": rules.Surface(turned, turned_gradient, turn.T @ ravine_start),
    "saddle": rules.Surface(saddle, saddle_gradient, np.array([-0.6, 0.001]), lowest=-0.25),
}
grounds = {
    "ravine": ravine_ground,
    "turned ravine": figures.ground(turned, (-2.3, 0.7), (-1.3, 0.6)),
    "saddle": figures.ground(saddle, (-0.8, 0.8), (-1.4, 1.4)),
}
six = {rule.__name__: rule for rule in (sgd, momentum, nesterov, adagrad, rmsprop, adam)}
with Filling("every rule tries its settings") as line:
    race = rules.race(six, surfaces, line.at)


def draw_race(surface, frame):
    chosen = ", ".join(f"{rule} {run.settings['eta']:.2g}" for rule, run in race[surface].items())
    paths = {rule: run.path[: rules.LATEST + 1] for rule, run in race[surface].items()}
    loss, lowest = surfaces[surface].loss, surfaces[surface].lowest
    return figures.race(
        grounds[surface], paths, loss, step=2 * frame, lowest=lowest, caption=f"{surface} · η: {chosen}"
    )


widgets.explore(
    draw_race,
    surface=widgets.choice("surface", list(surfaces)),
    frame=widgets.animation("frame (2 steps each)", rules.LATEST // 2 + 1),
)


# %%
def steps_to_leave(path):
    """Steps until |w₂| > 0.5."""
    return int(np.argmax(np.abs(path[:, 1]) > 0.5))


def summary(run, surface):
    """The steps of a run, and in brackets its settings: η and the decay."""
    steps = int(rules.steps_needed(run.path, surfaces[surface]))
    settings = ", ".join(f"{value:.3g}" for value in run.settings.values())
    return f"{steps if steps <= rules.LATEST else f'over {rules.LATEST}'}  ({settings})"


needed = {rule: rules.steps_needed(run.path, surfaces["turned ravine"]) for rule, run in race["turned ravine"].items()}
leaving = {rule: steps_to_leave(run.path) for rule, run in race["saddle"].items()}
usual = {
    rule: rules.steps_needed(rules.best(rule, six[rule], surfaces["ravine"], (0.9,)).path, surfaces["ravine"])
    for rule in six
}
measured(
    "first in the turned ravine",
    min(needed, key=needed.get),
    "Turned, both weights see much the same steepness, and a rate for each weight can't tell the directions apart.",
)
measured("leaves the saddle last", max(leaving, key=leaving.get), "It has nothing but the tiny gradient.")
rows = {surface: {rule: summary(run, surface) for rule, run in runs.items()} for surface, runs in race.items()}
table = pd.DataFrame(rows)
table["leaves the saddle"] = pd.Series(leaving)
table["ravine, decay 0.9"] = pd.Series(usual).map(
    lambda steps: steps if steps <= rules.LATEST else f"over {rules.LATEST}"
)
table

# %% [markdown]
# - **SGD** is bound by the steepest direction: η stays below $2/50$, and 82 steps go along the ravine.
# - **Momentum** needs 16 steps in the ravine and **Nesterov** 20. With the usual decay of 0.9 they need 58 and 39, and
#   Nesterov looks like the better rule. A ranking at one fixed β says more about that β than about the rules.
# - Turning the ravine changes nothing for these three: they add up gradients, and a sum of vectors turns with them.
# - **Adagrad** needs 4 steps in the straight ravine and 98 in the turned one, **Adam** 24 and 40, **RMSprop** 90 and
#   over 100. A rate for each weight suits a ravine *along an axis*.
# - Adam and RMSprop forget, so with constant η they come close and leave again. If 120 steps counted as *for good*,
#   Adam would need 13, and RMSprop 4. What counts as arriving decides a race, too.
# - At the **saddle** the rules that divide by the size of the gradients leave first, after 3 to 16 steps; the others
#   need 21 to 39. But RMSprop, which leaves early, arrives late.
#
# Which rule comes first depends on the surface, and on how the settings were chosen. Lab 3 compares them on real
# networks.
#
# ## Which batch size gets there first?
#
# Now the images and the softmax model of 1b, with plain SGD. Which batch size reaches a target loss with the fewest
# **steps**, the fewest **examples**, and in the fewest **seconds**?
#
# Each batch size tries the same ten learning rates, $2^{2} \dots 2^{-7}$. The best one then runs with five other seeds,
# which the figure shows. The clock runs during steps only, not while the loss is measured.
#
# ### Predict
#
# - How many times fewer steps does a batch of all 4,096 images need than one of 256?
# - Which batch size needs the fewest seconds: 1, 4, 16, 64, 256, 1024 or 4096?

# %% editable=true
predict("all images in place of 256: how many times fewer steps", None)
predict("batch size with the fewest seconds", None)

# %%
fashion = data.load("fashion_mnist")
model = first_to_target.Softmax(fashion.x_train, fashion.y_train)
images, target = len(model.x), model.target()
sizes = [m for m in (1, 4, 16, 64, 256, 1024) if m < images] + [images]
with Filling("ten rates, then five seeds for each batch size") as line:
    runs = first_to_target.compare(model.steps, model.loss, target, sizes, images, line.at)
middle = runs.groupby("batch_size").median()
measured(
    "all images in place of 256: how many times fewer steps",
    middle["steps"][256] / middle["steps"][images],
    "1 means a floor: from 256 images on, less noise no longer saves steps.",
)
measured(
    "batch size with the fewest seconds",
    int(middle["seconds"].idxmin()),
    "The smallest batches use the processor badly, the largest waste examples.",
)
display(middle.drop(columns="seed").rename(columns={"eta": "best η"}).round(4))
figures.to_target(
    runs,
    title=f"To a loss of {target:.3f}: median and range of five seeds; ring: the best",
    caption=plots.provenance(f"{fashion.name}, {images:,} images"),
)

# %% [markdown]
# Seconds depend on the machine, steps and examples do not. These are recorded (`course reproduce softmax_to_target`):

# %%
recorded = pd.read_csv("recorded/softmax_to_target.csv", comment="#")
display(Image("recorded/softmax_to_target.png", width=plots.WIDTH))
recorded.groupby("batch_size")[["eta", "steps", "examples"]].median().rename(columns={"eta": "best η"}).T

# %% [markdown]
# - **Steps** fall with $m$, at first in proportion, because less noise allows a larger η. Then comes a floor.
#   (Recorded: 4,139 steps with m = 1, 89 with 64; from 256 on, between 50 and 63.)
# - **Examples** are steps times $m$: level while the steps fall in proportion, then rising. (Recorded: 4,139 examples
#   with m = 1, 4,464 with 16, 204,800 with all.)
# - **Seconds** are examples times the time for an example, which is much shorter in a batch. So they are lowest
#   between: where the batch is large enough to use the processor well, and small enough to waste no examples.
#
# (Recorded, batches of 256 and 1,024 do best with η = 2. The bound $2/\lambda$ at the start is 1.01. The curvature of
# this loss falls as the model gets surer: 1a's bound is not a law for other losses.)
#
# On enough GPUs, a step on 4,096 examples takes as long as one on 64. Then the *left* panel decides: how far to the
# right do the steps keep falling (lab 3)?
#
# ## From GEMV to GEMM
#
# Why is the time for an example so much shorter in a batch? With one example, a layer multiplies a *vector* by its
# weights (GEMV in BLAS): each weight is fetched from memory for one multiplication and one addition. With $m$ examples
# it multiplies a *matrix* (GEMM), and uses each fetched weight $m$ times.
#
# Two numbers of the machine decide: its **peak**, in floating-point operations a second (FLOP/s), and the **bandwidth**
# of its memory, in bytes a second. A kernel that does $I$ FLOP for each byte that it moves can reach at most
#
# $$\min(\text{peak},\; I \cdot \text{bandwidth})$$
#
# This is the **roofline** (Williams, Waterman, Patterson 2009). For a layer in float32 whose weights are most of what
# moves, $I \approx 2m/4 = m/2$ FLOP per byte. The next cell measures the peak by a product of two matrices [2048,
# 2048], and the bandwidth by reading an array eight times as large as the largest cache. The best of five repeats
# counts, because other work on the machine only slows them down.

# %%
print(f"before the measurement, {os.getloadavg()[0]:.1f} processes ran; on an idle machine, 0")
peak, bandwidth = roofline.measure_peak(), roofline.measure_bandwidth()
knee = roofline.ridge(peak, bandwidth)
print(f"peak {peak / 1e9:.0f} GFLOP/s, bandwidth {bandwidth / 1e9:.0f} GB/s")
print(f"they meet at {knee:.1f} FLOP per byte: a batch of about {2 * knee:.0f}")
print(f"largest cache: {roofline.last_level_cache() / 2**20:.0f} MiB")

# %% [markdown]
# ### Predict
#
# A layer with 8,192 inputs and 4,096 outputs has 128 MiB of weights. How many times as many images a second does it
# process with a batch of 256 as with one image at a time?

# %% editable=true
predict("8,192 → 4,096: images per second, batch of 256 over one", None)

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
large = throughput[throughput["layer"] == "8,192 → 4,096"].set_index("batch_size")["images_per_second"]
measured(
    "8,192 → 4,096: images per second, batch of 256 over one",
    large[256] / large[1],
    f"By this roofline one image reaches at most {0.5 / knee:.0%} of the peak, and a batch of 256 all of it.",
)
figures.roofline(throughput, peak, bandwidth, caption=plots.provenance("x @ w in float32, best of 3", ranks=1))

# %% [markdown]
# From left to right, the batch grows. (A point a little above the roof: other work slowed the roof's own measurement.)
#
# - **On the slope.** The large layer with m = 1 does half a FLOP for each byte. It waits for memory most of the time.
# - **Above it.** The 4 MiB of the layer of 1,024 × 1,024 stay in a cache between two calls. A cache has a roof of its
#   own, further up.
# - **Below it.** In a batch of two an image often takes *longer* than alone. For a single row NumPy calls GEMV, which
#   reads the weights where they are. GEMM first copies them into a better order, which pays off only for a larger
#   batch.
# - **784 → 10**, the layer of 1b, never gets there: most of what it moves are images, so its intensity stops at 5 FLOP
#   per byte.
#
# GPUs need larger batches. Tencent (Jia et al., in 1b) gives 12 TFLOP/s and 346 GB/s for a P40, 9.3 TFLOP/s and 732
# GB/s for a P100. They meet at 35 and 13 FLOP per byte: to keep such a GPU busy, a *dense* layer needs a batch of about
# 70 or 25. (A convolution uses each weight at every position of the image, so it does many operations for each byte
# even with one image.)
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - Nesterov takes the gradient ahead. A framework keeps the point ahead as its weights.
# - With η and β chosen for the curvatures, momentum needs steps in proportion to √κ; gradient descent, to κ.
# - Rules that scale each weight depend on the axes. No ranking holds before β is tuned as well as η.
# - Larger batches need fewer steps, down to a floor, and more examples. Seconds are lowest between, because a batch
#   turns GEMV into GEMM: a weight that was fetched once is used m times.
#
# Papers:
#
# - Y. Nesterov: *A method of solving a convex programming problem with convergence rate O(1/k²).* Soviet Mathematics
#   Doklady 27 (1983)
# - J. Duchi, E. Hazan, Y. Singer: *Adaptive subgradient methods for online learning and stochastic optimization.* JMLR
#   12 (2011)
# - Y. Li, A. Pedram: *CATERPILLAR: coarse grain reconfigurable architecture for accelerating the training of deep
#   neural networks.* arXiv:1706.00517
# - S. Williams, A. Waterman, D. Patterson: *Roofline: an insightful visual performance model for multicore
#   architectures.* CACM 52 (2009), doi:10.1145/1498765.1498785
