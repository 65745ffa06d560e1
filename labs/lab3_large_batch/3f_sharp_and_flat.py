# %% [markdown]
# # 3f Sharp and flat
#
# A large batch that is trained for long is still a little worse on new images than a small batch with the same
# training loss (3a). Keskar et al. (2017) explained it by the shape of the loss: small batches end in wide, flat
# minima, large ones in sharp minima. Yao et al. (2018) added that networks from sharp minima are easier to fool;
# Hoffer et al. (2017) that a large batch has not moved far enough to find a flat minimum. Each of these claims can be
# measured, and each needs a control.
#
# **You will be able to** measure the sharpness of a minimum with products of a matrix that is too large to store;
# define a sharpness that does not change when filters are rescaled; find a small change of an image that fools a
# network, and compare the robustness of networks fairly; recognise a curve that only looks like a random walk.
#
# **Time:** 50 minutes; the runs take about 25 seconds on 2 CPU cores; on GPUs they are not yet measured.
#
# **Needs:** 1a (the bound $2/\lambda_{max}$), 3a (the generalisation gap), 3b (the edge of stability), 3c (batch
# norm's moving averages), 3d (the steepest step of limited length).

# %%
import numpy as np
import pandas as pd
from tensorflow import keras

from course_lib import data, models
from course_lib.models import landscape
from course_lib.notebook import plots, predictions
from course_lib.notebook.predictions import measured, predict
from labs.lab3_large_batch.lessons import attacks
from labs.lab3_large_batch.lessons import figures_3f as minima
from labs.lab3_large_batch.lessons import short_runs as trial
from labs.lab3_large_batch.lessons.checks_3f import check, points

fewer = trial.fashion(6_400)
LARGE = min(1_280, len(fewer.train.labels) // 5)


def network(batch, epochs, order=0, rate=0.1):
    """A trained network. All start with the same weights; `order` draws the order of the images."""
    updates = epochs * (len(fewer.train.labels) // batch)
    model = fewer.model(seed=0)
    decay = keras.optimizers.schedules.CosineDecay(rate, updates)
    trial.Run(model, keras.optimizers.SGD(decay, momentum=0.9), fewer.train, seed=order).train(updates, batch)
    return model


probe = fewer.model(seed=0)  # takes the weights of each network in turn
networks = {"small": network(64, 4), "large": network(LARGE, 4), "large, longer": network(LARGE, 20)}
print(f"{fewer.name}, {len(fewer.train.labels):,} images; small: B = 64, large: B = {LARGE:,}; longer: 20 epochs")

# %% [markdown]
# The three networks are those of 3a, with momentum 0.9, η = 0.1 and cosine decay.
#
# ## Sharp and flat
#
# A flat minimum is still low when the loss shifts a little, as it does from training to test images. To test this
# explanation, we need a number for sharpness. Around a minimum
#
# $$L(w + \delta) \approx L(w) + \tfrac12\, \delta^\top H\, \delta, \qquad H_{ij} = \frac{\partial^2 L}{\partial w_i
# \partial w_j},$$
#
# and the largest eigenvalue $\lambda_{max}$ of the Hessian $H$ is the largest curvature in any direction. (Our runs
# end only close to a minimum.)
#
# The quick network has 24,058 weights, so $H$ has 579 million numbers. But products $H v$ with vectors are enough, and
# such a product is the change of the gradient along $v$:
#
# $$H v = \lim_{\varepsilon \to 0} \frac{\nabla L(w + \varepsilon v) - \nabla L(w - \varepsilon v)}{2 \varepsilon}$$
#
# ### Exercise: H times v
#
# The step from $w$ to either side should have the length ε, whatever the length of $v$. If it is shorter, rounding
# spoils the result; if it is longer, the curvature changes along it.
#
# <details><summary>Hint</summary>H v is linear in v. So scale v to length 1, and multiply the result by the original
# length of v: <code>np.linalg.norm(v)</code>.</details>


# %% exercise="hessian_vector"
def hessian_vector(gradient, w, v, epsilon=1e-4):
    """The Hessian at w times v, from two gradients: [d].

    gradient: a function w [d] → ∇L(w) [d]. w, v: [d], left as they are; v is not 0.
    epsilon: the length of the step from w to either side.
    """
    ### BEGIN SOLUTION
    step = epsilon * v / np.linalg.norm(v)
    change = gradient(w + step) - gradient(w - step)
    return change * np.linalg.norm(v) / (2 * epsilon)
    ### END SOLUTION


# %%
check(hessian_vector)

# %% hidden="hessian_vector" points=2
### BEGIN HIDDEN TESTS
points(hessian_vector, 2)
### END HIDDEN TESTS

# %% [markdown]
# ### Exercise: power iteration
#
# Write $v$ as a sum of eigenvectors of $H$. A product with $H$ multiplies each by its eigenvalue. So after many
# products only the eigenvector whose eigenvalue has the largest magnitude remains. Then $v^\top H v$, for a $v$ of
# length 1, is this eigenvalue.
#
# <details><summary>Hint</summary>In each step v becomes H v, scaled to length 1. Keep H v in a variable, because it is
# the expensive part. The eigenvalue needs one more product at the end.</details>


# %% exercise="power_iteration"
def power_iteration(product, v, steps):
    """The eigenvalue with the largest magnitude of a symmetric matrix H, and its eigenvector.

    product: a function v [d] → H v [d]. v: the first vector [d], not 0, left as it is. steps: how often v is turned.
    Returns the eigenvalue (a float, with its sign) and the vector [d], of length 1.
    """
    ### BEGIN SOLUTION
    for _turn in range(steps):
        turned = product(v)
        v = turned / np.linalg.norm(turned)
    return float(v @ product(v)), v
    ### END SOLUTION


# %%
check(power_iteration)

# %% hidden="power_iteration" points=3
### BEGIN HIDDEN TESTS
points(power_iteration, 3)
### END HIDDEN TESTS

# %% [markdown]
# Test both on a loss with a known Hessian: for the linear model of 1a it is $2 x^\top x / n$.

# %%
x = np.random.default_rng(0).normal(size=(200, 5)) * [1, 2, 3, 4, 5]
y = x.sum(axis=1)


def linear_gradient(w):
    """The gradient of the mean squared error of x w."""
    return 2 * x.T @ (x @ w - y) / len(x)


mine, _ = power_iteration(lambda v: hessian_vector(linear_gradient, np.zeros(5), v), np.ones(5), steps=50)
print(f"your λ: {mine:.6f}; of the matrix itself: {np.linalg.eigvalsh(2 * x.T @ x / len(x))[-1]:.6f}")

# %% [markdown]
# Now the networks. Their products come from `landscape.hessian_product`, which takes the gradient of $v^\top \nabla L$
# instead of a difference, exact up to rounding.
#
# ### Predict
#
# Which of the three networks is the sharpest? A fourth network has small batches again, but η = 0.025 instead of 0.1.
# Is it sharper or flatter than with 0.1?

# %% editable=true
predict("the sharpest: small, large, or longer", None)
predict("small batches with η = 0.025: sharper or flatter than with 0.1", None)

# %%
networks["small, η / 4"] = network(64, 4, rate=0.025)
product = landscape.hessian_product(probe, fewer.train.images[:500], fewer.train.labels[:500])
size = sum(v.shape.num_elements() for v in probe.trainable_variables)


def sharpness_of(model, steps=12):
    """λ by your iteration, and by the library's, which stops by itself."""
    probe.set_weights(model.get_weights())
    mine, _ = power_iteration(product, np.random.default_rng(0).normal(size=size), steps)
    return mine, landscape.largest_eigenvalue(product, size, np.random.default_rng(1), tolerance=0.01).value


def beside(name, model):
    known, new = trial.score(model, fewer.train), trial.score(model, fewer.test)
    return [name, *sharpness_of(model), known.loss, 100 * new.accuracy]


def compare_sharpness():
    columns = ["network", "λ, your iteration", "λ, library", "training loss", "test accuracy, %"]
    table = pd.DataFrame([beside(name, model) for name, model in networks.items()], columns=columns)
    table = table.set_index("network")
    found = table["λ, library"]
    measured(
        "the sharpest: small, large, or longer",
        found[["small", "large", "large, longer"]].idxmax().split()[-1],
        "All three have the same η, but the small batch has made most updates.",
    )
    measured(
        "small batches with η = 0.025: sharper or flatter than with 0.1",
        "sharper" if found["small, η / 4"] > found["small"] else "flatter",
        "So λ does not depend on the batch size alone: the rate changes it, too.",
    )
    return table.round(3)


compare_sharpness()

# %% [markdown]
# At the same η the large-batch networks are sharper than the small-batch network, as Keskar observed. But the small
# batch with a quarter of the rate is sharper, too. This was one seed. Recorded, with three seeds and five learning
# rates (`course reproduce sharpness`, about six minutes):

# %%
recorded = pd.read_csv("recorded/sharpness.csv", comment="#")
source = "recorded: Fashion-MNIST, first 6,400 images, Hessian of 1,000 of them, 3 seeds, each a dot"
minima.sharpness(recorded, floor=0.78, caption=source)

# %%
log = recorded.assign(λ=np.log(recorded["sharpness"]), η=np.log(recorded["rate"]))
pd.DataFrame(
    {
        "batch": batch,
        "epochs": epochs,
        "λ goes as η to the power": np.polyfit(runs["η"], runs["λ"], 1)[0],
        "correlation of log λ and test accuracy": runs["λ"].corr(runs["test accuracy"]),
    }
    for (batch, epochs), runs in log.groupby(["batch", "epochs"])
).round(2)

# %%
edge = recorded.assign(**{"test accuracy, %": 100 * recorded["test accuracy"]})
edge["λ over 2(1 + m)/η"] = edge["sharpness"] * edge["rate"] / 3.8
chosen = ["training loss", "test accuracy, %", "sharpness", "λ over 2(1 + m)/η"]
edge.groupby(["batch", "epochs", "rate"])[chosen].mean().round(2)

# %% [markdown]
# - **At each η the large batch ends sharper** (left), about four times at η = 0.1 after 20 epochs. It has also made
#   fewer updates, 20 or 100 instead of 400, and its training loss is higher. These runs do not separate the effects.
# - **η has as large an effect.** From 0.025 to 0.1 the small-batch minimum gets 3.5 times flatter, but not better.
#   With 0.025 it is almost as sharp as the large-batch minimum with 0.1 (20 epochs), at a higher test accuracy. And at
#   each batch size the flattest networks, those with the largest η, have the lowest accuracy (right).
# - **The edge of stability** (Cohen et al. 2021) does not explain why λ falls as η grows. Gradient descent on a
#   quadratic diverges if λ is above $2/\eta$ (with momentum $m$: $2(1 + m)/\eta$). With B = 64 all λ are at 0.2 to 0.4
#   of this edge (last column). The edge holds for gradients without noise, and noise keeps λ lower. With B = 1,280
#   many λ are above the edge of the peak rate. This is possible because the cosine reduces η to 0.
# - **λ ‖w‖² does not help.** A large η makes the weights long, and this product (middle) should correct for it. For
#   B = 64 it falls by half up to η = 0.1, then rises to three times that.
#
# ### The same function with any sharpness
#
# Where a batch norm follows, the length of a filter has no effect: multiply all filters by $c$, and the network
# computes the same. But a step of the same length is now $c$ times smaller relative to the filters, so their Hessian
# is divided by $c^2$. Dinh et al. (2017) concluded: if sharpness changes while the function does not, it can't explain
# how well the function generalises.
#
# *Relative* steps solve this: how much does the loss bend when each filter changes by a fraction of its own length?
# Let $s_i$ be the length of the filter to which weight $i$ belongs, and write $w_i = s_i u_i$. Then a step of $u$
# means the same for every $c$.
#
# ### Exercise: relative curvature
#
# Compute products with the Hessian of the loss by $u$ from products with the Hessian by $w$.
#
# <details><summary>Hint</summary>Chain rule: what is ∂L/∂uᵢ, and what is ∂²L/∂uᵢ∂uⱼ? Write the result as a matrix
# product of three factors.</details>


# %% exercise="relative_product"
def relative_product(product, scale):
    """Products with the Hessian by u, where w = scale · u: a function v [d] → [d].

    product: a function v [d] → H v [d], H the Hessian by w; scale: [d], positive.
    """
    ### BEGIN SOLUTION
    return lambda v: scale * product(scale * v)
    ### END SOLUTION


# %%
check(relative_product)

# %% hidden="relative_product" points=2
### BEGIN HIDDEN TESTS
points(relative_product, 2)
### END HIDDEN TESTS


# %%
def enlarged(model, factor):
    """The same function of the images, with filters `factor` times as large in front of each batch norm."""
    twin = keras.models.clone_model(model)
    twin.set_weights(model.get_weights())
    for convolution, norm in zip(twin.layers, twin.layers[1:]):
        if isinstance(norm, keras.layers.BatchNormalization):
            convolution.set_weights([factor * w for w in convolution.get_weights()])
            gamma, beta, mean, variance = norm.get_weights()
            norm.set_weights([gamma, beta, factor * mean, factor**2 * variance])
    return twin


few = fewer.test.images[:1_000]


def filter_lengths(model):
    """For each weight the length of its filter; vectors (biases, γ, β) count as one filter each: [d]."""
    arrays = [v.numpy() for v in model.trainable_variables]
    return np.concatenate([
        np.broadcast_to(landscape.filter_norms(w) if w.ndim > 1 else np.linalg.norm(w) + 1e-9, w.shape).ravel()
        for w in arrays
    ])  # fmt: skip


def beside_enlarged(name="large, longer"):
    """λ, λ ‖w‖² and the relative λ of one function, with its filters 1, 2 and 4 times as large."""
    rows = []
    for factor in (1, 2, 4):
        twin = enlarged(networks[name], factor)
        apart = np.abs(twin.predict_on_batch(few) - networks[name].predict_on_batch(few)).max()
        value, _ = sharpness_of(twin)
        length = np.linalg.norm(np.concatenate([v.numpy().ravel() for v in twin.trainable_variables]))
        rows.append([factor, apart, value, value * length**2, relative(twin)])
    columns = ["filters ×", "probabilities differ by", "λ", "λ ‖w‖²", "relative λ"]
    return pd.DataFrame(rows, columns=columns).set_index("filters ×").round(3)


def relative(model, steps=12):
    """λ by your iteration and your products for relative steps."""
    probe.set_weights(model.get_weights())
    turned = relative_product(product, filter_lengths(probe))
    return power_iteration(turned, np.random.default_rng(0).normal(size=size), steps)[0]


print({name: round(relative(model), 2) for name, model in networks.items()})
beside_enlarged()

# %% [markdown]
# λ and λ ‖w‖² change with the length of the filters; the relative λ does not. (Kwon et al. (2021) call such a
# sharpness *adaptive*.) The line above the table shows it for your four networks.
#
# ## On the line between them
#
# The best-known picture of sharpness shows the loss on the straight line from a small-batch solution $w_S$ to a
# large-batch solution $w_L$, and beyond on both sides:
#
# $$L\big((1 - \alpha)\, w_S + \alpha\, w_L\big).$$
#
# Batch norm's moving averages are valid only for the weights with which they were collected, so they must be estimated
# again for each α (`landscape.settle`). As a control, the figure has the line to *another small-batch* solution, from
# the same start with the images in another order.
#
# ### Predict
#
# Is there a barrier on each line, that is, a loss above both ends? On which side does the loss rise faster: beyond the
# small batch (0) or beyond the large batch (1)?

# %% editable=true
predict("a barrier between small and large: yes or no", None)
predict("a barrier between two small-batch networks: yes or no", None)
predict("the loss rises faster beyond: small or large", None)


# %%
def line(model, end, to, alphas):
    """Losses between two networks of the same start, with averages settled, as rows of a table."""
    rows = []
    for alpha in alphas:
        probe.set_weights([(1 - alpha) * a + alpha * b for a, b in zip(model.get_weights(), end.get_weights())])
        landscape.settle(probe, fewer.train.images[:2_000])
        training, test = trial.score(probe, fewer.train), trial.score(probe, fewer.test)
        rows.append([0, to, alpha, training.loss, test.loss, test.accuracy])
    return rows


alphas = np.linspace(-0.5, 1.5, 9)
lines = line(networks["small"], networks["large, longer"], "large", alphas)
lines += line(networks["small"], network(64, 4, order=1), "small", alphas)
lines = pd.DataFrame(lines, columns=["start", "to", "alpha", "training loss", "test loss", "test accuracy"])


def tell_of_lines():
    losses = lines.pivot(index="alpha", columns="to", values="training loss")
    inside = losses[(losses.index > 0) & (losses.index < 1)].max()
    barriers = {to: "yes" if inside[to] > losses.loc[[0.0, 1.0], to].max() else "no" for to in ("large", "small")}
    measured(
        "a barrier between small and large: yes or no",
        barriers["large"],
        "Averages of the weights of two networks need not form a good network.",
    )
    measured(
        "a barrier between two small-batch networks: yes or no",
        barriers["small"],
        "Without this control the barrier could be taken for a property of large batches.",
    )
    rise = losses["large"]
    faster = "large" if rise[1.5] - rise[1.0] > rise[-0.5] - rise[0.0] else "small"
    measured("the loss rises faster beyond: small or large", faster, "The figure shows both sides.")


tell_of_lines()
minima.between(lines, caption=plots.provenance(f"{fewer.name}, one start"))

# %% [markdown]
# Recorded, with five starts:

# %%
recorded = pd.read_csv("recorded/sharpness_between.csv", comment="#")
minima.between(recorded, caption="recorded: Fashion-MNIST, first 6,400 images, 5 starts, bands: lowest to highest")

# %% [markdown]
# - **The loss rises faster beyond the large-batch solution** (α = 1), as Keskar et al. found. But the distance on the
#   line is measured in weights, and large-batch weights are shorter (17 against 21). So for them the same step is a
#   larger relative change.
# - **There is a barrier, and it says nothing about batches.** Two *small-batch* solutions of the same start have one,
#   too. Above its higher end it is even higher in 5 of 5 starts, 0.16 against 0.11 on average. Another order of the
#   images is enough.
#
# ## Easily fooled?
#
# Yao et al. (2018) found that large-batch solutions are easier to fool by images with changes that people hardly
# notice. Finding such an image takes one gradient (Goodfellow et al. 2015): that of the loss by the image $x$ instead
# of the weights. To first order
#
# $$L(x + \delta) \approx L(x) + \nabla_x L \cdot \delta .$$
#
# Training keeps the image and moves the weights downhill. An attack keeps the weights and moves the image uphill.
#
# ### Exercise: fool
#
# Each pixel may change by at most ε. Pixels are whole numbers from 0 to 255 before the attack, and ε has the same
# unit. Which change raises the loss most? (In 3d the *length* of the step was limited.)
#
# <details><summary>Hint</summary>The dot product is a sum over the pixels, and the limit holds for each pixel
# separately. What is the best change of a pixel with the slope +0.001, and of one with −5?</details>


# %% exercise="fool"
def fool(images, gradients, epsilon):
    """The images, changed in each pixel by at most `epsilon`, whose loss is the highest to first order.

    images: [n, h, w, c], whole numbers from 0 to 255, left as they are; gradients: of each image's loss by its pixels,
    of the same shape; epsilon: > 0. Returns [n, h, w, c], from 0 to 255.
    """
    ### BEGIN SOLUTION
    return np.clip(images + epsilon * np.sign(gradients), 0, 255)
    ### END SOLUTION


# %%
check(fool)

# %% hidden="fool" points=2
### BEGIN HIDDEN TESTS
points(fool, 2)
### END HIDDEN TESTS

# %% [markdown]
# This is Goodfellow's *fast gradient sign method*. The figure shows images that the small-batch network recognises
# (top), and the same after an attack with ε = 8 (bottom), with the predicted classes.

# %%
test = trial.Part(fewer.test.images[:1_000], fewer.test.labels[:1_000])


def attacked(model, epsilon):
    """The first test images, attacked with your function."""
    return fool(test.images, attacks.input_gradients(model, test), epsilon)


def show_fooled(model, epsilon=8, number=7):
    moved = attacked(model, epsilon)
    before, after = (model.predict_on_batch(images).argmax(1) for images in (test.images, moved))
    some = np.flatnonzero((before == test.labels) & (after != test.labels))[:number]
    names = data.load("fashion_mnist").classes
    print(f"recognised before: {np.mean(before == test.labels):.1%}; after: {np.mean(after == test.labels):.1%}")
    return minima.attacked(
        test.images[some], moved[some], [names[c] for c in before[some]], [names[c] for c in after[some]],
        caption=plots.provenance(f"{fewer.name}, B = 64, 4 epochs, ε = {epsilon} of 255"),
    )  # fmt: skip


show_fooled(networks["small"])

# %% [markdown]
# The gradient needs float64: a confident network gives the right class a probability that float32 rounds to 1. Then
# the loss is 0, and so is its gradient. The attack does nothing, and the network only looks robust. So
# `attacks.input_gradients` computes the last layer in float64.
#
# ### Predict
#
# With ε = 8: which of the three networks recognises most of the attacked images? How many points of accuracy do
# *random* steps of ±8 cost the first network?

# %% editable=true
predict("recognises most attacked images: small, large, or longer", None)
predict("points that random steps of 8 cost", None)


# %%
def compare_attacks(epsilons=(2, 4, 8)):
    rows = {}
    for name in ("small", "large", "large, longer"):
        model = networks[name]
        row = {"no attack": trial.score(model, test).accuracy}
        for epsilon in epsilons:
            row[f"ε = {epsilon}"] = trial.score(model, trial.Part(attacked(model, epsilon), test.labels)).accuracy
        chance = np.random.default_rng(0).normal(size=test.images.shape)
        row["random, 8"] = trial.score(model, trial.Part(fool(test.images, chance, 8), test.labels)).accuracy
        rows[name] = row
    table = 100 * pd.DataFrame(rows).T
    measured(
        "recognises most attacked images: small, large, or longer",
        table["ε = 8"].idxmax().split()[-1],
        "Compare the accuracies without attack first: a network with a lower accuracy has less to lose.",
    )
    measured(
        "points that random steps of 8 cost",
        round(table.loc["small", "no attack"] - table.loc["small", "random, 8"], 1),
        too_large="Random steps cancel in the sum over 784 pixels. In the attack each step raises the loss.",
    )
    return table.round(1)


compare_attacks()

# %% [markdown]
# A network with a lower accuracy can also have a lower accuracy under attack, whatever its batch. So compare networks
# with *equal* accuracy. `course reproduce adversarial` (about 40 minutes) has trained the small batch for 2 to 24
# epochs, with five seeds, and attacked each network with five ε. Each large-batch network is compared with the same
# seed's small-batch networks at *its own* accuracy (of up to 16 epochs; later their accuracy falls again).
#
# ### Predict
#
# At equal accuracy, with η = 0.1 for both and ε = 4: by how many points is the large batch (80 epochs) ahead? A
# negative number means that it is behind.

# %% editable=true
predict("points by which B = 1,280 is ahead under attack, at equal accuracy", None)

# %%
recorded = pd.read_csv("recorded/adversarial.csv", comment="#")
apart = {at: minima.against_small(recorded, at) for at in ("test accuracy", "training loss")}
same_rate = apart["test accuracy"].query("rate == 0.1 and epochs == 80").set_index("epsilon")
measured(
    "points by which B = 1,280 is ahead under attack, at equal accuracy",
    round(same_rate["points"][4], 1),
    "Accuracy measures on which side of the decision boundary an image lies, not how near the boundary is.",
)
minima.adversarial(
    recorded, epsilon=4, caption="recorded: Fashion-MNIST, first 6,400 images, 10,000 test images, 5 seeds"
)


# %%
def summary(rows):
    """The points by which the large batch is ahead, by ε."""
    texts = ["{:+.1f} ± {:.1f}".format(*row) for row in rows[["points", "half"]].to_numpy()]
    return pd.Series(texts, rows["epsilon"].rename("ε"))


pd.concat(
    {
        (f"at equal {at}", f"η = {rate:g}, {epochs} epochs"): summary(rows)
        for at, table in apart.items()
        for (rate, epochs), rows in table.groupby(["rate", "epochs"])
    },
    axis=1,
).T

# %% [markdown]
# - **Large-batch networks are easier to fool.** At equal accuracy, with ε = 4, the large batch is 2.7 ± 2.0 points
#   behind after 20 epochs, and after 80 epochs 16.2 ± 2.0 points with the small batch's η, 12.3 ± 2.8 with its own. At
#   equal *training loss* it is 2.9 ± 1.3, 8.6 ± 1.0 and 9.3 ± 2.3 points behind. (After 20 epochs, three of five runs
#   can be compared in accuracy, and four in loss.)
# - **Equal updates are not equal epochs.** With the same η and 400 updates, the large batch recognises 55.8 against
#   72.2 %, but it has read the images 20 times as often. Longer training makes the small batch's networks easier to
#   fool, too: from 4 epochs to 24 they fall from 72.2 to 62.1 %, while their accuracy grows from 84.4 to 86.1 %. After
#   20 and 24 epochs, it is the large batch that is fooled less often (69.2 against 62.1 %). So which of the two is
#   fooled more often depends on what is held equal: accuracy, loss, updates or epochs.
# - **The runs do not show** that sharpness is the cause: λ of these networks was not measured.
#
# ## How far from the start?
#
# Hoffer et al. (2017) found that $\|w_t - w_0\|$ grows like the *logarithm* of the number of updates $t$. They read it
# as **ultra-slow diffusion**: a random walk in a rugged random landscape, which has to cross barriers, moves only as
# $\log t$. A large batch with $\eta \propto \sqrt{B}$ has the same noise as a small batch and should follow the same
# line. So it would only need more updates: *train longer, generalise better.* You et al. (2020) found results that
# contradict it, with larger batches on ImageNet.
#
# A random walk would need noise, and its logarithm would need barriers. Two controls:
#
# - **No noise:** batches of *all* images. Then SGD is gradient descent, and nothing is random.
# - **No barriers:** softmax regression, a convex loss, with gradient descent.
#
# ### Predict
#
# By which factor does the distance grow from update 64 to update 128, in each of the two? At constant speed it would
# be 2, in a random walk without barriers 1.4, and for a logarithm little more than 1.

# %% editable=true
predict("distance after 128 over 64 updates, without noise", None)
predict("distance after 128 over 64 updates, without barriers", None)


# %%
def walk(network, batch, rate, momentum, updates=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)):
    """A run at a constant rate on the first 640 images: a table with the distance from the start by update."""
    near = trial.fashion(640)
    model = near.model(seed=0) if network == "quick" else models.linear(near.train.images.shape[1:], near.classes)
    run = trial.Run(model, keras.optimizers.SGD(rate, momentum), near.train, seed=0)
    start, rows = [v.numpy() for v in model.trainable_variables], []
    for t in updates:
        run.train(t - run.updates, min(batch, len(near.train.labels)))
        moved = [np.sum((v.numpy() - w) ** 2) for v, w in zip(model.trainable_variables, start)]
        rows.append([network, "same", batch, rate, 0, t, np.sqrt(np.sum(moved))])
    return pd.DataFrame(rows, columns=["network", "rule", "batch", "rate", "seed", "updates", "distance"])


walks = [walk("quick", 32, 0.025, 0.9), walk("quick", 640, 0.025, 0.9), walk("convex", 640, 0.01, 0.0)]
for control, run in (("noise", walks[1]), ("barriers", walks[2])):
    gone = run.set_index("updates")["distance"]
    measured(
        f"distance after 128 over 64 updates, without {control}",
        gone[128] / gone[64],
        too_small="The growth does not stop: the gradient becomes smaller as images are learned, but not 0.",
        too_large="The gradient becomes smaller as images are learned: no noise and no barrier is needed to slow down.",
    )
minima.distance(pd.concat(walks), caption=plots.provenance(f"{fewer.name}, 640 images, one seed"))

# %% [markdown]
# Recorded, with four batch sizes. In the middle η grows as √B. How well do a logarithm, c + s log t, and a power, c
# tᵖ, fit each curve? The fits begin at update 4 or at update 24 (momentum 0.9 needs about ten updates to reach its
# full speed):

# %%
recorded = pd.read_csv("recorded/sharpness_distance.csv", comment="#")
source = "recorded: Fashion-MNIST, first 2,048 images, mean of 3 seeds; dotted: best straight line from update 24 on"
minima.distance(recorded, caption=source)

# %%
rows = {}
for (network, rule, batch, rate), runs in recorded.groupby(["network", "rule", "batch", "rate"]):
    walk = runs.groupby("updates")["distance"].mean()
    for first in (4, 24):
        found = minima.fits(walk.index, walk, first)
        part = {f"log, from {first}": found["log"], f"power, from {first}": found["by power"]}
        rows.setdefault((network, "√B" if rule == "sqrt" else "same", rate, batch), {}).update(part)
table = pd.DataFrame(rows).T.rename_axis(["network", "η", "rate", "B"])
(100 * table).round(1).add_suffix(", %")

# %% [markdown]
# (In %: explained variance.)
#
# - **The first update of the fit decides.** From update 4 on, the logarithm fits better for every curve of the
#   network. From update 24 on, the power fits better at the same η for all four batch sizes (98.8 to 99.7 % against
#   97.5 to 99.4 %); the logarithm only for the two largest rates. So 256 updates hardly distinguish the two.
# - **The distance also grows without noise** (left): the curve of all images is nearly that of B = 512. Noise does add
#   to the distance: at the same η the smallest batch moves furthest.
# - **With η ∝ √B the curves do not coincide** (middle). Larger batches move further, and the one without any noise
#   furthest: over these updates the distance depends more on η than on noise.
# - **Without barriers** (right) the growth also slows down, here as a power of t. In the long run such a loss can give
#   a logarithm. With one weight, $L = \log(1 + e^{-w})$, gradient descent follows $\dot w = \eta / (1 + e^{w})$, so
#   soon $w \approx \log(\eta t)$: what is learned gives less and less gradient. Soudry et al. (2017) proved it for
#   linear models on separable data.
#
# So a distance that grows more and more slowly is typical of training with cross-entropy. It is no evidence for a
# random walk, and none against one in longer runs.
#
# ## Summary
#
# - At each η the large batch ends sharper, after fewer updates. But η and the length of the weights change λ as much.
#   Relative steps remove the effect of the filters' length.
# - Two small-batch solutions are also separated by a barrier, no lower than that to a large-batch solution.
# - At equal accuracy or equal training loss large-batch networks are fooled more often here. Longer training makes
#   small-batch networks easier to fool, too.
# - The distance from the start grows more and more slowly, also without noise.
#
# Papers:
#
# - N. Keskar et al.: *On large-batch training: generalization gap and sharp minima.* arXiv:1609.04836
# - B. Pearlmutter: *Fast exact multiplication by the Hessian.* Neural Computation 6 (1994)
# - J. Cohen et al.: *Gradient descent typically occurs at the edge of stability.* arXiv:2103.00065
# - L. Dinh et al.: *Sharp minima can generalize for deep nets.* arXiv:1703.04933
# - J. Kwon et al.: *ASAM: Adaptive sharpness-aware minimization.* arXiv:2102.11600
# - I. Goodfellow, J. Shlens, C. Szegedy: *Explaining and harnessing adversarial examples.* arXiv:1412.6572
# - Z. Yao et al.: *Hessian-based analysis of large batch training and robustness.* arXiv:1802.08241
# - E. Hoffer, I. Hubara, D. Soudry: *Train longer, generalize better.* arXiv:1705.08741
# - Y. You et al.: *The Limit of the Batch Size.* arXiv:2006.08517
# - D. Soudry et al.: *The implicit bias of gradient descent on separable data.* arXiv:1710.10345

# %%
predictions.table()

# %% [markdown]
# Next: *4a Collectives and their cost.* What ranks send to each other, and how long it takes.
