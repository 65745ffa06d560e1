# %% [markdown]
# # 1e What makes it work
#
# A network's loss is no bowl, and yet gradient descent works. This notebook asks what batch norm contributes, how much
# the starting point matters, how much more data bring and whether that can be predicted, and what faster trials are
# worth.
#
# **You will be able to** say which learning rates train with and without batch norm, and why equal updates are not
# equal time; say how far twenty starts end apart, and whether they end at minima; test a power law before you trust
# it; and judge the winner of a search fairly.
#
# **Time:** 50 minutes; the only run takes about 5 seconds on 2 CPU cores. The recorded experiments took 5 to 27 minutes
# each: `course reproduce batch_norm` (or `starts`, `data_size`, `search`), typed in a terminal of the whole course,
# repeats one.
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
# Batch norm (Ioffe, Szegedy 2015) subtracts from each channel its mean over the batch, divides by its standard
# deviation, and then applies a learned scale and shift. The paper promised larger learning rates, faster training and
# less need for dropout. The recorded runs train the same network with and without it, for 150 updates, with three
# seeds for each rate.
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
        "With batch norm a filter's length has no effect on the output, so a step that is too long does less harm.",
    )
Image("recorded/batch_norm.png", width=plots.WIDTH)

# %% [markdown]
# The first promise holds in these runs: with batch norm the network trains at rates from 0.003 to 0.3, without it from
# 0.01 to 0.1.
#
# *Faster* can mean fewer updates or less time. After equal updates, batch norm is ahead: at 0.03, the best rate of
# both, by 3.4 ± 3.3 points (95 % interval, seed by seed; the rate was chosen on these runs). But a step takes about
# 1.33 times as long with batch norm (8b measures it): in the time of 150 updates the network without it makes 200. No
# run here makes 200 updates, so equal *time* was not compared.
#
# Dropout is meant against overfitting. So here are 500 images, 300 updates and five seeds, with dropout of 0.3 before
# the last layer and without.

# %%
dropout = runs[runs["use"] == "dropout"].groupby(["batch norm", "dropout"])["validation accuracy"]
half = statistics.student(5) * dropout.std() / np.sqrt(dropout.size())  # Student's t, five seeds
pd.DataFrame({"validation accuracy": dropout.mean(), "95 % interval, ±": half}).round(3)

# %% [markdown]
# Seed by seed, dropout changes the accuracy by −0.6 ± 0.7 points with batch norm and by 0.2 ± 0.6 without. Even without
# batch norm no gain is seen, so these runs don't test the third promise.
#
# The paper's first figure shows the input of one sigmoid during training: its median and its 15th and 85th percentile.
# The next figure shows the same for the input of a ReLU, for one channel.
#
# ### Predict
#
# How wide will the band between the outer percentiles be after 60 updates, relative to its width after the first
# update: with batch norm, and without?

# %% editable=true
predict("width of the band at the end, with batch norm (start: 1)", None)
predict("width of the band at the end, without batch norm (start: 1)", None)


# %%
def channel_on_the_way(normalise, channel=0, updates=60, every=5):
    """Percentiles of the input of a ReLU, for one channel of the last convolution, during a training."""
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
        "With batch norm, its learned scale sets the width; without it, the weights of this and all earlier layers do.",
    )
figures.percentiles(seen, at, caption=plots.provenance("one channel of the last convolution, 200 images, η = 0.03"))

# %% [markdown]
# Is this stability the reason why batch norm works? The paper says so (less "internal covariate shift"). Santurkar et
# al. (2018) added noise after batch norm, which removes the stability, and the network trained almost as well. So the
# reason is debated; that batch norm allows larger rates is not.
#
# ## Where twenty starts end
#
# Does it matter where the descent starts? The recorded experiment trains one network twenty times on the same 6,400
# images, for 300 updates. Only the first weights and the order of the images differ.
#
# ### Predict
#
# - How many percentage points of validation accuracy lie between the best start and the worst?
# - For one of the runs, the eigenvalues of the Hessian were measured: the curvatures of the loss of 500 training
#   images. At a minimum none is negative. Is the smallest one "negative" when training ends, or "not"?

# %% editable=true
predict("percentage points between the best and the worst of twenty starts", None)
predict("smallest eigenvalue at the end", None)

# %%
ends, bends = recorded("starts"), recorded("starts_curvature")
spread = 100 * (ends["validation accuracy"].max() - ends["validation accuracy"].min())
measured(
    "percentage points between the best and the worst of twenty starts",
    spread,
    "All starts end with similar accuracies. In the figure above, a learning rate of 1 instead of 0.03 costs far more.",
)
measured(
    "smallest eigenvalue at the end",
    "negative" if bends["smallest"].iloc[-1] < 0 else "not",
    "Training ends when the learning rate reaches 0, whether or not there is a minimum.",
)
display(bends.round(2))
Image("recorded/starts.png", width=plots.WIDTH)

# %% [markdown]
# - **The ends are similar.** All twenty end with a training loss of 0.31 to 0.36 and an accuracy of 83.1 to 85.2 %.
# - **Part of the difference is real.** Equally good networks would also differ a little, because each gets different
#   images wrong. But starts with a lower training loss have a higher validation accuracy: the correlation is −0.70 (95
#   % interval −0.87 to −0.37). Within 300 updates some starts got further than others.
# - **None of this shows minima.** In the run with measured eigenvalues some directions bend *down* to the end. For
#   simpler random surfaces, theory says that points of zero slope with a high loss almost always have such directions,
#   so bad minima are rare (Dauphin et al. 2014; Choromanska et al. 2015). These runs don't test the theory: nothing
#   shows that they end at a point of zero slope.
# - **Which loss does training see?** On a quadratic, momentum diverges where an eigenvalue exceeds $2(1+\beta)/\eta$,
#   which is 76 at the largest rate. After ten updates the largest is 156.9, and yet the loss falls. But that is the
#   loss in inference mode, where batch norm uses moving averages. Training uses the statistics of each batch. With
#   those of the 500 images (the columns `training`), the largest eigenvalue is below the limit at each look: 60.4 at
#   the start, 19.5 after ten updates. (With full batches it often rises to the limit: the *edge of stability* of 1a.)
#
# ## More data, wider networks
#
# 1a showed published power laws: the error falls with the size of the data set as $n^{-\alpha}$. If that holds, small
# experiments predict large ones. Here are the errors of one network, the mean of five seeds:

# %%
runs = recorded("data_size").query("use == 'result'")
FITTED, LARGE = 1_000, 8_000
tables = {
    width: rows.pivot(index="seed", columns="images", values="error")  # a row for each seed
    for width, rows in runs.groupby("width")
}
tables[1.0].loc[:, :FITTED].mean().to_frame("error").T.round(3)

# %% [markdown]
# ### Predict
#
# What will the error be with 8,000 images, eight times as many?

# %% editable=true
predict("error with 8,000 images", None)

# %% [markdown]
# ### Exercise: test the law before you trust it
#
# You want a power law to predict the error at twice the largest size that you have measured. Before you trust it, test
# it on your own measurements: let the law make a prediction of the same kind whose answer you know. Five seeds give
# five tests.
#
# <details><summary>Hint</summary>Which measurement should the law predict? Which sizes may it know, so that it predicts
# as far ahead as it will later? On logarithmic axes a power law is a straight line, and
# <code>np.polyfit(x, y, 1)</code> returns the slope of a fitted line and its height at 0.</details>


# %% exercise="backtest"
def backtest(sizes, errors, factor):
    """How far the error measured at the largest size lies above a power law that had to predict it.

    sizes: [s], ascending; errors: [seeds, s], a row for each seed's own runs. factor: the size that a law predicts is
    so many times the largest size to which it was fitted. Fits are by least squares on logarithmic axes.
    Returns an array [seeds], in per cent of the law's prediction.
    """
    ### BEGIN SOLUTION
    known = sizes <= sizes[-1] / factor
    above = []
    for own in errors:
        slope, height = np.polyfit(np.log(sizes[known]), np.log(own[known]), 1)
        law = np.exp(height + slope * np.log(sizes[-1]))
        above.append(100 * (own[-1] / law - 1))
    return np.array(above)
    ### END SOLUTION


# %%
check(backtest)

# %% hidden="backtest" points=3
### BEGIN HIDDEN TESTS
points(backtest, 3)
### END HIDDEN TESTS

# %% [markdown]
# The first column is the test that the small experiments allow. The others test the law that is fitted up to 1,000
# images, at twice and at eight times as many.


# %%
def above_the_law(table, largest, factor):
    """Mean and 95 % interval over the seeds, as text."""
    known = table.loc[:, :largest]
    return "{:.0f} ± {:.0f} %".format(*statistics.mean(backtest(known.columns.to_numpy(), known.to_numpy(), factor)))


measured(
    "error with 8,000 images",
    float(tables[1.0][LARGE].mean()),
    "With α = 1/3, eight times the images would halve the error. Here α is only about half of that.",
)
display(Image("recorded/data_size.png", width=plots.WIDTH))
pd.DataFrame(
    {
        f"width {width:g}": {
            "test: 500 → 1,000": above_the_law(table, FITTED, 2),
            "1,000 → 2,000": above_the_law(table, 2 * FITTED, 2),
            "1,000 → 8,000": above_the_law(table, LARGE, 8),
        }
        for width, table in tables.items()
    }
).T.rename_axis("measured above the law")

# %% [markdown]
# - **The test gives a warning.** At 1,000 images the measured error is above the law by 4 ± 15 % (width 0.25), 7 ± 4 %
#   (0.5) and 11 ± 9 % (1; five seeds on the same images, 95 % intervals): for two of three widths the law is already
#   too optimistic. At 2,000 images the error is above it by 6 ± 4 %, 6 ± 8 % and 6 ± 2 %: again for two of three. A
#   test over a factor of 8 needs larger experiments: from 125 to 1,000 images, the law would be fitted to one point.
# - **At 8,000 images** the error is above the law by 21 ± 6 %, 10 ± 8 % and 10 ± 7 %. So small experiments predict only
#   roughly what more data bring.
# - **Possible reasons.** Published laws hold where network and training grow with the data. Here the network does not
#   grow, and wider ones do better (right); 8,000 images are passed over 6 times, 125 over 200 times; and the learning
#   rate was chosen once, at 2,000 images, with one seed. Also, mislabelled and ambiguous images leave an error that no
#   amount of data removes.
# - **How large should the network be?** Hestness et al. (2017) found that the best size grows more slowly than the
#   data. For language models and a fixed amount of computing, Hoffmann et al. (2022, "Chinchilla") found that both
#   should grow equally.
#
# ## What a faster trial is worth
#
# A *random search* (Bergstra, Bengio 2012) draws learning rate, width, dropout and batch size for each trial, and keeps
# the trial with the best validation accuracy. Forty trials are recorded. With twice the computing power, a search has
# twenty trials instead of ten in the same time.
#
# ### Predict
#
# How many percentage points better is the best of ten than a single trial, on average? And the best of twenty than the
# best of ten?

# %% editable=true
predict("points from one trial to the best of ten", None)
predict("points from the best of ten to the best of twenty", None)

# %%
trials = recorded("search")
gains = {
    "points from one trial to the best of ten": (1, 10, "Many settings that are drawn at random are bad."),
    "points from the best of ten to the best of twenty": (
        10, 20, "Each further trial is less likely to beat all trials before it.",
    ),
}  # fmt: skip
for question, (few, many, reason) in gains.items():
    mean, low, high = (100 * value for value in figures.gain(trials["validation accuracy"], few, many))
    measured(question, mean, reason)
    print(f"    95 % interval over the draw of the trials: {low:.1f} to {high:.1f}")
figures.search(trials, caption="forty recorded trials, 3,200 images, two epochs; mean of all searches of k of them")

# %% [markdown]
# The first few trials bring most; after that each doubling brings less: from ten to twenty trials 1.3 points (95 %
# interval 0.5 to 1.9, by the bootstrap). And even that is too optimistic, because the winner is chosen and scored on
# the same 2,000 images. With so few images, chance gives one accuracy a standard deviation of 0.9 points, and the best
# of twenty is partly the luckiest of twenty. On fresh images the winner does less well on average; these trials were
# not scored on any. So in your own search keep images that neither train nor choose, and report the winner's accuracy
# on them.
#
# Trials are independent: a search can start one on each GPU, and needs no Horovod. The rest of this course is about the
# other case, one trial that takes too long on one GPU.
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - Batch norm widens the range of learning rates that train. After equal updates it was ahead; equal time was not
#   tested.
# - Twenty starts end with similar losses and accuracies. That does not show that they end at minima: where eigenvalues
#   were measured, in one run and for 500 images, some were negative to the end.
# - Test a law on a measurement that it has not seen, as far beyond its points as you want to use it. Fitted to little
#   data, the law here was too optimistic: by 6 % with twice the data, by 10 to 21 % with eight times.
# - The first trials of a search bring most. Score the winner on fresh data.
#
# - S. Ioffe, C. Szegedy: *Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate
#   Shift.* arXiv:1502.03167
# - S. Santurkar et al.: *How Does Batch Normalization Help Optimization?* arXiv:1805.11604
# - Y. Dauphin et al.: *Identifying and attacking the saddle point problem in high-dimensional non-convex optimization.*
#   arXiv:1406.2572
# - A. Choromanska et al.: *The Loss Surfaces of Multilayer Networks.* arXiv:1412.0233
# - J. Hestness et al.: *Deep Learning Scaling is Predictable, Empirically.* arXiv:1712.00409
# - J. Hoffmann et al.: *Training Compute-Optimal Large Language Models.* arXiv:2203.15556
# - J. Bergstra, Y. Bengio: *Random Search for Hyper-Parameter Optimization.* JMLR 13 (2012)

# %% [markdown]
# ## How was this lab?
#
# Answer from 1 (not at all) to 5 (entirely). *Save* writes your answers into `survey.csv` beside this notebook.

# %%
Survey()
