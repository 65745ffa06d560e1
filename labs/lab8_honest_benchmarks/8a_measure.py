# %% [markdown]
# # 8a Measure
#
# "Trains in 61 seconds." On which machine, from which moment on, how often did you try, and what else was running? This
# notebook measures times as they are: a spread, not a number. The next one cheats with them.
#
# **You will be able to** say how much longer one program takes than another, with an interval; say how many runs a
# claim needs before you make them; tell throughput from latency; say why a fast product of matrices is not a fast
# training; and read from a noisy curve when a run reached its target, without a prize for looking often.
#
# **Time:** 60 minutes; the runs take about 10 seconds on 2 CPU cores.
#
# **Needs:** 1c (time to target), 3e (intervals by Student's t).

# %%
import math

import numpy as np
import pandas as pd
from IPython.display import Image, display
from scipy.optimize import isotonic_regression
from scipy.stats import norm

from course_lib import data, statistics
from course_lib.notebook import plots, predictions
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from course_lib.system.cores import available_cores
from labs.lab8_honest_benchmarks.lessons import figures_8a as figures
from labs.lab8_honest_benchmarks.lessons import noisy_curve, timings
from labs.lab8_honest_benchmarks.lessons.checks_8a import check, points

STEPS = 200
fashion = data.load("fashion_mnist")
x, y = fashion.x_train[:10_240], fashion.y_train[:10_240]

# %% [markdown]
# ## One number is none
#
# We train a small network and take the time of each step: 200 steps alone, then 200 while another program keeps one
# core busy.
#
# ### Predict
#
# Call the median step 1. How long is the first step? How long is the 99th percentile, the step that only one in a
# hundred exceeds? And how long is the median beside the other program? This machine's number of cores:

# %%
print(available_cores(), "cores")

# %% editable=true
predict("first step, in medians", None)
predict("99th percentile of the steps, in medians", None)
predict("median beside another program, in medians alone", None)


# %%
def step_times():
    training = timings.Training(x, y)
    with Filling("400 steps") as line:
        first = training.step()
        line.at(0.2, "alone")
        alone = training.steps(STEPS)
        line.at(0.6, "beside another program")
        with timings.beside_another_program():
            beside = training.steps(STEPS)
    return first, {"alone": alone, "beside another program": beside}


first, runs = step_times()
alone, beside = (np.median(seconds) for seconds in runs.values())
measured(
    "first step, in medians",
    float(first / alone),
    "Far less? In the first step TensorFlow traces the model and builds its graph; only then does it compute.",
)
measured(
    "99th percentile of the steps, in medians",
    float(np.percentile(runs["alone"], 99) / alone),
    "Many small things happen seldom: memory is cleaned up, the system does other work. They add time, never take any.",
)
measured(
    "median beside another program, in medians alone",
    float(beside / alone),
    too_large="It gets one core's time at most, and the system shares that core out.",
    too_small="Both threads of a step must be done before the next one begins: the step waits for the one that shares.",
)
figures.step_times(runs, caption=f"{fashion.name} · batch 64 · {available_cores()} cores")

# %% [markdown]
# Four facts decide how to report a time:
#
# - **The start is another quantity.** Tracing, reading data and loading libraries happen once. Say whether they count;
#   on short runs they decide.
# - **The spread leans to one side.** Nothing makes a step much shorter, many things make it longer. A mean follows the
#   outliers, a median doesn't, and the shortest time tells what the machine can do when nothing disturbs it. They
#   answer three different questions.
# - **Steps are not independent runs.** Two hundred steps of one run share its start, its temperature and its
#   neighbours. Their number says little about the next run.
# - **The neighbour costs more than its share,** where threads wait for each other. A benchmark beside another program
#   measures both.
#
# So the unit is the run. Thirty runs of one training, each in a process of its own (`course reproduce spread` makes
# them again in some minutes):

# %%
Image("recorded/spread.png", width=plots.WIDTH)

# %%
recorded = pd.read_csv("recorded/spread.csv", comment="#")
recorded.groupby("beside")[["start_s", "step_ms", "step_p99_ms", "to_target_s"]].agg(["median", "min", "max"]).round(2)

# %% [markdown]
# Alone, the median step takes 3.8 to 6.0 ms, and the time to the target is 1.6 to 3.7 s: seeds change how *many* steps
# it takes. No careful clock helps against that. Only more runs do. And one seed of twenty never got there at all, in
# 800 updates: a report of times must say what became of such runs.
#
# ## How much longer?
#
# Ours took 12.1, 11.6 and 12.9 s, theirs 10.3, 9.7 and 10.1 s. How many times as long does ours take? A ratio is what
# people want to read; the interval of 3e is one for a difference.
#
# ### Exercise: an interval for a ratio
#
# Two demands lead to the answer. The interval must not depend on the unit of the clock. And who stands above the line
# must not matter: if ours takes 1.1 to 1.3 times as long as theirs, theirs takes 1/1.3 to 1/1.1 times as long as ours.
#
# `statistics.unpaired(a, b)` returns the mean of a − mean of b, and half the width of its 95 % interval, by Student's
# t.
#
# <details><summary>Hint</summary>In which quantity are two times that are 10 % apart always equally far apart, whether
# they are seconds or hours?</details>


# %% exercise="ratio_interval"
def ratio_interval(ours, theirs):
    """How many times as long ours takes as theirs, and between which two values that lies with 95 % confidence.

    ours, theirs: seconds of independent runs, arrays [at least 2]; they may differ in length.
    Returns (ratio, low, high).
    """
    ### BEGIN SOLUTION
    difference, half = statistics.unpaired(np.log(ours), np.log(theirs))
    return np.exp(difference), np.exp(difference - half), np.exp(difference + half)
    ### END SOLUTION


# %%
check(ratio_interval)

# %% hidden="ratio_interval" points=3
### BEGIN HIDDEN TESTS
points(ratio_interval, 3)
### END HIDDEN TESTS

# %% [markdown]
# With it we ask the recording: how much longer does the training take beside another program, and how much of that is
# known after three runs on each side?


# %%
def beside_alone(runs, column):
    some = recorded[recorded["seed"] < runs]
    sides = [some[some["beside"] == word][column].dropna() for word in ("yes", "no")]
    return ratio_interval(*(side.to_numpy() for side in sides))


pd.DataFrame(
    [
        {"runs on each side": runs, "what": column, **dict(zip(("ratio", "low", "high"), beside_alone(runs, column)))}
        for column in ("step_ms", "to_target_s")
        for runs in (3, 10)
    ]
).set_index(["what", "runs on each side"]).round(2)

# %% [markdown]
# Three runs say that the steps take 1.49 times as long, 1.40 to 1.59; ten say 1.37, 1.21 to 1.54: the first three
# followed each other and were alike by chance. All runs beside the program came after all runs alone, so a drift of the
# machine is in the ratio, too: take turns. Of the times to the target much less is known, 1.11 to 1.76 even after ten
# seeds (nine, as one never got there on either side): the seeds' spread is in them, on both sides.
#
# Both sides ran the same seeds, though. A seed decides how many steps it takes, and that doesn't change beside another
# program. So compare seed by seed:

# %%
pairs = recorded.pivot(index="seed", columns="beside", values="to_target_s").dropna()
difference, half = statistics.paired(np.log(pairs["yes"]), np.log(pairs["no"]))
ratio, low, high = np.exp([difference, difference - half, difference + half])
print(f"{len(pairs)} seeds: {ratio:.2f} times as long, {low:.2f} to {high:.2f}")

# %% [markdown]
# The same times, and a third of the uncertainty. A comparison in pairs takes out what both sides share. It needs a
# reason to pair them, which is known before the runs: here the seed.
#
# ## How many runs does a claim need?
#
# "Ours is 5 % faster." Let a run scatter by 3 %. Before anything is run, the number of runs decides how likely it is
# that the interval will leave out 0.
#
# ### Predict
#
# The difference is truly 5 %, and a run scatters by 3 %. How many runs on each side, so that it is found four times out
# of five? And if the difference is 2.5 %?

# %% editable=true
predict("runs on each side for 5 %", None)
predict("runs on each side for 2.5 %", None)

# %% [markdown]
# ### Exercise: runs needed
#
# Derive it. The measured difference of two means scatters around the true one, and it is *found* where it is larger
# than the half width of its interval. So the true difference must exceed the half width by a margin.
#
# <details><summary>Hint 1</summary>What is the standard error of a difference of two means of n runs each? Measure
# everything in this unit.</details>
# <details><summary>Hint 2</summary><code>statistics.student(2 * n - 1)</code> is the half width in standard errors;
# <code>norm.cdf(z)</code> is the probability that a normal number is below z. Try n = 2, 3, … until it is
# enough.</details>


# %% exercise="runs_needed"
def runs_needed(spread, difference):
    """The fewest runs on each side with which a true difference is found four times out of five.

    spread: standard deviation of the time of a run, relative to its mean (0.03: 3 %).
    difference: between the two true means, relative too. Found: the 95 % interval of the difference leaves out 0.
    """
    ### BEGIN SOLUTION
    enough = 2
    while norm.cdf(difference / (spread * np.sqrt(2 / enough)) - statistics.student(2 * enough - 1)) < 0.8:
        enough += 1
    return enough
    ### END SOLUTION


# %%
check(runs_needed)

# %% hidden="runs_needed" points=3
### BEGIN HIDDEN TESTS
points(runs_needed, 3)
### END HIDDEN TESTS

# %%
measured(
    "runs on each side for 5 %",
    runs_needed(0.03, 0.05),
    too_small="Three runs look like enough, since 5 % is more than 3 %: yet both sides scatter, and luck can be bad.",
    too_large="A difference larger than the spread needs only a few.",
)
measured(
    "runs on each side for 2.5 %",
    runs_needed(0.03, 0.025),
    too_small="Half the difference takes nearly four times the runs: the standard error falls with their root.",
)
figures.powers(0.03, (0.1, 0.05, 0.025, 0.01), runs_needed)

# %% [markdown]
# A claim of 1 % takes more than a hundred runs on each side. Few papers have made them. MLPerf Training runs a vision
# benchmark five times and most others ten times, drops the fastest and the slowest, and averages the rest (Mattson et
# al. 2020).
#
# ## Throughput and latency
#
# A trained network answers requests. In a batch each image costs less, but all wait for the whole batch. A user waits
# for the slowest: that is why services promise the 99th percentile.
#
# ### Predict
#
# From one image in a call to 256: how many times as many images a second? How many times as long until the answer
# (median)?

# %% editable=true
predict("images a second with 256, in those with 1", None)
predict("wait with 256, in waits with 1", None)


# %%
def serving():
    model = timings.Training(x, y).model
    batches = (1, 4, 16, 64, 256)
    table = {}
    with Filling("five sizes of batch") as line:
        for number, batch in enumerate(batches):
            line.at((number + 0.5) / len(batches), f"{batch} images")
            table[batch] = timings.latencies(model, x, batch, calls=100)
    return table


answers = serving()
wait = {batch: float(np.median(seconds)) for batch, seconds in answers.items()}
measured(
    "images a second with 256, in those with 1",
    256 * wait[1] / wait[256],
    "A call has a fixed price, whatever is in it; with one image there is little else.",
)
measured("wait with 256, in waits with 1", wait[256] / wait[1], "It is 256 times the work, and a fixed price once.")
figures.serving(answers, caption=f"quick_cnn · 100 calls each · {available_cores()} cores")

# %% [markdown]
# Which batch is best has no answer without a bound on the wait. 8b moves that bound until the other side loses.
#
# ## Kernels and trainings
#
# Some benchmarks time single operations: a product, a convolution, a cell of a recurrent network (DeepBench does). A
# vendor's favourite is the large product. Does it tell how long a step takes?
#
# ### Predict
#
# A step's multiply-adds, at the speed of the large product, take some time. How many times as long does the real step
# take?

# %% editable=true
predict("step, in times of its products at full speed", None)


# %%
def operations():
    rows = {}
    with Filling("operations") as line:
        known = timings.kernels()
        for number, (name, (flop, operation)) in enumerate(known.items()):
            line.at((number + 0.5) / len(known), name)
            seconds = float(np.median(timings.times(operation, 20)))
            rows[name] = {"MFLOP": flop / 1e6, "milliseconds": 1000 * seconds, "GFLOP/s": flop / seconds / 1e9}
    return pd.DataFrame(rows).T


kernels = operations()
layers = kernels[kernels.index.str.startswith("convolution")]
full_speed = layers["MFLOP"].sum() / kernels["GFLOP/s"].iloc[0]  # ms
summed = layers["milliseconds"].sum()
step = 1000 * float(np.median(runs["alone"]))
measured(
    "step, in times of its products at full speed",
    step / full_speed,
    "Near 1? Then a step would be nothing but large products: its own are small, and half of it is something else.",
)
print(f"at full speed {full_speed:.2f} ms; its own convolutions {summed:.2f} ms; a whole step {step:.2f} ms")
kernels.round(2)

# %% [markdown]
# There are two gaps. The first: small operations run at a fraction of the large one's speed, and which fraction depends
# on their shape. The second: batch norm, pooling, ReLU, the optimizer and the call itself multiply hardly anything and
# are in no such benchmark. Even a benchmark of exactly these convolutions misses the second gap. On many ranks there is
# a third: the all-reduce, which 4b hides in part behind the backward pass, so that times don't even add.
#
# A kernel benchmark is a bound, and finds what is slow. A claim about a training needs a training.
#
# ## When was the target reached?
#
# "Time to 80 %": somebody looks at the accuracy now and then, and stops the clock. The accuracy is measured on a finite
# number of images, so it scatters around the true one. Here we know the truth: the curve reaches 80 % after 32.2 s.
#
# ### Predict
#
# The clock stops at the first look at 80 % or more, with 1,000 test images. Is that too early or too late on average,
# if one looks every 0.5 s? And every 10 s? Write "early" or "late".

# %% editable=true
predict("a look every 0.5 s", None)
predict("a look every 10 s", None)


# %%
def first_look(seconds, accuracies, target):
    return float(seconds[np.argmax(accuracies >= target)])


for every in (0.5, 10.0):
    found = [first_look(*noisy_curve.looks(every, seed), 0.8) for seed in range(150)]
    off = np.mean(found) - noisy_curve.reached(0.8)
    print(f"{off:+.1f} s on average")
    measured(
        f"a look every {every:g} s",
        "early" if off < 0 else "late",
        "Each look is another draw: with many, one of them is lucky. With few, the target was passed long before.",
    )

# %% [markdown]
# The same run gains seven seconds out of 32 by being looked at twenty times as often. The slides call this fine-grain
# verification. DAWNBench asked for the accuracy after each epoch, and how long an epoch is, everybody chose themselves.
#
# ### Exercise: the time to the target
#
# Say when the *true* accuracy reached the target, from all looks together, so that on average it doesn't matter how
# often somebody looked. The truth only grows here.
#
# <details><summary>Hint 1</summary>A single look knows little. Its neighbours know something about it too: how near
# must they be, in seconds or in looks?</details>
# <details><summary>Hint 2</summary>Between two looks the curve went on: where did it cross the target?
# <code>isotonic_regression(values).x</code> is the growing curve that is nearest to the
# values.</details>


# %% exercise="time_to_target"
def time_to_target(seconds, accuracies, target):
    """When the accuracy reached `target`, in seconds; math.inf if it never did.

    seconds: of each look [k], growing; accuracies: measured then [k], with noise.
    """
    ### BEGIN SOLUTION
    grown = isotonic_regression(accuracies).x
    if grown[-1] < target:
        return math.inf
    i = int(np.argmax(grown >= target))
    if i == 0:
        return float(seconds[0])
    return float(np.interp(target, grown[i - 1 : i + 1], seconds[i - 1 : i + 1]))
    ### END SOLUTION


# %%
check(time_to_target)

# %% hidden="time_to_target" points=4
### BEGIN HIDDEN TESTS
points(time_to_target, 4)
### END HIDDEN TESTS

# %% [markdown]
# What you should see: above, three dots that move from left to right as the looks get rarer; below, yours, all near the
# dashed line.

# %%
figures.looks(time_to_target, 0.8, (0.5, 2.0, 10.0), caption="simulated: 1,000 test images; 150 runs each")

# %% [markdown]
# In the thirty recorded runs the curve was looked at every 10 updates, with 1,000 images. What would they report by the
# first look, and by the first look at the end of an epoch?

# %%
reached = recorded.dropna(subset=["to_target_s", "first_seldom_s"])
display(reached.groupby("beside")[["first_often_s", "to_target_s", "first_seldom_s"]].mean().round(2))
recorded[recorded["to_target_s"].isna()][["beside", "seed", "first_often_s", "to_target_s", "first_seldom_s"]]

# %% [markdown]
# The order is the one of the simulation: alone 1.64, 2.29 and 2.75 s on average. Seed 4 shows the worst of it: its
# curve never reached the target, and yet one of its 80 looks did, after 1.9 s. So a report of a time to a target needs
# its rule: which images, how many, how often, and which look counts. The rule must be fixed before the run.
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - A time is a spread: say median and interval, what was counted, on which machine, beside what. The unit is a run.
# - Ratios belong to logarithms: then neither the unit nor the order matters.
# - Twice the spread, or half the difference, takes four times the runs. Decide on their number first.
# - Throughput and latency are bought with each other; kernels bound a training and don't predict it.
# - The first look at the target rewards those who look often. Use all looks, and fix the rule beforehand.
#
# Next: 8b does everything wrong, on purpose.
#
# - P. Mattson et al.: *MLPerf Training Benchmark.* MLSys 2020, arXiv:1910.01500
# - C. Coleman et al.: *Analysis of DAWNBench, a time-to-accuracy machine learning performance benchmark.*
#   arXiv:1806.01427
# - Student: *The probable error of a mean.* Biometrika 6(1), 1908
# - A. Pedram, W. Lynch, G. Lauterbach: the tutorial on the systems side of training: its part on benchmarks
