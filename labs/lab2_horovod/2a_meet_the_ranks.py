# %% [markdown]
# # 2a Meet the ranks
#
# Many GPUs train one network as many *processes*, called ranks. Each runs the same program with its own memory. They
# are connected only by messages. Here you start some ranks, let them exchange numbers, and write the two central parts
# of data-parallel training yourself: the averaged step, and the ring all-reduce.
#
# **Horovod** (Sergeev and Del Balso 2018) is a library for their communication. Your framework computes the
# gradients; Horovod averages them over all ranks. Its terms (rank, size, local rank) are those of MPI, the
# message-passing standard of supercomputers. NCCL transfers the numbers between GPUs, and MPI or Gloo between
# processors. 2e compares Horovod with the tools of PyTorch and JAX.
#
# **You will be able to** say what rank, size and local rank are used for; choose the collective for a task; show
# with numbers when N ranks with batch b are the same as one rank with batch N·b, and when they are not; write a ring
# all-reduce and say what it costs.
#
# **Time:** 50 minutes; the runs take about 30 seconds on 2 CPU cores; on GPUs they are not yet measured.
#
# **Needs:** Python, NumPy, and the gradient of a linear model from 1a. No GPU.

# %%
import numpy as np
import pandas as pd

from course_lib.collectives import simulated
from course_lib.notebook import plots, predictions, widgets
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.report import Ticker
from course_lib.ranks import launch
from labs.lab2_horovod.lessons import figures_2a as collectives
from labs.lab2_horovod.lessons.checks_2a import check, points

RANKS = 4

# %% [markdown]
# ## Who is there?
#
# `launch.call` runs a function on four ranks and returns four results. It uses Horovod's own `horovod.run`. Four
# processes that each load TensorFlow take ten seconds or more to start; a line below the cell shows the progress.
#
# This machine gets two names, `localhost` and `127.0.0.1`, with room for two ranks each. So Horovod treats it as two
# hosts.
#
# ### Predict
#
# A counter in this notebook is 0. On each of the four ranks, the function adds 1 to it. What does each rank return, and
# what is the counter here afterwards?

# %% editable=true
predict("the counter that each rank returns", None)
predict("the counter here, afterwards", None)

# %%
counter = 0


def who():
    import os

    import horovod.tensorflow as hvd

    global counter
    hvd.init()
    counter += 1
    return {
        "rank": hvd.rank(),
        "size": hvd.size(),
        "local rank": hvd.local_rank(),
        "local size": hvd.local_size(),
        "process": os.getpid(),
        "counter": counter,
    }


with Ticker("four ranks start, and answer"):
    answers = launch.call(who, RANKS, hosts="localhost:2,127.0.0.1:2")
measured(
    "the counter that each rank returns",
    max(answer["counter"] for answer in answers),
    "Each rank has its own memory, and adds 1 to its own 0.",
)
measured(
    "the counter here, afterwards",
    counter,
    "This notebook is a fifth process. Ranks change only their copies; you get only what they return.",
)
pd.DataFrame(answers)

# %% [markdown]
# Nothing is shared unless it is sent. Each rank knows three numbers:
#
# | | what it is | what it is for |
# |---|---|---|
# | **rank** | 0 … size − 1, one for each process | choose its examples; rank 0 prints and saves |
# | **size** | the number of ranks | divide the sum of the gradients, share out the data, scale the learning rate |
# | **local rank** | 0 … local size − 1 *on its host* | choose its GPU. On the second host rank 2 takes GPU 0 |
#
# ## The collectives
#
# Programs for many ranks call *collectives*: operations that all ranks call together.
#
# | collective | the result |
# |---|---|
# | **broadcast** | all ranks have the data of one rank, the root |
# | **gather** | the root has the data of all ranks, side by side |
# | **reduce** | the root has the sum over all ranks |
# | **all-gather** | all ranks have the data of all ranks |
# | **all-reduce** | all ranks have the sum over all ranks |
# | **reduce-scatter** | each rank has a different part of the sum |
# | **all-to-all** | each rank has one part from each rank: rank r has the r-th parts |
#
# ### Predict
#
# Two collectives, one after the other, can do the work of an all-reduce. With *reduce*, then *broadcast*, all data
# passes through the root. Which two do it without a root?

# %% editable=true
predict("two collectives that make an all-reduce without a root", [])  # ["first", "second"]

# %% [markdown]
# The next cell runs all seven on four real ranks, and draws what each rank holds before and after. A colour stands for
# a rank, a letter for an element; stripes of several colours are the sum of these ranks' elements.


# %%
def all_collectives():
    import horovod.tensorflow as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    full, one = simulated.marked(rank, size), simulated.marked(rank, 1)
    nothing = np.zeros_like(full)
    total = hvd.allreduce(full, op=hvd.Sum).numpy()
    together = hvd.allgather(one).numpy()
    blocks, _ = hvd.alltoall(full, splits=np.ones(size, np.int32))
    return {
        "broadcast": (full if rank == 0 else nothing, hvd.broadcast(full, root_rank=0).numpy()),
        # Horovod has no gather and no reduce: the other ranks discard the result.
        "gather": (one, together if rank == 0 else nothing[:1]),
        "reduce": (full, total if rank == 0 else nothing),
        "all-gather": (one, together),
        "all-reduce": (full, total),
        "reduce-scatter": (full, hvd.reducescatter(full, op=hvd.Sum).numpy()),
        "all-to-all": (full, blocks.numpy()),
    }


with Ticker("four ranks start, and go through the collectives"):
    by_rank = launch.call(all_collectives, RANKS)
collectives.holdings(
    {name: tuple(zip(*(result[name] for result in by_rank))) for name in by_rank[0]},
    plots.provenance("what four Horovod ranks held before and after", RANKS),
)

# %% [markdown]
# - **Broadcast:** at the start. Rank 0's first weights, or a checkpoint, go to all ranks.
# - **All-reduce:** in every step. The sum of the gradients, on every rank: the core of data-parallel training.
# - **Gather** and **reduce:** to one rank, for results and logs. Horovod has neither: it all-gathers or all-reduces,
#   and the other ranks discard the result.
# - **All-to-all:** a transposition. Some networks distribute embedding tables or *experts* (parts of a layer, of which
#   an example uses one or two) over the ranks, and send each example to the rank with the needed part.
# - **Reduce-scatter**, then **all-gather:** compare the pictures.
#
# All ranks must call the same collectives in the same order. If one rank does not call, the others wait for ever.

# %%
# What an all-gather makes of the results of the reduce-scatter, and what the all-reduce gave every rank
gathered = np.concatenate([result["reduce-scatter"][1] for result in by_rank])
measured(
    "two collectives that make an all-reduce without a root",
    ["reduce-scatter", "all-gather"]
    if all(np.array_equal(gathered, result["all-reduce"][1]) for result in by_rank)
    else "not these",
    "After a reduce-scatter each part of the sum is complete on one rank; an all-gather sends every part to all.",
)

# %% [markdown]
# ## One step on N ranks
#
# **N ranks with batch b take the same step as one rank with batch N·b.** The mean over all examples is the mean of the
# ranks' means:
#
# $$\nabla L = \frac{1}{N b} \sum_{i=1}^{N b} \nabla \ell_i
#   = \frac{1}{N} \sum_{r=0}^{N-1} \Big( \frac{1}{b} \sum_{i \in \text{rank } r} \nabla \ell_i \Big)$$
#
# ### Exercise: the parallel step
#
# <details><summary>Hint</summary><code>x[start::step]</code> takes every step-th row from <code>start</code> on.
# <code>me.all_reduce(array)</code> gives the <em>sum</em> of all ranks' arrays, on every rank.</details>


# %% exercise="parallel_step"
def parallel_step(me, gradient, w, x, y, eta):
    """One step of gradient descent, shared by all ranks.

    me: this rank: me.rank, me.size, me.all_reduce(array) → the sum over all ranks.
    gradient: a function (w, x, y) → the mean gradient over the rows of x, shape [d].
    w: weights [d]; x [B, d], y [B]: the whole batch, the same on every rank; eta: the learning rate η.
    Rank r works on the rows r, r + size, r + 2·size, … only. Returns the new weights, equal on all ranks.
    """
    ### BEGIN SOLUTION
    mine = slice(me.rank, None, me.size)
    total = me.all_reduce(gradient(w, x[mine], y[mine]))
    return w - eta * total / me.size
    ### END SOLUTION


# %% [markdown]
# The check runs it on *simulated* ranks: threads in this process, which start at once.

# %%
check(parallel_step)

# %% hidden="parallel_step" points=4
### BEGIN HIDDEN TESTS
points(parallel_step, 4)
### END HIDDEN TESTS

# %% [markdown]
# An average of the ranks' new *weights* would also pass: all start from the same $w$, and the step is linear in the
# gradient. A step of Adam is not, so average the gradients.
#
# Now compare 20 steps on real ranks with one rank that has the whole batch. The statement above has conditions; these
# three cases break them:
#
# 1. **Uneven shares.** A batch of 26 on four ranks is 7, 7, 6 and 6.
# 2. **Batch norm.** Each rank normalises with the mean and variance of its own share.
# 3. **Different seeds.** The ranks draw different first weights, without a broadcast.
#
# ### Predict
#
# In which cases do the four *ranks* end with different weights? In which cases does rank 0 differ from a single rank
# with the same start by more than rounding?

# %% editable=true
predict("cases in which the ranks disagree", [])  # of "plain", "uneven shares", "batch norm", "different seeds"
predict("cases in which rank 0 differs from one rank", [])  # of "plain", "uneven shares", "batch norm"

# %%
rng = np.random.default_rng(0)
x = rng.normal(1, 2, size=(32, 5))
y = x @ rng.normal(size=5) + rng.normal(size=32)
first = rng.normal(size=5)
ETA, STEPS = 0.02, 20


def gradient(w, x, y):
    """The gradient of the mean squared error of x w."""
    return 2 * x.T @ (x @ w - y) / len(x)


def normalised(w, x, y):
    """The same after a batch norm: examples are normalised with the mean and deviation of their batch."""
    return gradient(w, (x - x.mean(0)) / x.std(0), y)


def own_start(rank):
    return np.random.default_rng(100 + rank).normal(size=5)


def walk(me, slope=gradient, examples=32, w=first):
    """The weights after each of your steps [STEPS, d]."""
    places = []
    for _ in range(STEPS):
        w = parallel_step(me, slope, w, x[:examples], y[:examples], ETA)
        places.append(w)
    return np.array(places)


cases = {
    "plain": lambda me: walk(me),
    "uneven shares": lambda me: walk(me, examples=26),
    "batch norm": lambda me: walk(me, slope=normalised),
    "different seeds": lambda me: walk(me, w=own_start(me.rank)),
}


class HorovodRank:
    """A real rank with the methods of a simulated one."""

    def __init__(self):
        import horovod.tensorflow as hvd

        hvd.init()
        self.rank, self.size, self._hvd = hvd.rank(), hvd.size(), hvd

    def all_reduce(self, array):
        return self._hvd.allreduce(array, op=self._hvd.Sum).numpy()


def all_cases():
    me = HorovodRank()
    return {name: case(me) for name, case in cases.items()}


def compare():
    """By case: the difference of rank 0 from a single rank after each step, and between the ranks at the end."""
    alone = {name: simulated.run(lambda me, _, case=case: case(me), [None]).results[0] for name, case in cases.items()}
    with Ticker("four ranks start, and take 20 steps in each case"):
        parallel = launch.call(all_cases, RANKS)
    largest = {name: np.abs(parallel[0][name] - alone[name]).max(1) for name in cases}
    apart = {name: max(np.abs(other[name] - parallel[0][name])[-1].max() for other in parallel) for name in cases}
    return largest, apart


def show():
    largest, apart = compare()
    more_than_rounding = 1e-6
    measured(
        "cases in which the ranks disagree",
        [name for name, value in apart.items() if value > more_than_rounding] or "none",
        "Ranks with the same start that apply the same average stay equal, even if it is not the right average.",
    )
    measured(
        "cases in which rank 0 differs from one rank",
        [name for name in list(cases)[:3] if largest[name].max() > more_than_rounding] or "none",
        "In a mean of means, an example in a share of 6 has 7/6 times the weight of one in a share of 7. And the mean "
        "and variance of 8 examples are not those of 32.",
    )
    table = pd.DataFrame(
        {"rank 0 to a single rank, at most": pd.Series(largest).map(np.max), "between the ranks": apart}
    )
    print(table.map("{:.1e}".format).to_string())
    return collectives.differences(largest, plots.provenance("a linear model, 32 drawn examples", RANKS))


show()

# %% [markdown]
# - **Plain:** equal to within $10^{-15}$. This is rounding. It becomes smaller, because all ranks approach the same
#   minimum. (An exact 0 is drawn at $10^{-17}$.)
# - **Uneven shares:** a few hundredths, far more than rounding. To avoid it, use equal shares (notebook 2b), or weight
#   each rank's gradient by its number of examples. (If your function already does so, you see rounding here, too.)
# - **Batch norm:** the function is a different one, because each example is normalised with 7 others instead of 31.
#   This is not a mistake but a different training, with noisier statistics. Lab 3 uses it (ghost batch norm); Horovod's
#   `SyncBatchNormalization` avoids it.
# - **Different seeds:** all ranks take the same steps, but from different starts. The differences between them stay
#   exactly as large as at the start. No rank reaches the minimum, because the gradients come from four different
#   places. One broadcast is enough to avoid it.
#
# How can you detect these cases? With different seeds the ranks disagree: compare their weights. With uneven shares and
# with batch norm they agree perfectly, but on other weights than the single rank. Only a comparison with a serial run
# shows it.
#
# ## How does an all-reduce work?
#
# The simplest method: each rank sends everything to all others. A rank then sends $(N-1) L$ numbers for a gradient of
# length $L$. With 1,000 ranks and 100 MB that is 100 GB, in every step, from every rank.
#
# The **ring** (Patarasuk and Yuan 2009) needs $2 \frac{N-1}{N} L$: never more than twice the gradient, for any number
# of ranks. If only the ranks add, no all-reduce sends less, on average over the ranks. (Switches that add can halve
# it.) Divide the array into $N$ chunks, and let each rank send only to the neighbour on its right:
#
# 1. *Reduce-scatter,* $N-1$ rounds: each rank sends a chunk to the right, receives another from the left, and **adds**
#    it to its own. Every chunk travels round the ring and collects a part at each rank.
# 2. *All-gather,* $N-1$ rounds: each rank now has one complete chunk. The complete chunks travel round in the same way,
#    and **replace** what is there.
#
# Which chunk does rank $r$ send in round $s$? Which one is complete on it after the first half? Draw four ranks on
# paper and follow one chunk.
#
# ### Exercise: the ring
#
# <details><summary>Hint</summary><code>np.array_split(x, n)</code> divides x into n chunks whose lengths differ by at
# most one; <code>np.concatenate</code> joins them. Let rank r send chunk r in round 0. In the next round it sends what
# it received. All numbers of chunks and ranks count modulo N. Send before you receive.</details>


# %% exercise="ring_all_reduce"
def ring_all_reduce(me, x):
    """The sum of all ranks' x, by a ring.

    me: this rank: me.rank, me.size; me.send(array, to) returns at once; me.receive(source) waits for its next message.
    x: array [L] of any type, of the same length on all ranks; L may be smaller than the number of ranks, or 0.
    Returns the sum [L] in the type of x; x itself stays as it is.
    """
    ### BEGIN SOLUTION
    parts = np.array_split(np.array(x), me.size)
    right, left = (me.rank + 1) % me.size, (me.rank - 1) % me.size
    for step in range(me.size - 1):
        me.send(parts[(me.rank - step) % me.size], right)
        parts[(me.rank - step - 1) % me.size] += me.receive(left)
    for step in range(me.size - 1):
        me.send(parts[(me.rank + 1 - step) % me.size], right)
        parts[(me.rank - step) % me.size] = me.receive(left)
    return np.concatenate(parts)
    ### END SOLUTION


# %%
check(ring_all_reduce)

# %% hidden="ring_all_reduce" points=6
### BEGIN HIDDEN TESTS
points(ring_all_reduce, 6)
### END HIDDEN TESTS

# %% [markdown]
# Here are your messages, round by round: press play. On the right, a cell fills as the ranks' parts of a chunk arrive.
# After the first half each rank has one full cell, each a different one; after the second half all are full.

# %%
outcome = simulated.run(ring_all_reduce, [simulated.marked(rank, 5) for rank in range(5)])
widgets.explore(
    lambda after: collectives.messages(outcome.messages, 5, after, caption="your ring_all_reduce on 5 simulated ranks"),
    after=widgets.animation("rounds", outcome.trace.rounds + 1, interval=900, start=0),
)


# %% [markdown]
# How much does a rank send in total? Counted from the messages, for a gradient of 10,000 numbers:


# %%
def sent_by_a_rank(program, ranks, length=10_000):
    """The most numbers that a rank sends, and the rounds that it takes."""
    trace = simulated.run(program, [np.ones(length, np.float32)] * ranks).trace
    return np.bincount(trace.source, trace.elements).max(initial=0), trace.rounds


def cost():
    programs = {"your ring": ring_all_reduce, "all to all others": lambda me, x: me.all_reduce(x)}
    sizes = [2, 3, 4, 6, 8, 12, 16, 24, 32]
    counted = {name: [sent_by_a_rank(program, ranks) for ranks in sizes] for name, program in programs.items()}
    return collectives.sent(sizes, counted, length=10_000, caption="messages counted on simulated ranks; float32")


cost()

# %% [markdown]
# The ring's volume stays below twice the gradient (the dashed line is $2 \frac{N-1}{N} L$). But the ring takes $2(N-1)$
# *rounds*, one after the other. (The simple method takes $N-1$.) Each round has a latency, so with many ranks and small
# gradients a ring is slow. In lab 4 you measure this and write algorithms with fewer rounds. Horovod leaves the choice
# to the layer below: Gloo has a ring, MPI and NCCL choose by size and network.
#
# ## Summary
#
# - Ranks are processes with their own memory. `rank` is the number of a process, `size` the number of processes, and
#   `local_rank` chooses the GPU.
# - Training needs two collectives: broadcast once, all-reduce in every step.
# - Averaging the gradients of N equal shares *is* the step with the whole batch, to rounding. Uneven shares, batch
#   norm and different first weights break it, each in its own way.
# - A ring all-reduce is a reduce-scatter and an all-gather: $2(N-1)$ rounds, $2\frac{N-1}{N}$ of the data.
#
# Your guesses:

# %%
predictions.table()

# %% [markdown]
# Next: 2b converts a script.
#
# - P. Patarasuk, X. Yuan: *Bandwidth optimal all-reduce algorithms for clusters of workstations.* J. Parallel
#   Distrib. Comput. 69, 2009
# - A. Sergeev, M. Del Balso: *Horovod: fast and easy distributed deep learning in TensorFlow.* arXiv:1802.05799
