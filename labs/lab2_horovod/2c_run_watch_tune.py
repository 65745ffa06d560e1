# %% [markdown]
# # 2c Run, watch, tune
#
# Your script runs on many ranks. Now start it as it is started on a cluster, look inside while it runs, find out why
# it hangs, make it faster, and say honestly how much faster it became.
#
# **You will be able to** start ranks on one host and on several with `horovodrun` and `mpirun`; read Horovod's
# timeline and find the slow rank in it; recognise and cure a deadlock of unequal batches; choose fusion threshold,
# cycle time and compression from measurements; draw a scaling curve that does not flatter.
#
# **Time:** 60 minutes; the runs take about 4 minutes on 2 CPU cores; on GPUs they are not yet measured.
#
# **Needs:** 2a; from 2b the eight changes that make a script data-parallel. No GPU: each rank gets a processor core.

# %%
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from IPython.display import Image, display

from course_lib.notebook import plots, terminal, widgets
from course_lib.notebook.plots import timeline as pictures
from course_lib.notebook.widgets.growing_figure import Filling
from course_lib.ranks import launch, timeline
from labs.lab2_horovod.lessons import figures_2c as scaling
from labs.lab2_horovod.lessons import step_time as pace
from labs.lab2_horovod.lessons.checks_2c import check, points

RANKS = 2
CONTROLLERS = launch.controllers()
print("Horovod's controllers here:", *CONTROLLERS)

# %% [markdown]
# ## Run
#
# A launcher starts one process for each rank, here or by `ssh` on other hosts, tells each who it is and where the
# others are, gathers what they print, and ends all when one fails. There are two:
#
# - **`horovodrun`** is Horovod's. With `--gloo` it does everything itself; with `--mpi` it calls `mpirun` for you.
#   Without either it takes MPI where Horovod was built with it.
# - **`mpirun`** is Open MPI's. Clusters have it, and batch systems such as Slurm know it.
#
# [`small_network.py`](small_network.py) beside this notebook is a converted script as in 2b. It trains on drawn
# images, so it needs no data and learns nothing: it is here to be watched. The first run also writes a timeline, for
# later.

# %%
terminal.run(
    f"horovodrun -np {RANKS} --{CONTROLLERS[0]} --timeline-filename timeline.json python small_network.py",
    env=launch.ONE_THREAD,
)

# %% [markdown]
# That is what you would type in a terminal; `terminal.run` adds only that an interrupt of the cell ends all
# processes. `[1]<stdout>:` tells which rank is speaking. Now the same with `mpirun`:

# %%
if "mpi" in CONTROLLERS:
    terminal.run(
        f"mpirun -np {RANKS} -H localhost:{RANKS} --tag-output -bind-to none -map-by slot "
        "python small_network.py --steps 5",
        env=launch.ONE_THREAD,
    )
else:
    print("Horovod was built without MPI here, so that `mpirun` would start two runs of one rank each.")

# %% [markdown]
# What the flags do (Horovod 0.28.1, Open MPI 4.1):
#
# | | `horovodrun` | `mpirun` |
# |---|---|---|
# | ranks in all | `-np 8` | `-np 8` |
# | hosts, and ranks on each | `-H server1:4,server2:4` | `-H server1:4,server2:4` |
# | the same from a file, `server1 slots=4` a line | `--hostfile hosts` | `--hostfile hosts` |
# | pass an environment variable on | passes all of them | `-x NAME` or `-x NAME=value` for each |
# | don't tie a rank to one core, fill host by host | does so | `-bind-to none -map-by slot` |
# | plain TCP and shared memory, no InfiniBand verbs | does so | `-mca pml ob1 -mca btl ^openib` |
# | say which rank speaks | does so | `--tag-output` |
# | `ssh` on another port | `-p 2222` | `-mca plm_rsh_args "-p 2222"` |
# | which network card | `--network-interfaces eth0` | `-mca btl_tcp_if_include eth0` |
# | timeline | `--timeline-filename t.json` | `-x HOROVOD_TIMELINE=t.json` |
# | fusion threshold, in MiB or in bytes | `--fusion-threshold-mb 64` | `-x HOROVOD_FUSION_THRESHOLD=67108864` |
# | cycle time, ms | `--cycle-time-ms 5` | `-x HOROVOD_CYCLE_TIME=5` |
#
# "Does so" is literal: `horovodrun --mpi` composes such an `mpirun` line, and `--verbose` prints it. `-bind-to none`
# matters: Open MPI ties one or two ranks to a single core each (more of them to a socket), and all of TensorFlow's
# threads with it. The last three rows are environment variables in the end: any launcher can set them.
#
# ### Several hosts
#
# The command stays the same but for the hosts:
#
#     horovodrun -np 8 -H server1:4,server2:4 python train.py
#     mpirun -np 8 -H server1:4,server2:4 -bind-to none -map-by slot \
#         -x PATH -x LD_LIBRARY_PATH -x HOROVOD_TIMELINE=t.json \
#         -mca pml ob1 -mca btl ^openib python train.py
#
# It needs three things: `ssh server2` works without a password; script, environment and data have the same paths on
# all hosts; the hosts reach each other on any port. Rank 4 is the first one on `server2`. Its local rank is 0.
#
# Here is only one host, so the next results are recorded, on two *pretended* ones. Each is a network namespace with a
# name, an address and an SSH server of its own, joined by a virtual cable, at first as fast as the memory, then held
# down to 1 Gbit/s and to 100 Mbit/s. The converted script of 2b runs on two ranks, on one host and across both.
# `course reproduce two_hosts` (as root on Linux) records it again in about five minutes.

# %%
recorded = pd.read_csv("recorded/two_hosts.csv", comment="#")
recorded[["command", "hosts", "ranks saw", "local ranks", "seconds per step", "validation accuracy", "weights"]]

# %%
Image("recorded/two_hosts.png", width=plots.WIDTH)

# %% [markdown]
# - The last column is a fingerprint of the weights after training: the same in all runs, to the last bit. What is
#   learned does not depend on where the ranks are, nor on who starts them.
# - Across two hosts both ranks have *local* rank 0: each would take the first GPU of its host.
# - The gradients are 424 kB. At 100 Mbit/s they need 34 ms (dashed), and a step takes three times as long as without
#   the limit, although it computes the same. Lab 4 says how to predict that.
# - All lines of `mpirun` have `-bind-to none`. Without it, each of the pretended hosts tied its rank to its first
#   core, which was the same one, and a step took 76 ms. Real hosts have cores of their own, but there too all threads
#   of a rank would share a single one.


# %% [markdown]
# ## Watch
#
# Rank 0 wrote down what became of each tensor: that is the file `timeline.json` of the first run, of rank 0 alone and
# in the format of Chrome's tracer (open it in `chrome://tracing` or in Perfetto). `timeline.read` makes a table of
# it. Here it is by gradients, a row for each, with five activities:
#
# | | in Horovod's file | what happens |
# |---|---|---|
# | **negotiate** | `NEGOTIATE_ALLREDUCE` | one rank has the gradient, others don't: from the first to the last |
# | **queue** | | all have it, but others are reduced before it |
# | **copy in** | `MEMCPY_IN_FUSION_BUFFER` | several gradients are put into one buffer, to travel as one message |
# | **reduce** | `GLOO_ALLREDUCE` (`MPI_…`, `NCCL_…`) | the exchange: Gloo's is the ring of 2a |
# | **copy out** | `MEMCPY_OUT_FUSION_BUFFER` | back from the buffer |

# %%
LAYERS = [f"{layer} {kind}" for layer in ("conv1", "conv2", "dense1", "dense2") for kind in ("kernel", "bias")]


def gradients(path, name=LAYERS.__getitem__):
    """What became of each gradient in each step: row (its name), step, activity, start (from the first), seconds."""
    table = timeline.phases(timeline.read(path))
    number = table["tensor"].str.extract(r"grads_(\d+)", expand=False)
    table = table[number.notna()].assign(row=number.dropna().astype(int).map(name))
    return table.assign(start=table["start"] - table["start"].min())


even = gradients("timeline.json")
# Rows from the last layer to the first, as backpropagation goes.
even = even.sort_values("row", key=lambda names: -names.map(LAYERS.index), kind="stable", ignore_index=True)
later = 1e3 * even.loc[even["step"] == 10, "start"].min() - 5
widgets.explore(
    lambda start, width: pictures.rows(
        even, start / 1e3, width / 1e3, title="your run", caption=plots.provenance("drawn images", RANKS)
    ),
    start=widgets.slider("start (ms)", 0.0, 1e3 * even["start"].max(), later),
    width=widgets.slider("width (ms)", 0, 3, 80, step=0.05, log=True),
)

# %% [markdown]
# What to see (move the window over a few steps, then into one):
#
# - **The last layer comes first.** Backpropagation begins at the output. While its gradients are under way, those of
#   the first layers are still being computed: communication *overlaps* with computation.
# - **Bars that end together travelled together.** What is ready in the same cycle (1 ms) is fused into one message. A
#   bias of 10 numbers would not be worth a message of its own. Where a gradient is alone, it is not copied.
# - **Blue is waiting,** not work: another rank has not come so far, or the cycle is not over. The ranks share the
#   cores of one machine and never get through a step in the same time.
#
# ### Your own script
#
# If you are through with 2b, put your script in. It trains on 1,279 images here, to be quick.

# %% editable=true
my_script = None  # or "fashion_mnist.py"


# %%
def train(*arguments, script="small_network.py", show=True, env=None, **settings):
    """Run a script on two ranks; print what they print; return how it ended and the lines of their errors."""
    errors = []
    given = {"COURSE_SLICE": "1279", **(env or {})}
    with launch.start(script, [str(a) for a in arguments], RANKS, env=given, **settings) as run:
        for event in run:
            if event.kind == "output" and event.data["stream"] == "stderr":
                errors.append(event.data["text"])
            elif event.kind == "output" and show:
                print(f"{event.time:4.0f} s  [{event.rank}] {event.data['text']}", flush=True)
    return run.wait(), errors


def watch(script):
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "timeline.json"
        train("--epochs", 1, script=script, env={"HOROVOD_TIMELINE": str(trace)})
        table = gradients(trace, "gradient {}".format) if trace.exists() else pd.DataFrame()
    if table.empty:
        return print(f"No gradient of {script} was reduced: it needs the first four steps of 2b.")
    middle = 1e3 * table["start"].median()
    widgets.explore(
        lambda start, width: pictures.rows(table, start / 1e3, width / 1e3, title=script),
        start=widgets.slider("start (ms)", 0.0, 1e3 * table["start"].max(), middle),
        width=widgets.slider("width (ms)", 0, 3, 80, step=0.05, log=True),
    )


if my_script:
    watch(my_script)

# %% [markdown]
# ### How much of a step is communication?
#
# The bars overlap, so their sum is longer than the step. What is wanted is the time in which there is *any* bar.
#
# ### Predict
#
# In what part of a step (0 to 1) is some gradient on its way, in any of the five activities? In what part are numbers
# really moving (copy in, reduce, copy out)?

# %% editable=true
my_part_on_the_way = None
my_part_moving = None

# %% [markdown]
# ### Exercise: the time that bars cover
#
# <details><summary>Hint</summary>Go through the bars in the order of their starts (<code>np.argsort</code>) and
# remember the latest end so far. A bar adds what lies behind that end: nothing, a part of it, or all of it.</details>


# %% exercise="covered"
def covered(start, seconds):
    """The seconds during which there is at least one bar.

    start, seconds: arrays [n], n ≥ 1, of where the bars begin and how long they are, in any order. They may overlap,
    lie within each other and leave gaps. Returns a float; the arrays stay as they are.
    """
    ### BEGIN SOLUTION
    total, latest = 0.0, -np.inf
    for index in np.argsort(start):
        end = start[index] + seconds[index]
        total += max(0.0, end - max(start[index], latest))
        latest = max(latest, end)
    return total
    ### END SOLUTION


# %%
check(covered)

# %% hidden="covered" points=4
### BEGIN HIDDEN TESTS
points(covered, 4)
### END HIDDEN TESTS

# %% [markdown]
# With it, what a step is made up of. *Moving:* some numbers are copied or exchanged. *Waiting:* none are, but a
# gradient is ready on some rank. *The rest:* no gradient is on its way.


# %%
def parts(table):
    """Milliseconds of each step: moving, waiting and the rest; without the first two steps, in which ranks warm up."""
    begins = table.groupby("step")["start"].min()
    rows = {}
    for step in begins.index[2:-1]:
        bars = table[table["step"] == step]
        moves = bars[bars["activity"].isin(["copy in", "reduce", "copy out"])]
        on_the_way = covered(bars["start"].to_numpy(), bars["seconds"].to_numpy())
        moving = covered(moves["start"].to_numpy(), moves["seconds"].to_numpy())
        rest = begins[step + 1] - begins[step] - on_the_way
        rows[step] = {"moving": moving, "waiting": on_the_way - moving, "the rest": rest}
    return 1e3 * pd.DataFrame(rows).T


def show_parts(**runs):
    found = {name: parts(table) for name, table in runs.items()}
    for name, table in found.items():
        middle = table.median()
        print(f"{name}: a step takes {table.sum(axis=1).median():.0f} ms", end=", of which ")
        print(", ".join(f"{part} {ms:.1f}" for part, ms in middle.items()), "(medians)")
    return pictures.steps(found, plots.provenance("drawn images", RANKS))


def answer():
    table = parts(even)
    whole = table.sum(axis=1).sum()
    print(f"on the way: {1 - table['the rest'].sum() / whole:.2f} of the time, your guess {my_part_on_the_way}")
    print(f"moving: {table['moving'].sum() / whole:.2f} of the time, your guess {my_part_moving}")
    return show_parts(even=even)


answer()

# %% [markdown]
# With ranks that fight for two cores this changes from run to run. In ours some gradient was on its way for half to
# three quarters of the time, and numbers moved in a quarter to a third of it: this network has 300,000 weights, so
# 1.2 MB to exchange.
#
# Waiting is not all loss: as long as a gradient waits for its twin on the other rank, that rank computes. What *is*
# lost shows in the next experiment.
#
# ### A straggler
#
# Now the last rank sleeps 20 ms before each step, as if its GPU were hotter, its data farther away or its share of
# the work larger.
#
# ### Predict
#
# By how many milliseconds does a step become longer? Which of the three parts grows, in the timeline that rank 0
# writes? (Rank 0 does not sleep.)

# %% editable=true
my_growth_ms = None
my_part_that_grows = None

# %%
with tempfile.TemporaryDirectory() as folder:
    trace = Path(folder) / "late.json"
    # Without its response cache, Horovod also notes in each step which rank was ready when.
    train("--late", 20, env={"HOROVOD_TIMELINE": str(trace), "HOROVOD_CACHE_CAPACITY": "0"})
    late = gradients(trace)
    arrivals = timeline.arrivals(timeline.read(trace))
    arrivals = arrivals[arrivals["tensor"].str.contains("grads") & (arrivals["step"] >= 2)]


# %%
def compare():
    longer = parts(late).sum(axis=1).median() - parts(even).sum(axis=1).median()
    print(f"a step is {longer:.0f} ms longer; your guess: {my_growth_ms} ms, in {my_part_that_grows}")
    return show_parts(even=even, late=late)


compare()

# %% [markdown]
# Every rank has become as slow as the slowest. Rank 0 works as before, is ready, and waits. **A long NEGOTIATE is no
# sign of a slow network but of a slow rank.** (The exchange and the rest grow a little too: without the cache the
# ranks have more to tell each other, and a core that wakes from sleep starts slowly.)
#
# But which rank? With two you can guess. With 2,000 you need the marks in the trace: each tells that a rank has got a
# gradient ready. Here are some.

# %%
arrivals[arrivals["step"] == 10].head(6)

# %% [markdown]
# ### Exercise: who is late?
#
# <details><summary>Hint</summary><code>table.groupby([…])["start"].transform("min")</code> gives each row the
# smallest start of its group.</details>


# %% exercise="lateness"
def lateness(arrivals):
    """By how much each rank comes after the first one, on average.

    arrivals: table with the columns tensor, step, rank and start (seconds): when a rank had a tensor ready in a step.
    For each tensor in each step the rank that is first is late by 0 s, the others by what they come after it.
    Returns the mean lateness of each rank in seconds, a series by rank. The table stays as it is.
    """
    ### BEGIN SOLUTION
    first = arrivals.groupby(["tensor", "step"])["start"].transform("min")
    behind = arrivals["start"] - first
    return behind.groupby(arrivals["rank"]).mean()
    ### END SOLUTION


# %%
check(lateness)

# %% hidden="lateness" points=2
### BEGIN HIDDEN TESTS
points(lateness, 2)
### END HIDDEN TESTS


# %%
def show_lateness():
    print("on average, in ms:", {rank: round(1e3 * late_by, 1) for rank, late_by in lateness(arrivals).items()})
    by_step = pd.DataFrame({step: 1e3 * lateness(some) for step, some in arrivals.groupby("step")}).T
    return pictures.lateness(by_step, asleep=20, caption=plots.provenance("drawn images", RANKS))


show_lateness()

# %% [markdown]
# There it is. It may be more than the 20 ms of sleep: meanwhile rank 0 has both cores, gets ahead, and then waits
# while the other computes. On GPUs the ranks don't take each other's processors away.
#
# ## Hang
#
# All ranks must call the same collectives. The usual way to break that rule is data that don't divide: 2,561 images
# on two ranks are 1,281 and 1,280, with batches of 64 that is 21 and 20. Rank 0 asks for an average of gradients that
# rank 1 will never have; rank 1 is at the end of its epoch and asks for an average of metrics.
#
# ### Predict
#
# What do you see: an error, and from whom? Or nothing? Horovod has a *stall inspector*, which should warn when a
# tensor waits longer than `HOROVOD_STALL_CHECK_TIME_SECONDS` (60 by default) and end the run after
# `HOROVOD_STALL_SHUTDOWN_TIME_SECONDS` (by default never). Here they are 2 and 4.

# %% editable=true
my_prediction = ""

# %%
impatient = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "2", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "4"}


def words(errors):
    """What the stall inspector said, last."""
    told = [re.sub(r"^\[.*stall_inspector.cc:\d+\] ", "> ", line) for line in errors]
    last = max((i for i, line in enumerate(told) if line.startswith("> One or more")), default=None)
    if last is None:
        return "(The stall inspector said nothing.)"
    return "\n".join([told[last], *(t for t in told[last + 1 :] if re.match(r"Missing|\d+!?: \[|One or more", t))])


if "gloo" in CONTROLLERS:
    with tempfile.TemporaryDirectory() as folder:
        ended, errors = train(
            "--images", 2561, controller="gloo", env=impatient, patience=8, probe=Path(folder), timeout=60
        )
    print(words(errors), ended.message, sep="\n")
else:
    print("Horovod was built without Gloo here: the next cell has the other controller.")

# %% [markdown]
# Nothing. Two ranks wait, and nobody says a word. What ended it is the course's `launch.start(patience=8)`: no rank
# made a step for 8 seconds.
#
# And the inspector? In Horovod 0.28.1 with Gloo it looks, finds the waiting tensors, and then goes through the list
# of ranks to see who is missing. That list is empty: `GlooController` only *reserves* room for it
# (`global_ranks_.reserve(size_)` in `gloo_controller.cc`, where `resize` is needed). With MPI the list is filled:

# %%
if "mpi" in CONTROLLERS:
    ended, errors = train("--images", 2561, controller="mpi", env=impatient, timeout=60)
    print(words(errors), ended.message, sep="\n")
else:
    print("Horovod was built without MPI here. Recorded with Open MPI 4.1, the same run said:")
    print("> One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks …")
    print("Missing ranks:\n0!: [HorovodAllreduce]\n1: [DistributedSGD_Allreduce/…/HorovodAllreduce_grads_0, …]")
    print('One or more rank (marked by "!") is stalled for longer than 4 seconds. Will shutdown.')

# %% [markdown]
# Read it backwards. Rank 0 is missing for the *metric* (`HorovodAllreduce`), rank 1 (if it is listed) for the
# *gradients*: the ranks are at different places of the program, and the names say which. Then Horovod shuts down, and
# both ranks end with an error.
#
# When does it not help?
#
# - **With Gloo,** in this version: never. Give your job a time limit.
# - **When a rank is frozen** (swapping, a dead network). The inspector lives in the thread by which rank 0 talks to
#   the others, and that thread waits for the silent rank too. We stopped a rank with SIGSTOP: not a word.
# - **Late,** for gradients that were reduced before: they are in the response cache and first have to fall out of it.
#   So the word comes after two to four times the time that you have set.
# - **Where the ranks call the same names by chance.** Without averaged metrics, rank 0's last step would be averaged
#   with rank 1's first step of the *next epoch*. Nothing hangs, everything is one step off, until one rank has come
#   to the end and the other fails with "Horovod has been shut down".
#
# ### Exercise: the same number for all
#
# The cure is to count before. The images are dealt out like cards, as by `dataset.shard(ranks, rank)`: rank $r$ gets
# the images $r$, $r + N$, $r + 2N$, … It cuts them into batches; the last one may be smaller.
#
# <details><summary>Hint</summary><code>len(range(rank, examples, ranks))</code> is the number of examples of a rank.
# <code>-(-a // b)</code> is a/b, rounded up.</details>


# %% exercise="steps_per_epoch"
def steps_per_epoch(examples, ranks, batch):
    """How many steps all ranks can take together in an epoch.

    examples: how many there are; ranks: N; batch: examples in a batch, on each rank.
    Returns (batches, steps, left). batches: list, the number of batches of each rank, smaller ones included.
    steps: the largest number of *full* batches that every rank has. left: the examples that nobody trains on if each
    rank takes that many full batches.
    """
    ### BEGIN SOLUTION
    shares = [len(range(rank, examples, ranks)) for rank in range(ranks)]
    batches = [-(-share // batch) for share in shares]
    steps = min(shares) // batch
    return batches, steps, examples - ranks * batch * steps
    ### END SOLUTION


# %%
check(steps_per_epoch)

# %% hidden="steps_per_epoch" points=3
### BEGIN HIDDEN TESTS
points(steps_per_epoch, 3)
### END HIDDEN TESTS

# %% [markdown]
# For which sizes of a data set would a run with batches of 64 hang?


# %%
def dangerous():
    sizes = range(2048, 3072)
    differ = {n: [len(set(steps_per_epoch(size, n, 64)[0])) > 1 for size in sizes] for n in (2, 4, 8)}
    for ranks, flags in differ.items():
        print(f"{ranks} ranks: {100 * np.mean(flags):.1f} % of the sizes")
    return pictures.uneven(sizes, differ, "your steps_per_epoch; batches of 64 on each rank")


dangerous()

# %% [markdown]
# Of $N b$ successive sizes, $N - 1$ hang: those that are too many by 1, 2, … $N - 1$. That is at most one in 64, so a
# wrong script works on your test data and hangs in production, or on another number of ranks. The cure in the script
# is one word, `take(steps)`:


# %%
def cured():
    batches, steps, left = steps_per_epoch(2561, RANKS, 64)
    print(f"batches by rank: {batches}; every rank takes {steps}, {left} images are left out")
    ended, _ = train("--images", 2561, "--steps", steps)
    return ended.code == 0


cured()

# %% [markdown]
# The images left out are others in each epoch if they are shuffled before they are dealt out.
#
# Horovod's own cure is `hvd.join()`: a rank that has no more data says so, and the others go on without it. Rank 0
# has four gradients of 8.0 here, rank 1 has two. What does rank 0 get?

# %% editable=true
my_averages = None  # four numbers


# %%
def joined():
    import horovod.tensorflow as hvd

    hvd.init()
    averages = [float(hvd.allreduce(np.float32(8), name="gradient")) for _ in range(4 if hvd.rank() == 0 else 2)]
    hvd.join()
    return averages


print(f"rank 0 got {launch.call(joined, RANKS)[0]}; your guess: {my_averages}")

# %% [markdown]
# Nothing hangs, but a rank that has joined counts as zero and is still divided by: the average is too small. A step
# with one rank of two is half a step. It is meant for the last few batches; equal numbers are better.

# %% [markdown]
# ## Tune
#
# Four knobs, and what each is for:
#
# | knob | what it does | at first |
# |---|---|---|
# | `HOROVOD_FUSION_THRESHOLD` (bytes) | gradients that are ready together share a message, up to this size | 128 MiB |
# | `HOROVOD_CYCLE_TIME` (ms) | how long Horovod waits before it looks again what is ready | 1 |
# | `compression=hvd.Compression.fp16` | sends 16 bits for each number in place of 32 | off |
# | `backward_passes_per_step=k` | adds up the gradients of k batches, then exchanges once | 1 |
#
# The first two are read when Horovod starts, so each value needs a launch of its own (`horovodrun` also takes them as
# `--fusion-threshold-mb` and `--cycle-time-ms`). The others are arguments of `hvd.DistributedOptimizer`.
#
# ### Exercise: the bytes of a step
#
# First what must be sent. In 2a you counted the ring's messages: in all, a rank sends $2\frac{N-1}{N}$ of the array.
#
# <details><summary>Hint</summary>How many bytes has the whole gradient? Which part of it does a rank send in an
# exchange? In which part of the steps is there an exchange?</details>


# %% exercise="bytes_per_step"
def bytes_per_step(elements, ranks, itemsize=4, passes=1):
    """Bytes that one rank sends in a training step, if the gradient is summed by a ring; the mean over many steps.

    elements: numbers in the gradient; ranks: N; itemsize: bytes of a number, 4 for float32, 2 for fp16;
    passes: backward passes for each exchange.
    """
    ### BEGIN SOLUTION
    gradient = elements * itemsize
    exchange = 2 * (ranks - 1) / ranks * gradient
    return exchange / passes
    ### END SOLUTION


# %%
check(bytes_per_step)

# %% hidden="bytes_per_step" points=2
### BEGIN HIDDEN TESTS
points(bytes_per_step, 2)
### END HIDDEN TESTS

# %% [markdown]
# ### Predict
#
# Two ranks train the Wide ResNet of 1c at depth 16: 41 tensors, 172,218 numbers, 8 images for each rank and step.
# Without any exchange a step takes about 8 ms. What will the others take, and how many kilobytes will a rank send?

# %% editable=true
my_milliseconds = {"default": None, "no fusion": None, "cycle time 20 ms": None, "fp16": None, "4 passes": None}
my_kilobytes = {"default": None, "no fusion": None, "cycle time 20 ms": None, "fp16": None, "4 passes": None}

# %% [markdown]
# `pace.measure` starts the ranks and lets them train under all its settings in turns, 24 steps at a time; it is 200
# lines that you can read. Time is that of the slowest rank. Bytes are *counted*: what goes through the loopback
# interface, divided by ranks and steps.

# %%
BATCH = 8
QUICK = "COURSE_SLICE" in os.environ  # a test, or grading: less will do
DEPTH = 10 if QUICK else 16
own_launches = {
    "default": {},
    "no fusion": {"HOROVOD_FUSION_THRESHOLD": "0"},
    "cycle time 20 ms": {"HOROVOD_CYCLE_TIME": "20"},
}
same_launch = {
    "default": pace.Setting(BATCH),
    "fp16": pace.Setting(BATCH, fp16=True),
    "4 passes": pace.Setting(BATCH, passes=4),
    "no exchange": pace.Setting(BATCH, exchange=False),
}


def measure_knobs():
    tables = []
    with Filling("three launches of two ranks") as chart:
        for number, (name, env) in enumerate(own_launches.items()):
            chart.at(number / len(own_launches), name)
            settings = {name: pace.Setting(BATCH)} if env else same_launch
            tables.append(pace.measure(settings, 2, depth=DEPTH, blocks=1 if QUICK else 5, steps=24, env=env))
    table = pd.concat(tables, ignore_index=True)
    order = [*own_launches, "fp16", "4 passes", "no exchange"]
    return table.sort_values("setting", key=lambda names: names.map(order.index), kind="stable")


measured = measure_knobs()
knobs = pace.quiet(measured)
print(pace.disturbance(measured))
medians = knobs.groupby("setting", sort=False)[["seconds", "bytes"]].median()
summary = pd.DataFrame(
    {
        "ms": (1e3 * medians["seconds"]).round(1),
        "your guess (ms)": pd.Series(my_milliseconds),
        "kB": (1e-3 * medians["bytes"]).round(1),
        "your guess (kB)": pd.Series(my_kilobytes),
    }
).reindex(medians.index)
summary.fillna("")


# %%
def beside_the_formula():
    elements = knobs["elements"].iloc[0]
    expected = {name: bytes_per_step(elements, 2) for name in own_launches}
    expected["fp16"] = bytes_per_step(elements, 2, itemsize=2)
    expected["4 passes"] = bytes_per_step(elements, 2, passes=4)
    what = f"Wide ResNet, depth {DEPTH}, 8 drawn images each"
    return scaling.settings(knobs, expected, caption=plots.provenance(what, 2))


beside_the_formula()

# %% [markdown]
# The bytes fall on your formula, or a little to the right of it. What is more:
#
# - TCP's headers, for each packet; 41 small messages need more of them than one large one.
# - Horovod's own talk. In every cycle, so a thousand times a second, all ranks tell each other which gradients are
#   ready, even when none is. Look at *no exchange*, where nothing is trained together, and at the long cycle, where
#   less is said.
# - Whatever other programs send on this interface: your browser and this notebook's kernel, for instance.
#
# And the time:
#
# - **No fusion:** the same numbers in 41 messages. It is by far the worst: on one machine a message of a few
#   kilobytes takes hardly longer than one of a byte. What you pay for is the message.
# - **Cycle time:** a step must now wait for the next cycle, so it lasts a whole number of them. With more to compute
#   in a step the loss is smaller, and with thousands of tensors a longer cycle can even gain, for more is fused.
# - **fp16:** half the bytes, and no time gained, rather lost. Between processes of one machine bytes are cheap, and a
#   CPU has to convert numbers, and add up in a format for which most have no instructions. It pays where the network
#   is slow or the hardware adds fp16 itself. (What it does to the gradients' accuracy is another question: lab 5.)
# - **4 passes:** a quarter of the bytes, and most of the exchange's time is gone. But it is *another training*: the
#   weights move once in four batches, so the batch is four times as large. Horovod adds the four gradients up and
#   does not divide, unless you say `average_aggregated_gradients=True`: the step is four times as long. And
#   `optimizer.iterations` counts all four, so a learning-rate schedule runs four times as fast as the weights move.

# %% [markdown]
# More values, recorded with `course reproduce tuning`:

# %%
Image("recorded/tuning.png", width=plots.WIDTH)

# %%
recorded = pace.quiet(pd.read_csv("recorded/tuning.csv", comment="#")).groupby("setting", sort=False)
pd.DataFrame(
    {
        "blocks": recorded.size(),
        "ms": 1e3 * recorded["seconds"].median(),
        "fastest": 1e3 * recorded["seconds"].min(),
        "slowest": 1e3 * recorded["seconds"].max(),
        "kB": 1e-3 * recorded["bytes"].median(),
    }
).round(1)

# %% [markdown]
# ## Scale
#
# Two questions, two experiments:
#
# - **Strong scaling:** the same work on more ranks. The batch stays, each rank gets a N-th of it. How much sooner is
#   a step done?
# - **Weak scaling:** more work on more ranks. Each rank keeps its batch. How much longer does a step take?
#
# The speed-up is how many times as many images a second N ranks train as one does. The efficiency is the speed-up
# divided by N: the part of each rank that is of use.
#
# ### Exercise: efficiency
#
# <details><summary>Hint</summary>Let $T(N)$ be the seconds of a step. In strong scaling all steps have the same
# images, so the speed-up is $T(1)/T(N)$. In weak scaling a step on N ranks has N times as many. <code>seconds[ranks
# == 1]</code> picks $T(1)$ from an array.</details>


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
# 1, 2 and 4 ranks, one thread each, 480 images (strong: in all; weak: for each rank). What will the efficiency be at
# 2 and at 4, on your number of cores?
#
# A fall has several reasons. To tell them apart, each run is done twice: with Horovod, and as N *copies* that train
# at the same time and exchange nothing. What the copies lose, they lose to the machine: too few cores, one memory and
# one cache for all. What Horovod loses on top is the exchange, and waiting for the slowest.

# %% editable=true
my_efficiency = {"strong": {2: None, 4: None}, "weak": {2: None, 4: None}}

# %%
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
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


measured = measure_scaling()
runs = pace.quiet(measured)
print(pace.disturbance(measured))


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


def show_scaling():
    table = scaling_table()
    wide = table.pivot(index="ranks", columns=["scaling", "exchange"], values="efficiency")
    reasons = {}
    for kind in ("strong", "weak"):
        reasons[f"{kind}: efficiency"] = wide[kind][True]
        reasons[f"{kind}: your guess"] = pd.Series(my_efficiency[kind], dtype=object)
        reasons[f"{kind}: lost to the machine"] = 1 - wide[kind][False]
        reasons[f"{kind}: lost to the exchange"] = wide[kind][False] - wide[kind][True]
    shown = pd.DataFrame(reasons).loc[counts].map(lambda value: round(value, 2) if isinstance(value, float) else value)
    shown["start-up (s)"] = runs.groupby("ranks")["startup"].first().round(1)
    display(shown.fillna("").T)
    what = f"Wide ResNet, depth {DEPTH}, drawn images"
    return scaling.speed(table, CORES, caption=plots.provenance(what, max(counts)))


show_scaling()

# %% [markdown]
# Read the dashed lines first, for they are the ceiling.
#
# - **Cores.** Up to the number of cores each copy has one of its own. Beyond it they share, and N copies are together
#   as fast as the cores are. The efficiency of 4 ranks on 2 cores is at most a half, whatever Horovod does. (A
#   scheduler that lets a rank wait makes all wait: with exchange it is worse.)
# - **Memory and caches.** What copies lose *within* the number of cores, in the recorded run a quarter: one memory
#   bandwidth and one last-level cache for all. A machine may also lower its clock when all cores work, and two
#   "cores" of a virtual machine may be two threads of one.
# - **Exchange.** Between dashed and solid. It costs about the same in each step, and there is less and less work to
#   set against it in strong scaling: 480 images, then 240, then 120. So strong scaling falls faster. Weak scaling is
#   what most published curves show, and it is the kinder one: its batch grows, and lab 3 tells what a large batch
#   does to training.
# - **Small batches** are slower by themselves (1b): strong copies can fall below weak copies for that reason alone.
# - **Start-up.** None of this counts the seconds from the launch to the first step (last row), which grow with the
#   ranks on a machine. A training that takes a minute is not made faster by ranks that need half of one to start.
#
# And one is not in the figure: **what is T(1)?** Here it is one *thread*. TensorFlow would use all cores for a single
# process. The recorded experiment has that line too: one process with all cores, and no Horovod. There it trains
# 12,200 images a second; two ranks that share the batch train 9,800, and two with a batch each 11,600. So on a single
# CPU ranks gain nothing. They are for what one process can't use: several GPUs, several hosts. And a speed-up should
# be told over the best program for one machine, not over one that was held back.

# %%
Image("recorded/scaling.png", width=plots.WIDTH)

# %%
recorded = pace.quiet(pd.read_csv("recorded/scaling.csv", comment="#"))
recorded["images/s"] = recorded["ranks"] * recorded["batch"] / recorded["seconds"]
recorded.pivot_table("images/s", "ranks", "setting", "median").round(0).fillna("")

# %% [markdown]
# ## Amdahl's law
#
# If a part $s$ of the work cannot be shared out, and the rest is shared perfectly, then (Amdahl 1967)
#
# $$T(N) = T(1)\,\Big(s + \frac{1-s}{N}\Big), \qquad S(N) = \frac{T(1)}{T(N)} = \frac{1}{s + (1-s)/N} < \frac{1}{s}$$
#
# One number for everything that does not get shorter. Which $s$ fits measured speed-ups best? $S$ is not linear in
# $s$, but $1/S$ is. Bring all with $s$ to one side:
#
# $$\underbrace{\frac{1}{S} - \frac{1}{N}}_{b} = s\,\underbrace{\Big(1 - \frac{1}{N}\Big)}_{a}$$
#
# a straight line through 0. The least squares of $b - s\,a$ are at $s = \sum a\,b \,/ \sum a^2$.
#
# ### Exercise: the serial fraction
#
# <details><summary>Hint</summary>Two lines for the arrays a and b, one for the quotient of the sums. One rank gives a
# = 0 and so does not count; no need to leave it out.</details>


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
# Now two sets of data: your strong scaling, fitted on as many ranks as you have cores, and a published number. In
# April 2016 TensorFlow 0.8 was announced with a figure on two log axes: with 100 GPUs it trained Inception 56 times
# as fast as with one.
#
# ### Predict
#
# Read it off the figure below, without calculating: how efficient are those 100 GPUs? How many GPUs' worth of work is
# lost?


# %%
def curves():
    ranks, seconds = np.array(counts), seconds_of_a_step("strong")
    speedup = seconds[0] / seconds
    fair = ranks <= CORES
    published = np.array([1, 100]), np.array([1.0, 56.0])
    return {
        "your strong scaling": (ranks, speedup, serial_fraction(ranks[fair], speedup[fair])),
        "Inception, TensorFlow 0.8": (*published, serial_fraction(*published)),
    }


SOURCES = "lines: Amdahl's law · blue: this machine · orange: announcement of TensorFlow 0.8, 2016"
scaling.laws(curves(), log=True, caption=SOURCES)

# %% editable=true
my_efficiency_at_100 = None
my_lost_gpus = None


# %%
def unmask():
    for name, (_, _, serial) in curves().items():
        never = f"never more than {1 / serial:.3g} times as fast" if 0 < serial < 1 else "which no law allows"
        print(f"{name}: s = {serial:.4f}, {never}")
    print(f"100 GPUs: efficiency {56 / 100:.0%} (your guess: {my_efficiency_at_100}), {100 - 56} lost ({my_lost_gpus})")
    return scaling.laws(curves(), both=True, caption=SOURCES)


unmask()

# %% [markdown]
# The same points, the same lines. On log axes a loss of 44 in 100 is the distance from 56 to 100: less than one of
# seven steps of the axis, and less still the further the axis reaches. Doubling from 1 to 2 gets as much room as
# doubling from 64 to 128. So the orange line hugs the diagonal, and the eye takes the small gap for a small loss.
#
# So, for a figure that does not flatter: linear axes, or the *efficiency*; the ideal in the picture; the baseline
# named, and the best there is; strong or weak, said; start-up counted or not, said.
#
# **And do not trust the line.** It was fitted to a few ranks of one machine and drawn out to 128. Amdahl's $s$ takes
# in all that does not shrink, but an exchange *grows* with the number of ranks (latency, 2a), and another machine has
# another network. Look at your own points: beyond the number of cores they leave the law, which knows nothing of
# cores. On two cores the law was even fitted through a single point, and through one point goes every law with one
# number. Lab 4 builds a model from causes, and tests it on up to 2,048 GPUs.

# %% [markdown]
# ## Summary
#
# - `horovodrun` and `mpirun` start the same ranks. What they set for Horovod are environment variables.
# - A timeline shows for each tensor negotiate, queue, copy, reduce. A long negotiation means a slow rank.
# - Unequal numbers of batches hang, often without a word. Count the steps before, the same for all ranks.
# - Messages cost more than bytes on one machine: fuse. Halving the bytes pays where the network is slow.
# - Efficiency needs its baseline, its kind (strong or weak) and linear axes. Most of what is lost here is lost to the
#   machine, not to Horovod: the copies show it.
#
# Next: 2d loses a rank and goes on.
#
# - A. Sergeev, M. Del Balso: *Horovod: fast and easy distributed deep learning in TensorFlow.* arXiv:1802.05799
# - G. Amdahl: *Validity of the single processor approach to achieving large scale computing capabilities.* AFIPS 1967
# - D. Murray: *Announcing TensorFlow 0.8: now with distributed computing support!* Google Research blog, 2016
