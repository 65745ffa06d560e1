# %% [markdown]
# # 1e What makes it work
#
# A network's loss is no bowl, and yet gradient descent works. Why? How much do more data and a larger network bring,
# and can one know it beforehand? And what is gained when a trial takes half the time? Each question gets an experiment:
# dozens of short trainings, recorded, so that they can be read at once and run again.
#
# **You will be able to** say what batch norm does to the learning rates that train; how much it matters from where a
# training starts; fit a power law to small experiments and predict a large one, and say when not to trust it; and what
# faster trials are worth.
#
# **Time:** 45 minutes; the only run takes about 5 seconds on 2 CPU cores. The recorded experiments take minutes each:
# `course reproduce batch_norm` (or `starts`, `data_size`, `search`), typed in a terminal of the whole course (a
# learner's container has no experiments), makes one again.
#
# **Needs:** 1a to 1c.
#
# The network is a small one, three convolutions on Fashion-MNIST, trained with momentum 0.9 and a learning rate that
# falls to 0 along a cosine.

# %%
import numpy as np
import pandas as pd
from IPython.display import Image, display

from course_lib import data, statistics
from course_lib.notebook import plots, predictions
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from course_lib.notebook.widgets.survey import Survey
from labs.lab1_gradient_descent.lessons import figures_1e as figures
from labs.lab1_gradient_descent.lessons.checks_1e import check, points
from labs.lab1_gradient_descent.lessons.short_training import Trainer

fashion = data.load("fashion_mnist")
print(f"{fashion.name} (from: {fashion.source}): {len(fashion.x_train):,} training images")


def recorded(name):
    return pd.read_csv(f"recorded/{name}.csv", comment="#")


# %% [markdown]
# ## Batch norm on and off
#
# Batch norm (Ioffe, Szegedy 2015) subtracts from each channel its mean over the batch and divides by its standard
# deviation. Its inventors promised larger learning rates, faster training and less need for dropout. The same network,
# with it and without it, trained for 150 updates with seven learning rates from 0.003 to 3.
#
# ### Predict
#
# Say that a rate *trains* if more than 70 % of the validation images are right in the end. Which is the largest of
# 0.003, 0.01, 0.03, 0.1, 0.3, 1 and 3 that trains, with and without batch norm?

# %% editable=true
predict("largest rate that trains, without batch norm", None)
predict("largest rate that trains, with batch norm", None)

# %%
runs = recorded("batch_norm")
accuracy = runs[runs["use"] == "rate"].groupby(["batch norm", "rate"])["validation accuracy"].mean()
for normalised, title in ((False, "without"), (True, "with")):
    trains = accuracy[normalised][accuracy[normalised] > 0.7]
    measured(
        f"largest rate that trains, {title} batch norm",
        float(trains.index.max()),
        "Batch norm undoes what a step does to a filter's length: a step too long does less harm.",
    )
Image("recorded/batch_norm.png", width=plots.WIDTH)

# %% [markdown]
# The first promise holds clearly, the second just does. With batch norm the network trains at rates from 0.003 to 0.3,
# without it from 0.01 to 0.1. And at the best rate of each, 0.03, it gets 82.0 % right after so few updates, without it
# 78.5 %. (Three seeds; seed by seed the difference is 3.4 ± 3.3 points, a 95 % interval; and the rates were chosen on
# these very runs.)
#
# And dropout? For that the network has to overfit: 500 images, 300 updates, five seeds, dropout of 0.3 before the last
# layer.

# %%
dropout = runs[runs["use"] == "dropout"].groupby(["batch norm", "dropout"])["validation accuracy"]
half = statistics.student(5) * dropout.std() / np.sqrt(dropout.size())  # Student's t, five seeds
pd.DataFrame({"validation accuracy": dropout.mean(), "95 % interval, ±": half}).round(3)

# %% [markdown]
# Seed by seed dropout changes −0.6 ± 0.7 points with batch norm, 0.2 ± 0.6 without; that it is needed less with batch
# norm would be −0.8 ± 1.2. With so small a network, the third promise can be neither confirmed nor refuted. The paper's
# first figure shows what reaches a sigmoid of a small network on the way: the median, and the percentiles 15 and 85.
# Here is the same for what one channel hands to its ReLU.
#
# ### Predict
#
# How wide will the band between the percentiles be after 60 updates, compared with its width at the start: with batch
# norm, and without?

# %% editable=true
predict("width of the band at the end, with batch norm (start: 1)", None)
predict("width of the band at the end, without batch norm (start: 1)", None)


# %%
def channel_on_the_way(normalise, channel=0, updates=60, every=5):
    """Percentiles of what one channel of the last convolution hands to its ReLU, in a training."""
    from tensorflow import keras

    trainer = Trainer(normalise=normalise)
    relu = [layer for layer in trainer.model.layers if isinstance(layer, keras.layers.ReLU)][-1]
    inside = keras.Model(trainer.model.input, relu.input)
    looks, images = [], fashion.x_train[:200].astype("float32")

    def look(update):
        if update == 1 or update % every == 0:
            numbers = inside(images, training=True).numpy()[..., channel]
            looks.append(np.percentile(numbers, (15, 50, 85)))

    trainer.train(fashion.x_train[:6400], fashion.y_train[:6400], seed=1, rate=0.03, updates=updates, after=look)
    return [1, *range(every, updates + 1, every)], looks


with Filling("two trainings of 60 updates") as line:
    seen = {}
    for number, (title, normalise) in enumerate({"with batch norm": True, "without batch norm": False}.items()):
        line.at(number / 2, title)
        at, seen[title] = channel_on_the_way(normalise)
for title, looks in seen.items():
    measured(
        f"width of the band at the end, {title} (start: 1)",
        (looks[-1][2] - looks[-1][0]) / (looks[0][2] - looks[0][0]),
        "With batch norm only the layer's own two numbers can widen it; without, every layer before it does.",
    )
figures.percentiles(seen, at, caption=plots.provenance("one channel of the last convolution, 200 images, η = 0.03"))

# %% [markdown]
# Whether it is this steadiness that makes batch norm work ("internal covariate shift") has been doubted since:
# Santurkar et al. (2018) added noise after batch norm, which spoils the steadiness, and it trained as well. What is not
# in doubt is the first figure.
#
# ## Many minima
#
# A loss with tens of thousands of weights has very many minima. Why does gradient descent so rarely end in a bad one?
# Twenty trainings of one network on the same 6,400 images, 300 updates each; nothing differs but the first weights and
# the order of the images.
#
# ### Predict
#
# - How many percentage points of validation accuracy lie between the best start and the worst?
# - In one of the runs the curvature is measured in all directions, that of the loss of 500 of its images. At a minimum
#   none is negative. Is the smallest eigenvalue of this Hessian at the end "negative", or "not"?

# %% editable=true
predict("percentage points between the best and the worst of twenty starts", None)
predict("smallest eigenvalue at the end", None)

# %%
ends, bends = recorded("starts"), recorded("starts_curvature")
spread = 100 * (ends["validation accuracy"].max() - ends["validation accuracy"].min())
measured(
    "percentage points between the best and the worst of twenty starts",
    spread,
    "Ten or more? That is the picture of a landscape with a few deep valleys. There are very many, about equally deep.",
)
measured(
    "smallest eigenvalue at the end",
    "negative" if bends["smallest"].iloc[-1] < 0 else "not",
    "The descent stopped where the learning rate ended, not where the slope did.",
)
display(bends.round(2))
Image("recorded/starts.png", width=plots.WIDTH)

# %% [markdown]
# - All twenty end at about the same loss (0.31 to 0.36) and the same accuracy (83.1 to 85.2 %). Other validation images
#   would move each accuracy by about as much: with 2,000 of them chance makes a standard deviation of 0.8 points.
# - In all five looks there are directions in which the loss bends *down*, as at a saddle. (It is the loss of 500
#   images; that of all 6,400 is another surface, though a similar one.) That is as theory expects of simpler random
#   surfaces (Dauphin et al. 2014; Choromanska et al. 2015): to be a bad minimum, a place would have to bend up in each
#   of 24,000 directions. High up almost every flat place has a way down.
# - At a saddle the descent does not stay: a mini-batch's noise pushes it off the ridge, as in 1b.
#
# Not every network is so kind: 1c's deep one without skip connections ends in worse places. Many more weights than the
# task needs are thought to help.
#
# ## More data, wider networks
#
# 1a showed published power laws: the error falls with the size of the data set as $n^{-\alpha}$. If that holds, small
# experiments predict large ones. Here are the errors of one network with 125 to 1,000 images:

# %%
runs = recorded("data_size").query("use == 'result'")
FITTED, LARGE, WIDTH = 1_000, 8_000, 1.0
mean = runs[runs["width"] == WIDTH].groupby("images")["error"].mean()
small = mean[mean.index <= FITTED]
small.to_frame("error").T.round(3)

# %% [markdown]
# ### Predict
#
# With 8,000 images, eight times as many as the largest of these: what will the error be? Guess first, then calculate.

# %% editable=true
predict("error with 8,000 images", None)

# %% [markdown]
# ### Exercise: extrapolate
#
# Fit the law to errors that were measured at some sizes, and ask it about another size.
#
# <details><summary>Hint</summary>On which axes is a power law a straight line? <code>np.polyfit(x, y, 1)</code> fits
# one and returns its slope and its height at 0.</details>


# %% exercise="extrapolate"
def extrapolate(sizes, errors, size):
    """The error that a power law expects at `size`. Returns a number.

    The law is fitted to `errors` at `sizes` by least squares on logarithmic axes.
    """
    ### BEGIN SOLUTION
    slope, height = np.polyfit(np.log(sizes), np.log(errors), 1)
    return float(np.exp(height + slope * np.log(size)))
    ### END SOLUTION


# %%
check(extrapolate)

# %% hidden="extrapolate" points=2
### BEGIN HIDDEN TESTS
points(extrapolate, 2)
### END HIDDEN TESTS

# %%
law = extrapolate(small.index.to_numpy(), small.to_numpy(), LARGE)
print(f"the law, fitted up to {FITTED:,} images, says {law:.3f}")
measured(
    "error with 8,000 images",
    float(mean[LARGE]),
    "Half? That is n to the power of −1/3. Here the exponent is smaller: halving the error takes far more data.",
)
display(Image("recorded/data_size.png", width=plots.WIDTH))
figures.above_the_law(runs, fitted=FITTED).round(1)

# %% [markdown]
# - On logarithmic axes the small sizes do lie near straight lines, to within 5 %.
# - Further on the measured errors come to lie *above* the law: already at 2,000 images, twice the largest that was
#   fitted, by 6 ± 4 % (width 0.25), 6 ± 8 % (0.5) and 6 ± 2 % (1), at 8,000 images by 21 ± 6 %, 10 ± 8 % and 10 ± 7 %.
#   So seconds of training tell what some more data will bring, a little too well. (Five seeds, each with a law of its
#   own; 95 % intervals.) Four scattered points, asked about eight times the data, tell no more exactly. And the law
#   needs all else to grow with the data. Here it did not: a narrow network runs into its own limit, and 8,000 images
#   are passed over 6 times, 125 over 200 times. The learning rate was chosen once, at 2,000 images, with one seed. (At
#   the right: from width 0.25 to 0.5 the error falls at each size drawn.) Also, no law goes below the share of images
#   that are mislabelled or ambiguous.
# - Hestness et al. let the network grow with the data, and find that it grows *more slowly* than the data.
#
# ## What a faster trial is worth
#
# Nobody knows the best settings beforehand. Here are forty trials of a random search: each draws its learning rate,
# width, dropout and batch size. A search of ten trials finds the best of ten such draws. Now the same with twice the
# computing power, in the same minutes: the best of twenty.
#
# ### Predict
#
# How many percentage points better is the best of ten than a single trial, on average? And the best of twenty than the
# best of ten?

# %% editable=true
predict("points from one trial to the best of ten", None)
predict("points from the best of ten to the best of twenty", None)

# %%
trials = recorded("search")["validation accuracy"].to_numpy()
best = {count: 100 * figures.found(trials, count).mean() for count in (1, 10, 20)}
measured(
    "points from one trial to the best of ten",
    best[10] - best[1],
    "Few? Many settings that one draws blindly are bad: a single trial says little about the network.",
)
measured(
    "points from the best of ten to the best of twenty",
    best[20] - best[10],
    "Many? The best of k grows like a record in sports: ever more slowly.",
)
figures.search(trials, caption="forty recorded trials, 3,200 images, two epochs; what searches of k of them find")

# %% [markdown]
# The first few trials bring most; after that each doubling brings less. This is where time counts: with two
# processors instead of one, ten trials take half the *hours*, or the next question is asked today instead of tomorrow.
# (Trials are independent. So for a search one starts a trial on each GPU, and needs no Horovod at all. The rest of this
# course is about the other case: one trial that is too long for one GPU.)
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - Batch norm widens the range of learning rates that train.
# - Twenty starts end about equally well. Where the curvature was measured, in one of them and for 500 images, some
#   directions still led down.
# - A power law fitted to little data promised too much here: 6 % less error with twice the data, 10 to 21 % with eight
#   times. Hestness et al. find it to hold where the network grows with the data, which these runs did not test.
# - The number of trials decides what a search finds, at first.
#
# - S. Ioffe, C. Szegedy: *Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate
#   Shift.* arXiv:1502.03167
# - S. Santurkar et al.: *How Does Batch Normalization Help Optimization?* arXiv:1805.11604
# - Y. Dauphin et al.: *Identifying and attacking the saddle point problem in high-dimensional non-convex optimization.*
#   arXiv:1406.2572
# - A. Choromanska et al.: *The Loss Surfaces of Multilayer Networks.* arXiv:1412.0233
# - J. Hestness et al.: *Deep Learning Scaling is Predictable, Empirically.* arXiv:1712.00409
# - J. Bergstra, Y. Bengio: *Random Search for Hyper-Parameter Optimization.* JMLR 13 (2012)

# %% [markdown]
# ## How was this lab?
#
# From 1, not at all, to 5, entirely. *Save* writes your answers into `survey.csv` beside this notebook.

# %%
Survey()
