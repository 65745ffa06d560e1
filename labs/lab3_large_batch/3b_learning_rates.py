# %% [markdown]
# # 3b Learning rates for large batches
#
# A batch k times as large makes one update in place of k. Which learning rate does it need? Each rule has an argument
# for what should stay the same. You derive the rules, test them and find where each one ends. Then you try warm-up,
# LEGW, a batch that grows instead of a rate that decays, and more epochs.
#
# **You will be able to** derive a scaling rule from what it should keep, and say when it fails; read the edge of
# stability from the curvature; write a warm-up, LEGW and a schedule of growing batches; choose a rate for a batch size
# that you have never trained with, and say how far to trust it.
#
# **Time:** 70 minutes; the runs take about 50 seconds on 2 CPU cores; on GPUs they are not yet measured.
#
# **Needs:** 1a (the bound $2/\lambda_{max}$), 1b (the variance of a mini-batch's gradient), 3a (large batches).

# %%
import numpy as np
import pandas as pd
from IPython.display import Image
from tensorflow import keras

from course_lib import statistics
from course_lib.notebook import plots, predictions, widgets
from course_lib.notebook.plots import descent_paths as stochastic
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from labs.lab3_large_batch.lessons import figures_3b as rates
from labs.lab3_large_batch.lessons import short_runs as trial
from labs.lab3_large_batch.lessons.checks_3b import check, points

IMAGES, EPOCHS = 12_288, 8
problem = trial.fashion(IMAGES)
size = len(problem.train.labels)
print(f"{problem.name}: {size:,} training images")

# What has been recorded (`course reproduce rate_scaling`, and so on), beside which your own runs will stand.
recorded = pd.read_csv("recorded/rate_scaling.csv", comment="#")
results = recorded[(recorded["use"] == "result") & (recorded["epochs"] == EPOCHS)]
grown = pd.read_csv("recorded/batch_growth.csv", comment="#").query("use == 'result'")

# %% [markdown]
# ## What should stay the same?
#
# Let $G$ be the mean of the examples' gradients and $C$ their covariance. A batch of $B$ random examples has a gradient
# $g$ with mean $G$ and covariance $C/B$ (1b). So one update $\Delta w = -\eta\, g$ has
#
# $$\mathbf{E}\,\Delta w = -\eta\, G, \qquad \text{cov}(\Delta w) = \frac{\eta^2}{B}\, C .$$
#
# A batch k times as large should get the rate η′ that keeps *something* as it was. There are two comparisons:
#
# - **one update** with k·B and η′, and one update with B and η;
# - **the same examples**: one update with k·B and η′, and k updates with B and η. Assume that the weights, and so $G$
#   and $C$, hardly change during the k updates, and that the updates are independent.
#
# In each comparison, either the mean or the covariance can be kept. That makes four demands.
#
# ### Exercise: what should be kept?
#
# Find the rate for each demand. One of the four is no rule at all, and two are the same rule.
#
# <details><summary>Hint</summary>Means of independent updates add up, and so do their covariances. For each demand
# write what the small batch does on the left, what the large one does on the right, and solve for η′.</details>


# %% exercise="scaled_rate"
def scaled_rate(eta, batch, base, keep):
    """The learning rate for batches of `batch` examples that keeps something as it was.

    eta: what was tuned for batches of `base`; `base` may also be the larger one.
    keep: a pair of words, first ("one update" or "same examples"), then ("mean" or "covariance").
    """
    ### BEGIN SOLUTION
    compared, moment = keep
    powers = {("one update", "mean"): 0, ("one update", "covariance"): 0.5}
    return eta * (batch / base) ** powers.get((compared, moment), 1)
    ### END SOLUTION


# %%
check(scaled_rate)

# %% hidden="scaled_rate" points=3
### BEGIN HIDDEN TESTS
points(scaled_rate, 3)
### END HIDDEN TESTS

# %% [markdown]
# | | mean | covariance |
# |---|---|---|
# | k small updates | $-k\,\eta\, G$ | $k\, \eta^2\, C / B$ |
# | one large, η′ = √k η | $-\sqrt{k}\,\eta\, G$ | $\eta^2\, C / B$ |
# | one large, η′ = k η | $-k\,\eta\, G$ | $k\, \eta^2\, C / B$ |
#
# The **linear** rule keeps both moments of the same examples. **√** keeps only the covariance of one update. Krizhevsky
# (2014) wrote that theory suggests √k, but that k worked best, and he could not explain it. A likely reason: single
# updates with B and with k·B read different numbers of examples.
#
# But there is a condition: $G$ must hardly change over a step of length kη. Along a direction of curvature λ it changes
# by a fraction kηλ, which must stay well below 1.
#
# ### Predict
#
# Now test it on the linear model of 1b: one large update by the linear rule beside the k small updates that it
# replaces, up to k = 64. According to the table, both moments are equal. Are they?

# %% editable=true
predict("mean of the large update at k = 64: smaller, equal or larger", None)
predict("covariance of the large update at k = 64: smaller, equal or larger", None)

# %%
KEPT = {"square root": ("one update", "covariance"), "linear": ("same examples", "mean")}

x = problem.train.images.reshape(size, -1).astype(np.float32) / 255
x = np.column_stack([x - x.mean(axis=0), np.ones(size, np.float32)])
y = problem.train.labels
RULES = {"the same rate": None, "√": "square root", "linear": "linear"}
SMALL, RATE = 16, 0.03


def residuals(w, at):
    """Softmax minus one-hot of some examples: [len(at), 10]."""
    z = x[at] @ w
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(at)), y[at]] -= 1
    return p


def move(w, eta, batch, updates, random):
    """How far SGD moves from w in some updates; each batch is drawn anew from all examples."""
    start = w
    for _ in range(updates):
        at = random.integers(size, size=batch)
        w = w - eta * (x[at].T @ residuals(w, at) / batch)
    return (w - start).ravel()


def moments(w, eta, batch, updates, draws=160):
    """Mean of the move [d] and trace of its covariance, from some draws."""
    random = np.random.default_rng(0)
    moves = np.array([move(w, eta, batch, updates, random) for _ in range(draws)])
    return moves.mean(axis=0), moves.var(axis=0, ddof=1).sum()


def compare_steps():
    """The noise of one update by batch size, and one large update beside k small ones."""
    w = move(np.zeros((x.shape[1], 10), np.float32), 0.05, 64, 200, np.random.default_rng(1)).reshape(-1, 10)
    p = residuals(w, np.arange(size))
    spread = np.mean((x**2).sum(1) * (p**2).sum(1)) - np.sum((x.T @ p / size) ** 2)  # trace of C, exactly
    one, many = [], []
    for k in (1, 4, 16, 64):
        batch = k * SMALL
        mean, noise = moments(w, RATE, SMALL, k)
        for name, rule in RULES.items():
            eta = scaled_rate(RATE, batch, SMALL, KEPT[rule]) if rule else RATE
            large, variance = moments(w, eta, batch, 1)
            one.append({"rule": name, "batch": batch, "measured": variance, "predicted": eta**2 * spread / batch})
            many.append({"rule": name, "k": k, "mean": large @ mean / (mean @ mean), "covariance": variance / noise})
    return pd.DataFrame(one), pd.DataFrame(many)


def show_steps():
    one, many = compare_steps()
    last = many[(many["rule"] == "linear") & (many["k"] == many["k"].max())].iloc[0]
    for moment, why in (
        ("mean", "The gradient shrinks on the way, and the small updates follow it; the large one cannot."),
        ("covariance", "Later small updates correct part of the noise of earlier ones."),
    ):
        ratio = last[moment]
        word = "equal" if abs(ratio - 1) < 0.1 else "larger" if ratio > 1 else "smaller"
        print(f"linear rule, k = {last['k']}, {moment}: {ratio:.2f} times that of the small updates")
        measured(f"{moment} of the large update at k = {last['k']}: smaller, equal or larger", word, why)
    caption = f"{problem.name}, softmax regression after 200 updates · base: B = {SMALL}, η = {RATE} · 160 draws each"
    return rates.steps(one, many, caption=caption)


show_steps()

# %% [markdown]
# On the left, dots are measured and lines are $\eta^2\, \text{tr}\, C / B$: √ is level, as derived. The other two
# panels show the large update divided by the k small ones.
#
# As k grows, the linear rule leaves 1: the condition fails. The large update knows only the slope at its start, and
# goes too far.
#
# ## The edge of stability
#
# In one model all of this can be calculated, the *noisy quadratic* (Zhang et al. 2019):
#
# $$L(w) = \tfrac{1}{2} \sum_i \lambda_i w_i^2, \qquad g_i = \lambda_i w_i + \text{noise of variance } \lambda_i c / B$$
#
# In each direction, one update changes the expected square of the weight to
#
# $$\mathbf{E}\, w_i^2 \;\to\; (1 - \eta \lambda_i)^2\, \mathbf{E}\, w_i^2 + \eta^2 \lambda_i\, c / B .$$
#
# The first term shrinks if $\eta < 2/\lambda_i$, for any batch size. The second is noise. The next figure uses 4,096
# examples: at B = 1,024 these are four updates. On the left is one run, on the right the expected final loss over η for
# each B.
#
# ### Predict
#
# Which rule does the best η follow from B = 1 to 4, and which from 256 to 1,024: linear (4 times), √ (2 times) or none?

# %% editable=true
predict("best η from B = 1 to 4: linear, √ or none", None)
predict("best η from B = 256 to 1,024: linear, √ or none", None)

# %%
CURVATURE, START, NOISE, EXAMPLES = np.array([20.0, 1.0]), np.array([1.0, -3.0]), 10.0, 4096
SIZES = [1, 4, 16, 64, 256, 1024]
ETAS = np.geomspace(1e-4, 0.3, 300)


def expected_loss(etas, batch):
    """After EXAMPLES // batch updates, for each of the rates [n]; both terms above, summed over the updates."""
    updates, eta = EXAMPLES // batch, np.asarray(etas)[:, None]
    factor = (1 - eta * CURVATURE) ** 2
    with np.errstate(over="ignore", invalid="ignore"):
        left = factor**updates
        ground = np.where(factor == 1, updates, (1 - left) / (1 - factor + (factor == 1)))
        squares = left * START**2 + eta**2 * CURVATURE * NOISE / batch * ground
    return np.clip(np.nan_to_num(squares @ CURVATURE / 2, nan=1e30), 0, 1e30)


def walk(eta, batch, shown=300):
    """The first updates of one run: [updates + 1, 2]."""
    random = np.random.default_rng(0)
    w, path = START, [START]
    for _ in range(min(shown, EXAMPLES // batch)):
        w = w - eta * (CURVATURE * w + random.normal(size=2) * np.sqrt(CURVATURE * NOISE / batch))
        path.append(w)
    return np.array(path)


bowl = stochastic.ground(lambda w: np.tensordot(CURVATURE, w**2, 1) / 2, (-1.6, 1.6), (-3.6, 1.8))
curves = {batch: expected_loss(ETAS, batch) for batch in SIZES}
edge = 2 / CURVATURE.max()


def draw_quadratic(eta, batch):
    ratio = eta * CURVATURE.max()
    word = "diverges" if ratio > 2 else "oscillates" if ratio > 1 else "no overshoot"
    return rates.quadratic(
        bowl, walk(eta, batch), ETAS, curves, eta=eta, batch=batch, edge=edge,
        title=f"η λ_max = {ratio:.2g}: {word}; {EXAMPLES // batch:,} updates",
        caption=f"λ = 20 and 1, c = {NOISE:g}, {EXAMPLES:,} examples · left: at most 300 updates of one run",
    )  # fmt: skip


widgets.explore(
    draw_quadratic,
    eta=widgets.slider("η", -4, -0.55, 0.01, log=True),
    batch=widgets.choice("batch size B", SIZES[::-1]),
)

# %%
best = {batch: ETAS[np.argmin(losses)] for batch, losses in curves.items()}
factors = [best[large] / best[small] for small, large in zip(SIZES, SIZES[1:])]
print(f"factors from one B to the next: {np.round(factors, 2)}")
NAMES = {4: "linear", 2: "√", 1: "none"}
for (small, large), factor in zip([SIZES[:2], SIZES[-2:]], [factors[0], factors[-1]]):
    measured(
        f"best η from B = {small} to {large:,}: linear, √ or none",
        NAMES[min(NAMES, key=lambda rule: abs(np.log(factor / rule)))],
        "√ would keep the noise of one update, but there are four times fewer of them."
        if factor > 2
        else "The edge of stability depends on the loss, not on the noise, so a larger batch does not move it.",
    )
rates.optimum(best, edge=edge, caption="the noisy quadratic of the figure above, best of 300 rates")

# %% [markdown]
# At first the best η grows by nearly four: the **linear** rule, as long as noise limits the rate. From 64 to 256 √
# fits. Then it stops: the limit is no longer noise but the **edge of stability** $2/\lambda_{max}$. Momentum m moves
# the edge to $2(1+m)/\lambda_{max}$. In a quadratic, training diverges beyond it. In a network, λ_max can fall while
# the loss jumps, and training may continue (1a).
#
# So *which rule is right depends on the base*, and *every rule ends*.
#
# ## Warm-up
#
# In a network the curvature changes. The authors of LEGW (You et al. 2019) explain warm-up by it: along the gradient
# the curvature is highest early in training, for about the same number of *updates* with each batch size. A rate that
# is fine later is too large there. Recorded runs below test this with $\lambda_{max}$, the largest curvature of any
# direction. Goyal et al. (2017) start from a small rate and add a constant amount at each update until it reaches the
# full rate; then the usual schedule begins. In `fit`, Horovod's `LearningRateWarmupCallback` does this; with Keras's
# SGD and a momentum it needs `momentum_correction=False`.
#
# ### Exercise: gradual warm-up
#
# <details><summary>Hint</summary>Update 0 has the rate <code>start</code>, and update number <code>steps</code> is the
# first with the full rate. Two cases are enough.</details>


# %% exercise="warm_up"
def warm_up(step, eta, steps, start):
    """The learning rate of update number `step` = 0, 1, …

    In equal increments from `start` at update 0 up to `eta` at update `steps`; from there on `eta`.
    With `steps` = 0 there is no warm-up.
    """
    ### BEGIN SOLUTION
    if step >= steps:
        return eta
    return start + (eta - start) * step / steps
    ### END SOLUTION


# %%
check(warm_up)

# %% hidden="warm_up" points=3
### BEGIN HIDDEN TESTS
points(warm_up, 3)
### END HIDDEN TESTS

# %% [markdown]
# How long? Goyal et al. take 5 of 90 epochs for every batch size. You et al. (2019) tune rate and warm-up once, for a
# small batch, and transfer both to the large one: the warm-up keeps its number of *updates*, and a single update stays
# as noisy as it was. This is LEGW, *linear-epoch gradual warm-up*. At the large batch there is nothing left to tune.
#
# ### Exercise: LEGW
#
# <details><summary>Hint</summary>Which of the four demands concerns the noise of a single update? And how many updates
# does an epoch have if the batch is k times as large?</details>


# %% exercise="legw"
def legw(eta, epochs, batch, base):
    """Learning rate and epochs of warm-up for batches of `batch` examples: a pair of floats.

    eta, epochs: what was tuned for batches of `base`; `epochs` of warm-up may be a fraction.
    """
    ### BEGIN SOLUTION
    return scaled_rate(eta, batch, base, ("one update", "covariance")), epochs * batch / base
    ### END SOLUTION


# %%
check(legw)

# %% hidden="legw" points=2
### BEGIN HIDDEN TESTS
points(legw, 2)
### END HIDDEN TESTS

# %% [markdown]
# What you should see: your rules over eight epochs, from a base of 16, each followed by a cosine down to 0. A dot is an
# update.

# %%
BASE = int(results["batch"].min())
BASE_RATE = float(results.loc[results["batch"] == BASE, "eta"].iloc[0])
WARM_UP, LEGW_WARM_UP = 2, 1 / 64  # epochs, at every batch size and at the base


def plan_of(rule, batch, epochs=WARM_UP):
    """Rate and epochs of warm-up that a rule gives for a batch size."""
    name, _, warm = rule.partition(", ")
    if name == "LEGW":
        return legw(BASE_RATE, LEGW_WARM_UP, batch, BASE)
    eta = scaled_rate(BASE_RATE, batch, BASE, KEPT[RULES[name]]) if RULES[name] else BASE_RATE
    return eta, epochs if warm else 0


def schedule(eta, warm, batch, epochs=EPOCHS, examples=IMAGES):
    """The rate of each update: your warm-up from η/k, then a cosine down to 0."""
    each = examples // batch
    total, steps = epochs * each, round(warm * each)
    cosine = [eta * (1 + np.cos(np.pi * t / (total - steps))) / 2 for t in range(total - steps)]
    return np.array([warm_up(t, eta, steps, eta * BASE / batch) for t in range(steps)] + cosine)


def draw_schedules(shown_rules, batch, epochs):
    shown = {}
    for rule in ("the same rate", *shown_rules):
        made = schedule(*plan_of(rule, batch, epochs), batch)
        shown[rule] = (np.arange(len(made)) * batch / IMAGES, made)
    title = f"B = {batch:,}: {IMAGES // batch:,} updates an epoch"
    return rates.shapes(shown, title=title, caption=f"base: η = {BASE_RATE:g} at B = {BASE}; {IMAGES:,} images")


widgets.explore(
    draw_schedules,
    shown_rules=widgets.choice("rule", {"√": ("√", "√, warm-up", "LEGW"), "linear": ("linear", "linear, warm-up")}),
    batch=widgets.choice("batch size B", [4096, 1024, 256, 64]),
    epochs=widgets.slider("epochs of warm-up (except LEGW)", 0, 6, WARM_UP),
)

# %% [markdown]
# ## Which rule fits a network?
#
# The quick network of 3a, with batches as large as the data allow: 24 updates in eight epochs. All rules start from the
# best of ten rates at B = 16, in one seed.
#
# LEGW needs a warm-up that is tuned at the base, too. `course reproduce base_warm_up` tried 12, 96 and 768 updates at B
# = 16 with three seeds. Compared with no warm-up, that is −0.0 ± 1.0, −0.1 ± 1.3 and −0.0 ± 1.1 points. So the choice
# is arbitrary: 12 updates, 1/64 of an epoch.
#
# ### Predict
#
# Which of the six does best? ("the same rate", "√", "√, warm-up", "linear", "linear, warm-up", "LEGW")

# %% editable=true
predict("best rule at 24 updates", None)

# %%
LARGE = max(batch for batch in (4096, 1024, 256) if batch <= size // 3)
TRIED = ("the same rate", "√", "√, warm-up", "LEGW", "linear", "linear, warm-up")


def train(batch, every_rate, seed=0):
    """The loss of each update, and the validation accuracy in the end. every_rate: one rate for each update."""
    optimizer = keras.optimizers.SGD(0.0, momentum=0.9)
    run = trial.Run(problem.model(seed), optimizer, problem.train, seed=seed)
    losses = []
    for rate in every_rate:
        optimizer.learning_rate = rate
        losses.append(run.train(1, batch))
    return losses, run.score(problem.validation).accuracy


def try_rules():
    losses, scores = {}, {}
    every_rate = {rule: schedule(*plan_of(rule, LARGE), LARGE, examples=size) for rule in TRIED}
    with Filling("six rules") as line:
        for number, rule in enumerate(TRIED):
            line.at(number / len(TRIED), rule)
            losses[rule], scores[rule] = train(LARGE, every_rate[rule])
    peaks = {rule: every_rate[rule].max() for rule in TRIED}
    percent = {rule: 100 * score for rule, score in scores.items()}
    print(pd.DataFrame({"highest η": peaks, "validation accuracy, %": percent}).round(3).to_string())
    best = max(scores, key=scores.get)
    measured(
        "best rule at 24 updates",
        best,
        "All the others multiply the base rate by 16 or more, which is too far here."
        if best == "the same rate"
        else "With one seed; the recorded runs follow.",
    )
    return rates.losses(
        losses,
        title=f"B = {LARGE:,}, {EPOCHS} epochs of {size // LARGE} updates",
        caption=plots.provenance(f"{problem.name}, {size:,} images, one seed"),
    )


try_rules()

# %% [markdown]
# `course reproduce rate_scaling` has recorded five batch sizes with five seeds each. Beside the rules it has the *best*
# of ten rates at each batch size, without warm-up and, from 256 on, with two epochs of it. From 64 on, three other
# seeds chose them on validation data. The figure shows each rule minus the best rate without warm-up, seed by seed.

# %%
Image("recorded/rate_scaling.png", width=plots.WIDTH)

# %%
WARM = ["√, warm-up", "linear, warm-up", "LEGW"]


def beside(best, names):
    """Points by which these rules are ahead of the best rate, seed by seed: mean ± 95 %, by batch size."""
    apart = rates.differences(results, best).query("rule in @names")
    points = apart.groupby(["rule", "batch"], sort=False)["points"]
    return points.agg(lambda runs: "{:+.1f} ± {:.1f}".format(*statistics.mean(runs))).unstack()


without = beside("tuned", ["the same rate", "√", "linear", *WARM, "tuned, warm-up"])
tables = {"minus the best without warm-up": without, "minus the best with warm-up": beside("tuned, warm-up", WARM)}
pd.concat(tables).sort_index(axis=1).fillna("")

# %% [markdown]
# (± is the 95 % interval of five seeds.)
#
# - **The base's rate is uncertain.** At B = 16 all six rates from 0.004 to 0.125 are within one point of each other, in
#   one seed.
# - **Without warm-up the best rate hardly grows with the batch:** from 0.031 at 16 to 0.0625 at 64, 256 and 1,024, and
#   back to 0.031 at 4,096. At 256 linear scaling loses 2.7 ± 1.0 points, at 1,024 √ loses 3.2 ± 2.1. At 4,096 linear
#   scaling is no better than guessing.
# - **Warm-up allows larger rates:** the best are 1 at 256 (0.25 is nearly as good) and 0.125 at 1,024 and 4,096. They
#   are 1.2 ± 0.4, 2.6 ± 0.4 and 3.4 ± 2.7 points ahead of the best without.
# - **Up to 1,024, √ and LEGW with warm-up are as good as tuning, or nearly.** Compared with the best rate with warm-up,
#   √ has −0.1 ± 0.3 points at 256 and −0.1 ± 0.9 at 1,024, LEGW −0.4 ± 0.4 and −0.0 ± 0.6. The linear rule has 0.1 ±
#   0.2 at 256, but −2.2 ± 1.9 at 1,024.
# - **At 4,096 no rule is ahead of not scaling.** √ with two epochs of warm-up is 17 ± 13 points behind the best rate
#   with warm-up, LEGW with four epochs 7 ± 8. That best rate is four times the base rate, for 256 times the batch.
#
# LEGW's authors scaled LSTMs by 64 "without losing accuracy". Here LEGW at 64 times the base has 85.9 %, the base 88.0,
# with 96 updates instead of 6,144. So with warm-up each rule is a good *first guess* for the batch: linear up to a
# factor of 16 here, √ and LEGW up to 64. Beyond that, tune. (In 3e √ fails at a factor of 20: its base rate lies near
# the upper end of a wide range.)
#
# ### Why does the best rate not grow?
#
# In the quadratic the best rate grows up to the edge. `course reproduce curvature` measured λ_max in the first 60
# updates at B = 1,024, for the peak rates of √ and of the linear rule, beside the edge of each update's rate; and at a
# small rate for three batch sizes.
#
# ### Predict
#
# After √'s warm-up of 12 updates the rate is 0.25, and the edge $2(1+m)/\eta$ is 15. λ_max is 61 at the start. What is
# it after the 12 updates?

# %% editable=true
predict("λ_max after 12 updates of warm-up to η = 0.25", None)

# %%
sharpness = pd.read_csv("recorded/curvature.csv", comment="#")
sharpness["over the edge"] = sharpness["sharpness"] * sharpness["eta"] / 3.8  # 2 (1 + m) with m = 0.9
at_large = sharpness[sharpness["batch"] == 1_024]
after_warm_up = at_large.query("rule == '√' and warm_up == 12 and after == 12")["sharpness"].median()
measured(
    "λ_max after 12 updates of warm-up to η = 0.25",
    after_warm_up,
    too_large="The curvature falls during a warm-up, which is the reason for one.",
    too_small="The curvature falls during a warm-up, but here not quite as far as the edge.",
)
at_large.pivot_table(index=["rule", "warm_up"], columns="after", values="over the edge", aggfunc="median").round(1)

# %%
Image("recorded/curvature.png", width=plots.WIDTH)

# %% [markdown]
# (The table shows λ_max divided by the edge $2(1+m)/\eta$, medians of three seeds.)
#
# - **The curvature is large at the start and falls by itself,** from 61 to 25 with a rate far below any edge. At this
#   rate it falls after the same number of *updates* with each batch size (right panel): after 24 updates it is at 24,
#   27 and 27 with 64, 1,024 and 4,096 examples each. This is LEGW's premise, but at the same rate for all.
# - **The rate matters too.** After three updates λ_max is 40 at the small rate and 12 at √'s peak without warm-up. So
#   the number of updates alone does not decide. LEGW's batches, each at its own rate, were not compared here.
# - **Without warm-up √ begins at 4.0 times the edge,** the linear rule at 32 times. Within three updates the weights
#   move to where λ_max is below the edge. A warm-up of 24 updates keeps √ below it, at 0.9 of it at most; with 12 it
#   goes up to 1.3 times the edge. The linear rule crosses it even with 24.
# - **Why the best rate does not grow:** the rate whose edge is the λ_max of the start is 3.8/61 = 0.06, the best rate
#   without warm-up from 64 to 1,024. A start beyond the edge costs some updates, and with 24 updates in all (4,096)
#   that matters most. (This explanation fits the data; it is not a test.)
#
# ## Growing the batch in place of decaying the rate
#
# Near the end of training the rate is lowered to reduce the noise. The noise depends on η/B (1b), so B may grow
# instead, and each epoch after that needs fewer updates and, on more GPUs, less time (Smith et al. 2017).
#
# Late in training a large batch should do the least harm: the gradient is small then, and noise dominates.
#
# ### Exercise: stages
#
# <details><summary>Hint</summary>Loop over the milestones and keep the current batch and rate. <code>min</code> keeps
# the batch below the largest; the factor by which the batch really grew determines the rate.</details>


# %% exercise="growth"
def growth(eta, batch, milestones, factor, largest):
    """Stages of training: a list of (first epoch, batch size, learning rate); the first one starts at epoch 0.

    At each of the milestones (epochs) the batch grows by `factor`, a whole number, but not beyond `largest`.
    What it cannot grow is taken from the learning rate, so that eta / batch falls by `factor` each time.
    """
    ### BEGIN SOLUTION
    stages = [(0, batch, eta)]
    for epoch in milestones:
        grown = min(batch * factor, largest)
        eta = eta * grown / (batch * factor)
        batch = grown
        stages.append((epoch, batch, eta))
    return stages
    ### END SOLUTION


# %%
check(growth)

# %% hidden="growth" points=4
### BEGIN HIDDEN TESTS
points(growth, 4)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise: count the updates
#
# <details><summary>Hint</summary>A stage ends where the next one begins, the last one at the end of training. Each
# epoch drops the examples that do not fill a batch.</details>


# %% exercise="updates"
def updates(stages, epochs, examples):
    """How many updates the stages make in all.

    stages: as from `growth`; epochs: of the whole training; examples: in an epoch.
    """
    ### BEGIN SOLUTION
    ends = [epoch for epoch, _, _ in stages[1:]] + [epochs]
    return sum((end - epoch) * (examples // batch) for (epoch, batch, _), end in zip(stages, ends))
    ### END SOLUTION


# %%
check(updates)

# %% hidden="updates" points=2
### BEGIN HIDDEN TESTS
points(updates, 2)
### END HIDDEN TESTS

# %% [markdown]
# ### Predict
#
# Nine epochs, milestones after three and six, a factor of 4, from B = 64 on. How many points of accuracy does growth
# cost, compared with decay?

# %% editable=true
predict("points of accuracy that growth costs", None)

# %%
LONG, MILESTONES, FACTOR = 9, [3, 6], 4


def stages_of(method, eta):
    largest = {"decay": 64, "growth": min(1024, size // 2)}[method]
    return growth(eta, 64, MILESTONES, FACTOR, largest)


def train_in_stages(stages, seed):
    """Validation accuracy and updates so far, after each epoch."""
    optimizer = keras.optimizers.SGD(0.0, momentum=0.9)
    run = trial.Run(problem.model(seed), optimizer, problem.train, seed=seed)
    row = {}
    for (first, batch, eta), end in zip(stages, [epoch for epoch, _, _ in stages[1:]] + [LONG]):
        optimizer.learning_rate = eta
        for epoch in range(first + 1, end + 1):
            run.train(size // batch, batch)
            row[f"after {epoch}"] = run.score(problem.validation).accuracy
            row[f"updates after {epoch}"] = run.updates
    return {**row, "updates": run.updates}


def compare_growth(seeds=(0, 1)):
    rows = []
    with Filling("decay and growth, two seeds each") as line:
        for method in ("decay", "growth"):
            stages = stages_of(method, float(grown.loc[grown["method"] == method, "eta"].iloc[0]))
            for seed in seeds:
                line.at(len(rows) / 4, method)
                rows.append({"method": method, **train_in_stages(stages, seed)})
            counted, made = updates(stages, LONG, size), rows[-1]["updates"]
            print(f"{method}: your function counts {counted:,} updates, the run {made:,}")
    table = pd.DataFrame(rows)
    means = table.groupby("method")[["updates", f"after {LONG}"]].mean()
    lost = 100 * (means[f"after {LONG}"]["decay"] - means[f"after {LONG}"]["growth"])
    print(f"points lost here, with two seeds: {lost:+.1f}; the recorded five seeds follow")
    return rates.stages(table, caption=plots.provenance(f"{problem.name}, {size:,} images, two seeds"))


compare_growth()

# %% [markdown]
# Recorded with five seeds for each of five methods, each with its own best of eight rates, chosen with one other seed
# (`course reproduce batch_growth`):

# %%
Image("recorded/batch_growth.png", width=plots.WIDTH)


# %%
def difference(method, other="decay"):
    """In test accuracy, seed by seed: mean and 95 % interval (Student's t), in points."""
    pairs = 100 * grown.pivot(index="seed", columns="method", values="test")
    return statistics.paired(pairs[method], pairs[other])


summary = grown.groupby("method", sort=False)[["eta", "updates", "test"]].mean()
summary["test"] *= 100
summary["against decay, points"] = ["{:+.2f} ± {:.2f}".format(*difference(method)) for method in summary.index]
measured(
    "points of accuracy that growth costs",
    -difference("growth")[0],
    "A difference smaller than its ± (in the table) counts as none.",
)
summary.rename(columns={"eta": "η at B = 64", "test": "test accuracy, %"}).round(3)

# %% [markdown]
# - **Growth is as good as decay.** Seed by seed they differ by 0.03 ± 0.11 points. Growth needs 756 updates, decay
#   1,728.
# - **The noise must be reduced, one way or the other.** With no change at all 1.2 ± 0.7 points are lost.
# - **A limit on the batch costs updates, not accuracy:** stopping at 256 and decaying then takes 864 updates, and
#   differs by −0.02 ± 0.36 points.
# - **Starting larger is different.** Growing from 256 to 4,096 takes 189 updates and loses 1.4 ± 0.4 points.
#
# ## Training longer
#
# Hoffer et al. (2017) gave the large batch more epochs, and so as many updates (3a). That costs the time that many GPUs
# were meant to save. Your largest batch trains with four times the epochs; the recorded runs follow, each with the best
# rate of its batch size for eight.

# %% editable=true
predict("points of accuracy from four times the epochs", None)


# %%
def train_longer():
    tuned = results[results["rule"] == "tuned"].groupby("batch")["eta"].first()
    rows = []
    with Filling("8 and 32 epochs") as line:
        for number, epochs in enumerate((EPOCHS, 4 * EPOCHS)):
            line.at(number / 5, f"{epochs} epochs")
            every_rate = schedule(tuned[LARGE], 0, LARGE, epochs, size)
            accuracy = 100 * train(LARGE, every_rate)[1]
            rows.append({"epochs": epochs, "updates": len(every_rate), "validation accuracy, %": round(accuracy, 1)})
    gain = rows[1]["validation accuracy, %"] - rows[0]["validation accuracy, %"]
    measured(
        "points of accuracy from four times the epochs",
        round(gain, 1),
        too_small="Four times the updates, while the loss is still falling fast.",
        too_large="With enough updates there is little left to gain: see the table below.",
    )
    return pd.DataFrame(rows, index=[f"B = {LARGE:,}"] * 2)


train_longer()

# %%
longer = recorded[(recorded["use"] == "result") & (recorded["rule"] == "tuned")]
table = longer.groupby(["batch", "epochs"])[["eta", "updates", "test"]].median()
table.assign(test=100 * table["test"]).rename(columns={"test": "test accuracy, %"}).round(3)

# %% [markdown]
# With four times the epochs the largest batch makes 96 updates, and improves from 72.2 to 82.6 %. B = 1,024 has 83.5 %
# with as many updates, seed by seed 0.8 ± 0.6 points more. But the rate of the 32 epochs was the best for 8, which was
# unfair to the larger batch. `course reproduce longer` has tuned both with the same four rates and one seed; three
# other seeds give the results:

# %%
Image("recorded/longer.png", width=plots.WIDTH)

# %% [markdown]
# With its own rate, 0.0625 instead of 0.031, the large batch has 83.9 %: 0.05 ± 0.96 points more than B = 1,024 with as
# many updates. So here only the number of updates matters, to within a point.
#
# ## Summary
#
# - √k keeps the covariance of *one update*; k keeps mean and covariance of *the same examples*. This holds while kηλ
#   stays well below 1.
# - On a quadratic the best rate grows with the batch while noise limits it, and stops at the edge of stability,
#   $2/\lambda_{max}$. On the network, without warm-up, it hardly grows at all. Every rule ends.
# - Warm-up starts below the edge. LEGW keeps its number of updates.
# - A growing batch reduces the noise as a decaying rate does, with fewer updates.
# %%
predictions.table()

# %% [markdown]
# Next: 3c, batch norm and noise when the batch is large.
#
# - A. Krizhevsky: *One weird trick for parallelizing convolutional neural networks.* arXiv:1404.5997
# - P. Goyal et al.: *Accurate, Large Minibatch SGD: Training ImageNet in 1 Hour.* arXiv:1706.02677
# - E. Hoffer, I. Hubara, D. Soudry: *Train longer, generalize better.* arXiv:1705.08741
# - S. Smith et al.: *Don't Decay the Learning Rate, Increase the Batch Size.* arXiv:1711.00489
# - Y. You et al.: *Large-Batch Training for LSTM and Beyond* (LEGW). arXiv:1901.08256
# - G. Zhang et al.: *Which Algorithmic Choices Matter at Which Batch Sizes?* arXiv:1907.04164
