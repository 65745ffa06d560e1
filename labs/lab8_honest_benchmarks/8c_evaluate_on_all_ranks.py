# %% [markdown]
# # 8c Evaluate on all ranks
#
# In 2020 a team of Google and two universities trained an EfficientNet to 83 % on ImageNet in 1 hour and 4 minutes, on
# 1,024 cores. Besides an optimizer and a schedule for large batches, the abstract names distributed evaluation and
# distributed batch norm. Why should evaluation, of all things, stand in the way? In this notebook you find out, do it
# right, compare a small family of such networks, and recompute the hour.
#
# **You will be able to** say from how many ranks on evaluation decides how long training takes; evaluate on all ranks,
# right to the last digit, also where shares are uneven; name an evaluation's mistake from what it reports; scale a
# network under a budget; carry a moving average over to a larger batch; and say which inputs a published time hangs on.
#
# **Time:** 70 minutes; the runs take about 20 seconds on 2 CPU cores.
#
# **Needs:** 2a (all-reduce), 3c (batch norm on ranks), 3d (LARS), 4c (the cost model), 8a.

# %%
import numpy as np
import pandas as pd
from IPython.display import Image, display

from course_lib import data, statistics
from course_lib.cost import networks, published
from course_lib.notebook import plots, predictions
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from course_lib.ranks import launch
from labs.lab8_honest_benchmarks.lessons import evaluation, hour, reports_8c
from labs.lab8_honest_benchmarks.lessons import figures_8c as figures
from labs.lab8_honest_benchmarks.lessons.checks_8c import check, points

cifar = data.load("cifar10")

# %% [markdown]
# ## Right on all ranks
#
# The usual script trains on all ranks and evaluates on rank 0, after each epoch, since rank 0 prints and saves anyway.
# What that costs comes next. First the remedy: each rank judges a share of the test images. Three things can go wrong
# then. With the first two the number looks fine; with the third there is none, and the ranks wait for ever:
#
# - Shares are uneven, by one image or by a thousand; a rank may even get none.
# - A batch has to be full (graphs are compiled for one shape), so the last one is filled up with images that count
#   already.
# - A rank that has nothing to judge leaves out the all-reduce.
#
# Besides accuracy we want the *balanced* accuracy: the share of right ones of each class, averaged over the classes. A
# network that names the frequent classes only has a high accuracy and a low balanced one.
#
# ### Exercise: two accuracies
#
# Each rank has predictions of its share. Decide what the ranks send each other. A class of which no rank has an image
# is left out of the balanced accuracy.
#
# <details><summary>Hint 1</summary>Accuracies can't be added up. What can, over ranks and over
# classes?</details>
# <details><summary>Hint 2</summary><code>np.bincount(numbers, minlength=10)</code> counts how often each class
# occurs. <code>labels[some_booleans]</code> are the labels where it says True.</details>


# %% exercise="evaluated"
def evaluated(me, labels, predicted, real):
    """Accuracy and balanced accuracy of all ranks' images, the same on every rank: two numbers from 0 to 1.

    me: this rank: me.rank, me.size, me.all_reduce(array) → the sum of all ranks' arrays.
    labels, predicted: classes 0 … 9 of this rank's images [n]; n may differ, and may be 0.
    real: booleans [n]: False where an image only fills a batch and is not to count.
    """
    ### BEGIN SOLUTION
    right = np.bincount(labels[real & (labels == predicted)], minlength=10)
    count = np.bincount(labels[real], minlength=10)
    right, count = me.all_reduce(np.stack([right, count]).astype(float))
    there = count > 0
    return right.sum() / count.sum(), np.mean(right[there] / count[there])
    ### END SOLUTION


# %%
check(evaluated)

# %% hidden="evaluated" points=5
### BEGIN HIDDEN TESTS
points(evaluated, 5)
### END HIDDEN TESTS

# %% [markdown]
# ## One rank judges, the others wait
#
# Now on four real ranks. They train the assessment's network, on one rank, on two and on four, and time both ways to
# evaluate: rank 0 alone, and all ranks. CIFAR-10 has 50,000 training images and 10,000 for testing; we take a twentieth
# of both. A training step costs about three forward passes (one forward, two backward), an evaluation one.
#
# Then the test images are dealt out in the order of their classes, half of them to rank 0, three tenths to rank 1, a
# fifth to rank 2 and none to rank 3, and each rank fills up its batches. Beside your function stand two other ways, and
# the truth: rank 0 has judged all images alone.
#
# ### Predict
#
# Rank 0 evaluates, the others wait. Which share of an epoch is evaluation, in percent, with one rank, and with 1,024 of
# them, each with a core of its own? From how many ranks on is it half? And with ImageNet's 1.28 million training images
# and 50,000 to judge? Over uneven shares, by how many points is each of the two other ways off?

# %% editable=true
predict("share of evaluation with 1 rank, %", None)
predict("share of evaluation with 1,024 ranks, %", None)
predict("ranks with which it is half", None)
predict("the same for ImageNet's numbers", None)
predict("points off: mean of the ranks' accuracies", None)
predict("points off: all images together, those that fill batches included", None)

# %%
trained, judged = min(2560, len(cifar.x_train)), min(512, len(cifar.x_test))


def on_a_rank():
    hvd, groups = evaluation.connect()
    trainee = evaluation.Trainee(hvd)
    rows = evaluation.times(trainee, groups, trained, judged, epochs=4)
    trainee.agree()
    shares = evaluation.uneven(trainee.y_test[:judged])
    part = trainee.part(shares[hvd.rank()], -(-len(shares[0]) // evaluation.BATCH))
    whole = trainee.predict(np.arange(judged)) == trainee.y_test[:judged]
    return rows, part, float(whole.mean()), evaluated(groups[4], *part)


with Filling("four ranks start, train and evaluate"):
    by_rank = launch.call(on_a_rank, 4, env=launch.ONE_THREAD)
times = pd.DataFrame(by_rank[0][0])
alone = times[times["ranks"] == 1][["training_s", "evaluation_s"]].median()
half = alone["training_s"] / alone["evaluation_s"]
measured(
    "share of evaluation with 1 rank, %",
    figures.share(*alone, 1),
    "A fifth of the images, and about a third of the work for each.",
)
measured(
    "share of evaluation with 1,024 ranks, %",
    figures.share(*alone, 1024),
    "Training is divided by 1,024, evaluation is not: in Amdahl's law it is the serial part.",
)
measured("ranks with which it is half", half, "It is half where the ranks train as long as one of them evaluates.")
measured(
    "the same for ImageNet's numbers",
    figures.IMAGENET * judged / trained * half,
    "Five times as many training images for each one that is judged: five times as many ranks, no more.",
)
figures.shares(times, caption=f"assessment_cnn · your run: {trained:,} and {judged:,} images of {cifar.name}")

# %% [markdown]
# The dots are your ranks' (mean of four epochs of one run; the bars, 95 %, say nothing of another run: 8a). The lines
# follow from the dot of one rank. With more ranks than cores the dots lie below the line: training gets no faster, so
# evaluation's share doesn't grow.

# %%
truth = by_rank[0][2]
parts = [part for _, part, _, _ in by_rank]
means = [np.mean((part.labels == part.predicted)[part.real]) for part in parts if part.real.any()]
filled = np.mean(np.concatenate([part.labels == part.predicted for part in parts]))
found = {
    "points off: mean of the ranks' accuracies": np.mean(means),
    "points off: all images together, those that fill batches included": filled,
}
print(f"true: {100 * truth:.2f} %; your function: {100 * by_rank[0][3][0]:.2f} %")
for question, value in found.items():
    print(f"{100 * value:.2f} %:")
    measured(
        question,
        100 * abs(value - truth),
        "Only sums over all images add up over ranks: the right ones, and how many there are.",
    )

# %% [markdown]
# The wrong ones are plausible accuracies, and nobody would notice.
#
# ### Who evaluates?
#
# There is a third way: one rank does nothing but evaluate, always the newest weights that are ready, while the others
# train on. EfficientNet's own program has a mode for this, with a device of its own that waits for weights.
#
# ### Exercise: the epoch in three ways
#
# From one result to the next: how many seconds? All ranks are alike, what can be shared out is shared out evenly, and
# sending costs nothing. Beside the training, each epoch's weights are judged: none is left out.
#
# <details><summary>Hint</summary>Draw what each rank does over three epochs, one line for each rank. In which of the
# three ways do two things happen at the same time?</details>


# %% exercise="epoch_seconds"
def epoch_seconds(training, evaluation, ranks, way):
    """Seconds from one epoch's result to the next one's, in the long run.

    training, evaluation: seconds that one rank would need for all of an epoch's training, for all of its evaluation.
    ranks: N, two or more for "aside".
    way: "rank 0" evaluates and the others wait; "aside": one of the N ranks only evaluates; "all ranks" share it out.
    """
    ### BEGIN SOLUTION
    if way == "rank 0":
        return training / ranks + evaluation
    if way == "aside":
        return max(training / (ranks - 1), evaluation)
    return (training + evaluation) / ranks
    ### END SOLUTION


# %%
check(epoch_seconds)

# %% hidden="epoch_seconds" points=3
### BEGIN HIDDEN TESTS
points(epoch_seconds, 3)
### END HIDDEN TESTS

# %% [markdown]
# What you should see: "aside" begins at nearly twice the others, since one of two ranks is left to train. With many
# ranks "rank 0" and "aside" go flat, at the same height, and "all ranks" goes on falling.

# %%
figures.three_ways(epoch_seconds, *alone, caption="your epoch_seconds, with the seconds of your run on one rank")

# %% [markdown]
# Evaluating aside hides the evaluation as long as it is shorter than an epoch. Beyond that it is the bottleneck, and
# more ranks change nothing. One can evaluate less often, and EfficientNet's program advises that (every tenth epoch by
# default). But a team that is judged by its time to a target wants to look often (8a), and nobody knows when to stop
# without looking.
#
#
# ## Six evaluations
#
# Four real ranks have judged 5,000 test images, each made as many batches as the rank with the largest share needs
# (recorded: `course reproduce evaluation`):

# %%
Image("recorded/evaluation.png", width=plots.WIDTH)

# %% [markdown]
# Six reports of that, each with at most one mistake:

# %%
display(pd.Series(reports_8c.MISTAKES, name="what was done").to_frame())
for report in reports_8c.reports().values():
    display(report)

# %% [markdown]
# ### Exercise: diagnose
#
# For each report: the mistake, and the accuracy in percent that should have been reported; None where the table can't
# tell it.
#
# <details><summary>Hint</summary>Calculate what each mistake would make of a table and compare with what was
# reported. One of them shows in the table itself.</details>


# %% exercise="diagnoses"
def diagnoses(reports):
    """What was done in each report: a dict, letter → (mistake, accuracy).

    reports: letter → report, with `reported` (%) and `table`, a DataFrame as shown above.
    mistake: one of the words above; accuracy: in %, of all images of the test set; None where the table can't tell.
    """
    ### BEGIN SOLUTION
    answers = {}
    for letter, report in reports.items():
        images, right, filling, more = (report.table[name] for name in report.table)
        if report.table.duplicated().any():
            answers[letter] = ("same share", None)
            continue
        truth = 100 * right.sum() / images.sum()
        candidates = {
            "none": truth,
            "mean of means": 100 * np.mean(right / images),
            "filling": 100 * (right + more).sum() / (images + filling).sum(),
            "divisor": 100 * right.sum() / (images + filling).sum(),
            "one rank": 100 * right[0] / images[0],
        }
        nearest = min(candidates, key=lambda name: abs(candidates[name] - report.reported))
        answers[letter] = (nearest, truth)
    return answers
    ### END SOLUTION


# %%
check(diagnoses)

# %% hidden="diagnoses" points=4
### BEGIN HIDDEN TESTS
points(diagnoses, 4)
### END HIDDEN TESTS

# %% [markdown]
# The test set has 5,000 images, and four of the five mistakes divide by another number: whoever has to say how many
# images were counted can't hide them. That is why a record in 8b names its number of test images.
#
# ## A family
#
# EfficientNets (Tan and Le 2019) are made of one block, *MBConv*: a 1 × 1 convolution makes several times as many
# channels, a *depthwise* one (each channel by itself) looks at neighbours, a small gate weighs the channels, and
# another 1 × 1 convolution leaves few of them. B0 is the smallest network. The others are B0 with more layers, more
# channels and larger images, all at once: about $1.2^\phi$, $1.1^\phi$ and $1.15^\phi$ times as many. B5, at
# $\phi \approx 5$, has 2.2 times the layers, 1.6 times the channels, and images of 456 pixels a side in place of 224.
#
# One function counts all of them (`cost.networks`):


# %%
def counted(tensors):
    work, weights = figures.costs(tensors)
    return {"G multiply-adds": work / 1e3, "M weights": weights / 1e3}


pd.DataFrame({name: counted(hour.network(name)) for name in ("B0", "B4", "B5")}).T.round(2)

# %% [markdown]
# The paper has 0.39, 4.2 and 9.9 G, and 5.3, 19 and 30 M: the count is within 5 % of it. How does the cost depend on
# layers, channels and pixels?
#
# ### Exercise: scale under a budget
#
# The number of layers stays. You may spend so many times the multiply-adds and so many times the weights, all of both.
# How much wider, and how much larger the images? Nearly all of both is in the 1 × 1 convolutions.
#
# <details><summary>Hint</summary>A 1 × 1 convolution from C to C channels on an image of r × r: how many weights, and
# how many multiply-adds? Which of the two does r change?</details>


# %% exercise="within_budget"
def within_budget(multiply_adds, weights):
    """By which factors channels and side may grow, where depth stays and both budgets are used up: (width, resolution).

    multiply_adds, weights: how many times as many as now are allowed. width: times the channels of each layer;
    resolution: times the pixels along a side.
    """
    ### BEGIN SOLUTION
    width = weights**0.5
    return width, (multiply_adds / weights) ** 0.5
    ### END SOLUTION


# %%
check(within_budget)

# %% hidden="within_budget" points=2
### BEGIN HIDDEN TESTS
points(within_budget, 2)
### END HIDDEN TESTS


# %%
def used(multiply_adds, weights):
    """What B0, scaled by your function, really uses: the count."""
    width, resolution = within_budget(multiply_adds, weights)
    work, arrays = figures.costs(networks.EFFICIENTNET.scaled(width, 1.0).tensors(round(224 * resolution)))
    base_work, base_arrays = figures.costs(networks.efficientnet_b0())
    return {
        "width": width,
        "resolution": resolution,
        "multiply-adds": work / base_work,
        "weights": arrays / base_arrays,
    }


pd.DataFrame({f"{k:g} × the work, {p:g} × the weights": used(k, p) for k, p in ((4, 2), (2, 2), (4, 1))}).T.round(2)

# %% [markdown]
# The rule is good to about a tenth: depthwise kernels and the classifier grow with the width only, not with its square,
# and channels come in multiples of 8.
#
# ### Three sizes, trained
#
# S, M and L are one step apart each, on images of 16, 18 and 22 pixels (CIFAR-10's, made smaller). They train with the
# recipe of large batches: LARS, a quarter of the run as warm-up, then a rate that falls to 0, and batch norm over the
# whole batch, which is what ranks compute together when they synchronise it (3c). With 5,120 images, batch 256 means 80
# updates in four epochs. Each size tried the same four rates; all chose 0.5. (`course reproduce family`)
#
# ### Predict
#
# L has five times the multiply-adds of S, and B0 a thousand times. How many times the CPU time of S does an image take
# in training, with L, and with B0?

# %% editable=true
predict("an image with L, in times of S", None)
predict("an image with B0, in times of S", None)

# %%
runs = pd.read_csv("recorded/family.csv", comment="#")
results = runs[runs["use"] == "result"]
cpu = figures.step_ms(runs)
measured(
    "an image with L, in times of S",
    cpu["L"] / cpu["S"],
    "Multiply-adds are not seconds (8a): batch norm and depthwise convolutions take time with few of them, and their "
    "work grows with the width, not with its square.",
)
measured("an image with B0, in times of S", cpu["B0"] / cpu["S"], "Large layers keep a core busier than small ones.")
Image("recorded/family.png", width=plots.WIDTH)

# %%
SIZES = "SML"
tests = {size: rows["plain_test"].dropna().to_numpy() for size, rows in results.groupby("size")}
table = {size: dict(zip(("test accuracy, %", "±"), statistics.mean(tests[size]))) for size in SIZES}
display(pd.DataFrame(table).T.round(1))
pairs = {f"{b} − {a}": statistics.paired(tests[b], tests[a]) for a, b in ("SM", "ML", "SL")}
pd.DataFrame(pairs, index=["points", "±"]).T.round(1)

# %% [markdown]
# A step of the family costs twice the CPU time here, and buys nothing that three seeds show: L is 1.3 ± 3.7 points
# ahead of S, which is no difference, and M is 1.6 ± 0.8 points behind S: a step can even cost something. On ImageNet
# each step from B0 to B4 is worth one to two points (Tan and Le), after 350 epochs of 1.28 million images. Here there
# are 5,120 images and 80 updates. A curve of accuracy by cost belongs to its data and to its length of training.
#
# ### What batch norm must do
#
# Batch norm by each core alone sees 64 images. Over all cores it sees 65,536, and each batch norm waits for an
# all-reduce, forward and backward: B5 has 116 such layers, and none of these all-reduces can be hidden. In between are
# groups of cores; EfficientNet's program makes them of an eighth of the cores, at least 8: here of 128. (For accuracy,
# 3c's five seeds could not tell 4 images on each of two ranks from all 8 together.) 4c's model, with the inputs of the
# last part below and 1 µs for a message, says what each costs:

# %%
norm = {cores: hour.norm_seconds("B5", cores) for cores in (1, 2, 128, 1024)}
pd.DataFrame(
    {
        f"{cores:,} cores, {64 * cores:,} images": {
            "ms in a step": 1e3 * seconds,
            "% of the step": 100 * seconds / hour.step("B5").step_seconds,
        }
        for cores, seconds in norm.items()
    }
).T.round(2)

# %% [markdown]
# Two neighbours give 128 images for nearly nothing. The program's groups cost 1.7 % of a step, and all cores together
# hardly more: what is paid are messages, each at the assumed 1 µs, not bytes.
#
# ## Averaged weights
#
# EfficientNet is judged with a moving average of its weights, a ← 0.9999 a + 0.0001 w after each update, where 0.9999
# is called the *decay*. Its program takes batches of 2,048 images.
#
# ### Predict
#
# With a batch of 65,536, 350 epochs of ImageNet are 6,842 updates. Which share of such an average is still the weights
# that training began with, in percent?

# %% editable=true
predict("share of the first weights in the average, %", None)

# %%
measured(
    "share of the first weights in the average, %",
    100 * 0.9999**6842,
    "Each update keeps 0.9999 of what is there, 6,842 times. With a batch of 2,048 there were 218,949 updates.",
)

# %% [markdown]
# (EfficientNet's program has a net under it: TensorFlow's average begins with a small decay, (1 + t)/(10 + t), which
# reaches 0.9999 after 90,000 updates only.) The trap is that of 3c's moving averages in batch norm: a decay is counted
# in updates, and the batch decides what an update is.
#
# ### Exercise: the same memory
#
# Which decay has the large batch to use, so that the average forgets as fast as before *per image*?
#
# <details><summary>Hint</summary>After k small updates: which share of an old average is left? One large update takes
# the place of how many small ones?</details>


# %% exercise="same_memory"
def same_memory(decay, batch, base):
    """The decay for batches of `batch` images that remembers as many images as `decay` does with batches of `base`."""
    ### BEGIN SOLUTION
    return decay ** (batch / base)
    ### END SOLUTION


# %%
check(same_memory)

# %% hidden="same_memory" points=2
### BEGIN HIDDEN TESTS
points(same_memory, 2)
### END HIDDEN TESTS

# %%
print(f"0.9999 with 2,048 is {same_memory(0.9999, 65_536, 2_048):.4f} with 65,536")

# %% [markdown]
# The recorded runs average over about an epoch (decay 0.95, 20 updates an epoch), with Adam's correction for the start,
# and all variables alike: weights and batch norm's statistics.
#
# ### Predict
#
# Which weights are more accurate on validation images after two epochs, the "plain" or the "averaged" ones?

# %% editable=true
predict("after two epochs", None)

# %%
middle = results[(results["size"] == "S") & (results["epoch"] == 2)]
difference, half = statistics.paired(middle["averaged"], middle["plain"])
print(f"averaged − plain: {difference:+.1f} ± {half:.1f} points")
measured(
    "after two epochs",
    "averaged" if difference > half else "plain" if -difference > half else "no difference",
    "The average is at chance. Are the weights of the last 20 updates so bad together?",
)
figures.averages(runs, caption="CIFAR-10 · size S · 3 seeds, 95 % intervals · recorded: course reproduce family")


# %%
def anew(epoch):
    rows = results[(results["size"] == "S") & (results["epoch"] == epoch)]
    return dict(zip(("points", "±"), statistics.paired(rows["averaged_anew"], rows["plain_anew"])))


pd.DataFrame({f"epoch {epoch}, statistics anew: averaged − plain": anew(epoch) for epoch in (1, 2, 3, 4)}).T.round(1)

# %% [markdown]
# On the left the average is 25.9 ± 4.0 points behind after two epochs, and still 8.3 ± 6.6 at the end. On the right,
# with eight batches to estimate the statistics anew, they are level: 2.0 ± 5.2 and 0.4 ± 1.6 points. Nothing is wrong
# with the averaged weights. But an average of the statistics is not the statistics of the averaged network, and the
# faster the network changes, the further apart the two are. So estimate them anew for the averaged weights, on all
# ranks together.
# (That the average gains nothing at the end is no verdict on EfficientNet's: here a rate that falls to 0 takes out the
# same noise.)
#
# ## One hour and four minutes
#
# Now 4c's model, with these inputs:
#
# | input | value | where from |
# |---|---|---|
# | cores, batch, top-1, time | 1,024 TPU-v3, 65,536, 83 %, 64 min | the abstract |
# | B0 on a TPU v2-8 (8 cores) | 23 hours | the abstract; taken for 350 epochs |
# | epochs | 350 | the default of EfficientNet's own program |
# | a core's peak | 22.5 (v2) and 61.5 (v3) TFLOP/s | Google: 180 for 4 chips (v2), 123 a chip (v3); 2 cores each |
# | a link | 83 GB/s | Google's page on the v3: 340 TB/s of all-reduce for 1,024 chips, 4 links each |
# | latency of a message | 1 µs | assumed; only batch norm over many cores hangs on it |
# | which network | not in the abstract | B4 reaches 82.9 % and B5 83.6 % in Tan and Le's paper |
#
# The rate of a v3 core follows from B0's 23 hours, by multiply-adds and peaks, as 4c did it for tables 4 and 5.
#
# ### Predict
#
# How many minutes does the model say for B4 and for B5, evaluation left out? And which share of the step is
# communication that isn't hidden, in percent?

# %% editable=true
predict("minutes for B4", None)
predict("minutes for B5", None)
predict("communication that sticks out, % of B5's step", None)


# %%
def minutes(name):
    return hour.EPOCHS * published.IMAGES / hour.step(name).images_per_second / 60


for name in ("B4", "B5"):
    measured(
        f"minutes for {name}", minutes(name), "Multiply-adds and epochs decide; cores that compute alike do the rest."
    )
step = hour.step("B5")
measured(
    "communication that sticks out, % of B5's step",
    100 * step.exposed_communication_seconds / step.step_seconds,
    "30 million weights beside 64 images of 10 G multiply-adds each: there is far more to compute than to send.",
)
pd.DataFrame(
    {
        name: {
            "images/s of a core": hour.rate(name),
            "step, s": hour.step(name).step_seconds,
            "all-reduce, s": hour.step(name).communication_seconds,
            "minutes": minutes(name),
        }
        for name in ("B4", "B5")
    }
).round(2)

# %% [markdown]
# The published time lies between the two, and the abstract alone doesn't settle it. If it was B4, three tenths of the
# time went elsewhere: start, input, evaluation, or cores that reach less of their peak. If it was B5, either a core
# reached 1.6 times as much of its peak as with B0 (larger layers may), or the clock stopped when 83 % was reached,
# after 213 of 350 epochs. So three facts belong beside a time of training: which network, how many epochs, and when the
# clock stopped. (Look them up in the paper: that is a test of this page.)
#
# So it is not communication that stands in the way. Evaluation may be. Here are B5 and your `epoch_seconds` with an
# evaluation after each epoch, where the evaluator is one core, a board of 8 cores, or all:


# %%
def from_epoch_to_epoch(name):
    training = published.IMAGES / hour.rate(name)  # seconds on one core
    judging = hour.evaluation_seconds(name, 1)
    boards = hour.CORES // hour.B0_CORES
    rows = {
        "one core, all wait": epoch_seconds(training, judging, hour.CORES, "rank 0"),
        "a board aside": epoch_seconds(training / hour.B0_CORES, judging / hour.B0_CORES, boards, "aside"),
        "all cores": epoch_seconds(training, judging, hour.CORES, "all ranks"),
    }
    alone = training / hour.CORES
    return {way: {"training": alone, "evaluation, or waiting for it": rows[way] - alone} for way in rows}


epochs = from_epoch_to_epoch("B5")
runs_minutes = {
    way: {name: seconds * hour.EPOCHS / 60 for name, seconds in parts.items()} for way, parts in epochs.items()
}
display(pd.DataFrame(runs_minutes).T.round(1))
figures.clocks(
    {way: parts for way, parts in runs_minutes.items() if way != "one core, all wait"},
    hour.MINUTES,
    caption="minutes of 350 epochs of B5 on 1,024 cores, evaluated after each: the model, inputs above",
)

# %% [markdown]
# With one core that evaluates, the training takes a day. A board of its own beside the training needs 30 s for
# an epoch that the others train in 18 s: everybody waits for it. Shared out by all, evaluation takes a quarter of a
# second. After every tenth epoch only, the program's default, the board keeps up, but one core still adds more than two
# hours to less than two of training. Small wonder that the abstract of a paper on large batches speaks of evaluation.
#
# And here? B0's own step was counted and timed with the family above:

# %%
core_days = hour.EPOCHS * published.IMAGES * cpu["B0"] / 1000 / 86400
print(f"{cpu['B0']:.0f} CPU ms an image: 350 epochs of B0 are {core_days:,.0f} days of one core; a v2-8 took 23 hours")

# %% [markdown]
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - What all wait for grows in weight with the ranks: evaluation by one rank is half of an epoch with 15 ranks by
#   CIFAR-10's numbers, with 77 by ImageNet's, if a step takes as long as three forward passes.
# - Over ranks, add up sums (right ones, how many), never means. Images that fill a batch don't count. A rank without
#   images takes part all the same. And say how many images were counted.
# - Width costs weights and work, resolution costs work only. Multiply-adds are not seconds.
# - A decay is counted in updates: raise it to the power of the batches' ratio.
# - A published time hangs on the network, the epochs and the moment at which the clock stopped.
#
# This was the last notebook of the labs. What is left is the assessment: your own script, on all ranks, against a clock
# that somebody else reads.
#
# - A. Wongpanich et al.: *Training EfficientNets at Supercomputer Scale: 83% ImageNet Top-1 Accuracy in One Hour.*
#   arXiv:2011.00071 (its abstract)
# - M. Tan, Q. V. Le: *EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks.* arXiv:1905.11946
# - EfficientNet's own program: github.com/tensorflow/tpu, models/official/efficientnet
# - G. M. Amdahl: *Validity of the single processor approach to achieving large scale computing capabilities.* AFIPS
#   1967
# - Y. You, I. Gitman, B. Ginsburg: *Large Batch Training of Convolutional Networks.* arXiv:1708.03888
