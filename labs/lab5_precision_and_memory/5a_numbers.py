# %% [markdown]
# # 5a Numbers
#
# A GPU multiplies numbers of 16 bits several times as fast as numbers of 32, and memory and links carry twice as many
# of them. But a format of few bits holds few numbers. Which of those that occur in a training are lost, and does that
# matter? Here you look at the numbers of a training, write the rounding to any format, and repair what breaks.
#
# **You will be able to** say what a format holds from its exponent and mantissa bits; find the numbers of a training
# that it loses; scale a loss without leaving a trace; predict where a training without master weights stops; and plan a
# shared exponent before its tensor is known.
#
# **Time:** 70 minutes; the runs take about 3 seconds on 2 CPU cores. There is nothing for a GPU to do: the speed of
# half precision can't be shown here, only its numbers. A note on speed stands at the end.
#
# **Needs:** SGD with momentum (1b), LARS (3d).

# %%
import numpy as np
import pandas as pd
from IPython.display import Image

from course_lib.notebook import plots, predictions, widgets
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from labs.lab5_precision_and_memory.lessons import checks_5a, formats_5a, narrow_training
from labs.lab5_precision_and_memory.lessons import figures_5a as numbers
from labs.lab5_precision_and_memory.lessons.checks_5a import check, points

problem = narrow_training.fashion()
IMAGES = len(problem.train.labels)
BATCH = min(formats_5a.BATCH, IMAGES // 4)
RATE = 0.1
UPDATES = IMAGES // BATCH * formats_5a.EPOCHS
WHERE = plots.provenance(f"{problem.name}, {IMAGES:,} images, B = {BATCH:,}, η = {RATE}, seed 1")
network = formats_5a.Network((problem.train.images.shape[1], *formats_5a.HIDDEN, 10))
print(f"{problem.name}: {IMAGES:,} images, {UPDATES} updates, layers of {formats_5a.HIDDEN} units")

# %% [markdown]
# ## What a format holds
#
# A number is stored as sign, exponent and mantissa, $\pm 2^k \cdot 1.\mathrm{mantissa}$. A format $(e, m)$ has one bit
# of sign, $e$ of exponent and $m$ of mantissa. float32 is (8, 23), float16 (5, 10), bfloat16 (8, 7). IEEE 754 settles
# the rest:
#
# - The exponents reach from $2 - 2^{e-1}$ to $2^{e-1} - 1$. One bit pattern more is kept for ∞ and NaN.
# - The leading 1 is not stored. Only the lowest bit pattern of the exponent goes without it: there lie 0 and the
#   *subnormal* numbers, which have the lowest exponent and a mantissa that begins with 0.
# - A result is rounded to the nearest number; of two that are equally near, to the one whose last bit is 0. What rounds
#   to more than the largest number becomes ∞.
#
# ### Predict
#
# What is the largest finite number of float16? And how many different finite magnitudes above 1,024 does it hold?

# %% editable=true
predict("largest number of float16", None)
predict("float16 numbers above 1,024", None)

# %%
every = np.arange(2**15, dtype=np.uint16).view(np.float16)
finite = every[np.isfinite(every)]
measured("largest number of float16", float(finite.max()), "Its highest exponent is 15, not 16: 2 minus a last bit.")
measured(
    "float16 numbers above 1,024",
    int((finite > 1024).sum()),
    "Every power of two is divided into as many steps: from 2¹⁰ to the end there are 6 of them with 1,024 each.",
)

# %% [markdown]
# ### Exercise: rounding to any format
#
# The check compares yours, bit for bit, with NumPy's float16 and with bfloat16 of the package ml_dtypes. No type of
# theirs helps for other formats, so work with numbers: how far apart are the neighbours around x?
#
# <details><summary>Hint</summary><code>np.frexp</code> gives the power of two of each number exactly, where a rounded
# logarithm may be one off. <code>np.rint</code> rounds ties to even. In float64 everything on the way is
# exact.</details>


# %% exercise="quantise"
def quantise(x, exponent, mantissa):
    """x rounded to the format with so many exponent and mantissa bits.

    x: float32, any shape; may hold 0, ∞ and NaN. exponent: 2 to 8. mantissa: 0 to 23.
    Returns numbers of the same shape.
    """
    ### BEGIN SOLUTION
    wide = np.asarray(x, np.float64)
    lowest, highest = 2 - 2 ** (exponent - 1), 2 ** (exponent - 1) - 1
    power = np.maximum(np.frexp(wide)[1] - 1, lowest)
    spacing = np.ldexp(1.0, power - mantissa)
    rounded = np.rint(wide / spacing) * spacing
    rounded = np.where(np.abs(rounded) >= 2.0 ** (highest + 1), np.copysign(np.inf, wide), rounded)
    return np.where(np.isfinite(wide), rounded, wide)
    ### END SOLUTION


# %%
check(quantise)

# %% hidden="quantise" points=5
### BEGIN HIDDEN TESTS
points(quantise, 5)
### END HIDDEN TESTS

# %% [markdown]
# ## What occurs in a training
#
# A network of four hidden layers learns Fashion-MNIST with a large batch, in float32. In each look we take all numbers
# of one pass: weights, activations, *slopes* (the derivatives of the loss by the outputs of each layer) and the
# gradients of the weights.
#
# ### Predict
#
# A cast to float16 makes numbers below about 2⁻²⁵ zero. Which kind loses the largest share of its numbers, after the
# last update: `"weights"`, `"activations"`, `"slopes"` or `"gradients"`? And is it the slopes of the `"first"` or of
# the `"last"` layer that lose more?

# %% editable=true
predict("kind that loses most", None)
predict("slopes that lose more", None)


# %%
def watched_training():
    """Shares that float16 loses and shares of the powers of two, by update; and all tensors at the last one."""
    found, looks, every = [], {}, max(1, UPDATES // 10)
    with Filling("a training") as line:
        for state in formats_5a.train(network, problem.train, RATE, 1, batch=BATCH):
            line.at(state.updates / UPDATES, f"{state.updates} updates")
            if state.updates in (1, UPDATES) or state.updates % every == 0:
                seen = formats_5a.look(network, state, problem.train, BATCH)
                looks[state.updates] = numbers.powers(seen)
                found += [
                    {"updates": state.updates, "kind": name.split()[0], "layer": int(name.split()[1])}
                    | {"lost": formats_5a.lost(x)}
                    for name, x in seen.items()
                ]
    return pd.DataFrame(found), looks, seen, state


shares, looks, seen, trained = watched_training()


def draw(look):
    updates = list(looks)[look]
    return numbers.histograms(looks[updates], caption=f"{WHERE}, after update {updates}; thin bars: subnormal numbers")


widgets.explore(draw, look=widgets.animation("look", len(looks), interval=700))

# %% [markdown]
# The bars above the curves are the ranges of the formats. Play the training from its first update: which of the curves
# wander, and where to?

# %%
last = shares[shares["updates"] == shares["updates"].max()]
by_kind = last.groupby("kind")["lost"].mean()
slopes = last[last["kind"] == "slopes"].sort_values("layer")["lost"].to_numpy()
measured(
    "kind that loses most",
    by_kind.idxmax(),
    "Slopes are divided by the batch, and an image that is recognised well has hardly any.",
)
measured(
    "slopes that lose more",
    "last" if slopes[-1] > slopes[0] else "first",
    "The last layer has a slope for each class, and most classes are ruled out. On the way back the few large ones are "
    "added to the many small ones.",
)
numbers.along(shares[shares["kind"].isin(["slopes", "gradients"])], caption=WHERE)

# %% [markdown]
# So the slopes use the lower half of float16's range and fall out of it, while its upper half stays empty. "We are
# missing the range with FP16", says a slide of the tutorial. bfloat16 has the range of float32 and loses none of these;
# it pays with three bits of mantissa.
#
# ## A scaled loss
#
# If the loss is multiplied by a number S, all slopes and gradients are, by the chain rule (Micikevicius et al., 2018).
# A power of two rounds nothing. Too small an S changes nothing; too large an S makes something infinite. A *dynamic*
# scale finds its level by itself: it halves as soon as a gradient overflows, and doubles after so many clean steps.
#
# ### Exercise: a step that leaves no trace
#
# You get the gradient of the *scaled* loss. Weights and velocity must go on as if there were no scale, whatever it is
# now and whatever it will be; and a step whose gradient is of no use must do no harm. In which order?
#
# <details><summary>Hint</summary>Momentum is a sum over steps with different scales. What must be summed so that they
# fit together?</details>


# %% exercise="scaled_step"
def scaled_step(weights, velocity, gradient, scale, clean, rate, patience):
    """One update by SGD with momentum 0.9, and the dynamic scale.

    weights, velocity, gradient: float32 [n]; velocity is 0.9 times the one before, plus the gradient of the loss.
    scale: by what the loss was multiplied; clean: steps without overflow so far; patience: after how many in a row,
    with this one, the scale doubles.
    Returns weights, velocity, scale, clean: as they are for the next step.
    """
    ### BEGIN SOLUTION
    if not np.isfinite(gradient).all():
        return weights, velocity, scale / 2, 0
    velocity = 0.9 * velocity + gradient / scale
    weights = weights - rate * velocity
    clean += 1
    return (weights, velocity, scale * 2, 0) if clean == patience else (weights, velocity, scale, clean)
    ### END SOLUTION


# %%
check(scaled_step)

# %% hidden="scaled_step" points=4
### BEGIN HIDDEN TESTS
points(scaled_step, 4)
### END HIDDEN TESTS

# %% [markdown]
# What a scale saves, of the slopes and gradients of the last look. Where is the smallest share lost, and where does
# the first number overflow?

# %%
names = [name for name in seen if name.startswith(("slopes", "gradients"))]
rows = {}
for power in (0, 5, 10, 15, 20, 25):
    scaled = [formats_5a.float16("", seen[name] * np.float32(2.0**power)) for name in names]
    zeros = sum(int(np.sum((cast == 0) & (seen[name] != 0))) for cast, name in zip(scaled, names))
    rows[f"2^{power}"] = {
        "lost": zeros / sum(np.count_nonzero(seen[name]) for name in names),
        "infinite": sum(int(np.isinf(cast).sum()) for cast in scaled),
    }
pd.DataFrame(rows).T.rename_axis("scale").round(4).astype({"infinite": int})

# %% [markdown]
# ## Norms overflow first
#
# LARS multiplies a layer's rate by ‖w‖ / ‖∇L‖ (3d). A norm takes squares, and squares need twice the exponent: in
# float16 the square of anything from 256 on is infinite and that of anything up to 2⁻¹²·⁵ is 0.
#
# ### Predict
#
# The gradient of each kernel is exact, but its norm is taken in float16: squares and their sum. How many of the five
# norms are wrong by more than a tenth without a scale? And how many with a scale of 2²⁰?

# %% editable=true
predict("wrong norms without a scale", None)
predict("wrong norms with 2^20", None)


# %%
def norm_in_float16(x):
    squares = formats_5a.float16("", x * x)
    return np.sqrt(formats_5a.float16("", squares.sum(keepdims=True))).item()


norms = {}
for name in [name for name in seen if name.startswith("gradients")]:
    norms[name] = {"float32": float(np.linalg.norm(seen[name]))}
    for power in (0, 20):
        norms[name][f"float16, 2^{power}"] = norm_in_float16(seen[name] * np.float32(2.0**power)) / 2.0**power
norms = pd.DataFrame(norms).T
for question, power in (("wrong norms without a scale", 0), ("wrong norms with 2^20", 20)):
    wrong = ~(np.abs(norms[f"float16, 2^{power}"] / norms["float32"] - 1) <= 0.1)
    measured(question, int(wrong.sum()), "A square has twice the exponent: what fits as a number does not as a square.")
norms.map(lambda value: f"{value:.3g}") if hasattr(norms, "map") else norms.applymap(lambda value: f"{value:.3g}")

# %% [markdown]
# The remedy is as simple: norms, like every other long sum, are taken in float32, of gradients whose scale has been
# taken out. Jia et al. (2018) train with LARS in this way, and show that the curves of mixed and of single precision
# coincide.
#
# The recorded experiment (`course reproduce mixed_lars`, some minutes) trains the course's quick network with LARS and
# a batch of 1,280. Images, kernels, outputs, slopes and gradients go through 16 bits; batch norm, momentum and the
# weights that are kept stay in float32. In the ways that are called *norms too*, LARS takes its norms in float16, of
# the gradients as they come. Each way tried the same five learning rates, and ran at its best one with five other
# seeds.
#
# ### Predict
#
# How many points of test accuracy (hundredths) does LARS lose against float32 if its norms are taken in float16:
# without a scaled loss, and with a dynamic scale that begins at 2¹⁵?

# %% editable=true
predict("norms in float16: points lost", None)
predict("norms in float16, scaled loss: points lost", None)

# %%
with_lars = numbers.against_float32(pd.read_csv("recorded/mixed_lars.csv", comment="#"))
measured(
    "norms in float16: points lost",
    round(-100 * with_lars.loc["float16, norms too", "difference"], 1),
    "The gradients of this network are large enough for their squares not to vanish. The table above is of another "
    "network.",
)
measured(
    "norms in float16, scaled loss: points lost",
    round(-100 * with_lars.loc["float16, scaled loss, norms too", "difference"], 1),
    "The scale is meant for the gradients. What does it do to their squares, and what is ‖w‖ / ∞?",
)
(100 * with_lars).round(2).rename(columns=lambda name: f"{name}, points")

# %%
Image("recorded/mixed_lars.png", width=plots.WIDTH)

# %% [markdown]
# With norms in float32, mixed precision ends within two tenths of a point of float32. bfloat16 differs from it by 0.08
# ± 0.11 points, float16 by 0.11 ± 0.46, and float16 with a scaled loss by 0.17 ± 0.13. The last interval just leaves 0
# out. Of four intervals of 95 %, one does so by chance about one time in five.
#
# Norms in float16 cost nothing as long as the loss is not scaled: 0.04 ± 0.32 points. The gradients of this network are
# large enough for their squares. The scale that saves small gradients makes the squares of the others infinite. The
# rate of a kernel is then ‖w‖ / ∞ = 0, and no kernel moves. What LARS leaves alone, batch norm and the biases, is still
# trained, and reaches 69.5 % with kernels as they were drawn: 17.7 ± 2.1 points are lost. The loss falls; in four of
# five runs one step of 150 is left out, in the fifth none. Nothing else warns.
#
# ## Weights that stop
#
# Weights are kept in float32, as *master weights*, and rounded only for use. What if they are kept in 16 bits? Each
# update is then rounded into the format, and a small one is rounded away. Take one weight on its way to its target
# $w^*$ by gradient descent on $\frac{1}{2}(w - w^*)^2$: its update is $-\eta\,(w - w^*)$. It comes from above.
#
# ### Predict
#
# The target is 1, η = 0.01, and the weight is kept in bfloat16 (7 mantissa bits). How far from the target does it
# stop?

# %% editable=true
predict("distance at which bfloat16 stops", None)

# %% [markdown]
# ### Exercise: where it stops
#
# Derive the distance from the target below which no update changes the weight. The spacing around the target is that
# just above it, and no power of two lies between target and weight.
#
# <details><summary>Hint</summary>Which update is just too small? Of which distance is it the update?</details>


# %% exercise="stuck_distance"
def stuck_distance(target, rate, mantissa):
    """The distance |w − target| below which gradient descent can't move a weight with so many mantissa bits.

    target: above 0; rate: η. The weight is rounded to the nearest number after each update; its exponent has bits
    enough. No power of two lies between target and weight.
    """
    ### BEGIN SOLUTION
    spacing = 2.0 ** (np.floor(np.log2(target)) - mantissa)
    return spacing / 2 / rate
    ### END SOLUTION


# %%
check(stuck_distance)

# %% hidden="stuck_distance" points=4
### BEGIN HIDDEN TESTS
points(stuck_distance, 4)
### END HIDDEN TESTS

# %%
stopped = checks_5a.descend(1.0, 0.01, 7, 1.9)
measured(
    "distance at which bfloat16 stops",
    round(stopped, 3),
    "Far less? The spacing of bfloat16 above 1 is 1/128, and an update is only a hundredth of the distance.",
)
print(f"Where no update moves it: {stuck_distance(1.0, 0.01, 7):.3f}")

# %% [markdown]
# ## Or let chance decide
#
# There is another way than a second copy of the weights. Round up or down at random, so that the *expected* result is
# the number itself (Gupta et al., 2015). An update of a hundredth of the spacing then moves the weight by a whole
# spacing once in a hundred updates.
#
# ### Exercise: stochastic rounding
#
# Which probability makes the mean right? Mind numbers that the format already holds, and 0.
#
# <details><summary>Hint</summary>Measure x in units of its spacing, and add a random number between 0 and 1 before you
# cut off.</details>


# %% exercise="chance"
def chance(x, mantissa, random):
    """x rounded to one of its two neighbours with so many mantissa bits, so that its mean is x.

    x: float32, any shape, signs mixed; the exponent has bits enough. random: a NumPy generator, as in
    `random.random(shape)`. Returns numbers of the same shape.
    """
    ### BEGIN SOLUTION
    wide = np.asarray(x, np.float64)
    spacing = np.ldexp(1.0, np.frexp(wide)[1] - 1 - mantissa)
    return np.floor(wide / spacing + random.random(wide.shape)) * spacing
    ### END SOLUTION


# %%
check(chance)

# %% hidden="chance" points=4
### BEGIN HIDDEN TESTS
points(chance, 4)
### END HIDDEN TESTS


# %%
def path(keep, updates=1_500, rate=0.01):
    weight, seen_weights = 1.9, []
    for _ in range(updates):
        seen_weights.append(weight)
        weight = float(np.squeeze(keep(np.array([weight - rate * (weight - 1)], np.float32))))
    return seen_weights


generator = np.random.default_rng(0)
numbers.descents(
    {
        "float32": path(lambda x: x),
        "float16": path(lambda x: formats_5a.float16("", x)),
        "bfloat16": path(lambda x: formats_5a.bfloat16("", x)),
        "bfloat16, by chance": path(lambda x: chance(x, 7, generator)),
    },
    caption="one weight, η = 0.01, target 1, from 1.9",
)

# %% [markdown]
# What you should see: float16 and bfloat16 stop at a distance that differs by the factor 8 of their spacings. By chance
# the weight arrives: the nearer it is, the more rarely it moves, and then by a whole spacing. It stays only because
# this target is a number of bfloat16, with a gradient of 0. float32 stops, too, at 6 · 10⁻⁶; a distance of 0 is drawn
# at 10⁻⁶.
#
# ## One exponent for a whole tensor
#
# Flexpoint (Köster et al., 2017) takes integers of 16 bits, and one exponent for all numbers of a tensor. Integers need
# simpler hardware, and 15 bits of mantissa are more than float16 has. But the exponent must be set *before* the tensor
# is computed. Set too low, its largest numbers are cut off; set too high, all lose their last bits. Only the past
# is known.
#
# ### Exercise: plan for the next
#
# From the largest magnitudes of a tensor in all updates so far, give the bound for the next: the format will hold
# numbers up to it. The check follows four kinds of tensors. On each, at most 3 % of the updates may exceed the bound,
# and on average at most 2.5 bits may stay empty.
#
# <details><summary>Hint</summary>How many of the past maxima still tell something? And do they rise or scatter? Work
# with ratios: a factor of 2 is one bit.</details>


# %% exercise="bound"
def bound(maxima):
    """The largest magnitude to plan for in the next update.

    maxima: a list of the tensor's largest magnitudes so far, all above 0, at least one; the latest is the last.
    """
    ### BEGIN SOLUTION
    return 2 * max(maxima[-8:])
    ### END SOLUTION


# %%
check(bound)

# %% hidden="bound" points=4
### BEGIN HIDDEN TESTS
points(bound, 4)
### END HIDDEN TESTS

# %%
numbers.bounds(checks_5a.traces(), bound, caption="four drawn tensors")


# %% [markdown]
# And in a training, in which every tensor has an exponent that your bound sets:


# %%
def with_flexpoint():
    flexpoint = formats_5a.Flexpoint(bound)
    with Filling("a training") as line:
        for state in formats_5a.train(network, problem.train, RATE, 1, formats_5a.Way(flexpoint), batch=BATCH):
            line.at(state.updates / UPDATES, f"{state.updates} updates")
    return {
        "float32": network.evaluate(trained.weights, problem.validation)[1],
        "Flexpoint, your bound": network.evaluate(state.weights, problem.validation)[1],
        "tensors above the bound": flexpoint.too_large / flexpoint.tensors,
    }


pd.Series(with_flexpoint(), name="validation accuracy, or share").to_frame().round(4)

# %% [markdown]
# ## Does it matter?
#
# The recorded experiment trains the network in nine ways. Each tries the same learning rates with one seed, and then
# runs with five others at its best one. Besides the formats of this notebook there is an extreme: slopes and gradients
# of 8 bits, (5, 2), with and without a scaled loss.
#
# ### Predict
#
# Which ways end below float32 by more than chance, of `"float16"`, `"float16, scaled loss"`, `"bfloat16"`,
# `"Flexpoint"`, `"fp8 gradients"`, `"no master weights"`? A list, or `"none"`.

# %% editable=true
predict("ways that end below float32", None)

# %%
recorded = pd.read_csv("recorded/number_formats.csv", comment="#")
against = numbers.against_float32(recorded)
asked = ("float16", "float16, scaled loss", "bfloat16", "Flexpoint", "fp8 gradients", "no master weights")
below = [way for way in asked if against.loc[way, "difference"] + against.loc[way, "difference half"] < 0]
measured(
    "ways that end below float32",
    below or "none",
    "What is lost is small, and the sum of many small numbers may still not matter beside a few large ones.",
)
(100 * against).round(2).rename(columns=lambda name: f"{name}, points")

# %%
Image("recorded/number_formats.png", width=plots.WIDTH)

# %% [markdown]
# Every way is best at a rate of 0.05. Of the eight differences from float32, taken seed by seed, one excludes 0:
# without master weights the network loses 0.51 ± 0.22 points. Its loss departs from that of the others ever more as the
# learning rate falls. (At epoch 3 the dip of the two fp8 curves comes from two seeds of five, that of rounding by
# chance from one.) Weights that are kept in bfloat16 and rounded by chance differ by 0.14 ± 0.52 points: no loss that
# could be told from noise. And float16 needs no scaled loss here: its difference is 0.00 ± 0.17 points, although the
# run above loses many of the last layer's slopes. They are the smallest, of images and classes that are settled.
#
# ### Where a scale is needed
#
# How much room is there on either side? The loss is multiplied by one power of two all the time. A negative power is
# what a network with smaller slopes would meet: a larger batch, a loss averaged over more numbers, more layers that
# shrink them.

# %%
Image("recorded/number_formats_window.png", width=plots.WIDTH)

# %% [markdown]
# The plateau is the range of the format. Above its upper end slopes overflow and steps are left out. 2¹² is fine for
# both formats, as both have five exponent bits. At 2¹⁶ two seeds of five make fewer than 20 of 150 updates, a third
# makes none, and at 2²⁰ every step is left out. At the lower end slopes vanish. float16 with its ten mantissa bits
# reaches down to 2⁻⁸, fp8 with two only to 1: eight bits of mantissa are eight powers of two of subnormal numbers.
# Without a scale, fp8 stands at the edge: at 2⁻⁴ it reaches an accuracy of 0.69 in place of 0.82. A scaled loss is a
# margin. Not every training needs it. A dynamic scale would come down from the upper end. In the runs above it did not
# have to: it began at 2¹⁵, doubled to 2¹⁶ and to 2¹⁷, and no step was left out. Later slopes are small enough for that;
# 2¹⁶ all the time fails with three of five seeds.

# %% [markdown]
# ## What a GPU gains
#
# On the CPU, numbers of few bits were made by rounding those of 32, which only takes time. In the terms of the roofline
# (1f), what is bound by memory gains at most a factor of 2, because 16 bits are half of 32. What is bound by arithmetic
# gains the ratio of the peaks: NVIDIA gives its A100 19.5 TFLOP/s in float32 and 312 in float16 or bfloat16 on matrix
# units, a factor of 16. With 1.6 TB/s of memory bandwidth, the higher peak is only reached above about 200 operations
# for each byte. Small layers and batch norm stay far below that, and gain at most 2. A whole step gains less than its
# best part. Where arithmetic in 16 bits is no faster, only the bytes shrink: on a Tesla P40, a GPU without matrix
# units, Jia et al. report 218 images a second in place of 172 for ResNet-50, a factor of 1.27.
#
# ## Summary
#
# - A format is a range, by its exponent bits, and an accuracy, by its mantissa bits. Gradients need range, weights
#   accuracy.
# - A power of two moves the loss, and with it all slopes, into the range, and is taken out before anything is kept.
# - Squares need twice the exponent: norms are taken in float32.
# - An update below half of the spacing vanishes. Master weights avoid that, and so does rounding by chance.
# - One exponent for a tensor works if it is planned from the past with room to spare.
#
# 5b sends gradients in even fewer bits.
#
# - P. Micikevicius et al.: *Mixed precision training.* arXiv:1710.03740
# - U. Köster et al.: *Flexpoint: an adaptive numerical format for efficient training of deep neural networks.*
#   arXiv:1711.02213
# - S. Gupta et al.: *Deep learning with limited numerical precision.* arXiv:1502.02551
# - X. Jia et al.: *Highly scalable deep learning training system with mixed-precision: training ImageNet in four
#   minutes.* arXiv:1807.11205
# - Y. You, I. Gitman, B. Ginsburg: *Large batch training of convolutional networks.* arXiv:1708.03888
# - *IEEE standard for floating-point arithmetic.* IEEE 754-2019
# - *NVIDIA A100 Tensor Core GPU.* Data sheet, 2021
# - A. Pedram, W. Lynch, G. Lauterbach: the tutorial on the systems side of training: precision

# %% [markdown]
# ## Your guesses

# %%
predictions.table()
