# %% [markdown]
# # 7b Cut the depth
#
# A network that is too large for one device can be cut between its layers. Each device, a *stage*, holds some of them
# and hands its activations on. In 1d only one device computed at a time. Here all of them do: the batch goes through in
# pieces. You run such a pipeline on two ranks, plan larger ones, and find out what happens when a pipeline never stops
# to wait for its own updates.
#
# **You will be able to** write the work of one stage so that the pipeline equals the serial network; say how long a
# step takes and how large the bubble is; write a schedule that needs less memory and check it for deadlock; cut layers
# into stages; and say how old the weights are in a pipeline without a flush, and what that costs.
#
# **Time:** 65 minutes; the runs take about 20 seconds on 2 CPU cores. There is nothing for a GPU to do.
#
# **Needs:** backpropagation through dense layers, 1d (sections *What crosses the wires* and *Memory*), and ranks as in
# 2a. 4b has another view of waiting.

# %%
import numpy as np
import pandas as pd
from IPython.display import Image

from course_lib import collectives, data
from course_lib.notebook import plots, predictions
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from course_lib.parallel.pipeline import cross_entropy, first_layers, gathered
from course_lib.parallel.schedules import Run, WrongSchedule, gpipe, kept, run
from course_lib.parallel.schedules import check as check_table
from course_lib.ranks import launch
from labs.lab7_splitting_the_model.lessons import figures_7b as depth
from labs.lab7_splitting_the_model.lessons import stale_pipeline, timed_stages, two_stages
from labs.lab7_splitting_the_model.lessons.checks_7b import check, points, slowest

whole = data.load("fashion_mnist")
IMAGES = min(2_000, len(whole.x_train))
batch = (whole.x_train[:IMAGES].reshape(IMAGES, -1) / 255).astype(np.float32), whole.y_train[:IMAGES]
print(f"{whole.name}: a batch of {IMAGES:,} images")

# %% [markdown]
# ## The work of a stage
#
# There are $k$ stages, counted from 0, and a batch is cut into $m$ **micro-batches**. For each of them a stage has two
# tasks: its forward pass, `("F", i)`, and its backward pass, `("B", i)`. The order of a stage's tasks is its *row*; the
# rows of all stages are a **table**, the schedule. This one is GPipe's (Huang et al., 2018), for two stages and three
# micro-batches: everything forward, then everything backward. After the last task every stage updates its own weights,
# and only then the next batch may enter. That is the **flush**.

# %%
pd.DataFrame(
    [[f"{kind}{micro}" for kind, micro in row] for row in gpipe(2, 3)],
    index=["stage 0", "stage 1"],
    columns=[f"task {number}" for number in range(6)],
)

# %% [markdown]
# The stages have no memory in common. What one needs of its neighbour travels over a **wire**:
#
# - `wire.send(to, kind, micro, array)` sends an array to stage `to` and returns at once;
# - `wire.receive(source, kind, micro)` waits for the array that stage `source` sends under that name.
#
# A stage computes with two functions:
#
# - `stage.forward(micro, inputs)` returns outputs, and keeps what the backward pass of that micro-batch needs;
# - `stage.backward(micro, gradient)` takes the gradient of the loss by these outputs, *adds* the gradients by the
#   stage's weights to those that are there, and returns the gradient by the inputs.
#
# On the last stage the outputs go into `cross_entropy(outputs, labels)`, which returns the mean loss of these images
# and its gradient by the outputs.
#
# ### Exercise: the work
#
# Carry out one row, so that all stages together end with the gradients of the mean loss of the *whole batch*. The
# micro-batches need not have equally many images. The same function runs on every stage.
#
# <details><summary>Hint</summary>Write the mean loss of the batch as a sum over micro-batches. What multiplies each
# mean? A gradient by the outputs is ready long before the row comes to its backward pass: keep it.</details>


# %% exercise="work"
def work(row, stage, me, size, wire, inputs, labels):
    """Do the tasks of stage `me`, in their order, and return the loss.

    row: list of ("F", i) and ("B", i); stage, wire: see above; me: 0 … size − 1; size: the number of stages.
    inputs, labels: lists with the images [n_i, pixels] and the labels [n_i] of each micro-batch. Every stage has both;
    the first needs only the images, the last only the labels, and all may know how many there are.
    Returns the mean loss of the whole batch on the last stage, 0 on the others.
    """
    ### BEGIN SOLUTION
    images, loss, slopes = sum(len(some) for some in labels), 0.0, {}
    for kind, i in row:
        if kind == "F":
            x = wire.receive(me - 1, "F", i) if me > 0 else inputs[i]
            y = stage.forward(i, x)
            if me + 1 < size:
                wire.send(me + 1, "F", i, y)
            else:
                mean, slope = cross_entropy(y, labels[i])
                loss += mean * len(labels[i]) / images
                slopes[i] = slope * (len(labels[i]) / images)
        else:
            slope = slopes[i] if me + 1 == size else wire.receive(me + 1, "B", i)
            back = stage.backward(i, slope)
            if me > 0:
                wire.send(me - 1, "B", i, back)
    return loss
    ### END SOLUTION


# %%
check(work)

# %% hidden="work" points=5
### BEGIN HIDDEN TESTS
points(work, 5)
### END HIDDEN TESTS

# %% [markdown]
# ### On two ranks
#
# The network has six dense layers, 784 → 392 → … → 10. Two of them are on rank 0 and four on rank 1, so that both have
# nearly the same number of multiply-adds. First come three updates with three micro-batches that are not equally
# large, in float64; then, in float32, a step with a single micro-batch and one with eight.
#
# Horovod has no message from one rank to another, only collectives. Its `alltoall` could carry one: with nothing for
# everybody else. But then every rank must take part in every message and wait for it, and Horovod's thread looks for
# work once in a millisecond. So the ranks only tell each other their addresses by Horovod; a TCP connection joins each
# pair of neighbours. What that saves is recorded with the bubble below.
#
# ### Predict
#
# By how much do the weights of the two ranks differ from those of the serial network after three updates, as a power of
# ten (−3 for .001)? And which share of its time is a rank idle, on average, with a single micro-batch?

# %% editable=true
predict("difference of the weights, power of ten", None)
predict("idle share with one micro-batch", None)

# %%
SIZES, END, RATE = (784, *[392] * 5, 10), 2, 0.1
layers, precise_layers = first_layers(SIZES, 1), first_layers(SIZES, 1, np.float64)
precise = batch[0].astype(np.float64), batch[1]


def on_a_rank():
    """As one of two ranks: three updates that the serial network repeats, then the times of some more steps."""
    found = {"equal": two_stages.on_this_rank(work, precise_layers, END, precise, 3, RATE, 3, gpipe)}
    for micro in (1, 8):
        found[micro] = two_stages.on_this_rank(work, layers, END, batch, micro, RATE, 3, gpipe)["spans"][-1]
    return found


with Filling("two ranks") as line:
    line.at(0, "they start, then take nine steps")
    ranks = launch.call(on_a_rank, 2, env=launch.ONE_THREAD, timeout=240)
serial_losses, serial_layers = two_stages.serial(precise_layers, precise, RATE, 3)
cut_layers = [layer for rank in ranks for layer in rank["equal"]["layers"]]
pairs = [pair for two in zip(serial_layers, cut_layers) for pair in zip(*two)]
apart = max(float(np.abs(one - other).max()) for one, other in pairs)
measured(
    "difference of the weights, power of ten",
    round(np.log10(max(apart, 1e-17))),
    "float64 has 16 digits: with a flush the pipeline is the same SGD, and only the order of its sums is another.",
    exponent=True,
)
steps = {micro: Run(2, tuple(gathered([rank[micro] for rank in ranks]))) for micro in (1, 8)}
measured(
    "idle share with one micro-batch",
    round(steps[1].idle, 3),
    "Each rank waits while the other computes: one half, and a little more for the messages.",
)
pd.DataFrame({"serial": serial_losses, "two ranks": ranks[1]["equal"]["losses"]}, index=["step 1", "step 2", "step 3"])

# %%
depth.timelines(
    {f"{micro} micro-batch{'es' * (micro > 1)}: {steps[micro].idle:.0%} idle": steps[micro] for micro in steps},
    caption=plots.provenance(f"{whole.name}, {IMAGES:,} images", 2),
    unit="seconds",
)

# %% [markdown]
# ## How long a step takes
#
# Measured times are uneven. For the plan, take fixed times of each stage for one micro-batch, and messages that take
# none. Stages need not be equally fast.
#
# ### Exercise: the time of a step
#
# With GPipe's schedule: how long does it take from the first task to the end of the last? Derive it from what one
# micro-batch needs, and from the stage at which the others queue.
#
# <details><summary>Hint</summary>Look at the last stage. When does it finish its first forward pass, and what does it
# wait for afterwards? When its last forward pass is over, the way back begins, and the same question comes
# again.</details>


# %% exercise="step_seconds"
def step_seconds(forward, backward, micro):
    """Seconds of a step with GPipe's schedule.

    forward, backward: lists with the seconds that each stage takes for a pass of one micro-batch.
    micro: the number of micro-batches, which pass through all stages one after the other.
    """
    ### BEGIN SOLUTION
    return sum((micro - 1) * max(way) + sum(way) for way in (forward, backward))
    ### END SOLUTION


# %%
check(step_seconds)

# %% hidden="step_seconds" points=3
### BEGIN HIDDEN TESTS
points(step_seconds, 3)
### END HIDDEN TESTS

# %% [markdown]
# With $k$ equal stages your formula gives $(m + k - 1)(f + b)$, in which each stage computes for $m (f + b)$. The rest
# is the **bubble**, the idle share of all stages' time:
#
# $$ \frac{k - 1}{m + k - 1} $$
#
# (Some papers give $(k-1)/m$: idle time as a share of the time that is *not* idle.) Two consequences: the bubble grows
# with the stages and shrinks with the micro-batches, and it does not depend on how long a pass takes.
#
# ### Predict
#
# Two real ranks again, recorded: a batch of 2,048 images and 1, 2, 4, 8, 16 or 32 micro-batches. For 32 the formula
# says 3 % idle. What is measured? What is the smallest number of micro-batches with which the step is within a tenth of
# the fastest (GPipe's schedule), and how many times as fast as one rank is the fastest of all steps? And how many times
# as long as by the socket does a message of 1,000 numbers take by Horovod's `alltoall`?

# %% editable=true
predict("idle share with 32 micro-batches", None)
predict("micro-batches that suffice", None)
predict("speed-up of the fastest step", None)
predict("all-to-all over socket, times as long", None)

# %%
recorded = pd.read_csv("recorded/bubble.csv", comment="#")
by_gpipe = recorded[recorded["what"] == "GPipe"].set_index("micro")
serial = recorded.loc[recorded["what"] == "serial", "seconds"].iloc[0]
measured(
    "idle share with 32 micro-batches",
    round(by_gpipe.loc[32, "idle"], 3),
    "The formula knows no messages, and no task that takes longer than the others. With 128 tasks, some do.",
)
measured(
    "micro-batches that suffice",
    int(by_gpipe.index[by_gpipe["seconds"] < 1.1 * by_gpipe["seconds"].min()].min()),
    "More? Smaller products are slower for each image, and each micro-batch adds gradients for all weights.",
)
both_schedules = recorded[recorded["predicted"].notna()]
measured(
    "speed-up of the fastest step",
    serial / both_schedules["seconds"].min(),
    "Two ranks can't be twice as fast: there is always a bubble.",
)
message = recorded[recorded["what"].str.startswith("message")].pivot(index="micro", columns="what", values="seconds")
measured(
    "all-to-all over socket, times as long",
    (message["message by all-to-all"] / message["message by socket"]).loc[1_000],
    "Near 1? Horovod's ranks first agree on what is to be exchanged, and they do so in cycles.",
)
Image("recorded/bubble.png", width=plots.WIDTH)

# %%
(1e3 * message).rename_axis("numbers").rename_axis(None, axis=1).add_suffix(", ms").round(2)

# %% [markdown]
# (Medians of 15 steps of one run.)
#
# - The bubble shrinks, but not as far as predicted. With 1, 2 and 4 micro-batches GPipe's is .52, .37 and .27, where
#   the formula has .50, .33 and .20. At 32 it is .18 in place of .03.
# - The computing itself grows, too. One rank takes 154 ms for the step; with 32 micro-batches the two ranks compute for
#   194 ms, together. So the step takes equally long with 4, 8 and 16 micro-batches (106, 107 and 106 ms), and longer
#   with 32 (120 ms).
# - The best speed-up is about 1.5, with four micro-batches; between the two schedules one run can show no difference.
# - A message of 1,000 numbers takes .09 ms by the socket and 1.65 ms by `alltoall`: 18 times as long.
#
# `course reproduce bubble`, typed in a terminal, makes it again in about 40 seconds.
#
# ## Another order
#
# Until its backward pass is done, a stage keeps the activations of a micro-batch. With GPipe's schedule every stage
# keeps all $m$. So the very remedy against the bubble, more micro-batches of the same size, costs memory.
#
# ### Exercise: a schedule
#
# Write a table for any number of stages and micro-batches with which the step takes as long as with GPipe's, but in
# which **stage $s$ keeps at most $k - s$ micro-batches at any time**, however many there are. A backward pass
# may come as soon as its gradient is there.
#
# The check follows your table without waiting for anything: where stages would wait for each other for ever, it says
# which waits for what.
#
# <details><summary>Hint</summary>The limit tells how many forward passes stage <em>s</em> can make before its first
# backward pass. What must follow each backward pass, if no more is kept and nobody is to wait? Draw it for three stages
# and begin with the last one, which may keep a single micro-batch.</details>


# %% exercise="schedule"
def schedule(stages, micro):
    """The table of a step: a list with a row for each stage.

    A row is a list of tasks, ("F", i) and ("B", i), each i from 0 to micro − 1 once. All forward passes take equally
    long, and so do all backward passes.
    """
    ### BEGIN SOLUTION
    in_order = []
    for stage in range(stages):
        early = min(stages - 1 - stage, micro)
        row = [("F", i) for i in range(early)]
        for i in range(micro):
            row += [("F", early + i)] * (early + i < micro) + [("B", i)]
        in_order.append(row)
    return in_order
    ### END SOLUTION


# %%
check(schedule)

# %% hidden="schedule" points=5
### BEGIN HIDDEN TESTS
points(schedule, 5)
### END HIDDEN TESTS

# %% [markdown]
# What you should see: two pictures of the same length with equally large gaps, and in the second one no stage that runs
# ahead of its neighbour by more than it must. A backward pass takes twice as long as a forward pass.


# %%
def named(name, table):
    followed = run(table, forward=1, backward=2)
    return {f"{name}: {followed.idle:.0%} idle, kept by stage {kept(table)}": followed}


depth.timelines(
    {**named("GPipe", gpipe(4, 8)), **named("yours", schedule(4, 8))}, caption="simulated, messages take no time"
)

# %% [markdown]
# Does it work? For more stages than there are cores, a timer stands in for each stage's accelerator, as in 4b: a
# forward pass takes 5 ms, a backward pass 10 ms, and the processor is free meanwhile. Your `work` follows both tables;
# its messages go through sockets, and clocks tell how long it takes.
#
# ### Predict
#
# 16 stages, 32 micro-batches and GPipe's schedule: by how many per cent is the measured idle share above that of the
# formula?

# %% editable=true
predict("% by which the idle share of 16 stages is above the formula's", None)


# %%
def many_stages():
    rows = {}
    for stages in (4, 8, 16):
        for name, table in (("GPipe", gpipe(stages, 32)), ("yours", schedule(stages, 32))):
            followed, held = timed_stages.follow(work, table, 0.005, 0.010)
            rows[f"{stages} stages", name] = {
                "predicted": (stages - 1) / (32 + stages - 1), "idle": followed.idle, "kept": max(held)
            }  # fmt: skip
    return pd.DataFrame(rows).T


many = many_stages()
idle = many.loc[("16 stages", "GPipe")]
measured(
    "% by which the idle share of 16 stages is above the formula's",
    round(100 * (idle["idle"] / idle["predicted"] - 1), 1),
    "Messages and threads that wake late are little beside passes of 5 and 10 ms. With even passes the formula holds.",
)
many.round(3).astype({"kept": int})

# %% [markdown]
# The two real ranks of above missed the formula by more. There, passes are not even, and small ones are slow.
#
# This order is called **one forward, one backward** (Narayanan et al., 2019 and 2021; with a flush, as here,
# PipeDream-Flush). What if one stage follows another schedule than the others? Five mixtures, for three stages and four
# micro-batches: in your table stage 0, 1 or 2 gets GPipe's row, or stage 0 or 1 a row in which each micro-batch goes
# forward and back before the next one (F0, B0, F1, B1, …).
#
# ### Predict
#
# How many of the five mixtures end in a deadlock?

# %% editable=true
predict("mixtures that end in a deadlock", None)


# %%
def mixture(stage, row):
    return [row if number == stage else own for number, own in enumerate(schedule(3, 4))]


def verdict(table):
    try:
        check_table(table, 4)
    except WrongSchedule as wrong:
        return str(wrong)
    return f"can be followed; the step takes {run(table).seconds:g}, stages keep {kept(table)}"


alone = [(kind, micro) for micro in range(4) for kind in "FB"]
verdicts = {f"stage {stage} with GPipe's row": verdict(mixture(stage, gpipe(3, 4)[0])) for stage in (0, 1, 2)}
verdicts |= {f"stage {stage}, one at a time": verdict(mixture(stage, alone)) for stage in (0, 1)}
measured(
    "mixtures that end in a deadlock",
    sum("Deadlock" in told for told in verdicts.values()),
    "It happens where a stage waits for more micro-batches than the one before sends without an answer: with GPipe's "
    "row after yours, and with yours after one at a time.",
)
for name, told in {"all as in your table": verdict(schedule(3, 4)), **verdicts}.items():
    print(f"{name}: {told}")

# %% [markdown]
# Real stages would stand still in such a deadlock until somebody ends them. That is why the two ranks above look at the
# whole table first.
#
# ### Predict
#
# Messages are not always as cheap as on one host. In a simulation: eight stages, 32 micro-batches, and a message takes
# .3 of a forward pass (and keeps no stage from computing). By how many per cent does that lengthen the step with
# GPipe's schedule, and with yours?

# %% editable=true
predict("per cent that messages add to GPipe's step", None)
predict("per cent that messages add to one forward, one backward", None)


# %%
WAYS = {"GPipe": gpipe, "one forward, one backward": schedule, "with a reserve": two_stages.with_a_reserve}


def compared(stages, micro, message):
    rows = {}
    for name, make in WAYS.items():
        table = make(stages, micro)
        free, slow = (run(table, 1, 2, seconds) for seconds in (0, message))
        rows[name] = {
            "idle": free.idle,
            "kept": max(kept(table)),
            "messages add, %": 100 * slow.seconds / free.seconds - 100,
        }
    return pd.DataFrame(rows).T


eight = compared(8, 32, 0.3)["messages add, %"]
measured(
    "per cent that messages add to GPipe's step",
    eight["GPipe"],
    "Only the first micro-batch's way is longer, there and back: 14 messages in all.",
)
measured(
    "per cent that messages add to one forward, one backward",
    eight["one forward, one backward"],
    "As little as with GPipe? Here a stage waits for an answer before it goes on, and answers come later.",
)
shapes = [(stages, micro) for stages in (4, 8, 16) for micro in (8, 32)]
ways = {f"{stages} stages, {micro} micro-batches": compared(stages, micro, 0.3) for stages, micro in shapes}
pd.concat(ways).round(2).astype({"kept": int})

# %% [markdown]
# "The same bubble" holds for messages that take no time. With GPipe's schedule a stage has always something to do while
# a message travels. One forward, one backward is only one micro-batch ahead of the next stage: it sends, and waits for
# that stage's answer. *With a reserve* each stage begins two micro-batches ahead of the next one. Messages then cost no
# more than with GPipe, and stage $s$ keeps at most $2(k - s) - 1$ micro-batches, however many there are.
#
# ## Where to cut
#
# Every micro-batch queues at the slowest stage. So the cuts decide, and layers are not alike: early convolutions are
# slow, late ones have many weights.
#
# ### Exercise: the plan
#
# Cut a list of layers into $k$ runs, so that the slowest stage is as fast as possible. The check knows the best plan;
# it also tries a hundred layers.
#
# <details><summary>Hint</summary>Two ways lead there. If somebody tells you how slow a stage may be at most, filling
# one after the other shows whether <em>k</em> are enough: so which limits are worth trying? Or: the best plan for the
# first <em>n</em> layers and <em>j</em> stages ends with a last stage, and in front of it stands a best plan with
# <em>j</em> − 1.</details>


# %% exercise="cuts"
def cuts(seconds, stages):
    """Where to cut: stages − 1 whole numbers that rise, from 1 to len(seconds) − 1.

    seconds: list with the time of each layer, all above 0; at least as many layers as stages.
    A cut c stands before layer c, counted from 0: with the cuts [2, 5] stage 0 has the layers 0 and 1, stage 1 the
    layers 2, 3 and 4. Every stage has a layer.
    """
    ### BEGIN SOLUTION
    layers = len(seconds)
    sums = np.concatenate([[0], np.cumsum(seconds)])
    best = [(sums[end], []) for end in range(layers + 1)]
    for count in range(2, stages + 1):
        best = [
            min(
                ((max(best[c][0], sums[end] - sums[c]), [*best[c][1], c]) for c in range(count - 1, end)),
                default=(float("inf"), []),
            )
            for end in range(layers + 1)
        ]
    return best[layers][1]
    ### END SOLUTION


# %%
check(cuts)

# %% hidden="cuts" points=5
### BEGIN HIDDEN TESTS
points(cuts, 5)
### END HIDDEN TESTS

# %%
draw = np.random.default_rng(7)
some_layers = np.round(np.geomspace(9, 2, 16) * draw.uniform(0.6, 1.6, 16), 1).tolist()
depth.plan(
    some_layers,
    {"equally many layers": [4, 8, 12], "yours": cuts(some_layers, 4)},
    caption="16 drawn layers, 4 stages; the dashed line is the slowest stage",
)

# %%
pd.DataFrame(
    {
        name: {
            "slowest stage, ms": slowest(some_layers, plan),
            "step with 8 micro-batches, ms": step_seconds(*[[sum(p) for p in parts]] * 2, 8),
        }
        for name, plan in {"equally many layers": [4, 8, 12], "yours": cuts(some_layers, 4)}.items()
        for parts in [np.split(np.array(some_layers), plan)]
    }
).round(1)

# %% [markdown]
# (Both passes are taken to be equally long here.)
#
# ## Never stop
#
# The bubble is the price of the flush. Without a flush there is none: batch after batch enters the pipeline, and each
# stage updates its weights after every backward pass, at once, while other batches are under way. Pétrowski et al.
# (1993) trained like this, and so does CATERPILLAR, an architecture for training by Li and Pedram (2017). In a tutorial
# one of its authors names what hardware gains by it: *layer locality* (here: the weights of a layer stay where they
# are) and *weight temporal locality* (weights are updated and consumed immediately).
#
# It is no longer SGD. When the gradient of a batch comes back to a stage, the stage's weights are not those any more
# with which the batch went forward. The **delay** of a stage is the number of its updates in between.
#
# ### Exercise: the delays
#
# Derive them for two pipelines that never stop, long after the start, when every stage is busy. Batches are not cut.
#
# 1. **In ticks**, as in hardware that moves in step. In each tick every stage makes the forward pass of one batch and
#    then the backward pass of an earlier one, with its update. Results reach the neighbour for the next tick. The last
#    stage goes back in the same tick in which a batch arrives.
# 2. **One forward, one backward**: the rows of your schedule with no end, and an update after each backward pass.
#
# <details><summary>Hint</summary>In ticks: in which tick does batch 0 go forward on stage <em>s</em>, and in which does
# its gradient come back? For your schedule: count the tasks B in a row between F5 and B5.</details>


# %% exercise="delays"
def delays(stages):
    """Two lists with the delay of each stage, from stage 0 on: in ticks, and with one forward, one backward."""
    ### BEGIN SOLUTION
    after = [stages - 1 - stage for stage in range(stages)]
    return [2 * count for count in after], after
    ### END SOLUTION


# %%
check(delays)

# %% hidden="delays" points=3
### BEGIN HIDDEN TESTS
points(delays, 3)
### END HIDDEN TESTS

# %% [markdown]
# What you should see: in ticks, the batch that comes back to a stage has been away for twice as many ticks as there are
# stages after it. One forward, one backward has half of these delays, since no result waits for the next tick. From
# here on, everything is in ticks.

# %%
depth.ticks(4, delays(4)[0], caption="above: the batch that goes forward; below: the one that comes back")

# %% [markdown]
# What does old mean here? The gradient of a batch is put together from two sets of weights: its activations come from
# the old ones, and on its way back it is multiplied by those of the moment. One can repair that by **stashing**: each
# stage keeps the weights of every batch under way, and goes back with those of the forward pass (PipeDream, Narayanan
# et al., 2019). The gradient is then a true one, but at old weights, those of each stage by its own delay.
#
# ### Predict
#
# Eight dense layers on Fashion-MNIST, one a stage, in ticks, each batch of 16 images an update: what becomes of the
# training with 8 stages, at the learning rate that is best with a flush: `"same"` (within 2 hundredths of the flush at
# this rate), `"worse"` or `"fails"` (guessing)? And at a tenth of that rate?

# %% editable=true
predict("8 stages at the flush's best rate", None)
predict("8 stages at a tenth of it", None)


# %%
def four_trainings():
    problem = stale_pipeline.fashion()
    rows = {}
    with Filling("four trainings") as line, np.errstate(all="ignore"):
        for rate in (0.1, 0.01):
            for stages in (1, 8):
                line.at(len(rows) / 4, f"η = {rate:g}, {stages} stages")
                start, order = first_layers(stale_pipeline.SIZES, 1), stale_pipeline.batches(problem.train, 1)
                trained = stale_pipeline.train(start, order, stages, rate)
                rows[rate, stages] = stale_pipeline.accuracy(trained, problem.validation)
    return pd.Series(rows, name="validation accuracy").rename_axis(["η", "stages"])


accuracies = four_trainings()


def word(found, flush):
    return "same" if found > flush - 0.02 else "worse" if found > 0.15 else "fails"


measured(
    "8 stages at the flush's best rate",
    word(accuracies[0.1, 8], accuracies[0.1, 1]),
    "The first layer's gradients are 14 updates late: at that rate, each step answers a mistake that is long gone.",
)
measured(
    "8 stages at a tenth of it",
    word(accuracies[0.01, 8], accuracies[0.01, 1]),
    "Small steps don't lead far in 14 updates, so that old weights are nearly the new ones.",
)
accuracies.round(3).to_frame()

# %% [markdown]
# One seed is an anecdote. The recorded experiment: 1, 2, 4 and 8 stages, with and without stashing. Every way tried the
# same eight rates with two seeds, and chose its own on validation data; five other seeds for the results.
# `course reproduce stale_pipeline` makes it again; that took 7 minutes on a machine that had other work, too.
#
# ### Predict
#
# The flush's best rate is .1. What is the best rate with 8 stages (weights of the moment)? With each way at its own
# best rate, how many hundredths of test accuracy do 2 stages lose to the flush, and 8? How many do 8 lose with
# stashing?

# %% editable=true
predict("best rate with 8 stages", None)
predict("hundredths that 2 stages lose", None)
predict("hundredths that 8 stages lose", None)
predict("hundredths that 8 stages lose with stashing", None)

# %%
table = pd.read_csv("recorded/stale_pipeline.csv", comment="#")
best = depth.summary(table).set_index(["way", "stages"])
lost = (100 * depth.losses(table).set_index(["way", "stages"])).round(1)
measured(
    "best rate with 8 stages",
    float(best.loc[("current", 8), "rate"]),
    "The first stage's delay is 2, 6 and 14 with 2, 4 and 8 stages. Each time the best rate is half as large. (With 8, "
    "twice the rate ties in tuning: see below.)",
)
for question, way, stages, reveals in (
    (
        "2 stages lose",
        "current",
        2,
        "Its interval holds 0: a delay of two updates costs nothing that can be seen here.",
    ),
    ("8 stages lose", "current", 8, "Nothing, as long as the rate is tuned? Small steps also lead less far in 2,400."),
    ("8 stages lose with stashing", "stashed", 8, "About half of the loss came from mixing two sets of weights."),
):
    measured(f"hundredths that {question}", float(lost.loc[(way, stages), "mean"]), reveals)
Image("recorded/stale_pipeline.png", width=plots.WIDTH)

# %%
chosen = best.rename(columns={"rate": "best rate", "mean": "test accuracy", "half": "± (95 %)"}).round(4)
chosen.join(lost.rename(columns={"mean": "lost, hundredths", "half": "±"})).drop("longer", level="way")

# %% [markdown]
# What is lost against the flush, in hundredths of test accuracy, with the 95 % interval over pairs with the same seed,
# and the rate that was chosen (the flush: .1):
#
# | stages | delay of the first | weights of the moment | weights stashed |
# |---|---|---|---|
# | 2 | 2 | −0.3 ± 0.5, η = .05 | 0.3 ± 1.1, η = .1 |
# | 4 | 6 | 1.1 ± 0.4, η = .025 | 0.7 ± 0.2, η = .05 |
# | 8 | 14 | 2.9 ± 0.6, η = .0125 | 1.6 ± 0.9, η = .025 |
#
# - With two stages nothing is lost that could be seen. With four and eight there is a loss, although each way has the
#   rate that suits it best.
# - At the flush's rate of .1 two stages lose 0.2 ± 0.5. With four, three of the five trainings fail; with eight, all
#   five do. The same rate for all would not have compared the pipelines, but their limits.
# - With eight stages and the weights of the moment, .0125 and .025 tied with the two tuning seeds, and the smaller was
#   taken. At .025, which we ran when we had seen the tie, two of five trainings fail: two seeds had been lucky.
# - Stashing allows twice the rate, and loses less: it is ahead by 0.5 ± 0.4 with four stages and by 1.3 ± 0.7 with
#   eight. It costs memory: the first of eight stages keeps 15 versions of its weights.
#
# ### At equal time
#
# So far every way saw the same images. But the flush takes longer. If it cuts each batch of 16 into four micro-batches,
# a step of eight stages takes (4 + 7) / 4 = 2.75 times as long as without a bubble. In the time of its three epochs the
# pipeline that never stops makes eight. (That is the formula; nothing was timed here.) It chose its rate as all others
# did, and got .025. With that rate two of the five trainings failed: it was the largest that worked with both tuning
# seeds, at the edge of the cliff in the left panel. With half of it, which we tried only after we had seen that, all
# five reach .826 to .838, ahead of the flush by 0.4 ± 0.6: no difference. Here the time that was saved makes up for the
# old weights, once a safe rate is found.
#
# Kosson et al. (2020) add two methods that make up for the delays (one of them predicts weights), and report that
# pipelines without a flush and with batches of one then match SGD for several networks on CIFAR-10 and ImageNet.
#
# ## What all-reduces save
#
# One thing is left of the tutorial's list: a *smaller reduction tree*. Nobody has to choose between data and model
# parallelism. 16 ranks can be 16 copies of a network, or 4 stages with 4 copies of each. Then each group of 4 averages
# the gradients of its own quarter of the network, and the groups do so at the same time.
#
# ### Predict
#
# Ring all-reduces, counted over all ranks: how many times fewer words do 4 stages × 4 copies send than 16 copies?

# %% editable=true
predict("times fewer words in all-reduces", None)

# %%
RANKS, IN_A_LAYER, LAYERS, IMAGES_IN_ALL = 16, 1_024, 8, 1_024
rows = {}
for stages in (1, 2, 4, 8):
    copies, weights = RANKS // stages, LAYERS * IN_A_LAYER**2 // stages
    ring = collectives.trace(collectives.ring(copies, weights))
    halving = collectives.trace(collectives.halving(copies, weights))
    rows[f"{stages} × {copies}"] = {
        "rounds, ring": ring.rounds,
        "rounds, recursive halving": halving.rounds,
        "million words in all-reduces": stages * ring.elements.sum() / 1e6,
        "million words across cuts": 2 * (stages - 1) * IN_A_LAYER * IMAGES_IN_ALL / 1e6,
    }
words = pd.DataFrame(rows).T.rename_axis("stages × copies")
measured(
    "times fewer words in all-reduces",
    words["million words in all-reduces"].loc["1 × 16"] / words["million words in all-reduces"].loc["4 × 4"],
    "4? The weights of a group are a quarter. But a ring of N sends 2 (N − 1) times their number, so 15 becomes 3.",
)
words.round(1)

# %% [markdown]
# (Eight layers of 1,024 × 1,024 weights, 1,024 images in a step; activations and their gradients across the cuts.)
# Rounds shrink, too: 30 become 6 with the ring, 8 become 4 with recursive halving, which has as many levels each way as
# a tree. What the cuts cost grows with the stages and the images; here it stays well below what the all-reduces save.
#
# The same holds within a layer. Where all N cores share one product of a matrix with a vector (a GEMV), each has a
# small piece, and N partial sums are added. With k stages N/k cores share it. Their pieces are larger, and the tree has
# fewer leaves: *more efficient GEMVs*, in the tutorial's words.
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - A pipeline with a flush is SGD: micro-batches change the order of sums, and nothing else, if each mean is weighted
#   by its images.
# - The bubble is (k − 1) / (m + k − 1) for equal stages and free messages. On real ranks small micro-batches, messages
#   and uneven times put an end to the gain.
# - GPipe keeps m micro-batches, one forward, one backward at most k − s. The second has no reserve against slow
#   messages; twice the lead gives it one.
# - Check a schedule before you run it: a deadlock can be named, and need not be waited for.
# - The slowest stage sets the pace: cut by time, not by number of layers.
# - Without a flush there is no bubble, but weights are up to 2 (k − 1) updates old. The deeper the pipeline, the
#   smaller the rate has to be.
#
# - A. Pétrowski, G. Dreyfus, C. Girault: *Performance analysis of a pipelined backpropagation parallel algorithm.* IEEE
#   Transactions on Neural Networks 4(6), 1993
# - Y. Huang et al.: *GPipe: Efficient Training of Giant Neural Networks using Pipeline Parallelism.* arXiv:1811.06965
# - D. Narayanan et al.: *PipeDream: Generalized Pipeline Parallelism for DNN Training.* SOSP 2019
# - D. Narayanan et al.: *Memory-Efficient Pipeline-Parallel DNN Training.* arXiv:2006.09503
# - D. Narayanan et al.: *Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM.*
#   arXiv:2104.04473
# - Y. Li, A. Pedram: *CATERPILLAR: Coarse Grain Reconfigurable Architecture for Accelerating the Training of Deep
#   Neural Networks.* arXiv:1706.00517
# - A. Kosson et al.: *Pipelined Backpropagation at Scale: Training Large Models without Batches.* arXiv:2003.11666
