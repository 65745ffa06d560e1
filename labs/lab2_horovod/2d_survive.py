# %% [markdown]
# # 2d Checkpoints and lost ranks
#
# Ranks that average gradients in every step wait for each other in every step. If one rank dies, all stop. Among ten
# thousand ranks, one dies every few hours. So a training must be able to continue: from a file, or from the state of
# the other ranks.
#
# **You will be able to** name everything that belongs in a checkpoint, and show that a resumed run equals the
# uninterrupted one to the last bit; write checkpoints that no crash can damage; say how often; and continue a run that
# loses a rank.
#
# **Time:** 50 minutes; the runs take about 50 seconds on 2 CPU cores.
#
# **Needs:** 2a and 2b, a little Keras. Section *Continue without a lost rank* needs Horovod with Gloo.

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
from course_lib.notebook import plots, predictions, widgets
from course_lib.notebook.predictions import measured, predict
from course_lib.notebook.report import Ticker
from course_lib.notebook.widgets.growing_figure import Filling
from course_lib.ranks import launch
from course_lib.system.errors import CourseError
from labs.lab2_horovod.lessons import checkpoint
from labs.lab2_horovod.lessons import elastic_run as elastic
from labs.lab2_horovod.lessons import fault_injection as crash
from labs.lab2_horovod.lessons import figures_2d as survival
from labs.lab2_horovod.lessons.checks_2d import check, points
from labs.lab2_horovod.lessons.figures_2b import partition

RANKS, K = 2, 40
fashion = data.load("fashion_mnist")
x = (fashion.x_train[:512].reshape(512, -1) / 255).astype(np.float32)
y = fashion.y_train[:512]

# %% [markdown]
# ## A training
#
# This notebook uses one small training: one hidden layer, Adam, noise on the images, and a learning rate that is
# reduced when the loss stops falling. Read it, and note everything that a step *changes*: you will soon need the list.

# %%
Code(inspect.getsource(checkpoint.Training), language="python")

# %% [markdown]
# ## Position in the data
#
# A run that starts the epoch again reads some examples twice and others never. You could save the whole shuffled order.
# It is simpler to **compute the examples from the number of the step**: what can be computed need not be saved.
#
# ### Exercise: the examples of a step
#
# In 2b each rank got one part of the epoch. This is not enough here: a run that stops on four ranks may continue on
# two. To remain the same training, a step must read the same examples **for any number of ranks**: four ranks with a
# batch of 8 together read what two ranks read with a batch of 16.
#
# The shuffle of an epoch is given. Which part of it belongs to this rank in this step?
#
# <details><summary>Hint</summary>First find the part of the shuffle that all ranks read <em>together</em> in this step;
# then divide it. <code>divmod</code> gives a quotient and a remainder.</details>


# %% exercise="examples_at"
def shuffled(examples, epoch):
    """The numbers 0 … examples − 1 in the order of this epoch: the same on every rank."""
    return np.random.default_rng(epoch).permutation(examples)


def examples_at(step, rank, size, batch, examples):
    """The numbers of the examples that `rank` reads in `step`.

    step: 0, 1, 2, … through all epochs; rank: 0 … size − 1; batch: examples of one rank in one step.
    examples: how many there are. An epoch has examples // (size · batch) steps; the remaining examples are not read.
    Returns integers [batch]. In an epoch no example is read twice, by any rank. What all ranks together read in a step
    depends only on size · batch.
    """
    ### BEGIN SOLUTION
    steps = examples // (size * batch)
    epoch, within = divmod(step, steps)
    start = (within * size + rank) * batch
    return shuffled(examples, epoch)[start : start + batch]
    ### END SOLUTION


# %%
check(examples_at)

# %% hidden="examples_at" points=3
### BEGIN HIDDEN TESTS
points(examples_at, 3)
### END HIDDEN TESTS

# %% [markdown]
# You should see, in each row (an epoch), squares of every colour (a rank) and no black ones, and a different pattern in
# each epoch. Empty squares are images that are left over.


# %%
def part_of_an_epoch(images, rank, size, epoch):
    steps = images // (size * 5)
    return np.concatenate([examples_at(epoch * steps + step, rank, size, 5, images) for step in range(steps)])


partition({"your examples_at": part_of_an_epoch}, images=48, ranks=3, epochs=3)

# %% [markdown]
# ## What belongs to a checkpoint?
#
# ### Exercise: the checkpoint
#
# Copy everything that a step changes, and put it into a new training in another process.
#
# <details><summary>Where to look</summary>Compare <code>vars(training)</code> before and after a few calls of
# <code>advance</code>, and the same for the objects in it.</details>
# <details><summary>How to read and to set it</summary>A model has <code>get_weights()</code> and
# <code>set_weights(…)</code>; a variable of Keras has <code>numpy()</code> and <code>assign(…)</code>; an optimizer has
# a list <code>variables</code>, which does not hold everything that it changes; a NumPy generator has
# <code>bit_generator.state</code>, which can be read and set.</details>


# %% exercise="checkpoint"
class Checkpoint:
    """What a training needs to continue as if it had not stopped."""

    @staticmethod
    def take(training):
        """A dict with copies of everything that a step of `training` changes. `pickle` must be able to write it."""
        ### BEGIN SOLUTION
        return {
            "weights": training.model.get_weights(),
            "optimizer": [variable.numpy() for variable in training.optimizer.variables],
            "rate": training.optimizer.learning_rate.numpy(),
            "best": training.best,
            "waited": training.waited,
            "step": training.step,
            "random": training.random.bit_generator.state,
        }
        ### END SOLUTION

    @staticmethod
    def put_back(training, state):
        """Give `training` the state that the other training had when `state` was taken."""
        ### BEGIN SOLUTION
        training.model.set_weights(state["weights"])
        for variable, value in zip(training.optimizer.variables, state["optimizer"]):
            variable.assign(value)
        training.optimizer.learning_rate.assign(state["rate"])
        training.best = state["best"]
        training.waited = state["waited"]
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
# ## A file that no crash can damage
#
# If the process is killed while it overwrites the old checkpoint, the old and the new one are lost. Three requirements:
#
# 1. **At every moment** the name refers to a complete checkpoint, the old one or the new one. Within one file system
#    the operating system can rename a file over another in a single step.
# 2. The content must be **on the disk**, not only in a buffer of Python or of the system, before it replaces the old
#    one (`flush`, then for example `os.fsync`).
# 3. Copies can be interrupted, so `load` must **detect damage**, by a digest that is stored with the content.
#
# ### Exercise: save and load
#
# <details><summary>Hint</summary><code>pickle.dumps</code> converts the state to bytes,
# <code>hashlib.sha256(content).digest()</code> computes 32 bytes from them. <code>path.with_suffix(".draft")</code> is
# another name in the same folder; <code>os.replace(a, b)</code> renames <code>a</code> to <code>b</code>, even if
# <code>b</code> exists. (Unpickle only files that you wrote yourself: a pickle can run any program.)</details>


# %% exercise="store"
class Store:
    """Checkpoints on the disk."""

    @staticmethod
    def save(path, state):
        """Write `state` to `path` (a pathlib.Path). Whenever the process dies, the old or the new state remains."""
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
        """The state in the file `path`. If the file is damaged: ValueError, with a sentence that names the file."""
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
# A process replaces the checkpoint of step 40 with that of step 80, and the system kills it when a part is written.
# What can be read afterwards, with your `save` and with the obvious one?


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
    with Filling("four crashes of each") as line:
        for number, share in enumerate((0.1, 0.5, 0.99, 2.0)):
            name = f"{share:.0%} written" if share < 1 else "not killed"
            line.at(number / 4, name)
            rows[name] = row = {}
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
# There are three runs. The first takes 80 steps without a stop. The second saves after 40, and its rank 1 is killed at
# step 45. The third consists of new processes with other first weights and other generators: rank 0 loads the file and
# **broadcasts** its content, and then all ranks put it back.

# %%
FILE = Path("survive.ckpt").absolute()


def join():
    """This process as a rank, which prints its number once TensorFlow is loaded."""
    me = checkpoint.HorovodRank()
    print(f"process {os.getpid()} is rank {me.rank} of {me.size}", flush=True)
    return me


def walk(training, steps):
    """The loss over all images after each of `steps` steps, and the weights at the end."""
    losses = []
    for _ in range(steps):
        training.advance()
        losses.append(training.loss())
    return losses, training.model.get_weights()


def uninterrupted():
    return walk(checkpoint.Training(join(), examples_at, x, y, seed=1), 2 * K)


def killed():
    me = join()
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
    """One step, a checkpoint and back again, here on one rank: an exercise that is not solved yet fails at once."""
    training = checkpoint.Training(checkpoint.Alone(), examples_at, x, y, seed=1)
    training.advance()
    Store.save(FILE, Checkpoint.take(training))
    Checkpoint.put_back(training, Store.load(FILE))


@lru_cache
def first_two_runs():
    rehearsal()
    with Filling("two runs") as line:
        line.at(0, "the ranks start, then take 80 steps")
        # Sums are taken in the same order only if the same number of threads takes them.
        losses, weights = launch.call(uninterrupted, RANKS, env=launch.ONE_THREAD)[0]
        line.at(2 / 3, "the second run")
        try:
            launch.call(killed, RANKS, env=launch.ONE_THREAD)
        except CourseError as error:
            print(str(error).split(". ")[0] + ".")
    print(f"{FILE.name}: {FILE.stat().st_size:,} bytes, step {Store.load(FILE)['step']}")
    return losses, weights


_ = first_two_runs()

# %% [markdown]
# The third run is made seven times: once with the whole checkpoint, and six times with one thing left out, which then
# starts as in a new training:
#
# - `"Adam's averages"`: the two that it keeps for each weight;
# - `"number of updates"`: Adam's own count;
# - `"learning rate"`, and what decides when it is reduced;
# - `"position in the data"`: the step;
# - `"random state"`: the generator of the noise;
# - `"broadcast"`: rank 1 keeps its own first weights.
#
# ### Predict
#
# Which omission moves the weights farthest from the uninterrupted run by step 80, and which the least? For how many of
# the six is rank 0's loss more than a fifth too high ten steps after the restart?

# %% editable=true
predict("omission that moves the weights farthest", None)
predict("omission that moves the weights least", None)
predict("omissions that the loss gives away", None)


# %%
OMISSIONS = ("nothing", "Adam's averages", "number of updates", "learning rate", "position in the data", "random state")
OMISSIONS += ("broadcast",)


def forget(training, what):
    """Reset a part of the training to the state of a new process."""
    variables = training.optimizer.variables
    if what == "Adam's averages":
        for variable in variables[1:]:
            variable.assign(np.zeros(variable.shape))
    elif what == "number of updates":
        variables[0].assign(0)
    elif what == "learning rate":
        training.optimizer.learning_rate.assign(training.RATE)
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
    me = join()
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
            "weights differ by": [run["from_straight"] for run in runs.values()],
            "between the ranks by": [run["between_ranks"] for run in runs.values()],
            "loss 10 steps later": [run["losses"][9] for run in runs.values()],
            "at the end": [run["losses"][-1] for run in runs.values()],
        },
        index=pd.Index(runs, name="left out"),
    )
    losses, _ = first_two_runs()
    print(f"the straight run's loss: {losses[K + 9]:.4f} after step {K + 10}, {losses[-1]:.4f} after step {2 * K}\n")
    left_out = rows.drop(index="nothing")
    measured(
        "omission that moves the weights farthest",
        farthest := left_out["weights differ by"].idxmax(),
        {
            "broadcast": "Equal gradients do not make different weights equal; see the column between the ranks.",
            "Adam's averages": "New averages with an old count: the steps soon become too long; see the next table.",
        }.get(farthest, "See the column between the ranks, and what follows."),
    )
    measured(
        "omission that moves the weights least",
        left_out["weights differ by"].idxmin(),
        "How much it matters depends on how much it has changed since the start.",
    )
    measured(
        "omissions that the loss gives away",
        int((left_out["loss 10 steps later"] > 1.2 * losses[K + 9]).sum()),
        too_large="A good loss does not show that the run is the same run.",
        too_small="Some of what is lost must be learned again; see the left panel.",
    )
    return rows.sort_values("weights differ by", ascending=False)


table()

# %% [markdown]
# Adam's averages start at 0, and after $t$ updates Adam corrects for that: in effect it multiplies η by $c(t) = \sqrt{1
# - \beta_2^t} \, / \, (1 - \beta_1^t)$. By which factor do two of the omissions change the length of the steps, if the
# gradient stays the same?


# %%
def corrected(updates):
    return np.sqrt(1 - 0.999**updates) / (1 - 0.9**updates)


since = np.array([1, 2, 5, 10, 20, 40])
pd.DataFrame(
    {
        "averages from 0, count kept": corrected(K + since) / corrected(since),
        "averages kept, count from 0": corrected(since) / corrected(K + since),
    },
    index=pd.Index(since, name="steps since the restart"),
).round(2).T

# %% [markdown]
# On Fashion-MNIST:
#
# - **Nothing left out:** exactly 0, on both ranks. One thread adds in one order, and the training sends all gradients
#   in one message. Several threads, messages that are fused differently, and most GPU kernels change the order of sums.
#   (On GPUs `tf.config.experimental.enable_op_determinism()` helps.)
# - **Adam's averages:** the loss jumps. According to the count the averages are old, so the start from 0 is not
#   corrected. Soon the steps are too long, and their direction comes from a few gradients.
# - **Number of updates:** old averages are corrected as if they were new. The first steps are too long, the later ones
#   too short. The loss hardly shows it.
# - **Broadcast:** rank 1 continues from its own weights. The averaged gradient is wrong for both ranks, and this does
#   not recover. It is the only omission after which the ranks differ.
# - **Position, random state:** the loss is as good as before, but it is a different run. A comparison can't show
#   whether the restart was right. With long epochs and frequent restarts, examples late in the epoch are hardly ever
#   read.
# - **Learning rate:** a small effect if the rate had hardly fallen. A schedule with warm-up or decay would start again.
#
# So the loss shows one or two of the six. Only the comparison with an uninterrupted run shows all of them.
#
# ## How often?
#
# A checkpoint costs $\delta$ seconds. Measure it for your `save`, on this machine's disk:


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
# Frequent writing takes time; rare writing loses more work with each failure.
#
# ### Predict
#
# Llama 3 was trained on 16,384 GPUs. In 54 days it had 419 unexpected interruptions: one every 3.1 hours, so each GPU
# (with its share of everything else) fails once in 5.8 years. If a checkpoint takes 30 s and a restart 5 minutes, how
# often would you write one, and which share of the time is then lost? (0.1: a tenth.)

# %% editable=true
predict("seconds of work between two checkpoints", None)
predict("share of the time that is lost", None)

# %% [markdown]
# ### Exercise: the lost share
#
# Work goes on for $T$ seconds, then a checkpoint is written, which takes $\delta$ seconds, and so on. Each rank fails
# once in $M$ seconds on average, at any moment with the same probability. In bulk-synchronous training all $N$ ranks
# then stop, go back to the last checkpoint, and continue the work $R$ seconds later. Which share of the time is not
# spent on lasting work?
#
# Assume that failures are rare: at most one in an interval, and none while a checkpoint is written.
#
# <details><summary>Hint</summary>Add two parts. Without any failure: of $T + \delta$ seconds, how many are work? With
# failures: how many are there per second with $N$ ranks, and how many seconds does one cost on average?</details>


# %% exercise="lost_share"
def lost_share(interval, write, restart, mtbf, ranks):
    """The share of the time that is lost to checkpoints and failures (0.1: a tenth).

    interval: T, seconds of work from one checkpoint to the next, a number or an array; write: δ, seconds to write one.
    restart: R, seconds from a failure until work continues; mtbf: M, mean seconds between failures of one rank.
    ranks: N, all of which stop when one fails.
    """
    ### BEGIN SOLUTION
    failures_per_second = ranks / mtbf
    redone = interval / 2 + restart
    return write / (interval + write) + redone * failures_per_second
    ### END SOLUTION


# %%
check(lost_share)

# %% hidden="lost_share" points=2
### BEGIN HIDDEN TESTS
points(lost_share, 2)
### END HIDDEN TESTS

# %% [markdown]
# Set the derivative of your share to zero: it is least near **Young's interval** $T = \sqrt{2 \delta M / N}$ (Young
# 1974).

# %%
YEAR = 365.25 * 86_400
LLAMA = {"write": 30, "restart": 300, "mtbf": 5.8 * YEAR, "ranks": 16_384}
intervals = np.geomspace(10, 1e5, 2000)
shares = lost_share(intervals, **LLAMA)
measured(
    "seconds of work between two checkpoints",
    round(intervals[np.argmin(shares)]),
    too_large="One failure in three hours seems rare, but each one takes half an interval of all ranks' work.",
    too_small="A write takes 30 s: if you write too often, it costs more than the failures.",
)
measured(
    "share of the time that is lost",
    float(np.min(shares)),
    too_small="At the best interval writing costs as much as repeated work, and restarts add to both.",
    too_large="A failure in three hours costs half an interval and the restart: about twelve minutes.",
)
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
# - A checkpoint every 13 or 14 minutes, and a tenth of the time is lost: more than five of the 54 days. At Young's
#   interval writing takes as long as repeating lost work.
# - The curve is flat around its minimum, so a rough estimate of $M$ is enough.
# - The dots (simulated failures) differ from the formula where much of the time is lost: it assumes at most one failure
#   in an interval.
# - Move N to 100,000. Young's interval shrinks with $1 / \sqrt N$. The loss grows with $\sqrt N$, and its part from
#   restarts even with $N$. So checkpoints must become faster (each rank writes a part, or writes to a neighbour's
#   memory), and so must restarts. Asynchronous methods would only lose a worker; 6a measures what they lose in
#   accuracy.
#
# ## Continue without a lost rank
#
# After a failure all other ranks hold the whole state in memory. Horovod's **elastic** mode uses this:
#
# - `state = hvd.elastic.TensorFlowKerasState(model, optimizer, step=0)` names the state to keep. `state.commit()` keeps
#   a copy in the rank's own memory. (It copies `optimizer.variables`. A learning rate that you change is not among
#   them, so register it as you register `step`.)
# - `@hvd.elastic.run` calls your training function. If a collective fails in it because a rank has died, the decorator
#   catches the error, restores the last commit, renumbers the remaining ranks, broadcasts rank 0's state, and calls the
#   function **again**.
#
# ### Exercise: a loop that can be called again
#
# <details><summary>Hint</summary>Imagine a failure at any place in your loop: in the call of <code>advance</code>,
# before a commit, after the last step. Which weights and which <code>state.step</code> does the next call find, and do
# they belong together?</details>


# %% exercise="keep_going"
def keep_going(state, advance, steps, every):
    """Train until `steps` steps are done in all, beginning at `state`.

    state: state.step is the number of steps that its weights have taken; you count it. state.commit() keeps a copy.
    advance: advance(state) takes one step and does not count it. It raises an error when a rank is lost.
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
# Open [`elastic.py`](elastic.py): about 90 lines, with your loop inside `train`. Its gradients come from
# `hvd.DistributedGradientTape`, which does for your own training loop what 2b's `DistributedOptimizer` does for
# `model.fit`.
#
# We start it on three ranks, of which at least two must remain, and send SIGKILL to rank 1 as soon as it reports that
# step 35 is done. There is a commit every 10 steps.
#
# ### Predict
#
# How many steps will have to be done twice, and after how many seconds will the run continue?

# %% editable=true
predict("steps done twice", None)
predict("seconds until the run goes on", None)


# %%
class Rehearsed:
    """A state for one call of your loop without ranks."""

    step = 0

    def advance(self):
        pass

    def commit(self):
        pass


def lose_one():
    keep_going(Rehearsed(), Rehearsed.advance, 1, 1)
    with Ticker("three ranks, one of which will be killed") as ticker:
        # The ranks run as if on three hosts, so each would use the first GPU. They can share the CPU.
        story = elastic.lose_a_rank(
            "elastic.py", keep_going, ["--steps", 60, "--commit-every", 10], ranks=3, min_ranks=2, kill=1, at=35,
            env={"CUDA_VISIBLE_DEVICES": "-1"}, follow=ticker.follow,
        )  # fmt: skip
    story.result.check()
    print(f"exit code {story.result.code}, {story.steps['step'].max()} steps done, {story.result.seconds:.0f} s in all")
    print(f"noticed after {story.noticed:.2f} s")
    measured(
        "steps done twice",
        story.lost,
        "The steps since the commit of step 30 are lost, and perhaps the step in progress.",
    )
    measured(
        "seconds until the run goes on",
        round(story.went_on, 1),
        "More than 5 s: a remaining rank waited for another remaining rank until the time-out."
        if story.went_on and story.went_on > 5
        else "Less than 5 s: the remaining ranks noticed the closed connections and did not wait for the time-out.",
    )
    return survival.elastic(story, caption=plots.provenance(fashion.name, 3))


lose_one() if "gloo" in launch.controllers() else print(
    "Elastic runs need Gloo, which Horovod does not have here. Continue with the recorded runs."
)

# %% [markdown]
# The three lines coincide until the kill: no rank is ever a step ahead. Then
#
# 1. the system closes the connections of rank 1: a rank that is waiting for it notices **within a tenth of a second**;
# 2. the state of step 30 is restored, and the steps since then are done again: 31 to 36, if rank 1 had already sent its
#    part of step 36 when it died, so that the others could finish it; otherwise 31 to 35;
# 3. Horovod's launcher sees the dead process, removes *its whole host* with all ranks on it, and renumbers the rest:
#    ranks 0 and 2 become 0 and 1 of 2;
# 4. rank 0's state goes to all, `train` is called again, and two ranks do the work of three: the batch stays the same,
#    and so does the result, up to rounding.
#
# In about half of the runs this takes longer: a rank may be waiting for another *remaining* rank that has already left
# to be renumbered. It notices this only by a time-out, here after 5 s (`HOROVOD_GLOO_TIMEOUT_SECONDS`; Horovod's
# default is 30 s).
#
# Ten kills of a random rank at a random moment were recorded (`course reproduce elastic` takes about 5 minutes).

# %%
Image("recorded/elastic.png", width=plots.WIDTH)

# %%
pd.read_csv("recorded/elastic.csv", comment="#")

# %% [markdown]
# - All ten reach step 60 with exit code 0.
# - The steps since the last commit are lost, on average nearly half an interval if there are many kills (these ten lost
#   3.4 steps of 10). This is the $T / 2$ from above, but $\delta$ is now the time for a copy in memory, and $R$ is
#   seconds instead of minutes. The rank that was killed after step 29 cost nothing, because the others finished step 30
#   and committed it.
# - The weights equal those of a run that lost no rank, up to rounding (about $10^{-7}$).
#
# Elastic mode does not replace the checkpoint: the commits are in the ranks' memory, and a power failure deletes all of
# them.
#
# ## In your own terminal
#
#     horovodrun -np 3 --min-np 2 -H alpha:1,beta:1,gamma:1 python train.py
#     horovodrun -np 3 --min-np 2 --max-np 8 --host-discovery-script ./hosts.sh python train.py
#
# `--min-np` makes a run elastic. With the second line new ranks may also join: Horovod asks the script every second
# which hosts there are. The notebook gave this machine three names, since a failure removes the whole host.
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - A checkpoint holds the weights, *all* of the optimizer, the learning rate and what decides when it changes, the
#   position in the data, and the state of the random generators.
# - Write a draft with a digest, sync it to the disk, rename it: then a crash leaves the old file or the new one.
# - Rank 0 writes, rank 0 reads, and all get the broadcast. The difference from an uninterrupted run is then exactly 0.
# - One failure stops all, and N ranks fail N times as often: write every $\sqrt{2 \delta M / N}$ seconds.
# - An elastic run continues with the remaining ranks, and loses the steps since the last commit.
#
# Next: 2e does the same in PyTorch and in JAX; 3a asks how large a batch may be.
#
# - J. W. Young: *A first order approximation to the optimum checkpoint interval.* Comm. ACM 17(9), 1974
# - A. Grattafiori et al.: *The Llama 3 Herd of Models.* arXiv:2407.21783
# - A. Sergeev, M. Del Balso: *Horovod: fast and easy distributed deep learning in TensorFlow.* arXiv:1802.05799
# - A. Pedram et al.: tutorial on training at scale, 2018
