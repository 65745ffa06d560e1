# %% [markdown]
# # 7a Cut the layer
#
# With data parallelism every rank has the whole network. Here each rank has a part of every layer: some columns of a
# matrix, some heads, some words of the vocabulary, one of the experts. In 1d that was a word, *tensor parallelism*.
# Here you write it, on two and four ranks, and each step must equal that of the serial network.
#
# **You will be able to** derive the backward pass of a collective and check it with a dot product; cut a pair of dense
# layers with one all-reduce each way; cut attention by heads and a loss by its vocabulary; send tokens to experts on
# other ranks and keep them evenly busy; and say which cut moves fewer words for which layer.
#
# **Time:** 90 minutes; the runs take about 15 seconds on 2 CPU cores. There is nothing for a GPU to do.
#
# **Needs:** backpropagation through dense layers, collectives as in 2a, the cost of a ring (4a). For section
# *A head a rank*, a rough idea of attention.

# %%
import inspect

import numpy as np
import pandas as pd
from IPython.display import Code, Image

from course_lib.notebook import plots, predictions
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from course_lib.parallel.group import CollectiveError, rehearse
from labs.lab7_splitting_the_model.lessons import autodiff_pair, cut_network, experts, wire_words
from labs.lab7_splitting_the_model.lessons import figures_7a as figures
from labs.lab7_splitting_the_model.lessons.checks_7a import check, points
from labs.lab7_splitting_the_model.lessons.standing_ranks import StandingRanks

# %%
ranks = StandingRanks()

# %% [markdown]
# This starts four Horovod ranks, which stand by until the notebook ends; meanwhile we go on. There are two kinds of
# groups: `"all"`, the four ranks, and `"pairs"`, ranks 0 and 1, and ranks 2 and 3. A rank sees a group as an object
# with `group.rank`, `group.size`, and
#
# | call | every rank gets |
# |---|---|
# | `group.broadcast(x, root)` | the x of rank `root` |
# | `group.all_gather(x)` | all ranks' x [..., k] side by side, [..., k · size] |
# | `group.reduce_scatter(x)` | its own part [..., k] of the sum of all ranks' x [..., k · size] |
# | `group.all_reduce(x)` | the sum of all ranks' x; with `"max"` as second argument, the largest at each place |
# | `group.all_to_all(parts)` | a list of what each rank had for it; `parts[r]` goes to rank r |
#
# All ranks of a group must call the same ones in the same order. The checks *rehearse* your functions first, on
# simulated ranks. Where real ones would wait for each other for ever, the rehearsal says at once who waits where:


# %%
def forgetful(group):
    group.all_reduce(np.ones(3))
    if group.rank > 0:
        group.all_gather(np.ones(3))


try:
    rehearse(forgetful, 2)
except CollectiveError as error:
    print(error)

# %% [markdown]
# ## The adjoint of a collective
#
# Put the numbers of all ranks into one long vector. A collective makes another such vector of it, and all but the
# maximum are linear: $y = A x$. If a loss depends on $y$, its gradient goes back by the transposed map, the
# **adjoint** $A^*$: the one for which
#
# $$ \langle A x, y \rangle = \langle x, A^* y \rangle \qquad \text{for all } x \text{ and } y, $$
#
# with sums over all ranks on both sides. For example, the adjoint of sending from rank 0 to rank 1 is sending from rank
# 1 to rank 0.
#
# ### Exercise: adjoints
#
# What are the adjoints of these four? Each is a program for one rank, and may use any collective.
#
# <details><summary>Hint</summary>Take two ranks with one number each, and write <em>A</em> down. For a broadcast from
# rank 0 it has the rows (1, 0) and (1, 0). Which collective has the transposed matrix?</details>
# <details><summary>There is no collective for that?</summary>Horovod has no reduce to one rank alone. Take what it has,
# and throw away what must not be there. But where something cheaper exists, take that.</details>


# %% exercise="adjoint"
class Adjoint:
    """Adjoints of collectives. `y` has the shape of what the collective returned on this rank."""

    @staticmethod
    def broadcast(group, y, root):
        """Of `group.broadcast(x, root)`, for which every rank gave an x of y's shape; returns an array like x."""
        ### BEGIN SOLUTION
        total = group.all_reduce(y)
        return total if group.rank == root else np.zeros_like(total)
        ### END SOLUTION

    @staticmethod
    def all_gather(group, y):
        """Of `group.all_gather(x)` with x [..., k]; y [..., k · size]. Returns [..., k]."""
        ### BEGIN SOLUTION
        return group.reduce_scatter(y)
        ### END SOLUTION

    @staticmethod
    def all_reduce(group, y):
        """Of `group.all_reduce(x)`; x and y have the same shape."""
        ### BEGIN SOLUTION
        return group.all_reduce(y)
        ### END SOLUTION

    @staticmethod
    def all_to_all(group, parts):
        """Of `group.all_to_all(x)`; `parts` are as that returned them. Returns a list, as x was."""
        ### BEGIN SOLUTION
        return group.all_to_all(parts)
        ### END SOLUTION


# %%
check(Adjoint)

# %% hidden="adjoint" points=4
### BEGIN HIDDEN TESTS
points(Adjoint, 4)
### END HIDDEN TESTS

# %% [markdown]
# Now the definition itself, on the four real ranks with random numbers. What you should see: in each row twice the
# same number, up to rounding.


# %%
def two_products(group):
    """⟨Ax, y⟩ and ⟨x, A*y⟩ of each collective, this rank's share of the sums."""
    random = np.random.default_rng(group.rank)
    one, other, wide = random.normal(size=(2, 3)), random.normal(size=(2, 3)), random.normal(size=(2, 12))
    there, back = ([random.normal(size=(2, 3)) for _ in range(4)] for _ in range(2))
    rows = {
        "broadcast": ((group.broadcast(one, 2), other), (one, Adjoint.broadcast(group, other, 2))),
        "all_gather": ((group.all_gather(one), wide), (one, Adjoint.all_gather(group, wide))),
        "all_reduce": ((group.all_reduce(one), other), (one, Adjoint.all_reduce(group, other))),
        "all_to_all": ((group.all_to_all(there), back), (there, Adjoint.all_to_all(group, back))),
    }
    return {kind: [np.vdot(a, b) for a, b in both] for kind, both in rows.items()}


def dot_product_test():
    rehearse(two_products, 4)
    with Filling("four ranks") as line:
        line.at(0.1, "they may still be starting: TensorFlow is loaded four times")
        shares = ranks.call(lambda groups: two_products(groups["all"]))
    found = pd.DataFrame({kind: np.sum([share[kind] for share in shares], axis=0) for kind in shares[0]}).T
    return found.set_axis(["⟨Ax, y⟩", "⟨x, A*y⟩"], axis=1)


dot_product_test()

# %% [markdown]
# A gather becomes a reduce-scatter, a copy becomes a sum, and what only sends things elsewhere is undone by sending
# them back.
#
# ## Columns and rows
#
# A dense layer is $y = x w + b$, with examples in the rows of $x$. Two ways to cut $w$:
#
# - **by columns**: each rank has some columns of $w$ and the elements of $b$ that belong to them. Every rank has the
#   whole $x$. The result stays cut: each rank goes on with its own columns of $y$;
# - **by rows**: each rank has some rows of $w$ and the columns of $x$ that belong to them. All have the whole $b$. In
#   the end every rank has the whole $y$.
#
# What comes out of the first fits into the second. ReLU between them acts on each number by itself and needs nobody.
# So a pair of layers is cut, and its inputs and outputs are whole on every rank: Megatron-LM's pair (Shoeybi et al.,
# 2019).
#
# What is whole on every rank is **one** array, of which each rank has a copy. The same holds for the loss: all ranks
# compute it, but there is one. The gradient by a whole array is whole, too: it counts all paths, through all ranks,
# to the one loss.
#
# ### Exercise: the two cuts
#
# Write both layers and their backward passes. With one all-reduce in the pair's forward pass, and one in its backward
# pass, there need be no others: find the two places.
#
# <details><summary>Hint</summary>For each array ask: is it whole on all ranks, cut, or only a term of a sum? Only terms
# must be added up. Whose <em>x</em> is it in the first layer, and how many ways lead from it to the loss?</details>
# <details><summary>The slope is whole: must it not be added up?</summary>The adjoint of an all-reduce is an all-reduce
# if every rank has a loss of its own and all of these are added. Here there is one loss, and N copies of its gradient
# say the same thing.</details>


# %% exercise="cut"
class Cut:
    """Two ways to cut a dense layer over a group. n examples, d inputs, h outputs, N = group.size."""

    @staticmethod
    def columns(group, x, w, b):
        """This rank's columns [n, h/N] of the outputs; x [n, d] is whole, w [d, h/N] and b [h/N] are its own."""
        ### BEGIN SOLUTION
        return x @ w + b
        ### END SOLUTION

    @staticmethod
    def columns_back(group, x, w, slope):
        """The gradients by x, w and b, shaped as these are; slope [n, h/N]: the loss by this rank's outputs."""
        ### BEGIN SOLUTION
        return group.all_reduce(slope @ w.T), x.T @ slope, slope.sum(0)
        ### END SOLUTION

    @staticmethod
    def rows(group, x, w, b):
        """The outputs [n, h], whole; x [n, d/N] and w [d/N, h] are this rank's, b [h] is whole."""
        ### BEGIN SOLUTION
        return group.all_reduce(x @ w) + b
        ### END SOLUTION

    @staticmethod
    def rows_back(group, x, w, slope):
        """The gradients by x, w and b, shaped as these are; slope [n, h], whole: the loss by the outputs."""
        ### BEGIN SOLUTION
        return slope @ w.T, x.T @ slope, slope.sum(0)
        ### END SOLUTION


# %%
check(Cut)

# %% hidden="cut" points=6
### BEGIN HIDDEN TESTS
points(Cut, 6)
### END HIDDEN TESTS

# %% [markdown]
# Whoever has automatic differentiation writes only the forward pass, and puts two functions into it. Each is the
# identity in one direction and an all-reduce in the other; the paper calls them *f* and *g*:

# %%
Code(autodiff_pair.source(), language="python")

# %% [markdown]
# Why two functions, when Horovod's `hvd.allreduce` knows a gradient of its own? It takes each rank's loss for a
# separate one.
#
# ### Predict
#
# Four real ranks run the pair twice, with the same numbers: once with `summed`, once with `hvd.allreduce`, which sums,
# in its place. How many times as large is the gradient by the second layer's $w$ in the second run?

# %% editable=true
predict("gradient by the second w, times as large", None)

# %%
pair = ranks.call(lambda groups: autodiff_pair.gradients(groups["all"]))
lengths = {way: np.mean([np.linalg.norm(rank[way]["w2"]) for rank in pair]) for way in ("summed", "hvd.allreduce")}
measured(
    "gradient by the second w, times as large",
    round(lengths["hvd.allreduce"] / lengths["summed"], 6),
    "1? Its gradient is an all-reduce of four equal slopes. As the adjoint of a sum over all ranks' losses that is "
    "right, but these four losses are one.",
)
pd.DataFrame(
    {way: {name: max(rank[way + ", off by"][name] for rank in pair) for name in ("x", "w1", "w2", "b2")}
     for way in ("summed", "hvd.allreduce")}
).map("{:.0e}".format).rename_axis("gradient by")  # fmt: skip

# %% [markdown]
# (The largest difference from the serial gradient, on any rank, float64.) Only the bias after the all-reduce escapes.
# With plain SGD, everything before it in the pair gets a learning rate that is four times too large. With Adam, whose
# steps don't depend on the size of the gradients, a pair's own weights would hardly notice; but where its input also
# goes past it, as in the next sections, the sum of both ways points elsewhere.
#
# ## A head a rank
#
# Attention has several heads, and none of them needs another before the last matrix, `out`. Let $k$ be the width of all
# heads together. One matrix `qkv` [k, 3k] makes queries, keys and values: in its columns come first the queries of all
# heads, head by head, then the keys of all heads, then the values. The heads' outputs side by side, head by head, are
# the inputs of `out` [k, k].
#
# ### Exercise: deal the heads
#
# Each rank gets neighbouring heads, equally many. Which part of both matrices does it need, if its part of `qkv` is
# arranged as the whole is, and the pair is to be cut as above: columns first, then rows?
#
# <details><summary>Hint</summary>A cut in N equal blocks of neighbouring columns gives rank 0 of 2 all queries and half
# of the keys. Take the three kinds apart first.</details>


# %% exercise="deal"
def deal(qkv, out, heads, rank, size):
    """The parts of both matrices for this rank's heads: (qkv [k, 3k/size], out [k/size, k]).

    qkv [k, 3k], out [k, k]: see above; heads: how many there are in all, a multiple of size. Rank 0 has the first ones.
    (qkv may have another number of rows than k: a bias has one.)
    """
    ### BEGIN SOLUTION
    kinds = np.split(qkv, 3, axis=1)
    mine = [np.split(kind, size, axis=1)[rank] for kind in kinds]
    return np.concatenate(mine, axis=1), np.split(out, size)[rank]
    ### END SOLUTION


# %%
check(deal)

# %% hidden="deal" points=2
### BEGIN HIDDEN TESTS
points(deal, 2)
### END HIDDEN TESTS

# %% [markdown]
# Nothing else is new: the attention of a rank's heads stands where ReLU stood. One all-reduce forward, one backward.
#
# ## A cut vocabulary
#
# The last layer of a language model has a column for each word, and is often its largest matrix. Cut by columns, it
# leaves each rank with the logits $z$ [n, V/N] of some words. The loss needs all of them:
#
# $$ L = \frac{1}{n} \sum_i \Big( \log \sum_j e^{z_{ij}} - z_{i, \text{label}_i} \Big) $$
#
# An all-gather would leave every rank with $V$ numbers for each token.
#
# ### Exercise: cross-entropy over a cut vocabulary
#
# Use at most two collectives and three numbers for each token. Logits may be large: $e^{1000}$ is no number
# any more.
#
# <details><summary>Hint</summary>Which sums over <em>j</em> are there? Each rank has a part of every one. What protects
# the exponentials must be the same number on all ranks, and must be known before the sums.</details>
# <details><summary>Where is a label?</summary>Rank r has the words r · V/N to (r + 1) · V/N − 1. NumPy takes a negative
# place from the end, silently.</details>


# %% exercise="cut_cross_entropy"
def cut_cross_entropy(group, logits, labels):
    """The mean loss, on every rank, and its gradient [n, V/N] by this rank's logits.

    logits [n, V/N]: of the words that this rank has; labels [n]: the right words, 0 … V − 1, on every rank.
    """
    ### BEGIN SOLUTION
    n, width = logits.shape
    top = group.all_reduce(logits.max(1), "max")
    e = np.exp(logits - top[:, None])
    places = labels - group.rank * width
    here = np.flatnonzero((places >= 0) & (places < width))
    right = np.zeros(n)
    right[here] = logits[here, places[here]] - top[here]
    total, right = group.all_reduce(np.array([e.sum(1), right]))
    slope = e / total[:, None]
    slope[here, places[here]] -= 1
    return (np.log(total) - right).mean(), slope / n
    ### END SOLUTION


# %%
check(cut_cross_entropy)

# %% hidden="cut_cross_entropy" points=5
### BEGIN HIDDEN TESTS
points(cut_cross_entropy, 5)
### END HIDDEN TESTS

# %% [markdown]
# ## The whole network
#
# Your functions make a small transformer: an embedding, which every rank has whole; attention with four heads; two
# dense layers; the output layer, with its loss. It learns to predict the next character of Python's help. Read the step
# and count the collectives.

# %%
Code(inspect.getsource(cut_network.step), language="python")

# %% [markdown]
# ### Predict
#
# How many collectives are there in a step, forward and backward, loss included? How many numbers does the loss move for
# one token on each of four ranks, if the vocabulary has 50,000 words, with an all-gather of the logits and with your
# two all-reduces? And what is the largest difference from the serial network after three updates, among all weights on
# four ranks, as a power of ten (float64)?

# %% editable=true
predict("collectives in a step", None)
predict("numbers sent for a token: all-gather", None)
predict("numbers sent for a token: two all-reduces", None)
predict("difference of the weights, power of ten", None)

# %%
learned = cut_network.Learners(Cut, deal, cut_cross_entropy)


def on_both():
    for size in (2, 4):
        rehearse(lambda group: cut_network.train(group, learned, steps=1), size)

    def on_a_rank(groups):
        found = {name: cut_network.train(groups[name], learned) for name in ("pairs", "all")}
        return {**found, "serial": cut_network.serial() if groups["all"].rank == 0 else None}

    return ranks.call(on_a_rank)


both = on_both()
serial = both[0]["serial"]
measured(
    "collectives in a step",
    len(both[0]["all"]["calls"]),
    "Two pairs make four, the loss two, and the output layer's columns one: in the backward pass.",
)
measured(
    "numbers sent for a token: all-gather",
    3 * 50_000 // 4,
    "A rank has a quarter of the logits and sends it to three others, or three quarters of them on around a ring.",
)
measured(
    "numbers sent for a token: two all-reduces",
    2 * 3 / 4 * 3,
    "Three numbers, whatever the vocabulary; an all-reduce sends 2 · 3/4 numbers for each.",
)
differences = {
    f"{size} ranks": cut_network.apart([rank[name] for rank in both[:size]], serial, deal)
    for size, name in ((2, "pairs"), (4, "all"))
}
measured(
    "difference of the weights, power of ten",
    round(np.log10(differences["4 ranks"]["weights"])),
    "Cutting changes the order of sums and nothing else. float64 has 16 digits.",
    exponent=True,
)
pd.DataFrame(differences).T.map("{:.0e}".format)

# %% [markdown]
# The twin is written without any cut, in TensorFlow, which differentiates it. The loss, all gradients of the first step
# and all weights after the third agree to rounding, on two ranks and on four.
#
# ## One expert a rank
#
# Cut layers make the ranks compute together what one would compute alone. A **mixture of experts** makes the network
# larger, and the work for a token stays the same: there are several pairs of dense layers, the *experts*, and a gate
# sends each token to one of them (top-1; the Switch Transformer, Fedus et al., 2021). With gate probabilities $p$, the
# layer gives $x + p_e \, \text{expert}_e(x)$, where $e$ is the expert with the largest $p$.
#
# Put expert $r$ on rank $r$. Every rank has tokens of its own, and any of them may have to go to any rank. An expert
# has limited room: it takes at most `capacity` tokens from each rank, the first ones. The others are **dropped**: no
# expert adds anything to them, and they go on as $x$.
#
# ### Exercise: the route
#
# Bring tokens to their experts, and the results back to where the tokens were. The same function then takes gradients
# back, with `expert.backward` in place of `expert.forward`. Why is that right? You have found the reason in the first
# exercise.
#
# <details><summary>Hint</summary>Keep which places each list of tokens came from. What arrives at an expert comes from
# all ranks; it must be taken apart again for the way back.</details>
# <details><summary>A rank without tokens for somebody?</summary>An array with no rows can be sent like any
# other.</details>


# %% exercise="route"
def route(group, tokens, choice, capacity, expert):
    """What the experts make of this rank's tokens, [n, d]: row i belongs to token i, and is 0 where that was dropped.

    tokens [n, d]; choice [n]: the rank of each token's expert; capacity: tokens of this rank for which an expert has
    room. expert: this rank's own, called as expert(x) with all tokens [m, d] that arrive here; returns [m, d].
    """
    ### BEGIN SOLUTION
    places = [np.flatnonzero(choice == rank)[:capacity] for rank in range(group.size)]
    came = group.all_to_all([tokens[some] for some in places])
    made = np.split(expert(np.concatenate(came)), np.cumsum([len(some) for some in came])[:-1])
    out = np.zeros(tokens.shape)
    for some, back in zip(places, group.all_to_all(made)):
        out[some] = back
    return out
    ### END SOLUTION


# %%
check(route)

# %% hidden="route" points=4
### BEGIN HIDDEN TESTS
points(route, 4)
### END HIDDEN TESTS

# %% [markdown]
# ### Keep them all busy
#
# An expert that gets many tokens learns fast, so the gate sends it more. A few of them may end up with most of the
# work, and many tokens are dropped. Against that a **balance loss** is added, with a small factor $\alpha$ of its own:
#
# $$ L_b = E \sum_{i=1}^{E} f_i P_i $$
#
# with $E$ experts. $f_i$ is the share of *all ranks' tokens* whose largest probability is that of expert $i$, and $P_i$
# is the mean of that probability over all of them. Equal shares give $L_b = 1$.
#
# ### Exercise: the balance loss
#
# The ranks may have different numbers of tokens. Few numbers are to travel. And what is the gradient? $f$ jumps when a
# token changes its expert, and is constant otherwise.
#
# <details><summary>Hint</summary>Can the loss be put together from losses of single ranks? Which sums over tokens does
# it consist of? Nobody knows yet how many tokens there are in all, but one of the sums tells.</details>


# %% exercise="balance"
def balance(group, probabilities):
    """The balance loss of all ranks' tokens, equal on all ranks, and its gradient by this rank's probabilities.

    probabilities [n, E]: of this rank's n tokens. Returns a number and an array [n, E].
    """
    ### BEGIN SOLUTION
    many = probabilities.shape[1]
    counts = np.bincount(probabilities.argmax(1), minlength=many)
    counts, sums = group.all_reduce(np.array([counts, probabilities.sum(0)]))
    tokens = counts.sum()
    slope = np.tile(many * counts / tokens**2, (len(probabilities), 1))
    return many * (counts @ sums) / tokens**2, slope
    ### END SOLUTION


# %%
check(balance)

# %% hidden="balance" points=3
### BEGIN HIDDEN TESTS
points(balance, 3)
### END HIDDEN TESTS

# %% [markdown]
# ### Predict
#
# A layer with one expert a rank, 64 tokens of 8 numbers on each rank, trained for three steps. By which power of ten do
# the weights on four ranks differ from a serial run with all four experts? And with very many ranks, tokens that are
# spread evenly, and room for all: how many numbers does a rank send in a step for each of its tokens?

# %% editable=true
predict("experts: difference of the weights, power of ten", None)
predict("numbers sent for a token of 8 numbers", None)


# %%
def experts_on_both():
    for size in (2, 4):
        rehearse(lambda group: experts.train(group, route, balance, steps=1), size)

    def on_a_rank(groups):
        found = {name: experts.train(groups[name], route, balance) for name in ("pairs", "all")}
        return {**found, "serial": [experts.serial(size) for size in (2, 4)] if groups["all"].rank == 0 else None}

    return ranks.call(on_a_rank)


both = experts_on_both()
rows = {}
for whole, (size, name) in zip(both[0]["serial"], ((2, "pairs"), (4, "all"))):
    found = [rank[name] for rank in both[:size]]
    rows[f"{size} ranks"] = {
        **{what: f"{off:.0e}" for what, off in experts.apart(found, whole).items()},
        "dropped": f"{np.mean([rank['dropped'] for rank in found]):.0%}",
        "numbers sent for a token": np.mean([rank["sent"] for rank in found]) / 64,
    }
weights_apart = experts.apart([rank["all"] for rank in both], both[0]["serial"][1])["weights"]
measured(
    "experts: difference of the weights, power of ten",
    round(np.log10(weights_apart)),
    "The same tokens meet the same weights. Only the places where it happens differ.",
    exponent=True,
)
measured(
    "numbers sent for a token of 8 numbers",
    4 * 8,
    "There and back in the forward pass, there and back in the backward pass; of N ranks, N − 1 are not one's own.",
)
pd.DataFrame(rows).T

# %% [markdown]
# By number of ranks, rehearsed. (Of tokens that are spread evenly a share $(N - 1)/N$ has its expert elsewhere.)

# %%
steps = {size: rehearse(lambda group: experts.train(group, route, balance, steps=1), size) for size in (2, 4, 8, 16)}
rows = {}
for size, found in steps.items():
    dropped, sent = (np.mean([rank[what] for rank in found]) for what in ("dropped", "sent"))
    even = 4 * 8 * (size - 1) / size * (1 - dropped)
    rows[size] = {"dropped": f"{dropped:.0%}", "numbers sent for a token": sent / 64, "were they spread evenly": even}
pd.DataFrame(rows).T.rename_axis("ranks")

# %% [markdown]
# However many ranks and experts there are, what a rank sends for a token is bounded. But each token whose expert is
# elsewhere makes four journeys for each such layer, and each all-to-all waits for the fullest expert. And with many
# experts some are chosen far more often than others: on 16 ranks an even share of a rank's tokens is four, there is
# room for five, and about a quarter of the tokens are dropped. By chance alone, with an even gate, it would be a tenth.
#
# And what does the balance loss do? Recorded: a small network on Fashion-MNIST with four experts and room for 1.25
# times an even share, trained with several $\alpha$. A network with a single expert and no gate does the same work for
# each image. All tried the same six learning rates; five seeds.
#
# ### Predict
#
# How many per cent of the images are dropped in the last epoch without the balance loss, and how many with
# $\alpha = .1$? And how many of the five $\alpha$ (0, .001, .01, .1, 1) give a test accuracy that is better than that
# of the single expert by more than chance?

# %% editable=true
predict("dropped without the balance loss, %", None)
predict("dropped with α = .1, %", None)
predict("how many α are better than one expert", None)

# %%
recorded = pd.read_csv("recorded/experts.csv", comment="#")
table = figures.summary(recorded)
gains = figures.gains(recorded)
measured(
    "dropped without the balance loss, %",
    round(table.loc["alpha 0", ("dropped", "mean")], 1),
    "Nothing holds the gate back. But the seeds differ: look at the bar.",
)
measured(
    "dropped with α = .1, %",
    round(table.loc["alpha 0.1", ("dropped", "mean")], 1),
    "A small factor is enough: it acts in every update, and the loss of the images does not mind which expert works.",
)
measured(
    "how many α are better than one expert",
    int((gains["mean"] > gains["half"]).sum()),
    "Four experts have four times the weights. Here no gain can be told from chance.",
)
Image("recorded/experts.png", width=plots.WIDTH)

# %% [markdown]
# - Without the balance loss the fullest expert gets 42.9 ± 12.0 % of the images, and 13.8 ± 10.5 % are dropped. With
#   $\alpha = .1$ it gets 25.6 ± 0.4 %, and 0.40 ± 0.07 % are dropped.
# - In accuracy no α is ahead of the single expert by more than chance. Seed by seed, $\alpha = .1$ is ahead of the
#   single expert by 0.35 ± 0.75 points, and $\alpha = 1$ is short of it by 0.63 ± 0.80: both may be chance. But too
#   much of it costs: $\alpha = 1$ is 0.99 ± 0.47 points behind $\alpha = .1$. Nor does $\alpha = .1$ gain anything on
#   $\alpha = 0$, 0.17 ± 0.57: a dropped image still has its $x$. The papers show gains on far larger networks and data;
#   this problem shows none.
# - Seconds were not compared. (Fedus et al. use $\alpha = .01$.)
#
# `course reproduce experts`, typed in a terminal, makes it again in about 3 minutes.
#
# ## Which cut for which layer?
#
# Four ranks can share the tokens (4 × 1: data parallelism), each layer (1 × 4: tensor parallelism), or both: two groups
# of two, where each group cuts the layers over its ranks and works on half of the tokens (2 × 2). Ranks that have the
# same part of the weights then average their gradients.
#
# ### Exercise: words
#
# How many numbers does a rank send in a step of the pair, forward and backward, in a network in which other layers
# come before it? Take a ring for each all-reduce, $2 (N - 1)/N$ for each number.
#
# <details><summary>Hint</summary>Which arrays does your pair all-reduce, and how long are they with a part of the
# tokens? Which weights does a rank have, and which ranks have the same ones? The second bias is whole.</details>


# %% exercise="words"
def words(tokens, sizes, data, tensor):
    """Numbers that each rank sends in a step of the pair, both ways and with the gradients: a number, not rounded.

    tokens: of all ranks together; sizes: (inputs, hidden, outputs) of the pair; the hidden ones are cut.
    data: groups that share the tokens; tensor: ranks of a group, which share the layers. data · tensor ranks in all.
    """
    ### BEGIN SOLUTION
    into, hidden, out = sizes
    activations = (into + out) * tokens / data
    weights = (into * hidden + hidden + hidden * out) / tensor + out
    return 2 * (tensor - 1) / tensor * activations + 2 * (data - 1) / data * weights
    ### END SOLUTION


# %%
check(words)

# %% hidden="words" points=4
### BEGIN HIDDEN TESTS
points(words, 4)
### END HIDDEN TESTS

# %% [markdown]
# Your function against the real ranks: your `Cut` runs with all three plans, and we count what leaves each rank's
# sockets.
#
# ### Predict
#
# A pair with 64 inputs, 256 hidden numbers and 64 outputs, 256 tokens in a step. Which plan sends least: `"data"`,
# `"tensor"` or `"both"`? And by how many per cent does the count at the sockets exceed your function there, on average
# over the plans?

# %% editable=true
predict("fewest numbers with 256 tokens", None)
predict("count at the sockets above the function, %", None)

# %%
counted = pd.DataFrame(
    [{"rank": rank, **row} for rank, rows in enumerate(ranks.call(lambda groups: wire_words.count(groups, Cut)))
     for row in rows]
)  # fmt: skip
counted["predicted"] = [
    words(row.tokens, wire_words.SIZES, *wire_words.PLANS[row.plan]) for row in counted.itertuples()
]
means = counted.groupby(["tokens", "plan"])[["predicted", "counted"]].mean()
measured(
    "fewest numbers with 256 tokens",
    means.loc[256, "counted"].idxmin(),
    "Each plan's load has a part that grows with the tokens and one that does not. Half of each can be less than the "
    "whole of either.",
)
measured(
    "count at the sockets above the function, %",
    100 * float((means.loc[256, "counted"] / means.loc[256, "predicted"]).mean() - 1),
    "Before each collective the ranks agree on what is ready; that travels, too.",
)
figures.plans(words, counted, caption=plots.provenance("one pair of layers, float64", 4))

# %% [markdown]
# Data parallelism sends the same whatever the tokens; tensor parallelism sends in proportion to them. Between the two
# crossings, 2 × 2 sends less than either.
#
# ### Predict
#
# Now three real sizes, still on four ranks: AlexNet's dense layers (9,216 → 4,096 → 4,096) with 256 images; two
# convolutions of ResNet-34, 3 × 3 with 256 channels on 14 × 14 places, with 256 images; and a transformer's dense
# pair (4,096 → 16,384 → 4,096) with 16,384 tokens. Which plan moves fewest words for each?

# %% editable=true
predict("AlexNet's dense layers", None)
predict("convolutions of ResNet-34", None)
predict("a transformer's dense layers", None)

# %%
LAYERS = {
    # A convolution's weight is used at every place of the image: each place is a token, and 3 × 3 are nine weights.
    "AlexNet's dense layers": (256, (9_216, 4_096, 4_096)),
    "convolutions of ResNet-34": (256 * 14 * 14, (256, 9 * 256, 256)),
    "a transformer's dense layers": (16_384, (4_096, 16_384, 4_096)),
}
million = pd.DataFrame(
    {layer: {plan: words(*given, *cut) / 1e6 for plan, cut in wire_words.PLANS.items()}
     for layer, given in LAYERS.items()}
).T  # fmt: skip
for layer in LAYERS:
    measured(layer, million.loc[layer].idxmin(), "Compare tokens times width with the number of weights.")
million.round(1).rename_axis("million numbers a rank")

# %% [markdown]
# - Many weights and few tokens: cut the layer. Few weights, used at many places: share out the data. Where both loads
#   are nearly equal, cut both ways.
# - Words are not all. Data parallelism's all-reduce can hide: it overlaps with the rest of the backward pass (4b).
#   Tensor parallelism's hides less: the next layer needs the sum, and only the gradients of the layer's own weights can
#   be computed meanwhile. That is why the ranks of a tensor group are put on one
#   host, where links are fast, and data parallelism goes between hosts.
# - Nor does each plan need the same memory: with data parallelism every rank has all weights (5c shares them out).
# - For networks that are too deep for a rank, there is the other direction: 7b cuts between the layers.
#
# ## Your guesses

# %%
ranks.close(wait=False)
predictions.table()

# %% [markdown]
# ## Summary
#
# - The backward pass of a collective is its adjoint. Copying becomes summing, gathering becomes a reduce-scatter, and
#   all-to-all goes back as it came. ⟨Ax, y⟩ = ⟨x, A\*y⟩ with random numbers checks any of them.
# - What is whole on all ranks counts once. So the pair of layers has one all-reduce forward and one backward, and
#   that is all.
# - Attention is cut by heads. The loss is cut by its vocabulary, and moves three numbers for each token.
# - Experts are reached by all-to-all, four times in a step. A balance loss sums products of means: add up over the
#   ranks first, then multiply.
# - Tensor parallelism moves activations and their gradients, data parallelism the gradients of weights. Count both
#   before you cut.
#
# Next: 7b cuts the network between its layers.
#
# - M. Shoeybi et al.: *Megatron-LM: Training Multi-Billion Parameter Language Models Using Model Parallelism.*
#   arXiv:1909.08053
# - W. Fedus, B. Zoph, N. Shazeer: *Switch Transformers: Scaling to Trillion Parameter Models with Simple and Efficient
#   Sparsity.* arXiv:2101.03961
# - D. Lepikhin et al.: *GShard: Scaling Giant Models with Conditional Computation and Automatic Sharding.*
#   arXiv:2006.16668
# - N. Shazeer et al.: *Outrageously Large Neural Networks: The Sparsely-Gated Mixture-of-Experts Layer.*
#   arXiv:1701.06538
# - P. Patarasuk, X. Yuan: *Bandwidth optimal all-reduce algorithms for clusters of workstations.* J. Parallel and
#   Distributed Computing 69(2), 2009
