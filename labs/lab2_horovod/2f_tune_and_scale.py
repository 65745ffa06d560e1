# %% [markdown]
# # 2f Tune and scale
#
# Make a step shorter with Horovod's settings, and measure how much more ranks gain.
#
# **You will be able to** choose fusion threshold, cycle time and compression so that a step on a slow link takes half
# the time; separate what a rank loses to the machine from what it loses to communication; draw a scaling curve that
# does not flatter.
#
# **Time:** 65 minutes; the runs take about 2 minutes on 2 CPU cores, longer on a busy machine. On GPUs they are not yet
# measured.
#
# **Needs:** 2a; from 2c the timeline. No GPU: each rank gets a processor core.

# %%
import os

import numpy as np
import pandas as pd
from IPython.display import Image, display

from course_lib.notebook import plots, predictions
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from course_lib.system.cores import available_cores
from labs.lab2_horovod.lessons import figures_2f as scaling
from labs.lab2_horovod.lessons import step_time as pace
from labs.lab2_horovod.lessons.checks_2f import GIVEN, SLOW, check, halved, points

QUICK = "COURSE_SLICE" in os.environ  # a test, or grading: less will do

# %% [markdown]
# ## Tune
#
# Four settings:
#
# | setting | effect | default |
# |---|---|---|
# | `HOROVOD_FUSION_THRESHOLD` (bytes) | gradients that are ready together share a message, up to this size | 128 MiB |
# | `HOROVOD_CYCLE_TIME` (ms) | the time until Horovod looks again which gradients are ready | 1 |
# | `compression=hvd.Compression.fp16` | sends 16 bits for each number instead of 32 | off |
# | `backward_passes_per_step=k` | adds up the gradients of k batches, then exchanges once | 1 |
#
# Horovod reads the first two when it starts, so each value needs a launch of its own (`horovodrun` also takes them as
# `--fusion-threshold-mb` and `--cycle-time-ms`). The others are arguments of `hvd.DistributedOptimizer`.
#
# ### Predict
#
# Two ranks train the Wide ResNet of 1c at depth 16: 41 tensors with 172,218 numbers, and 8 images for each rank and
# step. How long does a step take with each of these settings, in steps with the defaults (1: as long)? In the recorded
# run a default step took 17 ms, of which 7 ms without any exchange.

# %% editable=true
predict("fp16: its step, in default steps", None)
predict("4 passes: its step, in default steps", None)
predict("no fusion: its step, in default steps", None)
predict("a cycle of 20 ms: its step, in default steps", None)

# %% [markdown]
# First those that fit into one launch. The ranks train with all four settings in turns, 24 steps at a time. The time is
# that of the slowest rank. The bytes are *counted*: those that go through the loopback interface, divided by ranks and
# steps.

# %%
BATCH = 8
DEPTH = 10 if QUICK else 16
same_launch = {
    "default": pace.Setting(BATCH),
    "fp16": pace.Setting(BATCH, fp16=True),
    "4 passes": pace.Setting(BATCH, passes=4),
    "no exchange": pace.Setting(BATCH, exchange=False),
}
with Filling("two ranks, four settings in turns"):
    blocks = pace.measure(same_launch, 2, depth=DEPTH, blocks=1 if QUICK else 5, steps=24)
knobs = pace.quiet(blocks)
print(pace.disturbance(blocks))
here = knobs.groupby("setting", sort=False)[["seconds", "bytes"]].median()
slower = here["seconds"] / here.loc["default", "seconds"]
computed = f"Without any exchange a step takes {slower['no exchange']:.2f}: compression saves nothing of that."
converted = "The numbers have to be converted, too, which takes longer here than the bytes that it saves."
measured("fp16: its step, in default steps", slower["fp16"], f"{computed} {converted if slower['fp16'] > 1 else ''}")
measured(
    "4 passes: its step, in default steps",
    slower["4 passes"],
    "Three of four exchanges are saved; each batch is computed as before."
    if slower["4 passes"] < 1
    else "Three of four exchanges are saved, so it should be shorter: the line above says what disturbed it.",
)


# %%
def beside_the_formula():
    gradient = 4 * knobs["elements"].iloc[0]
    expected = {"default": gradient, "fp16": gradient / 2, "4 passes": gradient / 4}
    what = f"Wide ResNet, depth {DEPTH}, {BATCH} drawn images each"
    return scaling.settings(knobs, expected, caption=plots.provenance(what, 2))


beside_the_formula()

# %% [markdown]
# Now those that need launches of their own, and more values. They are recorded (`course reproduce tuning`):

# %%
tuning = pace.quiet(pd.read_csv("recorded/tuning.csv", comment="#")).groupby("setting", sort=False)
recorded = tuning[["seconds", "bytes"]].median()
slower = recorded["seconds"] / recorded.loc["default", "seconds"]
measured(
    "no fusion: its step, in default steps",
    slower["threshold 0"],
    "The bytes are the same, but there are 41 messages, and each of them takes time.",
)
measured(
    "a cycle of 20 ms: its step, in default steps",
    slower["cycle 20 ms"],
    "The 20 ms are not added to the step. It waits for the end of the cycle that it is in, so none is shorter than 20.",
)
display(Image("recorded/tuning.png", width=plots.WIDTH))
pd.DataFrame(
    {
        "blocks": tuning.size(),
        "ms": 1e3 * recorded["seconds"],
        "fastest": 1e3 * tuning["seconds"].min(),
        "slowest": 1e3 * tuning["seconds"].max(),
        "kB": 1e-3 * recorded["bytes"],
    }
).round(1)

# %% [markdown]
# All numbers below are from the recorded run.
#
# - **Bytes:** those of the ring (the crosses), and a little more. TCP adds a header to each packet: 744 kB were sent
#   without fusion, 696 kB with it. In every cycle the ranks also tell each other which gradients are ready.
# - **No fusion:** the same numbers in 41 messages, and a step takes 62 ms, by default 17. On one machine a message of a
#   few kilobytes takes hardly longer than one of a byte.
# - **Cycle time:** with a cycle of 50 ms a step takes 50, and with one of 20 it takes 20: it waits for the end of the
#   cycle. A cycle of 5 ms costs nothing.
# - **fp16:** half the bytes, and no time gained: 21 ms. Between processes of one machine bytes are cheap, and a CPU
#   must convert the numbers. (5a shows what fp16 does to the accuracy of gradients.)
# - **4 passes:** a quarter of the bytes, 10 ms. But it is *another training*: the weights move once in four batches, as
#   with a batch four times as large. Horovod adds up the four gradients without dividing, unless you set
#   `average_aggregated_gradients=True`. And `optimizer.iterations` counts all four batches, so a learning-rate schedule
#   runs four times too fast.
#
# ## A slow link
#
# A link can be slow in two ways: each message takes long, or each byte does. Loopback shows the first. For the second,
# without overlap,
#
# $$T(\beta) = t + \frac{\text{bytes}}{\beta}$$
#
# is the time of a step on a link of β bytes a second, where $t$ is a step whose bytes cost next to nothing, as here. On
# the two simulated hosts of 2c, 100 Mbit/s should add 34 ms; it added between 29 and 46 ms.
#
# ### Exercise: does fp16 pay?
#
# Compression makes $t$ longer and the bytes fewer. Below which bandwidth does it make a step shorter?
#
# <details><summary>Hint</summary>Draw both times over 1/β: two straight lines. Which one starts higher, which is
# steeper?</details>


# %% exercise="pays_below"
def pays_below(plain, compressed):
    """The bandwidth β, in bytes a second, below which a step with compression is shorter.

    plain, compressed: (t, bytes) of a step without and with compression, t in seconds. Compression always saves bytes.
    Where it costs no time, it pays on every link: return np.inf.
    """
    ### BEGIN SOLUTION
    lost = compressed[0] - plain[0]
    saved = plain[1] - compressed[1]
    return saved / lost if lost > 0 else np.inf
    ### END SOLUTION


# %%
check(pays_below)

# %% hidden="pays_below" points=2
### BEGIN HIDDEN TESTS
points(pays_below, 2)
### END HIDDEN TESTS

# %%
for run, medians in (("here", here), ("recorded", recorded)):
    limit = pays_below(tuple(medians.loc["default"]), tuple(medians.loc["fp16"]))
    print(f"{run}: fp16 pays below {8e-6 * limit:,.0f} Mbit/s")

# %% [markdown]
# In the recorded run fp16 pays below 682 Mbit/s. The digits are not all significant: the lost time is a small
# difference of two times that scatter. Where *inf* is printed, it was smaller than the scatter. GPUs convert quickly:
# there fp16 pays on faster links.
#
# ### Exercise: halve the step
#
# Somebody has left you these settings:

# %%
print(GIVEN)

# %% [markdown]
# Write a function that chooses better ones, for any link and any machine:
#
# - **Compression:** whichever step is shorter on this link, by the formula above.
# - **Threshold:** memory is scarce. Choose the smallest threshold of the recorded figure that costs no time.
# - **Cycle:** with a thousand ranks, the messages of every cycle are a load. So choose the longest of the four cycles
#   that is known to cost no time. A gradient waits for the end of a cycle, so a machine with longer steps tolerates a
#   longer cycle. The recorded default step takes 16.8 ms. Which of the recorded cycles cost nothing, and what share of
#   the step is the longest of them (round it to one decimal)? Allow that share of the $t$ of the step that you have
#   chosen, and no more: a larger one is not shown to be free.
#
# At 100 Mbit/s a step of the recorded machine should take half the time at most. The check uses the recorded table and
# the formula, for other machines as well; then your ranks train with your choice.
#
# <details><summary>Hint</summary>Each dot in the recorded figure is a block: which differences are larger than the
# scatter? For compression: the bandwidth is given in Mbit/s, the sizes in bytes.</details>


# %% exercise="tuned"
def tuned(megabits, plain, compressed):
    """Settings for a link of `megabits` Mbit/s: {"fusion_mb": …, "cycle_ms": …, "compression": …}.

    plain, compressed: (t, bytes) of a step without and with compression, t in seconds, as for `pays_below`.
    fusion_mb: the fusion threshold in MiB, 0, 1/16, 1/4 or 128; cycle_ms: the cycle time, 1, 5, 20 or 50 ms;
    compression: "none" or "fp16".
    """
    ### BEGIN SOLUTION
    steps = {"none": plain, "fp16": compressed}
    compression = min(steps, key=lambda name: steps[name][0] + steps[name][1] * 8e-6 / megabits)
    share = 0.3  # 5 ms, the longest cycle that costs no time, of the recorded step of 16.8 ms
    cycle = max(cycle for cycle in (1, 5, 20, 50) if cycle <= share * 1000 * steps[compression][0])
    return {"fusion_mb": 1 / 4, "cycle_ms": cycle, "compression": compression}
    ### END SOLUTION


# %%
check(tuned)

# %% hidden="tuned" points=3
### BEGIN HIDDEN TESTS
points(tuned, 3)
### END HIDDEN TESTS

# %% [markdown]
# ### Predict
#
# Now measured, on this machine's loopback: how long is a step with your settings, in steps with the given ones, if the
# bytes take the time that they would take at 100 Mbit/s?

# %% editable=true
predict("yours at 100 Mbit/s: a step, in given steps", None)


# %%
mine = tuned(SLOW, *(tuple(recorded.loc[name]) for name in ("default", "fp16")))


def side_by_side():
    """The given settings and yours, in launches of their own, in turns."""
    choices = {"given": GIVEN, "yours": mine}
    with Filling("launches in turns"):
        return pace.in_turns(choices, BATCH, turns=1 if QUICK else 2, depth=DEPTH, blocks=1 if QUICK else 3, steps=24)


blocks = side_by_side()
contest = pace.quiet(blocks)
print(pace.disturbance(blocks))
on_loopback = contest.groupby("setting", sort=False)[["seconds", "bytes"]].median()
on_the_link = on_loopback["seconds"] + on_loopback["bytes"] / (1e6 / 8 * SLOW)
share = on_the_link["yours"] / on_the_link["given"]
loopback = on_loopback.loc["yours", "seconds"] / on_loopback.loc["given", "seconds"]
measured(
    "yours at 100 Mbit/s: a step, in given steps",
    share,
    f"On loopback, where only messages and waiting count, it is {loopback:.2f}. Here both have their bytes, too.",
)
print(halved(share, mine))
scaling.settings(contest, caption=plots.provenance(f"Wide ResNet, depth {DEPTH}, {BATCH} drawn images each", 2))

# %% [markdown]
# By the recorded table no setting halves the step on the slow link by itself. Fusion and a short cycle save the same
# milliseconds on any link; next to the time of the bytes they are not enough. fp16 alone leaves the 41 messages. A
# cycle of 20 ms in the fp16 step of 20.8 ms might cost nothing, too, but that is not measured: a gradient that just
# misses the end of a cycle waits for the end of the next one. Before you tune, ask what a step consists of: messages,
# waiting or bytes. The timeline shows it.

# %% [markdown]
# ## Scale
#
# - **Strong scaling:** the same work on more ranks. The batch stays, and each rank gets an N-th of it.
# - **Weak scaling:** more work on more ranks. Each rank keeps its batch.
#
# The speed-up is the ratio of the images that N ranks and one rank train in a second. The efficiency is the speed-up
# divided by N.
#
# ### Exercise: efficiency
#
# <details><summary>Hint</summary>How many images has a step on N ranks in either kind of scaling, if one rank has 480?
# A condition in square brackets picks entries from an array, wherever they stand.</details>


# %% exercise="efficiency"
def efficiency(ranks, seconds, weak=False):
    """The efficiency for each number of ranks, as a fraction: an array [n].

    ranks: numbers of ranks, array [n] in any order; one of them is 1.
    seconds: of a step on so many ranks, array [n].
    weak: True where each rank keeps its batch, False where they share one.
    """
    ### BEGIN SOLUTION
    alone = seconds[ranks == 1]
    speedup = alone / seconds * (ranks if weak else 1)
    return speedup / ranks
    ### END SOLUTION


# %%
check(efficiency)

# %% hidden="efficiency" points=2
### BEGIN HIDDEN TESTS
points(efficiency, 2)
### END HIDDEN TESTS

# %% [markdown]
# ### Predict
#
# 1, 2 and 4 ranks (on eight cores or more also 8), one thread each, 480 images (strong: in all; weak: for each rank).
# What will the efficiency be with the most ranks?
#
# It falls for several reasons. To separate them, each run is done twice: with Horovod, and as N *copies* that train at
# the same time and exchange nothing. What the copies lose, they lose to the machine. What Horovod loses in addition is
# the exchange, and waiting for the slowest rank.

# %% editable=true
predict("strong scaling: efficiency with the most ranks", None)
predict("weak scaling: efficiency with the most ranks", None)

# %%
CORES = available_cores()
counts = [1, 2, 4, 8] if CORES >= 8 else [1, 2, 4]
if QUICK:
    counts = counts[:2]
IMAGES = 48 if QUICK else 480
kinds = {
    f"{kind}{'' if exchange else ' copies'}": (kind, exchange)
    for kind in ("weak", "strong")
    for exchange in (True, False)
}


def settings(ranks):
    if ranks == 1:  # nothing to exchange, and all four are the same
        return {"alone": pace.Setting(IMAGES, exchange=False)}
    return {
        name: pace.Setting(IMAGES if kind == "weak" else IMAGES // ranks, exchange)
        for name, (kind, exchange) in kinds.items()
    }


def measure_scaling():
    tables = []
    with Filling("training on more and more ranks") as chart:
        for number, ranks in enumerate(counts):
            chart.at(sum(counts[:number]) / sum(counts), f"{ranks} rank{'s' * (ranks > 1)}")
            tables.append(pace.measure(settings(ranks), ranks, depth=DEPTH, blocks=1 if QUICK else 4))
    return pd.concat(tables, ignore_index=True)


blocks = measure_scaling()
runs = pace.quiet(blocks)
print(pace.disturbance(blocks))


# %%
def seconds_of_a_step(name):
    """By number of ranks, the median over the blocks."""
    medians = runs[runs["setting"].isin(["alone", name])].groupby("ranks")["seconds"].median()
    return medians.loc[counts].to_numpy()


def scaling_table():
    rows = []
    for name, (kind, exchange) in kinds.items():
        seconds = seconds_of_a_step(name)
        shares = efficiency(np.array(counts), seconds, kind == "weak")
        for ranks, time, share in zip(counts, seconds, shares):
            images = IMAGES * (ranks if kind == "weak" else 1)
            rows.append((kind, exchange, ranks, time, images / time, share))
    return pd.DataFrame(rows, columns=["scaling", "exchange", "ranks", "seconds", "rate", "efficiency"])


ODD = "An efficiency above 1, or a loss below 0, is most likely chance: look how far the recorded blocks scatter."


def show_scaling():
    table = scaling_table()
    wide = table.pivot(index="ranks", columns=["scaling", "exchange"], values="efficiency")
    reasons = {}
    for kind in ("strong", "weak"):
        efficient, alone = wide[kind][True], wide[kind][False]
        machine, exchange = 1 - alone[max(counts)], (alone - efficient)[max(counts)]
        reason = (
            f"Lost to the machine: {machine:.2f} (copies lose that, too). Lost to exchange and waiting: {exchange:.2f}."
        )
        measured(f"{kind} scaling: efficiency with the most ranks", efficient[max(counts)], reason)
        reasons[f"{kind}: efficiency"] = efficient
        reasons[f"{kind}: lost to the machine"] = 1 - alone
        reasons[f"{kind}: lost to the exchange"] = alone - efficient
    shown = pd.DataFrame(reasons).loc[counts].round(2)
    shown["start-up (s)"] = runs.groupby("ranks")["startup"].first().round(1)
    display(shown.T)
    if QUICK:
        print(f"On a slice: {IMAGES} images in a step and a single block. These numbers only show that the cell works.")
    elif (shown.filter(like="lost").min().min() < 0) or (shown.filter(like="efficiency").max().max() > 1):
        print(ODD)
    what = f"Wide ResNet, depth {DEPTH}, drawn images"
    return scaling.speed(table, CORES, caption=plots.provenance(what, max(counts)))


show_scaling()

# %% [markdown]
# The dashed lines are the ceiling. What follows is about the recorded run, which is shown below.
#
# - **Cores.** Beyond the number of cores copies share them, so the efficiency of 4 ranks on 2 cores is about a half at
#   most, whatever Horovod does: 2, 3 and 4 weak copies train 13,790, 15,360 and 15,480 images a second.
# - **Memory and caches.** Two copies on two cores lose 22 % (weak) and 26 % (strong): they share memory and the
#   last-level cache, and a machine may lower its clock when all cores work.
# - **Exchange** lies between dashed and solid lines. On 2 ranks it takes 12.9 ms of a weak step and 12.2 ms of a strong
#   one: the gradients are equally large. But a strong step has 240 images for each rank, not 480, so its efficiency is
#   .55, not .66. Beyond the cores a rank may also wait for one that has no core.
# - **Start-up** is not included: about 6 s with one rank, 19 to 21 s with four. More ranks don't help a training that
#   takes a minute.
#
# Most published curves show weak scaling, which looks better. But its batch grows, and lab 3 shows what a large batch
# does to training.
#
# **What is T(1)?** Here it is one *thread*. One process with all cores, without Horovod, trains 12,200 images a second;
# two ranks that share the batch train 9,800, and two with a batch each 11,600. So on a single CPU, ranks gained
# nothing. They are for what one process can't use: several GPUs, several hosts. State a speed-up over the best program
# for one machine.

# %%
Image("recorded/scaling.png", width=plots.WIDTH)

# %%
recorded = pace.quiet(pd.read_csv("recorded/scaling.csv", comment="#"))
recorded["images/s"] = recorded["ranks"] * recorded["batch"] / recorded["seconds"]
recorded.pivot_table("images/s", "ranks", "setting", "median").round(0).fillna("")

# %% [markdown]
# ## Amdahl's law
#
# If a fraction $s$ of the work cannot be shared, and the rest is shared perfectly, then (Amdahl 1967)
#
# $$T(N) = T(1)\,\Big(s + \frac{1-s}{N}\Big), \qquad S(N) = \frac{T(1)}{T(N)} = \frac{1}{s + (1-s)/N} < \frac{1}{s}$$
#
# Which $s$ fits measured speed-ups best? $S$ is not linear in $s$, so find something that is: then the measured points
# lie around a straight line through 0 with slope $s$. The best slope has the least sum of squared vertical distances.
#
# ### Exercise: the serial fraction
#
# <details><summary>Hint</summary>How does 1/S depend on s? Bring everything with s to one side and the rest to the
# other, so that it reads b = s a, with an a and a b for each point. For which s is the derivative of Σ (b − s a)²
# 0?</details>


# %% exercise="serial_fraction"
def serial_fraction(ranks, speedup):
    """The s of Amdahl's law that fits best, by least squares in 1/S.

    ranks: N, array [n]; speedup: S(N), array [n]. Returns a number.
    """
    ### BEGIN SOLUTION
    a = 1 - 1 / ranks
    b = 1 / speedup - 1 / ranks
    return (a * b).sum() / (a**2).sum()
    ### END SOLUTION


# %%
check(serial_fraction)

# %% hidden="serial_fraction" points=3
### BEGIN HIDDEN TESTS
points(serial_fraction, 3)
### END HIDDEN TESTS

# %% [markdown]
# Now two data sets: your strong scaling, fitted on as many ranks as you have cores, and a published figure. In April
# 2016 TensorFlow 0.8 was announced with a plot on two log axes of the speed-up of Inception on up to 100 GPUs. Here are
# its two ends, 1 GPU and 100.


# %%
def curves():
    ranks, seconds = np.array(counts), seconds_of_a_step("strong")
    speedup = seconds[0] / seconds
    fair = ranks <= CORES
    published, times = scaling.INCEPTION
    return {
        "your strong scaling": (ranks, speedup, serial_fraction(ranks[fair], speedup[fair])),
        "Inception, TensorFlow 0.8": (published, times, serial_fraction(published, times)),
    }


SOURCES = "lines: Amdahl's law · blue: this machine · orange: announcement of TensorFlow 0.8, 2016"
scaling.laws(curves(), log=True, caption=SOURCES)

# %% [markdown]
# ### Predict
#
# Read it off the figure, without calculating: what is the speed-up of the 100 GPUs on the right?

# %% editable=true
predict("Inception on 100 GPUs, times as fast as on one", None)


# %%
def unmask():
    for name, (_, _, serial) in curves().items():
        never = f"never more than {1 / serial:.3g} times as fast" if 0 < serial < 1 else "which no law allows"
        print(f"{name}: s = {serial:.4f}, {never}")
    gpus, times = (values[-1] for values in scaling.INCEPTION)
    measured(
        "Inception on 100 GPUs, times as fast as on one",
        times,
        "The point is close to the diagonal, but on a log axis a small distance may be a large factor.",
    )
    print(f"efficiency {times / gpus:.0%}: the work of {gpus - times:.0f} of {gpus} GPUs is lost")
    return scaling.laws(curves(), both=True, caption=SOURCES)


unmask()

# %% [markdown]
# The same points, the same lines. On log axes a loss of 44 in 100 is the distance from 56 to 100: less than one of the
# seven steps of the axis. Doubling from 1 to 2 gets as much room as doubling from 64 to 128. So a large loss looks like
# a small gap.
#
# A figure that does not flatter has linear axes, or shows the *efficiency*. It shows the ideal, names its baseline (the
# best there is), and says whether scaling is strong or weak and whether start-up counts.
#
# **Do not trust the line.** It was fitted to a few ranks of one machine and extended to 128. The orange line rests on a
# single point, and on a machine with two cores yours does, too: a law with one free number passes through any single
# point. And an exchange *grows* with the number of ranks (2a). Lab 4 builds a model from causes, and tests it on up to
# 2,048 GPUs.

# %% [markdown]
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - On one machine messages cost more than bytes: fuse. Halving the bytes pays where the network is slow.
# - A cycle may be long where steps are long. Choose values that a measurement shows to be free.
# - An efficiency needs its baseline, its kind (strong or weak) and linear axes. Copies that exchange nothing show how
#   much of a loss is the machine's, not Horovod's.
#
# Next: 2d loses a rank and goes on.
#
# - G. Amdahl: *Validity of the single processor approach to achieving large scale computing capabilities.* AFIPS 1967
# - D. Murray: *Announcing TensorFlow 0.8: now with distributed computing support!* Google Research blog, 2016
