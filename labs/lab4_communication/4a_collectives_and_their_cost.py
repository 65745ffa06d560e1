# %% [markdown]
# # 4a Collectives and their cost
#
# In each step of training all ranks add up their gradients. There is more than one way to do it: a ring, halves of
# halves, groups with leaders. Which one is fastest depends on the size of the gradient, on the number of ranks and on
# the network. Here you find out by how much, first on paper, then message by message, then with a clock.
#
# **You will be able to** say what an all-reduce costs in the α–β model, and derive it; read an algorithm off its
# messages; write the hierarchical all-reduce of Tencent's system and recursive halving; say which algorithm wins
# where, on which machine, and why; measure α and β of a real system and say what is in them.
#
# **Time:** 85 minutes; the runs take about 15 seconds on 2 CPU cores; on GPUs they are not yet measured.
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
# seconds (Hockney 1994). **α** is the *latency*, what even an empty message takes. **β** is the time for a byte, one
# over the *bandwidth*. Their ratio $\alpha/\beta$ is a size: a message so large takes as long for its bytes as for
# its start. Smaller ones are bound by latency, larger ones by bandwidth.
#
# What we assume besides: messages between different pairs of ranks travel at the same time, and in one *round* a rank
# sends and receives one message. So a round takes $\alpha + \beta \cdot$ its largest message, and an all-reduce the
# sum of its rounds. (Adding the numbers up is not counted. It is quicker than sending them.)
#
# For all that follows, a network with α = 10 µs and 10 GB/s. So $\alpha/\beta$ is 100 kB.

# %%
LINK = Link(latency=10e-6, bandwidth=10e9)
print(f"α/β = {LINK.alpha / LINK.beta / 1e3:.0f} kB")

# %% [markdown]
# ## The ring
#
# The all-reduce of 2a: cut the tensor into $N$ chunks; $N-1$ rounds in which each rank passes a chunk to the right
# and the next one adds it; $N-1$ rounds in which the finished chunks go round. Below are 8 ranks. Letters are chunks;
# the table holds how many ranks' numbers are in a chunk so far, Σ is all. On the right is the bill.

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
# 1,024 ranks on the network above. How many ms does a ring all-reduce of 1 kB take, how many one of 100 MB?

# %% editable=true
predict("ms of a ring all-reduce of 1 kB", None)
predict("ms of a ring all-reduce of 100 MB", None)

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
for size, name, reveals in (
    (1e3, "1 kB", "Each of the 2 (N − 1) rounds has its latency, however little is in a message."),
    (100e6, "100 MB", "Each rank sends about twice the tensor, however many ranks there are; the rounds come on top."),
):
    measured(f"ms of a ring all-reduce of {name}", 1e3 * ring_seconds(1024, size, LINK.alpha, LINK.beta), reveals)

# %% [markdown]
# A hundred thousand times the bytes for twice the time. Of the 20.5 ms for 1 kB, 0.2 µs are for bytes; the rest is
# waiting, 2,046 times 10 µs. A neural network has many small tensors, so with many ranks a plain ring is a bad
# choice.
#
# ## Halving
#
# *Recursive halving and doubling* (Thakur, Rabenseifner, Gropp 2005). In the first round each rank has a partner half
# the machine away; each of the two gives the other half of its tensor and adds what it gets to the half that it
# keeps. Then the same with a partner a quarter away and half of the half. After $\log_2 N$ rounds each rank holds one
# finished chunk, and the way back doubles it:
#
# $$T_\text{halving} = 2 \sum_{i=1}^{\log_2 N} \Big( \alpha + \beta \frac{n}{2^i} \Big)
#   = 2 \log_2 N \cdot \alpha + 2 \frac{N-1}{N} \beta n$$
#
# since $\frac12 + \frac14 + \dots + \frac1N = 1 - \frac1N$. As many bytes as in the ring, and far fewer rounds.

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
# Can it be done in fewer rounds? After one round a rank can know of two ranks' numbers, after two of four: at least
# $\log_2 N$ rounds. *Recursive doubling* needs no more: partners exchange *all* they have, $n$ bytes in each round. And
# no all-reduce sends less than $2\frac{N-1}{N} n$ bytes from a rank on average, unless the switches themselves add
# (Patarasuk and Yuan 2009). Doubling is at the bound for rounds, ring and halving are at the bound for bytes, and
# halving takes twice the least rounds. With more than two ranks no algorithm is at both.
#
# With $N$ not a power of two, halving has the ranks beyond the last power hand over all they have before, and give
# them the sum afterwards. Two more rounds with the whole tensor: $+\,2(\alpha + \beta n)$, and about twice the bytes.
#
# *Two trees* (Sanders, Speck, Träff 2009; NCCL takes them across hosts) work for any $N$. Each of two binary trees adds
# up one half of the tensor at its root and gives it out again. A leaf of one tree is an inner node of the other, so no
# link is idle. The halves are cut into segments that follow each other, as in a pipeline: while one goes up, the one
# before it comes down. More segments mean smaller ones, and more rounds.


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
# Write it for simulated ranks, the plain way: members send all they have to the leader, and the leader sends the
# whole sum to each.
#
# <details><summary>Hint</summary>The leader of rank r is the first rank of its group, r − r % group. Members have
# only two things to do. <code>ring_among(me, array, ranks)</code> returns the sum over those ranks; only they may
# call it.</details>


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
# Within a group this sends the whole tensor $2(k-1)$ times, one after the other, through the leader. The paper's way
# is better for large tensors: the members first make their sum as in a ring (reduce-scatter, $k-1$ rounds of $n/k$
# bytes), then the leader collects the chunks ($k-1$ rounds more). The broadcast is the same backwards. In all
# $4(k-1)$ rounds within groups and $2(N/k-1)$ rounds among the leaders:
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
# One rank of each group talks to the others, and $k-1$ wait for it. Horovod's hierarchical all-reduce
# (`HOROVOD_HIERARCHICAL_ALLREDUCE`, 2018) lets nobody wait: a reduce-scatter in the group, after which each rank has
# one $k$-th of the group's sum; then $k$ all-reduces at a time, each among the ranks that have the same place in their
# groups; then an all-gather in the group. It is called *sharded* below:
#
# $$T_\text{sharded} = 2(k-1) \Big( \alpha + \beta \frac{n}{k} \Big)
#   + 2 \Big(\frac{N}{k} - 1\Big) \Big( \alpha + \beta \frac{n}{N} \Big)$$

# %% [markdown]
# ## Formula against count
#
# A formula is a claim. `collectives.trace` lists every message of a plan. So count: the rounds, and the bytes of each
# round's largest message. Your own program is in the table too, with its messages as they were sent; its formula is
# $2(k-1)(\alpha + \beta n) + 2(N/k-1)(\alpha + \beta nk/N)$.


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
# Where $N$ and $k$ divide the length, formula and count agree to the last digit, for 8 million messages too. Where
# they don't, some chunks are one number longer, and a round is late by at most 4 β.
#
# ## Which wins where?
#
# Both costs are straight lines in $n$: a hierarchical all-reduce has fewer rounds, a ring fewer bytes. So there is
# one size where they are equal. Below it the hierarchical one is faster, above it the ring.
#
# ### Predict
#
# With 1,024 ranks and groups of 8 on the network above, up to which size does the hierarchical all-reduce win?

# %% editable=true
predict("MB up to which groups of 8 win, 1,024 ranks", None)

# %% [markdown]
# ### Exercise: the crossing
#
# <details><summary>Hint</summary>How many rounds more has the ring? How many bytes more go one after the other in the
# hierarchical all-reduce, as a multiple of n? At the crossing, the α of the first are worth the β of the
# second.</details>


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
measured(
    "MB up to which groups of 8 win, 1,024 ranks",
    crossing(1024, 8, LINK.alpha, LINK.beta) / 1e6,
    "The ring has 1,764 rounds more, each worth 100 kB; in groups 3.5 n more go one after the other.",
)

# %% [markdown]
# In your fraction all but little cancels, and for many ranks
#
# $$n^* \approx \frac{\alpha}{\beta} \cdot \frac{N}{2}$$
#
# whatever the size of the groups. A **hybrid** all-reduce knows this size: it takes the ring for larger tensors, the
# hierarchical one for smaller.
#
# Now the map: colour is the cheapest algorithm, the line is where the formulas are equal. One column for each power
# of two.
#
# ### Predict
#
# When halving and doubling may take part, and there are 2ᵖ ranks, more than two: which of the four are the fastest
# anywhere on the map?

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
    "Halving has the ring's bytes in fewer rounds.",
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
# - **Ring and hierarchical:** 50.6 MB. The largest convolution of a ResNet-50 has 9.4 MB, far below it; the first
#   fully connected layer of AlexNet has 151 MB, far above. Tencent found the same on its machines: for fully
#   connected layers the ring still outperformed the hierarchical all-reduce. Hence the hybrid.
# - **With powers of two** nothing is left of the ring. Halving has its bytes and fewer rounds (with two ranks the
#   same). In this model it is never slower. Doubling wins below α/β or so, where bytes cost nothing, and with two ranks
#   always: there its single round has no more bytes than the two of the others.
# - **Between powers of two** the two extra rounds with the whole tensor leave the ring the large tensors.
#
# So why did Tencent build groups, and why does NCCL still send large tensors round a ring?
#
# ## What α–β leaves out
#
# The model gives every pair of ranks a cable of its own. Real machines have $k$ GPUs in a *host*, with fast links
# inside, and *one* network card. Count what leaves a host of 8 in each algorithm, with 64 ranks. Halving is as in the
# picture above:


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
# In the ring and among the leaders one message at a time leaves a host. In the first round of halving all eight ranks
# have their partners outside, and the card carries four whole tensors at once. The map again, now with hosts: the $k$
# ranks of a host share one link to the outside. Within a host links are faster, by a factor that you choose.


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
# Each of the three has its place, it seems: halving for small tensors, the hierarchical all-reduce in the middle, the
# ring for the largest. A paper could end here. But one thing in this comparison was never chosen with care.
#
# ### Exercise: halving that knows the hosts
#
# Write the first half of halving, the reduce-scatter. It is up to you who is whose partner in which round. Rank 0 to 7
# are in one host, 8 to 15 in the next, and so on. As little as possible shall leave a host; an eighth of what
# the order of the picture sends is enough.
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
# The map once more, with the better order, and with the sharded all-reduce and doubling. Which of the five still have a
# place?

# %% editable=true
predict("of the five, on hosts, the nearest partner first: who wins somewhere", None)

# %%
FIVE = tuple(communication.COLOURS)
ORDERS = {"the nearest partner first": False, "the farthest first": True}
measured(
    "of the five, on hosts, the nearest partner first: who wins somewhere",
    communication.cheapest(LINK, 8, Link(LINK.latency / 10, 10 * LINK.bandwidth), among=FIVE, hosts=True),
    "What leaves a host counts, and how many messages it is in.",
)
widgets.explore(
    lambda far_first, **sliders: with_hosts(**sliders, far_first=far_first, among=FIVE),
    far_first=widgets.choice("halving:", ORDERS),
    **SLIDERS,
)

# %% [markdown]
# Halving wins but for the smallest tensors, where doubling does, and one corner. Near partners first, the large
# messages stay within a host, and its eight ranks send an eighth of the tensor each, where the ring sends it whole, one
# piece after the other: the card carries the same $2n$, in ten or twenty messages in place of thousands. MPICH has had
# this order for long. In the corner, with the largest tensors on some hundred ranks, the ring is ahead by a few
# percent: its links inside and outside work at the same time, those of halving in turns.
#
# That each of three algorithms had its place was an accident of the partners' order. **Before you compare algorithms,
# make each as good as it gets.**
#
# These maps are drawn with closed forms. Here they are against the messages of the plans, counted per host:


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
# The next level has the same problem. Hosts stand in *pods*; within a pod every host can send at full speed, but pods
# share a *core*, and a network whose core carries a quarter of what all hosts can send is *oversubscribed* four times.
# (Ordinary switches that are joined like this make a *fat tree*, Al-Fares et al. 2008.) 256 ranks in pods of 64, 100
# MB, and links as above: what an all-reduce takes when ranks are numbered pod by pod, and when the scheduler handed out
# places at random.
#
# ### Predict
#
# At random and four times oversubscribed: is the ring faster than halving with the nearest partner first, or slower, or
# is it the same (within a tenth)?

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
    "At random three of four partners are in another pod, for the ring as for halving.",
)
times

# %% [markdown]
# Pod by pod, the ring and halving with the nearest partner first hardly feel the core: the one sends a single message
# at a time across, the other small ones. Farthest first pays for every halving of the core's bandwidth. At random all
# three lose, and nearly alike: any all-reduce sends about two tensors from each rank, and three of four partners are
# in another pod now. The ring does not get over it better. What helps is to number the ranks anew, so that neighbours
# stand together; NCCL does that within a host, and a good scheduler across hosts.
#
# So when do rings win? When the number of ranks is not a power of two and the tensor is large. And for reasons that
# this model leaves out. In halving each round has another partner, with a connection and buffers for each, and a round
# has to be over before the next can begin. A ring streams: a rank passes on the first bytes of a chunk while the last
# ones still come. So NCCL measures, and chooses between rings, two trees, and switches that add.
#
# ## α and β of this machine
#
# Now a clock. Two real ranks; Horovod all-reduces of 4 bytes to 16 MB, 40 times each, in turns, with nothing fused.
# Beside them bare messages: bytes through a TCP connection between the same two ranks and back, halved. Both ranks
# are on this machine, so no network card is involved.
#
# ### Predict
#
# A bare message takes about 10 to 40 µs on most machines. With two ranks a ring's all-reduce is two rounds. How many µs
# will an all-reduce of 4 bytes take?

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
    too_small="The wire is the least of it: the ranks agree first on what is ready, and threads have to wake up.",
)
print(f"a bare message of 16 bytes: {1e6 * np.median(bare[:, 1]):.0f} µs")

# %% [markdown]
# The line is fitted with the least squares of the *relative* errors, $\sum (\hat t / t - 1)^2$. In seconds, the largest
# tensor would decide alone.


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
# On a quiet machine "latency plus bytes" is a good description of most all-reduces. But look at the α: ten bare
# messages would fit into it. It is hardly a latency of the wire. A rank asks the coordinator, waits for the next cycle
# (here 0.1 ms), all ranks agree on what is ready, TensorFlow starts an operation, threads wake up. (Set
# `HOROVOD_CYCLE_TIME` to 100 ms, and 4 bytes take 100 ms.) All this happens once for each all-reduce, not once for each
# round, so nobody should multiply this α by $2(N-1)$ for other $N$. **A measured α belongs to the system that it was
# measured on.**
#
# The β is no wire either. The bytes are copied into buffers and out of them, and added up, by the two cores that the
# ranks compute with. And the bare messages show what the model can't: bytes that fit into a cache and into the
# socket's buffer are cheaper than many. Their residuals are no noise but a curve.
#
# Recorded are three cycle times, and four ranks on two cores: `course reproduce all_reduce`, in about a minute.

# %%
Image("recorded/all_reduce.png", width=plots.WIDTH)

# %% [markdown]
# - Of the 48 medians of all-reduces 41 lie within 15 % of their line; three, all with a cycle of 1 ms, are 48 to 58 %
#   above it.
# - **A cycle of 1 ms** has the worst fit: an all-reduce is through in one cycle, in 0.81 ms, or in two. The bars show
#   both. A straight line can't.
# - **A cycle of 10 ms** adds 4.4 ms to α and not 10: with two rounds, α is half of what an all-reduce takes at least.
# - **Four ranks** take 2.03 ms for 4 bytes, two take 0.63. In the ring's formula, with six rounds for two, that makes
#   nearly the same α, 0.40 and 0.31 ms, as if it was a latency of the wire after all. It is chance: four ranks share
#   two cores, so all the software takes longer.
# - **The bare message** departs most from its line at both ends: by 44 % with 4 bytes, by 41 % with 16 MB.
#
# What it means for training: what the smallest tensor costs would pay for the bytes of a megabyte. Small tensors
# should travel together. That is tensor fusion, in 4b.
#
# ## A coarser model: supersteps
#
# α–β gives each message a price. A step of training is simpler than that: all compute, all send, all wait. The BSP
# model (bulk-synchronous parallel, Valiant 1990) calls this a *superstep* and prices it as a whole:
#
# $$w + g h + l$$
#
# $w$ is the longest computation of any rank; $h$ the most bytes that a rank sends or receives, and $g$ the time for one
# of them when all send at once; $l$ is what it takes to bring all to the same point. In how many messages the bytes
# travel does not matter. With this model Rogers and Skillicorn (1998) chose how to divide the training of a network.
#
# In the run above, the two ranks also went through supersteps: they compute for a moment, exchange 16, 64 or 256 KiB,
# and wait for each other. $g$ and $l$ are fitted on these three sizes, α and β on the bare messages. Then both predict
# a fourth size, 128 KiB, in one write and in sixteen.
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
# **Sixteen writes:** BSP expects the same as with one, α–β 15 α more. On a quiet machine what they really cost tends
# to lie between the two. The second write leaves while the first is on its way, so that the receiver waits only once.
#
# **One write:** α–β is too low. It knows a message between two ranks of which one waits for the other. Here both
# compute, send, receive, and have to be awake at the same time. $l$ was measured in just that situation, and holds all
# of it. That is the strength of BSP and its limit: $g$ and $l$ hold for these ranks on this machine, and say nothing of
# a ring or a tree. α–β compares algorithms; BSP predicts a program that keeps its own.
#
# On a machine with other work to do all five numbers wander, the longer ones most: run the cell of the clock again.
#
# ## Summary
#
# | | rounds | bytes, one after the other |
# |---|---|---|
# | ring | $2(N-1)$ | $2\frac{N-1}{N}\,n$ |
# | halving, $N = 2^p$ | $2 \log_2 N$ | $2\frac{N-1}{N}\,n$ |
# | halving, else ($P < N$ the last power) | $2 \log_2 P + 2$ | $2\frac{P-1}{P}\,n + 2n$ |
# | doubling, $N = 2^p$ | $\log_2 N$ | $\log_2 N\,n$ |
# | hierarchical | $4(k-1) + 2(\frac Nk-1)$ | $4\frac{k-1}{k}\,n + 2\frac{N/k-1}{N/k}\,n$ |
# | sharded | $2(k-1) + 2(\frac Nk-1)$ | $2\frac{N-1}{N}\,n$ |
# | no all-reduce has less than | $\log_2 N$ | $2\frac{N-1}{N}\,n$ |
#
# - Each cost is a straight line in $n$; two lines cross once. Ring and hierarchical cross near
#   $\frac{\alpha}{\beta} \frac N2$: smaller tensors in groups, larger ones in a ring. Hybrid takes both.
# - By α–β alone nothing beats halving with $2^p$ ranks, and doubling for the smallest tensors. On hosts and in fat
#   trees that stays so if near partners get the large messages; in the other order it is the worst choice.
# - A measured α contains the whole software around the message.

# %%
predictions.table()

# %% [markdown]
# Next: 4b puts small tensors together and hides what is left behind the backward pass.
#
# - X. Jia et al.: *Highly Scalable Deep Learning Training System with Mixed-Precision: Training ImageNet in Four
#   Minutes.* arXiv:1807.11205
# - P. Sanders, J. Speck, J. L. Träff: *Two-tree algorithms for full bandwidth broadcast, reduction and scan.* Parallel
#   Computing 35, 2009
# - P. Patarasuk, X. Yuan: *Bandwidth optimal all-reduce algorithms for clusters of workstations.* J. Parallel
#   Distrib. Comput. 69, 2009
# - R. Thakur, R. Rabenseifner, W. Gropp: *Optimization of collective communication operations in MPICH.* Int. J. High
#   Perform. Comput. Appl. 19, 2005
# - M. Al-Fares, A. Loukissas, A. Vahdat: *A scalable, commodity data center network architecture.* SIGCOMM 2008
# - L. G. Valiant: *A bridging model for parallel computation.* CACM 33, 1990
# - R. O. Rogers, D. B. Skillicorn: *Using the BSP cost model to optimise parallel neural network training.* IPPS 1998
# - R. W. Hockney: *The communication challenge for MPP: Intel Paragon and Meiko CS-2.* Parallel Computing 20, 1994
