# %% [markdown]
# # 3f Sharp and flat
#
# A large batch that is trained for long is still a little worse on new images than a small one with the same training
# loss (3a). Since Keskar et al. (2017) there is an explanation in pictures: small batches end in wide, flat valleys,
# large ones in sharp gorges. Yao et al. (2018) added that networks from the gorges are easier to fool; Hoffer et al.
# (2017) that a large batch has not walked far enough to find a wide valley. These are three claims about *where*
# training ends. Each can be measured, and each needs a control.
#
# **You will be able to** measure the sharpness of a minimum with products of a matrix that nobody could store; say why
# sharpness by itself proves little, and make it a number that belongs to the function; find the smallest change of an
# image that fools a network, and compare two networks' robustness fairly; tell a random walk from a curve that looks
# like one.
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
# The three networks are those of 3a: `quick_cnn`, momentum 0.9, η = 0.1 with cosine decay; 4 epochs with B = 64, 4 with
# B = 1,280, and 20 with B = 1,280.
#
# ## Sharp and flat
#
# Keskar's explanation: large batches end in *sharp* minima, small ones in *flat* ones, and a flat minimum is still
# low when the loss moves a little, as it does from training to test images. To test it, sharpness has to be a number.
# Around a minimum
#
# $$L(w + \delta) \approx L(w) + \tfrac12\, \delta^\top H\, \delta, \qquad H_{ij} = \frac{\partial^2 L}{\partial w_i
# \partial w_j},$$
#
# and the largest eigenvalue $\lambda_{max}$ of the Hessian $H$ is the curvature along the steepest direction. It is
# also what limited η in 1a: $2/\lambda_{max}$. (Our runs end close to a minimum, not in it; the curvature can be
# measured all the same.)
#
# The quick network has 24,282 weights, so $H$ has 590 million numbers. Nobody needs them. A product $H v$ with one
# vector is enough, and that is how the gradient changes along $v$:
#
# $$H v = \lim_{\varepsilon \to 0} \frac{\nabla L(w + \varepsilon v) - \nabla L(w - \varepsilon v)}{2 \varepsilon}$$
#
# ### Exercise: H times v
#
# Make the step from $w$ to either side as long as ε, whatever the length of $v$: else the rounding of a tiny step or
# the bend of a long one spoils the result.
#
# <details><summary>Hint</summary>H v is linear in v. So take v at length 1, and multiply what you get by the length
# that v had: <code>np.linalg.norm(v)</code>.</details>


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
# Write $v$ as a sum of eigenvectors of $H$. A product with $H$ multiplies each by its eigenvalue, so after many
# products the one with the largest magnitude is all that is left. Then $v^\top H v$, for a $v$ of length 1, is its
# eigenvalue.
#
# <details><summary>Hint</summary>In each step v becomes H v, brought back to length 1. Keep H v in a variable: it is
# the expensive part. The eigenvalue comes last, from one more product.</details>


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
# Both together, on a loss whose Hessian is known: for the linear model of 1a it is $2 x^\top x / n$.

# %%
x = np.random.default_rng(0).normal(size=(200, 5)) * [1, 2, 3, 4, 5]
y = x.sum(axis=1)


def linear_gradient(w):
    """Of the mean squared error of x w."""
    return 2 * x.T @ (x @ w - y) / len(x)


mine, _ = power_iteration(lambda v: hessian_vector(linear_gradient, np.zeros(5), v), np.ones(5), steps=50)
print(f"your λ: {mine:.6f}; of the matrix itself: {np.linalg.eigvalsh(2 * x.T @ x / len(x))[-1]:.6f}")

# %% [markdown]
# Now the networks. Their products come from `landscape.hessian_product`, which does not step: it takes the gradient
# of $v^\top \nabla L$, exact up to rounding. What you should see: `largest_eigenvalue` of the library, which stops by
# itself, and your iteration agree.
#
# ### Predict
#
# Which of the three networks is the sharpest? And a fourth one: small batches again, but with η = 0.025 in place of
# 0.1. Sharper or flatter than with 0.1?

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
        "All three have the same η, but not the same number of updates: the small batch has made most.",
    )
    measured(
        "small batches with η = 0.025: sharper or flatter than with 0.1",
        "sharper" if found["small, η / 4"] > found["small"] else "flatter",
        "So λ is no property of the batch size: the rate moves it as well.",
    )
    return table.round(3)


compare_sharpness()

# %% [markdown]
# At the same η the large-batch networks are several times as sharp as the small-batch one: that is Keskar's
# observation. But the small batch with a quarter of the rate is sharper too. And what is its test accuracy? That was
# one seed; recorded are three, with five learning rates (`course reproduce sharpness`, about six minutes, which also
# records the lines and the distances below).

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
#   fewer updates, 20 or 100 against 400, and its training loss is higher. What is due to the batch alone, these runs
#   can't tell.
# - **But η does as much.** From 0.025 to 0.1 the small-batch minimum gets 3.5 times flatter, and not better. With 0.025
#   it is almost as sharp as the large-batch one with 0.1 (20 epochs), at a higher test accuracy. And within one batch
#   size the flattest networks, those with the largest η, are the worst ones (right). Whoever ranks networks by λ
#   alone ranks them by η.
# - **Why does λ fall as η grows?** The obvious answer is the *edge of stability* (Cohen et al. 2021): where λ is above
#   $2/\eta$ (with momentum $m$: $2(1 + m)/\eta$) gradient descent on a quadratic cannot stay. The last column tests it.
#   It does not explain these numbers. With B = 64 all λ are far below that edge, at 0.2 to 0.4 of it, although they
#   fall with η. (The edge is that of gradients without noise. Noise keeps λ lower; how much, $2/\eta$ does not say.)
#   With B = 1,280 and η of 0.2 or more they lie at 1.2 to 2.5 times the edge of the peak rate. That is no
#   contradiction: the cosine takes η to 0, so at the end no edge holds, and the Hessian here is that of inference mode,
#   not of the loss that was trained.
# - **What the scale of the weights has to do with it.** A large η makes the weights long, here more than three times.
#   $\lambda \|w\|^2$ (middle) is to take that out. For B = 64 it falls by half up to η = 0.1, then rises to three
#   times that. And it is not free of scale: see below.
#
# ### The same function, as sharp as you like
#
# Where a batch norm follows, nothing depends on the length of a filter: make all filters $c$ times as long, and the
# network computes the same. But a step of the same length now turns them $c$ times less, so the Hessian by these
# weights shrinks by $c^2$. (λ falls by less: batch norm's parameters and the last layer keep the curvature that they
# have.) Dinh et al. (2017): a sharpness that changes when the function does not can't explain how the function does on
# new images. Below you try it.
#
# Multiplying by $\|w\|^2$ does not help: that length has the last layer and batch norm's parameters in it, which stay
# as they are. What helps is to ask for *relative* steps: by how much does the loss bend when each filter changes by a
# part of its own length? Let $s_i$ be the length of the filter to which weight $i$ belongs, and write $w_i = s_i u_i$.
# Then a step of $u$ has the same meaning in both networks.
#
# ### Exercise: relative curvature
#
# The Hessian of the loss by $u$, as products: derive them from products with the Hessian by $w$.
#
# <details><summary>Hint</summary>Chain rule: what is ∂L/∂uᵢ, and what ∂²L/∂uᵢ∂uⱼ? Write that as a matrix, between two
# diagonal ones.</details>


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
# λ falls with the filters, λ ‖w‖² goes down and up, and the relative λ stays what it is, as it must: it belongs to the
# function. (Kwon et al. (2021) call such a sharpness *adaptive*.) The line above the table has it for your four
# networks. One seed is no verdict on who generalises; but from here on a comparison means something.
#
# ## On the line between them
#
# The picture that made sharpness famous: the loss on the straight line from a small-batch solution $w_S$ to a
# large-batch solution $w_L$, and beyond on both sides,
#
# $$L\big((1 - \alpha)\, w_S + \alpha\, w_L\big).$$
#
# Batch norm sets a trap here too. Its moving averages belong to the weights that they were collected with. For each
# new α they have to be estimated anew (`landscape.settle`), else what is drawn is a network that nobody trained. And
# a control is needed: is a line to *another small-batch* solution, from the same start with the images in another
# order, any different?
#
# ### Predict
#
# Is there a wall between the two? And on which side does the loss rise faster, beyond the small batch (0) or beyond the
# large one (1)?

# %% editable=true
predict("a wall between small and large: yes or no", None)
predict("a wall between two small-batch networks: yes or no", None)
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
    walls = {to: "yes" if inside[to] > losses.loc[[0.0, 1.0], to].max() else "no" for to in ("large", "small")}
    measured("a wall between small and large: yes or no", walls["large"])
    measured(
        "a wall between two small-batch networks: yes or no",
        walls["small"],
        "Without this control the wall would be taken for a border between small and large batches.",
    )
    rise = losses["large"]
    faster = "large" if rise[1.5] - rise[1.0] > rise[-0.5] - rise[0.0] else "small"
    measured("the loss rises faster beyond: small or large", faster)


tell_of_lines()
minima.between(lines, caption=plots.provenance(f"{fewer.name}, one start"))

# %% [markdown]
# Recorded, with five starts:

# %%
recorded = pd.read_csv("recorded/sharpness_between.csv", comment="#")
minima.between(recorded, caption="recorded: Fashion-MNIST, first 6,400 images, 5 starts, bands: lowest to highest")

# %% [markdown]
# - **The large-batch side rises faster**, beyond α = 1, and the test loss follows the training loss. That is the
#   picture of Keskar et al., and it holds here.
# - **There is a wall, and it says nothing about batches**: between two *small-batch* solutions of the same start it
#   is as high. Two orders of the images are enough to end in valleys that no straight line joins.
# - **A line is measured in weights.** From 1 to 1.5 is as long a step as from 0 to −0.5, but large-batch weights are
#   shorter (17 against 21), so for them it is a larger change. The warning of the last section holds here too.
#
# ## Easily fooled?
#
# Yao et al. (2018) measured how sharp large-batch solutions are, and then attacked them. They found them easier to
# fool, by images that have been changed so little that nobody would notice. To find such an image takes one gradient
# (Goodfellow et al. 2015): that of the loss by the image $x$ in place of the weights. To first order
#
# $$L(x + \delta) \approx L(x) + \nabla_x L \cdot \delta .$$
#
# Training keeps the image, and moves the weights downhill. The attacker keeps the weights, and moves the image uphill.
#
# ### Exercise: fool
#
# Each pixel may change by at most ε, as if a camera were a little off; pixels are whole numbers from 0 to 255 before
# the attack, and ε is in the same unit. Which change of at most ε raises the loss most? (In 3d it was the *length* of a
# step that was limited, and the answer was the direction of the gradient. Here it is not.)
#
# <details><summary>Hint</summary>The dot product is a sum over the pixels, and each pixel may do what it likes. What is
# the best that a pixel with a slope of +0.001 can do, and what one with −5?</details>


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
# That is the *fast gradient sign method* of Goodfellow et al. What you should see: above, images that the small-batch
# network recognises; below, the same after an attack with ε = 8, and what it takes them for.

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
# One trap lies in the gradient. A network that is sure of an image gives its class a probability that float32 rounds
# to 1. Then the loss is 0, so is its gradient, and the attack does nothing: the network looks robust, and is only
# rounded. So `attacks.input_gradients` calculates the last layer in float64.
#
# ### Predict
#
# ε = 8. Of the three networks, which recognises most of the attacked images? And what do steps of ±8 in *random*
# directions do to the first: how many points of accuracy do they cost?

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
        "Compare the accuracies without attack first: who knows less has less to lose.",
    )
    measured(
        "points that random steps of 8 cost",
        round(table.loc["small", "no attack"] - table.loc["small", "random, 8"], 1),
        too_large="Random steps cancel in the sum over 784 pixels; the attack's add up, each with the right sign.",
    )
    return table.round(1)


compare_attacks()

# %% [markdown]
# A network that knows less can have a lower accuracy under attack for that reason alone, whatever its batch. So compare
# networks that are *equally good*. `course reproduce adversarial` (about 40 minutes) has trained the small batch for 2
# to 24 epochs, so that its networks surround the large batch's in accuracy and in training loss, with five seeds, and
# attacked each with five ε. Each large-batch network is compared with the same seed's small-batch networks at *its
# own* accuracy. (For that only those of up to 16 epochs count. Longer ones come back to accuracies that shorter ones
# have passed: on the left, the curve turns.) Two of the three kinds of large-batch runs also have the small batch's η.
#
# ### Predict
#
# At equal accuracy, η = 0.1 for both, and ε = 4: by how many points is the large batch (80 epochs) ahead? A number
# below 0 says that it is behind.

# %% editable=true
predict("points by which B = 1,280 is ahead under attack, at equal accuracy", None)

# %%
recorded = pd.read_csv("recorded/adversarial.csv", comment="#")
apart = {at: minima.against_small(recorded, at) for at in ("test accuracy", "training loss")}
same_rate = apart["test accuracy"].query("rate == 0.1 and epochs == 80").set_index("epsilon")
measured(
    "points by which B = 1,280 is ahead under attack, at equal accuracy",
    round(same_rate["points"][4], 1),
    "Accuracy tells on which side of the border between classes an image lies, not how near the border is.",
)
minima.adversarial(
    recorded, epsilon=4, caption="recorded: Fashion-MNIST, first 6,400 images, 10,000 test images, 5 seeds"
)


# %%
def told(rows):
    """Points ahead, by ε."""
    texts = ["{:+.1f} ± {:.1f}".format(*row) for row in rows[["points", "half"]].to_numpy()]
    return pd.Series(texts, rows["epsilon"].rename("ε"))


pd.concat(
    {
        (f"at equal {at}", f"η = {rate:g}, {epochs} epochs"): told(rows)
        for at, table in apart.items()
        for (rate, epochs), rows in table.groupby(["rate", "epochs"])
    },
    axis=1,
).T

# %% [markdown]
# - **Easier to fool: yes.** At equal accuracy, with ε = 4, the large batch is 2.7 ± 2.0 points behind after 20 epochs,
#   and after 80 epochs 16.2 ± 2.0 points with the small batch's η, 12.3 ± 2.8 with its own. Yao et al. found the same
#   of their large batches.
# - **Equal accuracy is not equal training.** At equal *training loss* it is 2.9 ± 1.3, 8.6 ± 1.0 and 9.3 ± 2.3 points
#   behind. (After 20 epochs only three of its five runs have small-batch runs on both sides in accuracy, and four in
#   loss; the others are left out.)
# - **Nor are equal updates equal epochs.** With the same η, 400 updates leave the large batch far behind: 55.8 against
#   72.2 % are recognised. But for these it has read the images 20 times as often. Training for long makes the small
#   batch's networks easier to fool, too, from 4 epochs on (72.2 % with ε = 4) to 24 (62.1 %), while their accuracy
#   grows from 84.4 to 86.1 %. After about as many epochs, 20 and 24, it is the large batch that is fooled less often,
#   69.2 against 62.1 %; but the small one has then made 24 times as many updates.
# - So *train longer* (3a) gives back accuracy and takes robustness. Whether the batch or its longer training is to
#   blame depends on what is held equal: accuracy, loss, updates or epochs. A sentence about large batches has to say
#   which.
# - **What this does not show:** that sharpness is the reason; λ of these networks has not been measured. And a single
#   step is a weak attack: several small ones fool more (Madry et al. 2018).
# - **The direction does it.** Random steps of ±16 leave the small batch (4 epochs) 83.4 of 84.4 %; the attack with ε =
#   16 leaves 40.9 %.
#
# ## How far from the start?
#
# Hoffer et al. (2017) measured $\|w_t - w_0\|$ during training and found that it grows like the *logarithm* of the
# number of updates $t$. They read it as **ultra-slow diffusion**: a random walk in a rugged random landscape, which
# has to climb barriers, gets only $\log t$ far. A small batch, with its larger noise, gets over higher barriers; a
# large batch with $\eta \propto \sqrt{B}$ has the same noise and should follow the same line. So a large batch would
# lack nothing but updates: *train longer, generalise better.*
#
# The advice does not depend on the picture. But is it a random walk? You et al. (2020), with larger batches on
# ImageNet than anybody before, found results that contradict it. If it is one, then without noise nothing should
# walk, and where there are no barriers the distance should not be a logarithm. Two controls:
#
# - **No noise:** batches of *all* images. Then SGD is gradient descent, and there is no chance in it at all.
# - **No barriers:** softmax regression, a convex loss, with gradient descent.
#
# ### Predict
#
# By which factor does the distance grow from update 64 to update 128, in each of the two? Straight ahead it would be 2,
# in a random walk on a plain 1.4; for a logarithm it is little more than 1.

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
        too_small="It does not stop. The gradient gets less as images are learned, but it never ends.",
        too_large="The gradient gets less as images are learned: no chance and no barrier is needed to slow down.",
    )
minima.distance(pd.concat(walks), caption=plots.provenance(f"{fewer.name}, 640 images, one seed"))

# %% [markdown]
# Recorded, with 2,048 images, four batch sizes and three seeds. In the middle η grows as √B. How well do a logarithm,
# c + s log t, and a power, c tᵖ, follow each walk? Both have two numbers to fit. From update 4 on, as it is often done,
# and from update 24 on, when momentum 0.9 has long gathered its speed:

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
# (In %: the share of the variance that each explains.)
#
# - **The fit of update 4 decides for the logarithm, that of update 24 does not.** From 4 on the logarithm is ahead for
#   every walk of the network. But the first ten updates are momentum gathering speed. From 24 on the power is ahead at
#   the same η for all four batch sizes (98.8 to 99.7 % against 97.5 to 99.4 %); the logarithm stays ahead only for the
#   two largest rates. Between 24 and 256 updates the two can't be told apart.
# - **The distance grows as well without noise** (left). With all images in each batch nothing is random, and nothing
#   can diffuse. Its line is the one of B = 512. Whatever makes the curve, it need not be a random walk. Noise does add
#   to the distance: at the same η the smallest batch gets furthest.
# - **With η ∝ √B the lines do not come together** here (middle). The larger batch gets further, and furthest the one
#   that has no noise at all: over these updates the distance goes by η more than by noise.
# - **Without barriers** (right) it slows down as well, here clearly as a power of t. In the long run a logarithm can
#   come of such a loss, too. One weight, one image, $L = \log(1 + e^{-w})$: gradient descent follows $\dot w = \eta /
#   (1 + e^{w})$, so that $w + e^w = \eta t + \text{const}$ and soon $w \approx \log(\eta t)$. No noise, no barrier, not
#   even a second dimension. What is learned gives less and less gradient, that is all. Soudry, Hoffer et al. (2017)
#   proved it for linear models with cross-entropy on separable data.
#
# So a distance that grows more and more slowly is what training with cross-entropy looks like, without noise and
# without barriers too. It is no evidence of a random walk, and no evidence against one in longer runs.
#
# ## Summary
#
# - The largest eigenvalue of the Hessian takes a few products H v and no matrix. At each η the large batch ends
#   sharper, after fewer updates. But η and the length of the weights change λ as much, and the same function can be
#   made as sharp as you like. Relative steps make it a number of the function.
# - Between two small-batch solutions stands a wall that is as high as that between a small- and a large-batch one.
# - One gradient by the pixels finds images that fool a network. At equal accuracy large-batch networks are fooled more
#   often, here with ε = 4 by 2.7 to 16.2 points, at equal training loss by 2.9 to 9.3. Training longer makes
#   small-batch networks easier to fool, too.
# - Distance from the start grows ever more slowly; logarithm and power can't be told apart. It does so without any
#   noise too, so it is no evidence of a random walk.
#
# Papers:
#
# - N. Keskar et al.: *On large-batch training for deep learning: generalization gap and sharp minima.*
#   arXiv:1609.04836
# - B. Pearlmutter: *Fast exact multiplication by the Hessian.* Neural Computation 6 (1994)
# - J. Cohen et al.: *Gradient descent on neural networks typically occurs at the edge of stability.* arXiv:2103.00065
# - L. Dinh, R. Pascanu, S. Bengio, Y. Bengio: *Sharp minima can generalize for deep nets.* arXiv:1703.04933
# - J. Kwon et al.: *ASAM: Adaptive sharpness-aware minimization for scale-invariant learning of deep neural networks.*
#   arXiv:2102.11600
# - I. Goodfellow, J. Shlens, C. Szegedy: *Explaining and harnessing adversarial examples.* arXiv:1412.6572
# - Z. Yao, A. Gholami, Q. Lei, K. Keutzer, M. Mahoney: *Hessian-based analysis of large batch training and robustness
#   to adversaries.* arXiv:1802.08241
# - A. Madry et al.: *Towards deep learning models resistant to adversarial attacks.* arXiv:1706.06083
# - E. Hoffer, I. Hubara, D. Soudry: *Train longer, generalize better: closing the generalization gap in large batch
#   training of neural networks.* arXiv:1705.08741
# - Y. You et al.: *The Limit of the Batch Size.* arXiv:2006.08517
# - D. Soudry et al.: *The implicit bias of gradient descent on separable data.* arXiv:1710.10345

# %%
predictions.table()

# %% [markdown]
# Next: *4a Collectives and their cost.* What the ranks have to say to each other, and what it costs.
