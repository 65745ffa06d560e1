# %% [markdown]
# # 5d Sparsity
#
# Much of what a network computes with is 0, and much of the rest could be. A zero need not be stored, sent or
# multiplied. But it has to be found: whoever leaves out the zeros must say where the others stand, and must skip them
# faster than a dense product multiplies by them. Here you measure when that pays.
#
# **You will be able to** say where zeros come from in training, and from which density a compressed product wins on
# your machine; choose which weights to prune, and when; count the bytes of three sparse formats; recognise a faulty
# pruning by its symptoms; and decide between a small dense network and a large pruned one.
#
# **Time:** 70 minutes; the runs take about 25 seconds on 2 CPU cores. There is nothing for a GPU to do.
#
# **Needs:** convolutions and ReLU (1c). The bytes of 5a and the memory of 5c help.

# %%
import inspect

import numpy as np
import pandas as pd
from IPython.display import Code, Image

from course_lib.notebook import plots, predictions
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from labs.lab5_precision_and_memory.lessons import activations, pruning, sparse_regression
from labs.lab5_precision_and_memory.lessons import figures_5d as sparsity
from labs.lab5_precision_and_memory.lessons.checks_5d import check, points
from labs.lab5_precision_and_memory.lessons.diagnosis_5d import MISTAKES, check_diagnosis, diagnosis_points, patients

problem = pruning.fashion()
IMAGES = len(problem.train.labels)
FULL = IMAGES >= 5_000  # else a slice
WHERE = plots.provenance(f"{problem.name}, {IMAGES:,} images")
print(f"{problem.name}: {IMAGES:,} images to train on")

# %% [markdown]
# ## Zeros that come by themselves
#
# The course's quick network has three blocks: convolution, batch norm, ReLU, max-pooling. Three places in it make
# zeros:
#
# - **ReLU** gives 0 for every negative input.
# - **Max-pooling** takes the largest of four outputs of ReLU. Its result is 0 only where all four are.
# - **On the way back** max-pooling hands the gradient to the one input that was the largest, and 0 to the other three.
#
# ### Predict
#
# After training, which share of the numbers is 0 after ReLU and which after max-pooling, as a mean over the three
# blocks? And which share of the gradient that comes out of max-pooling on the way back?

# %% editable=true
predict("share of zeros after ReLU", None)
predict("share of zeros after max-pooling", None)
predict("share of zeros in the gradient", None)


# %%
def zeros_along_training():
    """The shares of zeros at some updates of a training: columns updates, block, kind, zeros."""
    found = []
    images, labels = (part[:256] for part in problem.train)
    updates = IMAGES // pruning.BATCH * pruning.EPOCHS
    every = max(1, updates // pruning.UPDATES_AT_ONCE // 8) * pruning.UPDATES_AT_ONCE

    def look(done, network):
        line.at(done / updates, f"{done} updates")
        if done % every == 0 or done == updates:
            found.append(activations.zeros(network.model, images, labels).assign(updates=done))

    with Filling("a training") as line:
        pruning.convolutional(1).train(problem.train, pruning.FIRST_RATE, 1, look=look)
    return pd.concat(found)


shares = zeros_along_training()
at_the_end = shares[shares["updates"] == shares["updates"].max()].groupby("kind")["zeros"].mean()
for question, kind, reveals in zip(
    ("after ReLU", "after max-pooling", "in the gradient"),
    activations.KINDS,
    (
        "Batch norm centres each channel, so that about half of ReLU's inputs are negative before any training.",
        "Far more? The largest of four is 0 only where all of them are.",
        "Of four inputs one gets a gradient. Where 7 × 7 become 3 × 3, the last row and column get none at all.",
    ),
):
    measured(f"share of zeros {question}", round(float(at_the_end[kind]), 3), reveals)
sparsity.zeros(shares, caption=f"{WHERE}, 256 images, one seed")

# %% [markdown]
# These zeros differ from image to image. Hardware can use them where it compresses activations on their way to memory,
# as Rhu et al. propose. A program on a CPU has to find them first.
#
# ## What a zero saves
#
# SciPy stores a sparse matrix as *compressed rows*: for each value that is not 0 its column, and for each row where it
# begins. The product then skips all zeros. NumPy's dense product multiplies by them, but reads memory in order and uses
# the processor's wide registers (and all cores, where SciPy uses one).
#
# Four ways to multiply a matrix of 2,048 × 512 by one of 512 × 128:
#
# - **dense**;
# - **compressed beforehand**, as one can with pruned weights, which stay where they are;
# - **compressed each time**, as one must with activations, where the zeros move;
# - **whole rows left out**: as many zeros, but in whole rows, so that what remains is a smaller dense matrix.
#
# ### Predict
#
# Up to which density (the share that is *not* 0) does SciPy's product beat the dense one, when it is compressed
# beforehand? And when it is compressed each time (0: never)?

# %% editable=true
predict("density up to which compressed beforehand wins", None)
predict("density up to which compressed each time wins", None)

# %%
DENSITIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
timed = activations.race(DENSITIES, rows=activations.ROWS if FULL else 256)
for way, reveals in (
    ("compressed", "Near 1? In SciPy's product one multiplication takes as long as several of the dense product."),
    ("compressing", "Finding the zeros means reading all numbers, and costs more than multiplying by them."),
):
    name = "compressed beforehand" if way == "compressed" else "compressed each time"
    crossing = activations.crossing(timed, way)
    measured(f"density up to which {name} wins", 0 if np.isnan(crossing) else crossing, reveals)
sparsity.race(timed, caption=f"{plots.provenance()} · float32, the best of five")

# %% [markdown]
# Half of the activations being 0 is far from enough. With whole rows left out, every zero counts: the smaller dense
# product is faster in proportion. So there are two questions about pruned weights. How many can go before accuracy
# suffers? And what does it cost to let them go in groups?
#
# ## Which weights
#
# In 1989 LeCun et al. chose the weights to remove by second derivatives of the loss. Han et al. (2015) just took the
# smallest, trained the rest again, and removed eight ninths of AlexNet's weights. We take the *weakest groups*, of one
# of three grains:
#
# - `"weights"`: each weight by itself;
# - `"rows"`: three neighbours along the width of a 3 × 3 kernel;
# - `"filters"`: all weights that lead to one output channel.
#
# ### Exercise: the mask
#
# How strong a group is, is for you to define. The check tries groups of which some are stronger than others by every
# sensible measure.
#
# <details><summary>Hint</summary>A function over some axes, with <code>keepdims=True</code>, gives a strength for each
# group, in a shape that NumPy broadcasts back. <code>np.argsort</code> of the flattened strengths tells which groups
# are the strongest, also where some are equal.</details>


# %% exercise="stays"
def stays(kernel, density, grain):
    """Which weights of a convolution stay when its weakest groups are pruned.

    kernel: [height, width, inputs, outputs]; density: the share of groups that stay, rounded to a whole number of
    groups, and at least one.
    grain: "weights", "rows" (a group has the same height, input and output) or "filters" (the same output).
    Returns True and False in the shape of the kernel.
    """
    ### BEGIN SOLUTION
    axes = {"weights": (), "rows": (1,), "filters": (0, 1, 2)}[grain]
    strength = np.abs(kernel).mean(axes, keepdims=True)
    keep = max(1, round(density * strength.size))
    mask = np.zeros(strength.size, bool)
    mask[np.argsort(strength, axis=None)[strength.size - keep :]] = True
    return np.broadcast_to(mask.reshape(strength.shape), kernel.shape)
    ### END SOLUTION


# %%
check(stays)

# %% hidden="stays" points=4
### BEGIN HIDDEN TESTS
points(stays, 4)
### END HIDDEN TESTS

# %% [markdown]
# Now your mask prunes the trained network to a fifth, at each grain: the second and third kernel, which have 95 % of
# its weights. The accuracy is taken three times: before, right after the pruning (with batch norm's averages estimated
# anew), and after as many updates again with the mask in place.


# %%
def three_grains(density):
    """Validation accuracy by grain: before the pruning, after it, and retrained."""
    rows = {}
    with Filling("three grains") as line:
        for number, grain in enumerate(pruning.GRAINS):
            line.at(number / 3, grain)
            network = pruning.trained(1)
            before = network.accuracy(problem.validation)
            after = network.prune(density, grain, choose=stays).settle(problem.train).accuracy(problem.validation)
            again = network.train(problem.train, 0.1, 2).accuracy(problem.validation)
            rows[grain] = {"before": before, "after the pruning": after, "retrained": again}
    return pd.DataFrame(rows).T.round(3)


three_grains(0.2)

# %% [markdown]
# What you should see: right after the pruning much is lost, and more at the coarser grains. Training again brings most
# of it back. One seed and one learning rate are an anecdote; the recorded experiment comes below.
#
# ## When
#
# The weights could go at the first update, at the last, or little by little. To try this in milliseconds, take a
# regression with 100 weights of which 5 matter. Neighbouring inputs resemble each other: at first all neighbours of a
# true input share its weight, and only with time does the true one stand out. 95 of the 100 must go.

# %%
Code(inspect.getsource(sparse_regression.error), language="python")

# %% [markdown]
# ### Predict
#
# Which of three schedules has the smallest error: `"start"` (all at the first update), `"middle"` (all half-way
# through) or `"steadily"` (the same number in each update)?

# %% editable=true
predict("schedule with the smallest error", None)


# %%
def at_the_start(update, updates, final):
    return final


def in_the_middle(update, updates, final):
    return final * (update >= updates / 2)


def steadily(update, updates, final):
    return final * update / (updates - 1)


simple = {"start": at_the_start, "middle": in_the_middle, "steadily": steadily}
simple_errors = {name: float(sparse_regression.errors(share).mean()) for name, share in simple.items()}
print({name: round(error, 3) for name, error in simple_errors.items()})
measured(
    "schedule with the smallest error",
    min(simple_errors, key=simple_errors.get),
    "Among 100 correlated weights the small ones are small for the time being. After some have gone, others take over.",
)

# %% [markdown]
# ### Exercise: the schedule
#
# An error of .01 is within reach, with a schedule that fits in a line or two. When is it safe to let many weights go,
# and when only few? And how much time do the last five need? The figure below shows yours beside the simple ones.
#
# <details><summary>Hint</summary>Compare the weights that go in an update with those that are <em>left</em>. Early,
# one weight more or less among a hundred is easily replaced; at the end each one that goes may be one of the
# five.</details>


# %% exercise="pruned_share"
def pruned_share(update, updates, final):
    """The share of the weights that is pruned when this update is made.

    update: 0 … updates − 1; updates: of the whole training; final: the share that must be reached, and never exceeded,
    early enough for the weights that stay to recover. Returns a number from 0 to `final` that never falls.
    """
    ### BEGIN SOLUTION
    done = min(1.0, update / (0.75 * updates))
    return final * (1 - (1 - done) ** 3)
    ### END SOLUTION


# %%
check(pruned_share)

# %% hidden="pruned_share" points=4
### BEGIN HIDDEN TESTS
points(pruned_share, 4)
### END HIDDEN TESTS

# %%
sparsity.schedules({**simple, "yours": pruned_share}, caption="12 drawn problems, 200 updates, 95 of 100 weights go")

# %% [markdown]
# Does it carry over to the network? Twenty weights of each kernel's thousand stay: all others go at once, or by your
# schedule.

# %%
FINAL = 0.98


def at_once_and_yours():
    found = {}
    with Filling("two trainings") as line:
        for number, (name, schedule) in enumerate(
            {"at once": None, "your schedule": lambda update, updates: pruned_share(update, updates, FINAL)}.items()
        ):
            line.at(number / 2, name)
            network = pruning.trained(1)
            if schedule is None:
                network.prune(1 - FINAL, choose=stays)
            network.train(problem.train, 0.1, 2, schedule, choose=stays)
            found[name] = {"density": network.density, "validation accuracy": network.accuracy(problem.validation)}
    return pd.DataFrame(found).T.round(3)


at_once_and_yours()

# %% [markdown]
# One seed, and one learning rate for both: a small difference may be chance. In the recorded experiment below each way
# has a learning rate of its own.
#
# ## A diagnosis
#
# Four prunings to a tenth, each with one mistake, beside a healthy one. All started from the same trained network and
# were trained for two epochs afterwards. Note which rows differ from the healthy column; the accuracy alone will not
# tell you.

# %%
seen = patients()
seen

# %%
for number, mistake in MISTAKES.items():
    print(f"{number}  {mistake}")

# %% [markdown]
# ### Exercise: the diagnosis
#
# <details><summary>Hint</summary>Four questions to each column: how many stay, and does that change? How large were
# they before? Which sign have they? Do the two kernels differ?</details>


# %% exercise="diagnosis"
def diagnosis():
    """The number of the mistake in each patient, as in {"A": 1, "B": 2, "C": 3, "D": 4}."""
    ### BEGIN SOLUTION
    return {"A": 2, "B": 1, "C": 5, "D": 4}
    ### END SOLUTION


# %%
check_diagnosis(diagnosis)

# %% hidden="diagnosis" points=4
### BEGIN HIDDEN TESTS
diagnosis_points(diagnosis, 4)
### END HIDDEN TESTS

# %% [markdown]
# ## What positions cost
#
# A pruned matrix is stored as its non-zeros and their positions. Three formats:
#
# - **Bitmap**: the values in order, and one bit for each place of the matrix that says whether a value stands there.
# - **Compressed rows**: the values row by row, for each its column; and for each row the number of values that come
#   before it, with the number of all values at the end.
# - **Coordinates**: for each value its row and its column.
#
# Every index takes as few bytes as hold the largest one that can occur in its list: 1, 2 or 4. Rows and columns are
# counted from 0.
#
# ### Exercise: bytes
#
# <details><summary>Hint</summary>One byte holds 0 to 255. What is the largest number in each list of indices? In the
# list of beginnings it is not a column.</details>


# %% exercise="sizes"
def sizes(rows, columns, nonzeros, value):
    """Bytes of a matrix in three formats: {"bitmap": …, "compressed rows": …, "coordinates": …}, whole numbers.

    rows, columns: of the matrix; nonzeros: how many of its numbers are stored; value: bytes of each of these.
    """

    ### BEGIN SOLUTION
    def index(largest):
        return 1 if largest < 256 else 2 if largest < 65_536 else 4

    column, row, beginning = index(columns - 1), index(rows - 1), index(nonzeros)
    return {
        "bitmap": nonzeros * value + -(-rows * columns // 8),
        "compressed rows": nonzeros * (value + column) + (rows + 1) * beginning,
        "coordinates": nonzeros * (value + row + column),
    }
    ### END SOLUTION


# %%
check(sizes)

# %% hidden="sizes" points=3
### BEGIN HIDDEN TESTS
points(sizes, 3)
### END HIDDEN TESTS

# %% [markdown]
# ### Predict
#
# Indices of 2 bytes. Up to which density are compressed rows smaller than the dense matrix when values have 4 bytes?
# And when they have 2, as in half precision?

# %% editable=true
predict("break-even density, 4-byte values", None)
predict("break-even density, 2-byte values", None)

# %% [markdown]
# ### Exercise: the break-even density
#
# Derive it for all three formats, for any number of bytes. The matrix is large, so that rounding and the beginnings of
# rows don't count.
#
# <details><summary>Hint</summary>Write down the bytes for <em>n</em> places and density <em>d</em>, and set them equal
# to those of the dense matrix.</details>


# %% exercise="break_even"
def break_even(value, index):
    """The densities at which bitmap, compressed rows and coordinates are as large as the dense matrix, in this order.

    value: bytes of a number (½: four bits); index: bytes of every row and column index.
    """
    ### BEGIN SOLUTION
    return 1 - 1 / (8 * value), value / (value + index), value / (value + 2 * index)
    ### END SOLUTION


# %%
check(break_even)

# %% hidden="break_even" points=3
### BEGIN HIDDEN TESTS
points(break_even, 3)
### END HIDDEN TESTS

# %%
for value in (4, 2):
    measured(
        f"break-even density, {value}-byte values",
        break_even(value, 2)[1],
        "An index of 2 bytes is half as large as one value and as large as the other.",
    )
densities = (0.5, 0.2, 0.1, 0.05, 0.02)
rows, columns = 64, 288  # the network's third kernel, as a matrix
kernel_bytes = {d: sizes(rows, columns, round(d * rows * columns), 4) for d in densities}
pd.DataFrame(kernel_bytes).T.assign(dense=4 * rows * columns).rename_axis("density")

# %% [markdown]
# The narrower the values, the dearer their positions: with values of 2 bytes, as in 5a, indices of 2 bytes are half of
# compressed rows. A bitmap costs the same at every density, so it is best as long as many values stay. Groups share
# their index: one for three weights, and none at all for filters, where what is left is a smaller dense matrix.

# %% [markdown]
# ## How far
#
# The recorded experiment: the network is trained for 6 epochs and pruned, and then it is trained for 6 more, with a
# learning rate that every way of pruning chose out of the same five on validation data: at a tenth, with one seed; the
# other densities use the same rate. Three seeds; `course reproduce pruning`, typed in a terminal, makes it again in
# about 5 minutes.
#
# ### Predict
#
# Single weights, pruned gradually: what is the smallest density (.5, .2, .1, .05 or .02) at which test accuracy stays
# within one hundredth of the dense network's?
#
# And at a tenth of the weights, how much of the dense network's accuracy does a mask cost that is drawn at random and
# then trained with, in hundredths?

# %% editable=true
predict("smallest density within one hundredth", None)
predict("hundredths that a random mask costs", None)

# %%
recorded = pd.read_csv("recorded/pruning.csv", comment="#")
lost = sparsity.losses(recorded)
measured(
    "smallest density within one hundredth",
    float(lost.query("way == 'gradual' and mean <= .01")["density"].min()),
    "Most of this network's weights can be done without, once the others have been trained to do their work.",
)
measured(
    "hundredths that a random mask costs",
    round(100 * float(lost.query("way == 'random'")["mean"].iloc[0]), 1),
    "Far more? Those that stay are trained as long as the others were: training does more than choosing.",
)
Image("recorded/pruning.png", width=plots.WIDTH)

# %% [markdown]
# What is lost against the dense network, in hundredths of test accuracy, with the 95 % interval over pairs with the
# same seed:
#
# | density | not retrained | at once | gradual | rows | filters |
# |---|---|---|---|---|---|
# | .5 | 1.5 ± 1.1 | 0.5 ± 0.4 | 0.3 ± 0.7 | 0.2 ± 0.5 | 0.6 ± 0.6 |
# | .2 | 6.9 ± 4.1 | 0.9 ± 0.3 | 0.5 ± 0.2 | 0.9 ± 0.9 | 2.4 ± 0.6 |
# | .1 | 14.4 ± 9.4 | 1.4 ± 0.5 | 0.9 ± 0.4 | 1.8 ± 0.4 | 6.0 ± 3.6 |
# | .05 | 29.8 ± 24.4 | 2.5 ± 1.3 | 1.7 ± 0.6 | 2.9 ± 1.1 | 13.3 ± 3.9 |
# | .02 | 49.4 ± 16.3 | 4.7 ± 0.3 | 3.7 ± 0.6 | 5.6 ± 1.8 | 43.6 ± 3.3 |
#
# - Nine tenths of the weights can go for 0.9 ± 0.4 hundredths, if they go gradually and what stays is trained. Without
#   retraining they cost 14.4 ± 9.4.
# - The schedule helps: at a tenth gradual pruning is better than pruning at once by 0.6 ± 0.4. At a fiftieth, with
#   rates that were chosen at a tenth, it is so by 1.0 ± 0.3. It helps far less than in the small regression.
# - A random mask costs 2.6 ± 1.0 at a tenth. Pruning at once is ahead of it by 1.2 ± 1.5, which may be chance. Here the
#   training after the pruning does more than the choice of the weights.
#
# ## Grain: what positions cost
#
# Coarser groups need fewer positions, and the products of whole rows are what hardware does best. Do they pay for the
# accuracy that they lose? On the right the same networks stand over their bytes: values of 4 bytes, and as positions
# the smaller of a bitmap and indices of 2 bytes, one for each group; a filter needs none.
#
# A filter that goes takes more with it. Its output channel becomes constant, so all that the next kernel's weights make
# of this channel is a constant, too (another one at the border, where zeros are padded). They need no bytes. At a fifth
# 6 of 32 and 13 of 64 filters stay. Of the third kernel's 3,744 weights only 13 · 6 · 9 = 702 read a channel that
# lives; with the second kernel's 864 that makes 1,566.
#
# ### Predict
#
# Pruned by filters to a fifth, the two kernels so take 6.3 kilobytes. How many do single weights need, pruned at once
# and with positions, to be as good?

# %% editable=true
predict("kilobytes of single weights as good as filters", None)

# %%
measured(
    "kilobytes of single weights as good as filters",
    round(sparsity.matching_bytes(recorded, "filters", 0.2) / 1_000, 1),
    "Far more, or far fewer? Positions cost single weights a third of their bytes. Filters need none and choose worse.",
)
Image("recorded/pruning_grain.png", width=plots.WIDTH)

# %% [markdown]
# - Rows of three are about as good as single weights. Only at a tenth is the difference, 0.33 ± 0.31 hundredths, larger
#   than its interval, as one of five may be by chance. They save some positions: 5.4 instead of 6.9 kilobytes at a
#   density of .05.
# - At equal density filters lose more than single weights: 1.5 ± 0.4 hundredths at a fifth, 4.6 ± 3.5 at a tenth.
# - At equal bytes no difference can be shown. Filters with 6.3 kilobytes reach 0.841, single weights with 6.9,
#   positions included, 0.840. With 2.4 they reach 0.805, single weights with 2.8 0.818: 1.4 ± 3.7 hundredths, which may
#   be chance.
# - Bytes are not seconds. What remains of a pruned filter's kernel is a smaller dense matrix, which every machine
#   multiplies faster; single weights have to be few before SciPy gains anything.
#
# Mao et al. report for large networks that coarser grains save positions, so that up to a certain grain accuracy at
# equal bytes stays about the same. For rows of three that is what is seen here.
#
# ## A small dense network or a large pruned one
#
# An LSTM reads each image row by row, after averaging it to 14 × 14 pixels. With 32 units its kernels have 5,888
# weights. With 128 they have 72,704, and pruned to 8 % as many are left as the small one has. `course reproduce
# recurrent` makes it again in about 3 minutes.
#
# ### Predict
#
# With 5,888 weights, is the "dense" network better, the "pruned" one, or "neither"? And what share of its accuracy does
# the small one lose with a tenth of its weights?

# %% editable=true
predict("better with 5,888 weights", None)
predict("share of the accuracy that 32 units lose with a tenth of their weights", None)

# %%
table = pd.read_csv("recorded/recurrent.csv", comment="#")
accuracy = sparsity.summary(table, ["network"]).set_index("network")["mean"]
measured(
    "better with 5,888 weights",
    sparsity.better(table, "128 units, pruned to 5,888", "32 units, dense", ("pruned", "dense")),
    "A difference that is smaller than its interval is called neither.",
)
measured(
    "share of the accuracy that 32 units lose with a tenth of their weights",
    round(float(1 - accuracy["32 units, pruned to 10 %"] / accuracy["32 units, dense"]), 3),
    "Far more? The weights that stay are trained as long as all of them were.",
)
Image("recorded/recurrent.png", width=plots.WIDTH)

# %%
sparsity.summary(table, ["network"]).round(4)

# %% [markdown]
# - With all of its weights the large network is better by 2.9 ± 0.6 hundredths. Pruned to 5,888 it loses 2.9 ± 1.8 of
#   that: between it and the small dense one no difference can be shown, 0.0 ± 1.7. Zhu and Gupta, and Narang et al.,
#   report that the large pruned network is the better one, for larger networks and far longer trainings. Here all have
#   600 updates, and the pruned network has its last 240 to recover.
# - The small one loses 3.4 ± 1.8 % of its accuracy with a tenth of its weights. The tutorial says 10 to 20 % for
#   recurrent networks at that density; it means other tasks, and says nothing of the training.
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - ReLU and max-pooling make zeros by themselves, but they move with every image. A CPU loses by looking for them.
# - SciPy's product wins only at low densities; whole rows win as soon as a fair share is left out.
# - Prune the weakest, many at first and few at the end, and leave time to recover.
# - Positions cost bytes: a bit for each place or an index for each value. They weigh the more, the narrower the values.
# - Look at the mask, not at the accuracy alone: a faulty pruning may train well.
#
# 6c prunes gradients: it sends only the largest of them.
#
# - Y. LeCun, J. S. Denker, S. A. Solla: *Optimal Brain Damage.* NIPS 2, 1989
# - S. Han, J. Pool, J. Tran, W. J. Dally: *Learning both Weights and Connections for Efficient Neural Networks.*
#   arXiv:1506.02626
# - M. Rhu, M. O'Connor, N. Chatterjee, J. Pool, Y. Kwon, S. W. Keckler: *Compressing DMA Engine: Leveraging Activation
#   Sparsity for Training Deep Neural Networks.* arXiv:1705.01626
# - M. Zhu, S. Gupta: *To prune, or not to prune: exploring the efficacy of pruning for model compression.*
#   arXiv:1710.01878
# - H. Mao et al.: *Exploring the Regularity of Sparse Structure in Convolutional Neural Networks.* arXiv:1705.08922
# - S. Narang, E. Elsen, G. Diamos, S. Sengupta: *Exploring Sparsity in Recurrent Neural Networks.* arXiv:1704.05119
# - A. Pedram, W. Lynch, G. Lauterbach: the tutorial on the systems side of training: sparsity of activations and
#   weights
