# %% [markdown]
# # 5b Gradients in four bits
#
# In each step of training every rank sends its gradient, with 32 bits for each number. On a slow link that takes most
# of the step. How few bits are enough? Here you send gradients in 16, 8 and 4 bits between real ranks. You will find
# that three choices matter as much as the number of bits: where a sum is rounded, which factor the gradient is
# multiplied by before, and how the bits are split between exponent and mantissa.
#
# **You will be able to** say what a narrow format saves on a link and what it costs; write an all-reduce that rounds
# each number only twice, for any number of ranks; find the factor that fits a gradient into a format; recognise a
# mistake in a training with few bits by its symptoms; and test two claims of a paper.
#
# **Time:** 80 minutes; the runs take about 20 seconds on 2 CPU cores. There is nothing for a GPU to do.
#
# **Needs:** the formats and `quantise` of 5a, the ring of 2a; 2f's slow link helps.

# %%
import inspect

import numpy as np
import pandas as pd
from IPython.display import Code, Image

from course_lib import collectives
from course_lib.collectives import simulated
from course_lib.notebook import plots, predictions
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from course_lib.precision import smallest
from course_lib.ranks import launch
from labs.lab5_precision_and_memory.lessons import figures_5b as bits
from labs.lab5_precision_and_memory.lessons import narrow_training as narrow
from labs.lab5_precision_and_memory.lessons import narrow_wire as wire
from labs.lab5_precision_and_memory.lessons.checks_5b import check, points
from labs.lab5_precision_and_memory.lessons.diagnosis_5b import (
    MISTAKES,
    check_diagnosis,
    diagnosis_points,
    observe,
    patient,
)

problem = narrow.fashion()
IMAGES = len(problem.train.labels)
FULL = IMAGES >= 5_000  # else a slice
RANKS = narrow.RANKS
BATCH = 1_280 if FULL else IMAGES // 2 // RANKS * RANKS
UPDATES, RATE = 80 if FULL else 24, 0.16
WHERE = plots.provenance(f"{problem.name}, {IMAGES:,} images, B = {BATCH:,} on {RANKS} emulated ranks")
network = narrow.Network((problem.train.images.shape[1], *narrow.HIDDEN, 10))
print(f"{problem.name}: {IMAGES:,} images; {network.ends[-1]:,} weights in {len(network.names)} tensors")

# %% [markdown]
# ## What travels
#
# A format $(e, m)$ has a sign, $e$ bits of exponent and $m$ bits of mantissa, as in 5a. The one that this notebook is
# about is (3, 0): four bits, no mantissa. It holds 0, ±¼, ±½, ±1, ±2, ±4, ±8 and ±∞, and nothing else.
#
# Only gradients are rounded, and only while they are exchanged. Weights, momentum and activations stay in float32. The
# network is small: three dense layers for images of 14 × 14 pixels. It is written in NumPy, so that every rounding can
# be seen in the code. `wire.pack` stores numbers of any format without unused bits.

# %%
formats = {form: wire.bits(form) for form in (wire.FLOAT32, (8, 7), (5, 10), (5, 2), (4, 3), (3, 1), (3, 0))}
pd.DataFrame(
    {
        wire.name(form): {
            "bits": each,
            "smallest above 0": f"{smallest(*form):.2g}",
            "largest power of two": f"{wire.top(form):.2g}",
            "octaves between": round(np.log2(wire.top(form) / smallest(*form))),
        }
        for form, each in formats.items()
    }
).T

# %% [markdown]
# ### Predict
#
# Two ranks reduce this network's gradient in a ring. How many bytes does each rank send in a step if a number has four
# bits?
#
# And seconds: in a recorded experiment, two ranks on two pretended hosts (2c) train a network with 355,110 weights.
# Computing a gradient takes about 2 ms; NumPy rounds and packs the numbers. Compare a step in float32 with a step in
# four bits: how many times as long does it take on a link of 100 Mbit/s, and how many times on a link without a limit?
# (2: twice as long; 0.5: half as long.)

# %% editable=true
predict("4 bits: bytes that a rank sends in a step", None)
predict("100 Mbit/s: seconds in float32 / seconds in 4 bits", None)
predict("no limit: seconds in float32 / seconds in 4 bits", None)


# %%
def two_ranks():
    """Seconds and bytes of a step on two real ranks, by format. Their packed messages travel over TCP."""
    forms, widths = (wire.FLOAT32, (5, 10), (4, 3), (3, 0)), (problem.train.images.shape[1], *narrow.HIDDEN, 10)

    def function():
        import horovod.tensorflow as hvd

        hvd.init()
        me = wire.connect()
        rows = narrow.time_steps(me, forms, 20, 64, widths)
        me.close()
        hvd.shutdown()
        return rows

    with Filling("two ranks, four formats in turn"):
        rows = launch.call(function, 2, env=launch.ONE_THREAD)[0]
    steps = pd.DataFrame(rows).groupby("form", sort=False)[["bytes", "step"]].median()
    steps.index = [wire.name(form) for form in steps.index]
    steps["ms on this machine"] = 1e3 * steps.pop("step")
    steps["ms for the bytes at 100 Mbit/s"] = 8e3 * steps["bytes"] / 1e8
    return steps


here = two_ranks()
measured(
    "4 bits: bytes that a rank sends in a step",
    here.loc["(3, 0)", "bytes"],
    "In a ring of two, a rank sends as many numbers as there are weights, and two of them fit into a byte. The few "
    "bytes more are lengths of messages, and the largest number of each tensor, of which more below.",
)
here.round(2)

# %% [markdown]
# The last column is what the bytes alone would take on a slow link. The column before is what a step takes here, where
# bytes travel within one machine and cost next to nothing. On two hosts with a link between them (recorded;
# `course reproduce slow_link`, as root on Linux, makes it again in about a minute):

# %%
link = pd.read_csv("recorded/slow_link.csv", comment="#")
slow = link.pivot(index="link", columns="bits", values="seconds per step")
measured(
    "100 Mbit/s: seconds in float32 / seconds in 4 bits",
    slow.loc["100 Mbit/s", 32] / slow.loc["100 Mbit/s", 4],
    too_large="Eight would be right if a step did nothing but send. Computing, rounding and packing take time too.",
    too_small="Here nearly all of a float32 step is sending, and four bits send an eighth of it.",
)
measured(
    "no limit: seconds in float32 / seconds in 4 bits",
    slow.loc["no limit", 32] / slow.loc["no limit", 4],
    too_large="Rounding and packing cost time, and here there is nothing to save with it.",
    too_small="Rounding and packing take some tens of milliseconds, whatever the link is.",
)
Image("recorded/slow_link.png", width=plots.WIDTH)

# %% [markdown]
# On the slow link a step takes 43 ms in four bits and 124 ms in float32, 2.9 times as long. Without a limit it takes
# 5 ms in float32 and 28 ms in four bits: NumPy's rounding and packing takes longer than sending did. A compiled kernel
# would do that much faster; the bytes would be the same. Before you choose a narrow format, compare two times: what the
# link saves, and what the casts cost.
#
# ## Where a sum is rounded
#
# This is the library's ring. Everything that is sent is cast to the format before:

# %%
Code(inspect.getsource(wire.ring_mean), language="python")

# %% [markdown]
# In the first half of the ring, partial *sums* travel. A chunk goes through $N - 1$ of them; a number takes part in
# 1 to $N - 1$, and each of them is rounded and has to fit into the format.
#
# ### Predict
#
# Take real gradients of this network and the format (4, 3). The error of a mean is its distance from the exact mean (in
# float64), divided by the length of the exact mean. How many times as large is the ring's error with 64 ranks as with
# 2? And the same for an all-reduce that rounds each number only twice, for any number of ranks?

# %% editable=true
predict("ring: error with 64 ranks / error with 2", None)
predict("rounded twice: error with 64 ranks / error with 2", None)

# %% [markdown]
# ### Exercise: rounded twice
#
# Write an all-reduce for the *mean* that rounds less than the ring and sends no more:
#
# - everything that is sent is in the format (use `cast`);
# - no rank sends more numbers than in a ring, which is $2 \frac{N-1}{N} L$;
# - the numbers of each rank are rounded once, and then only their mean, once;
# - nothing overflows as long as each rank's own numbers fit into the format;
# - all ranks return the same, to the last bit.
#
# <details><summary>Hint</summary>In a ring, the sum of a chunk grows while it travels. Is there another place where it
# could be added up? Partial sums need not travel at all.</details>
# <details><summary>Tools</summary><code>collectives.chunks(L, N)</code> gives the N + 1 ends of N chunks.</details>


# %% exercise="mean_of_all"
def mean_of_all(me, x, cast):
    """The mean of all ranks' x, sent in a narrow format, with each number rounded twice.

    me: this rank: me.rank, me.size; me.send(array, to) returns at once; me.receive(source) waits for its next message.
    x: float32 [L], of the same length on all ranks; it stays as it is.
    cast: (array) → the nearest numbers of the format, float32.
    Returns float32 [L], the same on all ranks.
    """
    ### BEGIN SOLUTION
    ends = collectives.chunks(len(x), me.size)
    chunk = [slice(first, last) for first, last in zip(ends, ends[1:])]
    others = [rank for rank in range(me.size) if rank != me.rank]
    result = cast(x)
    for rank in others:
        me.send(result[chunk[rank]], rank)
    total = result[chunk[me.rank]] + sum(me.receive(rank) for rank in others)
    mine = cast(total / np.float32(me.size))
    for rank in others:
        me.send(mine, rank)
    result[chunk[me.rank]] = mine
    for rank in others:
        result[chunk[rank]] = me.receive(rank)
    return result
    ### END SOLUTION


# %%
check(mean_of_all)

# %% hidden="mean_of_all" points=5
### BEGIN HIDDEN TESTS
points(mean_of_all, 5)
### END HIDDEN TESTS

# %% [markdown]
# What you should see: the ring's error grows with the number of ranks, yours does not. On the right, both send the
# same. (In the third way every rank sends everything to every other rank. It rounds each number only once, and its
# error is smaller still, but a rank sends $N - 1$ numbers for each number of the gradient.)


# %%
def gradients(ranks, each=20):
    """Gradients [ranks, L] of a network that is a little trained, from `each` images a rank."""
    run = narrow.Training(problem, BATCH, RATE, UPDATES, 1, narrow.reducer()).run(UPDATES // 4)
    at = np.random.default_rng(0).integers(IMAGES, size=(ranks, each))
    return network.gradients(run.weights, problem.train.images[at], problem.train.labels[at])[1]


def errors_by_ranks(form=(4, 3), most=64):
    """The error of three ways to a mean, and the numbers that a rank sends, by the number of ranks."""
    everybody, rows, cast = gradients(most), [], narrow.casting(form)

    def everybody_to_everybody(me, x, cast):
        return me.all_reduce(cast(x)) / np.float32(me.size)

    ways = {"ring": wire.ring_mean, "yours": mean_of_all, "everybody to everybody": everybody_to_everybody}
    for ranks in (2, 4, 8, 16, 32, 64):
        parts = everybody[:ranks]
        exact = parts.mean(0, dtype=np.float64)
        for way, program in ways.items():
            # As large as the sum of the ranks allows, for all tensors: more of that soon.
            numbers, by = narrow.scaled(parts, network.ends, form, "each", "ring")
            outcome = simulated.run(lambda me, x, program=program: program(me, x, cast), list(numbers))
            error = np.linalg.norm(outcome.results[0] / by - exact) / np.linalg.norm(exact)
            sent = sum(message.payload.size for message in outcome.messages) / ranks / len(exact)
            rows.append({"way": way, "ranks": ranks, "error": error, "numbers": sent})
    return pd.DataFrame(rows)


by_ranks = errors_by_ranks()
growth = by_ranks.pivot(index="ranks", columns="way", values="error")
measured(
    "ring: error with 64 ranks / error with 2",
    growth["ring"][64] / growth["ring"][2],
    "A guess near 1 forgets that every hop rounds, and that it rounds sums, which grow from hop to hop.",
)
measured(
    "rounded twice: error with 64 ranks / error with 2",
    growth["yours"][64] / growth["yours"][2],
    "The first roundings are independent, so they average out over the ranks. The second is a single one for any N.",
)
bits.errors(by_ranks, caption=f"{plots.provenance(problem.name, 64)}, simulated · format (4, 3)")

# %% [markdown]
# The ring has two handicaps. A format rounds relative to the size of a number, so a sum that has grown to $k$ times the
# size is rounded $k$ times as coarsely, once in each hop. And the largest *sum* has to fit into the format: with more
# ranks, more of the small numbers are lost at the lower end.
#
# Why does anybody use a ring, then? Both send as many messages of the same size. But in your way each rank talks to all
# others, in a ring to its neighbours only. Where several ranks share a host's link (4a), most of the ring's messages
# stay inside the host, and most of yours leave it.
#
# ## The window
#
# Now four bits. A format is a window on the scale of sizes: what is too large becomes infinite, and what is not larger
# than half the smallest number becomes 0. Here are the gradients of each tensor, as one of eight ranks sends them. The
# window of (3, 0) is shaded:


# %%
def tensors(values):
    """By name, the numbers [L] of each tensor."""
    return {name: values[first:last] for name, first, last in zip(network.names, network.ends, network.ends[1:])}


parts = gradients(RANKS, BATCH // RANKS)
FOUR_BITS = (3, 0)
bits.windows({"as they are": tensors(parts[0])}, FOUR_BITS, caption=f"{WHERE}, after {UPDATES // 4} updates, rank 0")

# %% [markdown]
# How well does the network learn in float32?


# %%
def train(reduce, what):
    """A training: the loss of each update, and the validation accuracy."""
    losses = []
    with Filling(what) as line, np.errstate(all="ignore"):
        run = narrow.Training(problem, BATCH, RATE, UPDATES, 1, reduce, skip=True)
        while run.update < UPDATES and run.finite:
            run.step()
            losses.append(run.loss)
            line.at(run.update / UPDATES, f"loss {run.loss:.2f}")
    return losses, run.accuracy(problem.validation)


runs = {"float32": train(narrow.reducer(), "float32")}
print(f"float32: a validation accuracy of {runs['float32'][1]:.3f}")

# %% [markdown]
# ### Predict
#
# Now cast the gradients as they are to (3, 0), and reduce them in the ring. Which validation accuracy does this reach?

# %% editable=true
predict("4 bits as they are: validation accuracy", None)

# %%
runs["4 bits, as they are"] = train(narrow.reducer(FOUR_BITS), "4 bits, as they are")
measured(
    "4 bits as they are: validation accuracy",
    runs["4 bits, as they are"][1],
    "A guess of 0.1 takes all for lost. But some gradients are large enough, and the network learns from them.",
)

# %% [markdown]
# ### Exercise: the factor
#
# All ranks could multiply a tensor by the same factor before they cast it, and divide the result by this factor. The
# numbers then travel round the *ring*, where they are added up in the format. Find a factor such that
#
# - multiplying and dividing by it rounds nothing;
# - no sum in the ring can exceed `top`, whatever the ranks' other numbers are;
# - no more than one octave of the window is wasted;
# - all ranks find the same factor, and each sends one number for it.
#
# <details><summary>Hint</summary>Which multiplications leave the mantissa as it is? What is the largest sum that the
# numbers of N ranks can have in one place?</details>
# <details><summary>Tools</summary><code>largest_of_all(number)</code> is an all-reduce: every rank has to call it, and
# all the same number of times. <code>np.log2</code>, <code>np.floor</code>.</details>


# %% exercise="factor"
def factor(gradient, ranks, top, largest_of_all):
    """What all ranks multiply a tensor by before they cast it.

    gradient: this rank's numbers, float32 [n]; they may all be 0.
    ranks: of how many ranks the numbers are added up in the format.
    top: the largest power of two in the format.
    largest_of_all: (number) → the largest number that any rank has passed to it. All ranks call it together.
    Returns a number above 0.
    """
    ### BEGIN SOLUTION
    largest = largest_of_all(np.abs(gradient).max())
    if largest == 0:
        return 1.0
    return 2.0 ** np.floor(np.log2(top / (ranks * largest)))
    ### END SOLUTION


# %%
check(factor)

# %% hidden="factor" points=4
### BEGIN HIDDEN TESTS
points(factor, 4)
### END HIDDEN TESTS


# %% [markdown]
# What you should see: every tensor now reaches up into the window. On the left there is room for the sum of eight
# ranks. Your `mean_of_all` adds up in float32, so it needs room for one rank only: on the right, the numbers lie three
# octaves higher.


# %%
def factors(me, gradient, form, ranks):
    """Your factor for each number of the gradient [L], by tensor."""
    ask = wire.largest_of_all(me)
    by = [factor(part, ranks, wire.top(form), ask) for part in tensors(gradient).values()]
    return np.repeat(np.array(by, np.float32), np.diff(network.ends))


def through_the_window(form, ranks):
    numbers = simulated.run(lambda me, part: part * factors(me, part, form, ranks), list(parts)).results[0]
    return tensors(numbers)


bits.windows(
    {
        f"room for the sum of {RANKS}": through_the_window(FOUR_BITS, RANKS),
        "room for the mean": through_the_window(FOUR_BITS, 1),
    },
    FOUR_BITS,
    caption=f"{WHERE}, after {UPDATES // 4} updates, rank 0, times your factors",
)

# %% [markdown]
# ### Predict
#
# On the left, most numbers still become 0. How many points of accuracy (hundredths) does such a training lose against
# float32? Guess for your factor with the ring, and for your factor with your `mean_of_all`.

# %% editable=true
predict("your factor, ring: points lost", None)
predict("your factor, your mean: points lost", None)


# %%
def reduced(form, mean, ranks):
    """The all-reduce that your functions make, on simulated ranks. On real ranks the program would be the same."""
    cast = narrow.casting(form)

    def program(me, gradient):
        by = factors(me, gradient, form, ranks)
        return mean(me, gradient * by, cast) / by

    return narrow.by_program(program)


runs["4 bits, your factor, ring"] = train(reduced(FOUR_BITS, wire.ring_mean, RANKS), "your factor, ring")
runs["4 bits, your factor, your mean"] = train(reduced(FOUR_BITS, mean_of_all, 1), "your factor, your mean")
lost = {name: 100 * (runs["float32"][1] - accuracy) for name, (_, accuracy) in runs.items()}
measured(
    "your factor, ring: points lost",
    round(lost["4 bits, your factor, ring"], 1),
    "The large numbers get through, and they make up most of the gradient's length. So little accuracy is lost.",
)
measured(
    "your factor, your mean: points lost",
    round(lost["4 bits, your factor, your mean"], 1),
    "One seed can't show a difference of a point. The recorded experiment below has five.",
)
bits.losses({name: values for name, (values, _) in runs.items()}, caption=f"{WHERE}, one seed")

# %% [markdown]
# Your factor is **APS**, auto-precision scaling (Han, Demmel, You 2019): loss scaling (5a), but for each tensor
# separately and with nothing to tune. It costs one number for each tensor, which can be sent for all tensors in one
# message. In the library it is `precision.auto_scale`.
#
# ## Four trainings that went wrong
#
# Here are four trainings in (3, 1) with the ring. Each has exactly *one* of these mistakes:

# %%
for number, mistake in MISTAKES.items():
    print(f"{number}  {mistake}")


# %%
def examine():
    """What is seen of a correct training, and of one with each mistake."""
    reductions = {"correct": narrow.reducer((3, 1), "each"), **{name: patient(name) for name in "ABCD"}}
    seen = {}
    with Filling("five trainings") as line:
        for name, reduce in reductions.items():
            line.at(len(seen) / len(reductions), name)
            seen[name] = observe(problem, BATCH, RATE, UPDATES, reduce)
    return seen


seen = examine()
bits.losses({name: one.losses for name, one in seen.items()}, caption=f"{WHERE}, format (3, 1), one seed")

# %%
pd.DataFrame({name: one.whole for name, one in seen.items()})

# %% [markdown]
# The mean in the last update that was made, by tensor: *infinite* and *0* are shares of its numbers, *length* is its
# length divided by that of the exact mean.

# %%
pd.concat({name: one.tensors for name, one in seen.items()}, axis=1).swaplevel(axis=1)[["infinite", "0", "length"]]

# %% [markdown]
# ### Exercise: the diagnosis
#
# Which mistake does each training have? For each mistake, ask what must follow from it: in all tensors or only in some?
# On every rank, or between ranks?
#
# <details><summary>Hint</summary>Begin with the correct training: even its means are not as long as the exact ones.
# Why? Then look for lengths that can't be chance.</details>


# %% exercise="diagnosis"
def diagnosis():
    """The number of each training's mistake: {"A": …, "B": …, "C": …, "D": …}."""
    ### BEGIN SOLUTION
    return {"A": 3, "B": 4, "C": 1, "D": 2}
    ### END SOLUTION


# %%
check_diagnosis(diagnosis)

# %% hidden="diagnosis" points=3
### BEGIN HIDDEN TESTS
diagnosis_points(diagnosis, 3)
### END HIDDEN TESTS

# %% [markdown]
# Where a factor is not divided out again, the mean of each tensor has the right direction, but its length is wrong by a
# power of two. Each tensor then has a learning rate of its own, which changes as the gradients shrink. Such a training
# can end with a loss that looks fine. What gives it away is the length of a mean before and after the all-reduce. Where
# each rank takes a factor of its own, the ranks train different networks, and the loss shows it late. A checksum of the
# weights, compared between ranks, shows it after one update.
#
# ## Split the bits
#
# For eight bits, hardware has two splits: (5, 2) and (4, 3). (Its (4, 3) has no infinities and one octave more.)
#
# ### Predict
#
# Take gradients of this network, eight bits, a factor for each tensor, and your way to the mean. How many exponent bits
# does the format with the smallest error have?

# %% editable=true
predict("8 bits with a factor: exponent bits of the best format", None)


# %%
def split(each, scale, way="twice"):
    """The error of the mean by the number of exponent bits."""
    found = {e: narrow.error(parts, network.ends, (e, each - 1 - e), scale, way) for e in range(2, min(each, 7))}
    return pd.Series(found, name=f"{each} bits, {'a factor for each' if scale == 'each' else 'as they are'}")


table = pd.DataFrame([split(8, "none"), split(8, "each"), split(6, "each"), split(4, "each")]).T
table.index.name = "exponent bits"
measured(
    "8 bits with a factor: exponent bits of the best format",
    table["8 bits, a factor for each"].idxmin(),
    "Exponent bits buy range. The factor already moves each tensor to the right place, so the format needs range only "
    "for the differences within a tensor.",
)
table.round(3)

# %% [markdown]
# Without a factor, some of the exponent bits only serve to reach the gradients. With it they are free for the mantissa,
# and each of them halves the rounding error, until the window becomes too small for a tensor's own range. For these
# gradients, neither of hardware's two splits is the best.
#
# ### Exercise: spend a budget
#
# A link allows each rank only so many bits for each number of the gradient. Choose the way and the format: `"ring"`,
# `"twice"` (yours) or `"once"` (everybody sends to everybody and adds up in float32). `error` measures any choice on
# some gradients. The check then measures your choice on other gradients of the same kind. It has four cases, with
# gradients of different spread.
#
# <details><summary>Hint</summary>By each of the three ways, how many numbers does a rank send for each number of the
# gradient? A figure above shows it for some N.</details>


# %% exercise="choose"
def choose(budget, ranks, error):
    """The way and the format for a link.

    budget: bits that a rank may send for each number of the gradient; ranks: N.
    error: (way, (exponent, mantissa)) → the error of the mean over N ranks, as measured on some gradients. It takes
    "ring", "twice" or "once", 2 to 8 bits of exponent and 0 to 23 of mantissa, and ignores the budget.
    Returns (way, (exponent, mantissa)) within the budget and with a small error.
    """
    ### BEGIN SOLUTION
    numbers = {"ring": 2 * (ranks - 1) / ranks, "twice": 2 * (ranks - 1) / ranks, "once": ranks - 1}
    affordable = [
        (way, (exponent, each - 1 - exponent))
        for way, sent in numbers.items()
        for each in [int(budget / sent)]
        for exponent in range(2, min(each, 9))
    ]
    return min(affordable, key=lambda choice: error(*choice))
    ### END SOLUTION


# %%
check(choose)

# %% hidden="choose" points=3
### BEGIN HIDDEN TESTS
points(choose, 3)
### END HIDDEN TESTS

# %% [markdown]
# What you should see, for this network's gradients: with two ranks, all ways send the same, and `"once"` rounds least.
# With more ranks, your way has more bits for each number.


# %%
def chosen():
    rows = []
    for ranks in (2, 4, 8):
        few = gradients(ranks, BATCH // RANKS)

        def error(way, form, few=few):
            return narrow.error(few, network.ends, form, "each", way)

        for budget in (6, 8, 14):
            way, form = choose(budget, ranks, error)
            told = {"your choice": f"{way} {wire.name(form)}", "error": f"{error(way, form):.3f}"}
            rows.append({"ranks": ranks, "budget": budget, **told})
    return pd.DataFrame(rows).pivot(index="ranks", columns="budget", values=["your choice", "error"])


chosen()

# %% [markdown]
# ## Two claims
#
# The abstract of the first version of the paper on APS (2019) reports a conjecture: training with large batches needs a
# *higher* precision. And it makes a claim: "With APS, we are able to make the large-batch training converge with only 4
# bits." Both can be tested.
#
# The recorded experiment has 102 settings with five seeds each, on eight emulated ranks, whose arithmetic is that of
# real ranks to the bit. The learning rate was tuned for each batch in float32, over the same seven values with three
# seeds each, on validation images; all formats use it. In 8 epochs, a batch of 64 makes 1,600 updates and one of 1,280
# makes 80.
#
# ### Predict
#
# How many points of test accuracy does (3, 0) lose against float32? And with a factor for each tensor and the ring,
# which batch loses more, by the mean: "64" or "1,280"?

# %% editable=true
predict("4 bits as they are: points lost at B = 64", None)
predict("4 bits as they are: points lost at B = 1,280", None)
predict("4 bits, a factor for each, ring: the batch that loses more", None)
predict("4 bits, a factor for each, rounded twice: points lost at B = 64", None)

# %%
recorded = pd.read_csv("recorded/gradient_bits.csv", comment="#", dtype={"regime": str})
cost = bits.against_float32(recorded)


def setting(regime, scale, way, form=FOUR_BITS):
    """Points of test accuracy less float32's, and half of the 95 % interval."""
    rows = cost.query("regime == @regime and scale == @scale and way == @way")
    row = rows[(rows["exponent"] == form[0]) & (rows["mantissa"] == form[1])].iloc[0]
    return row["difference"], row["half"]


def loses_more(scale, way):
    """The batch that loses more, by the mean."""
    more, _ = bits.loses_more(recorded, FOUR_BITS, scale, way)
    return "64" if more > 0 else "1,280"


measured("4 bits as they are: points lost at B = 64", -setting("64", "none", "ring")[0])
measured(
    "4 bits as they are: points lost at B = 1,280",
    -setting("1,280", "none", "ring")[0],
    "Its gradients are smaller, so that almost all numbers are sent as 0.",
)
measured(
    "4 bits, a factor for each, ring: the batch that loses more",
    loses_more("each", "ring"),
    "1,280? With the factor, the size of the gradients no longer matters.",
)
measured(
    "4 bits, a factor for each, rounded twice: points lost at B = 64",
    -setting("64", "each", "twice")[0],
    "Few? Most of what is left was lost by the roundings of the ring and the room for its sums.",
)
Image("recorded/gradient_bits.png", width=plots.WIDTH)

# %% [markdown]
# **Do large batches need more precision?** With the plain cast it looks so: in (3, 0) a batch of 64 loses 5.4 ± 0.7
# points, one of 1,280 loses 17.7 ± 1.9. But what is missing is range. Each rank averages 8 images in a batch of 64 and
# 160 in one of 1,280; in the mean of more images more noise cancels out, so it is smaller. The batch of 64 sends 97.8 %
# of its numbers as 0, that of 1,280 sends more than 99.9 %. With a factor for each tensor, the batch of 64 loses 2.6 ±
# 0.3 points and that of 1,280 loses 1.1 ± 1.4. With a factor it is rather the small batch that loses more, by 1.5
# points. Whether that is chance depends on the interval: ± 1.4, Welch's for sides that scatter unlike, just leaves 0
# out, ± 1.5 in pairs of a seed does not. So the conjecture holds here for numbers as they are, and no longer when they
# are scaled.
#
# With four exponent bits or more, no setting loses more than 0.7 points, with factor or without. Of these 54
# differences, two exclude 0, and both are 0.2 points or less: so many are to be expected by chance. (The batch of 1,280
# has wide intervals. At its learning rate, the best of the seven for float32, runs differ by about a point of accuracy
# from seed to seed.)
#
# Now one change at a time, all in (3, 0), but for the step from the ring to rounding twice. That also frees the room
# for the sum of eight: its factors are eight times as large. How much each of the two brings is not told apart.

# %%
one_change = {
    f"B = {regime}": pd.DataFrame(
        [
            dict(zip(("name", "difference", "half"), (words, *setting(regime, *method))))
            for method, words in bits.METHODS.items()
        ]
    )
    for regime in ("64", "1,280")
}
bits.differences(one_change, caption="recorded: course reproduce gradient_bits · (3, 0), 8 emulated ranks, 5 seeds")

# %% [markdown]
# **Do four bits suffice with APS?** Here the batch of 1,280 trains in (3, 0) with factors, in the ring, and no loss can
# be shown. The batch of 64 does lose, and most of that is due to the ring, its roundings or the room for its sums: with
# a factor for each tensor and each number rounded twice, it loses 0.4 ± 0.2 points. One factor for all tensors is not
# enough: with it the batch of 64 loses 9.5 ± 2.4 points, which is more than without any factor, because it also has to
# leave room for the sum of eight.
#
# And it depends on which four bits. In (2, 1) the window is so narrow that the room for eight ranks takes all of it:
# with factors and the ring, all numbers are sent as 0, and the network doesn't learn. So the claim holds here, for the
# right split. The abstract of the paper's later versions no longer names four bits: it claims 8 bits with no or only a
# tiny loss. Our map agrees.
#
# What this can't tell: a small network of dense layers is not ResNet-50, and the learning rate was not tuned again for
# any format.
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - A format is a window. What is too small for it becomes 0, what is too large becomes infinite. A factor for each
#   tensor, a power of two that all ranks agree on, moves the gradients to its top and rounds nothing.
# - A ring rounds each partial sum and needs room for the whole sum. If each rank adds up one chunk in float32, numbers
#   are rounded only twice, and as many are sent.
# - Fewer bits save time only where bytes take time.
# - Large batches have smaller gradients. What they need is range, and a factor gives it to them.
#
# Next: 5c asks where the memory goes.
#
# - R. Han, J. Demmel, Y. You: *Auto-Precision Scaling for Distributed Deep Learning.* arXiv:1911.08907
# - P. Micikevicius et al.: *FP8 Formats for Deep Learning.* arXiv:2209.05433
# - P. Patarasuk, X. Yuan: *Bandwidth optimal all-reduce algorithms for clusters of workstations.* J. Parallel Distrib.
#   Comput. 69(2), 2009
