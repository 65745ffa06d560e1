# %% [markdown]
# # 1a Linear model
#
# A straight line is fitted by the same method as a network of a billion weights: a loss, its gradient, a step downhill,
# a learning rate, and a rule for when to stop. Here you write all of it, and find the one number that decides which
# learning rates work.
#
# **You will be able to** say why training takes many GPUs; write gradient descent and check its gradient; tell from a
# loss curve whether the learning rate η crawls, converges, oscillates or diverges; compute the largest η that can work,
# 2/λ_max, from the data; and say what standardising the data does to it.
#
# **Time:** 45 minutes; the runs take about 2 seconds on 2 CPU cores.
#
# **Needs:** Python, NumPy, a derivative and what an eigenvalue is. No GPU, no data set.

# %%
import time

import numpy as np
import pandas as pd
from IPython.display import display

from course_lib.notebook import predictions, widgets
from course_lib.notebook.predictions import measured, predict
from labs.lab1_gradient_descent.lessons import figures_1a as descent
from labs.lab1_gradient_descent.lessons import figures_surfaces as surfaces
from labs.lab1_gradient_descent.lessons.checks_1a import check, points

# %% [markdown]
# ## Why many GPUs?
#
# The largest training runs are counted in *petaflop/s-days*: $10^{15}$ operations in every second of one day. NVIDIA's
# slides say that 1,000 petaflop/s-days take "O(100 years) on a dual-CPU server". Check that, and calculate the same for
# *this* machine.
#
# ### Predict
#
# Before you measure something, write down what you expect: a number or a word in place of `None`. The notebook shows
# your guess beside the measurement. Guesses carry no points.
#
# How many years would this machine take for 1,000 petaflop/s-days?

# %% editable=true
predict("years for 1,000 petaflop/s-days on this machine", None)

# %% [markdown]
# ### Exercise: years
#
# Write the calculation as a function, for any amount of work and any machine. Then run the cell with `check`, as often
# as you like. (The cell after it, "Hidden test", is for grading.)
#
# <details><summary>Hint</summary>First the number of operations: petaflop/s-days times 10¹⁵ times the seconds of a
# day. Divided by the operations in a second that gives seconds.</details>


# %% exercise="years"
def years(work, rate):
    """How many years a machine computes.

    work: petaflop/s-days; rate: the machine's floating-point operations per second.
    Returns the years (of 365 days) as a number.
    """
    ### BEGIN SOLUTION
    day = 24 * 60 * 60
    seconds = work * 1e15 * day / rate
    return seconds / day / 365
    ### END SOLUTION


# %%
check(years)

# %% hidden="years" points=1
### BEGIN HIDDEN TESTS
points(years, 1)
### END HIDDEN TESTS

# %% [markdown]
# How fast is this machine? Training mostly multiplies matrices. The product of two n × n matrices takes n³
# multiplications and about as many additions.


# %%
def multiplication_rate(n=1024, repeats=7):
    """Operations per second of a product of two n × n matrices in 32 bits: the best of several."""
    first, second = np.random.default_rng(0).random((2, n, n), dtype=np.float32)
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        first @ second
        seconds.append(time.perf_counter() - began)
    return 2 * n**3 / min(seconds)


rates = {
    "this machine, measured": multiplication_rate(),
    "two 28-core CPUs, at their peak": 2 * 28 * 2.5e9 * 64,
    "what “100 years” asks for": 2.74e13,
    "supercomputer, Nov. 2009": 2e15,
    "“today”, one box": 5e15,
}

# %%
measured(
    "years for 1,000 petaflop/s-days on this machine",
    years(1000, rates["this machine, measured"]),
    "Far too small? A day of a petaflop/s is 8.6 · 10¹⁹ operations; one core does some 10¹¹ of them in a second.",
)
pd.DataFrame(
    {"operations per second": rates, "years": {name: years(1000, rate) for name, rate in rates.items()}}
).style.format({"operations per second": "{:.2e}", "years": "{:,.1f}"})

# %% [markdown]
# Is the slide right? To finish in 100 years, a server must do 2.7 · 10¹³ operations per second. Two CPUs with 28 cores,
# 2.5 GHz and two AVX-512 units (64 operations per cycle and core) reach a third of it if they never wait for memory. So
# "O(100 years)" is the right order of magnitude, in the best case.

# %%
descent.trends(
    rates,
    "left: the table above; middle: OpenAI (2018), arXiv:2005.14165, arXiv:2407.21783; right: Hestness et al. (2017)",
)

# %% [markdown]
# - **Machines.** The slides give 2 petaflop/s for November 2009 and 5 "today", and name no machines. The first is
#   probably the fastest machine of that month's TOP500 list, counted in 64 bits. The second is probably NVIDIA's DGX
#   A100, one server with eight GPUs, counted in 16 bits and for matrices in which two of every four numbers are zero;
#   for full ones it is 2.5.
# - **Training runs.** From AlexNet (2012) to AlphaGo Zero (2017) the compute of the largest runs grew 300,000-fold: 18
#   doublings in 61 months, one in 3.4. Since then, GPT-3 (2020) took 3,640 petaflop/s-days, Llama 3.1 (2024) some
#   440,000: one doubling in 10 months. Chips got faster, too, but not as fast. The rest is *more* chips and longer
#   runs.
# - **Data.** The error falls with the size of the training set as a power law. Image classification halves its error
#   with $2^{1/0.31} \approx 9$ times the data, word language models with $2^{1/0.07} \approx 20{,}000$ times. (Dashed:
#   the law $1/\sqrt{n}$ of simple statistics.) So the requirements are predictable, and large.
#
# Finding a good network is trial and error. If a trial takes a day, you make five a week; if it takes ten minutes,
# fifty a day. Many GPUs shorten this *iteration time*.
#
# ## A line through points
#
# The 100 points are drawn around a known line, so that you can see whether you find it: $y = w x + b + \varepsilon$
# with $w = 2$, $b = 1$ and noise $\varepsilon$ of standard deviation 0.5.

# %%
rng = np.random.default_rng(1)
x = rng.uniform(0, 4, 100)
y = 2 * x + 1 + rng.normal(0, 0.5, 100)
best = tuple(np.polyfit(x, y, 1))  # the least-squares line, by a formula
DATA = "100 points drawn around y = 2 x + 1, noise 0.5, seed 1"
print(f"the best line: w = {best[0]:.3f}, b = {best[1]:.3f}")

# %% [markdown]
# Because of the noise the best line is not quite the true one. NumPy finds it by a formula. For a network there is
# none, so you do without it.
#
# ### Exercise: loss
#
# How bad is a line? The mean of the squared errors over the $m$ examples:
#
# $$L(w, b) = \frac{1}{m} \sum_{i=1}^{m} (w x_i + b - y_i)^2$$
#
# <details><summary>Hint</summary>NumPy calculates with whole arrays: <code>w * x + b</code> holds the predictions
# for all examples. <code>np.mean</code> does the sum and the 1/m.</details>


# %% exercise="loss"
def loss(w, b, x, y):
    """The mean squared error of the line w x + b.

    w, b: numbers; x, y: arrays of shape [m]. Returns a number.
    """
    ### BEGIN SOLUTION
    error = w * x + b - y
    return np.mean(error**2)
    ### END SOLUTION


# %%
check(loss)

# %% hidden="loss" points=2
### BEGIN HIDDEN TESTS
points(loss, 2)
### END HIDDEN TESTS

# %% [markdown]
# Fit the line by hand. Each line on the left is a point on the right. There the curves join places of equal loss, and
# the cross marks the best line. How low a loss can you reach?


# %%
def ground():
    """Your loss at many places (w, b)."""
    return descent.grid(lambda w, b: loss(w, b, x, y), (-1, 4), (-3.5, 6), best)


over = ground()
widgets.explore(
    lambda w, b: descent.fit(x, y, w, b, loss(w, b, x, y), over, DATA),
    w=widgets.slider("w", -1.0, 4.0, 1.0),
    b=widgets.slider("b", -3.5, 6.0, 3.0),
)

# %% [markdown]
# The valley is long and narrow, and it runs diagonally: a steeper line (larger $w$) is almost as good if it starts
# lower (smaller $b$). This shape decides how fast the descent is.
#
# ### Exercise: gradient
#
# Which way is downhill? Against the gradient $\nabla L = (\partial L / \partial w, \partial L / \partial b)$. Work it
# out on paper with the chain rule, then write it down.
#
# <details><summary>Hint</summary>The derivative of a square is two times the inside times the inner derivative. The
# inside is the error of an example; its derivative by w is x<sub>i</sub>, by b it is 1. The mean stays.</details>


# %% exercise="gradient"
def gradient(w, b, x, y):
    """The gradient of the loss at (w, b).

    w, b: numbers; x, y: arrays of shape [m]. Returns two numbers, (∂L/∂w, ∂L/∂b).
    """
    ### BEGIN SOLUTION
    error = w * x + b - y
    dw = 2 * np.mean(error * x)
    db = 2 * np.mean(error)
    return dw, db
    ### END SOLUTION


# %%
check(gradient)

# %% hidden="gradient" points=3
### BEGIN HIDDEN TESTS
points(gradient, 3)
### END HIDDEN TESTS

# %% [markdown]
# You can check any gradient by *finite differences*: move a little, and see how much the loss changes. They are
# one-sided, $(L(w + h) - L(w)) / h$, or central, $(L(w + h) - L(w - h)) / 2h$. The figure shows how far each is from
# your gradient, for large and small $h$.


# %%
def distances(w, b, widths):
    """How far finite differences of your loss are from your gradient, for each width."""
    dw, db = gradient(w, b, x, y)

    def at(w, b):
        return loss(w, b, x, y)

    one_sided, central = [], []
    for h in widths:
        slopes = (at(w + h, b) - at(w, b)) / h, (at(w, b + h) - at(w, b)) / h
        one_sided.append(np.hypot(slopes[0] - dw, slopes[1] - db))
        slopes = (at(w + h, b) - at(w - h, b)) / (2 * h), (at(w, b + h) - at(w, b - h)) / (2 * h)
        central.append(np.hypot(slopes[0] - dw, slopes[1] - db))
    return {"one-sided": np.array(one_sided), "central": np.array(central)}


widths = 10.0 ** np.arange(-12, 0.5, 0.5)
descent.differences(widths, distances(-0.5, 5.0, widths), DATA)

# %% [markdown]
# The one-sided difference improves with smaller $h$, until $L(w + h)$ and $L(w)$ agree in so many digits that their
# difference is mostly rounding error. The central one has only this rounding error: for a parabola it is exact. If your
# gradient were wrong, both curves would be flat and high.
#
# ### Exercise: update
#
# One step of gradient descent, with the learning rate $\eta$:
#
# $$w \leftarrow w - \eta \frac{\partial L}{\partial w}, \qquad b \leftarrow b - \eta \frac{\partial L}{\partial b}$$
#
# Your `update` gets the gradient as a function of $(w, b)$, and needs no data.
#
# <details><summary>Hint</summary>Both derivatives are taken at the same place: ask for the gradient once, then move
# both.</details>


# %% exercise="update"
def update(w, b, slope, eta):
    """One step of gradient descent.

    w, b: numbers; slope: a function (w, b) → (∂L/∂w, ∂L/∂b); eta: the learning rate η.
    Returns the new (w, b).
    """
    ### BEGIN SOLUTION
    dw, db = slope(w, b)
    return w - eta * dw, b - eta * db
    ### END SOLUTION


# %%
check(update)

# %% hidden="update" points=2
### BEGIN HIDDEN TESTS
points(update, 2)
### END HIDDEN TESTS

# %% [markdown]
# Twelve steps from one place, with two learning rates:


# %%
def walk(w, b, eta, steps):
    """So many of your steps, without asking whether to stop."""
    places = [(w, b)]
    for _ in range(steps):
        places.append(update(*places[-1], lambda w, b: gradient(w, b, x, y), eta))
    ws, bs = np.array(places).T
    return descent.Path(ws, bs, np.array([loss(w, b, x, y) for w, b in places]))


two = {f"η = {eta}": (ground(), walk(-0.5, 5.0, eta, 12)) for eta in (0.01, 0.1)}
descent.side_by_side(two, DATA, lowest=loss(*best, x, y))

# %% [markdown]
# ### Exercise: when to stop
#
# A small loss is no reason to stop: with this noise it never falls below 0.24. A rising loss is no reason either: large
# steps overshoot and come back. A descent has settled if the loss no longer *changes*, compared with its size, for
# several steps in a row. A descent that diverges must end, too.
#
# <details><summary>Hint</summary>Divergence first; <code>np.isfinite</code> is False for <code>nan</code> and
# infinity. For the rest you need the last <code>patience + 1</code> losses; <code>np.diff</code> gives their changes.
# With fewer losses the descent goes on.</details>


# %% exercise="stop"
def stop(losses, tolerance=1e-6, patience=3):
    """Whether a descent should stop, and why.

    losses: list of the losses so far, at least one, the newest last; tolerance: a relative change; patience: a number
    of steps. Returns
    "diverged"   if the newest loss is nan or infinite or more than 1,000 times the first, else
    "converged"  if each of the last `patience` steps changed the loss, up or down, by at most `tolerance` times the
                 loss before that step,
    ""           otherwise: go on.
    """
    ### BEGIN SOLUTION
    if not np.isfinite(losses[-1]) or losses[-1] > 1000 * losses[0]:
        return "diverged"
    recent = np.array(losses[-patience - 1 :])
    quiet = np.abs(np.diff(recent)) <= tolerance * np.abs(recent[:-1])
    return "converged" if len(quiet) == patience and quiet.all() else ""
    ### END SOLUTION


# %%
check(stop)

# %% hidden="stop" points=3
### BEGIN HIDDEN TESTS
points(stop, 3)
### END HIDDEN TESTS

# %% [markdown]
# All parts together:


# %%
def descend(w, b, x, y, eta, steps=300):
    """Your steps from (w, b) until your `stop` says so, or `steps` are made."""
    ws, bs, losses, ended = [w], [b], [loss(w, b, x, y)], ""
    with np.errstate(over="ignore", invalid="ignore"):  # a descent may run to infinity
        while not ended and len(losses) <= steps:
            w, b = update(w, b, lambda w, b: gradient(w, b, x, y), eta)
            ws.append(w)
            bs.append(b)
            losses.append(loss(w, b, x, y))
            ended = stop(losses)
    return descent.Path(np.array(ws), np.array(bs), np.array(losses), ended)


start = (-0.5, 5.0)
found = descend(*start, x, y, eta=0.1)
print(f"{found.ended or 'not there yet'} after {found.steps} steps: w = {found.w[-1]:.3f}, b = {found.b[-1]:.3f}")
print(f"the best line:                 w = {best[0]:.3f}, b = {best[1]:.3f}")
descent.fit(x, y, found.w[-1], found.b[-1], found.losses[-1], ground(), DATA)

# %% [markdown]
# ## The learning rate
#
# ### Predict
#
# You have seen 0.01 and 0.1. From which η on does the descent diverge?

# %% editable=true
predict("the learning rate at which the descent begins to diverge", None)

# %% [markdown]
# The experiment takes 400 of your steps and checks whether the loss still rises. Forty times, it halves the interval
# between an η that works and one that doesn't.


# %%
def rises(eta, steps=400):
    """Does the loss still rise after many steps?"""
    w, b = start
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(steps):
            before = w, b
            w, b = update(w, b, lambda w, b: gradient(w, b, x, y), eta)
        now = loss(w, b, x, y)
        return now > loss(*before, x, y) or not np.isfinite(now)


def first_to_diverge(works=0.001, fails=1.0, halvings=40):
    """The learning rate at which the descent begins to diverge, by bisection."""
    for _ in range(halvings):
        middle = (works + fails) / 2
        works, fails = (works, middle) if rises(middle) else (middle, fails)
    return fails


bound = first_to_diverge()
measured(
    "the learning rate at which the descent begins to diverge",
    bound,
    "Much too large? Here a rate that is fine and one that ruins everything differ by less than a factor of two.",
)
print(f"by experiment: {bound:.8f}")

# %% [markdown]
# ### Where the number comes from
#
# The second derivatives say how the loss curves. For this loss they are the same everywhere:
#
# $$H = \begin{pmatrix} \partial^2 L / \partial w^2 & \partial^2 L / \partial w\,\partial b \\
# \partial^2 L / \partial b\,\partial w & \partial^2 L / \partial b^2 \end{pmatrix}
# = 2 \begin{pmatrix} \overline{x^2} & \overline{x} \\ \overline{x} & 1 \end{pmatrix}$$
#
# The bars are means over the examples: the curvature depends on $x$ only, not on $y$. The eigenvalues of $H$ are the
# curvatures across the valley ($\lambda_{max}$) and along it ($\lambda_{min}$).


# %%
def curvatures(x):
    """(λ_min, λ_max), the eigenvalues of the second derivatives of the loss."""
    hessian = 2 * np.array([[np.mean(x**2), np.mean(x)], [np.mean(x), 1]])
    return np.linalg.eigvalsh(hessian)


flattest, steepest = curvatures(x)
print(f"λ_min = {flattest:.4f}   λ_max = {steepest:.4f}   condition number κ = λ_max/λ_min = {steepest / flattest:.1f}")

# %% [markdown]
# Along an eigenvector with curvature $\lambda$ the gradient is $\lambda$ times the distance from the minimum. So one
# step multiplies this distance by
#
# $$1 - \eta \lambda .$$
#
# It shrinks while $|1 - \eta \lambda| < 1$, that is, for $0 < \eta < 2/\lambda$. The direction with the largest
# curvature fails first, so the descent converges **as long as η < 2/λ_max**. With $\eta = 1/\lambda_{max}$ the steepest
# direction needs a single step. With a larger η the factor is negative, and the descent jumps from one side of the
# valley to the other.

# %%
print(f"2/λ_max: {2 / steepest:.8f}   by experiment: {bound:.8f}")
print(f"relative difference: {abs(bound * steepest / 2 - 1):.1e}")

# %% [markdown]
# ### Predict
#
# - Give $x$ in other units, so that every $x$ is twice as large. How many times smaller does the bound on η become?
# - Four learning rates: (1) 0.05, (2) 0.9, (3) 1.9 and (4) 2.05 times 1/λ_max. Which one arrives first? Its number:

# %% editable=true
predict("x twice as large: how many times smaller the bound on η becomes", None)
predict("the number of the rate that arrives first", None)

# %%
measured(
    "x twice as large: how many times smaller the bound on η becomes",
    curvatures(2 * x)[1] / steepest,
    "2? The loss squares x. 4 would be right without b: the curvature along b stays.",
)
cases = {"crawl": 0.05, "converge": 0.9, "oscillate": 1.9, "diverge": 2.05}
paths = {name: descend(*start, x, y, eta=factor / steepest) for name, factor in cases.items()}


def steps_of(path):
    return path.steps if path.ended == "converged" else np.inf


measured(
    "the number of the rate that arrives first",
    str(1 + min(range(4), key=lambda k: steps_of(paths[list(cases)[k]]))),  # a name, not a size
    "2? The smoothest way is not the shortest: along the floor of the valley a step is as long as η allows.",
)
descent.side_by_side(
    {
        f"{number} {name}: η = {cases[name] / steepest:.3g}\n{path.ended or 'not there'}, {path.steps} steps": (
            ground(),
            path.first(20) if path.ended == "diverged" else path,
        )
        for number, (name, path) in enumerate(paths.items(), 1)
    },
    f"{DATA}; at most 300 steps; of the one that diverges the first 20 are drawn",
)

# %% [markdown]
# 1. **Crawl.** Far below 1/λ_max: smooth, but 300 steps are not enough.
# 2. **Converge.** Up to 1/λ_max: straight down the wall, then along the valley floor.
# 3. **Oscillate.** Between 1/λ_max and 2/λ_max: from wall to wall. It arrives first, because along the floor it takes
#    the longest steps.
# 4. **Diverge.** Above 2/λ_max: each jump ends higher than it began.
#
# Move η yourself. When does the zigzag begin? How close to 2/λ_max can you go before the curve turns up?

# %%
over, lowest = ground(), loss(*best, x, y)
widgets.explore(
    lambda eta: descent.rate(
        over, descend(*start, x, y, eta, steps=250), lowest, eta=eta, steepest=steepest, most=250, caption=DATA
    ),
    eta=widgets.slider("learning rate η", -3.2, -0.5, 0.14, step=0.01, log=True),
)

# %% [markdown]
# The steps that each η takes, from a crawl to beyond the bound:

# %%
etas = np.concatenate([np.geomspace(0.04, 1.6, 24), np.linspace(1.7, 1.99, 12), np.geomspace(2.01, 3, 5)]) / steepest
descent.steps(
    etas, [descend(*start, x, y, eta, steps=2000) for eta in etas], flattest, steepest, f"{DATA}; at most 2,000 steps"
)

# %% [markdown]
# Twice the learning rate takes half the steps, almost up to the bound. For the worst start the best η is just below it,
# at $2 / (\lambda_{max} + \lambda_{min})$ (dotted). There both directions shrink equally fast, in each step by the
# factor $(\kappa - 1)/(\kappa + 1)$.
#
# Networks fail less easily above the bound, because their λ_max changes as they train. With an η somewhat above 2/λ_max
# the loss rises for some steps, until the descent reaches a flatter place (a *catapult*: Lewkowycz et al. 2020). And
# gradient descent often moves into ever steeper places until λ_max is about 2/η. There the loss goes up and down, but
# falls in the long run (the *edge of stability*: Cohen et al. 2021; see 1e and 1f).
#
# Your stopping test can be wrong: with a tiny η the loss changes so little that it looks settled at once.
#
# ## The shape of the valley
#
# The curvature across the valley limits η, the curvature along it sets the number of steps. The larger their ratio, the
# *condition number* $\kappa = \lambda_{max} / \lambda_{min}$, the slower the descent. It is a property of the data. The
# same points can be given as $x + 4$, as $x$, or *standardised*, $(x - \overline{x})/\mathrm{std}(x)$: the line is the
# same, but its two numbers and the valley are not.
#
# ### Predict
#
# With the best η for each: how many steps will $x + 4$ take, how many will the standardised x?

# %% editable=true
predict("steps with x + 4", None)
predict("steps with x standardised", None)


# %%
def compare(inputs):
    """Your descent from the same line with the best η, for each way to give x."""
    panels, rows = {}, {}
    for name, z in inputs.items():
        low, high = curvatures(z)
        scale = np.std(z) / np.std(x)  # z = scale x + shift; the same line has other numbers
        shift = np.mean(z) - scale * np.mean(x)
        (w, b), there = ((slope / scale, height - slope * shift / scale) for slope, height in (start, best))
        eta = 2 / (low + high)
        path = descend(w, b, z, y, eta, steps=20_000)
        reach = 1.2 * max(abs(w - there[0]), abs(b - there[1]))
        ends = [(middle - reach, middle + reach) for middle in there]
        over = descent.grid(lambda w, b, z=z: loss(w, b, z, y), *ends, there)
        panels[f"{name}\nκ = {high / low:.4g}: {path.steps:,} steps"] = over, path
        rows[name] = {"κ": f"{high / low:.4g}", "best η": f"{eta:.4g}", "steps": f"{path.steps:,}"}
        if name != "x":
            measured(f"steps with {name}", path.steps, reveals[name])
    return panels, pd.DataFrame(rows).T


reveals = {
    "x + 4": "Far fewer? The points look the same, but curvature comes from x², and so κ grows with the mean of x.",
    "x standardised": "More? With κ = 1 one step is enough, and the stopping test wants three more.",
}
panels, table = compare({"x + 4": x + 4, "x": x, "x standardised": (x - x.mean()) / x.std()})
display(table)
descent.side_by_side(panels, f"{DATA}; η = 2/(λₘₐₓ + λₘᵢₙ) for each", equal=True)

# %% [markdown]
# On standardised data the contours are circles: the gradient points straight at the minimum, and with η = 1/λ_max = 1/2
# the first step reaches it. With x shifted by 4, the same line takes thousands of steps. Therefore images are scaled
# and centred before training, and batch normalisation does it again between the layers.
#
# ## The surface
#
# The contours are a map of this surface. Turn it, and look along the valley, then across it.

# %%
bowl = descent.grid(lambda w, b: loss(w, b, x, y), (0, 4), (-3, 5), best)
widgets.explore(
    lambda turn, tilt: surfaces.turned(
        bowl.w, bowl.b, bowl.losses, turn=turn, tilt=tilt, title="the loss of a line", caption=DATA
    ),
    turn=widgets.slider("turn, degrees", -180, 180, -60),
    tilt=widgets.slider("tilt, degrees", 0, 90, 30),
)

# %% [markdown]
# It is a single bowl: downhill always leads to the one minimum. A network's surface is more complicated: 1c draws one.
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - The compute of the largest training runs grew far faster than the speed of chips: they need many chips.
# - Gradient descent is four small functions: loss, gradient, update, stop. Finite differences check any gradient.
# - A step multiplies the distance from the minimum by 1 − ηλ in each direction. The steepest direction sets the largest
#   η, 2/λ_max; the flattest sets the number of steps, which grows with κ = λ_max/λ_min.
# - Standardising the data makes the valley round.
#
# Each of your steps used *all* examples. Next, 1b takes a few at random for each step.
#
# - J. Hestness et al.: *Deep Learning Scaling is Predictable, Empirically.* arXiv:1712.00409
# - D. Amodei, D. Hernandez: *AI and Compute.* OpenAI, 2018
# - T. Brown et al.: *Language Models are Few-Shot Learners.* arXiv:2005.14165
# - Llama team: *The Llama 3 Herd of Models.* arXiv:2407.21783
# - A. Lewkowycz et al.: *The large learning rate phase of deep learning: the catapult mechanism.* arXiv:2003.02218
# - J. Cohen et al.: *Gradient Descent on Neural Networks Typically Occurs at the Edge of Stability.* arXiv:2103.00065
# - S. Ruder: *An overview of gradient descent optimization algorithms.* arXiv:1609.04747
# - Y. LeCun, L. Bottou, G. Orr, K.-R. Müller: *Efficient BackProp.* In: Neural Networks: Tricks of the Trade, 1998
