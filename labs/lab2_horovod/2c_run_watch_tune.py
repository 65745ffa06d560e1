# %% [markdown]
# # 2c Run, watch, tune
#
# Your script runs on many ranks. Now start it as one does on a cluster, look inside while it runs, find out why it
# hangs, make it faster, and say honestly how much faster it became.
#
# **You will be able to** start ranks on one host and on several with `horovodrun` and `mpirun`; read Horovod's
# timeline and find the slow rank in it; recognise and cure a deadlock of unequal batches; choose fusion threshold,
# cycle time and compression so that a step on a slow link takes half the time; draw a scaling curve that does not
# flatter.
#
# **Time:** two hours, best in two sittings: *Tune* begins the second one. The runs take about 4 minutes on 2 CPU cores.
# On a slower or busy machine they take longer; a line shows how far the longest are. On GPUs they are not yet measured.
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

from course_lib.notebook import plots, predictions, widgets
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.widgets.growing_figure import Filling
from course_lib.ranks import launch, timeline
from course_lib.system.cores import available_cores
from labs.lab2_horovod.lessons import figures_2c as scaling
from labs.lab2_horovod.lessons import figures_steps as pictures
from labs.lab2_horovod.lessons import step_time as pace
from labs.lab2_horovod.lessons import terminal
from labs.lab2_horovod.lessons.checks_2c import GIVEN, SLOW, check, halved, points

RANKS = 2
CONTROLLERS = launch.controllers()
print("Horovod's controllers here:", *CONTROLLERS)

# %% [markdown]
# ## Run
#
# A launcher starts one process for each rank, on this host or by `ssh` on others. It tells each who it is and where the
# others are, gathers what they print, and ends all of them when one fails. There are two:
#
# - **`horovodrun`** is Horovod's. With `--gloo` it does everything itself; with `--mpi` it calls `mpirun` for you.
#   With neither it takes MPI where Horovod was built with it.
# - **`mpirun`** is Open MPI's. Clusters have it, and batch systems such as Slurm know it.
#
# [`small_network.py`](small_network.py) beside this notebook is a converted script as in 2b. It trains on drawn
# images, so it needs no data and learns nothing: it is here to be watched. Its first run also writes a timeline, which
# you will need later.

# %%
terminal.run(
    f"horovodrun -np {RANKS} --{CONTROLLERS[0]} --timeline-filename timeline.json python small_network.py",
    env=launch.ONE_THREAD,
)

# %% [markdown]
# That is what you would type in a terminal; `terminal.run` only adds that interrupting the cell ends all
# processes. `[1]<stdout>:` says which rank is speaking. Now the same with `mpirun`:

# %%
if "mpi" in CONTROLLERS:
    terminal.run(
        f"mpirun -np {RANKS} -H localhost:{RANKS} --tag-output -bind-to none -map-by slot "
        "python small_network.py --steps 5",
        env=launch.ONE_THREAD,
    )
else:
    print("Horovod was built without MPI here, so `mpirun` would start two runs of one rank each.")

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
# This needs three things: `ssh server2` works without a password; script, environment and data have the same paths on
# all hosts; the hosts reach each other on any port. Rank 4 is the first one on `server2`, so its local rank is 0.
#
# You have only one host here, so the next results are recorded, on two *pretended* hosts. Each is a network namespace
# with a name, an address and an SSH server of its own. A virtual cable joins them, which is first as fast as memory,
# then limited to 1 Gbit/s, then to 100 Mbit/s. The converted script of 2b runs on two ranks, on one host and across
# both. `course reproduce two_hosts` (in a terminal, as root on Linux) records it again in about four minutes.

# %%
recorded = pd.read_csv("recorded/two_hosts.csv", comment="#")
recorded[["command", "hosts", "ranks saw", "local ranks", "seconds per step", "validation accuracy", "weights"]]

# %%
Image("recorded/two_hosts.png", width=plots.WIDTH)

# %% [markdown]
# - The last column is a fingerprint of the weights after training: the same in all runs, to the last bit. So the same
#   numbers came together, wherever the ranks were and whoever started them. It proves less than it seems to: a sum of
#   two numbers is the same in either order. With four ranks it need not be, as the next cell shows.
# - Across two hosts both ranks have *local* rank 0: each would take the first GPU of its host.
# - The gradients are 424 kB. At 100 Mbit/s they need 34 ms (dashed), and a step takes 2.5 to 4.2 times as long as
#   without the limit, although it computes the same. Lab 4 says how to predict that.
# - The cable does not explain everything. At 1 Gbit/s it needs 3.4 ms; the steps became 3.1 ms longer with Gloo, 4.2
#   and 1.1 ms with MPI. At 100 Mbit/s the steps became 29 ms longer with Gloo, 33 and 46 ms with MPI. Gradients that
#   travel while others are still being computed would make it less than the cable's 34, waiting more: these are single
#   runs, whose steps scatter by more than these differences, and can't tell.
# - All lines of `mpirun` have `-bind-to none`. Without it, Open MPI would have tied the rank of each pretended host to
#   the host's first core, which is the same one for both. Real hosts have cores of their own, but there too all threads
#   of a rank would share one.
#
# ### Predict
#
# Add four arrays of 100,000 random numbers (float32), once one after the other, ((a + b) + c) + d, and once in pairs,
# (a + b) + (c + d). How many of the sums differ, in per cent? That is what four ranks do if they add in another order.

# %% editable=true
predict("sums that depend on the order, in %", None)

# %%
a, b, c, d = np.random.default_rng(0).standard_normal((4, 100_000), dtype=np.float32)
print(f"two numbers, either way round: {np.mean(a + b != b + a):.0%} differ")
measured(
    "sums that depend on the order, in %",
    100 * np.mean(((a + b) + c) + d != (a + b) + (c + d)),
    too_small="Each addition rounds what it has, and in another order it has something else.",
    too_large="Both orders begin with a + b, and many of the rounded sums still come out equal.",
)

# %% [markdown]
# So on four ranks another algorithm, or another cut of the gradients into messages, may change the last bits: the ring
# of 2a begins each chunk at another rank. All *ranks* still have the same sum in the end, and that is what counts.


# %% [markdown]
# ## Watch
#
# In the first run, rank 0 wrote down what became of each tensor, in the file `timeline.json`. It has the format of
# Chrome's tracer (open it in `chrome://tracing` or in Perfetto); `timeline.read` makes a table of it. Here is a row for
# each gradient, with five activities:
#
# | | in Horovod's file | what happens |
# |---|---|---|
# | **negotiate** | `NEGOTIATE_ALLREDUCE` | some rank has the gradient, others don't yet |
# | **queue** | | all have it, but other gradients come first |
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
# - **The last layer comes first.** Backpropagation begins at the output. While the gradients of the last layers are
#   under way, those of the first are still being computed: communication *overlaps* with computation.
# - **Bars that end together travelled together.** What is ready in the same cycle (1 ms) is fused into one message. A
#   bias of 10 numbers would not be worth a message of its own. A gradient that is alone in its message is not copied.
# - **Blue is waiting,** not work: another rank has not come so far, or the cycle is not over. The ranks share the
#   cores of one machine and rarely need the same time for a step.
#
# ### Your own script
#
# If you have finished 2b, look at your own script too. It trains on 1,279 images here, to be quick.

# %% editable=true
my_script = None  # or "fashion_mnist.py"


# %%
def train(*arguments, script="small_network.py", show=True, env=None, **settings):
    """Run a script on two ranks; print what they print; return how it ended and the lines of their errors."""
    errors = []
    given = {"COURSE_SLICE": "1279", **(env or {})}
    with launch.start(script, arguments, RANKS, env=given, **settings) as run:
        for event in run:
            if event.kind == "output" and event.data["stream"] == "stderr":
                errors.append(event.data["text"])
            elif event.kind == "output" and show:
                print(f"{event.time:4.0f} s  [{event.rank}] {event.data['text']}", flush=True)
    return run.wait(), errors


def watch(script):
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "timeline.json"
        ended, _ = train("--epochs", 1, script=script, env={"HOROVOD_TIMELINE": str(trace)})
        ended.check()
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
# The bars overlap, so their sum may be longer than the step. You need the time in which there is *any* bar.
#
# ### Predict
#
# In what part of a step (0 to 1) is some gradient on its way, in any of the five activities? In what part are numbers
# really moving (copy in, reduce, copy out)?

# %% editable=true
predict("part of a step with a gradient on its way", None)
predict("part of a step in which numbers move", None)

# %% [markdown]
# ### Exercise: the time that bars cover
#
# <details><summary>Hint</summary>Draw three bars on paper: two that overlap, one within another, two with a gap. In
# which order do you want to meet them? What must you remember of all bars that came before, to know what the next one
# adds?</details>


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
    measured(
        "part of a step with a gradient on its way",
        1 - table["the rest"].sum() / whole,
        too_small="A gradient is also on its way while it waits for its twin on the other rank.",
    )
    measured(
        "part of a step in which numbers move",
        table["moving"].sum() / whole,
        too_large="A long bar need not be a long transport: look how much of it is blue.",
    )
    return show_parts(even=even)


answer()

# %% [markdown]
# When ranks compete for two cores this changes from run to run. The network is small, but not nothing: 300,000 weights
# make 1.2 MB to exchange in each step.
#
# Not all waiting is lost: as long as a gradient waits for its twin on the other rank, that rank computes. What *is*
# lost shows in the next experiment.
#
# ### A straggler
#
# Two more runs, alike but for one thing: in the second the last rank sleeps 100 ms before each step, as if its GPU were
# hotter, its data farther away or its share of the work larger.
#
# ### Predict
#
# By how many milliseconds does a step become longer? Which of the three parts grows most ("moving", "waiting", "the
# rest"), in the timeline that rank 0 writes? (Rank 0 does not sleep.)

# %% editable=true
predict("one rank sleeps 100 ms: a step is longer by (ms)", None)
predict("one rank sleeps 100 ms: the part that grows most", None)

# %%
ASLEEP = 100  # ms


def watched(asleep):
    """The gradients of a run whose last rank sleeps so many ms before each step, and when each rank had them ready."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "timeline.json"
        # Without its response cache, Horovod also notes in each step which rank was ready when.
        ended, _ = train("--late", asleep, env={"HOROVOD_TIMELINE": str(trace), "HOROVOD_CACHE_CAPACITY": "0"})
        ended.check()
        arrivals = timeline.arrivals(timeline.read(trace))
        return gradients(trace), arrivals[arrivals["tensor"].str.contains("grads") & (arrivals["step"] >= 2)]


(on_time, _), (late, arrivals) = watched(0), watched(ASLEEP)


# %%
def compare():
    before, after = parts(on_time), parts(late)
    measured(
        "one rank sleeps 100 ms: a step is longer by (ms)",
        after.sum(axis=1).median() - before.sum(axis=1).median(),
        "It need not be 100 exactly: the ranks share this machine, and who sleeps leaves it to the other.",
        too_small="About 50, the mean of both ranks? The step ends when the last rank has come.",
    )
    measured(
        "one rank sleeps 100 ms: the part that grows most",
        (after.median() - before.median()).idxmax(),
        "Rank 0 computes and sends as fast as before; what it lacks is somebody to send to.",
    )
    return show_parts(even=on_time, late=late)


compare()

# %% [markdown]
# Every rank has become as slow as the slowest. Rank 0 works as before, is ready, and waits. **A long NEGOTIATE is not a
# sign of a slow network but of a slow rank.**
#
# But which rank? With two you can guess. With 2,000 you need the marks in the trace: each says that a rank has a
# gradient ready. Here are some.

# %%
some = arrivals[(arrivals["step"] == 10) & arrivals["tensor"].isin(arrivals["tensor"].unique()[:2])]
some.assign(tensor=some["tensor"].str[-16:]).sort_values(["tensor", "rank"])

# %% [markdown]
# ### Exercise: who is late?
#
# <details><summary>Hint</summary>Two groupings, one after the other: first those rows that wait for each other, then
# those of a rank. Of a group of rows, <code>.transform(…)</code> makes a value for each row, <code>.mean()</code> one
# for all of them.</details>


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
    print(
        "on average, in ms:", {rank: round(1e3 * late_by, 1) for rank, late_by in pd.Series(lateness(arrivals)).items()}
    )
    by_step = 1e3 * pd.DataFrame({step: pd.Series(lateness(some)) for step, some in arrivals.groupby("step")}).T
    return pictures.lateness(by_step, asleep=ASLEEP, caption=plots.provenance("drawn images", RANKS))


show_lateness()

# %% [markdown]
# There it is. It may differ from the 100 ms of sleep by some: while one rank sleeps, the other has both cores and gets
# ahead. Ranks with GPUs of their own don't take each other's processors away.
#
# ## Hang
#
# All ranks must call the same collectives. The usual way to break that rule is data that don't divide evenly: 2,561
# images on two ranks are 1,281 and 1,280, with batches of 64 that is 21 and 20. Rank 0 asks for an average of gradients
# that rank 1 will never have; rank 1 is at the end of its epoch and asks for an average of metrics.
#
# ### Predict
#
# Who tells you what is wrong? Horovod has a *stall inspector*, which should warn when a tensor waits longer than
# `HOROVOD_STALL_CHECK_TIME_SECONDS` (60 by default) and end the run after `HOROVOD_STALL_SHUTDOWN_TIME_SECONDS` (by
# default never). Here they are 2 and 4. Say "error" (a rank ends with one by itself), "inspector" or "nobody".

# %% editable=true
predict("unequal batches, Gloo: who tells you", None)

# %%
SILENCE = "(The stall inspector said nothing.)"
impatient = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "2", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "4"}


def words(ended, errors):
    """What the stall inspector said, last."""
    told = [re.sub(r"^\[.*stall_inspector.cc:\d+\] ", "> ", line) for line in errors]
    last = max((i for i, line in enumerate(told) if line.startswith("> One or more")), default=None)
    if last is None:
        if ended.failed_rank is not None:  # it failed, and did not stall
            ended.check()
        return SILENCE
    return "\n".join([told[last], *(t for t in told[last + 1 :] if re.match(r"Missing|\d+!?: \[|One or more", t))])


if "gloo" in CONTROLLERS:
    with tempfile.TemporaryDirectory() as folder:
        stalled = launch.Options(stall_timeout=8, record=Path(folder))
        ended, errors = train("--images", 2561, controller="gloo", env=impatient, timeout=60, options=stalled)
    print(words(ended, errors), ended.message, sep="\n")
    measured(
        "unequal batches, Gloo: who tells you",
        "nobody" if words(ended, errors) == SILENCE else "inspector",
        "A rank that waits makes no mistake, so it raises no error; and the inspector has one of its own, see below.",
    )
else:
    print("Horovod was built without Gloo here: the next cell has the other controller.")

# %% [markdown]
# Two ranks wait, and neither says a word. The run was ended by the course, `launch.Options(stall_timeout=8)`, because
# no rank made a step for 8 seconds.
#
# And the inspector? In Horovod 0.28.1 with Gloo it looks, finds the waiting tensors, and then goes through the list
# of ranks to see who is missing. That list is empty: `GlooController` only *reserves* room for it
# (`global_ranks_.reserve(size_)` in `gloo_controller.cc`, where `resize` is needed). With MPI the list is filled:

# %%
if "mpi" in CONTROLLERS:
    ended, errors = train("--images", 2561, controller="mpi", env=impatient, timeout=60)
    print(words(ended, errors), ended.message, sep="\n")
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
# - **When a rank is frozen** (swapping, a dead network). The inspector runs in the thread by which rank 0 talks to the
#   others, and that thread waits for the silent rank too.
# - **Not in time,** for gradients that were reduced before: they are in the response cache and have to fall out of it
#   first. So the warning comes later than the time that you have set.
# - **Where the ranks call the same names by chance.** Without averaged metrics, rank 0's last step would be averaged
#   with rank 1's first step of the *next epoch*. Nothing hangs, everything is one step off, until one rank has come
#   to the end and the other fails with "Horovod has been shut down".
#
# ### Exercise: the same number for all
#
# The cure is to count first. The images are dealt out like cards, as by `dataset.shard(ranks, rank)`: rank $r$ gets
# the images $r$, $r + N$, $r + 2N$, … It cuts them into batches; the last one may be smaller.
#
# <details><summary>Hint</summary>Deal ten cards to three players: who has how many? A <code>range</code> knows how long
# it is. <code>math.ceil</code> of a quotient, or a floor division with two minus signs, rounds up.</details>


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
# Of $N b$ successive sizes, $N - 1$ hang: those that have 1, 2, … $N - 1$ examples too many. That is fewer than one in
# 64, so a wrong script works on the data that you tried and hangs in production, or on another number of ranks. The
# cure in the script is one word, `take(steps)`:


# %%
def cured():
    batches, steps, left = steps_per_epoch(2561, RANKS, 64)
    print(f"batches by rank: {batches}; every rank takes {steps}, {left} images are left out")
    ended, _ = train("--images", 2561, "--steps", steps)
    return ended.code == 0


cured()

# %% [markdown]
# If the images are shuffled before they are dealt out, other ones are left out in each epoch.
#
# ### Predict
#
# Horovod's own cure is `hvd.join()`: a rank that has no more data says so, and the others go on without it. Here rank 0
# has four gradients of 8.0, and rank 1 has two. What is the last average that rank 0 gets, after rank 1 has joined?

# %% editable=true
predict("rank 0's last average, after rank 1 has joined", None)


# %%
def joined():
    import horovod.tensorflow as hvd

    hvd.init()
    averages = [float(hvd.allreduce(np.float32(8), name="gradient")) for _ in range(4 if hvd.rank() == 0 else 2)]
    hvd.join()
    return averages


averages = launch.call(joined, RANKS)[0]
print("rank 0 got", averages)
measured(
    "rank 0's last average, after rank 1 has joined",
    averages[-1],
    too_large="8 would be the average over the ranks that are left. Horovod still divides by all of them.",
)

# %% [markdown]
# Nothing hangs, but the gradient of a rank that has joined counts as zero, and the sum is still divided by the number
# of all ranks: the average is too small. A step with one rank of two is half a step. `join` is meant for the last few
# batches; equal numbers are better.

# %% [markdown]
# ## Tune
#
# Four knobs, and what each is for:
#
# | knob | what it does | default |
# |---|---|---|
# | `HOROVOD_FUSION_THRESHOLD` (bytes) | gradients that are ready together share a message, up to this size | 128 MiB |
# | `HOROVOD_CYCLE_TIME` (ms) | how long Horovod waits before it looks again what is ready | 1 |
# | `compression=hvd.Compression.fp16` | sends 16 bits for each number instead of 32 | off |
# | `backward_passes_per_step=k` | adds up the gradients of k batches, then exchanges once | 1 |
#
# The first two are read when Horovod starts, so each value needs a launch of its own (`horovodrun` also takes them as
# `--fusion-threshold-mb` and `--cycle-time-ms`). The others are arguments of `hvd.DistributedOptimizer`.
#
# ### Predict
#
# Two ranks train the Wide ResNet of 1c at depth 16: 41 tensors with 172,218 numbers in float32, and 8 images for each
# rank and step. How many kilobytes does a rank send in a step, by the ring of 1d and 2a? And how long does a step take
# with each of these settings, in steps with the defaults (1: as long)? In the recorded run a default step took 17 ms,
# of which 7 ms without any exchange.

# %% editable=true
predict("default: kB that a rank sends in a step", None)
predict("fp16: its step, in default steps", None)
predict("4 passes: its step, in default steps", None)
predict("no fusion: its step, in default steps", None)
predict("a cycle of 20 ms: its step, in default steps", None)

# %% [markdown]
# First those that fit into one launch. `pace.measure` starts the ranks and lets them train under all its settings in
# turns, 24 steps at a time; it is 200 lines that you can read. Time is that of the slowest rank. Bytes are *counted*:
# what goes through the loopback interface, divided by ranks and steps.

# %%
BATCH = 8
QUICK = "COURSE_SLICE" in os.environ  # a test, or grading: less will do
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
measured(
    "default: kB that a rank sends in a step",
    1e-3 * here.loc["default", "bytes"],
    "With two ranks 2(N−1)/N is 1: each sends its gradient once, and a float32 has four bytes.",
)
measured(
    "fp16: its step, in default steps",
    slower["fp16"],
    "The numbers have to be converted, too: see below.",
    too_small="At one half a step would be nothing but bytes on their way. Look at what remains without any exchange.",
)
measured(
    "4 passes: its step, in default steps",
    slower["4 passes"],
    too_small="What is saved is exchange; each batch is computed as before.",
    too_large="Three of four exchanges are saved. On two cores the exchange is a good part of such a small step.",
)


# %%
def beside_the_formula():
    gradient = 4 * knobs["elements"].iloc[0]
    expected = {"default": gradient, "fp16": gradient / 2, "4 passes": gradient / 4}
    what = f"Wide ResNet, depth {DEPTH}, {BATCH} drawn images each"
    return scaling.settings(knobs, expected, caption=plots.provenance(what, 2))


beside_the_formula()

# %% [markdown]
# Now those that need launches of their own, and more values, recorded with `course reproduce tuning`:

# %%
tuning = pace.quiet(pd.read_csv("recorded/tuning.csv", comment="#")).groupby("setting", sort=False)
recorded = tuning[["seconds", "bytes"]].median()
slower = recorded["seconds"] / recorded.loc["default", "seconds"]
measured(
    "no fusion: its step, in default steps",
    slower["threshold 0"],
    too_small="The bytes are the same, but there are 41 messages, and each of them takes time.",
)
measured(
    "a cycle of 20 ms: its step, in default steps",
    slower["cycle 20 ms"],
    too_large="The 20 ms are not added to the step: it waits for the end of the cycle that it is in.",
    too_small="A step can't end before the cycle that it is in: none is shorter than 20 ms.",
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
# The bytes are those of the ring (the crosses), or a little more. What is added:
#
# - TCP's headers, for each packet. 41 small messages need more of them than one large message: 744 kB were sent without
#   fusion, 696 kB with it.
# - Horovod's own talk. In every cycle, so up to a thousand times a second, all ranks tell each other which gradients
#   are ready, even when none is. Look at *no exchange*, where nothing is trained together.
# - Whatever other programs send on this interface: your browser and this notebook's kernel, for instance.
#
# And the time (all numbers are from the recorded run):
#
# - **No fusion:** the same numbers in 41 messages, and a step takes 62 ms, by default 17. On one machine a message of a
#   few kilobytes takes hardly longer than one of a byte: you pay for the message.
# - **Cycle time:** with a cycle of 50 ms a step takes 50: it must wait for the end of the cycle. Where that begins to
#   cost time, the figure tells. With more to compute in a step the loss is smaller, and with thousands of tensors a
#   longer cycle can even help, because more is fused.
# - **fp16:** half the bytes, and no time gained: 21 ms. Between processes of one machine bytes are cheap, and a CPU has
#   to convert numbers, and to add in a format for which most CPUs have no instructions. (What it does to the accuracy
#   of the gradients: 5a, and 5b for four bits.)
# - **4 passes:** a quarter of the bytes, 10 ms: most of the exchange's time is gone. But it is *another training*. The
#   weights move once in four batches, so the batch is four times as large. And Horovod adds the four gradients up
#   without dividing, unless you say `average_aggregated_gradients=True`: the weights then move four times as far as by
#   the mean. `optimizer.iterations` counts all four batches, so a learning-rate schedule runs four times too fast.
#
# ## A slow link
#
# A link can be slow in two ways: each message takes long, or each byte does. On loopback you feel the first. The second
# needs a slow cable, which no program can lay without being root. But what it does can be said: if nothing overlaps,
#
# $$T(\beta) = t + \frac{\text{bytes}}{\beta}$$
#
# is the time of a step on a link of β bytes a second, where $t$ is the step where bytes cost next to nothing, as here.
# On the two pretended hosts above, 100 Mbit/s should add 34 ms by this formula; it added between 29 and 46 ms.
#
# ### Exercise: does fp16 pay?
#
# Compression makes $t$ longer and the bytes fewer. Below which bandwidth does a step become shorter by it?
#
# <details><summary>Hint</summary>Draw both times over 1/β: two straight lines. Which one starts higher, which is
# steeper?</details>


# %% exercise="pays_below"
def pays_below(plain, compressed):
    """The bandwidth β, in bytes a second, below which a step with compression is the shorter one.

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
# In the recorded run fp16 pays below 682 Mbit/s. Don't take all of these digits for true: the time that is lost is a
# small difference of two times that scatter, and where *inf* is printed, it drowned in the scatter altogether. But 100
# Mbit/s is far below it, and 10 Gbit/s far above. (GPUs convert and add fp16 quickly: there it pays on faster links.)
#
# ### Exercise: halve the step
#
# Somebody has left you these settings:

# %%
print(GIVEN)

# %% [markdown]
# Choose better ones, for any link and any machine. Two things are scarce. The GPUs' memory is full: of the thresholds
# in the recorded figure take the smallest that costs no time. And with a thousand ranks Horovod's own talk in every
# cycle is too much: take the longest cycle that costs no time. Whether compression pays depends on the link *and* on
# the machine; its step without and with compression is given.
#
# At 100 Mbit/s a step of the recorded machine should take half the time at most. Elsewhere it should be within a tenth
# of the best. The check reckons with the recorded table and the formula above, for two other machines as well; then
# your ranks train with your choice, beside the given one.
#
# <details><summary>Hint</summary>Each dot in the recorded figure is a block: which differences are larger than the
# scatter? And for the third knob: the bandwidth is given in Mbit/s, the sizes in bytes.</details>


# %% exercise="tuned"
def tuned(megabits, plain, compressed):
    """Settings for a link of `megabits` Mbit/s: {"fusion_mb": …, "cycle_ms": …, "compression": …}.

    plain, compressed: (t, bytes) of a step without and with compression, t in seconds, as for `pays_below`.
    fusion_mb: the fusion threshold in MiB, 0, 1/16, 1/4 or 128; cycle_ms: the cycle time, 1, 5, 20 or 50 ms;
    compression: "none" or "fp16".
    """
    ### BEGIN SOLUTION
    without, with_it = (t + size * 8e-6 / megabits for t, size in (plain, compressed))
    return {"fusion_mb": 1 / 4, "cycle_ms": 5, "compression": "fp16" if with_it < without else "none"}
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
# Now measured: how long is a step with your settings for 100 Mbit/s, in given steps, on this machine's loopback? And
# with the time that the bytes would take at 100 Mbit/s?

# %% editable=true
predict("yours on loopback: a step, in given steps", None)
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
measured(
    "yours on loopback: a step, in given steps",
    on_loopback.loc["yours", "seconds"] / on_loopback.loc["given", "seconds"],
    "Here only messages and waiting count, and the step can't become shorter than what it computes.",
)
share = on_the_link["yours"] / on_the_link["given"]
measured(
    "yours at 100 Mbit/s: a step, in given steps",
    share,
    "The bytes come on top of both steps: saved messages count for less there, saved bytes for more.",
)
print(halved(share, mine))
scaling.settings(contest, caption=plots.provenance(f"Wide ResNet, depth {DEPTH}, {BATCH} drawn images each", 2))

# %% [markdown]
# In the recorded figure a cycle of 5 ms changes nothing; with one of 20 a step takes 20 ms, and 50 with one of 50. By
# that table no knob halves the step on the slow link by itself. Fusion and a short cycle save the same
# milliseconds on any link; next to the time of the bytes they are not enough. fp16 alone leaves the 41 messages. Tuning
# begins with the question what your step is made of: messages, waiting or bytes. The timeline shows it.

# %% [markdown]
# ## Scale
#
# Two questions, two experiments:
#
# - **Strong scaling:** the same work on more ranks. The batch stays, and each rank gets an N-th of it. How much sooner
#   is a step done?
# - **Weak scaling:** more work on more ranks. Each rank keeps its batch. How much longer does a step take?
#
# The speed-up says how many times as many images a second N ranks train as one does. The efficiency is the speed-up
# divided by N: the part of each rank that is of use.
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
# What will the efficiency be with 2 ranks, and with the most?
#
# It falls for several reasons. To tell them apart, each run is done twice: with Horovod, and as N *copies* that train
# at the same time and exchange nothing. What the copies lose, they lose to the machine: too few cores, one memory and
# one cache for all. What Horovod loses on top of that is the exchange, and waiting for the slowest.

# %% editable=true
predict("strong scaling: efficiency with 2 ranks", None)
predict("strong scaling: efficiency with the most ranks", None)
predict("weak scaling: efficiency with 2 ranks", None)
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


REVEALS = {
    "strong": "With N ranks each has an N-th of the images, but the gradients to exchange are as large as before.",
    "weak": "1 would need cores, memory and a cable for each rank. Read below what the copies lose, without exchange.",
}
ODD = "An efficiency above 1, or a loss below 0, is most likely chance: look how far the recorded blocks scatter."


def show_scaling():
    table = scaling_table()
    wide = table.pivot(index="ranks", columns=["scaling", "exchange"], values="efficiency")
    reasons = {}
    for kind, reveals in REVEALS.items():
        for which, ranks in (("2", 2), ("the most", max(counts))):
            measured(f"{kind} scaling: efficiency with {which} ranks", wide[kind][True][ranks], reveals)
        reasons[f"{kind}: efficiency"] = wide[kind][True]
        reasons[f"{kind}: lost to the machine"] = 1 - wide[kind][False]
        reasons[f"{kind}: lost to the exchange"] = wide[kind][False] - wide[kind][True]
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
# Read the dashed lines first: they are the ceiling. Here is what they say in the recorded run, which follows below;
# with your own run compare your own lines.
#
# - **Cores.** Up to the number of cores each copy has one of its own. Beyond that they share, so the efficiency of 4
#   ranks on 2 cores is about a half at most, whatever Horovod does. In the recorded run 2, 3 and 4 weak copies train
#   13,790, 15,360 and 15,480 images a second, and strong ones 13,050, 11,760 and 12,170. Single blocks of 2 weak copies
#   scatter from 11,200 to 18,500, so neither the rise nor the fall says more than that both cores are in use.
# - **Memory and caches.** Two copies on two cores lose 22 % (weak) and 26 % (strong). They share one memory and one
#   last-level cache. A machine may also lower its clock when all cores work, and two "cores" of a virtual machine may
#   be two threads of one.
# - **Exchange.** This is what lies between dashed and solid. On 2 ranks it takes 12.9 ms of a weak step and 12.2 ms of
#   a strong one: about the same, because the gradients are equally large. But a strong step has 240 images for each
#   rank, not 480, so there is less work to set against it, and its efficiency is .55, not .66. Beyond the cores the
#   difference is more than exchange: a rank may have to wait for one that has no core. It grows to 29 ms (weak) and 12
#   ms (strong) on 3 ranks, and to 36 and 26 ms on 4.
# - **Small batches** are slower by themselves (1b). That is one reason why strong copies can be slower than weak ones.
# - **Start-up.** None of this counts the seconds from the launch to the end of the first step (last row): about 6 s
#   with one rank, 19 to 21 s with four. A training that takes a minute is not made faster by ranks that need a third of
#   it to start.
#
# Weak scaling is what most published curves show, and it is the kinder one. But its batch grows, and lab 3 tells what a
# large batch does to training.
#
# One question is not in your figure: **what is T(1)?** Here it is one *thread*. TensorFlow would use all cores for a
# single process. The recorded experiment has that line too: one process with all cores, and no Horovod. It trains
# 12,200 images a second; two ranks that share the batch train 9,800, and two with a batch each 11,600. So there, on a
# single CPU, ranks gained nothing. They are for what one process can't use: several GPUs, several hosts. And a speed-up
# should be told over the best program for one machine, not over one that was held back.

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
# One number for everything that does not get shorter. Which $s$ fits measured speed-ups best? $S$ is not linear in $s$,
# so find something that is: then the measured points lie around a straight line through 0 whose slope is $s$. The best
# slope is the one with the least sum of squared distances, measured upwards.
#
# ### Exercise: the serial fraction
#
# <details><summary>Hint</summary>How does 1/S depend on s? Bring everything with s to one side and the rest to the
# other, so that it reads b = s a, with an a and a b for each point. Then: for which s is the derivative of Σ (b − s a)²
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
# Now two sets of data: your strong scaling, fitted on as many ranks as you have cores, and a published figure. In April
# 2016 TensorFlow 0.8 was announced with a plot on two log axes, of how many times as fast GPUs train Inception. Here
# are its two ends, 1 GPU and 100.


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
# Read it off the figure, without calculating: how many times as fast as one GPU are the 100 GPUs on the right?

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
        too_large="The point is close to the diagonal, but on a log axis close may be far.",
    )
    print(f"efficiency {times / gpus:.0%}: the work of {gpus - times:.0f} of {gpus} GPUs is lost")
    return scaling.laws(curves(), both=True, caption=SOURCES)


unmask()

# %% [markdown]
# The same points, the same lines. On log axes a loss of 44 in 100 is the distance from 56 to 100: less than one of the
# seven steps of the axis, and a smaller part of it the further the axis reaches. Doubling from 1 to 2 gets as much room
# as doubling from 64 to 128. So the orange line hugs the diagonal, and the eye takes the small gap for a small loss.
#
# A figure that does not flatter has linear axes, or shows the *efficiency*. It has the ideal in it. It names its
# baseline, which is the best there is; and it says whether scaling is strong or weak and whether start-up counts.
#
# **And do not trust the line.** It was fitted to a few ranks of one machine and extended to 128. Amdahl's $s$ stands
# for all that does not shrink, but an exchange *grows* with the number of ranks (latency, 2a), and another machine has
# another network. The law knows nothing of cores either: look at your own points beyond their number. On two cores
# yours was even fitted to a single point, the orange one always: a law with one number goes through any single point.
# Lab 4 builds a model from causes, and tests it on up to 2,048 GPUs.

# %% [markdown]
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - `horovodrun` and `mpirun` start the same ranks. What they set for Horovod are environment variables.
# - A timeline shows how each tensor is negotiated, queued, copied and reduced. A long negotiation means a slow rank.
# - With unequal numbers of batches the ranks hang, often without a word. Count the steps first, the same for all ranks.
# - On one machine messages cost more than bytes: fuse. Halving the bytes pays where the network is slow.
# - An efficiency needs its baseline, its kind (strong or weak) and linear axes. Copies that exchange nothing show how
#   much of a loss is the machine's, not Horovod's.
#
# Next: 2d loses a rank and goes on.
#
# - A. Sergeev, M. Del Balso: *Horovod: fast and easy distributed deep learning in TensorFlow.* arXiv:1802.05799
# - G. Amdahl: *Validity of the single processor approach to achieving large scale computing capabilities.* AFIPS 1967
# - D. Murray: *Announcing TensorFlow 0.8: now with distributed computing support!* Google Research blog, 2016
