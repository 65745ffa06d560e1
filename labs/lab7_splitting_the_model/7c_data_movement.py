# %% [markdown]
# # 7c Data movement
#
# A multiplication is cheap. What costs time and energy is to bring it its numbers: from another rank, as in 7a and 7b,
# from memory, or from the next cache. 1f counted the least that a layer can move, each matrix once, and drew a roofline
# from it. But a cache may be far too small for that. Here you find out how little a product can move at all, and how.
#
# **You will be able to** say what a layer's energy goes to, and for which layers a batch can change that; order the
# loops of a product so that it moves few words; find the lower bound and the tile that attains it, by a linear program,
# for long loops and for short ones; and count the cycles of a systolic array.
#
# **Time:** 70 minutes; the runs take about 15 seconds on 2 CPU cores. There is nothing for a GPU to do.
#
# **Needs:** 1f, section *From GEMV to GEMM*. A C++ compiler, as for Horovod; without one you see recorded times.

# %%
import math
import os

import numpy as np
import pandas as pd
from IPython.display import Image
from scipy.optimize import linprog

from course_lib.notebook import plots, predictions, widgets
from course_lib.notebook.predictions import measured, predict
from labs.lab7_splitting_the_model.lessons import energy, machine, movement, systolic
from labs.lab7_splitting_the_model.lessons import figures_7c as moving
from labs.lab7_splitting_the_model.lessons.checks_7c import check, points

QUICK = "COURSE_SLICE" in os.environ  # a test, or grading: less will do

# %% [markdown]
# ## Energy
#
# Picojoules of an operation, and of an access to one word: whole numbers of 16 bits, floating-point numbers of 64
# (Pedram et al. 2017). Horowitz's keynote of 2014 agrees on DRAM: 1.3 to 2.6 nJ for 64 bits. The tutorial heads this
# table *memory access is more than 500 times arithmetic energy*. That is DRAM against one addition; we count a
# multiplication and an addition together.

# %%
energy.PICOJOULES.rename(columns={16: "whole, 16 bits", 64: "floating point, 64 bits"})

# %% [markdown]
# A dense layer with 128 inputs and 128 outputs in 64-bit numbers. It runs on a processor with 64 words of registers,
# an SRAM of 4,096 words, and DRAM. Two orders of its multiply-adds are counted:
#
# - **row by row**: one example after the other, each output a row times a column (matrix times vector, GEMV);
# - **blocked**: in blocks that fit the SRAM, and in them blocks that fit the registers (matrix times matrix, GEMM).
#
# ### Predict
#
# How many picojoules does DRAM take for each multiply-add, row by row? And blocked, with a batch of 64?

# %% editable=true
predict("pJ of DRAM, row by row", None)
predict("pJ of DRAM, blocked, batch 64", None)

# %%
spent = pd.read_csv("recorded/layer_energy.csv", comment="#").set_index(["order", "batch"])
measured(
    "pJ of DRAM, row by row",
    float(spent.loc[("row by row", 64), "DRAM"]),
    "Every weight is used once each time it comes, whatever the batch: the SRAM holds a quarter of the weights, and "
    "they are thrown out before the next example.",
)
measured(
    "pJ of DRAM, blocked, batch 64",
    float(spent.loc[("blocked", 64), "DRAM"]),
    "2,560 / 64 is 40: the weights' share. The blocks fetch the inputs four times, which is 80, and the outputs twice, "
    "there and back, another 80.",
)
Image("recorded/layer_energy.png", width=plots.WIDTH)

# %% [markdown]
# - Row by row DRAM takes 105 times the energy of arithmetic, at every batch.
# - Blocked, DRAM falls from 2,620 to 200 pJ. The registers' block spares the SRAM, too: 13.8 pJ instead of 52.4.
# - A batch of 64 leaves DRAM at 8 times the arithmetic. Is a larger batch enough?
#
# `course reproduce layer_energy`, typed in a terminal, makes it again in about 20 seconds: the accesses are counted in
# a simulation.
#
# ### Exercise: enough
#
# At best a layer reads its weights from DRAM once for a batch, and each example's inputs once, and writes each
# example's outputs once. Only DRAM and arithmetic count. What is the smallest batch with which DRAM takes no more
# energy than arithmetic?
#
# <details><summary>Hint</summary>Write both energies for a batch of <em>b</em>. Which terms grow with <em>b</em>? Can
# the ones of DRAM grow faster than that of arithmetic?</details>


# %% exercise="enough"
def enough(inputs, outputs, arithmetic, word):
    """The smallest batch of a dense layer with which DRAM takes no more energy than arithmetic; None if none is enough.

    arithmetic: pJ of a multiplication and an addition; word: pJ of a DRAM access.
    """
    ### BEGIN SOLUTION
    per_example = arithmetic * inputs * outputs - word * (inputs + outputs)
    return math.ceil(word * inputs * outputs / per_example) if per_example > 0 else None
    ### END SOLUTION


# %%
check(enough)

# %% hidden="enough" points=3
### BEGIN HIDDEN TESTS
points(enough, 3)
### END HIDDEN TESTS

# %%
widths = (128, 256, 512, 1_024, 2_048, 4_096)
costs = {"64 bits": (25, 2_560), "16 bits": (0.8, 640)}
smallest = {name: [enough(width, width, *cost) or "none" for width in widths] for name, cost in costs.items()}
pd.DataFrame(smallest, index=pd.Index(widths, name="inputs and outputs"))

# %% [markdown]
# Below a certain width no batch is enough: an example's own inputs and outputs cost more than what is computed with
# them. Only fewer trips to DRAM help there, as when several layers run on the same example while it is in the cache.
# Narrow numbers, here whole ones, make arithmetic cheaper faster than DRAM: with 16 bits a layer has to be wider.
#
# ## The caches of this machine
#
# Between registers and DRAM a processor has several caches. Intel's 486 of 1989 had one of 8 KB on the chip. The
# Pentium Pro of 1995 brought a second level (256 KB, a chip of its own in the same package), and the Itanium 2 a third
# on the chip (6 MB in 2003). How large are yours, and how far away? A small C++ program (`lessons/hierarchy.cpp`) reads
# arrays of many sizes in two ways:
#
# - **waiting**: each number read is the address of the next, in a random order. No read can start before the last one
#   has ended. One number for each line of 64 bytes.
# - **in order**: numbers of 8 bytes are added up, one after the other. The processor knows what comes next, and asks
#   for it ahead of time.
#
# ### Predict
#
# How many times longer does a waiting read take in the largest array (64 MiB) than in the smallest (8 KiB)? And how
# many 8-byte numbers can be read in order from the largest array while one waiting read lasts?

# %% editable=true
predict("waiting read, 64 MiB over 8 KiB", None)
predict("numbers in order during one waiting read", None)

# %%
whole_hierarchy = pd.read_csv("recorded/memory_hierarchy.csv", comment="#")
sizes = [2**k * half // 2 for k in range(13, 20 if QUICK else 26) for half in (2, 3)] + ([] if QUICK else [2**26])
reads, here = machine.live(lambda: machine.hierarchy(sizes), whole_hierarchy[whole_hierarchy["bytes"] <= 2**26])
medians = reads.groupby("bytes")[["nanoseconds", "gigabytes"]].median()
near, far = medians.iloc[0], medians.iloc[-1]
measured(
    "waiting read, 64 MiB over 8 KiB",
    far["nanoseconds"] / near["nanoseconds"],
    "The nearest cache answers in a few cycles. DRAM takes hundreds.",
)
measured(
    "numbers in order during one waiting read",
    far["nanoseconds"] * far["gigabytes"] / 8,
    "Near 1? Then the processor would wait for each number; in order it fetches many lines ahead.",
)
moving.hierarchy(reads, machine.caches() if here else {}, "one core" if here else "recorded on another machine")

# %% [markdown]
# What you should see on the left is stairs, a step for each cache. L1, L2 and L3 are the sizes that the system reports.
# Recorded with nothing else running (`course reproduce memory_hierarchy`, about half a minute):

# %%
Image("recorded/memory_hierarchy.png", width=plots.WIDTH)

# %% [markdown]
# - A waiting read took 1.2 ns in 8 KiB, 3.9 ns in 64 KiB, 15 ns in 2 MiB and 173 ns in 64 MiB: 146 times as long.
# - In order the loss is far smaller: 92 GB/s in 128 KiB, and 23 GB/s in 64 MiB. That is 500 numbers of 8 bytes in the
#   time of one waiting read.
# - The system reports an L3 of 32 MiB, but from 6 MiB on a waiting read is nearly as slow as from DRAM. The machine is
#   virtual: its neighbours may fill the same cache, and addresses in many pages have to be translated, too. This
#   measurement can't tell the two apart.
#
# ## Words moved
#
# Now without a clock. The model: a memory, and in front of it a cache of $M$ words. A product
# $C_{ij} \mathrel{+}= A_{ip} B_{pj}$ has $N$ = rows × inner × columns multiply-adds, in any order. What is not in the
# cache has to be fetched. When the cache is full, the word that was used least recently makes room (LRU). We count the
# words fetched.
#
# An order is a list of loops with their steps, outermost first: `[("i", 8), ("p", 1), ("j", 1), ("i", 1)]` goes through
# `i` in blocks of 8, for each block through `p`, for each `p` through `j`, and for each `j` through the values of `i`
# in the block. Every loop ends with a step of 1.
#
# ### Predict
#
# A product with i, p, j of 24, 30, 16 and a cache of 100 words. In each of these three orders one of the arrays A, B
# and C is fetched again in every iteration. Which?

# %% editable=true
predict("i, j, p: fetched in every iteration", None)
predict("p, i, j: fetched in every iteration", None)
predict("j, p, i: fetched in every iteration", None)

# %%
small, ROOM = movement.matrix_product(24, 30, 16), 100
naive = {loops: [(loop, 1) for loop in loops.split(", ")] for loops in ("i, j, p", "p, i, j", "j, p, i")}
by_array = {name: movement.moved(small, order, ROOM) for name, order in naive.items()}
for name, fetched in by_array.items():
    measured(
        f"{name}: fetched in every iteration",
        max(fetched, key=fetched.get),
        "The one that does not depend on the outermost loop: it comes by as a whole for each value of that loop.",
    )
pd.DataFrame(by_array).T.assign(iterations=small.iterations)

# %% [markdown]
# Without blocks one of the three always comes back too late: nearly all of it has been thrown out before the outermost
# loop's next value. No order of these three loops avoids that. Blocks do.
#
# ### Exercise: an order
#
# For any lengths of i, p and j and any cache, write an order that moves few words. The check counts them and compares
# with a lower bound, of which the next part speaks. Asked for: at most 1.75 times the bound where all loops are long,
# 1.25 times where one is short (2 or 3). Three equal blocks that share the cache are not good enough.
#
# <details><summary>Hint</summary>Which array could stay in the cache nearly alone, as one block, while the other two
# come by, a row and a column at a time? Per word of the passing row and column, how many multiply-adds does the block
# allow, and so which shape should it have? LRU needs a little more room than the block,
# because what comes by takes some, too. And what if one loop is shorter than that shape?</details>


# %% exercise="order"
def order(sizes, words):
    """An order of a product's loops that moves few words through an LRU cache.

    sizes: {"i": …, "p": …, "j": …}, the lengths of the loops (C[i, j] += A[i, p] * B[p, j]); words: of the cache.
    Returns a list of (loop, step), outermost first, with a step of 1 for each loop.
    """
    ### BEGIN SOLUTION
    short, middle, longest = sorted(sizes, key=sizes.get)
    side = min(sizes[short], max(1, math.isqrt(words) - 2))
    other = max(1, min(sizes[middle], (words - 2 * side) // (side + 2)))  # two rows and columns pass beside the block
    return [(short, side), (middle, other), (longest, 1), (middle, 1), (short, 1)]
    ### END SOLUTION


# %%
check(order)

# %% hidden="order" points=5
### BEGIN HIDDEN TESTS
points(order, 5)
### END HIDDEN TESTS

# %%
third = math.isqrt(ROOM // 3)
cubes = [("i", third), ("j", third), ("p", third), *naive["i, j, p"]]
counted = {
    name: sum(movement.moved(small, some, ROOM).values())
    for name, some in {**naive, "three equal blocks": cubes, "yours": order(dict(small.sizes), ROOM)}.items()
}
moving.orders(counted, movement.least_words(small, ROOM), f"i, p, j of 24, 30, 16 · cache of {ROOM} words, LRU")

# %% [markdown]
# ## The lower bound
#
# How can one know that no order moves less? Cut any run into stretches in each of which $X - M$ words are fetched. In a
# stretch no more than $X$ words can be used: $M$ that were in the cache, and those fetched. If $X$ words allow at most
# $\chi$ multiply-adds, there are at least $N/\chi$ stretches, the last of them perhaps not full.
#
# So what counts is how many iterations a limited number of words allows. Dinh and Demmel (2020) answer this for all
# *projective* nests, in which each array is indexed by some of the loops: by a linear program. Ask first for the
# largest **tile**: a box of iterations, of length $b$ in each loop, for which each array's part has at most $M$ words.
# (That is $M$ for each array, not for all together: constant factors are left out until the end.) Write
# $b = M^\lambda$.
#
# ### Predict
#
# How many iterations does the largest tile have for each of its $M$ words of an array, as a power of $M$? For the
# product with long loops; for matrix times vector, $y_i \mathrel{+}= A_{ij} x_j$; and for all pairs,
# $f_i \mathrel{+}= g(a_i, b_j)$.

# %% editable=true
predict("power of M, product", None)
predict("power of M, matrix times vector", None)
predict("power of M, all pairs", None)

# %% [markdown]
# ### Exercise: the tile
#
# SciPy's `linprog(c, A_ub=…, b_ub=…, bounds=…)` finds the $x$ with the *smallest* $c \cdot x$ for which
# $A_{ub}\, x \le b_{ub}$, within bounds (low, high) for each $x$; `.x` of what it returns is the solution. A nest has
# `nest.sizes`, the length of each loop as in `{"i": 20, "j": 17}`, and `nest.arrays`, the loops that index each array,
# as in `{"A": "ij", "x": "j", "y": "i"}`.
#
# <details><summary>Hint</summary>What becomes of a product of lengths when each is a power of M? The tile of a loop
# can't be longer than the loop: which power of M is that?</details>


# %% exercise="exponents"
def exponents(nest, words):
    """The exponents λ of the largest tile: the tile is `words` to the power of λ long in each loop.

    nest: sizes and arrays, see above; words: M. Returns {loop: λ}.
    """
    ### BEGIN SOLUTION
    loops = list(nest.sizes)
    held = [[loop in indices for loop in loops] for indices in nest.arrays.values()]
    longest = [(0, math.log(nest.sizes[loop], words)) for loop in loops]
    found = linprog([-1] * len(loops), A_ub=np.array(held, float), b_ub=[1] * len(held), bounds=longest)
    return dict(zip(loops, found.x))
    ### END SOLUTION


# %%
check(exponents)

# %% hidden="exponents" points=4
### BEGIN HIDDEN TESTS
points(exponents, 4)
### END HIDDEN TESTS

# %%
LONG = 10**6
nests = {
    "product": movement.matrix_product(LONG, LONG, LONG),
    "matrix times vector": movement.matrix_vector(LONG, LONG),
    "all pairs": movement.all_pairs(LONG, LONG),
}
for (name, nest), reveals in zip(
    nests.items(),
    (
        "The tile is √M long in each loop: M words of A, and √M uses of each.",
        "A holds nearly all the words, and each of them is used once, however large the cache is.",
        "M particles meet M others: no array has two loops, so that the tile may be M long in both.",
    ),
):
    measured(f"power of M, {name}", round(sum(exponents(nest, 1_024).values()) - 1, 3), reveals)

# %% [markdown]
# Could a set of iterations that is no box do better? No. The *dual* of your program has a variable $s$ for each array
# and $t$ for each loop. Its conditions are those under which an inequality of Hölder, Brascamp and Lieb holds for
# every set of iterations:
#
# $$\text{iterations} \le \prod_{\text{arrays}} (\text{words used of it})^{s} \prod_{\text{loops}} (\text{length})^{t}$$
#
# Both programs have the same optimum: the box that is a tile uses its words as well as any set can. So, up to a
# constant factor, a nest of more than one tile has to move $N \cdot M^{1 - \Sigma\lambda}$ words, and tiles attain it.
# (Christ et al. 2013 have the bound for long loops; the product's is the $N/\sqrt{M}$ of Hong and Kung, 1981.)
# `movement.least_words` keeps the constants; it is the bound of the check above.
#
# Your exponents as orders: tiles for $M/4$ words, as parts of several arrays have to fit.


# %%
def tiled(nest, words):
    """The order by your tiles."""
    lengths = {loop: int((words / 4) ** power + 1e-9) for loop, power in exponents(nest, words // 4).items()}
    return movement.tiled(nest, lengths), lengths


ROOM = 256
nests = {
    "product, 40 × 40 × 40": movement.matrix_product(40, 40, 40),
    "product, batch 2": movement.matrix_product(2, 96, 96),
    "matrix times vector": movement.matrix_vector(160, 160),
    "all pairs": movement.all_pairs(400, 400),
    "pointwise convolution, 3 → 16": movement.pointwise_convolution(2, 200, 3, 16),
}
rows = {}
for name, nest in nests.items():
    by_tiles, lengths = tiled(nest, ROOM)
    least, count = movement.least_words(nest, ROOM), sum(movement.moved(nest, by_tiles, ROOM).values())
    rows[name] = {
        "tile": " × ".join(str(lengths[loop]) for loop in nest.sizes),
        "iterations": nest.iterations,
        "moved by tiles": count,
        "lower bound": round(least),
        "ratio": round(count / least, 2),
    }
pd.DataFrame(rows).T

# %% [markdown]
# Every nest stays within a small factor of its bound. Most of it comes from the quarter of the cache that a tile is cut
# to: where a word serves M iterations, that costs a factor of 4, in a product 2, in matrix times vector nothing. Your
# order of the exercise wastes less, but is made for products only.
#
# ### A short loop
#
# The bound $N/\sqrt{M}$ holds for every product, but a layer with a small batch can't come near it. Your program knows
# why: the tile can't be longer than the loop.
#
# ### Predict
#
# A layer of 64 inputs and 64 outputs, a cache of 256 words. From which batch (a power of 2) on does the program's
# optimum stay the same, so that larger batches no longer lower the words for each multiply-add, up to constants?

# %% editable=true
predict("batch at which the bound changes its form", None)

# %%
batches = [2**k for k in range(4 if QUICK else 7)]
sums = {batch: sum(exponents(movement.matrix_product(batch, 64, 64), ROOM).values()) for batch in batches}
measured(
    "batch at which the bound changes its form",
    next(batch for batch in batches if math.isclose(sums[batch], max(sums.values()), abs_tol=1e-6)),
    "√M. From there on every loop is long for this cache, and the batch is a loop like the others.",
)
rows = []
for batch in batches:
    dense = movement.matrix_product(batch, 64, 64)
    ways = {
        "row by row": naive["i, j, p"],
        "your tiles": tiled(dense, ROOM)[0],
        "your order": order(dict(dense.sizes), ROOM),
    }
    counts = {name: sum(movement.moved(dense, some, ROOM).values()) for name, some in ways.items()}
    bound = movement.least_words(dense, ROOM)
    rows.append({"batch": batch, "iterations": dense.iterations, **counts, "bound": bound})
moving.short_loops(pd.DataFrame(rows), ROOM, f"64 inputs, 64 outputs · cache of {ROOM} words, LRU")

# %% [markdown]
# In a product the program has two kinds of optimum. Where all loops are longer than $\sqrt{M}$, $\Sigma\lambda$ is 3/2:
# a word serves $\sqrt{M}$ multiply-adds. Where one is shorter, its exponent stops at the length of the loop. The other
# two together add at most 1, because the array that they index may take no more than M words. Then a word serves as
# many multiply-adds as the short loop has values, and a larger cache is of no use.
#
# - **Batch 1** is matrix times vector: every weight moves once for one multiply-add, and no order changes that. This is
#   the slant of 1f's roofline. The dashed line, which the bound tends to when all loops are long, is far too low here.
# - **Up to √M** the first doublings of the batch nearly halve the bound; near √M it levels off. And an order that uses
#   it follows for a while. Row by row gains nothing.
# - **From there on** the batch hardly matters, only the cache does. 1f's least traffic, each matrix once, is lower,
#   but needs a cache that holds a whole matrix.
#
# A pointwise (1 × 1) convolution is the same product: its rows are all pixels of all images, so that loop is long with
# a batch of 1. Short are its channels: with 3 inputs a word serves about 3 multiply-adds at best, whatever the batch.
#
# ## Seconds
#
# A processor's registers are a cache, too, the smallest. The program `lessons/products.cpp` multiplies matrices of
# 1,056 × 1,056 in two ways: each number of C as a row times a column; and with a block of rows × 32 numbers of C that
# stays in registers while rows of B pass by.
#
# A register holds several numbers, its **lanes**, and one instruction computes with all of them: data parallelism of
# the finest grain. NumPy's library, OpenBLAS, brings kernels for registers of 128, 256 and 512 bits; the same product
# runs with each that your processor has.
#
# And what could a core do at best? The same program makes as many multiply-adds with numbers that never leave the
# registers. The share of that speed which a product reaches is its **utilisation**.
#
# ### Predict
#
# By which factor is a block of 8 rows faster than a block of 1 row? And faster than row times column? How many per cent
# is the utilisation of row times column, and of the best block? And by which factor is NumPy faster in float32 than in
# float64, with the same registers?

# %% editable=true
predict("block of 8 rows over 1 row", None)
predict("block of 8 rows over row times column", None)
predict("utilisation of row times column, %", None)
predict("utilisation of the best block, %", None)
predict("float32 over float64", None)

# %%
PRODUCT = pd.read_csv("recorded/blocked_product.csv", comment="#")
side = 256 if QUICK else 1_056
blocks = [(-1, side), (0, side), *((rows, depth) for depth in (side // 4, side) for rows in (1, 2, 4, 8))]
raced, here = machine.live(lambda: machine.race(side, blocks), PRODUCT)
compiled = raced[raced["what"] == "C++"]
by_rows = compiled.groupby("rows")["gigaflops"].max()
for name, other, reveals in (
    ("1 row", 1, "With 8 rows a number of B that was fetched is used 8 times, not once."),
    (
        "row times column",
        0,
        "Not only for the words that move: there is one sum, in one lane of many, and each addition to it waits for "
        "the one before.",
    ),
):
    measured(f"block of 8 rows over {name}", by_rows[8] / by_rows[other], reveals)
peak = raced.loc[raced["what"] == "registers alone", "gigaflops"]  # none without a compiler
for name, speed, reveals in (
    ("row times column", by_rows[0], "One lane has work, and it waits: for its own last sum, and for a column of B."),
    (
        "the best block",
        by_rows.max(),
        "A block that stays in registers leaves little to wait for. Above 100? The clock's rate changes meanwhile.",
    ),
):
    if len(peak):
        measured(f"utilisation of {name}, %", 100 * speed / peak.median(), reveals)
numpy = raced[raced["what"] == "NumPy"].groupby(["kernels", "number"], sort=False)["gigaflops"].max().unstack()
if len(numpy):
    measured(
        "float32 over float64",
        float((numpy["float32"] / numpy["float64"]).iloc[-1]),
        "Twice as many lanes in the same register. (And half the bytes, which matters less in a large product.)",
    )
moving.products(raced, f"{side:,} × {side:,}, one core" if here else "recorded on another machine")

# %% [markdown]
# Recorded with nothing else running (`course reproduce blocked_product`, about 22 seconds):

# %%
Image("recorded/blocked_product.png", width=plots.WIDTH)

# %% [markdown]
# - Row times column reached 2.3 GFLOP/s, a block of 1 row 20.0, of 8 rows 104.3: 5.2 times as much as with 1 row, and
#   45 times as much as row times column. That is as fast as NumPy. The multiply-adds are the same. (Not all
#   of the 45 is saved words: row times column also uses one lane only.)
# - In registers alone the same core makes 117.3 GFLOP/s. So the utilisation is 2 % for row times column and 89 % for
#   the block of 8 rows.
# - A second block, for the caches, lost a tenth: with 256 of the 1,056 products at a time it was 92.7, slower in all
#   five runs. C is read and written five times, and the 32 columns of B that pass take 135 KB, which the L2 holds
#   anyway. Matrices with many more rows would need it.
# - NumPy in float32 was about twice as fast as in float64 with the same kernels. With 256 bits it was 2.7 times as fast
#   as with 128 in float32, more than lanes alone can give: the newer kernels also multiply and add in one instruction.
# - From 256 to 512 bits, 106.4 and 103.5 GFLOP/s, the ranges of five runs overlap: there is no gain. A register may be
#   wider than the units that compute with it. This processor (AMD, Zen 4) takes 512 bits in two halves.
#
# ## An array of multipliers
#
# Where nearly all work is products, a chip can be built around them. The tutorial quotes, in single precision, 1.2
# GFLOPS for each watt of a Core i7, 5.2 for a part of a GPU (GTX 480), and 55 for an array of multiply-add units that
# does linear algebra only (Pedram et al. 2012, scaled to 45 nm). Their utilisation is 70 to 95 %: it is not idle units
# that cost the energy. (Watts can't be measured on every machine, so yours has no row in that table.) NVIDIA's Volta
# has units for products of 4 × 4 matrices in each of its multiprocessors, 84 on the full chip. Google's TPU2 has
# **systolic** arrays. Here is a small one:
#
# - Each unit holds one weight: unit (r, c) that of input r and output c. Loading them takes a cycle for each row.
# - In each cycle a unit takes an input from its left neighbour and a sum from the one above, adds input times weight to
#   the sum, and hands the input on to the right and the sum on down. No wire is longer than from one unit to the next.
# - So that input r of an example meets its sum, it enters r cycles late. The examples follow each other.
#
# A layer with more inputs or outputs than units takes several *tiles*, one after the other. Units that multiply are
# blue; side 4, a batch of 3, one tile:

# %%
moving.wave(
    systolic.layer(batch=3, tiles=1, side=4).busy, "the number of the cycle, from 0; the first four load weights"
)

# %% [markdown]
# ### Predict
#
# A 16 × 16 array, one tile. Which share of all units in all cycles multiplies with a batch of 1? And from which batch
# (a power of 2) on is it more than half?

# %% editable=true
predict("share of units that multiply, batch 1", None)
predict("batch from which more than half multiply", None)

# %%
ways = {"8 tiles": (8, False), "8 tiles, a second register": (8, True)}
batches = [2**k for k in range(4 if QUICK else 8)]
used = pd.DataFrame(
    {
        "batch": batch,
        **{name: systolic.layer(batch, tiles, 16, more).utilisation for name, (tiles, more) in ways.items()},
    }
    for batch in batches
)
measured(
    "share of units that multiply, batch 1",
    float(used["8 tiles"][0]),
    "One example is a wave that crosses the array: each unit multiplies once, and waits for the rest of the time.",
)
measured(
    "batch from which more than half multiply",
    next(batch for batch in (2**k for k in range(9)) if systolic.layer(batch, 1).utilisation > 0.5),
    "Loading takes 16 cycles, and the wave 30 more to run out: a batch has to outweigh them.",
)
moving.utilisation(used, "16 × 16 units, cycle by cycle")

# %% [markdown]
# One tile or eight, the share is the same. The upper line is of an array in which a unit has a second register for a
# weight. The next tile's weights are loaded while this tile is in use, and the next tile's examples follow at once,
# unless its weights are not there yet.
#
# ### Exercise: cycles
#
# Write a formula: the check also asks for batches that no simulation gets through.
#
# <details><summary>Hint</summary><code>systolic.layer(batch, tiles, side, buffered).cycles</code> counts, and
# <code>moving.wave(systolic.layer(…).busy)</code> shows. When does the last sum leave the last unit? With a second
# register: how long after one tile's first example does the next tile's first one enter, at least?</details>


# %% exercise="cycles"
def cycles(batch, tiles, side, buffered):
    """Cycles of a systolic array, from the first weight that is loaded to the last sum that is ready.

    batch: examples; tiles: one after the other, each with weights of its own; side: rows and columns of the array;
    buffered: with a second register in each unit, for the weights of the next tile.
    """
    ### BEGIN SOLUTION
    wave = batch + 2 * (side - 1)
    if not buffered:
        return tiles * (side + wave)
    return side + (tiles - 1) * max(side, batch) + wave
    ### END SOLUTION


# %%
check(cycles)

# %% hidden="cycles" points=4
### BEGIN HIDDEN TESTS
points(cycles, 4)
### END HIDDEN TESTS

# %% [markdown]
# Matrix times vector, the work of a training that updates after each example, is the hard case: a batch of 1. Li and
# Pedram (2017) name what it needs, a broadcast of the inputs and a reduction of the products. A systolic array does
# both step by step. With long wires an input reaches a whole row at once, and a *tree* adds the products in pairs:


# %%
def compared(batch):
    """Cycles of one tile of 16 × 16: systolic, and with broadcast and tree."""
    inputs, weights = np.ones((1, batch, 16)), np.ones((1, 16, 16))
    return {
        "systolic": systolic.systolic(weights, inputs).cycles,
        "broadcast and tree": systolic.tree(weights, inputs).cycles,
    }


pd.DataFrame({batch: compared(batch) for batch in (1, 4, 16, 64)}).T.rename_axis("batch")

# %% [markdown]
# The tree takes away most of the wave, but not the loading: 16 of its 21 cycles with a batch of 1, which uses each
# weight once. A larger batch fixes that, or weights that stay where they are, in an array for each layer, as the
# stages in 7b keep theirs.
#
# ### TPU2
#
# The tutorial gives 45 TFLOPS, 600 GB/s and 16 GB of memory for a TPU2. In 1f's roofline they meet at 75 FLOP for each
# byte. A dense layer does 2 FLOP for each weight and example: it needs a batch of 75 with weights of 2 bytes, of 150
# with 4 bytes. Its arrays have 128 × 128 units (Jouppi et al. 2020). By your formula an array of that side with a
# second register is starved below a batch of 128. What would a successor need?
#
# ### Predict
#
# A chip with four times the arithmetic, 180 TFLOPS, and weights of 2 bytes is to reach its full speed with a batch of
# 128. How many GB/s must its memory deliver?

# %% editable=true
predict("GB/s for 180 TFLOPS with a batch of 128", None)

# %%
measured(
    "GB/s for 180 TFLOPS with a batch of 128",
    180e12 / 128 / 1e9,
    "Each weight of 2 bytes serves 128 examples with 2 FLOP each: 128 FLOP for a byte.",
)

# %% [markdown]
# Move the memory until the orange line stands at your batch.

# %%
widgets.explore(
    moving.roof,
    teraflops=widgets.slider("TFLOPS", 15, 600, 180, step=15),
    gigabytes=widgets.slider("memory, GB/s", 100, 6_000, 600, step=20),
    itemsize=widgets.choice("bytes of a weight", (2, 4, 1)),
)

# %% [markdown]
# A chip with more multipliers and the same memory asks for larger batches. That is why the tutorial ends with the wish
# for memory bandwidth, and for chips that let a model be split so that its weights stay where they are used.
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - Fetching a word from DRAM costs as much energy as a hundred multiply-adds in 64 bits, eight hundred in 16. A batch
#   spreads the weights, but not an example's own inputs and outputs.
# - For a product of long loops an order with blocks moves N/√M words, up to constants, and none moves fewer. One block
#   that nearly fills the cache is better than three equal ones.
# - For any projective nest a linear program finds the largest tile, and its dual proves it. A loop shorter than √M
#   changes the bound: then only a longer loop helps, not a larger cache.
# - A systolic array needs a batch at least as long as its side to be fully used, and a GEMV gives it 1.
#
# - A. Pedram, S. Richardson, S. Galal, S. Kvatinsky, M. Horowitz: *Dark Memory and Accelerator-Rich System Optimization
#   in the Dark Silicon Era.* arXiv:1602.04183
# - M. Horowitz: *Computing's Energy Problem (and what we can do about it).* ISSCC 2014
# - J.-W. Hong, H. T. Kung: *I/O complexity: the red-blue pebble game.* STOC 1981
# - M. Christ, J. Demmel, N. Knight, T. Scanlon, K. Yelick: *Communication lower bounds and optimal algorithms for
#   programs that reference arrays.* arXiv:1308.0068
# - G. Dinh, J. Demmel: *Communication-Optimal Tilings for Projective Nested Loops with Arbitrary Bounds.*
#   arXiv:2003.00119
# - T. M. Smith, B. Lowery, J. Langou, R. van de Geijn: *A Tight I/O Lower Bound for Matrix Multiplication.*
#   arXiv:1702.02017
# - A. Pedram, R. van de Geijn, A. Gerstlauer: *Codesign Tradeoffs for High-Performance, Low-Power Linear Algebra
#   Architectures.* IEEE Transactions on Computers, 2012
# - Y. Li, A. Pedram: *CATERPILLAR: Coarse Grain Reconfigurable Architecture for Accelerating the Training of Deep
#   Neural Networks.* arXiv:1706.00517
# - N. Jouppi et al.: *A Domain-Specific Supercomputer for Training Deep Neural Networks.* Communications of the ACM 63,
#   2020
# - J. Dean: the slides of ScaledML 2018, of which the tutorial takes the TPU2's numbers
