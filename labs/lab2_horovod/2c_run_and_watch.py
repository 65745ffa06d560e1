# %% [markdown]
# # 2c Run and watch
#
# Your script runs on many ranks. Start it as on a cluster, look inside while it trains, and find out what limits it or
# why it hangs.
#
# **You will be able to** start ranks on one host and on several with `horovodrun` and `mpirun`; read Horovod's timeline
# and find the slow rank in it; say whether ranks wait for input, for computing or for communication; recognise and cure
# a deadlock of unequal batches.
#
# **Time:** 75 minutes; the runs take about 2 minutes on 2 CPU cores, longer on a busy machine. On GPUs they are not yet
# measured.
#
# **Needs:** 2a; from 2b the eight changes that make a script data-parallel. No GPU: each rank gets a processor core.

# %%
import math
import re
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from IPython.display import Image

from course_lib.notebook import plots, predictions, widgets
from course_lib.notebook.predictions import measured, predict
from course_lib.ranks import launch, step_shares, timeline
from labs.lab2_horovod.lessons import figures_2c as pictures
from labs.lab2_horovod.lessons import step_parts, terminal
from labs.lab2_horovod.lessons.checks_2c import check, points

RANKS = 2
CONTROLLERS = launch.controllers()
print("Horovod's controllers here:", *CONTROLLERS)

# %% [markdown]
# ## Run
#
# A launcher starts one process for each rank, collects their output, and ends all of them when one fails. There are
# two:
#
# - **`horovodrun`** is part of Horovod. With `--gloo` it starts the ranks itself (over `ssh` on other hosts); with
#   `--mpi` it calls `mpirun`.
# - **`mpirun`** is part of Open MPI. Clusters have it, and batch systems such as Slurm support it.
#
# [`small_network.py`](small_network.py) beside this notebook is a converted script as in 2b. It trains on random images
# and learns nothing. Its first run also writes a timeline for *Watch*.

# %%
terminal.run(
    f"horovodrun -np {RANKS} --{CONTROLLERS[0]} --timeline-filename timeline.json python small_network.py",
    env=launch.ONE_THREAD,
)

# %% [markdown]
# You would type the same command in a terminal. `[1]<stdout>:` says which rank printed a line. Now the same with
# `mpirun`:

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
# | number of ranks | `-np 8` | `-np 8` |
# | hosts, and ranks on each | `-H server1:4,server2:4` | `-H server1:4,server2:4` |
# | pass an environment variable to the ranks | passes all of them | `-x NAME` or `-x NAME=value` for each |
# | don't bind a rank to a core; fill host by host | automatic | `-bind-to none -map-by slot` |
# | plain TCP and shared memory, no InfiniBand verbs | automatic | `-mca pml ob1 -mca btl ^openib` |
# | name the rank in each line of output | automatic | `--tag-output` |
# | choose the network card | `--network-interfaces eth0` | `-mca btl_tcp_if_include eth0` |
# | timeline | `--timeline-filename t.json` | `-x HOROVOD_TIMELINE=t.json` |
#
# `-bind-to none` matters: with one or two ranks Open MPI binds each rank to a single core, with all of TensorFlow's
# threads. (`horovodrun --mpi --verbose` prints its `mpirun` command.)
#
# ### Several hosts
#
# Only the hosts change:
#
#     horovodrun -np 8 -H server1:4,server2:4 python train.py
#     mpirun -np 8 -H server1:4,server2:4 -bind-to none -map-by slot \
#         -x PATH -x LD_LIBRARY_PATH -mca pml ob1 -mca btl ^openib python train.py
#
# This needs three things: `ssh server2` works without a password; script, environment and data have the same paths on
# all hosts; the hosts reach each other on any port. Rank 4 is the first on `server2`: its local rank is 0.
#
# You have one host here, so the next results are recorded on two *simulated* hosts, network namespaces of one machine.
# The cable between them is first as fast as memory, then limited to 1 Gbit/s and to 100 Mbit/s. The script is the
# converted one of 2b (`course reproduce two_hosts`, as root).

# %%
recorded = pd.read_csv("recorded/two_hosts.csv", comment="#")
recorded[["command", "hosts", "ranks saw", "local ranks", "seconds per step", "validation accuracy", "weights"]]

# %%
Image("recorded/two_hosts.png", width=plots.WIDTH)

# %% [markdown]
# - The last column is a hash of the trained weights, the same in all runs. That proves little: two numbers have the
#   same sum in either order. With four ranks the order may matter.
# - Across two hosts both ranks have *local* rank 0.
# - The gradients are 424 kB. At 100 Mbit/s they need 34 ms (dashed), and a step takes 2.5 to 4.2 times as long as
#   without the limit. It became 29 ms longer with Gloo, 33 and 46 ms with MPI: single runs, whose steps scatter by more
#   than these differences.
#
# ### Predict
#
# Add four arrays of 100,000 random numbers (float32), once one after the other, ((a + b) + c) + d, and once in pairs,
# (a + b) + (c + d). What percentage of the sums differs?

# %% editable=true
predict("sums that depend on the order, in %", None)

# %%
a, b, c, d = np.random.default_rng(0).standard_normal((4, 100_000), dtype=np.float32)
print(f"two numbers, either way round: {np.mean(a + b != b + a):.0%} differ")
measured(
    "sums that depend on the order, in %",
    100 * np.mean(((a + b) + c) + d != (a + b) + (c + d)),
    "Each addition rounds its result, and in another order it rounds other numbers. Many sums still come out equal, "
    "since both orders begin with a + b.",
)

# %% [markdown]
# So on four ranks another algorithm may change the last bits. All *ranks* still get the same sum, and that counts.

# %% [markdown]
# ## Watch
#
# In the first run, rank 0 recorded what happened to each tensor, in `timeline.json` (Perfetto opens it, too). The
# figure has a row for each gradient, with five activities:
#
# | | in Horovod's file | what happens |
# |---|---|---|
# | **negotiate** | `NEGOTIATE_ALLREDUCE` | some rank has the gradient, others don't yet |
# | **queue** | | all have it, but other gradients come first |
# | **copy in** | `MEMCPY_IN_FUSION_BUFFER` | several gradients are copied into one buffer and travel as one message |
# | **reduce** | `GLOO_ALLREDUCE` (`MPI_…`, `NCCL_…`) | the exchange: Gloo uses the ring of 2a |
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
# Move the window over a few steps, then into one:
#
# - **The last layer comes first.** Backpropagation begins at the output. While the gradients of the last layers are
#   exchanged, those of the first are still being computed: communication *overlaps* with computation.
# - **Bars that end together travelled together.** Gradients that are ready in the same cycle (1 ms) are fused into one
#   message. A gradient that is alone in its message is not copied.
# - **Blue is waiting,** not work: another rank is not ready, or the cycle is not over.
#
# ### Your own script
#
# If you have finished 2b, look at your own script, too.

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
# In what fraction of a step (0 to 1) is some gradient on its way, in any of the five activities? In what fraction are
# numbers really moving (copy in, reduce, copy out)?

# %% editable=true
predict("part of a step with a gradient on its way", None)
predict("part of a step in which numbers move", None)

# %% [markdown]
# ### Exercise: the time that bars cover
#
# Write `covered`: for how many seconds is there at least one bar?
#
# <details><summary>Hint</summary>Draw bars on paper: two that overlap, one within another, two with a gap. In which
# order should you process them? What must you remember of the earlier bars, to know what the next one adds?</details>


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
# A step in three parts: *moving* (numbers are copied or exchanged), *waiting* (none are, but a gradient is ready on
# some rank) and *the rest* (no gradient is on its way):


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
        "A gradient is also on its way while it waits until the other rank has it, too.",
    )
    measured(
        "part of a step in which numbers move",
        table["moving"].sum() / whole,
        f"A long bar need not be a long transport: {table['waiting'].sum() / whole:.0%} of the step is only waiting.",
    )
    return show_parts(even=even)


answer()

# %% [markdown]
# Not all waiting is lost: while a gradient waits for the other rank, this rank computes. What *is* lost shows in the
# next experiment.
#
# ### A straggler
#
# Two more runs differ in one thing: in the second the last rank sleeps 100 ms before each step.
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


print(step_parts.load())
(on_time, _), (late, arrivals) = watched(0), watched(ASLEEP)


# %%
def compare():
    before, after = parts(on_time), parts(late)
    grown = after.median() - before.median()
    measured(
        "one rank sleeps 100 ms: a step is longer by (ms)",
        after.sum(axis=1).median() - before.sum(axis=1).median(),
        "The step ends when the last rank arrives, so the whole sleep counts, not the mean of both ranks. It need not "
        "be exactly 100 ms: while one rank sleeps, the other has its core, too.",
    )
    measured(
        "one rank sleeps 100 ms: the part that grows most",
        grown.idxmax(),
        "Rank 0 computes and sends as fast as before; it waits for the other rank."
        if grown.idxmax() == "waiting"
        else "Other programs disturbed one of the two runs more than the sleep: run the cell above again.",
    )
    return show_parts(even=on_time, late=late)


compare()

# %% [markdown]
# Every rank is as slow as the slowest. Rank 0 is ready, and waits. **A long NEGOTIATE is not a sign of a slow network
# but of a slow rank.**
#
# Which rank is it? With 2,000 ranks you can't guess. Marks in the trace say when a rank had a gradient ready:

# %%
some = arrivals[(arrivals["step"] == 10) & arrivals["tensor"].isin(arrivals["tensor"].unique()[:2])]
some.assign(tensor=some["tensor"].str[-16:]).sort_values(["tensor", "rank"])

# %% [markdown]
# ### Exercise: which rank is late?
#
# Write `lateness`: how long after the first rank does each rank have a gradient ready, on average?
#
# <details><summary>Hint</summary>Group twice: first the rows that wait for each other, then the rows of a rank. On a
# group, <code>.transform(…)</code> gives a value for each row, <code>.mean()</code> one for the whole group.</details>


# %% exercise="lateness"
def lateness(arrivals):
    """By how much each rank comes after the first one, on average.

    arrivals: table with the columns tensor, step, rank and start (seconds): when a rank had a tensor ready in a step.
    For each tensor in each step the first rank is late by 0 s, another one by the time since the first.
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
# This is the rank that sleeps. Its lateness may differ from 100 ms: while it sleeps, the other rank has both cores.

# %% [markdown]
# ## What do the ranks wait for?
#
# A timeline shows communication only. Does a rank wait for input, for computing or for communication? The profile of
# `course run --where train.py` divides a step into parts:
#
# | part | what the rank does |
# |---|---|
# | **network** | forward pass, backward pass and update; communication that runs beside it is not counted |
# | **input** | it waits for its next batch |
# | **waiting** | it is ready for an all-reduce, and another rank is not |
# | **moving** | all ranks are ready, and the bytes of the all-reduce move |
# | **metrics**, **callbacks** | Keras computes metrics or calls callbacks |
# | **Horovod**, **others** | threads of Horovod, or other programs, use its core |
# | **Keras** | everything else: the work of Keras and TensorFlow between the operations |
#
# ### Predict
#
# The small network again, but the disk of the last rank is slow: it waits 60 ms for each batch (`--disk 60`). Which
# part of a step is the largest on rank 0, and which on rank 1?

# %% editable=true
predict("slow disk: rank 0's largest part", None)
predict("slow disk: rank 1's largest part", None)


# %%
def profiled(*arguments):
    """The milliseconds of a step: a row for each part, a column for each rank."""
    print(step_parts.load())
    with tempfile.TemporaryDirectory() as folder:
        options = launch.Options(profile=Path(folder))
        ended, _ = train("--images", 9600, *arguments, show=False, env=launch.ONE_THREAD, options=options)
        ended.check()
        return step_parts.milliseconds(step_shares.read(options.profile))


slow_disk = profiled("--disk", 60)
for rank, largest in slow_disk.idxmax().items():
    measured(f"slow disk: rank {rank}'s largest part", largest, step_parts.meaning(largest))
slow_disk.round(1)

# %% [markdown]
# Rank 0 waits for rank 1, and rank 1 waits for its disk. A profile of rank 0 alone shows an all-reduce that takes most
# of the step, but a faster network would not help. **Look at the rank that waits least for the others: it is the
# slowest, and all ranks wait for its own work.**
#
# ### Exercise: the diagnosis
#
# You get the profile of a run, a table like the one above. Four changes are possible:
#
# | change | in the script | effect on a rank |
# |---|---|---|
# | `"prefetch"` | `batches.prefetch(2)` | *input* happens while the rank does the rest of its own work |
# | `"bfloat16"` | the policy `mixed_bfloat16` | *network* takes half the time |
# | `"fp16"` | `compression=hvd.Compression.fp16` | *moving* takes half the time |
# | `"callbacks"` | callbacks run once per epoch | *callbacks* takes no time |
#
# The *own work* of a rank is all parts but *waiting* and *moving*. All ranks begin a step together. When the slowest
# has done its own work, the bytes move (the longest *moving* counts), and the step ends.
#
# <details><summary>Hint</summary>What does each rank do after a change, and which rank is then the slowest? For
# <code>"prefetch"</code>: two things happen at the same time; when are both done?</details>


# %% exercise="diagnose"
def diagnose(profile):
    """What limits a run, and the one change that helps most: (rank, part, change).

    profile: table of milliseconds, a row for each part, a column for each rank. It stays as it is.
    rank: the rank that all others wait for.
    part: the largest part of that rank's step, apart from waiting.
    change: the one of "prefetch", "bfloat16", "fp16" and "callbacks" that makes a step shortest.
    """
    ### BEGIN SOLUTION
    own, moving = profile.drop(["waiting", "moving"]), profile.loc["moving"].max()
    total = own.sum()
    changed = {
        "prefetch": np.maximum(own.loc["input"], total - own.loc["input"]).max() + moving,
        "bfloat16": (total - own.loc["network"] / 2).max() + moving,
        "fp16": total.max() + moving / 2,
        "callbacks": (total - own.loc["callbacks"]).max() + moving,
    }
    rank = total.idxmax()
    return rank, profile[rank].drop("waiting").idxmax(), min(changed, key=changed.get)
    ### END SOLUTION


# %%
check(diagnose)

# %% hidden="diagnose" points=4
### BEGIN HIDDEN TESTS
points(diagnose, 4)
### END HIDDEN TESTS

# %% [markdown]
# Now your diagnosis of the slow disk, and a second run that reads two batches ahead.

# %%
print("the slow disk:", diagnose(slow_disk))
ahead = profiled("--disk", 60, "--prefetch", 2)
times = slow_disk.sum().max(), step_parts.after(slow_disk, "prefetch"), ahead.sum().max()
print("a step before: {:.0f} ms; with prefetching, predicted: {:.0f} ms, measured: {:.0f} ms".format(*times))
pictures.parts({"before": slow_disk, "prefetch": ahead}, caption=plots.provenance("drawn images", RANKS))

# %% [markdown]
# Prefetching hides the shorter of two times behind the longer: if the disk takes longer, a `cache()` in memory helps
# more. Where the input pipeline *computes* and a rank has one core, nothing is hidden. (`tf.data` also prefetches by
# itself; this script turns that off.) Profile your own script in a terminal: `course run -np 2 --where
# fashion_mnist.py`.

# %% [markdown]
# ## Hang
#
# All ranks must call the same collectives. Data that don't divide evenly break that rule: of 2,561 images two ranks
# have 1,281 and 1,280, so 21 and 20 batches of 64. Rank 0 asks for an average of gradients that rank 1 will never have;
# rank 1 is at the end of its epoch and asks for an average of metrics.
#
# ### Predict
#
# Horovod has a *stall inspector*. It should warn when a tensor waits longer than `HOROVOD_STALL_CHECK_TIME_SECONDS` (60
# by default), and end the run after `HOROVOD_STALL_SHUTDOWN_TIME_SECONDS` (by default never). Here they are 2 and 4.
# What tells you what is wrong: an "error" (a rank fails by itself), the "inspector" or "nothing"?

# %% editable=true
predict("unequal batches, Gloo: what tells you", None)

# %%
SILENCE = "(The stall inspector said nothing.)"
impatient = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "2", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "4"}


def words(ended, errors):
    """What the stall inspector said, last."""
    lines = [re.sub(r"^\[.*stall_inspector.cc:\d+\] ", "> ", line) for line in errors]
    last = max((i for i, line in enumerate(lines) if line.startswith("> One or more")), default=None)
    if last is None:
        if ended.failed_rank is not None:  # it failed, and did not stall
            ended.check()
        return SILENCE
    return "\n".join([lines[last], *(t for t in lines[last + 1 :] if re.match(r"Missing|\d+!?: \[|One or more", t))])


if "gloo" in CONTROLLERS:
    with tempfile.TemporaryDirectory() as folder:
        stalled = launch.Options(stall_timeout=8, record=Path(folder))
        ended, errors = train("--images", 2561, controller="gloo", env=impatient, timeout=60, options=stalled)
    print(words(ended, errors), ended.message, sep="\n")
    measured(
        "unequal batches, Gloo: what tells you",
        "nothing" if words(ended, errors) == SILENCE else "inspector",
        "A rank that waits makes no mistake, so it raises no error. "
        + (
            "The inspector has a bug, see below."
            if words(ended, errors) == SILENCE
            else "This Horovod's inspector works."
        ),
    )
else:
    print("Horovod was built without Gloo here: the next cell has the other controller.")

# %% [markdown]
# The course ended the run because no rank made a step for 8 seconds. In Horovod 0.28.1 with Gloo the inspector looks
# through an empty list of ranks: `GlooController` only *reserves* space for it (`global_ranks_.reserve(size_)`, where
# `resize` is needed). With MPI the list is filled:

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
# Rank 0 is missing for the *metric* (`HorovodAllreduce`), rank 1 (if it is listed) for the *gradients*. Where the
# inspector does not help:
#
# - **Gloo.** In this version it says nothing. Give your job a time limit.
# - **A frozen rank** (swapping, a dead network). The inspector's thread waits for the silent rank, too.
# - **The first seconds.** Horovod remembers gradients that it has reduced before (its *response cache*), and reports
#   them only after they have left this cache.
# - **Ranks that call the same names by chance.** Without averaged metrics, rank 0's last step is averaged with rank
#   1's first step of the *next epoch*. Nothing hangs until one rank reaches the end.
#
# ### Exercise: the same number for all
#
# The cure is to count first. The images are dealt like cards, as by `dataset.shard(ranks, rank)`: rank $r$ gets the
# images $r$, $r + N$, $r + 2N$, … It cuts them into batches; the last one may be smaller.
#
# <details><summary>Hint</summary>Deal ten cards to three players: how many does each one have? A <code>range</code> has
# a length. <code>math.ceil</code> rounds up.</details>


# %% exercise="steps_per_epoch"
def steps_per_epoch(examples, ranks, batch):
    """How many steps all ranks can take together in an epoch.

    examples: how many there are; ranks: N; batch: examples in a batch, on each rank.
    Returns (batches, steps, left). batches: list, the number of batches of each rank, smaller ones included.
    steps: the largest number of *full* batches that every rank has. left: the examples that are not used if each rank
    takes that many full batches.
    """
    ### BEGIN SOLUTION
    shares = [len(range(rank, examples, ranks)) for rank in range(ranks)]
    batches = [math.ceil(share / batch) for share in shares]
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
# Of $N b$ successive sizes, $N - 1$ hang: fewer than one in 64. So a wrong script works on the data that you tried, and
# hangs on others. The cure in the script is `take(steps)`:


# %%
def cured():
    batches, steps, left = steps_per_epoch(2561, RANKS, 64)
    print(f"batches by rank: {batches}; every rank takes {steps}, {left} images are left out")
    ended, _ = train("--images", 2561, "--steps", steps)
    return ended.code == 0


cured()

# %% [markdown]
# (Shuffle before dealing, and other images are left out in each epoch.)
#
# ### Predict
#
# Horovod's own cure is `hvd.join()`: a rank that has no more data calls it, and the others go on. Here rank 0 has four
# gradients of 8.0, and rank 1 has two. What is the last average that rank 0 gets?

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
    "8 would be the average over the ranks that are left. Horovod still divides by the number of all ranks."
    if averages[-1] < 8
    else "This Horovod divides by the number of ranks that are left.",
)

# %% [markdown]
# A rank that has joined counts as a gradient of zero: a step with one rank of two is half a step. `join` is meant for
# the last few batches; equal numbers are better.

# %% [markdown]
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - `horovodrun` and `mpirun` start the same ranks. What they set for Horovod are environment variables.
# - A timeline shows how each tensor is negotiated, queued, copied and reduced. A long negotiation means a slow rank.
# - The rank that waits least for the others limits the run. After a change another rank or part may be the limit.
# - With unequal numbers of batches the ranks hang, often without a message. Count the steps first.
#
# Next: 2f makes a step shorter and measures how training scales. 2d loses a rank and goes on.
#
# - A. Sergeev, M. Del Balso: *Horovod: fast and easy distributed deep learning in TensorFlow.* arXiv:1802.05799
