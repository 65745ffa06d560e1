# %% [markdown]
# # 4a Collectives and their cost
#
# In each step of training all ranks add up their gradients with an all-reduce. Here you compare algorithms on
# paper, message by message, and with a clock.
#
# **You will be able to** derive what an all-reduce costs in the α–β model; write the hierarchical all-reduce and
# recursive halving; say which algorithm is fastest where; measure α and β.
#
# **Time:** 80 minutes; the runs take about 15 seconds on 2 CPU cores; on GPUs they are not yet measured.
#
# **Needs:** the ring all-reduce of 2a. No GPU.

# %%
from dataclasses import replace

import numpy as np
import pandas as pd
from IPython.display import Image

from course_lib import collectives
from course_lib.collectives import simulated
from course_lib.collectives.simulated import ring_among
from course_lib.cost import allreduce
from course_lib.cost.allreduce import Link
from course_lib.notebook import plots, predictions, widgets
from course_lib.notebook.predictions import measured, predict
from course_lib.ranks import launch
from labs.lab4_communication.lessons import figures_4a as communication
from labs.lab4_communication.lessons import message_times as wire
from labs.lab4_communication.lessons.checks_4a import check, points

# %% [markdown]
# ## Two numbers for a network
#
# A message of $n$ bytes takes
#
# $$\alpha + \beta n$$
#
# seconds (Hockney 1994). **α** is the *latency*: the time of an empty message. **β** is the time for one byte, the
# reciprocal of the *bandwidth*. Latency limits messages smaller than $\alpha/\beta$ bytes, bandwidth limits larger
# ones.
#
# Messages between different pairs of ranks travel at the same time, and in one *round* a rank sends and receives one
# message. So a round takes $\alpha + \beta \cdot$ its largest message, and an all-reduce takes the sum of its rounds.
#
# The network below has α = 10 µs and 10 GB/s.

# %%
LINK = Link(latency=10e-6, bandwidth=10e9)
print(f"α/β = {LINK.alpha / LINK.beta / 1e3:.0f} kB")

# %% [markdown]
# ## The ring
#
# The all-reduce of 2a cuts the tensor into $N$ chunks. In $N-1$ rounds each rank sends a chunk to its right neighbour,
# which adds it. In $N-1$ more rounds the finished chunks go round. In the figure letters are chunks; the table says how
# many ranks' numbers a chunk contains (Σ: all).

# %%
ring_plan = list(collectives.ring(8, 8))
widgets.explore(
    lambda after: communication.rounds(
        ring_plan, 8, after, title="ring", caption="the plan of collectives.ring on 8 simulated ranks, 8 chunks"
    ),
    after=widgets.animation("round", len(ring_plan) + 1, interval=900),
)

# %% [markdown]
# ### Predict
#
# On the network above, 1,024 ranks do a ring all-reduce of 1 kB and one of 100 MB. How many times as long does the
# second take?

# %% editable=true
predict("100 MB in times of 1 kB, a ring of 1,024 ranks", None)

# %% [markdown]
# ### Exercise: what a ring costs
#
# <details><summary>Hint</summary>How many rounds are there in all? How many bytes has each message, when the tensor
# has n?</details>


# %% exercise="ring_seconds"
def ring_seconds(ranks, nbytes, alpha, beta):
    """Seconds of a ring all-reduce by the α–β model; 0 for one rank.

    ranks: N, a number or an array; nbytes: of the whole tensor, a number or an array that fits to it.
    alpha: seconds for each message; beta: seconds for each byte.
    """
    ### BEGIN SOLUTION
    rounds = 2 * (ranks - 1)
    message = nbytes / ranks
    return rounds * (alpha + beta * message)
    ### END SOLUTION


# %%
check(ring_seconds)

# %% hidden="ring_seconds" points=2
### BEGIN HIDDEN TESTS
points(ring_seconds, 2)
### END HIDDEN TESTS

# %%
small, large = (1e3 * ring_seconds(1024, size, LINK.alpha, LINK.beta) for size in (1e3, 100e6))
print(f"1 kB: {small:.2f} ms; 100 MB: {large:.2f} ms")
measured("100 MB in times of 1 kB, a ring of 1,024 ranks", large / small)

# %% [markdown]
# Of the 20.5 ms for 1 kB, 0.2 µs are for bytes. The rest is the latency of 2,046 rounds.
#
# ## Halving
#
# *Recursive halving and doubling* (Thakur, Rabenseifner, Gropp 2005): in the first round each rank has a partner half
# the machine away. It sends one half of its tensor, and adds what it receives to the half that it keeps. Then the
# partner is a quarter of the machine away, and they exchange half of the half. After $\log_2 N$ rounds each rank has
# one finished chunk. The way back doubles it:
#
# $$T_\text{halving} = 2 \sum_{i=1}^{\log_2 N} \Big( \alpha + \beta \frac{n}{2^i} \Big)
#   = 2 \log_2 N \cdot \alpha + 2 \frac{N-1}{N} \beta n$$
#
# since $\frac12 + \frac14 + \dots + \frac1N = 1 - \frac1N$. It sends as many bytes as the ring, in far fewer rounds.

# %%
halving_plan = list(collectives.halving(8, 8, far_first=True))
widgets.explore(
    lambda after: communication.rounds(
        halving_plan,
        8,
        after,
        title="halving",
        caption="the plan of collectives.halving on 8 simulated ranks, 8 chunks",
    ),
    after=widgets.animation("round", len(halving_plan) + 1, interval=900),
)

# %% [markdown]
# After one round a rank can know the numbers of two ranks, after two rounds of four: at least $\log_2 N$ rounds are
# needed. *Recursive doubling* needs no more: partners exchange *all* they have, $n$ bytes in each round. And a rank
# must send $2\frac{N-1}{N} n$ bytes on average, unless the switches add (Patarasuk and Yuan 2009). Ring and halving
# reach this bound. With more than two ranks no algorithm reaches both bounds.
#
# If $N$ is not a power of two, the ranks beyond the last power first send all they have to another rank, and receive
# the sum at the end. This takes $2(\alpha + \beta n)$ more.
#
# *Two trees* (Sanders, Speck, Träff 2009; NCCL uses them across hosts) work for any $N$. Each of two binary trees adds
# up one half of the tensor at its root and distributes it. A leaf of one tree is an inner node of the other, so all
# links are used. The halves are cut into segments, which follow each other through the tree as in a pipeline.


# %%
def any_number_of_ranks(ranks, length=2**12):
    plans = {
        "ring": collectives.ring(ranks, length),
        "halving": collectives.halving(ranks, length),
        "doubling": collectives.doubling(ranks, length),
        "two trees, 1 segment": collectives.double_tree(ranks, length, segments=1),
        "two trees, 16 segments": collectives.double_tree(ranks, length, segments=16),
        "two trees, 64 segments": collectives.double_tree(ranks, length, segments=64),
    }
    traces = {name: collectives.trace(plan) for name, plan in plans.items()}
    return {
        name: {"rounds": trace.rounds, "bytes one after the other": f"{trace.largest().sum() / length:.2f} n"}
        for name, trace in traces.items()
    }


pd.concat({f"{ranks} ranks": pd.DataFrame(any_number_of_ranks(ranks)).T for ranks in (64, 96)}, axis=1)

# %% [markdown]
# ## The hierarchical all-reduce
#
# Tencent's system (Jia et al. 2018) has groups of $k$ ranks, each with a leader:
#
# 1. each group adds up its numbers at its leader;
# 2. the $N/k$ leaders do a ring all-reduce;
# 3. each leader gives the sum to its group.
#
# ### Exercise: the hierarchical all-reduce
#
# Write the plain form for simulated ranks: members send all their numbers to the leader, and the leader sends them the
# whole sum.
#
# <details><summary>Hint</summary>The leader of rank r is the first rank of its group, r − r % group.
# <code>ring_among(me, array, ranks)</code> returns the sum over those ranks; only they may call it.</details>


# %% exercise="hierarchical_all_reduce"
def hierarchical_all_reduce(me, x, group):
    """The sum of all ranks' x, by way of the leaders of groups.

    me: this rank: me.rank, me.size; me.send(array, to) returns at once; me.receive(source) waits for its next message.
    x: array [L] of any type, of the same length on all ranks; group: k. The last group may be smaller.
    Returns the sum [L] in the type of x; x itself stays as it is.
    """
    ### BEGIN SOLUTION
    leader = me.rank - me.rank % group
    if me.rank != leader:
        me.send(x, leader)
        return me.receive(leader)
    members = range(leader + 1, min(leader + group, me.size))
    total = np.array(x)
    for member in members:
        total += me.receive(member)
    total = ring_among(me, total, range(0, me.size, group))
    for member in members:
        me.send(total, member)
    return total
    ### END SOLUTION


# %%
check(hierarchical_all_reduce)

# %% hidden="hierarchical_all_reduce" points=5
### BEGIN HIDDEN TESTS
points(hierarchical_all_reduce, 5)
### END HIDDEN TESTS

# %% [markdown]
# Within a group this sends the whole tensor $2(k-1)$ times, one after the other. The paper's form is better for large
# tensors. The members first do a reduce-scatter ($k-1$ rounds with $n/k$ bytes), then the leader collects the chunks
# ($k-1$ rounds more). The broadcast is the same in reverse:
#
# $$T_\text{hier} = 4(k-1) \Big( \alpha + \beta \frac{n}{k} \Big)
#   + 2 \Big(\frac{N}{k} - 1\Big) \Big( \alpha + \beta \frac{n k}{N} \Big)$$

# %%
hierarchical_plan = list(collectives.hierarchical(8, 8, group=4))
widgets.explore(
    lambda after: communication.rounds(
        hierarchical_plan, 8, after, group=4, title="hierarchical, groups of 4",
        caption="the plan of collectives.hierarchical on 8 simulated ranks, 8 chunks",
    ),
    after=widgets.animation("round", len(hierarchical_plan) + 1, interval=900),
)  # fmt: skip

# %% [markdown]
# While the leaders communicate, the other ranks wait. In Horovod's hierarchical all-reduce
# (`HOROVOD_HIERARCHICAL_ALLREDUCE`, 2018) no rank waits. A reduce-scatter in the group gives each rank one $k$-th of
# the group's sum. Then $k$ all-reduces run at the same time, each among the ranks with the same place in their groups.
# An all-gather in the group follows. Below it is called *sharded*:
#
# $$T_\text{sharded} = 2(k-1) \Big( \alpha + \beta \frac{n}{k} \Big)
#   + 2 \Big(\frac{N}{k} - 1\Big) \Big( \alpha + \beta \frac{n}{N} \Big)$$

# %% [markdown]
# ## Formula against count
#
# `collectives.trace` lists every message of a plan. The table counts the rounds, and the bytes of each round's largest
# message. The second table does this for your own program. Its formula is $2(k-1)(\alpha + \beta n) + 2(N/k-1)(\alpha +
# \beta nk/N)$.


# %%
def row(name, trace, formula, ranks, nbytes):
    """Rounds and bytes as counted, and the seconds by count and by formula."""
    counted = trace.seconds(LINK.alpha, LINK.beta)
    return {
        "algorithm": name,
        "ranks": ranks,
        "messages": len(trace.round),
        "rounds": trace.rounds,
        "bytes one after the other": f"{4 * trace.largest().sum() / nbytes:.4f} n",
        "ms, counted": round(1e3 * counted, 4),
        "ms, formula": round(1e3 * formula, 4),
        "equal": bool(np.isclose(counted, formula, rtol=1e-12)),
    }


def count(ranks, length=2**20, group=8):
    nbytes = 4 * length
    forms = {
        "ring": (collectives.ring(ranks, length), allreduce.ring(ranks, nbytes, LINK)),
        "halving": (collectives.halving(ranks, length), allreduce.halving(ranks, nbytes, LINK)),
        "sharded": (
            collectives.sharded(ranks, length, group),
            allreduce.sharded(ranks, nbytes, LINK, group, shared=False),
        ),
        "hierarchical": (
            collectives.hierarchical(ranks, length, group),
            allreduce.hierarchical(ranks, nbytes, LINK, group),
        ),
        "hybrid, ring from 8 MB": (
            collectives.hybrid(ranks, length, group, threshold=2**21),
            allreduce.hybrid(ranks, nbytes, LINK, group, threshold=2**23),
        ),
    }
    return [row(name, collectives.trace(plan), formula, ranks, nbytes) for name, (plan, formula) in forms.items()]


def count_mine(ranks=16, length=2**12, group=8):
    """Your program: its messages, against the formula of the plain way."""
    nbytes, groups = 4 * length, ranks // group
    sent = simulated.run(lambda me, x: hierarchical_all_reduce(me, x, group), [np.ones(length, np.float32)] * ranks)
    plain = 2 * (group - 1) * LINK.seconds(nbytes) + ring_seconds(groups, nbytes, LINK.alpha, LINK.beta)
    return row("yours", sent.trace, plain, ranks, nbytes)


pd.DataFrame([*count(16), *count(2048)]).set_index("algorithm")

# %%
pd.DataFrame([count_mine()]).set_index("algorithm")

# %% [markdown]
# ## Which wins where?
#
# Both costs are straight lines in $n$. A hierarchical all-reduce has fewer rounds, a ring fewer bytes. So they are
# equally fast at one size.
#
# ### Exercise: the crossing
#
# <details><summary>Hint</summary>How many more rounds does the ring have? How many more bytes go one after the other in
# the hierarchical all-reduce, as a multiple of n? At the crossing, the α of these rounds cost as much as the β of these
# bytes.</details>


# %% exercise="crossing"
def crossing(ranks, group, alpha, beta):
    """The bytes for which a ring and a hierarchical all-reduce take equally long; 0 where a ring is always faster.

    ranks: N, a multiple of group; group: k, at least 2 (the paper's way: 4(k−1) rounds within groups).
    alpha: seconds for each message; beta: seconds for each byte, the same link everywhere.
    """
    ### BEGIN SOLUTION
    groups = ranks / group
    more_rounds = 2 * (ranks - 1) - 4 * (group - 1) - 2 * (groups - 1)
    more_bytes = 4 * (group - 1) / group + 2 * (groups - 1) / groups - 2 * (ranks - 1) / ranks
    return max(more_rounds, 0) * alpha / (more_bytes * beta)
    ### END SOLUTION


# %%
check(crossing)

# %% hidden="crossing" points=3
### BEGIN HIDDEN TESTS
points(crossing, 3)
### END HIDDEN TESTS

# %%
print(f"1,024 ranks, groups of 8: {crossing(1024, 8, LINK.alpha, LINK.beta) / 1e6:.1f} MB")

# %% [markdown]
# For many ranks, whatever the size of the groups,
#
# $$n^* \approx \frac{\alpha}{\beta} \cdot \frac{N}{2}$$
#
# A **hybrid** all-reduce uses the ring for larger tensors and the hierarchical one for smaller ones. Here the crossing
# is at 50.6 MB. The largest convolution of a ResNet-50 has 9.4 MB, the first fully connected layer of AlexNet 151 MB.
# Tencent also found the ring faster for fully connected layers.
#
# ### Predict
#
# Halving and doubling may now take part. With 2ᵖ ranks, more than two: which of the four are the fastest somewhere on
# the map?

# %% editable=true
predict("of ring, hierarchical, halving, doubling: who wins somewhere", None)

# %%
ALL = ("ring", "hierarchical", "halving", "doubling")
CANDIDATES = {
    "ring, hierarchical": (("ring", "hierarchical"), communication.POWERS),
    "and halving, doubling, N = 2ᵖ": (ALL, communication.POWERS),
    "and halving, doubling, N = 1.5 · 2ᵖ": (ALL, communication.BETWEEN),
}


def which_wins(alpha, bandwidth, group, exponent, candidates):
    among, ranks = candidates
    at = 2**exponent if ranks is communication.POWERS else 3 * 2 ** (exponent - 1)
    return communication.winners(
        Link(alpha * 1e-6, bandwidth * 1e9), group, among=among, ranks=ranks, at=at,
        caption=f"α = {alpha:.3g} µs, 1/β = {bandwidth:.3g} GB/s, groups of {group}; each rank has a link of its own",
    )  # fmt: skip


measured(
    "of ring, hierarchical, halving, doubling: who wins somewhere",
    communication.cheapest(LINK, 8, among=ALL),
)
widgets.explore(
    which_wins,
    alpha=widgets.slider("α, µs", -1, 3, 10.0, log=True),
    bandwidth=widgets.slider("1/β, GB/s", -1, 3, 10.0, log=True),
    group=widgets.choice("group k", [8, 2, 4, 16, 32]),
    exponent=widgets.slider("p of the right side", 1, 16, 10),
    candidates=widgets.choice("between", CANDIDATES),
)

# %% [markdown]
# - **With powers of two** the ring is never the fastest. Halving has as many bytes and fewer rounds. Doubling is the
#   fastest below about α/β, where bytes cost little.
# - **Between powers of two** halving needs two more rounds with the whole tensor. So the ring is the fastest for large
#   tensors.
#
# Why, then, did Tencent build groups?
#
# ## What α–β leaves out
#
# In the model every pair of ranks has its own cable. Real machines have $k$ GPUs in a *host*, with fast links inside,
# and *one* network card. How many bytes leave a host of 8, with 64 ranks, and halving as in the figure above?


# %%
def leaving(trace, group):
    """Bytes that leave the busiest host: in its busiest round, and in all."""
    out = trace.source // group != trace.target // group
    table = np.zeros((trace.rounds, trace.source.max() // group + 1))
    np.add.at(table, (trace.round[out], trace.source[out] // group), 4 * trace.elements[out])
    return table.max(), table.sum(0).max()


def leave(ranks=64, length=2**18, group=8):
    plans = {
        "ring": collectives.ring(ranks, length),
        "hierarchical": collectives.hierarchical(ranks, length, group),
        "sharded": collectives.sharded(ranks, length, group),
        "halving": collectives.halving(ranks, length, far_first=True),
    }
    rows = []
    for name, plan in plans.items():
        busiest, total = leaving(collectives.trace(plan), group)
        rows.append(
            {
                "algorithm": name,
                "in one round": f"{busiest / 4 / length:.3f} n",
                "in all": f"{total / 4 / length:.2f} n",
            }
        )
    return pd.DataFrame(rows).set_index("algorithm")


leave()

# %% [markdown]
# In the ring and among the leaders, one message at a time leaves a host. In the first round of halving all eight ranks
# have partners on other hosts, and the card carries four whole tensors at once. In the next map, the $k$ ranks of a
# host share one link to other hosts.


# %%
def with_hosts(alpha, bandwidth, group, faster, exponent, far_first=True, among=("ring", "hierarchical", "halving")):
    link = Link(alpha * 1e-6, bandwidth * 1e9)
    inner = Link(link.latency / faster, link.bandwidth * faster)
    return communication.winners(
        link, group, inner, among=among, hosts=True, at=2**exponent, far_first=far_first,
        caption=f"α = {alpha:.3g} µs, 1/β = {bandwidth:.3g} GB/s, hosts of {group}; inside {faster:.3g} times faster",
    )  # fmt: skip


SLIDERS = {
    "alpha": widgets.slider("α, µs", -1, 3, 10.0, log=True),
    "bandwidth": widgets.slider("1/β, GB/s", -1, 3, 10.0, log=True),
    "group": widgets.choice("group k", [8, 2, 4, 16]),
    "faster": widgets.slider("links inside are faster by", 0, 2, 10.0, log=True),
    "exponent": widgets.slider("p of the right side", 1, 16, 10),
}
widgets.explore(with_hosts, **SLIDERS)

# %% [markdown]
# Each of the three has its place on this map. But one choice in this comparison was not examined.
#
# ### Exercise: halving that knows the hosts
#
# Write the first half of halving, the reduce-scatter. You choose which ranks are partners in which round. Send as few
# bytes as possible to other hosts: an eighth of what the order in the figure sends is enough.
#
# <details><summary>Hint</summary>For a distance that is a power of two, the partner of rank r is
# <code>r ^ distance</code> (the bit is flipped). The distances may come in any order. Which messages are
# large?</details>


# %% exercise="halve"
def halve(me, x):
    """Recursive halving: at the end each rank holds one part of x, of length L/N, summed up over all ranks.

    me: this rank: me.rank, me.size (a power of two); me.send(array, to) returns at once; me.receive(source) waits.
    x: array [L], N divides L; it stays as it is. Eight ranks in a row share a host.
    Returns (first, sums): sums is the sum over all ranks of x[first:first + L/N]. Each rank has another part.
    """
    ### BEGIN SOLUTION
    first, sums = 0, x
    distance = 1
    while distance < me.size:
        partner, middle = me.rank ^ distance, len(sums) // 2
        lower, upper = sums[:middle], sums[middle:]
        if me.rank < partner:
            me.send(upper, partner)
            sums = lower + me.receive(partner)
        else:
            me.send(lower, partner)
            sums = upper + me.receive(partner)
            first += middle
        distance *= 2
    return first, sums
    ### END SOLUTION


# %%
check(halve)

# %% hidden="halve" points=4
### BEGIN HIDDEN TESTS
points(halve, 4)
### END HIDDEN TESTS

# %% [markdown]
# ### Predict
#
# The map again, with the better order, and with the sharded all-reduce and doubling. Which of the five are now the
# fastest somewhere?

# %% editable=true
predict("of the five, on hosts, the nearest partner first: who wins somewhere", None)

# %%
FIVE = tuple(communication.COLOURS)
ORDERS = {"the nearest partner first": False, "the farthest first": True}
measured(
    "of the five, on hosts, the nearest partner first: who wins somewhere",
    communication.cheapest(LINK, 8, Link(LINK.latency / 10, 10 * LINK.bandwidth), among=FIVE, hosts=True),
)
widgets.explore(
    lambda far_first, **sliders: with_hosts(**sliders, far_first=far_first, among=FIVE),
    far_first=widgets.choice("halving:", ORDERS),
    **SLIDERS,
)

# %% [markdown]
# Halving is now the fastest, except for the smallest tensors (doubling) and in one corner (the ring). With the nearest
# partners first, the large messages stay within a host. The card carries about $2n$ bytes, as many as in the ring, but
# in ten or twenty rounds instead of thousands. In the corner, 128 to 512 ranks and more than about 400 MB, the ring is
# up to 3 % faster: its links inside and outside a host work at the same time.
#
# The ring and the hierarchical all-reduce had their places only because halving used the worse order. **Before you
# compare algorithms, make each as good as it gets.**
#
# The formulas of the maps against the counted messages:


# %%
def check_hosts(group=8, length=2**14):
    where = {"group": group, "inner": Link(LINK.latency / 10, 10 * LINK.bandwidth)}
    worst = 0
    for ranks in (8, 16, 64, 256):
        nbytes = 4 * length
        for formula, plan in (
            (allreduce.ring(ranks, nbytes, LINK, **where), collectives.ring(ranks, length)),
            (allreduce.hierarchical(ranks, nbytes, LINK, **where), collectives.hierarchical(ranks, length, group)),
            (allreduce.sharded(ranks, nbytes, LINK, **where), collectives.sharded(ranks, length, group)),
            (allreduce.halving(ranks, nbytes, LINK, **where), collectives.halving(ranks, length)),
            (allreduce.doubling(ranks, nbytes, LINK, **where), collectives.doubling(ranks, length)),
        ):
            counted = allreduce.counted(collectives.trace(plan), LINK, **where)
            worst = max(worst, abs(counted / formula - 1))
    return worst


print(f"largest relative difference of formula and count: {check_hosts():.0e}")

# %% [markdown]
# ## One level up
#
# Hosts stand in *pods*, and the pods share a *core* (a *fat tree*, Al-Fares et al. 2008). If it carries a quarter of
# what all hosts can send, it is *oversubscribed* four times. 256 ranks in pods of 64 reduce 100 MB. They are numbered
# pod by pod, or placed at random.
#
# ### Predict
#
# With random places and four times oversubscribed: is the ring faster than halving with the nearest partner first,
# slower, or the same (within a tenth)?

# %% editable=true
predict("ring against halving, at random: faster, slower, the same", None)


# %%
def placed(ranks=256, pod=64, length=2**16, nbytes=100e6):
    """Milliseconds of all-reduces in a fat tree: pods of 64 ranks, a core that is oversubscribed."""
    plans = {
        "ring": collectives.ring(ranks, length),
        "halving, nearest first": collectives.halving(ranks, length),
        "halving, farthest first": collectives.halving(ranks, length, far_first=True),
    }
    at_random, table = np.random.default_rng(0).permutation(ranks), {}
    for name, plan in plans.items():
        trace = collectives.trace(plan)
        for order, place in (("pod by pod", np.arange(ranks)), ("at random", at_random)):
            moved = replace(trace, source=place[trace.source], target=place[trace.target])
            for times in (1, 4, 16):
                core = Link(LINK.latency, LINK.bandwidth * pod / times)  # what a whole pod has in common
                seconds = allreduce.counted(moved, core, pod, inner=LINK, itemsize=nbytes / length)
                table[name, order, f"{times} times"] = 1e3 * seconds
    return pd.Series(table).unstack([1, 2]).round(1).loc[list(plans)]


times = placed()
ratio = times["at random", "4 times"]["ring"] / times["at random", "4 times"]["halving, nearest first"]
measured(
    "ring against halving, at random: faster, slower, the same",
    "the same" if 0.9 < ratio < 1.1 else "faster" if ratio < 1 else "slower",
)
times

# %% [markdown]
# Pod by pod, a core that is oversubscribed four times hardly slows down the ring and halving with the nearest partner
# first. At random all three are slow, and about equally: each rank sends about two tensors, and three of four partners
# are now in another pod. Number the ranks again, so that neighbours are close to each other. NCCL does this within a
# host, a good scheduler across hosts.
#
# A ring is still the best choice for large tensors if $N$ is not a power of two. It has another advantage, which this
# model leaves out: a rank passes on the first bytes of a chunk while the last ones still arrive. NCCL estimates the
# times of rings, of two trees and of switches that add, as you do here, and takes the fastest.
#
# ## α and β of this machine
#
# Two real ranks on this machine do Horovod all-reduces of 4 bytes to 16 MB, each size 40 times, without fusion. For
# comparison they send bare messages: bytes through a TCP connection and back, divided by two.
#
# ### Predict
#
# A bare message takes about 10 to 40 µs on most machines. With two ranks a ring has two rounds. How many µs will an
# all-reduce of 4 bytes take?

# %% editable=true
predict("µs of an all-reduce of 4 bytes, two real ranks", None)

# %%
RANKS = 2
SIZES = 4 ** np.arange(1, 13)
SWEEPS = 40


def time_both():
    import horovod.tensorflow as hvd

    hvd.init()
    return wire.all_reduces(SIZES, SWEEPS), wire.messages(SIZES, SWEEPS), wire.supersteps(wire.STEPS, SWEEPS)


by_rank = launch.call(time_both, RANKS, env={"HOROVOD_FUSION_THRESHOLD": "0", "HOROVOD_CYCLE_TIME": "0.1"})
timed, bare, _ = by_rank[0]
measured(
    "µs of an all-reduce of 4 bytes, two real ranks",
    1e6 * np.median(timed[:, 0]),
)
print(f"a bare message of 16 bytes: {1e6 * np.median(bare[:, 1]):.0f} µs")

# %% [markdown]
# The line minimises the squares of the *relative* errors. With errors in seconds, only the largest tensors would count.


# %%
def fitted():
    reduced = allreduce.fit(RANKS, SIZES, np.median(timed, 0))
    # A bare message is half of a two-rank ring with tensors of twice its size.
    plain = allreduce.fit(2, 2 * SIZES, 2 * np.median(bare, 0))
    lines = {
        "Horovod's all-reduce": (timed, allreduce.ring(RANKS, SIZES, reduced)),
        "bare TCP message": (bare, plain.seconds(SIZES)),
    }
    for name, link in (("all-reduce", reduced), ("bare message", plain)):
        print(f"{name:>12}: α = {1e6 * link.alpha:6.0f} µs, 1/β = {1e-9 * link.bandwidth:5.2f} GB/s")
    return communication.measured(lines, SIZES, caption=plots.provenance(f"medians of {SWEEPS}", RANKS))


fitted()

# %% [markdown]
# On a quiet machine, latency plus bytes describes most all-reduces well. But the α of an all-reduce is more than ten
# times that of a bare message. A rank asks the coordinator and waits for the next cycle (here 0.1 ms), all ranks agree
# on what is ready, threads wake up. This happens once for each all-reduce, not once for each round, so do not multiply
# this α by $2(N-1)$ for another $N$. **A measured α belongs to the system on which it was measured.**
#
# β is not that of a wire either: the cores that run the ranks also copy and add the bytes.
#
# The recorded figure has three cycle times, and four ranks on two cores (`course reproduce all_reduce`, about a
# minute).

# %%
Image("recorded/all_reduce.png", width=plots.WIDTH)

# %% [markdown]
# - Of the 48 medians of all-reduces 41 lie within 15 % of their line; three, all with a cycle of 1 ms, are 48 to 58 %
#   above it.
# - **With a cycle of 1 ms** an all-reduce takes one cycle, 0.81 ms, or two: no straight line shows both.
# - **A cycle of 10 ms** adds 4.4 ms to α and not 10: an all-reduce of two ranks has two rounds, so its line counts α
#   twice.
# - **Four ranks** take 2.03 ms for 4 bytes, two take 0.63. The αs of their lines differ by 30 %, 0.40 and 0.31 ms: four
#   ranks share two cores.
#
# In the time of the smallest all-reduce, the bytes of a megabyte could be sent: small tensors should travel together.

# %% [markdown] tags=["further"]
# ## A coarser model: supersteps

# %% [markdown]
# α–β gives each message a price. The BSP model (bulk-synchronous parallel, Valiant 1990) gives one price to a whole
# *superstep*, in which all ranks compute, all send, and all wait:
#
# $$w + g h + l$$
#
# $w$ is the longest computation of any rank, $h$ the most bytes that a rank sends or receives, $g$ the time for one of
# them when all send at once, and $l$ the time to bring all ranks to the same point. The number of messages does not
# matter. Rogers and Skillicorn (1998) used it to divide the training of a network.
#
# In the run above, the two ranks also did supersteps. $g$ and $l$ are fitted on those of 16, 64 and 256 KiB, α and β on
# the bare messages. Both models predict 128 KiB, in one write and in sixteen.
#
# ### Predict
#
# Which of the two is closer, with one write and with sixteen?

# %% editable=true
predict("closer with one write: BSP, or α–β", None)
predict("closer with sixteen writes: BSP, or α–β", None)


# %%
def superstep():
    bare_link = allreduce.fit(2, 2 * SIZES, 2 * np.median(bare, 0))
    computing = max(np.median(alone) for _, _, (alone, _) in by_rank)
    return wire.compare(computing, np.median(by_rank[0][2][1], 0), bare_link)


steps = superstep()
for row, writes in ((-2, "one write"), (-1, "sixteen writes")):
    found = steps.iloc[row]
    measured(
        f"closer with {writes}: BSP, or α–β",
        min(("BSP", "α–β"), key=lambda model: abs(found[f"{model}, µs"] - found["measured, µs"])),
    )
steps.round(1)

# %% [markdown]
# On a quiet machine, sixteen writes tend to take longer than BSP expects, but not the 15 α more that α–β expects: the
# second write leaves while the first is on its way. With one write, α–β is too low: both ranks compute, send and
# receive at the same time. $l$ contains what this costs.

# %% [markdown]
# ## Summary
#
# | | rounds | bytes, one after the other |
# |---|---|---|
# | ring | $2(N-1)$ | $2\frac{N-1}{N}\,n$ |
# | halving, $N = 2^p$ | $2 \log_2 N$ | $2\frac{N-1}{N}\,n$ |
# | doubling, $N = 2^p$ | $\log_2 N$ | $\log_2 N\,n$ |
# | hierarchical | $4(k-1) + 2(\frac Nk-1)$ | $4\frac{k-1}{k}\,n + 2\frac{N/k-1}{N/k}\,n$ |
# | sharded | $2(k-1) + 2(\frac Nk-1)$ | $2\frac{N-1}{N}\,n$ |
# | no all-reduce has less than | $\log_2 N$ | $2\frac{N-1}{N}\,n$ |
#
# - Ring and hierarchical cross near $\frac{\alpha}{\beta} \frac N2$: use groups for smaller tensors, a ring for larger
#   ones.
# - By α–β alone and with $2^p$ ranks, halving is never slower than these two. Doubling is faster for the smallest
#   tensors.
# - On hosts the order of the partners decides. Nearest first, halving loses to these two in one corner only, where the
#   ring leads by up to 3 %. Farthest first, it is the fastest of the three for small tensors and the slowest for large
#   ones.
# - A measured α contains all the software around the message.

# %%
predictions.table()

# %% [markdown]
# Next: 4b packs small tensors together, and sends them during the backward pass.
#
# - X. Jia et al.: *Highly Scalable Deep Learning Training System with Mixed-Precision.* arXiv:1807.11205
# - P. Sanders, J. Speck, J. L. Träff: *Two-tree algorithms for full bandwidth broadcast, reduction and scan.* 2009
# - P. Patarasuk, X. Yuan: *Bandwidth optimal all-reduce algorithms for clusters of workstations.* 2009
# - R. Thakur, R. Rabenseifner, W. Gropp: *Optimization of collective communication operations in MPICH.* 2005
# - M. Al-Fares, A. Loukissas, A. Vahdat: *A scalable, commodity data center network architecture.* 2008
# - L. G. Valiant: *A bridging model for parallel computation.* 1990
# - R. O. Rogers, D. B. Skillicorn: *Using the BSP cost model to optimise parallel neural network training.* 1998
# - R. W. Hockney: *The communication challenge for MPP: Intel Paragon and Meiko CS-2.* 1994
