# %% [markdown]
# # 2d Survive
#
# Ranks that average in every step wait for each other in every step. When one dies, all stop. With thousands of them
# one dies every few hours. So trainings must be able to go on: from a file, or from what the others still have.
#
# **You will be able to** name all that belongs to a checkpoint, and show that a resumed run equals the uninterrupted
# one to the last bit; write checkpoints that no crash can spoil; say how often to write them; let a run go on that
# loses a rank.
#
# **Time:** 50 minutes; the runs take about 90 seconds on 2 CPU cores; on GPUs they are not yet measured.
#
# **Needs:** 2a and 2b, a little Keras. The last part needs Horovod with Gloo.

# %%
import hashlib
import inspect
import os
import pickle
import signal
import time
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from IPython.display import Code, Image, display

from course_lib import data
from course_lib.notebook import plots, widgets
from course_lib.notebook.report import Ticker
from course_lib.ranks import launch
from course_lib.system.errors import CourseError
from labs.lab2_horovod.lessons import checkpoint
from labs.lab2_horovod.lessons import elastic_run as elastic
from labs.lab2_horovod.lessons import fault_injection as crash
from labs.lab2_horovod.lessons import figures_2d as survival
from labs.lab2_horovod.lessons.checks_2d import check, points

RANKS, K = 2, 40
fashion = data.load("fashion_mnist")
x = (fashion.x_train[:512].reshape(512, -1) / 255).astype(np.float32)
y = fashion.y_train[:512]

# %% [markdown]
# ## A training
#
# The patient of this notebook: one hidden layer, Adam, noise on the images, and a learning rate that falls when the
# loss does not. Small, but with every kind of state that large trainings have. Read it and look for what a step
# *changes*.

# %%
Code(inspect.getsource(checkpoint.Training), language="python")

# %% [markdown]
# ## Where are we in the data?
#
# Half-way through an epoch, half of the examples have been read. A run that begins the epoch anew reads those twice
# and others never. One could save the whole shuffled order. Simpler: **calculate it from the number of the step.**
# What can be calculated needn't be saved.
#
# ### Exercise: the examples of a step
#
# <details><summary>Hint</summary><code>divmod(step, steps_in_an_epoch)</code> gives the epoch and the place in it.
# <code>np.random.default_rng(number)</code> is a generator of your own, with a seed; its <code>permutation(n)</code>
# is a shuffle. All ranks together take <code>size * batch</code> examples in a step.</details>


# %% exercise="examples_at"
def examples_at(step, rank, size, batch, examples):
    """The numbers of the examples that `rank` reads in `step`.

    step: 0, 1, 2, … through all epochs; rank: 0 … size − 1; batch: examples of one rank in one step.
    examples: how many there are. An epoch has examples // (size · batch) steps; what is left over is not read in it.
    Returns integers [batch]. In an epoch no example is read twice, by whomever; each epoch has its own shuffle.
    The result depends on the arguments alone.
    """
    ### BEGIN SOLUTION
    steps = examples // (size * batch)
    epoch, within = divmod(step, steps)
    order = np.random.default_rng(epoch).permutation(examples)
    start = (within * size + rank) * batch
    return order[start : start + batch]
    ### END SOLUTION


# %%
check(examples_at)

# %% hidden="examples_at" points=3
### BEGIN HIDDEN TESTS
points(examples_at, 3)
### END HIDDEN TESTS

# %% [markdown]
# What you should see: in each row (an epoch) every colour (a rank) once and again, no black square, and another
# pattern in each epoch. Empty squares are left over.


# %%
def part_of_an_epoch(images, rank, size, epoch):
    steps = images // (size * 5)
    return np.concatenate([examples_at(epoch * steps + step, rank, size, 5, images) for step in range(steps)])


plots.partition({"your examples_at": part_of_an_epoch}, images=48, ranks=3, epochs=3)

# %% [markdown]
# ## What belongs to a checkpoint?
#
# ### Predict
#
# After 40 steps the run is stopped, and goes on in new processes from a checkpoint that lacks one thing. Which
# omission moves the weights farthest from the uninterrupted run by step 80, which the least? Order them, worst first:
# `"Adam's averages"`, `"number of updates"`, `"learning rate"`, `"position in the data"`, `"random state"`, and
# `"broadcast"` (to the other rank).

# %% editable=true
my_order = []

# %% [markdown]
# ### Exercise: the checkpoint
#
# Take a copy of all that `advance` changes, and put it back into a training that was made anew in another process.
#
# <details><summary>Hint</summary><code>model.get_weights()</code> and <code>model.set_weights(…)</code>;
# <code>variable.numpy()</code> and <code>variable.assign(…)</code> for each of <code>optimizer.variables</code>. The
# learning rate is <em>none</em> of these in Keras 2.15; it has its own <code>numpy()</code> and <code>assign</code>.
# A generator's state is <code>random.bit_generator.state</code>, to be read and to be set.</details>


# %% exercise="checkpoint"
class Checkpoint:
    """What a training needs to go on as if nothing had happened."""

    @staticmethod
    def take(training):
        """A dict with copies of all that a step of `training` changes; plain numbers, arrays, lists and dicts."""
        ### BEGIN SOLUTION
        return {
            "weights": training.model.get_weights(),
            "optimizer": [variable.numpy() for variable in training.optimizer.variables],
            "rate": training.optimizer.learning_rate.numpy(),
            "progress": (training.best, training.waited),
            "step": training.step,
            "random": training.random.bit_generator.state,
        }
        ### END SOLUTION

    @staticmethod
    def put_back(training, state):
        """Bring `training` to where the other one was when `state` was taken from it."""
        ### BEGIN SOLUTION
        training.model.set_weights(state["weights"])
        for variable, value in zip(training.optimizer.variables, state["optimizer"]):
            variable.assign(value)
        training.optimizer.learning_rate.assign(state["rate"])
        training.best, training.waited = state["progress"]
        training.step = state["step"]
        training.random.bit_generator.state = state["random"]
        ### END SOLUTION


# %%
check(Checkpoint)

# %% hidden="checkpoint" points=5
### BEGIN HIDDEN TESTS
points(Checkpoint, 5)
### END HIDDEN TESTS

# %% [markdown]
# The last part of the check is the goal: on one rank, the resumed run equals the uninterrupted one exactly. Before
# two ranks do the same, the checkpoint must get to the disk.
#
# ## A file that no crash can spoil
#
# The moment of writing is the most dangerous one: the old checkpoint is overwritten, and the new one is not yet
# whole. A process that is killed right then has lost both. The cure has three parts:
#
# 1. Write a **draft** beside the file, under another name, and have the system put it on the disk (`flush`, then
#    `os.fsync`).
# 2. **Rename** it. Within one file system this is atomic: at every moment the name leads to the old file or to the
#    new one, both whole.
# 3. Put a **digest** before the content. Disks fill up and copies break off: who reads must notice.
#
# ### Exercise: save and load
#
# <details><summary>Hint</summary><code>pickle.dumps</code> makes bytes of the state;
# <code>hashlib.sha256(those).digest()</code> makes 32 bytes of these. <code>path.with_suffix(".draft")</code> is a
# name beside it; <code>os.replace(a, b)</code> renames. (Unpickle only files that you wrote yourself: a pickle can
# run any program.)</details>


# %% exercise="store"
class Store:
    """Checkpoints on the disk."""

    @staticmethod
    def save(path, state):
        """Write `state` to the file `path` (a pathlib.Path). Whenever the process dies, it is the old or the new."""
        ### BEGIN SOLUTION
        content = pickle.dumps(state)
        draft = path.with_suffix(".draft")
        with open(draft, "wb") as file:
            file.write(hashlib.sha256(content).digest() + content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
        ### END SOLUTION

    @staticmethod
    def load(path):
        """The state in the file `path`. Where it is damaged: ValueError, one sentence that names it."""
        ### BEGIN SOLUTION
        whole = path.read_bytes()
        digest, content = whole[:32], whole[32:]
        if hashlib.sha256(content).digest() != digest:
            raise ValueError(f"{path.name} is cut short or damaged: go back to the checkpoint before it.")
        return pickle.loads(content)
        ### END SOLUTION


# %%
check(Store)

# %% hidden="store" points=4
### BEGIN HIDDEN TESTS
points(Store, 4)
### END HIDDEN TESTS

# %% [markdown]
# Now the crash. A process overwrites the checkpoint of step 40 with that of step 80, and the system kills it when a
# part is written. What can be read afterwards? Once with your `save`, once in the obvious way.


# %%
def obvious(path, state):
    with open(path, "wb") as file:
        pickle.dump(state, file)


def read(load, path):
    try:
        return f"step {load(path)['step']}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def crashes():
    path = Path("crash.ckpt").absolute()
    ways = {
        "your save": (Store.save, Store.load),
        "the obvious way": (obvious, lambda path: pickle.loads(path.read_bytes())),
    }
    rows = {}
    for share in (0.1, 0.5, 0.99, 2.0):
        rows[f"{share:.0%} written" if share < 1 else "not killed"] = row = {}
        for way, (save, load) in ways.items():
            save(path, {"step": 40, "weights": np.zeros(200_000)})
            limit = int(share * path.stat().st_size)
            crash.while_writing(save, path, {"step": 80, "weights": np.ones(200_000)}, limit)
            row[way] = read(load, path)
    for left in Path().glob("crash.*"):
        left.unlink()
    return pd.DataFrame(rows).T


with pd.option_context("display.max_colwidth", None):
    display(crashes())

# %% [markdown]
# ## Stopped and resumed, on two ranks
#
# Three runs. The first takes 80 steps without a stop. The second saves after 40, and rank 1 is killed at step 45. The
# third are new processes: other first weights, other generators. Rank 0 loads the file and **broadcasts** what is in
# it; only then all put it back.

# %%
FILE = Path("survive.ckpt").absolute()


def walk(training, steps):
    """The loss over all images after each of `steps` steps, and the weights at the end."""
    losses = []
    for _ in range(steps):
        training.advance()
        losses.append(training.loss())
    return losses, training.model.get_weights()


def uninterrupted():
    return walk(checkpoint.Training(checkpoint.HorovodRank(), examples_at, x, y, seed=1), 2 * K)


def killed():
    me = checkpoint.HorovodRank()
    training = checkpoint.Training(me, examples_at, x, y, seed=1)
    while True:
        if training.step == K:
            state = Checkpoint.take(training)
            if me.rank == 0:
                Store.save(FILE, state)
        if training.step == K + 5 and me.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        training.advance()


def rehearsal():
    """One step, a checkpoint and back again, here on one rank: what is not written yet shows at once."""
    training = checkpoint.Training(checkpoint.Alone(), examples_at, x, y, seed=1)
    training.advance()
    Store.save(FILE, Checkpoint.take(training))
    Checkpoint.put_back(training, Store.load(FILE))


@lru_cache
def first_two_runs():
    rehearsal()
    # Sums are taken in the same order only if the same number of threads takes them.
    losses, weights = launch.call(uninterrupted, RANKS, env=launch.ONE_THREAD)[0]
    try:
        launch.call(killed, RANKS, env=launch.ONE_THREAD)
    except CourseError as error:
        print(str(error).split(". ")[0] + ".")
    print(f"{FILE.name}: {FILE.stat().st_size:,} bytes, step {Store.load(FILE)['step']}")
    return losses, weights


_ = first_two_runs()

# %% [markdown]
# The third, once whole and once with each omission.


# %%
OMISSIONS = ("nothing", "Adam's averages", "number of updates", "learning rate", "position in the data", "random state")
OMISSIONS += ("broadcast",)


def forget(training, what):
    """Set a part of the training back to what a new process begins with."""
    variables = training.optimizer.variables
    if what == "Adam's averages":
        for variable in variables[1:]:
            variable.assign(np.zeros(variable.shape))
    elif what == "number of updates":
        variables[0].assign(0)
    elif what == "learning rate":
        training.optimizer.learning_rate.assign(checkpoint.RATE)
        training.best, training.waited = float("inf"), 0
    elif what == "position in the data":
        training.step = 0
    elif what == "random state":
        training.random = np.random.default_rng(100)


def resume(me, left_out):
    training = checkpoint.Training(me, examples_at, x, y, seed=100 + me.rank)
    state = Store.load(FILE) if me.rank == 0 else None
    if left_out != "broadcast":
        state = me.broadcast(state)
    if state is not None:
        Checkpoint.put_back(training, state)
    forget(training, left_out)
    return walk(training, K)


def all_resumed():
    me = checkpoint.HorovodRank()
    results = {}
    for left_out in OMISSIONS:
        results[left_out] = resume(me, left_out)
        if me.rank == 0:
            print(f"{len(results)} of {len(OMISSIONS)}, left out: {left_out}", flush=True)
    return results


def apart(some, others):
    """The largest difference of a weight."""
    return max(float(np.abs(a - b).max()) for a, b in zip(some, others))


@lru_cache
def omissions():
    _, weights = first_two_runs()
    zero, one = launch.call(all_resumed, RANKS, env=launch.ONE_THREAD)
    return {
        name: {
            "losses": zero[name][0],
            "from_straight": apart(weights, zero[name][1]),
            "between_ranks": apart(zero[name][1], one[name][1]),
        }
        for name in zero
    }


survival.resumed(first_two_runs()[0], omissions(), caption=plots.provenance(f"{fashion.name}, 512 images", RANKS))


# %%
def table():
    runs = omissions()
    rows = pd.DataFrame(
        {
            "your place": [my_order.index(name) + 1 if name in my_order else "" for name in runs],
            "weights differ by": [run["from_straight"] for run in runs.values()],
            "between the ranks by": [run["between_ranks"] for run in runs.values()],
            "loss 10 steps later": [run["losses"][9] for run in runs.values()],
            "at the end": [run["losses"][-1] for run in runs.values()],
        },
        index=pd.Index(runs, name="left out"),
    )
    losses, _ = first_two_runs()
    print(f"the straight run's loss: {losses[K + 9]:.4f} after step {K + 10}, {losses[-1]:.4f} after step {2 * K}")
    return rows.sort_values("weights differ by", ascending=False)


table()

# %% [markdown]
# (The numbers are those on Fashion-MNIST.)
#
# - **Nothing left out:** exactly 0, on both ranks, after 40 steps of their own. One thread adds in one order, and the
#   training sends all gradients in one message. Several threads, messages fused in other ways, or most GPU kernels
#   change the order of sums, and with it the last bits. (On GPUs `tf.config.experimental.enable_op_determinism()`
#   helps.)
# - **Adam's averages:** ten steps later the loss has doubled. The number of updates says that the averages are old,
#   so their start from zero is no longer corrected for, and the steps become too long. It heals, somewhere else.
# - **Broadcast:** rank 1 goes on from weights of its own. The average gradient is right for neither, and this doesn't
#   heal. It is the only omission for which the ranks disagree.
# - **Position, random state:** the loss is as good as before, and yet it is another run. Nobody can repeat it, or
#   find out by comparison whether the restart was right. And with long epochs and frequent restarts the examples late
#   in the epoch are hardly ever read.
# - **Learning rate, number of updates:** little, because the rate had only fallen from 0.010 to 0.009. A schedule
#   that warms up or decays by the number of updates would begin anew.
#
# So the loss curve would have shown two of the six. Only the comparison with an uninterrupted run shows all of them.
#
# ## How often?
#
# A checkpoint costs $\delta$ seconds. How many? Your `save`, on this machine's disk:


# %%
def write_times():
    path = Path("size.ckpt").absolute()
    rows = []
    for megabytes in (0.1, 1, 10, 100):
        state = {"weights": np.ones(int(megabytes * 250_000), np.float32)}
        seconds = []
        for _ in range(3):
            began = time.perf_counter()
            Store.save(path, state)
            seconds.append(time.perf_counter() - began)
        rows.append({"MB": megabytes, "seconds": np.median(seconds), "MB/s": megabytes / np.median(seconds)})
    path.unlink()
    return pd.DataFrame(rows).set_index("MB").round(4)


write_times()

# %% [markdown]
# The more often, the more time goes into writing; the more seldom, the more work is lost with each failure. If one
# rank fails every $M$ seconds on average, then of $N$ ranks one fails every $M / N$ seconds. In a bulk-synchronous
# training all stop with it, go back to the last checkpoint, on average $T / 2$ seconds of work ago, and need $R$
# seconds until they work again. The share of the time that is lost:
#
# $$\text{writing} \; \frac{\delta}{T} \;+\; \Big( \frac{T}{2} + R \Big) \frac{N}{M}$$
#
# Its derivative, $-\delta / T^2 + N / 2M$, is zero at **Young's interval** $T = \sqrt{2 \delta M / N}$ (Young 1974).
#
# ### Exercise: the lost share


# %% exercise="lost_share"
def lost_share(interval, write, restart, mtbf, ranks):
    """The share of the time that is lost to checkpoints and failures (0.1: a tenth).

    interval: T, seconds of work from one checkpoint to the next, a number or an array; write: δ, seconds to write one.
    restart: R, seconds from a failure until work goes on; mtbf: M, mean seconds between failures of one rank.
    ranks: N, all of which stop when one fails.
    """
    ### BEGIN SOLUTION
    failures_per_second = ranks / mtbf
    redone = interval / 2 + restart
    return write / interval + redone * failures_per_second
    ### END SOLUTION


# %%
check(lost_share)

# %% hidden="lost_share" points=2
### BEGIN HIDDEN TESTS
points(lost_share, 2)
### END HIDDEN TESTS

# %% [markdown]
# ### Predict
#
# Llama 3 was trained on 16,384 GPUs. In 54 days it was interrupted 419 times without being asked: every 3.1 hours, so
# each GPU (with its share of all else) fails once in 5.8 years. If a checkpoint takes 30 s, how often would you write
# one, and how much of the time is then lost if a restart takes 5 minutes?

# %% editable=true
my_interval = None  # seconds
my_lost_share = None

# %%
YEAR = 365.25 * 86_400
print(f"your guesses: {my_interval} s and {my_lost_share}")
widgets.explore(
    lambda ranks, write, years, restart: survival.lost_time(
        lost_share, round(ranks), write, years * YEAR, restart, caption="your lost_share; dots: 4,000 random failures"
    ),
    ranks=widgets.slider("ranks N", 0, 5, 16_384, log=True),
    write=widgets.slider("writing δ in s", -1, 3, 30, log=True),
    years=widgets.slider("a rank fails every … years", 0.5, 20.0, 5.8),
    restart=widgets.slider("restart R in s", 0, 3600, 300),
)

# %% [markdown]
# - Every 14 minutes, and a tenth of the time: of 54 days more than five. At Young's interval writing and doing again
#   take the same. The restart is what no interval cures.
# - The curve is flat around its minimum: half or twice the interval costs little. So a rough guess of $M$ is enough.
# - The dots come from simulated failures. They leave the formula where a good part of the time is lost: it counts on
#   at most one failure in an interval.
# - Move N to 100,000. Young's interval shrinks with $1 / \sqrt N$, and the loss grows with $\sqrt N$, and with the
#   restart even with $N$. So checkpoints must become faster (each rank writes a part, or into a neighbour's memory),
#   and restarts too. The same problem as always in bulk-synchronous training: a barrier waits for the slowest, and a
#   dead rank is infinitely slow. Asynchronous methods would just lose one worker; what they pay for it in accuracy is
#   a matter of its own.
#
# ## Go on without it
#
# Why stop everything, when all the others are alive and hold the whole state in memory? That is Horovod's **elastic**
# mode:
#
# - `state = hvd.elastic.TensorFlowKerasState(model, optimizer, step=0)` names what is to survive. `state.commit()`
#   keeps a copy in the rank's own memory. (It copies `optimizer.variables`: a learning rate that you changed is not
#   among them here either. Add it as you add `step`.)
# - `@hvd.elastic.run` calls your training function. Does a collective fail in it because somebody has died, it
#   catches the error, puts the last commit back, has the survivors count themselves anew, broadcasts rank 0's state
#   and calls the function **again**.
#
# So the function must go on from wherever `state` says.
#
# ### Exercise: a loop that can be called again
#
# <details><summary>Hint</summary>A <code>while</code> in place of a <code>for</code>. Errors of <code>advance</code>
# are not yours: let them pass. A commit must find weights and <code>state.step</code> that belong together.</details>


# %% exercise="keep_going"
def keep_going(state, advance, steps, every):
    """Train until `steps` steps are done in all, from wherever `state` is.

    state: state.step is the number of steps that its weights have taken; you count it. state.commit() keeps a copy.
    advance: takes one step when called as advance(state); doesn't count it. It raises an error when a rank is lost.
    every: commit after each `every` steps.
    """
    ### BEGIN SOLUTION
    while state.step < steps:
        advance(state)
        state.step += 1
        if state.step % every == 0:
            state.commit()
    ### END SOLUTION


# %%
check(keep_going)

# %% hidden="keep_going" points=3
### BEGIN HIDDEN TESTS
points(keep_going, 3)
### END HIDDEN TESTS

# %% [markdown]
# Open [`elastic.py`](elastic.py): 80 lines, with `update` from 2b and your loop inside `train`. We start it on three
# ranks, with at least two to go on, and send SIGKILL to rank 1 when it has done step 35. Commits come every 10 steps.
#
# ### Predict
#
# How many steps will have to be done twice, and after how many seconds does the run go on?

# %% editable=true
my_steps_lost = None
my_seconds = None


# %%
class Rehearsed:
    """A state for one call of your loop without any ranks."""

    step = 0

    def advance(self):
        pass

    def commit(self):
        pass


def lose_one():
    keep_going(Rehearsed(), Rehearsed.advance, 1, 1)
    with Ticker("three ranks, one of which will be killed") as ticker:
        # The ranks pass for three hosts, so each would take the first GPU: on the CPU they can share.
        story = elastic.lose_a_rank(
            "elastic.py", keep_going, ["--steps", 60, "--commit-every", 10], ranks=3, min_ranks=2, kill=1, at=35,
            env={"CUDA_VISIBLE_DEVICES": "-1"}, follow=ticker.follow,
        )  # fmt: skip
    print(f"exit code {story.result.code}, {story.steps['step'].max()} steps done, {story.result.seconds:.0f} s in all")
    print(f"noticed after {story.noticed:.2f} s, next step after {story.went_on:.1f} s (you: {my_seconds})")
    print(f"steps done twice: {story.lost} (you: {my_steps_lost})")
    return survival.elastic(story, caption=plots.provenance(fashion.name, 3))


lose_one() if "gloo" in launch.controllers() else print("Elastic runs need Gloo, and Horovod has none here: read on.")

# %% [markdown]
# The three lines are one until the kill: nobody is ever a step ahead. Then rank 1 is no more, and
#
# 1. the system closes its connections: a survivor that is waiting for it notices **within a tenth of a second**;
# 2. the state of step 30 is put back; 5 steps (31 to 35) are lost and done again;
# 3. Horovod's launcher sees the dead process, gives up *its whole host* with all ranks on it, and numbers the rest
#    anew: rank 0 and 2 become 0 and 1 of 2;
# 4. rank 0's state goes to all, `train` is called again, and the two share what three did: the batch stays the same,
#    so the result does too, but for rounding.
#
# In about half of the runs that takes longer: a survivor that waits for another *survivor*, who has already left to
# count itself anew, hears nothing from anybody. Only silence tells it, here after 5 s
# (`HOROVOD_GLOO_TIMEOUT_SECONDS`; by itself Horovod waits 30 s).
#
# Ten kills of a random rank at a random moment, recorded; `course reproduce elastic` makes them again in about 4
# minutes.

# %%
Image("recorded/elastic.png", width=plots.WIDTH)

# %%
pd.read_csv("recorded/elastic.csv", comment="#")

# %% [markdown]
# - All ten reach step 60 with exit code 0.
# - What is lost is what was done since the last commit, on average half an interval: the $T / 2$ of above, with
#   $\delta$ the time to copy the state in memory, and $R$ seconds in place of minutes.
# - The weights equal those of a run that lost nobody up to rounding ($10^{-7}$): the average was taken over two parts
#   in place of three.
#
# Elastic mode doesn't replace the checkpoint: the commits are in the memory of the ranks, and a power failure takes
# all of them.
#
# ## On your own terminal
#
#     horovodrun -np 3 --min-np 2 -H alpha:1,beta:1,gamma:1 python train.py
#     horovodrun -np 3 --min-np 2 --max-np 8 --host-discovery-script ./hosts.sh python train.py
#
# `--min-np` makes a run elastic. In the second line new ranks may join as well: Horovod asks the script every second
# which hosts there are. Since a failure costs the whole host, the notebook gave this machine three names with room
# for one rank each.
#
# ## Summary
#
# - A checkpoint holds weights, *all* of the optimizer, the learning rate and what decides on it, the position in the
#   data and the state of the random generators. Calculate from the step what can be calculated.
# - Draft, `fsync`, rename, digest: then a crash leaves the old file or the new.
# - Rank 0 writes, rank 0 reads, all get the broadcast. Whether it works is measured: the difference is exactly 0.
# - One failure stops all, and N ranks fail N times as often: write every $\sqrt{2 \delta M / N}$ seconds.
# - An elastic run goes on with those that are left, and loses what was done since the last commit.
#
# Next: 3a asks how large a batch may be.
#
# - J. W. Young: *A first order approximation to the optimum checkpoint interval.* Comm. ACM 17(9), 1974
# - A. Grattafiori et al.: *The Llama 3 Herd of Models.* arXiv:2407.21783
# - A. Sergeev, M. Del Balso: *Horovod: fast and easy distributed deep learning in TensorFlow.* arXiv:1802.05799
# - A. Pedram, W. Lynch, G. Lauterbach: the tutorial on the systems side of training: bulk-synchronous SGD, snapshots
#   and rollback
