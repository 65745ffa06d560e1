# %% [markdown]
# # 2d Survive
#
# Ranks that average in every step wait for each other in every step. When one dies, all stop. Of ten thousand, one
# dies every few hours. So a training must be able to go on: from a file, or from what the other ranks still have.
#
# **You will be able to** name everything that belongs in a checkpoint, and show that a resumed run equals the
# uninterrupted one to the last bit; write checkpoints that no crash can spoil; say how often to write them; and keep a
# run going that loses a rank.
#
# **Time:** 50 minutes; the runs take about 50 seconds on 2 CPU cores.
#
# **Needs:** 2a and 2b, a little Keras. Section *Go on without it* needs Horovod with Gloo.

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
# The patient of this notebook: one hidden layer, Adam, noise on the images, and a learning rate that falls when the
# loss does not. It is small, but has every kind of state that large trainings have. Read it, and note everything that
# a step *changes*: you will need the list soon.

# %%
Code(inspect.getsource(checkpoint.Training), language="python")

# %% [markdown]
# ## Where are we in the data?
#
# Half-way through an epoch, half of the examples have been read. A run that starts the epoch again reads those twice
# and others never. One could save the whole shuffled order. It is simpler to **calculate the examples from the number
# of the step**: what can be calculated needn't be saved.
#
# ### Exercise: the examples of a step
#
# In 2b each rank got one part of the epoch, and read it from its beginning to its end. That is not good enough here: a
# run that stops on four ranks may go on with two (in the last part of this notebook one loses a rank). If it is to
# remain the same training, a step must read the same examples, **however many ranks share them**: four ranks with a
# batch of 8 read together what two read with a batch of 16.
#
# The shuffle of an epoch is given. Which part of it belongs to this rank in this step?
#
# <details><summary>Hint</summary>First find the part of the shuffle that all ranks read <em>together</em> in this step;
# then cut it. <code>divmod</code> gives a quotient and a remainder at once.</details>


# %% exercise="examples_at"
def shuffled(examples, epoch):
    """The numbers 0 … examples − 1 in the order of this epoch: the same on every rank."""
    return np.random.default_rng(epoch).permutation(examples)


def examples_at(step, rank, size, batch, examples):
    """The numbers of the examples that `rank` reads in `step`.

    step: 0, 1, 2, … through all epochs; rank: 0 … size − 1; batch: examples of one rank in one step.
    examples: how many there are. An epoch has examples // (size · batch) steps; what is left over is not read in it.
    Returns integers [batch]. In an epoch no example is read twice, by any rank. What all ranks read together in a step
    depends on size · batch alone.
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
# What you should see: in each row (an epoch) squares of every colour (a rank), none of them black, and another pattern
# in each epoch. Empty squares are images that are left over.


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
# Take a copy of everything that a step changes, and put it back into a training that was made anew in another process.
#
# <details><summary>Where to look</summary>Don't trust your reading alone. Compare <code>vars(training)</code> before
# and after a few calls of <code>advance</code>, and the same for the objects that it holds.</details>
# <details><summary>How to read and to set it</summary>A model has <code>get_weights()</code> and
# <code>set_weights(…)</code>; a variable of Keras has <code>numpy()</code> and <code>assign(…)</code>; an optimizer
# keeps a list <code>variables</code>, and not everything that it changes is in it; a NumPy generator has
# <code>bit_generator.state</code>, to be read and to be set.</details>


# %% exercise="checkpoint"
class Checkpoint:
    """What a training needs to go on as if nothing had happened."""

    @staticmethod
    def take(training):
        """A dict with copies of everything that a step of `training` changes: something that `pickle` can write."""
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
        """Bring `training` to where the other one was when `state` was taken from it."""
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
# The last part of the check is the goal: on one rank, the resumed run equals the uninterrupted one exactly. Before
# two ranks do the same, the checkpoint must get to the disk.
#
# ## A file that no crash can spoil
#
# The moment of writing is the most dangerous one: the old checkpoint is being overwritten, and the new one is not yet
# whole. A process that is killed at that moment has lost both. Three things are wanted:
#
# 1. **At every moment** the name leads to a whole checkpoint, the old one or the new one. Within one file system the
#    system can rename a file over another in a single step; everything else takes several.
# 2. What has been written must be **on the disk**, not just in a buffer of Python or of the system, before it takes the
#    place of the old one (`flush`, then `os.fsync`).
# 3. Disks fill up and copies break off, so whoever reads must **notice the damage**: a digest of the content, stored
#    with it, tells.
#
# ### Exercise: save and load
#
# <details><summary>Hint</summary><code>pickle.dumps</code> makes bytes of the state,
# <code>hashlib.sha256(content).digest()</code> makes 32 bytes of those. <code>path.with_suffix(".draft")</code> is
# another name in the same folder; <code>os.replace(a, b)</code> renames <code>a</code> to <code>b</code>, also where
# <code>b</code> exists. (Unpickle only files that you wrote yourself: a pickle can run any program.)</details>


# %% exercise="store"
class Store:
    """Checkpoints on the disk."""

    @staticmethod
    def save(path, state):
        """Write `state` to `path` (a pathlib.Path). Whenever the process dies, the old or the new state is there."""
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
        """The state in the file `path`. Where the file is damaged: ValueError, with a sentence that names the file."""
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
# Now the crash. A process replaces the checkpoint of step 40 by that of step 80, and the system kills it when a part
# has been written. What can be read afterwards, with your `save` and with the obvious one?


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
# Three runs. The first takes 80 steps without a stop. The second saves after 40, and its rank 1 is killed at step 45.
# The third consists of new processes with other first weights and other generators: rank 0 loads the file and
# **broadcasts** what is in it, and then all ranks put it back.

# %%
FILE = Path("survive.ckpt").absolute()


def join():
    """This process as a rank. It says so: until then TensorFlow is being loaded."""
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
    """One step, a checkpoint and back again, here on one rank: what is not written yet shows at once."""
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
# The third run comes seven times: once with the whole checkpoint, and six times with one thing left out, which then
# starts as in a new training:
#
# - `"Adam's averages"`: the two that it keeps for each weight;
# - `"number of updates"`: Adam's own count;
# - `"learning rate"`, with what decides on it;
# - `"position in the data"`: the step;
# - `"random state"`: the generator of the noise;
# - `"broadcast"`: rank 1 keeps what it started with.
#
# ### Predict
#
# Which omission moves the weights farthest from the uninterrupted run by step 80, and which the least? And for how many
# of the six is rank 0's loss more than a fifth too high ten steps after the restart, so that somebody might notice?

# %% editable=true
predict("omission that moves the weights farthest", None)
predict("omission that moves the weights least", None)
predict("omissions that the loss gives away", None)


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
            "broadcast": "Equal gradients don't make unequal weights equal; see the column between the ranks.",
            "Adam's averages": "New averages with an old count: the steps soon become too long; see the next table.",
        }.get(farthest, "See the column between the ranks, and what follows."),
    )
    measured(
        "omission that moves the weights least",
        left_out["weights differ by"].idxmin(),
        "Little today: it depends on how much of it has changed since the start.",
    )
    measured(
        "omissions that the loss gives away",
        int((left_out["loss 10 steps later"] > 1.2 * losses[K + 9]).sum()),
        too_large="A good loss only says that this is some training, not that it is yours.",
        too_small="Some of what is lost has to be learned again; look at the left panel.",
    )
    return rows.sort_values("weights differ by", ascending=False)


table()

# %% [markdown]
# Two of the six make Adam's steps wrong, each in its own way. Adam's averages start at 0, and after $t$ updates it
# corrects for that: in effect it multiplies η by $c(t) = \sqrt{1 - \beta_2^t} \, / \, (1 - \beta_1^t)$. By which
# factor does each omission lengthen the steps, if the gradient stays the same?


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
# (What follows was seen on Fashion-MNIST.)
#
# - **Nothing left out:** exactly 0, on both ranks, after 40 steps of their own. One thread adds in one order, and the
#   training sends all gradients in one message. Several threads, messages that are fused differently, and most GPU
#   kernels change the order of sums, and with it the last bits. (On GPUs
#   `tf.config.experimental.enable_op_determinism()` helps.)
# - **Adam's averages:** the loss jumps. The count says that the averages are old, so nobody
#   corrects for their start from 0. Soon the steps are half as long again as they should be, and their direction comes
#   from a handful of gradients. It heals, somewhere else.
# - **Number of updates:** the other way round. True averages are corrected as if they were new: the first step is half
#   as long again as it should be, and from the third on all are too short, by up to a third. The loss hardly shows it.
# - **Broadcast:** rank 1 goes on from weights of its own. The averaged gradient is right for neither rank, and this
#   doesn't heal. It is the only omission after which the ranks disagree.
# - **Position, random state:** the loss is as good as before, and yet it is another run. Nobody can repeat it, or tell
#   by comparison whether the restart was right. And with long epochs and frequent restarts the examples late in the
#   epoch are hardly ever read.
# - **Learning rate:** little, where the rate had hardly fallen by step 40. A schedule that warms up or decays would
#   start again from its beginning.
#
# So the loss shows one or two of the six. Only the comparison with an uninterrupted run shows all of them.
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
# If you write often, much time goes into writing. If you write seldom, much work is lost with each failure.
#
# ### Predict
#
# Llama 3 was trained on 16,384 GPUs. In 54 days it was interrupted 419 times unexpectedly: every 3.1 hours, so each GPU
# (with its share of everything else) fails once in 5.8 years. If a checkpoint takes 30 s and a restart 5 minutes, how
# often would you write one, and which share of the time is then lost? (0.1: a tenth.)

# %% editable=true
predict("seconds of work between two checkpoints", None)
predict("share of the time that is lost", None)

# %% [markdown]
# ### Exercise: the lost share
#
# Derive it. Work goes on for $T$ seconds, then a checkpoint is written, which takes $\delta$ seconds, and so on. One
# rank fails every $M$ seconds on average, at any moment with the same probability. In a bulk-synchronous training all
# $N$ ranks then stop, go back to the last checkpoint, and work again $R$ seconds later. Which share of the time is not
# spent on work that lasts?
#
# Let failures be rare: at most one in an interval, and none while a checkpoint is written.
#
# <details><summary>Hint</summary>Two sums. Without any failure: of $T + \delta$ seconds, how many are work? And then:
# how many failures come in a second, with $N$ ranks, and how many seconds does one cost on average?</details>


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
# 1974; less $\delta$, to be exact).

# %%
YEAR = 365.25 * 86_400
LLAMA = {"write": 30, "restart": 300, "mtbf": 5.8 * YEAR, "ranks": 16_384}
intervals = np.geomspace(10, 1e5, 2000)
shares = lost_share(intervals, **LLAMA)
measured(
    "seconds of work between two checkpoints",
    round(intervals[np.argmin(shares)]),
    too_large="One failure in three hours seems rare, but each one takes half an interval of all ranks' work.",
    too_small="A write takes 30 s: written too often, it costs more than the failures.",
)
measured(
    "share of the time that is lost",
    float(np.min(shares)),
    too_small="Writing and doing again cost the same at the best interval, and the restart comes on top.",
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
# - Every 13 or 14 minutes, and a tenth of the time: more than five of the 54 days. At Young's interval writing takes as
#   long as doing the work again. The restart is what no interval cures.
# - The curve is flat around its minimum: half the interval or twice as much costs little. So a rough guess of $M$ will
#   do.
# - The dots come from simulated failures. They leave the formula where a good part of the time is lost, since the
#   formula counts on at most one failure in an interval.
# - Move N to 100,000. Young's interval shrinks with $1 / \sqrt N$. The loss grows with $\sqrt N$, and its part from
#   restarts even with $N$. So checkpoints must become faster (each rank writes a part, or writes into a neighbour's
#   memory), and so must restarts. It is the old problem of bulk-synchronous training: a barrier waits for the slowest
#   rank, and a dead one is infinitely slow. Asynchronous methods would merely lose a worker; what that costs them in
#   accuracy is measured in 6a.
#
# ## Go on without it
#
# Why stop everything, when all the others are alive and hold the whole state in memory? That is Horovod's **elastic**
# mode:
#
# - `state = hvd.elastic.TensorFlowKerasState(model, optimizer, step=0)` names what is to survive. `state.commit()`
#   keeps a copy in the rank's own memory. (It copies `optimizer.variables`: a learning rate that you changed is not
#   among them here either. Add it as you add `step`.)
# - `@hvd.elastic.run` calls your training function. If a collective fails in it because a rank has died, the decorator
#   catches the error, puts the last commit back, numbers the survivors anew, broadcasts rank 0's state, and calls the
#   function **again**.
#
# So the function must go on from wherever `state` says.
#
# ### Exercise: a loop that can be called again
#
# <details><summary>Hint</summary>Put a failure anywhere into your loop: at the call of <code>advance</code>, before a
# commit, after the last step. Which weights and which <code>state.step</code> does the next call find, and do they
# belong together? Who is to deal with the error?</details>


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
# Open [`elastic.py`](elastic.py): about 90 lines, with your loop inside `train`. Its gradients come from
# `hvd.DistributedGradientTape`, which does for a training loop of one's own what 2b's `DistributedOptimizer` does for
# `model.fit`: TensorFlow's tape records a step and hands out the gradients, and this one averages them over the ranks
# first.
#
# We start it on three ranks, of which at least two must remain, and send SIGKILL to rank 1 as soon as it reports that
# step 35 is done. Commits come every 10 steps.
#
# ### Predict
#
# How many steps will have to be done twice, and after how many seconds will the run go on?

# %% editable=true
predict("steps done twice", None)
predict("seconds until the run goes on", None)


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
    story.result.check()
    print(f"exit code {story.result.code}, {story.steps['step'].max()} steps done, {story.result.seconds:.0f} s in all")
    print(f"noticed after {story.noticed:.2f} s")
    measured(
        "steps done twice",
        story.lost,
        too_small="The step that was being done during the failure counts, too.",
        too_large="Only what was done since the last commit is lost, and that was at step 30.",
    )
    measured(
        "seconds until the run goes on",
        round(story.went_on, 1),
        "It is under a second if each survivor notices by itself, and over five if one has to wait for a time-out.",
    )
    return survival.elastic(story, caption=plots.provenance(fashion.name, 3))


lose_one() if "gloo" in launch.controllers() else print("Elastic runs need Gloo, and Horovod has none here: read on.")

# %% [markdown]
# The three lines are one until the kill: no rank is ever a step ahead. Then rank 1 is gone, and
#
# 1. the system closes its connections: a survivor that is waiting for it notices **within a tenth of a second**;
# 2. the state of step 30 is put back, and the steps since then are lost and done again: 31 to 36, six steps, if rank 1
#    had already given its part to step 36 when it died, so that the others could finish it; else 31 to 35;
# 3. Horovod's launcher sees the dead process, gives up *its whole host* with all ranks on it, and numbers the rest
#    anew: ranks 0 and 2 become 0 and 1 of 2;
# 4. rank 0's state goes to all, `train` is called again, and two ranks share what three did: the batch stays the same,
#    and so does the result, up to rounding.
#
# In about half of the runs this takes longer: a survivor may be waiting for another *survivor* that has already left to
# be numbered anew, and hears nothing from anybody. Only the silence tells it, here after 5 s
# (`HOROVOD_GLOO_TIMEOUT_SECONDS`; Horovod's default is 30 s).
#
# Ten kills of a random rank at a random moment, recorded; `course reproduce elastic`, typed in a terminal, makes them
# again in about 5 minutes.

# %%
Image("recorded/elastic.png", width=plots.WIDTH)

# %%
pd.read_csv("recorded/elastic.csv", comment="#")

# %% [markdown]
# - All ten reach step 60 with exit code 0.
# - What is lost is what was done since the last commit, nearly half an interval on average if there are many kills
#   (these ten lost 3.4 steps of 10): the $T / 2$ from above, where $\delta$ is now the time for a copy in memory, and
#   $R$ is seconds instead of minutes. The step that was under way counts: the rank that was killed after step 29 cost
#   nothing, since the others finished step 30 and committed it.
# - The weights equal those of a run that lost nobody, up to rounding (about $10^{-7}$): the average was taken over two
#   parts instead of three.
#
# Elastic mode doesn't replace the checkpoint: the commits are in the ranks' memory, and a power failure takes all of
# them.
#
# ## On your own terminal
#
#     horovodrun -np 3 --min-np 2 -H alpha:1,beta:1,gamma:1 python train.py
#     horovodrun -np 3 --min-np 2 --max-np 8 --host-discovery-script ./hosts.sh python train.py
#
# `--min-np` makes a run elastic. With the second line new ranks may join as well: Horovod asks the script every second
# which hosts there are. Since a failure costs the whole host, the notebook gave this machine three names, each with
# room for one rank.
#
# ## Your guesses

# %%
predictions.table()

# %% [markdown]
# ## Summary
#
# - A checkpoint holds the weights, *all* of the optimizer, the learning rate and what decides on it, the position in
#   the data, and the state of the random generators. What can be calculated from the step needn't be saved.
# - Draft, `fsync`, rename, digest: then a crash leaves the old file or the new one.
# - Rank 0 writes, rank 0 reads, and all get the broadcast. A measurement shows whether it works: the difference is
#   exactly 0.
# - One failure stops all, and N ranks fail N times as often: write every $\sqrt{2 \delta M / N}$ seconds.
# - An elastic run goes on with the ranks that are left, and loses what was done since the last commit.
#
# Next: 2e says all of this once more, in PyTorch and in JAX; 3a asks how large a batch may be.
#
# - J. W. Young: *A first order approximation to the optimum checkpoint interval.* Comm. ACM 17(9), 1974
# - A. Grattafiori et al.: *The Llama 3 Herd of Models.* arXiv:2407.21783
# - A. Sergeev, M. Del Balso: *Horovod: fast and easy distributed deep learning in TensorFlow.* arXiv:1802.05799
# - A. Pedram, W. Lynch, G. Lauterbach: the tutorial on the systems side of training: bulk-synchronous SGD, snapshots
#   and rollback
