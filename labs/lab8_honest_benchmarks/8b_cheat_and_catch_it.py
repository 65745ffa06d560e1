# %% [markdown]
# # 8b Cheat, and catch it
#
# Every number in a misleading report can be true. What misleads is what stands beside it, or doesn't. In this notebook
# you use the tricks yourself, on real runs. Then you get six reports, and find the trick in each, if there is one.
#
# **You will be able to** make the same data say the opposite with a bound, a divisor, an axis or a choice; estimate
# what a choice on test images is worth; name a trick from a table, with the number that takes it out; and write rules
# that a cheat can't keep.
#
# **Time:** 55 minutes; the runs take about 5 seconds on 2 CPU cores.
#
# **Needs:** 8a.

# %%
import math

import numpy as np
import pandas as pd
from IPython.display import display

from course_lib import data
from course_lib.notebook import predictions, widgets
from course_lib.notebook.predictions import measured, predict
from labs.lab8_honest_benchmarks.lessons import figures_8b as figures
from labs.lab8_honest_benchmarks.lessons import reports_8b, tricks
from labs.lab8_honest_benchmarks.lessons.checks_8b import check, points

fashion = data.load("fashion_mnist")
x, y = tricks.features(fashion.x_train[:10_240]), fashion.y_train[:10_240]
halves = [(tricks.features(fashion.x_test[part]), fashion.y_test[part]) for part in (slice(0, 300), slice(300, 600))]
recorded = reports_8b.measurements()

# %% [markdown]
# ## A bound that the other just misses
#
# Two networks answer requests in batches: `quick_cnn` ("theirs") and the same without batch norm ("ours"). A service
# promises that 99 of 100 answers come within some milliseconds, and each side takes the batch that answers most images
# a second within the bound. (Recorded: `course reproduce reports`.) Move the bound, and make ours win by as much as you
# can. Then make theirs win.

# %%
widgets.explore(
    lambda bound: figures.bound(recorded[recorded["kind"] == "serving"], bound),
    bound=widgets.slider("bound in ms", *figures.bounds(recorded)),
)

# %% [markdown]
# Both curves are stairs, since batches come in few sizes. Between two stairs of the two sides there is a narrow bound
# at which one side is far ahead. And where a stair stands is partly chance: of 1,000 calls, ten decide on the 99th
# percentile. Who may choose the bound *after* the measurement chooses the winner. The slides have a famous case: a
# bound of 7 ms, which the other chip would have met at 8.
#
# ## A divisor that flatters
#
# The same two, in training: each on one core, and theirs on two as well. Who is faster?

# %%
figures.per_core(recorded[recorded["kind"] == "cores"])

# %% [markdown]
# With a core each, ours is 1.2 times as fast. Its lead is 1.5 times where theirs gets a second core, which such a small
# network has no use for: with two it is slower than with one. And per core it is 3.1 times. Dividing by watts, price,
# weight or volume works the same way: take what the other has much of. A divisor is honest where the reader pays for
# it, and where it was named before.
#
# ## An axis
#
# Steps until a softmax regression reaches a loss of 0.7, by learning rate, with momentum 0.9 and without. The same ten
# numbers twice. (One is none: at 0.03 without momentum the loss was still above 0.7 after 500 steps, where the run was
# ended.)

# %%
figures.axes(recorded[recorded["kind"] == "rate"])

# %% [markdown]
# On the left the sides look alike, on the right one of them is hopeless. Neither axis is wrong. A logarithmic one shows
# factors, so it suits a comparison over many orders of magnitude; it also makes a factor of two as small as you like.
#
# The same table holds another trick. Compare 0.1 without momentum, which is a usual rate, with the best one with
# momentum, and ours is dozens of times as fast. Compare best with best, and it is not. **A baseline that was not
# tuned** is the trick that even its authors often don't notice (3e gave both sides the same budget).
#
# ## The best of many, chosen on the test images
#
# 200 softmax regressions are trained in the same way, each on another 400 images. We judge them all on 300 test images
# (half A), publish the best, and then look at how it does on 300 other test images (half B).
#
# ### Predict
#
# By how many points is the winner better than the average model on half A? And on half B, which nobody looked at when
# choosing?

# %% editable=true
predict("points of the winner above the average, half A", None)
predict("points of the winner above the average, half B", None)

# %%
scores = 100 * tricks.best_of_many(x, y, halves)
winner = scores[np.argmax(scores[:, 0])]
above = winner - scores.mean(axis=0)
measured("points of the winner above the average, half A", float(above[0]), "The best of 200 draws is far out.")
measured(
    "points of the winner above the average, half B",
    float(above[1]),
    too_large="Part of its lead was luck with the images of half A, and luck doesn't move to other images.",
    too_small="Some of its lead is real: it drew good images to learn from.",
)
figures.winners(scores, caption=f"{fashion.name} · 200 models · 300 test images in each half")

# %% [markdown]
# Choosing is a use of the data. After 200 choices half A is training data, in a way, and its accuracy is no estimate
# any more. It makes no difference whether seeds, rates, architectures or the moment to stop were chosen. That is what
# validation images are for: choose there, look at the test images once.
#
# ## Others
#
# | trick | where you met it |
# |---|---|
# | another data set, or an easier part of it | ask for the name of the data and the number of test images |
# | another precision | ask in which one weights, activations and sums were kept |
# | a warm cache, or a clock that starts with the first step | 8a: tracing took many times a step |
# | looking often at a noisy curve | 8a: seven seconds of 32 |
# | weak scaling called scaling | 2f: a batch that grows with the ranks is another training |
#
# Benchmarks differ in what they leave open to such tricks:
#
# | benchmark | what is timed | quality asked for | rules |
# |---|---|---|---|
# | convnet-benchmarks, DeepBench | passes of some networks, single operations (8a) | none | – |
# | Fathom | steps of eight networks | none | the networks are given |
# | DAWNBench | time and price of a training; wait for an answer | an accuracy | nearly none; code is published |
# | MLPerf Training | a training; seven tasks in its first round | one for each task | many, and logs |
#
# A program that learns nothing can win the first two. MLPerf answers with rules. Its *closed* division fixes the model
# and the data set, limits the hyper-parameters to a list, asks for several runs and for all of them, and fixes where
# the clock starts and at which points of the training the quality is looked at. Its *open* division frees the model,
# and such results are listed apart. DAWNBench counted the time until a validation accuracy was reached, freed nearly
# everything else, and so learned much from its entries about the tricks.
#
# ## Six reports
#
# The data of each are real: they are those of the last pages and of 8a's thirty runs. Each has at most one trick, and
# they can be any of these:

# %%
pd.Series(reports_8b.TRICKS, name="trick").to_frame()

# %%
for report in reports_8b.reports().values():
    display(report)

# %% [markdown]
# ### Exercise: what is wrong?
#
# For each report: which trick, and which factor the claim should have? That is the number in the claim (how many
# *times*) without the trick, from the same table. Where nothing is wrong it is the claim's own. `reports["A"].table` is
# a DataFrame: calculate with it. (NaN: that run never reached the target. It took forever, which a median can bear.)
#
# <details><summary>Hint</summary>Start with the claim's two numbers and find each in the table. Which rows, columns or
# settings were not used? For a bound: what if both sides have a little room under it?</details>


# %% exercise="verdicts"
def verdicts(reports):
    """What is wrong in each report: a dict, letter → (trick, factor).

    reports: letter → report; its `table` is a DataFrame, as shown above.
    trick: one of the words above ("none" where nothing is wrong); factor: that of the claim without the trick.
    """
    ### BEGIN SOLUTION
    start = reports["A"].table.sum(axis=1, skipna=False).fillna(np.inf).groupby("side").median()
    steps = reports["B"].table
    served = reports["C"].table
    within = served[served.iloc[:, 0] <= served.iloc[:, 0].max()].groupby("side").max().iloc[:, 1]
    runs = reports["D"].table.fillna(np.inf).median()
    rates = reports["E"].table
    cores = reports["F"].table.mean()
    return {
        "A": ("start", start["theirs"] / start["ours"]),
        "B": ("none", (steps["theirs"] / steps["ours"]).median()),
        "C": ("threshold", within["ours"] / within["theirs"]),
        "D": ("best run", runs["ours"] / runs["theirs"]),
        "E": ("baseline", rates["theirs"].min() / rates["ours"].min()),
        "F": ("normaliser", cores.iloc[0] / cores.iloc[1]),
    }
    ### END SOLUTION


# %%
check(verdicts)

# %% hidden="verdicts" points=5
### BEGIN HIDDEN TESTS
points(verdicts, 5)
### END HIDDEN TESTS

# %% [markdown]
# A and D compare a program with itself: "ours" and "theirs" are twenty runs of the same training, cut in two. Their
# true factor is 1. A start that is counted on one side only, or one lucky run, makes a product of it.
#
# ## Rules as code
#
# A rule that a person has to remember will be forgotten. The course's leaderboard (`course grade`) lists a run that
# breaks a rule with the rule, and gives it no place. Here are rules for a benchmark "time to 84 % on Fashion-MNIST":
#
# | rule | closed division | open division |
# |---|---|---|
# | `data` | Fashion-MNIST as published, all 10,000 test images | the same |
# | `looks` | the accuracy is looked at once an epoch | the same |
# | `clock` | runs from the start of the process | the same |
# | `runs` | five or more started, all are reported; the result is their median; a failed one took forever | the same |
# | `choice` | whatever was chosen (rate, seed, moment to stop) was chosen on validation images | the same |
# | `network` | `small_cnn` in `float32` | any, but both are named |
# | `baseline` | had as many settings to be tuned as the entry, or more | the same |
#
# A record is a dict:

# %%
RECORD = {
    "data": "fashion_mnist",
    "test_images": 10_000,
    "looks_per_epoch": 1,
    "clock": "process",  # or "first step", …
    "started": 5,
    "seconds": [61.0, 59.5, None, 60.1, 62.3],  # None: did not reach the target
    "reported": 61.0,
    "chosen_on": "validation",  # or "test", …
    "network": "small_cnn",
    "precision": "float32",
    "settings": 7,
    "settings_of_baseline": 7,
}

# %% [markdown]
# ### Exercise: the judge
#
# Accept a record or name the first rule that it breaks, in the order of the table. Think like an entrant: which record
# keeps the words of the rule and breaks its sense? What if an entry is missing?
#
# <details><summary>Hint</summary>The runs are where most is hidden: more started than reported, a mean in the place of
# the median, a failed run left out, a median of failed runs. <code>record.get(name)</code> doesn't raise where a name
# is missing.</details>


# %% exercise="broken_rule"
def broken_rule(record, division):
    """The name of the first rule that a record breaks ("data", "looks", …), or "" where it keeps them all.

    record: a dict as above; an entry may be missing: what a record doesn't say, it doesn't keep.
    division: "closed" or "open". A reported time may be rounded to 0.1 s.
    """
    ### BEGIN SOLUTION
    get = record.get
    seconds = [math.inf if one is None else one for one in get("seconds", [])]
    median = float(np.median(seconds)) if seconds else math.inf
    named = bool(get("network")) and bool(get("precision"))
    judged = {
        "data": get("data") == "fashion_mnist" and get("test_images") == 10_000,
        "looks": get("looks_per_epoch") == 1,
        "clock": get("clock") == "process",
        "runs": len(seconds) >= 5
        and get("started") == len(seconds)
        and abs(get("reported", math.inf) - median) <= 0.051,
        "choice": get("chosen_on") == "validation",
        "network": named
        and (division == "open" or (record["network"], record["precision"]) == ("small_cnn", "float32")),
        "baseline": get("settings_of_baseline", 0) >= get("settings", math.inf),
    }
    return next((rule for rule, kept in judged.items() if not kept), "")
    ### END SOLUTION


# %%
check(broken_rule)

# %% hidden="broken_rule" points=4
### BEGIN HIDDEN TESTS
points(broken_rule, 4)
### END HIDDEN TESTS

# %%
print("the record above:", broken_rule(RECORD, "closed") or "accepted")
print("with another network:", broken_rule({**RECORD, "network": "resnet"}, "closed"), "| open:", repr(
    broken_rule({**RECORD, "network": "resnet"}, "open")))  # fmt: skip

# %% [markdown]
# What no code can see: whether the record is true. So MLPerf asks for logs and code, others may run the entry again,
# and `course grade --rerun-top 5` does just that.
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - Who chooses the bound, the divisor or the axis after the measurement, chooses the winner.
# - A choice on test images spends them. The best of many is lucky; its lead shrinks on fresh images.
# - Best against typical, tuned against untuned, one clock against another: look at what each side's number counts.
# - Not every report has a trick. A suspicion needs a number that shows it.
# - Rules help when they are fixed before, and checked by somebody else.
#
# Next: 8c evaluates on all ranks, right to the last digit.
#
# - P. Mattson et al.: *MLPerf Training Benchmark.* MLSys 2020, arXiv:1910.01500
# - C. Coleman et al.: *Analysis of DAWNBench, a time-to-accuracy machine learning performance benchmark.*
#   arXiv:1806.01427
# - R. Adolf et al.: *Fathom: Reference Workloads for Modern Deep Learning Methods.* arXiv:1608.06581
# - D. H. Bailey: *Twelve ways to fool the masses when giving performance results on parallel computers.*
#   Supercomputing Review, 1991
# - A. Pedram, W. Lynch, G. Lauterbach: the tutorial on the systems side of training: its part on benchmarks
